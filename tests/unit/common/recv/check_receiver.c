/* check_receiver.c - a receiver on a made-up source.  The source scrambles packets.  It fills landing slots as sockets
 * do, or lends packets from its own memory.
 *
 * Every byte of a heap is a function of member, source, timestamp and offset.  So the test can check each chunk alone.
 * The losses say which heaps must be complete. */
#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/base/log.h"
#include "common/recv/receiver.h"
#include "common/base/units.h"
#include "tests/fakes/direct_guard/direct_guard.h"
#include "tests/unit/test_device.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FREE_CHUNK = 1, FULL_CHUNK = 2, END = 3 };
enum { MEMBERS_MAX = 3, SOURCES_MAX = 4, TIMES_MAX = 64, POOL_CHUNKS = 6, WINDOW_CHUNKS = 3 };
enum { HEAP_SAMPLES = 4096, PACKETS_MAX = 20000, PACKET_BYTES = 2048 };
#define POISON 0xe7

/* ---- What is sent ------------------------------------------------------------------------------------------------ */

static struct sent {
    size_t sort;
    size_t n_bytes;
    uint8_t bytes[PACKET_BYTES];
} sent[PACKETS_MAX];
static struct sent *order[PACKETS_MAX]; /* in which they go out */
static size_t n_sent;

static struct shape {
    unsigned n_members, n_sources;
    size_t heap_bytes, piece_bytes, n_heaps_per_source, n_times;
    int64_t first; /* timestamp; a multiple of the chunk's length */
} shape;

static bool complete[MEMBERS_MAX][SOURCES_MAX][TIMES_MAX];
static bool direct;   /* chunks are, and who reads them from the host ends the test */
static bool contests; /* a stranger sends other bytes for some heaps, before or behind the right ones */
static size_t n_contested[MEMBERS_MAX]; /* heaps */

static unsigned below(unsigned *seed, unsigned n)
{
    return (unsigned)rand_r(seed) % n;
}

static uint8_t byte_of(unsigned member, unsigned source, int64_t timestamp, size_t offset)
{
    uint64_t x = (uint64_t)(timestamp / HEAP_SAMPLES) * UINT64_C(0x9e3779b97f4a7c15) +
                 offset * UINT64_C(0xc2b2ae3d27d4eb4f) +
                 (member * SOURCES_MAX + source + 1) * UINT64_C(0x165667b19e3779f9);

    return (uint8_t)(x >> 56);
}

/* A packet of ours; 'n_extra_items' make its header longer. */
static struct sent *make_packet(unsigned member, unsigned source, int64_t timestamp, size_t offset, size_t n_bytes,
                                unsigned n_extra_items)
{
    struct spead_item items[64] = {
        {SPEAD_TIMESTAMP, true, (uint64_t)timestamp & SPEAD_VALUE_MASK},
        {SPEAD_FENG_ID, true, member * SOURCES_MAX + source},
        {SPEAD_FENG_RAW, false, 0},
    };
    struct sent *p = &sent[n_sent++];

    ck_assert_uint_le(n_sent, PACKETS_MAX);
    for (unsigned i = 0; i < n_extra_items; i++)
        items[3 + i] = (struct spead_item){.id = (uint16_t)(0x2000 + i), .immediate = true, .value = i};
    size_t header_bytes =
        spead_build_header(p->bytes, n_sent, shape.heap_bytes, offset, n_bytes, items, 3 + n_extra_items);
    p->n_bytes = header_bytes + n_bytes;
    ck_assert_uint_le(p->n_bytes, PACKET_BYTES);
    for (size_t i = 0; i < n_bytes; i++)
        p->bytes[header_bytes + i] = byte_of(member, source, timestamp, offset + i);
    return p;
}

/* Something that must not harm: garbage, a stop, a descriptor, a stranger, no payload, a wrong length. */
static struct sent *make_nuisance(unsigned *seed, int64_t timestamp)
{
    struct sent *p;

