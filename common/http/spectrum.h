/* spectrum.h - reduces the channels of a spectrum to at most about a thousand points, for the status page.
 *
 * A point stands for consecutive channels.  All points have the same number of channels, but the last point may have
 * fewer.  Unknown values are NAN, and null in JSON.  If only some channels of a point are known, the point has the mean
 * and the largest value of the known channels. */
#ifndef COMMON_HTTP_SPECTRUM_H
#define COMMON_HTTP_SPECTRUM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define SPECTRUM_MAX_POINTS 1024

/* The points of a band: first channel, number of channels, number of channels in a point ('width'), and number of
 * points ('n'). */
struct spectrum_points {
    size_t first_chan, n_chan, width, n;
};

/* Divides a band that begins at channel 'first_chan' into points.  'text' gives the first and last channel to show
 * ("256,511").  All channels are shown if 'text' is NULL or invalid. */
struct spectrum_points spectrum_points_of(size_t first_chan, size_t n_chan, const char *text);

/* Parses two numbers with a comma between them ("0,1").  Returns false if 'text' is NULL or has any other form. */
bool spectrum_parse_pair(const char *text, size_t *first, size_t *second);

/* Computes the mean and the largest value of each point's channels.  'mean' and 'most' have one value for each point.
 * The value of the first channel is values[0].  The value of the next channel is values[stride]. */
void spectrum_reduce(const struct spectrum_points *points, const float *values, size_t stride, float *mean,
                     float *most);

/* Returns 'powers' [n] in decibels, relative to the power 'one', which is 0 dB.  A power of 0 counts as unknown. */
json_t *spectrum_decibels(const float *powers, size_t n, double one);

/* Returns 'numbers' [n] as JSON, rounded to 'n_decimals' decimals. */
json_t *spectrum_numbers(const float *numbers, size_t n, int n_decimals);

/* Returns the frequency axis as JSON: numbers of points and channels, frequency of the first channel, channel spacing.
 * 'zero_hz' is the frequency of channel 0. */
json_t *spectrum_axis(const struct spectrum_points *points, double zero_hz, double step_hz);

#endif
