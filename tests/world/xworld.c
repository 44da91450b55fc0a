/* xworld.c - xbgpu in a simulated world: seeds draw F-engines, a network with faults and a configuration.
 *
 *     build/tests/xworld [--verbose] FIRST_SEED [N_SEEDS]
 *
 * Each run checks these properties, with integers that the world computes itself:
 *   exact     each visibility that is not flagged is the sum over all spectra of its window, with the shifts of inputs
 *             in these spectra; each voltage and power of a beam has the steering and the calibration of its batch;
 *   complete  a baseline whose heaps all arrived in time is not flagged, and its dump is sent;
 *   counted   each packet that the receiver read is in one counter.
 * The process ends with exit status 1 and the seed at the first failure. */
#include "common/base/units.h"
#include "common/engine/engine.h"
#include "tests/world/faults.h"
#include "tests/world/refusals.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/sent.h"
#include "tests/world/xworld.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config_check.h"
#include "xbgpu/pipeline.h"
#include "xbgpu/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define main xbgpu_main
int xbgpu_main(int argc, char **argv);
ENGINE_MAIN(xbgpu)
#undef main

/* ---- One run --------------------------------------------------------------------------------------------------------- */

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
                heaps_send(port, ant, b);
            else if (b >= s.far_from && b < s.far_to)
                others_send_far(port, ant, b);
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
    if (s.jump_batches > 0)
        fprintf(stderr, "a jump of %lld batches before batch %u\n", (long long)s.jump_batches, s.jump_at);
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        for (unsigned b = 0; b < s.n_batches; b++)
            fputc(s.is_silent[ant][b]      ? '-'
                  : !heaps_arrived(ant, b) ? 'x'
                  : !heaps_in_time(ant, b) ? 'l'
                                           : '.',
                  stderr);
        fputc('\n', stderr);
    }
}

/* Checks the counters of a jump forward.  Each receive thread skips the batches that the jump left out, and those
 * that it refused or lost before it believed the jump. */
static void check_jump(void)
{
    uint64_t n_jumps = run_counter("xbgpu_input_jumps_total", ""),
             n_samples = run_counter("xbgpu_input_gap_samples_total", "");
    uint64_t least = (uint64_t)(s.jump_batches * s.batch_samples),
             most = least + (uint64_t)(s.n_batches * s.batch_samples);
    unsigned n_seen = 0;

    /* a small socket buffer may drop nearly all packets of an F-engine */
    bool need_be_believed = s.is_prompt && !s.time_flipped && !s.is_overloaded && s.buffer_bytes >= 1000000;
    if (s.jump_batches == 0 || !need_be_believed)
        return;
    for (unsigned thread = 0; thread < s.n_threads; thread++)
        n_seen += heaps_heard(thread, s.jump_at);
    if (n_jumps < n_seen)
        world_fail("%u threads saw a jump, and the counter says %llu", n_seen, (unsigned long long)n_jumps);
    if (n_jumps == s.n_threads && (n_samples < n_jumps * least || n_samples > n_jumps * most))
        world_fail("the timestamps jumped by %llu samples, and the gaps have %llu in %llu threads",
                   (unsigned long long)least, (unsigned long long)n_samples, (unsigned long long)n_jumps);
}

/* Returns true if a receiver did not know when data were due, because the stream was interrupted soon after its beginning
 * (docs/reliability.md). */
