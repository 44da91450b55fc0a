/* product.h - the heaps of one batch of a beam become rows of a file.
 *
 * A heap is int8 [chan][spectrum][re, im].
 *   voltages    int8 [spectrum][chan][re, im], the channels rising in frequency
 *   filterbank  float or uint8 [spectrum / sum_spectra][chan / sum_channels], falling in frequency: |v|^2, summed
 * 8 bits are round((power - offset) * scale), half to even, clipped.  Offset and scale come from the first batch that
 * has data: its mean becomes 96 and its standard deviation 24.
 *
 * Absent heaps are filled with the running mean of each channel, over the last 64 batches or so that had it; before
 * any, with 0.  The mean of voltages is 0. */
#ifndef TOOLS_BEAMREC_PRODUCT_H
#define TOOLS_BEAMREC_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct beamrec_product_shape {
    bool is_voltages;
    int bits;
    size_t n_chan, n_chan_substream; /* of the beam */
    size_t n_spectra;                /* of a batch */
    size_t sum_spectra, sum_channels;
};

struct beamrec_product {
    struct beamrec_product_shape shape;
    size_t n_rows, n_columns; /* of a batch */
    size_t bytes;
    uint8_t *rows;        /* [bytes] the latest batch */
    double *powers;       /* [row][chan / sum_channels] rising in frequency */
    double *means;        /* [chan / sum_channels] */
    unsigned *n_averaged; /* [substream] batches in the means */
    double offset, scale; /* 0: not chosen yet */
};

/* Voltages have sums of 1 and 8 bits.  Returns 0 or -ENOMEM. */
int beamrec_product_init(struct beamrec_product *product, const struct beamrec_product_shape *shape);
void beamrec_product_fini(struct beamrec_product *product);

/* Fills 'rows' from 'heaps' [substream][heap bytes], of which those with present[substream] count; NULL: none. */
void beamrec_product_fill(struct beamrec_product *product, const uint8_t *present, const uint8_t *heaps);

/* The next file has a scale of its own. */
void beamrec_product_restart(struct beamrec_product *product);

#endif
