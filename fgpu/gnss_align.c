/* gnss_align.c - combines the sums of all antennas for the loops of gnss_track.c, and measures each antenna against the
 * combined sum. */
#include "fgpu/gnss_align.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIN_FRACTION      0.5  /* minimum fraction of present samples in an integration and in a block */
#define BLOCK_S           0.02 /* duration of a block */
#define RATE_S            0.5  /* seconds of data that measure the rate of a new antenna */
#define ALIGN_S           1.0  /* minimum number of seconds of data before the alignment */
#define MAX_PULL_IN_S     2.5
#define MIN_SHARE         1e-3 /* minimum share of the other antennas in the aligned sum */
#define MAX_MISSING_S     2.0
#define MIN_POWER_S       0.4 /* minimum number of seconds of data in means of powers that decide */
#define POWER_S           0.5 /* time constants of the means */
#define COHERENCE_S       0.5
#define DELAY_S           2.0
#define PULL_IN_HZ        2.0 /* bandwidths of the phase loop */
#define ALIGNED_HZ        1.0
#define MIN_CN0           25.0 /* an aligned polarisation; dB-Hz */
#define JOIN_CN0          27.0 /* a polarisation that becomes aligned */
#define MIN_COHERENCE     0.25 /* an aligned antenna whose phase and delay are corrected */
#define JOIN_COHERENCE    0.5
#define MAX_LATE_CHIPS    0.5 /* largest distance of the delay from the offset of a piece */
#define MAX_DELAY_SAMPLES 0.6 /* largest distance of the delay from the offset */

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static void multiply(const double a[2], const double b[2], double product[2])
{
    const double re = a[0] * b[0] - a[1] * b[1], im = a[0] * b[1] + a[1] * b[0];

    product[0] = re;
    product[1] = im;
}

/* Adds a conj(b) to 'sum'. */
static void add_product(const double a[2], const double b[2], double sum[2])
{
    sum[0] += a[0] * b[0] + a[1] * b[1];
    sum[1] += a[1] * b[0] - a[0] * b[1];
}

static void set_rotor(double turns, double rotor[2])
{
    rotor[0] = cos(2 * M_PI * turns);
    rotor[1] = sin(2 * M_PI * turns);
}

/* As in gnss_lock.c: the weight of new data in a mean over at most 'limit_s' seconds. */
static double weight_of(double *seconds, double data_s, double limit_s)
{
    *seconds = fmin(*seconds + data_s, limit_s);
    return fmin(data_s / *seconds, 1);
}

/* ---- Antennas ---------------------------------------------------------------------------------------------------- */

static bool is_aligned(const struct fgpu_gnss_antenna *a)
{
    return a->is_used[0] || a->is_used[1];
}

static double signal_of(const struct fgpu_gnss_antenna *a, size_t pol)
{
    return hypot(a->square[pol][0], a->square[pol][1]);
}

static double snr_of(const struct fgpu_gnss_antenna *a, size_t pol)
{
    const double signal = signal_of(a, pol), noise = a->power[pol] - signal;

    return signal <= 0 ? 0 : noise > 0 ? signal / noise : INFINITY;
}

static double cn0_db_hz(const struct fgpu_gnss_antenna *a, size_t pol)
{
    const double snr = snr_of(a, pol);

    return snr > 0 ? 10 * log10(snr / a->data_s) : -INFINITY;
}

/* Returns the number of sub-chips of a sample. */
static double step_subchips(const struct fgpu_gnss_track *track)
{
    const struct fgpu_gnss_rates *rates = &track->rates;

    return (rates->subchip_rate_hz + track->model.doppler_hz * rates->subchips_per_turn) / rates->sample_rate_hz;
}

static double delay_in_samples(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a)
{
    return a->delay_subchips / step_subchips(&align->track);
}

static double seconds_of(const struct fgpu_gnss_align *align, double n_samples)
{
    return n_samples / align->track.rates.sample_rate_hz;
}

static void begin_antenna(struct fgpu_gnss_antenna *a)
{
    *a = (struct fgpu_gnss_antenna){.stage = FGPU_GNSS_PULL_IN,
                                    .n_starts = a->n_starts + 1,
                                    .n_losses = a->n_losses,
                                    .last_block = -1,
                                    .own.integration = UINT32_MAX};
}

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
    begin_antenna(&align->ants[ant]);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        align->ants[ant].is_used[pol] = true;
        align->unit_power[pol] = 0;
        align->reference_turns[pol] = 0;
    }
    align->reference_subchips = 0;
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
    const double delay_samples = delay_subchips / step_subchips(&align->track);
    struct fgpu_gnss_antenna *a = &align->ants[ant];

    assert(a->stage == FGPU_GNSS_SEARCH);
    if (state.stage == FGPU_GNSS_SEARCH || fabs(rint(delay_samples)) > max_offset_samples)
        return false;
    begin_antenna(a);
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

