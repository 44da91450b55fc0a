/* predict.c - learns and predicts the sequence of each source's packets, and the order of the sources.  See
 * predict.h. */
#include "common/recv/predict.h"

#include "common/net/spead.h"

#include <errno.h>
#include <stdlib.h>

/* The predictor is judged after JUDGED_PACKETS predictions.  If most of these predictions were wrong, prediction pauses
 * for RETRY_BATCHES batches. */
#define JUDGED_PACKETS 64
#define RETRY_BATCHES  64

int predictor_init(struct predictor *predictor, const struct assembler_config *members, size_t n_members)
{
    size_t n_flows = 0;

    for (size_t i = 0; i < n_members; i++)
        n_flows += members[i].layout.n_sources;
    predictor->flows = calloc(n_flows, sizeof(*predictor->flows));
    predictor->member_flows = calloc(n_members, sizeof(*predictor->member_flows));
    if (!predictor->flows || !predictor->member_flows)
        return -ENOMEM;
    struct flow *flow = predictor->flows;
    for (unsigned i = 0; i < n_members; i++) {
        const struct assemble_layout *layout = &members[i].layout;

        predictor->member_flows[i] = flow;
        for (unsigned source = 0; source < layout->n_sources; source++, flow++)
            *flow = (struct flow){.member = i, .source = source, .layout = layout, .successor = {flow, flow}};
    }
    return 0;
}

void predictor_fini(struct predictor *predictor)
{
    free(predictor->member_flows);
    free(predictor->flows);
}

bool predictor_begin_batch(struct predictor *predictor)
{
    predictor->n_batches++;
    predictor->at = predictor->last_flow;
    predictor->at_ended_heap = predictor->last_ended_heap;
    if (predictor->n_unpredicted == 0)
        return predictor->at;
    predictor->n_unpredicted--;
    return false;
}

/* Advances the position by 'n_bytes'.  Returns true if the heap ends there. */
static bool position_advance(struct position *position, const struct assemble_layout *layout, uint64_t n_bytes)
{
    position->offset += n_bytes;
    if (position->offset < layout->heap_bytes)
        return false;
    position->offset = 0;
    position->timestamp += layout->heap_samples;
    return true;
}

struct assemble_packet predictor_next(struct predictor *predictor, struct prediction *prediction)
{
    struct flow *flow = predictor->at->successor[predictor->at_ended_heap];

    if (flow->cursor_batch != predictor->n_batches) {
        flow->cursor_batch = predictor->n_batches;
        flow->cursor = flow->next;
    }
    *prediction = (struct prediction){.flow = flow, .position = flow->cursor};
    uint64_t n_bytes = flow->layout->heap_bytes - flow->cursor.offset;
    if (n_bytes > flow->payload_bytes)
        n_bytes = flow->payload_bytes;
    predictor->at = flow;
    predictor->at_ended_heap = position_advance(&flow->cursor, flow->layout, n_bytes);
    return (struct assemble_packet){
        .source = flow->source,
        .timestamp = prediction->position.timestamp,
        .heap_bytes = flow->layout->heap_bytes,
        .offset = prediction->position.offset,
        .n_bytes = n_bytes,
    };
}

bool prediction_holds(const struct prediction *prediction, unsigned member, unsigned source, uint64_t wire_timestamp,
                      uint64_t offset)
{
    return member == prediction->flow->member && source == prediction->flow->source &&
           wire_timestamp == ((uint64_t)prediction->position.timestamp & SPEAD_VALUE_MASK) &&
           offset == prediction->position.offset;
}

void predictor_count(struct predictor *predictor, bool holds)
{
    predictor->n_counted++;
    predictor->n_holding += holds;
}

/* Pauses prediction if more than half of the predictions were wrong.  Without prediction a payload is copied once.  A
 * right prediction saves this copy, and a wrong prediction adds a copy. */
void predictor_judge(struct predictor *predictor)
{
    if (predictor->n_counted < JUDGED_PACKETS)
        return;
    if (2 * predictor->n_holding < predictor->n_counted)
        predictor->n_unpredicted = RETRY_BATCHES;
    predictor->n_counted = 0;
    predictor->n_holding = 0;
}

void predictor_follow(struct predictor *predictor, unsigned member, const struct assemble_packet *packet)
{
    struct flow *flow = predictor->member_flows[member] + packet->source;

    flow->next = (struct position){.timestamp = packet->timestamp, .offset = packet->offset};
    bool ended_heap = position_advance(&flow->next, flow->layout, packet->n_bytes);
    if (!ended_heap || packet->offset == 0)
        flow->payload_bytes = packet->n_bytes;
    if (predictor->last_flow)
        predictor->last_flow->successor[predictor->last_ended_heap] = flow;
    predictor->last_flow = flow;
    predictor->last_ended_heap = ended_heap;
}
