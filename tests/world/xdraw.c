/* xdraw.c - draws xworld's scenario, its faults and xbgpu's configuration.  See xworld.h. */
#include "tests/world/faults.h"
#include "tests/world/refusals.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/xworld.h"

#include <stdio.h>
#include <string.h>

struct scenario s;

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
    if (run_draw("partition", 2) && !s.has_silence && s.jump_batches == 0) {
        f->partition_from_ns = (int64_t)(20 + world_random(80)) * BATCH_NS;
        f->partition_to_ns = f->partition_from_ns + (int64_t)world_random(60) * BATCH_NS;
        draw_absence(f);
    }
}

static struct device_faults device;

/* Draws the faults of the device. */
static void draw_device(void)
{
    static const int64_t slow_ns[] = {0, 0, 0, 20 * NS_PER_US, 4 * NS_PER_MS};

    device = (struct device_faults){.slow_ns = slow_ns[run_draw("slow", 5)]};
    unsigned what = (unsigned)run_draw("device", 24);

    s.is_overloaded = device.slow_ns > NS_PER_MS || s.stop_batch < s.n_batches;
    s.may_fail = what > 20;
    if (what == 21 || what == 22)
        device.fail_operation = 1 + (unsigned)world_random(world_random(2) ? 200 : 1500);
    device.fails_when_run = what == 22;
    if (what == 23)
        device.fail_memory = 1 + (unsigned)world_random(60);
    device_faults_set(&device);
}

/* Draws flips of bits in the dumps.  xbgpu ends after 10 wrong dumps.  Beams have no checksums. */
static void draw_flips(void)
{
    bool has_flips = run_draw("flip_dumps", 3) == 2 && !beams_exist() && !s.may_fail;

    if (!has_flips)
        return;
    device.flip_bytes = (size_t)s.n_chan * s.n_ants * (s.n_ants + 1) / 2 * 4 * 8;
    device.flip = 0.2;
    device.max_flips = 1 + (unsigned)world_random(9);
    device_faults_set(&device);
}

/* Draws faults of the sockets that send. */
static void draw_senders(struct network_port *destination)
{
    struct network_faults faults = *network_faults(destination);

    faults.refuse = run_draw("refuse", 6) == 5 ? 0.05 : 0;
    faults.stall = s.is_overloaded && run_draw("stall", 3) == 2 ? 0.05 : 0;
    faults.stall_ns = 40 * BATCH_NS;
    *network_faults(destination) = faults;
    beams_set_faults(&faults);
}

/* Decides which promises hold under these faults. */
static void judge_faults(const struct network_faults *f)
{
    s.is_lossy = f->lose > 0 || f->burst > 0 || s.buffer_bytes < 1000000;
    s.is_prompt = f->jitter_ns < heaps_in_time_ns() && f->jitter_ns <= s.chunk_batches * BATCH_NS / 2;
    world_note(s.is_prompt ? "runs without packets out of the window" : "runs with packets out of the window");
}

/* Draws a jump of all timestamps: forward by less than the clock's tolerance of 10 s, or for some batches by more. */
static void draw_jump(void)
{
    unsigned what = (unsigned)run_draw("jump", 8), from = 20 + (unsigned)run_draw("jump_at", 60);

    s.jump_at = s.n_batches;
    if (s.stop_batch < s.n_batches || s.has_silence || s.is_loud || what < 6)
        return;
    s.n_batches = s.stop_batch = from + 120;
    if (what == 6) {
        s.jump_at = from;
        s.jump_batches = 4 * (s.window + 4) * s.chunk_batches + 4 * s.length + (int64_t)world_random(300);
        world_note("F-engines: timestamps jump forward");
        return;
    }
    s.jump_at = s.n_batches;
    s.has_silence = true;
    s.far_from = from;
    s.far_to = from + 1 + (unsigned)world_random(60);
    s.far_batches = (int64_t)((2000 + world_random(100000)) * (world_random(2) ? 1 : -1));
    for (unsigned b = s.far_from; b < s.far_to; b++)
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            s.is_silent[ant][b] = true;
    world_note("F-engines: the clock denies timestamps");
}

/* Draws voltages whose sums saturate: many large voltages of few antennas in long heaps. */
static void draw_loudness(void)
{
    s.is_loud = run_draw("loud", 50) == 49;
    s.n_spectra = 16;
    if (s.is_loud) {
        s.n_spectra = MAX_SPECTRA;
        s.n_ants = 1 + s.n_ants % 2;
        s.n_chan = s.chunk_batches = s.n_threads = 1;
        s.n_parts = MAX_PARTS;
        s.window = 2 + s.window % 3;
        s.length = 4 + s.length % 3; /* 5 * 16384 * 2 * 127^2 > 2^31 */
        s.n_batches = 20;
    }
    s.batch_samples = (int64_t)s.n_spectra * STEP;
}

/* Shifts need two more chunks. */
static unsigned n_chunks(void)
{
    unsigned n_least = 2 * s.window + 3 + (s.max_shift > 0 || s.has_vis_shifts ? 2 : 0);

    return s.is_overloaded ? n_least : 4 * s.window + 8;
}

