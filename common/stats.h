/* stats.h - counters and gauges that the data path writes and /metrics reads.
 *
 * Threads: one writer per counter as a rule (relaxed atomics make several correct, too); readers from any thread.
 * Registering allocates, so it happens before READY; the registry lives as long as the process. */
#ifndef COMMON_STATS_H
#define COMMON_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

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
 * escaped by stats_label) or NULL.  'help' of the first registration of a name is the one shown.  Strings are copied.
 * */
void stats_counter(const char *name, const char *help, const char *labels, const struct counter *counter);
void stats_gauge(const char *name, const char *help, const char *labels, const struct gauge *gauge);

/* A gauge that shows value * scale, e.g. nanoseconds as seconds. */
void stats_gauge_scaled(const char *name, const char *help, const char *labels, const struct gauge *gauge,
                        double scale);

/* Appends name="value" (escaped) to the label text in 'labels', with a comma where needed; returns 'labels'. */
char *stats_label(char *labels, size_t labels_bytes, const char *name, const char *value);

/* All metrics as Prometheus text exposition 0.0.4, grouped by name in order of registration; caller frees.
 * NULL if out of memory. */
char *stats_format(void);

/* Forgets everything registered, for tests. */
void stats_reset(void);

#endif
