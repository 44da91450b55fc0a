/* product.h - the heaps of one batch become rows of a file of one beam.
 *
 * A heap of a voltage beam is int8 [chan][spectrum][re, im]; powers.h says what one of detected beams is.
 *   voltages    int8 [spectrum][chan][re, im], the channels rising in frequency
 *   powers      float or uint8 [row][product][group], the groups falling in frequency in SIGPROC files and rising in
 *               PSRDADA files.  A row is sum_spectra spectra, a group sum_channels channels.  A power of a voltage beam
 *               is the sum of |v|^2; heaps of detected beams have powers.
 * PSRDADA files of voltage beams hold voltages; all other files hold powers.
 * 8 bits are round((power - offset) * scale), half to even, clipped.  Each product has an offset and a scale, from the
 * first batch that has data: there its mean becomes 96 and its standard deviation 24.  Windows with less than 90 % of
 * the largest fraction do not count for that: where a stream begins within a heap, they would widen the range.
 *
 * Absent heaps, and windows whose fraction is 0, are filled with the running mean of each product and group, over the
 * last 64 batches or so that had it; before any, with 0.  The mean of voltages is 0. */
#ifndef TOOLS_BEAMREC_PRODUCT_H
#define TOOLS_BEAMREC_PRODUCT_H

#include "tools/beamrec/powers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BEAMREC_MAX_PRODUCTS 4

struct beamrec_product_shape {
    bool is_dada; /* the file: PSRDADA, else SIGPROC */
    int bits;
    size_t n_chan, n_chan_substream; /* of the beam */
    size_t n_spectra;                /* of a batch */
    size_t sum_spectra, sum_channels;
    size_t n_products;
    bool is_detected;             /* heaps have powers */
    struct beamrec_powers powers; /* these, and */
    size_t beam;                  /* that one of their beams */
};

struct beamrec_product {
    struct beamrec_product_shape shape;
    size_t n_rows, n_groups;
    size_t n_columns; /* of a row: [product][group] */
    size_t bytes;
    uint8_t *rows;        /* [bytes] the latest batch */
    double *powers;       /* [row][product][group] rising in frequency */
    double *means;        /* [product][group] */
    unsigned *n_averaged; /* [substream] batches in the means */
    float *fractions;     /* [substream][row] how much of the antennas' data the latest batch had; 0: filled */
    struct {
        double offset, scale; /* 0: not chosen yet */
    } levels[BEAMREC_MAX_PRODUCTS];
};

static inline bool beamrec_product_has_voltages(const struct beamrec_product_shape *shape)
{
    return shape->is_dada && !shape->is_detected;
}

/* Voltages have sums of 1, 8 bits and one product.  Returns 0 or -ENOMEM. */
int beamrec_product_init(struct beamrec_product *product, const struct beamrec_product_shape *shape);
void beamrec_product_fini(struct beamrec_product *product);

/* Fills 'rows' from 'heaps' [substream][heap bytes], of which those with present[substream] count; NULL: none. */
void beamrec_product_fill(struct beamrec_product *product, const uint8_t *present, const uint8_t *heaps);

/* The next file has scales of its own. */
void beamrec_product_restart(struct beamrec_product *product);

#endif
