/* tune.c - from outputs to the sizes that the tuner measures. */
#include "xbgpu/tune.h"

#include "kernels/correlate/correlate_tuner.h"

#include <errno.h>
#include <stdlib.h>

struct correlate_args xbgpu_correlate_sizes(const struct xbgpu_layout *layout, bool gated)
{
    return (struct correlate_args){
        .format = layout->format,
        .n_ants = (uint32_t)layout->n_ants,
        .n_chan = (uint32_t)layout->n_chan,
        .n_spectra = (uint32_t)(gated ? layout->n_selected_spectra : layout->n_spectra),
    };
}

/* A launch has the batches of a chunk, as far as they are in one accumulation. */
static struct correlate_args sizes_of(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                      const struct xbgpu_config_output *output)
{
    bool gated = xbgpu_output_gate(config, output) >= 0;
    struct correlate_args args = xbgpu_correlate_sizes(layout, gated);
    size_t n_length = (size_t)xbgpu_integration_batches(config, output);

    args.n_batches = (uint32_t)(n_length < layout->n_batches ? n_length : layout->n_batches);
    if (gated)
        args.n_batches = (uint32_t)layout->n_selected_batches;
    return args;
}

static struct tuner_job job_of(const struct xbgpu_config_output *output, const struct correlate_args *sizes)
{
    return (struct tuner_job){&correlate_tuner, sizes, output->name, "recv.batches_per_chunk"};
}

int xbgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes)
{
    const struct xbgpu_config *config = values;
    struct correlate_args *sizes = calloc(config->outputs.n, sizeof(*sizes));
    struct tuner_job *jobs = calloc(config->outputs.n, sizeof(*jobs));
    struct xbgpu_layout layout;
    int err = sizes && jobs ? 0 : -ENOMEM;

    xbgpu_layout_init(&layout, config, device_compiles(device), 0);
    for (size_t o = 0; o < config->outputs.n && !err; o++) {
        sizes[o] = sizes_of(config, &layout, xbgpu_config_output(config, o));
        jobs[o] = job_of(xbgpu_config_output(config, o), &sizes[o]);
    }
    if (!err)
        err = tuner_run(device, jobs, config->outputs.n, why, why_bytes);
    free(jobs);
    free(sizes);
    return err;
}

struct correlate_shape xbgpu_tune_load(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                       struct device *device, const struct xbgpu_config_output *output)
{
    const struct correlate_args sizes = sizes_of(config, layout, output);
    const struct tuner_job job = job_of(output, &sizes);
    struct correlate_shape shape;

    tuner_load(device, "xbgpu", &job, &shape);
    return shape;
}
