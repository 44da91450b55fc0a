/* check_gnss_grid - each kernel of the search against a model: bins against sums of integers, whose phases are 128-bit
 * integers, and the other kernels against direct sums in double precision.  The C versions and the CUDA variants run.
 * Guards are around all outputs. */
#include "kernels/gnss/gnss_grid.h"

#include "common/base/units.h"
#include "kernels/gnss/gnss_correlate.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"

#include <complex.h>
#include <math.h>

#define GUARD    64 /* number of values on both sides of an output */
#define POISON   -1234.5f
#define N_TRIALS 6
#define ACCURACY 2e-6 /* of a value, relative to the sum of the sizes of its terms */

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

/* An output in host memory, between guards. */
struct output {
    size_t n_bytes; /* without the guards */
    uint8_t *all;
    void *values; /* the values in 'all' */
};

static void output_init(struct output *o, size_t n_bytes)
{
    o->n_bytes = n_bytes;
    o->all = malloc(n_bytes + 2 * GUARD);
    o->values = o->all + GUARD;
    memset(o->all, 0x5a, n_bytes + 2 * GUARD);
}

static void output_fini(struct output *o)
{
    for (size_t i = 0; i < GUARD; i++)
        ck_assert(o->all[i] == 0x5a && o->all[GUARD + o->n_bytes + i] == 0x5a);
    free(o->all);
}

/* Returns the address of the output for a kernel. */
static void *output_at(struct test_device *d, const struct output *o)
{
    return d ? (uint8_t *)test_copy_in(d, o->all, o->n_bytes + 2 * GUARD) + GUARD : o->values;
}

static const void *input_at(struct test_device *d, const void *host, size_t bytes)
{
    return d ? test_copy_in(d, host, bytes) : host;
}

/* Runs a kernel's C version, or its CUDA variant on 'd' if 'd' is not NULL. */
static void run(struct test_device *d, const struct kernel *kernel, struct kernel_grid grid, const void *args)
{
    struct kernel_constant constants[GNSS_GRID_N_CONSTANTS];

    if (!d) {
        kernel->cpu(args, 1 + (int)random_below(3));
        return;
    }
    gnss_grid_constants(constants);
    test_kernel(d, kernel, constants, GNSS_GRID_N_CONSTANTS);
    test_launch(d, grid, args);
    device_stream_wait(d->stream);
}

static void fetch(struct test_device *d, struct output *o, const void *at)
{
    if (d)
        test_download(d, o->all, (const uint8_t *)at - GUARD, o->n_bytes + 2 * GUARD);
}

static float *random_floats(size_t n)
{
    float *values = malloc(n * sizeof(*values));

    for (size_t i = 0; i < n; i++)
        values[i] = (float)random_between(-100, 100);
    return values;
}

static void check_near(double complex value, double complex expected, double size, const char *what, size_t i)
{
    ck_assert_msg(cabs(value - expected) <= ACCURACY * size, "%s %zu: %g + %gi, not %g + %gi", what, i, creal(value),
                  cimag(value), creal(expected), cimag(expected));
}

static double complex at(const float *values, size_t i)
{
    return values[2 * i] + I * values[2 * i + 1];
}

/* ---- Bins -------------------------------------------------------------------------------------------------------- */

/* Adds all samples to the sums of their bins, [pol][row][bin][re, im]. */
static void model_bins(const struct gnss_grid_bins_args *a, int64_t *sums)
{
    const size_t n = (size_t)a->n_rows << a->bin_bits;

    for (uint32_t i = 0; i < a->n_samples; i++) {
        const unsigned __int128 phase = a->period_phase + (unsigned __int128)i * a->period_step;
        const size_t index = (size_t)(phase >> (64 - a->bin_bits));
        const int8_t *c = a->carrier + 2 * ((uint64_t)(a->carrier_phase + i * a->carrier_step) >> 56);
        for (size_t pol = 0; pol < N_POLS; pol++) {
            const int8_t *x = a->samples + 2 * (pol * a->pitch_samples + i);
            sums[2 * (pol * n + index)] += x[0] * c[0] + x[1] * c[1];
            sums[2 * (pol * n + index) + 1] += x[1] * c[0] - x[0] * c[1];
        }
    }
}

