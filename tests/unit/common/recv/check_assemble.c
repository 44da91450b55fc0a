/* check_assemble.c - placement by table; jumps and ends by scenario.  All other behaviour is compared with slow,
 * obviously right models.  One model holds, for each byte of each heap, its value and whether it has arrived.  The
 * other model holds all heaps of each stream. */
#include "common/recv/assemble.h"
#include "common/base/clock.h"
#include "common/time/clock_state.h"
#include "common/device/device.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "tests/unit/test_device.h"
#include "tests/unit/test_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>

enum { FREE_CHUNK = 1, FULL_CHUNK = 2, POOL_MAX = 16 };
#define POISON 0xe7

static struct device *device;
static struct inbox *return_to, *worker;
static struct chunk_pool *pool;
static struct assembler_stats stats;
static struct assembler *assembler;
static struct assembler_config config;
static int64_t arrival_ns; /* of the next packets */
static uint8_t *last_payload;

enum { LEDGER_MAX = 60000 };
#define NO_END INT64_MAX

/* What should be counted as missing: packets are remembered, and a stream is all heaps from its first to its last. */
static struct {
    int64_t times[LEDGER_MAX]; /* of the stream that goes on: timestamps in heaps */
    size_t n;
    uint64_t n_expected; /* heaps of the streams that have ended */
} ledger;

/* ---- Fixture ----------------------------------------------------------------------------------------------------- */

static void poison(struct chunk *chunk)
{
    memset(chunk->payload, POISON, chunk->n_heaps * chunk->heap_bytes);
    chunk->n_times = SIZE_MAX;
}

static size_t n_pool_chunks;

static void destroy_assembler(void)
{
    if (!assembler)
        return;
    assembler_destroy(assembler);
    assembler = NULL;
    ck_assert_uint_eq(inbox_length(worker), 0);
    ck_assert_uint_eq(inbox_length(return_to), n_pool_chunks);
    chunk_pool_destroy(pool);
    inbox_destroy(worker);
    inbox_destroy(return_to);
}

/* All but the assembler itself, which create_assembler() makes as 'config' says. */
static void prepare_assembler(struct assemble_layout layout, unsigned window_chunks, size_t n_chunks)
{
    struct inbox_item item;
    char why[200];
    size_t n_heaps = layout.n_heaps_per_source * layout.n_sources;

    destroy_assembler();
    memset(&stats, 0, sizeof(stats));
    ledger.n = 0;
    ledger.n_expected = 0;
    n_pool_chunks = n_chunks;
    if (!device)
        device = test_open_kind(DEVICE_CPU, 1);
    ck_assert_int_eq(inbox_create(POOL_MAX, &return_to), 0);
    ck_assert_int_eq(inbox_create(POOL_MAX, &worker), 0);
    const struct chunk_shape chunks = {.n_chunks = n_chunks, .n_heaps = n_heaps, .heap_bytes = layout.heap_bytes};
    ck_assert_int_eq(chunk_pool_create(device, &chunks, 0, return_to, FREE_CHUNK, &pool, why, sizeof(why)), 0);
    for (size_t i = 0; i < n_chunks; i++) {
        ck_assert_int_eq(inbox_try_pop(return_to, &item), 0);
        poison(item.object);
        inbox_push(return_to, &item);
    }
    config = (struct assembler_config){
        .layout = layout,
        .name = "m000 pol 0",
        .window_chunks = window_chunks,
        .jump_heaps = 8,
        .jump_sources = 2,
        .timebase = {.adc_sample_rate_hz = {1000000000, 0}, .from_packets = true},
        .free_chunks = return_to,
        .worker = worker,
        .full_kind = FULL_CHUNK,
        .stats = &stats,
    };
}

static void create_assembler(void)
{
    ck_assert_int_eq(assembler_create(&config, &assembler), 0);
}

static void make_assembler(struct assemble_layout layout, unsigned window_chunks, size_t n_chunks)
{
    prepare_assembler(layout, window_chunks, n_chunks);
    create_assembler();
}

static void teardown(void)
{
    destroy_assembler();
    device_close(device);
    device = NULL;
}

/* Missing heaps that the chunks handed on have told of. */
static uint64_t n_missing_told;

/* The next chunk handed on, or NULL. */
static struct chunk *next_full(void)
{
    struct inbox_item item;

    if (inbox_try_pop(worker, &item))
        return NULL;
    ck_assert_int_eq(item.kind, FULL_CHUNK);
    n_missing_told += ((struct chunk *)item.object)->n_missing;
    return item.object;
}

static void put_full(struct chunk *chunk)
{
    poison(chunk);
    buffer_ref_put(&chunk->ref);
}

/* Puts back what was handed on; returns how many. */
static size_t drain(void)
{
    struct chunk *chunk;
    size_t n = 0;

    for (; (chunk = next_full()); n++)
        put_full(chunk);
    return n;
}

static enum reject admit_range(unsigned source, int64_t timestamp, uint64_t offset, uint64_t n_bytes)
{
    const struct assemble_packet packet = {
        .source = source,
        .timestamp = timestamp,
        .heap_bytes = config.layout.heap_bytes,
        .offset = offset,
        .n_bytes = n_bytes,
    };

    return assembler_admit(assembler, &packet, arrival_ns, &last_payload);
}

/* Whether the last packet that was admitted went to a chunk, and was not held. */
static bool is_placed(void)
{
    const struct chunk *chunk = assembler_last_chunk(assembler);

    return chunk && last_payload >= chunk->payload &&
           last_payload < chunk->payload + chunk->n_heaps * chunk->heap_bytes;
}

static enum reject admit_heap(unsigned source, int64_t timestamp)
{
    return admit_range(source, timestamp, 0, config.layout.heap_bytes);
}

/* ---- Placement --------------------------------------------------------------------------------------------------- */

TEST(placement_follows_the_layout)
{
    static const struct assemble_layout layout = {
        .heap_samples = 100, .heap_bytes = 44, .n_heaps_per_source = 4, .n_sources = 3};
    static const struct {
        struct assemble_packet packet;
        enum reject reject;
        struct assemble_place place;
    } table[] = {
        {{0, 0, 44, 0, 44, 0}, REJECT_NONE, {0, 0, 0, 0}},
        {{2, 0, 44, 0, 44, 0}, REJECT_NONE, {0, 0, 2, 88}},
        {{1, 300, 44, 8, 16, 0}, REJECT_NONE, {3, 0, 10, 448}},
        {{1, 400, 44, 40, 4, 0}, REJECT_NONE, {4, 1, 1, 84}},
        {{0, INT64_C(400) << 50, 44, 40, 4, 0}, REJECT_NONE, {INT64_C(4) << 50, INT64_C(1) << 50, 0, 40}},
        {{0, -100, 44, 0, 8, 0}, REJECT_NONE, {-1, -1, 9, 396}},
        {{0, -400, 44, 0, 8, 0}, REJECT_NONE, {-4, -1, 0, 0}},
        {{0, -500, 44, 0, 8, 0}, REJECT_NONE, {-5, -2, 9, 396}},
        {{0, 0, 43, 0, 8, 0}, REJECT_HEAP_SIZE, {0}},
        {{0, 0, 48, 0, 8, 0}, REJECT_HEAP_SIZE, {0}},
        {{0, 0, 44, 4, 8, 0}, REJECT_ALIGNMENT, {0}},
        {{0, 0, 44, 0, 12, 0}, REJECT_ALIGNMENT, {0}},
        {{0, 0, 44, 8, 0, 0}, REJECT_ALIGNMENT, {0}},
        {{0, 0, 44, 44, 0, 0}, REJECT_ALIGNMENT, {0}},
        {{0, 1, 44, 0, 8, 0}, REJECT_BAD_TIMESTAMP, {0}},
        {{0, -99, 44, 0, 8, 0}, REJECT_BAD_TIMESTAMP, {0}},
        {{3, 0, 44, 0, 8, 0}, REJECT_BAD_SOURCE, {0}},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct assemble_place place = {0};

        ck_assert_msg(assemble_place(&layout, &table[i].packet, &place) == table[i].reject, "row %zu", i);
        ck_assert_int_eq(place.time, table[i].place.time);
        ck_assert_int_eq(place.chunk, table[i].place.chunk);
        ck_assert_uint_eq(place.heap, table[i].place.heap);
        ck_assert_uint_eq(place.offset, table[i].place.offset);
    }
}

