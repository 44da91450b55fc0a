/* beamform.cu - see beamform.h.
 *
 * A block has N_THREADS spectra of one channel and batch, and THREAD_BEAMS beams; a thread has a spectrum, whose voltages
 * it reads once for these beams.  The coefficients of BLOCK_ANTS antennas at a time lie in shared memory.  Sums of a
 * block of antennas fit 32 bits.
 *
 * Constants: SAMPLE_BYTES, FLIP (of samples with an offset), N_THREADS, THREAD_BEAMS, BLOCK_ANTS. */
#include "kernels/beamform/beamform.h"

struct pair {
    int re, im;
};

/* Both polarisations' samples of an antenna and spectrum. */
static __device__ __forceinline__ void load(const uint8_t *at, struct pair (&samples)[2])
{
    if (SAMPLE_BYTES == 2) {
        const char4 bytes = *(const char4 *)at;
        samples[0].re = bytes.x;
        samples[0].im = bytes.y;
        samples[1].re = bytes.z;
        samples[1].im = bytes.w;
    } else {
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            const uint32_t byte = (uint32_t)(at[pol] ^ FLIP) << 24;
            samples[pol].re = (int)byte >> 28;
            samples[pol].im = (int)(byte << 4) >> 28;
        }
    }
}

/* v in an int8, clipped as beamform.h says. */
static __device__ __forceinline__ signed char quantise(float v, bool &clipped)
{
    clipped = clipped || !(fabsf(v) <= BEAMFORM_LIMIT);
    v = v == v ? v : 0.0f;
    return (signed char)__float2int_rn(fminf(fmaxf(v, -BEAMFORM_LIMIT), BEAMFORM_LIMIT));
}

/* Quantises a sample of a beam.  Returns whether it was clipped. */
static __device__ __forceinline__ bool finish(const struct beamform_args &args, uint32_t beam, uint32_t chan,
                                              uint32_t batch, uint32_t s, int64_t re, int64_t im)
{
    const struct beam of = args.beams[beam];
    const float scale = beam_power_of_two(-args.exponents[(uint64_t)chan * args.n_beams + beam]);
    struct beam_complex v = beamform_scale(re, im, scale, args.renormalise ? args.renormalise[batch] : 1.0f);
    const uint64_t spectrum = args.first_spectrum + (uint64_t)batch * args.n_spectra + s;
    const uint64_t at = (((uint64_t)batch * args.n_beams + beam) * args.n_chan + chan) * args.n_spectra + s;
    bool clipped = false;

    if (of.dither) {
        uint32_t bits[4];
        beamform_dither(of.seed, args.chan_offset + chan, spectrum / 4, bits);
        const uint32_t mine = bits[spectrum % 4];
        v.re = BEAM_PLUS(v.re, philox_dither(mine, 0));
        v.im = BEAM_PLUS(v.im, philox_dither(mine, 1));
    }
    const char2 parts = make_char2(quantise(v.re, clipped), quantise(v.im, clipped));
    ((char2 *)args.out)[at] = parts;
    return clipped;
}

extern "C" __global__ void __launch_bounds__(N_THREADS) beamform(const struct beamform_args args)
{
    extern __shared__ float4 shared_memory[];
    short2(*coefficients)[BLOCK_ANTS] = (short2(*)[BLOCK_ANTS])shared_memory; /* [THREAD_BEAMS] */
    const uint32_t n_pieces = (args.n_spectra + N_THREADS - 1) / N_THREADS, chan = blockIdx.x;
    const uint32_t batch = args.first_batch + blockIdx.y / n_pieces;
    const uint32_t s = blockIdx.y % n_pieces * N_THREADS + threadIdx.x;
    const uint32_t first_beam = blockIdx.z * THREAD_BEAMS,
                   n_beams = min(args.n_beams - first_beam, (uint32_t)THREAD_BEAMS);
    const uint64_t ant_bytes = (uint64_t)args.n_chan * args.n_spectra * 2 * SAMPLE_BYTES;
    const uint8_t *in = (const uint8_t *)args.voltages + batch * args.n_ants * ant_bytes +
                        ((uint64_t)chan * args.n_spectra + min(s, args.n_spectra - 1)) * 2 * SAMPLE_BYTES;
    int64_t re[THREAD_BEAMS] = {0}, im[THREAD_BEAMS] = {0};
    uint32_t pols[THREAD_BEAMS];

#pragma unroll
    for (int b = 0; b < THREAD_BEAMS; b++)
        pols[b] = args.beams[min(first_beam + b, args.n_beams - 1)].pol;
    for (uint32_t first = 0; first < args.n_ants; first += BLOCK_ANTS) {
        const uint32_t n_ants = min(args.n_ants - first, (uint32_t)BLOCK_ANTS);
        int block_re[THREAD_BEAMS] = {0}, block_im[THREAD_BEAMS] = {0};
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n_beams * n_ants; i += N_THREADS) {
            const uint64_t row = (uint64_t)chan * args.n_beams + first_beam + i / n_ants;
            coefficients[i / n_ants][i % n_ants] =
                ((const short2 *)args.coefficients)[row * args.n_ants + first + i % n_ants];
        }
        __syncthreads();
        for (uint32_t ant = 0; ant < n_ants; ant++) {
            struct pair samples[2];
            load(in + (first + ant) * ant_bytes, samples);
#pragma unroll
            for (int b = 0; b < THREAD_BEAMS; b++) {
                if (b >= (int)n_beams)
                    break;
                const short2 c = coefficients[b][ant];
                const struct pair v = pols[b] ? samples[1] : samples[0];
                block_re[b] += c.x * v.re - c.y * v.im;
                block_im[b] += c.x * v.im + c.y * v.re;
            }
        }
#pragma unroll
        for (int b = 0; b < THREAD_BEAMS; b++) {
            re[b] += block_re[b];
            im[b] += block_im[b];
        }
    }
#pragma unroll
    for (int b = 0; b < THREAD_BEAMS; b++) {
        const bool mine = b < (int)n_beams && s < args.n_spectra;
        const bool clipped = mine && finish(args, first_beam + b, chan, batch, s, re[b], im[b]);
        const uint32_t n_clipped = __popc(__ballot_sync(0xffffffffu, clipped));
        if (threadIdx.x % 32 == 0 && n_clipped > 0)
            atomicAdd(args.saturated + (uint64_t)batch * args.n_beams + first_beam + b, n_clipped);
    }
}
