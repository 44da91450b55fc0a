/* gnss_grid_powers.cu - see gnss_grid.h.
 *
 * A warp has one slice of one Doppler (blockIdx.y) and one polarisation (blockIdx.z).
 *
 * Constants: N_THREADS. */
#include "kernels/gnss/gnss_grid.h"

#define WARP       32
#define EVERY_LANE 0xffffffffu

extern "C" __global__ void __launch_bounds__(N_THREADS) gnss_grid_powers(const struct gnss_grid_powers_args args)
{
    const uint32_t d = blockIdx.y, pol = blockIdx.z, lane = threadIdx.x % WARP, n_bins = 1u << args.bin_bits;
    const uint32_t n_slices = n_bins / GNSS_GRID_SLICE_BINS;
    const uint32_t slice = blockIdx.x * (N_THREADS / WARP) + threadIdx.x / WARP;
    const uint32_t moved = (uint32_t)llround(args.moved + d * args.moved_step);
    const uint64_t doppler = (uint64_t)pol * args.pol_dopplers + d;
    const float2 *in = (const float2 *)args.in + (uint64_t)(d * gridDim.z + pol) * n_bins;
    float *powers = args.powers + doppler * n_bins;
    double sum = 0;

    if (slice >= n_slices)
        return;
#pragma unroll
    for (uint32_t i = 0; i < GNSS_GRID_SLICE_BINS; i += WARP) {
        const uint32_t bin = slice * GNSS_GRID_SLICE_BINS + i + lane;
        const float2 x = __ldg(in + ((bin + moved) & (n_bins - 1)));
        const float power = (args.adds ? powers[bin] : 0.0f) + (x.x * x.x + x.y * x.y);
        powers[bin] = power;
        sum += power;
    }
#pragma unroll
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(EVERY_LANE, sum, lanes);
    if (lane == 0)
        args.sums[doppler * n_slices + slice] = sum;
}
