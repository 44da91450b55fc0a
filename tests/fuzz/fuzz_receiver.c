/* fuzz_receiver.c - packets made of the input, through a whole receiver as fgpu and xbgpu set it up.  Every byte of a
 * present heap comes from a packet whose own items say that the byte belongs there.
 *
 * Input: which daemon and how its packets are shaped, then packets: raw bytes, or well-formed ones with some bytes
 * altered.  The target reads the packets with its own parser.
 */
#include "tests/fuzz/fuzz_count.h"
#include "tests/fuzz/fuzz_receiver.h"

static struct packet packets[PACKETS_MAX]; /* the bytes of each are exactly n_bytes of memory */
static size_t n_packets;

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
        packet_read(&packets[n_packets - 1]);
    }
}

/* ---- The source -------------------------------------------------------------------------------------------------- */

static int fuzz_recv(struct recv_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct fuzz_source *source = CONTAINER_OF(base, struct fuzz_source, base);
    size_t n = 0;

    if (source->n_taken == n_packets)
        return -ENODATA;
    chunks_take(check_chunk);
    while (n < n_slots && n < shape.batch && source->n_taken < n_packets)
        fill_slot(&slots[n++], &packets[source->n_taken++]);
    return (int)n;
}

static const struct recv_source_ops recording_ops = {.recv = fuzz_recv, .can_wait = true};
static const struct recv_source_ops live_ops = {.recv = fuzz_recv};

static void run_packets(struct pools *pools)
{
    struct fuzz_source source = {.base.ops = shape.live ? &live_ops : &recording_ops};
    struct offered offered = {.n_packets = n_packets, .n_altered = n_packets};

    for (size_t i = 0; i < n_packets; i++)
        offered.n_ours += packets[i].ours;
    receiver_run(pools, &source, check_chunk, &offered);
    fuzz_count("packets", n_packets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const size_t heap_sizes[] = {8, 13, 72, HEAP_BYTES_MAX};
    static struct pools pools[2][ARRAY_LEN(heap_sizes)][4][2];
    struct fuzz_input input = {data, n_bytes};
    unsigned choice = fuzz_u8(&input), batch = fuzz_u8(&input);

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
    run_packets(&pools[shape.live][choice >> 1 & 3][choice >> 3 & 3][choice & 1]);
    for (size_t i = 0; i < n_packets; i++)
        free(packets[i].bytes);
    return 0;
}
