/* check_gnss_align - loops shared by several antennas, against a simulation of each antenna's sums (gnss_array.h). */
#include "fgpu/gnss/gnss_align.h"

#include "tests/unit/fgpu/gnss/gnss_array.h"
#include "tests/unit/test_main.h"

/* ---- Alignment --------------------------------------------------------------------------------------------------- */

TEST(four_antennas, .end = 2 * GNSS_N_SIGNALS)
{
    struct simulation *sim = simulation_create(_i, (enum gnss_signal)(_i % GNSS_N_SIGNALS), 4, 45);

    align_all(sim);
    run_for(sim, 10);
    report(sim, "four");
    check_loops(sim);
    check_cn0(sim);
    ck_assert_int_eq(sim->align.n_aligned, 4);
    for (size_t ant = 0; ant < 4; ant++) {
        const int64_t sample = sim->begin_sample;
        const struct fgpu_gnss_state state = fgpu_gnss_align_at(&sim->align, ant, sample);
        ck_assert(state.stage == FGPU_GNSS_TRACKING && state.is_code_locked && state.is_carrier_locked);
        ck_assert_double_eq_tol(state.doppler_hz, truth_at(&sim->signals[ant], 2 * sample).doppler_hz, 0.5);
        for (int pol = 0; pol < N_POLS; pol++) /* half a sample is 0.2 chip of L5 */
            ck_assert_double_eq_tol(state.cn0_db_hz[pol], 44.5, 3);
    }
    free(sim);
}

/* One antenna's loops are the loops of gnss_track.h, with gaps, missing samples and a lost signal. */
TEST(one_antenna_is_the_track, .end = GNSS_N_SIGNALS)
{
    struct simulation *sim = simulation_create(_i, (enum gnss_signal)_i, 2, 45);
    const struct fgpu_gnss_acquisition acquisition = acquire(sim, 0);

    sim->hole_probability = 0.05;
    sim->gap_probability = 0.05;
    sim->twin = malloc(sizeof(*sim->twin));
    fgpu_gnss_track_init(sim->twin, &sim->align.track.config);
    fgpu_gnss_track_start(sim->twin, &acquisition);
    fgpu_gnss_align_start(&sim->align, 0, &acquisition);
    run_for(sim, 4);
    ck_assert_int_eq(sim->align.track.stage, FGPU_GNSS_TRACKING);
    sim->is_silent[1] = true;
    join(sim, 1); /* the other antenna receives only noise, and is lost */
    run_for(sim, 6);
    ck_assert(sim->ants[1].stage == FGPU_GNSS_SEARCH && sim->ants[1].n_losses == 1);
    sim->is_silent[0] = true;
    run_for(sim, 3);
    ck_assert_int_eq(sim->align.track.stage, FGPU_GNSS_SEARCH);
    ck_assert_int_eq(sim->ants[0].stage, FGPU_GNSS_SEARCH);
    ck_assert(sim->ants[0].n_losses == 1 && sim->align.reference == SIZE_MAX && sim->align.n_aligned == 0);
    free(sim->twin);
    free(sim);
}

static void set_cn0(struct simulation *sim, size_t ant, double cn0_db_hz)
{
    for (int pol = 0; pol < N_POLS; pol++)
        sim->signals[ant].cn0[pol] = pow(10, cn0_db_hz / 10);
}

/* The signals fade to 27 dB-Hz, a decibel a second.  The loops of one antenna lose such a signal. */
TEST(weak_antennas_together, .end = 4)
{
    struct simulation *sim = simulation_create(_i, GNSS_L1CA, _i % 2 ? 1 : 16, 40);

    align_all(sim);
    for (int cn0_db_hz = 39; cn0_db_hz >= 27; cn0_db_hz--) {
        for (size_t ant = 0; ant < sim->align.n_ants; ant++)
            set_cn0(sim, ant, cn0_db_hz);
        run_for(sim, 1);
    }
    clear_figures(sim);
    run_for(sim, 20);
    report(sim, "weak");
    if (_i % 2) {
        ck_assert_int_eq(sim->align.track.n_losses, 1);
    } else {
        check_loops(sim);
        check_cn0(sim);
        ck_assert_int_eq(sim->align.n_aligned, 16);
    }
    free(sim);
}