    switch (below(seed, 6)) {
    case 0:
        p = &sent[n_sent++];
        p->n_bytes = below(seed, PACKET_BYTES);
        for (size_t i = 0; i < p->n_bytes; i++)
            p->bytes[i] = (uint8_t)rand_r(seed);
        return p;
    case 1:
        p = &sent[n_sent++];
        p->n_bytes = spead_build_stop(p->bytes, 5);
        return p;
    case 2:
        p = &sent[n_sent++];
        p->n_bytes = spead_build_header(p->bytes, 6, 100, 0, 100, &(struct spead_item){SPEAD_DESCRIPTOR, false, 0}, 1);
        memset(p->bytes + p->n_bytes, 0x5a, 100);
        p->n_bytes += 100;
        return p;
    case 3: return make_packet(0, SOURCES_MAX - 1, timestamp, 0, shape.piece_bytes, 0); /* there is one source less */
    case 4: return make_packet(0, 0, timestamp, 0, 0, 0);
    default:
        p = make_packet(0, 0, timestamp, 0, shape.piece_bytes, 0);
        p->n_bytes -= 1 + below(seed, (unsigned)shape.piece_bytes);
        return p;
    }
}

/* The packet once more, but for one byte of its payload. */
static void make_forgery(unsigned *seed, const struct sent *right, size_t n_bytes)
{
    struct sent *p = &sent[n_sent++];

    *p = *right;
    p->bytes[p->n_bytes - 1 - below(seed, (unsigned)n_bytes)] ^= (uint8_t)(1 + below(seed, 255));
}

/* One heap in pieces; each is lost, sent twice, contested or with a longer header now and then.  In a direct chunk a
 * second copy cannot be compared, so it contests the heap whatever its bytes are. */
static void make_heap(unsigned *seed, unsigned member, unsigned source, size_t time, bool perfect)
{
    int64_t timestamp = shape.first + (int64_t)time * HEAP_SAMPLES;

    bool contested = false;

    complete[member][source][time] = true;
    for (size_t offset = 0; offset < shape.heap_bytes; offset += shape.piece_bytes) {
        size_t rest = shape.heap_bytes - offset;
        unsigned fate = perfect ? 99 : below(seed, 100);
        unsigned n_extra_items = perfect || fate < 90 ? 0 : below(seed, 2) ? 1 + below(seed, 3) : 0;

        size_t n_bytes = rest < shape.piece_bytes ? rest : shape.piece_bytes;
        for (unsigned i = 0; i < (fate == 0 ? 0 : fate <= 3 ? 2 : 1); i++)
            make_packet(member, source, timestamp, offset, n_bytes, fate == 5 ? 40 : n_extra_items);
        if (fate == 6 && contests)
            make_forgery(seed, &sent[n_sent - 1], n_bytes);
        contested = contested || (fate == 6 && contests) || (fate > 0 && fate <= 3 && direct);
        if (fate == 0 || contested)
            complete[member][source][time] = false;
        if (!perfect && fate == 4)
            make_nuisance(seed, timestamp);
    }
    n_contested[member] += contested;
}

static void make_stream(unsigned *seed, bool perfect)
{
    n_sent = 0;
    memset(n_contested, 0, sizeof(n_contested));
    for (size_t time = 0; time < shape.n_times; time++)
        for (unsigned member = 0; member < shape.n_members; member++)
            for (unsigned source = 0; source < shape.n_sources; source++)
                make_heap(seed, member, source, time, perfect);
    for (size_t i = 0; i < n_sent; i++)
        sent[i].sort = i;
}

static int compare_sort(const void *a, const void *b)
{
    const struct sent *p = *(struct sent *const *)a, *q = *(struct sent *const *)b;

    if (p->sort != q->sort)
        return p->sort < q->sort ? -1 : 1;
    return p < q ? -1 : p > q;
}

/* Orders packets by 'sort' and then puts them out of order by up to 'distance'. */
static void scramble(unsigned *seed, size_t distance)
{
    for (size_t i = 0; i < n_sent; i++)
        order[i] = &sent[i];
    qsort(order, n_sent, sizeof(struct sent *), compare_sort);
    for (size_t i = 0; i < n_sent; i++)
        order[i]->sort = 2 * i + (distance ? below(seed, (unsigned)(2 * distance)) : 0);
    qsort(order, n_sent, sizeof(struct sent *), compare_sort);
}

/* ---- The source -------------------------------------------------------------------------------------------------- */

/* How packets come. */
enum lending { FILLED, LENT, MIXED, N_LENDINGS };

struct fake_source {
    struct recv_source source;
    enum lending lending;
    uint8_t zero_copy[PACKET_BATCH_MAX][PACKET_BYTES];
    size_t n_taken;
    unsigned seed;
    unsigned batch_max;
    size_t first_batch; /* packets in the first batch, and as many as fit in the others; 0: at random up to batch_max */
    int end;            /* what recv answers when all is sent: -ENODATA, an error, or 0 for a silent network */
    struct inbox *silence;
};

