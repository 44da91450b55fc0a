/* beam_stream.h - the capture, the counters and the sensors of a stream of beams (voltages or powers).
 *
 * Threads:   the worker, except init (main). */
#ifndef XBGPU_BEAM_BEAM_STREAM_H
#define XBGPU_BEAM_BEAM_STREAM_H

#include "common/base/counter.h"
#include "common/telemetry/sensor.h"
#include "common/time/timebase.h"

#include <stdbool.h>

struct xbgpu_beam_stream {
    const char *name;                     /* [const] */
    bool capture;                         /* true if heaps that begin at 'from_samples' or later are sent */
    int64_t from_samples;                 /* earliest timestamp of a heap that is sent */
    uint64_t n_clipped;                   /* number of clipped samples in all heaps, sent or not */
    struct counter heaps, bytes, samples; /* sent */
    struct counter clipped_samples;       /* sent */
    struct counter audits, audit_failures;
    struct sensor clip_cnt;
    struct sensor next_timestamp;
};

/* Initialises a zeroed stream, and adds the sensors and the metrics.  Returns 0 or negative errno. */
int xbgpu_beam_stream_init(struct xbgpu_beam_stream *stream, const char *name, bool capture, struct sensors *sensors,
                           int64_t begin_ns);

/* If 'on' is true, future heaps that begin at 'from_samples' or later are sent.  If 'on' is false, no future heaps are
 * sent.  Returns the timestamp up to which heaps have been sent or withheld. */
int64_t xbgpu_beam_stream_set_capture(struct xbgpu_beam_stream *stream, bool on, int64_t from_samples);

/* Returns whether a heap that begins at 'samples' is sent. */
bool xbgpu_beam_stream_sends(const struct xbgpu_beam_stream *stream, int64_t samples);

/* Counts a heap that has been handed to the sender. */
void xbgpu_beam_stream_count(struct xbgpu_beam_stream *stream, size_t bytes, uint64_t n_samples, uint64_t n_clipped);

/* Sets the sensors after heaps up to 'end_samples' have been sent or withheld. */
void xbgpu_beam_stream_show(struct xbgpu_beam_stream *stream, int64_t end_samples, int64_t end_ns);

/* Logs the counts of sent heaps and audits. */
void xbgpu_beam_stream_log(const struct xbgpu_beam_stream *stream);

#endif
