/* bench_ddc.c - measures the rates of the digital down-converter on a device, and compares them with the device's
 * limits.
 *
 * Usage: bench_ddc [--device auto|cpu|cuda] [--subsampling N[,N...]] [--bits N] [--samples N] [--repetitions N]
 *                  [--channels N] [--shapes] [--once]
 *   --samples:  samples of each polarisation in a launch; default: 2^27, fewer on the cpu device.
 *   --channels: also measures a narrow band of N channels: the down-converter, a filter bank of 16 taps, the
 *               transform, and all later steps; the outer half of the bins is discarded.
 *   --shapes:   also measures other shapes (struct ddc_shape), on a device that compiles kernels.
 *   --once:     no timing: runs each kernel once to warm up and once more, for a profiler.
 *
 * The filter has 16 A taps, where A is the subsampling.  Samples have 10 bits and are random.  A Gsample/s is 10^9
 * sampling instants of the ADC a second, for both polarisations.
 *
 * The ceiling is the smaller of two rates, measured in the same run: the rate at which a copy moves the same bytes,
 * and the rate at which cuBLASLt, if installed, does the kernel's multiplications as a product of half floats.
 * Before a kernel is timed, its output is compared with the output of the plain C version. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "kernels/filterbank/channelise.h"
#include "kernels/ddc/ddc.h"
#include "kernels/ddc/design_ddc.h"
#include "kernels/ddc/mixer.h"
#include "scripts/bench/bench.h"
#include "scripts/bench/fgpu_runs.h"
#include "scripts/bench/matrix_product.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZES     16
#define REPETITION_NS (50 * NS_PER_MS)
#define CHECKED_OUT   5000 /* number of outputs that are compared with the C version's outputs */

struct options {
    struct device_config device;
    unsigned subsampling[MAX_SIZES];
    size_t n_sizes, n_samples, n_repetitions, copy_bytes;
    unsigned sample_bits, n_chan; /* n_chan == 0: no narrow band is measured */
    bool shapes, once;
};

struct bed {
    struct device *device;
    struct device_stream *stream;
    uint8_t *in[N_POLS];
    float *out[N_POLS];
    struct bench_stat copy, product; /* copy: 10^9 bytes/s, reads + writes; product: 10^12 operations/s (0:
                                      * unknown) */
};

/* A kernel for one subsampling and shape, and its arguments. */
struct work {
    const struct bed *bed;
    struct device_kernel *kernel;
    struct kernel_grid grid;
    struct ddc_args args;
    float *filter;
    struct mixer mixer;
};

/* ---- A size and shape -------------------------------------------------------------------------------------------- */

static void upload_weights(struct work *w, const struct ddc_shape *shape)
{
    size_t bytes = ddc_weights_bytes(&w->args, shape, device_compiles(w->bed->device));
    void *host = device_alloc_pinned(w->bed->device, bytes), *weights = bench_alloc(w->bed->device, bytes);

    if (!host)
        bench_fail("there is not enough memory on the host");
    w->args.scale = ddc_weights(&w->args, shape, device_compiles(w->bed->device), w->filter, &w->mixer, host);
    device_copy(w->bed->stream, weights, host, bytes);
    device_stream_wait(w->bed->stream);
    device_free_pinned(w->bed->device, host);
    w->args.weights = weights;
}

static void work_init(struct work *w, const struct options *options, const struct bed *bed, unsigned subsampling,
                      const struct ddc_shape *shape)
{
    const struct design_ddc design = {subsampling, (size_t)16 * subsampling, 0.005, 0};
    struct kernel_constant constants[DDC_N_CONSTANTS];

    *w = (struct work){.bed = bed, .filter = malloc(design.n_taps * sizeof(float))};
    if (!w->filter || design_ddc(&design, w->filter))
        bench_fail("cannot design the filter");
    mixer_init(&w->mixer, 428123457, 1712000000);
    w->args = (struct ddc_args){.in = {bed->in[0], bed->in[1]},
                                .out = {bed->out[0], bed->out[1]},
                                .phase = mixer_turns(&w->mixer, INT64_C(1) << 60),
                                .phase_step = mixer_turns(&w->mixer, subsampling),
                                .n_out = (uint32_t)((options->n_samples - design.n_taps) / subsampling + 1),
                                .n_taps = (uint32_t)design.n_taps,
                                .subsampling = subsampling,
                                .sample_bits = options->sample_bits};
    upload_weights(w, shape);
    ddc_constants(&w->args, shape, constants);
    w->grid = ddc_grid(&w->args, shape);
    if (device_kernel_create(bed->device, &ddc_kernel, constants, DDC_N_CONSTANTS, &w->kernel))
        bench_fail("cannot create the kernel ddc");
}

