/* antenna.h - the packets of one F-engine of fsim, as fgpu sends them.
 *
 * Flow:      fsim_heaps --add_run--> packets --flush--> the antenna's send_sink
 * Counts:    its heap counts are feng_id + n * antennas: those of descriptors, heaps of data and stops alike, in order of
 *            departure; a heap that is not sent takes none.
 * Sockets:   each antenna has one of its own, so on a network it is a flow of its own, and the packets of two are
 *            never joined.
 * Threads:   an antenna belongs to the thread that sends it; the wire is [const] but for its counters. */
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
    size_t payload_bytes;   /* of a packet */
    size_t run_bytes;       /* of a heap's packets in a row: as many as can be joined, one in a capture */
    size_t batch_packets;   /* handed to a sink at once, at most: a run to each substream */
    struct counter n_heaps; /* of data, sent */
};

struct fsim_antenna {
    struct fsim_wire *wire;
    uint64_t feng_id;
    uint64_t heap_cnt; /* of the next heap */
    struct sim_sender_out out;
};

/* 'wire->senders' is initialised.  All arguments must outlive the wire. */
void fsim_wire_init(struct fsim_wire *wire, const struct fsim_config *config, const struct fsim_heaps *heaps);

/* Opens its sink.  Returns 0 or negative errno with one sentence in 'why'. */
int fsim_antenna_open(struct fsim_antenna *ant, struct fsim_wire *wire, uint64_t feng_id, char *why, size_t why_bytes);

/* Whether the heaps of a timestamp, batch 'i_batch' of the period, are sent, or were lost in a recording, or are dropped
 * on purpose. */
bool fsim_antenna_sends(const struct fsim_antenna *ant, int64_t timestamp, size_t i_batch);

/* Adds the run of packets that begins at 'offset' of the heap to 'substream'. */
void fsim_antenna_add_run(struct fsim_antenna *ant, int64_t timestamp, size_t i_batch, size_t substream, size_t offset);

/* All runs of the heaps of a timestamp have been added. */
void fsim_antenna_end_heaps(struct fsim_antenna *ant);

/* Sends descriptors, or a stop, to each substream; with stops, waits until all has left. */
void fsim_antenna_send_descriptors(struct fsim_antenna *ant);
void fsim_antenna_send_stops(struct fsim_antenna *ant);

#endif
