/* receiver_internal.h - types and functions shared by the files of a receiver.
 *
 * Files: receiver.c creates a receiver and runs its thread.  receiver_packets.c offers slots to the source and handles
 * the packets that came in them. */
#ifndef COMMON_RECV_RECEIVER_INTERNAL_H
#define COMMON_RECV_RECEIVER_INTERNAL_H

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/net/spead_shape.h"
#include "common/recv/predict.h"
#include "common/recv/receiver.h"

#include <stdatomic.h>

/* Size of a slot's header buffer.  Our headers have 72 bytes.  A longer header, with items that others may add, is
 * gathered. */
#define HEADER_BYTES 256

/* The buffers of a slot, and the slot's packet. */
struct placement {
    uint8_t *header; /* [const] [HEADER_BYTES] */
    uint8_t *own;    /* [const] [PACKET_BYTES_MAX] for payloads not predicted or received at a wrong place */
    uint8_t *spill;  /* [const] [PACKET_BYTES_MAX] */

    struct prediction predicted; /* the slot offers a place in a chunk if 'flow' is set */
    uint64_t n_jumps;            /* jumps of the member's window when this place was looked up */

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
    bool running; /* true if there is a thread to join */
    atomic_bool stop;
    _Atomic int error; /* errno of the dead source; the thread writes it before it reports its end */
    uint8_t *buffers;
    struct packet_slot slots[PACKET_BATCH_MAX];
    struct placement placements[PACKET_BATCH_MAX];

    int64_t tick_ns; /* [const] interval of assembler_pass_time(): a chunk's length, within bounds */
    int64_t ticked_ns;
    struct spead_shape shape; /* shape of the last good packet */
    size_t header_bytes;      /* header of the last good packet: the size offered to the next one */
    size_t n_offered;         /* slots offered for this batch */
    size_t n_placed;          /* packets of this batch */

    struct receiver_stats stats;
    uint32_t named; /* bits of the reasons logged in this batch */
    struct log_limit limits[N_REJECTS];
};

/* Prepares the slots of the next batch, with the predicted places of its packets. */
void receiver_offer_slots(struct receiver *r);

/* Handles a batch in the offered slots. */
void receiver_handle_landed(struct receiver *r, size_t n_packets, int64_t arrival_ns);

/* Handles a batch of zero-copy packets.  No packet occupies another packet's place, so each is handled at once. */
void receiver_handle_zero_copy(struct receiver *r, size_t n_packets, int64_t arrival_ns);

/* Releases a chunk's frames before its reuse: 'recycle' of assembler_config.  The device has read the chunk's last
 * contents. */
void receiver_release_frames(void *receiver, const struct chunk *chunk);

#endif
