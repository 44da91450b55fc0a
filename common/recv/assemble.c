/* assemble.c - finds the place of each packet's payload, and hands full chunks to the worker.  The receiver calls the
 * assembler for each packet.
 *
 * The sections of this file follow the steps for a packet: the packet's place, the window's chunks, moves of the
 * window, claims.  Three helpers have their own files: the bytes that arrived (chunk_heap.h), claims (claims.h) and the
 * time at which data are due (data_time.h). */
#include "common/recv/assemble.h"

#include "common/recv/chunk_heap.h"
#include "common/recv/claims.h"
#include "common/base/copy.h"
#include "common/telemetry/data_time.h"
#include "common/base/log.h"
#include "common/base/units.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Number of packets between two requests for a free chunk, while no chunk is free.  Requests are limited because each
 * takes a lock. */
#define NO_CHUNK_RETRY_PACKETS 64

/* If a member is silent for this duration plus the duration of two windows, its open chunks leave the window.  The
 * chunks leave even if no other member is ahead. */
#define SILENCE_NS NS_PER_S

/* Interval between comparisons of timestamps with the clock, and number of successive mismatches before a
 * correction. */
#define CLOCK_CHECK_NS NS_PER_S
#define CLOCK_CHECKS   3

/* A timestamp and its heap and chunk indices.  A zero-initialised struct is valid, and has the timestamp 0. */
struct grid_time {
    int64_t timestamp;
    int64_t time, chunk; /* heap time and chunk index (struct assemble_place) */
};

/* A refused duplicate: its heap, and the first copy of its bytes. */
struct duplicate {
    struct chunk *chunk;
    size_t heap;
    const uint8_t *first; /* first copy of the bytes; NULL: the chunk had only some of the bytes */
};

struct assembler {
    struct assembler_config config; /* [const] */
    int64_t chunk_samples;          /* [const] */
    int64_t window_samples;         /* [const] */
    int64_t window_ns;              /* [const] */
    struct grid_time last;          /* indices of the previous packet, which usually has the same timestamp */
    bool started;                   /* true if there is a window */
    int64_t oldest;                 /* chunk index of window[0] */
    int64_t newest;                 /* newest chunk index for which a packet arrived */
    int64_t first_time, end_time;   /* heap times of the first expected heap, and of the heap after the newest heap */
    uint64_t n_missing;             /* number of heaps missing since the last chunk was handed on */
    unsigned retry_packets;         /* number of packets until the next request for a free chunk */
    int64_t *last_times;            /* [n_sources] heap time of the last heap placed */
    struct chunk **window;          /* [window_chunks] open chunks; NULL: no packet yet, or no free chunk */
    uint32_t *n_source_heaps;       /* [window_chunks][n_sources] number of complete heaps */
    bool live;                      /* [const] true if packets arrive in real time, false for a recording */
    bool restarts;                  /* true if the next chunk that is handed on begins a stream */
    struct data_time data_time;     /* the times at which data arrive; used only if the member is live */
    struct claims claims;
    int64_t clock_checked_ns;
    unsigned n_wrong_checks;    /* successive mismatches between timestamps and the clock */
    struct chunk *last_chunk;   /* chunk of the last packet admitted */
    struct duplicate duplicate; /* describes the last packet refused as a duplicate */
    struct log_limit jump_limit, contest_limit;
    char name[64];
};

/* ---- Placement --------------------------------------------------------------------------------------------------- */

/* Finds the heap time and the chunk index of a timestamp.  If 'known' has the same timestamp, copies its indices and
 * saves a division.  Returns false if no heap begins at this timestamp. */
static bool find_time(const struct assemble_layout *layout, int64_t timestamp, const struct grid_time *known,
                      struct assemble_place *place)
{
    if (timestamp == known->timestamp) {
        place->time = known->time;
        place->chunk = known->chunk;
        return true;
    }
    int64_t time = timestamp / layout->heap_samples; /* the division is exact, so the sign does not matter */
    if (time * layout->heap_samples != timestamp)
        return false;
    place->time = time;
    place->chunk = floor_div(time, (int64_t)layout->n_heaps_per_source);
    return true;
}

