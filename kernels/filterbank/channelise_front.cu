/* channelise_front.cu - FIR of both polarisations and the first factor of their transform.  See channelise_fused.h.
 * kernels/README.md has a picture, and a timeline of the barriers.
 *
 * All warps filter STEP_SPECTRA spectra at a time into one of two buffers, and transform the points of the other
 * buffer.  With two passes the first half of the warps does the first pass before filtering.  The second half does the
 * last pass after filtering.  With one pass, the first half of the warps does half of the pass before filtering.  The
 * second half does the other half of the pass after filtering.  So no thread waits for work that other threads have
 * only just begun.  At any time some warps filter while others transform. */
#include "kernels/filterbank/channelise_fused.h"
#include "kernels/filterbank/fft_registers.h"
#include "kernels/util/keep.h"

#define POINTS         (2 * N_CHAN)
#define M1             FRONT_ROWS
#define M2             (POINTS / M1)
#define COLUMNS        FRONT_COLUMNS
#define STEP_SPECTRA   FRONT_SPECTRA
#define THREAD_COLUMNS FRONT_PER_THREAD
#define RADIX_A        FRONT_RADIX
#define RADIX_B        (M1 / RADIX_A)
#define TWO_PASSES     (RADIX_B > 1)
#define RADIX_LAST     (TWO_PASSES ? RADIX_B : RADIX_A)
#define N_THREADS      (M1 * COLUMNS / THREAD_COLUMNS)
#define N_SUMS         (N_TAPS > 1 ? N_TAPS - 1 : 1)
#define PITCH          ((long)POINTS * SAMPLE_BITS / 32) /* number of words between the starts of consecutive rows */
/* number of rows that are filtered together; each weight is read once for these rows */
#define ROWS           2
#define STAGES         FRONT_STAGES
#define LEAD_ROWS      ((N_TAPS - 1 + STEP_SPECTRA - 1) / STEP_SPECTRA * STEP_SPECTRA) /* rows before spectrum 0 */
#define SPARE_ROWS     (LEAD_ROWS - (N_TAPS - 1)) /* number of rows at the start that lie before the first window */

#define FITS_FLOAT (THREAD_COLUMNS * SAMPLE_BITS <= 22)

#include "kernels/filterbank/channelise_front_fetch.h"

/* Selects four bytes from two words.  The lower half of 'how' is the selector.  A selector digit above 7 gives a byte
 * that the caller does not use. */
static __device__ __forceinline__ uint32_t select_bytes(uint32_t first, uint32_t second, uint32_t how)
{
#ifdef EMULATE_CUDA
    return __byte_perm(first, second, how);
#else
    uint32_t bytes; /* __byte_perm() would need one more instruction, to apply a mask to 'how' */
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(first), "r"(second), "r"(how));
    return bytes;
#endif
}

/* After unpacking, the samples of a thread's column i are 2^SAMPLE_SHIFT(i) times too large.  The column's weights are
 * divided by 2^SAMPLE_SHIFT(i). */
#define SAMPLE_SHIFT(i) (FITS_FLOAT ? (THREAD_COLUMNS - 1 - (i)) * SAMPLE_BITS : 0)

/* Unpacks the samples in four bytes.  If the samples fit in a float's mantissa, the samples lie 'shift' bits above the
 * lowest bit.  One operation masks a sample, inverts its sign bit and sets the exponent of a float.  The float's
 * mantissa then contains the sample.  One operation is enough, because masks[] is in registers.  If the samples do not
 * fit in a mantissa, the samples lie 'shift' bits below the highest bit. */
static __device__ __forceinline__ void unpack(uint32_t bytes, uint32_t shift, const uint32_t (&masks)[THREAD_COLUMNS],
                                              float (&x)[THREAD_COLUMNS])
{
#pragma unroll
    for (int i = 0; i < THREAD_COLUMNS; i++) {
        const uint32_t sign = 1u << (SAMPLE_SHIFT(i) + SAMPLE_BITS - 1);

        if (FITS_FLOAT)
            x[i] = __uint_as_float((bytes >> shift & masks[i]) ^ (0x4B000000u | sign)) - (8388608.0f + (float)sign);
        else
            x[i] = (float)((int32_t)(bytes << (shift + i * SAMPLE_BITS)) >> (32 - SAMPLE_BITS));
    }
}

