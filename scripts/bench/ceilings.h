/* ceilings.h - upper limits of the rates of kernels on the cpu device, if the machine runs no other program.
 *
 * Kernels measure the limits, on the same threads as all other kernels.  The arithmetic uses only registers, in the
 * widest vectors of the CPU (AVX-512, AVX2, else 16 bytes).  The arithmetic has enough independent chains to hide the
 * latency. */
#ifndef SCRIPTS_BENCH_CEILINGS_H
#define SCRIPTS_BENCH_CEILINGS_H

#include "common/device/device.h"

#define CEILING_COPY_BYTES ((size_t)128 << 20) /* larger than a cache */

struct ceiling_args {
    uint8_t *dst; /* copy only */
    const uint8_t *src;
    volatile float *sink; /* results are stored here; otherwise the compiler would remove the arithmetic */
};

/* Returns the size in bytes of the vectors that the arithmetic uses. */
int ceiling_vector_bytes(void);

/* Copies CEILING_COPY_BYTES bytes. */
extern const struct kernel ceiling_copy;

/* Each thread does ceiling_float_madds() float multiplications, with one addition for each multiplication. */
extern const struct kernel ceiling_float;
double ceiling_float_madds(void);

/* Each thread multiplies ceiling_int16_madds() pairs of int16 and adds the products to int32 (vpmaddwd, vpaddd).
 * ceiling_int16_madds() returns 0 if this program knows no instruction of the CPU for these operations.  In this case
 * there is no ceiling. */
extern const struct kernel ceiling_int16;
double ceiling_int16_madds(void);

#endif
