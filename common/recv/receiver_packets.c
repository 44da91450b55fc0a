/* receiver_packets.c - passes the packets of a batch from the slots to the assemblers.  See receiver.h.
 *
 * A batch received into offered slots is handled in two passes.  First inspect() parses every packet and moves
 * misplaced payloads out of the chunks.  Then admit() passes the packets to the assemblers in order, and copies the
 * payloads that are not in place.  So no copy overwrites a packet of the batch that has not been handled.  Zero-copy
 * packets occupy no place in a chunk, so they are handled one by one. */
#include "common/recv/receiver_internal.h"

#include "common/base/copy.h"
#include "common/net/access.h"
#include "common/net/crc32c.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define GATHERED_HEADER_BYTES 1024

/* ---- Prediction -------------------------------------------------------------------------------------------------- */

/* Predicts the next packet.  If the place of this packet is in an open chunk, uses the place as the slot's payload
 * buffer. */
static void predict(struct receiver *r, struct packet_slot *slot, struct placement *placement)
{
    struct prediction next;
    const struct assemble_packet packet = predictor_next(&r->predictor, &next);
    uint8_t *payload = assembler_expect(r->assemblers[next.flow->member], &packet);

    if (!payload)
        return;
    placement->predicted = next;
    placement->n_jumps = counter_get(&r->members[next.flow->member].stats->jumps);
    slot->payload = payload;
    slot->payload_bytes = packet.n_bytes;
    slot->spill = placement->spill;
    slot->spill_bytes = PACKET_BYTES_MAX;
}

void receiver_offer_slots(struct receiver *r)
{
    bool predicts = !r->config.direct && predictor_begin_batch(&r->predictor);

    for (size_t i = 0; i < r->n_offered; i++) {
        struct placement *placement = &r->placements[i];

        placement->predicted.flow = NULL;
        r->slots[i] = (struct packet_slot){
            .header = placement->header,
            .header_bytes = r->header_bytes,
            .payload = placement->own,
            .payload_bytes = PACKET_BYTES_MAX,
        };
        if (predicts)
            predict(r, &r->slots[i], placement);
    }
}

/* ---- First pass: inspect the packets ----------------------------------------------------------------------------- */

/* Parses a header that does not have the shape of the previous header.  The header's first 'n_bytes' bytes are
 * contiguous. */
static enum spead_error parse_new_header(struct receiver *r, const struct packet_slot *slot, size_t n_bytes,
                                         struct spead_packet *packet)
{
    uint8_t gathered[GATHERED_HEADER_BYTES];
    const uint8_t *header = slot->header;

    /* a zero-copy packet is contiguous, so 'n_bytes' may exceed the buffer for headers */
    if (n_bytes > GATHERED_HEADER_BYTES)
        n_bytes = GATHERED_HEADER_BYTES;
    size_t wanted_bytes = n_bytes >= SPEAD_WORD_BYTES ? spead_header_bytes(header) : 0;
    /* Gathers a header that continues in the slot's other buffers.  If the rest of the header is in device memory,
     * the host cannot read it. */
    if (wanted_bytes > n_bytes && slot->packet_bytes > n_bytes && !slot->rest) {
        n_bytes = wanted_bytes < sizeof(gathered) ? wanted_bytes : sizeof(gathered);
        if (n_bytes > slot->packet_bytes)
            n_bytes = slot->packet_bytes;
        recv_packet_copy(slot, 0, n_bytes, gathered);
        header = gathered;
    }
    enum spead_error error =
        spead_parse(header, n_bytes, slot->packet_bytes, r->config.wanted_ids, r->config.n_wanted, packet);
    if (!error)
        spead_shape_learn(&r->shape, header, r->config.wanted_ids, r->config.n_wanted, packet);
    return error;
}

static enum spead_error parse(struct receiver *r, const struct packet_slot *slot, struct spead_packet *packet)
{
    size_t n_bytes = slot->packet_bytes < slot->header_bytes ? slot->packet_bytes : slot->header_bytes;

    if (slot->truncated)
        return SPEAD_TRUNCATED;
    if (spead_shape_parse(&r->shape, slot->header, n_bytes, slot->packet_bytes, packet))
        return SPEAD_OK;
    return parse_new_header(r, slot, n_bytes, packet);
}

static bool is_as_predicted(const struct packet_slot *slot, const struct placement *placement)
{
    const struct receiver_identity *identity = &placement->identity;

    return placement->packet.header_bytes == slot->header_bytes &&
           placement->packet.payload_length == slot->payload_bytes &&
           prediction_holds(&placement->predicted, identity->member, identity->source, identity->wire_timestamp,
                            placement->packet.payload_offset);
}

