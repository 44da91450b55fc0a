/* gains.c - parses and writes the gains of channels. */
#include "common/engine/gains.h"

#include "common/config/table_file.h"
#include "common/katcp/python_number.h"
#include "common/katcp/server.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

float *gains_of_call(struct katcp_call *call, int first, size_t n, const struct gains_limits *limits)
{
    float *gains = malloc(n * 2 * sizeof(*gains));

    if (!gains)
        katcp_fail(call, "out of memory");
    for (size_t i = 0; i < n && gains; i++) {
        const char *text = katcp_arg(call, first + (int)i), *wrong = NULL;
        double real, imaginary;
        if (!python_number_complex(text, &real, &imaginary))
            wrong = "a gain must be a complex number like 1-0.5j";
        else if (!isfinite((float)real) || !isfinite((float)imaginary))
            wrong = "a gain must be finite, in single precision";
        else if (hypot(real, imaginary) > limits->magnitude)
            wrong = limits->too_large;
        if (wrong) {
            katcp_fail(call, "%s: '%.64s'", wrong, text);
            free(gains);
            return NULL;
        }
        gains[2 * i] = (float)real;
        gains[2 * i + 1] = (float)imaginary;
    }
    return gains;
}

/* Parses a list of channels: "*", "17" or "300-310".  Returns false if the text has another form, or a channel is
 * outside [0, n_chan). */
static bool parse_channels(const char *text, int64_t n_chan, int64_t *first, int64_t *last)
{
    int end = 0;

    *first = 0;
    *last = n_chan - 1;
    if (strcmp(text, "*") == 0)
        return true;
    if (strspn(text, "0123456789-") != strlen(text) || strlen(text) > 20)
        return false;
    if (sscanf(text, "%9lld-%9lld%n", (long long *)first, (long long *)last, &end) != 2 || text[end]) {
        if (sscanf(text, "%9lld%n", (long long *)first, &end) != 1 || text[end])
            return false;
        *last = *first;
    }
    return *first >= 0 && *first <= *last && *last < n_chan;
}

int gains_read_row(const struct table_row *row, const struct gains_limits *limits, struct gains_row *found)
{
    char *const *fields = row->fields + row->n - 3;
    double real, imaginary;

    if (!parse_channels(fields[0], limits->n_chan, &found->first, &found->last))
        return table_file_refuse(row, limits->bad_channels, fields[0]);
    if (!table_file_number(fields[1], &real))
        return table_file_refuse(row, "the real part must be a number", fields[1]);
    if (!table_file_number(fields[2], &imaginary))
        return table_file_refuse(row, "the imaginary part must be a number", fields[2]);
    if (hypot(real, imaginary) > limits->magnitude)
        return table_file_refuse(row, limits->too_large, NULL);
    found->gain[0] = (float)real;
    found->gain[1] = (float)imaginary;
    return 0;
}

void gains_write_rows(FILE *text, const char *before, const float *gains, size_t step, int64_t first, int64_t n)
{
    int64_t begin = 0;

    for (int64_t end = 1; end <= n; end++) {
        const float *gain = gains + (size_t)begin * step;
        if (end < n && memcmp(gain, gains + (size_t)end * step, 2 * sizeof(float)) == 0)
            continue;
        fprintf(text, "%s %lld-%lld %.9g %.9g\n", before, (long long)(first + begin), (long long)(first + end) - 1,
                (double)gain[0], (double)gain[1]);
        begin = end;
    }
}
