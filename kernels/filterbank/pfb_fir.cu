/* pfb_fir.cu - see pfb_fir.h.
 *
 * The spectra are divided into gridDim.y sections.  A thread filters two columns of a section, row by row.  Each sample
 * is loaded and unpacked once, and is immediately added to its n_taps sums (the transposed form of the filter).  So
 * registers hold n_taps weights and n_taps - 1 sums of each column, and no samples.
 *
 * Constants: N_CHAN, N_TAPS, SAMPLE_BITS, UNZIP, N_THREADS. */
#include "kernels/filterbank/pfb_fir.h"

#define STEP       (2 * N_CHAN)
#define PITCH      (STEP / 32 * SAMPLE_BITS) /* number of words between the starts of consecutive rows */
#define N_SUMS     (N_TAPS > 1 ? N_TAPS - 1 : 1)
#define ROWS_AHEAD 4 /* number of rows that a thread loads while it filters the previous ROWS_AHEAD rows */

/* Place of the pair's samples in a row.  The samples lie within 4 bytes.  'selector' selects these bytes, in reverse
 * order, from two words.  The first word has the samples' first bit, and the last word has the samples' last bit. */
struct place {
    const uint32_t *words; /* words of the row to load next */
    uint32_t last;         /* 1 if the samples' first and last bits are in different words, otherwise 0 */
    uint32_t selector;
    uint32_t shift; /* number of bits in the 4 bytes before the first sample; < 8 */
};

struct words {
    uint32_t first, last;
};

static __device__ __forceinline__ struct place make_place(const uint8_t *in, int64_t first)
{
    int64_t bit = first * SAMPLE_BITS;
    struct place place;

    place.words = (const uint32_t *)in + bit / 32;
    place.last = (uint32_t)((bit + 2 * SAMPLE_BITS - 1) / 32 - bit / 32);
    place.selector = 0x0123 + 0x1111 * (uint32_t)(bit / 8 % 4);
    place.shift = (uint32_t)(bit % 8);
    return place;
}

/* Loads the next ROWS_AHEAD rows.  If only 'n' of these rows exist, zeros replace the other rows. */
static __device__ __forceinline__ void load_rows(struct place &place, int n, struct words (&rows)[ROWS_AHEAD])
{
#pragma unroll
    for (int i = 0; i < ROWS_AHEAD; i++) {
        rows[i].first = i < n ? __ldg(place.words + i * PITCH) : 0;
        rows[i].last = i < n ? __ldg(place.words + i * PITCH + place.last) : 0;
    }
    place.words += ROWS_AHEAD * PITCH;
}

/* Returns the sample that ends 'at' bits above the lowest bit of 'bits'.  The function takes two operations.  The first
 * operation masks the sample, inverts its sign bit and sets the exponent of a float.  The float is 2^23 + (sample +
 * 2^(SAMPLE_BITS - 1)) 2^at.  The second operation subtracts a constant, and scales. */
static __device__ __forceinline__ float unpack_one(uint32_t bits, int at)
{
    const uint32_t mask = ((1u << SAMPLE_BITS) - 1) << at, sign = 1u << (at + SAMPLE_BITS - 1);
    const float scale = 1.0f / (float)(1 << at);

    return fmaf(__uint_as_float((bits & mask) ^ (0x4B000000u | sign)), scale, -(8388608.0f + (float)sign) * scale);
}

static __device__ __forceinline__ float2 unpack(const struct place &place, struct words words)
{
    uint32_t bytes = __byte_perm(words.first, words.last, place.selector);
    uint32_t second = bytes >> (32 - 2 * SAMPLE_BITS - place.shift);

    if (2 * SAMPLE_BITS <= 22) /* the mantissa has room for the bits of both samples */
        return make_float2(unpack_one(second, SAMPLE_BITS), unpack_one(second, 0));
    return make_float2(unpack_one(bytes >> (32 - SAMPLE_BITS - place.shift), 0), unpack_one(second, 0));
}

/* Adds one row of samples to the sums.  Returns the two sums that the row completes.  Then sums[i] needs i + 1 more
 * rows. */
static __device__ __forceinline__ float2 filter(const float2 (&weights)[N_TAPS], float2 x, float2 (&sums)[N_SUMS])
{
    float2 begun = make_float2(weights[0].x * x.x, weights[0].y * x.y), done;

    if (N_TAPS == 1)
        return begun;
    done.x = fmaf(weights[N_TAPS - 1].x, x.x, sums[0].x);
    done.y = fmaf(weights[N_TAPS - 1].y, x.y, sums[0].y);
#pragma unroll
    for (int i = 0; i < N_TAPS - 2; i++) {
        sums[i].x = fmaf(weights[N_TAPS - 2 - i].x, x.x, sums[i + 1].x);
        sums[i].y = fmaf(weights[N_TAPS - 2 - i].y, x.y, sums[i + 1].y);
    }
    sums[N_SUMS - 1] = begun;
    return done;
}

static __device__ __forceinline__ uint32_t square(float2 x)
{
    int32_t a = __float2int_rn(x.x), b = __float2int_rn(x.y);

    return (uint32_t)(a * a) + (uint32_t)(b * b);
}

/* Sums 'power' over the warp's threads, and adds the result to '*sum' with one atomic operation. */
static __device__ __forceinline__ void add_power(unsigned long long power, uint64_t *sum)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        power += __shfl_xor_sync(0xffffffffu, power, lanes);
    if (threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)sum, power);
}

extern "C" __global__ void __launch_bounds__(N_THREADS) pfb_fir(const struct pfb_fir_args args)
{
    int pair = blockIdx.x * N_THREADS + threadIdx.x;
    int section = (int)((args.n_spectra + gridDim.y - 1) / gridDim.y), begin = (int)blockIdx.y * section;
    int n_spectra = min(section, (int)args.n_spectra - begin), n_rows = n_spectra + N_TAPS - 1;
    struct place place = make_place(args.in, args.offset + (int64_t)begin * STEP + 2 * pair);
    /* Address in the output for row 0.  Row N_TAPS - 1 completes the section's first spectrum, so this address lies
     * N_TAPS - 1 spectra before the section. */
    float2 *out =
        (float2 *)args.out + ((int64_t)begin - (N_TAPS - 1)) * N_CHAN + pair % UNZIP * (N_CHAN / UNZIP) + pair / UNZIP;
    float2 weights[N_TAPS], sums[N_SUMS];
    struct words now[ROWS_AHEAD], next[ROWS_AHEAD];
    unsigned long long power = 0;

    if (n_spectra <= 0) /* all sections have the same length, so the last section may begin beyond the last spectrum */
        return;
    load_rows(place, n_rows, next);
#pragma unroll
    for (int i = 0; i < N_TAPS; i++)
        weights[i] = ((const float2 *)args.weights)[i * N_CHAN + pair];
#pragma unroll
    for (int i = 0; i < N_SUMS; i++)
        sums[i] = make_float2(0, 0);
    for (int row = 0; row < n_rows; row += ROWS_AHEAD) {
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++)
            now[i] = next[i];
        load_rows(place, n_rows - row - ROWS_AHEAD, next);
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++) {
            float2 x = unpack(place, now[i]), done = filter(weights, x, sums);
            if (args.power && row + i < n_spectra)
                power += square(x);
            if (row + i >= N_TAPS - 1 && row + i < n_rows)
                out[(int64_t)i * N_CHAN] = done;
        }
        out += (int64_t)ROWS_AHEAD * N_CHAN;
    }
    if (args.power)
        add_power(power, args.power);
}
