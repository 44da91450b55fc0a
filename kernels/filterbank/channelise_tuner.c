/* channelise_tuner.c - tables of candidate shapes, and the work that the tuner times.  The tuner times all appends to
 * a buffer (front), the completion of a buffer (back), or both (narrow). */
#include "kernels/filterbank/channelise_tuner.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGISTERS 65536 /* registers of a multiprocessor */

/* ---- Candidates of a wide band ----------------------------------------------------------------------------------- */

/* A field of a shape, and the values that the tuner tries for this field.  The fields of a group vary in all
 * combinations.  Other fields keep the values of the base shape. */
struct axis {
    size_t number, n;
    uint32_t values[8];
};
#define MAX_AXES       3
#define NUMBER(member) (offsetof(struct channelise_shape, member) / sizeof(uint32_t))
#define N_NUMBERS      (sizeof(struct channelise_shape) / sizeof(uint32_t))

/* The groups with the largest effect come first. */
static const struct axis groups[][MAX_AXES] = {
    {{NUMBER(front_per_thread), 2, {1, 2}},
     {NUMBER(front_columns), 5, {4, 8, 16, 32, 64}},
     {NUMBER(front_blocks), 6, {1, 2, 3, 4, 5, 6}}},
    {{NUMBER(front_tensors), 2, {0, 1}}, {NUMBER(front_stages), 3, {2, 3, 4}}},
    {{NUMBER(front_spectra), 4, {2, 4, 8, 16}}, {NUMBER(front_stages), 3, {2, 3, 4}}},
    {{NUMBER(front_section), 4, {64, 128, 256, 512}}},
    {{NUMBER(back_spectra), 3, {4, 8, 16}},
     {NUMBER(back_pairs), 5, {1, 2, 4, 8, 16}},
     {NUMBER(back_threads), 4, {64, 128, 256, 512}}},
    {{NUMBER(back_blocks), 8, {1, 2, 3, 4, 5, 6, 7, 8}}},
    {{NUMBER(back_tiles), 2, {1, 2}}, {NUMBER(back_bulk), 2, {0, 1}}},
};

/* Returns the number of registers per thread with which 'blocks' blocks fit on a multiprocessor. */
static uint32_t registers(uint32_t threads, uint32_t blocks)
{
    return REGISTERS / (threads * blocks);
}

/* Returns true if a shape of the front is worth measuring.  A thread of the front keeps the unfinished sums of both
 * polarisations, and little else.  If a thread has more than twice the registers that it needs, a shape with more
 * blocks uses the registers better. */
static bool front_plausible(const struct channelise_config *config, const struct channelise_shape *s)
{
    uint32_t columns = s->front_rows * s->front_columns, threads = columns / s->front_per_thread;
    uint32_t needed = 2 * s->front_per_thread * (config->n_taps - 1) + 32;
    uint32_t available = registers(threads, s->front_blocks);

    needed = needed < 64 ? 64 : needed;
    return threads >= 128 && (s->front_blocks == 1 || available >= needed) && available <= 2 * needed;
}

/* Returns true if a shape of the back is worth measuring.  In such a shape, each thread has a moderate number of
 * points.  Each thread also has enough registers for the longer pass. */
static bool back_plausible(const struct channelise_config *config, const struct channelise_shape *s)
{
    uint32_t m2 = 2 * config->n_chan / s->front_rows, a = s->back_radix, b = m2 / a;
    uint32_t points = s->back_pairs * 2 * s->back_spectra * m2 / s->back_threads;
    uint32_t available = registers(s->back_threads, s->back_blocks);

    return points >= 8 && points <= 64 && available >= 2 * (a > b ? a : b) + 32 && available >= 64 && available <= 170;
}

/* Sets combination 'index' of the group's values.  Returns false beyond the last combination. */
static bool combine(const struct axis *group, size_t index, struct channelise_shape *shape)
{
    const struct channelise_shape base = *shape;

    for (const struct axis *axis = group; axis < group + MAX_AXES && axis->n; axis++) {
        ((uint32_t *)shape)[axis->number] = axis->values[index % axis->n];
        index /= axis->n;
    }
    /* With these changes, all threads of the front take part in the transform, and the back's total number of threads
     * stays the same. */
    if (shape->front_per_thread != base.front_per_thread)
        shape->front_spectra = base.front_spectra * base.front_per_thread / shape->front_per_thread;
    if (shape->back_threads != base.back_threads && base.back_threads * base.back_blocks >= shape->back_threads)
        shape->back_blocks = base.back_threads * base.back_blocks / shape->back_threads;
    if (shape->back_spectra == 16 && base.back_spectra < 16)
        shape->back_tiles = 1;
    return index == 0;
}

