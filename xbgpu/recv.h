/* recv.h - xbgpu's receive side: F-engines dealt to receive threads.
 *
 * Flow:      channelised voltages --receiver threads--> chunks of a member's F-engines --> worker's inbox
 * A member is a range of F-engines that is assembled by itself; each network thread has one, a file's thread all of
 * them. All F-engines send to the same groups, so a thread's sockets see the others' packets too and leave them alone.
 * Threads:   created and destroyed by main; counters readable from any thread. */
#ifndef XBGPU_RECV_H
#define XBGPU_RECV_H

#include "common/recv/assemble.h"
#include "common/base/inbox.h"
#include "common/recv/receiver.h"
#include "xbgpu/layout.h"

struct xbgpu_recv;
struct xbgpu_labels;

struct xbgpu_recv_config {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct device *device; /* has the chunks */
    struct inbox *worker;
    int full_kind;                             /* {full_kind, 0, chunk}; chunk->member is the member */
    struct assembler_source_stats *feng_stats; /* [n_ants] what is counted of each F-engine */
    const struct xbgpu_labels *labels;         /* for the log; NULL: F-engines have numbers */
    int end_kind;                              /* {end_kind, 0, NULL} when a receiver's file has ended */
};

/* Opens all sources and allocates all chunks.  Returns 0 or negative errno with one sentence in 'why'. */
int xbgpu_recv_create(const struct xbgpu_recv_config *config, struct xbgpu_recv **recv, char *why, size_t why_bytes);

int xbgpu_recv_start(struct xbgpu_recv *recv);

/* Has packets come.  Returns 0 or negative errno with one sentence in 'why'. */
int xbgpu_recv_enable(struct xbgpu_recv *recv, char *why, size_t why_bytes);

/* Number of receive threads: how many end items there can be. */
size_t xbgpu_recv_n_threads(const struct xbgpu_recv *recv);

/* Once a receive thread has told of its end: true if any ended because its source died, not its file. */
bool xbgpu_recv_failed(const struct xbgpu_recv *recv);

/* True where packets come from a file, which waits for us. */
bool xbgpu_recv_can_wait(const struct xbgpu_recv *recv);

/* Ends the threads; open chunks go to the worker.  Idempotent. */
void xbgpu_recv_stop(struct xbgpu_recv *recv);

/* Logs what each member received and refused. */
void xbgpu_recv_log(const struct xbgpu_recv *recv);

/* The worker must have given all chunks back.  NULL is accepted. */
void xbgpu_recv_destroy(struct xbgpu_recv *recv);

/* Whose packet it is; public for its test. */
struct xbgpu_recv_context {
    uint64_t n_ants;
    uint64_t chan_offset;
    size_t n_members;           /* of this thread */
    const size_t *first_ant;    /* [n_members + 1] antennas of member i: [first_ant[i], first_ant[i + 1]) */
    struct packet_fanout share; /* what the kernel is asked for */
};
#define XBGPU_RECV_N_WANTED 3
extern const uint16_t xbgpu_recv_wanted[XBGPU_RECV_N_WANTED];
enum reject xbgpu_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                struct receiver_identity *identity);

#endif
