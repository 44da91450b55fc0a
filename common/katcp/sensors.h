/* sensors.h - the sensors that every program has.
 *
 * steady-state-timestamp  ADC timestamp from which on the data show all that was asked for before; it goes
 *                         back only where the data's time does, and the log says so
 * device-status           of all sensors that are no aggregates themselves
 * time.*                  how well the kernel knows the time, every 10 s
 *
 * Threads: main, except where noted. */
#ifndef COMMON_KATCP_SENSORS_H
#define COMMON_KATCP_SENSORS_H

#include "common/telemetry/sensor.h"

#include <ev.h>
#include <stdint.h>

struct katcp_sensors {
    struct sensor steady_state_timestamp, device_status;
    struct sensor esterror, maxerror, state, synchronised;
    int64_t steady_state; /* what the first says */
    ev_timer timer;
};

/* Adds them; 'own' stays where it is for as long as the set.  Returns 0 or -ENOMEM. */
int katcp_sensors_add(struct katcp_sensors *own, struct sensors *sensors);

/* Looks at the kernel's clock from now on, every 10 s. */
void katcp_sensors_start(struct katcp_sensors *own, struct ev_loop *loop);
void katcp_sensors_stop(struct katcp_sensors *own, struct ev_loop *loop);

/* All data from ADC timestamp 'timestamp' on show what was asked for until now.  One that is earlier than before
 * means that the data's time has gone back. */
void katcp_sensors_steady_state(struct katcp_sensors *own, int64_t timestamp);

#endif
