/* gnss_align.c - combines the sums of all antennas for the loops of gnss_track.c, and decides which antennas take part.
 * gnss_antenna.c measures each antenna. */
#include "fgpu/gnss/gnss_antenna.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_S        0.02 /* duration of a block */
#define ALIGN_S        1.0  /* minimum number of seconds of data before the alignment */
#define MAX_PULL_IN_S  2.5
#define MAX_FOLLOWED_S 5.0
#define MAX_MISSING_S  2.0
#define MIN_POWER_S    0.4  /* minimum number of seconds of data in means of powers that decide */
#define MIN_CN0        25.0 /* an aligned polarisation; dB-Hz */
#define JOIN_CN0       27.0 /* a polarisation that becomes aligned */
#define JOIN_COHERENCE 0.5

/* ---- Antennas ---------------------------------------------------------------------------------------------------- */

void fgpu_gnss_align_init(struct fgpu_gnss_align *align, const struct fgpu_gnss_track_config *config,
                          struct fgpu_gnss_antenna *ants, size_t n_ants)
{
    memset(ants, 0, n_ants * sizeof(*ants));
    *align = (struct fgpu_gnss_align){.n_ants = n_ants, .reference = SIZE_MAX, .ants = ants};
    fgpu_gnss_track_init(&align->track, config);
    align->block_periods = (int64_t)fmax(1, rint(BLOCK_S / align->track.period_s));
}

void fgpu_gnss_align_start(struct fgpu_gnss_align *align, size_t ant, const struct fgpu_gnss_acquisition *acquisition)
{
    for (size_t i = 0; i < align->n_ants; i++)
        align->ants[i].stage = FGPU_GNSS_SEARCH;
    gnss_antenna_begin(&align->ants[ant]);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        align->ants[ant].is_used[pol] = true;
        align->unit_power[pol] = 0;
        align->reference_turns[pol] = 0;
    }
    align->starved_s = 0;
    align->block = -1;
    align->reference = ant;
    align->n_aligned = 1;
    align->sample = acquisition->sample;
    fgpu_gnss_track_start(&align->track, acquisition);
}

bool fgpu_gnss_align_join(struct fgpu_gnss_align *align, size_t ant, const struct fgpu_gnss_acquisition *acquisition,
                          int32_t max_offset_samples)
{
    const struct fgpu_gnss_state state = fgpu_gnss_track_at(&align->track, acquisition->sample);
    const double model_subchips = ldexp((double)state.code_phase, -GNSS_CODE_BITS);
    const double delay_subchips = remainder(model_subchips - acquisition->code_subchips, align->track.n_subchips);
    const double delay_samples = delay_subchips / gnss_align_step_subchips(&align->track);
    struct fgpu_gnss_antenna *a = &align->ants[ant];

    assert(a->stage == FGPU_GNSS_SEARCH);
    if (state.stage == FGPU_GNSS_SEARCH || fabs(rint(delay_samples)) > max_offset_samples)
        return false;
    gnss_antenna_begin(a);
    a->delay_subchips = delay_subchips;
    a->offset_samples = (int32_t)lrint(delay_samples);
    a->max_offset_samples = max_offset_samples;
    return true;
}

/* All antennas are lost, because the loops have ended. */
static void lose_all(struct fgpu_gnss_align *align)
{
    for (size_t i = 0; i < align->n_ants; i++) {
        align->ants[i].n_losses += align->ants[i].stage != FGPU_GNSS_SEARCH;
        align->ants[i].stage = FGPU_GNSS_SEARCH;
    }
    align->n_aligned = 0;
    align->reference = SIZE_MAX;
}

/* Ends the loops.  All antennas are lost. */
static void end_loops(struct fgpu_gnss_align *align)
{
    fgpu_gnss_track_stop(&align->track);
    lose_all(align);
}

/* Returns true if an antenna has a weight in the aligned sum of a polarisation. */
static bool has_weight(const struct fgpu_gnss_antenna *a, size_t pol)
{
    return a->stage != FGPU_GNSS_SEARCH && a->is_used[pol];
}

static double used_snr(const struct fgpu_gnss_antenna *a)
{
    double snr = 0;

    for (size_t pol = 0; pol < N_POLS; pol++)
        snr += a->is_used[pol] ? gnss_antenna_snr(a, pol) : 0;
    return snr;
}