TEST(every_reason_has_a_name)
{
    for (int i = 0; i < N_REJECTS; i++)
        for (int k = 0; k < i; k++)
            ck_assert_str_ne(reject_name((enum reject)i), reject_name((enum reject)k));
}

/* ---- The ledger -------------------------------------------------------------------------------------------------- */

static void ledger_note(int64_t time)
{
    ck_assert_uint_lt(ledger.n, LEDGER_MAX);
    ledger.times[ledger.n++] = time;
}

static int64_t ledger_newest(void)
{
    int64_t newest = INT64_MIN;

    for (size_t i = 0; i < ledger.n; i++)
        newest = ledger.times[i] > newest ? ledger.times[i] : newest;
    return newest;
}

/* Ends the stream; returns the time after its last heap. */
static int64_t ledger_end(void)
{
    int64_t first = INT64_MAX, end = ledger_newest() + 1;

    if (ledger.n == 0)
        return NO_END;
    for (size_t i = 0; i < ledger.n; i++)
        first = ledger.times[i] < first ? ledger.times[i] : first;
    ledger.n_expected += (uint64_t)(end - first) * config.layout.n_sources;
    ledger.n = 0;
    return end;
}

/* The counters before a packet. */
struct jumps {
    uint64_t n, gap_samples;
};

static struct jumps count_jumps(void)
{
    return (struct jumps){counter_get(&stats.jumps), counter_get(&stats.gap_samples)};
}

/* Whether there was a jump since, other than over a gap. */
static bool has_restarted(struct jumps before, int64_t time)
{
    struct jumps now = count_jumps();

    return now.n > before.n && (time < ledger_newest() || now.gap_samples > before.gap_samples);
}

/* Notes what has become of a heap's packet.  Returns the end of the stream which that packet ended, or NO_END. */
static int64_t ledger_follow(int64_t time, enum reject reject, struct jumps before)
{
    int64_t end = NO_END;

    if (reject == REJECT_JUMP || reject == REJECT_CLOCK || reject == REJECT_TOO_OLD)
        return NO_END;
    if (has_restarted(before, time))
        end = ledger_end();
    ledger_note(time);
    return end;
}

/* Whether a chunk knows how many times it has in a stream that ends before 'end'. */
static void check_n_times(const struct chunk *chunk, int64_t end)
{
    int64_t time = chunk->timestamp_samples / config.layout.heap_samples;
    size_t n_times = 0;

    for (size_t i = 0; i < config.layout.n_heaps_per_source; i++)
        n_times += time + (int64_t)i < end;
    ck_assert_uint_gt(n_times, 0);
    ck_assert_uint_eq(chunk->n_times, n_times);
}

