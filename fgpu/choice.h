/* choice.h - shapes, dither seeds and filters for each output's kernels.  All antennas use the same choices.
 *
 * Threads: main. */
#ifndef FGPU_CHOICE_H
#define FGPU_CHOICE_H

#include "fgpu/config/layout.h"

struct device;

/* Makes choices[output].  The shapes are the results that fgpu --tune has saved, or the defaults.  A dither seed is
 * the configured seed, or is drawn at random.  Only narrow bands have a filter.  Returns 0 or negative errno, with
 * one sentence in 'why' if no filter can be designed. */
int fgpu_choices_create(const struct fgpu_config *config, struct device *device, struct fgpu_choice **choices, char *why,
                        size_t why_bytes);

/* Destroys the choices.  NULL is accepted. */
void fgpu_choices_destroy(const struct fgpu_config *config, struct fgpu_choice *choices);

#endif
