/* control.h - fgpu's requests, and the sensors that show the settings.
 *
 *     ?gain STREAM INPUT [VALUE...]            VALUE: complex number as in Python; without VALUE: returns the gains
 *     ?gain-all STREAM VALUE...|default
 *     ?delays STREAM START MODEL...            MODEL: delay_text.h; START in UNIX seconds
 *
 * Inputs:    n antennas have the inputs 0 to 2n - 1.  An input's number is twice the antenna's index in the
 *            configuration, plus the polarisation.  A label also names an input: the antenna's name with v for
 *            polarisation 0 or h for polarisation 1.  ?delays takes a model for each input, or INPUT=MODEL for each
 *            input to change.
 * Flow:      request --check--> settings --snapshots (settings.h)--> worker.  When the worker has applied the
 *            snapshots, steady-state-timestamp and eq are set and the reply is sent.  Replies leave in the order of
 *            their requests.
 * Turns:     a request's gains are set for a few antennas in each iteration of the main loop, in the order of the
 *            requests.  So the main thread does other work between these iterations.  ?gain without values replies
 *            with the gains set so far.
 * Time:      the data's time may go back.  Then steady-state-timestamp goes back to the time of the first new data.
 *            If the time of an eq sensor is later, the sensor's time goes back to the same time.
 * Threads:   main.   Blocking: none. */
#ifndef FGPU_CONTROL_H
#define FGPU_CONTROL_H

#include "fgpu/config/config.h"
#include "fgpu/settings.h"

#include <stdint.h>

struct engine;
struct fgpu_choice;
struct fgpu_control;
struct katcp_device;

/* Creates the control, adds its sensors, and starts the engine's command channel.  Returns 0 or -ENOMEM. */
int fgpu_control_create(const struct fgpu_config *config, struct engine *engine, struct fgpu_settings *settings,
                        const struct fgpu_choice *choices, struct fgpu_control **control);

/* Registers the handlers of the requests with 'device'.  'control' is the argument of each handler. */
void fgpu_control_requests(struct fgpu_control *control, struct katcp_device *device);

/* Stops the engine's command channel.  The server must have closed, so that no request waits for a reply.
 * Idempotent. */
void fgpu_control_stop(struct fgpu_control *control);

/* Destroys the control.  NULL is accepted. */
void fgpu_control_destroy(struct fgpu_control *control);

#endif
