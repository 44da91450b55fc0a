/* bench_beam.c - measures the rates of the beamformer on a device, and compares them with the device's limits.
 *
 * Usage: bench_beam [--device auto|cpu|cuda] [--antennas N[,N...]] [--beams N[,N...]] [--channels N] [--bits 4|8]
 *                   [--repetitions N] [--once]
 *   --channels: number of channels; by default the voltages take 2^29 bytes, or less on the cpu device.
 *   --once:     no timing: runs each size once to warm up and once more, for a profiler.
 *
 * Each run has 4 batches of 256 spectra, random voltages, and dither.  Beams of both polarisations alternate.  A run
 * computes the coefficients and then forms the beams of all 1024 spectra.  A jones is a pair of samples: both
 * polarisations of one antenna in one channel.  A Gjones/s is 10^9 jones a second.
 *
 * The ceiling is the smaller of two rates, measured in the same run: the rate at which a copy moves the same bytes,
 * and the rate at which cuBLASLt, if installed, does the same multiplications as int8 products.  A coefficient has
 * two slices, its high and its low byte, and each slice needs a product.  Before a size is timed, the last channel of
 * its first beam is compared with the result of the plain C version.
 *
 * Then the program measures the incoherent beam for each number of antennas: its powers in windows of 64 spectra.
 * The ceiling of this beam is a pass that only reads the voltages, at the memory rate of the copy.  Detected beams
 * follow, for the first number of antennas.  At the end, uploads, the correlation and 16 beams are measured, each
 * alone and all together. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "kernels/beamform/beam_detect.h"
#include "kernels/beamform/beam_incoherent.h"
#include "kernels/beamform/beamform.h"
#include "kernels/correlate/correlate.h"
#include "kernels/correlate/correlate_shape.h"
#include "scripts/bench/bench.h"
#include "scripts/bench/fgpu_runs.h"
#include "scripts/bench/matrix_product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZES     16
#define REPETITION_NS (50 * NS_PER_MS)
#define N_BATCHES     4
#define N_SPECTRA     256
#define N_WINDOWS     16 /* number of windows of the incoherent beam */

struct options {
    struct device_config device;
    unsigned n_ants[MAX_SIZES], n_beams[MAX_SIZES];
    size_t n_arrays, n_sizes, n_repetitions, voltages_bytes;
    unsigned n_chan, sample_bits;
    bool once;
};

struct bed {
    struct device *device;
    struct device_stream *stream;
    struct bench_stat copy, product; /* copy: 10^9 bytes/s, reads + writes; product: 10^12 operations/s (0:
                                      * unknown) */
};

/* The kernels for one size, and their arguments. */
struct work {
    const struct bed *bed;
    struct device_kernel *coefficients, *beamform;
    struct beam_coefficients_args steered;
    struct beamform_args args;
    struct beam *beams;
    struct beam_steering *steering;
};

/* ---- A size ------------------------------------------------------------------------------------------------------ */

static void *upload(const struct bed *bed, const void *from, size_t bytes)
{
    void *pinned = device_alloc_pinned(bed->device, bytes), *memory = bench_alloc(bed->device, bytes);

    if (!pinned)
        bench_fail("there is not enough memory on the host");
    memcpy(pinned, from, bytes);
    if (device_upload(bed->device, memory, pinned, bytes))
        bench_fail("an upload failed");
    device_free_pinned(bed->device, pinned);
    return memory;
}

