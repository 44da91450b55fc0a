/* gains.h - complex gains by channel, in single precision, in the form of requests and files.
 *
 * A row of a file ends with three fields: CHANNELS REAL IMAGINARY, where CHANNELS is *, 17 or 300-310.
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
    const char *bad_channels, *too_large; /* sentences about wrong channels and magnitudes */
};

/* Reads 'n' gains from argument 'first' on: complex [n], which the caller frees.  Returns NULL after failing the
 * call. */
float *gains_of_call(struct katcp_call *call, int first, size_t n, const struct gains_limits *limits);

struct gains_row {
    int64_t first, last; /* channels */
    float gain[2];
};

/* Reads a row's last three fields.  Returns 0, or the result of table_file_refuse(). */
int gains_read_row(const struct table_row *row, const struct gains_limits *limits, struct gains_row *found);

/* Writes a row for each run of channels with the same gain; 'before' and a blank stand in front of each row.  Channel c
 * of the 'n' channels has the gain gains[c * step] and the number first + c. */
void gains_write_rows(FILE *text, const char *before, const float *gains, size_t step, int64_t first, int64_t n);

#endif
