/* beamform_tile.h - see beamform.cu and beam_detect.cu, which include it: the exact sums over the antennas.
 *
 * The sums are matrix products of bytes on tensor cores (mma.m16n8k32).  A product has the coefficients of 8 beams of one
 * polarisation as rows, real parts before imaginary ones; 16 antennas of two parts each as its inner axis; 8 spectra as
 * columns.  A coefficient is 256 high + low, so there are two products, of which each sum fits 32 bits.
 *     row of a real part:      re, -im of each antenna           row of an imaginary part: im, re
 *     column of a spectrum:    re, im of each antenna's voltage
 *
 * A warp has 32 spectra of one channel and batch for BLOCK_GROUPS groups of 8 beams.  Lane l loads 4 spectra from 4 l / 4 on
 * of 4 of the 16 antennas at a time, 16 bytes each (8 with 4 bits).  Product j of 4 has the spectra 4 n + j as its
 * columns n.  So words of two antennas make an operand by one byte permutation for each polarisation, and a lane ends with 8
 * consecutive spectra of one beam, both parts.
 * The coefficients lie in shared memory in the order in which lanes take them, of BLOCK_STEPS * 16 antennas at a time.
 * Voltages of 4 bits are multiplied as 16 times their value (beamform_load.h). */
#ifndef KERNELS_BEAMFORM_BEAMFORM_TILE_H
#define KERNELS_BEAMFORM_BEAMFORM_TILE_H

#include "kernels/beamform/beamform.h"
#include "kernels/beamform/beamform_load.h"
#include "kernels/util/ptx.h"

#define STEP_ANTS    16
#define LANE_ANTS    4 /* of a step */
#define GROUP_BEAMS  BEAMFORM_GROUP_BEAMS
#define WARP_SPECTRA 32
#define N_THREADS    (32 * N_WARPS)

#if WIDE
typedef int64_t total;
#else
typedef int total;
#endif

/* Four spectra of both polarisations of the lane's antennas of a step: words of re, im, re, im. */
struct voltages {
    uint32_t words[LANE_ANTS][4];
};

/* Coefficients of a lane: [step][group][high, low]. */
struct fragments {
    uint4 of[BLOCK_STEPS][BLOCK_GROUPS][2][32];
};

/* A block makes BLOCK_GROUPS groups of beams of one channel. */
static __device__ __forceinline__ uint32_t first_group(void)
{
    return blockIdx.x % N_TILES * BLOCK_GROUPS;
}

static __device__ __forceinline__ uint32_t chan_of(void)
{
    return blockIdx.x / N_TILES;
}

/* Antenna i of a lane's four. */
static __device__ __forceinline__ uint32_t ant_of(uint32_t step, int i)
{
    return step * STEP_ANTS + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
}

static __device__ __forceinline__ void load(const struct beamform_args &args, const uint8_t *in, uint64_t ant_bytes,
                                            uint32_t step, struct voltages &v)
{
#pragma unroll
    for (int i = 0; i < LANE_ANTS; i++)
        load_spectra(in + min(ant_of(step, i), args.n_ants - 1) * ant_bytes, v.words[i]);
}

/* The coefficient of a beam and antenna; 0 where there is none. */
static __device__ __forceinline__ short2 coefficient_of(const struct beamform_args &args, uint32_t beam, uint32_t ant)
{
    if (beam == BEAMFORM_NO_BEAM || ant >= args.n_ants)
        return make_short2(0, 0);
    return ((const short2 *)args.coefficients)[((uint64_t)chan_of() * args.n_beams + beam) * args.n_ants + ant];
}

/* Slices of four numbers: the low bytes into 'low', and what is left into 'high'. */
static __device__ __forceinline__ void slice(int a, int b, int c, int d, uint32_t &high, uint32_t &low)
{
    const int all[4] = {a, b, c, d};

    high = low = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        high |= ((uint32_t)((all[i] + 128) >> 8) & 0xffu) << (8 * i);
        low |= ((uint32_t)all[i] & 0xffu) << (8 * i);
    }
}

