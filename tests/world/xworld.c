/* xworld.c - xbgpu in a simulated world: seeds draw F-engines, a network with faults and a configuration.
 *
 *     build/tests/xworld [--verbose] FIRST_SEED [N_SEEDS]
 *
 * Each run checks these properties, with integers that this file computes itself:
 *   exact     each visibility that is not flagged is the sum over all spectra of its window;
 *   complete  a baseline whose heaps all arrived in time is not flagged, and its dump is sent;
 *   counted   each packet that the receiver read is in one counter.
 * The process ends with exit status 1 and the seed at the first failure. */
#include "common/base/units.h"
#include "common/engine/engine.h"
#include "tests/world/faults.h"
#include "tests/world/network.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/sent.h"
#include "tests/world/wire.h"
#include "tests/world/xworld.h"
#include "xbgpu/config.h"
#include "xbgpu/pipeline.h"
#include "xbgpu/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define main xbgpu_main
int xbgpu_main(int argc, char **argv);
ENGINE_MAIN(xbgpu)
#undef main

#define RATE_HZ     256000 /* a batch takes BATCH_NS */
#define SYNC_UNIX_S 1759990000
#define HEAP_BYTES  (MAX_CHANS * N_SPECTRA * 4)
#define SOURCE      "239.1.0.1:7148"
#define DESTINATION "239.2.0.1:7148"

/* A heap that an F-engine sent. */
struct heap {
    int64_t sent_ns, last_read_ns;
    unsigned parts_read; /* bit k: part k was read whole */
    unsigned parts_late; /* bit k: every copy of part k that was read was read late */
    bool is_suspect;     /* without a CRC, a packet with a flipped bit may have become a part of this heap */
};

struct part {
    struct heap *heap;
    unsigned number;
    unsigned socket; /* of the receive thread that processes the F-engine */
};

struct scenario s;
static struct heap heaps[MAX_ANTS][MAX_BATCHES];
static struct part parts[MAX_ANTS][MAX_BATCHES][4];

/* ---- Voltages -------------------------------------------------------------------------------------------------------- */

int8_t voltage(unsigned ant, int64_t batch, unsigned chan, unsigned spectrum, unsigned pol, unsigned part)
{
    uint64_t z = (uint64_t)batch * 0x9E3779B97F4A7C15 + (((ant * 64 + chan) * 64 + spectrum) * 4 + pol * 2 + part);

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (int8_t)((int)((z >> 40) % 255) - 127);
}

int8_t shifted_voltage(unsigned set, unsigned ant, int64_t batch, unsigned chan, unsigned spectrum, unsigned pol,
                       unsigned part)
{
    int64_t at = batch * N_SPECTRA + spectrum - s.shifts[set][2 * ant + pol];

    return voltage(ant, at / N_SPECTRA, chan, (unsigned)(at % N_SPECTRA), pol, part);
}

/* Returns whether a batch of an antenna, with the shifts of a set, needs the heap 'distance' batches later. */
static bool needs(unsigned set, unsigned ant, int distance)
{
    for (unsigned pol = 0; pol < 2; pol++) {
        int first = distance * N_SPECTRA + s.shifts[set][2 * ant + pol]; /* where the heap's spectra go in the batch */
        if (first < N_SPECTRA && first + N_SPECTRA > 0)
            return true;
    }
    return false;
}

static void fill_heap(unsigned ant, int64_t batch, uint8_t *out)
{
    for (unsigned chan = 0; chan < s.n_chan; chan++)
        for (unsigned spectrum = 0; spectrum < N_SPECTRA; spectrum++)
            for (unsigned pol = 0; pol < 2; pol++)
                for (unsigned part = 0; part < 2; part++)
                    *out++ = (uint8_t)voltage(ant, batch, chan, spectrum, pol, part);
}

/* Adds x(ant1) * conj(x(ant2)) of a batch to sums[product][re, im] of a channel. */
static void add_products(unsigned ant1, unsigned ant2, int64_t batch, unsigned chan, int64_t sums[4][2])
{
    for (unsigned t = 0; t < N_SPECTRA; t++)
        for (unsigned p = 0; p < 4 && (!s.has_gate || requests_gate_takes(batch * BATCH + t * STEP)); p++) {
            int64_t ar = shifted_voltage(VIS_SHIFTS, ant1, batch, chan, t, p & 1, 0);
            int64_t ai = shifted_voltage(VIS_SHIFTS, ant1, batch, chan, t, p & 1, 1);
            int64_t br = shifted_voltage(VIS_SHIFTS, ant2, batch, chan, t, p >> 1, 0);
            int64_t bi = shifted_voltage(VIS_SHIFTS, ant2, batch, chan, t, p >> 1, 1);
            sums[p][0] += ar * br + ai * bi;
            sums[p][1] += ai * br - ar * bi;
        }
}

/* ---- F-engines ------------------------------------------------------------------------------------------------------- */

