/* compile_kernels - `make check-compile`: compiles every CUDA kernel for every kind of GPU and many sizes on a host
 * without a GPU.  The program prints a table of the kernels' resources.  A kernel that uses local memory fails, unless
 * 'allowed' lists it with a reason.
 *
 * The set of compiled kernels is the set that would run: each size is channelised, or correlated and reduced, on a
 * device that only records the kernels that are made and launched.  So a new kernel of channelise appears here by
 * itself.  Launch any other new kernel from a function like note_size(). */
#include "common/device/cuda/nvrtc.h"
#include "common/base/units.h"
#include "kernels/beamform/beam_detect.h"
#include "kernels/beamform/beam_finish.h"
#include "kernels/beamform/beam_incoherent.h"
#include "kernels/beamform/beamform.h"
#include "kernels/filterbank/channelise_fused.h"
#include "kernels/correlate/checksum_dump.h"
#include "kernels/correlate/correlate_shape.h"
#include "kernels/ddc/ddc.h"
#include "kernels/gnss/gnss_correlate.h"
#include "kernels/gnss/gnss_grid.h"
#include "kernels/gnss/gnss_quantise.h"
#include "kernels/util/gather.h"
#include "kernels/util/power.h"
#include "kernels/correlate/reduce.h"
#include "kernels/correlate/select_spectra.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_JOBS      4096
#define MAX_CONSTANTS 18 /* maximum constants of a kernel: correlate has 18 (create_part() in correlate_shape.c) */
#define MAX_PROCESSES 16

/* Kinds of GPU, and the shared memory that a block may have there (CUDA C++ Programming Guide, compute
 * capabilities). */
static const struct gpu {
    const char *name;
    size_t shared_bytes;
} gpus[] = {{"sm_80", 163 << 10},  {"sm_86", 99 << 10},   {"sm_89", 99 << 10},
            {"sm_90a", 227 << 10}, {"sm_100", 227 << 10}, {"sm_120", 99 << 10}};
#define N_GPUS ARRAY_LEN(gpus)

/* Spills that are known, with their reasons. */
static const struct {
    const char *kernel;
    unsigned spill_bytes; /* at most */
    const char *reason;
} allowed[] = {
    {"channelise_front", 128, "a few addresses and counters, once or twice in FRONT_SPECTRA spectra"},
    {"correlate_wgmma", 96, "what is loaded for the next item, while the sums of one are added"},
    {"checksum", 80, "of half floats, as two blocks of 512 threads on a multiprocessor leave 64 registers a thread"},
    {"gnss_correlate_mma", 108, "values of a slice's start; on sm_80 also addresses, once or twice in a step"},
};

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

/* What is 0 is as in 'usual'. */
static const struct channelise_config usual = {
    .n_chan = 8192,
    .n_taps = 16,
    .sample_bits = 10,
    .spectra_per_heap = 256,
    .n_batches = 1,
    .out_bits = 8,
    .dither = true,
    .unzip = 1, /* of the stages */
};

static const struct channelise_config sizes[] = {
    {.n_chan = 64},
    {.n_chan = 128},
    {.n_chan = 256},
    {.n_chan = 512},
    {.n_chan = 1024},
    {.n_chan = 2048},
    {.n_chan = 4096},
    {.n_chan = 8192},
    {.n_chan = 16384},
    {.n_chan = 32768},
    {.n_chan = 65536},
    {.n_chan = 1024, .n_taps = 1},
    {.n_chan = 1024, .n_taps = 4},
    {.n_chan = 1024, .n_taps = 32},
    {.n_chan = 32768, .n_taps = 8},
    {.n_chan = 65536, .n_taps = 32},
    {.sample_bits = 2},
    {.sample_bits = 8},
    {.sample_bits = 12},
    {.sample_bits = 16},
    {.out_bits = 4},
    {.spectra_per_heap = 16},
    {.unzip = 2},
    {.unzip = 4},
    {.n_chan = 64, .unzip = 4},
    {.n_chan = 65536, .unzip = 4},
    {.out_bits = 4, .spectra_per_heap = 16, .unzip = 2},
    {.n_chan = 64, .n_bins = 64},
    {.n_chan = 1024, .n_bins = 2048},
    {.n_chan = 1024, .n_bins = 2048, .append_spectra = 256},
    {.n_chan = 2048, .n_bins = 4096, .append_spectra = 128},
    {.n_chan = 4096, .n_bins = 8192, .append_spectra = 128},
    {.n_chan = 4096, .n_bins = 4096, .n_taps = 1},
    {.n_chan = 4096, .n_bins = 8192},
    {.n_chan = 16384, .n_bins = 16384},
    {.n_chan = 16384, .n_bins = 32768},
    {.n_chan = 65536, .n_bins = 131072},
    {.n_chan = 32768, .n_bins = 65536},
    {.n_chan = 32768, .n_bins = 65536, .n_taps = 32},
};

