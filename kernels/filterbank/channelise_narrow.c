/* channelise_narrow.c - the host code of channelise_narrow_front and channelise_narrow_back.  The stages of
 * channelise.c are the C version of these kernels. */
#include "kernels/filterbank/channelise_narrow.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BACK_THREADS 256
/* about twice the number of blocks that an H200 runs at a time, if the blocks have the largest size */
#define MANY_BLOCKS 256
#define MIN_SECTION 64 /* minimum number of spectra of a section; a section has n_taps - 1 more rows than spectra */

const struct kernel channelise_narrow_front_kernel = {
    .name = "channelise_narrow_front",
    .args_bytes = sizeof(struct channelise_narrow_front_args),
};
const struct kernel channelise_narrow_back_kernel = {
    .name = "channelise_narrow_back",
    .args_bytes = sizeof(struct channelise_narrow_back_args),
};

struct channelise_narrow {
    struct channelise_config config;
    struct channelise_narrow_shape shape;
    size_t n_spectra; /* spectra of a buffer */
    struct device *device;
    float *tables;                     /* device: one allocation for the three tables below */
    float *weights, *outer, *twiddles; /* arrays; the comments of the kernels' arguments describe them */
    float *between;                    /* device: complex [pol][n_spectra][k1][j2] */
    struct device_kernel *front, *back;
};

/* Shapes for 2^11 bins, 2^12 bins and so on.  A shape has the factors a and b of M1, the front's columns, the number of
 * spectra that the front transforms at a time, and the factors a and b of M2.  Blocks of the front have 256 threads.
 * They have 512 threads if smaller blocks would access memory in runs of 32 bytes or less.  These shapes suit
 * launches of many blocks. suit_few_blocks() changes the shapes for other launches. */
static const struct channelise_narrow_shape shapes[] = {
    {8, 1, 32, 8, 16, 16}, {4, 4, 16, 8, 16, 16}, {8, 4, 8, 8, 16, 16},  {8, 4, 8, 8, 32, 16},
    {8, 4, 8, 8, 32, 32},  {8, 8, 8, 8, 32, 32},  {16, 8, 4, 8, 32, 32},
};
#define LEAST_BINS 2048

/* With more than MANY_TAPS taps, a thread needs more registers.  A block then has at most MANY_TAPS_THREADS threads. */
#define MANY_TAPS         16
#define MANY_TAPS_THREADS 256

#define LINE_COLUMNS 16 /* number of complex numbers in a 128-byte line */

static size_t rows_of(const struct channelise_narrow_shape *s)
{
    return s->front_radix_a * s->front_radix_b;
}

static size_t front_shared_bytes(const struct channelise_narrow_shape *s)
{
    size_t a = s->front_radix_a, row = s->front_radix_b * s->columns, pad = s->front_radix_b > 1 ? s->columns : 0;

    return (2 * s->together * a * (row + pad) + a * row) * 2 * sizeof(float);
}

static size_t back_shared_bytes(const struct channelise_narrow_shape *s)
{
    return N_POLS * NARROW_BACK_SPECTRA * s->back_radix_a * (s->back_radix_b + 1) * 2 * sizeof(float);
}

bool channelise_narrow_valid(const struct channelise_config *config, const struct channelise_narrow_shape *shape,
                             size_t shared_bytes)
{
    size_t threads = rows_of(shape) * shape->columns, most = config->n_taps > MANY_TAPS ? MANY_TAPS_THREADS : 512;

    return threads >= 64 && threads <= most && shape->columns >= 1 && shape->together >= 2 && shape->together <= 16 &&
           shape->columns <= config->n_bins / rows_of(shape) && front_shared_bytes(shape) <= shared_bytes &&
           back_shared_bytes(shape) <= shared_bytes;
}

/* A call of channelise_append() divides its 'n' spectra among blocks of the front.  Returns the number of spectra of a
 * block. */
static size_t section_of(const struct channelise_config *config, const struct channelise_narrow_shape *s, size_t n)
{
    size_t n_columns = config->n_bins / rows_of(s) / s->columns, section = n * n_columns * N_POLS / MANY_BLOCKS;

    section = section < MIN_SECTION ? MIN_SECTION : section;
    return (section + s->together - 1) / s->together * s->together;
}

static struct kernel_grid front_grid(const struct channelise_config *config, const struct channelise_narrow_shape *s,
                                     size_t n)
{
    size_t section = section_of(config, s, n);

    return (struct kernel_grid){
        .blocks = {(uint32_t)(config->n_bins / rows_of(s) / s->columns), (uint32_t)((n + section - 1) / section),
                   N_POLS},
        .threads = (uint32_t)(rows_of(s) * s->columns),
        .shared_bytes = (uint32_t)front_shared_bytes(s),
    };
}

