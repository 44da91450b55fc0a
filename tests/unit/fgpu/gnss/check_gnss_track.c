/* check_gnss_track - tracking loops against a simulation of sums in double precision (gnss_signal.h), and against samples
 * through gnss_correlate.  The sums come in chunks, and late. */
#include "fgpu/gnss/gnss_track.h"

#include "tests/unit/fgpu/gnss/gnss_signal.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>

#define QUEUE 1024

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

struct late {
    int64_t due_sample;
    uint32_t n_samples, n_missing;
    int64_t sums[FGPU_GNSS_N_TAPS][N_POLS][2];
};

static struct fgpu_gnss_integration ended[2];

static size_t add_sums(struct fgpu_gnss_track *track, const int64_t (*sums)[N_POLS][2], uint32_t n_present)
{
    double scaled[FGPU_GNSS_N_TAPS][N_POLS][2];

    for (int i = 0; i < FGPU_GNSS_N_TAPS * N_POLS * 2; i++)
        (&scaled[0][0][0])[i] = (double)(&sums[0][0][0])[i];
    return fgpu_gnss_track_sums(track, (const double(*)[N_POLS][2])scaled, n_present, 0, ended);
}

struct simulation {
    struct satellite satellite;
    struct fgpu_gnss_track track;
    int64_t chunk_samples, delay_samples;
    int64_t begin_sample; /* of the next chunk */
    struct taps taps;
    bool is_silent;                         /* no signal, only noise */
    bool is_quiet;                          /* no noise */
    bool (*is_missing)(int64_t sample);     /* NULL: nothing is */
    bool (*is_absent)(int64_t chunk_begin); /* NULL: all chunks come */
    struct late queue[QUEUE];
    size_t n_pushed, n_popped;

    int64_t settled_sample; /* from which on the figures below count */
    int64_t n;
    double start_turns;                            /* 0 or 1/2 */
    double unwrapped_turns;                        /* replica minus signal, of the last piece */
    double worst_turns, worst_chips;               /* the largest magnitudes, from start_turns on */
    double square_turns, square_chips, sum_cn0[2]; /* sums */
    int64_t search_sample;                         /* where SEARCH came first, or -1 */
};

static uint32_t count_missing(const struct simulation *sim, int64_t first, uint32_t n)
{
    uint32_t n_missing = 0;

    for (uint32_t i = 0; sim->is_missing && i < 100; i++)
        n_missing += sim->is_missing(first + (int64_t)((uint64_t)n * i / 100)) ? n / 100 : 0;
    return n_missing;
}

static void add_figures(struct simulation *sim, const struct gnss_piece *piece, int64_t first)
{
    double turns, hz, chips;

    replica_error(&sim->satellite, piece, first, &turns, &hz, &chips);
    turns += sim->track.pol * -sim->satellite.pol_turns; /* the loop's own polarisation */
    sim->unwrapped_turns += wrap(turns - sim->unwrapped_turns);
    if (first < sim->settled_sample)
        return;
    if (!sim->n++)
        sim->start_turns = round(2 * sim->unwrapped_turns) / 2;
    const double error = sim->unwrapped_turns - sim->start_turns;
    sim->worst_turns = fmax(sim->worst_turns, fabs(error));
    sim->worst_chips = fmax(sim->worst_chips, fabs(chips));
    sim->square_turns += error * error;
    sim->square_chips += chips * chips;
    const struct fgpu_gnss_state state = fgpu_gnss_track_at(&sim->track, first);
    for (int pol = 0; pol < N_POLS; pol++)
        sim->sum_cn0[pol] += state.cn0_db_hz[pol];
}

static double rms_deg(const struct simulation *sim)
{
    return 360 * sqrt(sim->square_turns / (double)sim->n);
}

static double rms_chips(const struct simulation *sim)
{
    return sqrt(sim->square_chips / (double)sim->n);
}