/* Unpacks ROWS rows of the stage, beginning with row 'row'. */
static __device__ __forceinline__ void unpack_rows(const struct place (&places)[2],
                                                   const uint32_t (&masks)[THREAD_COLUMNS], const struct stage *from,
                                                   int row, float (&x)[ROWS][2][THREAD_COLUMNS])
{
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        const uint32_t *first = first_of(from, places[pol]), *second = second_of(from, places[pol]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int at = ROW_AT(row + r) + pol * POL_WORDS;
            unpack(select_bytes(first[at], second[at], places[pol].how), places[pol].how >> 16, masks, x[r][pol]);
        }
    }
}

/* Adds the squares of a thread's samples in ROWS rows, beginning with row number 'row' of the section.  The section
 * has n_rows rows. */
static __device__ __forceinline__ void square_rows(const float (&x)[ROWS][2][THREAD_COLUMNS], int row, int n_rows,
                                                   uint64_t (&power)[2])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (row + r >= 0 && row + r < n_rows)
#pragma unroll
            for (int i = 0; i < 2 * THREAD_COLUMNS; i++) {
                int value = (int)x[r][i / THREAD_COLUMNS][i % THREAD_COLUMNS] / (1 << SAMPLE_SHIFT(i % THREAD_COLUMNS));
                power[i / THREAD_COLUMNS] += (uint64_t)((int64_t)value * value);
            }
}

/* Sums the lanes' 'power' over the warp, and adds the result to '*sum' in memory. */
static __device__ __forceinline__ void add_power(uint64_t power, uint64_t *sum)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        power += __shfl_xor_sync(0xffffffffu, power, lanes);
    if (threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)sum, power);
}

/* Weights of two taps.  Taps are stored from the last tap to the first tap. */
struct __align__(2 * THREAD_COLUMNS * 4) weights
{
    float of[2][THREAD_COLUMNS];
};

/* Filters ROWS rows of samples, x[row][pol][column].  sums[tap][pol][column]: sums[i] needs i + 1 more rows.  In
 * sums[i], x[r] is multiplied by weight N_TAPS - 1 - i + r.  So the first ROWS sums are completed into done[], and
 * all other sums move down by ROWS indices.  Each weight is read once, ROWS weights at a time. */
static __device__ __forceinline__ void filter_rows(const struct weights *weights,
                                                   const float (&x)[ROWS][2][THREAD_COLUMNS],
                                                   float (&sums)[N_SUMS][2][THREAD_COLUMNS],
                                                   float (&done)[ROWS][2][THREAD_COLUMNS])
{
    float w[ROWS][THREAD_COLUMNS]; /* w[r] is the weight of x[r] in the current sum */
    struct weights pair = {};

#pragma unroll
    for (int i = 0; i < N_TAPS - 1 + ROWS; i++) {
        const int t0 = N_TAPS - 1 - i; /* tap of x[0] */

#pragma unroll
        for (int r = ROWS - 1; r > 0; r--)
#pragma unroll
            for (int c = 0; c < THREAD_COLUMNS; c++)
                w[r][c] = w[r - 1][c];
        if (i % 2 == 0 && t0 >= 0)
            pair = weights[i / 2 * N_THREADS];
#pragma unroll
        for (int c = 0; c < THREAD_COLUMNS; c++)
            w[0][c] = pair.of[i % 2][c];
#pragma unroll
        for (int pol = 0; pol < 2; pol++)
#pragma unroll
            for (int c = 0; c < THREAD_COLUMNS; c++) {
                float sum = i >= N_TAPS - 1 ? 0.0f : sums[i < N_SUMS ? i : 0][pol][c];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const int t = t0 + r;
                    if (t >= 0 && t < N_TAPS)
                        sum = i >= N_TAPS - 1 && t == 0 ? w[r][c] * x[r][pol][c] : fmaf(w[r][c], x[r][pol][c], sum);
                }
                if (i < ROWS)
                    done[i][pol][c] = sum;
                else
                    sums[i - ROWS][pol][c] = sum;
            }
    }
}

