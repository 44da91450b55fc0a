/* sinc.h - dsim's interpolation filter: a sinc with a Kaiser window (beta 10).
 *
 * For frequencies up to 0.45 of the sample rate, the error is at least 90 dB below the signal at any position. */
#ifndef TOOLS_DSIM_SINC_H
#define TOOLS_DSIM_SINC_H

#define DSIM_SINC_TAPS 64

/* Returns the tap for a sample at a distance of 'distance' samples.  Returns 0 if the distance is at least half of the
 * number of taps. */
double dsim_sinc_tap(double distance);

#endif
