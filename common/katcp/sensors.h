/* sensors.h - the sensors that every program has.
 *
 * steady-state-timestamp  ADC timestamp.  Data at or after this timestamp reflect all earlier requests.  The
 *                         timestamp decreases only if the time of the data jumps back; the program then logs a
 *                         warning
 * device-status           aggregate of all sensors that are not aggregates
 * time.*                  state and errors of the kernel's clock, updated every 10 s
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

/* Adds the sensors in 'own' to the set.  'own' must exist, at the same address, as long as the set.  Returns 0 or
 * -ENOMEM. */
int katcp_sensors_add(struct katcp_sensors *own, struct sensors *sensors);

/* Starts and stops the timer that reads the state of the kernel's clock every 10 s. */
void katcp_sensors_start(struct katcp_sensors *own, struct ev_loop *loop);
void katcp_sensors_stop(struct katcp_sensors *own, struct ev_loop *loop);

/* Sets steady-state-timestamp to 'timestamp'.  Data at or after this ADC timestamp reflect all earlier requests.  A
 * timestamp that is lower than the previous one means that the time of the data has jumped back. */
void katcp_sensors_steady_state(struct katcp_sensors *own, int64_t timestamp);

#endif