static __device__ __forceinline__ void store_points(const float (&done)[2][THREAD_COLUMNS], float2 *to)
{
    if (THREAD_COLUMNS == 2)
        *(float4 *)to = make_float4(done[0][0], done[1][0], done[0][THREAD_COLUMNS - 1], done[1][THREAD_COLUMNS - 1]);
    else
        *to = make_float2(done[0][0], done[1][0]);
}

/* ---- Transforms -------------------------------------------------------------------------------------------------- */

/* Number of threads of a pass, and number of spectra that a pass transforms at a time. */
#define N_TEAM                 (N_THREADS / 2)
#define N_LAST                 (TWO_PASSES ? N_TEAM : N_THREADS)
#define AT_ONCE(radix, n)      ((n) / (M1 / (radix)*COLUMNS))
#define ROUNDS(at_once)        (((STEP_SPECTRA) + (at_once)-1) / (at_once))
#define IS_OF_STEP(at_once, s) (STEP_SPECTRA % (at_once) == 0 || (s) < STEP_SPECTRA)

/* Does the first pass of STEP_SPECTRA spectra, in place: [spectrum][ja][jb][c] to [spectrum][ka][jb][c].  't' is the
 * thread's number among the threads of this pass. */
static __device__ __forceinline__ void first_pass(float2 *points, const float2 *inner, unsigned t)
{
    const int n_rest = RADIX_B * COLUMNS, at_once = AT_ONCE(RADIX_A, N_TEAM);
    const unsigned column = t % n_rest, jb = column / COLUMNS;
    float2 turn[RADIX_A];

#pragma unroll
    for (int ka = 1; ka < RADIX_A; ka++)
        turn[ka] = inner[jb * RADIX_A + ka];
#pragma unroll
    for (int round = 0; round < ROUNDS(at_once); round++) {
        int s = t / n_rest + round * at_once;
        float2 *at = points + s * (M1 * COLUMNS) + column, v[RADIX_A];
        if (!IS_OF_STEP(at_once, s))
            break;
#pragma unroll
        for (int i = 0; i < RADIX_A; i++)
            v[i] = at[i * n_rest];
        fft_registers<RADIX_A>(v);
        at[0] = v[0];
#pragma unroll
        for (int i = 1; i < RADIX_A; i++)
            at[i * n_rest] = complex_multiply(v[i], turn[i]);
    }
}

/* Performs the last pass of the first 'n' of STEP_SPECTRA spectra, and writes the result to device memory:
 * [spectrum][ka][jb][c] to [spectrum][k1 = ka + RADIX_A kb][j2].  't' is the thread's number, from 0 to N_LAST - 1. */
static __device__ __forceinline__ void last_pass(const float2 *points, const float2 (&outer)[M1][COLUMNS], float2 *out,
                                                 int n, unsigned t)
{
    const int n_first = M1 / RADIX_LAST, at_once = AT_ONCE(RADIX_LAST, N_LAST);
    const unsigned ka = t / COLUMNS % n_first, c = t % COLUMNS;
    float2 turn[RADIX_LAST];

#pragma unroll
    for (int kb = 0; kb < RADIX_LAST; kb++)
        turn[kb] = outer[ka + n_first * kb][c];
#pragma unroll
    for (int round = 0; round < ROUNDS(at_once); round++) {
        int s = t / (n_first * COLUMNS) + round * at_once;
        const float2 *at = points + (s * M1 + ka * RADIX_LAST) * COLUMNS + c;
        float2 *to = out + ((long)s * M1 + ka) * M2 + blockIdx.x * COLUMNS + c, v[RADIX_LAST];
        if (!IS_OF_STEP(at_once, s))
            break;
#pragma unroll
        for (int i = 0; i < RADIX_LAST; i++)
            v[i] = at[i * COLUMNS];
        fft_registers<RADIX_LAST>(v);
        if (s < n)
#pragma unroll
            for (int i = 0; i < RADIX_LAST; i++)
                to[(long)i * n_first * M2] = complex_multiply(v[i], turn[i]);
    }
}

