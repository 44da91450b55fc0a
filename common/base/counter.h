/* counter.h - counters and gauges that the data path writes; stats.h publishes them.
 *
 * Threads: any thread may read a counter.  Most counters have one writer, but several threads may call
 * counter_add(). */
#ifndef COMMON_BASE_COUNTER_H
#define COMMON_BASE_COUNTER_H

#include <stdatomic.h>
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

/* Adds to a counter that no other thread writes.  Uses no locked instruction.  A locked instruction would wait for
 * earlier stores, such as those that copy the packet's bytes. */
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

#endif