/* Largest age at which a packet is certainly in time: the window, without the chunk that leaves and half a chunk. */
static int64_t in_time_ns(void)
{
    return ((int64_t)s.window - 2) * s.chunk_batches * BATCH_NS + s.chunk_batches * BATCH_NS / 2;
}

/* Without a CRC, xbgpu cannot notice every flipped bit.  Marks the heap that the packet belongs to now. */
static void on_flipped(const struct part *part, const struct network_delivery *delivery)
{
    struct wire_packet packet;

    s.n_flipped_read += s.n_threads == 1; /* other threads ignore the packet before they check its CRC */
    part->heap->is_suspect |= !s.has_crc;
    if (s.has_crc || !wire_read(delivery->bytes, delivery->n_bytes, &packet))
        return;
    const struct wire_item *feng_id = wire_find(&packet, WIRE_FENG_ID), *time = wire_find(&packet, WIRE_TIMESTAMP);
    if (!feng_id || !time || feng_id->value >= s.n_ants || time->value % BATCH != 0)
        return;
    int64_t b = (int64_t)(time->value / BATCH) - s.first_batch;
    s.time_flipped |= b != (part->heap - heaps[0]) % MAX_BATCHES;
    if (b >= 0 && b < MAX_BATCHES)
        heaps[feng_id->value][b].is_suspect = true;
}

static void on_seen(void *arg, const struct network_delivery *delivery)
{
    const struct part *part = arg;
    struct heap *heap = part->heap;

    if (delivery->was_read && delivery->is_flipped)
        on_flipped(part, delivery);
    if (!delivery->was_read || !delivery->is_whole || delivery->socket != part->socket)
        return;
    heap->parts_read |= 1u << part->number;
    if (delivery->read_ns - heap->sent_ns <= in_time_ns())
        heap->parts_late &= ~(1u << part->number);
}

/* Returns the number of the receive thread that processes an F-engine: threads share F-engines as evenly as possible. */
static unsigned thread_of(unsigned ant)
{
    unsigned thread = 0;

    while ((thread + 1) * s.n_ants / s.n_threads <= ant)
        thread++;
    return thread;
}

static void send_heap(struct network_port *port, unsigned ant, unsigned b)
{
    uint8_t voltages[HEAP_BYTES], bytes[HEAP_BYTES + 256];
    size_t heap_bytes = (size_t)s.n_chan * N_SPECTRA * 4, part_bytes = heap_bytes / s.n_parts;
    int64_t batch = s.first_batch + b;

    heaps[ant][b] = (struct heap){
        .sent_ns = world_now_ns(), .parts_late = (1u << s.n_parts) - 1, .is_suspect = heaps[ant][b].is_suspect};
    fill_heap(ant, batch, voltages);
    for (unsigned k = 0; k < s.n_parts; k++) {
        struct wire_packet packet = {
            .heap_cnt = (uint64_t)b * s.n_ants + ant,
            .heap_bytes = heap_bytes,
            .offset = k * part_bytes,
            .payload_bytes = part_bytes,
            .payload = voltages + k * part_bytes,
            .n_items = s.has_crc ? 5 : 4,
            .items = {{WIRE_TIMESTAMP, false, (uint64_t)(batch * BATCH)},
                      {WIRE_FENG_ID, false, ant},
                      {WIRE_FREQUENCY, false, s.first_chan},
                      {WIRE_FENG_RAW, true, 0},
                      {WIRE_CRC, false, 0}},
        };
        size_t n_bytes = wire_write(&packet, bytes);
        wire_add_crc(bytes, n_bytes);
        parts[ant][b][k] = (struct part){&heaps[ant][b], k, thread_of(ant)};
        network_send(port, bytes, n_bytes, on_seen, &parts[ant][b][k]);
    }
}

static bool has_arrived(unsigned ant, unsigned b)
{
    return heaps[ant][b].parts_read == (1u << s.n_parts) - 1;
}

/* Returns the first batch of which a heap arrived. */
static unsigned first_arrived(void)
{
    for (unsigned b = 0; b < s.n_batches; b++)
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            if (has_arrived(ant, b))
                return b;
    return s.n_batches;
}

/* The open chunks of an F-engine that falls silent leave while the other F-engines advance by a chunk.  If the network
 * loses whole chunks, these chunks may be late for their sets.  The same holds if the last heaps are lost before all
 * F-engines fall silent.  Returns true if no heap of a chunk's duration arrived within a window after the batch. */
static bool is_before_silence(unsigned ant, unsigned b)
{
    unsigned end = b + (s.window + 2) * s.chunk_batches, n_absent = 0;

    for (unsigned i = b; i < end && (i < s.n_batches || n_absent > 0); i++) {
        n_absent = i < s.n_batches && has_arrived(ant, i) ? 0 : n_absent + 1;
        if (n_absent == s.chunk_batches)
            return true;
    }
    return false;
}

static bool arrived_in_time(unsigned ant, unsigned b)
{
    return has_arrived(ant, b) && heaps[ant][b].parts_late == 0 && !(s.is_lossy && is_before_silence(ant, b));
}

