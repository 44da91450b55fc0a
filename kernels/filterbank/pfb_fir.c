/* pfb_fir.c - plain C version of pfb_fir: the first step of channelise.c.
 *
 * The windows of consecutive spectra have all rows but one in common.  A row is 2 n_chan samples.  The kernel processes
 * a block of columns row by row.  Each row is unpacked once into a ring of the last n_taps rows.  The ring stays in the
 * L1 cache together with the block's weights. */
#include "kernels/filterbank/pfb_fir.h"

#include "kernels/util/clones.h"
#include "kernels/util/unpack.h"

#include <assert.h>
#include <string.h>

#define MAX_TAPS      32
#define BLOCK_COLUMNS 128 /* with 32 taps, the ring and the weights take 16 KiB each; with 16 taps, 8 KiB each */
/* number of spectra that a thread filters at a time; with 32 taps the thread also reads 31 more rows */
#define BLOCK_SPECTRA 256

struct ring {
    float rows[MAX_TAPS][BLOCK_COLUMNS]; /* row r of the input is at index r % MAX_TAPS */
};

/* Unpacks samples [first, first + n).  Eight samples take a whole number of bytes.  So the bit positions within a group
 * of eight are constants if sample_bits is a constant. */
static inline void unpack_any(const uint8_t *in, size_t first, size_t n, unsigned sample_bits, float *out)
{
    size_t j = 0;

    for (; j < n && (first + j) % 8; j++)
        out[j] = unpack_one(in, (first + j) * sample_bits, sample_bits);
    for (; j + 8 <= n; j += 8) {
        const uint8_t *group = in + (first + j) / 8 * sample_bits;
        for (unsigned i = 0; i < 8; i++)
            out[j + i] = unpack_one(group, i * sample_bits, sample_bits);
    }
    for (; j < n; j++)
        out[j] = unpack_one(in, (first + j) * sample_bits, sample_bits);
}

static void unpack(const uint8_t *in, size_t first, size_t n, unsigned sample_bits, float *out)
{
    switch (sample_bits) {
    case 8: unpack_any(in, first, n, 8, out); break;
    case 10: unpack_any(in, first, n, 10, out); break;
    case 12: unpack_any(in, first, n, 12, out); break;
    case 16: unpack_any(in, first, n, 16, out); break;
    default: unpack_any(in, first, n, sample_bits, out); break;
    }
}

/* Computes sums[c] = sum over taps i of weights[i][c] * (row s + i)[c].  Each load and store of a sum adds four taps,
 * in order. */
static inline void filter(const struct ring *ring, const float (*weights)[BLOCK_COLUMNS], size_t s, size_t n_taps,
                          float *restrict sums)
{
    size_t i = 0;

    memset(sums, 0, BLOCK_COLUMNS * sizeof(*sums));
    for (; i + 4 <= n_taps; i += 4) {
        const float *w0 = weights[i], *x0 = ring->rows[(s + i) % MAX_TAPS];
        const float *w1 = weights[i + 1], *x1 = ring->rows[(s + i + 1) % MAX_TAPS];
        const float *w2 = weights[i + 2], *x2 = ring->rows[(s + i + 2) % MAX_TAPS];
        const float *w3 = weights[i + 3], *x3 = ring->rows[(s + i + 3) % MAX_TAPS];
        for (size_t c = 0; c < BLOCK_COLUMNS; c++)
            sums[c] = sums[c] + w0[c] * x0[c] + w1[c] * x1[c] + w2[c] * x2[c] + w3[c] * x3[c];
    }
    for (; i < n_taps; i++) {
        const float *w = weights[i], *x = ring->rows[(s + i) % MAX_TAPS];
        for (size_t c = 0; c < BLOCK_COLUMNS; c++)
            sums[c] += w[c] * x[c];
    }
}

/* Stores 'n' columns in the spectrum 'out', beginning with column 'column'.  The order is that of the unzipped
 * FFTs. */
static void store(const struct pfb_fir_args *a, const float *sums, size_t column, size_t n, float *out)
{
    size_t n_fft = a->n_chan / a->unzip;
    size_t q0 = column / 2 / a->unzip;

    if (a->unzip == 1) {
        memcpy(out + column, sums, n * sizeof(*out));
        return;
    }
    for (size_t r = 0; r < a->unzip; r++)
        for (size_t q = 0; q < n / 2 / a->unzip; q++)
            memcpy(out + 2 * (r * n_fft + q0 + q), sums + 2 * (q * a->unzip + r), 2 * sizeof(*out));
}

/* Returns the sum of the squares of a row's first 'n' samples. */
KERNEL_CLONES static uint64_t row_power(const float *row, size_t n)
{
    uint64_t sum = 0;

    for (size_t c = 0; c < n; c++) {
        int32_t x = (int32_t)row[c];
        sum += (uint32_t)(x * x);
    }
    return sum;
}