/* Puts back what was handed on, having looked at its times; returns how many heaps were in it. */
static uint64_t drain_until(int64_t end)
{
    struct chunk *chunk;
    uint64_t n_present = 0;

    while ((chunk = next_full())) {
        check_n_times(chunk, end);
        n_present += chunk->n_present;
        put_full(chunk);
    }
    return n_present;
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

enum {
    MODEL_CHUNKS = 12,
    MODEL_SOURCES_MAX = 3,
    MODEL_HEAPS_MAX = 12,
    MODEL_HEAP_BYTES_MAX = 1400,
    MODEL_PACKETS_MAX = 60000
};

static struct {
    struct {
        bool open;                            /* an admitted packet lies in it */
        size_t n_complete[MODEL_SOURCES_MAX]; /* heaps */
        struct {
            uint8_t arrived[MODEL_HEAP_BYTES_MAX];
            uint8_t bytes[MODEL_HEAP_BYTES_MAX];
            uint32_t extra;
            bool contested;
        } heaps[MODEL_HEAPS_MAX];
    } chunks[MODEL_CHUNKS];
    int64_t base;                  /* chunk index of chunks[0] */
    int64_t first, oldest, newest; /* indices in chunks; first < 0: no packet yet */
    uint64_t n_heaps_on, n_chunks_on, n_incomplete, n_contested;
    bool confirmed; /* a source has had half of a chunk: from then on gaps are known as such */
} model;

struct test_packet {
    struct assemble_packet packet;
    uint8_t salt;  /* makes the bytes of each packet its own: a duplicate carries other bytes */
    bool contests; /* and whoever receives it says so */
    unsigned sort;
};

static uint8_t byte_of(const struct test_packet *p, uint64_t offset)
{
    return (uint8_t)(p->salt + 31 * p->packet.source + 7 * (p->packet.offset + offset) + (uint64_t)p->packet.timestamp);
}

static size_t count_arrived(size_t chunk, size_t heap)
{
    size_t n = 0;

    for (size_t i = 0; i < config.layout.heap_bytes; i++)
        n += model.chunks[chunk].heaps[heap].arrived[i];
    return n;
}

static bool model_has(size_t chunk, size_t heap)
{
    return count_arrived(chunk, heap) == config.layout.heap_bytes && !model.chunks[chunk].heaps[heap].contested;
}

/* The model's chunk 'k' leaves: it must come out now, or stay in if none of its heaps is complete. */
static void check_leaving(int64_t k, int64_t end)
{
    size_t n_heaps = config.layout.n_heaps_per_source * config.layout.n_sources;
    size_t heap_bytes = config.layout.heap_bytes;
    size_t n_present = 0;

    for (size_t heap = 0; heap < n_heaps; heap++) {
        size_t n_arrived = count_arrived((size_t)k, heap);

        n_present += model_has((size_t)k, heap);
        model.n_incomplete += n_arrived > 0 && n_arrived < heap_bytes && !model.chunks[k].heaps[heap].contested;
    }
    if (n_present == 0)
        return;
    struct chunk *chunk = next_full();
    ck_assert_ptr_nonnull(chunk);
    ck_assert_int_eq(chunk->timestamp_samples, (model.base + k) * assemble_chunk_samples(&config.layout));
    ck_assert_uint_eq(chunk->n_present, n_present);
    check_n_times(chunk, end);
    for (size_t heap = 0; heap < n_heaps; heap++) {
        bool present = model_has((size_t)k, heap);

        ck_assert_uint_eq(chunk->present[heap], present);
        ck_assert_uint_eq(chunk->extra[heap], present ? model.chunks[k].heaps[heap].extra : 0);
        if (present)
            ck_assert_mem_eq(chunk->payload + heap * heap_bytes, model.chunks[k].heaps[heap].bytes, heap_bytes);
    }
    model.n_heaps_on += n_present;
    model.n_chunks_on++;
    put_full(chunk);
}

/* A duplicate: the first copy lies where the packet would, if all of its bytes had arrived. */
static void contest(const struct test_packet *p)
{
    struct assemble_place place;
    size_t n_arrived = 0;

    assemble_place(&config.layout, &p->packet, &place);
    int64_t k = place.chunk - model.base;
    for (uint64_t i = 0; i < p->packet.n_bytes; i++)
        n_arrived += model.chunks[k].heaps[place.heap].arrived[p->packet.offset + i];
    const uint8_t *first = assembler_duplicate_of(assembler);
    ck_assert_int_eq(first != NULL, n_arrived == p->packet.n_bytes);
    for (uint64_t i = 0; first && i < p->packet.n_bytes; i++)
        ck_assert_uint_eq(first[i], model.chunks[k].heaps[place.heap].bytes[p->packet.offset + i]);
    if (!p->contests)
        return;
    assembler_contest(assembler, &p->packet);
    model.n_contested += !model.chunks[k].heaps[place.heap].contested;
    model.chunks[k].heaps[place.heap].contested = true;
}

/* What must become of a packet, by the words of assemble.h.  Moves the model's window. */
static enum reject model_admit(const struct test_packet *p, bool *was_open)
{
    int64_t n_window = config.window_chunks;
    struct assemble_place place;

    ck_assert_int_eq(assemble_place(&config.layout, &p->packet, &place), REJECT_NONE);
    int64_t k = place.chunk - model.base;
    if (model.first < 0)
        model.first = model.oldest = model.newest = k;
    *was_open = false;
    if (k < model.oldest)
        return k >= model.oldest - n_window ? REJECT_TOO_OLD : REJECT_JUMP;
    if (k >= model.oldest + 2 * n_window && !model.confirmed)
        return REJECT_JUMP;
    if (k >= model.oldest + 2 * n_window) { /* a gap: the time has passed for it */
        for (int64_t open = model.oldest; open < model.oldest + n_window; open++)
            check_leaving(open, NO_END);
        model.oldest = k;
    }
    for (; model.oldest + n_window <= k; model.oldest++)
        check_leaving(model.oldest, NO_END);
    if (k > model.newest)
        model.newest = k;
    *was_open = model.chunks[k].open;
    model.chunks[k].open = true;
    for (uint64_t i = 0; i < p->packet.n_bytes; i++)
        if (model.chunks[k].heaps[place.heap].arrived[p->packet.offset + i])
            return REJECT_DUPLICATE;
    for (uint64_t i = 0; i < p->packet.n_bytes; i++) {
        model.chunks[k].heaps[place.heap].arrived[p->packet.offset + i] = 1;
        model.chunks[k].heaps[place.heap].bytes[p->packet.offset + i] = byte_of(p, i);
    }
    model.chunks[k].heaps[place.heap].extra = p->packet.extra;
    size_t *n_complete = &model.chunks[k].n_complete[p->packet.source];
    *n_complete += model_has((size_t)k, place.heap);
    model.confirmed = model.confirmed || 2 * *n_complete >= config.layout.n_heaps_per_source;
    return REJECT_NONE;
}

static unsigned below(unsigned *seed, unsigned n)
{
    return (unsigned)rand_r(seed) % n;
}

/* All packets of a heap in pieces of random size, some lost, some twice, some that overlap others. */
static size_t make_heap(struct test_packet *packets, unsigned source, int64_t timestamp, unsigned *seed, unsigned sort)
{
    static const unsigned sizes[] = {8, 16, 64, 504, 512, 520, 1024, 4096};
    uint64_t heap_bytes = config.layout.heap_bytes;
    uint64_t piece = sizes[below(seed, ARRAY_LEN(sizes))];
    unsigned loss_percent = below(seed, 3) == 0 ? 20 : 0;
    size_t n = 0;

    for (uint64_t offset = 0; offset < heap_bytes; offset += piece) {
        unsigned fate = below(seed, 100);
        unsigned copies = fate < loss_percent ? 0 : fate >= 95 ? 2 : 1;

        for (unsigned i = 0; i < copies; i++)
            packets[n++] = (struct test_packet){.packet = {source, timestamp, heap_bytes, offset,
                                                           offset + piece < heap_bytes ? piece : heap_bytes - offset,
                                                           (uint32_t)rand_r(seed)},
                                                .sort = sort + below(seed, 40)};
    }
    if (below(seed, 10) == 0) {
        uint64_t offset = 8 * below(seed, (unsigned)(heap_bytes + 7) / 8);
        uint64_t n_bytes = 8 + 8 * below(seed, 20);

        packets[n++] = (struct test_packet){.packet = {source, timestamp, heap_bytes, offset,
                                                       offset + n_bytes < heap_bytes ? n_bytes : heap_bytes - offset,
                                                       (uint32_t)rand_r(seed)},
                                            .sort = sort + below(seed, 40)};
    }
    for (size_t i = 0; i < n; i++) {
        packets[i].salt = (uint8_t)rand_r(seed);
        packets[i].contests = below(seed, 2);
    }
    return n;
}

static int compare_sort(const void *a, const void *b)
{
    const struct test_packet *p = a, *q = b;

    return p->sort < q->sort ? -1 : p->sort > q->sort;
}

/* The packets of a run, out of order by anything from nothing to some chunks, with holes of whole chunks.  The first
 * and the last may be in the middle of a chunk. */
static size_t make_packets(struct test_packet *packets, unsigned *seed)
{
    const struct assemble_layout *layout = &config.layout;
    unsigned disorder = (unsigned[]){0, 1, 3, 30}[below(seed, 4)];
    size_t n_before = below(seed, (unsigned)layout->n_heaps_per_source);
    size_t n_at_end = 1 + below(seed, (unsigned)layout->n_heaps_per_source);
    size_t n = 0;

    for (int64_t k = 0; k < MODEL_CHUNKS; k++) {
        if (k > 0 && below(seed, 8) == 0)
            continue;
        size_t n_times = k < MODEL_CHUNKS - 1 ? layout->n_heaps_per_source : n_at_end;
        for (size_t t = k > 0 ? 0 : n_before; t < n_times; t++)
            for (unsigned source = 0; source < layout->n_sources; source++) {
                int64_t time = (model.base + k) * (int64_t)layout->n_heaps_per_source + (int64_t)t;
                unsigned sort = 40 * (unsigned)(k * (int64_t)layout->n_heaps_per_source + (int64_t)t);

                n += make_heap(packets + n, source, time * layout->heap_samples, seed,
                               sort + (disorder ? below(seed, 40 * disorder) : 0));
                ck_assert_uint_le(n + 2 * MODEL_HEAP_BYTES_MAX / 8 + 1, MODEL_PACKETS_MAX);
            }
    }
    if (disorder)
        qsort(packets, n, sizeof(packets[0]), compare_sort);
    return n;
}

static void check_run(unsigned *seed)
{
    static const size_t heap_sizes[] = {8, 5, 13, 24, 504, 512, 513, 1000, 1024, MODEL_HEAP_BYTES_MAX};
    static struct test_packet packets[MODEL_PACKETS_MAX];
    const struct assemble_layout layout = {
        .heap_samples = 1 + below(seed, 5000),
        .heap_bytes = heap_sizes[below(seed, ARRAY_LEN(heap_sizes))],
        .n_heaps_per_source = 1 + below(seed, 4),
        .n_sources = 1 + below(seed, 3),
    };
    uint64_t n_rejects[N_REJECTS] = {0};

    prepare_assembler(layout, 1 + below(seed, 3), 4);
    config.jump_heaps = 1000; /* only the bare window here */
    create_assembler();
    memset(&model, 0, sizeof(model));
    model.first = -1;
    model.base = rand_r(seed);
    size_t n = make_packets(packets, seed);
    n_missing_told = 0;

    for (size_t i = 0; i < n; i++) {
        const struct test_packet *p = &packets[i];
        uint8_t *payload = NULL;
        bool was_open;

        uint8_t *expected_at = assembler_expect(assembler, &p->packet);
        arrival_ns += assemble_chunk_samples(&layout) * MODEL_CHUNKS; /* late enough for anything to be due */
        enum reject reject = assembler_admit(assembler, &p->packet, arrival_ns, &payload);
        enum reject expected = model_admit(p, &was_open);
        ck_assert_msg(reject == expected, "packet %zu: %s, not %s", i, reject_name(reject), reject_name(expected));
        ck_assert_ptr_eq(expected_at, !reject && was_open ? payload : NULL);
        n_rejects[reject]++;
        ledger_follow(p->packet.timestamp / layout.heap_samples, reject, count_jumps());
        if (reject)
            ck_assert_ptr_null(payload);
        if (reject == REJECT_DUPLICATE)
            contest(p);
        for (uint64_t k = 0; !reject && k < p->packet.n_bytes; k++)
            payload[k] = byte_of(p, k);
    }
    assembler_flush(assembler);
    int64_t end = ledger_end();
    for (; model.first >= 0 && model.oldest <= model.newest; model.oldest++)
        check_leaving(model.oldest, end);
    ck_assert_ptr_null(next_full());

    for (int i = 1; i < N_REJECTS; i++)
        ck_assert_uint_eq(counter_get(&stats.rejects[i]), n_rejects[i]);
    ck_assert_uint_eq(counter_get(&stats.heaps), model.n_heaps_on);
    ck_assert_uint_eq(counter_get(&stats.bytes), model.n_heaps_on * layout.heap_bytes);
    ck_assert_uint_eq(counter_get(&stats.chunks), model.n_chunks_on);
    ck_assert_uint_eq(counter_get(&stats.incomplete_heaps), model.n_incomplete);
    ck_assert_uint_eq(counter_get(&stats.contested_heaps), model.n_contested);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), ledger.n_expected - model.n_heaps_on);
    /* Those behind the last chunk handed on are untold. */
    ck_assert_uint_le(n_missing_told, counter_get(&stats.missing_heaps));
}

TEST(chunks_are_what_the_model_says)
{
    unsigned seed = (unsigned)getpid();

    fprintf(stderr, "seed %u\n", seed); /* at once: a failure ends the process */
    for (int i = 0; i < 400; i++)
        check_run(&seed);
}