/* The chunk of the first packet that is read becomes the oldest.  Jitter may delay packets of earlier chunks. */
static int64_t begun(void)
{
    return s.first_batch + first_arrived() + network_faults(network_port(SOURCE))->jitter_ns / BATCH_NS + 1 +
           s.chunk_batches;
}

static bool is_heap_suspect(unsigned ant, int64_t b)
{
    return b >= 0 && b < MAX_BATCHES && heaps[ant][b].is_suspect;
}

bool is_suspect(unsigned ant, int64_t batch)
{
    bool is_any = false;

    for (int d = -1; d <= 1; d++)
        is_any |= needs(BEAM_SHIFTS, ant, d) && is_heap_suspect(ant, batch + d - s.first_batch);
    return is_any;
}

static enum presence heap_presence(unsigned ant, int64_t batch)
{
    int64_t b = batch - s.first_batch;

    if (is_heap_suspect(ant, b))
        return UNSURE;
    if (b < 0 || b >= s.n_batches || !has_arrived(ant, (unsigned)b))
        return ABSENT;
    return s.is_prompt && !s.time_flipped && !s.is_overloaded && batch >= begun() && arrived_in_time(ant, (unsigned)b)
               ? PRESENT
               : UNSURE;
}

enum presence presence(unsigned ant, int64_t batch)
{
    enum presence all = PRESENT;

    for (int d = -1; d <= 1; d++) {
        enum presence one = needs(BEAM_SHIFTS, ant, d) ? heap_presence(ant, batch + d) : PRESENT;
        if (one == ABSENT)
            return ABSENT;
        all = one == UNSURE ? UNSURE : all;
    }
    return all;
}

/* ---- Dumps ----------------------------------------------------------------------------------------------------------- */

#define MAX_DUMP_BYTES (MAX_CHANS * MAX_ANTS * (MAX_ANTS + 1) / 2 * 4 * 8 + 256) /* with other items */

struct dump {
    bool began;
    uint64_t n_bytes_left;
    int32_t values[MAX_DUMP_BYTES / 4];
};
static struct dump dumps[MAX_BATCHES]; /* by window, from first_window() on */

/* A negative shift moves spectra of the first batch to the batch before it. */
static int64_t first_window(void)
{
    return (s.first_batch - 1) / s.length;
}

void check_substream(const struct wire_packet *packet)
{
    const struct wire_item *frequency = wire_find(packet, WIRE_FREQUENCY);
    uint64_t n_substreams = N_CHAN / s.n_chan;

    if (!frequency || frequency->value != s.first_chan || packet->heap_cnt % n_substreams != s.first_chan / s.n_chan)
        world_fail("the heap with the count %llu does not belong to channel %u", (unsigned long long)packet->heap_cnt,
                   s.first_chan);
}

static void on_dump_packet(void *arg, const uint8_t *bytes, size_t n_bytes)
{
    struct wire_packet packet;

    if (!wire_read(bytes, n_bytes, &packet))
        world_fail("xbgpu sent a packet that is not SPEAD");
    const struct wire_item *timestamp = wire_find(&packet, WIRE_TIMESTAMP);
    if (!timestamp || !wire_find(&packet, WIRE_XENG_RAW))
        return; /* a descriptor or a stop */
    check_substream(&packet);
    int64_t window = (int64_t)timestamp->value / BATCH / s.length - first_window();
    if (s.time_flipped && (window < 0 || window >= MAX_BATCHES))
        return; /* the dump of the packet with the wrong timestamp */
    if ((int64_t)timestamp->value % (BATCH * s.length) != 0 || window < 0 || window >= MAX_BATCHES)
        world_fail("a dump has the timestamp %llu", (unsigned long long)timestamp->value);
    struct dump *dump = &dumps[window];
    if (!dump->began)
        dump->n_bytes_left = packet.heap_bytes;
    dump->began = true;
    if (packet.offset + packet.payload_bytes > MAX_DUMP_BYTES || packet.payload_bytes > dump->n_bytes_left)
        world_fail("dump %lld has too many bytes", (long long)window);
    memcpy((uint8_t *)dump->values + packet.offset, packet.payload, packet.payload_bytes);
    dump->n_bytes_left -= packet.payload_bytes;
}

