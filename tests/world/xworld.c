/* xworld.c - xbgpu in a simulated world: seeds draw F-engines, a network with faults and a configuration.
 *
 *     build/tests/xworld [--verbose] FIRST_SEED [N_SEEDS]
 *
 * Each run checks these properties, with integers that the world computes itself:
 *   exact     each visibility that is not flagged is the sum over all spectra of its window;
 *   complete  a baseline whose heaps all arrived in time is not flagged, and its dump is sent;
 *   counted   each packet that the receiver read is in one counter.
 * The process ends with exit status 1 and the seed at the first failure. */
#include "common/base/units.h"
#include "common/engine/engine.h"
#include "tests/world/faults.h"
#include "tests/world/refusals.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/xworld.h"
#include "xbgpu/config.h"
#include "xbgpu/pipeline.h"
#include "xbgpu/tune.h"

#include <stdio.h>

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

    /* a small socket buffer may drop nearly all packets of an F-engine */
    bool need_be_believed = s.is_prompt && !s.time_flipped && !s.is_overloaded && s.buffer_bytes >= 1000000;
    if (s.jump_batches == 0 || !need_be_believed)
        return;
    if (n_jumps < s.n_threads)
        world_fail("%u threads saw a jump, and the counter says %llu", s.n_threads, (unsigned long long)n_jumps);
    if (n_jumps == s.n_threads && (n_samples < n_jumps * least || n_samples > n_jumps * most))
        world_fail("the timestamps jumped by %llu samples, and the gaps have %llu in %llu threads",
                   (unsigned long long)least, (unsigned long long)n_samples, (unsigned long long)n_jumps);
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
    others_check(network_faults(port)->flip > 0);
    check_jump();
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

/* Adds all kinds of faults to the report. */
static void begin_report(void)
{
    static const char *const kinds[] = {"F-engines: timestamps jump forward",
                                        "F-engines: the clock denies timestamps",
                                        "dumps flagged because a bit flipped",
                                        "device: too slow",
                                        "runs that are stopped while data flow",
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
    struct run_daemon daemon = run_start("xbgpu", xbgpu_main, path);
    requests_connect();
    send_all(source);
    if (s.stop_batch == s.n_batches)
        run_sleep(3 * NS_PER_S);
    else
        world_note("runs that are stopped while data flow");
    if (!run_has_ended() && s.stop_batch == s.n_batches) {
        check_counters(source);
        dumps_check_counters();
        refusals_check();
    }
    int exit_code = run_stop_code(&daemon);
    s.has_failed = device_faults_failed();
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
    network_end();
}

int main(int argc, char **argv)
{
    return run_seeds(argc, argv, run_seed);
}
