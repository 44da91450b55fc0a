/* control.h - dsim's requests and sensors over KATCP.
 *
 *     ?signals SPECIFICATION [PERIOD]    replies with the first timestamp that has the new signals
 *     ?loss INPUT FRACTION               leaves out a fraction of an input's heaps; 1: its cable is cut
 *     ?time                              replies with UNIX seconds
 *
 * Flow:    ?signals: parsed at once --a thread computes the heaps--> dsim_send switches to them at a timestamp -->
 *          the old heaps are freed --> the next ?signals request
 * Period:  must divide digitiser.period, which is the default.
 * Threads: main, and one thread that computes. */
#ifndef TOOLS_DSIM_CONTROL_H
#define TOOLS_DSIM_CONTROL_H

#include "tools/dsim/config.h"
#include "tools/dsim/send.h"
#include "tools/dsim/signal.h"

#include <stddef.h>

struct dsim_control;
struct service;

struct dsim_control_config {
    const struct dsim_config *config;
    struct service *service;
    struct dsim_send *send;
    const struct dsim_format *format;   /* format of the signals, with the period and the seed in use */
    const struct dsim_program *program; /* program in use; NULL: recordings */
    struct dsim_heaps **heaps;          /* heaps in use, which a request replaces; NULL in it: no heaps of a period */
};

/* Adds the sensors, and listens if katcp.listen is set.  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_control_open(const struct dsim_control_config *config, struct dsim_control **control, char *why,
                      size_t why_bytes);

/* Closes the server, and waits for a computation in progress.  Called before the sender stops.  Accepts NULL. */
void dsim_control_close(struct dsim_control *control);

/* Frees the heaps that it kept for the sender, which must have stopped.  Accepts NULL. */
void dsim_control_destroy(struct dsim_control *control);

#endif
