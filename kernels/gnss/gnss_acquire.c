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
#include "common/device/device.h"
#include "kernels/gnss/gnss_correlate.h"
#include "kernels/gnss/gnss_grid.h"
#include "kernels/util/clones.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BINS_PER_CHIP 4 /* minimum number of bins per chip */
#define N_BIN_SIZES   32
#define N_TRANSFORMS  (GNSS_ACQUIRE_PASS * N_POLS)
#define COMPLEX_BYTES (2 * sizeof(float))

enum { BINS, ROTATE, MULTIPLY, POWERS, PEAKS, N_KERNELS };

struct gnss_acquirer {
    struct device *device;
    struct device_stream *stream;
    struct device_kernel *kernels[N_KERNELS];
    /* FFTs of 2^b points, for the sizes of the limits: all transforms of a pass, and the replica */
    struct device_fft *pass[N_BIN_SIZES], *single[N_BIN_SIZES];
    int8_t *carrier; /* device memory: table from gnss_carrier_table() */
    float *rows;     /* device memory: bins of a block, complex [pol][row][bin] */
    float *work[2];  /* device memory: input and output of FFTs, complex [doppler][pol][bin] */
};

struct gnss_acquire {
    struct device *device;
    struct gnss_acquirer *acquirer;
    struct gnss_acquire_limits limits;
    float *levels, *device_levels;               /* pinned and device memory: mean levels of the code, complex [bin] */
    float *replica;                              /* device memory: Fourier transform of the levels, complex [bin] */
    float *powers;                               /* device memory: sums over all blocks, [pol][doppler][bin] */
    double *sums;                                /* device memory: [pol][doppler][slice] */
    struct gnss_grid_peak *peaks, *device_peaks; /* pinned and device memory: [doppler] */
    struct gnss_acquire_config config;
    uint32_t block_samples, n_rows; /* n_rows is n_periods + 1, because a block may begin within a period */
    uint32_t bin_bits;              /* number of bins of a code period: 2^bin_bits */
    uint32_t n_dopplers;
    double period_s;
    uint64_t period_step;  /* advance of the code phase per sample, 2^-64 code periods */
    uint64_t carrier_step; /* advance of the carrier phase per sample, 2^-64 turns */
    /* Sums over all samples since gnss_acquire_begin() or gnss_acquire_restart(). */
    uint32_t n_blocks, n_finished; /* n_finished: number of blocks before the last gnss_acquire_finish() */
    double sum_middles_s;          /* sum over all blocks of the time at the block's middle */
    uint64_t sum_fractions;        /* sum of the positions of all samples within their bins, in 2^-32 bins */
};

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

static uint32_t bin_bits_of(const struct gnss_signal_facts *facts)
{
    uint32_t bits = 0;

    while ((UINT32_C(1) << bits) < BINS_PER_CHIP * facts->n_chips)
        bits++;
    return bits;
}

static double step_hz_of(const struct gnss_signal_facts *facts, uint32_t n_periods)
{
    return facts->chip_rate_hz / facts->n_chips / n_periods / 2;
}

static uint32_t n_dopplers_of(double range_hz, double step_hz)
{
    return (uint32_t)ceil(range_hz / step_hz) + 3;
}

static void raise_limit(uint64_t *limit, uint64_t value)
{
    *limit = value > *limit ? value : *limit;
}

/* One more Doppler than a search has: the search computes its range as a difference, which is rounded. */
void gnss_acquire_limits_add(struct gnss_acquire_limits *limits, const struct gnss_signal_facts *facts,
                             uint32_t n_periods, double range_hz)
{
    const uint32_t bits = bin_bits_of(facts), n_dopplers = n_dopplers_of(range_hz, step_hz_of(facts, n_periods)) + 1;
    const uint64_t n_cells = (uint64_t)n_dopplers << bits;

    limits->bin_sizes |= UINT32_C(1) << bits;
    raise_limit(&limits->max_row_bins, (uint64_t)(n_periods + 1) << bits);
    raise_limit(&limits->max_cells, n_cells);
    limits->max_dopplers = n_dopplers > limits->max_dopplers ? n_dopplers : limits->max_dopplers;
}

static uint64_t max_bins(const struct gnss_acquire_limits *limits)
{
    uint32_t bits = 0;

    while (limits->bin_sizes >> bits > 1)
        bits++;
    return UINT64_C(1) << bits;
}

static uint64_t work_bytes(const struct gnss_acquire_limits *limits)
{
    return N_TRANSFORMS * max_bins(limits) * COMPLEX_BYTES;
}

