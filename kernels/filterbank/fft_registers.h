/* fft_registers.h - Fourier transforms of 2 to 32 points in one thread's registers, for the CUDA kernels.
 *
 *   v[k] = sum over j of v[j] e^{-2 pi i jk / N}, in place and unnormalised; inputs and results are in natural order.
 *
 * Decimation in time by radix 2, unrolled at compile time.  A butterfly e +- w o with w = c (1 + i t) is computed as u
 * = o + i t o, e +- c u.  This takes six multiply-adds instead of ten operations (Linzer and Feig, "Implementation of
 * efficient FFT algorithms on fused multiply-add architectures", 1993).  Operations per point: 2, 4, 6.5, 9.25, 12.1
 * for N = 2, 4, 8, 16, 32. */
#ifndef KERNELS_FILTERBANK_FFT_REGISTERS_H
#define KERNELS_FILTERBANK_FFT_REGISTERS_H

static __device__ __forceinline__ float2 complex_multiply(float2 a, float2 b)
{
    return make_float2(fmaf(a.x, b.x, -a.y * b.y), fmaf(a.x, b.y, a.y * b.x));
}

/* Returns cos(2 pi k / 32), k = 0 .. 8. */
static __device__ __forceinline__ constexpr float fft_cosine(int k)
{
    return k == 0   ? 1.0f
           : k == 1 ? 0.98078528040323045f
           : k == 2 ? 0.92387953251128676f
           : k == 3 ? 0.83146961230254524f
           : k == 4 ? 0.70710678118654752f
           : k == 5 ? 0.55557023301960222f
           : k == 6 ? 0.38268343236508977f
           : k == 7 ? 0.19509032201612827f
                    : 0.0f;
}

/* Returns tan(2 pi k / 32), k = 0 .. 4. */
static __device__ __forceinline__ constexpr float fft_tangent(int k)
{
    return k == 0   ? 0.0f
           : k == 1 ? 0.19891236737965800f
           : k == 2 ? 0.41421356237309505f
           : k == 3 ? 0.66817863791929892f
                    : 1.0f;
}

/* Computes (e, o) = (e + w o, e - w o), w = e^{-2 pi i k / 32}, 0 <= k < 16.  k is a compile-time constant after
 * unrolling. */
static __device__ __forceinline__ void fft_butterfly(int k, float2 &e, float2 &o)
{
    float2 u;
    float c;

    if (k >= 8) { /* first rotates o by a quarter turn: e^{-i pi / 2} o = (o.y, -o.x) */
        o = make_float2(o.y, -o.x);
        k -= 8;
    }
    if (k == 0) {
        u = o;
        c = 1.0f;
    } else if (k <= 4) { /* w o = cos (o - i tan o) */
        float t = fft_tangent(k);
        u = make_float2(fmaf(t, o.y, o.x), fmaf(-t, o.x, o.y));
        c = fft_cosine(k);
    } else { /* w o = -i sin(k) (o + i cot(k) o); sin(k) = cos(8 - k), cot(k) = tan(8 - k) */
        float t = fft_tangent(8 - k);
        u = make_float2(fmaf(t, o.x, o.y), fmaf(t, o.y, -o.x));
        c = fft_cosine(8 - k);
    }
    o = make_float2(fmaf(-c, u.x, e.x), fmaf(-c, u.y, e.y));
    e = make_float2(fmaf(c, u.x, e.x), fmaf(c, u.y, e.y));
}

template <int N> static __device__ __forceinline__ void fft_registers(float2 (&v)[N])
{
    float2 even[N / 2], odd[N / 2];

#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        even[i] = v[2 * i];
        odd[i] = v[2 * i + 1];
    }
    fft_registers<N / 2>(even);
    fft_registers<N / 2>(odd);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        fft_butterfly(i * (32 / N), even[i], odd[i]);
        v[i] = even[i];
        v[i + N / 2] = odd[i];
    }
}

template <> __device__ __forceinline__ void fft_registers<1>(float2 (&v)[1])
{
}

#endif