static void work_fini(struct work *w)
{
    device_kernel_destroy(w->kernel);
    device_free(w->bed->device, (void *)w->args.weights);
    free(w->filter);
}

static int64_t time_work(void *what, size_t n)
{
    const struct work *w = what;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        device_launch(w->bed->stream, w->kernel, &w->grid, &w->args);
    device_stream_wait(w->bed->stream);
    return clock_monotonic_ns() - start_ns;
}

/* Launches the kernel once.  Returns true if the last outputs of polarisation 1 equal the C version's outputs. */
static bool is_right(const struct work *w)
{
    uint32_t n = w->args.n_out < CHECKED_OUT ? w->args.n_out : CHECKED_OUT, first = w->args.n_out - n;
    uint64_t first_sample = (uint64_t)first * w->args.subsampling / 8 * 8;
    uint64_t end = (uint64_t)first * w->args.subsampling + ddc_window_samples(w->args.subsampling, w->args.n_taps, n);
    size_t in_bytes = (size_t)((end - first_sample) * w->args.sample_bits / 8 + 1), out_bytes = (size_t)n * 8;
    uint8_t *in = device_alloc_pinned(w->bed->device, in_bytes);
    float *out = device_alloc_pinned(w->bed->device, out_bytes), *expected = malloc(out_bytes);
    float *weights = malloc(ddc_weights_bytes(&w->args, NULL, false));
    struct ddc_args plain_c = w->args;
    double largest = 0;

    if (!in || !out || !expected || !weights)
        bench_fail("there is no memory to compare with the C version");
    device_copy(w->bed->stream, in, w->args.in[1] + first_sample * w->args.sample_bits / 8, in_bytes);
    device_copy(w->bed->stream, out, w->args.out[1] + 2 * (size_t)first, out_bytes);
    device_stream_wait(w->bed->stream);
    plain_c.in[0] = plain_c.in[1] = in;
    plain_c.out[0] = plain_c.out[1] = expected;
    plain_c.offset = (int64_t)((uint64_t)first * w->args.subsampling - first_sample);
    plain_c.phase += first * plain_c.phase_step;
    plain_c.n_out = n;
    plain_c.scale = ddc_weights(&w->args, NULL, false, w->filter, &w->mixer, weights);
    plain_c.weights = weights;
    ddc_kernel.cpu(&plain_c, bench_n_cpus());
    for (size_t i = 0; i < 2 * (size_t)n; i++)
        largest = fmax(largest, isfinite(out[i]) ? fabs((double)out[i] - expected[i]) : INFINITY);
    free(weights);
    free(expected);
    device_free_pinned(w->bed->device, out);
    device_free_pinned(w->bed->device, in);
    return largest < 1e-5 * (1 << w->args.sample_bits);
}

/* Returns the ceiling in 10^9 samples/s.  Sets '*bound' to the name of the limit. */
static double ceiling_of(const struct work *w, const char **bound)
{
    double subsampling = w->args.subsampling;
    double bytes = N_POLS * (w->args.sample_bits / 8.0 + 8 / subsampling);
    double row_products = (w->args.n_taps + (DDC_ROW_OUTPUTS - 1) * subsampling) * 4 * DDC_ROW_OUTPUTS;
    double operations =
        N_POLS * 2 * row_products / (DDC_ROW_OUTPUTS * subsampling) * (w->args.sample_bits > 12 ? 2 : 1);
    double by_memory = w->bed->copy.max / bytes, by_products = w->bed->product.max * 1e3 / operations;

    *bound = "limit of the copy rate";
    if (w->bed->product.max == 0 || by_memory < by_products)
        return by_memory;
    *bound = "limit of the product of half floats";
    return by_products;
}

