/* send.h - fgpu's output side: output buffers, and a SPEAD stream per antenna and output.
 *
 * Flow:      worker: take -> fill (antenna.c) -> download -> fgpu_send_push --job--> sender thread --> network; with
 *            send.gpudirect the voltages stay on the device, where the card reads them
 *            sender: last packet gone --ref--> worker's inbox {ENGINE_SENT} -> give
 * Ownership: as in common/engine/outbuf.h.
 * Threads:   worker, except create/start/stop/destroy (main). */
#ifndef FGPU_SEND_H
#define FGPU_SEND_H

#include "common/base/counter.h"
#include "common/device/device.h"
#include "common/engine/outbuf.h"
#include "common/send/sender_group.h"
#include "common/telemetry/sensor.h"
#include "common/telemetry/snapshot.h"
#include "fgpu/layout.h"

struct engine;
struct fgpu_stream;

/* An output buffer: 'n_batches' batches of one antenna's one output, on the device and in pinned host memory. */
struct fgpu_buffer {
    struct outbuf base;             /* first */
    struct fgpu_stream *stream;     /* [const] */
    struct channelise_buffer parts; /* [const] */
    uint8_t *voltages;              /* [const] pinned host copy of parts.voltages; NULL with send.gpudirect */
    uint32_t *saturated;            /* [const] pinned host copy of parts.saturated: [batch][pol] */
    uint64_t *power;                /* [const] pinned host copy of parts.power; NULL where nobody asks */
    int64_t timestamp_samples;      /* of spectrum 0 */
    size_t n_filled;                /* spectra that were made */
    bool whole;                     /* none of them missed input */
    bool sampled_for_status;                 /* by the status page (status.h) */
    struct send_job job;            /* its groups are the batches; group->send says which are valid */
    struct send_job *shares;        /* [n_shares] what of it each share of the stream sends */
};

/* One antenna's one output.  Where there are more send threads than streams, it leaves as several streams of the
 * sender, its shares: each has a run of the destinations, and a thread, a sink, a pace and heap counts of its own. */
struct fgpu_stream {
    const struct fgpu_config_output *output; /* [const] */
    size_t ant;                              /* [const] */
    struct fgpu_buffer *buffers;             /* [const] [n_buffers] */
    size_t n_buffers;                        /* [const] */
    struct device_exported exported;         /* [const] with send.gpudirect, the voltages of all buffers; else zeros */
    uint8_t *preview_voltages;    /* [const] then, pinned, those of a batch that are looked at, [chan][spectrum][pol] */
    struct snapshot look;      /* whether a buffer is wanted for that; between the worker and HTTP */
    struct outbuf_pool pool;   /* [worker] */
    struct send_stream **sends; /* [const] [n_shares] */
    size_t n_shares;            /* [const] */
    struct send_stream_stats stats;
    struct counter samples;       /* complex, in heaps that were handed to the senders */
    struct counter skipped_heaps; /* not sent because input was missing */
    struct counter dropped_heaps; /* not made because no output buffer was free */
    struct gauge ahead_ns;        /* of input that is to come before the next heap may; output.h */
    struct gauge delay_ps;        /* the larger magnitude of both polarisations' models, for the newest output */
    struct sensor clip_cnt[N_POLS];
    int64_t n_clipped[N_POLS]; /* [worker] what they say */
    struct timebase timebase;  /* [const] */
};

struct fgpu_send;

/* Allocates all buffers, opens all sinks, and gives the engine its senders.  Returns 0 or negative errno with one sentence in 'why'. */
int fgpu_send_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                     struct fgpu_send **send, char *why, size_t why_bytes);

struct fgpu_stream *fgpu_send_stream(struct fgpu_send *send, size_t ant, size_t output);

/* The first batch of a finished buffer that will be sent; n_groups where there is none. */
size_t fgpu_buffer_first_sent(const struct fgpu_buffer *buffer);

/* Hands a downloaded buffer to its sender: timestamps and saturation counts are filled in, and told, here. */
void fgpu_send_push(struct fgpu_buffer *buffer);

/* Logs what each stream sent.  After the senders have stopped. */
void fgpu_send_log(const struct fgpu_send *send);

/* NULL is accepted. */
void fgpu_send_destroy(struct fgpu_send *send);

#endif
