/* fworld.c - fgpu in a simulated world: seeds draw digitisers, a configuration, requests, and faults of the network,
 * the clock, the digitisers and the device.
 *
 *     build/tests/fworld [--verbose] FIRST_SEED [N_SEEDS]
 *
 * The digitisers' samples repeat after PERIOD batches.  A run without faults gives the voltages of a period.  The
 * voltages of the wide band are compared with a filter bank in double precision.  Each run checks these properties:
 *   exact     each heap has the bits of the run without faults; after requests, each value has the delay and the gain
 *             of its time, by the filter bank in double precision;
 *   complete  if all packets of a batch's filter windows arrived in time, the batch is sent to all substreams;
 *   flagged   if one of these packets did not arrive, the batch is not sent; no batch comes twice;
 *   counted   the counter of packets agrees with the packets that the receivers read, and each packet is in exactly one
 *             other counter;
 *   summed    each record of a satellite has the sums of the samples that arrived, by codes, replicas and tracking loops
 *             of the world's own (fgnss.c); no record is missing;
 *   dated     the upper bits of timestamps are right, unless the host's clock was wrong and stays wrong;
 *   ended     if the device fails, the daemon ends with exit status 1, and sends nothing wrong.
 * The process ends with exit status 1 and the seed at the first failure. */
#include "common/engine/engine.h"
#include "fgpu/config/config.h"
#include "fgpu/config_check.h"
#include "fgpu/pipeline.h"
#include "fgpu/tune.h"
#include "tests/world/clock.h"
#include "tests/world/faults.h"
#include "tests/world/fworld.h"
#include "tests/world/network.h"
#include "tests/world/refusals.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/sent.h"
#include "tests/world/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define main fgpu_main
int fgpu_main(int argc, char **argv);
ENGINE_MAIN(fgpu)
#undef main

struct scenario s;

static const char *const receivers[N_HEAPS] = {"239.2.0.0:7148", "239.2.0.1:7148", "239.2.1.0:7148",
                                               "239.2.1.1:7148"}; /* of substreams */

/* ---- Digitisers -------------------------------------------------------------------------------------------------- */

static bool is_silent[MAX_ANTS][2][MAX_PACKETS];

static void on_seen(void *arg, const struct network_delivery *delivery)
{
    struct sent *packet = arg;

    if (delivery->was_read && delivery->is_flipped)
        packet->may_have_arrived |= others_flipped(delivery);
    if (!delivery->was_read || !delivery->is_whole)
        return;
    packet->arrived = true;
    if (judge_is_in_time(delivery->read_ns - packet->sent_ns))
        packet->late = false;
}

/* Counts the packets that the daemon must refuse. */
static uint64_t n_refused;

static void on_refused(void *arg, const struct network_delivery *delivery)
{
    n_refused += delivery->was_read && (delivery->is_whole || (delivery->is_flipped && others_flipped(delivery)));
}

/* Sends packet 'p' of an input. */
static void send_packet(struct network_port *port, unsigned ant, unsigned pol, unsigned p, int64_t first_sample,
                        bool is_refused)
{
    uint8_t samples[PACKET * BITS / 8], bytes[sizeof(samples) + 256];
    struct wire_packet packet = {
        .heap_cnt = (uint64_t)first_sample / PACKET,
        .heap_bytes = sizeof(samples),
        .payload_bytes = sizeof(samples),
        .payload = samples,
        .n_items = s.has_crc ? 5 : 4,
        .items = {{WIRE_TIMESTAMP, false, (uint64_t)first_sample},
                  {WIRE_DIGITISER_ID, false, 2 * ant + pol},
                  {WIRE_DIGITISER_STATUS, false, (uint64_t)s.n_clipped[2 * ant + pol] << 32},
                  {WIRE_ADC_SAMPLES, true, 0},
                  {WIRE_CRC, false, 0}},
    };

    model_pack(ant, pol, first_sample, samples);
    size_t n_bytes = wire_write(&packet, bytes);
    wire_add_crc(bytes, n_bytes);
    if (is_refused) {
        network_send(port, bytes, n_bytes, on_refused, NULL);
        return;
    }
    others_send(port, &packet);
    struct sent *sent = judge_sent(ant, pol, first_sample / PACKET);
    if (others_send_half(port, &packet, sent, p))
        return;
    if (sent->n_sent++ == 0) {
        sent->sent_ns = world_now_ns();
        sent->late = true;
    }
    network_send(port, bytes, n_bytes, on_seen, sent);
    others_contest(port, &packet, sent, p);
}

