/* dump.h - turns the heaps of one timestamp into rows of the file.
 *
 * A heap is int32 or float32 little-endian [chan][baseline][product][re, im].  With weights, uint32 [baseline] follows,
 * or uint32 [chan][baseline] if each channel has its own weights.  With a gate, uint32 [chan] follows: for each
 * channel, the number of spectra that the gate selected.  A dump is [baseline][chan][pol], with baselines in the
 * file's order and pols xx, yy, xy, yx.  visrec_dump_fill() conjugates the values; docs/visibilities.md explains why.
 *
 * Data are absent if their heap is missing, or if the X-engine marked their baseline as missing.  Absent data are
 * flagged, and their values and nsamples are 0. */
#ifndef TOOLS_VISREC_DUMP_H
#define TOOLS_VISREC_DUMP_H

#include "tools/visrec/array.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Value that the X-engine sends for a visibility that it could not compute. */
#define VISREC_MISSING_RE INT32_MIN
#define VISREC_MISSING_IM 1

struct visrec_dump_shape {
    size_t n_chan;           /* number of channels of the whole stream */
    size_t n_chan_substream; /* number of channels of a substream; divides n_chan */
    size_t n_baselines;      /* number of baselines, autocorrelations included */
    bool weights;
    uint32_t full_weight; /* number of spectra in a complete accumulation */
    bool gate;
    bool gate_channels; /* true: each channel has its own weights */
    bool real;          /* true: visibilities are float32; false: they are int32 */
};

struct visrec_vis {
    int32_t r, i; /* real and imaginary part: int32, or the bits of a float32 */
};

struct visrec_dump {
    struct visrec_dump_shape shape;
    int64_t timestamp_samples; /* timestamp of the accumulation's first sample */
    struct visrec_vis *vis;    /* [baseline][chan][pol] */
    uint8_t *flags;            /* [baseline][chan][pol] 1: the value is absent */
    float *nsamples;           /* [baseline][chan][pol] fraction of the accumulation's spectra that the value
                                * contains */
    size_t n_missing_heaps;
    size_t n_flagged; /* sum of flags */
};

static inline size_t visrec_dump_n_substreams(const struct visrec_dump_shape *shape)
{
    return shape->n_chan / shape->n_chan_substream;
}

/* VISREC_DUMP_VALUE_BYTES is the size of one value in the arrays vis, flags and nsamples together.
 * visrec_dump_n_values() returns the number of values in each array. */
#define VISREC_DUMP_VALUE_BYTES (sizeof(struct visrec_vis) + sizeof(uint8_t) + sizeof(float))
size_t visrec_dump_n_values(const struct visrec_dump_shape *shape);

/* Return numbers of bytes.  The first function returns the offset of the weights in a heap, which is the size of the
 * visibilities.  The second function returns the offset of the numbers of spectra that the gate selected.  The third
 * function returns the size of the heap. */
size_t visrec_dump_weights_offset(const struct visrec_dump_shape *shape);
size_t visrec_dump_gate_offset(const struct visrec_dump_shape *shape);
size_t visrec_dump_heap_bytes(const struct visrec_dump_shape *shape);

/* Allocates the arrays.  Returns 0 or -ENOMEM. */
int visrec_dump_init(struct visrec_dump *dump, const struct visrec_dump_shape *shape);
void visrec_dump_fini(struct visrec_dump *dump);

/* Fills all of 'dump' from 'heaps' [substream][heap bytes].  A heap is used only if present[substream] is true. */
void visrec_dump_fill(struct visrec_dump *dump, const struct visrec_array *array, int64_t timestamp_samples,
                      const uint8_t *present, const uint8_t *heaps);

#endif