static bool bench_shape(const struct options *options, const struct bed *bed, unsigned subsampling,
                        const struct ddc_shape *shape, const char *label)
{
    const char *bound;
    struct work w;

    work_init(&w, options, bed, subsampling, shape);
    for (size_t pol = 0; pol < N_POLS; pol++)
        device_fill(bed->stream, w.args.out[pol], 0xff, (size_t)w.args.n_out * 8); /* not numbers */
    time_work(&w, options->once ? 2 : 1);
    bool ok = is_right(&w);
    if (!options->once) {
        double ceiling = ceiling_of(&w, &bound);
        double samples = (double)w.args.n_out * w.args.subsampling;
        bench_print_row(
            label,
            bench_measure(time_work, &w, samples, options->n_repetitions, REPETITION_NS, DEVICE_STREAM_DEPTH / 2),
            ceiling, bound);
    }
    if (!ok)
        printf("    WRONG: the output differs from the C version's\n");
    work_fini(&w);
    return ok;
}

/* ---- A narrow band ----------------------------------------------------------------------------------------------- */

#define SPECTRA_PER_HEAP 32

struct narrow {
    struct work work; /* down-conversion of the new samples that the spectra of a run need */
    struct channelise_config config;
    struct channelise *channelise;
    struct channelise_buffer buffer;
    struct channelise_spectrum *spectra;
    size_t n_spectra;
    float *gain;
};

static void narrow_init(struct narrow *n, const struct options *options, const struct bed *bed, unsigned subsampling,
                        const struct ddc_shape *shape, enum channelise_method method)
{
    size_t rotation_bytes, n_rows;

    work_init(&n->work, options, bed, subsampling, shape);
    time_work(&n->work, 1); /* computes all samples that the windows of the last spectra contain */
    n->config = (struct channelise_config){.n_chan = options->n_chan,
                                           .n_bins = 2 * options->n_chan,
                                           .n_taps = 16,
                                           .w_cutoff = 1,
                                           .spectra_per_heap = SPECTRA_PER_HEAP,
                                           .out_bits = 8,
                                           .dither = true,
                                           .method = method};
    n_rows = n->work.args.n_out / n->config.n_bins;
    if (n_rows < n->config.n_taps - 1 + SPECTRA_PER_HEAP)
        bench_fail("--samples must be enough for a heap of 32 spectra");
    n->config.n_batches = (unsigned)((n_rows - n->config.n_taps + 1) / SPECTRA_PER_HEAP);
    n->config.append_spectra = n->config.n_batches * SPECTRA_PER_HEAP;
    n->n_spectra = n->config.append_spectra;
    n->work.args.n_out = (uint32_t)(n->n_spectra * n->config.n_bins);
    n->work.grid = ddc_grid(&n->work.args, shape);
    if (channelise_create(bed->device, &n->config, &n->channelise))
        bench_fail("cannot create the filter bank");
    rotation_bytes = N_POLS * n->n_spectra * 2 * sizeof(float);
    n->buffer = (struct channelise_buffer){
        .voltages = bench_alloc(bed->device, channelise_voltage_bytes(&n->config)),
        .saturated = bench_alloc(bed->device, n->config.n_batches * N_POLS * sizeof(uint32_t)),
        .rotation = device_alloc_pinned(bed->device, rotation_bytes),
        .rotation_device = bench_alloc(bed->device, rotation_bytes),
    };
    n->gain = bench_alloc(bed->device, (size_t)options->n_chan * N_POLS * 2 * sizeof(float));
    fgpu_runs_fill_random(bed->device, bed->stream, n->gain, (size_t)options->n_chan * N_POLS * 2 * sizeof(float),
                          RANDOM_FLOATS);
    n->spectra = calloc(n->n_spectra, sizeof(*n->spectra));
    if (!n->spectra || !n->buffer.rotation)
        bench_fail("there is not enough memory on the host");
    for (size_t i = 0; i < n->n_spectra; i++)
        n->spectra[i].offset = (int64_t)(i * n->config.n_bins);
}

