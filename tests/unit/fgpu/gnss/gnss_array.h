/* gnss_array.h - simulates several antennas that receive one satellite, and passes their sums to gnss_align.h.  The
 * antennas' signals (gnss_signal.h) differ in delay, phases, Doppler, Doppler's rate, C/N0 and gain.  The sums come in
 * chunks, and late. */
#ifndef TESTS_UNIT_FGPU_GNSS_ARRAY_H
#define TESTS_UNIT_FGPU_GNSS_ARRAY_H

#include "fgpu/gnss/gnss_align.h"
#include "tests/unit/fgpu/gnss/gnss_signal.h"

#include <check.h>
#include <stdlib.h>

#define MAX_ANTS    64
#define MAX_SAMPLES 1000 /* largest offset */

/* A piece on its way. */
struct late {
    int64_t due_sample;
    uint32_t n_samples;
    struct fgpu_gnss_part parts[MAX_ANTS];
    int64_t sums[MAX_ANTS][FGPU_GNSS_N_TAPS][N_POLS][2];
};

struct simulation {
    struct fgpu_gnss_align align;
    struct fgpu_gnss_antenna ants[MAX_ANTS];
    struct satellite signals[MAX_ANTS];
    double gains[MAX_ANTS];
    bool is_silent[MAX_ANTS];       /* no signal, only noise */
    bool is_missing[MAX_ANTS];      /* no samples */
    bool is_zero[MAX_ANTS][N_POLS]; /* all samples are zeros, but count as present */
    double hole_probability;        /* an antenna's part of a piece has lost a random number of samples, or all */
    double gap_probability;         /* a chunk is missing at all antennas */
    struct taps taps;
    int64_t chunk_samples, delay_samples, begin_sample;
    struct late queue[FGPU_GNSS_MAX_PENDING];
    size_t n_pushed, n_popped;

    struct fgpu_gnss_integration ended[2];
    struct fgpu_gnss_measured measured[2 * MAX_ANTS];
    /* called for each integration */
    void (*use)(struct simulation *sim, const struct fgpu_gnss_measured *measured);
    struct fgpu_gnss_track *twin; /* loops of one antenna, which get the same sums; NULL: none */
    size_t watched; /* the antenna whose carrier the model follows, and the replica's phase minus its phase */
    double unwrapped_turns, start_turns, worst_turns;
    double worst_chips;                               /* of the replica's error */
    double square_turns, square_samples, square_rate; /* sums, of aligned antennas */
    double n_square, worst_samples;
    double sum_cn0[N_POLS], sum_true_cn0[N_POLS], n_cn0; /* loops' C/N0, and the sum of all antennas */
};

/* The other antennas' signals differ from the signal of antenna 0. */
static inline struct simulation *simulation_create(int i, enum gnss_signal signal, size_t n_ants, double cn0_db_hz)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(signal);
    struct simulation *sim = calloc(1, sizeof(*sim));

    random_state += (uint64_t)i << 40;
    struct satellite s = {.signal = signal,
                          .carrier_hz = (int64_t)random_between(-8e6, 8e6),
                          .doppler_hz = random_between(-5000, 5000),
                          .rate_hz_s = random_between(-1, 1),
                          .subchips = (int)gnss_subchips(facts->subcarrier),
                          .code_subchips = random_between(1, 30) * facts->n_chips * gnss_subchips(facts->subcarrier),
                          .seed = random_u64() | 1};
    s.n_subchips = (int64_t)facts->n_chips * s.subchips;
    for (size_t ant = 0; ant < n_ants; ant++) {
        const double delay_s = random_between(-900, 900) / SAMPLE_RATE_HZ;
        sim->signals[ant] = s;
        sim->signals[ant].doppler_hz += ant ? random_between(-10, 10) : 0;
        sim->signals[ant].rate_hz_s += ant ? random_between(-2e-3, 2e-3) : 0;
        sim->signals[ant].code_subchips -= ant ? delay_s * facts->chip_rate_hz * s.subchips : 0;
        sim->signals[ant].phase_turns = random_between(0, 1);
        sim->signals[ant].pol_turns = random_between(0, 1);
        sim->gains[ant] = random_between(0.5, 2);
        for (int pol = 0; pol < N_POLS; pol++)
            sim->signals[ant].cn0[pol] = pow(10, cn0_db_hz / 10);
    }
    sim->chunk_samples = (int64_t)(random_between(0.01, 0.03) * SAMPLE_RATE_HZ);
    sim->delay_samples = (int64_t)(random_between(0.01, 0.03) * SAMPLE_RATE_HZ);
    const struct fgpu_gnss_track_config config = {.signal = signal,
                                                  .subcarrier = facts->subcarrier,
                                                  .sample_rate_hz = SAMPLE_RATE_HZ,
                                                  .carrier_hz = (double)s.carrier_hz};
    memset(&sim->align, 0x5a, sizeof(sim->align));
    memset(sim->ants, 0x5a, sizeof(sim->ants));
    fgpu_gnss_align_init(&sim->align, &config, sim->ants, n_ants);
    taps_init(&sim->taps, signal, sim->align.track.tap_subchips / s.subchips);
    return sim;
}

