/* receiver_internal.h - what the files of a receiver share.
 *
 * Files: receiver.c makes a receiver and runs its thread.  receiver_packets.c offers slots to the source and deals with the
 * packets that came in them. */
#ifndef COMMON_RECV_RECEIVER_INTERNAL_H
#define COMMON_RECV_RECEIVER_INTERNAL_H

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/net/spead_shape.h"
#include "common/recv/predict.h"
#include "common/recv/receiver.h"

#include <stdatomic.h>

/* Header buffer of a slot; our headers have 72 bytes.  Longer ones, with items that others may add, are gathered. */
#define HEADER_BYTES 256

/* A slot's buffers, and its packet. */
struct placement {
    uint8_t *header; /* [const] [HEADER_BYTES] */
    uint8_t *own;    /* [const] [PACKET_BYTES_MAX] for payloads that are not predicted or fell on a wrong place */
    uint8_t *spill;  /* [const] [PACKET_BYTES_MAX] */

    struct prediction predicted; /* the payload was offered a place in a chunk if its 'flow' is set */
    uint64_t n_jumps;            /* of the member's window, when that place was looked up */

    /* The packet that came. */
    struct spead_packet packet;
    struct receiver_identity identity;
    enum reject reject;
    enum spead_error error; /* of one that is malformed */
    bool as_predicted;
};

struct receiver {
    struct receiver_config config;    /* [const] */
    char name[32];                    /* [const] the thread's; config.thread_name points here */
    struct assembler_config *members; /* [const] [n_assemblers] */
    struct assembler **assemblers;    /* [const] [n_assemblers] */
    struct predictor predictor;
    struct recv_source *source;
    struct thread thread;
    bool running; /* there is a thread to join */
    atomic_bool stop;
    _Atomic int error; /* why the source died; written by the thread before it tells of its end */
    uint8_t *buffers;
    struct packet_slot slots[PACKET_BATCH_MAX];
    struct placement placements[PACKET_BATCH_MAX];

    int64_t tick_ns; /* [const] a chunk's length, within bounds */
    int64_t ticked_ns;
    struct spead_shape shape; /* of the last good packet */
    size_t header_bytes;      /* of the last good packet: what is offered to the next */
    size_t n_offered;         /* slots of this batch */
    size_t n_placed;          /* packets of it */

    struct receiver_stats stats;
    uint32_t named; /* reasons of rejection named in this batch */
    struct log_limit limits[N_REJECTS];
};

/* Prepares the slots of the next batch, with the places that are predicted for its packets. */
void receiver_offer_slots(struct receiver *r);

/* Deals with a batch in slots that were offered. */
void receiver_handle_landed(struct receiver *r, size_t n_packets, int64_t arrival_ns);

/* Deals with a batch that the source lends: its packets lie on nobody's place, so each can be dealt with at once. */
void receiver_handle_zero_copy(struct receiver *r, size_t n_packets, int64_t arrival_ns);

/* An assembler_config's 'recycle': a chunk begins again, so what the device had to read of its last life has been read. */
void receiver_release_frames(void *receiver, const struct chunk *chunk);

#endif