/* Makes the strongest antenna in the phase loop's polarisation the reference antenna.  Without such an antenna the loops
 * end. */
static void choose_reference(struct fgpu_gnss_align *align)
{
    double best = -1;

    align->reference = SIZE_MAX;
    for (size_t i = 0; i < align->n_ants; i++) {
        const struct fgpu_gnss_antenna *a = &align->ants[i];
        if (has_weight(a, (size_t)align->track.pol) && used_snr(a) > best) {
            best = used_snr(a);
            align->reference = i;
        }
    }
    if (align->reference == SIZE_MAX)
        end_loops(align);
    else
        memcpy(align->reference_turns, align->ants[align->reference].turns, sizeof(align->reference_turns));
}

void fgpu_gnss_align_leave(struct fgpu_gnss_align *align, size_t ant)
{
    struct fgpu_gnss_antenna *a = &align->ants[ant];

    if (a->stage == FGPU_GNSS_SEARCH)
        return;
    a->stage = FGPU_GNSS_SEARCH;
    if (!gnss_antenna_is_aligned(a))
        return;
    for (size_t i = 0; i < align->n_ants; i++)
        align->ants[i].incoherent_s = 0; /* the other antennas' sum changes */
    if (--align->n_aligned == 0)
        end_loops(align);
    else if (ant == align->reference)
        choose_reference(align);
}

size_t fgpu_gnss_align_pieces(struct fgpu_gnss_align *align, int64_t begin, int64_t end, struct gnss_piece *pieces,
                              size_t max_pieces)
{
    const size_t n = fgpu_gnss_track_pieces(&align->track, begin, end, pieces, max_pieces);

    if (align->track.stage == FGPU_GNSS_SEARCH)
        lose_all(align);
    return n;
}

/* ---- Aligned sum ------------------------------------------------------------------------------------------------- */

/* The sums of a piece, combined. */
struct combined {
    double sums[FGPU_GNSS_N_TAPS][N_POLS][2];
    double information[N_POLS];       /* sum of A_a^2 / N_a over the antennas with samples */
    double n_present, delay_subchips; /* sums over antennas, with these weights */
};

/* Adds an antenna's piece to the combined sums. */
static void add_turned(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a, struct combined *all)
{
    struct fgpu_gnss_own *own = &a->own;
    const double late_subchips = a->delay_subchips - own->offset_samples * gnss_align_step_subchips(&align->track);

    for (size_t pol = 0; pol < N_POLS; pol++) {
        if (own->weight[pol] <= 0)
            continue;
        const double gain = own->weight[pol] / all->information[pol], share = gain * own->amplitude[pol];
        double turned[2];
        for (size_t tap = 0; tap < FGPU_GNSS_N_TAPS; tap++) {
            gnss_multiply(own->piece[tap][pol], own->rotor[pol], turned);
            for (size_t i = 0; i < 2; i++) {
                all->sums[tap][pol][i] += gain * turned[i];
                own->in_sum[pol][i] += tap == FGPU_GNSS_PROMPT ? gain * turned[i] : 0;
            }
        }
        own->share[pol] += share * own->n_piece;
        all->n_present += own->weight[pol] * own->amplitude[pol] * own->n_piece;
        all->delay_subchips += own->weight[pol] * own->amplitude[pol] * late_subchips;
    }
}

/* Combines the parts of the current piece. */
static struct combined combine(struct fgpu_gnss_align *align, const struct fgpu_gnss_piece_pending *piece,
                               const struct fgpu_gnss_part *parts)
{
    struct combined all = {.n_present = 0};

    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        if (a->stage == FGPU_GNSS_SEARCH)
            continue;
        gnss_antenna_add_part(align, a, piece, &parts[i]);
        for (size_t pol = 0; a->own.n_piece > 0 && pol < N_POLS; pol++)
            all.information[pol] += a->own.weight[pol] * a->own.amplitude[pol];
    }
    const double information = all.information[0] + all.information[1];
    for (size_t i = 0; i < align->n_ants; i++)
        if (align->ants[i].stage != FGPU_GNSS_SEARCH && align->ants[i].own.n_piece > 0)
            add_turned(align, &align->ants[i], &all);
    if (information > 0) {
        all.n_present /= information;
        all.delay_subchips /= information;
    }
    for (size_t i = 0; i < sizeof(all.sums) / sizeof(double); i++)
        assert(isfinite((&all.sums[0][0][0])[i]));
    assert(isfinite(all.n_present) && isfinite(all.delay_subchips));
    return all;
}