static void send_all(struct network_port *ports[MAX_ANTS][2], int64_t begin_ns)
{
    n_refused = 0;
    for (unsigned p = 0; p < s.n_packets; p++) {
        run_sleep(begin_ns + faults_time(p) * PACKET_NS - world_now_ns());
        settings_step(p);
        gnss_step(p);
        for (unsigned i = 0; i < 2 * s.n_ants; i++) {
            int64_t shift = faults_shift(i / 2, i % 2, p), first = (s.first_packet + faults_time(p)) * PACKET;
            if (!is_silent[i / 2][i % 2][p])
                send_packet(ports[i / 2][i % 2], i / 2, i % 2, p, first + shift,
                            shift != 0 && (faults.is_denied || faults.digitiser == SAMPLE_OFF));
        }
    }
}

/* ---- Counters ---------------------------------------------------------------------------------------------------- */

static uint64_t input_counter(const char *name)
{
    char full[64];

    snprintf(full, sizeof(full), "fgpu_input_%s_total", name);
    return run_counter(full, "");
}

/* Checks that the daemon was fast enough.  If a slow device was not, batches may be missing. */
static void check_losses(void)
{
    bool loses = run_counter("fgpu_input_rejected_packets_total", "no_chunk") > 0 ||
                 run_counter("fgpu_output_dropped_heaps_total", "") > 0;

    if (loses && faults.device != SLOW)
        world_fail("packets found no free chunk, or heaps no free buffer");
    if (faults.device == SLOW)
        world_note(loses ? "device: too slow" : "device: slow, and nothing is lost");
    s.is_prompt &= !loses;
}

/* Returns the sum of a counter over the streams of voltages and of satellites' sums. */
static uint64_t output_counter(const char *name)
{
    char voltages[64], sums[64];

    snprintf(voltages, sizeof(voltages), "fgpu_output_%s_total", name);
    snprintf(sums, sizeof(sums), "fgpu_gnss_%s_total", name);
    return run_counter(voltages, "") + (s.has_gnss ? run_counter(sums, "") : 0);
}

/* Compares the counters with the heaps and packets that were sent. */
static void check_sent(void)
{
    struct sent_totals sent = sent_totals();
    uint64_t n_heaps = output_counter("heaps"), n_packets = output_counter("packets"),
             n_bytes = output_counter("bytes");
    uint64_t n_voltages = run_counter("fgpu_output_packets_total", ""), n_failed = output_counter("failed_packets"),
             n_refused_out = network_n_refused(network_port(SUMS));

    for (unsigned i = 0; i < N_HEAPS; i++)
        n_refused_out += network_n_refused(network_port(receivers[i]));
    if (n_voltages != s.n_voltage_packets || n_failed != n_refused_out)
        world_fail("%llu packets of voltages were sent and %llu packets refused, and the counters say %llu and %llu",
                   (unsigned long long)s.n_voltage_packets, (unsigned long long)n_refused_out,
                   (unsigned long long)n_voltages, (unsigned long long)n_failed);
    if (n_heaps != sent.n_heaps || n_packets != sent.n_packets || n_bytes != sent.n_bytes)
        world_fail("%llu heaps, %llu packets and %llu bytes were sent, and the counters say %llu, %llu and %llu",
                   (unsigned long long)sent.n_heaps, (unsigned long long)sent.n_packets,
                   (unsigned long long)sent.n_bytes, (unsigned long long)n_heaps, (unsigned long long)n_packets,
                   (unsigned long long)n_bytes);
}

