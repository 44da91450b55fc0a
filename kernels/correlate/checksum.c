/* checksum.c - plain C version of checksum: runs for each batch that reaches the X-engine, as correlate.c does.
 *
 * The kernel reads a block of spectra of one channel twice: for the sum S of a group of antennas, and for the products
 * of every antenna with S.  A group is so small that S fits in 16 bits.  The groups' products are added.  Integers are
 * widened in the order of memory, [spectrum][pol][re, im].  S has the same shape.  S is stored in four forms, one for
 * each part of each polarisation:
 *     plain (re, im, 0, 0), (0, 0, re, im)   turned (-im, re, 0, 0), (0, 0, -im, re)
 * With these forms the parts of e conj(S) are plain dot products. */
#include "kernels/correlate/checksum.h"

#include "common/base/units.h"
#include "kernels/util/clones.h"
#include "kernels/util/half.h"

#include <math.h>
#include <string.h>

#define GROUP_ANTS    127 /* a sum of 2 * 127 inputs, each from -128 to 127, fits in 16 bits */
#define BLOCK_SPECTRA 128 /* a sum of 2 * 128 products, each at most 2^15 * 2^7, is at most 2^30 */
#define QUADS         (N_POLS * 2)

/* A block of spectra of one channel and batch: spectra [first, first + n). */
struct block {
    const struct checksum_args *args;
    size_t batch, chan, first, n;
};

static const uint8_t *find_spectra(const struct block *b, size_t ant)
{
    const struct checksum_args *a = b->args;
    size_t heap = (b->batch * a->n_ants + ant) * a->n_chan + b->chan;

    return (const uint8_t *)a->voltages + (heap * a->n_spectra + b->first) * N_POLS * voltage_bytes(a->format);
}

/* ---- Integers ---------------------------------------------------------------------------------------------------- */

/* The four 16-bit parts of each spectrum: as separate numbers, and as one word. */
union quads {
    int16_t parts[BLOCK_SPECTRA * QUADS];
    uint64_t together[BLOCK_SPECTRA];
};

/* The four forms of S in a block of spectra.  The index of each member is the polarisation of the voltage that S
 * multiplies. */
struct integer_sum {
    union quads plain[N_POLS], turned[N_POLS];
};

KERNEL_CLONES static void widen_bytes(const int8_t *in, size_t n, int16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = in[i];
}

KERNEL_CLONES static void widen_nibbles(const uint8_t *in, uint8_t flip, size_t n, int16_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = in[i] ^ flip;
        out[2 * i] = (int16_t)((int8_t)byte >> 4);
        out[2 * i + 1] = (int16_t)((int8_t)(uint8_t)(byte << 4) >> 4);
    }
}

static void widen(const struct block *b, size_t ant, int16_t *out)
{
    const uint8_t *in = find_spectra(b, ant);

    if (b->args->format == VOLTAGES_8_BITS)
        widen_bytes((const int8_t *)in, b->n * QUADS, out);
    else
        widen_nibbles(in, b->args->format == VOLTAGES_4_BITS_OFFSET ? 0x88 : 0, b->n * N_POLS, out);
}

KERNEL_CLONES static void add_values(const int16_t *in, size_t n, int16_t *sums)
{
    for (size_t i = 0; i < n; i++)
        sums[i] = (int16_t)(sums[i] + in[i]);
}

/* Adds the two polarisations of each spectrum, and writes the four forms of S.  The machine is little endian: re is the
 * low half of 32 bits. */
KERNEL_CLONES static void arrange(const union quads *inputs, size_t n, struct integer_sum *sum)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = inputs->together[i] & 0xFFFFFFFF, y = inputs->together[i] >> 32;
        uint64_t re = (x + y) & 0xFFFF, im = ((x >> 16) + (y >> 16)) & 0xFFFF;
        uint64_t plain = re | im << 16, turned = (-im & 0xFFFF) | re << 16;
        sum->plain[0].together[i] = plain;
        sum->plain[1].together[i] = plain << 32;
        sum->turned[0].together[i] = turned;
        sum->turned[1].together[i] = turned << 32;
    }
}

