/* stream_info.h - what an xbgpu's streams are, as sensors that do not change: under the names that a controller of such
 * arrays gives them, for a site that has none.
 *
 * Threads: main. */
#ifndef XBGPU_STREAM_INFO_H
#define XBGPU_STREAM_INFO_H

#include "common/engine/stream_info.h"
#include "xbgpu/layout.h"

struct labels;

/* Makes 'info' and adds them all.  Returns 0 or -ENOMEM; stream_info_fini() in any case. */
int xbgpu_stream_info_init(struct stream_info *info, const struct xbgpu_config *config,
                           const struct xbgpu_layout *layout, const struct labels *labels, struct sensors *sensors);

#endif