static uint64_t rows_bytes(const struct gnss_acquire_limits *limits)
{
    return N_POLS * limits->max_row_bins * COMPLEX_BYTES;
}

static uint64_t powers_bytes(const struct gnss_acquire_limits *limits)
{
    return N_POLS * limits->max_cells * sizeof(float);
}

static uint64_t sums_bytes(const struct gnss_acquire_limits *limits)
{
    return N_POLS * limits->max_cells / GNSS_GRID_SLICE_BINS * sizeof(double);
}

static uint64_t peaks_bytes(const struct gnss_acquire_limits *limits)
{
    return limits->max_dopplers * sizeof(struct gnss_grid_peak);
}

static uint64_t levels_bytes(const struct gnss_acquire_limits *limits)
{
    return max_bins(limits) * COMPLEX_BYTES;
}

/* For each number of points, cuFFT may need as much memory again as the transforms.  The sizes are powers of two, so
 * all sizes together need less than twice the memory of the largest size. */
uint64_t gnss_acquirer_device_bytes(const struct gnss_acquire_limits *limits)
{
    return 2 * GNSS_CARRIER_ENTRIES + rows_bytes(limits) + 4 * work_bytes(limits);
}

uint64_t gnss_acquire_device_bytes(const struct gnss_acquire_limits *limits)
{
    return 2 * levels_bytes(limits) + powers_bytes(limits) + sums_bytes(limits) + peaks_bytes(limits);
}

uint64_t gnss_acquire_pinned_bytes(const struct gnss_acquire_limits *limits, bool on_gpu)
{
    return device_pinned_bytes(levels_bytes(limits), on_gpu) + device_pinned_bytes(peaks_bytes(limits), on_gpu);
}

/* ---- Creation and destruction ------------------------------------------------------------------------------------ */

static int create_kernels(struct gnss_acquirer *b)
{
    static const struct kernel *const kernels[N_KERNELS] = {
        [BINS] = &gnss_grid_bins_kernel,         [ROTATE] = &gnss_grid_rotate_kernel,
        [MULTIPLY] = &gnss_grid_multiply_kernel, [POWERS] = &gnss_grid_powers_kernel,
        [PEAKS] = &gnss_grid_peaks_kernel,
    };
    struct kernel_constant constants[GNSS_GRID_N_CONSTANTS];
    int err = 0;

    gnss_grid_constants(constants);
    for (size_t i = 0; !err && i < N_KERNELS; i++)
        err = device_kernel_create(b->device, kernels[i], constants, GNSS_GRID_N_CONSTANTS, &b->kernels[i]);
    return err;
}

static int create_ffts(struct gnss_acquirer *b, uint32_t bin_sizes)
{
    int err = 0;

    for (size_t bits = 0; !err && bits < N_BIN_SIZES; bits++) {
        if (!(bin_sizes >> bits & 1))
            continue;
        err = device_fft_create(b->device, (size_t)1 << bits, N_TRANSFORMS, &b->pass[bits]);
        if (!err)
            err = device_fft_create(b->device, (size_t)1 << bits, 1, &b->single[bits]);
    }
    return err;
}

static int upload_carrier(struct gnss_acquirer *b)
{
    int8_t *carrier = device_alloc_pinned(b->device, 2 * GNSS_CARRIER_ENTRIES);

    if (!carrier)
        return -ENOMEM;
    gnss_carrier_table(carrier);
    int err = device_upload(b->device, b->carrier, carrier, 2 * GNSS_CARRIER_ENTRIES);
    device_free_pinned(b->device, carrier);
    return err;
}

static int init_acquirer(struct gnss_acquirer *b, const struct gnss_acquire_limits *limits)
{
    b->carrier = device_alloc(b->device, 2 * GNSS_CARRIER_ENTRIES);
    b->rows = device_alloc(b->device, rows_bytes(limits));
    b->work[0] = device_alloc(b->device, work_bytes(limits));
    b->work[1] = device_alloc(b->device, work_bytes(limits));
    if (!b->carrier || !b->rows || !b->work[0] || !b->work[1])
        return -ENOMEM;
    int err = create_kernels(b);
    if (!err)
        err = create_ffts(b, limits->bin_sizes);
    return err ? err : upload_carrier(b);
}

int gnss_acquirer_create(struct device_stream *stream, const struct gnss_acquire_limits *limits,
                         struct gnss_acquirer **acquirer)
{
    struct gnss_acquirer *b = calloc(1, sizeof(*b));

