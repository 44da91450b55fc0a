/* channelise_fused.c - the host code of channelise_front and channelise_back: tile sizes, tables, launches. */
#include "kernels/filterbank/channelise_fused.h"

#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS  16 /* blocks per multiprocessor */
#define MIN_SECTION 64 /* minimum number of spectra of a section, by default */
#define MAX_SECTION (1 << 20)
/* minimum of front_section; with this minimum, CHANNELISE_CUDA_SPECTRA spectra have 16384 sections */
#define LEAST_SECTION 16
/* time to start a block, in units of the time in which a block filters a row */
#define START_ROWS 16
/* Shared memory of a block on large GPUs from compute capability 9.0 on.  These GPUs have tensor copies and bulk
 * copies.  Other GPUs give a block less shared memory. */
#define TENSORS_SHARED_BYTES (227 << 10)

struct channelise_fused {
    struct channelise_config config; /* config.shape points to 'shape' below */
    struct channelise_shape shape;
    size_t n_points; /* M */
    size_t n_spectra;
    struct device *device;
    float *tables; /* device: one allocation for the four tables below */
    const float *weights, *inner, *outer, *twiddles;
    float *between; /* device: complex [spectrum][k1][j2] */
    float *gain;    /* device: gains of the current buffer, complex [k1][k2][pol] */
    struct device_kernel *front, *back, *gains;
};

const struct kernel channelise_front_kernel = {
    .name = "channelise_front",
    .args_bytes = sizeof(struct channelise_front_args),
};

const struct kernel channelise_back_kernel = {
    .name = "channelise_back",
    .args_bytes = sizeof(struct channelise_back_args),
};

const struct kernel channelise_gains_kernel = {
    .name = "channelise_gains",
    .args_bytes = sizeof(struct channelise_gains_args),
};

/* ---- Tile sizes -------------------------------------------------------------------------------------------------- */

static uint32_t smaller(uint32_t value, uint32_t limit)
{
    return value < limit ? value : limit;
}

static uint32_t back_points(const struct channelise_config *config, const struct channelise_shape *s)
{
    return 2 * config->n_chan / s->front_rows;
}

/* Each warp has some pieces of a row.  Returns the number of these pieces.  A piece has front_columns samples. */
static uint32_t front_warp_pieces(const struct channelise_shape *s)
{
    return 32 * s->front_per_thread / s->front_columns;
}

static uint32_t front_threads(const struct channelise_shape *s)
{
    return s->front_rows * s->front_columns / s->front_per_thread;
}

/* Returns the number of bytes to fetch for a block's columns of a row.  The number is a multiple of 16, and is large
 * enough for any position of the first sample. */
static size_t front_piece_bytes(const struct channelise_config *config, const struct channelise_shape *s)
{
    return (s->front_columns * config->sample_bits + 254) / 128 * 16;
}

/* Returns true if a box has pieces of two rows.  The same piece of both rows lies side by side.
 * channelise_front_fetch.h gives the reason. */
static bool front_row_pairs(const struct channelise_config *config, const struct channelise_shape *s)
{
    return front_warp_pieces(s) == 4 && front_piece_bytes(config, s) == 48;
}

/* Returns the number of bytes of shared memory that a block of the front needs, for the points and for struct tables
 * of channelise_front.cu. */
static size_t front_shared_bytes(const struct channelise_config *config, const struct channelise_shape *s)
{
    size_t n_block = s->front_rows * s->front_columns;
    /* Number of bytes of one polarisation in a stage.  With tensor copies the block has one ring of stages.
     * Otherwise each warp has a ring, so a stage has only the warp's bytes. */
    int64_t stage = s->front_spectra * (int64_t)front_piece_bytes(config, s) *
                    (s->front_tensors ? s->front_rows : front_warp_pieces(s));
    int64_t n_stages = s->front_stages * (s->front_tensors ? 1 : front_threads(s) / 32);
    int64_t align = s->front_tensors ? 128 : 16;
    size_t before = 2 * n_block * s->front_spectra * 8 + (config->n_taps + 1) / 2 * 2 * n_block * sizeof(float) +
                    n_block * 8 + s->front_rows * 8 + (6 + s->front_stages) * 8;

    return (size_t)(round_up((int64_t)before, align) + n_stages * 2 * round_up(stage, align));
}

