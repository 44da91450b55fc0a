/* recv.h - which packets are ours, and to which heap they belong.
 *
 * One receiver; a member is a beam, which its address tells.  The sources of a member are the substreams, and a chunk
 * is the heaps of one batch.  Another kind of heap (detected beams) would be another identify function. */
#ifndef TOOLS_BEAMREC_RECV_H
#define TOOLS_BEAMREC_RECV_H

#include "common/recv/receiver.h"

#include <stddef.h>

/* What assemblers hand to the writer, and the receiver at the end of a file. */
enum beamrec_item { BEAMREC_ITEM_CHUNK, BEAMREC_ITEM_END };

struct beamrec_recv_context {
    size_t n_chan;           /* of the whole band */
    size_t n_chan_substream; /* divides it */
    size_t heap_bytes;
    const unsigned *beam_of_endpoint;
};

#define BEAMREC_N_WANTED 3
extern const uint16_t beamrec_recv_wanted[BEAMREC_N_WANTED];

/* Identifies a packet of a voltage beam; 'context' is a struct beamrec_recv_context.  Pure. */
enum reject beamrec_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                  struct receiver_identity *identity);

#endif
