/* recv.h - identifies the packets of beams, and the heap of each packet.
 *
 * The recorder has one receiver.  Each member of the receiver is a stream: one voltage beam, or several detected
 * beams in the same heaps.  A packet's destination address determines its member.  The sources of a member are its
 * substreams.  A chunk contains the heaps of one batch. */
#ifndef TOOLS_BEAMREC_RECV_H
#define TOOLS_BEAMREC_RECV_H

#include "common/recv/receiver.h"

#include <stddef.h>

struct beamrec_powers;

/* Items in the writer's inbox: chunks from the assemblers, and the end of a capture from the receiver. */
enum beamrec_item { BEAMREC_ITEM_CHUNK, BEAMREC_ITEM_END };

#define BEAMREC_N_WANTED 7
extern const uint16_t beamrec_recv_wanted[BEAMREC_N_WANTED];

/* Layout of a stream's heaps: the size of the payload, and the items in the payload. */
struct beamrec_heap {
    size_t bytes;
    uint32_t items;                     /* bit i is set if the heap contains wanted item i */
    uint64_t offsets[BEAMREC_N_WANTED]; /* offset of each wanted item in the payload, in bytes */
};

struct beamrec_recv_context {
    size_t n_chan;                    /* number of channels of the whole band */
    size_t n_chan_substream;          /* number of channels of a substream; divides n_chan */
    const struct beamrec_heap *heaps; /* [member] */
    const unsigned *member_of_endpoint;
};

struct beamrec_heap beamrec_heap_of_voltages(size_t bytes);
struct beamrec_heap beamrec_heap_of_powers(const struct beamrec_powers *powers);

/* Identifies a packet of a beam; 'context' is a struct beamrec_recv_context.  This function is pure. */
enum reject beamrec_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                  struct receiver_identity *identity);

#endif
