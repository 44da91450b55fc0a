/* checksum.cu - see checksum.h.
 *
 * A block processes a slice of the antennas of one channel, for a part of the launch's spectra.  The block processes
 * its part in steps.  In a step each warp loads its antennas.  A lane loads 8 bytes of each antenna: 1, 2 or 4 spectra
 * that no other lane loads.  The lane keeps these bytes in registers and adds them to S in shared memory.  The lane
 * also adds the antennas of other slices to S, but does not keep these antennas.  After a barrier every lane reads S
 * for its own spectra, and multiplies its kept bytes by S.  Each lane sums its products to the end of the part.  Then
 * the lanes exchange sums until each lane has one sum over all lanes.  All these exchanges take 31 shuffles, instead of
 * 5 shuffles for each sum.
 *
 * Integers: S has three buffers, which the steps use in rotation.  When the barrier opens, all warps have read the
 * buffer of the previous step.  This buffer is then cleared for the step after the next.  So a step has only one
 * barrier.  If both parts of S fit in 16 bits, they are added as re + 2^16 im.  Half floats: shared memory has no
 * addition of floats.  Each warp writes its sums, and after a barrier a few warps add these sums.  A second barrier
 * opens when S is complete.
 *
 * A multiprocessor runs two blocks of 16 warps, so that one block multiplies while the other loads.  This allows 64
 * registers a thread.
 *
 * 4-bit integers become bytes that are 16 times as large.  Sums are divided by 256 at the end, without a remainder.
 * __dp2a_lo() and __dp2a_hi() multiply 16 bits of S with bytes.  With 128 antennas or more, S does not fit in 16
 * bits.  Then S is low + 2^15 high, and both terms are multiplied separately.
 *
 * Constants: see checksum_constants(). */
#include "kernels/correlate/checksum.h"

#define FULL_WARP      0xffffffffu
#define HALVES         (BITS == 16)
#define NIBBLES        (BITS == 4)
#define SPECTRUM_BYTES (HALVES ? 8 : NIBBLES ? 2 : 4) /* bytes of one spectrum of an antenna */
#define LOAD_SPECTRA   (8 / SPECTRUM_BYTES)
#define STEP_SPECTRA   (32 * LOAD_SPECTRA)
#define ZERO_VOLTAGES  (NIBBLES && OFFSET ? 0x88888888u : 0u) /* voltages of 0 */
/* number of parts of each value of S, and of each row: re and im; for half floats also a magnitude */
#define N_PARTS        (HALVES ? 3 : 2)
#define N_VALUES       (LOAD_SPECTRA * N_PARTS)
#define N_TERMS        (!HALVES && N_ANTS > 127 ? 2 : 1)
#define PACKED         (!HALVES && N_TERMS == 1)
/* number of words in shared memory that hold a lane's values of S */
#define N_PLACES       (PACKED ? LOAD_SPECTRA : N_VALUES)
#define BLOCKS_WANTED  (N_TERMS == 1 ? 2 : 1)

#if HALVES
typedef float partial;
typedef double total;
#else
typedef int partial;
typedef long long total;
#endif

/* S, as numbers of type 'partial': [step % 3][N_PLACES][lane].  With half floats: [sum of all warps, then each
 * warp][N_PLACES][lane]. */
extern __shared__ float4 shared_memory[];

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

/* Converts a complex number of two half floats. */
static __device__ __forceinline__ void from_halves(uint32_t halves, float &re, float &im)
{
#ifdef EMULATE_CUDA
    re = emulate_half(halves, 0);
    im = emulate_half(halves, 1);
#else
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
        : "=f"(re), "=f"(im)
        : "r"(halves));
#endif
}

/* Returns spectrum 'i' of the integers that a lane has loaded, as four bytes: re, im of polarisation 0, then re, im
 * of polarisation 1. */
static __device__ __forceinline__ uint32_t bytes_of(uint2 load, int i)
{
#if NIBBLES
    uint32_t bits = (i / 2 ? load.y : load.x) ^ (OFFSET ? 0x88888888u : 0u);
    return __byte_perm(bits & 0xf0f0f0f0u, bits << 4 & 0xf0f0f0f0u, i % 2 ? 0x7362 : 0x5140);
#else
    return i ? load.y : load.x;
#endif
}

