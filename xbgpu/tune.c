/* tune.c - derives the sizes of the kernel correlate from the outputs, for the tuner. */
#include "xbgpu/tune.h"

#include "kernels/correlate/correlate_tuner.h"

#include <errno.h>
#include <stdlib.h>

/* Returns the tuner's job for an output.  Assumes that one launch processes those batches of a chunk that lie in one
 * accumulation. */
static struct tuner_job find_job(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                 const struct xbgpu_config_output *output, struct correlate_shape *shape,
                                 struct correlate_args *sizes)
{
    bool gated = xbgpu_output_gate(config, output) >= 0;
    size_t n_length = (size_t)xbgpu_integration_batches(config, output);

    *sizes = xbgpu_correlate_sizes(layout, gated);
    sizes->n_batches = (uint32_t)(n_length < layout->n_batches ? n_length : layout->n_batches);
    if (gated)
        sizes->n_batches = (uint32_t)layout->n_selected_batches;
    return (struct tuner_job){&correlate_tuner, sizes, output->name, "recv.batches_per_chunk", shape};
}

int xbgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes)
{
    const struct xbgpu_config *config = values;
    struct correlate_args *sizes = calloc(config->outputs.n, sizeof(*sizes));
    struct tuner_job *jobs = calloc(config->outputs.n, sizeof(*jobs));
    struct xbgpu_layout layout;

    xbgpu_layout_init(&layout, config);
    for (size_t o = 0; o < config->outputs.n && sizes && jobs; o++)
        jobs[o] = find_job(config, &layout, xbgpu_config_output(config, o), NULL, &sizes[o]);
    int err = sizes && jobs ? tuner_run(device, jobs, config->outputs.n, why, why_bytes) : -ENOMEM;
    free(jobs);
    free(sizes);
    return err;
}

struct correlate_shape xbgpu_tune_load(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                       struct device *device, const struct xbgpu_config_output *output)
{
    struct correlate_args sizes;
    struct correlate_shape shape = {0};
    const struct tuner_job job = find_job(config, layout, output, &shape, &sizes);

    tuner_load(device, "xbgpu", &job);
    return shape;
}
