/* recv.c - reads the items of packets with visibilities, for the receive thread. */
#include "tools/visrec/recv.h"

enum wanted { WANTED_TIMESTAMP, WANTED_FREQUENCY, WANTED_XENG_RAW, WANTED_WEIGHTS, WANTED_GATE_SPECTRA };

const uint16_t visrec_recv_wanted[VISREC_N_WANTED] = {
    [WANTED_TIMESTAMP] = SPEAD_TIMESTAMP,
    [WANTED_FREQUENCY] = SPEAD_FREQUENCY,
    [WANTED_XENG_RAW] = SPEAD_XENG_RAW,
    [WANTED_WEIGHTS] = SPEAD_XENG_WEIGHTS,
    [WANTED_GATE_SPECTRA] = SPEAD_XENG_GATE_SPECTRA,
};

static bool has_immediate(const struct spead_packet *packet, enum wanted item)
{
    return (packet->found & packet->immediate) >> item & 1;
}

static bool has_address(const struct spead_packet *packet, enum wanted item, uint64_t offset)
{
    return (packet->found & ~packet->immediate) >> item & 1 && packet->wanted[item] == offset;
}

enum reject visrec_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                 struct receiver_identity *identity)
{
    const struct visrec_dump_shape *shape = context;

    if (packet->is_stop)
        return REJECT_STOP;
    if (!has_immediate(packet, WANTED_TIMESTAMP) || !has_immediate(packet, WANTED_FREQUENCY) ||
        !has_address(packet, WANTED_XENG_RAW, 0))
        return REJECT_NO_ITEMS;
    if (packet->heap_length != visrec_dump_heap_bytes(shape))
        return REJECT_HEAP_SIZE;
    if (shape->weights && !has_address(packet, WANTED_WEIGHTS, visrec_dump_weights_offset(shape)))
        return REJECT_NO_ITEMS;
    if (shape->gate && !has_address(packet, WANTED_GATE_SPECTRA, visrec_dump_gate_offset(shape)))
        return REJECT_NO_ITEMS;
    uint64_t first_chan = packet->wanted[WANTED_FREQUENCY];
    if (first_chan >= shape->n_chan || first_chan % shape->n_chan_substream != 0)
        return REJECT_BAD_FREQUENCY;
    *identity = (struct receiver_identity){
        .source = (unsigned)(first_chan / shape->n_chan_substream),
        .wire_timestamp = packet->wanted[WANTED_TIMESTAMP],
    };
    return REJECT_NONE;
}
