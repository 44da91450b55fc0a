/* fuzz_receiver.h - a whole receiver as fgpu and xbgpu set it up, for fuzz targets that bring the packets.
 *
 * Includes receiver.c, and thus runs the thread's function on the target's own thread.  Only one file of a target
 * includes this header.
 *
 * Kept:      buffers, chunk pools and inboxes stay from input to input, because the buffers of 8 MB would take most of
 *            the time.  receiver_reset() makes new assemblers (windows, claims, held packets, data_time), flows,
 *            predictions, all counters, the receiver's last packet and shape.  All chunks must be in their pools before
 *            and after each input.
 * Model:     packet_read() reads a packet with a parser of its own. */
#ifndef TESTS_FUZZ_FUZZ_RECEIVER_H
#define TESTS_FUZZ_FUZZ_RECEIVER_H

#include "common/recv/receiver.c"

#include "common/device/device.h"
#include "fgpu/recv.h"
#include "tests/fuzz/fuzz_clock.h"
#include "tests/fuzz/fuzz_input.h"
#include "xbgpu/recv.h"

FUZZ_MODEL_BEGIN

enum {
    PACKETS_MAX = 300, /* that a recording's receiver may hold without giving a chunk back */
    RAW_BYTES_MAX = 1500,
    POOL_CHUNKS = 4,
    RECORDING_CHUNKS = PACKETS_MAX + 4, /* a recording waits for a chunk, and nobody gives one back meanwhile */
    MEMBERS_MAX = 2,
    HEAP_BYTES_MAX = 640,
    CHAN_OFFSET = 8
};
enum { FREE_CHUNK = 1, FULL_CHUNK = 2, END = 3 };

/* What a packet says, if it is one of ours. */
struct packet {
    uint8_t *bytes;
    size_t n_bytes;
    unsigned endpoint;
    bool ours;
    int64_t later_ns; /* than the packet before */
    unsigned member, source;
    uint64_t timestamp, offset;
    size_t payload_bytes;
};

static struct shape {
    bool is_fgpu;
    size_t heap_bytes, n_heaps_per_source;
    unsigned n_members, n_sources;
    int64_t heap_samples;
    unsigned batch;       /* packets that recv gives at once */
    bool live;            /* with 'timebase: clock'; else a recording */
    bool is_synchronised; /* the host's clock */
    bool zero_copy;       /* the source lends its own memory */
    bool has_crc, needs_crc;
} shape;

/* ---- Reading a packet, slowly ------------------------------------------------------------------------------------ */

static uint64_t get_word(const uint8_t *at)
{
    uint64_t word = 0;

    for (int i = 0; i < 8; i++)
        word = word << 8 | at[i];
    return word;
}

/* Items that a packet of ours needs, in the order of values[] in packet_read(). */
enum { OFFSET, TIMESTAMP, ID, HEAP_LENGTH, PAYLOAD_LENGTH, OF_DAEMON, N_READ };

/* Reads the last immediate of each id; UINT64_MAX if there is none, or if the last one of that id is an address. */
static void read_items(const struct packet *p, size_t n_items, uint64_t values[N_READ])
{
    const unsigned ids[N_READ] = {
        SPEAD_PAYLOAD_OFFSET, SPEAD_TIMESTAMP,      shape.is_fgpu ? SPEAD_DIGITISER_ID : SPEAD_FENG_ID,
        SPEAD_HEAP_LENGTH,    SPEAD_PAYLOAD_LENGTH, shape.is_fgpu ? SPEAD_DIGITISER_STATUS : SPEAD_FREQUENCY};

    for (size_t i = 0; i < N_READ; i++)
        values[i] = UINT64_MAX;
    for (size_t i = 0; i < n_items; i++) {
        uint64_t word = get_word(p->bytes + 8 + 8 * i);
        for (size_t k = 0; k < N_READ; k++)
            if ((word >> 48 & 0x7fff) == ids[k])
                values[k] = word >> 63 ? word & SPEAD_VALUE_MASK : UINT64_MAX;
    }
}