static size_t pour(uint8_t *to, size_t room, const uint8_t *from, size_t n_bytes)
{
    size_t n = n_bytes < room ? n_bytes : room;

    if (n > 0)
        memcpy(to, from, n);
    return n;
}

/* Spoils what was offered, as a message of several packets does that falls there before it is known to be one. */
static void spoil(struct packet_slot *slot)
{
    memset(slot->header, POISON, slot->header_bytes);
    memset(slot->payload, POISON, slot->payload_bytes);
    if (slot->spill_bytes > 0)
        memset(slot->spill, POISON, PACKET_BYTES);
}

/* Lends packet 'p' from place 'i'.  Those of the last batch are gone. */
static void lend(struct fake_source *fake, size_t i, const struct sent *p, struct packet_slot *slot)
{
    memcpy(fake->zero_copy[i], p->bytes, p->n_bytes);
    *slot = (struct packet_slot){
        .header = fake->zero_copy[i], .header_bytes = p->n_bytes, .packet_bytes = p->n_bytes, .zero_copy = true};
}

static bool fake_is_zero_copy(const struct recv_source *source)
{
    const struct fake_source *fake = CONTAINER_OF(source, const struct fake_source, source);

    /* For packets both ways it goes up and down. */
    return fake->lending == LENT || (fake->lending == MIXED && fake->n_taken / 100 % 2 == 0);
}

static int fake_recv(struct recv_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct fake_source *fake = CONTAINER_OF(source, struct fake_source, source);
    size_t n = below(&fake->seed, fake->batch_max + 1);

    if (fake->n_taken == n_sent) {
        struct inbox_item item;

        if (fake->end < 0)
            return fake->end;
        inbox_pop_until(fake->silence, clock_monotonic_ns() + timeout_ns, &item);
        return 0;
    }
    if (fake->first_batch > 0)
        n = fake->n_taken == 0 ? fake->first_batch : n_slots;
    n = n < n_slots ? n : n_slots;
    n = n < n_sent - fake->n_taken ? n : n_sent - fake->n_taken;
    /* A recv lends all packets or none, and what it did not announce it may lend all the same. */
    bool announced = fake_is_zero_copy(source),
         zero_copy = announced || (fake->lending == MIXED && below(&fake->seed, 2));
    memset(fake->zero_copy, POISON, sizeof(fake->zero_copy));
    for (size_t i = n; i < n_slots && fake->lending == MIXED && !announced; i++)
        spoil(&slots[i]);
    for (size_t i = 0; i < n; i++) {
        const struct sent *p = order[fake->n_taken++];
        struct packet_slot *slot = &slots[i];
        if (zero_copy) {
            if (!announced)
                spoil(slot);
            lend(fake, i, p, slot);
            continue;
        }
        size_t done = pour(slot->header, slot->header_bytes, p->bytes, p->n_bytes);

        done += pour(slot->payload, slot->payload_bytes, p->bytes + done, p->n_bytes - done);
        done += pour(slot->spill, slot->spill_bytes, p->bytes + done, p->n_bytes - done);
        slot->packet_bytes = p->n_bytes;
        slot->truncated = done < p->n_bytes;
        slot->endpoint = 0;
        ck_assert(!slot->truncated);
    }
    return (int)n;
}

/* As if a packet were dropped for each that comes. */
static atomic_size_t n_asked;

static uint64_t fake_kernel_drops(const struct recv_source *source)
{
    atomic_fetch_add(&n_asked, 1);
    return CONTAINER_OF(source, const struct fake_source, source)->n_taken;
}

static void fake_close(struct recv_source *source)
{
    struct fake_source *fake = CONTAINER_OF(source, struct fake_source, source);

    inbox_destroy(fake->silence);
    free(fake);
}

static const struct recv_source_ops file_ops = {.recv = fake_recv,
                                                .is_zero_copy = fake_is_zero_copy,
                                                .kernel_drops = fake_kernel_drops,
                                                .close = fake_close,
                                                .can_wait = true};
static const struct recv_source_ops network_ops = {.recv = fake_recv, .close = fake_close, .can_wait = false};

static struct recv_source *make_source(unsigned *seed, unsigned batch_max, int end)
{
    struct fake_source *fake = calloc(1, sizeof(*fake));

    ck_assert_ptr_nonnull(fake);
    ck_assert_int_eq(inbox_create(1, &fake->silence), 0);
    fake->source.ops = end < 0 ? &file_ops : &network_ops;
    fake->seed = (unsigned)rand_r(seed);
    fake->batch_max = batch_max;
    fake->end = end;
    return &fake->source;
}

