/* gnss_grid_multiply.cu - see gnss_grid.h.
 *
 * A thread multiplies one bin of one transform (blockIdx.y).
 *
 * Constants: N_THREADS, which divides the number of bins. */
#include "kernels/gnss/gnss_grid.h"

extern "C" __global__ void __launch_bounds__(N_THREADS) gnss_grid_multiply(const struct gnss_grid_multiply_args args)
{
    const uint32_t bin = blockIdx.x * N_THREADS + threadIdx.x;
    float2 *data = (float2 *)args.data + ((uint64_t)blockIdx.y << args.bin_bits) + bin;
    const float2 x = *data, r = __ldg((const float2 *)args.replica + bin);

    *data = make_float2(x.x * r.x + x.y * r.y, x.y * r.x - x.x * r.y);
}
