/* gnss_acquire.c - the search for a satellite's code phase and Doppler, before gnss_correlate.
 *
 * The samples of a block are summed in bins of code phase without Doppler.  So a block is a matrix [period][bin].  P is
 * the code period.  A Doppler f rotates an element by f P (period + bin / n_bins) turns.  So the search applies the
 * factor of the period first, and the factor of the bin later.  X and R are the transforms of the bins x and of the
 * real replica r.  Then
 *     FFT(X conj R)[d] = n_bins conj(sum over m of x[m] r[m + d])
 * So the forward transform also serves as the inverse transform. */
#include "kernels/gnss/gnss_acquire.h"

#include "common/base/units.h"
#include "kernels/gnss/gnss_correlate.h"
#include "kernels/util/clones.h"

#include <assert.h>
#include <errno.h>
#include <kiss_fft.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BINS_PER_CHIP 4 /* minimum number of bins per chip */

struct gnss_acquire {
    struct gnss_acquire_config config;
    uint32_t block_samples, n_rows; /* n_rows is n_periods + 1, because a block may begin within a period */
    uint32_t bin_bits;              /* n_bins = 2^bin_bits */
    size_t n_bins, n_dopplers;
    double period_s;
    uint64_t period_step;  /* advance of the code phase per sample, 2^-64 code periods */
    uint64_t carrier_step; /* advance of the carrier phase per sample, 2^-64 turns */
    int8_t carrier[2 * GNSS_CARRIER_ENTRIES];
    kiss_fft_cfg fft;
    kiss_fft_cpx *replica; /* [bin]: complex conjugate of the replica's Fourier transform */
    kiss_fft_cpx *rows;    /* [pol][row][bin]: bins of a block */
    kiss_fft_cpx *turns;   /* [bin]: factors that rotate the bins by one Doppler frequency */
    kiss_fft_cpx *work[2]; /* [bin]: input and output of the FFT */
    /* Sums over all samples since gnss_acquire_restart(). */
    float *powers; /* [pol][doppler][bin] */
    uint32_t n_blocks;
    double sum_middles_s;   /* sum over all blocks of the time at the block's middle */
    uint64_t sum_fractions; /* sum of the positions of all samples within their bins, in 2^-32 bins */
};

static double doppler_step_hz(const struct gnss_acquire_config *c)
{
    return c->facts->chip_rate_hz / c->facts->n_chips / c->n_periods / 2;
}

static double doppler_hz(const struct gnss_acquire *a, size_t doppler)
{
    return a->config.min_doppler_hz + ((double)doppler - 1) * doppler_step_hz(&a->config);
}

/* ---- Before the search ------------------------------------------------------------------------------------------- */

static void set_sizes(struct gnss_acquire *a, const struct gnss_acquire_config *c)
{
    a->config = *c;
    a->config.table = NULL;
    a->period_s = c->facts->n_chips / c->facts->chip_rate_hz;
    a->block_samples = (uint32_t)(c->n_periods * a->period_s * c->sample_rate_hz);
    a->n_rows = c->n_periods + 1;
    while ((UINT32_C(1) << a->bin_bits) < BINS_PER_CHIP * c->facts->n_chips)
        a->bin_bits++;
    a->n_bins = (size_t)1 << a->bin_bits;
    a->n_dopplers = (size_t)ceil((c->max_doppler_hz - c->min_doppler_hz) / doppler_step_hz(c)) + 3;
    a->period_step = gnss_carrier_turns(1 / (a->period_s * c->sample_rate_hz));
    a->carrier_step = gnss_carrier_turns(c->carrier_hz / c->sample_rate_hz);
    gnss_carrier_table(a->carrier);
}

/* Returns the integral of the table's levels from the table's start to 'subchips', which may have a fraction. */
static double table_integral(const double *sums, const int8_t *table, uint32_t n_subchips, double subchips)
{
    size_t whole = (size_t)fmin(subchips, n_subchips - 1);

    return sums[whole] + (subchips - (double)whole) * table[whole];
}

