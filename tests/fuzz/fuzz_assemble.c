/* fuzz_assemble.c - an assembler driven by a byte stream, against a model that keeps a flag and a value for every byte.
 *
 * The model does not predict which packets the assembler accepts.  The model follows the assembler's answers and checks
 * their consequences.  A heap is present if and only if each of its bytes arrived exactly once; the heap then has those
 * bytes.  Chunks leave in order of time except after a jump back or a flush.  Each expected heap is either handed on or
 * counted as missing.  With 'timebase: clock' the assembler accepts no claim that contradicts the synchronised clock,
 * and refuses no other claim.
 * Input: the layout, then commands. */
#include "common/recv/assemble.h"
#include "common/device/device.h"
#include "common/base/units.h"
#include "tests/fuzz/fuzz_clock.h"
#include "tests/fuzz/fuzz_input.h"

enum { POOL_MAX = 6, SLOTS_MAX = 8, HEAPS_MAX = 12, HEAP_BYTES_MAX = 1040, COMMANDS_MAX = 2000 };
#define NO_END      (INT64_MAX / 2) /* later than any time there is */
#define WIRE_PERIOD (INT64_C(1) << TIMESTAMP_WIRE_BITS)

static struct assembler_config config;
static struct assembler_stats stats;
static struct assembler_source_stats source_stats[3];
static struct assembler *assembler;
static struct inbox *home, *worker;
static struct chunk *held[POOL_MAX]; /* by the worker */
static size_t n_held;

/* What has been let in and has not left. */
static struct slot {
    bool used;
    int64_t chunk;
    bool arrived[HEAPS_MAX][HEAP_BYTES_MAX];
    uint8_t bytes[HEAPS_MAX][HEAP_BYTES_MAX];
    uint32_t extra[HEAPS_MAX];
    bool contested[HEAPS_MAX];
} slots[SLOTS_MAX];

static struct {
    bool begun;
    int64_t first_time, last_time; /* of the stream that goes on, in heaps */
    uint64_t n_expected, n_heaps;  /* of those that have ended; handed on */
    uint64_t n_source_heaps[3];    /* of these, by source */
    bool handed_on;                /* something has left since the stream began */
    int64_t newest_chunk;          /* that has left */
    int64_t near_ns;               /* arrival of the last packet in the window or just behind it */
} stream;

/* ---- The model --------------------------------------------------------------------------------------------------- */

static struct slot *find_slot(int64_t chunk)
{
    for (size_t i = 0; i < SLOTS_MAX; i++)
        if (slots[i].used && slots[i].chunk == chunk)
            return &slots[i];
    return NULL;
}

static struct slot *make_slot(int64_t chunk)
{
    for (size_t i = 0; i < SLOTS_MAX; i++)
        if (!slots[i].used) {
            memset(&slots[i], 0, sizeof(slots[i]));
            slots[i].used = true;
            slots[i].chunk = chunk;
            return &slots[i];
        }
    abort(); /* more chunks open than any window has */
}

static size_t n_heaps(void)
{
    return config.layout.n_heaps_per_source * config.layout.n_sources;
}

static bool is_complete(const struct slot *slot, size_t heap)
{
    for (size_t i = 0; i < config.layout.heap_bytes; i++)
        if (!slot->arrived[heap][i])
            return false;
    return !slot->contested[heap];
}

/* Returns the time after the stream's last heap, or NO_END if there is no stream. */
static int64_t end_stream(void)
{
    if (!stream.begun)
        return NO_END;
    stream.n_expected += (uint64_t)(stream.last_time + 1 - stream.first_time) * config.layout.n_sources;
    stream.begun = false;
    return stream.last_time + 1;
}

static void follow_stream(int64_t time)
{
    if (!stream.begun)
        stream.first_time = stream.last_time = time;
    stream.begun = true;
    if (time < stream.first_time)
        stream.first_time = time;
    if (time > stream.last_time)
        stream.last_time = time;
}

