/* bench_xbgpu.c - measures the rates of the X-engine's kernels on a device, and compares them with the device's
 * limits.  Measures correlate for all sizes of arrays and samples, reduce, and the checksums.
 *
 * Usage: bench_xbgpu [--device auto|cpu|cuda] [--antennas N[,N...]] [--bits N[,N...]] [--channels N] [--spectra N]
 *                    [--batches N] [--parts N] [--repetitions N] [--shapes] [--once]
 *   --channels, --spectra, --batches:  sizes of a launch (channels x spectra x batches); default: 64 x 1024 x 32 (8
 *              batches if samples have 16 bits), for 80 antennas 512 x 32 x 32, for 4096 antennas 2 x 16 x 1; smaller
 *              on the cpu device.
 *   --parts:   number of parts of time into which a launch is split; 0: the default rule.
 *   --shapes:  measures all candidates of correlate_candidates(), on a device that compiles kernels.
 *   --once:    no timing: runs each kernel once to warm up and once more, for a profiler.
 *
 * On devices that compile kernels, a few channels and spectra of each shape are compared with the plain C version.  If
 * the GPU has wgmma, the variant on wgmma is measured, too.
 *
 * A Jones vector, or jones, is a sample of both polarisations of an antenna.  For each pair of inputs a <= b, each
 * channel and each spectrum, 8 operations are useful.  The ceiling follows from the longer of two times, measured in
 * the same run: the time of these operations in cuBLASLt's product of int8 matrices (half floats for 16 bits), and
 * the time in which a copy moves the same bytes.  These bytes are the voltages, read once, and the sums of 4 bytes,
 * read once and written once.  Repetitions add to the same sums, whose values do not matter.
 *
 * checksum is measured on the voltages of correlate, and checksum_dump with reduce.  reduce is measured in each of
 * its uses: a dump of sums, a dump of totals and sums, and sums added to totals. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "kernels/correlate/checksum_dump.h"
#include "kernels/correlate/correlate_shape.h"
#include "kernels/correlate/reduce.h"
#include "scripts/bench/bench.h"
#include "scripts/bench/matrix_product.h"
#include "tests/unit/test_random.h"

#include <math.h>
#include <string.h>

#define MAX_SIZES     16
#define MAX_SHAPES    64
#define REPETITION_NS (50 * NS_PER_MS)
#define BLOCK_BYTES   ((size_t)16 << 20) /* length of the random input, which is repeated as needed */

struct options {
    struct device_config device;
    unsigned n_ants[MAX_SIZES], bits[MAX_SIZES];
    size_t n_sizes, n_bits;
    unsigned n_chan, n_spectra, n_batches; /* 0: the default for the number of antennas and the device */
    unsigned n_parts;
    size_t n_repetitions, copy_bytes;
    bool shapes, once;
};

struct ceilings {
    struct bench_stat copy;          /* 10^9 bytes/s, read and written */
    struct bench_stat integer, real; /* 10^12 operations/s; 0: unknown */
};

/* ---- A kernel and what it works on ------------------------------------------------------------------------------- */

struct bed {
    struct device *device;
    struct device_stream *stream;
};

/* A launch of correlate or of another kernel. */
struct work {
    const struct bed *bed;
    struct correlate_kernels correlate;
    uint32_t n_parts;
    struct device_kernel *other; /* or NULL */
    struct kernel_grid grid;     /* of the other */
    const void *args;
};

static struct work make_correlate(const struct bed *bed, const struct correlate_args *args,
                                  const struct correlate_shape *shape, uint32_t n_parts)
{
    struct work w = {.bed = bed, .n_parts = n_parts, .args = args};

    if (correlate_kernels_create(bed->device, args, shape, &w.correlate))
        bench_fail("cannot create the kernels of correlate");
    return w;
}