    if (!b)
        return -ENOMEM;
    b->device = stream->device;
    b->stream = stream;
    int err = init_acquirer(b, limits);
    if (err) {
        gnss_acquirer_destroy(b);
        return err;
    }
    *acquirer = b;
    return 0;
}

void gnss_acquirer_destroy(struct gnss_acquirer *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < N_KERNELS; i++)
        device_kernel_destroy(b->kernels[i]);
    for (size_t bits = 0; bits < N_BIN_SIZES; bits++) {
        device_fft_destroy(b->pass[bits]);
        device_fft_destroy(b->single[bits]);
    }
    device_free(b->device, b->carrier);
    device_free(b->device, b->rows);
    device_free(b->device, b->work[0]);
    device_free(b->device, b->work[1]);
    free(b);
}

static int alloc_all(struct gnss_acquire *a)
{
    struct device *device = a->device;
    const struct gnss_acquire_limits *limits = &a->limits;

    a->levels = device_alloc_pinned(device, levels_bytes(limits));
    a->device_levels = device_alloc(device, levels_bytes(limits));
    a->replica = device_alloc(device, levels_bytes(limits));
    a->powers = device_alloc(device, powers_bytes(limits));
    a->sums = device_alloc(device, sums_bytes(limits));
    a->peaks = device_alloc_pinned(device, peaks_bytes(limits));
    a->device_peaks = device_alloc(device, peaks_bytes(limits));
    return a->levels && a->device_levels && a->replica && a->powers && a->sums && a->peaks && a->device_peaks ? 0
                                                                                                              : -ENOMEM;
}

int gnss_acquire_create(struct gnss_acquirer *acquirer, const struct gnss_acquire_limits *limits,
                        struct gnss_acquire **acquire)
{
    struct gnss_acquire *a = calloc(1, sizeof(*a));

    if (!a)
        return -ENOMEM;
    a->device = acquirer->device;
    a->acquirer = acquirer;
    a->limits = *limits;
    int err = alloc_all(a);
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
    device_free_pinned(a->device, a->levels);
    device_free(a->device, a->device_levels);
    device_free(a->device, a->replica);
    device_free(a->device, a->powers);
    device_free(a->device, a->sums);
    device_free_pinned(a->device, a->peaks);
    device_free(a->device, a->device_peaks);
    free(a);
}

/* ---- Before the blocks ------------------------------------------------------------------------------------------- */

static size_t n_bins(const struct gnss_acquire *a)
{
    return (size_t)1 << a->bin_bits;
}

static double doppler_step_hz(const struct gnss_acquire *a)
{
    return step_hz_of(a->config.facts, a->config.n_periods);
}

static double doppler_hz(const struct gnss_acquire *a, size_t doppler)
{
    return a->config.min_doppler_hz + ((double)doppler - 1) * doppler_step_hz(a);
}

static void set_sizes(struct gnss_acquire *a, const struct gnss_acquire_config *c)
{
    a->config = *c;
    a->config.table = NULL;
    a->period_s = c->facts->n_chips / c->facts->chip_rate_hz;
    a->block_samples = (uint32_t)(c->n_periods * a->period_s * c->sample_rate_hz);
    a->n_rows = c->n_periods + 1;
    a->bin_bits = bin_bits_of(c->facts);
    a->n_dopplers = n_dopplers_of(c->max_doppler_hz - c->min_doppler_hz, doppler_step_hz(a));
    a->period_step = gnss_carrier_turns(1 / (a->period_s * c->sample_rate_hz));
    a->carrier_step = gnss_carrier_turns(c->carrier_hz / c->sample_rate_hz);
}

static bool fits(const struct gnss_acquire *a)
{
    const struct gnss_acquire_limits *l = &a->limits;

    return (l->bin_sizes >> a->bin_bits & 1) && a->n_dopplers <= l->max_dopplers &&
           (uint64_t)a->n_dopplers << a->bin_bits <= l->max_cells &&
           (uint64_t)a->n_rows << a->bin_bits <= l->max_row_bins;
}

/* Returns the mean level of a table between two positions, in sub-chips. */
static float mean_level(const int8_t *table, uint32_t n_subchips, double from, double to)
{
    double sum = 0;

    for (uint32_t i = (uint32_t)from; i < n_subchips && i < to; i++)
        sum += table[i] * (fmin(i + 1.0, to) - fmax(i, from));
    return (float)(sum / (to - from));
}

