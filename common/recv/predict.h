/* predict.h - where the next packets of a receive thread belong, so that their payloads can be received in place.
 *
 * Model:     each source of each member sends its heaps in order, in packets of one size; sources take turns as they did
 *            before.  The successor of a source's packet is the source whose packet came after it last time.
 * Judgement: where fewer than half of the predictions held, the next RETRY_BATCHES batches are received without.
 * Ownership: the receiver's struct.   Threads: the receiver's.   Blocking: none.   Allocation: predictor_init() alone. */
#ifndef COMMON_RECV_PREDICT_H
#define COMMON_RECV_PREDICT_H

#include "common/recv/assemble.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A place in the sequence of one source's packets. */
struct position {
    int64_t timestamp;
    uint64_t offset; /* in the heap */
};

/* The packets of one source of one member. */
struct flow {
    unsigned member;                      /* [const] */
    unsigned source;                      /* [const] */
    const struct assemble_layout *layout; /* [const] the member's */
    struct position next;                 /* after the last packet admitted */
    uint64_t payload_bytes;               /* of its packets, but for the last of a heap */
    struct flow *successor[2]; /* whose packet came after one of this: [0] in mid-heap, [1] at a heap's end */
    struct position cursor;    /* of the predictions for batch 'cursor_batch' */
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
    struct flow *last_flow;     /* of the last packet admitted; NULL before */
    bool last_ended_heap;
    struct flow *at; /* of the last packet predicted for this batch */
    bool at_ended_heap;
    uint64_t n_batches;
    unsigned n_unpredicted;        /* batches still to be received without prediction */
    unsigned n_counted, n_holding; /* predictions since they were last judged */
};

/* 'members' outlives it.  Returns 0 or -ENOMEM; then, too, predictor_fini() is to be called. */
int predictor_init(struct predictor *predictor, const struct assembler_config *members, size_t n_members);
void predictor_fini(struct predictor *predictor);

/* Returns whether packets of the next batch are to be predicted. */
bool predictor_begin_batch(struct predictor *predictor);

/* The next packet that is expected in this batch. */
struct assemble_packet predictor_next(struct predictor *predictor, struct prediction *prediction);

/* True if a packet is the one expected; 'wire_timestamp' has 48 bits. */
bool prediction_holds(const struct prediction *prediction, unsigned member, unsigned source, uint64_t wire_timestamp,
                      uint64_t offset);

/* Counts a prediction that a packet met. */
void predictor_count(struct predictor *predictor, bool holds);

/* Once a batch. */
void predictor_judge(struct predictor *predictor);

/* Takes note of an admitted packet. */
void predictor_follow(struct predictor *predictor, unsigned member, const struct assemble_packet *packet);

#endif
