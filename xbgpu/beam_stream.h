/* beam_stream.h - what a stream of beams has sent, voltages or powers: whether it sends, its counters, its sensors.
 *
 * Threads: the worker, except init (main). */
#ifndef XBGPU_BEAM_STREAM_H
#define XBGPU_BEAM_STREAM_H

#include "common/base/counter.h"
#include "common/telemetry/sensor.h"
#include "common/time/timebase.h"

#include <stdbool.h>

struct xbgpu_beam_stream {
    const char *name;                     /* [const] */
    bool capture;                         /* heaps are sent... */
    int64_t from_samples;                 /* ...that begin here or later */
    uint64_t n_clipped;                   /* samples, sent or not */
    struct counter heaps, bytes, samples; /* sent */
    struct counter clipped_samples;       /* sent */
    struct counter audits, audit_failures;
    struct sensor clip_cnt;
    struct sensor next_timestamp;
};

/* Adds the sensors and the metrics, for zeros.  Returns 0 or negative errno. */
int xbgpu_beam_stream_init(struct xbgpu_beam_stream *stream, const char *name, bool capture, struct sensors *sensors,
                           int64_t begin_ns);

/* Heaps that begin at 'from_samples' or later are sent, if 'on'.  Returns up to where heaps have been pushed. */
int64_t xbgpu_beam_stream_set_capture(struct xbgpu_beam_stream *stream, bool on, int64_t from_samples);

/* Whether a heap leaves that begins at 'samples'. */
bool xbgpu_beam_stream_sends(const struct xbgpu_beam_stream *stream, int64_t samples);

/* A heap has been handed to the sender. */
void xbgpu_beam_stream_count(struct xbgpu_beam_stream *stream, size_t bytes, uint64_t n_samples, uint64_t n_clipped);

/* Heaps up to 'end_samples' have been pushed, sent or not. */
void xbgpu_beam_stream_show(struct xbgpu_beam_stream *stream, int64_t end_samples, int64_t end_ns);

/* Logs what was sent. */
void xbgpu_beam_stream_log(const struct xbgpu_beam_stream *stream);

#endif
