/* clones.h - innermost functions of the plain C kernels, compiled a second time for AVX2 and chosen when the program
 * starts.  The results are the same bits: the order of sums is fixed in the source, and there is no contraction to FMA.
 *
 * Measured on an AMD EPYC (Zen 5), gcc 12, November 2026: pfb_fir 1.5 times as fast at 10 bits, correlate 1.3 times;
 * postproc gained a tenth and so goes without.  Not for sanitizers, whose set-up the choice would precede. */
#ifndef KERNELS_CLONES_H
#define KERNELS_CLONES_H

#include <stdint.h> /* defines __GLIBC__ where it applies */

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(CBF_SANITIZE)
#define KERNEL_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define KERNEL_CLONES
#endif

#endif