/* ---- The block --------------------------------------------------------------------------------------------------- */

/* Tables in the block's shared memory, after the block's points. */
struct tables {
    struct weights weights[(N_TAPS + 1) / 2][N_THREADS]; /* [pair of taps][thread] */
    float2 outer[M1][COLUMNS];                           /* [k1][c] */
    float2 inner[M1];                                    /* [jb][ka] */
    /* Barriers.  'filtered' opens when N_THREADS threads have filtered into a buffer.  'passed' opens when N_TEAM
     * threads have done the first pass.  'taken' opens when N_LAST threads have read all points of a buffer.  'landed'
     * opens when the boxes of a stage have arrived. */
    uint64_t filtered[2], passed[2], taken[2], landed[STAGES];
    struct stage stages[N_RINGS][STAGES];
};

/* Fills the tables, and initialises the barriers of the buffers. */
static __device__ __forceinline__ void load_tables(const struct channelise_front_args &args, struct tables *tables)
{
    const float *mine = args.weights + threadIdx.x * THREAD_COLUMNS / COLUMNS * M2 + blockIdx.x * COLUMNS +
                        threadIdx.x * THREAD_COLUMNS % COLUMNS;

    for (int i = 0; i < (N_TAPS + 1) / 2 * 2; i++)
        for (int c = 0; c < THREAD_COLUMNS; c++)
            tables->weights[i / 2][threadIdx.x].of[i % 2][c] =
                i < N_TAPS ? mine[(N_TAPS - 1 - i) * POINTS + c] / (float)(1 << SAMPLE_SHIFT(c)) : 0.0f;
    for (unsigned i = threadIdx.x; i < M1 * COLUMNS; i += N_THREADS)
        tables->outer[i / COLUMNS][i % COLUMNS] =
            ((const float2 *)args.outer)[i / COLUMNS * M2 + blockIdx.x * COLUMNS + i % COLUMNS];
    for (unsigned i = threadIdx.x; i < M1; i += N_THREADS)
        tables->inner[i] = ((const float2 *)args.inner)[i];
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; i++) {
            barrier_init(&tables->filtered[i], N_THREADS);
            barrier_init(&tables->passed[i], N_TEAM);
            barrier_init(&tables->taken[i], N_LAST);
        }
}

/* Finds the thread's samples of both polarisations, and zeroes the sums. */
static __device__ __forceinline__ void begin_section(const struct channelise_front_args &args, uint32_t begin,
                                                     struct place (&places)[2],
                                                     float (&sums)[N_SUMS][2][THREAD_COLUMNS])
{
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        places[pol] = find_samples(args, pol, begin);
#pragma unroll
        for (int i = 0; i < N_SUMS; i++)
#pragma unroll
            for (int c = 0; c < THREAD_COLUMNS; c++)
                sums[i][pol][c] = 0;
    }
}

/* Filters the STEP_SPECTRA rows of a stage into points.  'row' is the index of the stage's first row in the section.
 * The section has n rows. */
static __device__ __forceinline__ void filter_stage(const struct place (&places)[2],
                                                    const uint32_t (&masks)[THREAD_COLUMNS], const struct stage *stage,
                                                    const struct weights *weights, int row, int n,
                                                    float (&sums)[N_SUMS][2][THREAD_COLUMNS], uint64_t (&power)[2],
                                                    float2 *points)
{
    float done[ROWS][2][THREAD_COLUMNS], x[ROWS][2][THREAD_COLUMNS];

#pragma unroll
    for (int r = 0; r < STEP_SPECTRA; r += ROWS) {
        unpack_rows(places, masks, stage, r, x);
        if (POWER)
            square_rows(x, row + r, n, power);
        filter_rows(weights, x, sums, done);
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            store_points(done[j], points + (r + j) * (M1 * COLUMNS) + threadIdx.x * THREAD_COLUMNS);
    }
}