/* Arrays, whose default shapes differ. */
static const struct {
    uint32_t n_ants;
    enum voltage_format format;
} arrays[] = {
    {8, VOLTAGES_4_BITS},    {8, VOLTAGES_8_BITS},    {8, VOLTAGES_16_BITS},    {16, VOLTAGES_4_BITS},
    {16, VOLTAGES_8_BITS},   {16, VOLTAGES_16_BITS},  {32, VOLTAGES_4_BITS},    {32, VOLTAGES_8_BITS},
    {32, VOLTAGES_16_BITS},  {48, VOLTAGES_4_BITS},   {64, VOLTAGES_4_BITS},    {64, VOLTAGES_8_BITS},
    {80, VOLTAGES_4_BITS},   {80, VOLTAGES_8_BITS},   {80, VOLTAGES_16_BITS},   {96, VOLTAGES_4_BITS},
    {128, VOLTAGES_4_BITS},  {128, VOLTAGES_8_BITS},  {128, VOLTAGES_16_BITS},  {80, VOLTAGES_4_BITS_OFFSET},
    {112, VOLTAGES_16_BITS}, {129, VOLTAGES_8_BITS},  {150, VOLTAGES_8_BITS},   {160, VOLTAGES_16_BITS},
    {4096, VOLTAGES_4_BITS}, {4096, VOLTAGES_8_BITS}, {4096, VOLTAGES_16_BITS},
};

/* Shapes beside the default: what is 0 is as the rows have it. */
static const struct variant {
    unsigned n_chan;
    struct channelise_shape shape;
} variants[] = {
    {4096, {.front_rows = 8, .front_spectra = 8, .front_tensors = 1}},
    {8192, {.front_rows = 16}},
    {32768, {.front_rows = 64, .front_stages = 2}},
    {32768, {.front_rows = 128}},
    {4096, {.front_rows = 16, .back_tiles = 2}},
};

static const uint32_t subsamplings[] = {3, 4, 8, 10, 16, 32, 64, 128}, ddc_bits[] = {2, 8, 12, 16};

/* ---- What is to be compiled -------------------------------------------------------------------------------------- */

struct job {
    const struct kernel *kernel;
    struct kernel_constant constants[MAX_CONSTANTS];
    size_t n_constants, gpu;
    struct channelise_config size; /* that it was first noted for */
    const struct variant *variant; /* of it; NULL: the default shape */
    uint32_t n_ants;               /* instead, where it is not 0 */
    enum voltage_format format;
    uint32_t shared_bytes; /* of the last launch */
};

static struct job jobs[MAX_JOBS];
static size_t n_jobs;
static size_t gpu_now;
static struct channelise_config size_now;
static const struct variant *variant_now;
static uint32_t ants_now;
static enum voltage_format format_now;

/* A kernel of the noting device. */
struct noted {
    struct device_kernel base;
    struct job *job;
};

static int note_kernel(struct device *device, const struct kernel *kernel, const struct kernel_constant *constants,
                       size_t n_constants, struct device_kernel **made)
{
    struct noted *noted = calloc(1, sizeof(*noted));
    size_t i;

    assert(noted && n_constants <= MAX_CONSTANTS && n_jobs < MAX_JOBS);
    jobs[n_jobs] = (struct job){.kernel = kernel,
                                .n_constants = n_constants,
                                .gpu = gpu_now,
                                .size = size_now,
                                .variant = variant_now,
                                .n_ants = ants_now,
                                .format = format_now};
    memcpy(jobs[n_jobs].constants, constants, n_constants * sizeof(*constants));
    for (i = 0; i < n_jobs; i++)
        if (jobs[i].kernel == kernel && jobs[i].gpu == gpu_now &&
            memcmp(jobs[i].constants, jobs[n_jobs].constants, sizeof(jobs[i].constants)) == 0)
            break;
    if (i == n_jobs)
        n_jobs++;
    *noted = (struct noted){{device, kernel}, &jobs[i]};
    *made = &noted->base;
    return 0;
}

