/* beam_phasor.h - cosine and sine of a phase, with the same bits on every device.
 *
 * A phase is a fraction of a turn, multiplied by 2^64, so that sums of phases wrap without rounding.  beam_phasor()
 * subtracts the nearest quarter turn.  Polynomials of t^7 and t^8 give sine and cosine of the remaining angle t in
 * [-pi/4, pi/4].  Their coefficients minimise the largest error (S. L. Moshier, Cephes Mathematical Library, sinf.c).
 * Exactness: quarter turns are exact.  Otherwise the error of each part is below 2^-23: t is rounded once.  Each
 *            product and each sum is rounded separately.  The CUDA compiler does not contract the intrinsics that this
 *            file uses, and C is compiled without contraction.
 *
 * CUDA kernels also include this file. */
#ifndef KERNELS_BEAMFORM_BEAM_PHASOR_H
#define KERNELS_BEAMFORM_BEAM_PHASOR_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDA_ARCH__
#define BEAM_TIMES(a, b) __fmul_rn(a, b)
#define BEAM_PLUS(a, b)  __fadd_rn(a, b)
#else
#define BEAM_TIMES(a, b) ((a) * (b))
#define BEAM_PLUS(a, b)  ((a) + (b))
#endif

#define BEAM_RADIANS 3.65729519816789920262e-10f /* radians in 2^-34 turns: 2 pi / 2^34 */

struct beam_complex {
    float re, im;
};

/* Returns 'x', with the opposite sign if the last bit of 'bits' is set. */
static inline float beam_flip(float x, uint32_t bits)
{
    union {
        float value;
        uint32_t bits;
    } flipped = {x};

    flipped.bits ^= bits & 0x80000000u;
    return flipped.value;
}

static inline struct beam_complex beam_phasor(uint64_t turns)
{
    /* bits 30 and 31 are the number of the nearest quarter turn */
    const uint32_t high = (uint32_t)(turns >> 32), nearest = high + 0x20000000u;
    /* distance from this quarter turn, in 2^-34 turns */
    const int32_t rest = (int32_t)(high << 2);
    float t = BEAM_TIMES((float)rest, BEAM_RADIANS), square = BEAM_TIMES(t, t);
    float sine = BEAM_PLUS(BEAM_TIMES(square, -1.9515295891e-4f), 8.3321608736e-3f);
    float cosine = BEAM_PLUS(BEAM_TIMES(square, 2.443315711809948e-5f), -1.388731625493765e-3f);
    const bool is_odd = nearest & 0x40000000u;

    sine = BEAM_PLUS(BEAM_TIMES(sine, square), -1.6666654611e-1f);
    sine = BEAM_PLUS(BEAM_TIMES(BEAM_TIMES(sine, square), t), t);
    cosine = BEAM_PLUS(BEAM_TIMES(cosine, square), 4.166664568298827e-2f);
    cosine = BEAM_PLUS(BEAM_TIMES(cosine, square), -0.5f);
    cosine = BEAM_PLUS(BEAM_TIMES(cosine, square), 1.0f);
    const struct beam_complex out = {beam_flip(is_odd ? sine : cosine, nearest + 0x40000000u),
                                     beam_flip(is_odd ? cosine : sine, nearest)};
    return out;
}

static inline struct beam_complex beam_scale(struct beam_complex a, float factor)
{
    const struct beam_complex out = {BEAM_TIMES(a.re, factor), BEAM_TIMES(a.im, factor)};

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