/* Sets random phases and slopes of the beams, whose polarisations alternate. */
static void work_steer(struct work *w)
{
    size_t n_beams = w->args.n_beams, n = n_beams * w->args.n_ants;
    uint32_t *slots = calloc(beamform_max_slots(w->args.n_beams), sizeof(*slots));
    uint32_t *slot_of = calloc(n_beams, sizeof(*slot_of));

    w->beams = calloc(n_beams, sizeof(*w->beams));
    w->steering = calloc(n, sizeof(*w->steering));
    if (!w->beams || !w->steering || !slots || !slot_of)
        bench_fail("there is not enough memory on the host");
    for (size_t b = 0; b < n_beams; b++)
        w->beams[b] = (struct beam){.seed = b + 1, .pol = b % N_POLS, .dither = 1};
    for (size_t i = 0; i < n; i++)
        w->steering[i] = (struct beam_steering){
            .phase = i * UINT64_C(0x9E3779B97F4A7C15), .slope = i * UINT64_C(0xBF58476D1CE4E5B9), .amplitude = 0.05f};
    w->args.n_slots = w->steered.n_slots = beamform_slots(w->beams, w->args.n_beams, slots, slot_of);
    w->args.slots = upload(w->bed, slots, beamform_max_slots(w->args.n_beams) * sizeof(*slots));
    w->steered.slot_of = upload(w->bed, slot_of, n_beams * sizeof(*slot_of));
    w->args.beams = w->steered.beams = upload(w->bed, w->beams, n_beams * sizeof(*w->beams));
    w->steered.steering = upload(w->bed, w->steering, n * sizeof(*w->steering));
    free(slots);
    free(slot_of);
}

/* Returns the number of channels to measure, if each channel has 'chan_bytes' of voltages. */
static size_t n_chan_of(const struct options *options, size_t chan_bytes)
{
    size_t most = options->voltages_bytes / chan_bytes;

    return options->n_chan ? options->n_chan : most ? most : 1;
}

static void work_init(struct work *w, const struct options *options, const struct bed *bed, unsigned n_ants,
                      unsigned n_beams)
{
    enum voltage_format format = options->sample_bits == 8 ? VOLTAGES_8_BITS : VOLTAGES_4_BITS;
    size_t chan_bytes = (size_t)N_BATCHES * n_ants * N_SPECTRA * N_POLS * voltage_bytes(format);
    size_t n_chan = n_chan_of(options, chan_bytes);
    struct kernel_constant constants[BEAMFORM_N_CONSTANTS];

    *w = (struct work){.bed = bed};
    w->args = (struct beamform_args){.format = format,
                                     .n_beams = n_beams,
                                     .n_ants = n_ants,
                                     .n_chan = (uint32_t)n_chan,
                                     .n_spectra = N_SPECTRA,
                                     .n_batches = N_BATCHES,
                                     .wgmma = beamform_wgmma(bed->device)};
    w->steered = (struct beam_coefficients_args){
        .n_models = 1, .n_beams = n_beams, .n_ants = n_ants, .n_chan = (uint32_t)n_chan};
    work_steer(w);
    size_t coefficients_bytes = n_chan * n_beams * n_ants * 2 * sizeof(int16_t);
    w->args.coefficients = w->steered.coefficients = bench_alloc(bed->device, coefficients_bytes);
    if (device_compiles(bed->device))
        w->args.fragments = w->steered.fragments =
            bench_alloc(bed->device, n_chan * beam_fragments_chan_bytes(w->args.n_slots, n_ants));
    w->args.exponents = w->steered.exponents = bench_alloc(bed->device, n_chan * n_beams * sizeof(int32_t));
    void *voltages = bench_alloc(bed->device, n_chan * chan_bytes);
    fgpu_runs_fill_random(bed->device, bed->stream, voltages, n_chan * chan_bytes, RANDOM_BITS);
    w->args.voltages = voltages;
    w->args.out = bench_alloc(bed->device, (size_t)N_BATCHES * n_beams * n_chan * N_SPECTRA * 2);
    w->args.saturated = bench_alloc(bed->device, N_BATCHES * n_beams * sizeof(uint32_t));
    beamform_constants(&w->args, constants);
    if (device_kernel_create(bed->device, &beam_coefficients_kernel, NULL, 0, &w->coefficients) ||
        device_kernel_create(bed->device, &beamform_kernel, constants, BEAMFORM_N_CONSTANTS, &w->beamform))
        bench_fail("cannot create the kernels beam_coefficients and beamform");
}