static void check_chunk(const struct chunk *chunk, int64_t end_time)
{
    int64_t index = chunk->timestamp_samples / assemble_chunk_samples(&config.layout);
    int64_t n_times = (int64_t)config.layout.n_heaps_per_source, n_left = end_time - index * n_times;
    struct slot *slot = find_slot(index);
    size_t n_present = 0;

    assert(slot && chunk->timestamp_samples % assemble_chunk_samples(&config.layout) == 0);
    for (size_t heap = 0; heap < n_heaps(); heap++) {
        bool complete = is_complete(slot, heap);

        assert(chunk->present[heap] == complete);
        assert(chunk->extra[heap] == (complete ? slot->extra[heap] : 0));
        n_present += complete;
        stream.n_source_heaps[heap % config.layout.n_sources] += complete;
        for (size_t i = 0; i < config.layout.heap_bytes; i++)
            assert(!slot->arrived[heap][i] ||
                   chunk->payload[heap * config.layout.heap_bytes + i] == slot->bytes[heap][i]);
    }
    assert(n_present > 0 && chunk->n_present == n_present);
    assert((int64_t)chunk->n_times == (n_left < n_times ? n_left : n_times));
    assert(!stream.handed_on || index > stream.newest_chunk);
    stream.handed_on = true;
    stream.newest_chunk = index;
    stream.n_heaps += n_present;
    slot->used = false;
}

/* Looks at what has been handed on, in a stream that ends before 'end_time'. */
static void take_full(int64_t end_time)
{
    struct inbox_item item;

    while (inbox_try_pop(worker, &item) == 0) {
        check_chunk(item.object, end_time);
        held[n_held++] = item.object;
    }
}

/* Forgets what has left the window; a complete heap would have been handed on. */
static void forget_left(bool all)
{
    int64_t oldest_samples = assembler_oldest_samples(assembler);
    int64_t chunk_samples = assemble_chunk_samples(&config.layout);

    for (size_t i = 0; i < SLOTS_MAX; i++) {
        if (!slots[i].used || (!all && slots[i].chunk * chunk_samples >= oldest_samples))
            continue;
        for (size_t heap = 0; heap < n_heaps(); heap++)
            assert(!is_complete(&slots[i], heap));
        slots[i].used = false;
    }
}

