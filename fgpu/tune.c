/* tune.c - derives the sizes of kernels from the outputs' configuration.  The tuner measures these kernels. */
#include "fgpu/tune.h"

#include "fgpu/input/baseband.h"
#include "kernels/ddc/ddc_tuner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define N_JOBS 2 /* number of tuner jobs of an output */

struct sizes {
    struct channelise_config channelise;
    struct ddc_args ddc; /* narrow band only */
};

/* Finds the tuner's jobs for an output.  Assumes that one launch converts all samples of a chunk. */
static void find_jobs(const struct fgpu_config *config, size_t o, struct fgpu_choice *choice, struct sizes *s,
                      struct tuner_job jobs[N_JOBS])
{
    const struct fgpu_config_output *output = fgpu_config_output(config, o);
    struct tuner_job channelise = {.sizes = &s->channelise, .output = output->name, .shape = &choice->channelise.shape};

    snprintf(channelise.key, sizeof(channelise.key), "outputs[%zu].batches_per_buffer", o);
    s->channelise = fgpu_channelise_config(config, 0, o, 0);
    jobs[0] = jobs[1] = channelise;
    jobs[0].kernel = &channelise_front_tuner;
    jobs[1].kernel = &channelise_back_tuner;
    if (output->kind == FGPU_WIDEBAND)
        return;
    s->ddc = fgpu_baseband_sizes(config, &output->band);
    s->ddc.n_out = (uint32_t)(config->recv.chunk_samples / fgpu_subsampling(output));
    jobs[0] = (struct tuner_job){&ddc_tuner, &s->ddc, output->name, "recv.chunk_samples", &choice->ddc};
    jobs[1].kernel = &channelise_narrow_tuner;
    jobs[1].shape = &choice->channelise.narrow;
}

int fgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes)
{
    const struct fgpu_config *config = values;
    struct sizes *sizes = calloc(config->outputs.n, sizeof(*sizes));
    struct tuner_job *jobs = calloc(config->outputs.n, N_JOBS * sizeof(*jobs));
    struct fgpu_choice unused;
    int err = sizes && jobs ? fgpu_layout_check_buffers(config, device, why, why_bytes) : -ENOMEM;

    for (size_t o = 0; o < config->outputs.n && !err; o++)
        find_jobs(config, o, &unused, &sizes[o], jobs + N_JOBS * o);
    if (!err)
        err = tuner_run(device, jobs, N_JOBS * config->outputs.n, why, why_bytes);
    free(jobs);
    free(sizes);
    return err;
}

void fgpu_tune_load(const struct fgpu_config *config, struct device *device, struct fgpu_choice *choices)
{
    struct tuner_job jobs[N_JOBS];
    struct sizes sizes;

    for (size_t o = 0; o < config->outputs.n; o++) {
        find_jobs(config, o, &choices[o], &sizes, jobs);
        for (size_t j = 0; j < N_JOBS; j++)
            tuner_load(device, "fgpu", &jobs[j]);
    }
}
