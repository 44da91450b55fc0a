/* stats.h - counters and gauges that the data path writes; /metrics and /status.json read them.
 *
 * Threads: one writer per counter as a rule (relaxed atomics make several correct, too); readers from any thread.
 * Registering allocates, so it happens before READY; the registry lives as long as the process. */
#ifndef COMMON_STATS_H
#define COMMON_STATS_H

#include "common/units.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct counter {
    _Atomic uint64_t value;
};

struct gauge {
    _Atomic int64_t value;
};

static inline void counter_add(struct counter *counter, uint64_t n)
{
    atomic_fetch_add_explicit(&counter->value, n, memory_order_relaxed);
}

/* The same where no other thread writes this counter: a locked instruction per packet would wait for the packet's bytes
 * to reach memory. */
static inline void counter_add_alone(struct counter *counter, uint64_t n)
{
    uint64_t value = atomic_load_explicit(&counter->value, memory_order_relaxed);

    atomic_store_explicit(&counter->value, value + n, memory_order_relaxed);
}

static inline uint64_t counter_get(const struct counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

static inline void gauge_set(struct gauge *gauge, int64_t value)
{
    atomic_store_explicit(&gauge->value, value, memory_order_relaxed);
}

static inline int64_t gauge_get(const struct gauge *gauge)
{
    return atomic_load_explicit(&gauge->value, memory_order_relaxed);
}

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
