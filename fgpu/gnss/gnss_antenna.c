/* gnss_antenna.c - the measurements of one antenna, which gnss_align.c combines. */
#include "fgpu/gnss/gnss_antenna.h"

#include <assert.h>
#include <string.h>

#define MIN_FRACTION      0.5      /* minimum fraction of present samples in an integration and in a block */
#define RATE_S            0.5      /* seconds of data that measure the rate of a new antenna */
#define MIN_SHARE         1e-3     /* minimum share of the other antennas in the aligned sum */
#define ALONE_WEIGHT      0x1p-100 /* weight without a unit: below all other weights, and exact in quotients */
#define MIN_SIGNAL        1e-4     /* of the power: limits 1 / A_a */
#define POWER_S           0.5      /* time constants of the means */
#define COHERENCE_S       0.5
#define DELAY_S           2.0
#define PULL_IN_HZ        2.0 /* bandwidths of the phase loop */
#define ALIGNED_HZ        1.0
#define MIN_COHERENCE     0.25 /* an aligned antenna whose phase and delay are corrected */
#define MAX_DELAY_SAMPLES 0.6  /* largest distance of the delay from the offset */

/* Adds a conj(b) to 'sum'. */
static void add_product(const double a[2], const double b[2], double sum[2])
{
    sum[0] += a[0] * b[0] + a[1] * b[1];
    sum[1] += a[1] * b[0] - a[0] * b[1];
}

/* As in gnss_lock.c: the weight of new data in a mean over at most 'limit_s' seconds. */
static double weight_of(double *seconds, double data_s, double limit_s)
{
    *seconds = fmin(*seconds + data_s, limit_s);
    return fmin(data_s / *seconds, 1);
}

void gnss_antenna_begin(struct fgpu_gnss_antenna *a)
{
    *a = (struct fgpu_gnss_antenna){.stage = FGPU_GNSS_PULL_IN,
                                    .n_starts = a->n_starts + 1,
                                    .n_losses = a->n_losses,
                                    .last_block = -1,
                                    .own.integration = UINT32_MAX};
}

double gnss_antenna_signal(const struct fgpu_gnss_antenna *a, size_t pol)
{
    return hypot(a->square[pol][0], a->square[pol][1]);
}

double gnss_antenna_snr(const struct fgpu_gnss_antenna *a, size_t pol)
{
    const double signal = gnss_antenna_signal(a, pol), noise = a->power[pol] - signal;

    return signal <= 0 ? 0 : noise > 0 ? signal / noise : INFINITY;
}

double gnss_antenna_cn0_db_hz(const struct fgpu_gnss_antenna *a, size_t pol)
{
    const double snr = gnss_antenna_snr(a, pol);

    return snr > 0 ? 10 * log10(snr / a->data_s) : -INFINITY;
}

static double delay_in_samples(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a)
{
    return a->delay_subchips / gnss_align_step_subchips(&align->track);
}

/* ---- Parts of integrations --------------------------------------------------------------------------------------- */

/* Begins an antenna's part of an integration.  An offset of one sample turns the sums by a sample's carrier phase. */
static void begin_own(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                      const struct fgpu_gnss_piece_pending *piece, int32_t offset_samples)
{
    const struct fgpu_gnss_track *track = &align->track;
    const double carrier_hz = track->rates.carrier_hz + track->model.doppler_hz;
    const double turns = gnss_align_seconds(align, (double)(piece->middle - align->sample)) * a->rate_hz +
                         gnss_align_seconds(align, offset_samples) * carrier_hz;
    struct fgpu_gnss_own *own = &a->own;

    *own =
        (struct fgpu_gnss_own){.integration = piece->integration, .is_valid = true, .offset_samples = offset_samples};
    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double signal = fmax(gnss_antenna_signal(a, pol), MIN_SIGNAL * a->power[pol]);
        const double noise = fmax(a->power[pol] - signal, 1e-9 * a->power[pol]);
        gnss_set_rotor(-(a->turns[pol] + turns), own->rotor[pol]);
        if (align->unit_power[pol] == 0) {
            own->amplitude[pol] = a->is_used[pol] && a == &align->ants[align->reference];
            own->weight[pol] = own->amplitude[pol] * ALONE_WEIGHT;
        } else if (a->is_used[pol] && noise > 0) {
            own->amplitude[pol] = sqrt(signal / align->unit_power[pol]);
            own->weight[pol] = own->amplitude[pol] / noise;
        }
    }
}

/* Returns true if the prompt sums are exactly 0: the samples have no noise. */
static bool is_dead(const struct fgpu_gnss_part *part)
{
    const int64_t *prompt = part->sums + FGPU_GNSS_PROMPT * part->tap_stride;

    for (size_t i = 0; i < 2 * N_POLS; i++)
        if (prompt[i] != 0)
            return false;
    return true;
}