/* Makes the strongest aligned antenna the reference antenna.  A polarisation that no antenna uses begins with this
 * antenna. */
static void choose_reference(struct fgpu_gnss_align *align)
{
    bool is_used[N_POLS] = {false};
    double best = -1;

    for (size_t i = 0; i < align->n_ants; i++) {
        const struct fgpu_gnss_antenna *a = &align->ants[i];
        double snr = 0;
        if (a->stage == FGPU_GNSS_SEARCH || !is_aligned(a))
            continue;
        for (size_t pol = 0; pol < N_POLS; pol++) {
            snr += a->is_used[pol] ? snr_of(a, pol) : 0;
            is_used[pol] = is_used[pol] || a->is_used[pol];
        }
        if (snr > best) {
            best = snr;
            align->reference = i;
        }
    }
    struct fgpu_gnss_antenna *chosen = &align->ants[align->reference];
    for (size_t pol = 0; pol < N_POLS; pol++)
        chosen->is_used[pol] = chosen->is_used[pol] || !is_used[pol];
    memcpy(align->reference_turns, chosen->turns, sizeof(align->reference_turns));
    align->reference_subchips = chosen->delay_subchips;
}

void fgpu_gnss_align_leave(struct fgpu_gnss_align *align, size_t ant)
{
    struct fgpu_gnss_antenna *a = &align->ants[ant];

    if (a->stage == FGPU_GNSS_SEARCH)
        return;
    a->stage = FGPU_GNSS_SEARCH;
    if (!is_aligned(a))
        return;
    if (--align->n_aligned == 0) {
        fgpu_gnss_track_stop(&align->track);
        lose_all(align);
    } else if (ant == align->reference) {
        choose_reference(align);
    }
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

/* Begins an antenna's part of an integration.  An offset of one sample turns the sums by a sample's carrier phase. */
static void begin_own(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                      const struct fgpu_gnss_piece_pending *piece, int32_t offset_samples)
{
    const struct fgpu_gnss_track *track = &align->track;
    const double carrier_hz = track->rates.carrier_hz + track->model.doppler_hz;
    const double turns = seconds_of(align, (double)(piece->middle - align->sample)) * a->rate_hz +
                         seconds_of(align, offset_samples) * carrier_hz;
    struct fgpu_gnss_own *own = &a->own;

    *own =
        (struct fgpu_gnss_own){.integration = piece->integration, .is_valid = true, .offset_samples = offset_samples};
    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double noise = fmax(a->power[pol] - signal_of(a, pol), 1e-9 * a->power[pol]);
        set_rotor(-(a->turns[pol] + turns), own->rotor[pol]);
        if (align->unit_power[pol] == 0) {
            own->amplitude[pol] = own->weight[pol] = a->is_used[pol];
        } else if (a->is_used[pol] && noise > 0) {
            own->amplitude[pol] = sqrt(signal_of(a, pol) / align->unit_power[pol]);
            own->weight[pol] = own->amplitude[pol] / noise;
        }
    }
}

/* Adds a piece to an antenna's part of the integration.  A piece that was made before the antenna joined may have an
 * offset far from the delay; such a piece counts as missing. */