static void packet_read(struct packet *p)
{
    uint64_t values[N_READ];

    p->ours = false;
    if (p->n_bytes < 8 || memcmp(p->bytes, "\x53\x04\x02\x06", 4) != 0)
        return;
    size_t n_items = (size_t)p->bytes[6] << 8 | p->bytes[7], header_bytes = 8 + 8 * n_items;
    if (header_bytes > p->n_bytes)
        return;
    read_items(p, n_items, values);
    p->offset = values[OFFSET];
    p->timestamp = values[TIMESTAMP];
    p->payload_bytes = p->n_bytes - header_bytes;
    uint64_t id = values[ID];
    if (values[HEAP_LENGTH] != shape.heap_bytes || values[PAYLOAD_LENGTH] != p->payload_bytes ||
        p->offset > shape.heap_bytes || p->payload_bytes > shape.heap_bytes - p->offset || p->timestamp == UINT64_MAX ||
        id == UINT64_MAX)
        return;
    p->member = shape.is_fgpu ? p->endpoint : (unsigned)(id / shape.n_sources);
    p->source = shape.is_fgpu ? 0 : (unsigned)(id % shape.n_sources);
    if (shape.is_fgpu)
        p->ours = (id & 1) == p->endpoint % 2 && values[OF_DAEMON] != UINT64_MAX;
    else
        p->ours = id < shape.n_members * shape.n_sources && values[OF_DAEMON] == CHAN_OFFSET;
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

static struct inbox *worker;
static struct inbox *home[MEMBERS_MAX];
static struct assembler_stats stats[MEMBERS_MAX];

/* Passes the chunks that have been handed on to check().  Returns the kind of the last item; 0: there was none. */
static int chunks_take(void (*check)(const struct chunk *chunk))
{
    struct inbox_item item;
    int kind = 0;

    while (inbox_try_pop(worker, &item) == 0) {
        struct chunk *chunk = item.object;

        kind = item.kind;
        if (kind == END)
            continue;
        check(chunk);
        buffer_ref_put(&chunk->ref);
    }
    return kind;
}

/* ---- The source -------------------------------------------------------------------------------------------------- */

struct fuzz_source {
    struct recv_source base;
    size_t n_taken;
};

static size_t pour(uint8_t *to, size_t room, const struct packet *p, size_t from)
{
    size_t n = room < p->n_bytes - from ? room : p->n_bytes - from;

    if (n > 0)
        memcpy(to, p->bytes + from, n);
    return n;
}

/* Fills a slot with a packet, as a source does that copies, or as a source that lends its own memory. */
static void fill_slot(struct packet_slot *slot, const struct packet *p)
{
    slot->packet_bytes = p->n_bytes;
    slot->endpoint = p->endpoint;
    slot->truncated = false;
    slot->zero_copy = shape.zero_copy;
    slot->rest = NULL;
    slot->sender = 0;
    fuzz_clock_advance(p->later_ns);
    if (shape.zero_copy) {
        slot->header = p->bytes;
        slot->header_bytes = p->n_bytes;
        return;
    }
    size_t done = pour(slot->header, slot->header_bytes, p, 0);
    done += pour(slot->payload, slot->payload_bytes, p, done);
    done += pour(slot->spill, slot->spill_bytes, p, done);
    assert(done == p->n_bytes);
}

/* ---- The receiver ------------------------------------------------------------------------------------------------ */

/* Chunks of a shape, made when it comes for the first time. */
struct pools {
    struct inbox *home[MEMBERS_MAX];
    struct chunk_pool *pool[MEMBERS_MAX];
};

static size_t pool_chunks(void)
{
    return shape.live ? POOL_CHUNKS : RECORDING_CHUNKS;
}

static void make_pools(struct device *device, struct pools *pools)
{
    const struct chunk_shape chunks = {.n_chunks = pool_chunks(),
                                       .n_heaps = shape.n_heaps_per_source * shape.n_sources,
                                       .heap_bytes = shape.heap_bytes};

    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        assert(inbox_create(pool_chunks(), &pools->home[i]) == 0);
        assert(chunk_pool_create(device, &chunks, i, pools->home[i], FREE_CHUNK, &pools->pool[i], NULL, 0) == 0);
    }
}

/* Packets of heap 100 000 are due at the start. */
static struct timebase start_time(void)
{
    fuzz_clock_set(NS_PER_S, 1000 * NS_PER_S + 100128 * shape.heap_samples, shape.is_synchronised);
    return (struct timebase){
        .sync_time_s = {1000, 0}, .adc_sample_rate_hz = {1000000000, 0}, .from_packets = !shape.live};
}

