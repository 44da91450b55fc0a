/* daemon.h - starts, runs and stops the processes fgpu and xbgpu, which differ in their pipelines.  The order is:
 *
 * signals -> configuration -> service -> device -> HTTP -> pipeline (create) -> KATCP -> pipeline (start, enable) ->
 * READY -> run -> KATCP closes, and ends all requests -> drain (stop), for at most DRAIN_MAX_NS -> HTTP closes ->
 * destroy.  HTTP closes before the pipeline is destroyed, because HTTP reads the pipeline's counters.  A failed start
 * logs one sentence with the configuration key and its place in the file, and leaves no traces. */
#ifndef COMMON_DAEMON_DAEMON_H
#define COMMON_DAEMON_DAEMON_H

#include "common/config/config.h"
#include "common/base/counter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;
struct katcp_device;
struct katcp_sensors;
struct sensors;
struct service;
struct status;

/* The parts of the process that the pipeline uses. */
struct daemon_context {
    struct device *device;
    struct service *service; /* shows the pipeline's state; the pipeline stops the service after a failure or after
                              * the last data */
    struct status *status;   /* the pipeline adds its own members to /status.json */
    struct gauge *healthy;   /* initially 1; the pipeline sets 0 if it detects wrong results; shown by /healthz */
    struct sensors *sensors; /* 'create' adds the pipeline's sensors, which live as long as the pipeline */
    struct katcp_sensors *katcp_sensors; /* argument of katcp_sensors_steady_state() */
};

struct daemon {
    const char *name;
    const struct config_table *table;
    void (*check)(void *values, struct config *config);
    /* Measures which settings are fastest on the device, and saves them for the next start (--tune).  Called only if
     * the table offers this option.  Reports errors in the same way as 'create'. */
    int (*tune)(const void *values, struct device *device, char *why, size_t why_bytes);
    /* Creates the whole pipeline, from the sources to the sinks, and logs it.  Returns 0 or negative errno.  On failure
     * 'why' has one sentence, which begins with a configuration key if a key is the cause.  'why' is empty if the errno
     * explains the failure.  '*pipeline' may then be incomplete, and 'destroy' frees it.  'create' sends nothing, and
     * changes no existing file. */
    int (*create)(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                  size_t why_bytes);
    /* Adds the pipeline's KATCP requests and their argument to 'device'.  The other members of 'device' are already
     * set.  'control' is NULL if the pipeline has no requests. */
    void (*control)(void *pipeline, struct katcp_device *device);
    int (*start)(void *pipeline); /* starts the threads; no thread runs before all threads exist */
    /* Starts the delivery of packets.  Called as the last step before READY, so that packets do not wait to be read.
     * Reports errors in the same way as 'create'. */
    int (*enable)(void *pipeline, char *why, size_t why_bytes);
    /* Drains the pipeline until the time 'give_up_ns' (monotonic) at the latest, and drops the data that remain.
     * Returns false if output was lost because the deadline passed or a capture could not be written.  Does nothing if
     * the pipeline has not started. */
    bool (*stop)(void *pipeline, int64_t give_up_ns);
    void (*destroy)(void *pipeline); /* after stop */
};

/* Logs why a start failed: the place in the file, then the sentence 'why', or the text of 'err' if 'why' is empty.
 * Programs with their own main() may call this function, too.  Returns the exit code. */
int daemon_start_failed(const struct config *config, int err, const char *why);

/* Callbacks of struct katcp_device.  daemon_halt() stops the 'service' with exit code 0.  daemon_restart() stops the
 * service so that systemd starts the daemon again. */
void daemon_halt(void *service);
void daemon_restart(void *service);

/* Runs a daemon; called by its main().  'values' is zeroed memory for the daemon's configuration, which begins with a
 * struct daemon_config (keys.h).  Returns the exit code. */
int daemon_main(const struct daemon *daemon, int argc, char **argv, void *values);

#endif