static void forget_kernel(struct device_kernel *kernel)
{
    free(kernel);
}

static void note_launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                        const void *args)
{
    ((struct noted *)kernel)->job->shared_bytes = grid->shared_bytes;
}

static void *alloc_nothing(struct device *device, size_t bytes)
{
    return malloc(1);
}

static void free_nothing(struct device *device, void *memory)
{
    free(memory);
}

static void copy_nothing(struct device_stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                         size_t row_bytes, size_t n_rows)
{
}

static void fill_nothing(struct device_stream *stream, void *dst, uint8_t value, size_t bytes)
{
}

static int plan_nothing(struct device *device, size_t n, size_t batch, struct device_fft **fft)
{
    *fft = calloc(1, sizeof(**fft));
    if (!*fft)
        return -1;
    (*fft)->device = device;
    return 0;
}

static void forget_plan(struct device_fft *fft)
{
    free(fft);
}

static void transform_nothing(struct device_stream *stream, struct device_fft *fft, const void *in, void *out)
{
}

static void map_nothing(struct device_stream *stream, const struct device_tensor *tensor, struct device_tensor_map *map)
{
}

/* The cpu device, made to do nothing but note. */
static struct device *open_noting_device(void)
{
    static const struct device_config config = {.kind = DEVICE_CPU, .n_threads = 1};
    static struct device_ops ops;
    struct device *device;

    if (device_cpu_open(&config, &device))
        abort();
    ops = *device->ops;
    ops.alloc = alloc_nothing;
    ops.free = free_nothing;
    ops.copy_2d = copy_nothing;
    ops.fill = fill_nothing;
    ops.fft_create = plan_nothing;
    ops.fft_destroy = forget_plan;
    ops.fft_run = transform_nothing;
    ops.kernel_create = note_kernel;
    ops.kernel_destroy = forget_kernel;
    ops.map_tensor = map_nothing;
    ops.launch = note_launch;
    device->ops = &ops;
    device->compiles = true;
    return device;
}

/* Of channelise all that it makes and launches. */
static void note_channelise(struct device *device, struct device_stream *stream, const struct channelise_config *c)
{
    const uint8_t *const input[N_POLS] = {0};
    const struct channelise_spectrum spectrum = {0}, *const spectra[N_POLS] = {&spectrum, &spectrum};
    struct channelise_buffer buffer = {
        .rotation = calloc((size_t)N_POLS * c->n_batches * c->spectra_per_heap * 2, sizeof(float))};
    struct channelise *channelise;

    if (!buffer.rotation || channelise_create(device, c, &channelise))
        abort();
    channelise_append(channelise, stream, input, &buffer, 0, 1, spectra);
    channelise_finish(channelise, stream, &buffer, NULL, 0);
    channelise_destroy(channelise);
    free(buffer.rotation);
}

static void note_size(struct device *device, struct device_stream *stream, const struct channelise_config *size)
{
    struct channelise_config c = usual;

    c.n_chan = size->n_chan ? size->n_chan : c.n_chan;
    c.n_taps = size->n_taps ? size->n_taps : c.n_taps;
    c.sample_bits = size->sample_bits ? size->sample_bits : c.sample_bits;
    c.out_bits = size->out_bits ? size->out_bits : c.out_bits;
    c.spectra_per_heap = size->spectra_per_heap ? size->spectra_per_heap : c.spectra_per_heap;
    c.unzip = size->unzip ? size->unzip : c.unzip;
    c.n_bins = size->n_bins;
    c.append_spectra = size->append_spectra;
    size_now = c;
    c.method = CHANNELISE_FUSED;
    note_channelise(device, stream, &c);
    c.method = CHANNELISE_STAGES;
    note_channelise(device, stream, &c);
}

static void note_launched(struct device *device, struct device_stream *stream, const struct kernel *kernel,
                          const struct kernel_constant *constants, size_t n_constants, struct kernel_grid grid)
{
    struct device_kernel *made;

    if (device_kernel_create(device, kernel, constants, n_constants, &made))
        abort();
    device_launch(stream, made, &grid, NULL);
    device_kernel_destroy(made);
}