/* Checks the four products of a baseline in all channels: all are flagged, or all are exact.  Returns whether they are flagged. */
static bool check_baseline(const struct dump *dump, int64_t window, unsigned ant1, unsigned ant2, bool must_be_exact)
{
    unsigned n_baselines = s.n_ants * (s.n_ants + 1) / 2, baseline = ant2 * (ant2 + 1) / 2 + ant1, n_flagged = 0;

    for (unsigned chan = 0; chan < s.n_chan; chan++) {
        const int32_t(*found)[2] = (const void *)&dump->values[(chan * n_baselines + baseline) * 8];
        int64_t sums[4][2] = {{0}};
        for (unsigned i = 0; i < s.length; i++)
            add_products(ant1, ant2, window * s.length + i, chan, sums);
        for (unsigned p = 0; p < 4; p++) {
            bool is_flagged = found[p][0] == INT32_MIN && found[p][1] == 1;
            n_flagged += is_flagged;
            if (must_be_exact && !is_flagged && (found[p][0] != sums[p][0] || found[p][1] != sums[p][1]))
                world_fail("window %lld, antennas %u and %u, channel %u, product %u: (%d, %d) instead of (%lld, %lld)",
                           (long long)window, ant1, ant2, chan, p, found[p][0], found[p][1], (long long)sums[p][0],
                           (long long)sums[p][1]);
        }
    }
    if (n_flagged != 0 && n_flagged != 4 * s.n_chan)
        world_fail("window %lld, antennas %u and %u: only %u values are flagged", (long long)window, ant1, ant2,
                   n_flagged);
    return n_flagged > 0;
}

/* Expected fate of an antenna's part of a window. */
struct verdict {
    bool whole;   /* all heaps arrived in time */
    bool lacks;   /* a heap did not arrive */
    bool suspect; /* a heap may have wrong values, or count as missing */
};

/* Adds a heap that the window needs. */
static void judge_heap(struct verdict *v, unsigned ant, int64_t b)
{
    bool inside = b >= 0 && b < s.n_batches;

    v->whole &= inside && arrived_in_time(ant, (unsigned)b);
    v->lacks |= !inside || !has_arrived(ant, (unsigned)b);
    v->suspect |= is_heap_suspect(ant, b);
}

static void judge_window(int64_t window, struct verdict verdicts[MAX_ANTS])
{
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        struct verdict *v = &verdicts[ant];
        *v = (struct verdict){.whole = s.is_prompt && !s.time_flipped && !s.is_overloaded};
        for (unsigned i = 0; i < s.length; i++)
            for (int d = -1; d <= 1; d++)
                if (needs(VIS_SHIFTS, ant, d))
                    judge_heap(v, ant, window * s.length + i + d - s.first_batch);
        v->whole &= !v->suspect;
    }
}

static void check_window(int64_t window, bool must_exist)
{
    const struct dump *dump = &dumps[window - first_window()];
    struct verdict verdicts[MAX_ANTS];
    bool any_whole = false;
    /* the dump is complete after the last batch of its window, at the latest when all open chunks have left */
    int64_t end_ns = s.begin_ns + ((window + 1) * s.length - 1 - s.first_batch) * BATCH_NS;
    enum presence sends = requests_sends(0, window * s.length * BATCH, end_ns,
                                         end_ns + 2 * (s.window + 4) * s.chunk_batches * BATCH_NS + NS_PER_S);

    judge_window(window, verdicts);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        any_whole |= verdicts[ant].whole;
    if (!dump->began) {
        if (must_exist && any_whole && sends == PRESENT && !s.has_failed && !s.is_overloaded)
            world_fail("window %lld: all heaps of an antenna arrived in time, and there is no dump", (long long)window);
        world_note("no dump of a window");
        return;
    }
    if (dump->n_bytes_left > 0 && s.has_failed)
        return; /* the sender stopped within the dump */
    if (dump->n_bytes_left > 0)
        world_fail("window %lld: %llu bytes of the dump are missing", (long long)window,
                   (unsigned long long)dump->n_bytes_left);
    if (sends == ABSENT)
        world_fail("window %lld: there is a dump, and the stream was stopped", (long long)window);
    world_note("dumps");
    for (unsigned ant2 = 0; ant2 < s.n_ants; ant2++)
        for (unsigned ant1 = 0; ant1 <= ant2; ant1++) {
            const struct verdict *v1 = &verdicts[ant1], *v2 = &verdicts[ant2];
            bool is_suspect = v1->suspect || v2->suspect;
            bool is_flagged = check_baseline(dump, window, ant1, ant2, !is_suspect);
            world_note(is_suspect ? "suspect baselines" : is_flagged ? "flagged baselines" : "exact baselines");
            if (is_flagged && v1->whole && v2->whole)
                world_fail("window %lld, antennas %u and %u: flagged, and all heaps arrived in time", (long long)window,
                           ant1, ant2);
            if (!is_flagged && !is_suspect && (v1->lacks || v2->lacks))
                world_fail("window %lld, antennas %u and %u: not flagged, and heaps are missing", (long long)window,
                           ant1, ant2);
        }
}

/* ---- One run --------------------------------------------------------------------------------------------------------- */

/* Draws an F-engine that is silent for a time after the partition. */
static void draw_absence(const struct network_faults *f)
{
    unsigned ant = (unsigned)world_random(s.n_ants), from = (unsigned)(f->partition_from_ns / BATCH_NS);
    unsigned end = (unsigned)(f->partition_to_ns / BATCH_NS) + (unsigned)world_random(60);

    bool is_absent = run_draw("absence", 2);

    for (unsigned b = from; is_absent && b < end && b < s.n_batches; b++)
        s.is_silent[ant][b] = true;
}

