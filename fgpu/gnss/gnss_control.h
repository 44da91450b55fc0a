/* gnss_control.h - turns requests about satellites into orders for the worker.
 *
 *     ?gnss-add STREAM SATELLITE [ANTENNA]      searches for the satellite, then follows the satellite
 *     ?gnss-drop STREAM SATELLITE [ANTENNA]     ends the search, and no longer follows the satellite
 *     ?gnss-steer STREAM SATELLITE ANTENNA TIMESTAMP CODE DOPPLER
 *                                               follows the satellite from this state, without a search
 *
 * Satellites: the names have the form L1CA-7.   Threads: main. */
#ifndef FGPU_GNSS_GNSS_CONTROL_H
#define FGPU_GNSS_GNSS_CONTROL_H

#include "fgpu/config/config.h"
#include "fgpu/gnss/gnss.h"

struct katcp_call;

/* Reads a request's arguments into 'order'.  If an argument is wrong, answers the request with an error and returns
 * false. */
bool fgpu_gnss_order_of_call(const struct fgpu_config *config, struct katcp_call *call, enum fgpu_gnss_action action,
                             struct fgpu_gnss_order *order);

#endif
