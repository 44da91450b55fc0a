/* source.h - measures one source of a stream, from the headers of its packets.  A source is a digitiser's polarisation,
 * or an F-engine's substream.
 *
 * Pure: the caller passes packets with their times of arrival, and then reads the results.  Threads: one. */
#ifndef TOOLS_DOCTOR_SOURCE_H
#define TOOLS_DOCTOR_SOURCE_H

#include "common/net/spead.h"
#include "common/time/timebase.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOURCE_N_SLOTS  1024 /* number of heaps that may be open at the same time */
#define SOURCE_N_VALUES 4    /* greatest number of different ids, or senders, that are counted */

/* Shape of the stream that a source should send. */
struct source_shape {
    int64_t heap_samples; /* ADC samples from one heap to the next heap */
    uint64_t heap_bytes;
    struct timebase timebase;
    int64_t half_ns; /* half of the observation's duration; 0: not known */
};

/* A packet of a source.  The timestamp is the value on the wire. */
struct source_packet {
    uint64_t timestamp, heap_length, payload_length;
    uint64_t id; /* id of the digitiser, or the first channel */
    struct sockaddr_in from;
    int64_t arrival_unix_ns;
};

/* The first few different values in the packets, and the number of packets with each value. */
struct source_values {
    size_t n;
    uint64_t values[SOURCE_N_VALUES], counts[SOURCE_N_VALUES];
};

struct source_slot {
    int64_t heap; /* number of the heap: its unwrapped timestamp / heap_samples; valid if bytes > 0 */
    uint64_t bytes;
};

struct source {
    uint64_t n_packets;
    uint64_t n_bytes;        /* bytes of payload */
    uint64_t n_wrong_length; /* packets with a heap length other than heap_bytes; not counted as heaps */
    uint64_t wrong_length;   /* heap length in the last packet that had a wrong heap length */
    /* Packets whose timestamp is not a multiple of heap_samples.  These packets are not counted as heaps. */
    uint64_t n_bad_timestamps;
    uint64_t n_jumps;     /* packets whose timestamp is far from the first timestamp; not counted as heaps */
    uint64_t n_reordered; /* packets whose heap is earlier than the heap of the previous packet */
    uint64_t n_duplicate_bytes;
    /* Complete heaps, without the first and last heap.  Packets of these two heaps may lie outside the observation. */
    uint64_t n_complete;
    size_t payload_bytes; /* largest payload of a packet */
    int64_t first_unix_ns, last_unix_ns;
    int64_t first_heap, newest_heap, last_heap;
    int64_t half_unix_ns, half_heap; /* arrival and heap of the first packet after 'half_ns'; 0: no such packet */
    /* smallest lateness: arrival minus the time of a heap's last sample; < 0: the heap was early */
    double least_late_s;
    struct source_values ids, senders; /* a sender is address << 16 | port */
    struct source_slot slots[SOURCE_N_SLOTS];
};

void source_take(struct source *source, const struct source_shape *shape, const struct source_packet *packet);

/* Ends the measurement: closes the open heaps.  Call once, before the functions below. */
void source_finish(struct source *source, const struct source_shape *shape);

/* source_expected() returns the number of heaps between the first and the newest heap.  source_missing() returns how
 * many of these heaps are missing or incomplete. */
uint64_t source_expected(const struct source *source);
uint64_t source_missing(const struct source *source);

/* Returns the rate at which the timestamps advance, in samples per second; 0 if the source was seen for less than a
 * second. */
double source_rate_hz(const struct source *source, const struct source_shape *shape);

/* Computes the rates of both halves of the observation.  Returns false if a half is shorter than a quarter of a
 * second. */
bool source_half_rates_hz(const struct source *source, const struct source_shape *shape, double rates_hz[2]);

/* Returns true if the rate of the timestamps is wrong: it differs from 'nominal_hz' in the same direction in both
 * halves of the observation.  The difference must exceed the error of a measurement of a few seconds.  If a host stalls
 * for a moment, it delays packets, and only one half has a wrong rate. */
bool source_rate_is_wrong(const struct source *source, const struct source_shape *shape, double nominal_hz);

#endif