void gnss_antenna_add_part(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                           const struct fgpu_gnss_piece_pending *piece, const struct fgpu_gnss_part *part)
{
    const double late_subchips = a->delay_subchips - part->offset_samples * gnss_align_step_subchips(&align->track);
    const bool is_near = fabs(late_subchips) < fmax(align->track.tap_subchips, gnss_align_step_subchips(&align->track));
    const uint32_t n_present = is_near ? piece->n_samples - part->n_missing : 0;
    struct fgpu_gnss_own *own = &a->own;

    assert(part->n_missing <= piece->n_samples);
    if (own->integration != piece->integration || own->n_present == 0)
        begin_own(align, a, piece, part->offset_samples);
    own->n_piece = 0;
    if (n_present == 0 || (align->n_aligned > 1 && is_dead(part)))
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

uint32_t gnss_antenna_n_present(const struct fgpu_gnss_antenna *a, const struct gnss_align_ended *e)
{
    return a->own.integration == e->integration && a->own.is_valid ? a->own.n_present : 0;
}

/* Adds the antenna's sums to the means of powers.  A polarisation whose sum is exactly 0 has lost signal and noise.  The
 * mean of |z|^2 then keeps its value, so that C/N0 falls. */
static void add_power(struct fgpu_gnss_antenna *a, const struct gnss_align_ended *e, double data_s)
{
    const double weight = weight_of(&a->power_s, data_s, POWER_S);
    const double scale = sqrt((double)e->of->n_samples / a->own.n_present);

    a->data_s += weight * (data_s - a->data_s);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        double z[2], square[2];
        gnss_multiply(a->own.sums[FGPU_GNSS_PROMPT][pol], a->own.rotor[pol], z);
        gnss_multiply(z, e->rotor, z);
        gnss_multiply(z, z, square);
        for (size_t i = 0; i < 2; i++)
            a->square[pol][i] += weight * (scale * scale * square[i] - a->square[pol][i]);
        if (z[0] != 0 || z[1] != 0)
            a->power[pol] += weight * (scale * scale * (z[0] * z[0] + z[1] * z[1]) - a->power[pol]);
    }
}

/* Adds the products of the antenna's sums and the other antennas' part of the aligned sum to the block.  The other
 * antennas' part is scaled to the amplitude of the whole sum.  If only this antenna is aligned, only its delay matters,
 * and the aligned sum takes the place of the other antennas' part. */
static void add_to_block(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                         const struct gnss_align_ended *e, double data_s)
{
    const struct fgpu_gnss_own *own = &a->own;
    const double keep = gnss_antenna_is_aligned(a) && align->n_aligned == 1 ? 0 : 1;
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
            gnss_multiply(own->sums[tap][pol], own->rotor[pol], turned);
            add_product(turned, c, a->products[tap][pol]);
        }
        a->open_share[pol] += data_s * own->share[pol] / e->share[pol];
    }
    if (!has_others)
        return;
    a->open_s += data_s;
    a->replica_subchips +=
        data_s * (own->offset_samples * gnss_align_step_subchips(&align->track) - e->replica_subchips);
}

void gnss_antenna_measure(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                          const struct gnss_align_ended *e)
{
    const uint32_t n_present = gnss_antenna_n_present(a, e), min_samples = (uint32_t)(MIN_FRACTION * e->of->n_samples);
    const double data_s = gnss_align_seconds(align, n_present);

    a->followed_s += gnss_align_seconds(align, e->of->n_samples);
    if (n_present < min_samples || n_present == 0) {
        a->missing_s += e->of->n_present >= min_samples ? gnss_align_seconds(align, e->of->n_present) : 0;
        return;
    }
    a->missing_s = 0;
    if (align->track.stage >= FGPU_GNSS_SETTLING && (gnss_antenna_is_aligned(a) || a->stage_s >= RATE_S))
        add_power(a, e, data_s);
    add_to_block(align, a, e, data_s);
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

static double angle_turns(const double of[2])
{
    return atan2(of[1], of[0]) / (2 * M_PI);
}

bool gnss_antenna_has_block(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a)
{
    return a->stage != FGPU_GNSS_SEARCH &&
           a->open_s >= MIN_FRACTION * (double)align->block_periods * align->track.period_s;
}

/* Returns false while an aligned antenna seems to have lost its signal.  Its phase and delay then keep their values. */
static bool is_coherent(const struct fgpu_gnss_antenna *a)
{
    return !gnss_antenna_is_aligned(a) || fmax(a->coherence[0], a->coherence[1]) > MIN_COHERENCE;
}

/* Until the phase is known, the products are projected on the prompt product.  The code gain is for powers, so the gain
 * for amplitudes is twice as large (gnss_track.c). */
double gnss_antenna_late_subchips(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a)
{
    const bool has_phase = gnss_antenna_is_aligned(a) || a->stage_s >= RATE_S;
    const double limit_subchips = align->track.tap_subchips;
    double early = 0, late = 0;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double *prompt = a->products[FGPU_GNSS_PROMPT][pol], size = hypot(prompt[0], prompt[1]);
        const double re = has_phase ? 1 : size > 0 ? prompt[0] / size : 0;
        const double im = has_phase ? 0 : size > 0 ? prompt[1] / size : 0;
        early += a->products[FGPU_GNSS_EARLY][pol][0] * re + a->products[FGPU_GNSS_EARLY][pol][1] * im;
        late += a->products[FGPU_GNSS_LATE][pol][0] * re + a->products[FGPU_GNSS_LATE][pol][1] * im;
    }
    a->span += weight_of(&a->span_s, a->open_s, POWER_S) * ((early + late) / a->open_s - a->span);
    if (a->span <= 0 || !is_coherent(a))
        return 0;
    const double code_subchips = 2 * align->track.code_gain * (early - late) / (a->open_s * a->span);
    const double late_subchips = a->replica_subchips / a->open_s - code_subchips - a->delay_subchips;
    return fmin(fmax(late_subchips, -limit_subchips), limit_subchips);
}