/* ---- Heaps ------------------------------------------------------------------------------------------------------- */

/* However often the other packets come, the hole stays; and what fills it completes the heap. */
TEST(duplicate_never_completes_a_holed_heap)
{
    enum { HEAP_BYTES = 1037, PACKET_BYTES = 72, N_PACKETS = (HEAP_BYTES + PACKET_BYTES - 1) / PACKET_BYTES };
    const struct assemble_layout layout = {
        .heap_samples = 16, .heap_bytes = HEAP_BYTES, .n_heaps_per_source = 1, .n_sources = 1};

    for (unsigned hole = 0; hole < N_PACKETS; hole++) {
        make_assembler(layout, 1, 2);
        for (unsigned round = 0; round < 3; round++)
            for (unsigned i = 0; i < N_PACKETS; i++) {
                uint64_t offset = i * PACKET_BYTES;
                uint64_t n_bytes = offset + PACKET_BYTES < HEAP_BYTES ? PACKET_BYTES : HEAP_BYTES - offset;

                if (i != hole)
                    ck_assert_int_eq(admit_range(0, 0, offset, n_bytes), round == 0 ? REJECT_NONE : REJECT_DUPLICATE);
            }
        ck_assert_int_eq(admit_heap(0, 0), REJECT_DUPLICATE);
        assembler_flush(assembler);
        ck_assert_uint_eq(drain(), 0);
        ck_assert_uint_eq(counter_get(&stats.incomplete_heaps), 1);
        ck_assert_uint_eq(counter_get(&stats.missing_heaps), 1);
        ck_assert_uint_eq(counter_get(&stats.rejects[REJECT_DUPLICATE]), 2 * (N_PACKETS - 1) + 1);
    }
}

/* ---- Free chunks ------------------------------------------------------------------------------------------------- */

TEST(without_a_free_chunk_heaps_are_lost_and_counted)
{
    const struct assemble_layout layout = {
        .heap_samples = 16, .heap_bytes = 8, .n_heaps_per_source = 400, .n_sources = 1};
    int64_t chunk_samples = assemble_chunk_samples(&layout);
    struct inbox_item borrowed;
    unsigned n_lost = 0;

    make_assembler(layout, 1, 1);
    ck_assert_int_eq(admit_heap(0, 0), REJECT_NONE);
    /* The only chunk goes to the worker when the window moves on. */
    for (int64_t t = 0; t < 100; t++)
        ck_assert_int_eq(admit_heap(0, chunk_samples + 16 * t), REJECT_NO_CHUNK);
    ck_assert_int_eq(inbox_try_pop(worker, &borrowed), 0);
    buffer_ref_put(&((struct chunk *)borrowed.object)->ref);
    /* It is back, and taken within 64 packets. */
    for (int64_t t = 100; t < 200; t++)
        n_lost += admit_heap(0, chunk_samples + 16 * t) == REJECT_NO_CHUNK;
    ck_assert_uint_le(n_lost, 64);
    ck_assert_uint_eq(counter_get(&stats.rejects[REJECT_NO_CHUNK]), 100 + n_lost);
    /* When the window moves on, it is asked for at once. */
    ck_assert_int_eq(admit_heap(0, 2 * chunk_samples), REJECT_NO_CHUNK);
    ck_assert_uint_eq(drain(), 1);
    ck_assert_int_eq(admit_heap(0, 3 * chunk_samples), REJECT_NONE);
    assembler_flush(assembler);
    ck_assert_uint_eq(drain(), 1);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 399 + (400 - (100 - n_lost)) + 400);
}

TEST(chunk_without_a_complete_heap_is_used_again)
{
    const struct assemble_layout layout = {
        .heap_samples = 16, .heap_bytes = 16, .n_heaps_per_source = 2, .n_sources = 1};

    make_assembler(layout, 1, 1);
    for (int64_t chunk = 0; chunk < 10; chunk++)
        ck_assert_int_eq(admit_range(0, 32 * chunk, 0, 8), REJECT_NONE);
    ck_assert_int_eq(admit_heap(0, 32 * 10), REJECT_NONE);
    assembler_flush(assembler);
    ck_assert_uint_eq(drain(), 1);
    ck_assert_uint_eq(counter_get(&stats.incomplete_heaps), 10);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 20);
    ck_assert_uint_eq(n_missing_told, 20);
}

TEST(waiting_ends_when_the_inbox_is_stopped)
{
    const struct assemble_layout layout = {
        .heap_samples = 16, .heap_bytes = 8, .n_heaps_per_source = 1, .n_sources = 1};

    prepare_assembler(layout, 1, 1);
    config.may_wait = true;
    create_assembler();
    inbox_stop(return_to);
    ck_assert_int_eq(admit_heap(0, 0), REJECT_NONE);
    ck_assert_int_eq(admit_heap(0, 16), REJECT_NO_CHUNK);
    assembler_flush(assembler);
    ck_assert_uint_eq(drain(), 1);
}

/* ---- Jumps ------------------------------------------------------------------------------------------------------- */

/* Heaps of two sources.  A falls silent after its first heap. */
#define SILENT_A     "@101A100 B100 @104B103 @107B106 @110B109 @113B112 @116B115 @119B118 @122B121 "
#define SILENT_A_OUT "........."

/* Chunks of 2 heaps a source, a window of 2 chunks, jumps believed after 3 heaps.  "A40x3" is source A's heaps 40, 41
 * and 42.  They arrive at once, but for '~', in which the time of a window passes, and "@60", which is the time of heap
 * 60.  Chunk 100 is confirmed at its first heap, so its middle is at lead 0 if that arrives at @101.
 * The fate of each: '.' placed, 'o' too old, 'j' a jump not believed, 'J' believed, 'G' a gap, 'd' duplicate,
 * 'h' held. */
