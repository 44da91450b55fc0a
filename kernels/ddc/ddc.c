/* ddc.c - plain C version of ddc: the first step of a narrowband output, before the polyphase filter bank.
 *
 * The kernel computes a block of outputs in several passes.  Each pass uses the samples whose indices are equal
 * modulo the subsampling factor.  These samples are unpacked into a column.  The taps with the same residue slide
 * over this column.  Each tap uses one sample per output.  So the innermost loops run along the outputs, and each
 * sample is unpacked once for a block. */
#include "kernels/ddc/ddc.h"

#include "common/base/units.h"
#include "kernels/util/clones.h"
#include "kernels/util/half.h"
#include "kernels/ddc/mixer.h"
#include "kernels/util/unpack.h"

#include <assert.h>
#include <complex.h>
#include <math.h>
#include <string.h>

#define BLOCK_OUT   256
#define COLUMN_TAPS 64 /* maximum number of taps, all with the same residue, that one pass adds */

struct block {
    float column[BLOCK_OUT + COLUMN_TAPS];
    float re[BLOCK_OUT], im[BLOCK_OUT];
};

/* Unpacks samples into a column: column[i] is sample first + i * stride.  Only 'n_there' of these samples exist.  The
 * rest of the column becomes zeros. */
static void unpack_column(const uint8_t *in, size_t first, size_t stride, size_t n_there, unsigned sample_bits,
                          float *column)
{
    for (size_t i = 0; i < BLOCK_OUT + COLUMN_TAPS; i++)
        column[i] = i < n_there ? unpack_one(in, (first + i * stride) * sample_bits, sample_bits) : 0;
}

/* Adds the products with taps [0, n) of a column to the sums.  The weights (re, im) of consecutive taps are 2 *
 * stride floats apart.  Four taps are added for each load and store of a sum. */
KERNEL_CLONES static void filter_column(const float *weights, size_t stride, size_t n, const float *restrict column,
                                        float *restrict re, float *restrict im)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        const float *w = weights + 2 * stride * i, *x = column + i;
        float a0 = w[0], a1 = w[2 * stride], a2 = w[4 * stride], a3 = w[6 * stride];
        float b0 = w[1], b1 = w[2 * stride + 1], b2 = w[4 * stride + 1], b3 = w[6 * stride + 1];
        for (size_t m = 0; m < BLOCK_OUT; m++) {
            re[m] += a0 * x[m] + a1 * x[m + 1] + a2 * x[m + 2] + a3 * x[m + 3];
            im[m] += b0 * x[m] + b1 * x[m + 1] + b2 * x[m + 2] + b3 * x[m + 3];
        }
    }
    for (; i < n; i++) {
        float a = weights[2 * stride * i], b = weights[2 * stride * i + 1];
        for (size_t m = 0; m < BLOCK_OUT; m++) {
            re[m] += a * column[m + i];
            im[m] += b * column[m + i];
        }
    }
}

static double complex rotation(uint64_t turns)
{
    double angle = (double)(int64_t)turns * (2 * M_PI * 0x1p-64);

    return cos(angle) + I * sin(angle);
}

/* Fills rotations[i] = e^{2 pi i phase_step i}.  The first 2^n rotations, multiplied by the rotation of 2^n steps, give
 * the next 2^n rotations. */
static void rotate_block(uint64_t phase_step, double complex *rotations)
{
    rotations[0] = 1;
    for (size_t n = 1; n < BLOCK_OUT; n *= 2) {
        double complex by = rotation(n * phase_step);
        for (size_t i = 0; i < n; i++)
            rotations[n + i] = by * rotations[i];
    }
}

/* Computes outputs [m0, m0 + n), n <= BLOCK_OUT, of one polarisation. */
static void convert_block(const struct ddc_args *a, size_t pol, size_t m0, size_t n, const double complex *rotations)
{
    const float *weights = a->weights;
    size_t first = (size_t)a->offset + m0 * a->subsampling, n_samples = (n - 1) * a->subsampling + a->n_taps;
    double complex start = rotation(a->phase + m0 * a->phase_step);
    struct block b;

    memset(b.re, 0, sizeof(b.re));
    memset(b.im, 0, sizeof(b.im));
    for (size_t residue = 0; residue < a->subsampling && residue < a->n_taps; residue++)
        for (size_t k = residue; k < a->n_taps; k += COLUMN_TAPS * (size_t)a->subsampling) {
            size_t n_taps = (a->n_taps - k - 1) / a->subsampling + 1;
            n_taps = n_taps < COLUMN_TAPS ? n_taps : COLUMN_TAPS;
            unpack_column(a->in[pol], first + k, a->subsampling, (n_samples - k - 1) / a->subsampling + 1,
                          a->sample_bits, b.column);
            filter_column(weights + 2 * k, a->subsampling, n_taps, b.column, b.re, b.im);
        }
    for (size_t i = 0; i < n; i++) {
        double complex out = (b.re[i] + I * (double)b.im[i]) * (start * rotations[i]);
        a->out[pol][2 * (m0 + i)] = (float)creal(out);
        a->out[pol][2 * (m0 + i) + 1] = (float)cimag(out);
    }
}

