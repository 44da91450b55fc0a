/* plugin.h - loads a device from a shared object, so that the daemons start without the device's libraries.
 *
 * The shared object exports one function, DEVICE_PLUGIN_OPEN.  It calls functions of the daemon through a table, struct
 * device_host, so that it needs no symbols of the executable.  The executable and the shared object must be of the same
 * build; a check at the start ensures this.
 *
 * If $CBF_CUDA_DEVICE is set (tests), it is the path of the shared object.  Otherwise the program looks for the file
 * DEVICE_PLUGIN_FILE in three directories: the executable's directory (in a build), ../lib/cbf relative to the
 * executable's directory (in an installation), and CBF_LIBDIR. */
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

/* Opens the plugin's device.  'host' must live as long as the process.  Returns 0, or negative errno with one sentence
 * in 'why', which may begin with a key of the section "device". -ENODEV: there is no usable device. */
typedef int device_plugin_open_fn(const struct device_config *config, const struct device_host *host,
                                  struct device **device, char *why, size_t why_bytes);

/* Finds the plugin and opens its device.  Returns the same errors as device_plugin_open_fn.  The plugin stays loaded
 * until the process ends. */
int device_plugin_open(const struct device_config *config, struct device **device, char *why, size_t why_bytes);

#endif
