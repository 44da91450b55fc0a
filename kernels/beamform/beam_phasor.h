/* beam_phasor.h - cosine and sine of a phase, with the same bits on every device.
 *
 * A phase is a fraction of a turn, multiplied by 2^64, so that sums of phases wrap without rounding.  beam_phasor()
 * subtracts the nearest quarter turn.  Taylor polynomials up to t^9 and t^10 give sine and cosine of the remaining
 * angle t in [-pi/4, pi/4].
 * Exactness: quarter turns are exact.  Otherwise the error of each part is below 2^-23: t is rounded once, and the
 *            omitted terms of the series are below 2^-28.  Each product and each sum is rounded separately.  The CUDA
 *            compiler does not contract the intrinsics that this file uses, and C is compiled without contraction.
 *
 * CUDA kernels include this file too. */
#ifndef KERNELS_BEAMFORM_BEAM_PHASOR_H
#define KERNELS_BEAMFORM_BEAM_PHASOR_H

#include <stdint.h>

#ifdef __CUDA_ARCH__
#define BEAM_TIMES(a, b) __fmul_rn(a, b)
#define BEAM_PLUS(a, b)  __fadd_rn(a, b)
#else
#define BEAM_TIMES(a, b) ((a) * (b))
#define BEAM_PLUS(a, b)  ((a) + (b))
#endif

#define BEAM_RADIANS 1.46291807926715968105e-9f /* radians in 2^-32 turns: 2 pi / 2^32 */

struct beam_complex {
    float re, im;
};

static inline struct beam_complex beam_phasor(uint64_t turns)
{
    uint32_t quarter = (uint32_t)((turns + ((uint64_t)1 << 61)) >> 62);
    int32_t rest = (int32_t)(uint32_t)((turns - ((uint64_t)quarter << 62)) >> 32);
    float t = BEAM_TIMES((float)rest, BEAM_RADIANS), square = BEAM_TIMES(t, t);
    float sine = BEAM_PLUS(BEAM_TIMES(square, 2.7557319e-6f), -1.9841270e-4f);
    float cosine = BEAM_PLUS(BEAM_TIMES(square, -2.7557319e-7f), 2.4801587e-5f);
    struct beam_complex out;

    sine = BEAM_PLUS(BEAM_TIMES(sine, square), 8.3333333e-3f);
    sine = BEAM_PLUS(BEAM_TIMES(sine, square), -1.6666667e-1f);
    sine = BEAM_PLUS(BEAM_TIMES(BEAM_TIMES(sine, square), t), t);
    cosine = BEAM_PLUS(BEAM_TIMES(cosine, square), -1.3888889e-3f);
    cosine = BEAM_PLUS(BEAM_TIMES(cosine, square), 4.1666667e-2f);
    cosine = BEAM_PLUS(BEAM_TIMES(cosine, square), -0.5f);
    cosine = BEAM_PLUS(BEAM_TIMES(cosine, square), 1.0f);
    out.re = quarter % 2 ? sine : cosine;
    out.im = quarter % 2 ? cosine : sine;
    out.re = quarter == 1 || quarter == 2 ? -out.re : out.re;
    out.im = quarter >= 2 ? -out.im : out.im;
    return out;
}

/* Returns the product a b.  Each product and each sum of parts is rounded separately. */
static inline struct beam_complex beam_multiply(struct beam_complex a, struct beam_complex b)
{
    struct beam_complex out;

    out.re = BEAM_PLUS(BEAM_TIMES(a.re, b.re), -BEAM_TIMES(a.im, b.im));
    out.im = BEAM_PLUS(BEAM_TIMES(a.re, b.im), BEAM_TIMES(a.im, b.re));
    return out;
}

#endif