/* A strong reference antenna keeps its phase, and the phase noise of the other antennas is their own. */
TEST(unequal_antennas, .end = 4)
{
    struct simulation *sim = simulation_create(_i, GNSS_L1CA, 4, 33);

    set_cn0(sim, 0, 50);
    align_all(sim);
    run_for(sim, 10);
    report(sim, "unequal");
    check_loops(sim);
    check_cn0(sim);
    free(sim);
}

/* Antennas join one after the other.  The loops' C/N0 is the sum of the antennas' C/N0. */
TEST(sixty_four_antennas, .end = 2)
{
    struct simulation *sim = simulation_create(_i, _i ? GNSS_E1C : GNSS_L1CA, MAX_ANTS, 38);

    start(sim, 0);
    run_for(sim, 4);
    clear_figures(sim);
    for (size_t ant = 1; ant < MAX_ANTS; ant++) {
        join(sim, ant);
        run_for(sim, 0.1);
    }
    run_for(sim, 3);
    report(sim, "joining");
    check_loops(sim);
    clear_figures(sim);
    run_for(sim, 4);
    report(sim, "joined");
    ck_assert_int_eq(sim->align.n_aligned, MAX_ANTS);
    check_loops(sim);
    check_cn0(sim);
    free(sim);
}

/* ---- Antennas that come and go ----------------------------------------------------------------------------------- */

/* The reference antenna has no samples, or no signal, or leaves.  Then it joins again. */
TEST(the_reference_is_lost, .end = 12)
{
    const size_t n_ants = _i % 2 ? 2 : 4;
    struct simulation *sim = simulation_create(_i, _i % 4 < 2 ? GNSS_L1CA : GNSS_E1C, n_ants, 42);

    align_all(sim);
    sim->is_missing[0] = _i / 4 == 0;
    sim->is_silent[0] = _i / 4 == 1;
    if (_i / 4 == 2)
        fgpu_gnss_align_leave(&sim->align, 0);
    run_for(sim, 4);
    report(sim, "lost");
    ck_assert(sim->ants[0].stage == FGPU_GNSS_SEARCH && sim->ants[0].n_losses == (_i / 4 < 2));
    ck_assert(sim->align.reference != 0 && sim->align.n_aligned == n_ants - 1);
    ck_assert(sim->align.track.stage == FGPU_GNSS_TRACKING && sim->align.track.n_losses == 0);
    sim->watched = sim->align.reference;
    run_chunk(sim);
    clear_figures(sim);
    run_for(sim, 4);
    check_cn0(sim);
    sim->is_missing[0] = sim->is_silent[0] = false;
    join(sim, 0);
    run_for(sim, 4);
    report(sim, "joined again");
    ck_assert_int_eq(sim->align.n_aligned, n_ants);
    check_loops(sim);
    free(sim);
}

TEST(an_antenna_leaves_and_joins, .end = 4)
{
    struct simulation *sim = simulation_create(_i, GNSS_L1CA, 3, 42);

    align_all(sim);
    for (int k = 0; k < 3; k++) {
        fgpu_gnss_align_leave(&sim->align, 1);
        ck_assert(sim->ants[1].stage == FGPU_GNSS_SEARCH && sim->align.n_aligned == 2);
        run_for(sim, 1);
        join(sim, 1);
        run_for(sim, 3);
        ck_assert(sim->ants[1].stage == FGPU_GNSS_TRACKING && sim->align.n_aligned == 3);
    }
    check_loops(sim);
    ck_assert(sim->ants[1].n_starts == 4 && sim->ants[1].n_losses == 0 && sim->align.reference == 0);
    for (size_t ant = 0; ant < 3 && _i % 2; ant++)
        fgpu_gnss_align_leave(&sim->align, ant);
    if (_i % 2 == 0) { /* years without samples, after which the Doppler's rate has lost the signal */
        sim->align.track.model.rate_hz_s = -0.01;
        sim->begin_sample += 31557600 * SAMPLE_RATE_HZ;
        ck_assert_int_eq(fgpu_gnss_align_pieces(&sim->align, sim->begin_sample, sim->begin_sample + 100000, NULL, 3),
                         0);
    }
    for (size_t ant = 0; ant < 3; ant++)
        ck_assert(sim->ants[ant].stage == FGPU_GNSS_SEARCH && (int)sim->ants[ant].n_losses == !(_i % 2));
    ck_assert(sim->align.track.stage == FGPU_GNSS_SEARCH && sim->align.reference == SIZE_MAX);
    free(sim);
}

