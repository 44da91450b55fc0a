/* send.h - fgpu's output side: output buffers, and a SPEAD stream per antenna and output.
 *
 * Flow:      worker: take -> fill (antenna.c) -> download -> fgpu_send_push --job--> sender thread --> network
 *            sender: last packet sent --ref--> worker's inbox {ENGINE_SENT} -> give
 *            With send.gpudirect the voltages stay on the device, and the NIC reads them there.
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
#include "fgpu/config/layout.h"

struct engine;
struct fgpu_stream;

/* An output buffer: 'n_batches' batches of one output of one antenna, on the device and in pinned host memory. */
struct fgpu_buffer {
    struct outbuf base;             /* first */
    struct fgpu_stream *stream;     /* [const] */
    struct channelise_buffer parts; /* [const] */
    uint8_t *voltages;              /* [const] pinned host copy of parts.voltages; NULL with send.gpudirect */
    uint32_t *saturated;            /* [const] pinned host copy of parts.saturated: [batch][pol] */
    uint64_t *power;                /* [const] pinned host copy of parts.power; NULL without measurement */
    int64_t timestamp_samples;      /* timestamp of spectrum 0 */
    size_t n_filled;                /* number of spectra that were made */
    bool whole;                     /* true if every spectrum of the buffer has all its input */
    bool sampled_for_status;        /* the status page has requested a sample of this buffer (status.h) */
    struct send_job job;            /* job with one group for each batch; group->send is true if the batch is valid */
    struct send_job *shares;        /* shape [n_shares]: the buffer's part for each share of the stream */
};

/* One output of one antenna.  If there are more send threads than streams, the sender sends an output as several
 * streams, called shares.  Each share has consecutive destinations, and its own thread, sink, pace and heap counts. */
struct fgpu_stream {
    const struct fgpu_config_output *output; /* [const] */
    size_t ant;                              /* [const] */
    struct fgpu_buffer *buffers;             /* [const] [n_buffers] */
    size_t n_buffers;                        /* [const] */
    struct device_exported exported;         /* [const] with send.gpudirect, voltages of all buffers; else zeros */
    /* [const] with send.gpudirect, the status page's spectra in pinned memory: [chan][spectrum][pol] */
    uint8_t *preview_voltages;
    struct snapshot look;       /* the status page's request for a sample, exchanged between HTTP and the worker */
    struct outbuf_pool pool;    /* [worker] */
    struct send_stream **sends; /* [const] [n_shares] */
    size_t n_shares;            /* [const] */
    struct send_stream_stats stats;
    struct counter samples;       /* number of complex samples in heaps handed to the senders */
    struct counter skipped_heaps; /* number of heaps not sent because input was missing */
    struct counter dropped_heaps; /* number of heaps not made because no output buffer was free */
    struct gauge ahead_ns;        /* duration of input that must arrive before the next heap can begin (output.h) */
    /* magnitude of the delay in the newest output: the maximum over both polarisations */
    struct gauge delay_ps;
    struct sensor clip_cnt[N_POLS];
    int64_t n_clipped[N_POLS]; /* [worker] values of 'clip_cnt' */
    struct timebase timebase;  /* [const] */
};

struct fgpu_send;

/* Allocates all buffers, opens all sinks, and gives the engine its senders.  Returns 0 or negative errno with one
 * sentence in 'why'. */
int fgpu_send_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                     struct fgpu_send **send, char *why, size_t why_bytes);

struct fgpu_stream *fgpu_send_stream(struct fgpu_send *send, size_t ant, size_t output);

/* Returns the first batch of a finished buffer that will be sent; n_groups if no batch will be sent. */
size_t fgpu_buffer_first_sent(const struct fgpu_buffer *buffer);

/* Hands a downloaded buffer to its sender.  Fills in timestamps and saturation counts.  Updates the sensors of the
 * saturation counts. */
void fgpu_send_push(struct fgpu_buffer *buffer);

/* Logs the heaps that each stream sent.  Called after the senders have stopped. */
void fgpu_send_log(const struct fgpu_send *send);

/* Destroys the output side.  NULL is accepted. */
void fgpu_send_destroy(struct fgpu_send *send);

#endif