static struct work make_other(const struct bed *bed, const struct kernel *kernel,
                              const struct kernel_constant *constants, size_t n_constants, struct kernel_grid grid,
                              const void *args)
{
    struct work w = {.bed = bed, .args = args, .grid = grid};

    if (device_kernel_create(bed->device, kernel, constants, n_constants, &w.other))
        bench_fail("cannot create a kernel on the device");
    return w;
}

static struct work make_reduce(const struct bed *bed, const struct reduce_args *args)
{
    struct kernel_constant constants[REDUCE_N_CONSTANTS];

    reduce_constants(args, constants);
    return make_other(bed, &reduce_kernel, constants, REDUCE_N_CONSTANTS, reduce_grid(args), args);
}

static struct work make_checksum(const struct bed *bed, const struct checksum_args *args)
{
    struct kernel_constant constants[CHECKSUM_N_CONSTANTS];

    checksum_constants(args, constants);
    return make_other(bed, &checksum_kernel, constants, CHECKSUM_N_CONSTANTS, checksum_grid(args), args);
}

static struct work make_checksum_dump(const struct bed *bed, const struct checksum_dump_args *args)
{
    struct kernel_constant constants[CHECKSUM_DUMP_N_CONSTANTS];

    checksum_dump_constants(args, constants);
    return make_other(bed, &checksum_dump_kernel, constants, CHECKSUM_DUMP_N_CONSTANTS, checksum_dump_grid(args), args);
}

static void destroy_work(struct work *w)
{
    correlate_kernels_destroy(&w->correlate);
    device_kernel_destroy(w->other);
}

static void launch_work(const struct work *w)
{
    if (w->other)
        device_launch(w->bed->stream, w->other, &w->grid, w->args);
    else
        correlate_kernels_launch(&w->correlate, w->bed->stream, w->args, w->n_parts);
}

static int64_t time_work(void *what, size_t n)
{
    const struct work *w = what;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        launch_work(w);
    device_stream_wait(w->bed->stream);
    return clock_monotonic_ns() - start_ns;
}

/* Returns the rate in 10^9 operations or bytes per second.  'amount' is the number of operations or bytes in one
 * launch. */
static struct bench_stat measure(const struct options *options, const struct work *w, double amount)
{
    return bench_measure(time_work, (void *)w, amount, options->n_repetitions, REPETITION_NS,
                         DEVICE_STREAM_DEPTH / 4); /* two kernels each */
}

/* Fills voltages with random bits, or with half floats from 1/8 to below 2. */
static void fill_voltages(const struct bed *bed, enum voltage_format format, void *memory, size_t bytes)
{
    size_t block_bytes = bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES;
    uint16_t *host = device_alloc_pinned(bed->device, block_bytes);

    if (!host)
        bench_fail("there is not enough memory on the host");
    random_bytes(host, block_bytes);
    for (size_t i = 0; format == VOLTAGES_16_BITS && i < block_bytes / 2; i++)
        host[i] = (uint16_t)((host[i] & 0x8FFF) | 0x3000);
    for (size_t at = 0; at < bytes; at += block_bytes)
        device_copy(bed->stream, (uint8_t *)memory + at, host, bytes - at < block_bytes ? bytes - at : block_bytes);
    device_stream_wait(bed->stream);
    device_free_pinned(bed->device, host);
}

/* ---- Ceilings ---------------------------------------------------------------------------------------------------- */

static void find_ceilings(const struct options *options, const struct bed *bed, struct ceilings *ceilings)
{
    char why[200];

    *ceilings = (struct ceilings){
        .copy = bench_measure_copy(bed->device, bed->stream, options->copy_bytes, options->n_repetitions)};
    bench_print_head("Ceilings", "10^9 bytes/s or 10^12 op/s");
    bench_print_row("device copy", ceilings->copy, 0, "10^9 bytes/s read + written");
    for (int real = 0; real < 2; real++)
        if (matrix_product_measure(bed->device, real, options->n_repetitions,
                                   real ? &ceilings->real : &ceilings->integer, why, sizeof(why)))
            printf("matrix product of %s: not measured: %s\n", real ? "half floats" : "int8", why);
        else
            bench_print_row(real ? "matrix product, half floats" : "matrix product, int8",
                            real ? ceilings->real : ceilings->integer, 0, "10^12 operations/s");
}