/* Phases in which a sample is exactly at the begin of a bin, the last unit before it, or anywhere. */
static uint64_t random_phase(uint32_t bin_bits)
{
    const uint64_t edge = (uint64_t)random_below((size_t)1 << bin_bits) << (64 - bin_bits);
    const uint64_t phases[] = {0, edge, edge - 1, random_u64()};

    return phases[random_below(ARRAY_LEN(phases))];
}

static void check_bins(struct test_device *d)
{
    int8_t carrier[2 * GNSS_CARRIER_ENTRIES];
    struct gnss_grid_bins_args a = {.n_rows = 1 + (uint32_t)random_below(4),
                                    .bin_bits = 8 + (uint32_t)random_below(3),
                                    .carrier_phase = random_u64(),
                                    .carrier_step = random_u64()};
    struct output rows;

    /* from samples that skip bins to bins of hundreds of samples; a step may also be the exact width of a bin */
    const double per_bin = exp2(random_between(-2, 8));
    a.period_step =
        random_below(3) ? (uint64_t)(0x1p64 / per_bin / exp2(a.bin_bits)) : UINT64_C(1) << (64 - a.bin_bits);
    a.period_phase = random_phase(a.bin_bits);
    const unsigned __int128 end = ((unsigned __int128)a.n_rows << 64) - a.period_phase;
    a.n_samples = (uint32_t)((end - 1) / a.period_step) + 1; /* as many as fit */
    if (random_below(2))
        a.n_samples = 1 + (uint32_t)random_below(a.n_samples);
    a.pitch_samples = a.n_samples + random_below(5);
    const size_t n_values = 2 * N_POLS * (size_t)a.n_rows << a.bin_bits, n_bytes = 2 * N_POLS * a.pitch_samples;
    int64_t *sums = calloc(n_values, sizeof(*sums));
    int8_t *samples = malloc(n_bytes);
    random_bytes(samples, n_bytes);
    gnss_carrier_table(carrier);
    a.samples = samples;
    a.carrier = carrier;
    model_bins(&a, sums);
    output_init(&rows, n_values * sizeof(float));
    a.samples = input_at(d, samples, n_bytes);
    a.carrier = input_at(d, carrier, sizeof(carrier));
    a.rows = output_at(d, &rows);
    run(d, &gnss_grid_bins_kernel, gnss_grid_bins_grid(&a), &a);
    fetch(d, &rows, a.rows);
    for (size_t i = 0; i < n_values; i++)
        ck_assert_msg(((float *)rows.values)[i] == (float)sums[i], "value %zu of %zu: %g, not %lld", i, n_values,
                      ((float *)rows.values)[i], (long long)sums[i]);
    output_fini(&rows);
    free(samples);
    free(sums);
}

/* ---- Dopplers ---------------------------------------------------------------------------------------------------- */

static void check_rotate(struct test_device *d)
{
    struct gnss_grid_rotate_args a = {.turns = random_between(-60, 60),
                                      .turns_step = random_between(-0.6, 0.6),
                                      .n_dopplers = 1 + (uint32_t)random_below(3),
                                      .n_rows = 1 + (uint32_t)random_below(22),
                                      .bin_bits = 8 + (uint32_t)random_below(2)};
    const size_t n_bins = (size_t)1 << a.bin_bits, n_row_values = 2 * N_POLS * a.n_rows * n_bins;
    float *rows = random_floats(n_row_values);
    struct output out;

    output_init(&out, N_POLS * a.n_dopplers * n_bins * 2 * sizeof(float));
    a.rows = input_at(d, rows, n_row_values * sizeof(*rows));
    a.out = output_at(d, &out);
    run(d, &gnss_grid_rotate_kernel, gnss_grid_rotate_grid(&a), &a);
    fetch(d, &out, a.out);
    for (size_t i = 0; i < N_POLS * a.n_dopplers * n_bins; i++) {
        const size_t bin = i % n_bins, pol = i / n_bins % N_POLS;
        const double turns = a.turns + (double)(i / n_bins / N_POLS) * a.turns_step;
        double complex sum = 0;
        for (size_t row = 0; row < a.n_rows; row++)
            sum += at(rows, (pol * a.n_rows + row) * n_bins + bin) *
                   cexp(-2 * M_PI * I * fmod(turns * ((double)row + (double)bin / (double)n_bins), 1));
        check_near(at(out.values, i), sum, 100.0 * a.n_rows, "bin", i);
    }
    output_fini(&out);
    free(rows);
}

