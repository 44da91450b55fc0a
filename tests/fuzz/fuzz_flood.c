/* fuzz_flood.c - thousands of packets to an input, through a whole receiver as fgpu and xbgpu set it up.  Nothing that
 * arrived is lost: each whole heap that arrived in one packet is handed on, unless the receiver refused and counted a
 * packet.
 *
 * Input: the shape of the packets and of the source, a seed, then commands of four bytes.  A command sets how the next
 * packets differ from a stream without faults.  The commands are repeated until PACKETS_OF_INPUT packets have been
 * made, so each input feeds the same number of packets.
 *
 * Model: the bytes of a heap are a function of the heap's member, source and timestamp, which the target reads from the
 * finished header with its own parser.  So every byte of a heap that is handed on is known. */
#include "tests/fuzz/fuzz_count.h"
#include "tests/fuzz/fuzz_receiver.h"

FUZZ_MODEL_BEGIN

enum { PACKETS_OF_INPUT = 2048, BUFFER_BYTES = 2048, N_ITEMS_MAX = 6, PATTERNS = 1 << 16 };

/* How the packets of a command differ from a stream without faults. */
enum fault { NONE, LOSS, LATE, TWICE, ALTERED, JUMP, SILENCE, RAW };

static struct script {
    const uint8_t *bytes;
    size_t n_bytes, at;
    uint64_t random;
    /* the command */
    enum fault fault;
    unsigned flags, amount, detail, n_left;
    /* the next packet of the stream */
    int64_t time; /* timestamp / heap_samples */
    unsigned member, source;
    size_t offset;
    uint64_t heap_cnt;
    int64_t later_ns;
} script;

static struct offered offered;
static uint64_t n_whole;   /* packets of ours with a whole heap */
static uint64_t n_altered; /* packets that are not as a digitiser or an F-engine sends them */
static uint8_t patterns[PATTERNS + HEAP_BYTES_MAX];
static uint8_t *buffers[PACKET_BATCH_MAX]; /* a packet ends where its buffer ends, which reveals overruns */

/* ---- Chance ------------------------------------------------------------------------------------------------------ */

static unsigned random_below(unsigned n)
{
    script.random ^= script.random << 13;
    script.random ^= script.random >> 7;
    script.random ^= script.random << 17;
    return (unsigned)((script.random >> 32) * n >> 32);
}

/* True in 'amount' of 256 packets. */
static bool is_chosen(void)
{
    return random_below(256) < script.amount;
}

/* ---- The bytes of a heap ----------------------------------------------------------------------------------------- */

static void make_patterns(void)
{
    script.random = 88172645463325252;
    for (size_t i = 0; i < sizeof(patterns); i++)
        patterns[i] = (uint8_t)random_below(256);
}

static const uint8_t *pattern_of(unsigned member, unsigned source, uint64_t timestamp)
{
    uint64_t key = (timestamp & SPEAD_VALUE_MASK) << 4 | member << 2 | source;

    return patterns + (key * 0x9e3779b97f4a7c15 >> 48);
}

static void check_chunk(const struct chunk *chunk)
{
    size_t n_present = 0;

    for (size_t heap = 0; heap < chunk->n_heaps; heap++) {
        int64_t timestamp = chunk->timestamp_samples + (int64_t)(heap / shape.n_sources) * shape.heap_samples;
        const uint8_t *bytes = pattern_of(chunk->member, (unsigned)(heap % shape.n_sources), (uint64_t)timestamp);

        n_present += chunk->present[heap];
        if (chunk->present[heap])
            assert(memcmp(chunk->payload + heap * chunk->heap_bytes, bytes, shape.heap_bytes) == 0);
    }
    assert(n_present > 0 && n_present == chunk->n_present);
    n_handed_on += n_present;
}

/* ---- The script -------------------------------------------------------------------------------------------------- */

static unsigned read_byte(void)
{
    if (script.n_bytes == 0)
        return 0;
    if (script.at == script.n_bytes)
        script.at = 0;
    return script.bytes[script.at++];
}

static void read_command(void)
{
    static const int steps[] = {1, 1000, 100000, 1 << 30};
    unsigned command = read_byte();

    script.fault = (enum fault)(command & 7);
    script.flags = command >> 3;
    script.n_left = 1 + read_byte();
    script.amount = read_byte();
    script.detail = read_byte();
    if (script.fault == JUMP)
        script.time += (int64_t)(int8_t)script.amount * steps[script.detail % ARRAY_LEN(steps)];
    if (script.fault == SILENCE && script.detail & 1)
        script.later_ns += (int64_t)NS_PER_MS << script.amount % 13;
    if (script.time < 0)
        script.time = 0;
}

