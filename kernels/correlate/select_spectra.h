/* select_spectra - shifts voltages in time, and copies the wanted spectra one after the other.
 *   in       [n_history + batch][ant][chan][spectrum][pol]        in one of the formats of voltages.h
 *   delays   uint32 [ant][pol]                                    delays in spectra; NULL: no delays
 *   present  uint8 [batch][ant]                                   1: the heap is present; NULL: all 1
 *   spectra  uint32 [row][row_pitch]                              wanted spectra in order; batch 0 begins with number 0
 *   ends     uint32 [row][ends_pitch]                             ends[b]: number of wanted spectra before batch b
 *   out      [out batch][ant][chan][out spectrum][pol]            in the same format; written completely
 *
 * The wanted spectra of batches [first_batch, first_batch + n_batches) are listed in row 0 for all channels, or with
 * n_rows = n_chan in one row for each channel.  Without 'spectra' all spectra are wanted.  The j-th wanted spectrum t
 * of a channel is in batch b = t / n_spectra.  For each input
 *     out[j / n_out_spectra][ant][chan][j % n_out_spectra][pol] = present[b][ant] ? in[t - delays[ant][pol]] : 0
 * The index of in[] counts spectra across batches.  Index 0 is the first spectrum of batch 0.  In the history the
 * index is negative.  In 'out' zeros follow the last wanted spectrum.
 *
 * Requires: delays <= n_history * n_spectra; n_out_batches * n_out_spectra holds the wanted spectra of every channel;
 *           'in' and 'out' do not overlap.
 * Bound by: memory; wanted spectra are read once and written once.  On a GPU each run of wanted spectra reads at least
 *           32 bytes. */
#ifndef KERNELS_CORRELATE_SELECT_SPECTRA_H
#define KERNELS_CORRELATE_SELECT_SPECTRA_H

#include "kernels/util/voltages.h"

struct select_spectra_args {
    const void *in;          /* shape [n_history + batch][ant][chan][spectrum][pol] */
    void *out;               /* shape [out batch][ant][chan][out spectrum][pol] */
    const uint32_t *delays;  /* shape [ant][pol]; NULL: no delays */
    const uint8_t *present;  /* shape [batch][ant]; NULL: all 1 */
    const uint32_t *spectra; /* shape [row][row_pitch]; NULL: all spectra */
    const uint32_t *ends;    /* shape [row][ends_pitch] */
    enum voltage_format format;
    uint32_t n_ants;
    uint32_t n_chan;
    uint32_t n_spectra; /* number of spectra of a heap of 'in' */
    uint32_t n_history; /* number of batches of 'in' before batch 0 */
    uint32_t first_batch;
    uint32_t n_batches;
    uint32_t n_out_spectra;
    uint32_t n_out_batches;
    uint32_t n_rows; /* 1 or n_chan */
    uint32_t row_pitch;
    uint32_t ends_pitch;
};

extern const struct kernel select_spectra_kernel;

/* select_spectra_constants() writes the CUDA variant's constants for the sizes in 'args'.  select_spectra_grid()
 * returns the grid of a launch of at least one output batch. */
#define SELECT_SPECTRA_N_CONSTANTS 4
void select_spectra_constants(const struct select_spectra_args *args, struct kernel_constant *constants);
struct kernel_grid select_spectra_grid(const struct select_spectra_args *args);

#endif
