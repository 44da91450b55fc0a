/* daemon.h - the common life of fgpu and xbgpu as processes: boot order, and shutdown in reverse order.
 *
 * signals -> configuration -> service -> device -> HTTP -> pipeline (create) -> KATCP -> pipeline (start, enable) ->
 * READY -> run -> KATCP closes, with all calls -> drain (stop), for DRAIN_MAX_NS at most -> HTTP closes -> destroy.
 * HTTP closes before the pipeline is destroyed, because HTTP reads the pipeline's counters.  A failed start logs one
 * sentence, which names the configuration key and its place in the file.  A failed start leaves nothing behind. */
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

/* Parts of the process that its pipeline uses. */
struct daemon_context {
    struct device *device;
    struct service *service; /* service_stop() when all sources have ended or one has failed; service_status() */
    struct status *status;   /* the pipeline adds its part of /status.json here */
    struct gauge *healthy;   /* 1; a pipeline that finds its results wrong sets 0, which /healthz reports */
    struct sensors *sensors; /* the pipeline adds its sensors in 'create'; they live as long as the pipeline */
    struct katcp_sensors *katcp_sensors; /* for katcp_sensors_steady_state() */
};

struct daemon {
    const char *name;
    const struct config_table *table;
    void (*check)(void *values, struct config *config);
    /* Measures settings that suit the device, and keeps them for the next start: --tune, if the table offers it.
     * Errors as for 'create'. */
    int (*tune)(const void *values, struct device *device, char *why, size_t why_bytes);
    /* Makes everything between the sockets, and logs what it makes.  Returns 0 or negative errno.  On failure 'why' has
     * one sentence, which begins with a configuration key if a key is to blame.  'why' is empty if the errno says
     * enough.  '*pipeline' may then be half made, for 'destroy'.  Sends nothing, and changes no existing file. */
    int (*create)(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                  size_t why_bytes);
    /* Adds the requests that the pipeline answers, and their argument, to 'device'.  Its other members are set before.
     * NULL: the pipeline answers none. */
    void (*control)(void *pipeline, struct katcp_device *device);
    int (*start)(void *pipeline); /* starts the threads, which first run when all of them exist */
    /* Starts delivery of packets.  Called last before READY, so that none queue up.  Errors as for 'create'. */
    int (*enable)(void *pipeline, char *why, size_t why_bytes);
    /* Drains until 'give_up_ns' (monotonic) at most, and abandons the rest.  Returns false if output was lost that
     * could have been kept: the deadline passed, or a capture could not be written.  Does nothing to a pipeline that
     * has not started. */
    bool (*stop)(void *pipeline, int64_t give_up_ns);
    void (*destroy)(void *pipeline); /* after stop */
};

/* Logs that a start failed with 'err' and 'why' (may be empty), and the place in the file.  Also for programs with a
 * main() of their own.  Returns the exit code. */
int daemon_start_failed(const struct config *config, int err, const char *why);

/* Callbacks of struct katcp_device: stop the 'service' for good, or stop it to be started again. */
void daemon_halt(void *service);
void daemon_restart(void *service);

/* Runs a daemon; called by its main().  'values' is the daemon's zeroed configuration, which begins with a struct
 * daemon_config (keys.h).  Returns the exit code. */
int daemon_main(const struct daemon *daemon, int argc, char **argv, void *values);

#endif
