/* check_beam_incoherent - powers of the C version and of the CUDA variant, against sums of integers.  Both give the
 * same bits.  Cases: windows that begin and end anywhere, all products and formats, groups of channels, absent
 * antennas, weights of 0, and the largest allowed powers. */
#include "kernels/beamform/beam_incoherent.h"

#include "common/base/units.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_voltages.h"

#define N_BATCHES 3
#define GUARD     0x5a5a5a5a5a5a
#define MAX_POWER (INT64_C(1) << 61)

/* The windows' spectra and number, and how far behind the first spectrum they begin (before it, if negative). */
static const struct {
    uint32_t n_ants, n_chan, n_spectra, group_channels, window_spectra, n_windows;
    int begin;
} sizes[] = {{1, 1, 16, 1, 1, 48, 0},    {2, 4, 32, 2, 7, 11, 5},   {3, 2, 64, 2, 64, 2, 64},
             {5, 3, 144, 1, 37, 12, -9}, {16, 8, 128, 8, 48, 6, 3}, {33, 2, 40, 1, 16, 9, -30},
             {80, 6, 256, 3, 256, 3, 0}, {127, 1, 48, 1, 9, 16, 0}, {256, 5, 16, 5, 4096, 1, -7},
             {1024, 2, 16, 1, 3, 16, 1}};
static const enum voltage_format formats[] = {VOLTAGES_8_BITS, VOLTAGES_4_BITS, VOLTAGES_4_BITS_OFFSET};
static const enum beam_products products[] = {BEAM_STOKES, BEAM_TOTAL, BEAM_POWER_0, BEAM_POWER_1};

struct work {
    struct beam_incoherent_args args;
    size_t n_voltages, n_powers; /* n_voltages in bytes */
    uint8_t *voltages;
    struct beam_incoherent_weights *weights;
    int64_t *powers;
};

/* Random weights, some of them 0; or all as large as may be, of voltages of the largest magnitude. */
static void choose_values(struct work *w, bool is_extreme)
{
    const struct beam_incoherent_args *a = &w->args;
    int64_t most = MAX_POWER / (2 * 2 * 128 * 128) / a->n_ants / a->window_spectra / a->group_channels;
    size_t heap_bytes = w->n_voltages / N_BATCHES / a->n_ants;

    most = most < INT32_MAX ? most : INT32_MAX;
    random_bytes(w->voltages, w->n_voltages);
    for (size_t heap = 0; heap < (size_t)N_BATCHES * a->n_ants; heap++)
        if (random_below(8) == 0) /* absent */
            memset(w->voltages + heap * heap_bytes, voltage_zero(a->format), heap_bytes);
    if (is_extreme)
        memset(w->voltages, a->format == VOLTAGES_8_BITS ? 0x80 : voltage_zero(a->format) ^ 0x88, w->n_voltages);
    for (size_t ant = 0; ant < a->n_ants; ant++) {
        int32_t values[3];
        for (size_t i = 0; i < 3; i++)
            values[i] = (int32_t)(is_extreme ? (size_t)most : random_below(5) * random_below((size_t)most / 4));
        w->weights[ant] = (struct beam_incoherent_weights){values[0], values[1], values[2], 0};
    }
}

static void work_init(struct work *w, size_t size, enum voltage_format format, enum beam_products wanted,
                      bool is_extreme)
{
    const struct beam_incoherent_args args = {
        .format = format,
        .products = wanted,
        .first_spectrum = (random_u64() >> 16) + 100,
        .n_ants = sizes[size].n_ants,
        .n_chan = sizes[size].n_chan,
        .n_spectra = sizes[size].n_spectra,
        .first_batch = 1,
        .n_batches = N_BATCHES - 1,
        .n_windows = sizes[size].n_windows,
        .window_spectra = sizes[size].window_spectra,
        .group_channels = sizes[size].group_channels,
    };

    *w = (struct work){
        .args = args,
        .n_voltages = (size_t)N_BATCHES * args.n_ants * args.n_chan * args.n_spectra * N_POLS * voltage_bytes(format),
        .n_powers = (size_t)args.n_windows * beam_n_products(wanted) * args.n_chan / args.group_channels,
    };
    w->args.first = args.first_spectrum + args.n_spectra + (uint64_t)(int64_t)sizes[size].begin;
    w->voltages = malloc(w->n_voltages);
    w->weights = malloc(args.n_ants * sizeof(*w->weights));
    w->powers = malloc((w->n_powers + 1) * sizeof(*w->powers));
    choose_values(w, is_extreme);
    for (size_t i = 0; i <= w->n_powers; i++)
        w->powers[i] = GUARD;
}

static void work_fini(struct work *w)
{
    free(w->voltages);
    free(w->weights);
    free(w->powers);
}

/* The products of a sample: x y xy of |X|^2, |Y|^2, and Stokes parameters. */
static void sample(const struct work *w, size_t batch, size_t ant, size_t chan, size_t s, int64_t all[6])
{
    const struct beam_incoherent_args *a = &w->args;
    size_t at = (((batch * a->n_ants + ant) * a->n_chan + chan) * a->n_spectra + s) * N_POLS;
    int64_t v[4];

    for (size_t i = 0; i < 4; i++)
        v[i] = (int64_t)voltage_part(w->voltages, a->format, at + i / 2, i % 2);
    int64_t xx = w->weights[ant].x * (v[0] * v[0] + v[1] * v[1]), yy = w->weights[ant].y * (v[2] * v[2] + v[3] * v[3]);
    all[0] = xx;
    all[1] = yy;
    all[2] = xx + yy;
    all[3] = xx - yy;
    all[4] = INT64_C(2) * w->weights[ant].xy * (v[0] * v[2] + v[1] * v[3]);
    all[5] = INT64_C(2) * w->weights[ant].xy * (v[1] * v[2] - v[0] * v[3]);
}