/* Filters spectra [s0, s1), columns [column, column + n), n <= BLOCK_COLUMNS. */
KERNEL_CLONES static void filter_block(const struct pfb_fir_args *a, size_t s0, size_t s1, size_t column, size_t n)
{
    struct ring ring;
    float weights[MAX_TAPS][BLOCK_COLUMNS];
    float sums[BLOCK_COLUMNS];
    size_t step = 2 * (size_t)a->n_chan;
    size_t next_row = s0;
    uint64_t power = 0;

    /* the results of column 'n' and later columns are not stored, but their input must be defined */
    if (n < BLOCK_COLUMNS) {
        memset(&ring, 0, sizeof(ring));
        memset(weights, 0, sizeof(weights));
    }
    /* Copies the weights, so that the rows of weights are closer together.  The original rows are a power of two apart.
     * So the original rows would compete for the same few cache sets. */
    for (size_t i = 0; i < a->n_taps; i++)
        memcpy(weights[i], a->weights + i * step + column, n * sizeof(float));
    for (size_t s = s0; s < s1; s++) {
        for (; next_row < s + a->n_taps; next_row++)
            unpack(a->in, (size_t)a->offset + next_row * step + column, n, a->sample_bits,
                   ring.rows[next_row % MAX_TAPS]);
        filter(&ring, weights, s, a->n_taps, sums);
        store(a, sums, column, n, a->out + s * step);
        if (a->power)
            power += row_power(ring.rows[s % MAX_TAPS], n);
    }
    if (a->power) {
#pragma omp atomic
        *a->power += power;
    }
}

static void pfb_fir_cpu(const void *args, int n_threads)
{
    const struct pfb_fir_args *a = args;
    size_t step = 2 * (size_t)a->n_chan;

    assert(a->n_taps >= 1 && a->n_taps <= MAX_TAPS && a->offset >= 0);
    assert(a->sample_bits >= 2 && (a->sample_bits <= 10 || a->sample_bits == 12 || a->sample_bits == 16));
    assert((a->unzip == 1 || a->unzip == 2 || a->unzip == 4) && a->n_chan >= 2 * a->unzip);
#pragma omp parallel for collapse(2) num_threads(n_threads)
    for (size_t s = 0; s < a->n_spectra; s += BLOCK_SPECTRA)
        for (size_t column = 0; column < step; column += BLOCK_COLUMNS) {
            size_t s1 = s + BLOCK_SPECTRA < a->n_spectra ? s + BLOCK_SPECTRA : a->n_spectra;
            size_t n = column + BLOCK_COLUMNS < step ? BLOCK_COLUMNS : step - column;
            filter_block(a, s, s1, column, n);
        }
}

const struct kernel pfb_fir_kernel = {
    .name = "pfb_fir",
    .args_bytes = sizeof(struct pfb_fir_args),
    .cpu = pfb_fir_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

/* number of threads of a block; a thread has one column, or a pair of columns of real samples */
#define MAX_THREADS 128
#define MANY_BLOCKS 4096 /* about six times the number of blocks that an H200 runs at a time */
/* minimum number of spectra of a section; a section has n_taps - 1 more rows than spectra */
#define MIN_SECTION  64
#define MAX_BLOCKS_Y 65535

uint32_t pfb_fir_threads(uint32_t n_columns)
{
    return n_columns < MAX_THREADS ? n_columns : MAX_THREADS;
}

void pfb_fir_constants(const struct pfb_fir_args *args, struct kernel_constant *constants)
{
    const struct kernel_constant all[PFB_FIR_N_CONSTANTS] = {
        {"N_CHAN", args->n_chan},
        {"N_TAPS", args->n_taps},
        {"SAMPLE_BITS", args->sample_bits},
        {"UNZIP", args->unzip},
        {"N_THREADS", pfb_fir_threads(args->n_chan)},
    };
    memcpy(constants, all, sizeof(all));
}

struct kernel_grid pfb_fir_sections(uint32_t n_columns, uint32_t n_spectra, uint32_t section_spectra)
{
    uint32_t threads = pfb_fir_threads(n_columns), n_x = n_columns / threads, n_sections;

    assert(n_spectra > 0);
    if (section_spectra == 0) {
        section_spectra = (uint32_t)((uint64_t)n_spectra * n_x / MANY_BLOCKS);
        if (section_spectra < MIN_SECTION)
            section_spectra = MIN_SECTION;
    }
    n_sections = (n_spectra + section_spectra - 1) / section_spectra;
    if (n_sections > MAX_BLOCKS_Y)
        n_sections = MAX_BLOCKS_Y;
    return (struct kernel_grid){.blocks = {n_x, n_sections, 1}, .threads = threads};
}

struct kernel_grid pfb_fir_grid(const struct pfb_fir_args *args, uint32_t section_spectra)
{
    return pfb_fir_sections(args->n_chan, args->n_spectra, section_spectra);
}
