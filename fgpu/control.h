/* control.h - fgpu's requests, and the sensors of what they set.
 *
 *     ?gain STREAM INPUT [VALUE...]            VALUE: Python's complex numbers; none: answers what is set
 *     ?gain-all STREAM VALUE...|default
 *     ?delays STREAM START MODEL...            MODEL: delay_text.h; START in UNIX seconds
 *
 * Inputs:    0 to 2n - 1 of n antennas: twice the antenna's place in the configuration, plus the polarisation; or its
 *            label, the antenna's name with v for polarisation 0 and h for 1.  ?delays takes a model for each input, or
 *            INPUT=MODEL for those that are to change.
 * Flow:      request --checked whole--> settings --snapshots (settings.h)--> worker; once that has applied them, steady-state-
 *            timestamp and eq are set, and the reply leaves.  Replies leave in the order of their requests.
 * Turns:     gains are set some antennas at a time, in the order of the requests, so that the main thread's other work
 *            goes on in between.  ?gain without values says what has been set so far.
 * Time:      the data's time may go back.  Then steady-state-timestamp goes back to the first new data, and so do later
 *            times of eq.
 * Threads:   main.   Blocking: none. */
#ifndef FGPU_CONTROL_H
#define FGPU_CONTROL_H

#include "fgpu/config.h"
#include "fgpu/settings.h"

#include <stdint.h>

struct engine;
struct fgpu_choice;
struct fgpu_control;
struct katcp_device;

/* Adds its sensors; the engine's channel is stopped by fgpu_control_stop().  Returns 0 or -ENOMEM. */
int fgpu_control_create(const struct fgpu_config *config, struct engine *engine, struct fgpu_settings *settings,
                        const struct fgpu_choice *choices, struct fgpu_control **control);

/* Sets the requests of 'device', and their argument. */
void fgpu_control_requests(struct fgpu_control *control, struct katcp_device *device);

/* Called after the server has closed: no request waits for an answer any more.  Idempotent. */
void fgpu_control_stop(struct fgpu_control *control);

/* NULL is accepted. */
void fgpu_control_destroy(struct fgpu_control *control);

#endif