static const struct jump_scenario {
    const char *what;
    unsigned n_sources, jump_sources;
    const char *in;
    const char *out;
    uint64_t n_missing; /* after the flush */
    bool recording;
} jump_scenarios[] = {
    {"the window's edges ahead", 1, 1, "@101A100 @104A103 @108A107", "...", 8 - 3},
    {"the window's edges behind", 1, 1, "A100 A99 A96 A95", ".ooj", 0},
    {"the first heap is not the earliest", 1, 1, "@101A101 @104A103 A100 A99", "...o", 4 - 3},
    {"a gap, as long as the time that passed", 1, 1, "@101A100 @201A200x2", ".G.", 102 - 3},
    {"a gap of whole chunks", 1, 1, "@101A100x2 @109A108 @125A124", "..GG", 25 - 4},
    {"a gap in which less time seems to have passed", 1, 1, "@101A100 @190A200x2", ".jj", 0},
    {"a gap in all sources", 3, 2, "@101A100 B100 C100 @201A200 B200 C200 A201", "...G...", 3 * 102 - 7},
    {"one of three comes back alone", 3, 2, "@101A100 B100 C100 @201B200 B201", "...G.", 3 * 102 - 5},
    {"ahead of its time", 1, 1, "@101A100 A101 A106 A102", "..j.", 0},
    {"ahead of its time by less than half a chunk", 1, 1, "@104A103 A104", "..", 0},
    {"the next heap, as fast as it likes", 1, 1, "@101A100x9", ".........", 0},
    {"the next heap but one", 1, 1, "@101A100 A102 A104", "...", 5 - 3},
    {"ahead of its time, for longer than a window", 1, 1, "@101A100 ~A115x4", ".jjJ.", 0},
    {"a source that joins, ahead of the other by more than a chunk", 2, 2,
     "@101A100 A101 @103A102 A103 B106 @104A104 B107 @105A105 B108 @106A106 B109 @107A107 B110 B111", "....j.j.......",
     2 * 12 - 12},
    {"a source that gets ahead of the other while both are heard", 2, 2,
     "@101A100 B100 A101 B101 @103A102 B102 B106 B107 B108 B103 A103 B109 B110", "......jjj..jj", 2 * 4 - 8},
    {"forward", 1, 1, "A100 ~A200x5", ".jjJ..", 0},
    {"forward, to the end of a chunk", 1, 1, "A100 ~A201x4", ".jjJ.", 0},
    {"forward, while it is still heard", 1, 1, "A100 A200x9 A101 A209x9", ".jjjjjjjjj.jjjjjjjjj", 0},
    {"back", 1, 1, "A200x2 ~A100x5", "..jjJ..", 0},
    {"back, while it is still heard", 1, 1, "A200x2 A100x9 A202", "..jjjjjjjjj.", 0},
    {"back, to the end of a chunk", 1, 1, "A200x2 ~A99x3 A104", "..jjJj", 0},
    {"the gap of a jump back is not missing", 1, 1, "A200x2 ~A100x4", "..jjJ.", 0},
    {"a stream ends with its newest heap", 1, 1, "A201 A202 A204 A203 ~A100x3", "....jjJ", 0},
    {"back, then forward", 1, 1, "A200 ~A100x3 ~A300x4", ".jjJjjJ.", 0},
    {"forward, then back", 1, 1, "A100 ~A200x3 ~A50x3 A53", ".jjJjjJ.", 0},
    {"packets of one heap count once", 1, 1, "A100 ~A200 A200 A200 A200 A201 A201 A202", ".jjjjjjJ", 0},
    {"overtaken heaps do not count", 1, 1, "A100 ~A201 A200 A201 A200 A201 A202 A203", ".jjjjjjJ", 0},
    {"a stuck clock is never believed", 1, 1, "A100 ~A200 A200 A200 A200 A200 A200 A200", ".jjjjjjj", 0},
    {"heaps must be near each other", 1, 1, "A100 ~A200 A205 A209 A215 A219", ".jjjjj", 0},
    {"anything near ends the claim", 1, 1, "A100 ~A200x2 A101 A200x2 A99 ~A200x3", ".jj.jjojjJ", 0},
    {"fewer sources than must agree", 1, 2, "A100 ~A200x3", ".jjJ", 0},
    {"one mad source among two", 2, 2, "A100 B100 A200 B101 A201 B102 A202 B103 A203 B104 A204 B105", "..j.j.j.j.j.",
     2 * 6 - 7},
    {"one mad source among two, though one would be enough", 2, 1,
     "A100 B100 A200 B101 A201 B102 A202 B103 A203 B104 A204 B105", "..j.j.j.j.j.", 2 * 6 - 7},
    {"both sources jump", 2, 2, "A100 B100 ~A200 B200 A201 B201 A202 B202 A203 B203", "..jjjjJ...", 0},
    {"both sources jump, one well before the other", 2, 2, "A100 B100 ~A200x4 B200x4", "..jjJ.oo..", 2 * 2 - 4},
    {"both sources jump back", 2, 2, "A200 B201 ~A101 B101 A102 B102 A103 B103 B104 A102", "..jjjjJ...", 2 * 3 - 4 + 2},
    {"alone, a source is believed", 2, 2, "A100 A101 ~A200x4", "..jjJ.", 2 * 2 - 2 + 2 * 2 - 2},
    {"alone after it was outvoted", 2, 2, "A100 B100 A200 B101 A201 B102 A202 B103 ~A203x6", "..j.j.j.jjjjjJ",
     2 * 4 - 5 + 1},
    {"two of three", 3, 2, "A100 B100 C100 ~A200 B101 C200 A201 B102 C201 A202 B103 C202 A203", "...j.jj.jj.J.",
     3 * 4 - 6 + 3 * 2 - 2},
    {"two pairs that contradict each other", 4, 2,
     "A100 B100 C100 D100 ~A200 B101 C200 D101 A201 B102 C201 D102 A202 B103 C202 D103 A203 B104 C203 D104",
     "....j.j.j.j.j.j.j.j.", 4 * 5 - 12},
    {"a clock that is a little fast costs itself alone", 2, 2,
     "A100 B100 A106 B101 A107 B102 A104 B103 A105 B104 A106 B105", "..j.j.......", 2 * 7 - 10},
    {"two sources that jump apart", 3, 2, "A100 B100 C100 A200 B300 C101 A201 B301 C102 A202 B302 C103 A203 B303",
     "...jj.jj.jj.jj", 3 * 4 - 6},
    {"an old burst of one source between heaps of the other", 2, 2, "A200 B200 A100x20 B201 A120x20 A201",
     "..jjjjjjjjjjjjjjjjjjjj.jjjjjjjjjjjjjjjjjjjj.", 2 * 2 - 4},
    {"an old burst as long as a window lasts", 2, 2, "A200 B200 A100x9 ~A109x3", "..jjjjjjjjjJ..", 2 * 3 - 3},
    /* A is silent from @101 until @130, and B from @122 on.  The window begins at 118, and the late heaps at 114. */
    {"a backlog", 2, 2, SILENT_A "@130A101x13", SILENT_A_OUT "jjjjjjjjjjjjj", 2 * 22 - 9},
    {"a backlog that reaches the window", 2, 2, SILENT_A "@130A101x20", SILENT_A_OUT "jjjjjjjjjjjjjoooo...",
     2 * 22 - 9 - 3},
    {"a source that stays late", 2, 2, SILENT_A "@130A101x6 @158A107x2 @159A109", SILENT_A_OUT "jjjjjjjjJ", 2 * 22 - 9 + 1},
    {"a source that went back while it was silent", 2, 2, SILENT_A "@130A60x4", SILENT_A_OUT "jjJ.", 2 * 22 - 9 + 2},
    {"a source that went back while it was silent for long", 2, 2,
     "A100 B100 @1000000000B999999999x3 A101x3 @1625000001A104", "..G..jjjJ", 2 * (1000000002 - 100) - 5 + 1},
    {"a burst of two sources that agree", 3, 2, "A200 B200 C200 A100x5 B100x4", "...jjjjjjjjj", 0},
    /* Recordings: their packets come in no time, and nothing of what follows a gap is lost. */
    {"a recording: forward", 1, 1, "A100 A200x5", ".hhJ..", 105 - 6, true},
    {"a recording: forward, from the middle of a chunk", 1, 1, "A100 A201x4", ".hhJ.", 105 - 5, true},
    {"a recording: back", 1, 1, "A200x2 A100x5", "..hhJ..", 0, true},
    {"a recording: just beyond the edge ahead", 1, 1, "A100 A108", ".h", 0, true},
    {"a recording: anything near ends the claim", 1, 1, "A100 A200x2 A101 A200x3", ".hh.hhJ", 103 - 5, true},
    {"a recording: heaps that are not near each other", 1, 1, "A100 A200 A205x3", ".hhhJ", 108 - 4, true},
    {"a recording: two sources jump", 2, 2, "A200 B200 A100x5", "..hhJ..", 2 * 5 - 5, true},
    {"a recording: both sources, in turn", 2, 2, "A100 B100 A200 B200 A201 B201 A202 B202 A203 B203", "..hhhhJ...",
     2 * 104 - 10, true},
    {"a recording: one mad source among two", 2, 2, "A100 B100 A200 B101 A201 B102 A202 B103", "..h.h.h.", 2 * 4 - 5,
     true},
    {"a recording: over more than a window", 1, 1, "A100 A200 A203 A206 A209 A213", ".hhJ..", 114 - 6, true},
};

TEST(jumps_are_believed_when_they_should_be, .end = ARRAY_LEN(jump_scenarios))
{
    const struct jump_scenario *scenario = &jump_scenarios[_i];
    const struct assemble_layout layout = {
        .heap_samples = 16, .heap_bytes = 8, .n_heaps_per_source = 2, .n_sources = scenario->n_sources};
    static const char letters[N_REJECTS] = {
        [REJECT_NONE] = '.', [REJECT_TOO_OLD] = 'o', [REJECT_JUMP] = 'j', [REJECT_DUPLICATE] = 'd'};
    const char *in = scenario->in;
    char out[200];
    size_t n = 0;
    uint64_t n_heaps_on = 0;

    prepare_assembler(layout, 2, 16);
    config.jump_heaps = 3;
    config.jump_sources = scenario->jump_sources;
    config.may_wait = scenario->recording;
    create_assembler();
    while (*in) {
        if (*in == '~') {
            arrival_ns += timebase_duration_ns(&config.timebase, 2 * assemble_chunk_samples(&layout));
            in++;
        }
        if (*in == '@') {
            char *end;
            arrival_ns = 16 * strtol(in + 1, &end, 10);
            in = end;
        }
        unsigned source = (unsigned)(*in++ - 'A');
        char *end;
        long heap = strtol(in, &end, 10);
        long count = *end == 'x' ? strtol(end + 1, &end, 10) : 1;

        for (; count > 0; count--, heap++) {
            struct jumps before = count_jumps();
            enum reject reject = admit_heap(source, 16 * heap);
            bool jumped = count_jumps().n > before.n;

            out[n++] = !reject && !is_placed()                              ? 'h'
                       : !jumped                                            ? letters[reject]
                       : scenario->recording || has_restarted(before, heap) ? 'J'
                                                                            : 'G';
            if (scenario->recording)
                drain();
            else
                n_heaps_on += drain_until(ledger_follow(heap, reject, before));
        }
        in = end + (*end == ' ');
    }
    out[n] = '\0';
    ck_assert_msg(strcmp(out, scenario->out) == 0, "%s: got \"%s\"", scenario->what, out);
    assembler_flush(assembler);
    ck_assert_msg(counter_get(&stats.missing_heaps) == scenario->n_missing, "%s: %d missing", scenario->what,
                  (int)counter_get(&stats.missing_heaps));
    if (scenario->recording) {
        drain();
    } else {
        n_heaps_on += drain_until(ledger_end());
        ck_assert_uint_eq(ledger.n_expected - n_heaps_on, scenario->n_missing);
    }
}

