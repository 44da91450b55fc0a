/* stream_info.h - what an xbgpu's streams are, as sensors that do not change: under the names that a controller of such
 * arrays gives them, for a site that has none.
 *
 * Threads: main. */
#ifndef XBGPU_STREAM_INFO_H
#define XBGPU_STREAM_INFO_H

#include "common/telemetry/sensor.h"
#include "xbgpu/layout.h"

struct xbgpu_labels;

struct xbgpu_stream_info {
    struct sensor *sensors; /* [n] */
    size_t n;
};

/* Adds them all.  Returns 0 or -ENOMEM. */
int xbgpu_stream_info_init(struct xbgpu_stream_info *facts, const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                const struct xbgpu_labels *labels, struct sensors *sensors);

/* The set has been destroyed. */
void xbgpu_stream_info_fini(struct xbgpu_stream_info *facts);

#endif