/* Returns an acquisition at an antenna.  The errors are half of the errors that gnss_track.h allows. */
static inline struct fgpu_gnss_acquisition acquire(const struct simulation *sim, size_t ant)
{
    const struct satellite *s = &sim->signals[ant];
    const struct truth truth = truth_at(s, 2 * sim->begin_sample);
    const double length = (double)s->n_subchips, error = random_between(-0.5, 0.5);
    const double code =
        (double)fmodl(truth.code_subchips, s->n_subchips) + error * (s->subchips > 1 ? 0.15 : 0.25) * s->subchips;

    return (struct fgpu_gnss_acquisition){.sample = sim->begin_sample,
                                          .code_subchips = fmod(code + length, length),
                                          .doppler_hz = truth.doppler_hz +
                                                        random_between(-0.5, 0.5) / (8 * sim->align.track.period_s)};
}

static inline void start(struct simulation *sim, size_t ant)
{
    const struct fgpu_gnss_acquisition acquisition = acquire(sim, ant);

    fgpu_gnss_align_start(&sim->align, ant, &acquisition);
    sim->watched = ant;
}

static inline void join(struct simulation *sim, size_t ant)
{
    const struct fgpu_gnss_acquisition acquisition = acquire(sim, ant);

    ck_assert(fgpu_gnss_align_join(&sim->align, ant, &acquisition, MAX_SAMPLES));
    ck_assert_int_eq(sim->ants[ant].stage, FGPU_GNSS_PULL_IN);
}

/* Compares an antenna with its signal, relative to 'watched'. */
static inline void compare(const struct simulation *sim, size_t ant, double turns[N_POLS], double *samples, double *hz)
{
    const struct fgpu_gnss_antenna *a = &sim->ants[ant], *b = &sim->ants[sim->watched];
    const struct satellite *s = &sim->signals[ant], *r = &sim->signals[sim->watched];
    const struct truth of = truth_at(s, 2 * sim->align.sample), to = truth_at(r, 2 * sim->align.sample);
    const double step = gnss_signal_facts(s->signal)->chip_rate_hz * s->subchips / SAMPLE_RATE_HZ;

    for (int pol = 0; pol < N_POLS; pol++)
        turns[pol] =
            wrap(a->turns[pol] - b->turns[pol] - (double)(of.theta - to.theta) - pol * (s->pol_turns - r->pol_turns));
    *samples = (a->delay_subchips - b->delay_subchips - (double)(to.code_subchips - of.code_subchips)) / step;
    *hz = a->rate_hz - b->rate_hz - (of.doppler_hz - to.doppler_hz);
}

/* Adds the errors of all aligned antennas, and the loops' C/N0.  The true C/N0 has the loss by offsets' rounding. */
static inline void add_figures(struct simulation *sim)
{
    const struct satellite *to = &sim->signals[sim->watched];
    const double step = gnss_signal_facts(to->signal)->chip_rate_hz * to->subchips / SAMPLE_RATE_HZ;
    double turns[N_POLS], samples, hz, cn0[N_POLS] = {0, 0};

    for (size_t ant = 0; ant < sim->align.n_ants; ant++) {
        const struct fgpu_gnss_antenna *a = &sim->ants[ant];
        if (a->stage < FGPU_GNSS_SETTLING)
            continue;
        compare(sim, ant, turns, &samples, &hz);
        const double late = a->delay_subchips - (samples + a->offset_samples) * step;
        for (int pol = 0; pol < N_POLS; pol++)
            cn0[pol] += sim->signals[ant].cn0[pol] * pow(autocorrelation(to->signal, late / to->subchips), 2);
        if (ant == sim->watched)
            continue;
        for (int pol = 0; pol < N_POLS; pol++)
            sim->square_turns += a->is_used[pol] ? turns[pol] * turns[pol] / 2 : 0;
        sim->square_samples += samples * samples;
        sim->worst_samples = fmax(sim->worst_samples, fabs(samples));
        sim->square_rate += hz * hz;
        sim->n_square++;
    }
    for (int pol = 0; pol < N_POLS; pol++) {
        sim->sum_cn0[pol] += sim->ended[0].after.cn0_db_hz[pol];
        sim->sum_true_cn0[pol] += 10 * log10(cn0[pol]);
    }
    sim->n_cn0++;
}

