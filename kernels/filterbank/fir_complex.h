/* fir_complex.h - one row of a polyphase filter of complex samples, in registers.
 *
 * The kernel that includes this file has the constant N_TAPS. */
#ifndef KERNELS_FILTERBANK_FIR_COMPLEX_H
#define KERNELS_FILTERBANK_FIR_COMPLEX_H

#define N_SUMS (N_TAPS > 1 ? N_TAPS - 1 : 1)

/* Adds one row of samples to the sums.  Returns the sum that the row completes.  After the call, i + 1 more rows
 * complete sums[i]. */
static __device__ __forceinline__ float2 filter(const float (&weights)[N_TAPS], float2 x, float2 (&sums)[N_SUMS])
{
    float2 begun = make_float2(weights[0] * x.x, weights[0] * x.y), done;

    if (N_TAPS == 1)
        return begun;
    done.x = fmaf(weights[N_TAPS - 1], x.x, sums[0].x);
    done.y = fmaf(weights[N_TAPS - 1], x.y, sums[0].y);
#pragma unroll
    for (int i = 0; i < N_TAPS - 2; i++) {
        sums[i].x = fmaf(weights[N_TAPS - 2 - i], x.x, sums[i + 1].x);
        sums[i].y = fmaf(weights[N_TAPS - 2 - i], x.y, sums[i + 1].y);
    }
    sums[N_SUMS - 1] = begun;
    return done;
}

#endif
