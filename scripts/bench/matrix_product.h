/* matrix_product.h - the limit of a GPU's tensor cores: a large product of two matrices by cuBLASLt.  cuBLASLt is
 * loaded when the measurement begins.
 *
 * The product runs on the process's first GPU.  device_open() opens the same GPU unless its caller chooses another.
 * Threads: one. */
#ifndef SCRIPTS_BENCH_MATRIX_PRODUCT_H
#define SCRIPTS_BENCH_MATRIX_PRODUCT_H

#include "common/device/device.h"
#include "scripts/bench/bench.h"

/* Measures the rate in 10^12 operations a second.  A multiplication and an addition are two operations.  If 'real',
 * the matrices are half floats with float32 sums; otherwise they are int8 with int32 sums.  Returns 0.  If there is
 * no measurement, returns -1 and writes the reason to 'why'. */
int matrix_product_measure(struct device *device, bool real, size_t n_repetitions, struct bench_stat *tops, char *why,
                           size_t why_bytes);

#endif
