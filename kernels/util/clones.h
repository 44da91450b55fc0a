/* clones.h - innermost functions of the plain C kernels, compiled again for AVX2 and for AVX-512 and chosen when the
 * program starts.  The results are the same bits: the order of sums is fixed in the source, and there is no contraction
 * to FMA.  Mark the functions that have the loops: a function that they call is compiled for AVX2 only if it is
 * inlined.
 *
 * docs/decisions/cpu-clones.md has the gain.  Builds with sanitizers leave this out, because the choice would precede their
 * set-up. */
#ifndef KERNELS_UTIL_CLONES_H
#define KERNELS_UTIL_CLONES_H

#include <stdint.h> /* defines __GLIBC__ where it applies */

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(CBF_SANITIZE)
#define KERNEL_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define KERNEL_CLONES
#endif

#endif
