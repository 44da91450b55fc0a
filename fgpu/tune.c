/* tune.c - from outputs to the sizes that the tuner measures. */
#include "fgpu/tune.h"

#include "fgpu/baseband.h"
#include "kernels/ddc/ddc_tuner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct sizes {
    struct channelise_work channelise;
    struct ddc_args ddc; /* n_out 0: a wide band */
};

/* A chunk's spectra are appended at once, as far as the buffer takes them; its samples are converted at once. */
static struct sizes sizes_of(const struct fgpu_config *config, size_t o)
{
    const struct fgpu_config_output *output = fgpu_config_output(config, o);
    struct sizes s = {.channelise.config = fgpu_channelise_config(config, 0, o, 0)};
    size_t n_buffer = (size_t)(output->n_batches * output->spectra_per_heap);
    size_t n_chunk = (size_t)(config->recv.chunk_samples * output->spectra_per_heap / fgpu_batch_samples(output));

    s.channelise.append_spectra = n_chunk < 1 ? 1 : n_chunk < n_buffer ? n_chunk : n_buffer;
    if (output->kind == FGPU_NARROWBAND) {
        s.ddc = fgpu_baseband_sizes(config, output);
        s.ddc.n_out = (uint32_t)(config->recv.chunk_samples / fgpu_subsampling(output));
    }
    return s;
}

/* Returns how many jobs an output has. */
static size_t find_jobs(const struct fgpu_config *config, size_t o, const struct sizes *s, struct tuner_job jobs[2])
{
    const char *name = fgpu_config_output(config, o)->name;

    if (s->channelise.config.n_bins) {
        jobs[0] = (struct tuner_job){&ddc_tuner, &s->ddc, name, "recv.chunk_samples"};
        jobs[1] = (struct tuner_job){&channelise_narrow_tuner, &s->channelise, name, ""};
    } else {
        jobs[0] = (struct tuner_job){&channelise_front_tuner, &s->channelise, name, ""};
        jobs[1] = (struct tuner_job){&channelise_back_tuner, &s->channelise, name, ""};
        snprintf(jobs[0].key, sizeof(jobs[0].key), "outputs[%zu].batches_per_buffer", o);
    }
    snprintf(jobs[1].key, sizeof(jobs[1].key), "outputs[%zu].batches_per_buffer", o);
    return 2;
}

int fgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes)
{
    const struct fgpu_config *config = values;
    struct sizes *sizes = calloc(config->outputs.n, sizeof(*sizes));
    struct tuner_job *jobs = calloc(config->outputs.n, 2 * sizeof(*jobs));
    size_t n_jobs = 0;
    int err = sizes && jobs ? fgpu_layout_check_buffers(config, device, why, why_bytes) : -ENOMEM;

    for (size_t o = 0; o < config->outputs.n && !err; o++) {
        sizes[o] = sizes_of(config, o);
        n_jobs += find_jobs(config, o, &sizes[o], jobs + n_jobs);
    }
    if (!err)
        err = tuner_run(device, jobs, n_jobs, why, why_bytes);
    free(jobs);
    free(sizes);
    return err;
}

void fgpu_tune_load(const struct fgpu_config *config, struct device *device, struct fgpu_choice *choices)
{
    for (size_t o = 0; o < config->outputs.n; o++) {
        const struct sizes s = sizes_of(config, o);
        const char *name = fgpu_config_output(config, o)->name;

        channelise_choice_load(device, "fgpu", name, &s.channelise, &choices[o].channelise);
        if (s.channelise.config.n_bins)
            tuner_load(device, "fgpu", &(struct tuner_job){&ddc_tuner, &s.ddc, name, ""}, &choices[o].ddc);
    }
}