/* Checks the sender against the endpoint's list of senders.  Not every source filters the packets of other senders. */
static bool may_send(const struct receiver *r, const struct packet_slot *slot)
{
    const struct endpoint_list *endpoints = r->config.source.endpoints;
    const struct access *from = endpoints ? endpoints->items[slot->endpoint].from : NULL;

    return !from || access_allows(from, (struct in_addr){slot->sender});
}

/* Returns true if the packet's CRC item matches.  The header fits into header[], because parse() accepts at most
 * GATHERED_HEADER_BYTES. */
static bool crc_agrees(const struct packet_slot *slot, const struct spead_packet *packet)
{
    uint8_t header[GATHERED_HEADER_BYTES];
    size_t end = packet->header_bytes + packet->payload_length, at = packet->header_bytes;

    recv_packet_copy(slot, 0, at, header);
    uint64_t wanted = spead_take_crc(header, packet->crc_at);
    uint32_t crc = crc32c(0, header, at);
    while (at < end) {
        const uint8_t *start;
        size_t n_bytes = recv_packet_piece(slot, at, end - at, &start);
        crc = crc32c(crc, start, n_bytes);
        at += n_bytes;
    }
    return crc == wanted;
}

static bool is_intact(const struct receiver *r, const struct packet_slot *slot, const struct spead_packet *packet)
{
    if (packet->crc_at == 0)
        return !r->config.needs_crc;
    return slot->rest || crc_agrees(slot, packet);
}

static enum reject inspect(struct receiver *r, const struct packet_slot *slot, struct placement *placement)
{
    struct spead_packet *packet = &placement->packet;

    placement->as_predicted = false;
    if (!may_send(r, slot))
        return REJECT_BAD_SENDER;
    if (slot->packet_bytes == 0 && r->config.source.share)
        return REJECT_OTHER_THREAD;
    placement->error = parse(r, slot, packet);
    if (placement->error) {
        counter_add(&r->stats.malformed[placement->error], 1);
        return REJECT_MALFORMED;
    }
    if (packet->is_stop)
        return REJECT_STOP;
    enum reject reject = r->config.identify(r->config.context, slot->endpoint, packet, &placement->identity);
    if (reject)
        return reject == REJECT_NO_ITEMS && packet->is_descriptor ? REJECT_DESCRIPTOR : reject;
    assert(placement->identity.member < r->config.n_assemblers);
    if (!is_intact(r, slot, packet))
        return REJECT_CRC;
    r->header_bytes = packet->header_bytes < HEADER_BYTES ? packet->header_bytes : HEADER_BYTES;
    if (!placement->predicted.flow)
        return REJECT_NONE;
    placement->as_predicted = is_as_predicted(slot, placement);
    predictor_count(&r->predictor, placement->as_predicted);
    if (!placement->as_predicted)
        recv_packet_copy(slot, packet->header_bytes, packet->payload_length, placement->own);
    return REJECT_NONE;
}

/* ---- A second copy ----------------------------------------------------------------------------------------------- */

/* Clears a place before a payload is copied to this place.  If a later packet of the batch was predicted at the same
 * place, its payload may already be there.  The later packet's payload is then moved to its slot's own buffer.  This
 * payload is later compared as a duplicate. */
static void make_way(struct receiver *r, const struct placement *placement, const uint8_t *place)
{
    const uint8_t *end = place + placement->packet.payload_length;

    for (size_t i = (size_t)(placement - r->placements) + 1; i < r->n_placed; i++) {
        struct placement *other = &r->placements[i];
        const struct packet_slot *slot = &r->slots[i];

        if (other->as_predicted && slot->payload < end && slot->payload + slot->payload_bytes > place) {
            memcpy(other->own, slot->payload, slot->payload_bytes);
            other->as_predicted = false;
        }
    }
}

/* Returns true if the payload of a duplicate is the same as the first copy.  Returns false if only some bytes of the
 * first copy had arrived, or if the host may not read the first copy. */
static bool is_same(const struct receiver *r, const struct packet_slot *slot, const struct placement *placement,
                    const uint8_t *first)
{
    const struct spead_packet *packet = &placement->packet;

    if (!first || r->config.direct || r->config.source.device)
        return false;
    if (slot->zero_copy)
        return memcmp(first, slot->header + packet->header_bytes, packet->payload_length) == 0;
    if (placement->predicted.flow)
        return memcmp(first, placement->own, packet->payload_length) == 0;
    recv_packet_copy(slot, packet->header_bytes, packet->payload_length, placement->spill);
    return memcmp(first, placement->spill, packet->payload_length) == 0;
}