static const int64_t period = INT64_C(1) << TIMESTAMP_WIRE_BITS;
static const int64_t half_period = INT64_C(1) << (TIMESTAMP_WIRE_BITS - 1);

static uint64_t on_the_wire(int64_t timestamp)
{
    return (uint64_t)(timestamp & (period - 1));
}

/* ---- Time that passes -------------------------------------------------------------------------------------------- */

/* The state of the kernel's clock, for this test. */
static int clock_state = TIME_ERROR;

int adjtimex(struct timex *timex)
{
    timex->esterror = timex->maxerror = 0;
    return clock_state;
}

static void set_clock_state(int state)
{
    clock_state = state;
    clock_state_read();
}

static const struct assemble_layout timed_layout = {
    .heap_samples = 16, .heap_bytes = 8, .n_heaps_per_source = 4, .n_sources = 1};

/* Chunks of 64 samples, 64 ns; a window of 2. */
static void prepare_timed_assembler(void)
{
    prepare_assembler(timed_layout, 2, 8);
    config.jump_sources = 1;
    arrival_ns = 1000;
}

static size_t pass_time(int64_t now_ns)
{
    assembler_pass_time(assembler, now_ns);
    return drain();
}

TEST(silence_hands_on_what_came_before_it)
{
    struct gauge group = {-1};

    prepare_timed_assembler();
    config.group_timestamp = &group;
    config.patience_chunks = 3;
    create_assembler();
    for (int64_t heap = 0; heap < 7; heap++)
        ck_assert_int_eq(admit_heap(0, 16 * heap), REJECT_NONE);
    /* Another member has gone on, but this one may only be late. */
    gauge_set(&group, 3 * 64);
    ck_assert_uint_eq(pass_time(arrival_ns + 95), 0);
    gauge_set(&group, 2 * 64);
    ck_assert_uint_eq(pass_time(arrival_ns + 1000), 0);
    gauge_set(&group, 3 * 64);
    ck_assert_uint_eq(pass_time(arrival_ns + 96), 2);
    ck_assert_uint_eq(pass_time(arrival_ns + 1000), 0);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 1);
    /* The rest of its chunks is too old; then it goes on, and the absent heaps are missing, no more. */
    ck_assert_int_eq(admit_heap(0, 16 * 7), REJECT_TOO_OLD);
    ck_assert_int_eq(admit_heap(0, 16 * 8), REJECT_NONE);
    arrival_ns += 16 * 5;
    ck_assert_int_eq(admit_heap(0, 16 * 12), REJECT_NONE);
    /* Alone, it is waited for, but not for ever. */
    gauge_set(&group, -1);
    ck_assert_uint_eq(pass_time(arrival_ns + NS_PER_S), 0);
    ck_assert_uint_eq(pass_time(arrival_ns + NS_PER_S + 256), 2);
    arrival_ns += NS_PER_S + 256;
    int64_t resumed = 12 + (NS_PER_S + 256) / 16;
    ck_assert_int_eq(admit_heap(0, 16 * resumed), REJECT_NONE);
    assembler_flush(assembler);
    ck_assert_uint_eq(drain(), 1);
    ck_assert_int_eq(counter_get(&stats.missing_heaps), resumed + 1 - 10);
    ck_assert_uint_eq(counter_get(&stats.gap_samples), 0);
}

/* The timestamp of the group is that of the last chunk that left the window, even if this chunk had no heap. */
TEST(empty_chunks_are_progress)
{
    struct gauge group = {-1};

    prepare_timed_assembler();
    config.group_timestamp = &group;
    config.patience_chunks = 3;
    create_assembler();
    for (int64_t heap = 0; heap < 8; heap++)
        ck_assert_int_eq(admit_heap(0, 16 * heap), REJECT_NONE);
    ck_assert_int_eq(gauge_get(&group), -1); /* two chunks, both open */
    arrival_ns += 16 * 5;
    ck_assert_int_eq(admit_heap(0, 16 * 13), REJECT_NONE); /* chunk 2 is empty */
    ck_assert_int_eq(gauge_get(&group), 64);
    arrival_ns += 16 * 3;
    ck_assert_int_eq(admit_heap(0, 16 * 16), REJECT_NONE);
    ck_assert_int_eq(gauge_get(&group), 2 * 64);
    assembler_flush(assembler);
    ck_assert_uint_eq(drain(), 4);
}

/* Claims there and back, of a stream that fell silent, by a clock that is synchronised or not. */
TEST(claims_that_the_clock_contradicts_are_refused)
{
    static const struct {
        int state;
        int64_t window_off_s, claim_off_s;
        enum reject reject;
    } cases[] = {
        {TIME_OK, 0, 3600, REJECT_CLOCK},    {TIME_OK, 0, -3600, REJECT_CLOCK}, {TIME_OK, 4, 3600, REJECT_CLOCK},
        {TIME_OK, 0, 4, REJECT_NONE},        {TIME_OK, 0, -4, REJECT_NONE},     {TIME_OK, 3600, 0, REJECT_NONE},
        {TIME_OK, 3600, 7200, REJECT_NONE},  {TIME_OK, -7200, 0, REJECT_NONE},  {TIME_ERROR, 0, 3600, REJECT_NONE},
        {TIME_ERROR, 0, -3600, REJECT_NONE},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        prepare_timed_assembler();
        config.timebase.from_packets = false;
        config.timebase.adc_sample_rate_hz = (struct decimal){1000000, 0};
        config.clock_tolerance_ns = 10 * NS_PER_S;
        create_assembler();
        set_clock_state(cases[i].state);
        int64_t now = round_down(timebase_samples_at(&config.timebase, clock_unix_ns()), 64);
        for (int64_t heap = 0; heap < 8; heap++)
            ck_assert_int_eq(admit_heap(0, now + cases[i].window_off_s * 1000000 + 16 * heap), REJECT_NONE);
        arrival_ns += NS_PER_S / 100;
        enum reject reject = REJECT_NONE;
        for (int64_t heap = 0; heap < config.jump_heaps; heap++)
            reject = admit_heap(0, now + cases[i].claim_off_s * 1000000 + 16 * heap);
        ck_assert_msg(reject == cases[i].reject, "case %zu: %s", i, reject_name(reject));
        ck_assert_uint_eq(counter_get(&stats.rejects[REJECT_CLOCK]), reject == REJECT_CLOCK);
        assembler_flush(assembler);
        drain();
    }
}

/* A jump of 2^46 samples is one event, not billions of missing heaps. */
TEST(jump_forward_is_not_missing)
{
    prepare_timed_assembler();
    create_assembler();
    ck_assert_int_eq(admit_heap(0, 0), REJECT_NONE);
    arrival_ns += 1000;
    for (int64_t heap = 0; heap < config.jump_heaps; heap++)
        admit_heap(0, (INT64_C(1) << 46) + 16 * heap);
    assembler_flush(assembler);
    struct chunk *chunk = next_full();
    ck_assert(!chunk->restarts);
    put_full(chunk);
    chunk = next_full();
    ck_assert(chunk->restarts);
    put_full(chunk);
    ck_assert_uint_eq(counter_get(&stats.jumps), 1);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 0);
    ck_assert_uint_eq(counter_get(&stats.gap_samples), (UINT64_C(1) << 46) + 16 * 7 - 16);
}