/* Adds the voltages that a lane has loaded to its values of S: [spectrum][part]. */
static __device__ __forceinline__ void add_load(uint2 load, partial (&values)[N_VALUES])
{
#if HALVES
    float re0, im0, re1, im1;
    from_halves(load.x, re0, im0);
    from_halves(load.y, re1, im1);
    values[0] += re0 + re1;
    values[1] += im0 + im1;
    values[2] += (fabsf(re0) + fabsf(im0)) + (fabsf(re1) + fabsf(im1));
#else
#pragma unroll
    for (int i = 0; i < LOAD_SPECTRA; i++) {
        values[2 * i] = __dp4a((int)bytes_of(load, i), 0x00010001, values[2 * i]);
        values[2 * i + 1] = __dp4a((int)bytes_of(load, i), 0x01000100, values[2 * i + 1]);
    }
#endif
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* A lane's sums for one antenna, over the lane's spectra. */
struct sums {
    partial of[N_TERMS][2][N_PARTS]; /* indices [term][pol] */
};

#if HALVES
static __device__ __forceinline__ void multiply(uint2 load, const partial (&s)[N_VALUES], struct sums &sums)
{
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        float re, im;
        from_halves(pol ? load.y : load.x, re, im);
        sums.of[0][pol][0] += re * s[0] + im * s[1];
        sums.of[0][pol][1] += im * s[0] - re * s[1];
        sums.of[0][pol][2] += (fabsf(re) + fabsf(im)) * s[2];
    }
}
#else
/* A part of S is low + 2^15 high.  Returns 'low' for term 0, and 'high' for term 1.  With N_TERMS = 1, 'low' is the
 * whole part.  The result and its negative fit in 16 bits. */
static __device__ __forceinline__ int term_of(int value, int term)
{
    int high = (value + 16384) >> 15;

    return N_TERMS == 1 ? value : term ? high : value - high * 32768;
}

static __device__ __forceinline__ int pack(int low, int high)
{
    return (int)__byte_perm((uint32_t)low, (uint32_t)high, 0x5410);
}

static __device__ __forceinline__ void multiply(uint2 load, const partial (&s)[N_VALUES], struct sums &sums)
{
#pragma unroll
    for (int i = 0; i < LOAD_SPECTRA; i++)
#pragma unroll
        for (int term = 0; term < N_TERMS; term++) {
            const int e = (int)bytes_of(load, i), re = term_of(s[2 * i], term), im = term_of(s[2 * i + 1], term);
            const int plain = pack(re, im), turned = pack(-im, re);
            sums.of[term][0][0] = __dp2a_lo(plain, e, sums.of[term][0][0]);
            sums.of[term][0][1] = __dp2a_lo(turned, e, sums.of[term][0][1]);
            sums.of[term][1][0] = __dp2a_hi(plain, e, sums.of[term][1][0]);
            sums.of[term][1][1] = __dp2a_hi(turned, e, sums.of[term][1][1]);
        }
}
#endif

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

#if N_TERMS == 1
typedef partial lane_sum;
#else
typedef total lane_sum;
#endif

#define ANT_SUMS (2 * N_PARTS)
static_assert(WARP_ANTS * ANT_SUMS <= 32, "each lane can have only one of the warp's sums");

/* Returns sum 'i' of a lane: [antenna of the warp][pol][part]. */
static __device__ __forceinline__ lane_sum find_sum(const struct sums (&sums)[WARP_ANTS], int i)
{
    if (i >= WARP_ANTS * ANT_SUMS)
        return 0;
    lane_sum sum = sums[i / ANT_SUMS].of[0][i / N_PARTS % 2][i % N_PARTS];
#if N_TERMS > 1
    sum += (total)sums[i / ANT_SUMS].of[N_TERMS - 1][i / N_PARTS % 2][i % N_PARTS] * 32768;
#endif
    return sum;
}