/* ---- A size ------------------------------------------------------------------------------------------------------ */

static size_t n_sums(const struct correlate_args *a)
{
    return correlate_n_baselines(a->n_ants) * a->n_chan * N_POL_PRODUCTS * 2;
}

static double n_jones(const struct correlate_args *a)
{
    return (double)a->n_batches * a->n_ants * a->n_chan * a->n_spectra;
}

static double n_operations(const struct correlate_args *a)
{
    double n = N_POLS * a->n_ants;

    return 8 * n * (n + 1) / 2 * a->n_chan * a->n_spectra * a->n_batches;
}

/* Returns the least time of one launch in ns.  Sets '*bound' to the name of the limit. */
static double least_ns(const struct ceilings *ceilings, const struct correlate_args *a, const char **bound)
{
    double bytes = n_jones(a) * N_POLS * voltage_bytes(a->format) + 8.0 * (double)n_sums(a);
    double tops = a->format == VOLTAGES_16_BITS ? ceilings->real.max : ceilings->integer.max;
    double memory_ns = bytes / ceilings->copy.max, product_ns = tops > 0 ? n_operations(a) / tops * 1e-3 : 0;

    *bound = memory_ns > product_ns ? "memory" : "products";
    return memory_ns > product_ns ? memory_ns : product_ns;
}

static void print_correlate(const struct ceilings *ceilings, const struct correlate_args *a, const char *label,
                            struct bench_stat gops)
{
    struct bench_stat tops = {gops.min * 1e-3, gops.median * 1e-3, gops.max * 1e-3};
    const char *bound;
    char text[100];
    double ceiling = n_operations(a) / least_ns(ceilings, a, &bound) * 1e-3;

    snprintf(text, sizeof(text), "%.4g by %s; %.1f Gjones/s", ceiling, bound,
             gops.median * n_jones(a) / n_operations(a));
    bench_print_row(label, tops, ceiling, text);
}

/* Returns true if a shape gives the C version's results, on a few channels and spectra. */
static bool is_right(const struct bed *bed, const struct correlate_args *like, const struct correlate_shape *shape)
{
    struct correlate_args a = *like, plain_c;
    a.n_chan = 2;
    a.n_spectra = 48;
    a.n_batches = 3;
    size_t bytes = (size_t)(n_jones(&a) * N_POLS) * voltage_bytes(a.format), sums_bytes = n_sums(&a) * 4;
    void *voltages = device_alloc_pinned(bed->device, bytes);
    union correlate_sums sums = {device_alloc_pinned(bed->device, sums_bytes)}, expected = {calloc(1, sums_bytes)};
    bool ok = true;

    if (!voltages || !sums.integer || !expected.integer)
        bench_fail("there is no memory to check a shape");
    a.voltages = bench_alloc(bed->device, bytes);
    a.sums.integer = bench_alloc(bed->device, sums_bytes);
    fill_voltages(bed, a.format, (void *)a.voltages, bytes);
    device_copy(bed->stream, voltages, a.voltages, bytes);
    device_fill(bed->stream, a.sums.integer, 0, sums_bytes);
    struct work w = make_correlate(bed, &a, shape, 2);
    time_work(&w, 1);
    device_copy(bed->stream, sums.integer, a.sums.integer, sums_bytes);
    device_stream_wait(bed->stream);
    plain_c = a;
    plain_c.voltages = voltages;
    plain_c.sums = expected;
    correlate_kernel.cpu(&plain_c, bench_n_cpus());
    for (size_t i = 0; i < n_sums(&a); i++)
        ok &= correlate_sums_real(a.format) ? fabsf(sums.real[i] - expected.real[i]) < 1e-2f
                                            : sums.integer[i] == expected.integer[i];
    destroy_work(&w);
    device_free(bed->device, (void *)a.voltages);
    device_free(bed->device, a.sums.integer);
    device_free_pinned(bed->device, voltages);
    device_free_pinned(bed->device, sums.integer);
    free(expected.integer);
    return ok;
}