static void work_fini(struct work *w)
{
    struct device *device = w->bed->device;

    device_kernel_destroy(w->coefficients);
    device_kernel_destroy(w->beamform);
    device_free(device, (void *)w->args.voltages);
    device_free(device, (void *)w->args.slots);
    device_free(device, (void *)w->steered.slot_of);
    device_free(device, w->steered.fragments);
    device_free(device, (void *)w->args.beams);
    device_free(device, (void *)w->steered.steering);
    device_free(device, w->steered.coefficients);
    device_free(device, w->steered.exponents);
    device_free(device, w->args.out);
    device_free(device, w->args.saturated);
    free(w->beams);
    free(w->steering);
}

static void launch(const struct work *w)
{
    struct kernel_grid steer = beam_coefficients_grid(&w->steered), form = beamform_grid(&w->args);

    device_launch(w->bed->stream, w->coefficients, &steer, &w->steered);
    device_launch(w->bed->stream, w->beamform, &form, &w->args);
}

static int64_t time_work(void *what, size_t n)
{
    const struct work *w = what;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        launch(w);
    device_stream_wait(w->bed->stream);
    return clock_monotonic_ns() - start_ns;
}

/* Launches the kernel once.  Returns true if the kernel and the C version agree on the last channel of the first beam
 * in batch 0. */
static bool is_right(const struct work *w)
{
    const struct beamform_args *a = &w->args;
    size_t run_bytes = (size_t)N_SPECTRA * N_POLS * voltage_bytes(a->format), out_bytes = (size_t)N_SPECTRA * 2;
    size_t last = a->n_chan - 1, row = last * a->n_beams;
    uint8_t *voltages = device_alloc_pinned(w->bed->device, a->n_ants * run_bytes);
    int16_t *coefficients = device_alloc_pinned(w->bed->device, a->n_ants * 2 * sizeof(int16_t));
    int32_t *exponent = device_alloc_pinned(w->bed->device, sizeof(*exponent));
    int8_t *out = device_alloc_pinned(w->bed->device, out_bytes), expected[N_SPECTRA * 2];
    uint32_t saturated = 0;
    struct beamform_args plain_c = *a;

    if (!voltages || !coefficients || !exponent || !out)
        bench_fail("there is no memory to compare with the C version");
    device_copy_2d(w->bed->stream, voltages, run_bytes, (const uint8_t *)a->voltages + last * run_bytes,
                   a->n_chan * run_bytes, run_bytes, a->n_ants);
    device_copy(w->bed->stream, coefficients, a->coefficients + row * a->n_ants * 2, a->n_ants * 2 * sizeof(int16_t));
    device_copy(w->bed->stream, exponent, a->exponents + row, sizeof(*exponent));
    device_copy(w->bed->stream, out, a->out + last * out_bytes, out_bytes);
    device_stream_wait(w->bed->stream);
    plain_c.voltages = voltages;
    plain_c.coefficients = coefficients;
    plain_c.exponents = exponent;
    plain_c.beams = w->beams;
    plain_c.out = expected;
    plain_c.saturated = &saturated;
    plain_c.chan_offset = (uint32_t)last;
    plain_c.n_beams = plain_c.n_chan = plain_c.n_batches = 1;
    beamform_kernel.cpu(&plain_c, 1);
    bool right = memcmp(out, expected, out_bytes) == 0;
    device_free_pinned(w->bed->device, voltages);
    device_free_pinned(w->bed->device, coefficients);
    device_free_pinned(w->bed->device, exponent);
    device_free_pinned(w->bed->device, out);
    return right;
}

/* Returns the highest possible rate in 10^9 jones/s.  Sets '*bound' to the name of the limit: the copy rate or the int8
 * product. */
