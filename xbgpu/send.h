/* send.h - the output side of correlation streams: dump buffers, and one SPEAD stream per output.
 *
 * Flow:      worker: take -> reduce writes the dump -> download -> xbgpu_send_push --job--> sender thread -->
 *            network
 *            sender: last packet gone --ref--> worker's inbox {ENGINE_SENT} -> give
 * Ownership: as in common/engine/outbuf.h.
 * Capture:   dumps are always made.  When a dump is pushed, the capture decides whether it is sent
 *            (xbgpu_stream_set_capture()).  Descriptors are always sent.
 * Threads:   worker, except create/start/stop/destroy (main). */
#ifndef XBGPU_SEND_H
#define XBGPU_SEND_H

#include "common/base/counter.h"
#include "common/engine/outbuf.h"
#include "common/send/sender_group.h"
#include "common/telemetry/sensor.h"
#include "xbgpu/audit/audit.h"
#include "xbgpu/config/layout.h"

#include <jansson.h>

struct engine;
struct xbgpu_stream;

/* One dump, on the device and in pinned host memory.  In host memory it has the format in which it is sent:
 * [visibilities][weights].  With a gate the host memory is [visibilities][gate_weights][gate_spectra]. */
struct xbgpu_dump {
    struct outbuf base;               /* first */
    struct xbgpu_stream *stream;      /* [const] */
    void *device_visibilities;        /* [const] int32, or float32 if the voltages are half floats */
    uint32_t *device_weights;         /* [const] [baseline] */
    uint64_t *device_n_saturated;     /* [const] [1] */
    void *visibilities;               /* [const] pinned */
    uint32_t *weights;                /* [const] pinned [baseline], set by the host */
    uint32_t *gate_weights;           /* [const] pinned [row][baseline] number of spectra that the gate took; NULL: not
                                       * sent */
    size_t gate_weights_bytes;        /* [const] */
    uint32_t *gate_spectra;           /* [const] pinned [chan] number of spectra that the gate took; NULL: no gate */
    uint64_t *n_saturated;            /* [const] pinned */
    int64_t timestamp_samples;        /* timestamp of the accumulation's first ADC sample */
    uint32_t min_weight;              /* smallest valid weight; baselines with a smaller weight are flagged */
    size_t n_weighted;                /* number of baselines that are not flagged */
    struct xbgpu_audit_sample *audit; /* [audit_samples] sums that the host computed */
    uint64_t *device_checks;          /* [const] results of the checksum kernels (checksums.h); NULL: no checksums */
    uint64_t *checks;                 /* [const] pinned copy of device_checks */
    struct send_group group;
    struct send_heap heap;
    struct send_job job;
};

struct xbgpu_stream {
    const struct xbgpu_config_output *output; /* [const] */
    const struct xbgpu_layout *layout;        /* [const] */
    struct timebase timebase;                 /* [const] */
    int64_t dump_samples;                     /* [const] length of an accumulation, in ADC samples */
    bool capture;                             /* [worker] true if dumps are sent, beginning at 'from_samples' */
    int64_t from_samples;                     /* [worker] earliest timestamp of a dump that is sent */
    int64_t next_samples;                     /* [worker] end of the last dump sent or withheld; 0: none yet */
    struct gauge sending_from;                /* timestamp from which dumps are sent; -1: no dumps are sent */
    struct xbgpu_dump *dumps;                 /* [const] [n_dumps] */
    size_t n_dumps;                           /* [const] */
    struct outbuf_pool pool;                  /* [worker] */
    struct send_stream *send;
    struct send_stream_stats stats;
    struct counter visibilities;         /* sent */
    struct counter clipped_visibilities; /* number of sent visibilities whose real or imaginary part was clipped */
    struct counter skipped_accs;         /* number of accumulations not sent because no baseline was complete */
    struct counter incomplete_accs;      /* number of accumulations with an incomplete baseline */
    /* number of accumulations without any heap, between accumulations with heaps */
    struct counter absent_accs;
    struct counter dropped_accs; /* number of accumulations not sent because no output buffer was free */
    struct counter wrong_accs;   /* number of accumulations flagged because the audit or a checksum disagreed */
    struct counter audits, audit_failures;
    struct sensor synchronised;   /* true if the last accumulation had the data of all F-engines */
    struct sensor clip_cnt;       /* the sensor shows clipped_visibilities at the end of the last dump */
    struct sensor next_timestamp; /* the sensor shows the value of next_samples */
    struct sensor audit_failure_cnt;
    struct sensor wrong_dump_cnt;
};

struct xbgpu_send;

/* Allocates all dumps, opens all sinks, and gives the engine its senders.  Returns 0, or negative errno with one
 * sentence in 'why'. */
int xbgpu_send_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                      struct xbgpu_send **send, char *why, size_t why_bytes);

struct xbgpu_stream *xbgpu_send_stream(struct xbgpu_send *send, size_t output);

/* Decides about all dumps that have been neither sent nor withheld.  If 'on' is true, dumps that begin at
 * 'from_samples' or later are sent.  If 'on' is false, no dump is sent.  Returns the end of the last dump that was sent
 * or withheld; 0: none yet. */
int64_t xbgpu_stream_set_capture(struct xbgpu_stream *stream, bool on, int64_t from_samples);

/* Adds "sending_from" to each of the "outputs" of /status.json: the timestamp from which dumps are sent, or null. */
void xbgpu_send_describe(const struct xbgpu_send *send, json_t *into);

/* Sets the sensor 'synchronised' when an accumulation ends, even if no dump is made from the accumulation. */
void xbgpu_stream_ended(struct xbgpu_stream *stream, int64_t end_samples, bool complete);

/* Flags all visibilities of a downloaded dump that is known to be wrong, and counts the dump.  All cells are flagged,
 * because it is not known which cells are correct.  The dump is then sent like a dump without received data. */
void xbgpu_stream_flag(struct xbgpu_dump *dump);

/* Flags a dump as xbgpu_stream_flag() does, and marks the process unhealthy.  The tenth wrong dump ends the process.  A
 * single wrong dump may be due to a rare bit error.  But if the device computes wrong dumps repeatedly, a restart may
 * select another device or reset the same device. */
void xbgpu_send_flag(struct xbgpu_send *send, struct xbgpu_dump *dump);

/* Counts a wrong buffer of beams as a wrong dump, and marks the process unhealthy.  Heaps of beams have no flags. */
void xbgpu_send_fail(struct xbgpu_send *send);

/* Hands a downloaded dump to its sender.  The capture decides whether the dump is sent. */
void xbgpu_send_push(struct xbgpu_dump *dump);

/* Logs the counts of each stream, after the senders have stopped. */
void xbgpu_send_log(const struct xbgpu_send *send);

/* Destroys the output side.  NULL is accepted. */
void xbgpu_send_destroy(struct xbgpu_send *send);

#endif
