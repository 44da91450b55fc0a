/* channelise_timing - how long channelise takes on a device, for channelise_tune.c.
 *
 * Inputs are random, gains bring them to a usual level, delays and phases are not zero; what is timed is what a
 * pipeline queues for an output buffer: its appends (the front), or its finish (the back).
 * Threads: the caller's. */
#ifndef KERNELS_FILTERBANK_CHANNELISE_TIMING_H
#define KERNELS_FILTERBANK_CHANNELISE_TIMING_H

#include "kernels/filterbank/channelise_tune.h"

struct timing;

/* 'run_ns' and 'n_runs' as in channelise_tune.h.  Returns 0 or negative errno. */
int timing_create(struct device *device, const struct channelise_work *work, int64_t run_ns, unsigned n_runs,
                  struct timing **timing);
void timing_destroy(struct timing *timing);

/* Time for an output buffer (of a struct timing), the best of all runs; or the first, if that is beyond 'hopeless_ns';
 * or INFINITY, where the device has not the memory for this choice.  Returns 0 or negative errno. */
int timing_measure(void *timing, const struct channelise_choice *choice, enum channelise_part part, double hopeless_ns,
                   double *ns);

#endif
