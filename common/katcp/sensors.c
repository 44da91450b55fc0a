/* sensors.c - sets the sensors that all programs have.  The main thread sets these sensors when a timer expires, and
 * after requests. */
#include "common/katcp/sensors.h"

#include "common/base/clock.h"
#include "common/time/clock_state.h"
#include "common/base/log.h"
#include "common/base/units.h"

#include <sys/timex.h>

#define PERIOD_S 10.

/* Names of the clock states TIME_OK to TIME_ERROR of adjtimex(2). */
static const char *const clock_states[] = {"ok", "ins", "del", "oop", "wait", "error", NULL};

/* Limits that determine the status of a sensor: nominal below the first limit, warn below the second limit, otherwise
 * error. */
static const double esterror_limits_s[] = {1e-3, 5e-3};
static const double maxerror_limits_s[] = {10e-3, 0.1};

static bool includes_all(const char *name)
{
    return true;
}

static enum sensor_status status_of(double value_s, const double limits_s[2])
{
    if (value_s < limits_s[0])
        return SENSOR_NOMINAL;
    return value_s < limits_s[1] ? SENSOR_WARN : SENSOR_ERROR;
}

static void look_at_clock(struct katcp_sensors *own)
{
    int64_t now_ns = clock_unix_ns();
    struct clock_state clock;

    bool known = clock_state_get(CLOCK_STATE_FILE, &clock) == 0;
    int state = clock.state;
    double esterror_s = clock.esterror_s, maxerror_s = clock.maxerror_s;
    enum sensor_status esterror = known ? status_of(esterror_s, esterror_limits_s) : SENSOR_UNREACHABLE;
    enum sensor_status maxerror = known ? status_of(maxerror_s, maxerror_limits_s) : SENSOR_UNREACHABLE;
    bool synchronised = esterror != SENSOR_ERROR && maxerror != SENSOR_ERROR && state != TIME_ERROR;
    enum sensor_status status = state == TIME_OK ? SENSOR_NOMINAL : SENSOR_WARN;

    sensor_set_real(&own->esterror, now_ns, esterror, esterror_s);
    sensor_set_real(&own->maxerror, now_ns, maxerror, maxerror_s);
    sensor_set_integer(&own->state, now_ns, state == TIME_ERROR ? SENSOR_ERROR : status, state);
    sensor_set_integer(&own->synchronised, now_ns, synchronised ? SENSOR_NOMINAL : SENSOR_ERROR, synchronised);
}

static void on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    look_at_clock(CONTAINER_OF(timer, struct katcp_sensors, timer));
}

int katcp_sensors_add(struct katcp_sensors *own, struct sensors *sensors)
{
    const struct {
        struct sensor *sensor;
        struct sensor_desc about;
    } all[] = {
        {&own->steady_state_timestamp,
         {"steady-state-timestamp", "ADC timestamp (in samples) from which the data reflect all earlier requests", "",
          SENSOR_INTEGER}},
        {&own->device_status,
         {"device-status", "Degraded while any other sensor is worse than nominal", "", SENSOR_DISCRETE,
          .words = sensor_aggregate_words, .includes = includes_all}},
        {&own->esterror,
         {"time.esterror", "The kernel's estimate of the error of its clock: warn from 1 ms, error from 5 ms on", "s",
          SENSOR_FLOAT}},
        {&own->maxerror,
         {"time.maxerror", "The kernel's upper bound of the error of its clock: warn from 10 ms, error from 0.1 s on",
          "s", SENSOR_FLOAT}},
        {&own->state,
         {"time.state", "State of the kernel's clock, from adjtimex(2)", "", SENSOR_DISCRETE, .words = clock_states}},
        {&own->synchronised,
         {"time.synchronised", "Whether the kernel's clock is synchronised, with errors below their limits", "",
          SENSOR_BOOLEAN}},
    };
    struct sensor_reading first = {clock_unix_ns(), SENSOR_NOMINAL, {0}};
    int err = 0;

    for (size_t i = 0; !err && i < ARRAY_LEN(all); i++)
        err = sensors_add(sensors, all[i].sensor, &all[i].about, first);
    if (!err)
        look_at_clock(own);
    return err;
}

void katcp_sensors_start(struct katcp_sensors *own, struct ev_loop *loop)
{
    ev_timer_init(&own->timer, on_timer, PERIOD_S, PERIOD_S);
    ev_timer_start(loop, &own->timer);
}

void katcp_sensors_stop(struct katcp_sensors *own, struct ev_loop *loop)
{
    ev_timer_stop(loop, &own->timer);
}

void katcp_sensors_steady_state(struct katcp_sensors *own, int64_t timestamp)
{
    if (timestamp == own->steady_state)
        return;
    if (timestamp < own->steady_state)
        log_warning("the time of the data jumped back: steady-state-timestamp decreases from %lld to %lld",
                    (long long)own->steady_state, (long long)timestamp);
    own->steady_state = timestamp;
    sensor_set_integer(&own->steady_state_timestamp, clock_unix_ns(), SENSOR_NOMINAL, timestamp);
}
