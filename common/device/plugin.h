/* plugin.h - a device in a shared object of its own, so that the daemons start without the device's libraries.
 *
 * The object exports one function, DEVICE_PLUGIN_OPEN.  A table gives the object the functions of the process that it
 * needs, so no symbol of the object is resolved in the executable.  Both must come from one build, which is checked.
 *
 * Places of the object: $CBF_CUDA_DEVICE alone, if that is set (tests); else DEVICE_PLUGIN_FILE beside the executable
 * (a build directory), in ../lib/cbf from there (an installation), or in CBF_LIBDIR (as built). */
#ifndef COMMON_DEVICE_PLUGIN_H
#define COMMON_DEVICE_PLUGIN_H

#include "common/device/device.h"
#include "common/base/log.h"
#include "common/base/thread.h"

#define DEVICE_PLUGIN_FILE "cbf-cuda.so"
#define DEVICE_PLUGIN_OPEN "cbf_device_open"

/* Functions of the daemon that the plugin may call, from any thread. */
struct device_host {
    const char *build_id;
    void (*log)(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
    void (*fail)(struct device *device, const char *sentence); /* device_fail() */
    /* thread_start() and thread_beat(), for a thread that the process watches. */
    int (*thread_start)(struct thread *thread, const char *name, int cpu, void *(*run)(void *arg), void *arg);
    void (*thread_beat)(void);
};

/* Opens the device.  'host' lives as long as the process.  Returns 0, or negative errno with one sentence in 'why',
 * which may begin with a key of the section "device".  -ENODEV: there is no usable device. */
typedef int device_plugin_open_fn(const struct device_config *config, const struct device_host *host,
                                  struct device **device, char *why, size_t why_bytes);

/* Finds the plugin and opens its device.  Errors as for device_plugin_open_fn.  The plugin stays loaded until the
 * process ends. */
int device_plugin_open(const struct device_config *config, struct device **device, char *why, size_t why_bytes);

#endif
