/* fuzz_receiver.c - packets made of the input, through a whole receiver as fgpu and xbgpu set it up.  Every byte of a
 * present heap comes from a packet whose own items say that the byte belongs there.
 *
 * Input: which daemon and how its packets are shaped, then packets: raw bytes, or well-formed ones with some bytes
 * altered.  The target reads the packets with its own parser.
 *
 * Rate: a receiver's thread and its buffers of 8 MB would take most of the time.  So this file includes receiver.c and
 * runs the thread's function on its own thread.  Buffers, chunk pools and inboxes stay from input to input.  Each input
 * starts with new assemblers (windows, claims, held packets, data_time), flows, predictions, all counters, the
 * receiver's last packet and shape.  All chunks must be in their pools before and after each input. */
#include "common/recv/receiver.c"

#include "common/device/device.h"
#include "fgpu/recv.h"
#include "tests/fuzz/fuzz_clock.h"
#include "tests/fuzz/fuzz_input.h"
#include "xbgpu/recv.h"

enum {
    PACKETS_MAX = 300,
    RAW_BYTES_MAX = 1500,
    POOL_CHUNKS = 4,
    RECORDING_CHUNKS = PACKETS_MAX + 4, /* a recording waits for a chunk, and nobody gives one back meanwhile */
    MEMBERS_MAX = 2,
    HEAP_BYTES_MAX = 640,
    CHAN_OFFSET = 8
};
enum { FREE_CHUNK = 1, FULL_CHUNK = 2, END = 3 };

/* What a packet says, if it is one of ours. */
static struct packet {
    uint8_t *bytes; /* exactly n_bytes of memory */
    size_t n_bytes;
    unsigned endpoint;
    bool ours;
    int64_t later_ns; /* than the packet before */
    unsigned member, source;
    uint64_t timestamp, offset;
    size_t payload_bytes;
} packets[PACKETS_MAX];
static size_t n_packets;

static struct shape {
    bool is_fgpu;
    size_t heap_bytes, n_heaps_per_source;
    unsigned n_members, n_sources;
    int64_t heap_samples;
    unsigned batch;       /* packets that recv gives at once */
    bool live;            /* with 'timebase: clock'; else a recording */
    bool is_synchronised; /* the host's clock */
} shape;

/* ---- Reading a packet, slowly ------------------------------------------------------------------------------------ */

static uint64_t get_word(const uint8_t *at)
{
    uint64_t word = 0;

    for (int i = 0; i < 8; i++)
        word = word << 8 | at[i];
    return word;
}

/* The last immediate of that id; UINT64_MAX if there is none, or if the last one of that id is an address. */
static uint64_t find_item(const struct packet *p, size_t n_items, unsigned id)
{
    uint64_t value = UINT64_MAX;

    for (size_t i = 0; i < n_items; i++) {
        uint64_t word = get_word(p->bytes + 8 + 8 * i);
        if ((word >> 48 & 0x7fff) == id)
            value = word >> 63 ? word & SPEAD_VALUE_MASK : UINT64_MAX;
    }
    return value;
}

static void read_packet(struct packet *p)
{
    p->ours = false;
    if (p->n_bytes < 8 || memcmp(p->bytes, "\x53\x04\x02\x06", 4) != 0)
        return;
    size_t n_items = (size_t)p->bytes[6] << 8 | p->bytes[7], header_bytes = 8 + 8 * n_items;
    if (header_bytes > p->n_bytes)
        return;
    p->offset = find_item(p, n_items, SPEAD_PAYLOAD_OFFSET);
    p->timestamp = find_item(p, n_items, SPEAD_TIMESTAMP);
    p->payload_bytes = p->n_bytes - header_bytes;
    uint64_t id = find_item(p, n_items, shape.is_fgpu ? SPEAD_DIGITISER_ID : SPEAD_FENG_ID);
    if (find_item(p, n_items, SPEAD_HEAP_LENGTH) != shape.heap_bytes ||
        find_item(p, n_items, SPEAD_PAYLOAD_LENGTH) != p->payload_bytes || p->offset > shape.heap_bytes ||
        p->payload_bytes > shape.heap_bytes - p->offset || p->timestamp == UINT64_MAX || id == UINT64_MAX)
        return;
    p->member = shape.is_fgpu ? p->endpoint : (unsigned)(id / shape.n_sources);
    p->source = shape.is_fgpu ? 0 : (unsigned)(id % shape.n_sources);
    if (shape.is_fgpu)
        p->ours = (id & 1) == p->endpoint % 2 && find_item(p, n_items, SPEAD_DIGITISER_STATUS) != UINT64_MAX;
    else
        p->ours = id < shape.n_members * shape.n_sources && find_item(p, n_items, SPEAD_FREQUENCY) == CHAN_OFFSET;
}

