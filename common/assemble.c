/* assemble.c - where a packet's payload belongs, and when a chunk is done: between the receiver and the worker's inbox.
 *
 * Reading order: placement (pure), a heap's bytes, chunks that come and go, jumps, and assembler_admit(), which is the
 * state machine. */
#include "common/assemble.h"

#include "common/copy.h"
#include "common/log.h"
#include "common/units.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_BYTES     8 /* what one bit of chunk->filled stands for */
#define UNITS_PER_WORD 64

/* While there is no free chunk, ask for one (which takes a lock) once in so many packets. */
#define NO_CHUNK_RETRY_PACKETS 64

/* What the window knows of one source, for belief in jumps. */
struct source {
    uint64_t n_claim_heaps; /* consecutive heaps far from the window; 0: what came last was inside or near it */
    int64_t claim_samples;  /* timestamp of the newest of those */
    uint64_t claim_since;   /* n_packets when the claim was one to two times 'jump_heaps' shorter, or when it began */
    uint64_t claim_renewed; /* n_packets when its length last was a multiple of 'jump_heaps', or when it began */
    uint64_t near_at;       /* n_packets when something inside or near the window came last; 0: never */
    int64_t near_ns;        /* and its arrival */
};

/* Where a timestamp lies on the grids of heaps and of chunks.  All zero is right. */
struct grid_time {
    int64_t timestamp;
    int64_t time, chunk; /* as in struct assemble_place */
};

struct assembler {
    struct assembler_config config; /* [const] */
    int64_t chunk_samples;          /* [const] */
    int64_t window_samples;         /* [const] */
    int64_t window_ns;              /* [const] */
    uint64_t n_packets;             /* placed so far: the time by which claims are compared */
    struct grid_time last;          /* of the last packet placed: most have the timestamp of the one before */
    bool started;                   /* there is a window */
    int64_t oldest;                 /* chunk index of window[0] */
    int64_t newest;                 /* newest chunk index for which there was a packet */
    int64_t first_time, end_time;   /* heaps are expected from the first; so far they came up to before the end */
    uint64_t n_missing;             /* heaps, since the last chunk was handed on */
    unsigned retry_packets;         /* until a free chunk is asked for again */
    struct source *sources;         /* [n_sources] */
    struct chunk **window;          /* [window_chunks] NULL: no packet yet, or no free chunk */
    struct chunk *last_chunk;       /* of the last packet let in */
    struct log_limit jump_limit;
    char name[64];
};

const char *reject_name(enum reject reject)
{
    static const char *const names[N_REJECTS] = {
        [REJECT_NONE] = "none",
        [REJECT_MALFORMED] = "malformed",
        [REJECT_NO_ITEMS] = "no_items",
        [REJECT_STOP] = "stop",
        [REJECT_HEAP_SIZE] = "heap_size",
        [REJECT_ALIGNMENT] = "alignment",
        [REJECT_BAD_TIMESTAMP] = "bad_timestamp",
        [REJECT_BAD_SOURCE] = "bad_source",
        [REJECT_OTHER_THREAD] = "other_thread",
        [REJECT_BAD_FREQUENCY] = "bad_frequency",
        [REJECT_TOO_OLD] = "too_old",
        [REJECT_JUMP] = "jump",
        [REJECT_DUPLICATE] = "duplicate",
        [REJECT_NO_CHUNK] = "no_chunk",
    };

    assert((unsigned)reject < N_REJECTS);
    return names[reject];
}

/* ---- Placement --------------------------------------------------------------------------------------------------- */

/* Finds the time and chunk, without a division where 'known' has them.  Returns false if there is no heap at such a
 * time. */
