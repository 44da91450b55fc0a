/* gnss_grid.c - plain C versions of the kernels that search for a satellite, in the order in which gnss_acquire.c
 * launches them. */
#include "kernels/gnss/gnss_grid.h"

#include "common/base/units.h"
#include "kernels/gnss/gnss_correlate.h"
#include "kernels/util/clones.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- Bins -------------------------------------------------------------------------------------------------------- */

/* Sums the samples of one bin in both polarisations. */
static void sum_bin(const struct gnss_grid_bins_args *a, uint64_t index, uint64_t n_rows_bins)
{
    const uint32_t from = gnss_grid_first_sample(a, index), end = gnss_grid_first_sample(a, index + 1);
    uint64_t phase = a->carrier_phase + from * a->carrier_step;
    int32_t sums[N_POLS][2] = {{0}};

    for (uint32_t n = from; n < end; n++, phase += a->carrier_step) {
        const int8_t *c = a->carrier + 2 * (phase >> (64 - GNSS_CARRIER_BITS));
        for (size_t pol = 0; pol < N_POLS; pol++) {
            const int8_t *x = a->samples + 2 * (pol * a->pitch_samples + n);
            sums[pol][0] += x[0] * c[0] + x[1] * c[1];
            sums[pol][1] += x[1] * c[0] - x[0] * c[1];
        }
    }
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t part = 0; part < 2; part++)
            a->rows[2 * (pol * n_rows_bins + index) + part] = (float)sums[pol][part];
}

static void gnss_grid_bins_cpu(const void *args, int n_threads)
{
    const struct gnss_grid_bins_args *a = args;
    const uint64_t n = (uint64_t)a->n_rows << a->bin_bits;

#pragma omp parallel for num_threads(n_threads)
    for (uint64_t index = 0; index < n; index++)
        sum_bin(a, index, n);
}

/* ---- Dopplers ---------------------------------------------------------------------------------------------------- */

KERNEL_CLONES static void add_row(const float *restrict row, float re, float im, size_t n, float *restrict sum)
{
    for (size_t i = 0; i < n; i++) {
        sum[2 * i] += row[2 * i] * re - row[2 * i + 1] * im;
        sum[2 * i + 1] += row[2 * i] * im + row[2 * i + 1] * re;
    }
}

/* Rotates the bins of both polarisations.  The factor advances in double precision. */
static void rotate_bins(double turns, size_t n_bins, float *out)
{
    const double angle = -2 * M_PI * turns / (double)n_bins, step_re = cos(angle), step_im = sin(angle);
    double re = 1, im = 0;

    for (size_t bin = 0; bin < n_bins; bin++) {
        for (size_t pol = 0; pol < N_POLS; pol++) {
            float *x = out + 2 * (pol * n_bins + bin), before = x[0];
            x[0] = before * (float)re - x[1] * (float)im;
            x[1] = before * (float)im + x[1] * (float)re;
        }
        const double next_re = re * step_re - im * step_im;
        im = re * step_im + im * step_re;
        re = next_re;
    }
}

static void rotate_doppler(const struct gnss_grid_rotate_args *a, double turns, float *out)
{
    const size_t n_bins = (size_t)1 << a->bin_bits;

    memset(out, 0, N_POLS * n_bins * 2 * sizeof(*out));
    for (size_t row = 0; row < a->n_rows; row++) {
        const double angle = -2 * M_PI * turns * (double)row;
        for (size_t pol = 0; pol < N_POLS; pol++)
            add_row(a->rows + 2 * (pol * a->n_rows + row) * n_bins, (float)cos(angle), (float)sin(angle), n_bins,
                    out + 2 * pol * n_bins);
    }
    rotate_bins(turns, n_bins, out);
}

static void gnss_grid_rotate_cpu(const void *args, int n_threads)
{
    const struct gnss_grid_rotate_args *a = args;

#pragma omp parallel for num_threads(n_threads)
    for (uint32_t d = 0; d < a->n_dopplers; d++)
        rotate_doppler(a, a->turns + d * a->turns_step, a->out + ((size_t)2 * N_POLS * d << a->bin_bits));
}

