/* fworld.c - fgpu in a simulated world: seeds draw digitisers, a network with faults and a configuration.
 *
 *     build/tests/fworld [--verbose] FIRST_SEED [N_SEEDS]
 *
 * The digitisers' samples repeat after PERIOD batches.  A run without faults gives the voltages of a period, which are
 * compared with a filter bank in double precision.  Each run checks these properties:
 *   exact     each heap has the bits of the run without faults, and no heap comes twice;
 *   complete  if all packets of a batch's filter windows arrived in time, the batch is sent to all substreams;
 *   flagged   if one of these packets did not arrive, the batch is not sent;
 *   counted   the counter of packets agrees with the packets that the receivers read.
 * The process ends with exit status 1 and the seed at the first failure. */
#include "common/base/units.h"
#include "common/engine/engine.h"
#include "fgpu/config.h"
#include "fgpu/pipeline.h"
#include "fgpu/tune.h"
#include "tests/world/network.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define main fgpu_main
int fgpu_main(int argc, char **argv);
ENGINE_MAIN(fgpu)
#undef main

#define MAX_ANTS     2
#define N_CHAN       64
#define STEP         (2 * N_CHAN) /* ADC samples between spectra */
#define N_TAPS       4
#define N_SPECTRA    16
#define N_SUBSTREAMS 2
#define SUB_CHAN     (N_CHAN / N_SUBSTREAMS)
#define BATCH        (N_SPECTRA * STEP)             /* samples */
#define REACH        (BATCH - STEP + N_TAPS * STEP) /* samples of a batch's filter windows */
#define PACKET       256                            /* samples */
#define BITS         10
#define PERIOD       4 /* batches */
#define GAIN         0.02
#define RATE_HZ      256000
#define PACKET_NS    ((int64_t)PACKET * NS_PER_S / RATE_HZ)
#define SYNC_UNIX_S  1759990000
#define MAX_PACKETS  1024
#define MAX_BATCHES  (MAX_PACKETS * PACKET / BATCH)
#define HEAP_BYTES   (SUB_CHAN * N_SPECTRA * 4)

struct scenario {
    unsigned n_ants, n_threads, chunk_packets, window, n_packets;
    int64_t first_packet; /* number of the first packet since the sync time */
    bool is_prompt, has_silence, is_lossy;
    bool is_silent[MAX_ANTS][2][MAX_PACKETS];
};

struct sent {
    int64_t sent_ns;
    bool arrived, late; /* the packet was read; every copy of the packet was read late */
};

/* A heap of voltages, as far as its packets have arrived. */
struct heap {
    uint64_t n_bytes_left;
    bool began;
    uint8_t bytes[HEAP_BYTES];
};

static struct scenario s;
static struct sent sent[MAX_ANTS][2][MAX_PACKETS];
static struct heap heaps[MAX_ANTS][N_SUBSTREAMS][MAX_BATCHES]; /* from the batch of the first packet on */
static uint8_t references[MAX_ANTS][N_SUBSTREAMS][PERIOD][HEAP_BYTES];
static bool has_references;

/* ---- Samples --------------------------------------------------------------------------------------------------------- */

/* A sample of 10 bits at a time in samples since the sync time: pseudo-random, and about 50 rms. */
static int sample(unsigned ant, unsigned pol, int64_t time)
{
    uint64_t z = (uint64_t)(time % (PERIOD * BATCH)) * 0x9E3779B97F4A7C15 + (ant * 2 + pol);
    int sum = 0;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    for (int i = 0; i < 4; i++)
        sum += (int)(z >> (16 * i) & 0xFF) - 128;
    return sum / 3;
}

static void pack(unsigned ant, unsigned pol, int64_t first, uint8_t *out)
{
    uint32_t held = 0;
    int n_held = 0;

    for (int64_t t = first; t < first + PACKET; t++) {
        held = held << BITS | ((uint32_t)sample(ant, pol, t) & ((1 << BITS) - 1));
        for (n_held += BITS; n_held >= 8; n_held -= 8)
            *out++ = (uint8_t)(held >> (n_held - 8));
    }
}

/* ---- The filter bank in double precision ----------------------------------------------------------------------------- */

/* The prototype filter: a Hann window times a sinc function, with unit energy. */
static void make_weights(double weights[N_TAPS * STEP])
{
    int n = N_TAPS * STEP;
    double energy = 0;

    for (int i = 0; i < n; i++) {
        double x = M_PI * ((i + 0.5) / STEP - N_TAPS / 2.0), hann = pow(sin(M_PI * i / (n - 1)), 2);
        weights[i] = hann * (x == 0 ? 1 : sin(x) / x);
        energy += weights[i] * weights[i];
    }
    for (int i = 0; i < n; i++)
        weights[i] /= sqrt(energy);
}