static void sum_integers(const struct block *b, size_t first_ant, size_t end_ant, struct integer_sum *sum)
{
    union quads inputs, e;

    memset(&inputs, 0, sizeof(inputs));
    for (size_t ant = first_ant; ant < end_ant; ant++) {
        widen(b, ant, e.parts);
        add_values(e.parts, b->n * QUADS, inputs.parts);
    }
    arrange(&inputs, b->n, sum);
}

/* Adds the products of an antenna's voltages with S to the antenna's rows.  Computes all four sums in one pass, so that
 * each loaded value is used four times. */
KERNEL_CLONES static void multiply_integers(const int16_t *e, const struct integer_sum *sum, size_t n, int64_t *row)
{
    int32_t re0 = 0, im0 = 0, re1 = 0, im1 = 0;

    for (size_t i = 0; i < n * QUADS; i++) {
        re0 += e[i] * sum->plain[0].parts[i];
        im0 += e[i] * sum->turned[0].parts[i];
        re1 += e[i] * sum->plain[1].parts[i];
        im1 += e[i] * sum->turned[1].parts[i];
    }
    row[0] = add_wrapped(row[0], re0);
    row[1] = add_wrapped(row[1], im0);
    row[2] = add_wrapped(row[2], re1);
    row[3] = add_wrapped(row[3], im1);
}

static void add_integers(const struct block *b)
{
    const struct checksum_args *a = b->args;
    struct integer_sum sum;
    int16_t e[BLOCK_SPECTRA * QUADS];

    for (size_t group = 0; group < a->n_ants; group += GROUP_ANTS) {
        sum_integers(b, group, group + GROUP_ANTS < a->n_ants ? group + GROUP_ANTS : a->n_ants, &sum);
        for (size_t ant = 0; ant < a->n_ants; ant++) {
            widen(b, ant, e);
            multiply_integers(e, &sum, b->n, a->rows.integer + (b->chan * a->n_ants + ant) * N_POLS * 2);
        }
    }
}

/* ---- Half floats ------------------------------------------------------------------------------------------------- */

struct real_sum {
    double re[BLOCK_SPECTRA], im[BLOCK_SPECTRA], magnitude[BLOCK_SPECTRA];
};

static void read_halves(const uint8_t *at, double *re, double *im)
{
    *re = (double)half_to_float((uint16_t)(at[0] | at[1] << 8));
    *im = (double)half_to_float((uint16_t)(at[2] | at[3] << 8));
}

static void sum_reals(const struct block *b, struct real_sum *sum)
{
    memset(sum, 0, sizeof(*sum));
    for (size_t ant = 0; ant < b->args->n_ants; ant++) {
        const uint8_t *in = find_spectra(b, ant);
        for (size_t i = 0; i < b->n * N_POLS; i++) {
            double re, im;
            read_halves(in + 4 * i, &re, &im);
            sum->re[i / N_POLS] += re;
            sum->im[i / N_POLS] += im;
            sum->magnitude[i / N_POLS] += fabs(re) + fabs(im);
        }
    }
}