/* Computes the mean level of the code in each bin, and the Fourier transform of these means. */
static int make_replica(struct gnss_acquire *a, const int8_t *table, uint32_t n_subchips)
{
    double *sums = malloc(n_subchips * sizeof(*sums)), sum = 0, width = (double)n_subchips / (double)a->n_bins;

    if (!sums)
        return -ENOMEM;
    for (size_t i = 0; i < n_subchips; i++) {
        sums[i] = sum;
        sum += table[i];
    }
    for (size_t bin = 0; bin < a->n_bins; bin++) {
        double to = table_integral(sums, table, n_subchips, (double)(bin + 1) * width);
        double from = table_integral(sums, table, n_subchips, (double)bin * width);
        a->work[0][bin] = (kiss_fft_cpx){(float)((to - from) / width), 0};
    }
    free(sums);
    kiss_fft(a->fft, a->work[0], a->replica);
    for (size_t bin = 0; bin < a->n_bins; bin++)
        a->replica[bin].i = -a->replica[bin].i;
    return 0;
}

static size_t n_cells(const struct gnss_acquire *a)
{
    return a->n_dopplers * a->n_bins;
}

static int alloc_all(struct gnss_acquire *a)
{
    a->fft = kiss_fft_alloc((int)a->n_bins, 0, NULL, NULL);
    a->replica = calloc(a->n_bins, sizeof(*a->replica));
    a->rows = calloc(N_POLS * a->n_rows * a->n_bins, sizeof(*a->rows));
    a->turns = calloc(a->n_bins, sizeof(*a->turns));
    a->work[0] = calloc(a->n_bins, sizeof(*a->work[0]));
    a->work[1] = calloc(a->n_bins, sizeof(*a->work[1]));
    a->powers = calloc(N_POLS * n_cells(a), sizeof(*a->powers));
    return a->fft && a->replica && a->rows && a->turns && a->work[0] && a->work[1] && a->powers ? 0 : -ENOMEM;
}

int gnss_acquire_create(const struct gnss_acquire_config *config, struct gnss_acquire **acquire)
{
    struct gnss_acquire *a = calloc(1, sizeof(*a));
    int err;

    assert(config->n_periods > 0 && config->min_doppler_hz <= config->max_doppler_hz && config->false_alarm > 0);
    if (!a)
        return -ENOMEM;
    set_sizes(a, config);
    assert(a->block_samples > 0);
    err = alloc_all(a);
    if (!err)
        err = make_replica(a, config->table, config->n_subchips);
    if (err) {
        gnss_acquire_destroy(a);
        return err;
    }
    *acquire = a;
    return 0;
}

void gnss_acquire_destroy(struct gnss_acquire *a)
{
    if (!a)
        return;
    free(a->powers);
    free(a->work[1]);
    free(a->work[0]);
    free(a->turns);
    free(a->rows);
    free(a->replica);
    kiss_fft_free(a->fft);
    free(a);
}

uint32_t gnss_acquire_block_samples(const struct gnss_acquire *a)
{
    return a->block_samples;
}

void gnss_acquire_restart(struct gnss_acquire *a)
{
    memset(a->powers, 0, N_POLS * n_cells(a) * sizeof(*a->powers));
    a->n_blocks = 0;
    a->sum_middles_s = 0;
    a->sum_fractions = 0;
}

/* ---- A block ----------------------------------------------------------------------------------------------------- */

static void add_to_bin(kiss_fft_cpx *bin, const int8_t *x, int carrier_re, int carrier_im)
{
    bin->r += (float)(x[0] * carrier_re + x[1] * carrier_im);
    bin->i += (float)(x[1] * carrier_re - x[0] * carrier_im);
}

/* Removes the carrier, and sums the samples in bins. */
static void bin_samples(struct gnss_acquire *a, const int8_t *samples, uint64_t pitch_samples, uint64_t first)
{
    size_t row_bins = a->n_rows * a->n_bins, row = 0;
    uint64_t carrier = first * a->carrier_step, period = first * a->period_step;

    memset(a->rows, 0, N_POLS * row_bins * sizeof(*a->rows));
    for (size_t n = 0; n < a->block_samples; n++) {
        const int8_t *x = samples + 2 * n, *c = &a->carrier[2 * (carrier >> (64 - GNSS_CARRIER_BITS))];
        kiss_fft_cpx *bin = &a->rows[row + (period >> (64 - a->bin_bits))];
        add_to_bin(bin, x, c[0], c[1]);
        add_to_bin(bin + row_bins, x + 2 * pitch_samples, c[0], c[1]);
        a->sum_fractions += period << a->bin_bits >> 32;
        carrier += a->carrier_step;
        period += a->period_step;
        row += period < a->period_step ? a->n_bins : 0; /* here the next code period begins */
    }
}

