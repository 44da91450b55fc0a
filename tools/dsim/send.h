/* send.h - sends heaps to the network at their times.  The heaps come from dsim_heaps or from dsim_play.
 * dsim_heaps has the heaps of one period.  These heaps are sent again and again.
 *
 * Flow:      dsim_heaps or dsim_play --sender threads--> one send_sink per thread
 * Time:      the heap with timestamp t leaves at the time of its last sample, t + packet_samples.  All heaps of a
 *            thread with the same timestamp leave together, in the order of antenna and polarisation.  A thread wakes
 *            at most once per millisecond, so at high rates it sends bursts of a millisecond of data.  After a delay by
 *            the host, a thread catches up and omits nothing.  Captures are written without waiting.
 * Reading:   another thread reads recordings, or computes live signals, ahead of time.  Heaps that are due but not
 *            ready leave late.  This event is counted.
 * Threads:   create, start, stop and destroy from one thread.  Each sender has its own thread.  The key send.threads
 *            sets the number of senders.  The inputs are distributed among the senders.  Recordings, live signals and
 *            captures have one sender thread. */
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

/* Opens the sinks and registers the metrics.  Exactly one of 'heaps' and 'play' must not be NULL.  This object and
 * 'service' must outlive the result.  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_send_create(const struct dsim_config *config, const struct dsim_heaps *heaps, struct dsim_play *play,
                     struct service *service, struct dsim_send **send, char *why, size_t why_bytes);

/* Starts the threads.  When the duration or the recordings are over, the last thread that ends stops the service.
 * Returns 0 or negative errno. */
int dsim_send_start(struct dsim_send *send);

/* Returns the timestamp of the first heaps.  Call after the start.  For recordings, the timestamp may not yet be known,
 * and the result is then -1. */
int64_t dsim_send_first_timestamp(const struct dsim_send *send);

/* Returns true if heaps of another period can replace the current heaps.  Heaps of dsim_play and heaps for a capture
 * cannot be replaced. */
bool dsim_send_can_switch(const struct dsim_send *send);

/* Switches to other heaps at a timestamp that is a tenth of a second in the future.  Returns this timestamp.  Call
 * from the thread that started the senders, and only after the last switch has completed.  The old and the new heaps
 * must exist until dsim_send_has_switched() returns true. */
int64_t dsim_send_switch(struct dsim_send *send, const struct dsim_heaps *heaps);

/* Returns true if no thread uses the earlier heaps any more. */
bool dsim_send_has_switched(const struct dsim_send *send);

/* Drops a random fraction, 0 to 1, of all future heaps of an input.  A fraction of 1 also drops the
 * descriptors.  Any thread may call this function. */
void dsim_send_set_loss(struct dsim_send *send, size_t input, double fraction);

/* Stops the threads, and waits until the threads have ended.  The wait takes at most a tenth of a second. */
void dsim_send_stop(struct dsim_send *send);

/* Prints the number of heaps sent, the number of failed packets and the largest lateness.  Call after
 * dsim_send_stop(). */
void dsim_send_print_summary(const struct dsim_send *send);

/* Accepts NULL. */
void dsim_send_destroy(struct dsim_send *send);

#endif