static void add_reals(const struct block *b)
{
    const struct checksum_args *a = b->args;
    struct real_sum sum;

    sum_reals(b, &sum);
    for (size_t ant = 0; ant < a->n_ants; ant++) {
        const uint8_t *in = find_spectra(b, ant);
        double *rows = a->rows.real + (b->chan * a->n_ants + ant) * N_POLS * 3;
        for (size_t i = 0; i < b->n * N_POLS; i++) {
            double re, im, *row = rows + i % N_POLS * 3;
            size_t s = i / N_POLS;
            read_halves(in + 4 * i, &re, &im);
            row[0] += re * sum.re[s] + im * sum.im[s];
            row[1] += im * sum.re[s] - re * sum.im[s];
            row[2] += (fabs(re) + fabs(im)) * sum.magnitude[s];
        }
    }
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static void checksum_chan(const struct checksum_args *a, size_t chan)
{
    for (size_t batch = a->first_batch; batch < (size_t)a->first_batch + a->n_batches; batch++)
        for (size_t s = 0; s < a->n_spectra; s += BLOCK_SPECTRA) {
            size_t n = a->n_spectra - s < BLOCK_SPECTRA ? a->n_spectra - s : BLOCK_SPECTRA;
            struct block block = {a, batch, chan, s, n};
            if (correlate_sums_real(a->format))
                add_reals(&block);
            else
                add_integers(&block);
        }
}

static void checksum_cpu(const void *args, int n_threads)
{
    const struct checksum_args *a = args;

#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
    for (size_t chan = 0; chan < a->n_chan; chan++)
        checksum_chan(a, chan);
}

const struct kernel checksum_kernel = {
    .name = "checksum",
    .args_bytes = sizeof(struct checksum_args),
    .cpu = checksum_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define WARP_ANTS   5   /* number of antennas that each warp keeps in registers */
#define FILL_BLOCKS 256 /* number of blocks that fill a GPU: two on each of about 128 multiprocessors */

/* Division of the antennas into slices.  Each block has one slice, and divides the antennas of its slice among its
 * warps. */
struct slices {
    uint32_t n, n_ants, n_warps;
};

static struct slices find_slices(uint32_t n_ants)
{
    struct slices s = {.n = (n_ants + CHECKSUM_SLICE_ANTS - 1) / CHECKSUM_SLICE_ANTS};

    s.n_ants = (n_ants + s.n - 1) / s.n;
    s.n_warps = (s.n_ants + WARP_ANTS - 1) / WARP_ANTS;
    return s;
}

/* Returns the number of spectra in the 8 bytes that a thread loads from an antenna. */
static uint32_t load_spectra(enum voltage_format format)
{
    return 8 / (N_POLS * voltage_bytes(format));
}

void checksum_constants(const struct checksum_args *args, struct kernel_constant *constants)
{
    struct slices slices = find_slices(args->n_ants);
    const struct kernel_constant all[CHECKSUM_N_CONSTANTS] = {
        {"BITS", 4 * voltage_bytes(args->format)},
        {"OFFSET", args->format == VOLTAGES_4_BITS_OFFSET},
        {"N_ANTS", args->n_ants},
        {"N_SPECTRA", args->n_spectra},
        {"N_SLICES", slices.n},
        {"SLICE_ANTS", slices.n_ants},
        {"N_WARPS", slices.n_warps},
        {"WARP_ANTS", WARP_ANTS},
    };
    memcpy(constants, all, sizeof(all));
}

struct kernel_grid checksum_grid(const struct checksum_args *args)
{
    struct slices slices = find_slices(args->n_ants);
    uint32_t of_load = load_spectra(args->format), of_step = 32 * of_load;
    bool real = correlate_sums_real(args->format);
    uint32_t n_lane_sums = real ? 3 * (1 + slices.n_warps) : 3 * 2 * of_load; /* upper limit */
    uint64_t n_steps = ((uint64_t)args->n_batches * args->n_spectra + of_step - 1) / of_step;
    uint64_t least = (n_steps * of_load + CHECKSUM_STEP_SPECTRA - 1) / CHECKSUM_STEP_SPECTRA;
    uint64_t filling = (FILL_BLOCKS + args->n_chan - 1) / args->n_chan;
    uint64_t n_parts = least > filling ? least : filling;

    n_parts = n_parts < n_steps ? n_parts : n_steps;
    return (struct kernel_grid){
        .blocks = {slices.n * args->n_chan * (uint32_t)n_parts, 1, 1},
        .threads = 32 * slices.n_warps,
        .shared_bytes = 32 * n_lane_sums * 4,
    };
}
