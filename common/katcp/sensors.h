/* sensors.h - the sensors that every program has.
 *
 * steady-state-timestamp  ADC timestamp from which on the data show all earlier requests; it goes back only if the
 *                         data's time goes back, and the log says so
 * device-status           aggregate of all sensors that are no aggregates themselves
 * time.*                  the kernel's knowledge of its time errors, every 10 s
 *
 * Threads: main. */
#ifndef COMMON_KATCP_SENSORS_H
#define COMMON_KATCP_SENSORS_H

#include "common/telemetry/sensor.h"

#include <ev.h>
#include <stdint.h>

struct katcp_sensors {
    struct sensor steady_state_timestamp, device_status;
    struct sensor esterror, maxerror, state, synchronised;
    int64_t steady_state; /* value of steady_state_timestamp */
    ev_timer timer;
};

/* Adds the sensors.  'own' must stay in its place as long as the set exists.  Returns 0 or -ENOMEM. */
int katcp_sensors_add(struct katcp_sensors *own, struct sensors *sensors);

/* Polls the kernel's clock from now on, every 10 s. */
void katcp_sensors_start(struct katcp_sensors *own, struct ev_loop *loop);
void katcp_sensors_stop(struct katcp_sensors *own, struct ev_loop *loop);

/* Reports that all data from ADC timestamp 'timestamp' on show all requests so far.  A timestamp earlier than before
 * means that the data's time has gone back. */
void katcp_sensors_steady_state(struct katcp_sensors *own, int64_t timestamp);

#endif