static void check_counters(struct network_port *ports[MAX_ANTS][2])
{
    uint64_t n_read = 0, n_packets = input_counter("packets");

    for (unsigned i = 0; i < 2 * s.n_ants; i++)
        n_read += network_n_read(ports[i / 2][i % 2]);
    if (n_packets != n_read)
        world_fail("%llu packets were read, and the counter says %llu", (unsigned long long)n_read,
                   (unsigned long long)n_packets);
    uint64_t n_counted = input_counter("heaps") + input_counter("rejected_packets") + input_counter("ignored_packets") +
                         input_counter("too_old_heaps") + input_counter("bad_timestamp_heaps") +
                         input_counter("incomplete_heaps") + input_counter("contested_heaps");
    if (n_counted != n_packets)
        world_fail("%llu packets were read, and %llu are in another counter", (unsigned long long)n_packets,
                   (unsigned long long)n_counted);
    uint64_t n_far = run_counter("fgpu_input_rejected_packets_total", "\"jump\"") +
                     run_counter("fgpu_input_rejected_packets_total", "\"clock\"");
    if (faults.digitiser == SAMPLE_OFF && input_counter("bad_timestamp_heaps") != n_refused)
        world_fail("%llu packets are between the timestamps of packets, and the counter says %llu",
                   (unsigned long long)n_refused, (unsigned long long)input_counter("bad_timestamp_heaps"));
    if (faults.is_denied && n_far < n_refused)
        world_fail("the clock denies %llu packets, and the counters say %llu", (unsigned long long)n_refused,
                   (unsigned long long)n_far);
    uint64_t n_most = 2 * s.n_ants * (uint64_t)(faults_time(s.n_packets) + 6 * s.window * s.chunk_packets);
    if (input_counter("heaps") + input_counter("missing_heaps") > n_most)
        world_fail("%llu heaps were received, and %llu are missing", (unsigned long long)input_counter("heaps"),
                   (unsigned long long)input_counter("missing_heaps"));
    gnss_check_counters();
    check_losses();
    others_check(network_faults(ports[0][0])->flip > 0);
    check_sent();
    s.n_clipped_voltages = run_counter("fgpu_output_clipped_samples_total", "stream=\"wide\"");
}

/* Checks the last line of each input, "m0 pol1: 23 heaps received, 1 missing ...": each packet from the first that arrived
 * to the last that arrived is in one of the numbers.  If the silence at the end was long, the rest of the last chunk is
 * missing, too. */
static void on_line(const char *line)
{
    unsigned ant, pol;
    unsigned long long n_heaps, n_missing;
    int64_t first, last;

    if (sscanf(line, "m%u pol%u: %llu %*s received, %llu missing", &ant, &pol, &n_heaps, &n_missing) != 4)
        return;
    if ((!s.is_prompt && s.window > 1) || faults.digitiser != RUNNING || faults.clock >= UNSYNCHRONISED ||
        faults.device != GOOD || !judge_span(ant, pol, &first, &last) || input_counter("too_old_heaps") > 0 ||
        run_counter("fgpu_input_rejected_packets_total", "jump") > 0 ||
        run_counter("fgpu_input_gap_samples_total", "") > 0)
        return;
    world_note("inputs whose packets are counted");
    uint64_t n = n_heaps + n_missing, n_least = (uint64_t)(last - first + 1);
    uint64_t rest = (uint64_t)(last + 1) % s.chunk_packets;
    if (n != n_least && (rest == 0 || n != n_least + s.chunk_packets - rest))
        world_fail("'%s', and %lld packets are expected", line, (long long)(last - first + 1));
}

/* The sensor shows the delay of the newest spectrum.  The newest spectrum may be newer than all heaps, so the delay may
 * also be a later one. */
static void check_delay_sensor(unsigned input)
{
    double delay_s = run_sensor("wide.input%u.delay", input).value.numbers[1];

    if (!settings_may_delay(input, judge_newest_samples(input / 2), llrint(delay_s * RATE_HZ)))
        world_fail("the sensor of input %u's delay says %.9g s", input, delay_s);
}

static void check_sensors(void)
{
    int64_t n_clipped = 0;

    for (unsigned input = 0; input < 2 * s.n_ants; input++) {
        n_clipped += run_sensor("wide.input%u.feng-clip-cnt", input).value.integer;
        if (s.has_narrow)
            n_clipped += run_sensor("narrow.input%u.feng-clip-cnt", input).value.integer;
        check_delay_sensor(input);
    }
    if (n_clipped != (int64_t)run_counter("fgpu_output_clipped_samples_total", ""))
        world_fail("the sensors say that %lld samples were saturated, and the counters %llu", (long long)n_clipped,
                   (unsigned long long)run_counter("fgpu_output_clipped_samples_total", ""));
}

/* Checks the upper bits of an input's newest timestamp.  'n_wrong' is the number of WIRE_PERIODs by which the first
 * timestamp was wrong.  The daemon corrects it some seconds after its clock is right. */