static double ceiling_of(const struct work *w, const char **bound)
{
    double beams_per_ant = (double)w->args.n_beams / w->args.n_ants;
    double by_memory = w->bed->copy.max / (N_POLS * voltage_bytes(w->args.format) + 2 * beams_per_ant);
    double by_products = w->bed->product.max * 1e3 / (w->args.n_beams * 2 * 8); /* 2 slices, 4 multiply-adds each */

    *bound = "limit of the copy rate";
    if (w->bed->product.max == 0 || by_memory < by_products)
        return by_memory;
    *bound = "limit of the int8 product, two slices";
    return by_products;
}

static bool bench_size(const struct options *options, const struct bed *bed, unsigned n_ants, unsigned n_beams)
{
    const char *bound;
    struct work w;
    char label[48];

    work_init(&w, options, bed, n_ants, n_beams);
    snprintf(label, sizeof(label), "%4u antennas, %4u beams, %u channels", n_ants, n_beams, w.args.n_chan);
    device_fill(bed->stream, w.args.saturated, 0, N_BATCHES * n_beams * sizeof(uint32_t));
    time_work(&w, options->once ? 2 : 1);
    bool ok = is_right(&w);
    if (!options->once) {
        double ceiling = ceiling_of(&w, &bound), jones = (double)n_ants * w.args.n_chan * N_BATCHES * N_SPECTRA;
        bench_print_row(
            label, bench_measure(time_work, &w, jones, options->n_repetitions, REPETITION_NS, DEVICE_STREAM_DEPTH / 4),
            ceiling, bound);
    }
    if (!ok)
        printf("    WRONG: the output differs from the C version's\n");
    work_fini(&w);
    return ok;
}

/* ---- The incoherent beam ----------------------------------------------------------------------------------------- */

struct incoherent {
    const struct bed *bed;
    struct device_kernel *kernel;
    struct beam_incoherent_args args;
    struct beam_incoherent_weights weights[BEAMFORM_MAX_ANTS];
    size_t n_powers;
};

static void incoherent_init(struct incoherent *w, const struct options *options, const struct bed *bed, unsigned n_ants,
                            enum beam_products products)
{
    enum voltage_format format = options->sample_bits == 8 ? VOLTAGES_8_BITS : VOLTAGES_4_BITS;
    size_t chan_bytes = (size_t)N_BATCHES * n_ants * N_SPECTRA * N_POLS * voltage_bytes(format);
    size_t n_chan = n_chan_of(options, chan_bytes);
    struct kernel_constant constants[BEAM_INCOHERENT_N_CONSTANTS];
    void *voltages = bench_alloc(bed->device, n_chan * chan_bytes);

    w->bed = bed;
    for (unsigned ant = 0; ant < n_ants; ant++)
        w->weights[ant] = (struct beam_incoherent_weights){.x = 1 << 16, .y = 3 << 15, .xy = 80265};
    fgpu_runs_fill_random(bed->device, bed->stream, voltages, n_chan * chan_bytes, RANDOM_BITS);
    w->n_powers = (size_t)N_WINDOWS * beam_n_products(products) * n_chan;
    w->args = (struct beam_incoherent_args){
        .voltages = voltages,
        .weights = upload(bed, w->weights, n_ants * sizeof(*w->weights)),
        .powers = bench_alloc(bed->device, w->n_powers * sizeof(int64_t)),
        .format = format,
        .products = products,
        .n_ants = n_ants,
        .n_chan = (uint32_t)n_chan,
        .n_spectra = N_SPECTRA,
        .n_batches = N_BATCHES,
        .n_windows = N_WINDOWS,
        .window_spectra = N_BATCHES * N_SPECTRA / N_WINDOWS,
        .group_channels = 1,
    };
    beam_incoherent_constants(&w->args, constants);
    if (device_kernel_create(bed->device, &beam_incoherent_kernel, constants, BEAM_INCOHERENT_N_CONSTANTS, &w->kernel))
        bench_fail("cannot create the kernel beam_incoherent");
}

