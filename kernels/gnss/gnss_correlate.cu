/* gnss_correlate.cu - see gnss_correlate.h: the variant for few antennas.
 *
 * A block takes one antenna and one slice of a piece's samples.  The block correlates the slice for all taps and both
 * polarisations.  A thread multiplies the samples of both polarisations by the conjugate carrier.  Then the thread
 * multiplies the products by the level of each tap.  The threads' sums are added within warps, then across warps.  The
 * block adds one number for each sum to the integration's 64-bit sums.
 *
 * Constants: N_TAPS; N_THREADS, at most GNSS_BLOCK_SAMPLES; SLICE_SAMPLES: sums of this number of samples fit int32. */
#include "kernels/gnss/gnss_replica.h"

#define N_POLS     2
#define N_PARTS    (N_POLS * 2)       /* [pol][re, im] */
#define N_SUMS     (N_TAPS * N_PARTS) /* [tap][pol][re, im] */
#define N_WARPS    (N_THREADS / 32)
#define EVERY_LANE 0xffffffffu

extern __shared__ float4 shared_memory[]; /* char2 [GNSS_CARRIER_ENTRIES], then int [N_WARPS][N_SUMS] */

/* Adds the products of one sample, in both polarisations, to the thread's sums. */
static __device__ __forceinline__ void add_sample(const struct replica &r, const char2 *carrier,
                                                  const char2 (&x)[N_POLS], int (&sums)[N_SUMS])
{
    const char2 c = replica_carrier(r, carrier);
    int parts[N_PARTS];

#pragma unroll
    for (int pol = 0; pol < N_POLS; pol++) {
        parts[2 * pol] = x[pol].x * c.x + x[pol].y * c.y;
        parts[2 * pol + 1] = x[pol].y * c.x - x[pol].x * c.y;
    }
#pragma unroll
    for (int tap = 0; tap < N_TAPS; tap++) {
        const int level = replica_level(r, tap);
#pragma unroll
        for (int part = 0; part < N_PARTS; part++)
            sums[tap * N_PARTS + part] += level * parts[part];
    }
}

/* Adds up the sums of all threads.  Adds the result to the integration's sums.  'shared' is an array [warp][sum] in
 * shared memory for the sums of the warps. */
static __device__ __forceinline__ void add_sums(const struct gnss_correlate_args &args, const struct gnss_piece &piece,
                                                uint32_t ant, int (&sums)[N_SUMS], int *shared)
{
#pragma unroll
    for (int i = 0; i < N_SUMS; i++)
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2)
            sums[i] += __shfl_xor_sync(EVERY_LANE, sums[i], lanes);
    if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int i = 0; i < N_SUMS; i++)
            shared[threadIdx.x / 32 * N_SUMS + i] = sums[i];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < N_SUMS; i += N_THREADS) {
        int sum = 0;
#pragma unroll
        for (int warp = 0; warp < N_WARPS; warp++)
            sum += shared[warp * N_SUMS + i];
        add_to(sums_of(args, piece.integration, i / N_PARTS, ant * N_POLS) + i % N_PARTS, sum);
    }
}

extern "C" __global__ void __launch_bounds__(N_THREADS) gnss_correlate(const struct gnss_correlate_args args)
{
    const struct gnss_piece piece = args.pieces[blockIdx.y];
    const uint32_t ant = blockIdx.z, from = blockIdx.x * SLICE_SAMPLES;
    const uint32_t end = min(piece.n_samples, from + SLICE_SAMPLES);
    char2 *carrier = (char2 *)shared_memory;
    int *shared_sums = (int *)(carrier + GNSS_CARRIER_ENTRIES);
    int sums[N_SUMS] = {};

    if (from >= piece.n_samples)
        return;
    copy_carrier(args, carrier);
    __syncthreads();
    const int64_t first = piece.first + args.offsets[piece.satellite * args.n_ants + ant];
    const char2 *in = (const char2 *)args.samples + ant * N_POLS * args.pitch_samples + first;
    struct replica r = replica_begin(args, piece, from + threadIdx.x);
    for (uint32_t n = from + threadIdx.x; n < end; n += N_THREADS, replica_next(r)) {
        const char2 x[N_POLS] = {__ldg(in + n), __ldg(in + args.pitch_samples + n)};
        add_sample(r, carrier, x, sums);
    }
    add_sums(args, piece, ant, sums, shared_sums);
}
