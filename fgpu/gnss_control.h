/* gnss_control.h - requests about satellites, as orders for the worker.
 *
 *     ?gnss-add STREAM SATELLITE [ANTENNA]      searched for and followed again
 *     ?gnss-drop STREAM SATELLITE [ANTENNA]     neither searched for nor followed
 *     ?gnss-steer STREAM SATELLITE ANTENNA TIMESTAMP CODE DOPPLER
 *                                               followed from there, without a search
 *
 * Satellites: those of the configuration, as L1CA-7.   Threads: main. */
#ifndef FGPU_GNSS_CONTROL_H
#define FGPU_GNSS_CONTROL_H

#include "fgpu/config.h"
#include "fgpu/gnss.h"

struct katcp_call;

/* Reads a request's arguments.  Returns false with the call failed. */
bool fgpu_gnss_order_of_call(const struct fgpu_config *config, struct katcp_call *call, enum fgpu_gnss_action action,
                             struct fgpu_gnss_order *order);

#endif
