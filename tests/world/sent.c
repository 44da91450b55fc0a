/* sent.c - follows the heaps, heap counts and departure times of streams.  See sent.h. */
#include "tests/world/sent.h"

#include "common/base/units.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OPEN         16               /* heaps that a stream sends at one time */
#define BACKLOG_NS       (10 * NS_PER_MS) /* delay that a stream makes up for */
#define EARLY_NS         (300 * NS_PER_US)
#define SLACK_BYTES      2000 /* a packet beyond its time */
#define IDLE_NS          (10 * NS_PER_MS)
#define LONGEST_DRAIN_NS (60 * NS_PER_S + NS_PER_MS)

struct open_heap {
    uint64_t heap_cnt, n_sent_bytes;
};

struct destination {
    uint64_t digest, descriptors_digest; /* of the descriptors so far, and of the first descriptors */
    bool has_begun, has_ended;
};

struct sent_stream {
    double bytes_per_ns, backlog_bytes;
    int64_t last_ns;
    uint64_t newest_cnt, step; /* step 0: not known yet */
    uint64_t n_started;
    struct open_heap open[MAX_OPEN];
    size_t n_open, n_destinations;
    struct destination destinations[]; /* [n_destinations] */
};

static struct sent_totals totals;
static int64_t newest_ns;   /* time of the newest packet of all streams */
static size_t n_incomplete; /* heaps */
static int64_t drain_ns;    /* beginning of the drain; 0: not yet */

void sent_begin(void)
{
    totals = (struct sent_totals){0};
    drain_ns = newest_ns = 0;
    n_incomplete = 0;
}

struct sent_totals sent_totals(void)
{
    return totals;
}

bool sent_is_idle(void)
{
    return n_incomplete == 0 && world_now_ns() - newest_ns > IDLE_NS;
}

void sent_drain(void)
{
    drain_ns = world_now_ns();
}

struct sent_stream *sent_open(double rate_bytes_per_s, size_t n_destinations)
{
    struct sent_stream *stream = calloc(1, sizeof(*stream) + n_destinations * sizeof(stream->destinations[0]));

    if (!stream)
        world_fail("out of memory");
    if (rate_bytes_per_s <= 0)
        world_fail("a stream has no rate");
    stream->bytes_per_ns = rate_bytes_per_s / NS_PER_S;
    stream->n_destinations = n_destinations;
    return stream;
}

/* Adds a packet to the backlog: the bytes that left earlier than the rate permits. */
static void check_pace(struct sent_stream *stream, size_t n_bytes, bool is_data)
{
    double passed_ns = (double)(world_now_ns() - stream->last_ns);

    if (drain_ns > 0)
        return;
    stream->last_ns = world_now_ns();
    stream->backlog_bytes -= passed_ns * stream->bytes_per_ns;
    if (stream->backlog_bytes < 0)
        stream->backlog_bytes = 0;
    if (!is_data)
        return;
    stream->backlog_bytes += (double)n_bytes;
    double most_bytes = (BACKLOG_NS + EARLY_NS) * stream->bytes_per_ns + SLACK_BYTES;
    if (stream->backlog_bytes > most_bytes)
        world_fail("a stream of %.0f bytes/s has sent %.0f bytes too early", stream->bytes_per_ns * NS_PER_S,
                   stream->backlog_bytes);
}

/* Counts differ by the step of the stream, which the first two heaps show. */
static void check_count(struct sent_stream *stream, uint64_t heap_cnt)
{
    if (stream->n_started == 1)
        stream->step = heap_cnt - stream->newest_cnt;
    if (stream->n_started > 0 && (heap_cnt - stream->newest_cnt != stream->step || stream->step == 0))
        world_fail("a heap has the count %llu after %llu, and the step is %llu", (unsigned long long)heap_cnt,
                   (unsigned long long)stream->newest_cnt, (unsigned long long)stream->step);
    stream->newest_cnt = heap_cnt;
    stream->n_started++;
}

/* Follows the packets of a heap.  Returns true if the heap ends with this packet. */
static bool follow_heap(struct sent_stream *stream, const struct wire_packet *packet)
{
    size_t i = 0;

    while (i < stream->n_open && stream->open[i].heap_cnt != packet->heap_cnt)
        i++;
    if (i == stream->n_open) {
        if (i == MAX_OPEN)
            world_fail("a stream sends more than %d heaps at one time", MAX_OPEN);
        check_count(stream, packet->heap_cnt);
        n_incomplete++;
        stream->open[stream->n_open++] = (struct open_heap){.heap_cnt = packet->heap_cnt};
    }
    if (packet->offset != stream->open[i].n_sent_bytes)
        world_fail("a heap goes on at %llu bytes after %llu bytes", (unsigned long long)packet->offset,
                   (unsigned long long)stream->open[i].n_sent_bytes);
    stream->open[i].n_sent_bytes += packet->payload_bytes;
    if (stream->open[i].n_sent_bytes < packet->heap_bytes)
        return false;
    stream->open[i] = stream->open[--stream->n_open];
    n_incomplete--;
    return true;
}

/* FNV-1a. */
static uint64_t digest(uint64_t begin, const uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        begin = (begin ^ bytes[i]) * 0x100000001B3;
    return begin;
}

static void check_descriptors(struct destination *destination, const struct wire_packet *packet, bool ends)
{
    uint64_t begin = packet->offset > 0 ? destination->digest : 14695981039346656037u;

    destination->digest = digest(begin, packet->payload, packet->payload_bytes);
    if (!ends)
        return;
    if (destination->has_begun && destination->descriptors_digest != destination->digest)
        world_fail("the descriptors of a stream have changed");
    destination->descriptors_digest = destination->digest;
    destination->has_begun = true;
}

void sent_packet(struct sent_stream *stream, unsigned number, const uint8_t *bytes, size_t n_bytes, bool is_sent)
{
    struct destination *destination = &stream->destinations[number];
    struct wire_packet packet;

    if (number >= stream->n_destinations || !wire_read(bytes, n_bytes, &packet) || destination->has_ended)
        world_fail("a stream sends a packet that is not SPEAD, or after its stop heap");
    bool is_descriptors = wire_find(&packet, WIRE_DESCRIPTOR), is_stop = wire_find(&packet, WIRE_STREAM_CTRL);
    bool ends = follow_heap(stream, &packet);
    newest_ns = world_now_ns();
    check_pace(stream, n_bytes, !is_descriptors && !is_stop);
    if (is_descriptors)
        check_descriptors(destination, &packet, ends);
    destination->has_ended = is_stop;
    if (is_descriptors || is_stop)
        return;
    if (!destination->has_begun)
        world_fail("a stream sends data before descriptors");
    if (drain_ns > 0 && world_now_ns() > drain_ns + LONGEST_DRAIN_NS)
        world_fail("a stream sends data after the deadline of the drain");
    totals.n_heaps += ends;
    totals.n_packets += is_sent;
    totals.n_bytes += packet.payload_bytes;
}

void sent_close(struct sent_stream *stream)
{
    for (size_t i = 0; i < stream->n_destinations; i++)
        if (stream->n_started > 0 && !stream->destinations[i].has_ended)
            world_fail("a stream ends without a stop heap for destination %zu of %zu", i, stream->n_destinations);
    n_incomplete -= stream->n_open;
    free(stream);
}