static void check_cn0_now(struct simulation *sim)
{
    clear_figures(sim);
    run_for(sim, 4);
    check_cn0(sim);
}

static void never_aligned(struct simulation *sim, const struct fgpu_gnss_measured *measured)
{
    (void)sim;
    ck_assert_int_le(measured[2].stage, FGPU_GNSS_PULL_IN);
}

/* An antenna with 20 dB-Hz, or only with noise. */
TEST(a_weak_antenna_is_not_aligned, .end = 6)
{
    struct simulation *sim = simulation_create(_i, _i % 2 ? GNSS_E1B : GNSS_L1CA, 3, 40);

    set_cn0(sim, 2, 20);
    sim->is_silent[2] = _i >= 4;
    sim->use = never_aligned;
    start(sim, 0);
    join(sim, 1);
    for (int k = 0; k < 100; k++) {
        run_for(sim, 0.3);
        if (sim->ants[2].stage == FGPU_GNSS_SEARCH)
            join(sim, 2);
    }
    report(sim, "weak antenna");
    ck_assert(sim->align.n_aligned == 2 && sim->ants[2].n_losses >= 7 && sim->ants[1].n_losses == 0);
    free(sim);
}

/* The reference antenna or the other antenna has one polarisation only. */
TEST(one_polarisation, .end = 4)
{
    struct simulation *sim = simulation_create(_i, GNSS_L1CA, 3, 42);

    sim->signals[_i % 2].cn0[_i / 2] = 0;
    align_all(sim);
    run_for(sim, 3);
    ck_assert_int_eq(sim->ants[2].is_used[_i / 2], _i % 2);
    ck_assert(sim->ants[2].is_used[1 - _i / 2] && sim->align.n_aligned == 3);
    check_loops(sim);
    fgpu_gnss_align_leave(&sim->align, 0); /* the next reference antenna may have both */
    run_for(sim, 3);
    ck_assert(sim->ants[2].is_used[0] && sim->ants[2].is_used[1] && sim->align.n_aligned == 2);
    free(sim);
}

TEST(parts_are_missing, .end = GNSS_N_SIGNALS)
{
    struct simulation *sim = simulation_create(_i, (enum gnss_signal)_i, 4, 42);

    sim->hole_probability = 0.1;
    sim->gap_probability = 0.05;
    align_all(sim);
    run_for(sim, 10);
    report(sim, "holes");
    check_loops(sim);
    ck_assert_int_eq(sim->align.n_aligned, 4);
    free(sim);
}

/* The only aligned antenna, or both aligned antennas, stop.  The other antenna can then start the loops. */
TEST(the_loops_starve, .end = 4)
{
    struct simulation *sim = simulation_create(_i, GNSS_L1CA, 3, 45);

    start(sim, 0);
    if (_i % 2)
        join(sim, 1);
    run_for(sim, 4);
    ck_assert_int_eq(sim->align.n_aligned, 1 + _i % 2);
    for (size_t ant = 0; ant < 3; ant++)
        sim->is_missing[ant] = true;
    run_for(sim, 10); /* a gap at all antennas */
    ck_assert_int_eq(sim->align.track.stage, FGPU_GNSS_TRACKING);
    sim->is_missing[2] = false;
    if (_i / 2)
        join(sim, 2);
    run_for(sim, 1.8);
    ck_assert_int_eq(sim->align.track.stage, FGPU_GNSS_TRACKING);
    run_for(sim, 0.4);
    ck_assert(sim->align.track.stage == FGPU_GNSS_SEARCH && sim->align.reference == SIZE_MAX);
    for (size_t ant = 0; ant < 3; ant++) {
        const bool was_followed = ant == 0 || (ant == 1 ? _i % 2 : _i / 2);
        ck_assert(sim->ants[ant].stage == FGPU_GNSS_SEARCH && sim->ants[ant].n_losses == was_followed);
    }
    start(sim, 2);
    run_for(sim, 4);
    ck_assert(sim->ants[2].stage == FGPU_GNSS_TRACKING && sim->align.reference == 2);
    free(sim);
}

