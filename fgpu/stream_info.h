/* stream_info.h - sensors of what the configuration says of each output, for clients that have no other source of it.
 *
 * Names and meanings are those that a site's controller gives them elsewhere.
 * Threads: main. */
#ifndef FGPU_STREAM_INFO_H
#define FGPU_STREAM_INFO_H

#include "common/telemetry/sensor.h"
#include "fgpu/config.h"

#include <stdint.h>

struct fgpu_stream_info;

/* Adds them to 'sensors', for as long as that lives.  Returns 0 or -ENOMEM. */
int fgpu_stream_info_create(const struct fgpu_config *config, const uint64_t *dither_seeds, struct sensors *sensors,
                            struct fgpu_stream_info **stream_info);

/* NULL is accepted. */
void fgpu_stream_info_destroy(struct fgpu_stream_info *stream_info);

/* Samples by which a filter's output lags its window's start, negative as timestamps are those of a window's first
 * sample: of the whole way to an output, and of a narrow band's down-converter, 0 of a wide band. */
double fgpu_group_delay(const struct fgpu_config_output *output);
double fgpu_ddc_group_delay(const struct fgpu_config_output *output);

#endif
