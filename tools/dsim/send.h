/* send.h - heaps to the network when their time has come: a period's, over and over, or those of dsim_play.
 *
 * Flow:      dsim_heaps or dsim_play --sender threads--> a send_sink each
 * Time:      the heap with timestamp t leaves when the digitiser would have taken its last sample, t + packet_samples.
 *            All inputs of a thread and timestamp leave together, by antenna and polarisation.  A thread wakes at most
 *            every millisecond, so at high rates a burst is what a millisecond brings.  When the host has held it up, it
 *            catches up without leaving anything out.  To a capture file it does not wait at all.
 * Reading:   recordings are read, and live signals computed, ahead by another thread.  Where they are due and not there
 *            yet, that is counted, and they leave late.
 * Threads:   create, start, stop and destroy from one thread; the senders are threads of their own, among which the
 *            inputs are dealt ('send.threads').  Recordings, live signals and captures have one. */
#ifndef TOOLS_DSIM_SEND_H
#define TOOLS_DSIM_SEND_H

#include "tools/dsim/config.h"
#include "tools/dsim/play.h"
#include "tools/dsim/signal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct service;
struct dsim_send;

/* Opens the sink and registers the metrics.  Either 'heaps' or 'play' is not NULL; that and 'service' must outlive it.
 * Returns 0 or negative errno with one sentence in 'why'. */
int dsim_send_create(const struct dsim_config *config, const struct dsim_heaps *heaps, struct dsim_play *play,
                     struct service *service, struct dsim_send **send, char *why, size_t why_bytes);

/* Starts the threads.  The last to end stops the service, when the duration or the recordings are over.  Returns 0 or
 * negative errno. */
int dsim_send_start(struct dsim_send *send);

/* The timestamp of the first heaps, once started; of recordings, it is not known and -1 may be returned. */
int64_t dsim_send_first_timestamp(const struct dsim_send *send);

/* Whether other heaps of a period can take the place of those that are sent: not of dsim_play, nor to a capture. */
bool dsim_send_can_switch(const struct dsim_send *send);

/* From the thread that started it, and once what was switched before has been: sends these heaps from a timestamp on, a
 * tenth of a second from now, which is returned.  Both must live until dsim_send_has_switched(). */
int64_t dsim_send_switch(struct dsim_send *send, const struct dsim_heaps *heaps);

/* Whether no thread uses the heaps of before any more. */
bool dsim_send_has_switched(const struct dsim_send *send);

/* Leaves out a fraction, 0 to 1, of the heaps of an input from the next one on, drawn at random; 1 also of its descriptors.
 * From any thread. */
void dsim_send_set_loss(struct dsim_send *send, size_t input, double fraction);

/* Ends the threads, within a tenth of a second, and waits for them. */
void dsim_send_stop(struct dsim_send *send);

/* Prints how much was sent and how late; once stopped. */
void dsim_send_print_summary(const struct dsim_send *send);

/* NULL is accepted. */
void dsim_send_destroy(struct dsim_send *send);

#endif
