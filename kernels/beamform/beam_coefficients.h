/* beam_coefficients - computes the factors that multiply each antenna's voltages, for each beam and channel, as 16-bit
 * integers.
 *   steering      [beam][model][ant]           phase, slope over channels, their rates, amplitude (weight times gain)
 *   starts        int64 [beam][model]          start times of the models, in rising order; the kernel uses the last
 *                                              model whose start is at most 'at', or model 0 if there is none
 *   beams         [beam]                       the kernel uses only the polarisation
 *   listed        uint32 [n_listed]            beams whose coefficients are computed; NULL: all
 *   calibration   float [ant][pol][chan][re, im]   NULL: all factors are 1
 *   coefficients  int16 [chan][beam][ant][re, im]
 *   exponents     int32 [chan][beam]
 *   fragments     the same coefficients for beamform's CUDA variant (beam_fragments.h); NULL: not written
 *   slot_of       uint32 [beam]                slot of each beam in 'fragments'
 *
 * Let c = amplitude * calibration * e^{2 pi j (phase + time * phase_rate + chan * (slope + time * slope_rate))} in
 * single precision (beam_phasor.h), with exact phases.  Then
 *     coefficient = c * 2^exponent, rounded half to even.
 * The exponent is the largest one for which no part of the beam's coefficients in the channel is above
 * BEAM_COEFFICIENT_MAX.  The exponent is at most BEAM_EXPONENT_MAX.  Each channel has its own exponent, so a wrong
 * calibration of one channel does not affect other channels.  Real and imaginary parts that are whole numbers stay
 * whole numbers if the largest part is at most 2^14 times the smallest part.
 *
 * Exactness: CUDA and the C version agree in every bit.  A part's error is at most 2^-15 of the channel's largest part.
 * Range:     amplitudes and parts of calibrations have magnitudes of at most 2^30.
 * Slices:    each part of a coefficient, and its negative, is 256 high + low with int8 'high' and 'low'.
 *            BEAM_COEFFICIENT_MAX ensures this.
 * Bound by:  arithmetic: with many beams a coefficient takes about 76 instructions, or about twice as many on the cpu
 *            device and for more than 768 antennas.  The caller launches the kernel after each change of the steering.
 *            For beams whose phases have rates, the caller also launches the kernel regularly as time passes. */
#ifndef KERNELS_BEAMFORM_BEAM_COEFFICIENTS_H
#define KERNELS_BEAMFORM_BEAM_COEFFICIENTS_H

#include "common/device/device.h"
#include "kernels/beamform/beam_fragments.h"
#include "kernels/beamform/beam_phasor.h"

#define BEAM_COEFFICIENT_MAX 32639 /* 256 * 127 + 127 */
#define BEAM_EXPONENT_MAX    100

struct beam_steering {
    uint64_t phase; /* phase at channel 0 of this slice of the band, in 2^-64 turns */
    uint64_t slope; /* phase difference between consecutive channels, in 2^-64 turns */
    float amplitude;
    uint32_t unused;
    uint64_t phase_rate; /* change of 'phase' per unit of time, in 2^-64 turns */
    uint64_t slope_rate;
};

/* A beam of one polarisation. */
struct beam {
    uint64_t seed; /* seed of the dither */
    uint32_t pol;
    uint32_t dither; /* 0: no dither */
};

struct beam_coefficients_args {
    const struct beam_steering *steering; /* shape [beam][model][ant] */
    const int64_t *starts;                /* shape [beam][model] */
    const struct beam *beams;             /* shape [beam] */
    const float *calibration;             /* shape [ant][pol][chan][re, im]; NULL: all factors are 1 */
    const uint32_t *listed;               /* shape [n_listed]; NULL: all beams */
    int16_t *coefficients;                /* shape [chan][beam][ant][re, im] */
    int32_t *exponents;                   /* shape [chan][beam] */
    int8_t *fragments;                    /* shape: see beam_fragments.h; NULL: not written */
    const uint32_t *slot_of;              /* shape [beam] */
    /* time at which the steering is evaluated, in the units of the rates; negative times modulo 2^64 */
    uint64_t time;
    int64_t at; /* time that selects the model, in the units of 'starts' */
    uint32_t n_models;
    uint32_t n_listed;
    uint32_t n_beams;
    uint32_t n_slots;
    uint32_t n_ants;
    uint32_t n_chan;
};

/* Returns the number of beams whose coefficients are computed.  beam_coefficients_beam() returns the i-th of these
 * beams. */