static size_t back_shared_bytes(const struct channelise_config *config, const struct channelise_shape *s)
{
    uint32_t m2 = back_points(config, s), b = m2 / s->back_radix;
    size_t pitch = s->back_radix * (b > 1 ? b + 1 : 1);
    size_t n_lines = s->back_pairs * 2 * s->back_spectra, lines = n_lines * pitch * 8;
    /* Number of bytes of the channels that a block keeps, in both polarisations.  There are half as many channels as
     * points.  With one tile no channels are kept. */
    size_t kept = s->back_tiles > 1 ? s->back_tiles * n_lines * (m2 / 2) * config->out_bits / 2 : 0;

    return lines + kept + (s->back_bulk ? s->back_threads / 32 * 8 : 0); /* adds one barrier for each warp */
}

/* Returns true if the front can fetch the samples with tensor copies, as boxes of bytes.  Rows, and the runs of each
 * j1 within a row, must begin at multiples of 16 bytes. */
static bool may_have_tensors(const struct channelise_config *config, uint32_t n_back, size_t shared_bytes)
{
    return shared_bytes >= TENSORS_SHARED_BYTES && n_back * config->sample_bits % 128 == 0;
}

static bool power_of_two(uint32_t value, uint32_t least, uint32_t most)
{
    return value >= least && value <= most && (value & (value - 1)) == 0;
}

static bool back_valid(const struct channelise_config *config, const struct channelise_shape *s, size_t shared_bytes)
{
    uint32_t m2 = back_points(config, s), n_lines = s->back_pairs * 2 * s->back_spectra;

    if (!power_of_two(s->back_radix, 4, 32) || !power_of_two(m2 / s->back_radix, 1, 32) ||
        !power_of_two(s->back_spectra, 4, 16) || !power_of_two(s->back_pairs, 1, s->front_rows / 2) ||
        !power_of_two(s->back_tiles, 1, s->back_spectra < 16 ? 2 : 1) || !power_of_two(s->back_threads, 32, 512) ||
        s->back_blocks < 1 || s->back_blocks > MAX_BLOCKS)
        return false;
    /* With several tiles all threads have channels of each tile.  The channels of a warp are in one row. */
    if (s->back_tiles > 1 && (s->back_threads > n_lines * m2 / 8 || m2 < 64))
        return false;
    /* All threads have the same number of transforms in each pass. */
    return s->back_bulk <= (shared_bytes >= TENSORS_SHARED_BYTES) &&
           n_lines * (m2 / s->back_radix) % s->back_threads == 0 && n_lines * s->back_radix % s->back_threads == 0;
}

/* This choice was the fastest on an H200, with 16 taps and 10 bits (docs/decisions/f-shapes.md).  With few rows a
 * block of the front kernel reads long pieces and needs only one pass.  But with few rows the lines of the back kernel
 * are long.  The back kernel has at most two passes, each with a radix of at most 32.  With radix 16 the back kernel
 * has more warps or more spectra than with radix 32.  With boxes, the front kernel is as fast with many rows as with
 * few rows. */
struct channelise_shape channelise_fused_shape(const struct channelise_config *config, size_t shared_bytes)
{
    const uint32_t n_points = 2 * config->n_chan;
    uint32_t rows = 8;

    if (shared_bytes >= TENSORS_SHARED_BYTES && n_points >= 4096)
        rows = n_points <= 8192 ? n_points / 256 : smaller(n_points / 512, 64);
    if (rows < n_points / 1024)
        rows = n_points / 1024;
    return channelise_shape_of_rows(config, rows, shared_bytes);
}

