/* control.c - handles the requests of the KATCP server for dsim/send.c. */
#include "tools/dsim/control.h"

#include "common/base/clock.h"
#include "common/katcp/sensors.h"
#include "common/katcp/server.h"
#include "common/base/log.h"
#include "common/katcp/python_number.h"
#include "common/daemon/daemon.h"
#include "common/daemon/service.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "tools/dsim/gnss.h"
#include "tools/dsim/print.h"
#include "tools/dsim/pulsar.h"

#include <errno.h>
#include <ev.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_S 0.005 /* interval of polls while a ?signals request is in progress */
/* answer to ?request-timeout-hint; the computation of many signals with a long period takes about this time */
#define TIMEOUT_S 300.0

/* A ?signals request that waits or is in progress. */
struct job {
    struct job *next;
    struct katcp_call *call;
    struct dsim_program *program;
    struct dsim_format format;
    const char *code_file;
    struct dsim_heaps *heaps; /* heaps that the computing thread has made */
    int err;
    char why[256];
    atomic_bool done; /* true: the computing thread has finished; the thread sets this member */
    bool answered;    /* true: the sender has the heaps, and the client has its reply */
};

struct dsim_control {
    const struct dsim_config *config;
    struct service *service;
    struct dsim_send *send;
    struct dsim_format format;
    struct dsim_heaps **heaps;
    struct sensors *sensors;
    struct katcp_sensors own;
    struct sensor signals_orig, signals, period, max_period, dither_seed, adc_sample_rate, sample_bits, sync_time;
    struct katcp_device device;
    struct katcp_server *server;
    ev_timer poll;
    struct job *first, **end; /* queue of requests; the first request is in progress */
    struct thread thread;
    bool thread_runs;
};

/* ---- Sensors ----------------------------------------------------------------------------------------------------- */

static void show(struct dsim_control *c, const struct dsim_program *program, int64_t period_samples)
{
    int64_t now_ns = clock_unix_ns();
    char *text = program ? dsim_print(program) : NULL;
    const char *original = program ? program->text : "";

    sensors_set_text(c->sensors, &c->signals_orig, now_ns, SENSOR_NOMINAL, original);
    sensors_set_text(c->sensors, &c->signals, now_ns, SENSOR_NOMINAL, text ? text : original);
    sensor_set_integer(&c->period, now_ns, SENSOR_NOMINAL, period_samples);
    free(text);
}