/* The reference antenna and a new antenna never have samples at the same time. */
TEST(an_antenna_cannot_be_measured)
{
    struct simulation *sim = simulation_create(0, GNSS_L1CA, 2, 45);

    start(sim, 0);
    run_for(sim, 4);
    join(sim, 1);
    for (int k = 0; k < 20; k++) {
        ck_assert_int_eq(sim->ants[1].stage, FGPU_GNSS_PULL_IN);
        sim->is_missing[0] = k % 2;
        sim->is_missing[1] = !sim->is_missing[0];
        run_for(sim, 0.23);
    }
    sim->is_missing[0] = false;
    sim->is_missing[1] = true;
    run_for(sim, 0.6);
    ck_assert(sim->ants[1].stage == FGPU_GNSS_SEARCH && sim->ants[1].n_losses == 1 && sim->align.n_aligned == 1);
    ck_assert_int_eq(sim->align.track.stage, FGPU_GNSS_TRACKING);
    free(sim);
}

/* A polarisation of the reference antenna has only zeros.  Other antennas use this polarisation later. */
TEST(a_dead_polarisation, .end = 4)
{
    const int dead = _i % 2;
    struct simulation *sim = simulation_create(_i, _i / 2 ? GNSS_E1C : GNSS_L1CA, 3, 42);

    sim->is_zero[0][dead] = true;
    align_all(sim);
    ck_assert(sim->align.unit_power[dead] == 0 && sim->align.track.pol == 1 - dead);
    ck_assert(!sim->ants[1].is_used[dead] && !sim->ants[2].is_used[dead]);
    check_loops(sim);
    fgpu_gnss_align_leave(&sim->align, 0);
    sim->watched = sim->align.reference;
    run_for(sim, 0.2); /* the replica's Doppler changes */
    clear_figures(sim);
    run_for(sim, 3);
    report(sim, "dead polarisation");
    ck_assert_double_lt(sim->worst_turns, 0.25);
    ck_assert(sim->align.unit_power[dead] > 0 && isfinite(sim->align.unit_power[dead]));
    for (size_t ant = 1; ant < 3; ant++)
        ck_assert(sim->ants[ant].is_used[0] && sim->ants[ant].is_used[1]);
    check_cn0_now(sim);
    check_loops(sim);
    for (size_t ant = 1; ant < 3; ant++)
        sim->is_silent[ant] = true;
    run_for(sim, 10);
    ck_assert(sim->align.track.stage == FGPU_GNSS_SEARCH && sim->align.reference == SIZE_MAX);
    free(sim);
}

/* The only antenna in the phase loop's polarisation leaves. */
TEST(the_phase_loop_has_no_antenna, .end = 2)
{
    struct simulation *sim = simulation_create(_i, GNSS_L1CA, 2, 42);

    sim->signals[0].cn0[_i] *= 4;
    sim->is_zero[1][_i] = true;
    align_all(sim);
    ck_assert(sim->align.track.pol == _i && !sim->ants[1].is_used[_i]);
    fgpu_gnss_align_leave(&sim->align, 0);
    ck_assert(sim->align.track.stage == FGPU_GNSS_SEARCH && sim->align.reference == SIZE_MAX);
    ck_assert(sim->ants[1].stage == FGPU_GNSS_SEARCH && sim->ants[1].n_losses == 1);
    free(sim);
}