/* Writes the shifts of the visibilities. */
static void write_vis_shifts(FILE *file)
{
    fprintf(file, ", shifts: [");
    for (unsigned i = 0; s.has_vis_shifts && i < 2 * s.n_ants; i++)
        fprintf(file, "%s%d", i > 0 ? ", " : "", s.vis_shifts[i / 2][i % 2]);
    fprintf(file, "]");
}

static void draw_scenario(void)
{
    memset(&s, 0, sizeof(s));
    s.n_ants = 1 + (unsigned)run_draw("antennas", MAX_ANTS);
    s.n_chan = 1u << run_draw("channels", 3);
    s.n_parts = 1u << run_draw("parts", 3);
    s.n_threads = 1 + (unsigned)run_draw("threads", 3) % s.n_ants;
    s.chunk_batches = 1 + (unsigned)run_draw("chunk", 4);
    s.n_senders = 1 + (unsigned)run_draw("senders", 5);
    s.window = 1 + (unsigned)run_draw("window", 7);
    s.length = 1 + (unsigned)run_draw("length", 9);
    s.n_batches = 20 + (unsigned)run_draw("batches", 100);
    draw_loudness();
    s.first_chan = s.n_chan * (unsigned)run_draw("substream", N_STREAM_CHANS / MAX_CHANS);
    s.has_crc = run_draw("crc", 2);
    s.stop_batch = run_draw("stop", 8) == 7 ? (unsigned)world_random(s.n_batches) : s.n_batches;
    s.has_gate = run_draw("gate", 2) && !s.is_loud;
    s.grid_batches = 1 + (unsigned)run_draw("grid", 3);
    s.max_shift = run_draw("shifted", 3) == 2 && !s.is_loud ? 1 + (int)run_draw("max_shift", s.n_spectra) : 0;
    s.shifts_change = run_draw("shifts_change", 2);
    s.has_vis_shifts = run_draw("vis_shifts", 3) == 2 && !s.is_loud;
    s.is_stalled = s.stop_batch < s.n_batches && run_draw("drain", 4) == 3;
    s.has_forger = run_draw("forger", 2);
    s.buffer_bytes = run_draw("buffer", 4) == 3 && !s.is_loud ? 6000 : 8000000;
    s.missing_dump = (unsigned)run_draw("missing_dump", 3);
    s.first_batch = (world_unix_ns() / NS_PER_S - SYNC_UNIX_S) * RATE_HZ / s.batch_samples + (int64_t)world_random(10);
    bool may_be_silent = run_draw("silence", 2);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        for (unsigned b = 0; may_be_silent && world_random(3) == 0 && b < 2; b++) {
            s.has_silence = true;
            unsigned from = 10 + (unsigned)world_random(s.n_batches), n = 1 + (unsigned)world_random(30);
            for (unsigned i = from; i < from + n && i < s.n_batches; i++)
                s.is_silent[ant][i] = true;
        }
    draw_jump();
}

void scenario_write_config(const char *path)
{
    static const char *const missing_dumps[] = {"send", "skip", "always"};
    FILE *file = fopen(path, "w");

    if (!file)
        world_fail("cannot write %s", path);
    fprintf(file,
            "time: {sync_time: %d, adc_sample_rate: %lld}\n"
            "device: {kind: cpu, threads: 1}\n"
            "recv: {sources: [\"" SOURCE "\"], interface: lo, antennas: %u, channels: %d, channels_per_substream: %u,\n"
            "       channel_offset: %u, spectra_per_heap: %u, samples_between_spectra: %d, batches_per_chunk: %u,\n"
            "       window: %u, chunks: %u, threads: %u, buffer: %u, crc: %s, from: \"%s\"",
            SYNC_UNIX_S, (long long)RATE_HZ, s.n_ants, N_STREAM_CHANS, s.n_chan, s.first_chan, s.n_spectra, STEP,
            s.chunk_batches, s.window, n_chunks(), s.n_threads, s.buffer_bytes, s.has_crc ? "true" : "false",
            s.has_forger ? "10.0.0.1" : "");
    requests_write_shifts(file);
    fprintf(file,
            "}\n"
            "outputs:\n"
            "  - {name: vis, integration_batches: %u, destination: [\"" DESTINATION
            "\"], send_enabled: true, buffers: %u, missing_dump: %s, gate: \"%s\", audit_samples: %u",
            s.length, s.is_overloaded ? 0 : 160, missing_dumps[s.missing_dump], s.has_gate ? "g" : "",
            device.flip_bytes > 0 ? 16u : 1u);
    write_vis_shifts(file);
    fprintf(file,
            "}\n"
            "send: {interface: lo, packet_payload: 512, threads: %u}\n",
            s.n_senders);
    if (s.has_gate)
        requests_write_gate(file);
    beams_write_config(file);
    refusals_write_config(file);
    fclose(file);
}

void scenario_draw(void)
{
    draw_scenario();
    draw_device();
    requests_draw_shifts();
    beams_draw();
    draw_flips();
}

void scenario_draw_links(void)
{
    struct network_faults *source = network_faults(network_port(SOURCE));

    draw_faults(source);
    judge_faults(source);
    draw_senders(network_port(DESTINATION));
}