static void draw_faults(struct network_faults *f)
{
    static const double rates[] = {0, 0, 0.001, 0.01, 0.1};

    f->lose = rates[run_draw("lose", 5)];
    f->duplicate = rates[run_draw("duplicate", 5)];
    f->truncate = rates[run_draw("truncate", 4)];
    f->flip = rates[run_draw("flip", 4)];
    f->burst = run_draw("burst", 3) == 2 ? 0.005 : 0;
    f->burst_length = 40;
    static const int64_t jitters_ns[] = {0, NS_PER_MS, BATCH_NS / 2, 4 * BATCH_NS, 8 * BATCH_NS};
    f->jitter_ns = (int64_t)world_random((uint64_t)jitters_ns[run_draw("jitter", 5)] + 1);
    /* A partition after an F-engine fell silent may cost the chunks that were open then: docs/reliability.md. */
    if (run_draw("partition", 2) && !s.has_silence) {
        f->partition_from_ns = (int64_t)(20 + world_random(80)) * BATCH_NS;
        f->partition_to_ns = f->partition_from_ns + (int64_t)world_random(60) * BATCH_NS;
        draw_absence(f);
    }
}

/* Draws the faults of the device. */
static void draw_device(void)
{
    static const int64_t slow_ns[] = {0, 0, 0, 20 * NS_PER_US, 4 * NS_PER_MS};
    struct device_faults faults = {.slow_ns = slow_ns[run_draw("slow", 5)]};
    unsigned what = (unsigned)run_draw("device", 24);

    s.is_overloaded = faults.slow_ns > NS_PER_MS || s.stop_batch < s.n_batches;
    s.may_fail = what > 20;
    if (what == 21 || what == 22)
        faults.fail_operation = 1 + (unsigned)world_random(world_random(2) ? 200 : 1500);
    faults.fails_when_run = what == 22;
    if (what == 23)
        faults.fail_memory = 1 + (unsigned)world_random(60);
    device_faults_set(&faults);
}

/* Decides which promises hold under these faults. */
static void judge_faults(const struct network_faults *f)
{
    s.is_lossy = f->lose > 0 || f->burst > 0 || s.buffer_bytes < 1000000;
    s.is_prompt = f->jitter_ns < in_time_ns() && f->jitter_ns <= s.chunk_batches * BATCH_NS / 2;
    world_note(s.is_prompt ? "runs without packets out of the window" : "runs with packets out of the window");
}

/* Writes the shifts of a set as a list. */
static void format_shifts(unsigned set, char *text, size_t text_bytes)
{
    size_t n = 0;

    for (unsigned input = 0; s.has_shifts && input < 2 * s.n_ants; input++)
        n += (size_t)snprintf(text + n, text_bytes - n, "%s%d", input > 0 ? ", " : "", s.shifts[set][input]);
    text[n] = '\0';
}

static void draw_shifts(void)
{
    bool vis_alone = run_draw("vis_shifts", 2);

    s.has_shifts = run_draw("shifts", 3) == 2;
    for (unsigned set = 0; s.has_shifts && set < 2; set++)
        for (unsigned input = 0; input < 2 * s.n_ants; input++)
            s.shifts[set][input] = set == VIS_SHIFTS && !vis_alone ? s.shifts[BEAM_SHIFTS][input]
                                   : world_random(3) == 0          ? 0
                                                                   : (int)world_random(2 * N_SPECTRA + 1) - N_SPECTRA;
    world_note(s.has_shifts ? "runs with shifts" : "runs without shifts");
}

static void draw_scenario(void)
{
    memset(&s, 0, sizeof(s));
    memset(heaps, 0, sizeof(heaps));
    memset(dumps, 0, sizeof(dumps));
    s.n_ants = 1 + (unsigned)run_draw("antennas", MAX_ANTS);
    s.n_chan = 1u << run_draw("channels", 3);
    s.first_chan = s.n_chan * (unsigned)run_draw("substream", N_CHAN / MAX_CHANS);
    s.n_parts = 1u << run_draw("parts", 3);
    s.n_threads = 1 + (unsigned)run_draw("threads", 3) % s.n_ants;
    s.n_senders = 1 + (unsigned)run_draw("senders", 5);
    s.chunk_batches = 1 + (unsigned)run_draw("chunk", 4);
    s.window = 1 + (unsigned)run_draw("window", 7);
    s.length = 1 + (unsigned)run_draw("length", 9);
    s.n_batches = 20 + (unsigned)run_draw("batches", 100);
    s.has_crc = run_draw("crc", 2);
    s.stop_batch = run_draw("stop", 8) == 7 ? (unsigned)world_random(s.n_batches) : s.n_batches;
    s.has_gate = run_draw("gate", 2);
    s.has_forger = run_draw("forger", 2);
    s.buffer_bytes = run_draw("buffer", 4) == 3 ? 6000 : 1000000;
    s.missing_dump = (unsigned)run_draw("missing_dump", 3);
    s.first_batch = (world_unix_ns() / NS_PER_S - SYNC_UNIX_S) * RATE_HZ / BATCH + (int64_t)world_random(10);
    s.is_stalled = s.stop_batch < s.n_batches && run_draw("stall", 4) == 3;
    draw_shifts();
    bool may_be_silent = run_draw("silence", 2);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        for (unsigned b = 0; may_be_silent && world_random(3) == 0 && b < 2; b++) {
            s.has_silence = true;
            unsigned from = 10 + (unsigned)world_random(s.n_batches), n = 1 + (unsigned)world_random(30);
            for (unsigned i = from; i < from + n && i < s.n_batches; i++)
                s.is_silent[ant][i] = true;
        }
}

