/* source.c - counts the heaps of a source by their timestamps. */
#include "tools/doctor/source.h"

#include "common/base/units.h"

#include <math.h>

#define JUMP_S     600  /* seconds; a timestamp that differs by more than this from the first one is a jump */
#define HALF_MIN_S 0.25 /* seconds; shortest time from which a rate is computed */
#define RATE_MAX   0.05 /* greatest relative error of a rate that is measured in a few seconds */
#define STALL_S    0.2  /* seconds; longest time for which a busy host delays packets */

static void add_value(struct source_values *values, uint64_t value)
{
    for (size_t i = 0; i < values->n; i++)
        if (values->values[i] == value) {
            values->counts[i]++;
            return;
        }
    if (values->n == SOURCE_N_VALUES)
        return;
    values->values[values->n] = value;
    values->counts[values->n++] = 1;
}

static void close_slot(struct source *source, const struct source_shape *shape, struct source_slot *slot)
{
    if (slot->bytes == 0)
        return;
    if (slot->bytes > shape->heap_bytes)
        source->n_duplicate_bytes += slot->bytes - shape->heap_bytes;
    if (slot->bytes >= shape->heap_bytes && slot->heap != source->first_heap && slot->heap != source->newest_heap)
        source->n_complete++;
    slot->bytes = 0;
}

/* Adds bytes to a heap.  If a newer heap is already in the slot, the packet is too late and is not counted. */
static void add_to_heap(struct source *source, const struct source_shape *shape, int64_t heap, uint64_t bytes)
{
    struct source_slot *slot = &source->slots[(uint64_t)heap % SOURCE_N_SLOTS];

    if (slot->bytes > 0 && slot->heap > heap)
        return;
    if (slot->bytes > 0 && slot->heap < heap)
        close_slot(source, shape, slot);
    slot->heap = heap;
    slot->bytes += bytes;
}

void source_take(struct source *source, const struct source_shape *shape, const struct source_packet *packet)
{
    int64_t now = timebase_samples_at(&shape->timebase, packet->arrival_unix_ns);
    int64_t timestamp = timebase_unwrap(packet->timestamp, now), heap = timestamp / shape->heap_samples;
    uint64_t sender = (uint64_t)ntohl(packet->from.sin_addr.s_addr) << 16 | ntohs(packet->from.sin_port);

    source->n_packets++;
    source->n_bytes += packet->payload_length;
    add_value(&source->ids, packet->id);
    add_value(&source->senders, sender);
    if (packet->payload_length > source->payload_bytes)
        source->payload_bytes = packet->payload_length;
    if (packet->heap_length != shape->heap_bytes) {
        source->n_wrong_length++;
        source->wrong_length = packet->heap_length;
        return;
    }
    if (timestamp % shape->heap_samples != 0) {
        source->n_bad_timestamps++;
        return;
    }
    double late_s =
        (double)(packet->arrival_unix_ns - timebase_unix_ns(&shape->timebase, timestamp + shape->heap_samples)) /
        (double)NS_PER_S;
    if (source->first_unix_ns == 0) {
        source->first_unix_ns = packet->arrival_unix_ns;
        source->first_heap = source->newest_heap = source->last_heap = heap;
        source->least_late_s = late_s;
    }
    int64_t far = timebase_duration_samples(&shape->timebase, JUMP_S * NS_PER_S) / shape->heap_samples;
    if (heap - source->newest_heap > far || heap - source->first_heap < -SOURCE_N_SLOTS) {
        source->n_jumps++;
        return;
    }
    source->n_reordered += heap < source->last_heap;
    source->last_heap = heap;
    source->first_heap = heap < source->first_heap ? heap : source->first_heap;
    source->newest_heap = heap > source->newest_heap ? heap : source->newest_heap;
    source->last_unix_ns = packet->arrival_unix_ns;
    if (shape->half_ns > 0 && source->half_unix_ns == 0 &&
        source->last_unix_ns - source->first_unix_ns >= shape->half_ns) {
        source->half_unix_ns = source->last_unix_ns;
        source->half_heap = source->newest_heap;
    }
    source->least_late_s = late_s < source->least_late_s ? late_s : source->least_late_s;
    add_to_heap(source, shape, heap, packet->payload_length);
}

void source_finish(struct source *source, const struct source_shape *shape)
{
    for (size_t i = 0; i < SOURCE_N_SLOTS; i++)
        close_slot(source, shape, &source->slots[i]);
}

uint64_t source_expected(const struct source *source)
{
    int64_t n = source->newest_heap - source->first_heap - 1;

    return n > 0 ? (uint64_t)n : 0;
}

uint64_t source_missing(const struct source *source)
{
    uint64_t n_expected = source_expected(source);

    return n_expected > source->n_complete ? n_expected - source->n_complete : 0;
}

double source_rate_hz(const struct source *source, const struct source_shape *shape)
{
    double span_s = (double)(source->last_unix_ns - source->first_unix_ns) / (double)NS_PER_S;

    if (span_s < 1)
        return 0;
    return (double)((source->last_heap - source->first_heap) * shape->heap_samples) / span_s;
}

bool source_half_rates_hz(const struct source *source, const struct source_shape *shape, double rates_hz[2])
{
    double first_s = (double)(source->half_unix_ns - source->first_unix_ns) / (double)NS_PER_S;
    double second_s = (double)(source->last_unix_ns - source->half_unix_ns) / (double)NS_PER_S;

    if (source->half_unix_ns == 0 || first_s < HALF_MIN_S || second_s < HALF_MIN_S)
        return false;
    rates_hz[0] = (double)((source->half_heap - source->first_heap) * shape->heap_samples) / first_s;
    rates_hz[1] = (double)((source->last_heap - source->half_heap) * shape->heap_samples) / second_s;
    return true;
}

bool source_rate_is_wrong(const struct source *source, const struct source_shape *shape, double nominal_hz)
{
    double rate_hz = source_rate_hz(source, shape), heap_s = (double)shape->heap_samples / nominal_hz, halves_hz[2];
    double span_s = (double)(source->last_unix_ns - source->first_unix_ns) / (double)NS_PER_S;

    if (rate_hz == 0 || fabs(rate_hz / nominal_hz - 1) <= RATE_MAX + (2 * heap_s + STALL_S) / span_s)
        return false;
    if (!source_half_rates_hz(source, shape, halves_hz))
        return true;
    double first = halves_hz[0] / nominal_hz - 1, second = halves_hz[1] / nominal_hz - 1;
    double half_max = RATE_MAX + 4 * heap_s / span_s;
    return (first > half_max && second > half_max) || (first < -half_max && second < -half_max);
}