static enum reject find_place(const struct assemble_layout *layout, const struct assemble_packet *packet,
                              const struct grid_time *known, struct assemble_place *place)
{
    if (packet->heap_bytes != layout->heap_bytes)
        return REJECT_HEAP_SIZE;
    uint64_t end = packet->offset + packet->n_bytes;
    assert(packet->offset <= end && end <= packet->heap_bytes);
    if (packet->n_bytes == 0 || packet->offset % CHUNK_UNIT_BYTES != 0 ||
        (packet->n_bytes % CHUNK_UNIT_BYTES != 0 && end != packet->heap_bytes))
        return REJECT_ALIGNMENT;
    if (!find_time(layout, packet->timestamp, known, place))
        return REJECT_BAD_TIMESTAMP;
    if (packet->source >= layout->n_sources)
        return REJECT_BAD_SOURCE;

    int64_t n_times = (int64_t)layout->n_heaps_per_source;
    place->heap = (size_t)(place->time - place->chunk * n_times) * layout->n_sources + packet->source;
    place->offset = place->heap * layout->heap_bytes + packet->offset;
    return REJECT_NONE;
}

enum reject assemble_place(const struct assemble_layout *layout, const struct assemble_packet *packet,
                           struct assemble_place *place)
{
    const struct grid_time epoch = {0};

    return find_place(layout, packet, &epoch, place);
}

/* ---- Opening and closing of chunks ------------------------------------------------------------------------------- */

/* Returns the open chunk of window[slot].  If the slot is empty, takes a free chunk.  Returns NULL if no chunk is
 * free. */
static struct chunk *open_chunk(struct assembler *a, size_t slot)
{
    struct inbox_item item;

    if (a->window[slot])
        return a->window[slot];
    if (a->retry_packets > 0) {
        a->retry_packets--;
        return NULL;
    }
    int err =
        a->config.may_wait ? inbox_pop(a->config.free_chunks, &item) : inbox_try_pop(a->config.free_chunks, &item);
    if (err) {
        a->retry_packets = NO_CHUNK_RETRY_PACKETS - 1;
        return NULL;
    }
    struct chunk *chunk = item.object;
    const struct assemble_layout *layout = &a->config.layout;
    assert(chunk->n_heaps == layout->n_heaps_per_source * layout->n_sources && chunk->heap_bytes == layout->heap_bytes);
    if (a->config.recycle)
        a->config.recycle(a->config.recycle_context, chunk);
    chunk_reset(chunk, (a->oldest + (int64_t)slot) * a->chunk_samples);
    a->window[slot] = chunk;
    return chunk;
}

/* Returns the number of heaps that each source should send in the chunk 'index'.  If 'at_end' is true, the stream
 * ends with its newest heap, and no later heaps are included. */
static int64_t count_times(const struct assembler *a, int64_t index, bool at_end)
{
    int64_t n_times = (int64_t)a->config.layout.n_heaps_per_source;
    int64_t n_left = a->end_time - index * n_times;

    if (!at_end || n_left >= n_times)
        return n_times;
    return n_left > 0 ? n_left : 0;
}

static void count_missing(struct assembler *a, uint64_t n)
{
    counter_add(&a->config.stats->missing_heaps, n);
    a->n_missing += n;
}

/* Updates the counters of each source for a chunk that leaves the window.  'n_expected' heaps of each source were
 * expected.  'chunk' is NULL if no heap arrived. */
static void count_sources(struct assembler *a, const struct chunk *chunk, uint64_t n_expected)
{
    const struct assemble_layout *layout = &a->config.layout;
    struct assembler_source_stats *all = a->config.source_stats;

    for (unsigned s = 0; all && s < layout->n_sources; s++) {
        uint64_t n_present = 0;
        size_t newest = 0;
        for (size_t t = 0; chunk && t < layout->n_heaps_per_source; t++)
            if (chunk->present[t * layout->n_sources + s] == 1) {
                n_present++;
                newest = t;
            }
        counter_add_alone(&all[s].heaps, n_present);
        counter_add_alone(&all[s].missing_heaps, n_expected - n_present);
        if (n_present > 0)
            gauge_set(&all[s].newest_timestamp, chunk->timestamp_samples + (int64_t)newest * layout->heap_samples);
    }
}

void assembler_refuse(struct assembler *assembler, const struct assemble_packet *packet, enum reject reject)
{
    const struct assembler_config *config = &assembler->config;

    counter_add(&config->stats->rejects[reject], 1);
    if (!config->source_stats || packet->source >= config->layout.n_sources || packet->offset != 0)
        return;
    struct assembler_source_stats *source = &config->source_stats[packet->source];
    counter_add_alone(reject == REJECT_TOO_OLD ? &source->late_heaps : &source->refused_heaps, 1);
}

