/* recv.h - identifies the packets of visibilities, and the heap of each packet.
 *
 * The recorder has one receiver with one member.  The member's sources are the substreams.  A chunk contains the
 * heaps of one timestamp, which together form a dump. */
#ifndef TOOLS_VISREC_RECV_H
#define TOOLS_VISREC_RECV_H

#include "common/recv/receiver.h"
#include "tools/visrec/dump.h"

/* Items in the writer's inbox: chunks from the assembler, and the end of a capture from the receiver. */
enum visrec_item { VISREC_ITEM_CHUNK, VISREC_ITEM_END };

#define VISREC_N_WANTED 5
extern const uint16_t visrec_recv_wanted[VISREC_N_WANTED];

/* Identifies a packet; 'context' is a struct visrec_dump_shape.  This function is pure. */
enum reject visrec_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                 struct receiver_identity *identity);

#endif
