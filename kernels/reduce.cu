/* reduce.cu - see reduce.h.
 *
 * A thread has two visibilities, half a baseline, of one channel: two loads of 16 bytes, two stores of zeros and one
 * store of 16 bytes.  Clipped ones are counted by warps, and added once by each that has any.
 *
 * Constants: those of reduce_constants(). */
#include "kernels/reduce.h"

#define MISSING_NAN 0x7FC00000 /* a quiet NaN */

#if REAL
static __device__ __forceinline__ int2 convert(double2 sums, bool missing, bool &clipped)
{
    clipped = false;
    return missing ? make_int2(MISSING_NAN, MISSING_NAN)
                   : make_int2(__float_as_int((float)sums.x), __float_as_int((float)sums.y));
}
#else
static __device__ __forceinline__ int2 convert(longlong2 sums, bool missing, bool &clipped)
{
    const long long limit = 0x7FFFFFFF;
    long long re = max(-limit, min(limit, sums.x)), im = max(-limit, min(limit, sums.y));

    clipped = !missing && (re != sums.x || im != sums.y);
    return missing ? make_int2((int)REDUCE_MISSING_RE, REDUCE_MISSING_IM) : make_int2((int)re, (int)im);
}
#endif

extern "C" __global__ void __launch_bounds__(REDUCE_THREADS) reduce(const struct reduce_args args)
{
#if REAL
    typedef double2 sums_type;
#else
    typedef longlong2 sums_type;
#endif
    const uint32_t half = blockIdx.x * REDUCE_THREADS + threadIdx.x; /* of a baseline */
    const bool there = half < 2 * args.n_baselines;
    const bool missing = there && args.weights[half / 2] < args.min_weight;
    uint32_t n_clipped = 0;

    for (uint32_t chan = blockIdx.y; chan < args.n_chan; chan += gridDim.y) {
        uint64_t at = (uint64_t)chan * args.n_baselines * 2 + half;
        sums_type *sums = (sums_type *)args.sums.integer + 2 * at;
        bool clipped[2] = {false, false};
        if (there) {
            sums_type first = sums[0], second = sums[1], zero = {0, 0};
            int2 a = convert(first, missing, clipped[0]), b = convert(second, missing, clipped[1]);
            sums[0] = zero;
            sums[1] = zero;
            ((int4 *)args.out.integer)[at] = make_int4(a.x, a.y, b.x, b.y);
        }
        n_clipped += __popc(__ballot_sync(0xffffffffu, clipped[0])) + __popc(__ballot_sync(0xffffffffu, clipped[1]));
    }
    if (n_clipped > 0 && threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)args.n_saturated, (unsigned long long)n_clipped);
}