/* The pieces of a chunk are made when all of it has come, its sums are there 'delay_samples' later. */
static void run_chunk(struct simulation *sim)
{
    const int64_t begin = sim->begin_sample, end = begin + sim->chunk_samples;
    struct gnss_piece pieces[64];

    sim->begin_sample = end;
    while (sim->n_popped < sim->n_pushed && sim->queue[sim->n_popped % QUEUE].due_sample <= end) {
        const struct late *late = &sim->queue[sim->n_popped++ % QUEUE];
        add_sums(&sim->track, late->sums, late->n_samples - late->n_missing);
    }
    if (sim->track.stage == FGPU_GNSS_SEARCH && sim->search_sample < 0)
        sim->search_sample = end;
    if (sim->is_absent && sim->is_absent(begin))
        return;
    const size_t n = fgpu_gnss_track_pieces(&sim->track, begin, end, pieces, ARRAY_LEN(pieces));
    for (size_t i = 0; i < n; i++) {
        struct late *late = &sim->queue[sim->n_pushed++ % QUEUE];
        const int64_t first = begin + pieces[i].first;
        ck_assert(sim->n_pushed - sim->n_popped <= QUEUE && pieces[i].first >= 0 && first + pieces[i].n_samples <= end);
        late->due_sample = end + sim->delay_samples;
        late->n_samples = pieces[i].n_samples;
        late->n_missing = count_missing(sim, first, pieces[i].n_samples);
        make_sums(&sim->satellite, &sim->taps, &pieces[i], first, pieces[i].n_samples - late->n_missing,
                  sim->is_silent ? 0 : 1, sim->is_quiet ? 0 : 1, late->sums);
        add_figures(sim, &pieces[i], first);
    }
}

static void run_until(struct simulation *sim, double seconds)
{
    while (sim->begin_sample < seconds * SAMPLE_RATE_HZ)
        run_chunk(sim);
}

/* A satellite somewhere, with the strength of its stronger polarisation, and a track that has not begun. */
static struct simulation *simulation_create(enum gnss_signal signal, double cn0_db_hz)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(signal);
    struct simulation *sim = calloc(1, sizeof(*sim));
    struct satellite *s = &sim->satellite;
    const int strong = (int)random_below(2);

    s->signal = signal;
    s->carrier_hz = (int64_t)random_between(-8e6, 8e6);
    s->doppler_hz = random_between(-5000, 5000);
    s->rate_hz_s = random_between(-1, 1);
    s->subchips = (int)gnss_subchips(facts->subcarrier);
    s->n_subchips = facts->n_chips * s->subchips;
    s->code_subchips = random_between(0, 30) * (double)s->n_subchips;
    s->phase_turns = random_between(0, 1);
    s->pol_turns = random_between(0, 1);
    s->cn0[strong] = pow(10, cn0_db_hz / 10);
    s->cn0[1 - strong] = s->cn0[strong] * random_between(0, 1);
    s->seed = random_u64() | 1;
    sim->chunk_samples = (int64_t)(random_between(0.01, 0.03) * SAMPLE_RATE_HZ);
    sim->delay_samples = (int64_t)(random_between(0.01, 0.03) * SAMPLE_RATE_HZ);
    sim->settled_sample = 4 * SAMPLE_RATE_HZ;
    sim->search_sample = -1;
    const struct fgpu_gnss_track_config config = {.signal = signal,
                                                  .subcarrier = facts->subcarrier,
                                                  .sample_rate_hz = SAMPLE_RATE_HZ,
                                                  .carrier_hz = (double)s->carrier_hz};
    memset(&sim->track, 0x5a, sizeof(sim->track));
    fgpu_gnss_track_init(&sim->track, &config);
    taps_init(&sim->taps, signal, sim->track.tap_subchips / s->subchips);
    return sim;
}

/* Begins with the errors of an acquisition: parts of what the header allows. */
static void start(struct simulation *sim, double part)
{
    const struct satellite *s = &sim->satellite;
    const struct truth truth = truth_at(s, 2 * sim->begin_sample);
    const bool is_e1 = s->subchips > 1;
    const double period_s = gnss_signal_facts(s->signal)->n_chips / gnss_signal_facts(s->signal)->chip_rate_hz;
    const double code = (double)fmodl(truth.code_subchips, s->n_subchips) +
                        part * (is_e1 ? 0.15 : 0.25) * s->subchips * (random_below(2) ? 1 : -1);
    const double wrapped = fmod(code + (double)s->n_subchips, (double)s->n_subchips);
    const struct fgpu_gnss_acquisition acquisition = {.sample = sim->begin_sample,
                                                      .code_subchips = wrapped,
                                                      .doppler_hz = truth.doppler_hz +
                                                                    part / (8 * period_s) * (random_below(2) ? 1 : -1)};

    fgpu_gnss_track_start(&sim->track, &acquisition);
}

/* Cases that differ in '_i' only would begin with the same random numbers. */
static struct simulation *simulation_start(int i, enum gnss_signal signal, double cn0_db_hz)
{
    random_state += (uint64_t)i << 40;
    struct simulation *sim = simulation_create(signal, cn0_db_hz);

    start(sim, random_between(0.5, 1));
    return sim;
}

static const char *name_of(const struct simulation *sim)
{
    return gnss_signal_facts(sim->satellite.signal)->name;
}