static inline void clear_figures(struct simulation *sim)
{
    sim->square_turns = sim->square_samples = sim->square_rate = sim->n_square = sim->n_cn0 = 0;
    memset(sim->sum_cn0, 0, sizeof(sim->sum_cn0));
    memset(sim->sum_true_cn0, 0, sizeof(sim->sum_true_cn0));
    sim->worst_turns = sim->worst_samples = sim->worst_chips = 0;
    sim->start_turns = sim->unwrapped_turns;
}

static inline void report(const struct simulation *sim, const char *test)
{
    printf("%s: %s, %zu antennas, chunks of %.1f ms, %.1f ms late: %zu aligned, stage %d, %u losses; phases %.2f "
           "degrees, delays %.4f samples, rates %.3f Hz rms; replica worst %.1f degrees; loops' C/N0 %.2f %.2f\n",
           test, gnss_signal_facts(sim->signals[0].signal)->name, sim->align.n_ants,
           1e3 * (double)sim->chunk_samples / SAMPLE_RATE_HZ, 1e3 * (double)sim->delay_samples / SAMPLE_RATE_HZ,
           sim->align.n_aligned, sim->align.track.stage, sim->align.track.n_losses,
           360 * sqrt(sim->square_turns / sim->n_square), sqrt(sim->square_samples / sim->n_square),
           sqrt(sim->square_rate / sim->n_square), 360 * sim->worst_turns, sim->sum_cn0[0] / sim->n_cn0,
           sim->sum_cn0[1] / sim->n_cn0);
    fflush(stdout);
}

static inline void make_parts(struct simulation *sim, const struct gnss_piece *piece, int64_t first, struct late *late)
{
    for (size_t ant = 0; ant < sim->align.n_ants; ant++) {
        const int32_t offset = sim->ants[ant].offset_samples;
        const double gain = sim->gains[ant];
        uint32_t n_missing = sim->is_missing[ant] ? piece->n_samples : 0;
        if (random_between(0, 1) < sim->hole_probability)
            n_missing = random_below(2) ? piece->n_samples : (uint32_t)random_below(piece->n_samples);
        make_sums(&sim->signals[ant], &sim->taps, piece, first + offset, piece->n_samples - n_missing,
                  sim->is_silent[ant] ? 0 : gain, gain, late->sums[ant]);
        for (size_t i = 0; i < FGPU_GNSS_N_TAPS * N_POLS * 2; i++)
            if (sim->is_zero[ant][i / 2 % N_POLS])
                (&late->sums[ant][0][0][0])[i] = 0;
        late->parts[ant] =
            (struct fgpu_gnss_part){.sums = n_missing < piece->n_samples ? &late->sums[ant][0][0][0] : NULL,
                                    .tap_stride = 2 * N_POLS,
                                    .unit = {0.25, 0.125},
                                    .n_missing = n_missing,
                                    .offset_samples = offset};
    }
}

/* The twin's integrations, and the measurements of antenna 0, are the same, bit for bit. */
static inline void check_twin(struct simulation *sim, const struct late *late, size_t n_ended)
{
    const struct fgpu_gnss_part *part = &late->parts[0];
    double sums[FGPU_GNSS_N_TAPS][N_POLS][2] = {{{0}}};
    struct fgpu_gnss_integration ended[2];

    for (size_t i = 0; part->sums && i < FGPU_GNSS_N_TAPS * N_POLS * 2; i++)
        (&sums[0][0][0])[i] = (double)part->sums[i] * part->unit[i / 2 % 2];
    const uint32_t n_present = late->n_samples - part->n_missing;
    ck_assert_int_eq(fgpu_gnss_track_sums(sim->twin, (const double(*)[N_POLS][2])sums, n_present, 0, ended), n_ended);
    for (size_t i = 0; i < n_ended; i++) {
        const struct fgpu_gnss_measured *m = &sim->measured[i * sim->align.n_ants];
        const struct fgpu_gnss_integration *a = &sim->ended[i], *b = &ended[i];
        ck_assert(a->stage == b->stage && a->sample == b->sample && a->carrier_phase == b->carrier_phase &&
                  a->n_present == b->n_present);
        ck_assert(a->after.code_phase == b->after.code_phase && a->after.carrier_phase == b->after.carrier_phase);
        ck_assert(!memcmp(a->sums, b->sums, sizeof(a->sums)) && !memcmp(m->sums, b->sums, sizeof(a->sums)));
        ck_assert(m->stage == b->stage && m->n_present == b->n_present && m->offset_samples == 0 && m->n_starts == 1);
        ck_assert(!memcmp(m->cn0_db_hz, b->after.cn0_db_hz, sizeof(m->cn0_db_hz)));
        ck_assert(m->doppler_hz == b->after.doppler_hz && m->is_code_locked == b->after.is_code_locked);
        ck_assert_int_eq(m->is_carrier_locked, b->after.is_carrier_locked);
    }
}

