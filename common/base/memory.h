/* memory.h - checks, logs, maps and locks host memory, and adds sizes without overflow. */
#ifndef COMMON_BASE_MEMORY_H
#define COMMON_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct memory {
    /* memory of this host; if a control group of this process has a smaller limit, the smallest such limit */
    uint64_t total_bytes;
    uint64_t available_bytes; /* part of total_bytes that can be allocated now without swapping */
};

/* Finds the host's memory and the limits of control groups (versions 1 and 2), in /proc and /sys below 'root' (""
 * except in tests).  An amount that cannot be read becomes UINT64_MAX. */
void memory_find(const char *root, struct memory *memory);

/* Checks that 'needed_bytes' of host memory are available, before the program allocates them.  Returns 0, -ENOMEM if
 * too few bytes are available now, or -E2BIG if 'needed_bytes' exceeds the total.  The sentence in 'why' begins with
 * 'key' and ends with 'advice', which names the keys to lower. */
int memory_check(uint64_t needed_bytes, const char *key, const char *advice, char *why, size_t why_bytes);

/* Checks another kind of memory in the same way as memory_check().  'what' is the name of this memory in the sentence
 * in 'why'. */
int memory_check_in(const struct memory *memory, const char *what, uint64_t needed_bytes, const char *key,
                    const char *advice, char *why, size_t why_bytes);

/* Memory that a pipeline has allocated. */
struct memory_use {
    uint64_t host_bytes;
    uint64_t chunks_bytes;  /* part of host_bytes: chunks for received packets */
    uint64_t buffers_bytes; /* part of host_bytes: output buffers */
    uint64_t device_bytes;
    uint64_t direct_bytes; /* part of device_bytes: chunks that receive threads write to (recv.direct) */
    uint64_t frames_bytes; /* part of device_bytes, only with gpudirect: frames of a NIC's rings, without headers */
    uint64_t locked_bytes; /* part of host_bytes: frames of a NIC's rings; with gpudirect, only the frames' headers */
};

/* Logs the memory use in one line, in MiB. */
void memory_log(const struct memory_use *use);

/* Locks all memory that this process has mapped, program and stacks included.  The kernel then never writes a page to
 * swap or reads a page from a disk again.  Untouched pages are locked when the process first touches them.  Returns 0
 * or negative errno: -ENOMEM or -EPERM if the limit of locked memory is lower than the memory that the process has
 * mapped. */
int memory_lock(void);

/* Touches each page of memory whose bytes no other thread changes, and keeps the bytes.  Afterwards the resident memory
 * of the process contains all these pages. */
void memory_touch(void *memory, size_t bytes);

#define MEMORY_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Returns 'bytes' rounded up to whole huge pages. */
size_t memory_mapped_bytes(size_t bytes);

/* Maps memory_mapped_bytes(bytes) bytes, on huge pages if the kernel grants them, and on NUMA node 'node' (< 0: any) if
 * possible.  Populates all pages, so that receiving a packet causes no page fault.  Returns NULL if there is no
 * memory. */
void *memory_map(size_t bytes, int node);
void memory_unmap(void *memory, size_t bytes); /* NULL is accepted */

/* Returns the NUMA node of a network interface's NIC, or -1 if the node is not known or 'interface' is NULL. */
int memory_node_of_interface(const char *interface);

/* Multiplies or adds sizes from a configuration.  A result beyond 64 bits becomes UINT64_MAX, which exceeds any
 * memory. */
static inline uint64_t bytes_times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t bytes_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Adds the product of 'n' and 'bytes' to '*sum'. */
static inline void bytes_add(uint64_t *sum, uint64_t n, uint64_t bytes)
{
    *sum = bytes_plus(*sum, bytes_times(n, bytes));
}

#endif