/* Measures one shape.  Returns false if its results are wrong. */
static bool bench_shape(const struct options *options, const struct bed *bed, const struct ceilings *ceilings,
                        const struct correlate_args *a, const struct correlate_shape *shape, const char *label)
{
    struct work w = make_correlate(bed, a, shape, options->n_parts);
    bool ok = options->once || !device_compiles(bed->device) || is_right(bed, a, shape);

    if (options->once) {
        time_work(&w, 1);
        time_work(&w, 1);
    } else {
        print_correlate(ceilings, a, label, measure(options, &w, n_operations(a)));
    }
    if (!ok)
        printf("    WRONG: the sums differ from the C version's\n");
    destroy_work(&w);
    return ok;
}

static void bench_reduce_as(const struct options *options, const struct bed *bed, const struct ceilings *ceilings,
                            const struct reduce_args *args, const char *label, double part_bytes)
{
    struct work w = make_reduce(bed, args);
    double n_parts = (double)args->n_baselines * args->n_chan * N_POL_PRODUCTS * 2;

    if (options->once)
        time_work(&w, 2);
    else
        bench_print_row(label, measure(options, &w, part_bytes * n_parts), ceilings->copy.max, "device copy");
    destroy_work(&w);
}

static void bench_reduce(const struct options *options, const struct bed *bed, const struct ceilings *ceilings,
                         const struct correlate_args *a)
{
    size_t n_baselines = correlate_n_baselines(a->n_ants);
    uint32_t *weights = bench_alloc(bed->device, n_baselines * sizeof(*weights));
    uint64_t *n_saturated = bench_alloc(bed->device, sizeof(*n_saturated));
    void *out = bench_alloc(bed->device, n_sums(a) * 4), *totals = bench_alloc(bed->device, n_sums(a) * 8);
    struct reduce_args args = {.sums = a->sums,
                               .weights = weights,
                               .out = {out},
                               .n_saturated = n_saturated,
                               .format = a->format,
                               .min_weight = 1,
                               .n_baselines = (uint32_t)n_baselines,
                               .n_chan = a->n_chan};

    device_fill(bed->stream, weights, 1, n_baselines * sizeof(*weights));
    device_fill(bed->stream, n_saturated, 0, sizeof(*n_saturated));
    device_fill(bed->stream, totals, 0, n_sums(a) * 8);
    bench_reduce_as(options, bed, ceilings, &args, "    reduce, 10^9 bytes/s", 12);
    args.totals.integer = totals;
    bench_reduce_as(options, bed, ceilings, &args, "    reduce with totals", 28);
    args.out.integer = NULL;
    bench_reduce_as(options, bed, ceilings, &args, "    reduce to totals", 24);
    device_free(bed->device, weights);
    device_free(bed->device, totals);
    device_free(bed->device, n_saturated);
    device_free(bed->device, out);
}

static void bench_other(const struct options *options, const struct ceilings *ceilings, struct work *w,
                        const char *label, double bytes)
{
    if (options->once)
        time_work(w, 2);
    else
        bench_print_row(label, measure(options, w, bytes), ceilings->copy.max, "device copy");
    destroy_work(w);
}