static struct recv_source *make_lending_source(unsigned *seed, unsigned batch_max, int end, enum lending lending)
{
    struct recv_source *source = make_source(seed, batch_max, end);

    CONTAINER_OF(source, struct fake_source, source)->lending = lending;
    return source;
}

/* ---- The receiver under test ------------------------------------------------------------------------------------- */

static struct device *device;
static struct inbox *return_to[MEMBERS_MAX], *worker;
static struct chunk_pool *pools[MEMBERS_MAX];
static struct assembler_stats stats[MEMBERS_MAX];
static struct receiver *receiver;
static size_t n_present[MEMBERS_MAX];

static void make_pool(unsigned i)
{
    size_t n_heaps = shape.n_heaps_per_source * shape.n_sources;
    struct inbox_item item;
    char why[200];

    const struct chunk_shape chunks = {
        .n_chunks = POOL_CHUNKS, .n_heaps = n_heaps, .heap_bytes = shape.heap_bytes, .direct = direct};
    ck_assert_int_eq(chunk_pool_create(device, &chunks, i, return_to[i], FREE_CHUNK, &pools[i], why, sizeof(why)), 0);
    for (int k = 0; direct && k < POOL_CHUNKS; k++) {
        ck_assert_int_eq(inbox_try_pop(return_to[i], &item), 0);
        direct_guard(((struct chunk *)item.object)->payload, n_heaps * shape.heap_bytes);
        inbox_push(return_to[i], &item);
    }
}

static void destroy_pool(unsigned i)
{
    struct inbox_item item;

    while (direct && inbox_try_pop(return_to[i], &item) == 0)
        direct_unguard(((struct chunk *)item.object)->payload);
    chunk_pool_destroy(pools[i]);
}

static const uint16_t wanted_ids[] = {SPEAD_TIMESTAMP, SPEAD_FENG_ID};

static enum reject identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                            struct receiver_identity *identity)
{
    ck_assert_ptr_eq(context, &shape);
    if (packet->found != 3 || packet->immediate != 3)
        return REJECT_NO_ITEMS;
    identity->member = (unsigned)packet->wanted[1] / SOURCES_MAX;
    identity->source = (unsigned)packet->wanted[1] % SOURCES_MAX;
    identity->wire_timestamp = packet->wanted[0];
    identity->extra = (uint32_t)(packet->wanted[1] + 1000);
    return identity->member < shape.n_members ? REJECT_NONE : REJECT_BAD_SOURCE;
}

static void destroy_receiver(void)
{
    if (!receiver)
        return;
    receiver_destroy(receiver);
    receiver = NULL;
    ck_assert_uint_eq(inbox_length(worker), 0);
    for (unsigned i = 0; i < shape.n_members; i++) {
        ck_assert_uint_eq(inbox_length(return_to[i]), POOL_CHUNKS);
        destroy_pool(i);
        inbox_destroy(return_to[i]);
    }
    inbox_destroy(worker);
}

static void make_receiver(struct recv_source *source)
{
    struct assembler_config members[MEMBERS_MAX];

    memset(stats, 0, sizeof(stats));
    memset(n_present, 0, sizeof(n_present));
    if (!device)
        device = test_open_kind(DEVICE_CPU, 1);
    ck_assert_int_eq(inbox_create(MEMBERS_MAX * POOL_CHUNKS + 1, &worker), 0);
    for (unsigned i = 0; i < shape.n_members; i++) {
        ck_assert_int_eq(inbox_create(POOL_CHUNKS, &return_to[i]), 0);
        make_pool(i);
        members[i] = (struct assembler_config){
            .layout = {HEAP_SAMPLES, shape.heap_bytes, shape.n_heaps_per_source, shape.n_sources},
            .name = "member",
            .window_chunks = WINDOW_CHUNKS,
            .jump_heaps = 8,
            .jump_sources = 2,
            .timebase = {.adc_sample_rate_hz = {1000000000, 0}, .from_packets = true},
            .free_chunks = return_to[i],
            .worker = worker,
            .full_kind = FULL_CHUNK,
            .stats = &stats[i],
        };
    }
    const struct receiver_config config = {
        .thread_name = "recv",
        .cpu = -1,
        .wanted_ids = wanted_ids,
        .n_wanted = ARRAY_LEN(wanted_ids),
        .identify = identify,
        .context = &shape,
        .assemblers = members,
        .n_assemblers = shape.n_members,
        .direct = direct,
        .worker = worker,
        .end_kind = END,
    };
    ck_assert_int_eq(receiver_create_from(&config, source, &receiver), 0);
}

