/* gnss_grid_peaks.cu - see gnss_grid.h.
 *
 * A block is a warp and has one Doppler.  Each warp sums the noise of the whole grid.  Each lane then finds the largest
 * cell of every 32nd bin. */
#include "kernels/gnss/gnss_grid.h"

#define N_POLS     2
#define WARP       32
#define EVERY_LANE 0xffffffffu

struct grid {
    const float *powers[N_POLS];
    double weights[N_POLS];
};

static __device__ __forceinline__ double value_at(const struct grid &grid, uint64_t cell)
{
    return __ldg(grid.powers[0] + cell) * grid.weights[0] + __ldg(grid.powers[1] + cell) * grid.weights[1];
}

/* Returns the sum of 'n' values, in every lane. */
static __device__ __forceinline__ double sum_of(const double *values, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = threadIdx.x; i < n; i += WARP)
        sum += __ldg(values + i);
#pragma unroll
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(EVERY_LANE, sum, lanes);
    return sum;
}

/* Returns the peak's bin in every lane.  Writes the peak's value. */
static __device__ __forceinline__ uint32_t find_peak(const struct grid &grid, uint64_t cells, uint32_t n_bins,
                                                     double &value)
{
    uint32_t best = threadIdx.x;

    value = -1;
#pragma unroll 8
    for (uint32_t bin = threadIdx.x; bin < n_bins; bin += WARP) {
        const double v = value_at(grid, cells + bin);
        best = v > value ? bin : best;
        value = v > value ? v : value;
    }
#pragma unroll
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
        const double v = __shfl_xor_sync(EVERY_LANE, value, lanes);
        const uint32_t bin = __shfl_xor_sync(EVERY_LANE, best, lanes);
        if (v > value || (v == value && bin < best)) {
            value = v;
            best = bin;
        }
    }
    return best;
}

extern "C" __global__ void __launch_bounds__(WARP) gnss_grid_peaks(const struct gnss_grid_peaks_args args)
{
    const uint32_t d = blockIdx.x, n_bins = 1u << args.bin_bits;
    const uint64_t n_cells = (uint64_t)args.n_dopplers * n_bins, n_sums = n_cells / GNSS_GRID_SLICE_BINS;
    const uint64_t cells = (uint64_t)d * n_bins;
    struct grid grid = {{args.powers, args.powers + n_cells}, {}};
    uint32_t n_live = 0;
    double value;

#pragma unroll
    for (int pol = 0; pol < N_POLS; pol++) {
        const double sum = sum_of(args.sums + pol * n_sums, n_sums);
        grid.weights[pol] = sum > 0 ? args.n_blocks * (double)n_cells / sum : 0;
        n_live += sum > 0;
    }
    const uint32_t bin = find_peak(grid, cells, n_bins, value);
    if (threadIdx.x > 0)
        return;
    struct gnss_grid_peak &peak = args.peaks[d];
    peak.value = value;
    peak.before = value_at(grid, cells + ((bin - 1) & (n_bins - 1)));
    peak.behind = value_at(grid, cells + ((bin + 1) & (n_bins - 1)));
    peak.slower = d > 0 ? value_at(grid, cells - n_bins + bin) : 0;
    peak.faster = d + 1 < args.n_dopplers ? value_at(grid, cells + n_bins + bin) : 0;
    peak.bin = bin;
    peak.n_live = n_live;
}
