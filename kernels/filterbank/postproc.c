/* postproc.c - plain C version of postproc: the last step of channelise.c.
 *
 * The kernel works on tiles of BLOCK_CHANS channels x BLOCK_SPECTRA spectra x both polarisations.  Within a tile, the
 * kernel applies the header's steps to one spectrum's block of channels at a time.  Real and imaginary parts are in
 * separate arrays, so that each step is a plain loop over channels.  The quantised bytes are collected in a transposed
 * buffer.  The kernel writes this buffer to the heap as one run per channel. */
#include "kernels/filterbank/postproc.h"

#include "common/base/units.h"
#include "kernels/util/clones.h"
#include "kernels/util/philox.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* number of channels of a tile; a tile reads runs of 1 KiB, because spectra are far apart in memory */
#define BLOCK_CHANS   128
#define BLOCK_SPECTRA 32
#define MAX_UNZIP     4

struct complex_block {
    float re[BLOCK_CHANS];
    float im[BLOCK_CHANS];
};

/* Factors that depend only on the channel. */
struct channel_tables {
    size_t first, n;
    struct complex_block unzip[MAX_UNZIP]; /* [r]: e^{-2 pi j r k / n_chan} */
    struct complex_block real;             /* e^{-pi j k / n_chan} / 2j */
    struct complex_block gain[N_POLS];
    float slope[BLOCK_CHANS]; /* phase for a fine delay of one sample, in radians */
};

/* One tile of the output: [chan][spectrum][pol] (re, im), as in a heap. */
struct turned {
    uint8_t bytes[BLOCK_CHANS][BLOCK_SPECTRA * N_POLS * 2];
};

static void make_tables(const struct postproc_args *a, size_t first, size_t n, struct channel_tables *t)
{
    t->first = first;
    t->n = n;
    for (size_t i = 0; i < n; i++) {
        size_t k = first + i;
        double angle = M_PI * (double)k / a->n_chan;

        for (size_t r = 0; r < a->unzip; r++) {
            t->unzip[r].re[i] = (float)cos(2 * (double)r * angle);
            t->unzip[r].im[i] = (float)-sin(2 * (double)r * angle);
        }
        t->real.re[i] = (float)(-sin(angle) / 2);
        t->real.im[i] = (float)(-cos(angle) / 2);
        for (size_t pol = 0; pol < N_POLS; pol++) {
            t->gain[pol].re[i] = a->gain[(k * N_POLS + pol) * 2];
            t->gain[pol].im[i] = a->gain[(k * N_POLS + pol) * 2 + 1];
        }
        t->slope[i] = (float)(-M_PI * ((double)k - a->n_chan / 2.0) / a->n_chan);
    }
}

/* Computes Z_k = sum over r of e^{-2 pi j r k / n_chan} F_r[k mod n_fft] for the block's channels k, or for -k if
 * 'mirror'.  The twiddles of -k are the conjugates.  The loops read runs of consecutive values of k mod n_fft in
 * ascending order, so that the compiler vectorises the loops. */
static inline void gather(const struct postproc_args *a, const struct channel_tables *t, const float *fft, int mirror,
                          struct complex_block *restrict z)
{
    size_t n_fft = a->n_chan / a->unzip, run;
    float sign = mirror ? -1.0f : 1.0f;

    for (size_t i = 0; i < t->n; i += run) {
        size_t k = mirror ? a->n_chan - (t->first + i) : t->first + i, q = k & (n_fft - 1);
        size_t longest = mirror ? q + 1 : n_fft - q;
        const float *terms;

        run = t->n - i < longest ? t->n - i : longest;
        terms = fft + 2 * (mirror ? q + 1 - run : q);
        for (size_t j = 0; j < run; j++) { /* twiddle 0 is 1 */
            size_t to = mirror ? i + run - 1 - j : i + j;
            z->re[to] = terms[2 * j];
            z->im[to] = terms[2 * j + 1];
        }
        for (size_t r = 1; r < a->unzip; r++) {
            terms += 2 * n_fft;
            for (size_t j = 0; j < run; j++) {
                size_t to = mirror ? i + run - 1 - j : i + j;
                float re = t->unzip[r].re[to], im = sign * t->unzip[r].im[to];
                z->re[to] += terms[2 * j] * re - terms[2 * j + 1] * im;
                z->im[to] += terms[2 * j] * im + terms[2 * j + 1] * re;
            }
        }
    }
}

