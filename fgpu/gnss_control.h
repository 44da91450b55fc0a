/* gnss_control.h - requests about satellites, as orders for the worker.
 *
 *     ?gnss-add STREAM SATELLITE [ANTENNA]      searches for the satellite and follows it again
 *     ?gnss-drop STREAM SATELLITE [ANTENNA]     stops searching for the satellite and following it
 *     ?gnss-steer STREAM SATELLITE ANTENNA TIMESTAMP CODE DOPPLER
 *                                               follows the satellite from this state, without a search
 *
 * Satellites: have names like L1CA-7.   Threads: main. */
#ifndef FGPU_GNSS_CONTROL_H
#define FGPU_GNSS_CONTROL_H

#include "fgpu/config.h"
#include "fgpu/gnss.h"

struct katcp_call;

/* Reads a request's arguments into 'order'.  If an argument is wrong, fails the call and returns false. */
bool fgpu_gnss_order_of_call(const struct fgpu_config *config, struct katcp_call *call, enum fgpu_gnss_action action,
                             struct fgpu_gnss_order *order);

#endif