static int64_t time_incoherent(void *what, size_t n)
{
    const struct incoherent *w = what;
    struct kernel_grid grid = beam_incoherent_grid(&w->args);
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        device_launch(w->bed->stream, w->kernel, &grid, &w->args);
    device_stream_wait(w->bed->stream);
    return clock_monotonic_ns() - start_ns;
}

/* Launches the kernel once.  Returns true if the powers of the last channel equal the C version's powers. */
static bool is_incoherent_right(const struct incoherent *w)
{
    const struct beam_incoherent_args *a = &w->args;
    size_t run_bytes = (size_t)N_SPECTRA * N_POLS * voltage_bytes(a->format), n_runs = (size_t)N_BATCHES * a->n_ants;
    size_t n_powers = w->n_powers / a->n_chan;
    uint8_t *voltages = device_alloc_pinned(w->bed->device, n_runs * run_bytes);
    int64_t *powers = device_alloc_pinned(w->bed->device, n_powers * sizeof(*powers));
    int64_t expected[N_WINDOWS * BEAM_MAX_PRODUCTS] = {0};
    struct beam_incoherent_args plain_c = *a;

    if (!voltages || !powers)
        bench_fail("there is no memory to compare with the C version");
    device_copy_2d(w->bed->stream, voltages, run_bytes, (const uint8_t *)a->voltages + (a->n_chan - 1) * run_bytes,
                   a->n_chan * run_bytes, run_bytes, n_runs);
    device_copy_2d(w->bed->stream, powers, sizeof(*powers), a->powers + a->n_chan - 1, a->n_chan * sizeof(*powers),
                   sizeof(*powers), n_powers);
    device_stream_wait(w->bed->stream);
    plain_c.voltages = voltages;
    plain_c.weights = w->weights;
    plain_c.powers = expected;
    plain_c.n_chan = 1;
    beam_incoherent_kernel.cpu(&plain_c, 1);
    bool right = memcmp(powers, expected, n_powers * sizeof(*powers)) == 0;
    device_free_pinned(w->bed->device, voltages);
    device_free_pinned(w->bed->device, powers);
    return right;
}

static bool bench_incoherent(const struct options *options, const struct bed *bed, unsigned n_ants,
                             enum beam_products products)
{
    static struct incoherent w;
    char label[48];

    incoherent_init(&w, options, bed, n_ants, products);
    snprintf(label, sizeof(label), "%4u antennas, %s, %u channels", n_ants, products == BEAM_STOKES ? "IQUV" : "I",
             w.args.n_chan);
    device_fill(bed->stream, w.args.powers, 0, w.n_powers * sizeof(int64_t));
    time_incoherent(&w, 1);
    bool ok = is_incoherent_right(&w);
    if (options->once)
        time_incoherent(&w, 1);
    else
        bench_print_row(label,
                        bench_measure(time_incoherent, &w, (double)n_ants * w.args.n_chan * N_BATCHES * N_SPECTRA,
                                      options->n_repetitions, REPETITION_NS, DEVICE_STREAM_DEPTH / 4),
                        bed->copy.max / (N_POLS * voltage_bytes(w.args.format)), "limit of the copy rate");
    if (!ok)
        printf("    WRONG: the powers differ from the C version's\n");
    device_kernel_destroy(w.kernel);
    device_free(bed->device, (void *)w.args.voltages);
    device_free(bed->device, (void *)w.args.weights);
    device_free(bed->device, w.args.powers);
    return ok;
}

/* ---- Detected beams ---------------------------------------------------------------------------------------------- */

struct detected {
    struct work beams; /* beams whose voltages are not stored */
    struct device_kernel *kernel;
    struct beam_detect_args args;
};

