/* beam_coefficients.cu - see beam_coefficients.h.
 *
 * A block computes the coefficients of some beams (a unit) in BEAM_COEFFICIENTS_WARPS channels, one channel per warp.
 * The blocks of a unit share the channels, so a block may compute several such runs of channels.  Lanes 4 i
 * to 4 i + 3 of a warp compute one beam.  These four lanes process 16 antennas (a step) at a time, in the order that
 * beam_fragments.h defines.  With many antennas or few beams, 2, 4 or 8 groups of four lanes compute a beam together
 * and process consecutive steps.  The antennas are processed in parts of BEAM_COEFFICIENTS_ROUNDS steps per group of
 * four lanes.  Shared memory has the steering and the coefficients of one part.  To keep coefficients in registers,
 * the loop would have to be unrolled.  The unrolled loop would not fit the instruction cache.  The first pass
 * evaluates all parts and finds the largest coefficient.  The last part is then still in shared memory.  The second
 * pass stores the last part, and evaluates and stores the other parts in reverse order.  'fragments' is never NULL in
 * this kernel. */
#include "kernels/beamform/beam_coefficients.h"

#define ROUNDS    BEAM_COEFFICIENTS_ROUNDS
#define LANE_ANTS 4 /* number of antennas that each lane processes in a step */
#define N_THREADS (32 * BEAM_COEFFICIENTS_WARPS)
#define N_ENTRIES (ROUNDS * LANE_ANTS * 32)
/* 1.5 * 2^23: adding this number rounds a float to an integer; the last bits of the sum are the integer */
#define TO_INTEGER 12582912.0f

/* Steering and coefficients of a part: [round][antenna of the lane][lane]. */
struct shared {
    uint64_t phases[N_ENTRIES], slopes[N_ENTRIES];
    float amplitudes[N_ENTRIES];
    /* each thread reads and writes only its own column */
    struct beam_complex coefficients[ROUNDS][LANE_ANTS][N_THREADS];
};
static_assert(sizeof(struct shared) == BEAM_COEFFICIENTS_SHARED_BYTES, "beam_coefficients_grid() requests this size");

static __device__ __forceinline__ struct shared *shared_of_block(void)
{
    extern __shared__ float4 shared_memory[];

    return (struct shared *)shared_memory;
}

/* Beam, channel and steps of a lane. */
struct place {
    uint32_t unit;   /* index of the block's unit (a set of beams) */
    uint32_t spread; /* number of steps of a beam that a warp processes at a time */
    uint32_t beam;   /* beam of the lane; valid if has_beam */
    uint32_t chan;   /* the warp's present channel; may be beyond the last channel */
    uint32_t first;  /* first step that the lane processes */
    bool has_beam;
    int8_t *fragments;      /* address in 'fragments' where the lane's high bytes of step 0 begin */
    uint32_t *coefficients; /* the beam's coefficients in the channel: a word for each antenna */
};

static __device__ __forceinline__ struct place find_place(const struct beam_coefficients_args &args)
{
    const uint32_t n_units = beam_coefficients_units(&args), four = threadIdx.x % 32 / 4;
    struct place place;

    place.spread = beam_coefficients_spread(&args);
    place.unit = blockIdx.x % n_units;
    place.chan = blockIdx.x / n_units * BEAM_COEFFICIENTS_WARPS + threadIdx.x / 32;
    place.first = four % place.spread;
    const uint32_t i = place.unit * (8 / place.spread) + four / place.spread;
    place.has_beam = i < beam_coefficients_n(&args);
    place.beam = place.has_beam ? beam_coefficients_beam(&args, i) : 0;
    const uint32_t slot = args.slot_of[place.beam];
    place.fragments = args.fragments + place.chan * beam_fragments_chan_bytes(args.n_slots, args.n_ants) +
                      slot / BEAM_GROUP_BEAMS * beam_fragments_group_bytes(args.n_ants) +
                      (slot % BEAM_GROUP_BEAMS * 4 + threadIdx.x % 4) * 16;
    place.coefficients =
        (uint32_t *)args.coefficients + ((uint64_t)place.chan * args.n_beams + place.beam) * args.n_ants;
    return place;
}

/* Returns the index of the lane's i-th antenna in a step. */
static __device__ __forceinline__ uint32_t ant_of(uint32_t step, uint32_t i)
{
    return step * BEAM_STEP_ANTS + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
}

/* Computes the steering (phase, slope, amplitude) of a part of the antennas at time 'args.time'.  Stores the steering
 * in shared memory.  Stores zeros beyond the last antenna. */