struct channelise_shape channelise_shape_of_rows(const struct channelise_config *config, uint32_t rows,
                                                 size_t shared_bytes)
{
    uint32_t columns, back = 2 * config->n_chan / rows, points;
    struct channelise_shape s = {.front_per_thread = config->n_taps <= 16 ? 2 : 1,
                                 .front_stages = rows < 128 ? 3 : 4,
                                 /* With fewer rows, fetching by lanes is as fast as tensor copies. */
                                 .front_tensors = rows >= 16 && may_have_tensors(config, back, shared_bytes),
                                 .back_spectra = 4,
                                 .back_bulk = shared_bytes >= TENSORS_SHARED_BYTES};

    /* Without boxes, a block has 256 threads, so that a multiprocessor can run two blocks.  With boxes, a block has 512
     * threads, because longer boxes are faster.  A piece of fewer than 16 columns is too short. */
    columns = (s.front_tensors ? 512 : 256) * s.front_per_thread / rows;
    columns = columns < 16 ? 16 : columns;
    columns = smaller(columns, 512 * s.front_per_thread / rows);
    columns = smaller(columns, 32 * s.front_per_thread);
    columns = smaller(columns, back);
    s.front_rows = rows;
    s.front_spectra = 8 / s.front_per_thread; /* all threads take part in the transform */
    s.front_columns = columns;
    s.front_radix = rows <= 8 ? rows : rows <= 32 ? 4 : rows == 64 ? 8 : 16;
    s.back_radix = back == 16 || back == 128 || back == 256 ? 16 : back <= 64 ? 8 : 32;
    s.back_threads = back > 256 ? 256 : s.back_bulk ? 64 : 128;
    points = back > 256 ? 8192 : 2048;
    while (s.back_spectra < 16 && 4 * back * s.back_spectra <= points)
        s.back_spectra *= 2;
    s.back_pairs = smaller(points / (2 * back * s.back_spectra), rows / 2);
    s.back_pairs = s.back_pairs < 1 ? 1 : s.back_pairs;
    while (front_shared_bytes(config, &s) > shared_bytes && s.front_stages > 2)
        s.front_stages--;
    while (front_shared_bytes(config, &s) > shared_bytes && s.front_columns > 4)
        s.front_columns /= 2;
    while (front_shared_bytes(config, &s) > shared_bytes && s.front_spectra > 2)
        s.front_spectra /= 2;
    s.front_blocks = front_threads(&s) > 256 || 2 * front_shared_bytes(config, &s) > shared_bytes ? 1 : 2;
    while (back_shared_bytes(config, &s) > shared_bytes && s.back_spectra > 4)
        s.back_spectra /= 2;
    s.back_blocks = s.back_radix >= 32 ? 512 / s.back_threads : s.back_bulk ? 6 : 768 / s.back_threads;
    /* Two tiles make the stored pieces 32 bytes long, or 16 bytes if out_bits is 4.  Without bulk copies, the loads in
     * flight need the L1 cache.  The channels that a block with two tiles keeps would occupy half of this cache. */
    s.back_tiles = s.back_bulk && s.back_spectra == 4 ? 2 : 1;
    return s;
}

static bool front_valid(const struct channelise_config *config, const struct channelise_shape *s, size_t shared_bytes)
{
    if (!power_of_two(s->front_rows, 8, 256) || !power_of_two(s->front_columns, 4, 64) ||
        !power_of_two(s->front_spectra, 2, 16) || !power_of_two(s->front_per_thread, 1, 2) ||
        !power_of_two(s->front_radix, 4, 16) || s->front_stages < 2 || s->front_stages > 8 || s->front_blocks < 1 ||
        s->front_blocks > MAX_BLOCKS)
        return false;
    uint32_t last = s->front_rows / s->front_radix;
    /* With two passes, half of the threads have at least one transform of each spectrum.  With one pass, all threads
     * have at least one transform. */
    return s->front_rows >= s->front_radix && last <= 16 && (last == 1 || last >= 2 * s->front_per_thread) &&
           back_points(config, s) >= 16 && s->front_columns <= back_points(config, s) &&
           s->front_columns <= 32 * s->front_per_thread && front_threads(s) >= 64 && front_threads(s) <= 512 &&
           s->front_tensors <= may_have_tensors(config, back_points(config, s), shared_bytes) &&
           (s->front_section == 0 || s->front_section >= LEAST_SECTION) && s->front_section <= MAX_SECTION &&
           s->front_section % s->front_spectra == 0;
}

bool channelise_shape_valid(const struct channelise_config *config, const struct channelise_shape *shape,
                            size_t shared_bytes)
{
    return front_valid(config, shape, shared_bytes) && back_valid(config, shape, shared_bytes) &&
           front_shared_bytes(config, shape) <= shared_bytes && back_shared_bytes(config, shape) <= shared_bytes;
}