/* Prints what a failure needs, and the figures. */
static void report(const struct simulation *sim, const char *test)
{
    printf("%s: %s, chunks of %.1f ms, %.1f ms late: %.2f degrees rms, %.4f chips rms, worst %.1f degrees, stage %d, "
           "%u losses, cn0 %.2f %.2f (%.2f %.2f)\n",
           test, name_of(sim), 1e3 * (double)sim->chunk_samples / SAMPLE_RATE_HZ,
           1e3 * (double)sim->delay_samples / SAMPLE_RATE_HZ, rms_deg(sim), rms_chips(sim), 360 * sim->worst_turns,
           sim->track.stage, sim->track.n_losses, sim->sum_cn0[0] / (double)sim->n, sim->sum_cn0[1] / (double)sim->n,
           10 * log10(sim->satellite.cn0[0]), 10 * log10(sim->satellite.cn0[1]));
    fflush(stdout);
}

/* ---- Following --------------------------------------------------------------------------------------------------- */

static void check_symbols(const struct simulation *sim)
{
    const int64_t sample = sim->begin_sample, n = periods_of_symbol(sim->satellite.signal);
    const struct fgpu_gnss_state state = fgpu_gnss_track_at(&sim->track, sample);
    const int64_t period = period_at(&sim->satellite, 2 * sample);
    const double fraction = (double)state.code_phase * 0x1p-48 / (double)sim->satellite.n_subchips;

    if (fraction > 0.01 && fraction < 0.99)
        ck_assert_int_eq(state.symbol_period, period % n);
}

static void check_followed(const struct simulation *sim)
{
    const bool is_pilot = gnss_signal_facts(sim->satellite.signal)->symbol_periods == 0;
    const struct fgpu_gnss_state state = fgpu_gnss_track_at(&sim->track, sim->begin_sample);

    ck_assert_int_eq(state.stage, FGPU_GNSS_TRACKING);
    ck_assert_int_eq(sim->track.n_losses, 0);
    ck_assert(state.is_code_locked && state.is_carrier_locked);
    ck_assert_msg(sim->worst_turns < 0.25, "a slip: %g turns", sim->worst_turns);
    ck_assert_int_eq(state.has_half_turn, !is_pilot);
    if (is_pilot)
        ck_assert_msg(fabs(wrap(sim->unwrapped_turns)) < 0.25, "half a turn");
}

static void check_cn0(const struct simulation *sim, double tolerance_db)
{
    const int pol = sim->track.pol;

    ck_assert_double_eq_tol(sim->sum_cn0[pol] / (double)sim->n, 10 * log10(sim->satellite.cn0[pol]), tolerance_db);
}

TEST(twelve_satellites, .end = 12)
{
    struct simulation *sim = simulation_start(_i, (enum gnss_signal)(_i % GNSS_N_SIGNALS), 45);

    run_until(sim, 60);
    report(sim, "45 dB-Hz");
    check_followed(sim);
    check_symbols(sim);
    ck_assert(rms_deg(sim) <= 5 && rms_chips(sim) <= 0.02);
    free(sim);
}

/* The seed is given: one acquisition of 5000 so weak is lost again. */
TEST(weak_signals_stay_locked, .end = GNSS_N_SIGNALS)
{
    random_state = 1;
    struct simulation *sim = simulation_start(_i, (enum gnss_signal)_i, 35);

    run_until(sim, 60);
    report(sim, "35 dB-Hz");
    check_followed(sim);
    check_symbols(sim);
    free(sim);
}

/* At 40 dB-Hz; the seed is given, so that it cannot happen once in a while. */
TEST(lock_is_not_lost_in_600_s, .end = GNSS_N_SIGNALS)
{
    random_state = 1;
    struct simulation *sim = simulation_start(_i, (enum gnss_signal)_i, 40);

    run_until(sim, 600);
    report(sim, "600 s");
    check_followed(sim);
    free(sim);
}

TEST(lost_signals_are_noticed, .end = 4 * GNSS_N_SIGNALS)
{
    struct simulation *sim = simulation_start(_i, (enum gnss_signal)(_i % GNSS_N_SIGNALS), random_between(38, 52));

    run_until(sim, 5);
    ck_assert_int_eq(sim->track.stage, FGPU_GNSS_TRACKING);
    const int64_t lost_sample = sim->begin_sample;
    sim->is_silent = true;
    run_until(sim, 7);
    report(sim, "lost");
    ck_assert_int_eq(sim->track.stage, FGPU_GNSS_SEARCH);
    ck_assert_int_eq(sim->track.n_losses, 1);
    ck_assert(!fgpu_gnss_track_at(&sim->track, sim->begin_sample).is_code_locked);
    ck_assert_msg(sim->search_sample - lost_sample < SAMPLE_RATE_HZ, "%g s",
                  (double)(sim->search_sample - lost_sample) / SAMPLE_RATE_HZ);

    /* It comes back, and so does the track. */
    sim->is_silent = false;
    start(sim, 0.5);
    run_until(sim, 10);
    ck_assert_int_eq(sim->track.stage, FGPU_GNSS_TRACKING);
    ck_assert_int_eq(sim->track.n_losses, 1);
    check_symbols(sim);
    free(sim);
}