void gnss_acquire_begin(struct gnss_acquire *a, const struct gnss_acquire_config *c)
{
    struct gnss_acquirer *b = a->acquirer;

    assert(c->n_periods > 0 && c->min_doppler_hz <= c->max_doppler_hz && c->false_alarm > 0);
    set_sizes(a, c);
    assert(a->block_samples > 0 && fits(a));
    const double width = (double)c->n_subchips / (double)n_bins(a);
    for (size_t bin = 0; bin < n_bins(a); bin++) {
        a->levels[2 * bin] = mean_level(c->table, c->n_subchips, (double)bin * width, (double)(bin + 1) * width);
        a->levels[2 * bin + 1] = 0;
    }
    device_copy(b->stream, a->device_levels, a->levels, n_bins(a) * COMPLEX_BYTES);
    device_fft_run(b->stream, b->single[a->bin_bits], a->device_levels, a->replica);
    gnss_acquire_restart(a);
}

uint32_t gnss_acquire_block_samples(const struct gnss_acquire *a)
{
    return a->block_samples;
}

void gnss_acquire_restart(struct gnss_acquire *a)
{
    a->n_blocks = a->n_finished = 0;
    a->sum_middles_s = 0;
    a->sum_fractions = 0;
}

/* ---- A block ----------------------------------------------------------------------------------------------------- */

/* Removes the carrier, and sums the samples in bins. */
static void bin_samples(struct gnss_acquire *a, const int8_t *samples, uint64_t pitch_samples, uint64_t first)
{
    const struct gnss_grid_bins_args args = {
        .samples = samples,
        .pitch_samples = pitch_samples,
        .carrier = a->acquirer->carrier,
        .rows = a->acquirer->rows,
        .carrier_phase = first * a->carrier_step,
        .carrier_step = a->carrier_step,
        .period_phase = first * a->period_step,
        .period_step = a->period_step,
        .n_samples = a->block_samples,
        .n_rows = a->n_rows,
        .bin_bits = a->bin_bits,
    };
    const struct kernel_grid grid = gnss_grid_bins_grid(&args);

    device_launch(a->acquirer->stream, a->acquirer->kernels[BINS], &grid, &args);
}

/* Returns the number of bins by which a Doppler frequency shifts the code during 'time_s'. */
static double bins_moved(const struct gnss_acquire *a, double doppler, double time_s)
{
    return doppler / a->config.facts->carrier_hz * time_s / a->period_s * (double)n_bins(a);
}

/* Transforms the bins of a pass of Dopplers, which begins with 'doppler', and multiplies them by the replica.  The
 * FFTs always compute a whole pass, so the last pass may go beyond the last Doppler. */
static void correlate(struct gnss_acquire *a, uint32_t doppler)
{
    struct gnss_acquirer *b = a->acquirer;
    const double period_turns = a->period_s * (a->config.is_inverted ? -1 : 1);
    const struct gnss_grid_rotate_args rotate = {
        .rows = b->rows,
        .out = b->work[0],
        .turns = doppler_hz(a, doppler) * period_turns,
        .turns_step = doppler_step_hz(a) * period_turns,
        .n_dopplers = GNSS_ACQUIRE_PASS,
        .n_rows = a->n_rows,
        .bin_bits = a->bin_bits,
    };
    const struct gnss_grid_multiply_args multiply = {
        .data = b->work[1], .replica = a->replica, .n_transforms = N_TRANSFORMS, .bin_bits = a->bin_bits};
    const struct kernel_grid rotate_grid = gnss_grid_rotate_grid(&rotate),
                             multiply_grid = gnss_grid_multiply_grid(&multiply);

    device_launch(b->stream, b->kernels[ROTATE], &rotate_grid, &rotate);
    device_fft_run(b->stream, b->pass[a->bin_bits], b->work[0], b->work[1]);
    device_launch(b->stream, b->kernels[MULTIPLY], &multiply_grid, &multiply);
    device_fft_run(b->stream, b->pass[a->bin_bits], b->work[1], b->work[0]);
}

/* Adds the powers of a pass.  Since sample 0 the code has moved, so the powers are shifted back. */
static void add_powers(struct gnss_acquire *a, uint32_t doppler, double middle_s)
{
    const uint32_t n_slices = (uint32_t)(n_bins(a) / GNSS_GRID_SLICE_BINS);
    const struct gnss_grid_powers_args args = {
        .in = a->acquirer->work[0],
        .powers = a->powers + doppler * n_bins(a),
        .sums = a->sums + (size_t)doppler * n_slices,
        .moved = bins_moved(a, doppler_hz(a, doppler), middle_s),
        .moved_step = bins_moved(a, doppler_step_hz(a), middle_s),
        .n_dopplers = (uint32_t)least(a->n_dopplers - doppler, GNSS_ACQUIRE_PASS),
        .pol_dopplers = a->n_dopplers,
        .bin_bits = a->bin_bits,
        .adds = a->n_blocks > 0,
    };
    const struct kernel_grid grid = gnss_grid_powers_grid(&args);

    device_launch(a->acquirer->stream, a->acquirer->kernels[POWERS], &grid, &args);
}

