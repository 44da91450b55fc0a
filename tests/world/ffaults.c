/* ffaults.c - faults of the host's clock, of the time that digitisers send, and of the device.  See fworld.h. */
#include "tests/world/clock.h"
#include "tests/world/faults.h"
#include "tests/world/fworld.h"
#include "tests/world/sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>

#define SMALL_SHIFT (3 * (int64_t)s.window * s.chunk_packets * PACKET) /* samples */

struct faults faults;

static const char *const clock_names[] = {
    [RIGHT] = "clock: right",
    [STEPPED] = "clock: stepped",
    [LEAP] = "clock: leap second",
    [DRIFTING] = "clock: drifting",
    [UNSYNCHRONISED] = "clock: unsynchronised",
    [CORRECTED] = "clock: corrected later",
};
static const char *const digitiser_names[] = {
    [RUNNING] = "digitisers: running",
    [RESTARTED] = "digitisers: all jump in time",
    [ANTENNA_OFF] = "digitisers: an antenna jumps in time",
    [POL_OFF] = "digitisers: a polarisation is seconds off",
    [SYNC_OFF] = "digitisers: the sync time is a second off",
    [SAMPLE_OFF] = "digitisers: some samples off",
};

void faults_begin_report(void)
{
    static const char *const others[] = {"digitisers pause",
                                         "digitisers: the clock denies the jump",
                                         "digitisers: half of a packet",
                                         "digitisers: a second copy with other samples",
                                         "timestamps reach 2^48",
                                         "timestamps wrong: corrected",
                                         "timestamps wrong: never corrected",
                                         "timestamps wrong: not corrected yet",
                                         "requests: delays",
                                         "requests: gain",
                                         "requests: gain that clips",
                                         "requests: large delays",
                                         "device: too slow"};

    for (size_t i = 0; i < sizeof(clock_names) / sizeof(clock_names[0]); i++)
        world_note_times(clock_names[i], 0);
    for (size_t i = 0; i < sizeof(digitiser_names) / sizeof(digitiser_names[0]); i++)
        world_note_times(digitiser_names[i], 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        world_note_times(others[i], 0);
}

const char *faults_clock(void)
{
    return clock_names[faults.clock];
}

const char *faults_digitiser(void)
{
    return digitiser_names[faults.digitiser];
}

int64_t random_between(int64_t least, int64_t most)
{
    return least + (int64_t)world_random((uint64_t)(most - least + 1));
}

/* ---- The host's clock -------------------------------------------------------------------------------------------- */

static void add_change(int64_t after_ns, int64_t step_ns, int state)
{
    faults.changes[faults.n_changes++] = (struct clock_change){after_ns, step_ns, state};
}

/* Draws an error of the clock at the start: small, some days, or decades, which is more than half of WIRE_PERIOD. */
static int64_t draw_error(void)
{
    static const int64_t years = INT64_C(365) * 24 * 3600;
    int64_t error_s = random_between(-3600, 3600);

    if (world_random(3) == 0)
        error_s *= 100;
    if (world_random(2))
        error_s = random_between(20 * years, 40 * years) * (world_random(4) ? 1 : -1);
    return error_s * NS_PER_S;
}

static void draw_clock(int64_t run_ns)
{
    if (model_is_known && world_random(2))
        faults.clock = (enum clock_fault)world_random(CORRECTED + 1);
    world_note(clock_names[faults.clock]);
    if (model_is_known && (faults.clock >= UNSYNCHRONISED || world_random(4) == 0)) {
        faults.pause_at = 100 + (unsigned)world_random(s.n_packets - 100);
        faults.n_pause_packets =
            random_between(faults.clock >= UNSYNCHRONISED ? 5 * NS_PER_S / PACKET_NS : 1, 8 * NS_PER_S / PACKET_NS);
        run_ns += faults.n_pause_packets * PACKET_NS;
        world_note("digitisers pause");
    }
    if (faults.clock == STEPPED)
        for (int i = 0; i < 3; i++)
            add_change(random_between(0, run_ns), random_between(-3600, 3600) * NS_PER_S,
                       world_random(2) ? TIME_OK : TIME_ERROR);
    if (faults.clock == LEAP) {
        int64_t leap_ns = random_between(0, run_ns);
        faults.at_start.state = TIME_INS;
        add_change(leap_ns, -NS_PER_S, TIME_OOP);
        add_change(leap_ns + NS_PER_S, 0, TIME_WAIT);
    }
    if (faults.clock == DRIFTING)
        faults.at_start.drift = (double)random_between(-500, 500) * 1e-6;
    if (faults.clock == UNSYNCHRONISED || faults.clock == CORRECTED)
        faults.at_start = (struct world_clock){.error_ns = draw_error(), .state = TIME_ERROR};
    if (faults.clock == UNSYNCHRONISED)
        add_change(random_between(run_ns / 6, run_ns / 3), draw_error(), TIME_ERROR); /* after the first packets */
    if (faults.clock == CORRECTED) {
        faults.corrected_ns = random_between(0, world_random(2) ? faults.pause_at * PACKET_NS : run_ns);
        add_change(faults.corrected_ns, -faults.at_start.error_ns, TIME_OK);
    }
}

static void change_clock(void *arg)
{
    const struct clock_change *change = arg;

    world_clock.error_ns += change->step_ns;
    world_clock.state = change->state;
}

void faults_begin(int64_t begin_ns)
{
    for (size_t i = 0; i < faults.n_changes; i++)
        world_at(begin_ns + faults.changes[i].after_ns, change_clock, &faults.changes[i]);
}

/* The first timestamp becomes the timestamp that is nearest to the clock. */
int64_t faults_wrong_periods(unsigned ant, unsigned pol)
{
    int64_t first = s.first_packet * PACKET + faults_shift(ant, pol, 0);
    int64_t wire = first % WIRE_PERIOD, true_period = first / WIRE_PERIOD;
    double clock_s = (double)(world_unix_ns() + faults.at_start.error_ns) * 1e-9 - (double)s.sync_unix_s;
    double n = rint((clock_s * RATE_HZ - (double)wire) / (double)WIRE_PERIOD);

    if (faults.clock != UNSYNCHRONISED && faults.clock != CORRECTED)
        return 0;
    return (n < 0 ? 0 : (int64_t)n) - true_period;
}

/* ---- Digitisers -------------------------------------------------------------------------------------------------- */

int64_t faults_time(unsigned p)
{
    return p + (faults.pause_at > 0 && p >= faults.pause_at ? faults.n_pause_packets : 0);
}

int64_t faults_shift(unsigned ant, unsigned pol, unsigned p)
{
    bool is_hit = (faults.ant == ant || faults.ant == ALL) && (faults.pol == pol || faults.pol == ALL);

    return is_hit && p >= faults.from && p < faults.to ? faults.shift_samples : 0;
}

/* Draws a jump in time: less than a window, some seconds, or hours. */
static int64_t draw_shift(void)
{
    int64_t packets = random_between(1, 10);

    switch (world_random(4)) {
    case 0: packets = random_between(1, SMALL_SHIFT / PACKET); break;
    case 1: packets = random_between(1000, 8 * RATE_HZ / PACKET); break;
    case 2: packets = random_between(20 * RATE_HZ / PACKET, 7000 * RATE_HZ / PACKET); break;
    }
    return (world_random(2) ? packets : -packets) * PACKET;
}

static void draw_digitiser(void)
{
    if (model_is_known && (faults.clock == RIGHT || faults.clock == UNSYNCHRONISED) && world_random(3) == 0)
        faults.digitiser = (enum digitiser_fault)(1 + world_random(SAMPLE_OFF));
    world_note(digitiser_names[faults.digitiser]);
    if (faults.digitiser == RUNNING)
        return;
    faults.pause_at = 0;
    s.n_packets += 200;
    faults.from = (unsigned)random_between(60, 200);
    faults.to = faults.from + (unsigned)(world_random(3) ? MAX_PACKETS : random_between(1, 200));
    faults.ant = faults.digitiser == RESTARTED ? ALL : (unsigned)world_random(s.n_ants);
    faults.pol = faults.digitiser <= ANTENNA_OFF ? ALL : (unsigned)world_random(2);
    faults.shift_samples = draw_shift();
    if (faults.digitiser == POL_OFF || faults.digitiser == SYNC_OFF)
        faults.shift_samples = (faults.digitiser == POL_OFF ? 3 : 1) * (world_random(2) ? RATE_HZ : -RATE_HZ);
    if (faults.digitiser == SYNC_OFF)
        faults.from = 0;
    if (faults.digitiser == SAMPLE_OFF)
        faults.shift_samples = random_between(1, PACKET - 1);
    faults.n_silent = world_random(2) ? (unsigned)world_random(60) : 0;
    faults.is_denied = faults.clock == RIGHT && llabs(faults.shift_samples) > 10 * RATE_HZ;
    if (faults.is_denied)
        world_note("digitisers: the clock denies the jump");
}

/* Draws a device that is slow, a little or much, or an operation that fails. */
static void draw_device(void)
{
    struct device_faults device = {0};

    if (model_is_known && world_random(5) == 0)
        faults.device = world_random(2) ? SLOW : FAILING;
    if (faults.device == SLOW)
        device.slow_ns = random_between(1, world_random(2) ? PACKET_NS / 20 : 40 * PACKET_NS);
    if (faults.device == FAILING) {
        device.fail_operation = (unsigned)random_between(1, 10 * s.n_ants * s.n_packets / s.chunk_packets);
        device.fails_when_run = world_random(2);
        if (world_random(4) == 0)
            device.fail_memory = 1 + (unsigned)world_random(60);
    }
    device_faults_set(&device);
}

void faults_draw(void)
{
    memset(&faults, 0, sizeof(faults));
    draw_device();
    draw_clock(s.n_packets * PACKET_NS);
    draw_digitiser();
}

/* ---- Excuses ----------------------------------------------------------------------------------------------------- */

/* Excuses packets while the timestamps of an antenna settle after a jump: until both polarisations have handed on a
 * chunk, a window later, or until one has handed on a window of chunks.  Packets that were sent before the jump may
 * arrive after it. */
static void excuse_jump(unsigned ant, unsigned pol, int64_t jump_ns, int64_t more_ns)
{
    int64_t from_ns = judge_first_read_ns(ant, pol, jump_ns);

    judge_excuse(ant, jump_ns - more_ns, from_ns + (2 * s.window + 2) * s.chunk_packets * PACKET_NS + more_ns);
}

/* Excuses the packets of an input whose timestamps are shifted.  While they are behind by less than a window or so,
 * they are too old. */
static void excuse_shift(unsigned ant, unsigned pol, int64_t begin_ns, int64_t jitter_ns)
{
    int64_t shift_samples = llabs(faults.shift_samples), more_ns = jitter_ns + 16 * PACKET_NS;

    if (faults.is_denied || faults.digitiser == SAMPLE_OFF)
        return;
    if (shift_samples <= SMALL_SHIFT)
        more_ns += shift_samples / PACKET * PACKET_NS;
    if (faults.pol != ALL)
        judge_excuse(ant, begin_ns + faults.from * PACKET_NS, begin_ns + faults.to * PACKET_NS);
    excuse_jump(ant, pol, begin_ns + faults.from * PACKET_NS, more_ns);
    excuse_jump(ant, pol, begin_ns + faults.to * PACKET_NS, more_ns);
}

static void excuse_correction(unsigned ant, unsigned pol, int64_t begin_ns, int64_t jitter_ns)
{
    int64_t right_ns = begin_ns + faults.corrected_ns, resumed_ns = begin_ns + faults_time(faults.pause_at) * PACKET_NS;

    judge_excuse(ant, right_ns, right_ns + 6 * NS_PER_S);
    excuse_jump(ant, pol, right_ns + 6 * NS_PER_S, jitter_ns);
    if (resumed_ns >= right_ns)
        excuse_jump(ant, pol, resumed_ns, jitter_ns);
}

void faults_excuse(int64_t begin_ns, int64_t jitter_ns)
{
    int64_t first_ns = INT64_MAX;

    for (unsigned i = 0; i < 2 * s.n_ants; i++) {
        int64_t ns = judge_first_read_ns(i / 2, i % 2, 0);
        first_ns = ns < first_ns ? ns : first_ns;
    }
    for (unsigned i = 0; i < 2 * s.n_ants; i++) {
        judge_excuse(i / 2, 0, first_ns + jitter_ns + PACKET_NS + s.chunk_packets * PACKET_NS);
        if (s.is_lossy && jitter_ns > 0) /* if the first chunks are incomplete, later packets seem to overtake others */
            judge_excuse(i / 2, 0, judge_first_chunk_ns(i / 2, i % 2) + jitter_ns + PACKET_NS);
        if (faults.digitiser != RUNNING && (faults.ant == ALL || faults.ant == i / 2))
            excuse_shift(i / 2, i % 2, begin_ns, jitter_ns);
        if (faults.clock == CORRECTED && faults_wrong_periods(i / 2, i % 2) != 0)
            excuse_correction(i / 2, i % 2, begin_ns, jitter_ns);
    }
}