static void check_multiply(struct test_device *d)
{
    struct gnss_grid_multiply_args a = {.n_transforms = 1 + (uint32_t)random_below(5), .bin_bits = 8};
    const size_t n_bins = (size_t)1 << a.bin_bits;
    float *in = random_floats(2 * a.n_transforms * n_bins), *replica = random_floats(2 * n_bins);
    struct output data;

    output_init(&data, 2 * a.n_transforms * n_bins * sizeof(*in));
    memcpy(data.values, in, data.n_bytes);
    a.data = output_at(d, &data);
    a.replica = input_at(d, replica, 2 * n_bins * sizeof(*replica));
    run(d, &gnss_grid_multiply_kernel, gnss_grid_multiply_grid(&a), &a);
    fetch(d, &data, a.data);
    for (size_t i = 0; i < a.n_transforms * n_bins; i++)
        check_near(at(data.values, i), at(in, i) * conj(at(replica, i % n_bins)), 2e4, "bin", i);
    output_fini(&data);
    free(replica);
    free(in);
}

/* ---- Powers ------------------------------------------------------------------------------------------------------ */

/* The launch has some Dopplers of a larger grid.  The powers of the other Dopplers must not change. */
static void check_powers(struct test_device *d)
{
    struct gnss_grid_powers_args a = {.moved = random_between(-2000, 2000),
                                      .moved_step = random_between(-300, 300),
                                      .n_dopplers = 1 + (uint32_t)random_below(4),
                                      .bin_bits = 8 + (uint32_t)random_below(5),
                                      .adds = random_below(2)};
    const size_t n_bins = (size_t)1 << a.bin_bits, n_slices = n_bins / GNSS_GRID_SLICE_BINS, first = random_below(3);
    const size_t n_dopplers = first + a.n_dopplers + random_below(3), n_cells = N_POLS * n_dopplers * n_bins;
    float *in = random_floats(2 * N_POLS * a.n_dopplers * n_bins), *before = random_floats(n_cells);
    struct output powers, sums;

    output_init(&powers, n_cells * sizeof(float));
    memcpy(powers.values, before, powers.n_bytes);
    output_init(&sums, N_POLS * n_dopplers * n_slices * sizeof(double));
    for (size_t i = 0; i < N_POLS * n_dopplers * n_slices; i++)
        ((double *)sums.values)[i] = POISON;
    a.in = input_at(d, in, 2 * N_POLS * a.n_dopplers * n_bins * sizeof(*in));
    a.powers = output_at(d, &powers);
    a.sums = output_at(d, &sums);
    a.powers += first * n_bins;
    a.sums += first * n_slices;
    a.pol_dopplers = (uint32_t)n_dopplers;
    run(d, &gnss_grid_powers_kernel, gnss_grid_powers_grid(&a), &a);
    fetch(d, &powers, a.powers - first * n_bins);
    fetch(d, &sums, a.sums - first * n_slices);
    for (size_t row = 0; row < N_POLS * n_dopplers; row++) {
        const size_t pol = row / n_dopplers, k = row % n_dopplers - first;
        const bool is_in = row % n_dopplers >= first && k < a.n_dopplers;
        const long moved = lround(a.moved + (double)k * a.moved_step);
        double sum = 0;
        for (size_t bin = 0; bin < n_bins; bin++) {
            const double power = (double)((float *)powers.values)[row * n_bins + bin];
            double expected = before[row * n_bins + bin];
            if (is_in) {
                const size_t from = (bin + (size_t)(moved + 4096 * 4096)) % n_bins;
                const double size = cabs(at(in, (k * N_POLS + pol) * n_bins + from));
                expected = (a.adds ? expected : 0) + size * size;
            }
            check_near(power, expected, is_in ? 2e4 : 0, "cell", row * n_bins + bin);
            sum += power;
            if (bin % GNSS_GRID_SLICE_BINS < GNSS_GRID_SLICE_BINS - 1)
                continue;
            const double found = ((double *)sums.values)[row * n_slices + bin / GNSS_GRID_SLICE_BINS];
            ck_assert_msg(is_in ? fabs(found - sum) < 1e-6 : found == (double)POISON, "slice: %.9g, not %.9g", found,
                          sum);
            sum = 0;
        }
    }
    output_fini(&powers);
    output_fini(&sums);
    free(before);
    free(in);
}

/* ---- Peaks ------------------------------------------------------------------------------------------------------- */

