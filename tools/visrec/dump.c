/* dump.c - called by the writer thread: copies visibilities from a chunk of heaps to a dump, and changes them from the
 * X-engines' order to the file's order. */
#include "tools/visrec/dump.h"

#include "common/base/units.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VIS_BYTES sizeof(struct visrec_vis)

/* Number of channels that are reordered together.  The rows of these channels in the heap fit in the first-level
 * cache, and stay there until all baselines are reordered. */
#define TILE_CHAN 32

/* [polarisation in the file: xx, yy, xy, yx] index p1 + 2 * p2 of the product in the X-engine's order.  The first
 * letter is the polarisation of ant_1. */
static const unsigned product_of_pol[N_POL_PRODUCTS] = {0, 3, 2, 1};

size_t visrec_dump_n_values(const struct visrec_dump_shape *shape)
{
    return shape->n_baselines * shape->n_chan * N_POL_PRODUCTS;
}

size_t visrec_dump_weights_offset(const struct visrec_dump_shape *shape)
{
    return shape->n_chan_substream * shape->n_baselines * N_POL_PRODUCTS * VIS_BYTES;
}

size_t visrec_dump_gate_offset(const struct visrec_dump_shape *shape)
{
    size_t n_rows = !shape->weights ? 0 : shape->gate_channels ? shape->n_chan_substream : 1;

    return visrec_dump_weights_offset(shape) + n_rows * shape->n_baselines * sizeof(uint32_t);
}

size_t visrec_dump_heap_bytes(const struct visrec_dump_shape *shape)
{
    return visrec_dump_gate_offset(shape) + (shape->gate ? shape->n_chan_substream * sizeof(uint32_t) : 0);
}

int visrec_dump_init(struct visrec_dump *dump, const struct visrec_dump_shape *shape)
{
    size_t n_values = visrec_dump_n_values(shape);

    assert(shape->n_chan % shape->n_chan_substream == 0);
    *dump = (struct visrec_dump){.shape = *shape};
    dump->vis = calloc(n_values, sizeof(*dump->vis));
    dump->flags = calloc(n_values, sizeof(*dump->flags));
    dump->nsamples = calloc(n_values, sizeof(*dump->nsamples));
    if (dump->vis && dump->flags && dump->nsamples)
        return 0;
    visrec_dump_fini(dump);
    return -ENOMEM;
}

void visrec_dump_fini(struct visrec_dump *dump)
{
    free(dump->vis);
    free(dump->flags);
    free(dump->nsamples);
    *dump = (struct visrec_dump){0};
}

static uint32_t load_u32(const uint8_t *bytes)
{
    uint32_t value;

    memcpy(&value, bytes, sizeof(value));
    return le32toh(value);
}

/* Negates a value.  X-engines saturate visibilities at +-(2^31 - 1).  If another maker's engine sends -2^31, the result
 * is 2^31 - 1. */
static int32_t negate(int32_t value)
{
    return value == INT32_MIN ? INT32_MAX : -value;
}

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7FFFFFFF) > 0x7F800000;
}

static bool is_missing(bool real, int32_t re, int32_t im)
{
    return real ? is_nan((uint32_t)re) || is_nan((uint32_t)im) : re == VISREC_MISSING_RE && im == VISREC_MISSING_IM;
}

/* Fills the four polarisations of one baseline and channel.  Returns the number of flagged polarisations. */
static size_t fill_value(bool real, const uint8_t *products, float nsamples, struct visrec_vis *vis, uint8_t *flags,
                         float *out_nsamples)
{
    size_t n_flagged = 0;

    for (unsigned pol = 0; pol < N_POL_PRODUCTS; pol++) {
        const uint8_t *product = products + product_of_pol[pol] * VIS_BYTES;
        int32_t re = (int32_t)load_u32(product);
        int32_t im = (int32_t)load_u32(product + sizeof(re));
        bool absent = is_missing(real, re, im) || nsamples == 0;

        vis[pol] = absent ? (struct visrec_vis){0, 0} : (struct visrec_vis){re, real ? im ^ INT32_MIN : negate(im)};
        flags[pol] = absent;
        out_nsamples[pol] = absent ? 0 : nsamples;
        n_flagged += absent;
    }
    return n_flagged;
}

