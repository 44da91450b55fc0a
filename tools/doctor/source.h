/* source.h - what one source of a stream sends, from the headers of its packets: a digitiser's polarisation, or
 * an F-engine's substream.
 *
 * Pure: fed with packets and their times of arrival, asked for numbers.  Threads: one. */
#ifndef TOOLS_DOCTOR_SOURCE_H
#define TOOLS_DOCTOR_SOURCE_H

#include "common/net/spead.h"
#include "common/time/timebase.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOURCE_N_SLOTS  1024 /* heaps that may be open at once */
#define SOURCE_N_VALUES 4    /* of ids and senders that are told apart */

/* The expected stream of a source. */
struct source_shape {
    int64_t heap_samples; /* from heap to heap */
    uint64_t heap_bytes;
    struct timebase timebase;
    int64_t half_ns; /* of the time that it is listened to; 0: unknown */
};

/* A packet of it; timestamp as on the wire. */
struct source_packet {
    uint64_t timestamp, heap_length, payload_length;
    uint64_t id; /* the digitiser's, or the first channel */
    struct sockaddr_in from;
    int64_t arrival_unix_ns;
};

/* Different values that came, the first few of them with their counts. */
struct source_values {
    size_t n;
    uint64_t values[SOURCE_N_VALUES], counts[SOURCE_N_VALUES];
};

struct source_slot {
    int64_t heap; /* number on the 64-bit grid; only where bytes > 0 */
    uint64_t bytes;
};

struct source {
    uint64_t n_packets;
    uint64_t n_bytes;          /* of payload */
    uint64_t n_wrong_length;   /* packets of heaps of another length, which count no further */
    uint64_t wrong_length;     /* the last such */
    uint64_t n_bad_timestamps; /* likewise: no multiple of the heap's samples */
    uint64_t n_jumps;          /* likewise: far from the first */
    uint64_t n_reordered;      /* packets of an earlier heap than the one before */
    uint64_t n_duplicate_bytes;
    uint64_t
        n_complete; /* heaps, the first and the last not counted: of them a part may have gone before or come after */
    size_t payload_bytes; /* the largest of a packet */
    int64_t first_unix_ns, last_unix_ns;
    int64_t first_heap, newest_heap, last_heap;
    int64_t half_unix_ns, half_heap;   /* of the first packet behind 'half_ns'; 0: there was none */
    double least_late_s;               /* arrival after the time of the heap's last sample; < 0: before it */
    struct source_values ids, senders; /* a sender is address << 16 | port */
    struct source_slot slots[SOURCE_N_SLOTS];
};

void source_take(struct source *source, const struct source_shape *shape, const struct source_packet *packet);

/* Closes what is open.  Call once, before the numbers below are asked for. */
void source_finish(struct source *source, const struct source_shape *shape);

/* Heaps that should have come between the first and the newest, and did not, or not whole. */
uint64_t source_expected(const struct source *source);
uint64_t source_missing(const struct source *source);

/* Samples per second by which its timestamps advance; 0 where it was not seen for long enough (a second) to tell. */
double source_rate_hz(const struct source *source, const struct source_shape *shape);

/* The same of both halves of the time; false where one of them is too short to tell (a quarter of a second). */
bool source_half_rates_hz(const struct source *source, const struct source_shape *shape, double rates_hz[2]);

/* Whether the rate differs from the nominal one by more than a few seconds' packets can seem to.  A wrong rate is wrong in
 * both halves of the time, and to the same side.  A host that stands still for a moment delays packets, so that one half
 * seems to be wrong. */
bool source_rate_is_wrong(const struct source *source, const struct source_shape *shape, double nominal_hz);

#endif