/* Computes, for each bin, the factor that removes the rotation by one Doppler frequency. */
static void make_turns(struct gnss_acquire *a, double doppler_turns)
{
    double angle = -2 * M_PI * doppler_turns / (double)a->n_bins, step_re = cos(angle), step_im = sin(angle);
    double re = 1, im = 0;

    for (size_t bin = 0; bin < a->n_bins; bin++) {
        a->turns[bin] = (kiss_fft_cpx){(float)re, (float)im};
        double next_re = re * step_re - im * step_im;
        im = re * step_im + im * step_re;
        re = next_re;
    }
}

KERNEL_CLONES static void add_row(const kiss_fft_cpx *restrict row, float re, float im, size_t n,
                                  kiss_fft_cpx *restrict sum)
{
    for (size_t i = 0; i < n; i++) {
        sum[i].r += row[i].r * re - row[i].i * im;
        sum[i].i += row[i].r * im + row[i].i * re;
    }
}

KERNEL_CLONES static void multiply(const kiss_fft_cpx *restrict by, size_t n, kiss_fft_cpx *restrict x)
{
    for (size_t i = 0; i < n; i++) {
        float re = x[i].r * by[i].r - x[i].i * by[i].i;
        x[i].i = x[i].r * by[i].i + x[i].i * by[i].r;
        x[i].r = re;
    }
}

KERNEL_CLONES static void add_powers(const kiss_fft_cpx *restrict x, size_t n, float *restrict powers)
{
    for (size_t i = 0; i < n; i++)
        powers[i] += x[i].r * x[i].r + x[i].i * x[i].i;
}

/* Correlates a polarisation of the block, and adds the powers.  Since sample 0 the code has moved by 'moved' bins, so
 * the powers are shifted back by 'moved' bins. */
static void search_doppler(struct gnss_acquire *a, size_t pol, double doppler_turns, size_t moved, float *powers)
{
    memset(a->work[0], 0, a->n_bins * sizeof(*a->work[0]));
    for (size_t row = 0; row < a->n_rows; row++) {
        double angle = -2 * M_PI * doppler_turns * (double)row;
        add_row(a->rows + (pol * a->n_rows + row) * a->n_bins, (float)cos(angle), (float)sin(angle), a->n_bins,
                a->work[0]);
    }
    multiply(a->turns, a->n_bins, a->work[0]);
    kiss_fft(a->fft, a->work[0], a->work[1]);
    multiply(a->replica, a->n_bins, a->work[1]);
    kiss_fft(a->fft, a->work[1], a->work[0]);
    add_powers(a->work[0] + moved, a->n_bins - moved, powers);
    add_powers(a->work[0], moved, powers + a->n_bins - moved);
}

/* Returns the number of bins by which a Doppler frequency shifts the code during 'time_s'. */
static double bins_moved(const struct gnss_acquire *a, double doppler, double time_s)
{
    return doppler / a->config.facts->carrier_hz * time_s / a->period_s * (double)a->n_bins;
}

void gnss_acquire_add(struct gnss_acquire *a, const int8_t *samples, uint64_t pitch_samples, int64_t first)
{
    double middle_s = ((double)first + a->block_samples / 2.0) / a->config.sample_rate_hz;

    assert(first >= 0);
    bin_samples(a, samples, pitch_samples, (uint64_t)first);
    for (size_t i = 0; i < a->n_dopplers; i++) {
        double doppler = doppler_hz(a, i), turns = doppler * a->period_s * (a->config.is_inverted ? -1 : 1);
        size_t moved = (size_t)llround(bins_moved(a, doppler, middle_s)) & (a->n_bins - 1);
        make_turns(a, turns);
        for (size_t pol = 0; pol < N_POLS; pol++)
            search_doppler(a, pol, turns, moved, a->powers + (pol * a->n_dopplers + i) * a->n_bins);
    }
    a->n_blocks++;
    a->sum_middles_s += middle_s;
}

/* ---- The result -------------------------------------------------------------------------------------------------- */

/* Returns ln Q(n, t).  Q is the probability that a sum of n exponential powers of mean 1 exceeds t. */
static double log_tail(uint64_t n, double t)
{
    double sum = 1, term = 1, log_scale = 0;

    for (uint64_t j = 1; j < n; j++) {
        term *= t / (double)j;
        sum += term;
        if (sum > 1e200) {
            sum *= 1e-200;
            term *= 1e-200;
            log_scale += 200 * M_LN10;
        }
    }
    return log(sum) + log_scale - t;
}