static void write_config(const char *path)
{
    char shifts[2][128];

    static const char *const missing_dumps[] = {"send", "skip", "always"};
    FILE *file = fopen(path, "w");

    if (!file)
        world_fail("cannot write %s", path);
    format_shifts(BEAM_SHIFTS, shifts[BEAM_SHIFTS], sizeof(shifts[0]));
    format_shifts(VIS_SHIFTS, shifts[VIS_SHIFTS], sizeof(shifts[0]));
    fprintf(file,
            "time: {sync_time: %d, adc_sample_rate: %d}\n"
            "device: {kind: cpu, threads: 1}\n"
            "recv: {sources: [\"" SOURCE "\"], interface: lo, antennas: %u, channels: %d, channels_per_substream: %u,\n"
            "       channel_offset: %u, spectra_per_heap: %d, samples_between_spectra: %d, batches_per_chunk: %u, "
            "window: %u, chunks: %u,\n"
            "       threads: %u, buffer: %u, crc: %s, from: \"%s\", shifts: [%s]}\n"
            "outputs:\n"
            "  - {name: vis, integration_batches: %u, destination: [\"" DESTINATION
            "\"], send_enabled: true, buffers: %u, missing_dump: %s, gate: \"%s\", shifts: [%s]}\n"
            "send: {interface: lo, packet_payload: 512, threads: %u}\n",
            SYNC_UNIX_S, RATE_HZ, s.n_ants, N_CHAN, s.n_chan, s.first_chan, N_SPECTRA, STEP, s.chunk_batches, s.window,
            s.is_overloaded ? 2 * s.window + 5 : 4 * s.window + 8, s.n_threads, s.buffer_bytes,
            s.has_crc ? "true" : "false", s.has_forger ? "10.0.0.1" : "", shifts[BEAM_SHIFTS], s.length,
            s.is_overloaded ? 0 : 160, missing_dumps[s.missing_dump], s.has_gate ? "g" : "", shifts[VIS_SHIFTS],
            s.n_senders);
    if (s.has_gate)
        requests_write_gate(file);
    beams_write_config(file);
    fprintf(file, "katcp: {listen: [\"127.0.0.1:7147\"], max_clients: 4}\n");
    fclose(file);
}

static void send_all(struct network_port *port)
{
    s.begin_ns = world_now_ns() / BATCH_NS * BATCH_NS + BATCH_NS;
    for (unsigned b = 0; b < s.stop_batch; b++) {
        while (world_now_ns() < s.begin_ns + b * BATCH_NS)
            world_wait(NULL, s.begin_ns + b * BATCH_NS);
        requests_send(b);
        others_send(port, b);
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            if (!s.is_silent[ant][b])
                send_heap(port, ant, b);
    }
}

/* Prints the scenario and the fate of each heap: sent by no F-engine (-), lost (x), late (l) or in time (.). */
static void show_run(struct network_port *port)
{
    const struct network_faults *f = network_faults(port);

    fprintf(
        stderr,
        "%u antennas, %u channels, %u packets a heap, %u batches from %lld on, %u a window, %u threads, chunks of %u, "
        "window of %u; lose %g, duplicate %g, truncate %g, flip %g, crc %d, burst %g, jitter %.3f ms; digest %016llx\n",
        s.n_ants, s.n_chan, s.n_parts, s.n_batches, (long long)s.first_batch, s.length, s.n_threads, s.chunk_batches,
        s.window, f->lose, f->duplicate, f->truncate, f->flip, s.has_crc, f->burst, (double)f->jitter_ns * 1e-6,
        (unsigned long long)world_digest());
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        for (unsigned b = 0; b < s.n_batches; b++)
            fputc(s.is_silent[ant][b]        ? '-'
                  : !has_arrived(ant, b)     ? 'x'
                  : !arrived_in_time(ant, b) ? 'l'
                                             : '.',
                  stderr);
        fputc('\n', stderr);
    }
}

