/* device.h - faults of the cpu device: slow operations, and an operation that fails.
 *
 * The linker redirects device_cpu_open() (--wrap).  Operations are counted and fail when they are enqueued.  After the
 * failure no operation changes memory, and callbacks and events still come, as with a GPU that has failed.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_DEVICE_H
#define TESTS_WORLD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* All zeros is a device without faults. */
struct world_device {
    double slow;       /* probability that an operation is slow */
    int64_t slow_ns;   /* longest time that a slow operation takes */
    uint64_t fails_at; /* number of operations until one fails; 0: none fails */
    bool has_failed;
};
extern struct world_device world_device;

#endif
