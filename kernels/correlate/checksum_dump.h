/* checksum_dump - compares the sums of an accumulation with checksum.h's rows of the same voltages.  The kernel
 * 'reduce' later writes words for these sums.  checksum_dump also computes checksums of the words that 'reduce' must
 * write.  checksum_dump runs before 'reduce', because 'reduce' zeroes the sums.
 *   sums, totals  as in reduce.h; the kernel does not change them; totals may be NULL
 *   rows          as in checksum.h; read, then zeroed
 *   weights       uint32 [baseline]
 *   verdict       uint64 [3]:
 *                 [0] number of rows that agree; the kernel adds to this number
 *                 [1] number of the first row that disagrees, (chan * n_ants + ant) * 2 + pol; the kernel only lowers
 *                     this value
 *                 [2] number that reduce must add to n_saturated; the kernel adds to this number
 *   words         uint64 [chan][2]; the kernel adds to these sums
 *
 * Rows: X(a1, p1, a2, p2) = sums + totals of baseline (a1, a2), product p1 + 2 p2.  The row of input (a, p) is
 *       sum over a' >= a and p' of X(a, p, a', p')  +  sum over a' < a and p' of conj(X(a', p', a, p)).
 * The row agrees if it equals rows[(a, p)].  Integers are compared modulo 2^64.  Each part of a cross-correlation is in
 * two rows, each part of an autocorrelation in one row, with a factor of 1 or -1.  So if a single part is wrong, a row
 * disagrees.  Half floats agree within CHECKSUM_TOLERANCE times the row's magnitude.  If the magnitude is not finite,
 * the row counts as agreeing.
 *
 * Words: a dump's parts are 32-bit words w(k), k = 0, 1, ... within each channel, clipped and flagged as in reduce.h.
 * A NaN counts as REDUCE_MISSING_NAN.
 *     words[chan] += {sum of w(k), sum of (k + 1) w(k)}     modulo 2^64
 * checksum_dump_words() computes the same sums of a dump in host memory.  A single wrong word changes the first sum.
 * An exchange of two different words changes the second sum.
 * Bound by: memory; sums and totals are read twice for each dump. */
#ifndef KERNELS_CORRELATE_CHECKSUM_DUMP_H
#define KERNELS_CORRELATE_CHECKSUM_DUMP_H

#include "kernels/correlate/checksum.h"
#include "kernels/correlate/reduce.h"

/* Indices of 'verdict'. */
enum { VERDICT_N_AGREED, VERDICT_FIRST_WRONG, VERDICT_N_SATURATED, VERDICT_LENGTH };

/* Tolerance for half floats.  The sums of the kernel 'correlate' may lose some precision (xbgpu/audit/audit.h).  The
 * tolerance is twice this loss.  The sums of the kernel 'checksum' and the conversion to float add a small loss. */
#define CHECKSUM_TOLERANCE 0x1p-9

struct checksum_dump_args {
    union correlate_sums sums;  /* shape [chan][baseline][product][re, im] */
    union reduce_totals totals; /* shape [chan][baseline][product][re, im]; may be NULL */
    union checksum_rows rows;   /* shape [chan][ant][pol][part] */
    const uint32_t *weights;    /* shape [baseline] */
    uint64_t *verdict;          /* shape [VERDICT_LENGTH] */
    uint64_t *words;            /* shape [chan][2] */
    enum voltage_format format; /* format of the summed voltages */
    uint32_t min_weight;
    uint32_t n_ants;
    uint32_t n_chan;
};

extern const struct kernel checksum_dump_kernel;

/* Adds 'n' words of a channel to sums[2].  'first' is the index of words[0] in the channel.  'real' is
 * true if the words are floats. */
void checksum_dump_words(const uint32_t *words, size_t first, size_t n, bool real, uint64_t *sums);

#define CHECKSUM_DUMP_N_CONSTANTS 1
#define CHECKSUM_DUMP_THREADS     256
void checksum_dump_constants(const struct checksum_dump_args *args, struct kernel_constant *constants);
struct kernel_grid checksum_dump_grid(const struct checksum_dump_args *args);

#endif