static void receiver_reset(struct receiver *r, struct fuzz_source *source)
{
    static const unsigned of_endpoint[MEMBERS_MAX] = {0, 1};
    static const struct fgpu_recv_context fgpu_context = {of_endpoint, of_endpoint};
    static struct xbgpu_recv_context xbgpu_context;
    static size_t first_ant[MEMBERS_MAX + 1];
    static struct assembler_config members[MEMBERS_MAX];
    static uint8_t *buffers;

    memset(stats, 0, sizeof(stats));
    for (unsigned i = 0; i < shape.n_members; i++) {
        members[i] = (struct assembler_config){
            .layout = {shape.heap_samples, shape.heap_bytes, shape.n_heaps_per_source, shape.n_sources},
            .name = "member",
            .window_chunks = 2,
            .jump_heaps = 3,
            .jump_sources = shape.is_fgpu ? 1 : 2,
            .timebase = start_time(),
            .clock_tolerance_ns = 64 * shape.heap_samples,
            .free_chunks = home[i],
            .worker = worker,
            .full_kind = FULL_CHUNK,
            .stats = &stats[i],
        };
        first_ant[i + 1] = (i + 1) * shape.n_sources;
    }
    xbgpu_context =
        (struct xbgpu_recv_context){shape.n_members * shape.n_sources, CHAN_OFFSET, shape.n_members, first_ant};
    memset(r, 0, sizeof(*r));
    r->config = (struct receiver_config){
        .thread_name = "fuzzed",
        .wanted_ids = shape.is_fgpu ? fgpu_recv_wanted : xbgpu_recv_wanted,
        .n_wanted = shape.is_fgpu ? FGPU_RECV_N_WANTED : XBGPU_RECV_N_WANTED,
        .identify = shape.is_fgpu ? fgpu_recv_identify : xbgpu_recv_identify,
        .context = shape.is_fgpu ? (const void *)&fgpu_context : &xbgpu_context,
        .assemblers = members,
        .n_assemblers = shape.n_members,
        .needs_crc = shape.needs_crc,
        .worker = worker,
        .end_kind = END,
    };
    r->source = &source->base;
    assert(create_assemblers(r) == 0 && predictor_init(&r->predictor, r->members, shape.n_members) == 0);
    if (!buffers) {
        assert(create_buffers(r) == 0);
        buffers = r->buffers;
    } else {
        r->buffers = buffers;
        point_placements(r);
    }
}

static void receiver_free_state(struct receiver *r)
{
    for (size_t i = 0; i < shape.n_members; i++)
        assembler_destroy(r->assemblers[i]);
    free(r->assemblers);
    free(r->members);
    predictor_fini(&r->predictor);
}

/* The packets that the source gave. */
struct offered {
    uint64_t n_packets, n_ours;
    uint64_t n_altered; /* packets that may be refused because of their items */
};

static uint64_t n_handed_on; /* heaps */

/* Each packet was let in, or refused for one reason; a member's bytes are those of its heaps.
 * Returns the number of refused packets. */
static uint64_t receiver_check_counters(const struct receiver *receiver, const struct offered *offered)
{
    const struct receiver_stats *r = receiver_get_stats(receiver);
    uint64_t n_malformed = 0, n_refused = 0, n_misread = 0, n_heaps = 0;

    assert(counter_get(&r->packets) == offered->n_packets);
    for (int e = SPEAD_OK + 1; e < SPEAD_N_ERRORS; e++)
        n_malformed += counter_get(&r->malformed[e]);
    assert(n_malformed == counter_get(&r->rejects[REJECT_MALFORMED]));
    for (int reason = 0; reason < N_REJECTS; reason++) {
        uint64_t n = counter_get(&r->rejects[reason]);
        for (unsigned i = 0; i < shape.n_members; i++)
            n += counter_get(&stats[i].rejects[reason]);
        n_refused += n;
        n_misread += reason < REJECT_TOO_OLD ? n : 0;
    }
    for (unsigned i = 0; i < shape.n_members; i++) {
        assert(counter_get(&stats[i].bytes) == counter_get(&stats[i].heaps) * shape.heap_bytes);
        assert(!shape.live || shape.is_synchronised || counter_get(&stats[i].rejects[REJECT_CLOCK]) == 0);
        n_heaps += counter_get(&stats[i].heaps);
    }
    assert(n_misread <= offered->n_altered);
    assert(n_heaps == n_handed_on && n_refused <= offered->n_packets);
    assert(n_heaps <= offered->n_packets - n_refused && offered->n_packets - n_refused <= offered->n_ours);
    return n_refused;
}

static struct device *receiver_device(void)
{
    static struct device *device;
    char why[200];

    if (!device) {
        assert(device_open(&(struct device_config){.kind = DEVICE_CPU, .n_threads = 1}, &device, why, sizeof(why)) ==
               0);
        assert(inbox_create(MEMBERS_MAX * RECORDING_CHUNKS + 1, &worker) == 0);
    }
    return device;
}

/* Runs the receiver of the shape until the source ends, and frees its state.  Returns the number of refused packets. */
static uint64_t receiver_run(struct pools *pools, struct fuzz_source *source, void (*check)(const struct chunk *chunk),
                             const struct offered *offered)
{
    static struct receiver receiver;
    struct device *device = receiver_device();

    if (!pools->home[0])
        make_pools(device, pools);
    memcpy(home, pools->home, sizeof(home));
    n_handed_on = 0;
    receiver_reset(&receiver, source);
    run(&receiver);
    assert(chunks_take(check) == END && receiver_get_error(&receiver) == 0);
    uint64_t n_refused = receiver_check_counters(&receiver, offered);
    receiver_free_state(&receiver);
    for (unsigned i = 0; i < shape.n_members; i++)
        assert(inbox_length(home[i]) == pool_chunks());
    return n_refused;
}

FUZZ_MODEL_END

#endif
