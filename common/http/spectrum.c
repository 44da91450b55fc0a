/* spectrum.c - reduces the channels of spectra to points, and converts the points to JSON. */
#include "common/http/spectrum.h"

#include "common/http/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool spectrum_parse_pair(const char *text, size_t *first, size_t *second)
{
    char behind;

    return text && !text[strspn(text, "0123456789,")] && sscanf(text, "%zu,%zu%c", first, second, &behind) == 2;
}

struct spectrum_points spectrum_points_of(size_t first_chan, size_t n_chan, const char *text)
{
    size_t first, last;

    if (spectrum_parse_pair(text, &first, &last) && first_chan <= first && first <= last &&
        last < first_chan + n_chan) {
        n_chan = last - first + 1;
        first_chan = first;
    }
    size_t width = (n_chan + SPECTRUM_MAX_POINTS - 1) / SPECTRUM_MAX_POINTS;
    return (struct spectrum_points){first_chan, n_chan, width, (n_chan + width - 1) / width};
}

void spectrum_reduce(const struct spectrum_points *points, const float *values, size_t stride, float *mean, float *most)
{
    for (size_t i = 0; i < points->n; i++) {
        size_t first = i * points->width, end = first + points->width, n = 0;
        double sum = 0;
        float largest = NAN;
        for (size_t c = first; c < end && c < points->n_chan; c++) {
            float value = values[c * stride];
            if (isnan(value))
                continue;
            sum += value;
            largest = fmaxf(largest, value); /* fmaxf() ignores a NAN */
            n++;
        }
        mean[i] = n ? (float)(sum / (double)n) : NAN;
        most[i] = largest;
    }
}

json_t *spectrum_decibels(const float *powers, size_t n, double one)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, status_number(round(1000.0 * log10((double)powers[i] / one)) / 100.0));
    return array;
}

json_t *spectrum_numbers(const float *numbers, size_t n, int n_decimals)
{
    json_t *array = json_array();
    double scale = pow(10, n_decimals);

    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, status_number(round((double)numbers[i] * scale) / scale));
    return array;
}

json_t *spectrum_axis(const struct spectrum_points *points, double zero_hz, double step_hz)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "points", (json_int_t)points->n, "channels",
                     (json_int_t)points->n_chan, "channels_per_point", (json_int_t)points->width, "first_channel",
                     (json_int_t)points->first_chan, "first_hz",
                     status_number(zero_hz + (double)points->first_chan * step_hz), "step_hz", status_number(step_hz));
}