static bool has_unexpected_gap(void)
{
    if (s.jump_batches > 0)
        return run_counter("xbgpu_input_jumps_total", "") > s.n_threads;
    return run_counter("xbgpu_input_gap_samples_total", "") > 0;
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
    others_check(network_faults(port)->flip > 0);
    check_jump();
    if (s.is_lossy && has_unexpected_gap())
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
static void check_heaps_line(const char *line)
{
    unsigned from, to, first = s.n_batches, end = 0;
    unsigned long long n_heaps, n_missing;

    if (sscanf(line, "F-engines %u-%u: %llu %*s received, %llu missing", &from, &to, &n_heaps, &n_missing) != 4)
        return;
    for (unsigned ant = from; ant <= to; ant++)
        for (unsigned b = 0; b < s.n_batches; b++)
            if (heaps_were_read(ant, b)) {
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

static void on_line(const char *line)
{
    unsigned long long n_heaps;

    const char *drain = strstr(line, " received chunks were not processed, and ");
    if (strncmp(line, "the drain took longer than", 26) == 0 && drain) {
        s.gave_up = true;
        s.n_given_up = strtoull(strstr(drain, "and ") + 4, NULL, 10);
    }
    if (strstr(line, " of their samples clipped") && sscanf(line, "%*[^:]: %llu", &n_heaps) == 1)
        s.n_beam_heaps += n_heaps;
    check_heaps_line(line);
}

/* Compares the counters with the heaps and packets that were sent. */
static void check_sent(void)
{
    struct sent_totals sent = sent_totals();
    uint64_t n_heaps = run_counter("xbgpu_output_x_heaps_total", "") + run_counter("xbgpu_output_b_heaps_total", "");
    uint64_t n_bytes = run_counter("xbgpu_output_x_bytes_total", "") + run_counter("xbgpu_output_b_bytes_total", "");

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
    int64_t next = run_sensor("vis.tx.next-timestamp").value.integer, newest = dumps_newest_end();

    check_counting_sensor("xeng-clip-cnt", "xbgpu_output_x_clipped_visibilities_total");
    check_counting_sensor("audit-failure-cnt", "xbgpu_audit_failures_total");
    check_counting_sensor("wrong-dump-cnt", "xbgpu_output_x_wrong_accs_total");
    if ((synchronised.value.integer != 0) != (synchronised.status == SENSOR_NOMINAL))
        world_fail("the sensor vis.rx.synchronised has the wrong status");
    if (next % (s.length * s.batch_samples) != 0 || next < newest)
        world_fail("the sensor vis.tx.next-timestamp is %lld, and the last dump ends at %lld", (long long)next,
                   (long long)newest);
    for (size_t i = 0; i < sizeof(input_sensors) / sizeof(input_sensors[0]); i++)
        run_sensor("%s", input_sensors[i]);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        run_sensor("a%u.rx.state", ant);
}

/* Adds all kinds of faults to the report. */
static void begin_report(void)
{
    static const char *const kinds[] = {"F-engines: timestamps jump forward",
                                        "F-engines: the clock denies timestamps",
                                        "dumps flagged because a bit flipped",
                                        "device: too slow",
                                        "runs that are stopped while data flow",
                                        "drain: slow",
                                        "drain: too long",
                                        "inputs may be shifted",
                                        "visibilities have their own shifts",
                                        "requests: changes of shifts",
                                        "requests: changes of calibration",
                                        "requests: delay models with a load time",
                                        "requests: changes of beams",
                                        "requests: changes of gates",
                                        "requests: refused"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        world_note_times(kinds[i], 0);
}

static void run_seed(uint64_t seed, const char *path)
{
    world_begin(seed);
    network_begin();
    begin_report();
    scenario_draw();
    heaps_forget();
    dumps_forget();
    others_draw();
    scenario_write_config(path);
    struct network_port *source = network_port(SOURCE);
    scenario_draw_links();
    dumps_listen();
    beams_listen();
    run_on_line = on_line;
    struct run_daemon daemon = run_start("xbgpu", xbgpu_main, path);
    requests_connect();
    send_all(source);
    if (s.stop_batch == s.n_batches)
        run_sleep(3 * NS_PER_S);
    else
        world_note("runs that are stopped while data flow");
    while (s.stop_batch == s.n_batches && !run_has_ended() && !sent_is_idle())
        run_sleep(NS_PER_MS);
    if (!run_has_ended() && s.stop_batch == s.n_batches) {
        check_counters(source);
        dumps_check_counters();
        check_sent();
        check_sensors();
        refusals_check();
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
        dumps_check();
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