/* An acquisition of nothing. */
TEST(noise_is_not_followed, .end = GNSS_N_SIGNALS)
{
    struct simulation *sim = simulation_create((enum gnss_signal)_i, 40);

    sim->is_silent = true;
    start(sim, 1);
    run_until(sim, 5);
    ck_assert_int_eq(sim->track.stage, FGPU_GNSS_SEARCH);
    ck_assert_int_eq(sim->track.n_losses, 1);
    free(sim);
}

/* ---- Gaps -------------------------------------------------------------------------------------------------------- */

static bool is_in_gap(int64_t sample)
{
    return sample > 3 * SAMPLE_RATE_HZ && sample % (3 * SAMPLE_RATE_HZ) < SAMPLE_RATE_HZ / 10;
}

/* 3 of 10 samples, in runs of 0.08 ms. */
static bool is_in_hole(int64_t sample)
{
    return sample / (SAMPLE_RATE_HZ / 12500) % 10 < 3;
}

TEST(gaps_are_coasted_over, .end = 3 * GNSS_N_SIGNALS)
{
    struct simulation *sim = simulation_start(_i, (enum gnss_signal)(_i % GNSS_N_SIGNALS), 45);
    const int kind = _i / GNSS_N_SIGNALS;

    sim->is_missing = kind == 0 ? is_in_gap : kind == 1 ? is_in_hole : NULL;
    sim->is_absent = kind == 2 ? is_in_gap : NULL;
    run_until(sim, 30);
    report(sim, kind == 0 ? "zeros" : kind == 1 ? "holes" : "absent");
    check_followed(sim);
    check_symbols(sim);
    ck_assert(rms_deg(sim) <= 5 && rms_chips(sim) <= 0.02);
    check_cn0(sim, kind == 1 ? 1 : 0.3); /* holes of unequal length look like noise */
    free(sim);
}

/* ---- Delay ------------------------------------------------------------------------------------------------------- */

/* Kaplan and Hegarty's third-order loop without delay: its error 'time_s' behind a step of 1 of the phase. */
static double loop_error(double time_s, double bandwidth_hz)
{
    const double t = 1e-4, w = bandwidth_hz / 0.7845;
    double error = 1, frequency = 0, rate = 0;

    for (int i = 0; i < time_s / t; i++) {
        const double now = error;
        rate += w * w * w * t * now;
        frequency += (1.1 * w * w * now + rate) * t;
        error -= (2.4 * w * now + frequency) * t;
    }
    return error;
}

/* The loop's answer to a step does not know of the delay: from 0 to 30 ms, and far beyond. */
TEST(delay_does_not_move_the_poles, .end = 5)
{
    static const int64_t delays_ms[] = {0, 10, 20, 30, 120};
    struct simulation *sim = simulation_start(_i, GNSS_L1CA, 45);

    sim->is_quiet = true;
    sim->satellite.rate_hz_s = 0;
    sim->chunk_samples = SAMPLE_RATE_HZ / 250;
    sim->delay_samples = delays_ms[_i] * SAMPLE_RATE_HZ / 1000;
    run_until(sim, 8);
    const double before = sim->unwrapped_turns;
    const int64_t step_sample = sim->begin_sample;
    sim->satellite.phase_turns += 0.1;
    sim->satellite.code_subchips += 0.05;
    for (int64_t sample = 0; sample < step_sample + SAMPLE_RATE_HZ;) {
        run_chunk(sim);
        ck_assert_int_eq(sim->track.stage, FGPU_GNSS_TRACKING);
        sample = sim->track.model.sample;
        if (sample < step_sample)
            continue;
        const struct truth truth = truth_at(&sim->satellite, 2 * sample);
        const double model_turns = (double)(uint64_t)sim->track.model.carrier * 0x1p-64 - truth.carrier_turns;
        const double pol_turns = sim->track.pol * sim->satellite.pol_turns;
        const double error = -wrap(model_turns - (double)fmodl(truth.theta, 1) - pol_turns - before);
        const double time_s = (double)(sample - step_sample) / SAMPLE_RATE_HZ;
        const double code_error = (double)(truth.code_subchips - ldexpl((long double)sim->track.model.code, -64));
        ck_assert_double_eq_tol(error, 0.1 * loop_error(time_s, 5), 0.004);
        ck_assert_double_eq_tol(remainder(code_error, 1023), 0.05 * exp(-4 * 0.5 * time_s), 0.0015);
    }
    free(sim);
}