static void check_date(unsigned ant, unsigned pol, int64_t n_wrong, int64_t right_ns)
{
    int64_t last_ns = judge_last_read_ns(ant, pol), true_samples = s.first_packet * PACKET;
    char label[64];

    if (faults.clock == CORRECTED && n_wrong != 0) {
        if (last_ns > right_ns && last_ns < right_ns + 6 * NS_PER_S)
            return;
        n_wrong = last_ns > right_ns ? 0 : n_wrong;
        world_note(n_wrong ? "timestamps wrong: not corrected yet" : "timestamps wrong: corrected");
    } else if (n_wrong != 0) {
        world_note("timestamps wrong: never corrected");
    }
    snprintf(label, sizeof(label), "antenna=\"m%u\",pol=\"%u\"", ant, pol);
    int64_t newest = (int64_t)run_gauge("fgpu_input_newest_timestamp", label);
    if (newest >= 0 && rint((double)(newest - true_samples) / (double)WIRE_PERIOD) != (double)n_wrong)
        world_fail("%s: the newest timestamp is %lld, not near %lld plus %lld periods of 2^48", label,
                   (long long)newest, (long long)true_samples, (long long)n_wrong);
}

/* ---- One run ----------------------------------------------------------------------------------------------------- */

static void draw_faults(struct network_faults *f, bool has_silence)
{
    static const double rates[] = {0, 0, 0.001, 0.01, 0.1};
    const int64_t jitters_ns[] = {0, NS_PER_MS, 2 * PACKET_NS, 20 * PACKET_NS};

    f->lose = rates[world_random(5)];
    f->duplicate = rates[world_random(5)];
    f->truncate = rates[world_random(4)];
    f->burst = world_random(3) == 0 ? 0.002 : 0;
    f->burst_length = 40;
    f->jitter_ns = (int64_t)world_random((uint64_t)jitters_ns[world_random(4)] + 1);
    f->flip = s.has_crc ? rates[world_random(4)] : 0;
    if (!has_silence && !s.is_calm && world_random(2)) {
        f->partition_from_ns = (int64_t)(100 + world_random(200)) * PACKET_NS;
        f->partition_to_ns = f->partition_from_ns + (int64_t)world_random(200) * PACKET_NS;
    }
}

/* Draws faults of the sockets that send.  A socket without room makes the device wait, so the device may be slow. */
static void draw_sender(struct network_faults *f)
{
    f->refuse = model_is_known && world_random(8) == 0 ? 0.05 : 0;
    f->stall = faults.device == SLOW && world_random(2) ? 0.02 : 0;
    f->stall_ns = 100 * PACKET_NS;
}

/* Draws times in which one input is silent.  Returns true if there are any. */
static bool draw_silence(void)
{
    bool has_silence = false;

    memset(is_silent, 0, sizeof(is_silent));
    if (faults.digitiser != RUNNING) {
        for (unsigned i = 0; i < 2 * s.n_ants; i++)
            for (unsigned p = faults.from - faults.n_silent; p < faults.from && faults.from > 0; p++)
                is_silent[i / 2][i % 2][p] = faults_shift(i / 2, i % 2, faults.from) != 0;
        return true;
    }
    for (unsigned i = 0; model_is_known && !s.is_calm && i < 2 * s.n_ants; i++)
        for (unsigned k = 0; world_random(4) == 0 && k < 2; k++) {
            unsigned from = 60 + (unsigned)world_random(s.n_packets), n = 1 + (unsigned)world_random(150);
            has_silence = true;
            for (unsigned p = from; p < from + n && p < s.n_packets; p++)
                is_silent[i / 2][i % 2][p] = true;
        }
    return has_silence;
}

/* Draws the sync time: some hours ago, or so long ago that the timestamps of packets reach WIRE_PERIOD in this run. */
static void draw_sync(void)
{
    int64_t unix_s = world_unix_ns() / NS_PER_S, n_wire = WIRE_PERIOD / PACKET;

    s.first_packet = random_between(7200 * (int64_t)RATE_HZ / PACKET, 20000 * (int64_t)RATE_HZ / PACKET);
    if (model_is_known && world_random(3) == 0) {
        s.first_packet = n_wire - random_between(0, s.n_packets);
        world_note("timestamps reach 2^48");
    }
    s.sync_unix_s = unix_s - s.first_packet * PACKET / RATE_HZ;
}

static void draw_scenario(void)
{
    s = (struct scenario){0};
    s.n_ants = model_is_known ? 1 + (unsigned)world_random(MAX_ANTS) : MAX_ANTS;
    s.n_threads = 1 + (unsigned)world_random(2 * s.n_ants);
    s.chunk_packets = 8 * (1 + (unsigned)world_random(4));
    s.window = 1 + (unsigned)world_random(6);
    s.has_narrow = !model_is_known || world_random(4) == 0;
    s.n_senders = 1 + (unsigned)world_random(10);
    s.n_packets = 101 + (unsigned)world_random(160);
    s.is_buffer_small = model_is_known && run_draw("buffer", 8) == 7;
    s.has_gnss = model_is_known && world_random(4) == 0;
    s.rate_hz = s.has_gnss ? SATELLITE_RATE_HZ : USUAL_RATE_HZ;
    s.is_calm = s.has_gnss && s.n_ants > 1 && world_random(3) == 0;
    s.n_packets += !s.has_gnss ? 0 : s.is_calm || world_random(3) == 0 ? 500 : 150;
}

