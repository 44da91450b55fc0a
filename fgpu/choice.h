/* choice.h - choices for each output's kernels, the same for all antennas: shapes, dither seeds, filters.
 *
 * Threads: main. */
#ifndef FGPU_CHOICE_H
#define FGPU_CHOICE_H

#include "fgpu/layout.h"

struct device;

/* Makes choices[output]: the shapes kept by --tune, or the defaults; dither seeds as configured, or drawn at random;
 * the filters of narrow bands.  Returns 0 or negative errno, with one sentence in 'why' if a filter does not exist. */
int fgpu_choices_create(const struct fgpu_config *config, struct device *device, struct fgpu_choice **choices, char *why,
                        size_t why_bytes);

/* Destroys the choices.  NULL is accepted. */
void fgpu_choices_destroy(const struct fgpu_config *config, struct fgpu_choice *choices);

#endif
