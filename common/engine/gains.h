/* gains.h - parses and writes the complex gain of each channel, for KATCP requests and for files.  Gains are single
 * precision.
 *
 * A row of a gain file ends with three fields: CHANNELS REAL IMAGINARY, where CHANNELS is *, 17 or 300-310.
 *
 * Threads: pure functions. */
#ifndef COMMON_ENGINE_GAINS_H
#define COMMON_ENGINE_GAINS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct katcp_call;
struct table_row;

struct gains_limits {
    int64_t n_chan;
    double magnitude;
    const char *bad_channels, *too_large; /* error messages */
};

/* Parses 'n' arguments of the call, starting at argument 'first', as complex gains.  Returns an array [n][2] (real,
 * imaginary).  The caller frees the array.  If an argument is wrong, answers the call with an error (katcp_fail()) and
 * returns NULL. */
float *gains_of_call(struct katcp_call *call, int first, size_t n, const struct gains_limits *limits);

struct gains_row {
    int64_t first, last; /* channels */
    float gain[2];
};

/* Parses the last three fields of a row.  Returns 0, or the result of table_file_refuse() if a field is wrong. */
int gains_read_row(const struct table_row *row, const struct gains_limits *limits, struct gains_row *found);

/* Writes one row for each range of adjacent channels with the same gain.  Each row begins with the text 'before' and a
 * blank.  The gain of channel first + c, for c < n, is the two floats (real, imaginary) at gains + c * step. */
void gains_write_rows(FILE *text, const char *before, const float *gains, size_t step, int64_t first, int64_t n);

#endif