/* Every byte of a heap that is present must be one that some packet brought to that place. */
static void check_heap(unsigned member, unsigned source, int64_t timestamp, const uint8_t *heap)
{
    bool brought[HEAP_BYTES_MAX] = {false};

    for (size_t i = 0; i < n_packets; i++) {
        const struct packet *p = &packets[i];
        const uint8_t *payload = p->bytes + p->n_bytes - p->payload_bytes;

        if (!p->ours || p->member != member || p->source != source ||
            p->timestamp != ((uint64_t)timestamp & SPEAD_VALUE_MASK))
            continue;
        for (size_t k = 0; k < p->payload_bytes; k++)
            brought[p->offset + k] |= payload[k] == heap[p->offset + k];
    }
    for (size_t i = 0; i < shape.heap_bytes; i++)
        assert(brought[i]);
}

static uint64_t n_handed_on; /* heaps */

static void check_chunk(const struct chunk *chunk)
{
    size_t n_present = 0;

    for (size_t heap = 0; heap < chunk->n_heaps; heap++) {
        int64_t timestamp = chunk->timestamp_samples + (int64_t)(heap / shape.n_sources) * shape.heap_samples;

        n_present += chunk->present[heap];
        if (chunk->present[heap])
            check_heap(chunk->member, (unsigned)(heap % shape.n_sources), timestamp,
                       chunk->payload + heap * chunk->heap_bytes);
    }
    assert(n_present > 0 && n_present == chunk->n_present);
    n_handed_on += n_present;
}

/* ---- Making packets ---------------------------------------------------------------------------------------------- */

static struct packet *add_packet(size_t n_bytes)
{
    struct packet *p = &packets[n_packets++];

    *p = (struct packet){.bytes = fuzz_exact(n_bytes), .n_bytes = n_bytes};
    return p;
}

static void make_raw(struct fuzz_input *input)
{
    size_t n_bytes = fuzz_u16(input) % RAW_BYTES_MAX;
    struct packet *p = add_packet(n_bytes);
    size_t n = fuzz_bytes(input, n_bytes, p->bytes);

    memset(p->bytes + n, 0, n_bytes - n);
}