static void note_select_spectra(struct device *device, struct device_stream *stream)
{
    static const enum voltage_format formats[] = {VOLTAGES_4_BITS_OFFSET, VOLTAGES_8_BITS, VOLTAGES_16_BITS};

    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        struct select_spectra_args args = {.format = formats[i],
                                           .n_ants = 80,
                                           .n_chan = 128,
                                           .n_spectra = 256,
                                           .n_out_spectra = 64,
                                           .n_out_batches = 1};
        struct kernel_constant constants[SELECT_SPECTRA_N_CONSTANTS];
        ants_now = args.n_ants;
        format_now = formats[i];
        select_spectra_constants(&args, constants);
        note_launched(device, stream, &select_spectra_kernel, constants, SELECT_SPECTRA_N_CONSTANTS,
                      select_spectra_grid(&args));
        ants_now = 0;
    }
}

static void note_detected(struct device *device, struct device_stream *stream, const struct beamform_args *form)
{
    for (int products = BEAM_TOTAL; products <= BEAM_STOKES; products++) {
        const struct beam_detect_args args = {.form = *form, .products = (enum beam_products)products};
        struct kernel_constant constants[BEAM_DETECT_N_CONSTANTS];
        beam_detect_constants(&args, constants);
        note_launched(device, stream, &beam_detect_kernel, constants, BEAM_DETECT_N_CONSTANTS, beam_detect_grid(&args));
    }
}

static void note_incoherent(struct device *device, struct device_stream *stream, const struct beamform_args *form)
{
    for (int products = BEAM_POWER_0; products <= BEAM_STOKES; products++) {
        const struct beam_incoherent_args args = {.format = form->format,
                                                  .products = (enum beam_products)products,
                                                  .n_ants = form->n_ants,
                                                  .n_chan = form->n_chan,
                                                  .n_spectra = form->n_spectra,
                                                  .n_batches = form->n_batches};
        struct kernel_constant constants[BEAM_INCOHERENT_N_CONSTANTS];
        beam_incoherent_constants(&args, constants);
        note_launched(device, stream, &beam_incoherent_kernel, constants, BEAM_INCOHERENT_N_CONSTANTS,
                      beam_incoherent_grid(&args));
    }
}

static void note_beams(struct device *device, struct device_stream *stream)
{
    static const struct {
        uint32_t n_ants, n_slots;
        enum voltage_format format;
    } sums[] = {{80, 16, VOLTAGES_4_BITS_OFFSET}, {80, 16, VOLTAGES_8_BITS}, {1025, 16, VOLTAGES_4_BITS},
                {1025, 16, VOLTAGES_8_BITS},      {64, 64, VOLTAGES_8_BITS}, {72, 64, VOLTAGES_8_BITS},
                {96, 272, VOLTAGES_4_BITS},       {96, 272, VOLTAGES_8_BITS}};
    const struct beam_coefficients_args coefficients = {.n_beams = 8, .n_ants = 80, .n_chan = 128};
    const struct beam_finish_args finish = {.n_windows = 64, .n_beams = 4, .n_cells = 128};

    for (size_t i = 0; i < 2 * ARRAY_LEN(sums); i++) {
        const bool wgmma = i >= ARRAY_LEN(sums);
        const size_t size = i % ARRAY_LEN(sums);
        if (wgmma && strcmp(gpus[gpu_now].name, "sm_90a") != 0)
            continue;
        const struct beamform_args args = {.format = sums[size].format,
                                           .n_beams = 8,
                                           .n_slots = sums[size].n_slots,
                                           .n_ants = sums[size].n_ants,
                                           .n_chan = 128,
                                           .n_spectra = 256,
                                           .n_batches = 8,
                                           .wgmma = wgmma};
        struct kernel_constant constants[BEAMFORM_N_CONSTANTS];
        ants_now = args.n_ants;
        format_now = args.format;
        beamform_constants(&args, constants);
        note_launched(device, stream, &beamform_kernel, constants, BEAMFORM_N_CONSTANTS, beamform_grid(&args));
        note_detected(device, stream, &args);
        if (args.n_slots <= 16 && !wgmma)
            note_incoherent(device, stream, &args);
    }
    ants_now = coefficients.n_ants;
    note_launched(device, stream, &beam_finish_kernel, NULL, 0, beam_finish_grid(&finish));
    note_launched(device, stream, &beam_coefficients_kernel, NULL, 0, beam_coefficients_grid(&coefficients));
    ants_now = 0;
}

