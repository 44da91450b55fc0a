/* checksum_dump.cu - see checksum_dump.h.
 *
 * A warp computes the two rows of one antenna in one channel.  The baselines between this antenna and all antennas are
 * divided among the lanes.  A baseline has 32 bytes of sums.  Baselines with earlier antennas are consecutive in
 * memory.  A baseline with a later antenna lies among the later antenna's baselines.  The warp adds up the dump's words
 * of the baselines with earlier antennas.
 *
 * Constants: see checksum_dump_constants(). */
#include "kernels/correlate/checksum_dump.h"

#define FULL_WARP 0xffffffffu
#define N_PARTS   8

#if REAL
typedef double wide;
#define ROW_PARTS 3
#else
typedef unsigned long long wide;
#define ROW_PARTS 2
#endif

/* Loads sums plus totals of a baseline: [product][re, im]. */
static __device__ __forceinline__ void load_parts(const struct checksum_dump_args &args, uint64_t baseline,
                                                  wide (&parts)[N_PARTS])
{
    const int4 *sums = (const int4 *)args.sums.integer + 2 * baseline;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int4 four = sums[i];
        const int read[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
#if REAL
            const double total = args.totals.real ? args.totals.real[N_PARTS * baseline + 4 * i + k] : 0;
            parts[4 * i + k] = (double)__int_as_float(read[k]) + total;
#else
            const long long total = args.totals.integer ? args.totals.integer[N_PARTS * baseline + 4 * i + k] : 0;
            parts[4 * i + k] = (wide)total + (wide)(long long)read[k];
#endif
        }
    }
}

/* Returns the word that the kernel reduce writes for a part.  'imaginary' is 0 or 1. */
static __device__ __forceinline__ uint32_t word_of(wide part, int imaginary, bool missing)
{
#if REAL
    const uint32_t word = __float_as_uint((float)part);
    return missing || (word & 0x7fffffffu) > 0x7f800000u ? REDUCE_MISSING_NAN : word;
#else
    const long long limit = 0x7FFFFFFF;
    const int bounded = (int)max(-limit, min(limit, (long long)part));
    return (uint32_t)(missing ? (imaginary ? REDUCE_MISSING_IM : (int)REDUCE_MISSING_RE) : bounded);
#endif
}

/* Returns the number of a baseline's products that the kernel 'reduce' will clip. */
static __device__ __forceinline__ uint32_t count_clipped(const wide (&parts)[N_PARTS], bool missing)
{
    uint32_t n_clipped = 0;
#if !REAL
    const long long limit = 0x7FFFFFFF;

#pragma unroll
    for (int i = 0; i < N_PARTS; i += 2) {
        const long long re = (long long)parts[i], im = (long long)parts[i + 1];
        n_clipped += re > limit || re < -limit || im > limit || im < -limit;
    }
#endif
    return missing ? 0 : n_clipped;
}

/* Adds a baseline's words to the lane's sums of words.  'first' is the index in the channel of the baseline's first
 * word. */
static __device__ __forceinline__ void add_words(const wide (&parts)[N_PARTS], uint32_t first, bool missing,
                                                 unsigned long long (&words)[2])
{
#pragma unroll
    for (int i = 0; i < N_PARTS; i++) {
        const uint32_t word = word_of(parts[i], i % 2, missing);
        words[0] += word;
        words[1] += (unsigned long long)word * (first + i + 1);
    }
}

/* Adds a baseline to the rows of its first or second antenna. */
static __device__ __forceinline__ void add_rows(const wide (&parts)[N_PARTS], bool is_first, wide (&rows)[2][2])
{
#pragma unroll
    for (int pol = 0; pol < 2; pol++)
#pragma unroll
        for (int other = 0; other < 2; other++) {
            const int at_first = 2 * (pol + 2 * other), at_second = 2 * (other + 2 * pol);
            rows[pol][0] += is_first ? parts[at_first] : parts[at_second];
            rows[pol][1] += is_first ? parts[at_first + 1] : -parts[at_second + 1];
        }
}

template <typename T> static __device__ __forceinline__ T sum_of_lanes(T sum)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(FULL_WARP, sum, lanes);
    return sum;
}

/* Compares a computed row with the expected row.  'row' is the number of the row, as in the verdict.  Zeroes the
 * expected row.  Only one lane calls this function. */
static __device__ __forceinline__ void judge(const struct checksum_dump_args &args, uint64_t row, wide re, wide im)
{
    wide *const expected = (wide *)args.rows.integer + ROW_PARTS * row;
#if REAL
    const double tolerance = CHECKSUM_TOLERANCE * expected[2];
    const bool finite = fabs(expected[2]) <= 1.7976931348623157e308;
    const bool agrees = !finite || (fabs(re - expected[0]) <= tolerance && fabs(im - expected[1]) <= tolerance);
    expected[2] = 0;
#else
    const bool agrees = re == expected[0] && im == expected[1];
#endif

    expected[0] = expected[1] = 0;
    if (agrees)
        atomicAdd((unsigned long long *)args.verdict + VERDICT_N_AGREED, 1ull);
    else
        atomicMin((unsigned long long *)args.verdict + VERDICT_FIRST_WRONG, (unsigned long long)row);
}

extern "C" __global__ void __launch_bounds__(CHECKSUM_DUMP_THREADS) checksum_dump(const struct checksum_dump_args args)
{
    const uint64_t warp = ((uint64_t)blockIdx.x * CHECKSUM_DUMP_THREADS + threadIdx.x) / 32;
    const uint32_t ant = (uint32_t)(warp % args.n_ants), chan = (uint32_t)(warp / args.n_ants);
    const uint32_t n_baselines = args.n_ants * (args.n_ants + 1) / 2;
    wide rows[2][2] = {{0, 0}, {0, 0}};
    unsigned long long words[2] = {0, 0};
    uint32_t n_clipped = 0;

    if (chan >= args.n_chan)
        return;
    for (uint32_t other = threadIdx.x % 32; other < args.n_ants; other += 32) {
        const uint32_t a1 = min(ant, other), a2 = max(ant, other), baseline = a2 * (a2 + 1) / 2 + a1;
        wide parts[N_PARTS];
        load_parts(args, (uint64_t)chan * n_baselines + baseline, parts);
        add_rows(parts, other >= ant, rows);
        if (other <= ant) {
            const bool missing = args.weights[baseline] < args.min_weight;
            add_words(parts, baseline * N_PARTS, missing, words);
            n_clipped += count_clipped(parts, missing);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        words[i] = sum_of_lanes(words[i]);
#pragma unroll
        for (int pol = 0; pol < 2; pol++)
            rows[pol][i] = sum_of_lanes(rows[pol][i]);
    }
    n_clipped = sum_of_lanes(n_clipped);
    if (threadIdx.x % 32 != 0)
        return;
#pragma unroll
    for (int pol = 0; pol < 2; pol++)
        judge(args, warp * 2 + pol, rows[pol][0], rows[pol][1]);
    if (n_clipped > 0)
        atomicAdd((unsigned long long *)args.verdict + VERDICT_N_SATURATED, (unsigned long long)n_clipped);
    atomicAdd((unsigned long long *)args.words + 2 * chan, words[0]);
    atomicAdd((unsigned long long *)args.words + 2 * chan + 1, words[1]);
}
