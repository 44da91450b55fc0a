/* correlate.c - plain C version of correlate: runs for each batch that reaches the X-engine, before reduce.c.
 *
 * The kernel multiplies blocks of BLOCK_ANTS antennas with each other, for a block of spectra at a time.  So the
 * operands fit the L1 cache for arrays of any size.  In a block the (re, im) pairs are widened: integers to int16, half
 * floats to float.  There are two forms, 'plain' (re, im) and 'turned' (im, -re).  With these forms both parts of e1
 * conj(e2) are plain dot products:
 *     re = r1 r2 + i1 i2 = plain1 . plain2          im = i1 r2 - r1 i2 = turned1 . plain2
 * Compilers turn these dot products into multiply-adds of int16 pairs to int32 (pmaddwd on x86).  Products of half
 * floats are computed in double and are exact.  The products are added to LANES separate sums, so that compilers can
 * vectorise the loop. */
#include "kernels/correlate/correlate.h"

#include "common/base/units.h"
#include "kernels/util/clones.h"
#include "kernels/util/half.h"

#include <string.h>

#define BLOCK_ANTS    8
#define BLOCK_SPECTRA 128
#define N_SUMS        (N_POL_PRODUCTS * 2)
#define LANES         8

/* Widened voltages of one antenna for a block of spectra.  Integers use 2 KiB, half floats 4 KiB. */
union widened {
    struct {
        int16_t plain[N_POLS][2 * BLOCK_SPECTRA];  /* indices [pol][spectrum][re, im] */
        int16_t turned[N_POLS][2 * BLOCK_SPECTRA]; /* indices [pol][spectrum][im, -re] */
    } integer;
    struct {
        float plain[N_POLS][2 * BLOCK_SPECTRA];
        float turned[N_POLS][2 * BLOCK_SPECTRA];
    } real;
};

struct antenna_block {
    size_t first, n;
    union widened ants[BLOCK_ANTS];
};

/* Sums of a baseline over a launch: [product][re, im]. */
union partial {
    int32_t integer[N_SUMS];
    double real[N_SUMS];
};

/* Sums of every pair of antennas from two blocks: [antenna of the second block][antenna of the first block]. */
struct partial_sums {
    union partial sums[BLOCK_ANTS][BLOCK_ANTS];
};

/* ---- Widening ---------------------------------------------------------------------------------------------------- */

/* Widens 'voltages' [spectrum][pol] of one byte each.  XOR with 'flip' turns offset nibbles into two's complement. */
KERNEL_CLONES static void widen_4_bits(const uint8_t *voltages, uint8_t flip, size_t n_spectra, union widened *out)
{
    for (size_t s = 0; s < n_spectra; s++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            uint8_t byte = voltages[s * N_POLS + pol] ^ flip;
            int16_t re = (int16_t)((int8_t)byte >> 4);
            int16_t im = (int16_t)((int8_t)(uint8_t)(byte << 4) >> 4);
            out->integer.plain[pol][2 * s] = re;
            out->integer.plain[pol][2 * s + 1] = im;
            out->integer.turned[pol][2 * s] = im;
            out->integer.turned[pol][2 * s + 1] = (int16_t)-re;
        }
}

KERNEL_CLONES static void widen_8_bits(const int8_t *voltages, size_t n_spectra, union widened *out)
{
    for (size_t s = 0; s < n_spectra; s++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            int16_t re = voltages[(s * N_POLS + pol) * 2];
            int16_t im = voltages[(s * N_POLS + pol) * 2 + 1];
            out->integer.plain[pol][2 * s] = re;
            out->integer.plain[pol][2 * s + 1] = im;
            out->integer.turned[pol][2 * s] = im;
            out->integer.turned[pol][2 * s + 1] = (int16_t)-re; /* +128 fits */
        }
}

