/* receiver_internal.h - types and functions shared by the files of a receiver.
 *
 * Files: receiver.c creates a receiver and runs its thread.  receiver_packets.c offers slots to the source and handles
 * the received packets. */
#ifndef COMMON_RECV_RECEIVER_INTERNAL_H
#define COMMON_RECV_RECEIVER_INTERNAL_H

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/net/spead_shape.h"
#include "common/recv/predict.h"
#include "common/recv/receiver.h"

#include <stdatomic.h>

/* Size of a slot's header buffer.  Usual headers have 72 bytes, but a sender may add items.  A header that exceeds
 * this size is gathered from the slot's buffers. */
#define HEADER_BYTES 256

/* The buffers of a slot, its predicted packet and its received packet. */
struct placement {
    uint8_t *header; /* [const] [HEADER_BYTES] */
    uint8_t *own;    /* [const] [PACKET_BYTES_MAX] own buffer, for payloads that were misplaced or not predicted */
    uint8_t *spill;  /* [const] [PACKET_BYTES_MAX] buffer for bytes that exceed the payload buffer */

    /* predicted packet; if its 'flow' is NULL, no packet is predicted, and the slot offers the buffer 'own' */
    struct prediction predicted;
    uint64_t n_jumps; /* the member's number of jumps at the time of the prediction */

    /* The received packet. */
    struct spead_packet packet;
    struct receiver_identity identity;
    enum reject reject;
    enum spead_error error; /* error of a malformed packet */
    bool as_predicted;
};

struct receiver {
    struct receiver_config config;    /* [const] */
    char name[32];                    /* [const] thread name; config.thread_name points here */
    struct assembler_config *members; /* [const] [n_assemblers] */
    struct assembler **assemblers;    /* [const] [n_assemblers] */
    struct predictor predictor;
    struct recv_source *source;
    struct thread thread;
    bool running; /* true if the thread has been started and must be joined */
    atomic_bool stop;
    _Atomic int error; /* negative errno of a dead source; written before the thread reports its end */
    uint8_t *buffers;
    struct packet_slot slots[PACKET_BATCH_MAX];
    struct placement placements[PACKET_BATCH_MAX];

    int64_t tick_ns; /* [const] interval between calls of assembler_pass_time(): a chunk's duration, within bounds */
    int64_t ticked_ns;
    struct spead_shape shape; /* shape of the last good packet */
    /* header size of the last good packet; the slots for the next packets get header buffers of this size */
    size_t header_bytes;
    size_t n_offered; /* number of slots offered for this batch */
    size_t n_placed;  /* number of packets in this batch */

    struct receiver_stats stats;
    uint32_t named; /* bit mask of the reject reasons that were logged in this batch */
    struct log_limit limits[N_REJECTS];
};

/* Prepares the slots for the next batch of packets.  Predicts a packet for each slot.  The slot's payload buffer
 * becomes this packet's place in a chunk. */
void receiver_offer_slots(struct receiver *r);

/* Handles a batch of packets that were received into the offered slots. */
void receiver_handle_landed(struct receiver *r, size_t n_packets, int64_t arrival_ns);

/* Handles a batch of zero-copy packets one by one.  This is possible because no zero-copy packet occupies a place in
 * a chunk. */
void receiver_handle_zero_copy(struct receiver *r, size_t n_packets, int64_t arrival_ns);

/* Releases the frames of a chunk after the device has read them.  struct assembler_config has this function as
 * 'recycle'. */
void receiver_release_frames(void *receiver, const struct chunk *chunk);

#endif
