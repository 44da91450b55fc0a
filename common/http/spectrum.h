/* spectrum.h - spectra for the status page: reduces the channels of a band to about a thousand points.
 *
 * A point is a run of channels.  All runs are equally long, except that the last may be shorter.  Unknown values are
 * NAN, and null in JSON.  If only some channels of a point are known, the point has their mean and largest value. */
#ifndef COMMON_HTTP_SPECTRUM_H
#define COMMON_HTTP_SPECTRUM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define SPECTRUM_MAX_POINTS 1024

/* A band: its first channel, its number of channels, the channels of a point, and the number of points. */
struct spectrum_points {
    size_t first_chan, n_chan, width, n;
};

/* Divides a band that begins at channel 'first_chan' into points.  'text' selects channels by the first and the last
 * ("256,511").  All channels are selected if 'text' is NULL or makes no sense. */
struct spectrum_points spectrum_points_of(size_t first_chan, size_t n_chan, const char *text);

/* Parses two numbers, "0,1" and nothing else.  Returns false if 'text' is NULL or has another form. */
bool spectrum_parse_pair(const char *text, size_t *first, size_t *second);

/* Reduces the channels' values to the mean and largest value of each point [n].  The first channel's value is
 * values[0], the next channel's values[stride]. */
void spectrum_reduce(const struct spectrum_points *points, const float *values, size_t stride, float *mean,
                     float *most);

/* Returns powers [n] as decibels relative to 'one'.  A power of 0 is unknown. */
json_t *spectrum_decibels(const float *powers, size_t n, double one);

/* Returns numbers [n], rounded to 'n_decimals' decimals. */
json_t *spectrum_numbers(const float *numbers, size_t n, int n_decimals);

/* Returns the frequency axis as JSON: numbers of points and channels, frequency of the first channel, channel spacing.
 * 'zero_hz' is the frequency of channel 0. */
json_t *spectrum_axis(const struct spectrum_points *points, double zero_hz, double step_hz);

#endif
