/* daemon.h - what fgpu and xbgpu have in common as processes: boot order, and shutdown as its mirror.
 *
 * signals -> configuration -> service -> device -> HTTP -> pipeline (create) -> KATCP -> pipeline (start, begin) -> READY -> run
 * -> KATCP closes, with all calls -> drain (stop), for DRAIN_MAX_NS at most -> HTTP closes, since it reads the
 * pipeline's counters -> destroy.  A start that fails says one sentence, which names the configuration key and its place
 * in the file, and leaves nothing behind. */
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

/* A process's parts for its pipeline. */
struct daemon_context {
    struct device *device;
    struct service *service; /* service_stop() when all sources have ended or one has died; service_status() */
    struct status *status;   /* a pipeline says here what /status.json has of it */
    struct gauge *healthy;   /* 1; a pipeline that finds its results wrong sets 0, and /healthz says so */
    struct sensors *sensors; /* a pipeline adds its own in 'create'; they live as long as it does */
    struct katcp_sensors *katcp_sensors; /* for katcp_sensors_steady_state() */
};

struct daemon {
    const char *name;
    const struct config_table *table;
    void (*check)(void *values, struct config *config);
    /* --tune, where the table offers it: measures what suits the device, and keeps it for the next start.  Errors as of
     * 'create'. */
    int (*tune)(const void *values, struct device *device, char *why, size_t why_bytes);
    /* Makes everything between the sockets, and says in the log what.  Returns 0 or negative errno, with one sentence
     * in 'why', which begins with a configuration key where one is to blame, or an empty one where the errno says it;
     * '*pipeline' may then be half of one, for 'destroy'.  Nothing of it sends, or changes a file that was there. */
    int (*create)(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                  size_t why_bytes);
    /* Says what requests the pipeline answers, and with which argument; the rest of 'device' is set.  NULL: none. */
    void (*control)(void *pipeline, struct katcp_device *device);
    int (*start)(void *pipeline); /* its threads, which first move when all of them are there */
    /* Has packets come, as the last step before READY: nobody would deal with them earlier.  Errors as of 'create'. */
    int (*enable)(void *pipeline, char *why, size_t why_bytes);
    /* Drains; what is not done at 'give_up_ns' (monotonic) is left undone.  Returns false if output that could have been
     * kept was lost: it gave up, or a capture could not be written.  Does nothing to a pipeline that has not started. */
    bool (*stop)(void *pipeline, int64_t give_up_ns);
    void (*destroy)(void *pipeline); /* after stop */
};

/* Reports that a start failed with 'err', for 'why' (may be empty), at its place in the file; also for the programs
 * that have a main() of their own.  Returns the exit code. */
int daemon_start_failed(const struct config *config, int err, const char *why);

/* For struct katcp_device: stop the 'service', for good or to be started again. */
void daemon_halt(void *service);
void daemon_restart(void *service);

/* main() of a daemon; 'values' is its zeroed configuration, which begins with a struct daemon_config (keys.h).  Returns
 * the exit code. */
int daemon_main(const struct daemon *daemon, int argc, char **argv, void *values);

#endif
