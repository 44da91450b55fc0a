/* sent.h - checks the packets of each stream that a daemon sends (common/send/sender.h), without the daemons' code.
 *
 * Order:        the first heap for each destination has the descriptors, which never change.  The last heap for each
 *               destination is a stop heap.
 * Heap counts:  each heap has the next count of its stream, and all counts have the remainder of the stream.
 * Heaps:        the packets of a heap follow one another without a gap.
 * End:          no data leave later than a minute after the stop.
 * Pace:         the stream keeps its rate, apart from a backlog of 10 ms and its descriptors.
 * Threads:      threads of the world. */
#ifndef TESTS_WORLD_SENT_H
#define TESTS_WORLD_SENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sent_stream;

/* Number of data heaps, of their packets and of their payload bytes that all streams have sent in this run.  Heaps and
 * bytes include refused packets. */
struct sent_totals {
    uint64_t n_heaps, n_packets, n_bytes;
};

void sent_begin(void);
struct sent_totals sent_totals(void);

/* Returns true if no stream has sent anything for some time, and all heaps are complete. */
bool sent_is_idle(void);

/* Begins a stream with this rate in bytes/s and this number of destinations. */
struct sent_stream *sent_open(double rate_bytes_per_s, size_t n_destinations);

/* Checks a packet.  'is_sent': false if the socket refuses the packet.  Such a packet does not count. */
void sent_packet(struct sent_stream *stream, unsigned destination, const uint8_t *bytes, size_t n_bytes, bool is_sent);

/* The daemon ends from now on.  It may exceed the rate, and may send data for at most a minute. */
void sent_drain(void);

/* Checks that each destination has a stop heap, if the stream sent anything, and frees the stream. */
void sent_close(struct sent_stream *stream);

#endif
