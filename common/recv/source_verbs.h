/* source_verbs.h - types and functions shared by source_verbs*.c.
 *
 * Flow:      open (recv/source_verbs_open.c): port, ring, completions, queue, endpoints; enable: flow rules, groups;
 *            recv; close
 * Threads:   open, enable and close run on one thread; recv runs on another thread after open. */
#ifndef COMMON_RECV_SOURCE_VERBS_H
#define COMMON_RECV_SOURCE_VERBS_H

#include "common/device/device.h"
#include "common/recv/source.h"
#include "common/net/verbs.h"

#include <infiniband/verbs.h>

/* State of a frame in the ring.  KEPT_NOW: kept since the last recv, and still in 'used'.  KEPT_LONG: kept earlier,
 * and in no list. */
enum kept { NOT_KEPT, KEPT_NOW, KEPT_LONG };

struct recv_source_verbs {
    struct recv_source base;
    struct verbs_port port;
    const struct endpoint_list *config_endpoints;
    struct recv_endpoints endpoints; /* table of the endpoints, for look-ups */
    uint8_t *ring;                   /* [n_frames][frame_bytes] whole frames; with a device, only their heads */
    size_t max_frame_bytes;          /* longest frame */
    size_t ring_bytes, frame_bytes, n_frames;
    struct verbs_memory memory;
    /* device whose memory gets the rest of each frame; NULL: whole frames are in host memory */
    struct device *device;
    struct device_exported rests; /* [n_frames][rest_bytes] */
    size_t rest_bytes;
    struct verbs_memory rest_memory;
    uint8_t *kept;   /* [n_frames] enum kept */
    uint32_t *spare; /* [n_frames] indices of the spare frames: frames that are neither kept nor posted */
    size_t n_spare;
    size_t n_posted, max_posted;
    struct ibv_recv_wr *requests; /* [n_frames] */
    struct ibv_sge *parts;        /* [n_frames][head, rest] */
    struct ibv_comp_channel *channel;
    /* a queue pair needs two completion queues; 'send_cq' stays empty, because nothing is sent */
    struct ibv_cq *cq, *send_cq;
    struct ibv_qp *qp;
    size_t n_flows;
    struct ibv_flow **flows; /* one rule for each endpoint, or for each of its allowed senders */
    size_t n_sockets;
    int *sockets; /* [n_endpoints] */
    int drops_fd; /* file with the NIC's counter of drops; -1: the NIC has no such counter */
    uint64_t n_drops_before;

    uint32_t used[PACKET_BATCH_MAX]; /* numbers of the frames of the last recv */
    size_t n_used;
    struct ibv_wc completions[PACKET_BATCH_MAX];
    bool armed;        /* true if the next completion raises an event */
    bool may_coalesce; /* true if the ring is so large that recv_source_coalesce() may sleep */
    int64_t waiting_since_ns;
    int64_t busy_ns; /* duration of polling before the thread sleeps */
    int err;         /* negative errno of a dead source; else 0 */
};

static inline uint8_t *verbs_source_frame(const struct recv_source_verbs *source, uint64_t i)
{
    return source->ring + i * source->frame_bytes;
}

/* The operations on a source that has been opened. */
extern const struct recv_source_ops verbs_source_ops;

/* Installs flow rules, which make the NIC steer packets for the endpoints to the queue.  Joins the groups. */
int recv_source_verbs_enable(struct recv_source *base, char *why, size_t why_bytes);

/* Posts 'n' > 0 frames to the NIC, in the order of frames[].  Returns 0 or a positive errno. */
int recv_source_verbs_post(struct recv_source_verbs *source, const uint32_t *frames, size_t n);

/* Opens the NIC's counter of drops, and stores its present value. */
void recv_source_verbs_open_drops(struct recv_source_verbs *source);

/* Closes a source, even if it is only partly open. */
void recv_source_verbs_close(struct recv_source *base);

#endif
