/* stats.h - the registry of counters and gauges (counter.h).  /metrics and /status.json show the registry.
 *
 * Threads: any thread may read the registry.  The program registers all metrics before READY, because registering
 *          allocates memory.  The registry exists as long as the process. */
#ifndef COMMON_TELEMETRY_STATS_H
#define COMMON_TELEMETRY_STATS_H

#include "common/base/counter.h"
#include "common/base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Registers a counter as 'name'_total{labels}.  'labels' is Prometheus text without braces ("pol=\"0\""; stats_label()
 * escapes the values) or NULL.  If a name is registered several times, /metrics shows the first 'help'.  The function
 * copies the strings. */
void stats_counter(const char *name, const char *help, const char *labels, const struct counter *counter);

/* Registers a counter that is shown as value * factor, for example as samples if the counter counts heaps. */
void stats_counter_times(const char *name, const char *help, const char *labels, const struct counter *counter,
                         uint64_t factor);

void stats_gauge(const char *name, const char *help, const char *labels, const struct gauge *gauge);

/* Registers a gauge whose value is the result of read(arg).  The thread that shows the gauge calls read(). */
void stats_gauge_read(const char *name, const char *help, const char *labels, int64_t (*read)(const void *arg),
                      const void *arg);

/* Registers a gauge that is shown as value * scale, for example nanoseconds as seconds. */
void stats_gauge_scaled(const char *name, const char *help, const char *labels, const struct gauge *gauge,
                        double scale);

/* Appends name="value" (escaped) to the label text in 'labels', with a comma if needed.  Returns 'labels'. */
char *stats_label(char *labels, size_t labels_bytes, const char *name, const char *value);

/* Writes all metrics in the Prometheus text format 0.0.4, grouped by name in order of registration.  Each family of
 * counters is followed by a family with the times at which these counters began to count. */
void stats_write(FILE *out);

/* Rates are computed if the time between two calls of stats_make_rates() is within these two limits. */
#define STATS_RATES_MIN_NS (900 * NS_PER_MS)
#define STATS_RATES_MAX_NS (60 * NS_PER_S)

/* Computes the rates of all counters, unless the last calculation was less than STATS_RATES_MIN_NS ago.  'now_ns' is a
 * monotonic time. */
void stats_make_rates(int64_t now_ns);

/* A counter or gauge that stats_each() passes to 'visit'. */
struct stats_value {
    const char *name;   /* name of the metric, with _total if it is a counter */
    const char *labels; /* labels as Prometheus text without braces; "": no labels */
    bool is_counter;
    uint64_t total; /* counter only */
    double gauge;   /* gauge only, scaled */
    double per_s;   /* counter only: last computed rate; NAN: not known */
};

/* Calls 'visit' for each counter and gauge, in the order of stats_write().  'visit' must not register metrics. */
void stats_each(void (*visit)(void *arg, const struct stats_value *value), void *arg);

/* Removes all metrics from the registry.  Call this function before the owners of the counters are freed. */
void stats_reset(void);

#endif
