/* daemon.c - starts, runs and stops the process of a daemon.  See daemon.h. */
#include "common/daemon/daemon.h"

#include "common/base/clock.h"
#include "common/daemon/command_line.h"
#include "common/device/device.h"
#include "common/daemon/drain.h"
#include "common/http/http.h"
#include "common/daemon/keys.h"
#include "common/katcp/sensors.h"
#include "common/katcp/server.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/daemon/service.h"
#include "common/http/status.h"
#include "common/base/thread.h"
#include "common/base/version.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int open_http(const struct config_http *config, const struct daemon_context *context, struct http **http,
                     char *why, size_t why_bytes)
{
    if (config->listen.n == 0) {
        log_info("/metrics, /healthz and the status page are not served: http.listen is not set");
        return 0;
    }
    return http_open(config, context->healthy, context->status, http, why, why_bytes);
}

/* Logs that threads cannot be started.  'advice' names configuration keys to change, or is empty.  Returns the exit
 * code 1. */
static int threads_failed(int err, const char *advice)
{
    log_error("not all threads can be started: %s; allow more tasks or memory (ulimit -u, ulimit -v, TasksMax=)%s",
              strerror(-err), advice);
    return 1;
}

int daemon_start_failed(const struct config *config, int err, const char *why)
{
    char place[512];

    if (!why[0] && err == -EAGAIN)
        return threads_failed(err, "");
    if (!why[0])
        why = strerror(-err);
    log_error("%s%s", config_locate(config, why, place, sizeof(place)), why);
    return service_exit_code(err);
}

/* ---- KATCP ------------------------------------------------------------------------------------------------------- */

/* The KATCP server and its sensors. */
struct control {
    struct sensors *sensors;
    struct katcp_sensors own;
    struct katcp_device device;
    char device_name[64];
    struct katcp_server *server; /* the KATCP server; NULL: KATCP is not configured */
};

void daemon_halt(void *service)
{
    log_info("stopping at the request of a KATCP client");
    service_stop(service, 0);
}

void daemon_restart(void *service)
{
    log_info("stopping for a restart at the request of a KATCP client");
    service_stop(service, EXIT_RESTART);
}

static int open_sensors(struct control *control)
{
    int err = sensors_create(&control->sensors);

    return err ? err : katcp_sensors_add(&control->own, control->sensors);
}

static int open_control(const struct daemon *daemon, const void *values, void *pipeline, struct service *service,
                        struct control *control, char *why, size_t why_bytes)
{
    const struct config_katcp *config = &((const struct daemon_config *)values)->katcp;

    if (config->listen.n == 0 && config->read_only_listen.n == 0) {
        log_info("KATCP is not served: katcp.listen is not set");
        return 0;
    }
    snprintf(control->device_name, sizeof(control->device_name), "katgpucbf-%s-1.0", daemon->name);
    control->device = (struct katcp_device){
        .name = control->device_name,
        .version = cbf_build_id,
        .sensors = control->sensors,
        .halt = daemon_halt,
        .restart = daemon_restart,
        .life_arg = service,
    };
    if (daemon->control)
        daemon->control(pipeline, &control->device);
    return katcp_server_open(config, service_loop(service), &control->device, &control->server, why, why_bytes);
}