static void add_part(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                     const struct fgpu_gnss_piece_pending *piece, const struct fgpu_gnss_part *part)
{
    const double late_subchips = a->delay_subchips - part->offset_samples * step_subchips(&align->track);
    const bool is_near = fabs(late_subchips) < MAX_LATE_CHIPS * align->track.chip_subchips;
    const uint32_t n_present = is_near ? piece->n_samples - part->n_missing : 0;
    struct fgpu_gnss_own *own = &a->own;

    assert(part->n_missing <= piece->n_samples);
    if (own->integration != piece->integration || own->n_present == 0)
        begin_own(align, a, piece, part->offset_samples);
    own->n_piece = 0;
    if (n_present == 0)
        return;
    own->is_valid = own->is_valid && own->offset_samples == part->offset_samples;
    own->n_present += n_present;
    if (!own->is_valid)
        return;
    own->n_piece = n_present;
    for (size_t tap = 0; tap < FGPU_GNSS_N_TAPS; tap++)
        for (size_t pol = 0; pol < N_POLS; pol++)
            for (size_t i = 0; i < 2; i++) {
                own->piece[tap][pol][i] = (double)part->sums[tap * part->tap_stride + 2 * pol + i] * part->unit[pol];
                own->sums[tap][pol][i] += own->piece[tap][pol][i];
            }
}

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
    const double late_subchips = a->delay_subchips - own->offset_samples * step_subchips(&align->track);

    for (size_t pol = 0; pol < N_POLS; pol++) {
        if (own->weight[pol] <= 0)
            continue;
        const double gain = own->weight[pol] / all->information[pol], share = gain * own->amplitude[pol];
        double turned[2];
        for (size_t tap = 0; tap < FGPU_GNSS_N_TAPS; tap++) {
            multiply(own->piece[tap][pol], own->rotor[pol], turned);
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
        add_part(align, a, piece, &parts[i]);
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
    return all;
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

static double angle_turns(const double of[2])
{
    return atan2(of[1], of[0]) / (2 * M_PI);
}

static bool has_block(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a)
{
    return a->stage != FGPU_GNSS_SEARCH &&
           a->open_s >= MIN_FRACTION * (double)align->block_periods * align->track.period_s;
}

/* Returns false while an aligned antenna seems to have lost its signal.  Its phase and delay then keep their values. */
static bool is_coherent(const struct fgpu_gnss_antenna *a)
{
    return !is_aligned(a) || fmax(a->coherence[0], a->coherence[1]) > MIN_COHERENCE;
}

/* Returns the signal's delay minus the antenna's delay, as the block's early and late products measure it.  Until the
 * phase is known, the products are projected on the prompt product.  The code gain is for powers, so the gain for
 * amplitudes is twice as large (gnss_track.c). */
static double late_subchips(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a)
{
    const bool has_phase = is_aligned(a) || a->stage_s >= RATE_S;
    double early = 0, late = 0;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double *prompt = a->products[FGPU_GNSS_PROMPT][pol], size = hypot(prompt[0], prompt[1]);
        const double re = has_phase ? 1 : size > 0 ? prompt[0] / size : 0;
        const double im = has_phase ? 0 : size > 0 ? prompt[1] / size : 0;
        early += a->products[FGPU_GNSS_EARLY][pol][0] * re + a->products[FGPU_GNSS_EARLY][pol][1] * im;
        late += a->products[FGPU_GNSS_LATE][pol][0] * re + a->products[FGPU_GNSS_LATE][pol][1] * im;
    }
    a->span += weight_of(&a->span_s, a->open_s, POWER_S) * ((early + late) / a->open_s - a->span);
    if (a->span <= 0)
        return 0;
    const double code_subchips = 2 * align->track.code_gain * (early - late) / (a->open_s * a->span);
    const double limit_subchips = align->track.chip_subchips / 2.0;
    const double late_subchips = a->replica_subchips / a->open_s - code_subchips - a->delay_subchips;
    return fmin(fmax(late_subchips, -limit_subchips), limit_subchips);
}

/* Adds the block's phase advance.  After RATE_S the advances give the rate, and the last block gives the phases. */
static void find_rate(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a)
{
    const double middle_sample = 0.5 * ((double)align->first_sample + (double)align->last_sample);
    const double late_s = seconds_of(align, (double)align->sample - middle_sample);

    for (size_t pol = 0; pol < N_POLS; pol++) {
        if (a->last_block >= 0 && a->last_block == align->block - 1)
            add_product(a->products[FGPU_GNSS_PROMPT][pol], a->last[pol], a->turn);
        memcpy(a->last[pol], a->products[FGPU_GNSS_PROMPT][pol], sizeof(a->last[pol]));
    }
    a->last_block = align->block;
    if (a->stage_s + a->open_s < RATE_S)
        return;
    a->rate_hz += angle_turns(a->turn) / ((double)align->block_periods * align->track.period_s);
    for (size_t pol = 0; pol < N_POLS; pol++)
        a->turns[pol] += angle_turns(a->last[pol]) + a->rate_hz * late_s;
}

/* Corrects phases and rate: the second-order loop of Kaplan and Hegarty, Understanding GPS/GNSS, 3rd ed., 8.8.  The
 * factor 1 - share keeps the phase of the aligned sum: the mean correction, weighted with the shares, is 0. */
static void follow_phase(struct fgpu_gnss_antenna *a)
{
    const double w = (is_aligned(a) ? ALIGNED_HZ : PULL_IN_HZ) / 0.53;
    const double weight = weight_of(&a->coherence_s, a->open_s, COHERENCE_S);
    double sum = 0, weights = 0;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double *product = a->products[FGPU_GNSS_PROMPT][pol], size = hypot(product[0], product[1]);
        a->coherence[pol] += weight * ((size > 0 ? product[0] / size : 0) - a->coherence[pol]);
    }
    if (!is_coherent(a))
        return;
    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double *product = a->products[FGPU_GNSS_PROMPT][pol], size = hypot(product[0], product[1]);
        const double error_turns = (1 - a->open_share[pol] / a->open_s) * angle_turns(product);
        a->turns[pol] += sqrt(2) * w * a->open_s * error_turns;
        sum += size * size * error_turns;
        weights += size * size;
    }
    if (weights > 0)
        a->rate_hz += w * w * a->open_s * sum / weights;
}

