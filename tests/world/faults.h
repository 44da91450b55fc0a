/* faults.h - faults of the cpu device in the world: slow operations, an operation that fails, too
 * little memory, and bits that flip.
 *
 * faults.c replaces device_cpu_open() (the linker's --wrap), and puts its own functions before the device's operations.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_FAULTS_H
#define TESTS_WORLD_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_faults {
    int64_t slow_ns;         /* largest delay before an operation; 0: none */
    unsigned fail_operation; /* number of the operation that fails, from 1 on; 0: none */
    bool fails_when_run;     /* true: the operation fails when it would run; false: when it is enqueued */
    unsigned fail_memory;    /* number of the allocation that fails, from 1 on; 0: none */
    size_t flip_bytes;       /* a bit flips in copies of this size from device memory to pinned memory; 0: none */
    double flip;             /* probability of a flip, per copy of this size */
    unsigned max_flips;      /* largest number of flips */
};

/* Sets the faults of the next device that is opened. */
void device_faults_set(const struct device_faults *faults);

/* Makes the later operations of the device slow. */
void device_faults_slow(int64_t slow_ns);

/* Returns true if an operation or an allocation has failed. */
bool device_faults_failed(void);

/* Returns the number of bits that have flipped. */
unsigned device_faults_n_flips(void);

#endif