TEST(late_sums, .end = 5)
{
    struct simulation *sim = simulation_start(0, GNSS_L1CA, 40);

    sim->delay_samples = (_i == 4 ? 120 : 10 * _i) * SAMPLE_RATE_HZ / 1000;
    run_until(sim, 20);
    report(sim, "late");
    check_followed(sim);
    ck_assert(rms_deg(sim) <= 5 && rms_chips(sim) <= 0.02);
    free(sim);
}

/* ---- C/N0 -------------------------------------------------------------------------------------------------------- */

TEST(cn0_is_that_of_the_signal, .end = 4 * GNSS_N_SIGNALS)
{
    struct simulation *sim;
    const double cn0_db_hz = 35 + 5 * (_i / GNSS_N_SIGNALS);

    random_state = 1;
    sim = simulation_start(_i, (enum gnss_signal)(_i % GNSS_N_SIGNALS), cn0_db_hz);
    run_until(sim, 25);
    report(sim, "C/N0");
    check_cn0(sim, 0.3);
    free(sim);
}

/* Without loops, down to 30 dB-Hz: the mean of estimates in dB, one for each time constant. */
TEST(cn0_has_no_bias, .end = 21)
{
    const double cn0_db_hz = 30 + _i, periods_s[] = {1e-3, 4e-3};

    random_state = 1 + (uint64_t)_i;
    for (int k = 0; k < 2; k++) {
        const double amplitude = sqrt(2 * pow(10, cn0_db_hz / 10) * periods_s[k]);
        struct fgpu_gnss_lock lock;
        double sum = 0;
        int n = 0;
        fgpu_gnss_lock_init(&lock);
        for (int i = 1; i < 60 / periods_s[k]; i++) {
            const double angle = 0.37 * i;
            fgpu_gnss_lock_add_power(&lock, amplitude * cos(angle) + gauss(), amplitude * sin(angle) + gauss(),
                                     periods_s[k]);
            if (i % 500)
                continue;
            sum += fgpu_gnss_lock_cn0_db_hz(&lock);
            n++;
        }
        ck_assert_double_eq_tol(sum / n, cn0_db_hz, 0.3);
    }
}

/* ---- Symbols ----------------------------------------------------------------------------------------------------- */

/* Data without transitions show no edge, so none is named; secondary codes need no transitions. */
TEST(symbols_without_transitions, .end = GNSS_N_SIGNALS)
{
    struct simulation *sim = simulation_create((enum gnss_signal)_i, 45);

    sim->satellite.seed = 0;
    start(sim, 0.5);
    run_until(sim, 10);
    ck_assert_int_eq(sim->track.stage, FGPU_GNSS_TRACKING);
    if (_i == GNSS_L1CA)
        ck_assert_int_eq(fgpu_gnss_track_at(&sim->track, sim->begin_sample).symbol_period, -1);
    else
        check_symbols(sim);
    free(sim);
}

/* All places in turn, at 35 dB-Hz. */
TEST(symbols_begin_anywhere, .end = GNSS_N_SIGNALS)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts((enum gnss_signal)_i);
    const int n = periods_of_symbol((enum gnss_signal)_i);

    random_state = 1;
    for (int first = 0; first < n; first++) {
        struct simulation *sim = simulation_create((enum gnss_signal)_i, 35);
        const double period_s = facts->n_chips / facts->chip_rate_hz;
        sim->satellite.code_subchips = ((double)first + 0.3) * (double)sim->satellite.n_subchips;
        start(sim, 0.5);
        run_until(sim, 3 + 20 * period_s);
        ck_assert_int_ge(fgpu_gnss_track_at(&sim->track, sim->begin_sample).symbol_period, 0);
        check_symbols(sim);
        free(sim);
    }
}

/* ---- Phases and pieces ------------------------------------------------------------------------------------------- */

/* numerator / denominator modulo n, in units of 2^-64. */
static unsigned __int128 exact_units(__int128 numerator, __int128 denominator, int64_t n)
{
    __int128 whole = numerator / denominator, rest = numerator % denominator;

    if (rest < 0) {
        rest += denominator;
        whole--;
    }
    whole = (whole % n + n) % n;
    return ((unsigned __int128)whole << 64) + ((unsigned __int128)rest << 64) / (unsigned __int128)denominator;
}

/* 1e8 samples without sums: pieces have the phases of rational arithmetic, and lie side by side from their chunks'
 * begin to end.  Rates are halves of 1 Hz.  The rest of an integration that a chunk has cut goes on by a step of 48
 * bits. */