/* The rest of a chunk that a silence ended is missing; a jump after it leaves out what is behind that chunk. */
TEST(jump_after_silence_counts_each_heap_once)
{
    prepare_timed_assembler();
    create_assembler();
    ck_assert_int_eq(admit_heap(0, 0), REJECT_NONE);
    arrival_ns += NS_PER_S + 256;
    ck_assert_uint_eq(pass_time(arrival_ns), 1);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 3);
    for (int64_t heap = 0; heap < config.jump_heaps; heap++)
        admit_heap(0, (INT64_C(1) << 46) + 16 * heap);
    ck_assert_uint_eq(counter_get(&stats.jumps), 1);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 3);
    ck_assert_uint_eq(counter_get(&stats.gap_samples), (UINT64_C(1) << 46) + 16 * 7 - 64);
    assembler_flush(assembler);
    drain();
}

/* Strangers' far heaps in bursts, while the source itself goes on: none is believed, and no heap of the source's is
 * lost. */
TEST(bursts_of_a_stranger_cost_nothing)
{
    unsigned seed = (unsigned)getpid();

    fprintf(stderr, "seed %u\n", seed);
    prepare_timed_assembler();
    create_assembler();
    for (int64_t heap = 0; heap < 20000; heap++) {
        arrival_ns = 1000 + 16 * heap + below(&seed, 60); /* late by up to 4 heaps */
        ck_assert_int_eq(admit_heap(0, 16 * heap), REJECT_NONE);
        drain();
        if (heap < 8)
            continue;
        int64_t far = (int64_t[]){10, -10, 3, 1000000, -1000000, INT64_C(1) << 36}[below(&seed, 6)];
        for (unsigned n = below(&seed, 3) ? 0 : below(&seed, 40); n > 0; n--)
            ck_assert_int_ne(admit_heap(0, 64 * (heap / 4 + far) + 16 * (40 - n)), REJECT_NONE);
    }
    assembler_flush(assembler);
    drain();
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 0);
    ck_assert_uint_eq(counter_get(&stats.jumps), 0);
}

/* Timestamps that were unwrapped by a clock 10 years off are put right when the clock is. */
TEST(wrong_clock_at_the_start_is_put_right)
{
    const int64_t ten_years = INT64_C(10) * 365 * 86400 * 1000000;

    prepare_timed_assembler();
    config.timebase.from_packets = false;
    config.timebase.adc_sample_rate_hz = (struct decimal){1000000, 0};
    create_assembler();
    set_clock_state(TIME_ERROR);
    int64_t now = round_down(timebase_samples_at(&config.timebase, clock_unix_ns()), 64);
    int64_t wrong = timebase_unwrap(on_the_wire(now), now + ten_years);
    ck_assert_int_eq((wrong - now) % period, 0);
    ck_assert_int_ne(wrong, now);
    for (int64_t heap = 0; heap < 4; heap++)
        ck_assert_int_eq(admit_heap(0, assembler_unwrap(assembler, on_the_wire(wrong + 16 * heap), arrival_ns)),
                         REJECT_NONE);
    assembler_flush(assembler);
    for (int64_t heap = 0; heap < 4; heap++)
        ck_assert_int_eq(admit_heap(0, wrong + 16 * heap), REJECT_NONE);
    drain();
    /* Nobody can tell yet. */
    assembler_pass_time(assembler, arrival_ns + 2 * NS_PER_S / 1000);
    ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(now + 64), arrival_ns), wrong + 64);
    set_clock_state(TIME_OK);
    arrival_ns += 3 * NS_PER_S;
    ck_assert_uint_eq(pass_time(arrival_ns), 1); /* the silence does that */
    ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(now + 64), arrival_ns), wrong + 64);
    for (int i = 1; i < 3; i++)
        assembler_pass_time(assembler, arrival_ns += NS_PER_S);
    ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(now + 64), arrival_ns), now + 64);
    ck_assert_int_eq(admit_heap(0, now + 64), REJECT_NONE);
    /* And it stays so. */
    ck_assert_uint_eq(pass_time(arrival_ns + 10 * NS_PER_S), 1);
    ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(now + 128), arrival_ns), now + 128);
    assembler_flush(assembler);
    drain();
}

/* ---- First and last ---------------------------------------------------------------------------------------------- */

/* Chunks of 5 heaps a source, a window of 3 chunks, flushed at the end: which chunks come out, with how many times.
 * Heaps as above; 'a12' is a heap with a hole. */
static const struct end_scenario {
    const char *what;
    unsigned n_sources;
    size_t n_chunks; /* in the pool */
    const char *in;
    const char *out; /* first time of each chunk, and its times */
    uint64_t n_missing;
} end_scenarios[] = {
    {"one heap", 1, 4, "A12", "10:3", 0},
    {"the first of a chunk", 1, 4, "A10", "10:1", 0},
    {"the last of a chunk", 1, 4, "A14", "10:5", 0},
    {"on the middle of a chunk", 1, 4, "A10x3", "10:3", 0},
    {"on the end of a chunk", 1, 4, "A10x5", "10:5", 0},
    {"just beyond the end of a chunk", 1, 4, "A10x6", "10:5 15:1", 0},
    {"several chunks, from middle to middle", 1, 4, "A12x10", "10:5 15:5 20:2", 0},
    {"several chunks with holes", 1, 4, "A12 A15 A17 A22", "10:5 15:5 20:3", 11 - 4},
    {"a chunk of which nothing came", 1, 4, "A12 A23", "10:5 20:4", 12 - 2},
    {"the last slot of the window is not begun", 1, 4, "A13 A16", "10:5 15:2", 4 - 2},
    {"the newest did not come last", 1, 4, "A12 A17 A11 A16 A10", "10:5 15:3", 8 - 5},
    {"the window has moved on", 1, 4, "A12 A28 A16 A31", "10:5 15:5 25:5 30:2", 20 - 4},
    {"the newest heap has a hole", 1, 4, "A12 A16 a18", "10:5 15:4", 7 - 2},
    {"the first heap has a hole", 1, 4, "a11 A13", "10:4", 3 - 1},
    {"a chunk of holes at the end", 1, 4, "A12 a16", "10:5", 5 - 1},
    {"nothing but a hole", 1, 4, "a12", "", 1},
    {"the same heap twice", 1, 4, "A12 A12 A13 A12", "10:4", 0},
    {"no chunk for the newest", 1, 1, "A12 A16", "10:5", 5 - 1},
    {"the newest moves the window and finds no chunk", 1, 1, "A12 A27", "10:5", 16 - 1},
    {"two sources, each with its own end", 2, 4, "A12x3 B11x6", "10:5 15:2", 2 * 6 - 9},
    {"the newest of one source is in an earlier chunk", 2, 4, "A12 B23 A13", "10:5 20:4", 2 * 12 - 3},
    {"three sources, one of them silent", 3, 4, "C13 A11 A16x3", "10:5 15:4", 3 * 8 - 5},
    {"three sources, the newest with a hole", 3, 4, "A10x2 B10x2 C10 c11", "10:2", 1},
};

TEST(stream_goes_from_its_first_heap_to_its_newest, .end = ARRAY_LEN(end_scenarios))
{
    const struct end_scenario *scenario = &end_scenarios[_i];
    const struct assemble_layout layout = {
        .heap_samples = 16, .heap_bytes = 16, .n_heaps_per_source = 5, .n_sources = scenario->n_sources};
    const char *in = scenario->in;
    struct chunk *chunk, *all[POOL_MAX];
    char out[200] = "";
    size_t n_all = 0;

    make_assembler(layout, 3, scenario->n_chunks);
    while (*in) {
        bool whole = *in < 'a';
        unsigned source = (unsigned)(*in++ - (whole ? 'A' : 'a'));
        char *end;
        long heap = strtol(in, &end, 10);
        long count = *end == 'x' ? strtol(end + 1, &end, 10) : 1;

        for (; count > 0; count--, heap++)
            admit_range(source, 16 * heap, 0, whole ? 16 : 8);
        in = end + (*end == ' ');
    }
    assembler_flush(assembler);
    for (; (chunk = next_full()); all[n_all++] = chunk)
        snprintf(out + strlen(out), sizeof(out) - strlen(out), "%s%d:%d", *out ? " " : "",
                 (int)(chunk->timestamp_samples / 16), (int)chunk->n_times);
    ck_assert_msg(strcmp(out, scenario->out) == 0, "%s: got \"%s\"", scenario->what, out);
    ck_assert_msg(counter_get(&stats.missing_heaps) == scenario->n_missing, "%s: %d missing", scenario->what,
                  (int)counter_get(&stats.missing_heaps));
    while (n_all > 0)
        put_full(all[--n_all]);
}