static __device__ __forceinline__ void load_part(const struct beam_coefficients_args &args, const struct place &place,
                                                 uint32_t part)
{
    const uint32_t part_steps = ROUNDS * place.spread, first = part * part_steps;
    const uint32_t n_ants = min(beam_fragments_steps(args.n_ants) - first, part_steps) * BEAM_STEP_ANTS;
    const uint32_t unit_beams = 8 / place.spread, first_beam = place.unit * unit_beams;
    const uint32_t n_beams = min(beam_coefficients_n(&args) - first_beam, unit_beams);
    const uint32_t log_spread = place.spread / 2 - place.spread / 8; /* 0, 1, 2, 3 for 1, 2, 4, 8 */
    struct shared *shared = shared_of_block();

#pragma unroll 1
    for (uint32_t in_unit = threadIdx.x / 32; in_unit < n_beams; in_unit += BEAM_COEFFICIENTS_WARPS) {
        const struct beam_steering *model =
            beam_coefficients_model(&args, beam_coefficients_beam(&args, first_beam + in_unit));
#pragma unroll 1
        for (uint32_t ant = threadIdx.x % 32; ant < n_ants; ant += 32) {
            const uint32_t step = ant / BEAM_STEP_ANTS, of_all = first * BEAM_STEP_ANTS + ant;
            const uint32_t lane = (in_unit * place.spread + (step & (place.spread - 1))) * 4 + ant % 8 / 2;
            const uint32_t at = ((step >> log_spread) * LANE_ANTS + ant % 16 / 8 * 2 + ant % 2) * 32 + lane;
            struct beam_steered steered = {0, 0, 0};
            if (of_all < args.n_ants)
                steered = beam_steer(&args, &model[of_all]);
            shared->phases[at] = steered.phase;
            shared->slopes[at] = steered.slope;
            shared->amplitudes[at] = steered.amplitude;
        }
    }
}

/* Computes the coefficients of a step.  Coefficients beyond the last antenna are 0.  Returns the maximum of 'most' and
 * the magnitudes of the coefficients' real and imaginary parts. */
static __device__ __forceinline__ float evaluate(const struct beam_coefficients_args &args, const struct place &place,
                                                 uint32_t step, uint32_t round, float most)
{
    const uint32_t lane = threadIdx.x % 32;
    struct shared *shared = shared_of_block();

    struct beam_steered steered[LANE_ANTS];
    struct beam_complex c[LANE_ANTS];

    /* The compiler does not move a load before a store.  So all loads come first. */
#pragma unroll
    for (uint32_t i = 0; i < LANE_ANTS; i++) {
        const uint32_t at = (round * LANE_ANTS + i) * 32 + lane;
        steered[i].phase = shared->phases[at];
        steered[i].slope = shared->slopes[at];
        steered[i].amplitude = shared->amplitudes[at];
    }
#pragma unroll
    for (uint32_t i = 0; i < LANE_ANTS; i++)
        c[i] = beam_coefficient(&args, &steered[i], place.beam, min(ant_of(step, i), args.n_ants - 1), place.chan);
#pragma unroll
    for (uint32_t i = 0; i < LANE_ANTS; i++) {
        shared->coefficients[round][i][threadIdx.x] = c[i];
        most = fmaxf(most, fmaxf(fabsf(c[i].re), fabsf(c[i].im)));
    }
    return most;
}

/* Returns a word made of byte 'byte' of a, b, c and d.  The byte of 'a' is the word's lowest byte. */
static __device__ __forceinline__ uint32_t bytes_of(int32_t a, int32_t b, int32_t c, int32_t d, uint32_t byte)
{
    const uint32_t selector = byte | (4 + byte) << 4;

    return __byte_perm(__byte_perm((uint32_t)a, (uint32_t)b, selector), __byte_perm((uint32_t)c, (uint32_t)d, selector),
                       0x5410);
}

/* Returns the lane's 16 bytes of a slice (high or low bytes) of four coefficients: byte 'byte' of each number.  Byte 0
 * is the lowest byte.  'minus' has the negative imaginary parts. */