static void set_zero(struct simulation *sim, size_t ant, bool is_zero)
{
    for (int pol = 0; pol < N_POLS; pol++)
        sim->is_zero[ant][pol] = is_zero;
}

/* The samples of an aligned antenna, and then of the other antenna, become zeros, but count as present. */
TEST(samples_become_zeros, .end = 4)
{
    const size_t ant = (size_t)_i % 2;
    struct simulation *sim = simulation_create(_i, _i / 2 ? GNSS_E1C : GNSS_L1CA, 2, 45);

    align_all(sim);
    set_zero(sim, ant, true);
    run_for(sim, 2.5);
    ck_assert(sim->ants[ant].stage == FGPU_GNSS_SEARCH && sim->ants[ant].n_losses == 1);
    ck_assert(sim->align.reference == 1 - ant && sim->ants[1 - ant].stage == FGPU_GNSS_TRACKING);
    ck_assert_int_eq(sim->ants[1 - ant].n_losses, 0);
    set_zero(sim, ant, false);
    sim->watched = 1 - ant;
    join(sim, ant);
    run_for(sim, 4);
    ck_assert_int_eq(sim->align.n_aligned, 2);
    check_cn0_now(sim);
    set_zero(sim, 0, true);
    set_zero(sim, 1, true);
    run_for(sim, 2.5);
    ck_assert(sim->align.track.stage == FGPU_GNSS_SEARCH && sim->align.n_aligned == 0);
    free(sim);
}

/* A polarisation of an antenna becomes zeros for half a minute.  C/N0 in this polarisation falls, and then returns. */
TEST(a_polarisation_becomes_zeros, .end = 2)
{
    struct simulation *sim = simulation_create(_i, GNSS_L1CA, 3, 45);

    align_all(sim);
    sim->is_zero[_i][1 - sim->align.track.pol] = true;
    run_for(sim, 3);
    ck_assert_double_lt(fgpu_gnss_align_at(&sim->align, (size_t)_i, 0).cn0_db_hz[1 - sim->align.track.pol], 25);
    ck_assert_int_eq(sim->align.n_aligned, 3);
    run_for(sim, 30);
    sim->is_zero[_i][1 - sim->align.track.pol] = false;
    run_for(sim, 4);
    ck_assert_int_eq(sim->align.n_aligned, 3);
    ck_assert_double_lt(sim->worst_turns, 0.25);
    check_cn0_now(sim);
    check_loops(sim);
    free(sim);
}

/* The phase loop's polarisation of the only antenna becomes zeros.  The loops are lost, and begin again with the other
 * polarisation. */
TEST(the_phase_loop_has_zeros, .end = 4)
{
    struct simulation *sim = simulation_create(_i, _i / 2 ? GNSS_E1C : GNSS_L1CA, 1, 45);

    set_cn0(sim, 0, 45);
    sim->signals[0].cn0[_i % 2] *= 2;
    start(sim, 0);
    run_for(sim, 4);
    ck_assert(sim->align.track.stage == FGPU_GNSS_TRACKING && sim->align.track.pol == _i % 2);
    sim->is_zero[0][_i % 2] = true;
    run_for(sim, 1);
    ck_assert(sim->align.track.stage == FGPU_GNSS_SEARCH && sim->ants[0].n_losses == 1);
    start(sim, 0);
    run_for(sim, 4);
    ck_assert(sim->align.track.stage == FGPU_GNSS_TRACKING && sim->align.track.pol == 1 - _i % 2);
    free(sim);
}

/* An antenna's phase is wrong by half a turn, and its coherence is too low for corrections.  C/N0 does not fall. */
TEST(an_antenna_is_incoherent, .end = 6)
{
    const size_t ant = (size_t)_i % 3;
    struct simulation *sim = simulation_create(_i, _i / 3 ? GNSS_E1C : GNSS_L1CA, 8, 42);

    align_all(sim);
    for (int pol = 0; pol < N_POLS; pol++) {
        sim->ants[ant].turns[pol] += 0.5;
        sim->ants[ant].coherence[pol] = 0;
    }
    run_for(sim, 1.8);
    ck_assert_int_eq(sim->align.n_aligned, 8);
    run_for(sim, 0.6);
    ck_assert(sim->ants[ant].stage == FGPU_GNSS_SEARCH && sim->ants[ant].n_losses == 1);
    run_for(sim, 3);
    ck_assert(sim->align.n_aligned == 7 && sim->align.track.stage == FGPU_GNSS_TRACKING);
    free(sim);
}

