/* checksum_dump - compares the sums of an accumulation with the rows that checksum.h made of the same voltages, and
 * finds the words that reduce must make of the sums.  It runs before reduce, which zeroes the sums.
 *   sums, totals  as reduce.h's; totals NULL where there are none; not changed
 *   rows          as checksum.h's; read, then zeroed
 *   weights       uint32 [baseline]
 *   verdict       uint64 [3]: rows that agree, added to; the smallest number of one that does not, (chan * n_ants + ant) * 2
 *                 + pol, kept if it is smaller already; the number that reduce must add to n_saturated, added to
 *   words         uint64 [chan][2]; added to
 *
 * Rows: with X(a1, p1, a2, p2) = sums + totals of baseline (a1, a2), product p1 + 2 p2, the row of input (a, p) is
 *       sum over a' >= a and p' of X(a, p, a', p')  +  sum over a' < a and p' of conj(X(a', p', a, p)).
 * It agrees if it equals rows[(a, p)], integers modulo 2^64.  Each part of a cross-correlation is in two rows, each part
 * of an autocorrelation in one, with a factor of 1 or -1: so no single part can be wrong without a row that disagrees.
 * Half floats agree to within CHECKSUM_TOLERANCE of the row's magnitude; where that is not finite, nothing is said.
 *
 * Words: a dump's parts are 32-bit words w(k), k = 0, 1, ... within each channel, clipped and flagged as reduce.h says.
 * A part that is not a number counts as REDUCE_MISSING_NAN.
 *     words[chan] += {sum of w(k), sum of (k + 1) w(k)}     modulo 2^64
 * checksum_dump_words() makes the same of a dump in host memory.  One wrong word changes the first sum, two that have changed
 * places change the second.
 * Bound by: memory; sums and totals are read twice for each dump. */
#ifndef KERNELS_CORRELATE_CHECKSUM_DUMP_H
#define KERNELS_CORRELATE_CHECKSUM_DUMP_H

#include "kernels/correlate/checksum.h"
#include "kernels/correlate/reduce.h"

/* Places in the verdict. */
enum { VERDICT_N_AGREED, VERDICT_FIRST_WRONG, VERDICT_N_SATURATED, VERDICT_LENGTH };

/* Twice the loss that the sums of correlate may have (xbgpu/audit.h), as checksum's sums and the conversion lose a
 * little. */
#define CHECKSUM_TOLERANCE 0x1p-9

struct checksum_dump_args {
    union correlate_sums sums;  /* [chan][baseline][product][re, im] */
    union reduce_totals totals; /* the same, or NULL */
    union checksum_rows rows;   /* [chan][ant][pol][part] */
    const uint32_t *weights;    /* [baseline] */
    uint64_t *verdict;          /* [VERDICT_LENGTH] */
    uint64_t *words;            /* [chan][2] */
    enum voltage_format format; /* format of the summed voltages */
    uint32_t min_weight;
    uint32_t n_ants;
    uint32_t n_chan;
};

extern const struct kernel checksum_dump_kernel;

/* Adds 'n' words of a channel, 'real' or not, the first of which is its word 'first', to sums[2]. */
void checksum_dump_words(const uint32_t *words, size_t first, size_t n, bool real, uint64_t *sums);

#define CHECKSUM_DUMP_N_CONSTANTS 1
#define CHECKSUM_DUMP_THREADS     256
void checksum_dump_constants(const struct checksum_dump_args *args, struct kernel_constant *constants);
struct kernel_grid checksum_dump_grid(const struct checksum_dump_args *args);

#endif