static const char *endpoint_of(unsigned ant, unsigned pol)
{
    static const char *const endpoints[MAX_ANTS][2] = {{"239.1.0.1:7148", "239.1.0.2:7148"},
                                                       {"239.1.1.1:7148", "239.1.1.2:7148"}};

    return endpoints[ant][pol];
}

/* Returns the size of the sockets' buffers of a receive thread. */
static unsigned buffer_bytes(void)
{
    unsigned n_endpoints = (2 * s.n_ants + s.n_threads - 1) / s.n_threads;

    return s.is_buffer_small ? 2500 * n_endpoints : 8000000;
}

static void write_config(const char *path)
{
    char narrow[512];
    unsigned n_buffers = faults.device == SLOW ? 0 : 64;

    /* The mixer's phase repeats after 4 samples. */
    snprintf(
        narrow, sizeof(narrow),
        "  - {kind: narrowband, name: narrow, channels: %d, spectra_per_heap: %d, taps: %d, gain: %g, dither: none,\n"
        "     destinations: [\"239.2.1.0+1:7148\"], buffers: %u, centre_frequency: %lld, decimation: 1,\n"
        "     pass_bandwidth: %lld, ddc_taps: %d}\n",
        N_CHAN, N_SPECTRA, N_TAPS, GAIN, n_buffers, (long long)RATE_HZ / 4, (long long)RATE_HZ / 4, DDC_TAPS);
    FILE *file = fopen(path, "w");

    if (!file)
        world_fail("cannot write %s", path);
    fprintf(file,
            "time: {sync_time: %lld, adc_sample_rate: %lld}\n"
            "device: {kind: cpu, threads: 1}\n"
            "recv: {interface: lo, sample_bits: %d, packet_samples: %d, chunk_samples: %u, max_delay_diff: 256,\n"
            "       window: %u, chunks: %u, threads: %u, buffer: %u%s}\n"
            "antennas:\n",
            (long long)s.sync_unix_s, (long long)RATE_HZ, BITS, PACKET, s.chunk_packets * PACKET, s.window,
            faults.device == SLOW ? 2 * s.window + 3 : 4 * s.window + 12, s.n_threads, buffer_bytes(),
            s.has_others ? ", from: 10.0.0.1" : "");
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        fprintf(file, "  - {name: m%u, feng_id: %u, pol0: [\"%s\"], pol1: [\"%s\"]}\n", ant, ant, endpoint_of(ant, 0),
                endpoint_of(ant, 1));
    fprintf(file,
            "outputs:\n"
            "  - {kind: wideband, name: wide, channels: %d, spectra_per_heap: %d, taps: %d, gain: %g, dither: none,\n"
            "     destinations: [\"239.2.0.0+1:7148\"], buffers: %u}\n"
            "%s"
            "send: {interface: lo, packet_payload: 256, array_size: %u, rate_factor: 4, threads: %u}\n",
            N_CHAN, N_SPECTRA, N_TAPS, GAIN, n_buffers, s.has_narrow ? narrow : "", s.n_ants, s.n_senders);
    if (s.has_gnss)
        gnss_write_config(file);
    refusals_write_config(file);
    fclose(file);
}

static void show_run(const struct network_faults *f)
{
    fprintf(stderr,
            "%u antennas, %u packets from %lld on, %u threads, chunks of %u packets, window of %u; lose %g, duplicate "
            "%g, truncate %g, burst %g, jitter %.3f ms; %s; %s; digest %016llx\n",
            s.n_ants, s.n_packets, (long long)s.first_packet, s.n_threads, s.chunk_packets, s.window, f->lose,
            f->duplicate, f->truncate, f->burst, (double)f->jitter_ns * 1e-6, faults_clock(), faults_digitiser(),
            (unsigned long long)world_digest());
    if (faults.pause_at > 0)
        fprintf(stderr, "pause of %lld packets after packet %u\n", (long long)faults.n_pause_packets, faults.pause_at);
    settings_show();
    gnss_show();
    judge_show();
}

