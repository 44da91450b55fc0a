/* control.h - dsim's requests and sensors over KATCP.
 *
 *     ?signals SPECIFICATION [PERIOD]:   replies with the first timestamp of the new signals.
 *     ?loss INPUT FRACTION:              drops a fraction of an input's heaps; 1 is a cut cable.
 *     ?time:                             replies with UNIX seconds.
 *
 * Flow:    ?signals: parsed at once --a thread computes the heaps--> dsim_send switches to them at a timestamp -->
 *          the old heaps are freed --> the next ?signals request
 * Period:  PERIOD must divide digitiser.period.  The default is digitiser.period.
 * Threads: the main thread handles requests, and a second thread computes heaps. */
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
    const struct dsim_program *program; /* program of the signals in use; NULL: dsim plays recordings */
    /* pointer to the heaps in use; a ?signals request replaces the heaps; *heaps is NULL if dsim plays recordings, or
     * if the signals do not repeat */
    struct dsim_heaps **heaps;
};

/* Adds the sensors.  Listens for clients if katcp.listen is set.  Returns 0 or negative errno with one sentence in
 * 'why'. */
int dsim_control_open(const struct dsim_control_config *config, struct dsim_control **control, char *why,
                      size_t why_bytes);

/* Closes the server, and waits until a computation in progress has ended.  Call before the sender stops.  Accepts
 * NULL. */
void dsim_control_close(struct dsim_control *control);

/* Frees the object and the heaps that it kept for the sender.  The sender must have stopped.  Accepts NULL. */
void dsim_control_destroy(struct dsim_control *control);

#endif