static void ddc_cpu(const void *args, int n_threads)
{
    const struct ddc_args *a = args;
    double complex rotations[BLOCK_OUT];

    assert(a->n_taps >= 1 && a->subsampling >= 1 && a->offset >= 0);
    assert(a->sample_bits >= 2 && (a->sample_bits <= 10 || a->sample_bits == 12 || a->sample_bits == 16));
    rotate_block(a->phase_step, rotations);
#pragma omp parallel for collapse(2) num_threads(n_threads)
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t m0 = 0; m0 < a->n_out; m0 += BLOCK_OUT)
            convert_block(a, pol, m0, a->n_out - m0 < BLOCK_OUT ? a->n_out - m0 : BLOCK_OUT, rotations);
}

const struct kernel ddc_kernel = {
    .name = "ddc",
    .args_bytes = sizeof(struct ddc_args),
    .cpu = ddc_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define MAX_WEIGHT 0x1p14 /* largest magnitude of a stored weight; the largest half float is 65504 */
/* maximum number of packed words in a thread's registers, at a time when the thread holds no sums */
#define MAX_PACKED_WORDS 56

static uint32_t round_up_16(uint32_t n)
{
    return (n + 15) / 16 * 16;
}

struct ddc_shape ddc_default_shape(const struct ddc_args *args)
{
    uint32_t row = round_up_16(DDC_ROW_OUTPUTS * args->subsampling);

    if (args->sample_bits > 10 && row >= 64) /* both the packed samples and the unpacked samples need much memory */
        return (struct ddc_shape){.n_warps = 4, .n_tiles = 2, .columns = 64};
    if (row > 128)
        return (struct ddc_shape){.n_warps = 2, .n_tiles = 2, .columns = 128};
    return (struct ddc_shape){.n_warps = 4, .n_tiles = row <= 64 ? 4 : 2, .columns = row};
}

/* Returns the number of rows of samples that the kernel needs for a row of outputs. */
static uint32_t n_shifts_of(const struct ddc_args *args)
{
    uint32_t row = DDC_ROW_OUTPUTS * args->subsampling;

    return (args->n_taps + (DDC_ROW_OUTPUTS - 1) * args->subsampling + row - 1) / row;
}

/* Returns the number of chunks of 'columns' samples in a row. */
static uint32_t n_chunks_of(const struct ddc_args *args, const struct ddc_shape *shape)
{
    return (DDC_ROW_OUTPUTS * args->subsampling + shape->columns - 1) / shape->columns;
}

/* Number of half floats for the weights of a step of 16 samples.  Each lane has 4 registers with high terms and 4
 * registers with low terms.  A register has two half floats. */
#define STEP_HALVES ((size_t)2 * 32 * 8)

static size_t n_steps_of(const struct ddc_args *args, const struct ddc_shape *shape)
{
    return (size_t)n_chunks_of(args, shape) * n_shifts_of(args) * (shape->columns / 16);
}

size_t ddc_weights_bytes(const struct ddc_args *args, const struct ddc_shape *shape, bool compiles)
{
    if (!compiles)
        return (size_t)args->n_taps * 2 * sizeof(float);
    return n_steps_of(args, shape) * STEP_HALVES * sizeof(uint16_t);
}

/* Returns the weight of a sample for output 'out' of a row of outputs.  The sample's row is 'shift' rows after the row
 * of outputs.  The sample's column is 'column'.  The weight includes the rotation from the row's first output to output
 * 'out', e^{2 pi i f A out}.  So the kernel needs only one rotation for a whole row of outputs. */
static double complex row_weight(const struct ddc_args *args, const float *filter, const struct mixer *mixer,
                                 uint32_t shift, uint32_t column, uint32_t out)
{
    uint32_t row = DDC_ROW_OUTPUTS * args->subsampling;
    int64_t at = (int64_t)shift * row + column, k = at - (int64_t)out * args->subsampling;

    if (column >= row || k < 0 || k >= args->n_taps)
        return 0;
    return filter[k] * rotation(mixer_turns(mixer, at));
}

/* Writes the registers of a step as the second operand of mma.m16n8k16.  Half i of a lane's register r multiplies
 * sample 8 (r % 2) + 2 (lane % 4) + i, for column lane / 4 of tile r / 2.  The 8 columns of a tile are the real and
 * imaginary parts of alternate outputs. */
static void write_step(const struct ddc_args *args, const float *filter, const struct mixer *mixer, double scale,
                       uint32_t shift, uint32_t column, uint16_t *halves)
{
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t sample = 8 * (i / 2 % 2) + 2 * (lane % 4) + i % 2, out = lane / 8 * 2 + i / 4;
            double complex weight = row_weight(args, filter, mixer, shift, column + sample, out);
            double part = scale * (lane / 4 % 2 ? cimag(weight) : creal(weight));
            uint16_t high = half_of_double(part);
            halves[lane * 8 + i] = high;
            halves[(32 + lane) * 8 + i] = half_of_double(part - half_to_float(high));
        }
}