static bool is_among(const struct channelise_shape *shape, const struct channelise_shape *shapes, size_t n)
{
    while (n > 0)
        if (memcmp(shape, &shapes[--n], sizeof(*shape)) == 0)
            return true;
    return false;
}

size_t channelise_candidates(const struct tuner_kernel *kernel, const struct channelise_config *config,
                             size_t shared_bytes, const struct channelise_shape *base, struct channelise_shape *shapes)
{
    size_t n = 0;

    if (channelise_shape_valid(config, base, shared_bytes))
        shapes[n++] = *base;
    for (size_t g = 0; n > 0 && g < ARRAY_LEN(groups); g++) {
        struct channelise_shape shape = *base;
        for (size_t i = 0;
             n < TUNER_MAX_SHAPES && kernel->numbers[groups[g][0].number] && combine(groups[g], i, &shape); i++) {
            bool plausible =
                kernel == &channelise_front_tuner ? front_plausible(config, &shape) : back_plausible(config, &shape);
            if (plausible && channelise_shape_valid(config, &shape, shared_bytes) && !is_among(&shape, shapes, n))
                shapes[n++] = shape;
            shape = *base;
        }
    }
    return n;
}

static size_t wide_candidates(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                              void *shapes)
{
    struct channelise_shape base = channelise_fused_shape(sizes, device_shared_bytes(device));

    return channelise_candidates(kernel, sizes, device_shared_bytes(device), &base, shapes);
}

/* ---- Candidates of a narrow band --------------------------------------------------------------------------------- */

/* Lists shapes whose 'columns' and 'together' are 1/2, 1 or 2 times the defaults. */
static size_t narrow_candidates(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                                void *shapes)
{
    static const uint32_t quarters[][2] = {{4, 4}, {2, 4}, {8, 4}, {4, 2}, {4, 8}, {2, 8}, {8, 2}, {2, 2}, {8, 8}};
    size_t n = 0, shared_bytes = device_shared_bytes(device);
    struct channelise_narrow_shape base, *found = shapes;

    if (!channelise_narrow_fits(sizes, shared_bytes, device_multiprocessors(device), &base))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(quarters); i++) {
        found[n] = base;
        found[n].columns = base.columns * quarters[i][0] / 4;
        found[n].together = base.together * quarters[i][1] / 4;
        n += channelise_narrow_valid(sizes, &found[n], shared_bytes);
    }
    return n;
}

/* ---- The timed work ---------------------------------------------------------------------------------------------- */

struct runs {
    struct channelise *channelise;
    const struct channelise_config *sizes;
    size_t n_spectra; /* spectra of a buffer */
    const uint8_t *input[N_POLS];
    float *gain;
    struct channelise_buffer buffer;
    struct channelise_spectrum *spectra; /* [n_spectra], for both polarisations */
};

static void append(void *work, struct device_stream *stream)
{
    const struct runs *r = work;
    size_t piece;

    for (size_t first = 0; first < r->n_spectra; first += piece) {
        const struct channelise_spectrum *const spectra[N_POLS] = {r->spectra + first, r->spectra + first};
        piece = r->n_spectra - first;
        piece = piece < r->sizes->append_spectra ? piece : r->sizes->append_spectra;
        channelise_append(r->channelise, stream, r->input, &r->buffer, first, piece, spectra);
    }
}

static void finish(void *work, struct device_stream *stream)
{
    const struct runs *r = work;

    channelise_finish(r->channelise, stream, &r->buffer, r->gain, 0);
}

static void append_and_finish(void *work, struct device_stream *stream)
{
    append(work, stream);
    finish(work, stream);
}

/* Uploads gains that scale the output to a usual level, so that few values are clipped.  The input is random bits, or
 * numbers around 1. */
static void upload_gain(struct tuner_bed *bed, const struct channelise_config *c, float *gain)
{
    size_t n = (size_t)c->n_chan * N_POLS * 2;
    float *host = tuner_alloc(bed, n * sizeof(*host), TUNER_PINNED);
    double input_sigma = c->n_bins ? 1 : exp2(c->sample_bits) / sqrt(24);

    for (size_t i = 0; host && i < n; i += 2)
        host[i] = (float)((c->out_bits == 8 ? 20 : 2) / input_sigma);
    if (host)
        device_copy(bed->stream, gain, host, n * sizeof(*host));
}

