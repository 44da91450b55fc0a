/* beamform.cu - see beamform.h; the sums are those of beamform_tile.h.  A lane stores the 8 spectra that it has of a
 * beam by one store of 16 bytes.
 *
 * Blocks of the same voltages run side by side, so that they can share the voltages in the L2 cache.
 *
 * Constants: SAMPLE_BYTES, FLIP (of samples with an offset), N_WARPS, BLOCK_GROUPS, BLOCK_STEPS, N_TILES (blocks of a
 * channel), WIDE (sums of both slices need 64 bits). */
#include "kernels/beamform/beamform_tile.h"

#define BLOCKS_PER_SM (__CUDA_ARCH__ >= 1200 ? 3 : 4) /* there, 128 registers do not hold all */

/* v in a byte, clipped as beamform.h says. */
static __device__ __forceinline__ uint32_t quantise(float v, bool &clipped)
{
    clipped = clipped || !(fabsf(v) <= BEAMFORM_LIMIT);
    v = v == v ? v : 0.0f;
    return (uint32_t)__float2int_rn(fminf(fmaxf(v, -BEAMFORM_LIMIT), BEAMFORM_LIMIT)) & 0xffu;
}

/* Quantises and stores 8 spectra of a beam, from 's' of the batch on.  Returns how many samples were clipped. */
static __device__ __forceinline__ uint32_t finish(const struct beamform_args &args, uint32_t beam, uint32_t batch,
                                                  uint32_t s, const int (&sums)[2][4][4])
{
    const struct beam of = args.beams[beam];
    const uint32_t chan = chan_of();
    const float scale = beam_power_of_two(-args.exponents[(uint64_t)chan * args.n_beams + beam]);
    const float renormalise = args.renormalise ? args.renormalise[(uint64_t)batch * args.n_beams + beam] : 1.0f;
    const uint64_t spectrum = args.first_spectrum + (uint64_t)batch * args.n_spectra + s;
    const uint64_t at = (((uint64_t)batch * args.n_beams + beam) * args.n_chan + chan) * args.n_spectra + s;
    uint32_t words[4] = {0, 0, 0, 0}, n_clipped = 0;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t bits[4] = {0, 0, 0, 0};
        if (of.dither)
            beamform_dither(of.seed, args.chan_offset + chan, spectrum / 4 + half, bits);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float re = BEAM_TIMES(BEAM_TIMES(total_of(sums[0][j][half], sums[1][j][half]), scale), renormalise);
            float im = BEAM_TIMES(BEAM_TIMES(total_of(sums[0][j][2 + half], sums[1][j][2 + half]), scale), renormalise);
            bool clipped = false;
            if (of.dither) {
                re = BEAM_PLUS(re, philox_dither(bits[j], 0));
                im = BEAM_PLUS(im, philox_dither(bits[j], 1));
            }
            const uint32_t parts = quantise(re, clipped) | quantise(im, clipped) << 8;
            words[2 * half + j / 2] |= parts << (16 * (j % 2));
            n_clipped += clipped;
        }
    }
    *(uint4 *)(args.out + 2 * at) = make_uint4(words[0], words[1], words[2], words[3]);
    return n_clipped;
}

extern "C" __global__ void __launch_bounds__(N_THREADS, BLOCKS_PER_SM) beamform(const struct beamform_args args)
{
    const uint32_t n_pieces = (args.n_spectra + N_WARPS * WARP_SPECTRA - 1) / (N_WARPS * WARP_SPECTRA);
    const uint32_t batch = args.first_batch + blockIdx.y / n_pieces, lane = threadIdx.x % 32;
    const uint32_t begin = (blockIdx.y % n_pieces * N_WARPS + threadIdx.x / 32) * WARP_SPECTRA;
    int sums[BLOCK_GROUPS][2][4][4] = {};

    sum_antennas(args, batch, begin, sums);
#pragma unroll
    for (int g = 0; g < BLOCK_GROUPS; g++) {
        const uint32_t slot = (first_group() + g) * GROUP_BEAMS + lane / 4, s = begin + lane % 4 * 8;
        const uint32_t beam = slot < args.n_slots ? args.slots[slot] : BEAMFORM_NO_BEAM;
        uint32_t n_clipped = 0;
        if (beam != BEAMFORM_NO_BEAM && s < args.n_spectra)
            n_clipped = finish(args, beam, batch, s, sums[g]);
        n_clipped += __shfl_xor_sync(0xffffffffu, n_clipped, 1);
        n_clipped += __shfl_xor_sync(0xffffffffu, n_clipped, 2);
        if (lane % 4 == 0 && n_clipped > 0)
            atomicAdd(args.saturated + (uint64_t)batch * args.n_beams + beam, n_clipped);
    }
}