static int add_sensors(struct dsim_control *c)
{
    const double rate_hz = timebase_decimal_to_double(c->config->time.adc_sample_rate_hz);
    const double sync_s = timebase_decimal_to_double(c->config->time.sync_time_s);
    const int64_t max_period = c->config->digitiser.period_samples;
    const struct {
        struct sensor *sensor;
        struct sensor_desc about;
        union sensor_value value;
    } rows[] = {
        {&c->signals_orig,
         {"signals-orig", "Signals as the configuration or the last ?signals gave them", "", SENSOR_STRING},
         {0}},
        {&c->signals,
         {"signals", "Signals with all seeds: a request with this text gives the same samples", "", SENSOR_STRING},
         {0}},
        {&c->period, {"period", "Samples after which the signals repeat", "", SENSOR_INTEGER}, {.integer = max_period}},
        {&c->max_period,
         {"max-period", "Longest period that ?signals accepts, in samples", "", SENSOR_INTEGER},
         {.integer = max_period}},
        {&c->dither_seed, {"dither-seed", "Seed of the dither", "", SENSOR_STRING}, {0}},
        {&c->adc_sample_rate,
         {"adc-sample-rate", "Samples per second of each digitiser", "Hz", SENSOR_FLOAT},
         {.real = rate_hz}},
        {&c->sample_bits,
         {"sample-bits", "Bits of a sample", "", SENSOR_INTEGER},
         {.integer = c->config->digitiser.sample_bits}},
        {&c->sync_time, {"sync-time", "UNIX time of timestamp 0", "s", SENSOR_FLOAT}, {.real = sync_s}},
    };
    char seed[32];
    int err = 0;

    for (size_t i = 0; i < ARRAY_LEN(rows) && !err; i++)
        err = sensors_add(c->sensors, rows[i].sensor, &rows[i].about,
                          (struct sensor_reading){clock_unix_ns(), SENSOR_NOMINAL, rows[i].value});
    snprintf(seed, sizeof(seed), "%" PRIu64, c->format.dither_seed);
    return err ? err : sensors_set_text(c->sensors, &c->dither_seed, clock_unix_ns(), SENSOR_NOMINAL, seed);
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static void free_job(struct job *job)
{
    dsim_program_free(job->program);
    dsim_heaps_destroy(job->heaps);
    free(job);
}

static void *compute(void *arg)
{
    struct job *job = arg;

    job->err = dsim_pulsar_compute(job->program, &job->format.axis, job->why, sizeof(job->why));
    if (!job->err)
        job->err = dsim_gnss_compute(job->program, job->format.axis.adc_sample_rate_hz, job->code_file, job->why,
                                     sizeof(job->why));
    if (!job->err)
        job->err = dsim_heaps_create(job->program, &job->format, &job->heaps, job->why, sizeof(job->why));
    atomic_store_explicit(&job->done, true, memory_order_release); /* on_poll() loads 'done' with acquire order */
    return NULL;
}

static void drop_first(struct dsim_control *c)
{
    struct job *job = c->first;

    c->first = job->next;
    if (!c->first)
        c->end = &c->first;
    free_job(job);
}

static void fail_first(struct dsim_control *c, int err, const char *why)
{
    katcp_fail(c->first->call, "%s", why[0] ? why : strerror(-err));
    drop_first(c);
}

/* Passes computed heaps to the sender, and replies with the first timestamp of these heaps. */
static void answer(struct dsim_control *c, struct job *job)
{
    int64_t timestamp = dsim_send_switch(c->send, job->heaps);
    char text[24];
    const char *args[] = {text};

    snprintf(text, sizeof(text), "%" PRId64, timestamp);
    show(c, job->program, job->format.axis.period_samples);
    katcp_sensors_steady_state(&c->own, timestamp);
    job->answered = true;
    katcp_ok(job->call, 1, args);
}

/* Ends a request when all threads send the new heaps.  Frees the previous heaps. */
static void finish(struct dsim_control *c, struct job *job)
{
    dsim_heaps_destroy(*c->heaps);
    *c->heaps = job->heaps;
    job->heaps = NULL;
    drop_first(c);
}

static void start(struct dsim_control *c, struct job *job)
{
    int err = thread_start(&c->thread, "signals", -1, compute, job);

    c->thread_runs = !err;
    if (err)
        fail_first(c, err, "");
}

static void on_poll(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct dsim_control *c = timer->data;
    struct job *job = c->first;

    if (job && job->answered && dsim_send_has_switched(c->send)) {
        finish(c, job);
    } else if (job && c->thread_runs && atomic_load_explicit(&job->done, memory_order_acquire)) {
        thread_join(&c->thread);
        c->thread_runs = false;
        if (job->err)
            fail_first(c, job->err, job->why);
        else
            answer(c, job);
    } else if (job && !c->thread_runs && !job->answered) {
        start(c, job);
    }
    if (!c->first)
        ev_timer_stop(loop, &c->poll);
}

/* Checks a request, and creates its job.  On an error, fails the call and returns NULL. */
static struct job *make_job(struct dsim_control *c, struct katcp_call *call)
{
    struct job *job = calloc(1, sizeof(*job));
    char why[256] = "out of memory";

    if (!job || dsim_parse(katcp_arg(call, 0), &job->program, why, sizeof(why))) {
        katcp_fail(call, "%s", why);
        free(job);
        return NULL;
    }
    int64_t period = c->config->digitiser.period_samples, n_inputs = (int64_t)c->format.n_inputs;
    job->call = call;
    job->format = c->format;
    job->code_file = c->config->signals.code_file;
    if (katcp_n_args(call) > 1 && !katcp_arg_integer(call, 1, "the period", &period)) {
        free_job(job);
        return NULL;
    }
    job->format.axis.period_samples = period;
    if (job->program->n_outputs != 1 && (int64_t)job->program->n_outputs != n_inputs)
        katcp_fail(call, "the request must have %" PRId64 " signals, or one for all polarisations, not %zu", n_inputs,
                   job->program->n_outputs);
    else if (job->program->is_live)
        katcp_fail(call, "a request cannot set track(), or gnss() without repeat(): only the configuration can");
    else if (period < 1 || c->config->digitiser.period_samples % period != 0)
        katcp_fail(call, "the period must divide max-period, %" PRId64 ", not %" PRId64,
                   c->config->digitiser.period_samples, period);
    else if (dsim_signal_choose_seeds(job->program))
        katcp_fail(call, "no random seeds are available");
    else
        return job;
    free_job(job);
    return NULL;
}

static void request_signals(struct katcp_call *call, void *arg)
{
    struct dsim_control *c = arg;

    if (!*c->heaps || !dsim_send_can_switch(c->send)) {
        katcp_fail(call, "?signals replaces only repeating signals that are sent in real time, not recordings, track() "
                         "or a capture");
        return;
    }
    struct job *job = make_job(c, call);
    if (!job)
        return;
    *c->end = job;
    c->end = &job->next;
    ev_timer_start(service_loop(c->service), &c->poll);
}

static void request_time(struct katcp_call *call, void *arg)
{
    int64_t now_ns = clock_unix_ns();
    char text[32];
    const char *args[] = {text};

    snprintf(text, sizeof(text), "%lld.%06lld", (long long)(now_ns / NS_PER_S),
             (long long)(now_ns % NS_PER_S / NS_PER_US));
    katcp_ok(call, 1, args);
}

/* Finds the inputs [first, end) of "m001", "m001v" or "m001h". */
static bool find_inputs(const struct dsim_control *c, const char *name, size_t *first, size_t *end)
{
    for (size_t a = 0; a < c->config->antennas.n; a++) {
        const char *antenna = dsim_config_antenna(c->config, a)->name;
        size_t n = strlen(antenna);
        if (strncmp(name, antenna, n) != 0)
            continue;
        bool is_v = strcmp(name + n, "v") == 0, is_h = strcmp(name + n, "h") == 0;
        *first = a * N_POLS + is_h;
        *end = (a + 1) * N_POLS - is_v;
        if (is_v || is_h || name[n] == '\0')
            return true;
    }
    return false;
}

static void request_loss(struct katcp_call *call, void *arg)
{
    struct dsim_control *c = arg;
    size_t first, end;
    double fraction;

    if (!find_inputs(c, katcp_arg(call, 0), &first, &end)) {
        katcp_fail(call, "there is no antenna or input '%.64s': give an antenna's name, alone or with v or h",
                   katcp_arg(call, 0));
        return;
    }
    if (!python_number_float(katcp_arg(call, 1), &fraction) || !(fraction >= 0 && fraction <= 1)) {
        katcp_fail(call, "the fraction must be a number from 0 to 1, not '%.64s'", katcp_arg(call, 1));
        return;
    }
    for (size_t input = first; input < end; input++)
        dsim_send_set_loss(c->send, input, fraction);
    katcp_ok(call, 0, NULL);
}

static const struct katcp_request requests[] = {
    {"loss",
     "Drops heaps of an antenna, as a bad cable would.\n"
     "?loss INPUT FRACTION\n"
     "INPUT is an antenna's name, alone or with v or h for one polarisation. FRACTION is from 0 (no loss; the value "
     "at the start) to 1 (a cut cable).",
     .min_args = 2, .max_args = 2, .handle = request_loss},
    {"signals",
     "Replaces the signals.\n"
     "?signals SPECIFICATION [PERIOD]\n"
     "The SPECIFICATION has the same syntax as in the configuration. The PERIOD is in samples, and must divide "
     "max-period. The default is max-period. The reply has the first timestamp of the new signals, in samples.",
     .min_args = 1, .max_args = 2, .handle = request_signals, .timeout_s = TIMEOUT_S},
    {"time", "Returns the host's UNIX time, in seconds.", .handle = request_time,
     .changes_from = KATCP_CHANGES_NOTHING},
};

/* ---- Life -------------------------------------------------------------------------------------------------------- */

int dsim_control_open(const struct dsim_control_config *config, struct dsim_control **control, char *why,
                      size_t why_bytes)
{
    struct dsim_control *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->config = config->config;
    c->service = config->service;
    c->send = config->send;
    c->format = *config->format;
    c->heaps = config->heaps;
    c->end = &c->first;
    ev_timer_init(&c->poll, on_poll, POLL_S, POLL_S);
    c->poll.data = c;
    c->device = (struct katcp_device){.name = "katgpucbf-dsim-1.0",
                                      .version = cbf_build_id,
                                      .requests = requests,
                                      .n_requests = ARRAY_LEN(requests),
                                      .arg = c,
                                      .halt = daemon_halt,
                                      .restart = daemon_restart,
                                      .life_arg = config->service};
    int err = sensors_create(&c->sensors);
    c->device.sensors = c->sensors;
    if (!err)
        err = katcp_sensors_add(&c->own, c->sensors);
    if (!err)
        err = add_sensors(c);
    if (!err) {
        show(c, config->program, config->program ? c->format.axis.period_samples : 0);
        err = katcp_server_open(&c->config->katcp, service_loop(c->service), &c->device, &c->server, why, why_bytes);
    }
    if (err) {
        dsim_control_destroy(c);
        return err;
    }
    katcp_sensors_start(&c->own, service_loop(c->service));
    *control = c;
    return 0;
}

void dsim_control_close(struct dsim_control *c)
{
    if (!c)
        return;
    katcp_server_close(c->server);
    c->server = NULL;
    katcp_sensors_stop(&c->own, service_loop(c->service));
    ev_timer_stop(service_loop(c->service), &c->poll);
    if (c->thread_runs)
        thread_join(&c->thread);
    c->thread_runs = false;
}

void dsim_control_destroy(struct dsim_control *c)
{
    if (!c)
        return;
    dsim_control_close(c);
    while (c->first)
        drop_first(c);
    sensors_destroy(c->sensors);
    free(c);
}