static int64_t time_narrow(void *what, size_t n_times)
{
    const struct narrow *n = what;
    const uint8_t *const in[N_POLS] = {(const uint8_t *)n->work.args.out[0], (const uint8_t *)n->work.args.out[1]};
    const struct channelise_spectrum *const spectra[N_POLS] = {n->spectra, n->spectra};
    struct device_stream *stream = n->work.bed->stream;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n_times; i++) {
        device_launch(stream, n->work.kernel, &n->work.grid, &n->work.args);
        channelise_append(n->channelise, stream, in, &n->buffer, 0, n->n_spectra, spectra);
        channelise_finish(n->channelise, stream, &n->buffer, n->gain, 0);
    }
    device_stream_wait(stream);
    return clock_monotonic_ns() - start_ns;
}

static void bench_narrow(const struct options *options, const struct bed *bed, unsigned subsampling,
                         const struct ddc_shape *shape, enum channelise_method method)
{
    struct narrow n;
    char label[48];

    narrow_init(&n, options, bed, subsampling, shape, method);
    double samples = (double)n.work.args.n_out * subsampling;
    snprintf(label, sizeof(label), "    with %u channels%s", options->n_chan,
             device_compiles(bed->device) && method == CHANNELISE_STAGES ? ", stages" : "");
    if (options->once)
        time_narrow(&n, 2);
    else
        bench_print_row(label, bench_measure(time_narrow, &n, samples, options->n_repetitions, REPETITION_NS, SIZE_MAX),
                        0, "");
    free(n.spectra);
    device_free(bed->device, n.gain);
    device_free(bed->device, n.buffer.rotation_device);
    device_free_pinned(bed->device, n.buffer.rotation);
    device_free(bed->device, n.buffer.saturated);
    device_free(bed->device, n.buffer.voltages);
    channelise_destroy(n.channelise);
    work_fini(&n.work);
}

static bool shape_fits(const struct bed *bed, const struct ddc_args *args, const struct ddc_shape *shape)
{
    uint32_t row = (DDC_ROW_OUTPUTS * args->subsampling + 15) / 16 * 16;

    return shape->columns <= row && ddc_grid(args, shape).shared_bytes <= device_shared_bytes(bed->device);
}

/* Measures the default shape.  With --shapes, also measures the other shapes that fit the sizes and the device's
 * shared memory. */
static bool bench_size(const struct options *options, const struct bed *bed, unsigned subsampling)
{
    const struct ddc_args sizes = {
        .n_out = 1, .n_taps = 16 * subsampling, .subsampling = subsampling, .sample_bits = options->sample_bits};
    struct ddc_shape shape = ddc_default_shape(&sizes);
    char label[48];
    bool ok;

    snprintf(label, sizeof(label), "subsampling %u", subsampling);
    ok = bench_shape(options, bed, subsampling, &shape, label);
    if (options->n_chan)
        bench_narrow(options, bed, subsampling, &shape, CHANNELISE_FUSED);
    if (options->n_chan && device_compiles(bed->device))
        bench_narrow(options, bed, subsampling, &shape, CHANNELISE_STAGES);
    for (uint32_t warps = 2; warps <= 8 && options->shapes && device_compiles(bed->device); warps *= 2)
        for (uint32_t tiles = 1; tiles <= 4; tiles *= 2)
            for (uint32_t columns = 32; columns <= 256; columns *= 2) {
                shape = (struct ddc_shape){warps, tiles, columns};
                snprintf(label, sizeof(label), "    %u warps, %u tiles, %u columns", warps, tiles, columns);
                if (shape_fits(bed, &sizes, &shape))
                    ok &= bench_shape(options, bed, subsampling, &shape, label);
            }
    return ok;
}

/* ---- Ceilings ---------------------------------------------------------------------------------------------------- */