/* Returns the number of blocks of the front in a usual launch. */
static size_t n_front_blocks(const struct channelise_config *config, const struct channelise_narrow_shape *s)
{
    struct kernel_grid grid = front_grid(config, s, config->append_spectra);

    return (size_t)grid.blocks[0] * grid.blocks[1] * grid.blocks[2];
}

/* Changes the shape for a launch of few blocks.  A block that is alone on its multiprocessor waits for its own loads,
 * so the block gets twice as many loads in flight.  If some multiprocessors would have no block, blocks have fewer
 * columns, but still load whole lines. */
static void suit_few_blocks(const struct channelise_config *config, size_t shared_bytes, size_t n_multiprocessors,
                            struct channelise_narrow_shape *shape)
{
    struct channelise_narrow_shape s = *shape;

    if (config->append_spectra == 0 || config->n_taps > MANY_TAPS || n_front_blocks(config, &s) > n_multiprocessors)
        return;
    s.together *= 2;
    while (s.columns > LINE_COLUMNS && 2 * n_front_blocks(config, &s) <= n_multiprocessors)
        s.columns /= 2;
    if (channelise_narrow_valid(config, &s, shared_bytes))
        *shape = s;
}

bool channelise_narrow_fits(const struct channelise_config *config, size_t shared_bytes, size_t n_multiprocessors,
                            struct channelise_narrow_shape *shape)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct channelise_narrow_shape *s = &shapes[i];
        if (config->n_bins != (unsigned)LEAST_BINS << i)
            continue;
        assert(rows_of(s) * s->back_radix_a * s->back_radix_b == config->n_bins);
        *shape = *s;
        if (config->n_taps > MANY_TAPS)
            shape->together /= 2;
        while (config->n_taps > MANY_TAPS && rows_of(shape) * shape->columns > MANY_TAPS_THREADS)
            shape->columns /= 2;
        suit_few_blocks(config, shared_bytes, n_multiprocessors, shape);
        return front_shared_bytes(s) <= shared_bytes && back_shared_bytes(s) <= shared_bytes;
    }
    return false;
}

/* The weights are the first table.  Returns the number of floats of this table. */
static size_t weights_floats(const struct channelise_config *config)
{
    return (size_t)config->n_taps * config->n_bins;
}

static size_t tables_bytes(const struct channelise_config *config)
{
    /* The outer factors need 2 n_bins floats.  The twiddle factors of a row need at most the same number of floats. */
    return (weights_floats(config) + 4 * (size_t)config->n_bins) * sizeof(float);
}

static size_t n_spectra_of(const struct channelise_config *config)
{
    return (size_t)config->n_batches * config->spectra_per_heap;
}

static size_t between_bytes(const struct channelise_config *config)
{
    return N_POLS * n_spectra_of(config) * config->n_bins * 2 * sizeof(float);
}

size_t channelise_narrow_scratch_bytes(const struct channelise_config *config)
{
    return tables_bytes(config) + between_bytes(config);
}

/* Writes the factors e^{-2 pi sqrt(-1) i j / n} as an array [i][j] of n_i by n_j complex numbers. */
static void put_turns(float *to, size_t n_i, size_t n_j, size_t n)
{
    for (size_t i = 0; i < n_i; i++)
        for (size_t j = 0; j < n_j; j++, to += 2) {
            double angle = -2 * M_PI * (double)(i * j % n) / (double)n;
            to[0] = (float)cos(angle);
            to[1] = (float)sin(angle);
        }
}

static int upload_tables(struct channelise_narrow *n)
{
    const struct channelise_config *c = &n->config;
    size_t m2 = n->shape.back_radix_a * n->shape.back_radix_b;
    float *host = device_alloc_pinned(n->device, tables_bytes(c));

    if (!host)
        return -ENOMEM;
    design_pfb(c->n_bins, c->n_taps, c->w_cutoff, c->window, host);
    put_turns(host + weights_floats(c), c->n_bins / m2, m2, c->n_bins);
    put_turns(host + weights_floats(c) + 2 * (size_t)c->n_bins, n->shape.back_radix_a, n->shape.back_radix_b, m2);
    int err = device_upload(n->device, n->tables, host, tables_bytes(c));
    device_free_pinned(n->device, host);
    n->weights = n->tables;
    n->outer = n->weights + weights_floats(c);
    n->twiddles = n->outer + 2 * (size_t)c->n_bins;
    return err;
}

