/* memory.h - amounts of memory for the check before start, a log line about allocated memory, locking, sums of sizes
 * that cannot wrap, huge pages. */
#ifndef COMMON_BASE_MEMORY_H
#define COMMON_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct memory {
    uint64_t total_bytes;     /* of this machine, or the lowest limit of this process's control groups */
    uint64_t available_bytes; /* part of total_bytes that can be taken now without swapping */
};

/* Reads /proc and /sys below 'root' ("" outside of tests), for control groups of versions 1 and 2.  A number that
 * cannot be read becomes UINT64_MAX. */
void memory_find(const char *root, struct memory *memory);

/* Checks that 'needed_bytes' are available, before anything is allocated.  Returns 0, -ENOMEM if they are not available
 * now, or -E2BIG if this machine will never have them.  The sentence in 'why' begins with 'key'.  It ends with
 * 'advice', which names the keys to lower. */
int memory_check(uint64_t needed_bytes, const char *key, const char *advice, char *why, size_t why_bytes);

/* Checks another kind of memory in the same way; the sentence in 'why' calls this memory 'what'. */
int memory_check_in(const struct memory *memory, const char *what, uint64_t needed_bytes, const char *key,
                    const char *advice, char *why, size_t why_bytes);

/* Memory that a pipeline has allocated. */
struct memory_use {
    uint64_t host_bytes;
    uint64_t chunks_bytes;  /* part of host_bytes: chunks that packets are received into */
    uint64_t buffers_bytes; /* part of host_bytes: buffers that packets are sent from */
    uint64_t device_bytes;
    uint64_t direct_bytes; /* part of device_bytes: chunks that packets are written to */
    uint64_t frames_bytes; /* part of device_bytes: rest of a NIC's frames, with gpudirect */
    uint64_t locked_bytes; /* part of host_bytes: frames of a NIC's rings, or the heads of these frames */
};

/* Logs the memory use in one line, in MiB. */
void memory_log(const struct memory_use *use);

/* Locks all memory that this process has mapped, program and stacks included: the kernel never writes a page to swap,
 * or reads it from a disk again.  Untouched pages are locked when the process first touches them.  Returns 0 or
 * negative errno: -ENOMEM or -EPERM if the limit of locked memory is lower than the memory that the process has
 * mapped. */
int memory_lock(void);

#define MEMORY_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Returns 'bytes' rounded up to whole huge pages. */
size_t memory_mapped_bytes(size_t bytes);

/* Maps memory_mapped_bytes(bytes) bytes, on huge pages if the kernel grants them, and on NUMA node 'node' (< 0: any) if
 * possible.  All pages are populated at once, so that no packet is the first to touch a page.  Returns NULL if there is
 * no memory. */
void *memory_map(size_t bytes, int node);
void memory_unmap(void *memory, size_t bytes); /* NULL is accepted */

/* Returns the NUMA node of a network interface's NIC, or -1 if the interface has no known node. */
int memory_node_of_interface(const char *interface);

/* Arithmetic on sizes from a configuration.  A result beyond 64 bits becomes UINT64_MAX, which exceeds any memory. */
static inline uint64_t bytes_times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t bytes_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Adds 'n' times 'bytes' to a sum. */
static inline void bytes_add(uint64_t *sum, uint64_t n, uint64_t bytes)
{
    *sum = bytes_plus(*sum, bytes_times(n, bytes));
}

#endif