static int create(struct tuner_bed *bed, const void *sizes, const void *shape, void *work)
{
    struct channelise_config c = *(const struct channelise_config *)sizes;
    size_t n = (size_t)c.n_batches * c.spectra_per_heap, spacing = channelise_spacing_samples(&c);
    size_t n_samples = channelise_window_samples(&c) + n * spacing;
    size_t in_bytes = (c.n_bins ? n_samples * 8 : n_samples * c.sample_bits / 8) + CHANNELISE_SPARE_BYTES;
    struct runs *r = work;

    c.shape = c.n_bins ? NULL : shape;
    c.narrow = c.n_bins ? shape : NULL;
    c.power = false; /* the measurement allocates no memory for the sums of squares */
    r->sizes = sizes;
    r->n_spectra = n;
    r->spectra = calloc(n, sizeof(*r->spectra));
    for (size_t pol = 0; pol < N_POLS; pol++)
        r->input[pol] = tuner_alloc(bed, in_bytes, c.n_bins ? TUNER_FLOATS : TUNER_BITS);
    r->gain = tuner_alloc(bed, (size_t)c.n_chan * N_POLS * 2 * sizeof(float), TUNER_FLOATS);
    r->buffer.voltages = tuner_alloc(bed, channelise_voltage_bytes(&c), TUNER_BITS);
    r->buffer.saturated = tuner_alloc(bed, c.n_batches * N_POLS * sizeof(uint32_t), TUNER_BITS);
    r->buffer.rotation = tuner_alloc(bed, N_POLS * n * 2 * sizeof(float), TUNER_PINNED);
    r->buffer.rotation_device = tuner_alloc(bed, N_POLS * n * 2 * sizeof(float), TUNER_FLOATS);
    if (bed->is_short || !r->spectra)
        return -ENOMEM;
    upload_gain(bed, &c, r->gain);
    for (size_t i = 0; i < n; i++)
        r->spectra[i] = (struct channelise_spectrum){.offset = (int64_t)(i * spacing), .fine = 0.3f, .phase = 0.5f};
    int err = channelise_create(bed->device, &c, &r->channelise);
    if (!err)
        append(r, bed->stream); /* runs the front once, so that the back has input */
    return err;
}

static void destroy(void *work)
{
    struct runs *r = work;

    channelise_destroy(r->channelise);
    free(r->spectra);
}

static void format_sizes(const void *sizes, char *text, size_t text_bytes)
{
    const struct channelise_config *c = sizes;

    snprintf(text, text_bytes,
             "%u channels, spacing %zu samples, %u taps, %u to %u bits, %s, %u heaps of %u spectra, "
             "appended %u at a time",
             c->n_chan, channelise_spacing_samples(c), c->n_taps, c->sample_bits, c->out_bits,
             c->dither ? "dither" : "plain", c->n_batches, c->spectra_per_heap, c->append_spectra);
}

/* ---- The tables -------------------------------------------------------------------------------------------------- */

static const char *const front_numbers[N_NUMBERS] = {"front_rows",       "front_columns", "front_spectra",
                                                     "front_per_thread", "front_radix",   "front_stages",
                                                     "front_blocks",     "front_tensors", "front_section"};
static const char *const back_numbers[N_NUMBERS] = {[NUMBER(back_radix)] = "back_radix",
                                                    "back_spectra",
                                                    "back_pairs",
                                                    "back_tiles",
                                                    "back_bulk",
                                                    "back_threads",
                                                    "back_blocks"};
static const char *const narrow_numbers[] = {"front_radix_a", "front_radix_b", "columns",
                                             "together",      "back_radix_a",  "back_radix_b"};
_Static_assert(NUMBER(back_radix) == 9 && NUMBER(back_blocks) + 1 == N_NUMBERS, "all have names");
_Static_assert(sizeof(struct channelise_narrow_shape) == sizeof(uint32_t) * ARRAY_LEN(narrow_numbers), "likewise");

#define TUNER(name, numbers, candidates, queue)                                                                        \
    {                                                                                                                  \
        name, numbers, ARRAY_LEN(numbers), sizeof(struct runs), candidates, format_sizes, create, queue, destroy       \
    }
const struct tuner_kernel channelise_front_tuner = TUNER("channelise_front", front_numbers, wide_candidates, append);
const struct tuner_kernel channelise_back_tuner = TUNER("channelise_back", back_numbers, wide_candidates, finish);
const struct tuner_kernel channelise_narrow_tuner =
    TUNER("channelise_narrow", narrow_numbers, narrow_candidates, append_and_finish);

/* ---- Use --------------------------------------------------------------------------------------------------------- */

void channelise_choice_apply(const struct channelise_choice *choice, struct channelise_config *config)
{
    config->shape = choice->shape.front_rows > 0 ? &choice->shape : NULL;
    config->narrow = choice->narrow.columns > 0 ? &choice->narrow : NULL;
}