static void note_correlate(struct device *device, struct device_stream *stream, const struct correlate_args *args,
                           const struct correlate_shape *shape)
{
    struct correlate_kernels kernels;

    if (correlate_kernels_create(device, args, shape, &kernels))
        abort();
    correlate_kernels_launch(&kernels, stream, args, 0);
    correlate_kernels_destroy(&kernels);
}

static void note_checksums(struct device *device, struct device_stream *stream, const struct correlate_args *of)
{
    const struct checksum_args args = {.format = of->format,
                                       .n_ants = of->n_ants,
                                       .n_chan = of->n_chan,
                                       .n_spectra = of->n_spectra,
                                       .n_batches = of->n_batches};
    const struct checksum_dump_args dump = {.format = of->format, .n_ants = of->n_ants, .n_chan = of->n_chan};
    struct kernel_constant constants[CHECKSUM_N_CONSTANTS];

    checksum_constants(&args, constants);
    note_launched(device, stream, &checksum_kernel, constants, CHECKSUM_N_CONSTANTS, checksum_grid(&args));
    checksum_dump_constants(&dump, constants);
    note_launched(device, stream, &checksum_dump_kernel, constants, CHECKSUM_DUMP_N_CONSTANTS,
                  checksum_dump_grid(&dump));
}

static void note_array(struct device *device, struct device_stream *stream, uint32_t n_ants, enum voltage_format format)
{
    const struct correlate_args correlate = {
        .n_ants = n_ants, .n_chan = 64, .n_spectra = 256, .n_batches = 8, .format = format};
    const struct reduce_args reduce = {
        .n_baselines = (uint32_t)correlate_n_baselines(n_ants), .n_chan = 64, .format = format};
    const struct correlate_shape tiles = correlate_default_shape(&correlate, device->shared_bytes),
                                 wgmma = {.wgmma = true};
    struct kernel_constant constants[REDUCE_N_CONSTANTS];

    ants_now = n_ants;
    format_now = format;
    note_checksums(device, stream, &correlate);
    note_correlate(device, stream, &correlate, &tiles);
    if (strcmp(gpus[gpu_now].name, "sm_90a") == 0 && correlate_shape_valid(&correlate, &wgmma, device->shared_bytes))
        note_correlate(device, stream, &correlate, &wgmma);
    reduce_constants(&reduce, constants);
    note_launched(device, stream, &reduce_kernel, constants, REDUCE_N_CONSTANTS, reduce_grid(&reduce));
    ants_now = 0;
}

static void note_variant(struct device *device, struct device_stream *stream, const struct variant *variant)
{
    struct channelise_config c = usual;
    struct channelise_shape shape;

    c.n_chan = variant->n_chan;
    shape = channelise_shape_of_rows(&c, variant->shape.front_rows, device->shared_bytes);
    for (size_t i = 0; i < sizeof(shape) / sizeof(uint32_t); i++)
        if (((const uint32_t *)&variant->shape)[i])
            ((uint32_t *)&shape)[i] = ((const uint32_t *)&variant->shape)[i];
    c.shape = &shape;
    c.method = CHANNELISE_FUSED;
    size_now = c;
    variant_now = variant;
    if (channelise_shape_valid(&c, &shape, device->shared_bytes))
        note_channelise(device, stream, &c);
    else
        printf("a variant of %u channels cannot be cut so for %s\n", c.n_chan, gpus[gpu_now].name);
    variant_now = NULL;
}

/* In the table the subsampling has the place of the channels. */
static void note_ddc(struct device *device, struct device_stream *stream, uint32_t subsampling, uint32_t sample_bits)
{
    const struct ddc_args args = {
        .n_out = 1, .n_taps = 16 * subsampling, .subsampling = subsampling, .sample_bits = sample_bits};
    const struct ddc_shape shape = ddc_default_shape(&args);
    struct kernel_constant constants[DDC_N_CONSTANTS];

    size_now =
        (struct channelise_config){.n_chan = subsampling, .n_taps = args.n_taps, .sample_bits = args.sample_bits};
    ddc_constants(&args, &shape, constants);
    note_launched(device, stream, &ddc_kernel, constants, DDC_N_CONSTANTS, ddc_grid(&args, &shape));
}

static void note_power(struct device *device, struct device_stream *stream, uint32_t sample_bits)
{
    const struct power_args args = {.n_samples = 1, .sample_bits = sample_bits};
    struct kernel_constant constants[POWER_N_CONSTANTS];

    size_now = (struct channelise_config){.sample_bits = args.sample_bits};
    power_constants(&args, constants);
    note_launched(device, stream, &power_kernel, constants, POWER_N_CONSTANTS, power_grid(&args));
}

