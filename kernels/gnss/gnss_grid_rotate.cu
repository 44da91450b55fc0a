/* gnss_grid_rotate.cu - see gnss_grid.h.
 *
 * A block has N_THREADS bins of one Doppler (blockIdx.y) and one polarisation (blockIdx.z).  The factors of the rows are
 * in shared memory.
 *
 * Constants: N_THREADS, which divides the number of bins of a row. */
#include "kernels/gnss/gnss_grid.h"

extern __shared__ float4 shared_memory[]; /* float2 [row] */

/* Returns e^(-2 pi i turns). */
static __device__ __forceinline__ float2 phasor(double turns)
{
    float2 turned;

    sincospif((float)(-2 * (turns - rint(turns))), &turned.y, &turned.x);
    return turned;
}

static __device__ __forceinline__ float2 product(float2 a, float2 b)
{
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

extern "C" __global__ void __launch_bounds__(N_THREADS) gnss_grid_rotate(const struct gnss_grid_rotate_args args)
{
    const uint32_t bin = blockIdx.x * N_THREADS + threadIdx.x, d = blockIdx.y, pol = blockIdx.z;
    const double turns = args.turns + d * args.turns_step;
    const float2 *row_bin = (const float2 *)args.rows + (((uint64_t)pol * args.n_rows) << args.bin_bits) + bin;
    float2 *factors = (float2 *)shared_memory, sum = make_float2(0, 0);

    for (uint32_t row = threadIdx.x; row < args.n_rows; row += N_THREADS)
        factors[row] = phasor(turns * row);
    __syncthreads();
    for (uint32_t row = 0; row < args.n_rows; row++) {
        const float2 x = product(__ldg(row_bin + ((uint64_t)row << args.bin_bits)), factors[row]);
        sum.x += x.x;
        sum.y += x.y;
    }
    const double part = (double)bin / (double)(1u << args.bin_bits);
    ((float2 *)args.out)[((uint64_t)(d * gridDim.z + pol) << args.bin_bits) + bin] = product(sum, phasor(turns * part));
}
