/* memory.h - how much memory there is, for the check before start; what is taken of it, and that it stays; sums of
 * sizes that cannot wrap; huge pages. */
#ifndef COMMON_BASE_MEMORY_H
#define COMMON_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct memory {
    uint64_t total_bytes;     /* of this machine, or the least limit of the control groups that we are in */
    uint64_t available_bytes; /* of these, what can be taken now without swapping */
};

/* Reads proc and sys below 'root', which is "" outside of tests, for control groups of both versions.  A number that
 * cannot be read is UINT64_MAX. */
void memory_find(const char *root, struct memory *memory);

/* Checks that 'needed_bytes' can be had, before anything is allocated.  Returns 0; -ENOMEM where it cannot be had now;
 * or -E2BIG where this machine will never have it.  The sentence in 'why' begins with 'key' and ends with 'advice':
 * which keys to lower. */
int memory_check(uint64_t needed_bytes, const char *key, const char *advice, char *why, size_t why_bytes);

/* The same of other memory, 'what' the sentence calls it. */
int memory_check_in(const struct memory *memory, const char *what, uint64_t needed_bytes, const char *key,
                    const char *advice, char *why, size_t why_bytes);

/* Memory that a pipeline has allocated. */
struct memory_use {
    uint64_t host_bytes;
    uint64_t chunks_bytes;  /* of these the chunks that packets are received into */
    uint64_t buffers_bytes; /* of these the buffers that packets are sent from */
    uint64_t device_bytes;
    uint64_t direct_bytes; /* of these the chunks that packets are written to */
    uint64_t frames_bytes; /* of device_bytes the rest of a NIC's frames, with gpudirect */
    uint64_t locked_bytes; /* of host_bytes the frames of a NIC's rings, or their heads */
};

/* Tells it in one line of the log, in MiB. */
void memory_log(const struct memory_use *use);

/* Locks all memory that this process has mapped, program and stacks included: the kernel never writes a page to swap,
 * or reads it from a disk again.  Untouched pages are locked when the process first touches them.  Returns 0 or
 * negative errno: -ENOMEM or -EPERM if the limit of locked memory is lower than the memory that the process has
 * mapped. */
int memory_lock(void);

#define MEMORY_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* 'bytes' rounded up to whole huge pages. */
size_t memory_mapped_bytes(size_t bytes);

/* Maps that much on huge pages where the kernel grants them, on a NUMA node (< 0: any) where it can; all of it is there
 * at once, so that no page is first touched by a packet.  Returns NULL where there is no memory. */
void *memory_map(size_t bytes, int node);
void memory_unmap(void *memory, size_t bytes); /* NULL is accepted */

/* The node of the card that a network interface belongs to; -1: not known, or none. */
int memory_node_of_interface(const char *interface);

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

/* Adds 'n' of them to a sum. */
static inline void bytes_add(uint64_t *sum, uint64_t n, uint64_t bytes)
{
    *sum = bytes_plus(*sum, bytes_times(n, bytes));
}

#endif
