/* stream_info.h - constant sensors that describe each output's configuration, for clients without a controller.
 *
 * The sensors' names and meanings are the same as at a site's controller.
 * Threads: main. */
#ifndef FGPU_STREAM_INFO_H
#define FGPU_STREAM_INFO_H

#include "common/engine/stream_info.h"
#include "fgpu/config/layout.h"

struct labels;

/* Initialises 'info' and adds its sensors to 'sensors'.  Returns 0 or -ENOMEM.  Call stream_info_fini() in either
 * case. */
int fgpu_stream_info_init(struct stream_info *info, const struct fgpu_config *config, const struct fgpu_choice *choices,
                          const struct labels *labels, struct sensors *sensors);

/* The first function returns the group delay, in samples, of the whole path to an output.  The second function returns
 * the group delay of a narrow band's down-converter, or 0 for a wide band.  The magnitude is the time from the start of
 * a window to the sample that the filter's output represents.  The sign is negative, because a timestamp is the time of
 * a window's first sample. */
double fgpu_group_delay(const struct fgpu_config_output *output);
double fgpu_ddc_group_delay(const struct fgpu_config_output *output);

#endif