/* Returns true if all aligned antennas have been without data for too long although other antennas have samples.  The
 * loops then keep the other antennas from the satellite.  A gap at all antennas does not count. */
static bool is_starved(struct fgpu_gnss_align *align, const struct fgpu_gnss_piece_pending *piece,
                       const struct fgpu_gnss_part *parts)
{
    const uint32_t max_missing = piece->n_samples / 2;
    bool has_samples = false, has_data = false;

    for (size_t i = 0; i < align->n_ants; i++) {
        const struct fgpu_gnss_antenna *a = &align->ants[i];
        has_samples = has_samples || parts[i].n_missing <= max_missing;
        if (a->stage != FGPU_GNSS_SEARCH && gnss_antenna_is_aligned(a))
            has_data = has_data || piece->n_samples - a->own.n_piece <= max_missing;
    }
    if (has_data)
        align->starved_s = 0;
    else if (has_samples)
        align->starved_s += gnss_align_seconds(align, piece->n_samples);
    return align->starved_s > MAX_MISSING_S;
}

/* ---- Decisions --------------------------------------------------------------------------------------------------- */

/* The reference antenna's signal defines the unit of the amplitudes A_a of a polarisation.  Returns false if there is no
 * unit, because the reference antenna does not receive the signal. */
static bool has_unit(struct fgpu_gnss_align *align, size_t pol)
{
    const struct fgpu_gnss_antenna *reference = &align->ants[align->reference];

    if (align->unit_power[pol] == 0 && gnss_antenna_cn0_db_hz(reference, pol) > MIN_CN0)
        align->unit_power[pol] = gnss_antenna_signal(reference, pol);
    return align->unit_power[pol] > 0;
}

/* A polarisation that no antenna uses begins with the reference antenna. */
static void begin_pols(struct fgpu_gnss_align *align)
{
    struct fgpu_gnss_antenna *reference = &align->ants[align->reference];

    for (size_t pol = 0; pol < N_POLS; pol++) {
        bool is_used = false;
        for (size_t i = 0; i < align->n_ants; i++)
            is_used = is_used || has_weight(&align->ants[i], pol);
        if (!is_used && gnss_antenna_cn0_db_hz(reference, pol) > JOIN_CN0)
            reference->is_used[pol] = has_unit(align, pol);
    }
}

/* Gives weights to the antenna's polarisations that deserve weights. */
static void choose_pols(struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a)
{
    const bool was_aligned = gnss_antenna_is_aligned(a);

    if (a->stage_s < ALIGN_S || a->power_s < MIN_POWER_S || align->ants[align->reference].power_s < MIN_POWER_S)
        return;
    for (size_t pol = 0; pol < N_POLS; pol++)
        if (gnss_antenna_cn0_db_hz(a, pol) > JOIN_CN0 && a->coherence[pol] > JOIN_COHERENCE && has_unit(align, pol))
            a->is_used[pol] = true;
    align->n_aligned += gnss_antenna_is_aligned(a) && !was_aligned;
}

/* Returns true if an aligned antenna has a wrong phase.  The antennas with right phases may also be incoherent, because
 * the sum of the other antennas is wrong.  So only the weakest incoherent antenna is lost. */
static bool is_incoherent(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a)
{
    if (a->incoherent_s <= MAX_MISSING_S)
        return false;
    for (size_t i = 0; i < align->n_ants; i++) {
        const struct fgpu_gnss_antenna *b = &align->ants[i];
        if (b->stage != FGPU_GNSS_SEARCH && b->incoherent_s > 0 && used_snr(b) < used_snr(a))
            return false;
    }
    return true;
}