/* Uses an antenna's products of the open block.  The mean delay belongs to the code loop. */
static void close_block(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a, double mean_subchips)
{
    if (is_aligned(a) && align->n_aligned == 1)
        return;
    if (is_coherent(a))
        a->delay_subchips += weight_of(&a->delay_s, a->open_s, DELAY_S) * (a->late_subchips - mean_subchips);
    if (!is_aligned(a) && a->stage_s < RATE_S)
        find_rate(align, a);
    else
        follow_phase(a);
    a->stage_s += a->open_s;
}

/* Gives the reference antenna's new phase, rate and delay to the model, and subtracts them from all antennas.  The
 * aligned sum and the model change together, so the loops see no change.  Offsets stay in the permitted range, because
 * the correlator's rows have no other samples. */
static void keep_reference(struct fgpu_gnss_align *align)
{
    const struct fgpu_gnss_antenna reference = align->ants[align->reference];
    struct fgpu_gnss_model *model = &align->track.model;
    const double delay_subchips = reference.delay_subchips - align->reference_subchips;

    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        a->delay_subchips -= delay_subchips;
        a->rate_hz -= reference.rate_hz;
        for (size_t pol = 0; pol < N_POLS; pol++)
            a->turns[pol] -= reference.turns[pol] - align->reference_turns[pol];
        const double offset_samples = delay_in_samples(align, a), limit_samples = a->max_offset_samples;
        if (a->stage != FGPU_GNSS_SEARCH && fabs(offset_samples - a->offset_samples) > MAX_DELAY_SAMPLES)
            a->offset_samples = (int32_t)lrint(fmin(fmax(offset_samples, -limit_samples), limit_samples));
    }
    const double turns = reference.turns[align->track.pol] - align->reference_turns[align->track.pol];
    model->carrier += (__int128)ldexp(turns, 64);
    model->code -= (__int128)ldexp(delay_subchips, 64);
    model->doppler_hz += reference.rate_hz;
}

/* Uses the products of the open block. */
static void close_blocks(struct fgpu_gnss_align *align)
{
    double sum = 0, weights = 0;

    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        if (!has_block(align, a))
            continue;
        a->late_subchips = late_subchips(align, a);
        if (!is_coherent(a) && align->n_aligned > 1)
            continue;
        sum += (a->open_share[0] + a->open_share[1]) * a->late_subchips;
        weights += a->open_share[0] + a->open_share[1];
    }
    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        if (has_block(align, a) && weights > 0)
            close_block(align, a, sum / weights);
        a->open_s = 0;
        a->replica_subchips = 0;
        memset(a->open_share, 0, sizeof(a->open_share));
        memset(a->products, 0, sizeof(a->products));
    }
    keep_reference(align);
}

/* ---- Integrations ------------------------------------------------------------------------------------------------ */

/* An integration that has ended, as all antennas need it. */
struct ended {
    uint32_t integration;
    const struct fgpu_gnss_integration *of;
    double rotor[2];         /* turns sums from the replica's phase to the model's phase */
    double replica_subchips; /* replica's code phase minus the model's code phase */
    double share[N_POLS];    /* sum over the antennas */
};

static struct ended ended_of(const struct fgpu_gnss_align *align, const struct fgpu_gnss_integration *of)
{
    struct ended e = {.integration = align->track.sum.of.integration, .of = of};
    const double model_subchips = ldexp((double)of->after.code_phase, -GNSS_CODE_BITS);