/* Finds the threshold by bisection of an interval.  The upper end of the interval is from Laurent and Massart (2000),
 * lemma 1: Q(n, n + sqrt(2 n L) + L) <= e^-L. */
double gnss_acquire_threshold(uint64_t n_powers, uint64_t cells, double false_alarm)
{
    double log_wanted = log(false_alarm / (double)cells), n = (double)n_powers;
    double low = 0, high = n + sqrt(-2 * n * log_wanted) - log_wanted;

    assert(n_powers > 0 && log_wanted < 0);
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (log_tail(n_powers, middle) > log_wanted)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* Computes 1 / (noise power) of each polarisation, or 0 for a polarisation whose samples are all 0.  Returns the
 * number of polarisations with a sample other than 0. */
static uint32_t weigh(const struct gnss_acquire *a, double weights[N_POLS])
{
    uint32_t n_live = 0;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        double sum = 0;
        for (size_t i = 0; i < n_cells(a); i++)
            sum += a->powers[pol * n_cells(a) + i];
        weights[pol] = sum > 0 ? a->n_blocks * (double)n_cells(a) / sum : 0;
        n_live += sum > 0;
    }
    return n_live;
}

/* Returns the sum, over the polarisations, of a cell's power divided by the polarisation's noise power. */
static double cell_at(const struct gnss_acquire *a, const double weights[N_POLS], size_t doppler, size_t bin)
{
    const float *powers = a->powers + doppler * a->n_bins + (bin & (a->n_bins - 1));

    return powers[0] * weights[0] + powers[n_cells(a)] * weights[1];
}

/* Returns the position of the maximum of a parabola through three values, relative to the middle value: -1/2 to 1/2.
 * The middle value is the largest. */
static double top_between(double before, double middle, double behind)
{
    double curvature = 2 * middle - before - behind;

    return curvature > 0 ? (behind - before) / 2 / curvature : 0;
}

/* Interpolates the peak between a cell and its neighbours, and sets the result's Doppler and code phase.  The code
 * phase is the mean over all blocks. */
static void interpolate(const struct gnss_acquire *a, const double weights[N_POLS], size_t doppler, size_t bin,
                        struct gnss_acquired *result)
{
    double peak = cell_at(a, weights, doppler, bin), at, middle_s = a->sum_middles_s / a->n_blocks;
    double n_samples = (double)a->n_blocks * a->block_samples, in_bin = 0x1p-32 * (double)a->sum_fractions / n_samples;
    double between = 0;

    if (doppler > 0 && doppler < a->n_dopplers - 1)
        between = top_between(cell_at(a, weights, doppler - 1, bin), peak, cell_at(a, weights, doppler + 1, bin));
    result->doppler_hz = doppler_hz(a, doppler) + between * doppler_step_hz(&a->config);
    at = (double)bin + top_between(cell_at(a, weights, doppler, bin - 1), peak, cell_at(a, weights, doppler, bin + 1));
    at -= in_bin - 0.5; /* the replica's values are for the middles of the bins */
    at -= bins_moved(a, between * doppler_step_hz(&a->config), middle_s);
    result->code_phase = gnss_code_phase(at / (double)a->n_bins * a->config.n_subchips, a->config.n_subchips);
}

struct gnss_acquired gnss_acquire_find(const struct gnss_acquire *a)
{
    struct gnss_acquired result = {0};
    double weights[N_POLS], largest = 0;
    size_t doppler = 0, bin = 0;
    uint32_t n_live = weigh(a, weights);

    if (n_live == 0)
        return result;
    for (size_t i = 0; i < n_cells(a); i++) {
        double z = cell_at(a, weights, i / a->n_bins, i);
        if (z > largest) {
            largest = z;
            doppler = i / a->n_bins;
            bin = i % a->n_bins;
        }
    }
    uint64_t n_powers = (uint64_t)n_live * a->n_blocks;
    result.peak = largest / (double)n_powers;
    result.threshold = gnss_acquire_threshold(n_powers, n_cells(a), a->config.false_alarm) / (double)n_powers;
    result.is_found = result.peak > result.threshold;
    interpolate(a, weights, doppler, bin, &result);
    return result;
}