/* Measures the checksums of voltages and of sums, in bytes/s of voltages and of sums. */
static void bench_checksums(const struct options *options, const struct bed *bed, const struct ceilings *ceilings,
                            const struct correlate_args *a)
{
    size_t n_baselines = correlate_n_baselines(a->n_ants);
    void *rows = bench_alloc(bed->device, (size_t)a->n_chan * a->n_ants * N_POLS * 3 * sizeof(uint64_t));
    uint64_t *checks = bench_alloc(bed->device, (VERDICT_LENGTH + 2 * (size_t)a->n_chan) * sizeof(*checks));
    uint32_t *weights = bench_alloc(bed->device, n_baselines * sizeof(*weights));
    struct checksum_args add = {.voltages = a->voltages,
                                .rows = {rows},
                                .format = a->format,
                                .n_ants = a->n_ants,
                                .n_chan = a->n_chan,
                                .n_spectra = a->n_spectra,
                                .n_batches = a->n_batches};
    struct checksum_dump_args dump = {.sums = a->sums,
                                      .rows = {rows},
                                      .weights = weights,
                                      .verdict = checks,
                                      .words = checks + VERDICT_LENGTH,
                                      .format = a->format,
                                      .n_ants = a->n_ants,
                                      .n_chan = a->n_chan};
    struct work w = make_checksum(bed, &add);

    device_fill(bed->stream, rows, 0, (size_t)a->n_chan * a->n_ants * N_POLS * 3 * sizeof(uint64_t));
    device_fill(bed->stream, weights, 1, n_baselines * sizeof(*weights));
    bench_other(options, ceilings, &w, "    checksum, 10^9 bytes/s", n_jones(a) * N_POLS * voltage_bytes(a->format));
    w = make_checksum_dump(bed, &dump);
    bench_other(options, ceilings, &w, "    checksum_dump", 4.0 * (double)n_sums(a));
    device_free(bed->device, rows);
    device_free(bed->device, checks);
    device_free(bed->device, weights);
}

static struct correlate_args size_of(const struct options *options, bool is_cpu, unsigned n_ants, unsigned bits)
{
    bool wide = n_ants == 80, largest = n_ants == 4096;

    return (struct correlate_args){
        .format = bits == 4   ? VOLTAGES_4_BITS
                  : bits == 8 ? VOLTAGES_8_BITS
                              : VOLTAGES_16_BITS,
        .n_ants = n_ants,
        .n_chan = options->n_chan ? options->n_chan
                  : largest       ? 2
                  : is_cpu        ? 8
                  : wide          ? 512
                                  : 64,
        .n_spectra = options->n_spectra ? options->n_spectra
                     : largest          ? 16
                     : is_cpu           ? 64
                     : wide             ? 32
                                        : 1024,
        .n_batches = options->n_batches    ? options->n_batches
                     : largest             ? 1
                     : is_cpu              ? 4
                     : bits == 16 && !wide ? 8
                                           : 32,
    };
}

/* Finds the shapes to measure: the default shape or all candidates, and the shape for wgmma if the GPU has wgmma.  If
 * the device compiles no kernels, the only shape has all fields 0.  Returns the number of shapes. */
static size_t find_shapes(const struct options *options, const struct bed *bed, const struct correlate_args *a,
                          struct correlate_shape *shapes)
{
    const struct correlate_shape wgmma = {.wgmma = true};
    size_t shared = device_shared_bytes(bed->device), n;

    if (!device_compiles(bed->device)) {
        shapes[0] = (struct correlate_shape){0};
        return 1;
    }
    n = correlate_candidates(a, shared, options->shapes ? MAX_SHAPES : 1, shapes);
    if (device_has_wgmma(bed->device) && correlate_shape_valid(a, &wgmma, shared))
        shapes[n++] = wgmma;
    return n;
}

