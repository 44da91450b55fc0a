/* send.h - heaps to the network as the F-engines of an array send them, when their time has come.
 *
 * Flow:      fsim_heaps --send threads--> a send_sink for each antenna
 * Packets:   as fgpu's.  Each antenna has its own heap counts, antenna + n * antennas: of descriptors to each
 *            destination at the start, after (antenna + 1) * 5 s and then every antennas * 5 s of the timestamps, of
 *            heaps of data, and of a stop heap to each destination at the end.
 * Order:     a thread sends a run of packets of each of its antennas' heaps in turn, as many as can be joined, each
 *            packet by itself in a capture.
 * Time:      the heaps with timestamp t leave from when their last sample would have been taken, within the time from
 *            heap to heap / rate_factor, evenly, though not more finely than 200 us.  When the host has held it up,
 *            a thread catches up without leaving anything out.  rate_factor 0, and captures: as fast as it goes.
 *            No thread is more than a batch ahead of any other.
 * Threads:   create, start, stop and destroy from one thread; the senders are threads of their own, among which the
 *            antennas are dealt ('send.threads').  A capture has one. */
#ifndef TOOLS_FSIM_SEND_H
#define TOOLS_FSIM_SEND_H

#include "tools/fsim/config.h"
#include "tools/fsim/heaps.h"

#include <stddef.h>
#include <stdint.h>

struct service;
struct fsim_send;

/* Opens the sinks and registers the metrics.  All arguments must outlive it.  Returns 0 or negative errno with one
 * sentence in 'why'. */
int fsim_send_create(const struct fsim_config *config, const struct fsim_heaps *heaps, struct service *service,
                     struct fsim_send **send, char *why, size_t why_bytes);

/* Starts the threads.  The last to end stops the service, when the duration or the recording is over.  Returns 0 or
 * negative errno. */
int fsim_send_start(struct fsim_send *send);

/* Ends the threads, after the batch that they are at and stop heaps, and waits for them. */
void fsim_send_stop(struct fsim_send *send);

/* Prints how much was sent and how late; once stopped.  Returns the number of packets that failed. */
uint64_t fsim_send_print_summary(const struct fsim_send *send);

/* NULL is accepted. */
void fsim_send_destroy(struct fsim_send *send);

#endif
