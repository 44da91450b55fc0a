/* product.c - converts heaps to rows of a file: detects, sums, fills gaps and scales. */
#include "tools/beamrec/product.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEAN_BATCHES 64
#define LEVEL_MEAN   96.0
#define LEVEL_RMS    24.0

/* The scale is chosen from the windows with a large fraction of data: at least FULL_FRACTION times the largest fraction
 * in the batch. */
#define FULL_FRACTION 0.9f

static size_t n_substreams(const struct beamrec_product_shape *shape)
{
    return shape->n_chan / shape->n_chan_substream;
}

static size_t groups_per_substream(const struct beamrec_product *product)
{
    return product->shape.n_chan_substream / product->shape.sum_channels;
}

static size_t heap_bytes(const struct beamrec_product_shape *shape)
{
    return shape->is_detected ? beamrec_powers_heap_bytes(&shape->powers)
                              : shape->n_chan_substream * shape->n_spectra * 2;
}

int beamrec_product_init(struct beamrec_product *product, const struct beamrec_product_shape *shape)
{
    size_t n_groups = shape->n_chan / shape->sum_channels, n_rows = shape->n_spectra / shape->sum_spectra;
    size_t n_columns = shape->n_products * n_groups;
    size_t value_bytes = beamrec_product_has_voltages(shape) ? 2 : (size_t)shape->bits / 8;
    struct beamrec_product made = {
        .shape = *shape,
        .n_rows = n_rows,
        .n_groups = n_groups,
        .n_columns = n_columns,
        .bytes = n_rows * n_columns * value_bytes,
        .powers = calloc(n_rows * n_columns, sizeof(*made.powers)),
        .means = calloc(n_columns, sizeof(*made.means)),
        .n_averaged = calloc(n_substreams(shape), sizeof(*made.n_averaged)),
        .fractions = calloc(n_substreams(shape) * n_rows, sizeof(*made.fractions)),
    };

    made.rows = malloc(made.bytes);
    if (made.rows && made.powers && made.means && made.n_averaged && made.fractions) {
        *product = made;
        return 0;
    }
    beamrec_product_fini(&made);
    return -ENOMEM;
}

void beamrec_product_fini(struct beamrec_product *product)
{
    free(product->rows);
    free(product->powers);
    free(product->means);
    free(product->n_averaged);
    free(product->fractions);
}

void beamrec_product_restart(struct beamrec_product *product)
{
    memset(product->levels, 0, sizeof(product->levels));
}

/* Transposes the voltages of one substream from [chan][spectrum] to [spectrum][chan].  The substream's first channel is
 * 'first'. */
static void turn_voltages(struct beamrec_product *product, size_t first, const uint8_t *heap)
{
    const struct beamrec_product_shape *shape = &product->shape;

    for (size_t c = 0; c < shape->n_chan_substream; c++)
        for (size_t s = 0; s < shape->n_spectra; s++)
            memcpy(product->rows + (s * shape->n_chan + first + c) * 2, heap + (c * shape->n_spectra + s) * 2, 2);
}

static void detect(struct beamrec_product *product, size_t first, const int8_t *heap)
{
    const struct beamrec_product_shape *shape = &product->shape;

    for (size_t c = 0; c < shape->n_chan_substream; c++) {
        for (size_t s = 0; s < shape->n_spectra; s++) {
            const int8_t *v = heap + (c * shape->n_spectra + s) * 2;
            size_t row = s / shape->sum_spectra, column = (first + c) / shape->sum_channels;
            product->powers[row * product->n_columns + column] += v[0] * v[0] + v[1] * v[1];
        }
    }
}

/* Reads the powers of detected beams.  For voltage beams, detect() computes the powers instead. */
static void read_powers(struct beamrec_product *product, size_t substream, const uint8_t *heap)
{
    const struct beamrec_product_shape *shape = &product->shape;
    double *first = product->powers + substream * groups_per_substream(product);

    for (size_t row = 0; row < product->n_rows; row++)
        for (size_t p = 0; p < shape->n_products; p++)
            beamrec_powers_read(&shape->powers, heap, shape->beam, row, p,
                                first + row * product->n_columns + p * product->n_groups);
}

static void set_fractions(struct beamrec_product *product, size_t substream, const uint8_t *heap)
{
    float *fractions = product->fractions + substream * product->n_rows;

    for (size_t row = 0; row < product->n_rows; row++)
        fractions[row] = !heap ? 0 : product->shape.is_detected ? beamrec_powers_fraction(heap, row) : 1;
}

static bool is_here(const struct beamrec_product *product, size_t substream, size_t row)
{
    return product->fractions[substream * product->n_rows + row] > 0;
}

/* Updates the means of a substream.  At first, a mean covers all batches with data, up to MEAN_BATCHES batches.
 * Later the mean is a running mean of about MEAN_BATCHES batches. */