/* Computes one complex channel of the spectrum whose window begins at 'time'. */
static void compute(unsigned ant, unsigned pol, int64_t time, unsigned chan, const double *weights, double out[2])
{
    out[0] = out[1] = 0;
    for (int i = 0; i < N_TAPS * STEP; i++) {
        double value = weights[i] * sample(ant, pol, time + i) * GAIN, turn = 2 * M_PI * chan * (i % STEP) / STEP;
        out[0] += value * cos(turn);
        out[1] -= value * sin(turn);
    }
}

/* Compares the voltages of the run without faults with the filter bank: a value may be rounded to the other side. */
static void check_references(void)
{
    double weights[N_TAPS * STEP], exact[2];
    size_t n = 0, n_off = 0;

    make_weights(weights);
    for (size_t i = 0; i < sizeof(references); i += 2 * 7, n++) { /* some of the values */
        size_t at = i % HEAP_BYTES, heap = i / HEAP_BYTES;
        unsigned batch = heap % PERIOD, substream = heap / PERIOD % N_SUBSTREAMS,
                 ant = (unsigned)heap / PERIOD / N_SUBSTREAMS;
        unsigned pol = at / 2 % 2, spectrum = at / 4 % N_SPECTRA,
                 chan = (unsigned)(at / 4 / N_SPECTRA) + substream * SUB_CHAN;
        const int8_t *found = (const int8_t *)references[ant][substream][batch] + at / 2 * 2;
        compute(ant, pol, (int64_t)batch * BATCH + spectrum * STEP, chan, weights, exact);
        for (int part = 0; part < 2; part++) {
            if (fabs(found[part] - exact[part]) > 0.51)
                world_fail("antenna %u, channel %u, spectrum %u, polarisation %u: %d instead of %.3f", ant, chan,
                           spectrum, pol, found[part], exact[part]);
            n_off += found[part] != (int)rint(exact[part]);
        }
    }
    if (n_off > n / 100)
        world_fail("%zu of %zu values are rounded to the other side", n_off, 2 * n);
}

/* ---- Digitisers ------------------------------------------------------------------------------------------------------ */

static int64_t in_time_ns(void)
{
    return (int64_t)(s.window - 2) * s.chunk_packets * PACKET_NS + s.chunk_packets * PACKET_NS / 2;
}

static void on_seen(void *arg, const struct network_delivery *delivery)
{
    struct sent *packet = arg;

    if (!delivery->was_read || !delivery->is_whole)
        return;
    packet->arrived = true;
    if (delivery->read_ns - packet->sent_ns <= in_time_ns())
        packet->late = false;
}

static void send_packet(struct network_port *port, unsigned ant, unsigned pol, unsigned p)
{
    uint8_t samples[PACKET * BITS / 8], bytes[sizeof(samples) + 256];
    int64_t first = (s.first_packet + p) * PACKET;
    struct wire_packet packet = {
        .heap_cnt = 2 * (uint64_t)p + 2,
        .heap_bytes = sizeof(samples),
        .payload_bytes = sizeof(samples),
        .payload = samples,
        .n_items = 4,
        .items = {{WIRE_TIMESTAMP, false, (uint64_t)first},
                  {WIRE_DIGITISER_ID, false, 2 * ant + pol},
                  {WIRE_DIGITISER_STATUS, false, 0},
                  {WIRE_ADC_SAMPLES, true, 0}},
    };

    pack(ant, pol, first, samples);
    sent[ant][pol][p] = (struct sent){.sent_ns = world_now_ns(), .late = true};
    network_send(port, bytes, wire_write(&packet, bytes), on_seen, &sent[ant][pol][p]);
}

/* ---- Heaps of voltages ----------------------------------------------------------------------------------------------- */

static int64_t first_batch(void)
{
    return s.first_packet * PACKET / BATCH;
}