static int create_kernels(struct channelise_narrow *n)
{
    const struct channelise_config *c = &n->config;
    const struct kernel_constant front[] = {
        {"N_BINS", c->n_bins},
        {"N_TAPS", c->n_taps},
        {"RADIX_A", n->shape.front_radix_a},
        {"RADIX_B", n->shape.front_radix_b},
        {"NARROW_COLUMNS", n->shape.columns},
        {"NARROW_TOGETHER", n->shape.together},
    };
    const struct kernel_constant back[] = {
        {"N_CHAN", c->n_chan},
        {"N_BINS", c->n_bins},
        {"SPECTRA_PER_HEAP", c->spectra_per_heap},
        {"OUT_BITS", c->out_bits},
        {"DITHER", c->dither},
        {"RADIX_A", n->shape.back_radix_a},
        {"RADIX_B", n->shape.back_radix_b},
        {"N_THREADS", BACK_THREADS},
    };
    int err = device_kernel_create(n->device, &channelise_narrow_front_kernel, front, sizeof(front) / sizeof(front[0]),
                                   &n->front);

    return err ? err
               : device_kernel_create(n->device, &channelise_narrow_back_kernel, back, sizeof(back) / sizeof(back[0]),
                                      &n->back);
}

int channelise_narrow_create(struct device *device, const struct channelise_config *config,
                             struct channelise_narrow **narrow)
{
    struct channelise_narrow *n = calloc(1, sizeof(*n));
    int err;

    if (!n)
        return -ENOMEM;
    n->config = *config;
    n->n_spectra = n_spectra_of(config);
    n->device = device;
    bool fits = channelise_narrow_fits(config, device_shared_bytes(device), device_multiprocessors(device), &n->shape);
    assert(fits);
    if (config->narrow)
        n->shape = *config->narrow;
    n->tables = device_alloc(device, tables_bytes(config));
    n->between = device_alloc(device, between_bytes(config));
    err = n->tables && n->between ? upload_tables(n) : -ENOMEM;
    if (!err)
        err = create_kernels(n);
    if (err) {
        channelise_narrow_destroy(n);
        return err;
    }
    *narrow = n;
    return 0;
}

void channelise_narrow_destroy(struct channelise_narrow *narrow)
{
    if (!narrow)
        return;
    device_kernel_destroy(narrow->back);
    device_kernel_destroy(narrow->front);
    device_free(narrow->device, narrow->between);
    device_free(narrow->device, narrow->tables);
    free(narrow);
}

void channelise_narrow_front(struct channelise_narrow *narrow, struct device_stream *stream,
                             const uint8_t *const input[N_POLS], const int64_t offset[N_POLS], size_t first, size_t n)
{
    const struct channelise_narrow_shape *s = &narrow->shape;
    const struct channelise_narrow_front_args args = {
        .in = {(const float *)(const void *)input[0], (const float *)(const void *)input[1]},
        .weights = narrow->weights,
        .outer = narrow->outer,
        .out = narrow->between + first * narrow->config.n_bins * 2,
        .offset = {offset[0], offset[1]},
        .n_spectra = (uint32_t)n,
        .n_buffer = (uint32_t)narrow->n_spectra,
        .section_spectra = (uint32_t)section_of(&narrow->config, s, n),
    };
    const struct kernel_grid grid = front_grid(&narrow->config, s, n);

    device_launch(stream, narrow->front, &grid, &args);
}

void channelise_narrow_back(struct channelise_narrow *narrow, struct device_stream *stream,
                            const struct channelise_buffer *buffer, const float *gain, uint64_t first_spectrum)
{
    const struct channelise_narrow_shape *s = &narrow->shape;
    const struct channelise_narrow_back_args args = {
        .in = narrow->between,
        .twiddles = narrow->twiddles,
        .rotation = buffer->rotation_device,
        .gain = gain,
        .out = buffer->voltages,
        .saturated = buffer->saturated,
        .first_spectrum = first_spectrum,
        .seed = narrow->config.seed,
        .stream_id = narrow->config.stream_id,
        .n_spectra = (uint32_t)narrow->n_spectra,
    };
    const struct kernel_grid grid = {
        .blocks = {(uint32_t)rows_of(s), args.n_spectra / NARROW_BACK_SPECTRA, 1},
        .threads = BACK_THREADS,
        .shared_bytes = (uint32_t)back_shared_bytes(s),
    };

    device_fill(stream, buffer->saturated, 0, narrow->config.n_batches * N_POLS * sizeof(uint32_t));
    device_launch(stream, narrow->back, &grid, &args);
}