/* Returns true if an antenna must be lost.  The loops judge the last aligned antenna. */
static bool is_lost(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a)
{
    double best_db_hz = -INFINITY;

    if (gnss_antenna_is_aligned(a) && align->n_aligned == 1)
        return false;
    for (size_t pol = 0; pol < N_POLS; pol++)
        best_db_hz = a->is_used[pol] ? fmax(best_db_hz, gnss_antenna_cn0_db_hz(a, pol)) : best_db_hz;
    if (gnss_antenna_is_aligned(a) ? (a->power_s >= MIN_POWER_S && best_db_hz < MIN_CN0) || is_incoherent(align, a)
                                   : a->stage_s >= MAX_PULL_IN_S || a->followed_s >= MAX_FOLLOWED_S)
        return true;
    return a->missing_s > MAX_MISSING_S || gnss_antenna_is_late(align, a);
}

/* Aligns and loses antennas. */
static void judge(struct fgpu_gnss_align *align)
{
    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        if (a->stage == FGPU_GNSS_SEARCH)
            continue;
        if (i != align->reference)
            choose_pols(align, a);
        if (is_lost(align, a)) {
            a->n_losses++;
            fgpu_gnss_align_leave(align, i);
        } else if (gnss_antenna_is_aligned(a)) {
            a->stage = align->track.stage;
        }
    }
    if (align->reference != SIZE_MAX)
        begin_pols(align);
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

/* Gives the reference antenna's new phase and rate to the model, and subtracts them from all antennas.  The aligned sum
 * and the model change together, so the loops see no change. */
static void keep_reference(struct fgpu_gnss_align *align)
{
    const struct fgpu_gnss_antenna reference = align->ants[align->reference];
    const double turns = reference.turns[align->track.pol] - align->reference_turns[align->track.pol];

    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        a->rate_hz -= reference.rate_hz;
        for (size_t pol = 0; pol < N_POLS; pol++)
            a->turns[pol] -= reference.turns[pol] - align->reference_turns[pol];
    }
    align->track.model.carrier += (__int128)ldexp(turns, 64);
    align->track.model.doppler_hz += reference.rate_hz;
}

/* Uses the products of the open block, and then aligns and loses antennas. */
static void close_blocks(struct fgpu_gnss_align *align)
{
    struct fgpu_gnss_antenna *reference = &align->ants[align->reference];
    const bool has_block = gnss_antenna_has_block(align, reference);
    const double reference_subchips = has_block ? gnss_antenna_late_subchips(align, reference) : 0;

    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        if (gnss_antenna_has_block(align, a))
            gnss_antenna_close_block(align, a, reference_subchips);
        a->open_s = 0;
        a->replica_subchips = 0;
        memset(a->open_share, 0, sizeof(a->open_share));
        memset(a->products, 0, sizeof(a->products));
    }
    align->block = -1;
    keep_reference(align);
    if (align->track.stage == FGPU_GNSS_TRACKING)
        judge(align);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static struct gnss_align_ended ended_of(const struct fgpu_gnss_align *align, const struct fgpu_gnss_integration *of)
{
    struct gnss_align_ended e = {.integration = align->track.sum.of.integration, .of = of};
    const double model_subchips = ldexp((double)of->after.code_phase, -GNSS_CODE_BITS);

    gnss_set_rotor(ldexp((double)(int64_t)(of->carrier_phase - of->after.carrier_phase), -64), e.rotor);
    e.replica_subchips = remainder(of->code_subchips - model_subchips, align->track.n_subchips);
    for (size_t i = 0; i < align->n_ants; i++) {
        const struct fgpu_gnss_antenna *a = &align->ants[i];
        for (size_t pol = 0; pol < N_POLS; pol++)
            if (a->stage != FGPU_GNSS_SEARCH && a->own.integration == e.integration)
                e.share[pol] += a->own.share[pol];
    }
    return e;
}

/* Moves the antennas' phases and delays to another sample. */
static void move(struct fgpu_gnss_align *align, int64_t sample)
{
    const double time_s = gnss_align_seconds(align, (double)(sample - align->sample));

    align->sample = sample;
    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        for (size_t pol = 0; pol < N_POLS; pol++)
            a->turns[pol] += a->rate_hz * time_s;
        a->delay_subchips -= a->rate_hz * time_s * align->track.rates.subchips_per_turn;
    }
}

/* Changes the loops' state to the state of an antenna that is followed.  C/N0 and locks of the only aligned antenna are
 * those of the loops. */