/* Adds up in 'powers' what the kernel must add. */
static void model(const struct work *w, int64_t *powers)
{
    const struct beam_incoherent_args *a = &w->args;
    size_t n = beam_n_products(a->products), n_groups = a->n_chan / a->group_channels;
    size_t first = a->products == BEAM_POWER_0 ? 0 : a->products == BEAM_POWER_1 ? 1 : 2;

    for (size_t i = 0; i < (size_t)a->n_batches * a->n_spectra * a->n_chan * a->n_ants; i++) {
        size_t ant = i % a->n_ants, chan = i / a->n_ants % a->n_chan, at = i / a->n_ants / a->n_chan;
        size_t batch = 1 + at / a->n_spectra, s = at % a->n_spectra;
        int64_t from = (int64_t)(a->first_spectrum + batch * a->n_spectra + s - a->first), all[6];
        if (from < 0 || from >= (int64_t)a->n_windows * a->window_spectra)
            continue;
        sample(w, batch, ant, chan, s, all);
        for (size_t p = 0; p < n; p++)
            powers[((size_t)from / a->window_spectra * n + p) * n_groups + chan / a->group_channels] += all[first + p];
    }
}

static void run_plain_c(struct work *w)
{
    w->args.voltages = w->voltages;
    w->args.weights = w->weights;
    w->args.powers = w->powers;
    beam_incoherent_kernel.cpu(&w->args, 1 + (int)random_below(3));
}

static void check_plain_c(size_t size, enum voltage_format format, enum beam_products wanted, bool is_extreme)
{
    struct work w;

    work_init(&w, size, format, wanted, is_extreme);
    int64_t *powers = malloc((w.n_powers + 1) * sizeof(*powers)), largest = 0;
    memcpy(powers, w.powers, (w.n_powers + 1) * sizeof(*powers));
    model(&w, powers);
    run_plain_c(&w);
    for (size_t i = 0; i <= w.n_powers; i++) {
        ck_assert_msg(w.powers[i] == powers[i], "power %zu of %zu: %lld, not %lld", i, w.n_powers,
                      (long long)w.powers[i], (long long)powers[i]);
        largest = powers[i] > largest ? powers[i] : largest;
    }
    ck_assert(largest <= MAX_POWER + GUARD && (largest > GUARD || !is_extreme)); /* weights may be 0 */
    free(powers);
    work_fini(&w);
}

/* Both variants begin with the same powers, and so end with them. */
static void check_cuda(const struct test_device *d, size_t size, enum voltage_format format, enum beam_products wanted,
                       bool is_extreme)
{
    struct kernel_constant constants[BEAM_INCOHERENT_N_CONSTANTS];
    struct device_kernel *kernel;
    struct work w;

    work_init(&w, size, format, wanted, is_extreme);
    struct beam_incoherent_args args = w.args;
    size_t powers_bytes = (w.n_powers + 1) * sizeof(*w.powers), weights_bytes = args.n_ants * sizeof(*w.weights);
    int64_t *powers = malloc(powers_bytes);
    args.voltages = test_upload(d, w.voltages, w.n_voltages, w.n_voltages);
    args.weights = test_upload(d, w.weights, weights_bytes, weights_bytes);
    args.powers = test_upload(d, w.powers, powers_bytes, powers_bytes);
    beam_incoherent_constants(&args, constants);
    ck_assert_int_eq(
        device_kernel_create(d->device, &beam_incoherent_kernel, constants, BEAM_INCOHERENT_N_CONSTANTS, &kernel), 0);
    struct kernel_grid grid = beam_incoherent_grid(&args);
    device_launch(d->stream, kernel, &grid, &args);
    test_download(d, powers, args.powers, powers_bytes);
    run_plain_c(&w);
    for (size_t i = 0; i <= w.n_powers; i++)
        ck_assert_msg(powers[i] == w.powers[i], "power %zu of %zu: %lld, not %lld", i, w.n_powers, (long long)powers[i],
                      (long long)w.powers[i]);
    device_kernel_destroy(kernel);
    device_free(d->device, (void *)args.voltages);
    device_free(d->device, (void *)args.weights);
    device_free(d->device, args.powers);
    free(powers);
    work_fini(&w);
}

TEST(plain_c, .end = 6 * ARRAY_LEN(sizes))
{
    check_plain_c((size_t)_i / 6, formats[_i % 3], products[(_i + _i / 6) % 4], false);
}

TEST(plain_c_largest, .end = 3 * ARRAY_LEN(sizes))
{
    check_plain_c((size_t)_i / 3, formats[_i % 3], products[_i % 2], true);
}

TEST(cuda, .end = 3 * ARRAY_LEN(sizes))
{
    struct test_device d;

    if (!test_device_open(&d))
        return;
    check_cuda(&d, (size_t)_i / 3, formats[_i % 3], products[_i % 4], false);
    test_device_close(&d);
}

TEST(cuda_largest, .end = ARRAY_LEN(formats))
{
    struct test_device d;

    if (!test_device_open(&d))
        return;
    check_cuda(&d, 4, formats[_i], BEAM_STOKES, true);
    test_device_close(&d);
}

SUITE(.timeout_s = 60, .start = random_start);