/* Runs the daemon while the digitisers send. */
static void run_daemon(struct network_port *ports[MAX_ANTS][2], const char *path, int64_t jitter_ns)
{
    int64_t n_wrong[2 * MAX_ANTS];

    for (unsigned i = 0; i < 2 * s.n_ants; i++)
        n_wrong[i] = faults_wrong_periods(i / 2, i % 2);
    world_clock = faults.at_start;
    run_on_line = on_line;
    struct run_daemon daemon = run_start("fgpu", fgpu_main, path);
    int64_t begin_ns = world_now_ns() / PACKET_NS * PACKET_NS + PACKET_NS;
    faults_begin(begin_ns);
    settings_begin();
    gnss_begin();
    refusals_connect();
    send_all(ports, begin_ns);
    run_sleep(3 * NS_PER_S);
    while (!run_has_ended() && !sent_is_idle())
        run_sleep(NS_PER_MS);
    if (!run_has_ended() && !device_faults_failed()) {
        check_counters(ports);
        check_sensors();
        for (unsigned i = 0; i < 2 * s.n_ants; i++)
            check_date(i / 2, i % 2, n_wrong[i], begin_ns + faults.corrected_ns);
        refusals_check();
    }
    int exit_code = run_stop_code(&daemon);
    if (exit_code != device_faults_failed())
        world_fail("the exit code is %d, and the device %s", exit_code,
                   device_faults_failed() ? "failed" : "did not fail");
    if (device_faults_failed())
        s.is_prompt = false;
    settings_end();
    faults_excuse(begin_ns, jitter_ns);
}

static void run_seed(uint64_t seed, const char *path)
{
    struct network_port *ports[MAX_ANTS][2];
    struct network_faults link = {.latency_ns = 20000};

    world_begin(seed);
    network_begin();
    faults_begin_report();
    judge_begin();
    draw_scenario();
    faults_draw();
    others_draw();
    draw_sync();
    refusals_draw("gain-all");
    gnss_draw();
    write_config(path);
    bool has_silence = draw_silence();
    settings_draw();
    if (model_is_known)
        draw_faults(&link, has_silence);
    /* At the rate for satellites, chunks are as short as the delays of the receivers' threads. */
    s.is_lossy = link.lose > 0 || link.burst > 0 || link.flip > 0 || buffer_bytes() < 1000000 || s.has_gnss;
    s.is_prompt = judge_is_in_time(link.jitter_ns + 1) && link.jitter_ns <= s.chunk_packets * PACKET_NS / 2;
    for (unsigned i = 0; i < 2 * s.n_ants; i++) {
        ports[i / 2][i % 2] = network_port(endpoint_of(i / 2, i % 2));
        *network_faults(ports[i / 2][i % 2]) = link;
    }
    for (uintptr_t i = 0; i < N_HEAPS; i++) {
        network_listen(network_port(receivers[i]), judge_take, (void *)i);
        draw_sender(network_faults(network_port(receivers[i])));
    }
    network_listen(network_port(SUMS), gnss_take, NULL);
    draw_sender(network_faults(network_port(SUMS)));
    run_daemon(ports, path, link.jitter_ns);
    if (run_is_verbose)
        show_run(&link);
    judge_all();
    gnss_judge();
    world_end(); /* the last packets may still be on their way */
    network_end();
}

/* Takes the voltages of a period from a run without link. */
static void take_references(const char *path)
{
    run_seed(0, path);
    int64_t begin = s.first_packet * PACKET / BATCH + 2 * PERIOD;
    for (unsigned ant = 0; ant < MAX_ANTS; ant++)
        for (unsigned substream = 0; substream < N_HEAPS; substream++)
            for (int64_t batch = begin; batch < begin + PERIOD; batch++)
                model_keep(ant, substream, batch, judge_heap(ant, substream, batch));
    model_check();
}

static void run_after_references(uint64_t seed, const char *path)
{
    if (!model_is_known)
        take_references(path);
    run_seed(seed, path);
}

int main(int argc, char **argv)
{
    world_leave_out("counter fgpu_input_ignored_packets_total{reason=\"other_thread\"}",
                    "each input has its own addresses, so receive threads share no packets");
    world_leave_out("counter fgpu_input_rejected_packets_total{reason=\"bad_frequency\"}",
                    "digitisers' packets have no frequency");
    world_leave_out("device: flipped bit", "fgpu does not check the device's results");
    return run_seeds(argc, argv, run_after_references);
}
