/* clones.h - compiles the innermost functions of the plain C kernels also for AVX2 and for AVX-512.  The program
 * chooses a version when it starts.  All versions give the same bits: the source fixes the order of sums, and the
 * compiler contracts no products and sums to FMA instructions.  Mark the functions that contain the loops with
 * KERNEL_CLONES.  A called function is compiled for AVX2 only if the compiler inlines it.
 *
 * docs/decisions/cpu-clones.md has the measured gain.  Builds with sanitizers have no clones, because the program would
 * choose a version before the sanitizers are initialised. */
#ifndef KERNELS_UTIL_CLONES_H
#define KERNELS_UTIL_CLONES_H

#include <stdint.h> /* defines __GLIBC__ if the C library is glibc */

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(CBF_SANITIZE)
#define KERNEL_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define KERNEL_CLONES
#endif

#endif
