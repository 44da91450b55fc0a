/* gnss_grid_bins.cu - see gnss_grid.h.
 *
 * A thread gathers the samples of one bin, in both polarisations.
 *
 * Constants: N_THREADS, which divides the number of bins of a row. */
#include "kernels/gnss/gnss_grid.h"

#include "kernels/gnss/gnss_correlate.h"

#define N_POLS 2

extern "C" __global__ void __launch_bounds__(N_THREADS) gnss_grid_bins(const struct gnss_grid_bins_args args)
{
    const uint64_t index = (uint64_t)blockIdx.x * N_THREADS + threadIdx.x;
    const uint64_t n_rows_bins = (uint64_t)args.n_rows << args.bin_bits;
    const uint32_t from = gnss_grid_first_sample(&args, index), end = gnss_grid_first_sample(&args, index + 1);
    const char2 *samples = (const char2 *)args.samples, *carrier = (const char2 *)args.carrier;
    uint64_t phase = args.carrier_phase + from * args.carrier_step;
    int re[N_POLS] = {}, im[N_POLS] = {};

    for (uint32_t n = from; n < end; n++, phase += args.carrier_step) {
        const char2 c = __ldg(carrier + (phase >> (64 - GNSS_CARRIER_BITS)));
#pragma unroll
        for (int pol = 0; pol < N_POLS; pol++) {
            const char2 x = __ldg(samples + pol * args.pitch_samples + n);
            re[pol] += x.x * c.x + x.y * c.y;
            im[pol] += x.y * c.x - x.x * c.y;
        }
    }
#pragma unroll
    for (int pol = 0; pol < N_POLS; pol++)
        ((float2 *)args.rows)[pol * n_rows_bins + index] = make_float2((float)re[pol], (float)im[pol]);
}