static void on_voltages(void *arg, const uint8_t *bytes, size_t n_bytes)
{
    unsigned substream = (unsigned)(uintptr_t)arg;
    struct wire_packet packet;

    if (!wire_read(bytes, n_bytes, &packet))
        world_fail("fgpu sent a packet that is not SPEAD");
    const struct wire_item *timestamp = wire_find(&packet, WIRE_TIMESTAMP), *feng = wire_find(&packet, WIRE_FENG_ID);
    const struct wire_item *frequency = wire_find(&packet, WIRE_FREQUENCY);
    if (!timestamp || !feng || !frequency || !wire_find(&packet, WIRE_FENG_RAW))
        return; /* a descriptor or a stop */
    int64_t batch = (int64_t)timestamp->value / BATCH - first_batch();
    if (timestamp->value % BATCH || batch < 0 || batch >= MAX_BATCHES || feng->value >= s.n_ants ||
        frequency->value != substream * SUB_CHAN || packet.heap_bytes != HEAP_BYTES)
        world_fail("a heap has the timestamp %llu, F-engine %llu, channel %llu, %llu bytes",
                   (unsigned long long)timestamp->value, (unsigned long long)feng->value,
                   (unsigned long long)frequency->value, (unsigned long long)packet.heap_bytes);
    struct heap *heap = &heaps[feng->value][substream][batch];
    if (!heap->began)
        heap->n_bytes_left = HEAP_BYTES;
    heap->began = true;
    if (packet.offset + packet.payload_bytes > HEAP_BYTES || packet.payload_bytes > heap->n_bytes_left)
        world_fail("batch %lld of F-engine %llu was sent twice", (long long)batch, (unsigned long long)feng->value);
    memcpy(heap->bytes + packet.offset, packet.payload, packet.payload_bytes);
    heap->n_bytes_left -= packet.payload_bytes;
}

/* ---- Judging a run --------------------------------------------------------------------------------------------------- */

/* The open chunks of an input that falls silent leave while the other polarisation advances by a chunk.  If the network
 * loses whole chunks, these chunks may be late.  Returns true if no packet of a chunk's duration arrived within a window
 * after the packet. */
static bool is_before_silence(unsigned ant, unsigned pol, unsigned p)
{
    unsigned end = p + (s.window + 2) * s.chunk_packets, n_absent = 0;

    for (unsigned i = p; i < end && i < s.n_packets; i++) {
        n_absent = sent[ant][pol][i].arrived ? 0 : n_absent + 1;
        if (n_absent == s.chunk_packets)
            return true;
    }
    return false;
}

/* Sets whole: all packets of the batch's windows arrived in time.  Sets lacks: one of them did not arrive. */
static void judge_batch(unsigned ant, int64_t batch, bool *whole, bool *lacks)
{
    int64_t begin = batch * BATCH, end = begin + REACH;

    *whole = s.is_prompt;
    *lacks = false;
    for (unsigned pol = 0; pol < 2; pol++)
        for (int64_t packet = begin / PACKET; packet * PACKET < end; packet++) {
            int64_t p = packet - s.first_packet;
            bool inside = p >= 0 && p < s.n_packets;
            *lacks |= !inside || !sent[ant][pol][p].arrived;
            *whole &= inside && sent[ant][pol][p].arrived && !sent[ant][pol][p].late &&
                      !(s.is_lossy && is_before_silence(ant, pol, (unsigned)p));
        }
}

static unsigned first_read(void)
{
    for (unsigned p = 0; p < s.n_packets; p++)
        for (unsigned i = 0; i < 2 * s.n_ants; i++)
            if (sent[i / 2][i % 2][p].arrived)
                return p;
    return s.n_packets;
}

static void check_batch(unsigned ant, int64_t batch, bool must_exist)
{
    int64_t b = batch - first_batch();
    bool whole, lacks, any = false, all = true;

    judge_batch(ant, batch, &whole, &lacks);
    for (unsigned substream = 0; substream < N_SUBSTREAMS; substream++) {
        const struct heap *heap = &heaps[ant][substream][b];
        any |= heap->began;
        all &= heap->began;
        if (!heap->began)
            continue;
        if (heap->n_bytes_left > 0)
            world_fail("antenna %u, batch %lld: %llu bytes are missing", ant, (long long)b,
                       (unsigned long long)heap->n_bytes_left);
        if (has_references && memcmp(heap->bytes, references[ant][substream][batch % PERIOD], HEAP_BYTES) != 0)
            world_fail("antenna %u, batch %lld, substream %u: wrong voltages", ant, (long long)b, substream);
    }
    world_note(all ? "batches sent" : "batches not sent");
    if (any != all)
        world_fail("antenna %u, batch %lld is sent to some substreams only", ant, (long long)b);
    if (any && lacks)
        world_fail("antenna %u, batch %lld is sent, and packets are missing", ant, (long long)b);
    if (must_exist && whole && !all)
        world_fail("antenna %u, batch %lld is not sent, and all packets arrived in time", ant, (long long)b);
}

