/* send.h - sends heaps to the network at their time: the heaps of a period again and again, or those of dsim_play.
 *
 * Flow:      dsim_heaps or dsim_play --sender threads--> one send_sink per thread
 * Time:      the heap with timestamp t leaves at the time of its last sample, t + packet_samples.  All inputs of a
 *            thread and timestamp leave together, by antenna and polarisation.  A thread wakes at most every
 *            millisecond, so at high rates a burst has a millisecond of data.  After a delay by the host, a thread
 *            catches up and leaves nothing out.  It sends to a capture file without waiting.
 * Reading:   another thread reads recordings, or computes live signals, ahead of time.  If heaps are due and not
 *            ready, they are counted and leave late.
 * Threads:   create, start, stop and destroy from one thread.  The senders have threads of their own; the inputs are
 *            distributed among them ('send.threads').  Recordings, live signals and captures have one sender thread. */
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

/* Opens the sinks and registers the metrics.  Exactly one of 'heaps' and 'play' must not be NULL.  It and 'service'
 * must outlive the result.  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_send_create(const struct dsim_config *config, const struct dsim_heaps *heaps, struct dsim_play *play,
                     struct service *service, struct dsim_send **send, char *why, size_t why_bytes);

/* Starts the threads.  The last thread to end stops the service, when the duration or the recordings are over.
 * Returns 0 or negative errno. */
int dsim_send_start(struct dsim_send *send);

/* Returns the timestamp of the first heaps, after the start.  For recordings the timestamp is not known, and -1 may
 * be returned. */
int64_t dsim_send_first_timestamp(const struct dsim_send *send);

/* Returns true if heaps of another period can replace the current heaps.  Heaps of dsim_play, or sent to a capture,
 * cannot be replaced. */
bool dsim_send_can_switch(const struct dsim_send *send);

/* Sends other heaps from a timestamp on, a tenth of a second from now, and returns the timestamp.  Called from the
 * thread that started the senders, after the last switch has completed.  The old and the new heaps must live until
 * dsim_send_has_switched(). */
int64_t dsim_send_switch(struct dsim_send *send, const struct dsim_heaps *heaps);

/* Returns true if no thread uses the earlier heaps any more. */
bool dsim_send_has_switched(const struct dsim_send *send);

/* Leaves out a fraction, 0 to 1, of the heaps of an input from the next heap on, at random.  A fraction of 1 also
 * leaves out descriptors.  Called from any thread. */
void dsim_send_set_loss(struct dsim_send *send, size_t input, double fraction);

/* Ends the threads within a tenth of a second, and waits for them. */
void dsim_send_stop(struct dsim_send *send);

/* Prints the number of heaps sent, the number of failed packets and the largest lateness.  Called after the stop. */
void dsim_send_print_summary(const struct dsim_send *send);

/* Accepts NULL. */
void dsim_send_destroy(struct dsim_send *send);

#endif
