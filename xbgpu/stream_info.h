/* stream_info.h - constant sensors that describe an xbgpu's streams.  Sites without a correlator controller use these
 * sensors.  The sensors have the names that a controller would use.
 *
 * Threads:   main. */
#ifndef XBGPU_STREAM_INFO_H
#define XBGPU_STREAM_INFO_H

#include "common/engine/stream_info.h"
#include "xbgpu/config/layout.h"

struct labels;

/* Initialises 'info' and adds all sensors.  Returns 0 or -ENOMEM; the caller must call stream_info_fini() in either
 * case. */
int xbgpu_stream_info_init(struct stream_info *info, const struct xbgpu_config *config,
                           const struct xbgpu_layout *layout, const struct labels *labels, struct sensors *sensors);

#endif