static void check_all(int64_t jitter_ns)
{
    int64_t end = (s.first_packet + s.n_packets) * PACKET;
    int64_t begun = s.first_packet + first_read() + jitter_ns / PACKET_NS + 1 + s.chunk_packets;

    for (unsigned ant = 0; ant < s.n_ants; ant++)
        for (int64_t batch = first_batch(); batch * BATCH + REACH <= end; batch++)
            check_batch(ant, batch, batch * BATCH >= begun * PACKET);
}

static void check_counters(struct network_port *ports[MAX_ANTS][2])
{
    uint64_t n_read = 0, n_packets = run_counter("fgpu_input_packets_total", "");

    for (unsigned i = 0; i < 2 * s.n_ants; i++)
        n_read += network_n_read(ports[i / 2][i % 2]);
    if (n_packets != n_read)
        world_fail("%llu packets were read, and the counter says %llu", (unsigned long long)n_read,
                   (unsigned long long)n_packets);
    if (run_counter("fgpu_input_rejected_packets_total", "no_chunk"))
        world_fail("packets found no free chunk");
    if (run_counter("fgpu_output_dropped_heaps_total", ""))
        world_note("runs with dropped heaps");
}

/* ---- One run --------------------------------------------------------------------------------------------------------- */

static void draw_faults(struct network_faults *f)
{
    static const double rates[] = {0, 0, 0.001, 0.01, 0.1};
    static const int64_t jitters_ns[] = {0, NS_PER_MS, 2 * PACKET_NS, 20 * PACKET_NS};

    f->lose = rates[world_random(5)];
    f->duplicate = rates[world_random(5)];
    f->truncate = rates[world_random(4)];
    f->burst = world_random(3) == 0 ? 0.002 : 0;
    f->burst_length = 40;
    f->jitter_ns = (int64_t)world_random((uint64_t)jitters_ns[world_random(4)] + 1);
    if (!s.has_silence && world_random(2)) {
        f->partition_from_ns = (int64_t)(100 + world_random(200)) * PACKET_NS;
        f->partition_to_ns = f->partition_from_ns + (int64_t)world_random(200) * PACKET_NS;
    }
}

static void draw_scenario(void)
{
    memset(&s, 0, sizeof(s));
    memset(sent, 0, sizeof(sent));
    memset(heaps, 0, sizeof(heaps));
    s.n_ants = has_references ? 1 + (unsigned)world_random(MAX_ANTS) : MAX_ANTS;
    s.n_threads = 1 + (unsigned)world_random(2 * s.n_ants);
    s.chunk_packets = 8 * (1 + (unsigned)world_random(4));
    s.window = 2 + (unsigned)world_random(5);
    s.n_packets = 100 + (unsigned)world_random(400);
    for (unsigned i = 0; has_references && i < 2 * s.n_ants; i++)
        for (unsigned k = 0; world_random(4) == 0 && k < 2; k++) {
            unsigned from = 60 + (unsigned)world_random(s.n_packets), n = 1 + (unsigned)world_random(150);
            s.has_silence = true;
            for (unsigned p = from; p < from + n && p < s.n_packets; p++)
                s.is_silent[i / 2][i % 2][p] = true;
        }
}

static const char *endpoint_of(unsigned ant, unsigned pol)
{
    static const char *const endpoints[MAX_ANTS][2] = {{"239.1.0.1:7148", "239.1.0.2:7148"},
                                                       {"239.1.1.1:7148", "239.1.1.2:7148"}};

    return endpoints[ant][pol];
}

static void write_config(const char *path)
{
    FILE *file = fopen(path, "w");

    if (!file)
        world_fail("cannot write %s", path);
    fprintf(file,
            "time: {sync_time: %d, adc_sample_rate: %d}\n"
            "device: {kind: cpu, threads: 1}\n"
            "recv: {interface: lo, sample_bits: %d, packet_samples: %d, chunk_samples: %u, max_delay_diff: 0,\n"
            "       window: %u, chunks: %u, threads: %u, buffer: 8000000}\n"
            "antennas:\n",
            SYNC_UNIX_S, RATE_HZ, BITS, PACKET, s.chunk_packets * PACKET, s.window, 4 * s.window + 12, s.n_threads);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        fprintf(file, "  - {name: m%u, feng_id: %u, pol0: [\"%s\"], pol1: [\"%s\"]}\n", ant, ant, endpoint_of(ant, 0),
                endpoint_of(ant, 1));
    fprintf(file,
            "outputs:\n"
            "  - {kind: wideband, name: wide, channels: %d, spectra_per_heap: %d, taps: %d, gain: %g, dither: none,\n"
            "     destinations: [\"239.2.0.0+1:7148\"], buffers: 64}\n"
            "send: {interface: lo, packet_payload: 256, array_size: %u, rate_factor: 4}\n",
            N_CHAN, N_SPECTRA, N_TAPS, GAIN, s.n_ants);
    fclose(file);
}

