/* gnss_symbol.h - finds the code periods at which data symbols or secondary codes begin, from prompt sums, without
 * decoding.
 *
 * Flow:      products of consecutive prompt sums --add--> a mean for each place in the symbol --> the best place
 * Method:    the mean of Re(P_k conj(P_{k-1})) is the signal's power times s_j s_{j-1}, where s_j is the chip of the
 *            secondary code in period j of a symbol.  Between data symbols the mean is about 0.  At the right place
 *            these means agree best with the products of the chips.  The search takes a second and begins again after a
 *            failure.  The products are the soft form of the histogram of sign changes (Van Dierendonck, GPS Receivers,
 *            in Parkinson and Spilker, Global Positioning System, vol. 1, 8).  The products need no phase and only an
 *            approximate frequency.
 * Refusal:   the agreement of the best place must exceed that of the second best by 0.4 of a period's power.  For L1CA
 *            this requires data with transitions in at least 1 of 5 places, because data without transitions show no
 *            edge.
 * Threads:   pure functions on the caller's struct.   Blocking and allocation: none. */
#ifndef FGPU_GNSS_SYMBOL_H
#define FGPU_GNSS_SYMBOL_H

#include "kernels/gnss/gnss_codes.h"

#define FGPU_GNSS_MAX_SYMBOL 25 /* code periods */

struct fgpu_gnss_symbol {
    uint32_t n_periods;                    /* periods of a symbol or secondary code, <= FGPU_GNSS_MAX_SYMBOL */
    int8_t chips[FGPU_GNSS_MAX_SYMBOL];    /* +-1 */
    int8_t products[FGPU_GNSS_MAX_SYMBOL]; /* products of a chip and the chip before it; 0 between data symbols */
    double sums[FGPU_GNSS_MAX_SYMBOL];     /* [code period mod n_periods] */
    uint32_t n_added, n_wanted;            /* products in 'sums', so far and at the search's end */
    int first;                             /* code period, mod n_periods, at which symbols begin; -1: not known */
};

/* Begins the search.  If a symbol has only one period, the search ends immediately. */
void fgpu_gnss_symbol_init(struct fgpu_gnss_symbol *symbol, enum gnss_signal signal);

/* Adds the product of the sums of 'period' and of the period before it. */
void fgpu_gnss_symbol_add(struct fgpu_gnss_symbol *symbol, int64_t period, double product);

/* Returns the place of a code period in its symbol, or -1. */
int fgpu_gnss_symbol_place(const struct fgpu_gnss_symbol *symbol, int64_t period);

#endif