static float write_steps(const struct ddc_args *args, const struct ddc_shape *shape, const float *filter,
                         const struct mixer *mixer, uint16_t *halves)
{
    float largest = 0;
    int exponent;

    for (size_t k = 0; k < args->n_taps; k++)
        largest = fmaxf(largest, fabsf(filter[k]));
    frexp(MAX_WEIGHT / fmax(largest, 1e-30), &exponent);
    for (uint32_t chunk = 0; chunk < n_chunks_of(args, shape); chunk++)
        for (uint32_t shift = 0; shift < n_shifts_of(args); shift++)
            for (uint32_t step = 0; step < shape->columns; step += 16, halves += STEP_HALVES)
                write_step(args, filter, mixer, ldexp(1, exponent - 1), shift, chunk * shape->columns + step, halves);
    return (float)ldexp(1, 1 - exponent);
}

float ddc_weights(const struct ddc_args *args, const struct ddc_shape *shape, bool compiles, const float *filter,
                  const struct mixer *mixer, void *weights)
{
    float *out = weights;

    if (compiles)
        return write_steps(args, shape, filter, mixer, weights);
    for (size_t k = 0; k < args->n_taps; k++) {
        double complex weight = filter[k] * rotation(mixer_turns(mixer, (int64_t)k));
        out[2 * k] = (float)creal(weight);
        out[2 * k + 1] = (float)cimag(weight);
    }
    return 1;
}

static uint32_t n_load_rows_of(const struct ddc_args *args, const struct ddc_shape *shape)
{
    return 16 * shape->n_tiles * shape->n_warps + n_shifts_of(args) - 1;
}

/* Returns true if packed samples are unpacked in place, through registers.  This is possible only with whole rows and
 * enough registers.  Also, every thread must unpack the same columns in all of its rows. */
static bool is_in_place(const struct ddc_args *args, const struct ddc_shape *shape)
{
    uint32_t group = DDC_ROW_OUTPUTS * args->subsampling % 16 == 0 ? 16 : 8, threads = 32 * shape->n_warps;
    uint32_t groups = shape->columns / group, words = (group * args->sample_bits + 62) / 32;

    if (n_chunks_of(args, shape) > 1 || threads % (8 * groups))
        return false;
    return (n_load_rows_of(args, shape) * groups + threads - 1) / threads * words <= MAX_PACKED_WORDS;
}

void ddc_constants(const struct ddc_args *args, const struct ddc_shape *shape, struct kernel_constant *constants)
{
    const struct kernel_constant all[DDC_N_CONSTANTS] = {
        {"SUBSAMPLING", args->subsampling},
        {"N_TAPS", args->n_taps},
        {"SAMPLE_BITS", args->sample_bits},
        {"N_WARPS", shape->n_warps},
        {"N_TILES", shape->n_tiles},
        {"COLUMNS", shape->columns},
        {"IN_PLACE", is_in_place(args, shape)},
    };

    assert(args->n_taps <= 64 * args->subsampling && shape->columns % 16 == 0);
    memcpy(constants, all, sizeof(all));
}

/* Returns the size in bytes of a block's packed samples in shared memory, as ddc.cu computes it. */
static uint32_t packed_bytes(const struct ddc_args *args, const struct ddc_shape *shape)
{
    bool is_cut = n_chunks_of(args, shape) > 1;
    uint32_t row = DDC_ROW_OUTPUTS * args->subsampling, n_rows = n_load_rows_of(args, shape);
    uint32_t segment = is_cut ? shape->columns : (n_rows - 1) * row + shape->columns;

    return (is_cut ? n_rows : 1) * DDC_SEGMENT_QUADS(segment * args->sample_bits) * 16;
}

/* Returns the number of bytes that a block needs for packed and unpacked samples.  If both use the same memory, this
 * is the larger of the two sizes. */
static uint32_t samples_bytes(const struct ddc_args *args, const struct ddc_shape *shape)
{
    uint32_t plane = n_load_rows_of(args, shape) * (shape->columns + 8) * 2, packed = packed_bytes(args, shape);
    uint32_t unpacked = plane * (args->sample_bits > 12 ? 2 : 1);

    if (!is_in_place(args, shape))
        return packed + unpacked;
    return packed > unpacked ? packed : unpacked;
}

struct kernel_grid ddc_grid(const struct ddc_args *args, const struct ddc_shape *shape)
{
    uint32_t outputs = 16 * shape->n_tiles * shape->n_warps * DDC_ROW_OUTPUTS, rotations_bytes = 2 * shape->n_tiles * 8;

    assert(args->n_out > 0);
    return (struct kernel_grid){
        .blocks = {(args->n_out + outputs - 1) / outputs, N_POLS, 1},
        .threads = 32 * shape->n_warps,
        .shared_bytes = rotations_bytes + samples_bytes(args, shape),
    };
}