/* Puts the coefficients of steps [first, first + n) into shared memory. */
static __device__ __forceinline__ void load_fragments(const struct beamform_args &args, uint32_t first, uint32_t n,
                                                      struct fragments *fragments)
{
    for (uint32_t i = threadIdx.x; i < n * BLOCK_GROUPS * 32; i += N_THREADS) {
        const uint32_t lane = i % 32, group = i / 32 % BLOCK_GROUPS, step = i / 32 / BLOCK_GROUPS;
        const uint32_t slot = (first_group() + group) * GROUP_BEAMS + lane / 4;
        const uint32_t beam = slot < args.n_slots ? args.slots[slot] : BEAMFORM_NO_BEAM;
        uint32_t high[4], low[4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t ant = (first + step) * STEP_ANTS + half * 8 + lane % 4 * 2;
            const short2 c = coefficient_of(args, beam, ant), d = coefficient_of(args, beam, ant + 1);
            slice(c.x, -c.y, d.x, -d.y, high[2 * half], low[2 * half]);
            slice(c.y, c.x, d.y, d.x, high[2 * half + 1], low[2 * half + 1]);
        }
        fragments->of[step][group][0][lane] = make_uint4(high[0], high[1], high[2], high[3]);
        fragments->of[step][group][1][lane] = make_uint4(low[0], low[1], low[2], low[3]);
    }
}

/* Adds a step of antennas to the sums [group][high, low][j]. */
static __device__ __forceinline__ void multiply(const struct voltages &v, const uint4 (&fragments)[BLOCK_GROUPS][2][32],
                                                const uint32_t (&pols)[BLOCK_GROUPS],
                                                int (&sums)[BLOCK_GROUPS][2][4][4])
{
#pragma unroll
    for (int g = 0; g < BLOCK_GROUPS; g++) {
        const uint32_t selector = pols[g] ? 0x7632 : 0x5410;
        uint32_t a[2][4];
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const uint4 f = fragments[g][part][threadIdx.x % 32];
            a[part][0] = f.x;
            a[part][1] = f.y;
            a[part][2] = f.z;
            a[part][3] = f.w;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t b0 = __byte_perm(v.words[0][j], v.words[1][j], selector);
            const uint32_t b1 = __byte_perm(v.words[2][j], v.words[3][j], selector);
            multiply_add(sums[g][0][j], a[0], b0, b1);
            multiply_add(sums[g][1][j], a[1], b0, b1);
        }
    }
}

static __device__ __forceinline__ float total_of(int high, int low)
{
    return (float)((((total)high << 8) + low) >> VOLTAGE_SHIFT);
}

/* Sums all antennas: 32 spectra of a channel and batch, from 'begin' on, for the groups of the block. */
static __device__ __forceinline__ void sum_antennas(const struct beamform_args &args, uint32_t batch, uint32_t begin,
                                                    int (&sums)[BLOCK_GROUPS][2][4][4])
{
    extern __shared__ float4 shared_memory[];
    struct fragments *fragments = (struct fragments *)shared_memory;
    const uint32_t n_steps = (args.n_ants + STEP_ANTS - 1) / STEP_ANTS;
    const uint64_t ant_bytes = (uint64_t)args.n_chan * args.n_spectra * 2 * SAMPLE_BYTES;
    const uint32_t first_spectrum = min(begin + threadIdx.x % 32 / 4 * 4, args.n_spectra - 4);
    const uint8_t *in = (const uint8_t *)args.voltages + batch * args.n_ants * ant_bytes +
                        ((uint64_t)chan_of() * args.n_spectra + first_spectrum) * 2 * SAMPLE_BYTES;
    uint32_t pols[BLOCK_GROUPS];

#pragma unroll
    for (int g = 0; g < BLOCK_GROUPS; g++) {
        const uint32_t slot = (first_group() + g) * GROUP_BEAMS;
        pols[g] = slot < args.n_slots ? args.beams[args.slots[slot]].pol : 0;
    }
    for (uint32_t first = 0; first < n_steps; first += BLOCK_STEPS) {
        const uint32_t n = min(n_steps - first, (uint32_t)BLOCK_STEPS);
        struct voltages now, next;
        load(args, in, ant_bytes, first, now);
        __syncthreads();
        load_fragments(args, first, n, fragments);
        __syncthreads();
#pragma unroll 1
        for (uint32_t step = 0; step < n; step++) {
            if (step + 1 < n)
                load(args, in, ant_bytes, first + step + 1, next);
            multiply(now, fragments->of[step], pols, sums);
            now = next;
        }
    }
}

#endif
