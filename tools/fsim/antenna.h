/* antenna.h - builds and sends the packets of one simulated F-engine, in the format of fgpu.
 *
 * Flow:      fsim_heaps --add_run--> packets --flush--> the antenna's send_sink
 * Counts:    the heap counts of an antenna are feng_id + n * number of antennas, for n = 0, 1, 2 and so on.
 *            Descriptors, data heaps and stop heaps have consecutive counts in the order in which they are sent.  A
 *            heap that is not sent uses no count.
 * Sockets:   each antenna has its own socket.  Its packets are therefore a separate network flow, and packets of two
 *            antennas are never joined.
 * Threads:   an antenna belongs to the thread that sends its packets.  Struct fsim_wire is [const], except its
 *            counters. */
#ifndef TOOLS_FSIM_ANTENNA_H
#define TOOLS_FSIM_ANTENNA_H

#include "tools/fsim/config.h"
#include "tools/fsim/heaps.h"
#include "tools/shared/sim_sender.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Data that all antennas share. */
struct fsim_wire {
    struct sim_senders senders;
    const struct fsim_config *config;
    const struct fsim_heaps *heaps;
    int64_t batch_samples;
    size_t payload_bytes; /* payload of a packet */
    /* payload bytes of a run.  A run is a series of packets of a heap that the kernel can join.  In a capture, a run
     * is one packet. */
    size_t run_bytes;
    size_t batch_packets;   /* greatest number of packets in a call of a sink: one run for each substream */
    struct counter n_heaps; /* data heaps sent */
};

struct fsim_antenna {
    struct fsim_wire *wire;
    uint64_t feng_id;
    uint64_t heap_cnt; /* heap count of the next heap */
    struct sim_sender_out out;
};

/* Initialises the members of 'wire' except 'wire->senders', which the caller has already initialised.  All arguments
 * must outlive the wire. */
void fsim_wire_init(struct fsim_wire *wire, const struct fsim_config *config, const struct fsim_heaps *heaps);

/* Opens the sink of an antenna.  Returns 0 or negative errno with one sentence in 'why'. */
int fsim_antenna_open(struct fsim_antenna *ant, struct fsim_wire *wire, uint64_t feng_id, char *why, size_t why_bytes);

/* Returns true if the antenna sends its heaps of 'timestamp', which are in batch 'i_batch' of the period.  Returns
 * false if the recording lacks these heaps, or if stream.drop drops the heaps on purpose. */
bool fsim_antenna_sends(const struct fsim_antenna *ant, int64_t timestamp, size_t i_batch);

/* Adds a run of packets to the batch: the part of the heap for 'substream' that begins at 'offset'. */
void fsim_antenna_add_run(struct fsim_antenna *ant, int64_t timestamp, size_t i_batch, size_t substream, size_t offset);

/* Ends the heaps of a timestamp.  Call after fsim_antenna_add_run() has added all packets of these heaps. */
void fsim_antenna_end_heaps(struct fsim_antenna *ant);

/* Send descriptors, or a stop heap, to each substream.  fsim_antenna_send_stops() waits until all packets have left. */
void fsim_antenna_send_descriptors(struct fsim_antenna *ant);
void fsim_antenna_send_stops(struct fsim_antenna *ant);

#endif
