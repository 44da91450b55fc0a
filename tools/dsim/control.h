/* control.h - dsim's requests and sensors over KATCP.
 *
 *     ?signals SPECIFICATION [PERIOD]    answers the first timestamp that has the new signals
 *     ?loss INPUT FRACTION               leaves out a fraction of an input's heaps; 1: its cable is cut
 *     ?time                              answers UNIX seconds
 *
 * Flow:    ?signals: parsed at once --a thread computes the heaps--> dsim_send takes them up at a timestamp --> the old
 *          ones are freed --> the next such request
 * Period:  divides digitiser.period, which is the default.
 * Threads: main, and one that computes. */
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
    const struct dsim_format *format;   /* of the signals; the period and the seed are what is being sent */
    const struct dsim_program *program; /* NULL: recordings */
    struct dsim_heaps **heaps; /* those being sent, which a request replaces; NULL in it: others than a period's */
};

/* Adds the sensors and listens, if katcp.listen is set.  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_control_open(const struct dsim_control_config *config, struct dsim_control **control, char *why,
                      size_t why_bytes);

/* Closes, before the sender stops; waits for a computation that is under way.  NULL is accepted. */
void dsim_control_close(struct dsim_control *control);

/* Frees what it kept for the sender, which has stopped.  NULL is accepted. */
void dsim_control_destroy(struct dsim_control *control);

#endif
