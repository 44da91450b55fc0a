/* sinc.h - the filter by which dsim finds a signal between its samples: a sinc below a Kaiser window (beta 10).
 *
 * The error is less than -90 dB of the signal at any place, up to 0.45 of the sample rate. */
#ifndef TOOLS_DSIM_SINC_H
#define TOOLS_DSIM_SINC_H

#define DSIM_SINC_TAPS 64

/* The tap for the sample that is 'distance' samples away; 0 from half of the taps on. */
double dsim_sinc_tap(double distance);

#endif
