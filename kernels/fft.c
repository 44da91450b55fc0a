/* fft.c - the transform between pfb_fir.c and postproc.c on the cpu device.
 *
 * With n = rows * columns, j = columns * j1 + j2 and k = k1 + rows * k2:
 *     X[k1 + rows k2] = sum over j2 of e^{-2 pi i j2 k2 / columns} ( e^{-2 pi i j2 k1 / n} Y[k1][j2] )
 *     Y[k1][j2]       = sum over j1 of e^{-2 pi i j1 k1 / rows} x[columns j1 + j2]
 * so a transform is 'columns' short ones down the columns, a twiddle, and 'rows' short ones along the rows.  LANES
 * short ones are done at a time, side by side in vectors and out of the L1 cache. */
#include "kernels/fft.h"

#include "kernels/clones.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES       16
#define ALIGN_BYTES 64

/* The same point of LANES transforms. */
struct lanes {
    float re[LANES], im[LANES];
};

struct twiddle {
    float re, im;
};

struct fft {
    size_t n, rows, columns; /* rows = columns or 2 columns */
    int n_threads;
    struct twiddle *short_twiddles; /* [rows]: e^{-2 pi i j / rows} */
    struct lanes *twiddles;         /* [k1][block of j2]: e^{-2 pi i j2 k1 / n} */
    struct lanes *scratch;          /* [thread]: 2 x [rows], then [block of k1][j2] */
    size_t scratch_lanes;           /* of a thread */
};

static size_t n_blocks(size_t n)
{
    return (n + LANES - 1) / LANES;
}

static inline void multiply(const struct twiddle *w, float re, float im, float *out_re, float *out_im)
{
    *out_re = re * w->re - im * w->im;
    *out_im = re * w->im + im * w->re;
}

/* Four points a..d of what is left of the transforms, m apart, to four results. */
static inline void butterfly4(const struct lanes *restrict x, size_t m, const struct twiddle w[3],
                              struct lanes *restrict y, size_t stride)
{
    for (int i = 0; i < LANES; i++) {
        float sum_ac_re = x[0].re[i] + x[2 * m].re[i], sum_ac_im = x[0].im[i] + x[2 * m].im[i];
        float dif_ac_re = x[0].re[i] - x[2 * m].re[i], dif_ac_im = x[0].im[i] - x[2 * m].im[i];
        float sum_bd_re = x[m].re[i] + x[3 * m].re[i], sum_bd_im = x[m].im[i] + x[3 * m].im[i];
        float dif_bd_re = x[m].re[i] - x[3 * m].re[i], dif_bd_im = x[m].im[i] - x[3 * m].im[i];

        y[0].re[i] = sum_ac_re + sum_bd_re;
        y[0].im[i] = sum_ac_im + sum_bd_im;
        multiply(&w[0], dif_ac_re + dif_bd_im, dif_ac_im - dif_bd_re, &y[stride].re[i], &y[stride].im[i]);
        multiply(&w[1], sum_ac_re - sum_bd_re, sum_ac_im - sum_bd_im, &y[2 * stride].re[i], &y[2 * stride].im[i]);
        multiply(&w[2], dif_ac_re - dif_bd_im, dif_ac_im + dif_bd_re, &y[3 * stride].re[i], &y[3 * stride].im[i]);
    }
}

static inline void butterfly2(const struct lanes *restrict x, size_t m, struct lanes *restrict y, size_t stride)
{
    for (int i = 0; i < LANES; i++) {
        y[0].re[i] = x[0].re[i] + x[m].re[i];
        y[0].im[i] = x[0].im[i] + x[m].im[i];
        y[stride].re[i] = x[0].re[i] - x[m].re[i];
        y[stride].im[i] = x[0].im[i] - x[m].im[i];
    }
}

/* LANES transforms of n points, n <= rows, of x[n], with y[n] to work in; returns which of the two has the result.
 * Stockham: each pass takes 'stride' interleaved sets of transforms of n points to 4 stride sets of n / 4. */
KERNEL_CLONES static struct lanes *transform_lanes(const struct fft *fft, size_t n, struct lanes *x, struct lanes *y)
{
    size_t stride = 1;

    for (; n > 2; n /= 4, stride *= 4) {
        size_t m = n / 4, step = fft->rows / n;
        for (size_t p = 0; p < m; p++) {
            struct twiddle w[3] = {fft->short_twiddles[p * step], fft->short_twiddles[2 * p * step],
                                   fft->short_twiddles[3 * p * step]};
            for (size_t q = 0; q < stride; q++)
                butterfly4(x + q + stride * p, stride * m, w, y + q + stride * 4 * p, stride);
        }
        struct lanes *swap = x;
        x = y;
        y = swap;
    }
    if (n == 1)
        return x;
    for (size_t q = 0; q < stride; q++)
        butterfly2(x + q, stride, y + q, stride);
    return y;
}

/* Down 'width' columns from j2 on: reads in[j1][j2 ...], leaves work[k1 / LANES][j2 ...] (lane k1 % LANES). */
KERNEL_CLONES static void transform_columns(const struct fft *fft, const float *in, size_t j2, size_t width,
                                            struct lanes *x, struct lanes *y, struct lanes *work)
{
    struct lanes *z;

