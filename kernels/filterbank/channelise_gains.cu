/* channelise_gains.cu - rearranges gains for channelise_back.  See channelise_fused.h. */
#include "kernels/filterbank/channelise_fused.h"

extern "C" __global__ void channelise_gains(const struct channelise_gains_args args)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n_k2 = N_CHAN / FRONT_ROWS;

    if (i < N_CHAN)
        ((float4 *)args.out)[i] = ((const float4 *)args.in)[i % n_k2 * FRONT_ROWS + i / n_k2];
}
