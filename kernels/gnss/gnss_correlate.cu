/* gnss_correlate.cu - see gnss_correlate.h.
 *
 * A block has a slice of a piece's samples, of one antenna: all taps, both polarisations.  A thread takes every N_THREADS-th
 * sample: it multiplies the samples of both polarisations with the conjugate carrier, and the products with the level of
 * each tap.  The carrier and the code go on by N_THREADS steps.  The threads' sums are added up within warps, then across
 * them, and the block adds one number for each sum to the 64 bits of the integration.
 *
 * Constants: N_TAPS; N_THREADS, at most GNSS_BLOCK_SAMPLES; SLICE_SAMPLES, of which int32 has the sums. */
#include "kernels/gnss/gnss_correlate.h"

#define N_POLS     2
#define N_SUMS     (N_TAPS * N_POLS * 2) /* [tap][pol][re, im] */
#define N_WARPS    (N_THREADS / 32)
#define EVERY_LANE 0xffffffffu

extern __shared__ float4 shared_memory[];

/* What a thread needs to know of a piece. */
struct replica {
    uint64_t length, taps[N_TAPS];
    uint64_t code, code_step, carrier, carrier_step; /* of the thread's next sample, and to the one behind it */
    const int8_t *table;
};

static __device__ __forceinline__ struct replica begin_replica(const struct gnss_correlate_args &args,
                                                               const struct gnss_piece &piece, uint32_t first)
{
    const struct gnss_satellite &satellite = args.satellites[piece.satellite];
    struct replica r;

    r.length = gnss_code_length(satellite.n_subchips);
    r.table = args.codes + satellite.table;
    r.code = gnss_code_at(piece.code_phase, piece.code_step, first, satellite.n_subchips);
    r.code_step = gnss_code_at(0, piece.code_step, N_THREADS, satellite.n_subchips);
    r.carrier = piece.carrier_phase + first * piece.carrier_step;
    r.carrier_step = N_THREADS * piece.carrier_step;
#pragma unroll
    for (int tap = 0; tap < N_TAPS; tap++)
        r.taps[tap] = satellite.taps[tap];
    return r;
}

/* Adds a sample of both polarisations. */
static __device__ __forceinline__ void add_sample(struct replica &r, const char2 *carrier, const char2 (&x)[N_POLS],
                                                  int (&sums)[N_SUMS])
{
    const char2 c = carrier[r.carrier >> (64 - GNSS_CARRIER_BITS)];
    int re[N_POLS], im[N_POLS];

#pragma unroll
    for (int pol = 0; pol < N_POLS; pol++) {
        re[pol] = x[pol].x * c.x + x[pol].y * c.y;
        im[pol] = x[pol].y * c.x - x[pol].x * c.y;
    }
#pragma unroll
    for (int tap = 0; tap < N_TAPS; tap++) {
        const int level = __ldg(r.table + (gnss_code_add(r.code, r.taps[tap], r.length) >> GNSS_CODE_BITS));
#pragma unroll
        for (int pol = 0; pol < N_POLS; pol++) {
            sums[(tap * N_POLS + pol) * 2] += level * re[pol];
            sums[(tap * N_POLS + pol) * 2 + 1] += level * im[pol];
        }
    }
    r.code = gnss_code_add(r.code, r.code_step, r.length);
    r.carrier += r.carrier_step;
}

/* Adds up the block's sums, by way of 'shared' [warp][sum], and adds them to the integration's at 'to'. */
static __device__ __forceinline__ void add_sums(const struct gnss_correlate_args &args, int (&sums)[N_SUMS],
                                                int *shared, int64_t *to)
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
        atomicAdd((unsigned long long *)to + i / (N_POLS * 2) * args.n_ants * N_POLS * 2 + i % (N_POLS * 2),
                  (unsigned long long)(int64_t)sum);
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
    for (uint32_t i = threadIdx.x; i < GNSS_CARRIER_ENTRIES; i += N_THREADS)
        carrier[i] = ((const char2 *)args.carrier)[i];
    __syncthreads();
    const int64_t first = piece.first + args.offsets[piece.satellite * args.n_ants + ant];
    const char2 *in = (const char2 *)args.samples + ant * N_POLS * args.pitch_samples + first;
    struct replica r = begin_replica(args, piece, from + threadIdx.x);
    for (uint32_t n = from + threadIdx.x; n < end; n += N_THREADS) {
        const char2 x[N_POLS] = {__ldg(in + n), __ldg(in + args.pitch_samples + n)};
        add_sample(r, carrier, x, sums);
    }
    add_sums(args, sums, shared_sums,
             args.sums + (((uint64_t)piece.integration * N_TAPS * args.n_ants + ant) * N_POLS) * 2);
}