/* Each stream between flushes has its own first and last heap, even where there is no chunk for them. */
TEST(flush_ends_one_stream_and_begins_another)
{
    const struct assemble_layout layout = {
        .heap_samples = 16, .heap_bytes = 8, .n_heaps_per_source = 5, .n_sources = 2};

    make_assembler(layout, 2, 1);
    assembler_flush(assembler);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 0);
    ck_assert_int_eq(admit_heap(0, 16 * 12), REJECT_NONE);
    ck_assert_int_eq(admit_heap(1, 16 * 13), REJECT_NONE);
    assembler_flush(assembler);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 2 * 2 - 2);
    assembler_flush(assembler);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 2);
    ck_assert_int_eq(admit_heap(0, 16 * 914), REJECT_NO_CHUNK);
    assembler_flush(assembler);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 4);
    ck_assert_uint_eq(drain_until(14), 2);
    ck_assert_int_eq(admit_heap(0, 16 * 11), REJECT_NONE);
    ck_assert_int_eq(admit_heap(1, 16 * 11), REJECT_NONE);
    assembler_flush(assembler);
    ck_assert_uint_eq(drain_until(12), 2);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 4);
    ck_assert_int_eq(admit_heap(1, 16 * 907), REJECT_NONE);
    ck_assert_int_eq(admit_heap(0, 16 * 911), REJECT_NO_CHUNK);
    assembler_flush(assembler);
    ck_assert_uint_eq(drain_until(912), 1);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), 4 + 2 * 5 - 1);
}

/* What a source claimed against the window of a stream that has ended supports no other's claim against the next. */
TEST(flush_forgets_claims)
{
    const struct assemble_layout layout = {
        .heap_samples = 16, .heap_bytes = 8, .n_heaps_per_source = 2, .n_sources = 3};

    make_assembler(layout, 2, 4);
    for (unsigned mad = 1; mad < 3; mad++) {
        for (int64_t heap = 0; heap < 2 * config.jump_heaps; heap++) {
            ck_assert_int_eq(admit_heap(0, 16 * (100 + heap)), REJECT_NONE);
            ck_assert_int_eq(admit_heap(mad, 16 * (300 + heap)), REJECT_JUMP);
            drain();
        }
        assembler_flush(assembler);
        drain();
    }
}

/* A stream that wanders, jumps and is cut off, with heaps that have holes, for a worker that is often behind. */
static void check_wandering(unsigned *seed)
{
    const struct assemble_layout layout = {
        .heap_samples = 16,
        .heap_bytes = 16,
        .n_heaps_per_source = 1 + below(seed, 6),
        .n_sources = 1 + below(seed, 4),
    };
    size_t n_chunks = 1 + below(seed, 5), n_held = 0;
    int64_t time = (int64_t)below(seed, 2000) - 1000;
    struct chunk *chunk, *held[POOL_MAX];
    uint64_t n_heaps_on = 0;

    prepare_assembler(layout, 1 + below(seed, 4), n_chunks);
    config.jump_heaps = 1 + below(seed, 3);
    create_assembler();
    unsigned spread = 1 + below(seed, config.window_chunks * (unsigned)layout.n_heaps_per_source);
    for (unsigned i = 0; i < 1500; i++) {
        unsigned fate = below(seed, 500);
        int64_t heap = time - below(seed, spread), end;
        struct jumps before = count_jumps();

        arrival_ns += below(seed, 4) ? 0 : below(seed, 400);
        time += fate == 0 ? 100 - (int64_t)below(seed, 200) : fate < 100;
        if (fate == 1) {
            assembler_flush(assembler);
            end = ledger_end();
        } else {
            enum reject reject = admit_range(below(seed, layout.n_sources), 16 * heap, fate == 2 ? 8 : 0,
                                             fate == 2 || fate == 3 ? 8 : 16);
            end = ledger_follow(heap, reject, before);
        }
        for (; (chunk = next_full()); held[n_held++] = chunk) {
            check_n_times(chunk, end);
            n_heaps_on += chunk->n_present;
        }
        while (n_held > 0 && below(seed, 20) == 0)
            put_full(held[--n_held]);
    }
    while (n_held > 0)
        put_full(held[--n_held]);
    assembler_flush(assembler);
    n_heaps_on += drain_until(ledger_end());
    ck_assert_uint_eq(counter_get(&stats.heaps), n_heaps_on);
    ck_assert_uint_eq(counter_get(&stats.missing_heaps), ledger.n_expected - n_heaps_on);
}

TEST(every_heap_is_handed_on_or_missing)
{
    unsigned seed = (unsigned)getpid();
    uint64_t n_jumps = 0, n_no_chunk = 0;

    fprintf(stderr, "seed %u\n", seed);
    for (int i = 0; i < 300; i++) {
        check_wandering(&seed);
        n_jumps += counter_get(&stats.jumps);
        n_no_chunk += counter_get(&stats.rejects[REJECT_NO_CHUNK]);
    }
    ck_assert_uint_gt(n_jumps, 300);
    ck_assert_uint_gt(n_no_chunk, 300);
}

/* ---- 48 bits ----------------------------------------------------------------------------------------------------- */

static const struct assemble_layout wrap_layout = {
    .heap_samples = 4096, .heap_bytes = 8, .n_heaps_per_source = 4, .n_sources = 1};
TEST(recording_goes_on_across_the_wrap)
{
    make_assembler(wrap_layout, 2, 4);
    ck_assert_int_eq(assembler_unwrap(assembler, 0, arrival_ns), 0);
    ck_assert_int_eq(assembler_unwrap(assembler, (uint64_t)(period - 4096), arrival_ns), period - 4096);
    for (int64_t t = period - 40 * 4096; t < period + 40 * 4096; t += 4096) {
        ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(t), arrival_ns), t);
        ck_assert_int_eq(admit_heap(0, t), REJECT_NONE);
        drain();
    }
    /* There is no clock to ask: far ones go to the nearest, too. */
    ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(half_period - 4096), arrival_ns),
                     period + half_period - 4096);
    assembler_flush(assembler);
    drain();
}

/* A stream that was silent for more than half a period comes back at the right time, whatever the clock says then. */
TEST(long_silence_is_bridged_by_the_time_that_passed)
{
    prepare_assembler(wrap_layout, 2, 4);
    config.timebase = (struct timebase){.adc_sample_rate_hz = {1000000000, 0}};
    create_assembler();
    int64_t now = round_down(timebase_samples_at(&config.timebase, clock_unix_ns()), 4 * 4096);

    ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(now), arrival_ns), now);
    /* As if it had been placed long ago. */
    int64_t before = now - half_period - (INT64_C(1) << 44);
    ck_assert_int_eq(admit_heap(0, before), REJECT_NONE);
    ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(before + 4096), arrival_ns), before + 4096);
    /* Before the data's time is known, the clock decides. */
    ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(now), arrival_ns), now);
    ck_assert_int_eq(admit_heap(0, before + 4096), REJECT_NONE);
    int64_t later = before + 3 * half_period + 1024 * 4096;
    arrival_ns += timebase_duration_ns(&config.timebase, later - before);
    for (int64_t heap = 0; heap < 3; heap++) {
        int64_t timestamp = later + 4096 * heap;
        ck_assert_int_eq(assembler_unwrap(assembler, on_the_wire(timestamp), arrival_ns), timestamp);
        ck_assert_int_eq(admit_heap(0, timestamp), REJECT_NONE);
    }
    assembler_flush(assembler);
    ck_assert_uint_eq(drain(), 2);
    ck_assert_int_eq(gauge_get(&stats.newest_timestamp), round_down(later, 4 * 4096));
}

static void start(void)
{
    log_init("check_assemble", LOG_LEVEL_ERROR);
}

SUITE(.timeout_s = 60, .teardown = teardown, .start = start);