/* Tells the other members of the group that this assembler's window has passed the chunk of 'timestamp_samples'.  The
 * gauge shows the furthest member.  The first chunk after a jump may lower the gauge. */
static void show_progress(const struct assembler *a, int64_t timestamp_samples, bool restarts)
{
    struct gauge *group = a->config.group_timestamp;

    if (group && (restarts || timestamp_samples > gauge_get(group)))
        gauge_set(group, timestamp_samples);
}

/* Closes window[slot].  Pushes the chunk to the worker, or returns it to the free inbox if no heap is complete. */
static void close_chunk(struct assembler *a, size_t slot, bool at_end)
{
    const struct assemble_layout *layout = &a->config.layout;
    struct assembler_stats *stats = a->config.stats;
    struct chunk *chunk = a->window[slot];
    int64_t index = a->oldest + (int64_t)slot;
    int64_t n_times = count_times(a, index, at_end);
    /* number of the chunk's heap times before first_time */
    int64_t n_before = a->first_time - index * (int64_t)layout->n_heaps_per_source;
    uint64_t n_expected_each = (uint64_t)(n_times - (n_before > 0 ? n_before : 0));
    uint64_t n_expected = n_expected_each * layout->n_sources;

    a->window[slot] = NULL;
    /* Every admitted heap lies in [first_time, end_time), and first_time lies in the window's first chunk. */
    assert(n_before <= n_times && (!chunk || chunk->n_present <= n_expected));
    count_missing(a, n_expected - (chunk ? chunk->n_present : 0));
    count_sources(a, chunk, n_expected_each);
    if (!chunk)
        return;
    if (chunk->n_present < chunk->n_heaps)
        counter_add(&stats->incomplete_heaps, chunk_heap_count_incomplete(chunk));
    if (chunk->n_contested > 0)
        chunk_heap_drop_contested(chunk);
    buffer_ref_set(&chunk->ref, 1);
    if (chunk->n_present == 0) {
        buffer_ref_put(&chunk->ref);
        return;
    }
    counter_add(&stats->heaps, chunk->n_present);
    counter_add(&stats->bytes, chunk->n_present * chunk->heap_bytes);
    counter_add(&stats->chunks, 1);
    chunk->n_times = (size_t)n_times;
    chunk->n_missing = a->n_missing;
    chunk->restarts = a->restarts;
    a->n_missing = 0;
    a->restarts = false;
    gauge_set(&stats->newest_timestamp, chunk->timestamp_samples);
    show_progress(a, chunk->timestamp_samples, chunk->restarts);
    copy_finish(); /* makes copies that bypassed the cache visible to the worker (copy.h) */
    inbox_push(a->config.worker, &(struct inbox_item){.kind = a->config.full_kind, .object = chunk});
}

/* Moves the window past its 'n_leave' oldest chunks, which must be closed. */
static void window_shift(struct assembler *a, size_t n_leave)
{
    size_t n_left = a->config.window_chunks - n_leave, n_sources = a->config.layout.n_sources;

    memmove(a->window, a->window + n_leave, n_left * sizeof(a->window[0]));
    memset(a->window + n_left, 0, n_leave * sizeof(a->window[0]));
    memmove(a->n_source_heaps, a->n_source_heaps + n_leave * n_sources,
            n_left * n_sources * sizeof(a->n_source_heaps[0]));
    memset(a->n_source_heaps + n_left * n_sources, 0, n_leave * n_sources * sizeof(a->n_source_heaps[0]));
    a->oldest += (int64_t)n_leave;
    a->retry_packets = 0;
}

/* Moves the window up so that 'chunk' is its newest chunk. */
static void window_advance(struct assembler *a, int64_t chunk)
{
    unsigned n_chunks = a->config.window_chunks;
    size_t n_leave = (size_t)(chunk - (a->oldest + n_chunks - 1));

    assert(n_leave >= 1 && n_leave <= n_chunks);
    for (size_t slot = 0; slot < n_leave; slot++)
        close_chunk(a, slot, false);
    window_shift(a, n_leave);
    show_progress(a, (a->oldest - 1) * a->chunk_samples, false); /* even if the chunks were empty */
}

