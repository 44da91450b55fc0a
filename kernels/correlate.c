/* correlate.c - plain C twin of correlate: each batch that reaches the X-engine, before reduce.c.
 *
 * Antennas are taken in blocks of BLOCK_ANTS against each other, and spectra in blocks, so that what is multiplied is
 * small enough for the L1 cache however large the array.  In a block the int8 pairs are widened to int16, in two forms:
 * 'plain' (re, im) and 'turned' (im, -re), with which both parts of e1 conj(e2) are plain dot products:
 *     re = r1 r2 + i1 i2 = plain1 . plain2          im = i1 r2 - r1 i2 = turned1 . plain2
 * which compilers turn into multiply-add of int16 pairs to int32 (pmaddwd on x86). */
#include "kernels/correlate.h"

#include "common/units.h"
#include "kernels/clones.h"

#include <assert.h>
#include <string.h>

#define BLOCK_ANTS          8
#define BLOCK_SPECTRA       128
#define MAX_PARTIAL_SPECTRA 65535 /* of products of full scale in an int32 */

/* A block of spectra of one antenna: 2 KiB. */
struct widened {
    int16_t plain[N_POLS][2 * BLOCK_SPECTRA];
    int16_t turned[N_POLS][2 * BLOCK_SPECTRA];
};

struct antenna_block {
    size_t first, n;
    struct widened ants[BLOCK_ANTS];
};

/* Sums of every pair of two blocks over MAX_PARTIAL_SPECTRA spectra at most: [second][first][product][re, im]. */
struct partial_sums {
    int32_t sums[BLOCK_ANTS][BLOCK_ANTS][N_POL_PRODUCTS][2];
};

KERNEL_CLONES static void widen(const int8_t *voltages, size_t n_spectra, struct widened *out)
{
    for (size_t s = 0; s < n_spectra; s++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            int16_t re = voltages[(s * N_POLS + pol) * 2];
            int16_t im = voltages[(s * N_POLS + pol) * 2 + 1];
            out->plain[pol][2 * s] = re;
            out->plain[pol][2 * s + 1] = im;
            out->turned[pol][2 * s] = im;
            out->turned[pol][2 * s + 1] = (int16_t)-re; /* 128 fits */
        }
}

/* Spectra [s, s + n) of a block's antennas. */
static void widen_block(const struct correlate_args *a, size_t batch, size_t chan, size_t s, size_t n,
                        struct antenna_block *block)
{
    for (size_t i = 0; i < block->n; i++) {
        size_t heap = (batch * a->n_ants + block->first + i) * a->n_chan + chan;
        widen(a->voltages + (heap * a->n_spectra + s) * N_POLS * 2, n, &block->ants[i]);
    }
}

/* Adds the four products of antennas e1, e2; all eight sums in one pass, so that what is loaded is used four times. */
KERNEL_CLONES static void multiply(const struct widened *e1, const struct widened *e2, size_t n_spectra,
                                   int32_t (*sums)[2])
{
    int32_t re00 = 0, im00 = 0, re10 = 0, im10 = 0, re01 = 0, im01 = 0, re11 = 0, im11 = 0;

    for (size_t i = 0; i < 2 * n_spectra; i++) {
        int16_t x = e2->plain[0][i], y = e2->plain[1][i];
        re00 += e1->plain[0][i] * x;
        im00 += e1->turned[0][i] * x;
        re10 += e1->plain[1][i] * x;
        im10 += e1->turned[1][i] * x;
        re01 += e1->plain[0][i] * y;
        im01 += e1->turned[0][i] * y;
        re11 += e1->plain[1][i] * y;
        im11 += e1->turned[1][i] * y;
    }
    /* product = p1 + 2 p2 */
    sums[0][0] += re00;
    sums[0][1] += im00;
    sums[1][0] += re10;
    sums[1][1] += im10;
    sums[2][0] += re01;
    sums[2][1] += im01;
    sums[3][0] += re11;
    sums[3][1] += im11;
}

/* How many antennas i1 of 'first' are at or before antenna i2 of 'second': all, or the triangle of a block. */
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
                multiply(&first->ants[i1], &second->ants[i2], n, partial->sums[i2][i1]);
    }
}

/* Moves the partial sums to those of the accumulation. */
static void flush_partial(const struct correlate_args *a, size_t chan, const struct antenna_block *first,
                          const struct antenna_block *second, struct partial_sums *partial)
{
    size_t n_baselines = correlate_n_baselines(a->n_ants);

    for (size_t i2 = 0; i2 < second->n; i2++)
        for (size_t i1 = 0; i1 < n_partners(first, second, i2); i1++) {
            size_t baseline = correlate_baseline(first->first + i1, second->first + i2);
            int64_t *sums = a->sums + (chan * n_baselines + baseline) * N_POL_PRODUCTS * 2;
            for (size_t i = 0; i < N_POL_PRODUCTS * 2; i++)
                sums[i] += partial->sums[i2][i1][i / 2][i % 2];
        }
    memset(partial, 0, sizeof(*partial));
}

/* All baselines of one channel between two blocks, which may be the same one. */
static void correlate_blocks(const struct correlate_args *a, size_t chan, struct antenna_block *first,
                             struct antenna_block *second)
{
    struct partial_sums partial = {0};
    size_t n_spectra = 0; /* in the partial sums */

    for (size_t batch = a->first_batch; batch < (size_t)a->first_batch + a->n_batches; batch++) {
        if (n_spectra + a->n_spectra > MAX_PARTIAL_SPECTRA) {
            flush_partial(a, chan, first, second, &partial);
            n_spectra = 0;
        }
        correlate_batch(a, batch, chan, first, second, &partial);
        n_spectra += a->n_spectra;
    }
    flush_partial(a, chan, first, second, &partial);
}

/* All baselines of one channel whose second antenna is in the block that begins with 'ant2'. */
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

    assert(a->n_spectra <= MAX_PARTIAL_SPECTRA);
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