static bool find_time(const struct assemble_layout *layout, int64_t timestamp, const struct grid_time *known,
                      struct assemble_place *place)
{
    if (timestamp == known->timestamp) {
        place->time = known->time;
        place->chunk = known->chunk;
        return true;
    }
    int64_t time = timestamp / layout->heap_samples; /* exact, so also for negative ones */
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
    if (packet->n_bytes == 0 || packet->offset % UNIT_BYTES != 0 ||
        (packet->n_bytes % UNIT_BYTES != 0 && end != packet->heap_bytes))
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

/* ---- A heap's bytes ---------------------------------------------------------------------------------------------- */

/* The bits of a packet's bytes: those of 'first_mask' in word 'first', of 'last_mask' in word 'last', and all in
 * between.  Where the first word is the last, the two masks are the same. */
struct bit_range {
    size_t first, last;
    uint64_t first_mask, last_mask;
};

static struct bit_range bits_of(const struct assemble_packet *packet)
{
    size_t first = packet->offset / UNIT_BYTES;
    size_t last = (packet->offset + packet->n_bytes - 1) / UNIT_BYTES;
    struct bit_range bits = {
        .first = first / UNITS_PER_WORD,
        .last = last / UNITS_PER_WORD,
        .first_mask = UINT64_MAX << first % UNITS_PER_WORD,
        .last_mask = UINT64_MAX >> (UNITS_PER_WORD - 1 - last % UNITS_PER_WORD),
    };

    if (bits.first == bits.last)
        bits.first_mask = bits.last_mask = bits.first_mask & bits.last_mask;
    return bits;
}

static bool any_filled(const uint64_t *filled, const struct bit_range *bits)
{
    uint64_t found = (filled[bits->first] & bits->first_mask) | (filled[bits->last] & bits->last_mask);

    for (size_t word = bits->first + 1; word < bits->last; word++)
        found |= filled[word];
    return found != 0;
}

static void mark_filled(uint64_t *filled, const struct bit_range *bits)
{
    filled[bits->first] |= bits->first_mask;
    filled[bits->last] |= bits->last_mask;
    for (size_t word = bits->first + 1; word < bits->last; word++)
        filled[word] = UINT64_MAX;
}

/* Whether any of the packet's bytes has arrived.  While a heap's packets come in order, the bytes that have are the
 * first ones, and no bit is touched; so also where the heap is complete, or has not begun. */
static bool heap_overlaps(const struct chunk *chunk, size_t heap, const struct assemble_packet *packet)
{
    if (!(chunk->filled_bytes[heap] & CHUNK_HEAP_MAPPED))
        return packet->offset < chunk->filled_bytes[heap];
    struct bit_range bits = bits_of(packet);
    return any_filled(chunk->filled + heap * chunk->filled_words, &bits);
}

/* From now on the heap's bits say which bytes have arrived: the first ones. */
static void heap_map(struct chunk *chunk, size_t heap)
{
    uint64_t *filled = chunk->filled + heap * chunk->filled_words;

    memset(filled, 0, chunk->filled_words * sizeof(*filled));
    if (chunk->filled_bytes[heap] > 0) {
        struct bit_range bits = bits_of(&(struct assemble_packet){.n_bytes = chunk->filled_bytes[heap]});
        mark_filled(filled, &bits);
    }
    chunk->filled_bytes[heap] |= CHUNK_HEAP_MAPPED;
}

/* Marks the packet's bytes, none of which has arrived, and with the last ones the heap as present. */
static void heap_fill(struct chunk *chunk, size_t heap, const struct assemble_packet *packet)
{
    if (!(chunk->filled_bytes[heap] & CHUNK_HEAP_MAPPED) && packet->offset > chunk->filled_bytes[heap])
        heap_map(chunk, heap);
    chunk->filled_bytes[heap] += (uint32_t)packet->n_bytes;
    if ((chunk->filled_bytes[heap] & ~CHUNK_HEAP_MAPPED) == chunk->heap_bytes) {
        chunk->filled_bytes[heap] = (uint32_t)chunk->heap_bytes;
        chunk->present[heap] = 1;
        chunk->extra[heap] = packet->extra;
        chunk->n_present++;
    } else if (chunk->filled_bytes[heap] & CHUNK_HEAP_MAPPED) {
        struct bit_range bits = bits_of(packet);
        mark_filled(chunk->filled + heap * chunk->filled_words, &bits);
    }
}

static size_t count_incomplete_heaps(const struct chunk *chunk)
{
    size_t n = 0;

    for (size_t heap = 0; heap < chunk->n_heaps; heap++)
        n += chunk->filled_bytes[heap] != 0 && !chunk->present[heap];
    return n;
}

/* ---- Chunks come and go ------------------------------------------------------------------------------------------ */

/* The open chunk for window[slot], taking a free one if it has none yet.  NULL if there is none to be had. */
static struct chunk *open_chunk(struct assembler *a, size_t slot)
{
    struct inbox_item item;
    int err;