static void send_all(struct network_port *ports[MAX_ANTS][2])
{
    int64_t begin_ns = world_now_ns() / PACKET_NS * PACKET_NS + PACKET_NS;

    s.first_packet = (world_unix_ns() / NS_PER_S - SYNC_UNIX_S) * RATE_HZ / PACKET + (int64_t)world_random(50);
    for (unsigned p = 0; p < s.n_packets; p++) {
        run_sleep(begin_ns + p * PACKET_NS - world_now_ns());
        for (unsigned i = 0; i < 2 * s.n_ants; i++)
            if (!s.is_silent[i / 2][i % 2][p])
                send_packet(ports[i / 2][i % 2], i / 2, i % 2, p);
    }
}

/* Prints the scenario and the fate of each packet: not sent (-), lost (x), late (l) or in time (.). */
static void show_run(const struct network_faults *f)
{
    fprintf(
        stderr,
        "%u antennas, %u packets from %lld on, %u threads, chunks of %u packets, window of %u; lose %g, duplicate %g, "
        "truncate %g, burst %g, jitter %.3f ms; digest %016llx\n",
        s.n_ants, s.n_packets, (long long)s.first_packet, s.n_threads, s.chunk_packets, s.window, f->lose, f->duplicate,
        f->truncate, f->burst, (double)f->jitter_ns * 1e-6, (unsigned long long)world_digest());
    for (unsigned i = 0; i < 2 * s.n_ants; i++) {
        for (unsigned p = 0; p < s.n_packets; p++) {
            const struct sent *packet = &sent[i / 2][i % 2][p];
            fputc(s.is_silent[i / 2][i % 2][p] ? '-' : !packet->arrived ? 'x' : packet->late ? 'l' : '.', stderr);
        }
        fputc('\n', stderr);
    }
}

static void run_seed(uint64_t seed, const char *path)
{
    struct network_port *ports[MAX_ANTS][2];
    struct network_faults faults = {.latency_ns = 20000};

    world_begin(seed);
    network_begin();
    draw_scenario();
    write_config(path);
    if (has_references)
        draw_faults(&faults);
    s.is_lossy = faults.lose > 0 || faults.burst > 0;
    s.is_prompt = faults.jitter_ns < in_time_ns() && faults.jitter_ns <= s.chunk_packets * PACKET_NS / 2;
    for (unsigned i = 0; i < 2 * s.n_ants; i++) {
        ports[i / 2][i % 2] = network_port(endpoint_of(i / 2, i % 2));
        *network_faults(ports[i / 2][i % 2]) = faults;
    }
    network_listen(network_port("239.2.0.0:7148"), on_voltages, (void *)0);
    network_listen(network_port("239.2.0.1:7148"), on_voltages, (void *)1);
    struct run_daemon daemon = run_start("fgpu", fgpu_main, path);
    send_all(ports);
    run_sleep(3 * NS_PER_S);
    check_counters(ports);
    run_stop(&daemon);
    if (run_is_verbose)
        show_run(&faults);
    check_all(faults.jitter_ns);
    network_end();
    world_end();
}

/* Takes the voltages of a period from a run without faults. */
static void take_references(const char *path)
{
    run_seed(0, path);
    int64_t begin = first_batch() + 2 * PERIOD;
    for (unsigned ant = 0; ant < MAX_ANTS; ant++)
        for (unsigned substream = 0; substream < N_SUBSTREAMS; substream++)
            for (int64_t batch = begin; batch < begin + PERIOD; batch++)
                memcpy(references[ant][substream][batch % PERIOD], heaps[ant][substream][batch - first_batch()].bytes,
                       HEAP_BYTES);
    has_references = true;
    check_references();
}

static void run_after_references(uint64_t seed, const char *path)
{
    if (!has_references)
        take_references(path);
    run_seed(seed, path);
}

int main(int argc, char **argv)
{
    return run_seeds(argc, argv, run_after_references);
}