static int64_t time_detected(void *what, size_t n)
{
    const struct detected *d = what;
    struct device_stream *stream = d->beams.bed->stream;
    struct kernel_grid steer = beam_coefficients_grid(&d->beams.steered), detect = beam_detect_grid(&d->args);
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++) {
        device_launch(stream, d->beams.coefficients, &steer, &d->beams.steered);
        device_launch(stream, d->kernel, &detect, &d->args);
    }
    device_stream_wait(stream);
    return clock_monotonic_ns() - start_ns;
}

/* Measures Stokes I in windows of 64 spectra, for n_beams / 2 beams.  Each of these beams has both polarisations. */
static void bench_detected(const struct options *options, const struct bed *bed, unsigned n_ants, unsigned n_beams)
{
    struct kernel_constant constants[BEAM_DETECT_N_CONSTANTS];
    struct detected d;
    char label[64];

    work_init(&d.beams, options, bed, n_ants, n_beams);
    const struct beamform_args *form = &d.beams.args;
    d.args = (struct beam_detect_args){
        .form = *form,
        .powers = bench_alloc(bed->device, sizeof(int64_t) * N_WINDOWS * (n_beams / 2) * form->n_chan),
        .products = BEAM_TOTAL,
        .n_windows = N_WINDOWS,
        .window_spectra = N_BATCHES * N_SPECTRA / N_WINDOWS,
        .group_channels = 1,
    };
    beam_detect_constants(&d.args, constants);
    if (device_kernel_create(bed->device, &beam_detect_kernel, constants, BEAM_DETECT_N_CONSTANTS, &d.kernel))
        bench_fail("cannot create the kernel beam_detect");
    snprintf(label, sizeof(label), "%4u antennas, %4u beams, %u channels", n_ants, n_beams, form->n_chan);
    time_detected(&d, options->once ? 2 : 1);
    if (!options->once)
        bench_print_row(label,
                        bench_measure(time_detected, &d, (double)n_ants * form->n_chan * N_BATCHES * N_SPECTRA,
                                      options->n_repetitions, REPETITION_NS, DEVICE_STREAM_DEPTH / 4),
                        bed->product.max * 1e3 / (n_beams * 2 * 8), "limit of the int8 product, two slices");
    device_kernel_destroy(d.kernel);
    device_free(bed->device, d.args.powers);
    work_fini(&d.beams);
}

/* ---- Beside uploads and the correlation -------------------------------------------------------------------------- */

#define N_BESIDE 16 /* beams */

/* Voltages are uploaded to one of two buffers, while voltages in the other buffer are correlated and made into
 * beams. */
struct beside {
    struct work beams;
    struct correlate_kernels correlate;
    struct correlate_args sums;
    struct device_stream *uploads;
    struct device_event *filled[2], *used[2];
    void *pinned, *voltages[2];
    size_t bytes;
    bool does_upload, does_correlate, does_beams;
};

static int64_t time_beside(void *what, size_t n)
{
    struct beside *b = what;
    struct device_stream *stream = b->beams.bed->stream;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++) {
        size_t k = i % 2;
        b->sums.voltages = b->beams.args.voltages = b->voltages[k];
        if (b->does_upload) {
            device_stream_wait_event(b->uploads, b->used[k]);
            device_copy(b->uploads, b->voltages[k], b->pinned, b->bytes);
            device_event_record(b->filled[k], b->uploads);
            device_stream_wait_event(stream, b->filled[k]);
        }
        if (b->does_correlate)
            correlate_kernels_launch(&b->correlate, stream, &b->sums, 0);
        if (b->does_beams)
            launch(&b->beams);
        device_event_record(b->used[k], stream);
    }
    device_stream_wait(b->uploads);
    device_stream_wait(stream);
    return clock_monotonic_ns() - start_ns;
}