static void set_state(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a,
                      struct fgpu_gnss_state *state)
{
    state->doppler_hz += a->rate_hz;
    if (gnss_antenna_is_aligned(a) && align->n_aligned == 1)
        return;
    for (size_t pol = 0; pol < N_POLS; pol++)
        state->cn0_db_hz[pol] = gnss_antenna_cn0_db_hz(a, pol);
    state->is_code_locked =
        state->stage != FGPU_GNSS_SEARCH && fmax(state->cn0_db_hz[0], state->cn0_db_hz[1]) > MIN_CN0;
    state->is_carrier_locked = state->is_carrier_locked && gnss_antenna_is_aligned(a);
}

struct fgpu_gnss_state fgpu_gnss_align_at(const struct fgpu_gnss_align *align, size_t ant, int64_t sample)
{
    struct fgpu_gnss_state state = fgpu_gnss_track_at(&align->track, sample);

    if (align->ants[ant].stage != FGPU_GNSS_SEARCH)
        set_state(align, &align->ants[ant], &state);
    else
        state.is_code_locked = state.is_carrier_locked = false;
    state.stage = align->ants[ant].stage;
    return state;
}

/* Uses an antenna's part of an integration that has ended. */
static struct fgpu_gnss_measured use_own(struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                                         const struct gnss_align_ended *e)
{
    struct fgpu_gnss_measured measured = {.stage = a->stage, .n_starts = a->n_starts};
    struct fgpu_gnss_state state = e->of->after;

    if (a->stage == FGPU_GNSS_SEARCH)
        return measured;
    measured.stage = gnss_antenna_is_aligned(a) ? e->of->stage : FGPU_GNSS_PULL_IN;
    measured.n_present = gnss_antenna_n_present(a, e);
    measured.offset_samples = a->own.offset_samples;
    if (measured.n_present > 0)
        memcpy(measured.sums, a->own.sums, sizeof(measured.sums));
    gnss_antenna_measure(align, a, e);
    set_state(align, a, &state);
    measured.is_code_locked = state.is_code_locked;
    measured.is_carrier_locked = state.is_carrier_locked;
    measured.doppler_hz = state.doppler_hz;
    memcpy(measured.cn0_db_hz, state.cn0_db_hz, sizeof(measured.cn0_db_hz));
    return measured;
}

/* Measures all antennas with an integration that has ended. */
static void end_integration(struct fgpu_gnss_align *align, const struct fgpu_gnss_integration *of,
                            struct fgpu_gnss_measured *measured)
{
    const struct gnss_align_ended e = ended_of(align, of);
    const int64_t block = of->code_period / align->block_periods;

    move(align, of->sample);
    if (align->block >= 0 && align->block != block)
        close_blocks(align); /* a gap has cut the block */
    align->block = block;
    for (size_t i = 0; i < align->n_ants; i++)
        measured[i] = use_own(align, &align->ants[i], &e);
    if (align->track.stage == FGPU_GNSS_SEARCH) {
        lose_all(align);
        return;
    }
    align->ants[align->reference].stage = align->track.stage;
    if ((of->code_period + 1) / align->block_periods != block)
        close_blocks(align);
}

size_t fgpu_gnss_align_sums(struct fgpu_gnss_align *align, const struct fgpu_gnss_part *parts,
                            struct fgpu_gnss_integration ended[2], struct fgpu_gnss_measured *measured)
{
    const size_t n_cut = fgpu_gnss_track_cut(&align->track, ended);
    struct combined all = {.n_present = 0};

    if (n_cut > 0)
        end_integration(align, &ended[0], measured);
    const struct fgpu_gnss_piece_pending *piece = fgpu_gnss_track_oldest(&align->track);
    if (piece)
        all = combine(align, piece, parts);
    if (piece && is_starved(align, piece, parts))
        end_loops(align);
    const size_t n = fgpu_gnss_track_sums(&align->track, (const double(*)[N_POLS][2])all.sums,
                                          (uint32_t)lrint(all.n_present), all.delay_subchips, &ended[n_cut]);
    if (n > 0)
        end_integration(align, &ended[n_cut], measured + n_cut * align->n_ants);
    return n_cut + n;
}