/* Sends the stream of 'shape' whole by way of 'source', out of order by up to 'distance' packets. */
static void start_stream(unsigned *seed, size_t distance, struct recv_source *source)
{
    make_stream(seed, true);
    scramble(seed, distance);
    make_receiver(source);
    ck_assert_int_eq(receiver_start(receiver), 0);
}

static void teardown(void)
{
    destroy_receiver();
    device_close(device);
    device = NULL;
}

/* Looks at every heap that claims to be there, and, if 'exact', that just those are there which were sent whole. */
static void check_chunk(struct chunk *chunk, bool exact)
{
    for (size_t heap = 0; heap < chunk->n_heaps; heap++) {
        unsigned source = (unsigned)(heap % shape.n_sources);
        int64_t timestamp = chunk->timestamp_samples + (int64_t)(heap / shape.n_sources) * HEAP_SAMPLES;
        int64_t time = (timestamp - shape.first) / HEAP_SAMPLES;
        const uint8_t *payload = chunk->source + heap * chunk->heap_bytes;

        if (exact)
            ck_assert_int_eq(chunk->present[heap],
                             time >= 0 && time < (int64_t)shape.n_times && complete[chunk->member][source][time]);
        if (!chunk->present[heap])
            continue;
        n_present[chunk->member]++;
        ck_assert_uint_eq(chunk->extra[heap], 1000 + chunk->member * SOURCES_MAX + source);
        for (size_t i = 0; i < chunk->heap_bytes; i++) /* an assertion for each byte would take seconds */
            if (payload[i] != byte_of(chunk->member, source, timestamp, i))
                ck_abort_msg("member %u source %u time %d: byte %zu is wrong", chunk->member, source, (int)time, i);
    }
    ck_assert_int_gt(chunk->last_arrival_ns, 0);
    memset(direct ? chunk->direct.device : chunk->payload, POISON, chunk->n_heaps * chunk->heap_bytes);
    buffer_ref_put(&chunk->ref);
}

/* Plays the worker until the end of the file. */
static void work(bool exact)
{
    for (;;) {
        struct inbox_item item;

        ck_assert_int_eq(inbox_pop(worker, &item), 0);
        if (item.kind == END) {
            ck_assert_ptr_null(item.object);
            return;
        }
        ck_assert_int_eq(item.kind, FULL_CHUNK);
        check_chunk(item.object, exact);
    }
}

static void choose_shape(unsigned *seed)
{
    static const size_t heap_sizes[] = {1024, 1000, 333, 1500, 64};
    static const size_t pieces[] = {64, 200, 256, 1024, 1504};

    shape = (struct shape){
        .n_members = 1 + below(seed, MEMBERS_MAX),
        .n_sources = 1 + below(seed, SOURCES_MAX - 1),
        .heap_bytes = heap_sizes[below(seed, ARRAY_LEN(heap_sizes))],
        .piece_bytes = pieces[below(seed, ARRAY_LEN(pieces))],
        .n_heaps_per_source = 4 + below(seed, 5),
        .n_times = TIMES_MAX,
    };
    if (shape.piece_bytes > shape.heap_bytes)
        shape.piece_bytes = shape.heap_bytes;
    shape.first = (int64_t)shape.n_heaps_per_source * HEAP_SAMPLES * (1 + rand_r(seed) % 1000000);
}

static const struct shape large_shape = {.n_members = 2,
                                         .n_sources = 3,
                                         .heap_bytes = 1000,
                                         .piece_bytes = 256,
                                         .n_heaps_per_source = 16,
                                         .n_times = TIMES_MAX};

/* One source of one member, with heaps of a packet. */
static struct shape small_shape(size_t n_heaps_per_source, size_t n_times)
{
    return (struct shape){.n_members = 1,
                          .n_sources = 1,
                          .heap_bytes = 64,
                          .piece_bytes = 64,
                          .n_heaps_per_source = n_heaps_per_source,
                          .n_times = n_times};
}