static void beside_init(struct beside *b, const struct options *options, const struct bed *bed)
{
    const struct beamform_args *a = &b->beams.args;
    struct correlate_shape shape;

    work_init(&b->beams, options, bed, options->n_ants[0], N_BESIDE);
    b->bytes = (size_t)N_BATCHES * a->n_ants * a->n_chan * N_SPECTRA * N_POLS * voltage_bytes(a->format);
    b->voltages[0] = (void *)a->voltages;
    b->voltages[1] = bench_alloc(bed->device, b->bytes);
    b->pinned = device_alloc_pinned(bed->device, b->bytes);
    if (!b->pinned || device_stream_create(bed->device, "uploads", &b->uploads))
        bench_fail("there is no memory for uploads");
    device_copy(bed->stream, b->pinned, b->voltages[0], b->bytes);
    for (int k = 0; k < 2; k++) {
        if (device_event_create(bed->device, &b->filled[k]) || device_event_create(bed->device, &b->used[k]))
            bench_fail("there is no memory for uploads");
        device_event_record(b->used[k], bed->stream);
    }
    b->sums = (struct correlate_args){.voltages = a->voltages,
                                      .format = a->format,
                                      .n_ants = a->n_ants,
                                      .n_chan = a->n_chan,
                                      .n_spectra = N_SPECTRA,
                                      .n_batches = N_BATCHES};
    b->sums.sums.integer =
        bench_alloc(bed->device, correlate_n_baselines(a->n_ants) * a->n_chan * N_POL_PRODUCTS * 2 * sizeof(int32_t));
    shape = correlate_device_shape(&b->sums, bed->device);
    if (correlate_kernels_create(bed->device, &b->sums, &shape, &b->correlate))
        bench_fail("cannot create the kernels of correlate");
    device_stream_wait(bed->stream);
}

static void beside_fini(struct beside *b)
{
    struct device *device = b->beams.bed->device;

    for (int k = 0; k < 2; k++) {
        device_event_destroy(b->filled[k]);
        device_event_destroy(b->used[k]);
    }
    device_stream_destroy(b->uploads);
    correlate_kernels_destroy(&b->correlate);
    device_free(device, b->sums.sums.integer);
    device_free(device, b->voltages[1]);
    device_free_pinned(device, b->pinned);
    b->beams.args.voltages = b->voltages[0];
    work_fini(&b->beams);
}

static double bench_beside_row(const struct options *options, struct beside *b, bool uploads, bool correlates,
                               bool forms, double ceiling, const char *bound)
{
    const struct beamform_args *a = &b->beams.args;
    double jones = (double)a->n_ants * a->n_chan * N_BATCHES * N_SPECTRA;
    char label[80];

    b->does_upload = uploads;
    b->does_correlate = correlates;
    b->does_beams = forms;
    snprintf(label, sizeof(label), "%4u antennas:%s%s%s", a->n_ants, uploads ? " upload" : "",
             correlates ? " correlation" : "", forms ? " beams" : "");
    time_beside(b, 1);
    struct bench_stat rate =
        bench_measure(time_beside, b, jones, options->n_repetitions, REPETITION_NS, DEVICE_STREAM_DEPTH / 16);
    bench_print_row(label, rate, ceiling, bound);
    return rate.median;
}

static void bench_beside(const struct options *options, const struct bed *bed)
{
    struct beside b = {0};

    beside_init(&b, options, bed);
    double upload = bench_beside_row(options, &b, true, false, false, 0, "");
    double correlation = bench_beside_row(options, &b, false, true, false, 0, "");
    double beams = bench_beside_row(options, &b, false, false, true, 0, "");
    bench_beside_row(options, &b, false, true, true, 1 / (1 / correlation + 1 / beams), "both times added");
    bench_beside_row(options, &b, true, true, true, upload, "the upload alone");
    beside_fini(&b);
}

/* ---- Ceilings ---------------------------------------------------------------------------------------------------- */