static void give_back(void)
{
    buffer_ref_put(&held[--n_held]->ref);
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

static void check_admitted(const struct assemble_packet *packet, const struct assemble_place *place, uint8_t *payload,
                           uint8_t salt)
{
    struct slot *slot = find_slot(place->chunk);

    if (!slot)
        slot = make_slot(place->chunk);
    for (uint64_t i = 0; i < packet->n_bytes; i++) {
        uint64_t at = packet->offset + i;

        assert(!slot->arrived[place->heap][at]);
        slot->arrived[place->heap][at] = true;
        slot->bytes[place->heap][at] = (uint8_t)(salt + 13 * i);
        payload[i] = slot->bytes[place->heap][at];
    }
    slot->extra[place->heap] = packet->extra;
}

/* Some of them are said to be other packets than those that came first. */
static void check_duplicate(const struct assemble_packet *packet, const struct assemble_place *place, uint8_t salt)
{
    struct slot *slot = find_slot(place->chunk);
    uint64_t n_arrived = 0;

    assert(slot);
    for (uint64_t i = 0; i < packet->n_bytes; i++)
        n_arrived += slot->arrived[place->heap][packet->offset + i];
    assert(n_arrived > 0);
    const uint8_t *first = assembler_duplicate_of(assembler);
    assert((first != NULL) == (n_arrived == packet->n_bytes));
    for (uint64_t i = 0; first && i < packet->n_bytes; i++)
        assert(first[i] == slot->bytes[place->heap][packet->offset + i]);
    if (salt & 4)
        assembler_contest(assembler, packet);
    slot->contested[place->heap] |= salt & 4;
}

static uint64_t count_refused(void)
{
    uint64_t n = 0;

    for (int r = 0; r < N_REJECTS; r++)
        n += counter_get(&stats.rejects[r]);
    return n;
}

/* Whether the host's clock is to be asked, and says that data of that time are not due. */
static bool clock_contradicts(int64_t timestamp)
{
    __int128 now = (__int128)fuzz_clock.unix_ns * config.timebase.adc_sample_rate_hz.mantissa / NS_PER_S;
    __int128 tolerance = (__int128)config.clock_tolerance_ns * config.timebase.adc_sample_rate_hz.mantissa / NS_PER_S;
    __int128 ahead = timestamp - now;

    return !config.timebase.from_packets && config.clock_tolerance_ns > 0 && fuzz_clock.is_synchronised &&
           (ahead > tolerance || -ahead > tolerance);
}

/* The newest chunk that the stream has come to. */
static int64_t newest_chunk(void)
{
    return floor_div(stream.last_time, (int64_t)config.layout.n_heaps_per_source);
}

static void admit(const struct assemble_packet *packet, uint8_t salt)
{
    struct assemble_place place;
    enum reject placed = assemble_place(&config.layout, packet, &place);
    uint64_t n_jumps = counter_get(&stats.jumps), n_refused = count_refused();
    uint64_t gap_samples = counter_get(&stats.gap_samples);
    int64_t window_samples = stream.begun ? newest_chunk() * assemble_chunk_samples(&config.layout) : 0;
    uint8_t *payload = NULL, *expected = assembler_expect(assembler, packet);

    fuzz_clock_advance(timebase_duration_ns(&config.timebase, (salt & 3) * assemble_chunk_samples(&config.layout)));
    enum reject reject = assembler_admit(assembler, packet, clock_monotonic_ns(), &payload);
    assert(count_refused() == n_refused + (reject != REJECT_NONE));
    assert(!placed || reject == placed);
    assert((reject == REJECT_NONE) == (payload != NULL));
    bool jumped = counter_get(&stats.jumps) > n_jumps;
    if (!placed && reject != REJECT_JUMP && reject != REJECT_CLOCK)
        stream.near_ns = clock_monotonic_ns();
    assert(reject != REJECT_CLOCK || clock_contradicts(packet->timestamp));
    /* A jump over an outage has no claim: arrivals speak for it (gap_samples stays). */
    assert(!jumped || counter_get(&stats.gap_samples) == gap_samples || !clock_contradicts(packet->timestamp) ||
           clock_contradicts(window_samples));
    assert(!expected || (!jumped && payload == expected));
    if (reject == REJECT_JUMP || reject == REJECT_CLOCK || reject == REJECT_TOO_OLD || placed) {
        assert(!jumped);
        return;
    }
    bool is_back = jumped && place.time < stream.last_time;
    bool restarted = is_back || counter_get(&stats.gap_samples) > gap_samples;
    take_full(restarted ? end_stream() : NO_END);
    if (is_back)
        stream.handed_on = false;
    forget_left(jumped);
    follow_stream(place.time);
    if (reject == REJECT_NONE)
        check_admitted(packet, &place, payload, salt);
    else if (reject == REJECT_DUPLICATE)
        check_duplicate(packet, &place, salt);
    else
        assert(reject == REJECT_NO_CHUNK && !find_slot(place.chunk));
}

static void admit_next(struct fuzz_input *input, unsigned command, int64_t *base_time)
{
    const struct assemble_layout *layout = &config.layout;
    int64_t n_window = (int64_t)layout->n_heaps_per_source * config.window_chunks;
    unsigned shape = fuzz_u8(input);
    struct assemble_packet packet = {
        .source = shape % layout->n_sources,
        .timestamp = (*base_time + fuzz_i8(input)) * layout->heap_samples,
        .heap_bytes = layout->heap_bytes,
        .extra = command | shape << 8 | 1,
    };

    switch (command & 7) {
    case 0: packet.timestamp += n_window * layout->heap_samples * fuzz_i8(input); break;
    case 1: packet.timestamp += (int64_t)fuzz_i8(input) * (INT64_C(1) << 40); break;
    default: *base_time = packet.timestamp / layout->heap_samples; break; /* the stream goes on from here */
    }
    packet.offset = 8 * (fuzz_u8(input) % (layout->heap_bytes / 8 + 1));
    packet.n_bytes = shape & 0x80 ? 8 * (1 + fuzz_u8(input)) : layout->heap_bytes;
    if (command & 0x10) { /* anything that the parser lets through */
        packet.offset += command >> 5;
        packet.n_bytes -= shape >> 5 & 3;
        packet.timestamp += shape & 4 ? 1 : 0;
        packet.heap_bytes += shape & 8 ? 8 : 0;
        packet.source += shape & 16 ? layout->n_sources : 0;
    }
    if (packet.offset > packet.heap_bytes)
        packet.offset = packet.heap_bytes;
    if (packet.n_bytes > packet.heap_bytes - packet.offset)
        packet.n_bytes = packet.heap_bytes - packet.offset;
    admit(&packet, (uint8_t)(command + 31 * shape));
}

static void flush(bool only_oldest)
{
    if (assembler_oldest_samples(assembler) == INT64_MAX)
        return;
    int64_t end_time = stream.last_time + 1; /* flushed chunks end there, wherever the stream stops */
    if (only_oldest)
        assembler_flush_oldest(assembler);
    else
        assembler_flush(assembler);
    take_full(end_time);
    bool ended = assembler_oldest_samples(assembler) == INT64_MAX;
    forget_left(ended);
    if (ended) {
        end_stream();
        stream.handed_on = false;
    }
}

/* Before there is a window, timestamps are those nearest to the clock's; or of recordings, the wire's own. */
static void check_near_clock(int64_t wire)
{
    int64_t timestamp = assembler_unwrap(assembler, (uint64_t)wire, clock_monotonic_ns());
    __int128 now = (__int128)fuzz_clock.unix_ns * config.timebase.adc_sample_rate_hz.mantissa / NS_PER_S;

    if (config.timebase.from_packets)
        assert(timestamp == wire);
    else
        assert((timestamp - now <= WIRE_PERIOD / 2 && now - timestamp <= WIRE_PERIOD / 2) ||
               (timestamp == wire && now < WIRE_PERIOD / 2)); /* the nearest would be negative */
}

/* After a second and two windows without any packet, open chunks leave whole. */
static bool is_silent(void)
{
    int64_t chunk_samples = assemble_chunk_samples(&config.layout);
    int64_t window_ns = timebase_duration_ns(&config.timebase, config.window_chunks * chunk_samples);

    return assembler_oldest_samples(assembler) <= newest_chunk() * chunk_samples &&
           clock_monotonic_ns() - stream.near_ns >= NS_PER_S + 2 * window_ns;
}

static void pass_time(unsigned n_windows)
{
    uint64_t n_jumps = counter_get(&stats.jumps);

    fuzz_clock_advance(n_windows * timebase_duration_ns(&config.timebase,
                                                        config.window_chunks * assemble_chunk_samples(&config.layout)));
    if (n_windows == 15)
        fuzz_clock_advance(2 * NS_PER_S);
    if (is_silent())
        stream.last_time = (newest_chunk() + 1) * (int64_t)config.layout.n_heaps_per_source - 1;
    assembler_pass_time(assembler, clock_monotonic_ns());
    bool reseated = counter_get(&stats.jumps) > n_jumps;
    assert(!reseated || (!config.timebase.from_packets && fuzz_clock.is_synchronised));
    if (assembler_oldest_samples(assembler) == INT64_MAX && !reseated)
        return;
    take_full(reseated ? stream.last_time + 1 : NO_END);
    forget_left(reseated);
    if (!reseated)
        return;
    end_stream();
    stream.handed_on = false;
    check_near_clock(clock_unix_ns() % WIRE_PERIOD);
}

/* The clock is set, or the kernel's opinion of it changes. */
static void set_clock(unsigned how, int8_t step)
{
    int64_t ns = (int64_t)step * timebase_duration_ns(&config.timebase, assemble_chunk_samples(&config.layout));

    if (how & 1)
        ns = (int64_t)step * timebase_duration_ns(&config.timebase, WIRE_PERIOD / 8);
    if (fuzz_clock.unix_ns + ns >= 0 && fuzz_clock.unix_ns + ns < INT64_MAX / 2)
        fuzz_clock.unix_ns += ns;
    fuzz_clock.is_synchronised = how & 2;
}

/* Timestamps of the wire, as the receiver asks of them. */
static void unwrap(struct fuzz_input *input)
{
    uint64_t wire = 0;

    for (int i = 0; i < 6; i++)
        wire = wire << 8 | fuzz_u8(input);
    int64_t timestamp = assembler_unwrap(assembler, wire, clock_monotonic_ns());
    assert(timestamp >= 0 && ((uint64_t)timestamp & (WIRE_PERIOD - 1)) == wire);
    if (assembler_oldest_samples(assembler) == INT64_MAX)
        check_near_clock((int64_t)wire);
}

/* Each heap counts for its source, and as many are expected of each. */
static void check_sources(void)
{
    uint64_t n_heaps = 0, n_expected = stream.n_expected / config.layout.n_sources;

    for (unsigned i = 0; i < config.layout.n_sources; i++) {
        uint64_t n = counter_get(&source_stats[i].heaps);
        assert(n == stream.n_source_heaps[i]);
        assert(n + counter_get(&source_stats[i].missing_heaps) == n_expected);
        n_heaps += n;
    }
    assert(n_heaps == stream.n_heaps);
}

static void run(struct fuzz_input *input)
{
    int64_t base_time = 1000 * (int64_t)fuzz_u16(input);

    if (!config.timebase.from_packets)
        fuzz_clock_set(0, timebase_duration_ns(&config.timebase, base_time * config.layout.heap_samples), true);
    for (int i = 0; i < COMMANDS_MAX && !fuzz_ended(input); i++) {
        unsigned command = fuzz_u8(input);

        switch (command & 15) {
        case 15: flush(command & 0x10); break;
        case 14:
        case 13:
            if (n_held > 0)
                give_back();
            break;
        case 12: pass_time(command >> 4); break;
        case 11:
            if (!config.timebase.from_packets && command & 0x40)
                set_clock(command >> 4, (int8_t)fuzz_u8(input));
            else if (!config.timebase.from_packets && command & 0x80)
                unwrap(input);
            else
                admit_next(input, command, &base_time);
            break;
        default: admit_next(input, command, &base_time);
        }
    }
    flush(false);
    assert(counter_get(&stats.heaps) == stream.n_heaps);
    assert(counter_get(&stats.bytes) == stream.n_heaps * config.layout.heap_bytes);
    assert(stream.n_heaps + counter_get(&stats.missing_heaps) == stream.n_expected);
    check_sources();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const size_t heap_sizes[] = {8, 5, 13, 24, 72, 512, 520, HEAP_BYTES_MAX};
    static struct device *device;
    struct fuzz_input input = {data, n_bytes};
    struct chunk_pool *pool;
    char why[200];

    if (!device)
        assert(device_open(&(struct device_config){.kind = DEVICE_CPU, .n_threads = 1}, &device, why, sizeof(why)) ==
               0);
    memset(&stats, 0, sizeof(stats));
    memset(source_stats, 0, sizeof(source_stats));
    memset(&stream, 0, sizeof(stream));
    fuzz_clock_set(0, 0, false);
    unsigned shape = fuzz_u16(&input);
    size_t n_chunks = 1 + fuzz_u8(&input) % POOL_MAX;
    config = (struct assembler_config){
        .layout = {.heap_samples = 1 + 15 * (shape & 1),
                   .heap_bytes = heap_sizes[shape >> 1 & 7],
                   .n_heaps_per_source = 1 + (shape >> 4 & 3),
                   .n_sources = 1 + (shape >> 6) % 3},
        .name = "fuzzed",
        .window_chunks = 1 + (shape >> 8) % 3,
        .jump_heaps = 1 + (shape >> 10 & 3),
        .jump_sources = 1 + (shape >> 12 & 1),
        .timebase = {.adc_sample_rate_hz = {1000000000, 0}, .from_packets = !(shape & 0x2000)},
        .clock_tolerance_ns = shape & 0x8000 ? 0 : 64,
        .full_kind = 2,
        .stats = &stats,
        .source_stats = source_stats,
    };
    assert(inbox_create(n_chunks, &home) == 0 && inbox_create(n_chunks, &worker) == 0);
    const struct chunk_shape chunks = {
        .n_chunks = n_chunks, .n_heaps = n_heaps(), .heap_bytes = config.layout.heap_bytes};
    assert(chunk_pool_create(device, &chunks, 0, home, 1, &pool, NULL, 0) == 0);
    config.free_chunks = home;
    config.worker = worker;
    assert(assembler_create(&config, &assembler) == 0);
    run(&input);
    while (n_held > 0)
        give_back();
    assert(inbox_length(home) == n_chunks);
    assembler_destroy(assembler);
    chunk_pool_destroy(pool);
    inbox_destroy(worker);
    inbox_destroy(home);
    return 0;
}