static size_t packets_per_time(void)
{
    return shape.n_members * shape.n_sources * ((shape.heap_bytes + shape.piece_bytes - 1) / shape.piece_bytes);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

TEST(every_heap_sent_whole_arrives_as_sent, .end = 2)
{
    unsigned seed = (unsigned)getpid();

    direct = _i;
    contests = true;
    fprintf(stderr, "seed %u\n", seed); /* at once: a failure ends the process */
    for (int run = 0; run < (direct ? 6 : 15); run++) {
        choose_shape(&seed);
        make_stream(&seed, false);
        scramble(&seed, (size_t[]){0, 2, packets_per_time()}[below(&seed, 3)]);
        make_receiver(make_lending_source(&seed, 1 + below(&seed, PACKET_BATCH_MAX), -ENODATA, run % N_LENDINGS));
        ck_assert(receiver_can_wait(receiver));
        ck_assert_int_eq(receiver_start(receiver), 0);
        work(true);
        ck_assert_int_eq(receiver_get_error(receiver), 0);
        ck_assert_uint_eq(counter_get(&receiver_get_stats(receiver)->packets), n_sent);
        ck_assert_uint_eq(atomic_load(&n_asked), 0); /* who receives does not wait for that */
        ck_assert_int_eq(receiver_kernel_drops(receiver), (int64_t)n_sent);
        ck_assert_uint_eq(atomic_exchange(&n_asked, 0), 1);
        for (unsigned i = 0; i < MEMBERS_MAX; i++) { /* 0 for the members beyond shape.n_members */
            ck_assert_uint_eq(counter_get(&stats[i].heaps), n_present[i]);
            ck_assert_uint_eq(counter_get(&stats[i].contested_heaps), n_contested[i]);
        }
        if (direct)
            ck_assert_uint_gt(direct_guard_writes(), n_sent);
        destroy_receiver();
    }
}

/* Sources that jump about, packets that overlap, everything far out of order: what is called present is right. */
TEST(nothing_false_is_called_present)
{
    unsigned seed = (unsigned)getpid();

    fprintf(stderr, "seed %u\n", seed);
    for (int run = 0; run < 15; run++) {
        choose_shape(&seed);
        make_stream(&seed, false);
        unsigned n_jumps = below(&seed, 6);
        for (unsigned i = 0; i < n_jumps; i++) {
            /* A stretch of another time in the middle of the packets of this one. */
            int64_t chunk_samples = (int64_t)shape.n_heaps_per_source * HEAP_SAMPLES;
            int64_t timestamp = shape.first + chunk_samples * ((int64_t)below(&seed, 60) - 30);
            size_t at = below(&seed, (unsigned)n_sent);
            unsigned member = below(&seed, shape.n_members);

            for (size_t k = 0; timestamp >= 0 && k < 40; k++) {
                unsigned source = below(&seed, shape.n_sources);

                make_packet(member, source, timestamp + (int64_t)(k / 2) * HEAP_SAMPLES, 0, shape.heap_bytes, 0);
                sent[n_sent - 1].sort = at + k;
            }
        }
        for (size_t i = 0, n = n_sent / 50; i < n; i++) {
            size_t offset = 8 * below(&seed, (unsigned)(shape.heap_bytes / 8));
            size_t rest = shape.heap_bytes - offset;

            make_packet(below(&seed, shape.n_members), below(&seed, shape.n_sources),
                        shape.first + HEAP_SAMPLES * (int64_t)below(&seed, TIMES_MAX), offset, rest < 200 ? rest : 200,
                        0);
            sent[n_sent - 1].sort = below(&seed, (unsigned)n_sent);
        }
        scramble(&seed, (size_t[]){1, packets_per_time(), 20 * packets_per_time()}[below(&seed, 3)]);
        make_receiver(make_lending_source(&seed, PACKET_BATCH_MAX, -ENODATA, run % N_LENDINGS));
        ck_assert_int_eq(receiver_start(receiver), 0);
        work(false);
        destroy_receiver();
    }
}

TEST(orderly_packets_land_in_place)
{
    unsigned seed = 1;
    uint64_t n_copied = 0;

    shape = large_shape;
    start_stream(&seed, 0, make_source(&seed, 20, -ENODATA));
    work(true);
    for (unsigned i = 0; i < shape.n_members; i++) {
        ck_assert_uint_eq(n_present[i], shape.n_sources * shape.n_times);
        ck_assert_uint_eq(counter_get(&stats[i].missing_heaps), 0);
        n_copied += counter_get(&stats[i].copied_packets);
    }
    /* At the start, and until a chunk is open. */
    ck_assert_uint_gt(n_copied, 0);
    ck_assert_uint_lt(n_copied, n_sent / 8);
}

/* Lent packets land nowhere, so each is copied, once. */
TEST(lent_packets_are_copied)
{
    unsigned seed = 1;
    uint64_t n_copied = 0;

    shape = large_shape;
    start_stream(&seed, 5, make_lending_source(&seed, 20, -ENODATA, LENT));
    work(true);
    for (unsigned i = 0; i < shape.n_members; i++) {
        ck_assert_uint_eq(n_present[i], shape.n_sources * shape.n_times);
        n_copied += counter_get(&stats[i].copied_packets);
    }
    ck_assert_uint_eq(n_copied, n_sent);
}

/* Receives the made packets in order: 'first_batch' of them, then as many at a time as the receiver allows. */
static void receive_in_order(size_t first_batch)
{
    unsigned seed = 1;

    for (size_t i = 0; i < n_sent; i++)
        sent[i].sort = i;
    scramble(&seed, 0);
    struct recv_source *source = make_source(&seed, 1, -ENODATA);
    CONTAINER_OF(source, struct fake_source, source)->first_batch = first_batch;
    make_receiver(source);
    ck_assert_int_eq(receiver_start(receiver), 0);
    work(false);
}

/* Two jumps within a batch: the chunk in which a packet landed as predicted has gone, and a new one has its place. */
TEST(landing_is_given_up_when_the_window_jumps)
{
    const int64_t far = INT64_C(1) << 40;

    shape = small_shape(64, 1);
    n_sent = 0;
    for (int64_t i = 0; i < 9; i++) /* a batch, upon which twice as many slots are offered to the next */
        make_packet(0, 0, HEAP_SAMPLES * i, 0, 64, 0);
    for (int64_t i = 0; i < 8; i++)
        make_packet(0, 0, far + HEAP_SAMPLES * i, 0, 64, 0);
    for (int64_t i = 0; i < 8; i++)
        make_packet(0, 0, HEAP_SAMPLES * (30 + i), 0, 64, 0);
    make_packet(0, 0, HEAP_SAMPLES * (int64_t)n_sent, 0, 64, 0); /* what is predicted for its slot */
    make_packet(0, 0, HEAP_SAMPLES * 50, 0, 64, 0);
    receive_in_order(9);
    ck_assert_uint_eq(counter_get(&stats[0].jumps), 2);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_JUMP]), 1);
    ck_assert_uint_eq(n_present[0], 9 + 8 + 9);
}