/* ---- Delays ------------------------------------------------------------------------------------------------------ */

static void check_offset(struct simulation *sim, const struct fgpu_gnss_measured *measured)
{
    const double step = (double)sim->align.track.rates.subchip_rate_hz / SAMPLE_RATE_HZ;

    for (size_t ant = 0; ant < sim->align.n_ants; ant++)
        ck_assert_double_le(fabs(sim->ants[ant].offset_samples - sim->ants[ant].delay_subchips / step), 0.61);
    ck_assert_int_eq(measured[0].offset_samples, 0);
}

/* An antenna's own noise in the aligned sum does not bias a delay that is 0.45 samples from the offset. */
TEST(weak_delays_have_no_bias, .end = 2)
{
    struct simulation *sim = simulation_create(_i, GNSS_L5Q, 2, 40);

    sim->signals[1] = sim->signals[0];
    sim->signals[1].code_subchips += 100.45 * 10.23e6 / SAMPLE_RATE_HZ;
    align_all(sim);
    for (size_t ant = 0; ant < 2; ant++)
        set_cn0(sim, ant, 31);
    run_for(sim, 6);
    clear_figures(sim);
    run_for(sim, 10);
    report(sim, "bias");
    check_loops(sim);
    ck_assert_int_eq(sim->align.n_aligned, 2);
    ck_assert_double_lt(sqrt(sim->square_samples / sim->n_square), 0.08);
    free(sim);
}

