/* choice.c - shapes, dither seeds and filters of the outputs. */
#include "fgpu/choice.h"

#include "common/base/log.h"
#include "common/engine/engine.h"
#include "fgpu/input/baseband.h"
#include "fgpu/tune.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int choose_dither_seed(const struct fgpu_config_output *output, uint64_t *seed)
{
    *seed = (uint64_t)output->dither_seed;
    if (output->dither != FGPU_DITHER_UNIFORM)
        return 0;
    if (engine_dither_seed(output->dither_seed, seed))
        return -EIO;
    log_info("%s: the seed of the dither is %llu", output->name, (unsigned long long)*seed);
    return 0;
}

static int design_filter(const struct fgpu_config *config, size_t o, float **filter, char *why, size_t why_bytes)
{
    const struct fgpu_config_output *output = fgpu_config_output(config, o);

    if (output->kind != FGPU_NARROWBAND)
        return 0;
    int err = fgpu_baseband_design(config, &output->band, filter);
    if (err != -EDOM)
        return err;
    snprintf(why, why_bytes,
             "outputs[%zu].ddc_taps: no filter of %lld taps can be designed for output %s in double precision; try "
             "fewer taps or another pass_bandwidth",
             o, (long long)fgpu_band_taps(&output->band), output->name);
    return -EINVAL; /* a permanent error: a restart would fail in the same way */
}

int fgpu_choices_create(const struct fgpu_config *config, struct device *device, struct fgpu_choice **choices,
                        char *why, size_t why_bytes)
{
    struct fgpu_choice *c = calloc(config->outputs.n, sizeof(*c));
    int err = c ? 0 : -ENOMEM;

    if (!err)
        fgpu_tune_load(config, device, c);
    for (size_t o = 0; !err && o < config->outputs.n; o++) {
        err = choose_dither_seed(fgpu_config_output(config, o), &c[o].dither_seed);
        if (!err)
            err = design_filter(config, o, &c[o].filter, why, why_bytes);
    }
    if (err) {
        fgpu_choices_destroy(config, c);
        return err;
    }
    *choices = c;
    return 0;
}

void fgpu_choices_destroy(const struct fgpu_config *config, struct fgpu_choice *choices)
{
    for (size_t o = 0; choices && o < config->outputs.n; o++)
        free(choices[o].filter);
    free(choices);
}