/* Measures one size.  Returns false if a result is wrong. */
static bool bench_size(const struct options *options, const struct bed *bed, const struct ceilings *ceilings,
                       unsigned n_ants, unsigned bits)
{
    struct correlate_args a = size_of(options, strcmp(device_name(bed->device), "cpu") == 0, n_ants, bits);
    size_t bytes = (size_t)(n_jones(&a) * N_POLS) * voltage_bytes(a.format);
    struct correlate_shape shapes[MAX_SHAPES + 1];
    char label[64], text[200];
    bool ok = true;

    a.voltages = bench_alloc(bed->device, bytes);
    a.sums.integer = bench_alloc(bed->device, n_sums(&a) * 4);
    fill_voltages(bed, a.format, (void *)a.voltages, bytes);
    device_fill(bed->stream, a.sums.integer, 0, n_sums(&a) * 4);
    snprintf(label, sizeof(label), "%u antennas, %u bits", n_ants, bits);
    size_t n = find_shapes(options, bed, &a, shapes);
    for (size_t i = 0; i < n; i++) {
        if (device_compiles(bed->device)) {
            correlate_shape_format(&shapes[i], text, sizeof(text));
            printf("  %s\n", text);
        }
        ok &= bench_shape(options, bed, ceilings, &a, &shapes[i], label);
    }
    if (!options->shapes) {
        bench_checksums(options, bed, ceilings, &a);
        bench_reduce(options, bed, ceilings, &a);
    }
    device_free(bed->device, (void *)a.voltages);
    device_free(bed->device, a.sums.integer);
    return ok;
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static void read_antennas(const char *text, void *value)
{
    struct options *options = value;

    options->n_sizes = bench_read_list(text, 1, 4096, options->n_ants, MAX_SIZES, "--antennas is a list of numbers");
}

static void read_bits(const char *text, void *value)
{
    struct options *options = value;

    options->n_bits = bench_read_list(text, 1, 4096, options->bits, MAX_SIZES, "--bits is a list of numbers");
}

static void parse(struct options *options, int argc, char **argv)
{
    const struct bench_option rows[] = {
        {"--shapes", NULL, &options->shapes},
        {"--once", NULL, &options->once},
        {"--device", bench_read_device, &options->device.kind},
        {"--antennas", read_antennas, options},
        {"--bits", read_bits, options},
        {"--channels", bench_read_unsigned, &options->n_chan},
        {"--spectra", bench_read_unsigned, &options->n_spectra},
        {"--batches", bench_read_unsigned, &options->n_batches},
        {"--parts", bench_read_unsigned, &options->n_parts},
        {"--repetitions", bench_read_size, &options->n_repetitions},
    };

    bench_options(argc, argv, rows, ARRAY_LEN(rows));
    if (options->n_repetitions < 1 || options->n_repetitions > BENCH_MAX_REPETITIONS)
        bench_fail("--repetitions is 1 to 99");
    for (size_t i = 0; i < options->n_bits; i++)
        if (options->bits[i] != 4 && options->bits[i] != 8 && options->bits[i] != 16)
            bench_fail("--bits are 4, 8 and 16");
    if (options->n_spectra % 16)
        bench_fail("--spectra is a multiple of 16");
}

int main(int argc, char **argv)
{
    struct options options = {
        .n_ants = {16, 64, 80, 128, 256, 512, 1024, 4096}, .n_sizes = 8, .bits = {4, 8, 16}, .n_bits = 3};
    struct ceilings ceilings = {0};
    struct bed bed;
    char why[400] = "";
    bool ok = true;

    options.n_repetitions = 5;
    log_init("bench_xbgpu", LOG_LEVEL_WARNING);
    parse(&options, argc, argv);
    if (device_open(&options.device, &bed.device, why, sizeof(why)))
        bench_fail(why);
    if (device_stream_create(bed.device, "bench", &bed.stream))
        bench_fail("cannot create a stream on the device");
    options.copy_bytes = (size_t)1 << (strcmp(device_name(bed.device), "cpu") == 0 ? 25 : 30);
    if (!options.once) {
        bench_print_machine();
        printf("device: %s, %s; %zu repetitions\n", device_name(bed.device), device_model(bed.device),
               options.n_repetitions);
        find_ceilings(&options, &bed, &ceilings);
        bench_print_head("X-engine", "useful 10^12 op/s");
    }
    for (size_t i = 0; i < options.n_sizes; i++)
        for (size_t b = 0; b < options.n_bits; b++)
            ok &= bench_size(&options, &bed, &ceilings, options.n_ants[i], options.bits[b]);
    device_stream_destroy(bed.stream);
    device_close(bed.device);
    return ok ? 0 : 1;
}