    for (size_t j1 = 0; j1 < fft->rows; j1++) {
        const float *row = in + 2 * (j1 * fft->columns + j2);
        for (size_t i = 0; i < width; i++) {
            x[j1].re[i] = row[2 * i];
            x[j1].im[i] = row[2 * i + 1];
        }
    }
    z = transform_lanes(fft, fft->rows, x, y);
    for (size_t k1 = 0; k1 < fft->rows; k1++) {
        const struct lanes *w = &fft->twiddles[k1 * n_blocks(fft->columns) + j2 / LANES];
        struct lanes *to = work + k1 / LANES * fft->columns + j2;
        for (size_t i = 0; i < width; i++) {
            to[i].re[k1 % LANES] = z[k1].re[i] * w->re[i] - z[k1].im[i] * w->im[i];
            to[i].im[k1 % LANES] = z[k1].re[i] * w->im[i] + z[k1].im[i] * w->re[i];
        }
    }
}

/* Along 'width' rows from k1 on: work[k1 / LANES][j2] to out[k2][k1 ...]. */
KERNEL_CLONES static void transform_rows(const struct fft *fft, struct lanes *work, size_t k1, size_t width,
                                         struct lanes *y, float *out)
{
    const struct lanes *z = transform_lanes(fft, fft->columns, work + k1 / LANES * fft->columns, y);

    for (size_t k2 = 0; k2 < fft->columns; k2++) {
        float *row = out + 2 * (k2 * fft->rows + k1);
        for (size_t i = 0; i < width; i++) {
            row[2 * i] = z[k2].re[i];
            row[2 * i + 1] = z[k2].im[i];
        }
    }
}

static void transform(const struct fft *fft, const float *in, struct lanes *scratch, float *out)
{
    struct lanes *x = scratch, *y = x + fft->rows, *work = y + fft->rows;

    for (size_t j2 = 0; j2 < fft->columns; j2 += LANES)
        transform_columns(fft, in, j2, fft->columns < LANES ? fft->columns : LANES, x, y, work);
    for (size_t k1 = 0; k1 < fft->rows; k1 += LANES)
        transform_rows(fft, work, k1, fft->rows < LANES ? fft->rows : LANES, y, out);
}

void fft_run(const struct fft *fft, size_t batch, const float *in, float *out)
{
#pragma omp parallel for num_threads(fft->n_threads)
    for (int t = 0; t < fft->n_threads; t++) {
        size_t end = batch * ((size_t)t + 1) / (size_t)fft->n_threads;
        for (size_t b = batch * (size_t)t / (size_t)fft->n_threads; b < end; b++)
            transform(fft, in + 2 * b * fft->n, fft->scratch + (size_t)t * fft->scratch_lanes, out + 2 * b * fft->n);
    }
}

/* e^{-2 pi i j / n}. */
static struct twiddle twiddle(size_t j, size_t n)
{
    double angle = 2 * M_PI * (double)j / (double)n;

    return (struct twiddle){(float)cos(angle), (float)-sin(angle)};
}

static void make_twiddles(struct fft *fft)
{
    for (size_t j = 0; j < fft->rows; j++)
        fft->short_twiddles[j] = twiddle(j, fft->rows);
    for (size_t k1 = 0; k1 < fft->rows; k1++)
        for (size_t j2 = 0; j2 < fft->columns; j2++) {
            struct lanes *to = &fft->twiddles[k1 * n_blocks(fft->columns) + j2 / LANES];
            struct twiddle w = twiddle(j2 * k1, fft->n);
            to->re[j2 % LANES] = w.re;
            to->im[j2 % LANES] = w.im;
        }
}

/* Zeroed, so that lanes that a small transform leaves unused are defined. */
static void *alloc(size_t n, size_t bytes)
{
    size_t all_bytes = (n * bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    void *memory = aligned_alloc(ALIGN_BYTES, all_bytes);

    if (memory)
        memset(memory, 0, all_bytes);
    return memory;
}

int fft_create(size_t n, int n_threads, struct fft **fft)
{
    struct fft *f = calloc(1, sizeof(*f));

    assert(n >= 1 && (n & (n - 1)) == 0 && n_threads > 0);
    if (!f)
        return -ENOMEM;
    *f = (struct fft){.n = n, .rows = 1, .columns = 1, .n_threads = n_threads};
    while (f->rows * f->columns < n)
        *(f->rows == f->columns ? &f->rows : &f->columns) *= 2;
    f->scratch_lanes = 2 * f->rows + n_blocks(f->rows) * f->columns;
    f->short_twiddles = alloc(f->rows, sizeof(*f->short_twiddles));
    f->twiddles = alloc(f->rows * n_blocks(f->columns), sizeof(*f->twiddles));
    f->scratch = alloc((size_t)n_threads * f->scratch_lanes, sizeof(*f->scratch));
    if (!f->short_twiddles || !f->twiddles || !f->scratch) {
        fft_destroy(f);
        return -ENOMEM;
    }
    make_twiddles(f);
    *fft = f;
    return 0;
}

void fft_destroy(struct fft *fft)
{
    if (!fft)
        return;
    free(fft->scratch);
    free(fft->twiddles);
    free(fft->short_twiddles);
    free(fft);
}
