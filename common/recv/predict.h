/* predict.h - predicts a receive thread's next packets, so that their payloads can be received in place.
 *
 * Model:     each source of each member sends its heaps in order, in packets of one size.  Sources alternate in a fixed
 *            order: after a packet of source A, the predictor expects the source that followed A the last time.
 * Judgement: if most predictions were wrong, prediction pauses for RETRY_BATCHES batches.
 * Ownership: part of a receiver.   Threads: the receiver's.   Blocking: none.   Allocation: predictor_init(). */
#ifndef COMMON_RECV_PREDICT_H
#define COMMON_RECV_PREDICT_H

#include "common/recv/assemble.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A position in the sequence of one source's packets. */
struct position {
    int64_t timestamp;
    uint64_t offset; /* offset in the heap, in bytes */
};

/* A flow: the packets that one source of one member sends. */
struct flow {
    unsigned member;                      /* [const] */
    unsigned source;                      /* [const] */
    const struct assemble_layout *layout; /* [const] layout of the member */
    struct position next;                 /* position after the last packet admitted */
    uint64_t payload_bytes;               /* payload size of each packet except the last packet of a heap */
    /* After a packet inside a heap, the predictor expects a packet of the flow successor[0].  After a heap's last
     * packet, the predictor expects a packet of successor[1]. */
    struct flow *successor[2];
    struct position cursor; /* in batch 'cursor_batch': position of the flow's next predicted packet */
    uint64_t cursor_batch;
};

/* The packet that is predicted for one slot. */
struct prediction {
    struct flow *flow;
    struct position position;
};

struct predictor {
    struct flow *flows;         /* [n_flows] flows of all members, one member after the other */
    struct flow **member_flows; /* [const] [n_members] the flow of source 0 of each member */
    struct flow *last_flow;     /* flow of the last admitted packet; NULL before the first packet */
    bool last_ended_heap;
    struct flow *at; /* flow of the last packet predicted for this batch */
    bool at_ended_heap;
    uint64_t n_batches;
    unsigned n_unpredicted;        /* number of batches until predictions resume */
    unsigned n_counted, n_holding; /* number of predictions, and of right predictions, since the last judgement */
};

/* Initialises the predictor.  'members' must outlive the predictor.  Returns 0 or -ENOMEM.  Call predictor_fini() in
 * both cases. */
int predictor_init(struct predictor *predictor, const struct assembler_config *members, size_t n_members);
void predictor_fini(struct predictor *predictor);

/* Begins a batch.  Returns true if the caller should predict its packets. */
bool predictor_begin_batch(struct predictor *predictor);

/* Predicts the next packet of this batch. */
struct assemble_packet predictor_next(struct predictor *predictor, struct prediction *prediction);

/* Returns true if a received packet is the predicted packet.  'wire_timestamp' has 48 bits. */
bool prediction_holds(const struct prediction *prediction, unsigned member, unsigned source, uint64_t wire_timestamp,
                      uint64_t offset);

/* Counts a prediction.  'holds' is true if the prediction was right. */
void predictor_count(struct predictor *predictor, bool holds);

/* Pauses prediction if most predictions were wrong.  Call once per batch. */
void predictor_judge(struct predictor *predictor);

/* Updates the model with an admitted packet. */
void predictor_follow(struct predictor *predictor, unsigned member, const struct assemble_packet *packet);

#endif