    set_rotor(ldexp((double)(int64_t)(of->carrier_phase - of->after.carrier_phase), -64), e.rotor);
    e.replica_subchips = remainder(of->code_subchips - model_subchips, align->track.n_subchips);
    for (size_t i = 0; i < align->n_ants; i++) {
        const struct fgpu_gnss_antenna *a = &align->ants[i];
        for (size_t pol = 0; pol < N_POLS; pol++)
            if (a->stage != FGPU_GNSS_SEARCH && a->own.integration == e.integration)
                e.share[pol] += a->own.share[pol];
    }
    return e;
}

static uint32_t n_present_of(const struct fgpu_gnss_antenna *a, const struct ended *e)
{
    return a->own.integration == e->integration && a->own.is_valid ? a->own.n_present : 0;
}

/* Adds the antenna's sums to the means of powers. */
static void add_power(struct fgpu_gnss_antenna *a, const struct ended *e, double data_s)
{
    const double weight = weight_of(&a->power_s, data_s, POWER_S);
    const double scale = sqrt((double)e->of->n_samples / a->own.n_present);

    a->data_s += weight * (data_s - a->data_s);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        double z[2], square[2];
        multiply(a->own.sums[FGPU_GNSS_PROMPT][pol], a->own.rotor[pol], z);
        multiply(z, e->rotor, z);
        multiply(z, z, square);
        for (size_t i = 0; i < 2; i++)
            a->square[pol][i] += weight * (scale * scale * square[i] - a->square[pol][i]);
        a->power[pol] += weight * (scale * scale * (z[0] * z[0] + z[1] * z[1]) - a->power[pol]);
    }
}

/* Adds the products of the antenna's sums and the other antennas' part of the aligned sum to the block.  The other
 * antennas' part is scaled to the amplitude of the whole sum.  If only this antenna is aligned, only its delay matters,
 * and the aligned sum takes the place of the other antennas' part. */
static void add_to_block(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a, const struct ended *e,
                         double data_s)
{
    const struct fgpu_gnss_own *own = &a->own;
    const double keep = is_aligned(a) && align->n_aligned == 1 ? 0 : 1;
    bool has_others = false;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double others = e->share[pol] - keep * own->share[pol];
        double c[2], turned[2];
        if (others < MIN_SHARE * e->of->n_samples)
            continue;
        has_others = true;
        for (size_t i = 0; i < 2; i++)
            c[i] = (e->of->sums[FGPU_GNSS_PROMPT][pol][i] - keep * own->in_sum[pol][i]) * e->of->n_samples / others;
        for (size_t tap = 0; tap < FGPU_GNSS_N_TAPS; tap++) {
            multiply(own->sums[tap][pol], own->rotor[pol], turned);
            add_product(turned, c, a->products[tap][pol]);
        }
        a->open_share[pol] += data_s * own->share[pol] / e->share[pol];
    }
    if (!has_others)
        return;
    a->open_s += data_s;
    a->replica_subchips += data_s * (own->offset_samples * step_subchips(&align->track) - e->replica_subchips);
}

/* Updates an antenna's estimates. */
static void measure(struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a, const struct ended *e)
{
    const uint32_t n_present = n_present_of(a, e), min_samples = (uint32_t)(MIN_FRACTION * e->of->n_samples);
    const double data_s = seconds_of(align, n_present);

    if (n_present < min_samples || n_present == 0) {
        a->missing_s += e->of->n_present >= min_samples ? seconds_of(align, e->of->n_present) : 0;
        return;
    }
    a->missing_s = 0;
    if (align->track.stage >= FGPU_GNSS_SETTLING && (is_aligned(a) || a->stage_s >= RATE_S))
        add_power(a, e, data_s);
    add_to_block(align, a, e, data_s);
}

/* ---- Decisions --------------------------------------------------------------------------------------------------- */

static void lose(struct fgpu_gnss_align *align, size_t ant)
{
    align->ants[ant].n_losses++;
    fgpu_gnss_align_leave(align, ant);
}

/* The first alignment defines the unit of the amplitudes A_a. */
static void begin_alignment(struct fgpu_gnss_align *align)
{
    const struct fgpu_gnss_antenna *reference = &align->ants[align->reference];

    align->n_aligned++;
    for (size_t pol = 0; pol < N_POLS; pol++)
        if (align->unit_power[pol] == 0)
            align->unit_power[pol] = fmax(signal_of(reference, pol), DBL_MIN);
}

