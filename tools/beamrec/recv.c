/* recv.c - the recorder's part in receiving: what a packet of a beam says about itself. */
#include "tools/beamrec/recv.h"

enum wanted { WANTED_TIMESTAMP, WANTED_FREQUENCY, WANTED_BF_RAW };

const uint16_t beamrec_recv_wanted[BEAMREC_N_WANTED] = {
    [WANTED_TIMESTAMP] = SPEAD_TIMESTAMP,
    [WANTED_FREQUENCY] = SPEAD_FREQUENCY,
    [WANTED_BF_RAW] = SPEAD_BF_RAW,
};

enum reject beamrec_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                  struct receiver_identity *identity)
{
    const struct beamrec_recv_context *c = context;
    const uint64_t immediates = 1 << WANTED_TIMESTAMP | 1 << WANTED_FREQUENCY, addresses = 1 << WANTED_BF_RAW;

    if (packet->is_stop)
        return REJECT_STOP;
    if ((packet->found & packet->immediate & immediates) != immediates ||
        (packet->found & ~packet->immediate & addresses) != addresses || packet->wanted[WANTED_BF_RAW] != 0)
        return REJECT_NO_ITEMS;
    if (packet->heap_length != c->heap_bytes)
        return REJECT_HEAP_SIZE;
    uint64_t first_chan = packet->wanted[WANTED_FREQUENCY];
    if (first_chan >= c->n_chan || first_chan % c->n_chan_substream != 0)
        return REJECT_BAD_FREQUENCY;
    *identity = (struct receiver_identity){
        .member = c->beam_of_endpoint[endpoint],
        .source = (unsigned)(first_chan / c->n_chan_substream),
        .wire_timestamp = packet->wanted[WANTED_TIMESTAMP],
    };
    return REJECT_NONE;
}