KERNEL_CLONES static void widen_16_bits(const uint16_t *voltages, size_t n_spectra, union widened *out)
{
    for (size_t s = 0; s < n_spectra; s++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            float re = half_to_float(voltages[(s * N_POLS + pol) * 2]);
            float im = half_to_float(voltages[(s * N_POLS + pol) * 2 + 1]);
            out->real.plain[pol][2 * s] = re;
            out->real.plain[pol][2 * s + 1] = im;
            out->real.turned[pol][2 * s] = im;
            out->real.turned[pol][2 * s + 1] = -re;
        }
}

static void widen(enum voltage_format format, const void *voltages, size_t n_spectra, union widened *out)
{
    switch (format) {
    case VOLTAGES_4_BITS: widen_4_bits(voltages, 0, n_spectra, out); break;
    case VOLTAGES_4_BITS_OFFSET: widen_4_bits(voltages, 0x88, n_spectra, out); break;
    case VOLTAGES_8_BITS: widen_8_bits(voltages, n_spectra, out); break;
    case VOLTAGES_16_BITS: widen_16_bits(voltages, n_spectra, out); break;
    }
}

/* Widens spectra [s, s + n) of a block's antennas. */
static void widen_block(const struct correlate_args *a, size_t batch, size_t chan, size_t s, size_t n,
                        struct antenna_block *block)
{
    for (size_t i = 0; i < block->n; i++) {
        size_t heap = (batch * a->n_ants + block->first + i) * a->n_chan + chan;
        size_t first = (heap * a->n_spectra + s) * N_POLS * voltage_bytes(a->format);
        widen(a->format, (const uint8_t *)a->voltages + first, n, &block->ants[i]);
    }
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* Adds the four products of antennas e1, e2.  All eight sums are computed in one pass, so that each loaded value is
 * used four times. */
KERNEL_CLONES static void multiply_integer(const union widened *e1, const union widened *e2, size_t n_spectra,
                                           int32_t *sums)
{
    int32_t re00 = 0, im00 = 0, re10 = 0, im10 = 0, re01 = 0, im01 = 0, re11 = 0, im11 = 0;

    for (size_t i = 0; i < 2 * n_spectra; i++) {
        int16_t x = e2->integer.plain[0][i], y = e2->integer.plain[1][i];
        re00 += e1->integer.plain[0][i] * x;
        im00 += e1->integer.turned[0][i] * x;
        re10 += e1->integer.plain[1][i] * x;
        im10 += e1->integer.turned[1][i] * x;
        re01 += e1->integer.plain[0][i] * y;
        im01 += e1->integer.turned[0][i] * y;
        re11 += e1->integer.plain[1][i] * y;
        im11 += e1->integer.turned[1][i] * y;
    }
    /* product = p1 + 2 p2 */
    sums[0] += re00;
    sums[1] += im00;
    sums[2] += re10;
    sums[3] += im10;
    sums[4] += re01;
    sums[5] += im01;
    sums[6] += re11;
    sums[7] += im11;
}

/* Returns the dot product of two vectors of 'n' floats. */
KERNEL_CLONES static double dot(const float *x, const float *y, size_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] += (double)x[i + lane] * (double)y[i + lane];
    for (; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    for (size_t lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

static void multiply_real(const union widened *e1, const union widened *e2, size_t n_spectra, double *sums)
{
    for (size_t product = 0; product < N_POL_PRODUCTS; product++) {
        size_t p1 = product % N_POLS, p2 = product / N_POLS;
        sums[2 * product] += dot(e1->real.plain[p1], e2->real.plain[p2], 2 * n_spectra);
        sums[2 * product + 1] += dot(e1->real.turned[p1], e2->real.plain[p2], 2 * n_spectra);
    }
}

static void multiply(enum voltage_format format, const union widened *e1, const union widened *e2, size_t n_spectra,
                     union partial *partial)
{
    if (correlate_sums_real(format))
        multiply_real(e1, e2, n_spectra, partial->real);
    else
        multiply_integer(e1, e2, n_spectra, partial->integer);
}

/* Antenna i2 of block 'second' forms baselines with antennas of block 'first'.  Returns the number of these baselines.
 * If both blocks are the same block, counts the antennas up to i2.  Otherwise counts all antennas of 'first'. */
static size_t n_partners(const struct antenna_block *first, const struct antenna_block *second, size_t i2)
{
    return first == second ? i2 + 1 : first->n;
}

static void correlate_batch(const struct correlate_args *a, size_t batch, size_t chan, struct antenna_block *first,
                            struct antenna_block *second, struct partial_sums *partial)
{
    for (size_t s = 0; s < a->n_spectra; s += BLOCK_SPECTRA) {
        size_t n = a->n_spectra - s < BLOCK_SPECTRA ? a->n_spectra - s : BLOCK_SPECTRA;
        widen_block(a, batch, chan, s, n, second);
        if (first != second)
            widen_block(a, batch, chan, s, n, first);
        for (size_t i2 = 0; i2 < second->n; i2++)
            for (size_t i1 = 0; i1 < n_partners(first, second, i2); i1++)
                multiply(a->format, &first->ants[i1], &second->ants[i2], n, &partial->sums[i2][i1]);
    }
}

static void add_partial(const struct correlate_args *a, size_t at, const union partial *partial)
{
    for (size_t i = 0; i < N_SUMS; i++)
        if (correlate_sums_real(a->format))
            a->sums.real[at + i] = (float)(a->sums.real[at + i] + partial->real[i]);
        else
            a->sums.integer[at + i] += partial->integer[i];
}

/* Adds the launch's sums to the sums in memory. */
static void add_block(const struct correlate_args *a, size_t chan, const struct antenna_block *first,
                      const struct antenna_block *second, const struct partial_sums *partial)
{
    size_t n_baselines = correlate_n_baselines(a->n_ants);

    for (size_t i2 = 0; i2 < second->n; i2++)
        for (size_t i1 = 0; i1 < n_partners(first, second, i2); i1++) {
            size_t baseline = correlate_baseline(first->first + i1, second->first + i2);
            add_partial(a, (chan * n_baselines + baseline) * N_SUMS, &partial->sums[i2][i1]);
        }
}

/* Correlates all baselines of one channel between two blocks of antennas.  The two blocks may be the same block. */
static void correlate_blocks(const struct correlate_args *a, size_t chan, struct antenna_block *first,
                             struct antenna_block *second)
{
    struct partial_sums partial;

    memset(&partial, 0, sizeof(partial)); /* all-zero bits are the value 0, for integers and for floats */
    for (size_t batch = a->first_batch; batch < (size_t)a->first_batch + a->n_batches; batch++)
        correlate_batch(a, batch, chan, first, second, &partial);
    add_block(a, chan, first, second, &partial);
}

/* Correlates some baselines of one channel.  The second antennas of these baselines are in the block that begins with
 * antenna 'ant2'. */
static void correlate_rows(const struct correlate_args *a, size_t chan, size_t ant2)
{
    struct antenna_block first, second;

    second.first = ant2;
    second.n = a->n_ants - ant2 < BLOCK_ANTS ? a->n_ants - ant2 : BLOCK_ANTS;
    for (size_t ant1 = 0; ant1 < ant2; ant1 += BLOCK_ANTS) {
        first.first = ant1;
        first.n = BLOCK_ANTS;
        correlate_blocks(a, chan, &first, &second);
    }
    correlate_blocks(a, chan, &second, &second);
}

static void correlate_cpu(const void *args, int n_threads)
{
    const struct correlate_args *a = args;

#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(n_threads)
    for (size_t chan = 0; chan < a->n_chan; chan++)
        for (size_t ant2 = 0; ant2 < a->n_ants; ant2 += BLOCK_ANTS)
            correlate_rows(a, chan, ant2);
}

const struct kernel correlate_kernel = {
    .name = "correlate",
    .args_bytes = sizeof(struct correlate_args),
    .cpu = correlate_cpu,
};

const struct kernel correlate_wgmma_kernel = {
    .name = "correlate_wgmma",
    .args_bytes = sizeof(struct correlate_args),
};

const struct kernel correlate_whole_kernel = {
    .name = "correlate_whole",
    .args_bytes = sizeof(struct correlate_args),
};