/* Two lanes with 2 * HALF sums each exchange HALF sums.  Afterwards each lane has a different half of the sums, added
 * up over both lanes. */
template <int HALF> static __device__ __forceinline__ void halve(total (&kept)[16])
{
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const bool upper = threadIdx.x & HALF;
        const total own = upper ? kept[i + HALF] : kept[i], others = upper ? kept[i] : kept[i + HALF];
        kept[i] = own + __shfl_xor_sync(FULL_WARP, others, HALF);
    }
}

/* Computes the total of each sum over all lanes.  Lane i returns the total of sum i. */
static __device__ __forceinline__ total sum_of_lanes(const struct sums (&sums)[WARP_ANTS])
{
    total kept[16];

#pragma unroll
    for (int i = 0; i < 16; i++) {
        const lane_sum low = find_sum(sums, i), high = find_sum(sums, i + 16);
        const bool upper = threadIdx.x & 16;
        const lane_sum own = upper ? high : low, others = upper ? low : high;
        kept[i] = (total)own + (total)__shfl_xor_sync(FULL_WARP, others, 16);
    }
    halve<8>(kept);
    halve<4>(kept);
    halve<2>(kept);
    halve<1>(kept);
    return kept[0];
}

/* Adds the sums of all lanes to the rows of the warp's antennas. */
static __device__ __forceinline__ void add_to_rows(const struct sums (&sums)[WARP_ANTS], uint32_t first_ant,
                                                   uint32_t end_ant, total *rows)
{
    const uint32_t lane = threadIdx.x % 32, ant = first_ant + lane / ANT_SUMS * N_WARPS;
    total sum = sum_of_lanes(sums);

    if (lane >= WARP_ANTS * ANT_SUMS || ant >= end_ant)
        return;
#if NIBBLES
    sum >>= 8;
#endif
#if HALVES
    atomicAdd(rows + ant * ANT_SUMS + lane % ANT_SUMS, sum);
#else
    atomicAdd((unsigned long long *)rows + ant * ANT_SUMS + lane % ANT_SUMS, (unsigned long long)sum);
#endif
}

/* ---- S of a step, in shared memory ------------------------------------------------------------------------------- */

#if HALVES
static __device__ __forceinline__ void clear_places(void)
{
}

/* Replaces a lane's values by the sum over all warps' values of the same lane. */
static __device__ __forceinline__ void add_warps(uint32_t, partial (&values)[N_VALUES])
{
    partial(*const shared)[N_PLACES * 32] = (partial(*)[N_PLACES * 32]) shared_memory;
    const uint32_t lane = threadIdx.x % 32;

#pragma unroll
    for (int v = 0; v < N_VALUES; v++)
        shared[1 + threadIdx.x / 32][v * 32 + lane] = values[v];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < N_PLACES * 32; i += 32 * N_WARPS) {
        partial sum = 0;
#pragma unroll
        for (int warp = 0; warp < N_WARPS; warp++)
            sum += shared[1 + warp][i];
        shared[0][i] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < N_VALUES; v++)
        values[v] = shared[0][v * 32 + lane];
}
#else
static __device__ __forceinline__ void clear_places(void)
{
    for (uint32_t i = threadIdx.x; i < 3 * N_PLACES * 32; i += 32 * N_WARPS)
        ((partial *)shared_memory)[i] = 0;
    __syncthreads();
}

static __device__ __forceinline__ void add_warps(uint32_t step, partial (&values)[N_VALUES])
{
    partial(*const shared)[N_PLACES][32] = (partial(*)[N_PLACES][32])shared_memory;
    const uint32_t lane = threadIdx.x % 32;

#pragma unroll
    for (int i = 0; i < N_PLACES; i++)
        atomicAdd(&shared[step % 3][i][lane], PACKED ? values[2 * i] + values[2 * i + 1] * 65536 : values[i]);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < N_PLACES * 32; i += 32 * N_WARPS)
        ((partial *)shared[(step + 2) % 3])[i] = 0;