void channelise_front_constants(const struct channelise_config *config, const struct channelise_shape *shape,
                                struct kernel_constant constants[CHANNELISE_FRONT_N_CONSTANTS])
{
    const struct kernel_constant all[CHANNELISE_FRONT_N_CONSTANTS] = {
        {"N_CHAN", config->n_chan},
        {"N_TAPS", config->n_taps},
        {"SAMPLE_BITS", config->sample_bits},
        {"POWER", config->power},
        {"FRONT_ROWS", shape->front_rows},
        {"FRONT_COLUMNS", shape->front_columns},
        {"FRONT_SPECTRA", shape->front_spectra},
        {"FRONT_PER_THREAD", shape->front_per_thread},
        {"FRONT_RADIX", shape->front_radix},
        {"FRONT_STAGES", shape->front_stages},
        {"FRONT_TENSORS", shape->front_tensors},
        {"FRONT_BLOCKS", shape->front_blocks},
    };

    memcpy(constants, all, sizeof(all));
}

void channelise_back_constants(const struct channelise_config *config, const struct channelise_shape *shape,
                               struct kernel_constant constants[CHANNELISE_BACK_N_CONSTANTS])
{
    const struct kernel_constant all[CHANNELISE_BACK_N_CONSTANTS] = {
        {"N_CHAN", config->n_chan},
        {"SPECTRA_PER_HEAP", config->spectra_per_heap},
        {"OUT_BITS", config->out_bits},
        {"DITHER", config->dither},
        {"FRONT_ROWS", shape->front_rows},
        {"BACK_RADIX", shape->back_radix},
        {"BACK_SPECTRA", shape->back_spectra},
        {"BACK_PAIRS", shape->back_pairs},
        {"BACK_TILES", shape->back_tiles},
        {"BACK_BULK", shape->back_bulk},
        {"BACK_THREADS", shape->back_threads},
        {"BACK_BLOCKS", shape->back_blocks},
    };

    memcpy(constants, all, sizeof(all));
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

/* Writes e^{-2 pi i numerator / n} * scale. */
static void put_turn(float *to, size_t numerator, size_t n, double scale)
{
    double angle = -2 * M_PI * (double)(numerator % n) / (double)n;

    to[0] = (float)(scale * cos(angle));
    to[1] = (float)(scale * sin(angle));
}

/* Writes e^{-2 pi i i j / n} * scale as [i][j], n_i by n_j. */
static void put_turns(float *to, size_t n_i, size_t n_j, size_t n, double scale)
{
    for (size_t i = 0; i < n_i; i++)
        for (size_t j = 0; j < n_j; j++, to += 2)
            put_turn(to, i * j, n, scale);
}

/* Writes the factors of put_turns() without a scale.  The order is [i / 2][j][i % 2], so that a thread can load two
 * factors with one instruction. */
static void put_turn_pairs(float *to, size_t n_i, size_t n_j, size_t n)
{
    for (size_t i = 0; i < n_i; i++)
        for (size_t j = 0; j < n_j; j++)
            put_turn(to + ((i / 2 * n_j + j) * 2 + i % 2) * 2, i * j, n, 1);
}

/* Sizes of the tables in floats, in their order in device memory. */
struct table_sizes {
    size_t weights, outer, inner, twiddles;
};

static struct table_sizes table_sizes(const struct channelise_config *config)
{
    size_t m = channelise_spacing_samples(config);

