/* product.h - turns the heaps of one batch into rows of a file of one beam.
 *
 * A heap of a voltage beam is int8 [chan][spectrum][re, im].  powers.h has the layout of a heap of detected beams.
 *   voltages:   int8 [spectrum][chan][re, im]; the frequency rises with the channel's index.
 *   powers:     float or uint8 [row][product][group]; as the group's index rises, the frequency falls in SIGPROC files
 *               and rises in PSRDADA files.  A row contains sums over sum_spectra spectra; a group is a set of
 *               sum_channels channels, which are summed.  A power of a voltage beam is the sum of |v|^2.  Heaps of
 *               detected beams contain powers.
 * PSRDADA files of voltage beams hold voltages; all other files hold powers.  A power of 8 bits is round((power -
 * offset) * scale), half to even, clipped to 0 to 255.  Each product has its own offset and scale, which are chosen
 * from the first batch that has data.  With this offset and scale, the values of the first batch have a mean of 96 and
 * a standard deviation of 24.  Windows whose fraction of data is below 90 % of the largest fraction are excluded from
 * this choice.  If a stream begins within a heap, incomplete windows would otherwise increase the standard deviation.
 *
 * Absent heaps, and windows whose fraction is 0, are filled with the running mean of each product and group.  The mean
 * covers about the last 64 batches in which the substream has data.  Before any data the fill is 0.  Absent voltages
 * are filled with 0. */
#ifndef TOOLS_BEAMREC_PRODUCT_H
#define TOOLS_BEAMREC_PRODUCT_H

#include "tools/beamrec/powers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BEAMREC_MAX_PRODUCTS 4

struct beamrec_product_shape {
    bool is_dada; /* true: PSRDADA file; false: SIGPROC file */
    int bits;
    size_t n_chan, n_chan_substream; /* number of channels of the beam, and number of channels of each substream */
    size_t n_spectra;                /* number of spectra of a batch */
    size_t sum_spectra, sum_channels;
    size_t n_products;
    bool is_detected;             /* true: heaps contain powers of detected beams */
    struct beamrec_powers powers; /* layout of the heaps if they contain powers */
    size_t beam;                  /* index of the beam in the heaps if they contain powers */
};

struct beamrec_product {
    struct beamrec_product_shape shape;
    size_t n_rows, n_groups;
    size_t n_columns; /* number of values in a row [product][group] */
    size_t bytes;
    uint8_t *rows;        /* [bytes] rows of the latest batch, in the file's format */
    double *powers;       /* [row][product][group] powers of the latest batch; the frequency rises with the group's
                           * index */
    double *means;        /* [product][group] */
    unsigned *n_averaged; /* [substream] number of batches that the means cover, at most 64 */
    /* [substream][row] fraction of the antennas' data that the row has, in the latest batch.  0: no data arrived, and
     * the row has a fill value. */
    float *fractions;
    struct {
        double offset, scale; /* if scale is 0, offset and scale are not yet chosen */
    } levels[BEAMREC_MAX_PRODUCTS];
};

static inline bool beamrec_product_has_voltages(const struct beamrec_product_shape *shape)
{
    return shape->is_dada && !shape->is_detected;
}

/* Allocates the arrays.  For voltages, 'shape' must have 8 bits, and the value 1 in sum_spectra, sum_channels and
 * n_products.  Returns 0 or -ENOMEM. */
int beamrec_product_init(struct beamrec_product *product, const struct beamrec_product_shape *shape);
void beamrec_product_fini(struct beamrec_product *product);

/* Fills 'rows' from 'heaps' [substream][heap bytes].  A heap is used only if present[substream] is true.  If 'present'
 * is NULL, no heap is used. */
void beamrec_product_fill(struct beamrec_product *product, const uint8_t *present, const uint8_t *heaps);

/* Resets the offsets and scales, so that the next file chooses its own. */
void beamrec_product_restart(struct beamrec_product *product);

#endif