#pragma unroll
    for (int i = 0; i < N_PLACES; i++) {
        const int sum = shared[step % 3][i][lane];
        if (PACKED) {
            values[2 * i] = (short)sum;
            values[2 * i + 1] = (sum - (short)sum) >> 16;
        } else {
            values[i] = sum;
        }
    }
}
#endif

/* ---- A block ----------------------------------------------------------------------------------------------------- */

/* Address of the bytes that a lane loads for antenna 0 in one step. */
struct place {
    const uint8_t *at; /* NULL if the bytes are beyond the end of the spectra */
    uint64_t ant_bytes;
};

static __device__ __forceinline__ struct place find_place(const struct checksum_args &args, uint32_t chan,
                                                          uint32_t step)
{
    const uint64_t t = (uint64_t)step * STEP_SPECTRA + threadIdx.x % 32 * LOAD_SPECTRA;
    const uint64_t batch = args.first_batch + t / N_SPECTRA, chan_bytes = (uint64_t)N_SPECTRA * SPECTRUM_BYTES;
    struct place place;

    place.ant_bytes = args.n_chan * chan_bytes;
    place.at = t < (uint64_t)args.n_batches * N_SPECTRA
                   ? (const uint8_t *)args.voltages + batch * N_ANTS * place.ant_bytes + chan * chan_bytes +
                         t % N_SPECTRA * SPECTRUM_BYTES
                   : NULL;
    return place;
}

static __device__ __forceinline__ uint2 load(const struct place &place, uint32_t ant, bool is_there)
{
    return is_there && place.at ? __ldg((const uint2 *)(place.at + ant * place.ant_bytes))
                                : make_uint2(ZERO_VOLTAGES, ZERO_VOLTAGES);
}

/* Adds the antennas of other slices to S.  The block needs these antennas only for S. */
static __device__ __forceinline__ void add_others(const struct place &place, uint32_t slice,
                                                  partial (&values)[N_VALUES])
{
#if N_SLICES > 1
    for (uint32_t ant = threadIdx.x / 32; ant < N_ANTS; ant += N_WARPS)
        if (ant / SLICE_ANTS != slice)
            add_load(load(place, ant, true), values);
#endif
}

extern "C" __global__ void __launch_bounds__(32 * N_WARPS, BLOCKS_WANTED) checksum(const struct checksum_args args)
{
    const uint32_t slice = blockIdx.x % N_SLICES, chan = blockIdx.x / N_SLICES % args.n_chan;
    const uint32_t part = blockIdx.x / N_SLICES / args.n_chan, n_parts = gridDim.x / N_SLICES / args.n_chan;
    const uint32_t first_ant = slice * SLICE_ANTS + threadIdx.x / 32;
    const uint32_t end_ant = min((slice + 1) * SLICE_ANTS, (uint32_t)N_ANTS);
    const uint32_t n_steps = (uint32_t)(((uint64_t)args.n_batches * N_SPECTRA + STEP_SPECTRA - 1) / STEP_SPECTRA);
    const uint32_t first = (uint32_t)((uint64_t)n_steps * part / n_parts);
    const uint32_t end = (uint32_t)((uint64_t)n_steps * (part + 1) / n_parts);
    struct sums sums[WARP_ANTS] = {};

    clear_places();
    for (uint32_t step = first; step < end; step++) {
        const struct place place = find_place(args, chan, step);
        partial values[N_VALUES] = {0};
        uint2 kept[WARP_ANTS];
#pragma unroll
        for (uint32_t k = 0; k < WARP_ANTS; k++)
            kept[k] = load(place, first_ant + k * N_WARPS, first_ant + k * N_WARPS < end_ant);
        add_others(place, slice, values);
#pragma unroll
        for (uint32_t k = 0; k < WARP_ANTS; k++)
            add_load(kept[k], values);
        add_warps(step, values);
#pragma unroll
        for (uint32_t k = 0; k < WARP_ANTS; k++)
            multiply(kept[k], values, sums[k]);
    }
    add_to_rows(sums, first_ant, end_ant, (total *)args.rows.integer + (uint64_t)chan * N_ANTS * ANT_SUMS);
}