/* Aligns an antenna, takes weights away, or loses the antenna. */
static void choose_pols(struct fgpu_gnss_align *align, size_t ant)
{
    const bool is_ready = align->ants[align->reference].power_s >= MIN_POWER_S;
    struct fgpu_gnss_antenna *a = &align->ants[ant];
    const bool was_aligned = is_aligned(a);
    bool is_used[N_POLS];

    if (!is_ready || a->stage_s < ALIGN_S || a->power_s < MIN_POWER_S)
        return;
    for (size_t pol = 0; pol < N_POLS; pol++)
        is_used[pol] = a->is_used[pol] ? cn0_db_hz(a, pol) > MIN_CN0
                                       : cn0_db_hz(a, pol) > JOIN_CN0 && a->coherence[pol] > JOIN_COHERENCE;
    if (is_used[0] || is_used[1]) {
        memcpy(a->is_used, is_used, sizeof(is_used));
        if (!was_aligned)
            begin_alignment(align);
    } else if (was_aligned) {
        lose(align, ant);
    }
}

static void judge(struct fgpu_gnss_align *align, size_t ant)
{
    struct fgpu_gnss_antenna *a = &align->ants[ant];
    const bool is_too_late = fabs(delay_in_samples(align, a)) > a->max_offset_samples + MAX_DELAY_SAMPLES;

    if (is_aligned(a) && align->n_aligned == 1)
        return; /* the loops judge the last aligned antenna */
    if (a->missing_s > MAX_MISSING_S || is_too_late)
        lose(align, ant);
    else if (ant != align->reference)
        choose_pols(align, ant);
    else if (a->power_s >= MIN_POWER_S && fmax(cn0_db_hz(a, 0), cn0_db_hz(a, 1)) < MIN_CN0)
        lose(align, ant);
    if (a->stage != FGPU_GNSS_SEARCH && !is_aligned(a) && a->stage_s >= MAX_PULL_IN_S)
        lose(align, ant);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

/* Moves the antennas' phases and delays to another sample. */
static void move(struct fgpu_gnss_align *align, int64_t sample)
{
    const double time_s = seconds_of(align, (double)(sample - align->sample));

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
    if (is_aligned(a) && align->n_aligned == 1)
        return;
    for (size_t pol = 0; pol < N_POLS; pol++)
        state->cn0_db_hz[pol] = cn0_db_hz(a, pol);
    state->is_code_locked =
        state->stage != FGPU_GNSS_SEARCH && fmax(state->cn0_db_hz[0], state->cn0_db_hz[1]) > MIN_CN0;
    state->is_carrier_locked = state->is_carrier_locked && is_aligned(a);
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
                                         const struct ended *e)
{
    struct fgpu_gnss_measured measured = {.stage = a->stage, .n_starts = a->n_starts};
    struct fgpu_gnss_state state = e->of->after;

    if (a->stage == FGPU_GNSS_SEARCH)
        return measured;
    measured.n_present = n_present_of(a, e);
    measured.offset_samples = a->own.offset_samples;
    if (measured.n_present > 0)
        memcpy(measured.sums, a->own.sums, sizeof(measured.sums));
    measure(align, a, e);
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
    const struct ended e = ended_of(align, of);
    const int64_t block = of->code_period / align->block_periods;

    move(align, of->sample);
    if (align->block >= 0 && align->block != block)
        close_blocks(align);
    if (align->block != block)
        align->first_sample = of->sample;
    align->block = block;
    align->last_sample = of->sample;
    for (size_t i = 0; i < align->n_ants; i++)
        measured[i] = use_own(align, &align->ants[i], &e);
    if (align->track.stage == FGPU_GNSS_SEARCH)
        lose_all(align);
    for (size_t i = 0; i < align->n_ants; i++)
        if (align->ants[i].stage != FGPU_GNSS_SEARCH && align->track.stage >= FGPU_GNSS_SETTLING)
            judge(align, i);
    for (size_t i = 0; i < align->n_ants; i++) {
        struct fgpu_gnss_antenna *a = &align->ants[i];
        if (a->stage != FGPU_GNSS_SEARCH && is_aligned(a))
            a->stage = align->track.stage;
    }
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
    const size_t n = fgpu_gnss_track_sums(&align->track, (const double(*)[N_POLS][2])all.sums,
                                          (uint32_t)lrint(all.n_present), all.delay_subchips, &ended[n_cut]);
    if (n > 0)
        end_integration(align, &ended[n_cut], measured + n_cut * align->n_ants);
    return n_cut + n;
}