static __device__ __forceinline__ uint4 slice_of(const int32_t (&re)[LANE_ANTS], const int32_t (&im)[LANE_ANTS],
                                                 const int32_t (&minus)[LANE_ANTS], uint32_t byte)
{
    uint32_t words[4];

#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t a = 2 * half, b = a + 1;
        words[2 * half] = bytes_of(re[a], minus[a], re[b], minus[b], byte);
        words[2 * half + 1] = bytes_of(im[a], re[a], im[b], re[b], byte);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Scales and rounds the parts of coefficients, and adds 'add', a whole and even number. */
static __device__ __forceinline__ void round_parts(const struct beam_complex (&c)[LANE_ANTS], float scale, float add,
                                                   int32_t (&re)[LANE_ANTS], int32_t (&im)[LANE_ANTS],
                                                   int32_t (&minus)[LANE_ANTS])
{
#pragma unroll
    for (uint32_t i = 0; i < LANE_ANTS; i++) {
        re[i] = (int32_t)__float_as_uint(fmaf(c[i].re, scale, TO_INTEGER + add));
        im[i] = (int32_t)__float_as_uint(fmaf(c[i].im, scale, TO_INTEGER + add));
        minus[i] = (int32_t)__float_as_uint(fmaf(c[i].im, -scale, TO_INTEGER + add));
    }
}

/* Scales, rounds and stores a step's coefficients. */
static __device__ __forceinline__ void store(const struct beam_coefficients_args &args, const struct place &place,
                                             uint32_t step, uint32_t round, float scale)
{
    int8_t *to = place.fragments + step * BEAM_STEP_BYTES;
    int32_t re[LANE_ANTS], im[LANE_ANTS], minus[LANE_ANTS];
    struct beam_complex c[LANE_ANTS];

#pragma unroll
    for (uint32_t i = 0; i < LANE_ANTS; i++)
        c[i] = shared_of_block()->coefficients[round][i][threadIdx.x];
    round_parts(c, scale, 0.0f, re, im, minus);
#pragma unroll
    for (uint32_t i = 0; i < LANE_ANTS; i += 2) {
        const uint32_t ant = ant_of(step, i);
        const uint2 pair = make_uint2(__byte_perm(re[i], im[i], 0x5410), __byte_perm(re[i + 1], im[i + 1], 0x5410));
        uint32_t *at = place.coefficients + ant;
        if (args.n_ants % 2 == 0 && ant < args.n_ants) {
            *(uint2 *)at = pair;
        } else {
            if (ant < args.n_ants)
                at[0] = pair.x;
            if (ant + 1 < args.n_ants)
                at[1] = pair.y;
        }
    }
    *(uint4 *)(to + BEAM_SLICE_BYTES) = slice_of(re, im, minus, 0);
    round_parts(c, scale, 128.0f, re, im, minus);
    *(uint4 *)to = slice_of(re, im, minus, 1);
}

/* Returns the maximum of 'most' over the 'n_lanes' lanes that compute a beam. */
static __device__ __forceinline__ float largest(float most, uint32_t n_lanes)
{
    for (uint32_t lanes = 1; lanes < n_lanes; lanes *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    return most;
}

/* Moves to the warp's next channel.  The blocks of a unit share the channels. */
static __device__ __forceinline__ void next_channel(const struct beam_coefficients_args &args, struct place &place)
{
    const uint32_t n = gridDim.x / beam_coefficients_units(&args) * BEAM_COEFFICIENTS_WARPS;

    place.chan += n;
    place.fragments += n * beam_fragments_chan_bytes(args.n_slots, args.n_ants);
    place.coefficients += (uint64_t)n * args.n_beams * args.n_ants;
}

/* Computes the coefficients of the warp's present channel.  If 'loads' is false, the steering of the only part is
 * already in shared memory. */
static __device__ __forceinline__ void compute(const struct beam_coefficients_args &args, const struct place &place,
                                               bool loads)
{
    const uint32_t n_steps = beam_fragments_steps(args.n_ants), part_steps = ROUNDS * place.spread;
    const uint32_t n_parts = (n_steps + part_steps - 1) / part_steps;
    const bool is_there = place.has_beam && place.chan < args.n_chan;
    float most = 0, scale = 0;

    for (uint32_t turn = 0; turn < 2 * n_parts - 1; turn++) {
        const uint32_t part = turn < n_parts ? turn : 2 * n_parts - 2 - turn;
        const uint32_t first = part * part_steps + place.first;
        if (loads || n_parts > 1) {
            __syncthreads(); /* All threads have evaluated the previous part. */
            load_part(args, place, part);
            __syncthreads();
        }
#pragma unroll 1
        for (uint32_t round = 0; round < ROUNDS; round++)
            if (is_there && first + round * place.spread < n_steps)
                most = evaluate(args, place, first + round * place.spread, round, most);
        if (turn == n_parts - 1) {
            const int32_t exponent = beam_exponent(largest(most, 4 * place.spread));
            scale = beam_power_of_two(exponent);
            if (is_there && threadIdx.x % (4 * place.spread) == 0)
                args.exponents[(uint64_t)place.chan * args.n_beams + place.beam] = exponent;
        }
#pragma unroll 1
        for (uint32_t round = 0; round < ROUNDS; round++)
            if (turn >= n_parts - 1 && is_there && first + round * place.spread < n_steps)
                store(args, place, first + round * place.spread, round, scale);
    }
}

extern "C" __global__ void __launch_bounds__(N_THREADS, 3) beam_coefficients(const struct beam_coefficients_args args)
{
    struct place place = find_place(args);
    bool loads = true; /* false: the steering of the only part is already in shared memory */

    /* the loop ends at the same time for all warps of the block */
#pragma unroll 1
    while (place.chan - threadIdx.x / 32 < args.n_chan) {
        compute(args, place, loads);
        next_channel(args, place);
        loads = false;
    }
}