/* Two packets move the window by more than its length: the chunk in which the next packet landed has left. */
TEST(landing_is_given_up_when_the_window_moves_past)
{
    const unsigned times[] = {20, 32, 11}; /* in chunks 5, 8 and 2; the slot of time 11 was predicted */

    shape = small_shape(4, 1);
    n_sent = 0;
    for (int64_t i = 0; i < 9; i++) /* the first batch, which opens chunks 0 to 2 */
        make_packet(0, 0, HEAP_SAMPLES * i, 0, 64, 0);
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        make_packet(0, 0, (int64_t)HEAP_SAMPLES * times[i], 0, 64, 0);
    receive_in_order(9);
    ck_assert_uint_eq(counter_get(&stats[0].jumps), 0);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_JUMP]), 0);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_TOO_OLD]), 1);
    ck_assert_uint_eq(n_present[0], 9 + 2);
}

TEST(refused_packets_are_counted_by_reason)
{
    unsigned seed = 1;

    shape = small_shape(4, 1);
    n_sent = 0;
    make_packet(0, 0, 0, 0, 64, 0);
    make_packet(0, 0, 0, 0, 64, 0);  /* duplicate */
    make_packet(1, 0, 0, 0, 64, 0);  /* nobody's */
    make_packet(0, 2, 0, 0, 64, 0);  /* no such source */
    make_packet(0, 0, 77, 0, 64, 0); /* between timestamps */
    make_packet(0, 0, HEAP_SAMPLES, 4, 8, 0);
    make_packet(0, 0, 1 << 30, 0, 64, 0); /* a jump */
    make_packet(0, 0, HEAP_SAMPLES, 0, 64, 0)->n_bytes -= 1;
    make_packet(0, 0, HEAP_SAMPLES, 0, 64, 0)->bytes[0] = 0;
    make_packet(0, 0, HEAP_SAMPLES, 0, 64, 21)->bytes[7] = 255;
    sent[n_sent++].n_bytes = 0;
    sent[n_sent].n_bytes = spead_build_stop(sent[n_sent].bytes, 1);
    n_sent++;
    sent[n_sent].n_bytes =
        spead_build_header(sent[n_sent].bytes, 6, 8, 0, 8, &(struct spead_item){SPEAD_DESCRIPTOR, false, 0}, 1) + 8;
    n_sent++;
    shape.heap_bytes = 72;
    make_packet(0, 0, HEAP_SAMPLES, 0, 72, 0);
    shape.heap_bytes = 64;

    scramble(&seed, 0);
    make_receiver(make_source(&seed, PACKET_BATCH_MAX, -ENODATA));
    ck_assert_int_eq(receiver_start(receiver), 0);
    work(false);
    const struct receiver_stats *s = receiver_get_stats(receiver);
    ck_assert_uint_eq(n_present[0], 1);
    ck_assert_uint_eq(counter_get(&s->packets), n_sent);
    ck_assert_uint_eq(counter_get(&s->rejects[REJECT_BAD_SOURCE]), 1);
    ck_assert_uint_eq(counter_get(&s->rejects[REJECT_STOP]), 1);
    ck_assert_uint_eq(counter_get(&s->rejects[REJECT_DESCRIPTOR]), 1);
    ck_assert_uint_eq(counter_get(&s->rejects[REJECT_NO_ITEMS]), 0);
    ck_assert_uint_eq(counter_get(&s->metadata_heaps), 1);
    ck_assert_uint_eq(counter_get(&s->rejects[REJECT_MALFORMED]), 4);
    ck_assert_uint_eq(counter_get(&s->malformed[SPEAD_BAD_MAGIC]), 1);
    ck_assert_uint_ge(counter_get(&s->malformed[SPEAD_TRUNCATED]), 2);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_DUPLICATE]), 1);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_BAD_SOURCE]), 1);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_BAD_TIMESTAMP]), 1);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_ALIGNMENT]), 1);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_JUMP]), 1);
    ck_assert_uint_eq(counter_get(&stats[0].rejects[REJECT_HEAP_SIZE]), 1);
}