/* Closes KATCP.  Called before a drain, because the main thread answers no requests during a drain. */
static void close_control(struct control *control)
{
    katcp_server_close(control->server);
    control->server = NULL;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* Locks the process's memory, so that the host cannot swap it.  Called when all threads exist, so that their stacks are
 * locked, too.  A failure is harmless as long as the host does not swap. */
static void lock_memory(void)
{
    int err = memory_lock();

    if (err)
        log_info("memory is not locked: %s; \"ulimit -l unlimited\" or LimitMEMLOCK=infinity permits the lock",
                 strerror(-err));
}

/* Starts a created pipeline, runs it until a stop, and drains it.  Returns the exit code. */
static int run_pipeline(const struct daemon *daemon, const struct config *config, void *pipeline,
                        const struct daemon_context *context, struct control *control)
{
    struct service *service = context->service;
    char why[512] = "";

    threads_hold();
    int err = daemon->start(pipeline);
    lock_memory();
    if (!err)
        err = daemon->enable(pipeline, why, sizeof(why));
    threads_release(!err);
    if (why[0])
        return daemon_start_failed(config, err, why);
    if (err)
        return threads_failed(err, ", or lower recv.threads, send.threads or device.threads");
    katcp_sensors_start(&control->own, service_loop(service));
    status_watch(context->status, service_loop(service));
    status_set_state(context->status, STATUS_RUNNING);
    int exit_code = service_run(service);
    status_set_state(context->status, STATUS_DRAINING);
    katcp_sensors_stop(&control->own, service_loop(service));
    status_unwatch(context->status);
    service_stopping(service);
    close_control(control);
    return daemon->stop(pipeline, clock_monotonic_ns() + DRAIN_MAX_NS) ? exit_code : 1;
}

/* Stops the service after a failure that the device has logged.  The pipeline then drains as far as possible without a
 * device. */
static void stop_failed(void *service)
{
    service_stop(service, 1);
}

/* Returns the configuration of the device.  If 'service' is NULL, a failure of the device ends the process. */
static struct device_config device_config_of(const void *values, struct service *service)
{
    const struct config_device *section = &((const struct daemon_config *)values)->device;

    return (struct device_config){
        .kind = (enum device_kind)section->kind,
        .n_threads = (int)section->n_threads,
        .gpu = section->gpu,
        .kernel_cache = section->kernel_cache,
        .on_failure = service ? stop_failed : NULL,
        .failure_arg = service,
    };
}

/* Runs --tune.  Signals have their default actions (service_release_signals()).  The process may be ended at any time,
 * because each result is saved at once. */
static int tune(const struct daemon *daemon, const void *values, const struct config *config)
{
    struct device_config device_config = device_config_of(values, NULL);
    struct device *device = NULL;
    char why[512] = "";

    log_info("%s %s", daemon->name, cbf_build_id);
    int err = device_open(&device_config, &device, why, sizeof(why));
    if (!err)
        err = daemon->tune(values, device, why, sizeof(why));
    device_close(device);
    return err ? daemon_start_failed(config, err, why) : 0;
}

static int run(const struct daemon *daemon, const void *values, const struct config *config, struct service *service)
{
    struct device_config device_config = device_config_of(values, service);
    struct gauge healthy = {1};
    struct control control = {0};
    struct daemon_context context = {.service = service, .healthy = &healthy, .katcp_sensors = &control.own};
    struct http *http = NULL;
    void *pipeline = NULL;
    char why[512] = "";
    int exit_code;

    log_info("%s %s", daemon->name, cbf_build_id);
    int err = status_create(daemon->name, config_path(config), &healthy, &context.status);
    if (!err)
        err = device_open(&device_config, &context.device, why, sizeof(why));
    if (!err) {
        status_set_device(context.status, context.device);
        err = open_http(&((const struct daemon_config *)values)->http, &context, &http, why, sizeof(why));
    }
    if (!err)
        err = open_sensors(&control);
    context.sensors = control.sensors;
    if (!err)
        err = daemon->create(values, &context, &pipeline, why, sizeof(why));
    if (!err)
        err = open_control(daemon, values, pipeline, service, &control, why, sizeof(why));
    bool failed = context.device && !device_ok(context.device); /* the device failed, and logged the failure */
    if (!err && !failed)
        status_set_sensors(context.status, control.sensors);
    if (!err && !failed)
        exit_code = run_pipeline(daemon, config, pipeline, &context, &control);
    else
        exit_code = failed ? 1 : daemon_start_failed(config, err, why);
    if (exit_code == 0 && !device_ok(context.device))
        exit_code = 1; /* the device failed during the drain */
    close_control(&control);
    http_close(http); /* HTTP must close before the pipeline is destroyed, because it reads the pipeline's counters */
    sensors_destroy(control.sensors);
    if (pipeline) {
        daemon->stop(pipeline, 0); /* ends the threads that a failed start has left running */
        daemon->destroy(pipeline);
    }
    device_close(context.device);
    status_destroy(context.status);
    return exit_code;
}

int daemon_main(const struct daemon *daemon, int argc, char **argv, void *values)
{
    struct config *config = NULL;
    struct service *service = NULL;

    service_catch_signals();
    log_init(daemon->name, LOG_LEVEL_INFO);
    int exit_code = command_line_main(daemon->table, argc, argv, daemon->check, values, &config);
    if (exit_code == CONFIG_TUNE) {
        exit_code = tune(daemon, values, config);
    } else if (exit_code == CONFIG_RUN) {
        int err = service_open(&service);
        exit_code = err ? daemon_start_failed(config, err, "") : run(daemon, values, config, service);
    }
    service_close(service);
    config_free(daemon->table, values, config);
    return exit_code;
}