static void check_counters(struct network_port *port)
{
    uint64_t n_packets = run_counter("xbgpu_input_packets_total", ""),
             n_heaps = run_counter("xbgpu_input_heaps_total", "");
    uint64_t n_refused =
        run_counter("xbgpu_input_rejected_packets_total", "") + run_counter("xbgpu_input_ignored_packets_total", "");

    if (n_packets != network_n_read(port))
        world_fail("%llu packets were read, and the counter says %llu", (unsigned long long)network_n_read(port),
                   (unsigned long long)n_packets);
    if (n_heaps * s.n_parts + n_refused > n_packets)
        world_fail("%llu heaps of %u packets and %llu refused packets are more than %llu packets",
                   (unsigned long long)n_heaps, s.n_parts, (unsigned long long)n_refused,
                   (unsigned long long)n_packets);
    uint64_t n_part = run_counter("xbgpu_input_incomplete_heaps_total", "") * (s.n_parts - 1) +
                      run_counter("xbgpu_input_contested_heaps_total", "") * s.n_parts;
    if (n_packets > n_heaps * s.n_parts + n_refused + n_part)
        world_fail(
            "%llu packets are more than %llu heaps of %u packets, %llu refused packets and %llu packets of parts",
            (unsigned long long)n_packets, (unsigned long long)n_heaps, s.n_parts, (unsigned long long)n_refused,
            (unsigned long long)n_part);
    if (s.has_crc && run_counter("xbgpu_input_rejected_packets_total", "") < s.n_flipped_read)
        world_fail("%u packets with a flipped bit were read, and fewer were refused", s.n_flipped_read);
    uint64_t n_metadata = run_counter("xbgpu_input_ignored_packets_total", "\"descriptor\"") +
                          run_counter("xbgpu_input_rejected_packets_total", "\"no_items\"");
    if (network_faults(port)->flip == 0 && run_counter("xbgpu_input_metadata_heaps_total", "") != n_metadata)
        world_fail("%llu packets were descriptors, and another number of heaps is counted",
                   (unsigned long long)n_metadata);
    /* The receiver did not know when data were due, because the stream was interrupted soon after its beginning
     * (docs/reliability.md). */
    if (s.is_lossy && run_counter("xbgpu_input_gap_samples_total", "") > 0)
        s.is_prompt = false;
    bool loses =
        run_counter("xbgpu_input_rejected_packets_total", "no_chunk") > 0 ||
        run_counter("xbgpu_output_x_dropped_accs_total", "") > 0 ||
        run_counter("xbgpu_beam_dropped_heaps_total", "") + run_counter("xbgpu_detected_dropped_heaps_total", "") > 0;
    if (loses && !s.is_overloaded)
        world_fail("packets found no free chunk, or dumps no free output buffer");
    if (s.is_overloaded)
        world_note(loses ? "device: too slow" : "device: slow, and nothing is lost");
    s.is_overloaded = loses;
}

/* Checks the last line of each receive thread, "F-engines 0-1: 23 heaps received, 1 missing ...": each heap from the first
 * that arrived to the last that arrived is in one of the numbers.  If the silence at the end was long, the rest of the last
 * chunk is missing, too. */
static void on_line(const char *line)
{
    unsigned from, to, first = s.n_batches, end = 0;
    unsigned long long n_heaps, n_missing;

    const char *drain = strstr(line, " received chunks were not processed, and ");
    if (strncmp(line, "the drain took longer than", 26) == 0 && drain) {
        s.gave_up = true;
        s.n_given_up = strtoull(strstr(drain, "and ") + 4, NULL, 10);
    }
    if (strstr(line, " of their samples clipped") && sscanf(line, "%*[^:]: %llu", &n_heaps) == 1)
        s.n_beam_heaps += n_heaps;
    if (sscanf(line, "F-engines %u-%u: %llu %*s received, %llu missing", &from, &to, &n_heaps, &n_missing) != 4)
        return;
    for (unsigned ant = from; ant <= to; ant++)
        for (unsigned b = 0; b < s.n_batches; b++)
            if (heaps[ant][b].parts_read != 0) {
                first = b < first ? b : first;
                end = b + 1 > end ? b + 1 : end;
            }
    if ((!s.is_prompt && s.window > 1) || s.is_overloaded || s.may_fail ||
        (network_faults(network_port(SOURCE))->flip > 0 && !s.has_crc) || first == s.n_batches ||
        run_counter("xbgpu_input_rejected_packets_total", "too_old") > 0 ||
        run_counter("xbgpu_input_rejected_packets_total", "jump") > 0 ||
        run_counter("xbgpu_input_gap_samples_total", "") > 0)
        return;
    world_note("receive threads whose heaps are counted");
    uint64_t n = (n_heaps + n_missing) / (to - from + 1), rest = (uint64_t)(s.first_batch + end) % s.chunk_batches;
    if ((n_heaps + n_missing) % (to - from + 1) != 0 ||
        (n != end - first && (rest == 0 || n != end - first + s.chunk_batches - rest)))
        world_fail("'%s', and the heaps of %u batches are expected", line, end - first);
}

