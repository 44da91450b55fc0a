/* ddc_tuner.c - the table of candidate shapes, and the timed launch for one device input. */
#include "kernels/ddc/ddc_tuner.h"

#include "common/base/units.h"

#include <stdio.h>

/* Candidates: {warps of a block, tiles of a warp}. */
static const uint32_t known[][2] = {{4, 4}, {4, 2}, {4, 1}, {2, 4},  {2, 2}, {2, 1},
                                    {8, 4}, {8, 2}, {8, 1}, {16, 2}, {16, 1}};

static size_t candidates(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                         void *shapes)
{
    struct ddc_shape *found = shapes, base = ddc_default_shape(sizes);
    size_t n = 0;

    found[n++] = base;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct ddc_shape shape = {known[i][0], known[i][1], base.columns};
        bool is_base = shape.n_warps == base.n_warps && shape.n_tiles == base.n_tiles;
        if (!is_base && ddc_grid(sizes, &shape).shared_bytes <= device_shared_bytes(device))
            found[n++] = shape;
    }
    return n;
}

struct runs {
    struct ddc_args args;
    struct device_kernel *kernel;
    struct kernel_grid grid;
};

static int create(struct tuner_bed *bed, const void *sizes, const void *shape, void *work)
{
    struct kernel_constant constants[DDC_N_CONSTANTS];
    struct runs *r = work;

    r->args = *(const struct ddc_args *)sizes;
    r->args.scale = 1;
    uint64_t n_samples = ddc_window_samples(r->args.subsampling, r->args.n_taps, r->args.n_out);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        r->args.in[pol] = tuner_alloc(bed, n_samples * r->args.sample_bits / 8 + 1 + DDC_SPARE_BYTES, TUNER_BITS);
        r->args.out[pol] = tuner_alloc(bed, r->args.n_out * 2 * sizeof(float), TUNER_BITS);
    }
    r->args.weights = tuner_alloc(bed, ddc_weights_bytes(&r->args, shape, true), TUNER_HALVES);
    r->grid = ddc_grid(&r->args, shape);
    ddc_constants(&r->args, shape, constants);
    return device_kernel_create(bed->device, &ddc_kernel, constants, DDC_N_CONSTANTS, &r->kernel);
}

static void queue(void *work, struct device_stream *stream)
{
    const struct runs *r = work;

    device_launch(stream, r->kernel, &r->grid, &r->args);
}

static void destroy(void *work)
{
    device_kernel_destroy(((struct runs *)work)->kernel);
}

static void format_sizes(const void *sizes, char *text, size_t text_bytes)
{
    const struct ddc_args *args = sizes;

    snprintf(text, text_bytes, "subsampling %u, %u taps, %u bits, %u at a time", args->subsampling, args->n_taps,
             args->sample_bits, args->n_out);
}

static const char *const numbers[] = {"n_warps", "n_tiles", "columns"};
_Static_assert(sizeof(struct ddc_shape) == sizeof(uint32_t) * ARRAY_LEN(numbers), "all have names");

const struct tuner_kernel ddc_tuner = {
    "ddc", numbers, ARRAY_LEN(numbers), sizeof(struct runs), candidates, format_sizes, create, queue, destroy,
};