static void window_close(struct assembler *a, bool at_end)
{
    for (size_t slot = 0; slot < a->config.window_chunks; slot++)
        close_chunk(a, slot, at_end);
}

/* Starts a window whose oldest chunk is 'chunk'.  Heaps are expected from the heap time 'first_time', which lies in
 * this chunk. */
static void window_start(struct assembler *a, int64_t chunk, int64_t first_time)
{
    a->started = true;
    a->oldest = chunk;
    a->newest = chunk;
    a->first_time = first_time;
    a->end_time = first_time;
    a->retry_packets = 0;
    memset(a->n_source_heaps, 0,
           a->config.window_chunks * (size_t)a->config.layout.n_sources * sizeof(a->n_source_heaps[0]));
    for (unsigned i = 0; i < a->config.layout.n_sources; i++)
        a->last_times[i] = INT64_MIN / 2;
    claims_restart(&a->claims);
}

/* Closes the window, and starts the window again at a distant place.
 *
 * If 'is_gap' is true, the stream continues after a gap, and the heaps in the gap are missing.  The gap ends at the
 * start of the chunk in which the stream continues.  If 'is_gap' is false, the jump ends one stream and begins another.
 * The timestamps then go back, or go forward by more than the time that has really passed. */
static void window_jump(struct assembler *a, const struct assemble_place *place, bool is_gap)
{
    const struct assemble_layout *layout = &a->config.layout;
    int64_t n_times = (int64_t)layout->n_heaps_per_source;
    /* number of chunks that the window skips; negative if it jumps back */
    int64_t n_left_out = place->chunk - (a->oldest + a->config.window_chunks);

    log_limited(&a->jump_limit, LOG_LEVEL_WARNING,
                is_gap ? "%s: a gap of %lld samples ends at timestamp %lld"
                       : "%s: timestamps jumped by %lld samples to timestamp %lld",
                a->name, (long long)((place->chunk - a->newest) * a->chunk_samples),
                (long long)(place->chunk * a->chunk_samples));
    counter_add(&a->config.stats->jumps, 1);
    window_close(a, !is_gap);
    if (is_gap) {
        uint64_t n_missing_each = (uint64_t)(n_left_out > 0 ? n_left_out * n_times : 0);
        count_missing(a, n_missing_each * layout->n_sources);
        count_sources(a, NULL, n_missing_each);
    } else {
        a->restarts = true;
        data_time_forget(&a->data_time);
        if (place->time > a->end_time)
            counter_add(&a->config.stats->gap_samples, (uint64_t)((place->time - a->end_time) * layout->heap_samples));
    }
    window_start(a, place->chunk, is_gap ? place->chunk * n_times : place->time);
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

/* Position of a chunk relative to the window.  FAR: more than a window behind or ahead. */
enum zone { ZONE_FAR, ZONE_LATE, ZONE_INSIDE, ZONE_AHEAD };

static enum zone window_zone(const struct assembler *a, int64_t chunk)
{
    int64_t n_chunks = a->config.window_chunks;
    int64_t distance = chunk - a->oldest;

    if (distance < -n_chunks || distance >= 2 * n_chunks)
        return ZONE_FAR;
    if (distance < 0)
        return ZONE_LATE;
    return distance < n_chunks ? ZONE_INSIDE : ZONE_AHEAD;
}

/* Returns true if a packet ahead of the window is due.  A due packet may move the window at once, and needs no claim.
 * The next two heaps of a source are due if they are ahead of the window by less than the window's length. */
static bool may_advance(const struct assembler *a, const struct assemble_packet *packet,
                        const struct assemble_place *place, int64_t arrival_ns)
{
    if (!a->live || !a->data_time.known)
        return window_zone(a, place->chunk) == ZONE_AHEAD;
    return data_time_is_due(&a->data_time, packet->timestamp, arrival_ns) ||
           (window_zone(a, place->chunk) == ZONE_AHEAD && place->time <= a->last_times[packet->source] + 2);
}

/* Records that the stream includes a heap inside the window. */
static void note_placed(struct assembler *a, unsigned source, const struct assemble_place *place)
{
    a->last_times[source] = place->time;
    if (place->chunk > a->newest)
        a->newest = place->chunk;
    if (place->time < a->first_time)
        a->first_time = place->time;
    if (place->time >= a->end_time)
        a->end_time = place->time + 1;
}

/* Moves the window to the packet's chunk if necessary.  Returns REJECT_TOO_OLD or REJECT_JUMP if the chunk stays
 * outside the window.  If 'leads' is true, a packet that is not due may move the window, too. */
static enum reject window_follow(struct assembler *a, const struct assemble_packet *packet,
                                 const struct assemble_place *place, int64_t arrival_ns, bool leads)
{
    if (!a->started)
        window_start(a, place->chunk, place->time);
    enum zone zone = window_zone(a, place->chunk);
    bool ahead = place->chunk >= a->oldest + a->config.window_chunks;
    if (ahead ? !leads && !may_advance(a, packet, place, arrival_ns) : zone == ZONE_FAR)
        return REJECT_JUMP;
    claims_heard(&a->claims, packet->source, packet->timestamp, arrival_ns);
    if (zone == ZONE_LATE)
        return REJECT_TOO_OLD;
    if (zone == ZONE_AHEAD)
        window_advance(a, place->chunk);
    else if (zone == ZONE_FAR)
        window_jump(a, place, true);
    note_placed(a, packet->source, place);
    return REJECT_NONE;
}

/* Counts a complete heap of a live member.  When a source has completed half of a chunk's heaps, records the arrival
 * time of data from the middle of the chunk (data_time.h). */
static void note_complete(struct assembler *a, const struct chunk *chunk, unsigned source, size_t slot,
                          int64_t arrival_ns)
{
    const struct assemble_layout *layout = &a->config.layout;

    if (++a->n_source_heaps[slot * layout->n_sources + source] == (layout->n_heaps_per_source + 1) / 2)
        data_time_confirm(&a->data_time, chunk->timestamp_samples + a->chunk_samples / 2, arrival_ns);
}

/* Marks the packet's bytes as arrived.  The packet's chunk must be inside the window. */
static enum reject fill(struct assembler *a, const struct assemble_packet *packet, const struct assemble_place *place,
                        int64_t arrival_ns, uint8_t **payload)
{
    size_t slot = (size_t)(place->chunk - a->oldest);
    struct chunk *chunk = open_chunk(a, slot);

    if (!chunk)
        return REJECT_NO_CHUNK;
    if (chunk_heap_overlaps(chunk, place->heap, packet->offset, packet->n_bytes)) {
        bool covers = chunk_heap_covers(chunk, place->heap, packet->offset, packet->n_bytes);
        a->duplicate = (struct duplicate){chunk, place->heap, covers ? chunk->payload + place->offset : NULL};
        return REJECT_DUPLICATE;
    }
    if (!chunk_has_room(chunk))
        return REJECT_NO_CHUNK;
    if (chunk->filled_bytes[place->heap] == 0)
        chunk->senders[place->heap] = packet->sender;
    chunk_heap_fill(chunk, place->heap, packet->offset, packet->n_bytes);
    if (chunk->present[place->heap] == 1) {
        chunk->extra[place->heap] = packet->extra;
        if (a->live)
            note_complete(a, chunk, packet->source, slot, arrival_ns);
    }
    chunk->last_arrival_ns = arrival_ns;
    a->last_chunk = chunk;
    *payload = chunk->payload + place->offset;
    return REJECT_NONE;
}

/* ---- Claims, and the packets held for them ----------------------------------------------------------------------- */

/* Compares a held packet that was refused as a duplicate with the first copy.  Returns true if the bytes are the same.
 * Returns false for chunks in direct memory, because the host does not read this memory. */
static bool is_same_as_first(const struct assembler *a, const struct held_packet *held)
{
    const struct duplicate *duplicate = &a->duplicate;

    return duplicate->first && duplicate->chunk->direct.bytes == 0 &&
           memcmp(duplicate->first, held->payload, held->packet.n_bytes) == 0;
}

/* Places all packets that were held for the believed claim.  The window already begins at the earliest held packet. */
static void place_held(struct assembler *a)
{
    const struct held_packet *held;

    while ((held = claims_next_held(&a->claims))) {
        struct assemble_place place;
        uint8_t *payload;

        find_place(&a->config.layout, &held->packet, &a->last, &place);
        enum reject reject = window_follow(a, &held->packet, &place, held->arrival_ns, false);
        if (!reject)
            reject = fill(a, &held->packet, &place, held->arrival_ns, &payload);
        if (reject)
            assembler_refuse(a, &held->packet, reject);
        else
            memcpy(payload, held->payload, held->packet.n_bytes);
        if (reject == REJECT_DUPLICATE && !is_same_as_first(a, held))
            assembler_contest(a, &held->packet);
    }
}

/* Moves the window to the time of a claim that is believed (claims.h).  'place' is the place of the packet that
 * completed the claim. */
static void believe_claim(struct assembler *a, unsigned source, const struct assemble_place *place)
{
    struct assemble_place first = *place;

    claims_believe(&a->claims, source);
    const struct held_packet *held = claims_first_held(&a->claims);
    if (held && held->packet.timestamp < place->time * a->config.layout.heap_samples)
        find_place(&a->config.layout, &held->packet, &a->last, &first);
    window_jump(a, &first, !a->live && first.chunk > a->oldest);
    place_held(a);
    claims_release(&a->claims);
}

/* Judges a claim of at least 'jump_heaps' heaps.  Returns REJECT_NONE if the window may jump to the claim. */
static enum reject judge_claim(const struct assembler *a, const struct assemble_packet *packet,
                               const struct assemble_place *place, int64_t arrival_ns)
{
    if (a->live && place->chunk < a->oldest && claims_is_backlog(&a->claims, packet->source, arrival_ns))
        return REJECT_JUMP;
    if (!claims_are_enough(&a->claims, packet->source, arrival_ns))
        return REJECT_JUMP;
    if (a->live && data_time_clock_refuses(&a->data_time, packet->timestamp, a->newest * a->chunk_samples))
        return REJECT_CLOCK;
    return REJECT_NONE;
}

/* Returns true if a source with a claim of at least 'jump_heaps' heaps is a leader (assemble.h).  When the window moves
 * up to a leader, the other sources remain inside the window. */
static bool is_leader(const struct assembler *a, unsigned source, const struct assemble_place *place,
                      int64_t arrival_ns)
{
    return a->live && window_zone(a, place->chunk) == ZONE_AHEAD &&
           !claims_heard_lately(&a->claims, source, arrival_ns);
}

/* Adds a packet outside the window to its source's claim, and moves the window if the claim is believed.  A packet of
 * a recording is held until the claim is believed or dropped. */
static enum reject consider_claim(struct assembler *a, const struct assemble_packet *packet,
                                  const struct assemble_place *place, int64_t arrival_ns, uint8_t **payload)
{
    bool is_long = claims_extend(&a->claims, packet, arrival_ns);
    bool leads = is_long && is_leader(a, packet->source, place, arrival_ns);
    enum reject reject = is_long && !leads ? judge_claim(a, packet, place, arrival_ns) : REJECT_JUMP;

    if (leads) {
        reject = window_follow(a, packet, place, arrival_ns, true);
        return reject ? reject : fill(a, packet, place, arrival_ns, payload);
    }
    if (reject == REJECT_JUMP && !a->live) {
        uint8_t *held = claims_hold(&a->claims, packet, arrival_ns);
        if (held)
            *payload = held;
        return held ? REJECT_NONE : REJECT_JUMP;
    }
    if (reject)
        return reject;
    believe_claim(a, packet->source, place);
    reject = window_follow(a, packet, place, arrival_ns, false);
    return reject ? reject : fill(a, packet, place, arrival_ns, payload);
}

static enum reject admit(struct assembler *a, const struct assemble_packet *packet, int64_t arrival_ns,
                         uint8_t **payload)
{
    struct assemble_place place;

    enum reject reject = find_place(&a->config.layout, packet, &a->last, &place);
    if (reject)
        return reject;
    a->last = (struct grid_time){packet->timestamp, place.time, place.chunk};
    a->claims.n_packets++;
    reject = window_follow(a, packet, &place, arrival_ns, false);
    if (reject == REJECT_JUMP)
        reject = consider_claim(a, packet, &place, arrival_ns, payload);
    else if (!reject)
        reject = fill(a, packet, &place, arrival_ns, payload);
    return reject;
}

enum reject assembler_admit(struct assembler *assembler, const struct assemble_packet *packet, int64_t arrival_ns,
                            uint8_t **payload)
{
    enum reject reject = admit(assembler, packet, arrival_ns, payload);

    if (reject)
        assembler_refuse(assembler, packet, reject);
    return reject;
}

const uint8_t *assembler_duplicate_of(const struct assembler *assembler)
{
    return assembler->duplicate.first;
}

static const char *format_address(uint32_t address, char text[INET_ADDRSTRLEN])
{
    return address ? inet_ntop(AF_INET, &address, text, INET_ADDRSTRLEN) : "an unknown address";
}

void assembler_contest(struct assembler *assembler, const struct assemble_packet *packet)
{
    struct chunk *chunk = assembler->duplicate.chunk;
    size_t heap = assembler->duplicate.heap;
    char first[INET_ADDRSTRLEN], second[INET_ADDRSTRLEN];

    if (!chunk_heap_contest(chunk, heap))
        return;
    counter_add(&assembler->config.stats->contested_heaps, 1);
    log_limited(&assembler->contest_limit, LOG_LEVEL_WARNING,
                "%s: two senders sent different bytes for the same heap, first %s, then %s; the heap counts as missing",
                assembler->name, format_address(chunk->senders[heap], first), format_address(packet->sender, second));
}

struct chunk *assembler_last_chunk(const struct assembler *assembler)
{
    return assembler->last_chunk;
}

uint8_t *assembler_expect(const struct assembler *assembler, const struct assemble_packet *packet)
{
    struct assemble_place place;

    if (!assembler->started || find_place(&assembler->config.layout, packet, &assembler->last, &place) != REJECT_NONE ||
        window_zone(assembler, place.chunk) != ZONE_INSIDE)
        return NULL;
    const struct chunk *chunk = assembler->window[place.chunk - assembler->oldest];
    if (!chunk || chunk_heap_overlaps(chunk, place.heap, packet->offset, packet->n_bytes))
        return NULL;
    return chunk->payload + place.offset;
}

int64_t assembler_unwrap(const struct assembler *assembler, uint64_t wire_timestamp, int64_t arrival_ns)
{
    const struct timebase *timebase = &assembler->config.timebase;

    if (assembler->started) {
        int64_t newest_samples = assembler->newest * assembler->chunk_samples;
        int64_t timestamp = timebase_unwrap(wire_timestamp, newest_samples);

        /* The limit is not critical: any distance well above a window and well below 2^47 samples would do. */
        if (timebase->from_packets || llabs(timestamp - newest_samples) <= 2 * assembler->window_samples)
            return timestamp;
        if (assembler->data_time.known)
            return timebase_unwrap(wire_timestamp, data_time_at(&assembler->data_time, arrival_ns));
    }
    return timebase_unwrap(wire_timestamp, timebase_first_near(timebase));
}

int64_t assembler_oldest_samples(const struct assembler *assembler)
{
    return assembler->started ? assembler->oldest * assembler->chunk_samples : INT64_MAX;
}

void assembler_flush_oldest(struct assembler *assembler)
{
    assert(assembler->started);
    close_chunk(assembler, 0, true);
    window_shift(assembler, 1);
    assembler->started = assembler->oldest <= assembler->newest;
    if (!assembler->started)
        claims_drop(&assembler->claims);
}

void assembler_flush(struct assembler *assembler)
{
    while (assembler->started)
        assembler_flush_oldest(assembler);
}

/* ---- Passing of time --------------------------------------------------------------------------------------------- */

/* Hands on the open chunks of a silent member (Silence in assemble.h).  Later packets of these chunks are too old. */
static void end_silence(struct assembler *a, int64_t now_ns)
{
    int64_t silent_ns = now_ns - a->claims.near_ns, n_open = a->newest - a->oldest + 1;
    int64_t patience_end = (a->oldest + a->config.patience_chunks) * a->chunk_samples;

    /* The silence must last for the duration of the window, less half a chunk as a margin.  Without the margin, a
     * member whose data end just before a chunk's end would be late for the matcher.  The matcher waits only until
     * another member is a window ahead.  A window of one chunk leaves no margin. */
    int64_t margin_ns = a->config.window_chunks > 1 ? a->window_ns / (2 * (int64_t)a->config.window_chunks) : 0;
    if (n_open <= 0 || silent_ns < a->window_ns - margin_ns)
        return;
    bool others_ahead = a->config.group_timestamp && gauge_get(a->config.group_timestamp) >= patience_end;
    if (!others_ahead && silent_ns < SILENCE_NS + 2 * a->window_ns)
        return;
    for (size_t slot = 0; slot < (size_t)n_open; slot++)
        close_chunk(a, slot, false);
    window_shift(a, (size_t)n_open);
    /* close_chunk() has counted the heaps up to this time */
    a->end_time = a->oldest * (int64_t)a->config.layout.n_heaps_per_source;
}

/* When the clock has become right, detects whether the wrong clock was used to extend timestamps to 64 bits.  In this
 * case a new stream begins with the next packet.  The right clock is used to extend this packet's timestamp. */
static void check_clock(struct assembler *a)
{
    int64_t n_periods = data_time_wrong_periods(&a->data_time, a->newest * a->chunk_samples);

    a->n_wrong_checks = n_periods == 0 ? 0 : a->n_wrong_checks + 1;
    if (a->n_wrong_checks < CLOCK_CHECKS)
        return;
    a->n_wrong_checks = 0;
    log_error("%s: timestamps are wrong by %lld * 2^48 samples, because the clock was wrong at the start; the clock is "
              "synchronised now, and the timestamps are corrected",
              a->name, (long long)n_periods);
    counter_add(&a->config.stats->jumps, 1);
    assembler_flush(a);
    a->restarts = true;
    data_time_forget(&a->data_time);
}

void assembler_pass_time(struct assembler *assembler, int64_t now_ns)
{
    if (!assembler->live || !assembler->started)
        return;
    end_silence(assembler, now_ns);
    if (now_ns - assembler->clock_checked_ns < CLOCK_CHECK_NS)
        return;
    assembler->clock_checked_ns = now_ns;
    check_clock(assembler);
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static int create_arrays(struct assembler *a)
{
    size_t n_sources = a->config.layout.n_sources;

    a->last_times = calloc(n_sources, sizeof(*a->last_times));
    a->window = calloc(a->config.window_chunks, sizeof(*a->window));
    a->n_source_heaps = calloc(a->config.window_chunks * n_sources, sizeof(*a->n_source_heaps));
    return a->last_times && a->window && a->n_source_heaps ? 0 : -ENOMEM;
}

static int create_claims(struct assembler *a)
{
    return claims_init(&a->claims, &(struct claims_config){
                                       .n_sources = a->config.layout.n_sources,
                                       .jump_heaps = a->config.jump_heaps,
                                       .jump_sources = a->config.jump_sources,
                                       .window_samples = a->window_samples,
                                       .window_ns = a->window_ns,
                                       .live = a->live,
                                       .heap_bytes = a->config.layout.heap_bytes,
                                       .name = a->name,
                                       .refused = &a->config.stats->rejects[REJECT_JUMP],
                                   });
}

int assembler_create(const struct assembler_config *config, struct assembler **assembler)
{
    struct assembler *a;

    assert(config->window_chunks >= 1 && config->jump_heaps >= 1 && config->jump_sources >= 1);
    assert(config->layout.heap_samples > 0 && config->layout.n_heaps_per_source > 0 && config->layout.n_sources > 0);
    assert(config->layout.heap_bytes > 0 && config->layout.heap_bytes < CHUNK_HEAP_MAPPED);
    a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->config = *config;
    strncpy(a->name, config->name, sizeof(a->name) - 1);
    a->config.name = a->name;
    a->chunk_samples = assemble_chunk_samples(&config->layout);
    a->window_samples = a->chunk_samples * config->window_chunks;
    a->window_ns = timebase_duration_ns(&config->timebase, a->window_samples);
    a->live = !config->may_wait;
    if (a->live)
        data_time_init(&a->data_time, &a->config.timebase, a->chunk_samples, config->clock_tolerance_ns);
    if (create_arrays(a) || create_claims(a)) {
        assembler_destroy(a);
        return -ENOMEM;
    }
    gauge_set(&config->stats->newest_timestamp, -1);
    for (unsigned s = 0; config->source_stats && s < config->layout.n_sources; s++)
        gauge_set(&config->source_stats[s].newest_timestamp, -1);
    *assembler = a;
    return 0;
}

void assembler_destroy(struct assembler *assembler)
{
    if (!assembler)
        return;
    claims_fini(&assembler->claims);
    free(assembler->n_source_heaps);
    free(assembler->window);
    free(assembler->last_times);
    free(assembler);
}
