/* stream_info.h - what an xbgpu's streams are, as sensors that do not change: under the names that a controller of such
 * arrays gives them, for a site that has none.
 *
 * Threads: main. */
#ifndef XBGPU_STREAM_INFO_H
#define XBGPU_STREAM_INFO_H

#include "common/telemetry/sensor.h"
#include "xbgpu/layout.h"

struct xlabels;

struct xfacts {
    struct sensor *sensors; /* [n] */
    size_t n;
};

/* Adds them all.  Returns 0 or -ENOMEM. */
int xfacts_init(struct xfacts *facts, const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                const struct xlabels *labels, struct sensors *sensors);

/* The set has been destroyed. */
void xfacts_fini(struct xfacts *facts);

#endif