/* Returns the sum of the positions of 'n' samples within their bins, in 2^-32 bins.  'step' is the advance per sample,
 * in 2^-64 bins. */
KERNEL_CLONES static uint64_t sum_fractions(uint64_t fraction, uint64_t step, uint32_t n)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (fraction + i * step) >> 32;
    return sum;
}

void gnss_acquire_add(struct gnss_acquire *a, const int8_t *samples, uint64_t pitch_samples, int64_t first)
{
    const double middle_s = ((double)first + a->block_samples / 2.0) / a->config.sample_rate_hz;
    const uint64_t bin_step = a->period_step << a->bin_bits;

    assert(first >= 0);
    bin_samples(a, samples, pitch_samples, (uint64_t)first);
    for (uint32_t doppler = 0; doppler < a->n_dopplers; doppler += GNSS_ACQUIRE_PASS) {
        correlate(a, doppler);
        add_powers(a, doppler, middle_s);
    }
    a->n_blocks++;
    a->sum_middles_s += middle_s;
    a->sum_fractions += sum_fractions((uint64_t)first * bin_step, bin_step, a->block_samples);
}

void gnss_acquire_finish(struct gnss_acquire *a)
{
    const struct gnss_grid_peaks_args args = {.powers = a->powers,
                                              .sums = a->sums,
                                              .peaks = a->device_peaks,
                                              .n_dopplers = a->n_dopplers,
                                              .bin_bits = a->bin_bits,
                                              .n_blocks = a->n_blocks};
    const struct kernel_grid grid = gnss_grid_peaks_grid(&args);

    a->n_finished = a->n_blocks;
    if (a->n_blocks == 0)
        return;
    device_launch(a->acquirer->stream, a->acquirer->kernels[PEAKS], &grid, &args);
    device_copy(a->acquirer->stream, a->peaks, a->device_peaks, a->n_dopplers * sizeof(*a->peaks));
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

/* Returns the position of the maximum of a parabola through three values, relative to the middle value: -1/2 to 1/2.
 * The middle value is the largest. */
static double top_between(double before, double middle, double behind)
{
    double curvature = 2 * middle - before - behind;

    return curvature > 0 ? (behind - before) / 2 / curvature : 0;
}

/* Interpolates a peak between its cell and the cell's neighbours, and sets the result's Doppler and code phase.  The
 * code phase is the mean over all blocks. */
static void interpolate(const struct gnss_acquire *a, size_t doppler, struct gnss_acquired *result)
{
    const struct gnss_grid_peak *p = &a->peaks[doppler];
    double n_samples = (double)a->n_blocks * a->block_samples, in_bin = 0x1p-32 * (double)a->sum_fractions / n_samples;
    double between = 0, middle_s = a->sum_middles_s / a->n_blocks;

    if (doppler > 0 && doppler < a->n_dopplers - 1)
        between = top_between(p->slower, p->value, p->faster);
    result->doppler_hz = doppler_hz(a, doppler) + between * doppler_step_hz(a);
    double at = p->bin + top_between(p->before, p->value, p->behind);
    at -= in_bin - 0.5; /* the replica's values are for the middles of the bins */
    at -= bins_moved(a, between * doppler_step_hz(a), middle_s);
    result->code_phase = gnss_code_phase(at / (double)n_bins(a) * a->config.n_subchips, a->config.n_subchips);
}

struct gnss_acquired gnss_acquire_find(const struct gnss_acquire *a)
{
    struct gnss_acquired result = {0};
    size_t best = 0;

    assert(a->n_finished == a->n_blocks);
    if (a->n_blocks == 0 || a->peaks[0].n_live == 0)
        return result;
    for (size_t i = 1; i < a->n_dopplers; i++)
        if (a->peaks[i].value > a->peaks[best].value)
            best = i;
    uint64_t n_powers = (uint64_t)a->peaks[0].n_live * a->n_blocks;
    result.peak = a->peaks[best].value / (double)n_powers;
    result.threshold =
        gnss_acquire_threshold(n_powers, a->n_dopplers * n_bins(a), a->config.false_alarm) / (double)n_powers;
    result.is_found = result.peak > result.threshold;
    interpolate(a, best, &result);
    return result;
}