/* ---- Correlation ------------------------------------------------------------------------------------------------- */

KERNEL_CLONES static void multiply(const float *restrict by, size_t n, float *restrict x)
{
    for (size_t i = 0; i < n; i++) {
        const float re = x[2 * i] * by[2 * i] + x[2 * i + 1] * by[2 * i + 1];
        x[2 * i + 1] = x[2 * i + 1] * by[2 * i] - x[2 * i] * by[2 * i + 1];
        x[2 * i] = re;
    }
}

static void gnss_grid_multiply_cpu(const void *args, int n_threads)
{
    const struct gnss_grid_multiply_args *a = args;

#pragma omp parallel for num_threads(n_threads)
    for (uint32_t k = 0; k < a->n_transforms; k++)
        multiply(a->replica, (size_t)1 << a->bin_bits, a->data + ((size_t)2 * k << a->bin_bits));
}

/* ---- Powers ------------------------------------------------------------------------------------------------------ */

KERNEL_CLONES static void add_powers(const float *restrict x, size_t n, float *restrict powers)
{
    for (size_t i = 0; i < n; i++)
        powers[i] += x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1];
}

static double sum_slice(const float *powers)
{
    double sum = 0;

    for (size_t i = 0; i < GNSS_GRID_SLICE_BINS; i++)
        sum += powers[i];
    return sum;
}

static void powers_of(const struct gnss_grid_powers_args *a, size_t pol, size_t d)
{
    const size_t n_bins = (size_t)1 << a->bin_bits, n_slices = n_bins / GNSS_GRID_SLICE_BINS;
    const size_t moved = (size_t)llround(a->moved + (double)d * a->moved_step) & (n_bins - 1);
    const float *x = a->in + 2 * (d * N_POLS + pol) * n_bins;
    float *powers = a->powers + (pol * a->pol_dopplers + d) * n_bins;
    double *sums = a->sums + (pol * a->pol_dopplers + d) * n_slices;

    if (!a->adds)
        memset(powers, 0, n_bins * sizeof(*powers));
    add_powers(x + 2 * moved, n_bins - moved, powers);
    add_powers(x, moved, powers + n_bins - moved);
    for (size_t s = 0; s < n_slices; s++)
        sums[s] = sum_slice(powers + s * GNSS_GRID_SLICE_BINS);
}

static void gnss_grid_powers_cpu(const void *args, int n_threads)
{
    const struct gnss_grid_powers_args *a = args;

#pragma omp parallel for num_threads(n_threads)
    for (size_t i = 0; i < (size_t)N_POLS * a->n_dopplers; i++)
        powers_of(a, i % N_POLS, i / N_POLS);
}

/* ---- Peaks ------------------------------------------------------------------------------------------------------- */

/* Computes 1 / (noise power) of each polarisation, or 0 for a polarisation whose powers are all 0.  Returns the number
 * of polarisations with a power other than 0. */
static uint32_t weigh(const struct gnss_grid_peaks_args *a, double weights[N_POLS])
{
    const size_t n_cells = (size_t)a->n_dopplers << a->bin_bits, n_sums = n_cells / GNSS_GRID_SLICE_BINS;
    uint32_t n_live = 0;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        double sum = 0;
        for (size_t i = 0; i < n_sums; i++)
            sum += a->sums[pol * n_sums + i];
        weights[pol] = sum > 0 ? a->n_blocks * (double)n_cells / sum : 0;
        n_live += sum > 0;
    }
    return n_live;
}

static double value_of(const struct gnss_grid_peaks_args *a, const double weights[N_POLS], size_t doppler, size_t bin)
{
    const size_t n_bins = (size_t)1 << a->bin_bits;
    const float *powers = a->powers + doppler * n_bins + (bin & (n_bins - 1));

    return powers[0] * weights[0] + powers[a->n_dopplers * n_bins] * weights[1];
}