/* Step 1 of a narrow band: copies the block's channels from at most two runs of bins. */
static void take_bins(const struct postproc_args *a, const struct channel_tables *t, const float *fft,
                      struct complex_block *restrict x)
{
    for (size_t i = 0; i < t->n; i++) {
        size_t bin = (t->first + i + a->n_bins - a->n_chan / 2) & (a->n_bins - 1);
        x->re[i] = fft[2 * bin];
        x->im[i] = fft[2 * bin + 1];
    }
}

static inline void multiply(struct complex_block *restrict x, const struct complex_block *restrict by, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float re = x->re[i] * by->re[i] - x->im[i] * by->im[i];
        float im = x->re[i] * by->im[i] + x->im[i] * by->re[i];
        x->re[i] = re;
        x->im[i] = im;
    }
}

/* Step 1: computes the block's channels of the real transform of one spectrum. */
KERNEL_CLONES static void finish_transform(const struct postproc_args *a, const struct channel_tables *t,
                                           const float *fft, struct complex_block *restrict x)
{
    struct complex_block z, mirrored;

    gather(a, t, fft, 0, &z);
    gather(a, t, fft, 1, &mirrored);
    for (size_t i = 0; i < t->n; i++) { /* z - conj mirrored = 2j V */
        x->re[i] = z.re[i] - mirrored.re[i];
        x->im[i] = z.im[i] + mirrored.im[i];
    }
    multiply(x, &t->real, t->n);
    for (size_t i = 0; i < t->n; i++) { /* (z + conj mirrored) / 2 = U */
        x->re[i] += 0.5f * (z.re[i] + mirrored.re[i]);
        x->im[i] += 0.5f * (z.im[i] - mirrored.im[i]);
    }
}

/* Step 2 without the gain: rotates the phases. */
static void rotate(const struct channel_tables *t, float fine, float phase, struct complex_block *x)
{
    struct complex_block rotator;

    if (fine == 0 && phase == 0)
        return;
    if (fine == 0) {
        float re = cosf(phase), im = sinf(phase);
        for (size_t i = 0; i < t->n; i++) {
            rotator.re[i] = re;
            rotator.im[i] = im;
        }
    } else {
        for (size_t i = 0; i < t->n; i++) {
            float theta = phase + fine * t->slope[i];
            rotator.re[i] = cosf(theta);
            rotator.im[i] = sinf(theta);
        }
    }
    multiply(x, &rotator, t->n);
}

/* Step 3, first half: adds the dither to both polarisations of spectra 'spectrum' (even) and 'spectrum' + 1.  One
 * call of the generator gives the dither of one channel in both spectra. */
KERNEL_CLONES static void add_dither(const struct postproc_args *a, const struct channel_tables *t, uint64_t spectrum,
                                     struct complex_block (*restrict x)[N_POLS])
{
    const uint32_t key[2] = {(uint32_t)a->seed, (uint32_t)(a->seed >> 32)};
    uint64_t pair = spectrum / 2;

    for (size_t i = 0; i < t->n; i++) {
        const uint32_t counter[4] = {(uint32_t)(t->first + i), (uint32_t)pair, (uint32_t)(pair >> 32), a->stream_id};
        uint32_t bits[4];
        philox4x32(counter, key, bits);
        x[0][0].re[i] += philox_dither(bits[0], 0);
        x[0][0].im[i] += philox_dither(bits[1], 0);
        x[0][1].re[i] += philox_dither(bits[2], 0);
        x[0][1].im[i] += philox_dither(bits[3], 0);
        x[1][0].re[i] += philox_dither(bits[0], 1);
        x[1][0].im[i] += philox_dither(bits[1], 1);
        x[1][1].re[i] += philox_dither(bits[2], 1);
        x[1][1].im[i] += philox_dither(bits[3], 1);
    }
}