TEST(phases_are_exact, .end = 2 * GNSS_N_SIGNALS)
{
    const enum gnss_signal signal = (enum gnss_signal)(_i % GNSS_N_SIGNALS);
    const struct gnss_signal_facts *facts = gnss_signal_facts(signal);
    const int64_t doppler_halves = (int64_t)random_below(20000) - 10000, carrier_hz = _i < 5 ? 4580000 : -7300001;
    const struct fgpu_gnss_track_config config = {.signal = signal,
                                                  .subcarrier = facts->subcarrier,
                                                  .sample_rate_hz = SAMPLE_RATE_HZ,
                                                  .carrier_hz = (double)carrier_hz};
    const struct fgpu_gnss_acquisition acquisition = {.sample = 1000, .doppler_hz = (double)doppler_halves / 2};
    const __int128 carrier_halves = 2 * carrier_hz + doppler_halves, f = 2 * (__int128)llrint(facts->carrier_hz);
    const int64_t n_subchips = facts->n_chips * gnss_subchips(facts->subcarrier);
    const __int128 rate = (__int128)llrint(facts->chip_rate_hz) * gnss_subchips(facts->subcarrier);
    static const int64_t no_sums[FGPU_GNSS_N_TAPS][N_POLS][2];
    struct fgpu_gnss_track track;
    struct gnss_piece pieces[128];
    int64_t next = 1000;

    fgpu_gnss_track_init(&track, &config);
    fgpu_gnss_track_start(&track, &acquisition);
    for (int64_t begin = 0, end; begin < 100000000; begin = end) {
        end = begin + 1 + (int64_t)random_below(1000000);
        size_t n = fgpu_gnss_track_pieces(&track, begin, end, pieces, ARRAY_LEN(pieces));
        for (size_t i = 0; i < n; i++) {
            const struct gnss_piece *piece = &pieces[i];
            const int64_t sample = begin + piece->first, t = sample - 1000;
            const uint64_t carrier = (uint64_t)exact_units(carrier_halves * t, 2 * SAMPLE_RATE_HZ, 1);
            const __int128 code =
                (__int128)exact_units(rate * t * (f + doppler_halves), SAMPLE_RATE_HZ * f, n_subchips);
            ck_assert_int_eq(sample, next);
            ck_assert_int_eq(piece->integration, i);
            const int64_t carrier_error = (int64_t)(piece->carrier_phase - carrier);
            const int64_t code_error = (int64_t)(piece->code_phase - (uint64_t)(code >> 16));
            ck_assert_msg(llabs(carrier_error) <= t + 30000, "%" PRId64 ": %" PRId64, t, carrier_error);
            ck_assert_msg(llabs(code_error) <= t / 30000 + 60000, "%" PRId64 ": %" PRId64, t, code_error);
            next = sample + piece->n_samples;
            add_sums(&track, no_sums, 0);
        }
        ck_assert(next == end || end <= 1000);
    }
}

/* Sums of pieces before a start change nothing; pieces without sums end at a limit, and go on behind a gap. */
TEST(sums_belong_to_their_start)
{
    const struct fgpu_gnss_acquisition acquisition = {.sample = 5000000, .code_subchips = 17.25, .doppler_hz = 321};
    struct simulation *sim = simulation_create(GNSS_L1CA, 45);
    int64_t wild[FGPU_GNSS_N_TAPS][N_POLS][2];
    struct gnss_piece pieces[2 * FGPU_GNSS_MAX_PENDING];

    random_bytes(wild, sizeof(wild));
    start(sim, 0);
    ck_assert_int_eq(fgpu_gnss_track_pieces(&sim->track, 0, INT64_C(100000000), pieces, ARRAY_LEN(pieces)),
                     FGPU_GNSS_MAX_PENDING);
    ck_assert_int_eq(fgpu_gnss_track_pieces(&sim->track, INT64_C(100000000), INT64_C(200000000), pieces, 3), 0);
    fgpu_gnss_track_start(&sim->track, &acquisition);
    for (int i = 0; i < FGPU_GNSS_MAX_PENDING; i++)
        add_sums(&sim->track, wild, 1);
    const struct fgpu_gnss_state state = fgpu_gnss_track_at(&sim->track, acquisition.sample);
    ck_assert(state.stage == FGPU_GNSS_PULL_IN && state.doppler_hz == 321 && state.carrier_phase == 0);
    ck_assert(state.code_phase == gnss_code_phase(17.25, 1023) && state.code_period == 0);

    /* The first period that begins at or behind the chunk's begin. */
    ck_assert_int_eq(fgpu_gnss_track_pieces(&sim->track, 5000000, 5000001, pieces, 3), 0);
    ck_assert_int_eq(fgpu_gnss_track_pieces(&sim->track, 5000001, 6000000, pieces, 2), 2);
    ck_assert_int_eq(pieces[0].first, (int64_t)ceil((1023 - 17.25) / (1023321 / 1575.42e6 + 1023000) * 26750000) - 1);
    ck_assert_int_eq(pieces[1].first, pieces[0].first + pieces[0].n_samples);
    free(sim);
}

