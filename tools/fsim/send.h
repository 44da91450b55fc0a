/* send.h - sends the heaps of an array's F-engines to the network at their times.
 *
 * Flow:      fsim_heaps --send threads--> a send_sink for each antenna
 * Packets:   the packets have the format of fgpu's packets.  Each antenna has its own heap counts, antenna + n *
 *            antennas.  Each antenna sends descriptors to each destination at the start, after (antenna + 1) * 5 s, and
 *            then at intervals of antennas * 5 s.  These times are differences of timestamps.  At the end, each antenna
 *            sends a stop heap to each destination.
 * Order:     a thread sends one run of packets of each heap of its antennas, then the next run of each heap, and so on.
 *            A run has as many packets as the kernel can join.  In a capture, a run is one packet.
 * Time:      transmission of the heaps with timestamp t begins at the time of their last sample.  Their packets are
 *            spread evenly over the time between heaps, divided by rate_factor, in steps of at least 200 us.  If the
 *            host delays a thread, the thread catches up and omits nothing.  With rate_factor 0, and in captures,
 *            threads send as fast as they can.  No thread is more than a batch ahead of any other.
 * Threads:   create, start, stop and destroy from one thread.  Each sender has its own thread.  The key send.threads
 *            sets the number of senders, among which the antennas are distributed.  A capture has one sender. */
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
