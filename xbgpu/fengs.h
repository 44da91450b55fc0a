/* fengs.h - the state of each F-engine as an X-engine sees it, with counts of heaps received, missing, late and
 * refused.
 *
 * Flow:      assemblers count --a timer, once a second--> state --> sensors, log, /metrics; HTTP describes it
 * States:    dead:      no data have arrived since the start.
 *            silent:    data have arrived, but none in the last seconds.
 *            losing:    data arrive, but heaps were missing in the last seconds, or all heaps are late or refused.
 *            receiving: data arrive, and no heaps were missing in the last seconds.
 *            If no F-engine has sent data, no single F-engine is at fault.  Then the sensors of dead F-engines have the
 *            status unknown.
 * Threads:   main.  The assemblers' threads count; the HTTP thread calls xbgpu_fengs_describe(). */
#ifndef XBGPU_FENGS_H
#define XBGPU_FENGS_H

#include "common/recv/assemble.h"
#include "common/base/counter.h"
#include "common/base/log.h"
#include "common/telemetry/sensor.h"

#include <ev.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct labels;

enum xbgpu_feng_state {
    XBGPU_FENG_DEAD,
    XBGPU_FENG_SILENT,
    XBGPU_FENG_LOSING,
    XBGPU_FENG_RECEIVING,
    XBGPU_FENG_N_STATES
};

enum { XBGPU_FENG_HEAPS, XBGPU_FENG_MISSING, XBGPU_FENG_LATE, XBGPU_FENG_REFUSED, XBGPU_FENG_N_COUNTS };

struct xbgpu_feng {
    struct gauge state;         /* enum xbgpu_feng_state */
    struct gauge since_unix_ns; /* UNIX time at which the state began; 0: the state began with the process */
    struct sensor state_sensor, count_sensors[XBGPU_FENG_N_COUNTS];
    /* [main] */
    uint64_t counts[XBGPU_FENG_N_COUNTS]; /* values of the counters at the last poll */
    int64_t heard_ns, lost_ns;            /* monotonic times of the last heap and of the last loss; 0: none so far */
    int64_t complete_ns;                  /* monotonic time of the last complete heap; 0: none so far */
};

struct xbgpu_fengs {
    size_t n;                             /* [const] */
    int64_t silent_ns;                    /* [const] */
    const struct labels *labels;          /* [const] */
    struct assembler_source_stats *stats; /* [n] [const] the assemblers' counters */
    struct xbgpu_feng *items;             /* [n] [const] */
    struct ev_loop *loop;                 /* [const] */
    ev_timer look;
    struct log_limit silent_limit, losing_limit, receiving_limit;
    uint8_t *changed, *moved; /* [n] [main] results of one poll */
};

/* Creates the counters, their metrics and sensors, and starts the timer.  An F-engine is silent if no data from it have
 * arrived for 'silent_ns'.  'labels' must outlive 'fengs'.  Returns 0 or -ENOMEM; the caller must call fini in either
 * case. */
int xbgpu_fengs_init(struct xbgpu_fengs *fengs, const struct labels *labels, struct sensors *sensors,
                     struct ev_loop *loop, int64_t silent_ns);

/* Reads all counters and updates the states.  Called by the timer and by tests.  'now_ns' is monotonic. */
void xbgpu_fengs_poll(struct xbgpu_fengs *fengs, int64_t now_ns, int64_t unix_ns);

/* Adds the states of the F-engines and the labels of their inputs to the section 'fengs' of /status.json.  This section
 * already contains the F-engines' metrics.  Metrics and states list the F-engines in the same order. */
void xbgpu_fengs_describe(const struct xbgpu_fengs *fengs, json_t *into);

void xbgpu_fengs_fini(struct xbgpu_fengs *fengs);

#endif