/* Returns v rounded half to even and clipped to +-limit, or 0 if v is NaN.  Sets 'clipped' if v was clipped or NaN. */
static inline int32_t quantise(float v, float limit, uint32_t *clipped)
{
    const float shift = 12582912.0f; /* adding 1.5 * 2^23 rounds to an integer; compilers vectorise additions */
    float bounded = v > limit ? limit : v;

    bounded = bounded < -limit ? -limit : bounded;
    bounded = bounded == bounded ? bounded : 0.0f;
    *clipped |= bounded != v;
    return (int32_t)(bounded + shift - shift);
}

/* Step 3, second half: quantises spectrum 's' of the tile.  Returns the number of clipped values. */
KERNEL_CLONES static uint32_t quantise_block(const struct postproc_args *a, const struct channel_tables *t,
                                             const struct complex_block *x, size_t s, size_t pol, struct turned *turned)
{
    int32_t re[BLOCK_CHANS], im[BLOCK_CHANS];
    float limit = a->out_bits == 8 ? 127.0f : 7.0f;
    size_t at = s * N_POLS + pol;
    uint32_t n_clipped = 0;

    for (size_t i = 0; i < t->n; i++) {
        uint32_t clipped = 0;
        re[i] = quantise(x->re[i], limit, &clipped);
        im[i] = quantise(x->im[i], limit, &clipped);
        n_clipped += clipped;
    }
    if (a->out_bits == 8)
        for (size_t i = 0; i < t->n; i++) {
            turned->bytes[i][at * 2] = (uint8_t)re[i];
            turned->bytes[i][at * 2 + 1] = (uint8_t)im[i];
        }
    else
        for (size_t i = 0; i < t->n; i++)
            turned->bytes[i][at] = (uint8_t)((uint32_t)re[i] << 4 | ((uint32_t)im[i] & 15));
    return n_clipped;
}

/* Steps 1 and 2: processes one spectrum of one polarisation. */
static void process_spectrum(const struct postproc_args *a, const struct channel_tables *t, size_t pol, size_t spectrum,
                             struct complex_block *x)
{
    size_t row = pol * a->n_spectra + spectrum;

    if (a->n_bins)
        take_bins(a, t, a->fft + row * a->n_bins * 2, x);
    else
        finish_transform(a, t, a->fft + row * a->n_chan * 2, x);
    rotate(t, a->rotation[row * 2], a->rotation[row * 2 + 1], x);
    multiply(x, &t->gain[pol], t->n);
}

/* Processes spectra [s, s + n_spectra) of one batch for the channels of 't'.  Adds the numbers of clipped values to
 * saturated[pol]. */
static void process_tile(const struct postproc_args *a, const struct channel_tables *t, size_t batch, size_t s,
                         size_t n_spectra, uint32_t saturated[N_POLS])
{
    size_t run_bytes = N_POLS * 2 * a->out_bits / 8; /* number of bytes of one spectrum in one channel */
    struct complex_block x[2][N_POLS];               /* the two spectra that share the random words of the dither */
    struct turned turned;

    for (size_t i = 0; i < n_spectra; i += 2) {
        size_t spectrum = batch * a->spectra_per_heap + s + i;
        for (size_t j = 0; j < 2; j++)
            for (size_t pol = 0; pol < N_POLS; pol++)
                process_spectrum(a, t, pol, spectrum + j, &x[j][pol]);
        if (a->dither)
            add_dither(a, t, a->first_spectrum + spectrum, x);
        for (size_t j = 0; j < 2; j++)
            for (size_t pol = 0; pol < N_POLS; pol++)
                saturated[pol] += quantise_block(a, t, &x[j][pol], i + j, pol, &turned);
    }
    for (size_t i = 0; i < t->n; i++) {
        size_t heap_spectrum = (batch * a->n_chan + t->first + i) * a->spectra_per_heap + s;
        memcpy(a->out + heap_spectrum * run_bytes, turned.bytes[i], n_spectra * run_bytes);
    }
}