static void note_gather(struct device *device, struct device_stream *stream)
{
    const struct gather_args args = {.n_pieces = 1};
    struct kernel_constant constants[GATHER_N_CONSTANTS];

    size_now = (struct channelise_config){0};
    gather_constants(constants);
    note_launched(device, stream, &gather_kernel, constants, GATHER_N_CONSTANTS, gather_grid(&args));
}

static void note_gnss(struct device *device, struct device_stream *stream)
{
    static const uint32_t n_taps[] = {1, 3, 5, 15}, n_ants[] = {1, 8, 64};

    for (size_t i = 0; i < ARRAY_LEN(n_taps) * ARRAY_LEN(n_ants); i++) {
        const struct gnss_correlate_args args = {
            .n_pieces = 1, .max_samples = 1, .n_ants = n_ants[i / 4], .n_taps = n_taps[i % 4]};
        const struct kernel *variant = gnss_correlate_variant(args.n_ants);
        struct kernel_constant constants[GNSS_CORRELATE_N_CONSTANTS];
        size_now = (struct channelise_config){.n_taps = args.n_taps};
        gnss_correlate_constants(variant, &args, device_shared_bytes(device), constants);
        note_launched(device, stream, variant, constants, GNSS_CORRELATE_N_CONSTANTS,
                      gnss_correlate_grid(variant, &args, device_shared_bytes(device), device_multiprocessors(device)));
    }
}

static void note_gnss_quantise(struct device *device, struct device_stream *stream)
{
    const struct gnss_quantise_args args = {.n_samples = 1};
    struct kernel_constant constants[GNSS_QUANTISE_N_CONSTANTS];

    size_now = (struct channelise_config){0};
    gnss_quantise_constants(constants);
    note_launched(device, stream, &gnss_quantise_kernel, constants, GNSS_QUANTISE_N_CONSTANTS,
                  gnss_quantise_grid(&args));
}

static void note_gnss_grid(struct device *device, struct device_stream *stream)
{
    const struct gnss_grid_bins_args bins = {.n_rows = 2, .bin_bits = 12};
    const struct gnss_grid_rotate_args rotate = {.n_dopplers = 1, .n_rows = 21, .bin_bits = 12};
    const struct gnss_grid_multiply_args multiply = {.n_transforms = 1, .bin_bits = 12};
    const struct gnss_grid_powers_args powers = {.n_dopplers = 1, .bin_bits = 12};
    const struct gnss_grid_peaks_args peaks = {.n_dopplers = 1, .bin_bits = 12};
    struct kernel_constant c[GNSS_GRID_N_CONSTANTS];

    size_now = (struct channelise_config){0};
    gnss_grid_constants(c);
    note_launched(device, stream, &gnss_grid_bins_kernel, c, GNSS_GRID_N_CONSTANTS, gnss_grid_bins_grid(&bins));
    note_launched(device, stream, &gnss_grid_rotate_kernel, c, GNSS_GRID_N_CONSTANTS, gnss_grid_rotate_grid(&rotate));
    note_launched(device, stream, &gnss_grid_multiply_kernel, c, GNSS_GRID_N_CONSTANTS,
                  gnss_grid_multiply_grid(&multiply));
    note_launched(device, stream, &gnss_grid_powers_kernel, c, GNSS_GRID_N_CONSTANTS, gnss_grid_powers_grid(&powers));
    note_launched(device, stream, &gnss_grid_peaks_kernel, c, GNSS_GRID_N_CONSTANTS, gnss_grid_peaks_grid(&peaks));
}

