/* correlate_tuner.c - the table of candidate shapes, and the timed launch for the batches of one chunk. */
#include "kernels/correlate/correlate_tuner.h"

#include "common/base/units.h"

#include <stdio.h>
#include <string.h>

static size_t candidates(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                         void *shapes)
{
    const struct correlate_args *args = sizes;
    struct correlate_shape *found = shapes, others[TUNER_MAX_SHAPES];
    size_t n = 0, n_others = correlate_candidates(args, device_shared_bytes(device), ARRAY_LEN(others), others);

    found[n++] = correlate_device_shape(args, device);
    for (size_t i = 0; i < n_others && n < TUNER_MAX_SHAPES && !correlate_sums_real(args->format); i++)
        if (memcmp(&others[i], &found[0], sizeof(others[i])) != 0)
            found[n++] = others[i];
    return n;
}

struct runs {
    struct correlate_args args;
    struct correlate_kernels kernels;
};

static int create(struct tuner_bed *bed, const void *sizes, const void *shape, void *work)
{
    struct runs *r = work;

    r->args = *(const struct correlate_args *)sizes;
    size_t n_values = (size_t)r->args.n_batches * r->args.n_ants * r->args.n_chan * r->args.n_spectra * N_POLS;
    size_t n_sums = (size_t)r->args.n_chan * correlate_n_baselines(r->args.n_ants) * N_POL_PRODUCTS * 2;
    r->args.voltages = tuner_alloc(bed, n_values * voltage_bytes(r->args.format),
                                   correlate_sums_real(r->args.format) ? TUNER_HALVES : TUNER_BITS);
    r->args.sums.integer = tuner_alloc(bed, n_sums * sizeof(int32_t), TUNER_FLOATS);
    return correlate_kernels_create(bed->device, &r->args, shape, &r->kernels);
}

static void queue(void *work, struct device_stream *stream)
{
    const struct runs *r = work;

    correlate_kernels_launch(&r->kernels, stream, &r->args, 0);
}

static void destroy(void *work)
{
    correlate_kernels_destroy(&((struct runs *)work)->kernels);
}

static void format_sizes(const void *sizes, char *text, size_t text_bytes)
{
    const struct correlate_args *args = sizes;

    snprintf(text, text_bytes, "%u antennas, %u bits%s, %u channels, %u heaps of %u spectra", args->n_ants,
             4 * voltage_bytes(args->format), args->format == VOLTAGES_4_BITS_OFFSET ? " offset" : "", args->n_chan,
             args->n_batches, args->n_spectra);
}

static const char *const numbers[] = {
    "row_eights", "column_eights", "n_runs",   "block_rows",  "block_columns", "time_warps",
    "steps",      "stages",        "resident", "atomic_adds", "wgmma",
};
_Static_assert(sizeof(struct correlate_shape) == sizeof(uint32_t) * ARRAY_LEN(numbers), "all have names");

const struct tuner_kernel correlate_tuner = {
    "correlate", numbers, ARRAY_LEN(numbers), sizeof(struct runs), candidates, format_sizes, create, queue, destroy,
};