    if (a->window[slot])
        return a->window[slot];
    if (a->retry_packets > 0) {
        a->retry_packets--;
        return NULL;
    }
    err = a->config.may_wait ? inbox_pop(a->config.free_chunks, &item) : inbox_try_pop(a->config.free_chunks, &item);
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

/* How many times (heaps of each source) of a chunk there are: all, or if 'at_end', those up to the newest heap, with
 * which the stream ends. */
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

/* window[slot] leaves: to the worker, or home if nothing in it is of use. */
static void close_chunk(struct assembler *a, size_t slot, bool at_end)
{
    const struct assemble_layout *layout = &a->config.layout;
    struct assembler_stats *stats = a->config.stats;
    struct chunk *chunk = a->window[slot];
    int64_t index = a->oldest + (int64_t)slot;
    int64_t n_times = count_times(a, index, at_end);
    int64_t n_before = a->first_time - index * (int64_t)layout->n_heaps_per_source; /* the first heap: not expected */
    uint64_t n_expected = (uint64_t)(n_times - (n_before > 0 ? n_before : 0)) * layout->n_sources;

    a->window[slot] = NULL;
    /* Every heap let in lies in [first_time, end_time), and first_time in the first chunk of the window. */
    assert(n_before <= n_times && (!chunk || chunk->n_present <= n_expected));
    count_missing(a, n_expected - (chunk ? chunk->n_present : 0));
    if (!chunk)
        return;
    if (chunk->n_present < chunk->n_heaps)
        counter_add(&stats->incomplete_heaps, count_incomplete_heaps(chunk));
    loan_out(&chunk->loan, 1);
    if (chunk->n_present == 0) {
        loan_put(&chunk->loan);
        return;
    }
    counter_add(&stats->heaps, chunk->n_present);
    counter_add(&stats->bytes, chunk->n_present * chunk->heap_bytes);
    counter_add(&stats->chunks, 1);
    chunk->n_times = (size_t)n_times;
    chunk->n_missing = a->n_missing;
    a->n_missing = 0;
    gauge_set(&stats->newest_timestamp, chunk->timestamp_samples);
    copy_finish(); /* of the payloads in it */
    inbox_push(a->config.worker, &(struct inbox_item){.kind = a->config.full_kind, .object = chunk});
}

/* The window moves up until 'chunk' is its newest. */
static void window_advance(struct assembler *a, int64_t chunk)
{
    unsigned n_chunks = a->config.window_chunks;
    size_t n_leave = (size_t)(chunk - (a->oldest + n_chunks - 1));

    assert(n_leave >= 1 && n_leave <= n_chunks);
    for (size_t slot = 0; slot < n_leave; slot++)
        close_chunk(a, slot, false);
    memmove(a->window, a->window + n_leave, (n_chunks - n_leave) * sizeof(a->window[0]));
    for (size_t slot = n_chunks - n_leave; slot < n_chunks; slot++)
        a->window[slot] = NULL;
    a->oldest += (int64_t)n_leave;
    a->retry_packets = 0;
}

static void window_close(struct assembler *a, bool at_end)
{
    for (size_t slot = 0; slot < a->config.window_chunks; slot++)
        close_chunk(a, slot, at_end);
}

/* Heaps are expected from 'first_time', in 'chunk'. */
static void window_start(struct assembler *a, int64_t chunk, int64_t first_time)
{
    a->started = true;
    a->oldest = chunk;
    a->newest = chunk;
    a->first_time = first_time;
    a->end_time = first_time;
    a->retry_packets = 0;
    for (unsigned i = 0; i < a->config.layout.n_sources; i++)
        a->sources[i].n_claim_heaps = 0; /* claims are against a window, and this is another one */
}

/* The window starts again far away.  After a jump forward, what it leaves out was expected and is missing, up to the
 * chunk in which the stream goes on, and that from its start.  A jump back ends one stream and begins another. */
static void window_jump(struct assembler *a, const struct assemble_place *place)
{
    const struct assemble_layout *layout = &a->config.layout;
    int64_t n_times = (int64_t)layout->n_heaps_per_source;
    int64_t n_left_out = place->chunk - (a->oldest + a->config.window_chunks); /* chunks; negative: a jump back */

    log_limited(&a->jump_limit, LOG_LEVEL_WARNING, "%s: timestamps jumped by %lld samples to %lld", a->name,
                (long long)((place->chunk - a->newest) * a->chunk_samples),
                (long long)(place->chunk * a->chunk_samples));
    counter_add(&a->config.stats->jumps, 1);
    window_close(a, n_left_out < 0);
    if (n_left_out >= 0)
        count_missing(a, (uint64_t)(n_left_out * n_times) * layout->n_sources);
    window_start(a, place->chunk, n_left_out >= 0 ? place->chunk * n_times : place->time);
}

/* ---- Jumps ------------------------------------------------------------------------------------------------------- */

/* Takes note of a packet far from the window.  Returns true if it makes its source's claim, which is long enough,
 * longer by a heap, so that belief is worth another look. */
static bool claim_extend(struct assembler *a, const struct assemble_packet *packet)
{
    struct source *source = &a->sources[packet->source];
    int64_t ahead = packet->timestamp - source->claim_samples;

    if (source->n_claim_heaps == 0 || ahead > a->window_samples || ahead < -a->window_samples) {
        source->n_claim_heaps = 0;
        source->claim_since = a->n_packets;
        source->claim_renewed = a->n_packets;
    } else if (ahead <= 0) {
        return false; /* another packet of that heap, or one that was overtaken */
    }
    source->claim_samples = packet->timestamp;
    source->n_claim_heaps++;
    if (source->n_claim_heaps % a->config.jump_heaps == 0) {
        source->claim_since = source->claim_renewed;
        source->claim_renewed = a->n_packets;
    }
    return source->n_claim_heaps >= a->config.jump_heaps;
}

/* Whether a source that makes no claim speaks against this one, of which a heap arrives now. */
static bool speaks_against(const struct assembler *a, const struct source *source, const struct source *claimant,
                           int64_t arrival_ns)
{
    if (source->near_at == 0)
        return false;
    return source->near_at > claimant->claim_since ||
           (!a->config.may_wait && arrival_ns - source->near_ns < a->window_ns);
}

/* Whether enough sources make the same claim as this one, and more than were heard near the window in the meantime. */
static bool claim_believed(const struct assembler *a, const struct source *claimant, int64_t arrival_ns)
{
    unsigned n_agree = 0, n_against = 0;

    for (unsigned i = 0; i < a->config.layout.n_sources; i++) {
        const struct source *source = &a->sources[i];
        int64_t apart = source->claim_samples - claimant->claim_samples;

        if (source->n_claim_heaps == 0)
            n_against += speaks_against(a, source, claimant, arrival_ns);
        else if (source->n_claim_heaps >= a->config.jump_heaps)
            n_agree += apart >= -a->window_samples && apart <= a->window_samples;
    }
    return n_agree > n_against && (n_agree >= a->config.jump_sources || n_against == 0);
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

/* Where a chunk lies as seen from the window. */
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

/* Makes the window hold the packet's chunk, or says why it should not. */
static enum reject window_admit(struct assembler *a, const struct assemble_packet *packet,
                                const struct assemble_place *place, int64_t arrival_ns)
{
    struct source *source = &a->sources[packet->source];

    a->n_packets++;
    if (!a->started)
        window_start(a, place->chunk, place->time);
    enum zone zone = window_zone(a, place->chunk);
    if (zone == ZONE_FAR) {
        if (!claim_extend(a, packet) || !claim_believed(a, source, arrival_ns))
            return REJECT_JUMP;
        window_jump(a, place);
    }
    source->n_claim_heaps = 0;
    source->near_at = a->n_packets;
    source->near_ns = arrival_ns;
    if (zone == ZONE_LATE)
        return REJECT_TOO_OLD;
    if (zone == ZONE_AHEAD)
        window_advance(a, place->chunk);
    if (place->chunk > a->newest)
        a->newest = place->chunk;
    if (place->time < a->first_time)
        a->first_time = place->time;
    if (place->time >= a->end_time)
        a->end_time = place->time + 1;
    return REJECT_NONE;
}

static enum reject admit(struct assembler *a, const struct assemble_packet *packet, int64_t arrival_ns,
                         uint8_t **payload)
{
    struct assemble_place place;
    enum reject reject;

    reject = find_place(&a->config.layout, packet, &a->last, &place);
    if (reject)
        return reject;
    a->last = (struct grid_time){packet->timestamp, place.time, place.chunk};
    reject = window_admit(a, packet, &place, arrival_ns);
    if (reject)
        return reject;
    struct chunk *chunk = open_chunk(a, (size_t)(place.chunk - a->oldest));
    if (!chunk)
        return REJECT_NO_CHUNK;
    if (heap_overlaps(chunk, place.heap, packet))
        return REJECT_DUPLICATE;
    if (!chunk_has_room(chunk))
        return REJECT_NO_CHUNK;
    heap_fill(chunk, place.heap, packet);
    chunk->last_arrival_ns = arrival_ns;
    a->last_chunk = chunk;
    *payload = chunk->payload + place.offset;
    return REJECT_NONE;
}

enum reject assembler_admit(struct assembler *assembler, const struct assemble_packet *packet, int64_t arrival_ns,
                            uint8_t **payload)
{
    enum reject reject = admit(assembler, packet, arrival_ns, payload);

    if (reject)
        counter_add(&assembler->config.stats->rejects[reject], 1);
    return reject;
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
    if (!chunk || heap_overlaps(chunk, place.heap, packet))
        return NULL;
    return chunk->payload + place.offset;
}

int64_t assembler_unwrap(const struct assembler *assembler, uint64_t wire_timestamp)
{
    const struct timebase *timebase = &assembler->config.timebase;

    if (assembler->started) {
        int64_t newest_samples = assembler->newest * assembler->chunk_samples;
        int64_t timestamp = timebase_unwrap(wire_timestamp, newest_samples);

        /* Anything well beyond the window and well within half a period would do as the limit here. */
        if (timebase->from_packets || llabs(timestamp - newest_samples) <= 2 * assembler->window_samples)
            return timestamp;
    }
    return timebase_unwrap(wire_timestamp, timebase_first_near(timebase));
}

int64_t assembler_oldest_samples(const struct assembler *assembler)
{
    return assembler->started ? assembler->oldest * assembler->chunk_samples : INT64_MAX;
}

void assembler_flush_oldest(struct assembler *assembler)
{
    size_t n_left = assembler->config.window_chunks - 1;

    assert(assembler->started);
    close_chunk(assembler, 0, true);
    memmove(assembler->window, assembler->window + 1, n_left * sizeof(assembler->window[0]));
    assembler->window[n_left] = NULL;
    assembler->oldest++;
    assembler->started = assembler->oldest <= assembler->newest;
}

void assembler_flush(struct assembler *assembler)
{
    while (assembler->started)
        assembler_flush_oldest(assembler);
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

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
    a->sources = calloc(config->layout.n_sources, sizeof(*a->sources));
    if (!a->sources)
        goto undo_assembler;
    a->window = calloc(config->window_chunks, sizeof(*a->window));
    if (!a->window)
        goto undo_sources;
    gauge_set(&config->stats->newest_timestamp, -1);
    *assembler = a;
    return 0;
undo_sources:
    free(a->sources);
undo_assembler:
    free(a);
    return -ENOMEM;
}

void assembler_destroy(struct assembler *assembler)
{
    if (!assembler)
        return;
    free(assembler->window);
    free(assembler->sources);
    free(assembler);
}