/* A gap cuts an integration, and the next integration ends with the same sums.  The state after the cut integration
 * has its own correction: none, because early and late sums are equal. */
TEST(a_cut_integration_has_its_own_state)
{
    const struct fgpu_gnss_acquisition acquisition = {.sample = 5000000, .code_subchips = 17.25, .doppler_hz = 321};
    struct simulation *sim = simulation_create(GNSS_L1CA, 45);
    int64_t sums[FGPU_GNSS_N_TAPS][N_POLS][2] = {{{300, 0}}, {{400, 0}}, {{300, 0}}};
    struct gnss_piece pieces[3];

    fgpu_gnss_track_start(&sim->track, &acquisition);
    ck_assert_int_eq(fgpu_gnss_track_pieces(&sim->track, 5000000, 5042000, pieces, ARRAY_LEN(pieces)), 1);
    const uint32_t n_samples = pieces[0].n_samples;
    ck_assert_int_eq(fgpu_gnss_track_pieces(&sim->track, 5100000, 5160000, pieces, ARRAY_LEN(pieces)), 2);
    ck_assert_int_eq(add_sums(&sim->track, sums, n_samples), 0);
    sums[FGPU_GNSS_EARLY][0][0] = 900;
    ck_assert_int_eq(add_sums(&sim->track, sums, pieces[0].n_samples), 2);
    for (int i = 0; i < 2; i++) {
        const double moved = ldexp((double)ended[i].after.code_phase, -GNSS_CODE_BITS) - ended[i].code_subchips;
        /* 0.375 chip (E^2 - L^2) / (E^2 + L^2), times 4 * 2 Hz * 1 ms */
        ck_assert(fabs(moved - (i ? 0.375 * 0.8 * 8e-3 : 0)) < 1e-5);
    }
    ck_assert_int_eq(ended[0].after.stage, FGPU_GNSS_PULL_IN);
    free(sim);
}

/* After years without samples the Doppler's rate has carried it out of range. */
TEST(time_may_jump)
{
    struct simulation *sim = simulation_start(0, GNSS_L1CA, 45);
    struct gnss_piece pieces[3];

    run_until(sim, 5);
    ck_assert_int_eq(sim->track.stage, FGPU_GNSS_TRACKING);
    ck_assert_int_eq(fgpu_gnss_track_pieces(&sim->track, 0, 1000000, pieces, ARRAY_LEN(pieces)), 0);
    sim->track.model.rate_hz_s = -0.01;
    const int64_t year_samples = 31557600 * SAMPLE_RATE_HZ;
    ck_assert_int_eq(fgpu_gnss_track_pieces(&sim->track, year_samples, year_samples + 1000000, pieces, 3), 0);
    ck_assert_int_eq(sim->track.stage, FGPU_GNSS_SEARCH);
    ck_assert_int_eq(sim->track.n_losses, 1);
    free(sim);
}

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

#define REAL_RATE_HZ   2600000
#define REAL_N_SAMPLES (2 * REAL_RATE_HZ)
#define REAL_DOPPLER   (-1234.5)
#define REAL_CODE      321.7 /* chips, of sample 0 */
#define REAL_TURNS     0.3
#define REAL_CARRIER   400000

/* A signal of 50 dB-Hz in polarisation 0, three quarters of its amplitude and another phase in polarisation 1. */
static void make_samples(const int8_t *chips, int8_t *samples)
{
    const double amplitude = sqrt(1e5 * 2 * 20 * 20 / REAL_RATE_HZ);

    for (int64_t i = 0; i < REAL_N_SAMPLES; i++) {
        const double t = (double)i / REAL_RATE_HZ, code = REAL_CODE + t * 1.023e6 * (1 + REAL_DOPPLER / 1575.42e6);
        const double angle = 2 * M_PI * (REAL_TURNS + t * (REAL_CARRIER + REAL_DOPPLER));
        const double level = amplitude * chips[(int64_t)code % 1023] * ((int64_t)(code / 20460) * 7 % 3 ? 1 : -1);
        for (int pol = 0; pol < N_POLS; pol++) {
            int8_t *x = samples + 2 * (pol * REAL_N_SAMPLES + i);
            x[0] = (int8_t)lrint((1 - pol * 0.25) * level * cos(angle + pol) + 20 * gauss());
            x[1] = (int8_t)lrint((1 - pol * 0.25) * level * sin(angle + pol) + 20 * gauss());
        }
    }
}

