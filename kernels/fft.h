/* fft - complex FFTs of a power of two, the cpu device's own: many at once, forward, unnormalised.
 *   in, out  float2 [batch][n]
 *
 * out[k] = sum over j of in[j] e^{-2 pi i j k / n}
 *
 * Exactness: float32; the order of operations is fixed in the source, so the same bits wherever it runs (given the same
 *            twiddles, which come from the C library's sine and cosine in double).
 * Requires: n a power of two >= 1.
 * Bound by: float additions and multiplications, 4.25 log2 n of them per point.
 * Ownership: a plan has scratch for each of its threads, so one fft_run() at a time.   Allocation: fft_create() only.
 * Source:    Bailey, "FFTs in external or hierarchical memory" (1990), for the split in two; Stockham's self-sorting
 *            form as in Van Loan, "Computational Frameworks for the Fast Fourier Transform" (1992), 1.7. */
#ifndef KERNELS_FFT_H
#define KERNELS_FFT_H

#include <stddef.h>

struct fft;

/* A plan for transforms of 'n' points on up to 'n_threads' (> 0) threads.  Returns 0 or -ENOMEM. */
int fft_create(size_t n, int n_threads, struct fft **fft);
void fft_destroy(struct fft *fft);

/* 'in' and 'out' do not overlap. */
void fft_run(const struct fft *fft, size_t batch, const float *in, float *out);

#endif