/* ---- Second pass: place the payloads ----------------------------------------------------------------------------- */

/* Logs a refused packet, and counts its heap if the packet is the heap's first.  In each batch, logs at most one
 * packet for each reason. log_limited() limits the rate further. */
static void note_reject(struct receiver *r, const struct packet_slot *slot, const struct placement *placement)
{
    const struct endpoint_list *endpoints = r->config.source.endpoints;
    bool harmless = reject_is_harmless(placement->reject);
    enum log_level level = harmless ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING;
    char from[32] = "an endpoint", sender[INET_ADDRSTRLEN];
    bool parsed = placement->reject != REJECT_MALFORMED && placement->reject != REJECT_BAD_SENDER;

    if (placement->reject == REJECT_OTHER_THREAD)
        return;
    if (parsed && placement->packet.payload_offset == 0) {
        counter_add_alone(&r->stats.refused_heaps[placement->reject], 1);
        if (placement->reject == REJECT_DESCRIPTOR || placement->reject == REJECT_NO_ITEMS)
            counter_add_alone(&r->stats.metadata_heaps, 1);
    }
    if (r->named & 1u << placement->reject)
        return;
    r->named |= 1u << placement->reject;
    if (endpoints && slot->endpoint < endpoints->n)
        endpoint_format(&endpoints->items[slot->endpoint], from, sizeof(from));
    if (placement->reject == REJECT_BAD_SENDER) {
        inet_ntop(AF_INET, &slot->sender, sender, sizeof(sender));
        log_limited(&r->limits[placement->reject], level,
                    "%s: packet refused: the sender %s, which recv.from does not allow, sends to %s",
                    r->config.thread_name, sender, from);
        return;
    }
    if (placement->reject == REJECT_MALFORMED) {
        log_limited(&r->limits[placement->reject], level, "%s: a packet of %zu bytes to %s is not SPEAD-64-48 (%s)",
                    r->config.thread_name, slot->packet_bytes, from, spead_error_name(placement->error));
        return;
    }
    log_limited(&r->limits[placement->reject], level, "%s: packet %s (%s): it belongs to heap %" PRIu64 ", sent to %s",
                r->config.thread_name, harmless ? "ignored" : "refused", reject_name(placement->reject),
                placement->packet.heap_cnt, from);
}

/* Copies a payload to direct memory.  The payload begins in the slot's header buffer if this packet's header is shorter
 * than the previous packet's. */
static void copy_direct(const struct packet_slot *slot, const struct spead_packet *packet, uint8_t *place)
{
    size_t n_bytes = packet->payload_length, before = slot->header_bytes - packet->header_bytes;

    if (packet->header_bytes > slot->header_bytes) {
        copy_past_cache(place, slot->payload + (packet->header_bytes - slot->header_bytes), n_bytes);
        return;
    }
    if (before > n_bytes)
        before = n_bytes;
    copy_past_cache(place, slot->header + packet->header_bytes, before);
    copy_past_cache(place + before, slot->payload, n_bytes - before);
}

static void copy_landed(struct receiver *r, const struct packet_slot *slot, const struct placement *placement,
                        uint8_t *place)
{
    const struct spead_packet *packet = &placement->packet;

    make_way(r, placement, place);
    if (placement->predicted.flow)
        memcpy(place, placement->own, packet->payload_length);
    else
        recv_packet_copy(slot, packet->header_bytes, packet->payload_length, place);
}

/* Keeps the NIC's frame with the payload until the device gathers the chunk. */
static void keep_frame(struct receiver *r, const struct packet_slot *slot, const struct placement *placement,
                       uint8_t *place)
{
    const struct spead_packet *packet = &placement->packet;
    size_t n_first = slot->header_bytes - packet->header_bytes;

    if (n_first > packet->payload_length)
        n_first = packet->payload_length;
    recv_source_keep(r->source, slot->frame);
    chunk_add_frame(assembler_last_chunk(r->assemblers[placement->identity.member]), slot->frame, place,
                    slot->header + packet->header_bytes, n_first, slot->rest, packet->payload_length - n_first);
}

void receiver_release_frames(void *context, const struct chunk *chunk)
{
    struct receiver *r = context;

    recv_source_release(r->source, chunk->frames, chunk->n_frames); /* the next recv reports an error */
}

