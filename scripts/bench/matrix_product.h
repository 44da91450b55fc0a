/* matrix_product.h - what a GPU's tensor cores reach at most: a large product of two matrices by cuBLASLt, which is loaded
 * when it is needed.
 *
 * It multiplies on the GPU that a process takes first, so on a machine with several it is that of device_open() unless
 * another was asked for.
 * Threads: one. */
#ifndef SCRIPTS_BENCH_MATRIX_PRODUCT_H
#define SCRIPTS_BENCH_MATRIX_PRODUCT_H

#include "common/device/device.h"
#include "scripts/bench/bench.h"

/* 10^12 operations a second, a multiplication and an addition being two, of int8 with int32 sums, or where 'real' of half
 * floats with float32 sums.  Returns 0, or -1 with a sentence in 'why' where it cannot be measured. */
int matrix_product_measure(struct device *device, bool real, size_t n_repetitions, struct bench_stat *tops, char *why,
                           size_t why_bytes);

#endif
