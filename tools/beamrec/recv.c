/* recv.c - reads the items of a beam's packets, for the receive thread. */
#include "tools/beamrec/recv.h"

#include "tools/beamrec/powers.h"

enum wanted {
    WANTED_TIMESTAMP,
    WANTED_FREQUENCY,
    WANTED_BF_RAW,
    WANTED_POWERS,
    WANTED_FRACTIONS,
    WANTED_OFFSETS,
    WANTED_SCALES
};

const uint16_t beamrec_recv_wanted[BEAMREC_N_WANTED] = {
    [WANTED_TIMESTAMP] = SPEAD_TIMESTAMP,
    [WANTED_FREQUENCY] = SPEAD_FREQUENCY,
    [WANTED_BF_RAW] = SPEAD_BF_RAW,
    [WANTED_POWERS] = SPEAD_BEAM_POWERS,
    [WANTED_FRACTIONS] = SPEAD_BEAM_FRACTIONS,
    [WANTED_OFFSETS] = SPEAD_BEAM_OFFSETS,
    [WANTED_SCALES] = SPEAD_BEAM_SCALES,
};

struct beamrec_heap beamrec_heap_of_voltages(size_t bytes)
{
    return (struct beamrec_heap){.bytes = bytes, .items = 1 << WANTED_BF_RAW};
}

struct beamrec_heap beamrec_heap_of_powers(const struct beamrec_powers *powers)
{
    struct beamrec_heap heap = {
        .bytes = beamrec_powers_heap_bytes(powers),
        .items = 1 << WANTED_POWERS | 1 << WANTED_FRACTIONS,
        .offsets = {[WANTED_POWERS] = beamrec_powers_at(powers),
                    [WANTED_OFFSETS] = beamrec_powers_offsets_at(powers),
                    [WANTED_SCALES] = beamrec_powers_scales_at(powers)},
    };

    if (powers->is_uint8)
        heap.items |= 1 << WANTED_OFFSETS | 1 << WANTED_SCALES;
    return heap;
}

static bool has_items(const struct beamrec_heap *heap, const struct spead_packet *packet)
{
    for (size_t i = 0; i < BEAMREC_N_WANTED; i++)
        if (heap->items >> i & 1 &&
            (!((packet->found & ~packet->immediate) >> i & 1) || packet->wanted[i] != heap->offsets[i]))
            return false;
    return true;
}

enum reject beamrec_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                  struct receiver_identity *identity)
{
    const uint32_t immediates = 1 << WANTED_TIMESTAMP | 1 << WANTED_FREQUENCY;
    const struct beamrec_recv_context *c = context;
    unsigned member = c->member_of_endpoint[endpoint];
    const struct beamrec_heap *heap = &c->heaps[member];

    if (packet->is_stop)
        return REJECT_STOP;
    if ((packet->found & packet->immediate & immediates) != immediates ||
        (packet->found & ~packet->immediate & heap->items) == 0)
        return REJECT_NO_ITEMS;
    if (packet->heap_length != heap->bytes)
        return REJECT_HEAP_SIZE;
    if (!has_items(heap, packet))
        return REJECT_NO_ITEMS;
    uint64_t first_chan = packet->wanted[WANTED_FREQUENCY];
    if (first_chan >= c->n_chan || first_chan % c->n_chan_substream != 0)
        return REJECT_BAD_FREQUENCY;
    *identity = (struct receiver_identity){
        .member = member,
        .source = (unsigned)(first_chan / c->n_chan_substream),
        .wire_timestamp = packet->wanted[WANTED_TIMESTAMP],
    };
    return REJECT_NONE;
}