static void find_ceilings(const struct options *options, struct bed *bed)
{
    char why[200];

    bed->copy = bench_measure_copy(bed->device, bed->stream, options->copy_bytes, options->n_repetitions);
    bench_print_head("Ceilings", "10^9 bytes/s or 10^12 op/s");
    bench_print_row("device copy", bed->copy, 0, "10^9 bytes/s read + written");
    if (matrix_product_measure(bed->device, true, options->n_repetitions, &bed->product, why, sizeof(why)))
        printf("matrix product of half floats: not measured: %s\n", why);
    else
        bench_print_row("matrix product, half floats", bed->product, 0, "10^12 operations/s");
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static void read_sizes(const char *text, void *value)
{
    struct options *options = value;

    options->n_sizes = bench_read_list(text, 2, DESIGN_DDC_MAX_SUBSAMPLING, options->subsampling, MAX_SIZES,
                                       "--subsampling is a list of numbers from 2 to 256");
}

static void parse(struct options *options, int argc, char **argv)
{
    const struct bench_option rows[] = {
        {"--shapes", NULL, &options->shapes},
        {"--once", NULL, &options->once},
        {"--device", bench_read_device, &options->device.kind},
        {"--subsampling", read_sizes, options},
        {"--bits", bench_read_unsigned, &options->sample_bits},
        {"--channels", bench_read_unsigned, &options->n_chan},
        {"--samples", bench_read_size, &options->n_samples},
        {"--repetitions", bench_read_size, &options->n_repetitions},
    };

    bench_options(argc, argv, rows, ARRAY_LEN(rows));
    if (options->n_repetitions < 1 || options->n_repetitions > BENCH_MAX_REPETITIONS)
        bench_fail("--repetitions is 1 to 99");
    if (options->n_chan && (options->n_chan < 64 || options->n_chan > 65536 || options->n_chan & (options->n_chan - 1)))
        bench_fail("--channels is a power of two from 64 to 65536");
    if (options->sample_bits < 2 ||
        (options->sample_bits > 10 && options->sample_bits != 12 && options->sample_bits != 16))
        bench_fail("--bits is 2 to 10, 12 or 16");
}

static void create_buffers(const struct options *options, struct bed *bed)
{
    size_t in_bytes = options->n_samples * options->sample_bits / 8 + DDC_SPARE_BYTES, out_bytes = 0;

    for (size_t i = 0; i < options->n_sizes; i++) {
        size_t bytes = (options->n_samples / options->subsampling[i] + 1) * 8;
        out_bytes = bytes > out_bytes ? bytes : out_bytes;
    }
    for (size_t pol = 0; pol < N_POLS; pol++) {
        bed->in[pol] = bench_alloc(bed->device, in_bytes);
        bed->out[pol] = bench_alloc(bed->device, out_bytes);
        fgpu_runs_fill_random(bed->device, bed->stream, bed->in[pol], in_bytes, RANDOM_BITS);
    }
}

int main(int argc, char **argv)
{
    struct options options = {
        .subsampling = {4, 8, 16, 32, 64, 128}, .n_sizes = 6, .n_repetitions = 9, .sample_bits = 10};
    struct bed bed = {0};
    char why[400] = "";
    bool ok = true;

    log_init("bench_ddc", LOG_LEVEL_WARNING);
    parse(&options, argc, argv);
    if (device_open(&options.device, &bed.device, why, sizeof(why)))
        bench_fail(why);
    if (device_stream_create(bed.device, "bench", &bed.stream))
        bench_fail("cannot create a stream on the device");
    bool is_cpu = strcmp(device_name(bed.device), "cpu") == 0;
    options.copy_bytes = (size_t)1 << (is_cpu ? 25 : 30);
    options.n_samples = options.n_samples ? options.n_samples : (size_t)1 << (is_cpu ? 21 : 27);
    create_buffers(&options, &bed);
    if (!options.once) {
        bench_print_machine();
        printf("device: %s, %s; %zu repetitions; 16 taps per subsample, %u bits\n", device_name(bed.device),
               device_model(bed.device), options.n_repetitions, options.sample_bits);
        find_ceilings(&options, &bed);
        bench_print_head("Down-converter", "10^9 dual-pol samples/s");
    }
    for (size_t i = 0; i < options.n_sizes; i++)
        ok &= bench_size(&options, &bed, options.subsampling[i]);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        device_free(bed.device, bed.in[pol]);
        device_free(bed.device, bed.out[pol]);
    }
    device_stream_destroy(bed.stream);
    device_close(bed.device);
    return ok ? 0 : 1;
}
