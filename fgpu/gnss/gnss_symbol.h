/* gnss_symbol.h - finds the code periods at which data symbols or secondary codes begin, from prompt sums, without
 * decoding.
 *
 * Flow:      products of consecutive prompt sums --add--> a mean for each code period of a symbol --> the best
 *            first period
 * Method:    the mean of Re(P_k conj(P_{k-1})) is the signal's power times s_j s_{j-1}, where s_j is the chip of the
 *            secondary code in period j of a symbol.  Between data symbols the mean is about 0.  At the correct start
 *            of a symbol these means agree best with the products of the chips.  The search lasts a second, and begins
 *            again if it fails.  The products are the soft form of the histogram of sign changes (Van Dierendonck, GPS
 *            Receivers, in Parkinson and Spilker, Global Positioning System, vol. 1, 8).  The products do not depend on
 *            the carrier's phase, and need only an approximate frequency.
 * Refusal:   the best agreement must exceed the second best agreement by 0.4 of a period's power.  For L1CA at least
 *            1 of 5 symbols must begin with a change of sign, because only changes of sign show where a symbol
 *            begins.
 * Threads:   pure functions on the caller's struct.   Blocking and allocation: none. */
#ifndef FGPU_GNSS_GNSS_SYMBOL_H
#define FGPU_GNSS_GNSS_SYMBOL_H

#include "kernels/gnss/gnss_codes.h"

#define FGPU_GNSS_MAX_SYMBOL 25 /* code periods */

struct fgpu_gnss_symbol {
    /* number of code periods in a symbol or secondary code, <= FGPU_GNSS_MAX_SYMBOL */
    uint32_t n_periods;
    int8_t chips[FGPU_GNSS_MAX_SYMBOL];    /* +-1 */
    int8_t products[FGPU_GNSS_MAX_SYMBOL]; /* products of each chip and the previous chip; 0 between data symbols */
    double sums[FGPU_GNSS_MAX_SYMBOL];     /* sum of the products for each code period modulo n_periods */
    uint32_t n_added, n_wanted;            /* numbers of products in 'sums': now, and when the search is complete */
    int first;                             /* code period, modulo n_periods, at which symbols begin; -1: not known */
};

/* Begins the search.  If a symbol has only one period, the search ends immediately. */
void fgpu_gnss_symbol_init(struct fgpu_gnss_symbol *symbol, enum gnss_signal signal);

/* Adds the product of two prompt sums: the sum of 'period', and the sum of the previous period. */
void fgpu_gnss_symbol_add(struct fgpu_gnss_symbol *symbol, int64_t period, double product);

/* Returns the index of a code period in its symbol; -1 if the index is not known. */
int fgpu_gnss_symbol_place(const struct fgpu_gnss_symbol *symbol, int64_t period);

#endif