/* A packet of a heap near '*time', with up to three bytes altered and perhaps cut short. */
static void make_ours(struct fuzz_input *input, unsigned command, int64_t *time)
{
    /* An item more, perhaps one that is there already or makes another thing of the packet. */
    static const uint16_t extra_ids[] = {0x2222,          SPEAD_TIMESTAMP,   SPEAD_DIGITISER_ID, SPEAD_FENG_ID,
                                         SPEAD_FREQUENCY, SPEAD_STREAM_CTRL, SPEAD_DESCRIPTOR,   SPEAD_HEAP_LENGTH};
    unsigned which = fuzz_u8(input);
    unsigned extra = which & 0x80 ? 0 : fuzz_u8(input);
    int step = fuzz_i8(input);
    int64_t heap_time = *time + (command & 8 ? (int64_t)step * 1000 : step % 8);
    struct spead_item items[] = {
        {SPEAD_TIMESTAMP, true, (uint64_t)(heap_time * shape.heap_samples)},
        {shape.is_fgpu ? SPEAD_DIGITISER_ID : SPEAD_FENG_ID, true, which & 3},
        {shape.is_fgpu ? SPEAD_DIGITISER_STATUS : SPEAD_FREQUENCY, true, shape.is_fgpu ? which : CHAN_OFFSET},
        {shape.is_fgpu ? SPEAD_ADC_SAMPLES : SPEAD_FENG_RAW, false, 0},
        {extra_ids[extra % ARRAY_LEN(extra_ids)], extra & 0x80, (uint64_t)which},
    };
    size_t n_items = ARRAY_LEN(items) - (which >> 7);
    uint64_t offset = 0, n_payload = shape.heap_bytes;

    if (which & 0x40) {
        offset = 8 * (uint64_t)fuzz_u8(input) % shape.heap_bytes;
        n_payload = 8 * (1 + (uint64_t)fuzz_u8(input));
        if (n_payload > shape.heap_bytes - offset)
            n_payload = shape.heap_bytes - offset;
    }
    if (!(command & 8))
        *time = heap_time;
    struct packet *p = add_packet(spead_built_header_bytes(n_items) + n_payload);
    size_t header_bytes = spead_build_header(p->bytes, n_packets, shape.heap_bytes, offset, n_payload, items, n_items);
    /* Which packet a byte came from can be told by its value, as far as a byte can tell. */
    for (size_t i = 0; i < n_payload; i++)
        p->bytes[header_bytes + i] = (uint8_t)(37 * n_packets + i);
    for (unsigned i = 0; i < command >> 6; i++) {
        size_t at = fuzz_u16(input) % p->n_bytes;
        p->bytes[at] ^= (uint8_t)fuzz_u8(input);
    }
    if ((command & 0x30) == 0x30)
        p->n_bytes -= fuzz_u8(input) % p->n_bytes; /* never to nothing */
}