static inline uint32_t beam_coefficients_n(const struct beam_coefficients_args *args)
{
    return args->listed ? args->n_listed : args->n_beams;
}

static inline uint32_t beam_coefficients_beam(const struct beam_coefficients_args *args, uint32_t i)
{
    return args->listed ? args->listed[i] : i;
}

/* Finds the beam's model for time args->at.  Returns the model's steering, [ant]. */
static inline const struct beam_steering *beam_coefficients_model(const struct beam_coefficients_args *args,
                                                                  uint32_t beam)
{
    uint64_t row = (uint64_t)beam * args->n_models, model = row;

    for (uint32_t m = 1; m < args->n_models; m++)
        model = args->starts[row + m] <= args->at ? row + m : model;
    return args->steering + model * args->n_ants;
}

/* Phase, phase slope over channels, and amplitude of an antenna at args->time. */
struct beam_steered {
    uint64_t phase, slope;
    float amplitude;
};

static inline struct beam_steered beam_steer(const struct beam_coefficients_args *args, const struct beam_steering *s)
{
    struct beam_steered steered;

    steered.phase = s->phase + args->time * s->phase_rate;
    steered.slope = s->slope + args->time * s->slope_rate;
    steered.amplitude = s->amplitude;
    return steered;
}

/* Returns the coefficient of an antenna before scaling. */
static inline struct beam_complex beam_coefficient(const struct beam_coefficients_args *args,
                                                   const struct beam_steered *s, uint32_t beam, uint32_t ant,
                                                   uint32_t chan)
{
    const struct beam_complex phasor = beam_phasor(s->phase + chan * s->slope);

    if (!args->calibration)
        return beam_scale(phasor, s->amplitude);
    const float *at = args->calibration + (((uint64_t)ant * 2 + args->beams[beam].pol) * args->n_chan + chan) * 2;
    const struct beam_complex calibration = {at[0], at[1]};
    return beam_multiply(beam_scale(calibration, s->amplitude), phasor);
}

/* Returns the exponent of coefficients whose largest part is 'most' (>= 0). */
static inline int32_t beam_exponent(float most)
{
    union {
        float value;
        uint32_t bits;
    } scaled;
    int32_t exponent;

    scaled.value = most;
    exponent = 141 - (int32_t)(scaled.bits >> 23); /* 2^14 <= 'most' * 2^exponent < 2^15 */
    scaled.bits = (scaled.bits & 0x7fffffu) | (141u << 23);
    exponent -= scaled.value > (float)BEAM_COEFFICIENT_MAX;
    return exponent < BEAM_EXPONENT_MAX ? exponent : BEAM_EXPONENT_MAX;
}

/* Returns 2^exponent, for exponents from -126 to 127. */
static inline float beam_power_of_two(int32_t exponent)
{
    union {
        uint32_t bits;
        float value;
    } power;

    power.bits = (uint32_t)(exponent + 127) << 23;
    return power.value;
}

extern const struct kernel beam_coefficients_kernel;

/* Sizes of a launch of the CUDA variant. */
#define BEAM_COEFFICIENTS_WARPS        8 /* warps of a block; each warp computes one channel */
#define BEAM_COEFFICIENTS_ROUNDS       6 /* number of steps that each lane processes in a part */
#define BEAM_COEFFICIENTS_SHARED_BYTES (BEAM_COEFFICIENTS_ROUNDS * 128 * (20 + 8 * BEAM_COEFFICIENTS_WARPS))

/* Returns 'spread', the number of steps of a beam that a warp processes at a time: 1, 2, 4 or 8.  A warp computes 8 /
 * spread beams. */
static inline uint32_t beam_coefficients_spread(const struct beam_coefficients_args *args)
{
    uint32_t n_steps = beam_fragments_steps(args->n_ants),
             spread = n_steps > 1 && beam_coefficients_n(args) <= 4 ? 2 : 1;

    while (spread < 8 && spread * BEAM_COEFFICIENTS_ROUNDS < n_steps)
        spread *= 2;
    return spread;
}

/* Returns the number of units.  A unit has up to 8 / spread beams.  A block computes one unit. */
static inline uint32_t beam_coefficients_units(const struct beam_coefficients_args *args)
{
    uint32_t unit_beams = 8 / beam_coefficients_spread(args);

    return (beam_coefficients_n(args) + unit_beams - 1) / unit_beams;
}

struct kernel_grid beam_coefficients_grid(const struct beam_coefficients_args *args);

#endif