static void find_peak(const struct gnss_grid_peaks_args *a, const double weights[N_POLS], size_t d,
                      struct gnss_grid_peak *peak)
{
    size_t best = 0;

    peak->value = -1;
    for (size_t bin = 0; bin < (size_t)1 << a->bin_bits; bin++) {
        const double value = value_of(a, weights, d, bin);
        if (value > peak->value) {
            peak->value = value;
            best = bin;
        }
    }
    peak->bin = (uint32_t)best;
    peak->before = value_of(a, weights, d, best - 1);
    peak->behind = value_of(a, weights, d, best + 1);
    peak->slower = d > 0 ? value_of(a, weights, d - 1, best) : 0;
    peak->faster = d + 1 < a->n_dopplers ? value_of(a, weights, d + 1, best) : 0;
}

static void gnss_grid_peaks_cpu(const void *args, int n_threads)
{
    const struct gnss_grid_peaks_args *a = args;
    double weights[N_POLS];
    const uint32_t n_live = weigh(a, weights);

#pragma omp parallel for num_threads(n_threads)
    for (uint32_t d = 0; d < a->n_dopplers; d++) {
        find_peak(a, weights, d, &a->peaks[d]);
        a->peaks[d].n_live = n_live;
    }
}

/* ---- The CUDA variants ------------------------------------------------------------------------------------------- */

#define N_THREADS 256 /* gnss_grid_peaks has a warp for each Doppler, the other kernels have 256 threads in a block */
#define WARP      32

#define GRID_KERNEL(step)                                                                                              \
    const struct kernel gnss_grid_##step##_kernel = {.name = "gnss_grid_" #step,                                       \
                                                     .args_bytes = sizeof(struct gnss_grid_##step##_args),             \
                                                     .cpu = gnss_grid_##step##_cpu}

GRID_KERNEL(bins);
GRID_KERNEL(rotate);
GRID_KERNEL(multiply);
GRID_KERNEL(powers);
GRID_KERNEL(peaks);

void gnss_grid_constants(struct kernel_constant *constants)
{
    constants[0] = (struct kernel_constant){"N_THREADS", N_THREADS};
}

/* Returns the number of blocks in which each bin of 2^bin_bits bins has a thread. */
static uint32_t blocks_of(uint32_t bin_bits)
{
    assert(bin_bits < 32 && UINT32_C(1) << bin_bits >= GNSS_GRID_SLICE_BINS);
    return (UINT32_C(1) << bin_bits) / N_THREADS;
}

struct kernel_grid gnss_grid_bins_grid(const struct gnss_grid_bins_args *args)
{
    return (struct kernel_grid){.blocks = {args->n_rows * blocks_of(args->bin_bits), 1, 1}, .threads = N_THREADS};
}

struct kernel_grid gnss_grid_rotate_grid(const struct gnss_grid_rotate_args *args)
{
    return (struct kernel_grid){.blocks = {blocks_of(args->bin_bits), args->n_dopplers, N_POLS},
                                .threads = N_THREADS,
                                .shared_bytes = args->n_rows * 2 * (uint32_t)sizeof(float)};
}

struct kernel_grid gnss_grid_multiply_grid(const struct gnss_grid_multiply_args *args)
{
    return (struct kernel_grid){.blocks = {blocks_of(args->bin_bits), args->n_transforms, 1}, .threads = N_THREADS};
}

struct kernel_grid gnss_grid_powers_grid(const struct gnss_grid_powers_args *args)
{
    const uint32_t n_slices = (UINT32_C(1) << args->bin_bits) / GNSS_GRID_SLICE_BINS, n_warps = N_THREADS / WARP;

    return (struct kernel_grid){.blocks = {(n_slices + n_warps - 1) / n_warps, args->n_dopplers, N_POLS},
                                .threads = N_THREADS};
}

struct kernel_grid gnss_grid_peaks_grid(const struct gnss_grid_peaks_args *args)
{
    return (struct kernel_grid){.blocks = {args->n_dopplers, 1, 1}, .threads = WARP};
}