static inline void take_late(struct simulation *sim, const struct late *late)
{
    memset(sim->ended, 0x5a, sizeof(sim->ended));
    memset(sim->measured, 0x5a, sizeof(sim->measured));
    const size_t n = fgpu_gnss_align_sums(&sim->align, late->parts, sim->ended, sim->measured);
    if (sim->twin)
        check_twin(sim, late, n);
    for (size_t i = 0; i < n && sim->use; i++)
        sim->use(sim, &sim->measured[i * sim->align.n_ants]);
    if (n)
        add_figures(sim);
}

static inline void run_chunk(struct simulation *sim)
{
    const int64_t begin = sim->begin_sample, end = begin + sim->chunk_samples;
    struct gnss_piece pieces[64], twin_pieces[64];
    double turns, hz, chips;

    sim->begin_sample = end;
    while (sim->n_popped < sim->n_pushed && sim->queue[sim->n_popped % FGPU_GNSS_MAX_PENDING].due_sample <= end)
        take_late(sim, &sim->queue[sim->n_popped++ % FGPU_GNSS_MAX_PENDING]);
    if (random_between(0, 1) < sim->gap_probability)
        return;
    const size_t n = fgpu_gnss_align_pieces(&sim->align, begin, end, pieces, ARRAY_LEN(pieces));
    if (sim->twin) {
        ck_assert_int_eq(fgpu_gnss_track_pieces(sim->twin, begin, end, twin_pieces, ARRAY_LEN(pieces)), n);
        ck_assert(!memcmp(pieces, twin_pieces, n * sizeof(*pieces)));
    }
    for (size_t i = 0; i < n; i++) {
        struct late *late = &sim->queue[sim->n_pushed++ % FGPU_GNSS_MAX_PENDING];
        const struct satellite *s = &sim->signals[sim->watched];
        late->due_sample = end + sim->delay_samples;
        late->n_samples = pieces[i].n_samples;
        make_parts(sim, &pieces[i], begin + pieces[i].first, late);
        replica_error(s, &pieces[i], begin + pieces[i].first, &turns, &hz, &chips);
        sim->worst_chips = fmax(sim->worst_chips, fabs(chips));
        turns -= sim->align.track.pol * s->pol_turns;
        sim->unwrapped_turns += wrap(turns - sim->unwrapped_turns);
        sim->worst_turns = fmax(sim->worst_turns, fabs(sim->unwrapped_turns - sim->start_turns));
    }
}

static inline void run_for(struct simulation *sim, double seconds)
{
    const int64_t end = sim->begin_sample + (int64_t)(seconds * SAMPLE_RATE_HZ);

    while (sim->begin_sample < end)
        run_chunk(sim);
}

/* Starts antenna 0, joins all others, and waits until all antennas are aligned. */
static inline void align_all(struct simulation *sim)
{
    start(sim, 0);
    for (size_t ant = 1; ant < sim->align.n_ants; ant++)
        join(sim, ant);
    run_for(sim, 4);
    for (size_t ant = 0; ant < sim->align.n_ants; ant++)
        ck_assert_msg(sim->ants[ant].stage == FGPU_GNSS_TRACKING, "antenna %zu: stage %d, %u losses", ant,
                      sim->ants[ant].stage, sim->ants[ant].n_losses);
    ck_assert_int_eq(sim->align.n_aligned, sim->align.n_ants);
    clear_figures(sim);
}

static inline void check_loops(const struct simulation *sim)
{
    ck_assert_int_eq(sim->align.track.stage, FGPU_GNSS_TRACKING);
    ck_assert_int_eq(sim->align.track.n_losses, 0);
    ck_assert_msg(sim->worst_turns < 0.25, "a slip: %g turns", sim->worst_turns);
    if (sim->n_square > 0)
        ck_assert_double_lt(360 * sqrt(sim->square_turns / sim->n_square), 6); /* degrees */
}

/* The loops' C/N0 is the sum of the aligned antennas' C/N0, less the losses by the rounding of their delays.  The code
 * discriminator is not exact for a single antenna's E1 half a sample from the offset. */
static inline void check_cn0(const struct simulation *sim)
{
    for (int pol = 0; pol < N_POLS; pol++)
        ck_assert_double_eq_tol(sim->sum_cn0[pol] / sim->n_cn0, sim->sum_true_cn0[pol] / sim->n_cn0,
                                sim->signals[0].subchips > 1 ? 1.5 : 0.5);
}

#endif