/* The worker keeps what it gets, so the receiver waits for a free chunk in the end; a stop must get it out of there. */
TEST(stop_ends_the_wait_for_a_chunk)
{
    unsigned seed = 1;
    struct inbox_item item;

    shape = small_shape(2, TIMES_MAX);
    start_stream(&seed, 0, make_source(&seed, PACKET_BATCH_MAX, -ENODATA));
    ck_assert_int_eq(inbox_pop(worker, &item), 0);
    receiver_stop(receiver);
    receiver_stop(receiver);
    check_chunk(item.object, true);
    while (inbox_try_pop(worker, &item) == 0)
        if (item.kind == FULL_CHUNK)
            check_chunk(item.object, false);
}

TEST(stop_flushes_what_is_open)
{
    unsigned seed = 1;
    struct inbox_item item;

    /* A chunk more than the window, so that the first one says that all packets are in, or will be in a moment. */
    shape = small_shape(2, 2 * WINDOW_CHUNKS + 1);
    make_stream(&seed, true);
    scramble(&seed, 0);
    make_receiver(make_source(&seed, PACKET_BATCH_MAX, 0));
    ck_assert(!receiver_can_wait(receiver));
    ck_assert_int_eq(receiver_start(receiver), 0);
    ck_assert_int_eq(inbox_pop(worker, &item), 0);
    check_chunk(item.object, true);
    receiver_stop(receiver);
    while (inbox_try_pop(worker, &item) == 0) {
        ck_assert_int_eq(item.kind, FULL_CHUNK);
        check_chunk(item.object, true);
    }
    ck_assert_uint_eq(n_present[0], shape.n_times);
}

TEST(dead_source_is_told)
{
    unsigned seed = 1;

    shape = small_shape(2, 5);
    start_stream(&seed, 0, make_source(&seed, PACKET_BATCH_MAX, -ENETDOWN));
    work(true);
    ck_assert_int_eq(receiver_get_error(receiver), -ENETDOWN);
    ck_assert_uint_eq(n_present[0], 5);
}

TEST(destroy_without_start)
{
    unsigned seed = 1;

    shape = (struct shape){
        .n_members = 2, .n_sources = 1, .heap_bytes = 64, .piece_bytes = 64, .n_heaps_per_source = 2, .n_times = 5};
    make_receiver(make_source(&seed, 1, -ENODATA));
    receiver_destroy(NULL);
}

static void start(void)
{
    log_init("check_receiver", LOG_LEVEL_ERROR);
}

SUITE(.timeout_s = 60, .teardown = teardown, .start = start);