struct peaks {
    struct gnss_grid_peaks_args args;
    float *powers;
    double *sums, weights[N_POLS];
    uint32_t n_live;
};

/* Random powers, with several cells of the same largest power.  A polarisation may have only zeros. */
static void peaks_init(struct peaks *p, unsigned dead)
{
    p->args = (struct gnss_grid_peaks_args){
        .n_dopplers = 1 + (uint32_t)random_below(5), .bin_bits = 8 + (uint32_t)random_below(3), .n_blocks = 3};
    const size_t n_cells = (size_t)p->args.n_dopplers << p->args.bin_bits;

    p->powers = random_floats(N_POLS * n_cells);
    p->sums = calloc(N_POLS * n_cells / GNSS_GRID_SLICE_BINS, sizeof(*p->sums));
    p->n_live = 0;
    for (size_t pol = 0; pol < N_POLS; pol++) {
        double sum = 0;
        for (size_t i = 0; i < n_cells; i++) {
            float *power = &p->powers[pol * n_cells + i];
            *power = dead >> pol & 1 ? 0 : random_below(200) ? rintf(fabsf(*power)) : 100;
            p->sums[(pol * n_cells + i) / GNSS_GRID_SLICE_BINS] += *power;
            sum += *power;
        }
        p->weights[pol] = sum > 0 ? 3.0 * (double)n_cells / sum : 0;
        p->n_live += sum > 0;
    }
}

static double model_value(const struct peaks *p, long doppler, long bin)
{
    const long n_bins = 1 << p->args.bin_bits, n = (long)p->args.n_dopplers;
    const size_t cell = (size_t)(doppler * n_bins + (bin + n_bins) % n_bins);

    if (doppler < 0 || doppler >= n)
        return 0;
    return p->powers[cell] * p->weights[0] + p->powers[cell + (size_t)(n * n_bins)] * p->weights[1];
}

static void check_peaks(struct test_device *d, unsigned dead)
{
    struct peaks p;
    struct output peaks;

    peaks_init(&p, dead);
    struct gnss_grid_peaks_args *a = &p.args;
    const size_t n_cells = (size_t)a->n_dopplers << a->bin_bits;
    output_init(&peaks, a->n_dopplers * sizeof(struct gnss_grid_peak));
    a->powers = input_at(d, p.powers, N_POLS * n_cells * sizeof(float));
    a->sums = input_at(d, p.sums, N_POLS * n_cells / GNSS_GRID_SLICE_BINS * sizeof(double));
    a->peaks = output_at(d, &peaks);
    run(d, &gnss_grid_peaks_kernel, gnss_grid_peaks_grid(a), a);
    fetch(d, &peaks, a->peaks);
    for (long doppler = 0; doppler < a->n_dopplers; doppler++) {
        const struct gnss_grid_peak *peak = (const struct gnss_grid_peak *)peaks.values + doppler;
        long best = 0;
        for (long bin = 1; bin < 1 << a->bin_bits; bin++)
            if (model_value(&p, doppler, bin) > model_value(&p, doppler, best))
                best = bin;
        ck_assert_uint_eq(peak->bin, best);
        ck_assert_uint_eq(peak->n_live, p.n_live);
        ck_assert_double_eq_tol(peak->value, model_value(&p, doppler, best), 1e-9);
        ck_assert_double_eq_tol(peak->before, model_value(&p, doppler, best - 1), 1e-9);
        ck_assert_double_eq_tol(peak->behind, model_value(&p, doppler, best + 1), 1e-9);
        ck_assert_double_eq_tol(peak->slower, model_value(&p, doppler - 1, best), 1e-9);
        ck_assert_double_eq_tol(peak->faster, model_value(&p, doppler + 1, best), 1e-9);
    }
    output_fini(&peaks);
    free(p.powers);
    free(p.sums);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static void check_all(struct test_device *d, int kernel)
{
    for (unsigned trial = 0; trial < N_TRIALS; trial++)
        switch (kernel) {
        case 0: check_bins(d); break;
        case 1: check_rotate(d); break;
        case 2: check_multiply(d); break;
        case 3: check_powers(d); break;
        default: check_peaks(d, trial % 4); break;
        }
}

TEST(plain_c, .end = 5)
{
    check_all(NULL, _i);
}

TEST_ON_DEVICE(cuda, .end = 5)
{
    check_all(d, _i);
}

SUITE(.timeout_s = 60, .start = random_start);