/* Adds the block's phase advance.  After RATE_S the advances give the rate, and the last block gives the phases at its
 * middle. */
static void find_rate(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a)
{
    const double block_s = (double)align->block_periods * align->track.period_s;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        if (a->last_block >= 0 && a->last_block == align->block - 1)
            add_product(a->products[FGPU_GNSS_PROMPT][pol], a->last[pol], a->turn);
        memcpy(a->last[pol], a->products[FGPU_GNSS_PROMPT][pol], sizeof(a->last[pol]));
    }
    a->last_block = align->block;
    if (a->stage_s + a->open_s < RATE_S)
        return;
    const double rate_hz = angle_turns(a->turn) / block_s;
    a->rate_hz += rate_hz;
    for (size_t pol = 0; pol < N_POLS; pol++)
        a->turns[pol] += angle_turns(a->last[pol]) + rate_hz * block_s / 2;
}

/* Corrects phases and rate: the second-order loop of Kaplan and Hegarty, Understanding GPS/GNSS, 3rd ed., 8.8.  The
 * factor 1 - share keeps the phase of the aligned sum: the mean correction, weighted with the shares, is 0. */
static void follow_phase(struct fgpu_gnss_antenna *a)
{
    const double w = (gnss_antenna_is_aligned(a) ? ALIGNED_HZ : PULL_IN_HZ) / 0.53;
    const double weight = weight_of(&a->coherence_s, a->open_s, COHERENCE_S);
    double sum = 0, weights = 0;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double *product = a->products[FGPU_GNSS_PROMPT][pol], size = hypot(product[0], product[1]);
        a->coherence[pol] += weight * ((size > 0 ? product[0] / size : 0) - a->coherence[pol]);
    }
    a->incoherent_s = is_coherent(a) ? 0 : a->incoherent_s + a->open_s;
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

/* Follows the delay relative to the reference antenna. */
static void follow_delay(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a, double reference_subchips)
{
    const double late_subchips = gnss_antenna_late_subchips(align, a) - reference_subchips;

    if (is_coherent(a))
        a->delay_subchips += weight_of(&a->delay_s, a->open_s, DELAY_S) * late_subchips;
}

/* Changes the offset if the delay is far from the offset.  The offset stays in the permitted range, because the
 * correlator's rows have no other samples. */
static void follow_offset(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a)
{
    const double delay_samples = delay_in_samples(align, a), limit_samples = a->max_offset_samples;

    if (fabs(delay_samples - a->offset_samples) > MAX_DELAY_SAMPLES)
        a->offset_samples = (int32_t)lrint(fmin(fmax(delay_samples, -limit_samples), limit_samples));
}

bool gnss_antenna_is_late(const struct fgpu_gnss_align *align, const struct fgpu_gnss_antenna *a)
{
    return fabs(delay_in_samples(align, a)) > a->max_offset_samples + MAX_DELAY_SAMPLES;
}

void gnss_antenna_close_block(const struct fgpu_gnss_align *align, struct fgpu_gnss_antenna *a,
                              double reference_subchips)
{
    if (a != &align->ants[align->reference])
        follow_delay(align, a, reference_subchips);
    follow_offset(align, a);
    if (!gnss_antenna_is_aligned(a) && a->stage_s < RATE_S)
        find_rate(align, a);
    else
        follow_phase(a);
    a->stage_s += a->open_s;
}