/* 10 Hz of Doppler move the delay of L1 by 0.17 samples a second. */
TEST(delays_drift, .end = GNSS_N_SIGNALS)
{
    struct simulation *sim = simulation_create(_i, (enum gnss_signal)_i, 4, 55);

    sim->signals[1].doppler_hz = sim->signals[0].doppler_hz + 10;
    sim->signals[2].doppler_hz = sim->signals[0].doppler_hz - 10;
    align_all(sim);
    run_for(sim, 6);
    sim->use = check_offset;
    clear_figures(sim);
    const int32_t first = sim->ants[1].offset_samples;
    run_for(sim, 24);
    report(sim, "drift");
    printf("worst delay %.4f samples, worst replica %.4f chips\n", sim->worst_samples, sim->worst_chips);
    check_loops(sim);
    ck_assert_int_ge(abs(sim->ants[1].offset_samples - first), 3);
    ck_assert_double_lt(sim->worst_samples, 0.05);
    const double chip_samples = SAMPLE_RATE_HZ / gnss_signal_facts((enum gnss_signal)_i)->chip_rate_hz;
    ck_assert_double_lt(sim->worst_chips * chip_samples, 0.1); /* the mean delay is not the model's error */
    free(sim);
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

/* Antenna 1's signal is 'delay_samples' later than the model. */
static bool join_late(struct simulation *sim, double delay_samples, int32_t max_offset_samples)
{
    const struct fgpu_gnss_state state = fgpu_gnss_track_at(&sim->align.track, 5000000);
    const double step = (1.023e6 + state.doppler_hz / 1540) / SAMPLE_RATE_HZ;
    const double code = ldexp((double)state.code_phase, -48) - delay_samples * step;
    const struct fgpu_gnss_acquisition acquisition = {.sample = 5000000,
                                                      .code_subchips = code - floor(code / 1023) * 1023};

    return fgpu_gnss_align_join(&sim->align, 1, &acquisition, max_offset_samples);
}

/* L1CA with 3 antennas, of which antenna 0 has the code phase 17.25 at sample 5000000. */
static struct simulation *simulation_at(void)
{
    const struct fgpu_gnss_acquisition acquisition = {.sample = 5000000, .code_subchips = 17.25, .doppler_hz = 321};
    struct simulation *sim = simulation_create(0, GNSS_L1CA, 3, 45);

    fgpu_gnss_align_start(&sim->align, 0, &acquisition);
    return sim;
}

TEST(a_join_is_refused)
{
    struct simulation *sim = simulation_at();

    ck_assert(!join_late(sim, 40.6, 40) && !join_late(sim, -40.6, 40));
    ck_assert(sim->ants[1].stage == FGPU_GNSS_SEARCH && sim->ants[1].n_starts == 0);
    ck_assert(join_late(sim, 40.4, 40) && sim->ants[1].offset_samples == 40);
    fgpu_gnss_align_leave(&sim->align, 1);
    ck_assert(join_late(sim, -13000.2, 13000) && sim->ants[1].offset_samples == -13000);
    fgpu_gnss_align_leave(&sim->align, 1);
    fgpu_gnss_align_leave(&sim->align, 0);
    ck_assert(!join_late(sim, 0, 40));
    free(sim);
}

/* 20 Hz carry the offset out of the range. */
TEST(an_offset_leaves_the_range)
{
    struct simulation *sim = simulation_create(0, GNSS_L1CA, 2, 45);
    const double step = 1.023e6 / SAMPLE_RATE_HZ;

    sim->signals[1] = sim->signals[0];
    sim->signals[1].code_subchips -= (MAX_SAMPLES - 8) * step;
    sim->signals[1].doppler_hz -= 20;
    align_all(sim);
    run_for(sim, 25);
    ck_assert(sim->ants[1].stage == FGPU_GNSS_SEARCH && sim->ants[1].n_losses == 1);
    ck_assert(sim->align.n_aligned == 1 && sim->align.track.stage == FGPU_GNSS_TRACKING);
    free(sim);
}

/* Adds the same sums for antennas 0 and 1.  Antenna 2 is not followed. */
static size_t add_piece(struct simulation *sim, uint32_t n_missing, int32_t offset_samples)
{
    static const int64_t sums[FGPU_GNSS_N_TAPS][3][N_POLS][2] = {{{{300, 7}}}, {{{400, -9}}}, {{{300, 5}}}};
    struct fgpu_gnss_part parts[3];

    memset(parts, 0x5a, sizeof(parts));
    for (size_t ant = 0; ant < 2; ant++)
        parts[ant] = (struct fgpu_gnss_part){.sums = &sums[0][0][0][0],
                                             .tap_stride = 3 * N_POLS * 2,
                                             .unit = {0.5, 0.25},
                                             .n_missing = ant ? n_missing : 0,
                                             .offset_samples = ant ? offset_samples : 0};
    return fgpu_gnss_align_sums(&sim->align, parts, sim->ended, sim->measured);
}

static void check_measured(const struct fgpu_gnss_measured *m, uint32_t n_present, double n_pieces)
{
    ck_assert(m->stage == FGPU_GNSS_PULL_IN && m->n_starts == 1 && m->n_present == n_present);
    ck_assert(m->sums[FGPU_GNSS_EARLY][0][0] == 150 * n_pieces && m->sums[FGPU_GNSS_EARLY][0][1] == 3.5 * n_pieces);
    ck_assert(m->sums[FGPU_GNSS_PROMPT][0][0] == 200 * n_pieces && m->sums[FGPU_GNSS_PROMPT][0][1] == -4.5 * n_pieces);
    ck_assert(m->sums[FGPU_GNSS_LATE][0][0] == 150 * n_pieces && m->sums[FGPU_GNSS_LATE][0][1] == 2.5 * n_pieces);
}

/* A gap cuts an integration, and the next integration ends with the same sums.  In a later integration the offset of
 * antenna 1 changes. */
TEST(parts_belong_to_their_integration)
{
    struct simulation *sim = simulation_at();
    const size_t n_ants = sim->align.n_ants;
    struct gnss_piece pieces[4];

    ck_assert(join_late(sim, 10, 40));
    ck_assert_int_eq(fgpu_gnss_align_pieces(&sim->align, 5000000, 5042000, pieces, ARRAY_LEN(pieces)), 1);
    const uint32_t n_cut = pieces[0].n_samples;
    ck_assert_int_eq(fgpu_gnss_align_pieces(&sim->align, 5100000, 5160000, pieces, ARRAY_LEN(pieces)), 2);
    const uint32_t n_whole = pieces[0].n_samples, n_begun = pieces[1].n_samples;
    ck_assert_int_eq(fgpu_gnss_align_pieces(&sim->align, 5160000, 5200000, pieces, ARRAY_LEN(pieces)), 3);
    const uint32_t n_rest = pieces[0].n_samples;
    memset(sim->measured, 0x5a, sizeof(sim->measured));
    ck_assert_int_eq(add_piece(sim, 100, 10), 0);
    ck_assert_int_eq(add_piece(sim, 200, 10), 2);
    check_measured(&sim->measured[0], n_cut, 1);
    check_measured(&sim->measured[1], n_cut - 100, 1);
    check_measured(&sim->measured[n_ants], n_whole, 1);
    check_measured(&sim->measured[n_ants + 1], n_whole - 200, 1);
    ck_assert(sim->measured[2].stage == FGPU_GNSS_SEARCH && sim->measured[n_ants + 2].stage == FGPU_GNSS_SEARCH);
    ck_assert(sim->measured[0].offset_samples == 0 && sim->measured[1].offset_samples == 10);
    ck_assert_int_eq(sim->ended[0].n_present, n_cut);
    ck_assert(sim->ended[1].sums[FGPU_GNSS_PROMPT][0][0] == 200); /* only the reference antenna */
    ck_assert_int_eq(add_piece(sim, 0, 10), 0);
    ck_assert_int_eq(add_piece(sim, 0, 11), 1);
    check_measured(&sim->measured[0], n_begun + n_rest, 2);
    check_measured(&sim->measured[1], 0, 0);
    ck_assert_int_eq(add_piece(sim, pieces[1].n_samples, 10), 1);
    check_measured(&sim->measured[0], pieces[1].n_samples, 1);
    check_measured(&sim->measured[1], 0, 0);
    free(sim);
}

/* Sums of pieces before a start, or without loops, change nothing. */
TEST(sums_belong_to_their_start)
{
    struct simulation *sim = simulation_at();
    const struct fgpu_gnss_acquisition acquisition = {.sample = 6000000, .code_subchips = 1, .doppler_hz = -5};
    struct gnss_piece pieces[10];

    ck_assert(join_late(sim, 10, 40));
    ck_assert_int_eq(fgpu_gnss_align_pieces(&sim->align, 5000000, 5150000, pieces, ARRAY_LEN(pieces)), 5);
    ck_assert_int_eq(add_piece(sim, 0, 10), 1);
    fgpu_gnss_align_start(&sim->align, 2, &acquisition);
    ck_assert(sim->ants[0].stage == FGPU_GNSS_SEARCH && sim->ants[1].stage == FGPU_GNSS_SEARCH);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(add_piece(sim, 0, 10), 0);
    ck_assert(sim->align.reference == 2 && sim->align.n_aligned == 1 && sim->ants[2].stage == FGPU_GNSS_PULL_IN);
    const struct fgpu_gnss_state state = fgpu_gnss_align_at(&sim->align, 2, 6000000);
    ck_assert(state.doppler_hz == -5 && state.carrier_phase == 0 && state.code_phase == gnss_code_phase(1, 1023));
    ck_assert_int_eq(fgpu_gnss_align_at(&sim->align, 0, 6000000).stage, FGPU_GNSS_SEARCH);
    fgpu_gnss_align_leave(&sim->align, 2);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(add_piece(sim, 0, 10), 0);
    ck_assert(sim->align.track.stage == FGPU_GNSS_SEARCH && sim->align.reference == SIZE_MAX);
    free(sim);
}

SUITE(.timeout_s = 60, .start = random_start);