extern "C" __global__ void __launch_bounds__(N_THREADS, FRONT_BLOCKS)
    channelise_front(const __grid_constant__ struct channelise_front_args args)
{
    /* starts at a multiple of 1024 bytes; tensor copies need a multiple of 128 bytes */
    extern __shared__ float4 shared_memory[];
    typedef float2 buffer[STEP_SPECTRA * M1 * COLUMNS]; /* [spectrum][j1][c] */
    buffer *points = (buffer *)shared_memory;           /* [2] */
    struct tables *tables = (struct tables *)(points + 2);
    const struct weights *weights = &tables->weights[0][threadIdx.x];
    const uint32_t begin = blockIdx.y * args.section_spectra;
    const int n = (int)min(args.section_spectra, args.n_spectra - begin);
    const int n_stages = (n + LEAD_ROWS + STEP_SPECTRA - 1) / STEP_SPECTRA;
    const bool is_early = uniform_warp() < N_WARPS / 2;
    float2 *out = (float2 *)args.out + (uint64_t)begin * POINTS;
    float sums[N_SUMS][2][THREAD_COLUMNS];
    uint32_t masks[THREAD_COLUMNS];
    struct place places[2];
    uint64_t power[2] = {0, 0};

#pragma unroll
    for (int c = 0; c < THREAD_COLUMNS; c++)
        masks[c] = keep_constant(((1u << SAMPLE_BITS) - 1) << SAMPLE_SHIFT(c));
    struct fetcher fetcher =
        begin_fetches(args, &tables->stages[0][0], tables->landed, begin, n_stages, n + N_TAPS - 1);
    begin_section(args, begin, places, sums);
    load_tables(args, tables);
    __syncthreads();
    /* Round i filters stage i into buffer i % 2, and transforms stage i - 1.  The first row of stage i - 1 completes
     * spectrum 'first'. */
#pragma unroll 1
    for (int i = 0; i <= n_stages; i++) {
        const int now = i % 2, before = 1 - now, opening_before = (i - 1) / 2;
        const int first = (i - 1) * STEP_SPECTRA - LEAD_ROWS;
        float2 *out_before = out + (int64_t)first * POINTS;

        if (is_early && i > 0) {
            barrier_wait(&tables->filtered[before], opening_before);
            fetch_more(args, fetcher, begin, i - 1, n_stages);
            if (TWO_PASSES && first >= 0)
                first_pass(points[before], tables->inner, threadIdx.x);
            if (!TWO_PASSES && first >= 0)
                last_pass(points[before], tables->outer, out_before, n - first, threadIdx.x);
            barrier_arrive(TWO_PASSES ? &tables->passed[before] : &tables->taken[before]);
        }
        if (i < n_stages) {
            const struct stage *stage = next_stage(args, fetcher);
            if (i >= 2)
                barrier_wait(&tables->taken[now], i / 2 - 1);
            filter_stage(places, masks, stage, weights, i * STEP_SPECTRA - SPARE_ROWS, n, sums, power, points[now]);
            barrier_arrive(&tables->filtered[now]);
        }
        if (!is_early && i > 0) {
            barrier_wait(TWO_PASSES ? &tables->passed[before] : &tables->filtered[before], opening_before);
            if (first >= 0)
                last_pass(points[before], tables->outer, out_before, n - first,
                          TWO_PASSES ? threadIdx.x - N_TEAM : threadIdx.x);
            barrier_arrive(&tables->taken[before]);
        }
    }
    for (int pol = 0; pol < 2 && POWER; pol++)
        add_power(power[pol], args.power + pol);
}