static void note_all(void)
{
    struct device *device = open_noting_device();
    struct device_stream *stream;

    if (device_stream_create(device, "note", &stream))
        abort();
    device->n_multiprocessors = 132; /* as the shape for few blocks is for large GPUs */
    for (gpu_now = 0; gpu_now < N_GPUS; gpu_now++) {
        device->shared_bytes = gpus[gpu_now].shared_bytes;
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
            note_size(device, stream, &sizes[i]);
        for (size_t i = 0; i < ARRAY_LEN(subsamplings); i++)
            note_ddc(device, stream, subsamplings[i], 10);
        for (size_t i = 0; i < ARRAY_LEN(ddc_bits); i++)
            note_ddc(device, stream, 8, ddc_bits[i]);
        for (size_t i = 0; i < ARRAY_LEN(ddc_bits); i++)
            note_power(device, stream, ddc_bits[i]);
        note_gather(device, stream);
        note_select_spectra(device, stream);
        note_beams(device, stream);
        note_gnss(device, stream);
        note_gnss_quantise(device, stream);
        note_gnss_grid(device, stream);
        for (size_t i = 0; i < ARRAY_LEN(arrays); i++)
            note_array(device, stream, arrays[i].n_ants, arrays[i].format);
        for (size_t i = 0; i < ARRAY_LEN(variants); i++)
            note_variant(device, stream, &variants[i]);
    }
    device_stream_destroy(stream);
    device_close(device);
}

/* ---- Compiling --------------------------------------------------------------------------------------------------- */

/* Of one job; in memory that the processes share. */
struct result {
    int err;
    unsigned registers, shared_bytes, stack_bytes, spill_bytes;
    bool serial; /* one matrix operation waits for another, for want of registers or of order */
};

struct shared {
    atomic_size_t next; /* job to take */
    struct result results[MAX_JOBS];
};

/* The number before 'what' in the assembler's report. */
static unsigned number_before(const char *report, const char *what)
{
    const char *end = strstr(report, what);
    unsigned value = 0, scale = 1;

    if (!end)
        return 0;
    for (end--; end >= report && *end >= '0' && *end <= '9'; end--, scale *= 10)
        value += scale * (unsigned)(*end - '0');
    return value;
}

static void compile(const struct job *job, struct result *result)
{
    struct nvrtc_target target = {.ptx = false};
    char *report;

    snprintf(target.option, sizeof(target.option), "--gpu-architecture=%s", gpus[job->gpu].name);
    result->err = nvrtc_report(job->kernel, job->constants, job->n_constants, &target, &report);
    if (result->err)
        return;
    result->registers = number_before(report, " registers");
    result->shared_bytes = number_before(report, " bytes smem") + job->shared_bytes;
    result->stack_bytes = number_before(report, " bytes stack frame");
    result->spill_bytes = number_before(report, " bytes spill stores");
    result->serial = strstr(report, "instructions are serialized") != NULL;
    if (result->registers == 0)
        result->err = -1; /* that is not how the assembler used to report */
    free(report);
}