/* Processes one batch and one block of channels. */
static void process_block(const struct postproc_args *a, size_t batch, size_t chan)
{
    size_t n_chans = a->n_chan < BLOCK_CHANS ? a->n_chan : BLOCK_CHANS;
    uint32_t saturated[N_POLS] = {0};
    struct channel_tables tables;

    make_tables(a, chan, n_chans, &tables);
    for (size_t s = 0; s < a->spectra_per_heap; s += BLOCK_SPECTRA) {
        size_t rest = a->spectra_per_heap - s;
        process_tile(a, &tables, batch, s, rest < BLOCK_SPECTRA ? rest : BLOCK_SPECTRA, saturated);
    }
    for (size_t pol = 0; pol < N_POLS; pol++) {
#pragma omp atomic
        a->saturated[batch * N_POLS + pol] += saturated[pol];
    }
}

static void postproc_cpu(const void *args, int n_threads)
{
    const struct postproc_args *a = args;
    size_t n_batches = a->n_spectra / a->spectra_per_heap;

    assert(a->n_chan >= 8 && (a->n_chan & (a->n_chan - 1)) == 0 && a->n_spectra % a->spectra_per_heap == 0);
    assert(a->spectra_per_heap % 16 == 0 && a->first_spectrum % 2 == 0);
    assert((a->unzip == 1 || a->unzip == 2 || a->unzip == 4) && (a->out_bits == 8 || a->out_bits == 4));
    assert(a->n_bins == 0 || (a->n_bins >= a->n_chan && (a->n_bins & (a->n_bins - 1)) == 0 && a->unzip == 1));
#pragma omp parallel for collapse(2) num_threads(n_threads)
    for (size_t batch = 0; batch < n_batches; batch++)
        for (size_t chan = 0; chan < a->n_chan; chan += BLOCK_CHANS)
            process_block(a, batch, chan);
}

const struct kernel postproc_kernel = {
    .name = "postproc",
    .args_bytes = sizeof(struct postproc_args),
    .cpu = postproc_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define N_THREADS 256 /* threads of a block */

/* Size of a block's tile.  The tile needs at most 34 KiB of shared memory, so that several blocks share
 * a multiprocessor.  A block reads runs of at least 128 bytes if there are enough channels. */
struct tile {
    uint32_t slots, spectra;
};

static struct tile tile_of(const struct postproc_args *args)
{
    uint32_t n_slots = args->n_chan / args->unzip / 2;
    struct tile tile = {.slots = args->unzip == 1 ? 32 : 16,
                        .spectra = args->unzip < 4 && args->spectra_per_heap % 32 == 0 ? 32 : 16};

    if (tile.slots > n_slots)
        tile.slots = n_slots;
    return tile;
}

void postproc_constants(const struct postproc_args *args, struct kernel_constant *constants)
{
    struct tile tile = tile_of(args);
    const struct kernel_constant all[POSTPROC_N_CONSTANTS] = {
        {"N_CHAN", args->n_chan},       {"UNZIP", args->unzip},
        {"OUT_BITS", args->out_bits},   {"SPECTRA_PER_HEAP", args->spectra_per_heap},
        {"DITHER", args->dither},       {"TILE_SLOTS", tile.slots},
        {"TILE_SPECTRA", tile.spectra}, {"N_THREADS", N_THREADS},
        {"N_BINS", args->n_bins},
    };

    assert(args->n_chan >= 64);
    memcpy(constants, all, sizeof(all));
}

struct kernel_grid postproc_grid(const struct postproc_args *args)
{
    struct tile tile = tile_of(args);
    uint32_t tile_chans = 2 * args->unzip * tile.slots;

    return (struct kernel_grid){
        .blocks = {args->n_chan / tile_chans, args->n_spectra / tile.spectra, 1},
        .threads = N_THREADS,
        .shared_bytes = N_POLS * tile_chans * (tile.spectra + 1) * 2 * (uint32_t)sizeof(float),
    };
}