/* Copies the payload of an admitted packet to its place, unless the payload was received there. */
static void place_payload(struct receiver *r, const struct packet_slot *slot, const struct placement *placement,
                          uint8_t *place)
{
    const struct spead_packet *packet = &placement->packet;

    if (placement->as_predicted) {
        assert(place == slot->payload);
        return;
    }
    if (r->config.source.device) {
        keep_frame(r, slot, placement, place);
        return;
    }
    if (slot->zero_copy)
        copy_past_cache(place, slot->header + packet->header_bytes, packet->payload_length);
    else if (r->config.direct)
        copy_direct(slot, packet, place);
    else
        copy_landed(r, slot, placement, place);
    counter_add_alone(&r->members[placement->identity.member].stats->copied_packets, 1);
}

/* Checks that a payload received at its predicted place is still in an open chunk.  An earlier packet of the batch may
 * have moved the window.  The chunk then belongs to the worker, or receives data of another time, and the payload is
 * lost.  Returns REJECT_NONE, or the reason for the loss. */
static enum reject check_landing(const struct receiver *r, const struct placement *placement,
                                 const struct assemble_packet *packet)
{
    unsigned member = placement->identity.member;

    if (!placement->as_predicted)
        return REJECT_NONE;
    if (placement->n_jumps != counter_get(&r->members[member].stats->jumps))
        return REJECT_JUMP;
    return packet->timestamp < assembler_oldest_samples(r->assemblers[member]) ? REJECT_TOO_OLD : REJECT_NONE;
}

static enum reject admit(struct receiver *r, const struct packet_slot *slot, const struct placement *placement,
                         int64_t arrival_ns)
{
    const struct receiver_identity *identity = &placement->identity;
    struct assembler *assembler = r->assemblers[identity->member];
    uint8_t *place;

    const struct assemble_packet packet = {
        .source = identity->source,
        .timestamp = assembler_unwrap(assembler, identity->wire_timestamp, arrival_ns),
        .heap_bytes = placement->packet.heap_length,
        .offset = placement->packet.payload_offset,
        .n_bytes = placement->packet.payload_length,
        .extra = identity->extra,
        .sender = slot->sender,
    };
    enum reject reject = check_landing(r, placement, &packet);
    if (reject) {
        assembler_refuse(assembler, &packet, reject);
        return reject;
    }
    reject = assembler_admit(assembler, &packet, arrival_ns, &place);
    if (reject == REJECT_DUPLICATE && !is_same(r, slot, placement, assembler_duplicate_of(assembler)))
        assembler_contest(assembler, &packet);
    if (reject)
        return reject;
    place_payload(r, slot, placement, place);
    if (!slot->zero_copy)
        predictor_follow(&r->predictor, identity->member, &packet);
    return REJECT_NONE;
}

/* ---- A batch ----------------------------------------------------------------------------------------------------- */

/* Prefetches the next packet's header, while the current packet is copied. */
static void prefetch_header(const uint8_t *header)
{
    __builtin_prefetch(header);
    __builtin_prefetch(header + 64);
}

void receiver_handle_zero_copy(struct receiver *r, size_t n_packets, int64_t arrival_ns)
{
    struct placement *placement = &r->placements[0];

    placement->predicted.flow = NULL;
    for (size_t i = 0; i < n_packets; i++) {
        if (i + 1 < n_packets)
            prefetch_header(r->slots[i + 1].header);
        placement->reject = inspect(r, &r->slots[i], placement);
        if (placement->reject)
            counter_add(&r->stats.rejects[placement->reject], 1);
        else
            placement->reject = admit(r, &r->slots[i], placement, arrival_ns);
        if (placement->reject)
            note_reject(r, &r->slots[i], placement);
    }
}

void receiver_handle_landed(struct receiver *r, size_t n_packets, int64_t arrival_ns)
{
    r->n_placed = n_packets;
    for (size_t i = 0; i < n_packets; i++) {
        struct placement *placement = &r->placements[i];

        placement->reject = inspect(r, &r->slots[i], placement);
        if (placement->reject)
            counter_add(&r->stats.rejects[placement->reject], 1);
    }
    for (size_t i = 0; i < n_packets; i++) {
        struct placement *placement = &r->placements[i];

        if (!placement->reject)
            placement->reject = admit(r, &r->slots[i], placement, arrival_ns);
        if (placement->reject)
            note_reject(r, &r->slots[i], placement);
    }
    predictor_judge(&r->predictor);
}