    /* The tables of all shapes fit in these sizes. */
    return (struct table_sizes){
        .weights = channelise_window_samples(config), .outer = 2 * m, .inner = 2 * m, .twiddles = 2 * m};
}

static size_t tables_bytes(const struct channelise_config *config)
{
    struct table_sizes n = table_sizes(config);

    return (n.weights + n.outer + n.inner + n.twiddles) * sizeof(float);
}

static void put_tables(const struct channelise_fused *f, float *tables)
{
    const struct channelise_shape *s = &f->shape;
    struct table_sizes n = table_sizes(&f->config);
    size_t m1 = s->front_rows, m2 = f->n_points / m1;

    memset(tables, 0, tables_bytes(&f->config));
    design_pfb(f->n_points, f->config.n_taps, f->config.w_cutoff, f->config.window, tables);
    tables += n.weights;
    put_turns(tables, m1, m2, f->n_points, 0.5);
    tables += n.outer;
    put_turns(tables, m1 / s->front_radix, s->front_radix, m1, 1);
    tables += n.inner;
    put_turn_pairs(tables, s->back_radix, m2 / s->back_radix, m2);
}

static int upload_tables(struct channelise_fused *f)
{
    struct table_sizes n = table_sizes(&f->config);
    float *host = device_alloc_pinned(f->device, tables_bytes(&f->config));

    if (!host)
        return -ENOMEM;
    put_tables(f, host);
    int err = device_upload(f->device, f->tables, host, tables_bytes(&f->config));
    device_free_pinned(f->device, host);
    f->weights = f->tables;
    f->outer = f->weights + n.weights;
    f->inner = f->outer + n.outer;
    f->twiddles = f->inner + n.inner;
    return err;
}

/* ---- The object -------------------------------------------------------------------------------------------------- */

static size_t between_bytes(const struct channelise_config *config)
{
    return (size_t)config->n_batches * config->spectra_per_heap * channelise_spacing_samples(config) * 2 *
           sizeof(float);
}

static size_t gain_bytes(const struct channelise_config *config)
{
    return config->n_chan * N_POLS * 2 * sizeof(float);
}

size_t channelise_fused_scratch_bytes(const struct channelise_config *config)
{
    return tables_bytes(config) + between_bytes(config) + gain_bytes(config);
}

static int create_kernels(struct channelise_fused *f)
{
    struct kernel_constant front[CHANNELISE_FRONT_N_CONSTANTS], back[CHANNELISE_BACK_N_CONSTANTS];
    const struct kernel_constant gains[] = {{"N_CHAN", f->config.n_chan}, {"FRONT_ROWS", f->shape.front_rows}};
    int err;

    channelise_front_constants(&f->config, &f->shape, front);
    channelise_back_constants(&f->config, &f->shape, back);
    err = device_kernel_create(f->device, &channelise_front_kernel, front, CHANNELISE_FRONT_N_CONSTANTS, &f->front);
    if (!err)
        err = device_kernel_create(f->device, &channelise_back_kernel, back, CHANNELISE_BACK_N_CONSTANTS, &f->back);
    return err ? err : device_kernel_create(f->device, &channelise_gains_kernel, gains, ARRAY_LEN(gains), &f->gains);
}

int channelise_fused_create(struct device *device, const struct channelise_config *config,
                            struct channelise_fused **fused)
{
    struct channelise_fused *f = calloc(1, sizeof(*f));
    int err;

    if (!f)
        return -ENOMEM;
    f->config = *config;
    f->shape = config->shape ? *config->shape : channelise_fused_shape(config, device_shared_bytes(device));
    f->config.shape = &f->shape;
    f->n_points = channelise_spacing_samples(config);
    f->n_spectra = (size_t)config->n_batches * config->spectra_per_heap;
    f->device = device;
    assert(channelise_shape_valid(config, &f->shape, device_shared_bytes(device)));
    f->tables = device_alloc(device, tables_bytes(config));
    f->between = device_alloc(device, between_bytes(config));
    f->gain = device_alloc(device, gain_bytes(config));
    err = f->tables && f->between && f->gain ? upload_tables(f) : -ENOMEM;
    if (!err)
        err = create_kernels(f);
    if (err) {
        channelise_fused_destroy(f);
        return err;
    }
    *fused = f;
    return 0;
}

void channelise_fused_destroy(struct channelise_fused *fused)
{
    if (!fused)
        return;
    device_kernel_destroy(fused->gains);
    device_kernel_destroy(fused->back);
    device_kernel_destroy(fused->front);
    device_free(fused->device, fused->gain);
    device_free(fused->device, fused->between);
    device_free(fused->device, fused->tables);
    free(fused);
}

/* Returns the number of spectra of a section for which the launch takes the least time.  Blocks run in waves.  A wave
 * is the number of blocks that the device runs at a time.  Each block also filters some rows of the preceding section
 * again. */
static uint32_t section_spectra(const struct channelise_fused *f, size_t n)
{
    const struct channelise_shape *s = &f->shape;
    size_t n_groups = f->n_points / s->front_rows / s->front_columns, least_rows = SIZE_MAX, best = 0;
    size_t n_at_once = device_multiprocessors(f->device) * s->front_blocks;

    if (s->front_section)
        return s->front_section;
    for (size_t n_sections = 1; n_sections == 1 || n / n_sections >= MIN_SECTION; n_sections++) {
        size_t section = ((n - 1) / n_sections / s->front_spectra + 1) * s->front_spectra;
        size_t n_waves = (n_groups * ((n - 1) / section + 1) - 1) / n_at_once + 1;
        size_t rows = n_waves * (section + f->config.n_taps - 1 + START_ROWS);
        if (rows < least_rows) {
            least_rows = rows;
            best = section;
        }
    }
    return (uint32_t)best;
}

/* Describes the samples of each polarisation as a tensor.  The first spectrum's window begins in the tensor's first
 * 16 bytes.  The tensor ends with the last spectrum's window. */
static void map_samples(const struct channelise_fused *f, struct device_stream *stream,
                        struct channelise_front_args *args)
{
    const struct channelise_shape *s = &f->shape;
    const uint32_t bits = f->config.sample_bits;
    const bool pairs = front_row_pairs(&f->config, s);
    /* Axis of the tensor along a row's pieces, and axis along the rows. */
    const uint64_t extent[] = {s->front_rows, args->n_spectra + f->config.n_taps - 1};
    const uint64_t pitch[] = {f->n_points / s->front_rows * bits / 8, f->n_points * bits / 8};
    const uint32_t box[] = {s->front_rows, pairs ? 2 : s->front_spectra};

