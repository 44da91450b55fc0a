/* product.c - between the receive thread's chunks and a file: detects, sums, fills and scales. */
#include "tools/beamrec/product.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEAN_BATCHES 64
#define LEVEL_MEAN   96.0
#define LEVEL_RMS    24.0

static size_t n_substreams(const struct beamrec_product_shape *shape)
{
    return shape->n_chan / shape->n_chan_substream;
}

int beamrec_product_init(struct beamrec_product *product, const struct beamrec_product_shape *shape)
{
    size_t n_columns = shape->n_chan / shape->sum_channels, n_rows = shape->n_spectra / shape->sum_spectra;
    struct beamrec_product made = {
        .shape = *shape,
        .n_rows = n_rows,
        .n_columns = n_columns,
        .bytes = n_rows * n_columns * (shape->is_voltages ? 2 : (size_t)shape->bits / 8),
        .powers = calloc(n_rows * n_columns, sizeof(*made.powers)),
        .means = calloc(n_columns, sizeof(*made.means)),
        .n_averaged = calloc(n_substreams(shape), sizeof(*made.n_averaged)),
    };

    made.rows = malloc(made.bytes);
    if (made.rows && made.powers && made.means && made.n_averaged) {
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
}

void beamrec_product_restart(struct beamrec_product *product)
{
    product->scale = 0;
}

/* One substream, whose first channel is 'first'. */
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

/* A mean of all batches at first, then one that forgets. */
static void average(struct beamrec_product *product, size_t substream)
{
    size_t n = product->shape.n_chan_substream / product->shape.sum_channels;
    unsigned *n_averaged = &product->n_averaged[substream];

    if (*n_averaged < MEAN_BATCHES)
        ++*n_averaged;
    for (size_t column = substream * n; column < (substream + 1) * n; column++) {
        double sum = 0;
        for (size_t row = 0; row < product->n_rows; row++)
            sum += product->powers[row * product->n_columns + column];
        product->means[column] += (sum / (double)product->n_rows - product->means[column]) / *n_averaged;
    }
}

static void fill_gap(struct beamrec_product *product, size_t substream)
{
    size_t n = product->shape.n_chan_substream / product->shape.sum_channels;

    for (size_t row = 0; row < product->n_rows; row++)
        memcpy(product->powers + row * product->n_columns + substream * n, product->means + substream * n,
               n * sizeof(*product->means));
}

/* From all values of this batch that came. */
static void choose_scale(struct beamrec_product *product, const uint8_t *present)
{
    size_t n = product->shape.n_chan_substream / product->shape.sum_channels, n_values = 0;
    double sum = 0, squares = 0;

    for (size_t i = 0; i < product->n_rows * product->n_columns; i++) {
        if (present[i % product->n_columns / n]) {
            sum += product->powers[i];
            n_values++;
        }
    }
    double mean = sum / (double)n_values;
    for (size_t i = 0; i < product->n_rows * product->n_columns; i++)
        if (present[i % product->n_columns / n])
            squares += (product->powers[i] - mean) * (product->powers[i] - mean);
    product->scale = squares > 0 ? LEVEL_RMS / sqrt(squares / (double)n_values) : 1;
    product->offset = mean - LEVEL_MEAN / product->scale;
}

static void write_powers(struct beamrec_product *product)
{
    size_t n = product->n_columns;

    for (size_t i = 0; i < product->n_rows * n; i++) {
        double power = product->powers[i / n * n + n - 1 - i % n];
        if (product->shape.bits == 32) {
            float value = (float)power;
            memcpy(product->rows + i * sizeof(value), &value, sizeof(value));
        } else {
            double level = rint((power - product->offset) * product->scale);
            product->rows[i] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
        }
    }
}

void beamrec_product_fill(struct beamrec_product *product, const uint8_t *present, const uint8_t *heaps)
{
    const struct beamrec_product_shape *shape = &product->shape;
    size_t heap_bytes = shape->n_chan_substream * shape->n_spectra * 2;
    bool has_data = false;

    memset(product->rows, 0, product->bytes);
    memset(product->powers, 0, product->n_rows * product->n_columns * sizeof(*product->powers));
    for (size_t i = 0; i < n_substreams(shape); i++) {
        bool is_here = present && present[i];
        has_data |= is_here;
        if (shape->is_voltages) {
            if (is_here)
                turn_voltages(product, i * shape->n_chan_substream, heaps + i * heap_bytes);
        } else if (is_here) {
            detect(product, i * shape->n_chan_substream, (const int8_t *)heaps + i * heap_bytes);
            average(product, i);
        } else {
            fill_gap(product, i);
        }
    }
    if (shape->is_voltages)
        return;
    if (product->scale == 0 && has_data)
        choose_scale(product, present);
    write_powers(product);
}