/* Returns the fraction of an accumulation's spectra that the X-engine summed for a baseline and channel of a heap. */
static float find_fraction(const struct visrec_dump_shape *shape, const uint8_t *heap, size_t heap_baseline,
                           size_t chan)
{
    size_t row = shape->gate_channels ? chan : 0, weight = row * shape->n_baselines + heap_baseline;
    const uint8_t *count = shape->weights ? heap + visrec_dump_weights_offset(shape) + weight * sizeof(uint32_t)
                                          : heap + visrec_dump_gate_offset(shape) + chan * sizeof(uint32_t);

    return shape->weights || shape->gate ? (float)load_u32(count) / (float)shape->full_weight : 1;
}

static void fill_substream(struct visrec_dump *dump, const struct visrec_array *array, size_t first_chan,
                           const uint8_t *heap)
{
    const struct visrec_dump_shape *shape = &dump->shape;
    size_t row_bytes = shape->n_baselines * N_POL_PRODUCTS * VIS_BYTES;

    for (size_t tile = 0; tile < shape->n_chan_substream; tile += TILE_CHAN) {
        size_t end = tile + TILE_CHAN < shape->n_chan_substream ? tile + TILE_CHAN : shape->n_chan_substream;

        for (size_t b = 0; b < shape->n_baselines; b++) {
            size_t heap_baseline = visrec_array_heap_baseline(array->baselines[b]);
            const uint8_t *column = heap + heap_baseline * N_POL_PRODUCTS * VIS_BYTES;
            float nsamples = find_fraction(shape, heap, heap_baseline, tile);

            for (size_t chan = tile; chan < end; chan++) {
                size_t at = (b * shape->n_chan + first_chan + chan) * N_POL_PRODUCTS;

                if (shape->gate)
                    nsamples = find_fraction(shape, heap, heap_baseline, chan);
                dump->n_flagged += fill_value(shape->real, column + chan * row_bytes, nsamples, &dump->vis[at],
                                              &dump->flags[at], &dump->nsamples[at]);
            }
        }
    }
}

static void fill_absent(struct visrec_dump *dump, size_t first_chan)
{
    const struct visrec_dump_shape *shape = &dump->shape;
    size_t n = shape->n_chan_substream * N_POL_PRODUCTS;

    for (size_t b = 0; b < shape->n_baselines; b++) {
        size_t at = (b * shape->n_chan + first_chan) * N_POL_PRODUCTS;

        memset(&dump->vis[at], 0, n * sizeof(dump->vis[at]));
        memset(&dump->flags[at], 1, n);
        memset(&dump->nsamples[at], 0, n * sizeof(dump->nsamples[at]));
        dump->n_flagged += n;
    }
}

void visrec_dump_fill(struct visrec_dump *dump, const struct visrec_array *array, int64_t timestamp_samples,
                      const uint8_t *present, const uint8_t *heaps)
{
    size_t n_substreams = visrec_dump_n_substreams(&dump->shape);
    size_t heap_bytes = visrec_dump_heap_bytes(&dump->shape);

    assert(array->n_baselines == dump->shape.n_baselines);
    dump->timestamp_samples = timestamp_samples;
    dump->n_missing_heaps = 0;
    dump->n_flagged = 0;
    for (size_t i = 0; i < n_substreams; i++) {
        size_t first_chan = i * dump->shape.n_chan_substream;

        if (present[i]) {
            fill_substream(dump, array, first_chan, heaps + i * heap_bytes);
        } else {
            fill_absent(dump, first_chan);
            dump->n_missing_heaps++;
        }
    }
}