    for (int pol = 0; pol < N_POLS; pol++) {
        uint64_t first_bit = (uint64_t)args->offset[pol] * bits;
        struct device_tensor tensor = {
            .base = args->in[pol] + first_bit / 128 * 16,
            .extent = {(first_bit % 128 + pitch[0] * 8 + 7) / 8, extent[pairs], extent[!pairs]},
            .pitch = {pitch[pairs], pitch[!pairs]},
            .box = {(uint32_t)front_piece_bytes(&f->config, s), box[pairs], box[!pairs]},
        };
        args->first_bit[pol] = (uint32_t)(first_bit % 128);
        device_map_tensor(stream, &tensor, &args->map[pol]);
    }
}

void channelise_fused_front(struct channelise_fused *fused, struct device_stream *stream,
                            const uint8_t *const input[N_POLS], const int64_t offset[N_POLS], size_t first, size_t n,
                            uint64_t *power)
{
    const struct channelise_shape *s = &fused->shape;
    struct channelise_front_args args = {
        .in = {input[0], input[1]},
        .weights = fused->weights,
        .inner = fused->inner,
        .outer = fused->outer,
        .out = fused->between + first * fused->n_points * 2,
        .power = power,
        .offset = {offset[0], offset[1]},
        .n_spectra = (uint32_t)n,
        .section_spectra = section_spectra(fused, n),
    };
    struct kernel_grid grid = {
        .blocks = {(uint32_t)(fused->n_points / s->front_rows / s->front_columns),
                   (args.n_spectra + args.section_spectra - 1) / args.section_spectra, 1},
        .threads = front_threads(s),
        .shared_bytes = (uint32_t)front_shared_bytes(&fused->config, s),
    };

    if (s->front_tensors)
        map_samples(fused, stream, &args);
    device_launch(stream, fused->front, &grid, &args);
}

void channelise_fused_back(struct channelise_fused *fused, struct device_stream *stream,
                           const struct channelise_buffer *buffer, const float *gain, uint64_t first_spectrum)
{
    const struct channelise_shape *s = &fused->shape;
    struct channelise_back_args args = {
        .in = fused->between,
        .twiddles = fused->twiddles,
        .rotation = buffer->rotation_device,
        .gain = fused->gain,
        .out = buffer->voltages,
        .saturated = buffer->saturated,
        .first_spectrum = first_spectrum,
        .stream_id = fused->config.stream_id,
        .n_spectra = (uint32_t)fused->n_spectra,
    };
    struct channelise_gains_args gains = {gain, fused->gain};
    struct kernel_grid gains_grid = {.blocks = {(fused->config.n_chan + 127) / 128, 1, 1}, .threads = 128};
    struct kernel_grid grid = {
        .blocks = {s->front_rows / 2 / s->back_pairs, args.n_spectra / (s->back_tiles * s->back_spectra), 1},
        .threads = s->back_threads,
        .shared_bytes = (uint32_t)back_shared_bytes(&fused->config, s),
    };

    for (uint32_t round = 0; round < 7; round++) {
        args.keys[round][0] = (uint32_t)fused->config.seed + round * 0x9E3779B9u;
        args.keys[round][1] = (uint32_t)(fused->config.seed >> 32) + round * 0xBB67AE85u;
    }
    device_launch(stream, fused->gains, &gains_grid, &gains);
    device_fill(stream, buffer->saturated, 0, fused->config.n_batches * N_POLS * sizeof(uint32_t));
    device_launch(stream, fused->back, &grid, &args);
}
