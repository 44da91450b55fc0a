/* memory.h - how much memory there is, for the check before start; and sums of sizes that cannot wrap. */
#ifndef COMMON_MEMORY_H
#define COMMON_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct memory {
    uint64_t total_bytes;     /* of this machine, or the least limit of the control groups that we are in */
    uint64_t available_bytes; /* of these, what can be taken now without swapping */
};

/* Looks it up in proc and sys below 'root' ("" but in tests), for control groups of both versions.  What cannot be read
 * is UINT64_MAX. */
void memory_find(const char *root, struct memory *memory);

/* Checks that 'needed_bytes' can be had, before anything is allocated.  Returns 0; -ENOMEM where it cannot be had now;
 * or -E2BIG where this machine will never have it.  The sentence in 'why' begins with 'key' and ends with 'advice':
 * which keys to lower. */
int memory_check(uint64_t needed_bytes, const char *key, const char *advice, char *why, size_t why_bytes);

/* The same of other memory, 'what' the sentence calls it. */
int memory_check_in(const struct memory *memory, const char *what, uint64_t needed_bytes, const char *key,
                    const char *advice, char *why, size_t why_bytes);

/* Sizes from a configuration may go beyond 64 bits: what does stays at UINT64_MAX, which no memory holds. */
static inline uint64_t bytes_times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t bytes_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