/* Moves on to the next packet of the stream. */
static void advance(size_t n_payload)
{
    static const unsigned quarters[] = {4, 0, 5, 16}; /* heaps' durations that pass, in quarters: the rate of sending */

    script.offset += n_payload;
    if (script.offset < shape.heap_bytes)
        return;
    script.offset = 0;
    script.heap_cnt++;
    if (++script.source < shape.n_sources)
        return;
    script.source = 0;
    if (++script.member < shape.n_members)
        return;
    script.member = 0;
    script.time++;
    script.later_ns += shape.heap_samples * quarters[script.flags >> 3] / 4;
}

static size_t payload_size(void)
{
    size_t n_left = shape.heap_bytes - script.offset;
    size_t n = script.flags & 1 ? 8 * (1 + script.detail % 16) : shape.heap_bytes;

    return n < n_left ? n : n_left;
}

static bool is_skipped(void)
{
    switch (script.fault) {
    case LOSS: return is_chosen();
    case TWICE: return script.detail & 1 && random_below(8) == 0; /* a copy then lands where the next packet should */
    case SILENCE: return !(script.detail & 1) && script.source == script.amount % shape.n_sources;
    default: return false;
    }
}

static void skip_packets(void)
{
    for (int i = 0; i < 16 && is_skipped(); i++)
        advance(payload_size());
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

static void begin_packet(struct packet *p, size_t i, size_t n_bytes)
{
    p->bytes = buffers[i] + BUFFER_BYTES - n_bytes;
    p->n_bytes = n_bytes;
}

static void make_raw(struct packet *p, size_t i)
{
    begin_packet(p, i, random_below(RAW_BYTES_MAX));
    for (size_t k = 0; k < p->n_bytes; k++)
        p->bytes[k] = (uint8_t)random_below(256);
    if (script.detail & 1 && p->n_bytes >= 8)
        memcpy(p->bytes, (const uint8_t[]){0x53, 4, 2, 6, 0, 0, 0, (uint8_t)(script.detail >> 2)}, 8);
    n_altered++;
}

/* Alters the header, or cuts the packet short. */
static void alter(struct packet *p, size_t header_bytes)
{
    n_altered++;
    if (script.detail & 8) {
        size_t n_cut = random_below((unsigned)p->n_bytes);
        memmove(p->bytes + n_cut, p->bytes, p->n_bytes - n_cut);
        p->bytes += n_cut;
        p->n_bytes -= n_cut;
        return;
    }
    for (unsigned n = 1 + script.detail % 3; n > 0; n--)
        p->bytes[random_below((unsigned)header_bytes)] ^= (uint8_t)(1 + random_below(255));
}

/* Returns the number of items; the header has an item more if the command says so, of a meaning that changes the packet
 * if the command says that, too. */
static size_t make_items(struct spead_item items[N_ITEMS_MAX], int64_t time)
{
    static const uint16_t extra_ids[] = {0x2222, SPEAD_STREAM_CTRL, SPEAD_DESCRIPTOR, SPEAD_TIMESTAMP};
    unsigned id = shape.is_fgpu ? script.member : script.member * shape.n_sources + script.source;
    size_t n = 0;

    items[n++] =
        (struct spead_item){SPEAD_TIMESTAMP, true, (uint64_t)time * (uint64_t)shape.heap_samples & SPEAD_VALUE_MASK};
    items[n++] = (struct spead_item){shape.is_fgpu ? SPEAD_DIGITISER_ID : SPEAD_FENG_ID, true, id};
    items[n++] = (struct spead_item){shape.is_fgpu ? SPEAD_DIGITISER_STATUS : SPEAD_FREQUENCY, true,
                                     shape.is_fgpu ? script.heap_cnt & 0xffff : CHAN_OFFSET};
    items[n++] = (struct spead_item){shape.is_fgpu ? SPEAD_ADC_SAMPLES : SPEAD_FENG_RAW, false, 0};
    if (script.flags & 2 && script.fault != ALTERED)
        items[n++] = (struct spead_item){extra_ids[0], true, script.detail};
    else if (script.flags & 2)
        items[n++] = (struct spead_item){extra_ids[script.detail & 3], script.detail & 4, script.detail >> 3};
    return n;
}

/* Builds the next packet of the stream, with the payload that its header claims. */
static void build_packet(struct packet *p, size_t i, int64_t time)
{
    struct spead_item items[N_ITEMS_MAX];
    size_t n_items = make_items(items, time), n_payload = payload_size();
    const uint8_t *payload = pattern_of(script.member, script.source, (uint64_t)time * (uint64_t)shape.heap_samples);
    bool is_altered = script.fault == ALTERED && is_chosen();

    begin_packet(p, i, spead_built_header_bytes(n_items + shape.has_crc) + n_payload);
    size_t header_bytes = spead_build_header(p->bytes, script.heap_cnt & SPEAD_VALUE_MASK, shape.heap_bytes,
                                             script.offset, n_payload, items, n_items);
    if (shape.has_crc)
        header_bytes = spead_add_crc(p->bytes, header_bytes, payload + script.offset, n_payload);
    memcpy(p->bytes + header_bytes, payload + script.offset, n_payload);
    if (is_altered)
        alter(p, header_bytes);
    else
        n_altered += script.fault == ALTERED && n_items > 4;
    packet_read(p);
    if (script.fault == ALTERED && p->ours) /* an altered header, or an item more, may claim another heap */
        memcpy(p->bytes + p->n_bytes - p->payload_bytes, pattern_of(p->member, p->source, p->timestamp) + p->offset,
               p->payload_bytes);
    if (!(script.fault == TWICE && is_chosen()))
        advance(n_payload);
}

static void make_packet(struct packet *p, size_t i)
{
    if (script.n_left == 0)
        read_command();
    script.n_left--;
    skip_packets();
    int64_t time = script.time;
    if (script.fault == LATE)
        time = script.detail & 1 && is_chosen() ? time - random_below(64) : time ^ (script.detail >> 1 & 7);
    p->endpoint = shape.is_fgpu ? script.member : 0;
    p->later_ns = script.later_ns;
    script.later_ns = 0;
    if (script.fault == RAW && is_chosen()) {
        make_raw(p, i);
        packet_read(p);
    } else {
        build_packet(p, i, time > 0 ? time : 0);
    }
    offered.n_packets++;
    offered.n_altered = n_altered;
    offered.n_ours += p->ours;
    n_whole += p->ours && p->offset == 0 && p->payload_bytes == shape.heap_bytes;
}

/* ---- The source -------------------------------------------------------------------------------------------------- */

static int flood_recv(struct recv_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    int n = 0;

    if (offered.n_packets == PACKETS_OF_INPUT)
        return -ENODATA;
    chunks_take(check_chunk);
    for (; (size_t)n < n_slots && (unsigned)n < shape.batch && offered.n_packets < PACKETS_OF_INPUT; n++) {
        struct packet p = {0};

        make_packet(&p, (size_t)n);
        fill_slot(&slots[n], &p);
    }
    return n;
}

static bool is_always(const struct recv_source *source)
{
    return true;
}

static const struct recv_source_ops recording_ops = {.recv = flood_recv, .can_wait = true};
static const struct recv_source_ops live_ops = {.recv = flood_recv};
static const struct recv_source_ops zero_copy_ops = {.recv = flood_recv, .is_zero_copy = is_always};

/* ---- An input ---------------------------------------------------------------------------------------------------- */

static const size_t heap_sizes[] = {8, 13, 72, HEAP_BYTES_MAX};

static void read_shape(struct fuzz_input *input)
{
    unsigned choice = fuzz_u8(input), source = fuzz_u8(input), more = fuzz_u8(input);

    shape = (struct shape){
        .is_fgpu = choice & 1,
        .heap_bytes = heap_sizes[choice >> 1 & 3],
        .n_heaps_per_source = 1 + (choice >> 3 & 3),
        .n_members = choice & 1 || choice & 0x20 ? 2 : 1,
        .n_sources = choice & 1 ? 1 : 2,
        .heap_samples = INT64_C(1) << (choice >> 6) * 4,
        .batch = 1 + source % PACKET_BATCH_MAX,
        .live = source & 0x40,
        .is_synchronised = source & 0x80,
        .zero_copy = source & 0x40 && more & 1,
        .has_crc = more & 2,
        .needs_crc = (more & 6) == 6,
    };
}

static void begin(struct fuzz_input *input)
{
    if (!buffers[0]) {
        make_patterns();
        for (size_t i = 0; i < PACKET_BATCH_MAX; i++)
            buffers[i] = fuzz_exact(BUFFER_BYTES);
    }
    read_shape(input);
    script = (struct script){.random = 0x9e3779b97f4a7c15 ^ fuzz_u16(input), .time = 100000 + (int64_t)fuzz_u8(input)};
    script.bytes = input->at;
    script.n_bytes = input->n_left;
    offered = (struct offered){0};
    n_whole = n_altered = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct pools pools[2][ARRAY_LEN(heap_sizes)][4][2];
    struct fuzz_input input = {data, n_bytes};

    begin(&input);
    struct fuzz_source source = {.base.ops =
                                     shape.zero_copy ? &zero_copy_ops : (shape.live ? &live_ops : &recording_ops)};
    unsigned choice = n_bytes > 0 ? data[0] : 0;
    uint64_t n_refused =
        receiver_run(&pools[shape.live][choice >> 1 & 3][choice >> 3 & 3][choice & 1], &source, check_chunk, &offered);
    uint64_t n_refused_of_ours = n_refused - (offered.n_packets - offered.n_ours);
    assert(n_whole <= n_handed_on + n_refused_of_ours);
    fuzz_count("packets", offered.n_packets);
    return 0;
}

FUZZ_MODEL_END