static void make_packets(struct fuzz_input *input)
{
    int64_t time = 100000 + fuzz_u8(input);

    for (n_packets = 0; n_packets < PACKETS_MAX && !fuzz_ended(input);) {
        unsigned command = fuzz_u8(input);

        if ((command & 7) == 7)
            make_raw(input);
        else
            make_ours(input, command, &time);
        packets[n_packets - 1].endpoint = (command & 7) % shape.n_members;
        packets[n_packets - 1].later_ns = (command >> 4) * shape.heap_samples * (int64_t)shape.n_heaps_per_source / 4;
        read_packet(&packets[n_packets - 1]);
    }
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

static struct inbox *worker;
static struct inbox *home[MEMBERS_MAX];
static struct assembler_stats stats[MEMBERS_MAX];

/* Looks at what has been handed on.  Returns the kind of the last item; 0: there was none. */
static int take_full(void)
{
    struct inbox_item item;
    int kind = 0;

    while (inbox_try_pop(worker, &item) == 0) {
        struct chunk *chunk = item.object;

        kind = item.kind;
        if (kind == END)
            continue;
        check_chunk(chunk);
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

static int fuzz_recv(struct recv_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct fuzz_source *source = CONTAINER_OF(base, struct fuzz_source, base);
    size_t n = 0;

    if (source->n_taken == n_packets)
        return -ENODATA;
    take_full();
    for (; n < n_slots && n < shape.batch && source->n_taken < n_packets; n++) {
        const struct packet *p = &packets[source->n_taken++];
        struct packet_slot *slot = &slots[n];
        size_t done = pour(slot->header, slot->header_bytes, p, 0);

        done += pour(slot->payload, slot->payload_bytes, p, done);
        done += pour(slot->spill, slot->spill_bytes, p, done);
        slot->packet_bytes = p->n_bytes;
        slot->truncated = done < p->n_bytes;
        slot->endpoint = p->endpoint;
        assert(!slot->truncated);
        fuzz_clock_advance(p->later_ns);
    }
    return (int)n;
}

static const struct recv_source_ops recording_ops = {.recv = fuzz_recv, .can_wait = true};
static const struct recv_source_ops live_ops = {.recv = fuzz_recv};

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

static void reset_receiver(struct receiver *r, struct fuzz_source *source)
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

static void free_state(struct receiver *r)
{
    for (size_t i = 0; i < shape.n_members; i++)
        assembler_destroy(r->assemblers[i]);
    free(r->assemblers);
    free(r->members);
    predictor_fini(&r->predictor);
}

/* Each packet was let in, or refused for one reason; a member's bytes are those of its heaps. */
static void check_counters(const struct receiver *receiver)
{
    const struct receiver_stats *r = receiver_get_stats(receiver);
    uint64_t n_malformed = 0, n_refused = 0, n_ours = 0, n_heaps = 0;

    assert(counter_get(&r->packets) == n_packets);
    for (int e = SPEAD_OK + 1; e < SPEAD_N_ERRORS; e++)
        n_malformed += counter_get(&r->malformed[e]);
    assert(n_malformed == counter_get(&r->rejects[REJECT_MALFORMED]));
    for (int reason = 0; reason < N_REJECTS; reason++)
        n_refused += counter_get(&r->rejects[reason]);
    for (unsigned i = 0; i < shape.n_members; i++) {
        assert(counter_get(&stats[i].bytes) == counter_get(&stats[i].heaps) * shape.heap_bytes);
        assert(!shape.live || shape.is_synchronised || counter_get(&stats[i].rejects[REJECT_CLOCK]) == 0);
        for (int reason = 0; reason < N_REJECTS; reason++)
            n_refused += counter_get(&stats[i].rejects[reason]);
        n_heaps += counter_get(&stats[i].heaps);
    }
    for (size_t i = 0; i < n_packets; i++)
        n_ours += packets[i].ours;
    assert(n_heaps == n_handed_on && n_refused <= n_packets);
    assert(n_heaps <= n_packets - n_refused && n_packets - n_refused <= n_ours);
}

static void run_packets(struct device *device, struct pools *pools)
{
    static struct receiver receiver;
    struct fuzz_source source = {.base.ops = shape.live ? &live_ops : &recording_ops};

    if (!pools->home[0])
        make_pools(device, pools);
    memcpy(home, pools->home, sizeof(home));
    n_handed_on = 0;
    reset_receiver(&receiver, &source);
    run(&receiver);
    assert(take_full() == END && receiver_get_error(&receiver) == 0);
    check_counters(&receiver);
    free_state(&receiver);
    for (unsigned i = 0; i < shape.n_members; i++)
        assert(inbox_length(home[i]) == pool_chunks());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const size_t heap_sizes[] = {8, 13, 72, HEAP_BYTES_MAX};
    static struct pools pools[2][ARRAY_LEN(heap_sizes)][4][2];
    static struct device *device;
    struct fuzz_input input = {data, n_bytes};
    unsigned choice = fuzz_u8(&input), batch = fuzz_u8(&input);
    char why[200];

    if (!device) {
        assert(device_open(&(struct device_config){.kind = DEVICE_CPU, .n_threads = 1}, &device, why, sizeof(why)) ==
               0);
        assert(inbox_create(MEMBERS_MAX * RECORDING_CHUNKS + 1, &worker) == 0);
    }
    shape = (struct shape){
        .is_fgpu = choice & 1,
        .heap_bytes = heap_sizes[choice >> 1 & 3],
        .n_heaps_per_source = 1 + (choice >> 3 & 3),
        .n_members = choice & 1 || choice & 0x20 ? 2 : 1,
        .n_sources = choice & 1 ? 1 : 2,
        .heap_samples = 1 << (choice >> 6),
        .batch = 1 + batch % PACKET_BATCH_MAX,
        .live = batch & 0x40,
        .is_synchronised = batch & 0x80,
    };
    make_packets(&input);
    run_packets(device, &pools[shape.live][choice >> 1 & 3][choice >> 3 & 3][choice & 1]);
    for (size_t i = 0; i < n_packets; i++)
        free(packets[i].bytes);
    return 0;
}
