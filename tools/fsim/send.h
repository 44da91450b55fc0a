/* send.h - sends heaps to the network on time, as the F-engines of an array do.
 *
 * Flow:      fsim_heaps --send threads--> a send_sink for each antenna
 * Packets:   as fgpu's.  Each antenna has its own heap counts, antenna + n * antennas.  Descriptors go to each
 *            destination at the start, after (antenna + 1) * 5 s, and then every antennas * 5 s of the timestamps.
 *            Data heaps follow their timestamps.  A stop heap goes to each destination at the end.
 * Order:     a thread visits the heaps of its antennas in turn and sends a run of packets of each heap.  A run has as
 *            many packets as can be joined; in a capture, one packet.
 * Time:      the heaps with timestamp t leave from the time on at which their last sample would have been taken.  They
 *            leave evenly within the time from heap to heap / rate_factor, in steps of at least 200 us.  If the host
 *            delays a thread, the thread catches up and leaves nothing out.  With rate_factor 0, and in captures,
 *            threads send as fast as they can.  No thread is more than a batch ahead of any other.
 * Threads:   create, start, stop and destroy from one thread.  The senders are threads of their own, and share the
 *            antennas ('send.threads').  A capture has one sender. */
#ifndef TOOLS_FSIM_SEND_H
#define TOOLS_FSIM_SEND_H

#include "tools/fsim/config.h"
#include "tools/fsim/heaps.h"

#include <stddef.h>
#include <stdint.h>

struct service;
struct fsim_send;

/* Opens the sinks and registers the metrics.  All arguments must outlive the object.  Returns 0 or negative errno with
 * one sentence in 'why'. */
int fsim_send_create(const struct fsim_config *config, const struct fsim_heaps *heaps, struct service *service,
                     struct fsim_send **send, char *why, size_t why_bytes);

/* Starts the threads.  When the duration or the recording ends, the last thread stops the service.  Returns 0 or
 * negative errno. */
int fsim_send_start(struct fsim_send *send);

/* Stops the threads and waits for them.  Each thread first finishes its batch and sends stop heaps. */
void fsim_send_stop(struct fsim_send *send);

/* Prints the number of heaps and packets sent, and the greatest lateness.  Call after fsim_send_stop().  Returns the
 * number of packets that failed. */
uint64_t fsim_send_print_summary(const struct fsim_send *send);

/* Stops the threads, closes the sinks and frees the object.  NULL is accepted. */
void fsim_send_destroy(struct fsim_send *send);

#endif
