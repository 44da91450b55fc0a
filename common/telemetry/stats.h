/* stats.h - the registry of counters and gauges (counter.h), which /metrics and /status.json read.
 *
 * Threads: any thread reads.  Registering allocates, so it happens before READY; the registry lives as long as the
 * process. */
#ifndef COMMON_TELEMETRY_STATS_H
#define COMMON_TELEMETRY_STATS_H

#include "common/base/counter.h"
#include "common/base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Makes a counter public as 'name'_total{labels}.  'labels' is Prometheus text without braces ("pol=\"0\""; values
 * escaped by stats_label) or NULL.  'help' of the first registration of a name is the one shown.  Strings are copied. */
void stats_counter(const char *name, const char *help, const char *labels, const struct counter *counter);

/* A counter that shows value * factor, e.g. samples of what counts heaps. */
void stats_counter_times(const char *name, const char *help, const char *labels, const struct counter *counter,
                         uint64_t factor);

void stats_gauge(const char *name, const char *help, const char *labels, const struct gauge *gauge);

/* A gauge that is asked for when somebody looks, on the thread that shows it: 'read' is called with 'arg'. */
void stats_gauge_read(const char *name, const char *help, const char *labels, int64_t (*read)(const void *arg),
                      const void *arg);

/* A gauge that shows value * scale, e.g. nanoseconds as seconds. */
void stats_gauge_scaled(const char *name, const char *help, const char *labels, const struct gauge *gauge,
                        double scale);

/* Appends name="value" (escaped) to the label text in 'labels', with a comma where needed; returns 'labels'. */
char *stats_label(char *labels, size_t labels_bytes, const char *name, const char *value);

/* Writes all metrics as Prometheus text exposition 0.0.4, grouped by name in order of registration; each counter's family
 * is followed by one that says since when it counts. */
void stats_write(FILE *out);

/* Rates belong to the time between two calls of stats_make_rates() at least the one and at most the other apart. */
#define STATS_RATES_MIN_NS (900 * NS_PER_MS)
#define STATS_RATES_MAX_NS (60 * NS_PER_S)

/* Makes the rates of all counters anew, unless that was just done; 'now_ns' is monotonic. */
void stats_make_rates(int64_t now_ns);

/* One counter or gauge, as stats_each() finds it. */
struct stats_value {
    const char *name;   /* with _total, of a counter */
    const char *labels; /* Prometheus text without braces; "" where there are none */
    bool is_counter;
    uint64_t total; /* of a counter */
    double gauge;   /* of a gauge, scaled */
    double per_s;   /* of a counter: its last rate; NAN where that is not known */
};

/* Calls 'visit' for each, in the order of stats_write(); it must not register any. */
void stats_each(void (*visit)(void *arg, const struct stats_value *value), void *arg);

/* Forgets everything registered, before its owners go. */
void stats_reset(void);

#endif