static void find_ceilings(const struct options *options, struct bed *bed)
{
    char why[200];

    bed->copy = bench_measure_copy(bed->device, bed->stream, options->voltages_bytes, options->n_repetitions);
    bench_print_head("Ceilings", "10^9 bytes/s or 10^12 op/s");
    bench_print_row("device copy", bed->copy, 0, "10^9 bytes/s read + written");
    if (matrix_product_measure(bed->device, false, options->n_repetitions, &bed->product, why, sizeof(why)))
        printf("matrix product of bytes: not measured: %s\n", why);
    else
        bench_print_row("matrix product, bytes", bed->product, 0, "10^12 operations/s");
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static void read_antennas(const char *text, void *value)
{
    struct options *options = value;

    options->n_arrays = bench_read_list(text, 1, BEAMFORM_MAX_ANTS, options->n_ants, MAX_SIZES,
                                        "--antennas is a list of numbers from 1 to 4096");
}

static void read_beams(const char *text, void *value)
{
    struct options *options = value;

    options->n_sizes =
        bench_read_list(text, 1, 1024, options->n_beams, MAX_SIZES, "--beams is a list of numbers from 1 to 1024");
}

static void parse(struct options *options, int argc, char **argv)
{
    const struct bench_option rows[] = {
        {"--once", NULL, &options->once},
        {"--device", bench_read_device, &options->device.kind},
        {"--antennas", read_antennas, options},
        {"--beams", read_beams, options},
        {"--channels", bench_read_unsigned, &options->n_chan},
        {"--bits", bench_read_unsigned, &options->sample_bits},
        {"--repetitions", bench_read_size, &options->n_repetitions},
    };

    bench_options(argc, argv, rows, ARRAY_LEN(rows));
    if (options->n_repetitions < 1 || options->n_repetitions > BENCH_MAX_REPETITIONS)
        bench_fail("--repetitions is 1 to 99");
    if (options->sample_bits != 4 && options->sample_bits != 8)
        bench_fail("--bits is 4 or 8");
}

int main(int argc, char **argv)
{
    struct options options = {.n_ants = {80, 64, 256, 1024},
                              .n_arrays = 4,
                              .n_beams = {4, 8, 16, 64, 256, 1024},
                              .n_sizes = 6,
                              .n_repetitions = 9,
                              .sample_bits = 8};
    struct bed bed = {0};
    char why[400] = "";
    bool ok = true;

    log_init("bench_beam", LOG_LEVEL_WARNING);
    parse(&options, argc, argv);
    bench_print_machine();
    if (device_open(&options.device, &bed.device, why, sizeof(why)))
        bench_fail(why);
    if (device_stream_create(bed.device, "bench", &bed.stream))
        bench_fail("the device has no stream");
    options.voltages_bytes = device_compiles(bed.device) ? (size_t)1 << 29 : (size_t)1 << 22;
    find_ceilings(&options, &bed);
    bench_print_head("Voltage beams of one polarisation", "10^9 jones/s");
    for (size_t a = 0; a < options.n_arrays; a++)
        for (size_t b = 0; b < options.n_sizes; b++)
            ok &= bench_size(&options, &bed, options.n_ants[a], options.n_beams[b]);
    bench_print_head("The incoherent beam", "10^9 jones/s");
    for (size_t a = 0; a < options.n_arrays; a++)
        for (int products = BEAM_TOTAL; products <= BEAM_STOKES; products++)
            ok &= bench_incoherent(&options, &bed, options.n_ants[a], (enum beam_products)products);
    bench_print_head("Detected beams (number of beams x polarisations)", "10^9 jones/s");
    for (size_t b = 0; b < options.n_sizes; b++)
        bench_detected(&options, &bed, options.n_ants[0], options.n_beams[b] + options.n_beams[b] % 2);
    if (!options.once) {
        bench_print_head("Uploads, the correlation and 16 beams", "10^9 jones/s");
        bench_beside(&options, &bed);
    }
    device_stream_destroy(bed.stream);
    device_close(bed.device);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