/* Chunks of 10 ms, whose sums come two chunks later. */
static void follow_samples(struct fgpu_gnss_track *track, const int8_t *samples, const int8_t *codes)
{
    static int64_t sums[3][16][FGPU_GNSS_N_TAPS][N_POLS][2];
    const int64_t chunk_samples = REAL_RATE_HZ / 100;
    int8_t carrier[2 * GNSS_CARRIER_ENTRIES];
    struct gnss_satellite satellite = {.table = 0};
    struct gnss_piece pieces[16];
    const int32_t offset = 0;
    size_t n_pieces[3] = {0};
    uint32_t n_samples[3][16];

    gnss_carrier_table(carrier);
    fgpu_gnss_track_taps(track, &satellite);
    for (int64_t chunk = 0; chunk < REAL_N_SAMPLES / chunk_samples; chunk++) {
        const int64_t begin = chunk * chunk_samples;
        const size_t at = (size_t)chunk % 3;
        for (size_t i = 0; i < n_pieces[at]; i++) /* of three chunks ago */
            add_sums(track, sums[at][i], n_samples[at][i]);
        n_pieces[at] = fgpu_gnss_track_pieces(track, begin, begin + chunk_samples, pieces, ARRAY_LEN(pieces));
        for (size_t i = 0; i < n_pieces[at]; i++)
            n_samples[at][i] = pieces[i].n_samples;
        memset(sums[at], 0, sizeof(sums[at]));
        const struct gnss_correlate_args args = {.samples = samples + 2 * begin,
                                                 .pitch_samples = REAL_N_SAMPLES,
                                                 .carrier = carrier,
                                                 .codes = codes,
                                                 .satellites = &satellite,
                                                 .offsets = &offset,
                                                 .pieces = pieces,
                                                 .sums = &sums[at][0][0][0][0],
                                                 .n_pieces = (uint32_t)n_pieces[at],
                                                 .max_samples = (uint32_t)chunk_samples,
                                                 .n_ants = 1,
                                                 .n_taps = FGPU_GNSS_N_TAPS};
        gnss_correlate_kernel.cpu(&args, 1);
    }
}

/* Signs and senses are those of gnss_correlate: an acquisition of 60 Hz and 0.2 chip off becomes the signal's phases.  The
 * seed is given: C/N0 of a few hundred integrations is off by more once in a while. */
TEST(samples_are_followed)
{
    random_state = 1;
    const struct fgpu_gnss_track_config config = {
        .signal = GNSS_L1CA, .sample_rate_hz = REAL_RATE_HZ, .carrier_hz = REAL_CARRIER};
    const struct fgpu_gnss_acquisition acquisition = {.code_subchips = REAL_CODE - 0.2,
                                                      .doppler_hz = REAL_DOPPLER + 60};
    int8_t chips[GNSS_MAX_CHIPS], *samples = malloc(2 * N_POLS * REAL_N_SAMPLES);
    struct fgpu_gnss_track *track = malloc(sizeof(*track));
    const double t = (double)REAL_N_SAMPLES / REAL_RATE_HZ;

    gnss_code_generate(GNSS_L1CA, 7, chips);
    make_samples(chips, samples);
    fgpu_gnss_track_init(track, &config);
    fgpu_gnss_track_start(track, &acquisition);
    follow_samples(track, samples, chips);
    const struct fgpu_gnss_state state = fgpu_gnss_track_at(track, REAL_N_SAMPLES);
    const double code_chips = REAL_CODE + t * 1.023e6 * (1 + REAL_DOPPLER / 1575.42e6);
    const double turns = REAL_TURNS + t * (REAL_CARRIER + REAL_DOPPLER);
    const double error_turns = wrap((double)state.carrier_phase * 0x1p-64 - turns);
    ck_assert_int_eq(state.stage, FGPU_GNSS_TRACKING);
    ck_assert(track->pol == 0 && state.is_carrier_locked);
    ck_assert_double_eq_tol(state.doppler_hz, REAL_DOPPLER, 0.5);
    ck_assert_double_eq_tol(remainder((double)state.code_phase * 0x1p-48 - code_chips, 1023), 0, 0.01);
    ck_assert_double_eq_tol(remainder(error_turns, 0.5), 0, 0.02);
    ck_assert_double_eq_tol(state.cn0_db_hz[0], 50, 0.7);
    ck_assert_double_eq_tol(state.cn0_db_hz[1], 50 + 20 * log10(0.75), 0.7);
    free(samples);
    free(track);
}

SUITE(.timeout_s = 60, .start = random_start);