/* NVRTC compiles one program at a time in a process. */
static void compile_all(struct shared *shared)
{
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int n_processes = n_cpus < 1 ? 1 : n_cpus > MAX_PROCESSES ? MAX_PROCESSES : (int)n_cpus;

    fflush(stdout);
    for (int i = 0; i < n_processes; i++)
        if (fork() == 0) {
            for (size_t job; (job = atomic_fetch_add(&shared->next, 1)) < n_jobs;)
                compile(&jobs[job], &shared->results[job]);
            _exit(0);
        }
    while (wait(NULL) > 0)
        continue;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const char *allowed_for(const struct job *job, const struct result *result)
{
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
        if (strcmp(job->kernel->name, allowed[i].kernel) == 0 && result->spill_bytes <= allowed[i].spill_bytes &&
            result->stack_bytes <= allowed[i].spill_bytes)
            return allowed[i].reason;
    return NULL;
}

/* Says what is wrong with it, if anything is. */
static bool is_bad(const struct job *job, const struct result *result)
{
    bool spills = (result->spill_bytes || result->stack_bytes) && !allowed_for(job, result);

    if (!result->err && !spills && !result->serial && result->shared_bytes <= gpus[job->gpu].shared_bytes)
        return false;
    printf("WRONG: %s for %s with", job->kernel->name, gpus[job->gpu].name);
    for (size_t i = 0; i < job->n_constants; i++)
        printf(" %s=%ld", job->constants[i].name, job->constants[i].value);
    if (result->err)
        printf(" does not compile\n");
    else if (result->serial)
        printf(" has matrix operations that wait for one another\n");
    else if (spills)
        printf(" spills %u B, with %u B of local memory\n", result->spill_bytes, result->stack_bytes);
    else
        printf(" needs %u B of shared memory, of %zu\n", result->shared_bytes, gpus[job->gpu].shared_bytes);
    return true;
}

static bool same_size(const struct job *x, const struct job *y)
{
    const struct channelise_config *a = &x->size, *b = &y->size;

    if (x->n_ants || y->n_ants)
        return x->n_ants == y->n_ants && x->format == y->format;
    return a->n_chan == b->n_chan && a->n_taps == b->n_taps && a->sample_bits == b->sample_bits &&
           a->out_bits == b->out_bits && a->spectra_per_heap == b->spectra_per_heap && a->unzip == b->unzip &&
           x->variant == y->variant;
}

/* A row: one kernel and size, for all GPUs: registers of a thread, and KiB of shared memory of a block. */
static void print_row(size_t first, const struct shared *shared)
{
    const struct job *of = &jobs[first];

    if (of->n_ants)
        printf("%-17s %4u antennas, %2u bits%s %9s", of->kernel->name, of->n_ants, 4 * voltage_bytes(of->format),
               of->format == VOLTAGES_4_BITS_OFFSET ? ", offset" : "",
               of->format == VOLTAGES_4_BITS_OFFSET ? "" : "  ");
    else
        printf("%-17s %8u %5u %5u %4u %5u %6u", of->kernel->name, of->size.n_chan, of->size.n_taps,
               of->size.sample_bits, of->size.out_bits, of->size.spectra_per_heap, of->size.unzip);
    for (size_t gpu = 0; gpu < N_GPUS; gpu++) {
        char cell[32] = "";
        for (size_t i = 0; i < n_jobs; i++)
            if (jobs[i].gpu == gpu && jobs[i].kernel == of->kernel && same_size(&jobs[i], of))
                snprintf(cell, sizeof(cell), "%u %6.1f%s", shared->results[i].registers,
                         shared->results[i].shared_bytes / 1024.0, shared->results[i].stack_bytes ? "!" : " ");
        printf(" %11s", cell);
    }
    printf("\n");
}

/* Returns true if no earlier job, for any GPU, has the same kernel and size. */
static bool begins_row(size_t job)
{
    for (size_t i = 0; i < job; i++)
        if (jobs[i].kernel == jobs[job].kernel && same_size(&jobs[i], &jobs[job]))
            return false;
    return true;
}

static void print_table(const struct shared *shared)
{
    printf("Registers of a thread, KiB of shared memory of a block; '!' where there is local memory, for spilled "
           "registers\n\n");
    printf("%-17s %8s %5s %5s %4s %5s %6s", "kernel", "channels", "taps", "bits", "out", "heap", "unzip");
    for (size_t gpu = 0; gpu < N_GPUS; gpu++)
        printf(" %10s ", gpus[gpu].name);
    printf("\n");
    for (size_t i = 0; i < n_jobs; i++)
        if (begins_row(i))
            print_row(i, shared);
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
        printf("\n%s may spill %u bytes: %s.\n", allowed[i].kernel, allowed[i].spill_bytes, allowed[i].reason);
    printf("\n");
}

static void keep_only(const char *kernel)
{
    size_t n = 0;

    for (size_t i = 0; i < n_jobs; i++)
        if (strcmp(jobs[i].kernel->name, kernel) == 0)
            jobs[n++] = jobs[i];
    n_jobs = n;
}

/* Keeps every n-th job, from job 'first' on. */
static void keep_part(size_t first, size_t n)
{
    size_t n_kept = 0;

    for (size_t i = first; i < n_jobs; i += n)
        jobs[n_kept++] = jobs[i];
    n_jobs = n_kept;
}

/* Usage: compile_kernels [KERNEL | --part FIRST N] */
int main(int argc, char **argv)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char identity[64], why[512];
    size_t n_bad = 0;

    if (shared == MAP_FAILED)
        abort();
    if (nvrtc_load(why, sizeof(why))) {
        printf("check-compile: no kernel is compiled: %s\n", why);
        return 0;
    }
    nvrtc_identity(identity, sizeof(identity));
    note_all();
    if (argc == 4 && strcmp(argv[1], "--part") == 0 && atoi(argv[3]) > 0)
        keep_part((size_t)atoi(argv[2]), (size_t)atoi(argv[3]));
    else if (argc > 1)
        keep_only(argv[1]);
    printf("NVRTC %s: %zu kernels\n", identity, n_jobs);
    compile_all(shared);
    print_table(shared);
    for (size_t i = 0; i < n_jobs; i++)
        n_bad += is_bad(&jobs[i], &shared->results[i]);
    printf("%zu of %zu kernels are wrong\n", n_bad, n_jobs);
    return n_bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
