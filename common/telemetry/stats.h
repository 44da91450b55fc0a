/* stats.h - the registry of counters and gauges (counter.h), which /metrics and /status.json read.
 *
 * Threads: any thread reads.  Registering allocates, so it happens before READY.  The registry lives as long as the
 * process. */
#ifndef COMMON_TELEMETRY_STATS_H
#define COMMON_TELEMETRY_STATS_H

#include "common/base/counter.h"
#include "common/base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Publishes a counter as 'name'_total{labels}.  'labels' is Prometheus text without braces ("pol=\"0\""; values escaped
 * by stats_label) or NULL.  The first registration of a name gives the 'help' that is shown.  Strings are copied. */
void stats_counter(const char *name, const char *help, const char *labels, const struct counter *counter);

/* Publishes a counter as value * factor, for example samples from a counter of heaps. */
void stats_counter_times(const char *name, const char *help, const char *labels, const struct counter *counter,
                         uint64_t factor);

void stats_gauge(const char *name, const char *help, const char *labels, const struct gauge *gauge);

/* Publishes a gauge that is read on demand: the thread that shows the gauge calls read(arg). */
void stats_gauge_read(const char *name, const char *help, const char *labels, int64_t (*read)(const void *arg),
                      const void *arg);

/* Publishes a gauge as value * scale, for example nanoseconds as seconds. */
void stats_gauge_scaled(const char *name, const char *help, const char *labels, const struct gauge *gauge,
                        double scale);

/* Appends name="value" (escaped) to the label text in 'labels', with a comma if needed.  Returns 'labels'. */
char *stats_label(char *labels, size_t labels_bytes, const char *name, const char *value);

/* Writes all metrics as Prometheus text exposition 0.0.4, grouped by name in order of registration.  A second family
 * after each counter's family gives the time since which the counter counts. */
void stats_write(FILE *out);

/* Shortest and longest time between two calls of stats_make_rates() that give a rate. */
#define STATS_RATES_MIN_NS (900 * NS_PER_MS)
#define STATS_RATES_MAX_NS (60 * NS_PER_S)

/* Computes the rates of all counters, unless that was done less than STATS_RATES_MIN_NS ago; 'now_ns' is monotonic. */
void stats_make_rates(int64_t now_ns);

/* One counter or gauge, as stats_each() passes it. */
struct stats_value {
    const char *name;   /* with _total for a counter */
    const char *labels; /* Prometheus text without braces; "" if there are none */
    bool is_counter;
    uint64_t total; /* counter only */
    double gauge;   /* gauge only, scaled */
    double per_s;   /* counter only: last rate; NAN: not known */
};

/* Calls 'visit' for each counter and gauge, in the order of stats_write().  'visit' must not register any. */
void stats_each(void (*visit)(void *arg, const struct stats_value *value), void *arg);

/* Forgets all registrations, before their owners are freed. */
void stats_reset(void);

#endif
