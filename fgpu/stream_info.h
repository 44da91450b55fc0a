/* stream_info.h - sensors of what the configuration says of each output, for clients that have no other source of it.
 *
 * Names and meanings are those that a site's controller gives them elsewhere.
 * Threads: main. */
#ifndef FGPU_STREAM_INFO_H
#define FGPU_STREAM_INFO_H

#include "common/engine/stream_info.h"
#include "fgpu/layout.h"

struct labels;

/* Makes 'info' and adds them to 'sensors'.  Returns 0 or -ENOMEM; stream_info_fini() in any case. */
int fgpu_stream_info_init(struct stream_info *info, const struct fgpu_config *config, const struct fgpu_choice *choices,
                          const struct labels *labels, struct sensors *sensors);

/* Samples by which a filter's output lags its window's start, negative as timestamps are those of a window's first
 * sample: of the whole way to an output, and of a narrow band's down-converter, 0 of a wide band. */
double fgpu_group_delay(const struct fgpu_config_output *output);
double fgpu_ddc_group_delay(const struct fgpu_config_output *output);

#endif