/* Compares the counters with the heaps and packets that were sent. */
static void check_sent(void)
{
    struct sent_totals sent = sent_totals();
    uint64_t n_heaps = run_counter("xbgpu_output_x_heaps_total", "") + run_counter("xbgpu_output_b_heaps_total", "");
    uint64_t n_bytes = run_counter("xbgpu_output_x_bytes_total", "") + run_counter("xbgpu_output_b_bytes_total", "");

    if (!sent_is_idle())
        return;
    if (n_heaps != sent.n_heaps || n_bytes != sent.n_bytes)
        world_fail("%llu heaps of %llu bytes were sent, and the counters say %llu heaps of %llu bytes",
                   (unsigned long long)sent.n_heaps, (unsigned long long)sent.n_bytes, (unsigned long long)n_heaps,
                   (unsigned long long)n_bytes);
}

static void check_counting_sensor(const char *sensor, const char *counter)
{
    int64_t found = run_sensor("vis.%s", sensor).value.integer, wanted = (int64_t)run_counter(counter, "\"vis\"");

    if (found != wanted)
        world_fail("the sensor vis.%s is %lld, and the counter %s is %lld", sensor, (long long)found, counter,
                   (long long)wanted);
}

/* Compares the sensors of the visibilities with the counters and the dumps, and the beams' sensors with each other. */
static void check_sensors(void)
{
    static const char *const input_sensors[] = {"rx.timestamp", "rx.unixtime", "rx.missing-unixtime",
                                                "rx.device-status"};
    struct sensor_reading synchronised = run_sensor("vis.rx.synchronised");
    int64_t next = run_sensor("vis.tx.next-timestamp").value.integer, newest = 0;

    check_counting_sensor("xeng-clip-cnt", "xbgpu_output_x_clipped_visibilities_total");
    check_counting_sensor("audit-failure-cnt", "xbgpu_audit_failures_total");
    check_counting_sensor("wrong-dump-cnt", "xbgpu_output_x_wrong_accs_total");
    if ((synchronised.value.integer != 0) != (synchronised.status == SENSOR_NOMINAL))
        world_fail("the sensor vis.rx.synchronised has the wrong status");
    for (unsigned i = 0; i < MAX_BATCHES; i++)
        if (dumps[i].began)
            newest = (first_window() + i + 1) * s.length * BATCH;
    if (next % (s.length * BATCH) != 0 || next < newest)
        world_fail("the sensor vis.tx.next-timestamp is %lld, and the last dump ends at %lld", (long long)next,
                   (long long)newest);
    for (size_t i = 0; i < sizeof(input_sensors) / sizeof(input_sensors[0]); i++)
        run_sensor("%s", input_sensors[i]);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        run_sensor("a%u.rx.state", ant);
}

static void check_dumps(void)
{
    int64_t last = (s.first_batch + s.n_batches) / s.length; /* windows that have ended */

    for (int64_t window = first_window(); window < last; window++)
        check_window(window, window * s.length >= begun());
}

static void run_seed(uint64_t seed, const char *path)
{
    world_begin(seed);
    network_begin();
    draw_scenario();
    draw_device();
    beams_draw();
    write_config(path);
    struct network_port *source = network_port(SOURCE), *destination = network_port(DESTINATION);
    draw_faults(network_faults(source));
    judge_faults(network_faults(source));
    network_listen(destination, on_dump_packet, NULL);
    beams_listen();
    run_on_line = on_line;
    struct run_daemon daemon = run_start("xbgpu", xbgpu_main, path);
    requests_connect();
    send_all(source);
    if (s.stop_batch == s.n_batches)
        run_sleep(3 * NS_PER_S);
    else
        world_note("runs that are stopped while data flow");
    if (!run_has_ended() && s.stop_batch == s.n_batches) {
        check_counters(source);
        check_sent();
        check_sensors();
    }
    if (s.is_stalled)
        device_faults_slow(2 * NS_PER_S);
    int exit_code = run_stop_code(&daemon);
    s.has_failed = device_faults_failed() || s.gave_up;
    if (s.is_stalled)
        world_note(s.gave_up ? "drain: too long" : "drain: slow");
    if (exit_code != s.has_failed)
        world_fail("the exit code is %d, and the device %s", exit_code, s.has_failed ? "failed" : "did not fail");
    requests_check();
    if (run_is_verbose)
        show_run(source);
    if (requests_are_known()) {
        check_dumps();
        beams_check();
    }
    requests_end();
    world_end(); /* the last packets may still be on their way */
    if (s.gave_up && s.n_beam_heaps > beams_n_sent() + s.n_given_up)
        world_fail("%llu heaps of beams were made, %llu were sent, and only %llu were given up",
                   (unsigned long long)s.n_beam_heaps, (unsigned long long)beams_n_sent(),
                   (unsigned long long)s.n_given_up);
    beams_end();
    network_end();
}

int main(int argc, char **argv)
{
    return run_seeds(argc, argv, run_seed);
}