static void average(struct beamrec_product *product, size_t substream)
{
    size_t n = groups_per_substream(product), n_here = 0;
    unsigned *n_averaged = &product->n_averaged[substream];

    for (size_t row = 0; row < product->n_rows; row++)
        n_here += is_here(product, substream, row);
    if (n_here == 0)
        return;
    if (*n_averaged < MEAN_BATCHES)
        ++*n_averaged;
    for (size_t i = 0; i < product->shape.n_products * n; i++) {
        size_t column = i / n * product->n_groups + substream * n + i % n;
        double sum = 0;
        for (size_t row = 0; row < product->n_rows; row++)
            sum += is_here(product, substream, row) ? product->powers[row * product->n_columns + column] : 0;
        product->means[column] += (sum / (double)n_here - product->means[column]) / *n_averaged;
    }
}

static void fill_gaps(struct beamrec_product *product, size_t substream)
{
    size_t n = groups_per_substream(product);

    for (size_t row = 0; row < product->n_rows; row++)
        for (size_t p = 0; p < product->shape.n_products && !is_here(product, substream, row); p++) {
            size_t first = p * product->n_groups + substream * n;
            memcpy(product->powers + row * product->n_columns + first, product->means + first,
                   n * sizeof(*product->means));
        }
}

/* Chooses the offset and the scale of a product from the data of a batch.  Computes mean and variance by the method of
 * B. P. Welford, Technometrics 4 (1962), p. 419. */
static void choose_scale(struct beamrec_product *product, size_t p, float least_fraction)
{
    size_t n = groups_per_substream(product), n_values = 0;
    double mean = 0, squares = 0;

    for (size_t row = 0; row < product->n_rows; row++)
        for (size_t group = 0; group < product->n_groups; group++) {
            double power = product->powers[row * product->n_columns + p * product->n_groups + group];
            double step = power - mean;
            if (!(product->fractions[group / n * product->n_rows + row] >= least_fraction))
                continue;
            mean += step / (double)++n_values;
            squares += step * (power - mean);
        }
    product->levels[p].scale = squares > 0 ? LEVEL_RMS / sqrt(squares / (double)n_values) : 1;
    product->levels[p].offset = mean - LEVEL_MEAN / product->levels[p].scale;
}

/* Chooses the offsets and scales of all products if the batch has any data. */
static void choose_scales(struct beamrec_product *product)
{
    float largest = 0;

    for (size_t i = 0; i < n_substreams(&product->shape) * product->n_rows; i++)
        largest = product->fractions[i] > largest ? product->fractions[i] : largest;
    for (size_t p = 0; p < product->shape.n_products && largest > 0; p++)
        choose_scale(product, p, FULL_FRACTION * largest);
}

/* Writes the groups of one row and of product p, in the file's order of frequency. */
static void write_groups(const struct beamrec_product *product, size_t p, const double *powers, uint8_t *out)
{
    double offset = product->levels[p].offset, scale = product->levels[p].scale;
    size_t n = product->n_groups;
    bool rises = product->shape.is_dada;

    if (product->shape.bits == 32) {
        for (size_t i = 0; i < n; i++) {
            float value = (float)powers[rises ? i : n - 1 - i];
            memcpy(out + i * sizeof(value), &value, sizeof(value));
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            double level = (powers[rises ? i : n - 1 - i] - offset) * scale;
            out[i] = (uint8_t)(level > 0 ? rint(level < 255 ? level : 255) : 0); /* NaN becomes 0 */
        }
    }
}

static void write_powers(struct beamrec_product *product)
{
    size_t n = product->n_groups, bytes = (size_t)product->shape.bits / 8;

    for (size_t row = 0; row < product->n_rows; row++)
        for (size_t p = 0; p < product->shape.n_products; p++) {
            size_t first = row * product->n_columns + p * n;
            write_groups(product, p, product->powers + first, product->rows + first * bytes);
        }
}

void beamrec_product_fill(struct beamrec_product *product, const uint8_t *present, const uint8_t *heaps)
{
    const struct beamrec_product_shape *shape = &product->shape;
    bool has_voltages = beamrec_product_has_voltages(shape);

    memset(product->rows, 0, product->bytes);
    memset(product->powers, 0, product->n_rows * product->n_columns * sizeof(*product->powers));
    for (size_t i = 0; i < n_substreams(shape); i++) {
        const uint8_t *heap = present && present[i] ? heaps + i * heap_bytes(shape) : NULL;
        set_fractions(product, i, heap);
        if (heap && has_voltages)
            turn_voltages(product, i * shape->n_chan_substream, heap);
        else if (heap && shape->is_detected)
            read_powers(product, i, heap);
        else if (heap)
            detect(product, i * shape->n_chan_substream, (const int8_t *)heap);
    }
    if (has_voltages)
        return;
    for (size_t i = 0; i < n_substreams(shape); i++) {
        average(product, i);
        fill_gaps(product, i);
    }
    if (product->levels[0].scale == 0)
        choose_scales(product);
    write_powers(product);
}
