/* ceilings.h - what bounds a kernel of the cpu device: rates that the machine reaches when it does nothing else.
 *
 * They are kernels themselves, so that they run where and how the others do.  Arithmetic is in registers, in the widest
 * vectors that the CPU has (AVX-512, AVX2, else 16 bytes), as many independent chains as hide the latency. */
#ifndef SCRIPTS_BENCH_CEILINGS_H
#define SCRIPTS_BENCH_CEILINGS_H

#include "common/device/device.h"

#define CEILING_COPY_BYTES ((size_t)128 << 20) /* larger than a cache */

struct ceiling_args {
    uint8_t *dst; /* copy only */
    const uint8_t *src;
    volatile float *sink; /* keeps the compiler from leaving out what nobody reads */
};

/* Of the vectors that the arithmetic uses. */
int ceiling_vector_bytes(void);

/* Copies CEILING_COPY_BYTES. */
extern const struct kernel ceiling_copy;

/* Each thread multiplies and adds ceiling_float_madds() floats, one addition for each multiplication. */
extern const struct kernel ceiling_float;
double ceiling_float_madds(void);

/* Each thread multiplies ceiling_int16_madds() pairs of int16 and adds the products to int32 (vpmaddwd, vpaddd).
 * 0 where the instruction is not known: then there is no such ceiling. */
extern const struct kernel ceiling_int16;
double ceiling_int16_madds(void);

#endif
