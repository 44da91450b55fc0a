/* predict.h - predicts the places of a receive thread's next packets, so that their payloads are received in place.
 *
 * Model:     each source of each member sends its heaps in order, in packets of one size.  Sources alternate in the
 *            same order as before.  The successor of a source's packet is the source whose packet came next last time.
 * Judgement: if most predictions were wrong, the next RETRY_BATCHES batches have none.
 * Ownership: the receiver's struct.   Threads: the receiver's.   Blocking: none.   Allocation: predictor_init(). */
#ifndef COMMON_RECV_PREDICT_H
#define COMMON_RECV_PREDICT_H

#include "common/recv/assemble.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A place in the sequence of one source's packets. */
struct position {
    int64_t timestamp;
    uint64_t offset; /* in the heap, in bytes */
};

/* The packets of one source of one member. */
struct flow {
    unsigned member;                      /* [const] */
    unsigned source;                      /* [const] */
    const struct assemble_layout *layout; /* [const] layout of the member */
    struct position next;                 /* position after the last packet admitted */
    uint64_t payload_bytes;               /* payload of each packet, except a heap's last one */
    struct flow *successor[2]; /* flow of the packet after this flow's last one: [0] in mid-heap, [1] at a heap's end */
    struct position cursor;    /* position of the predictions for batch 'cursor_batch' */
    uint64_t cursor_batch;
};

/* The packet that is expected in one slot. */
struct prediction {
    struct flow *flow;
    struct position position;
};

struct predictor {
    struct flow *flows;         /* [n_flows] member by member */
    struct flow **member_flows; /* [const] [n_members] the flow of source 0 of each member */
    struct flow *last_flow;     /* flow of the last packet admitted; NULL before the first */
    bool last_ended_heap;
    struct flow *at; /* flow of the last packet predicted for this batch */
    bool at_ended_heap;
    uint64_t n_batches;
    unsigned n_unpredicted;        /* batches still to be received without prediction */
    unsigned n_counted, n_holding; /* predictions, and right ones, since the last judgement */
};

/* Initialises the predictor.  'members' must outlive the predictor.  Returns 0 or -ENOMEM.  Call predictor_fini() in
 * both cases. */
int predictor_init(struct predictor *predictor, const struct assembler_config *members, size_t n_members);
void predictor_fini(struct predictor *predictor);

/* Begins a batch.  Returns true if its packets are to be predicted. */
bool predictor_begin_batch(struct predictor *predictor);

/* Returns the next packet that is expected in this batch. */
struct assemble_packet predictor_next(struct predictor *predictor, struct prediction *prediction);

/* Returns true if a packet is the predicted one.  'wire_timestamp' has 48 bits. */
bool prediction_holds(const struct prediction *prediction, unsigned member, unsigned source, uint64_t wire_timestamp,
                      uint64_t offset);

/* Counts a prediction.  'holds' is true if the prediction was right. */
void predictor_count(struct predictor *predictor, bool holds);

/* Decides on a pause of prediction.  Call once a batch. */
void predictor_judge(struct predictor *predictor);

/* Updates the predictor with an admitted packet. */
void predictor_follow(struct predictor *predictor, unsigned member, const struct assemble_packet *packet);

#endif
