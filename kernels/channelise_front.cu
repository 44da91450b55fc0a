/* channelise_front.cu - FIR of both polarisations and the first factor of their transform.  See channelise_fused.h. */
#include "kernels/channelise_fused.h"
#include "kernels/fft_registers.h"

#define M         (2 * N_CHAN)
#define M1        FRONT_ROWS
#define M2        (M / M1)
#define C         FRONT_COLUMNS
#define G         FRONT_SPECTRA
#define PER       FRONT_PER_THREAD
#define RADIX_A   FRONT_RADIX
#define RADIX_B   (M1 / RADIX_A)
#define N_THREADS (M1 * C / PER)
#define N_SUMS    (N_TAPS > 1 ? N_TAPS - 1 : 1)
#define PITCH     ((long)M * SAMPLE_BITS / 32) /* words from row to row */
#define ROWS      FRONT_TOGETHER                            /* rows that are filtered together */
#define STAGES     FRONT_STAGES
#define LEAD_ROWS  ((N_TAPS - 1 + ROWS * STAGES - 1) / (ROWS * STAGES) * (ROWS * STAGES)) /* before the first is done */
#define SPARE_ROWS (LEAD_ROWS - (N_TAPS - 1)) /* of these, how many come before the window */

/* Samples are fetched ahead, by each warp what it needs itself: of a row and polarisation J pieces, one for each j1, of
 * N_WORDS words, into a ring of STAGES x ROWS rows. */
#define J          (32 * PER / C)
#define N_WORDS    ((C * SAMPLE_BITS + 30) / 32 + 1)
#define N_WARPS    (N_THREADS / 32)
#define N_FETCHES  ((J * N_WORDS + 31) / 32) /* by each lane, of a row and polarisation */
#define PIECES     (J * N_WORDS)
#define FITS_FLOAT (PER * SAMPLE_BITS <= 22)

struct stage {
    uint32_t words[ROWS][2][J][N_WORDS];
};

/* Asynchronously, as loads into registers could not be begun early enough.  TO and FROM are bytes further. */
template <int TO, long FROM> static __device__ __forceinline__ void fetch_word(uint32_t *to, const uint32_t *from)
{
#ifdef EMULATE_CUDA
    to[TO / 4] = from[FROM / 4];
#else
    asm volatile("cp.async.ca.shared.global [%0 + %2], [%1 + %3], 4;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "n"(TO), "n"(FROM));
#endif
}

/* Ends a stage's fetches, and waits until those of the stage STAGES - 1 before have arrived for the whole warp. */
static __device__ __forceinline__ void end_stage(void)
{
#ifndef EMULATE_CUDA
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

static __device__ __forceinline__ void wait_for_stage(void)
{
#ifndef EMULATE_CUDA
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
#endif
    __syncwarp();
}

/* How the samples of a polarisation come to a thread. */
struct reader {
    const uint32_t *words[N_FETCHES]; /* that this lane fetches next, of the first row */
    uint32_t low;          /* of the warp's words of a row, which has the first of the thread's PER samples */
    uint32_t selector;     /* of the four bytes that have them, turned round, out of two words */
    uint32_t shift;        /* see unpack() */
};

/* 'first' is the sample in the block's first column of row 0. */
static __device__ __forceinline__ struct reader make_reader(const uint8_t *in, int64_t first)
{
    unsigned my_j1 = threadIdx.x * PER / C;
    uint64_t piece = (uint64_t)(first + (int64_t)my_j1 * M2) * SAMPLE_BITS;
    uint64_t mine = piece + threadIdx.x * PER % C * SAMPLE_BITS;
    struct reader r;

#pragma unroll
    for (int f = 0; f < N_FETCHES; f++) {
        unsigned word = threadIdx.x % 32 + 32 * f;
        unsigned j1 = threadIdx.x / 32 * J + (word < PIECES ? word / N_WORDS : 0);
        uint64_t fetched = (uint64_t)(first + (int64_t)j1 * M2) * SAMPLE_BITS;
        r.words[f] = (const uint32_t *)in + fetched / 32 + word % N_WORDS;
    }
    r.low = threadIdx.x % 32 * PER / C * N_WORDS + (uint32_t)(mine / 32 - piece / 32);
    r.selector = 0x0123 + 0x1111 * (uint32_t)(mine / 8 % 4);
    r.shift = FITS_FLOAT ? 32 - PER * SAMPLE_BITS - (uint32_t)(mine % 8) : (uint32_t)(mine % 8);
    return r;
}

/* The samples in four bytes.  Where they fit a float's mantissa, they lie 'shift' bits from the bottom, and are masked
 * into a mantissa that has an exponent, sign bit turned over; masks[] come in registers, so that this is one operation.
 * Otherwise they lie 'shift' bits from the top. */
static __device__ __forceinline__ void unpack(uint32_t bytes, uint32_t shift, const uint32_t (&masks)[PER], float (&x)[PER])
{
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int at = (PER - 1 - i) * SAMPLE_BITS;
        const uint32_t sign = 1u << (at + SAMPLE_BITS - 1);
        const float scale = 1.0f / (float)(1u << at);

        if (FITS_FLOAT)
            x[i] = fmaf(__uint_as_float((bytes >> shift & masks[i]) ^ (0x4B000000u | sign)), scale,
                        -(8388608.0f + (float)sign) * scale);
        else
            x[i] = (float)((int32_t)(bytes << (shift + i * SAMPLE_BITS)) >> (32 - SAMPLE_BITS));
    }
}

/* 'value', which the compiler cannot tell: it would make it part of the instruction, where there is room for one only. */
static __device__ __forceinline__ uint32_t in_register(uint32_t value)
{
    return value * gridDim.z;
}

/* Row R of ROWS, if it is between 'n_before' and 'n_rows', and those behind. */
template <int R>
static __device__ __forceinline__ void fetch_each(const uint32_t *const (&from)[2], int n_before, int n_rows, uint32_t *to)
{
    if (R >= n_before && R < n_rows) {
        fetch_word<(R * 2) * PIECES * 4, R * PITCH * 4>(to, from[0]);
        fetch_word<(R * 2 + 1) * PIECES * 4, R * PITCH * 4>(to, from[1]);
    }
    if (R + 1 < ROWS)
        fetch_each<(R + 1 < ROWS ? R + 1 : R)>(from, n_before, n_rows, to);
}

/* ROWS rows, and on to the next ones.  Of these 'n_before' lie before the window, and those from 'n_rows' on behind it:
 * they add to no spectrum of the section, so what is in their place may stay. */
static __device__ __forceinline__ void fetch_rows(struct reader (&readers)[2], int n_before, int n_rows, struct stage *to)
{
#pragma unroll
    for (int f = 0; f < N_FETCHES; f++) {
        unsigned word = threadIdx.x % 32 + 32 * f;
        if (word < PIECES) {
            const uint32_t *from[2] = {readers[0].words[f], readers[1].words[f]};
            if (n_before <= 0 && n_rows >= ROWS)
                fetch_each<0>(from, 0, ROWS, to->words[0][0][0] + word);
            else
                fetch_each<0>(from, n_before, n_rows, to->words[0][0][0] + word);
        }
        readers[0].words[f] += ROWS * PITCH;
        readers[1].words[f] += ROWS * PITCH;
    }
    end_stage();
}

static __device__ __forceinline__ void unpack_rows(const struct reader (&readers)[2], const uint32_t (&masks)[PER],
                                                   const struct stage *from, float (&x)[ROWS][2][PER])
{
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        const uint32_t *mine = from->words[0][0][0] + readers[pol].low;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const uint32_t *words = mine + (r * 2 + pol) * PIECES;
            unpack(__byte_perm(words[0], words[1], readers[pol].selector), readers[pol].shift, masks, x[r][pol]);
        }
    }
}

/* Weights of two taps, which are taken from the last to the first. */
struct __align__(2 * PER * 4) weights {
    float of[2][PER];
};

/* Puts ROWS rows of samples through the filters.  sums[i] lacks i + 1 rows, of which x[r] comes with weight
 * N_TAPS - 1 - i + r.  So the first ROWS sums are completed, into done[], and all others move down by ROWS places; the
 * weights pass by once, ROWS of them at a time. */
static __device__ __forceinline__ void filter_rows(const struct weights *weights, const float (&x)[ROWS][2][PER],
                                                   float (&sums)[N_SUMS][2][PER], float (&done)[ROWS][2][PER])
{
    float w[ROWS][PER]; /* w[r]: of x[r] for the sum in hand */
    struct weights pair = {};

#pragma unroll
    for (int i = 0; i < N_TAPS - 1 + ROWS; i++) {
        const int t0 = N_TAPS - 1 - i; /* of x[0] */
#pragma unroll
        for (int r = ROWS - 1; r > 0; r--)
#pragma unroll
            for (int c = 0; c < PER; c++)
                w[r][c] = w[r - 1][c];
        if (i % 2 == 0 && t0 >= 0)
            pair = weights[i / 2 * N_THREADS];
#pragma unroll
        for (int c = 0; c < PER; c++)
            w[0][c] = pair.of[i % 2][c];
#pragma unroll
        for (int pol = 0; pol < 2; pol++)
#pragma unroll
            for (int c = 0; c < PER; c++) {
                float sum = i < N_TAPS - 1 ? sums[i < N_SUMS ? i : 0][pol][c] : 0.0f;
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

static __device__ __forceinline__ void store_points(const float (&done)[2][PER], float2 *to)
{
    if (PER == 2)
        *(float4 *)to = make_float4(done[0][0], done[1][0], done[0][PER - 1], done[1][PER - 1]);
    else
        *to = make_float2(done[0][0], done[1][0]);
}

/* The first pass of the block's transforms, in place: [spectrum][ja][jb][c] to [spectrum][ka][jb][c]. */
static __device__ __forceinline__ void first_pass(float2 *points, const float2 *inner)
{
    const int step = N_THREADS / (RADIX_B * C);
    int column = threadIdx.x % (RADIX_B * C), jb = column / C;
    float2 turn[RADIX_A];

#pragma unroll
    for (int ka = 1; ka < RADIX_A; ka++)
        turn[ka] = inner[jb * RADIX_A + ka];
    for (int s = threadIdx.x / (RADIX_B * C); s < G; s += step) {
        float2 *at = points + s * (M1 * C) + column, v[RADIX_A];
#pragma unroll
        for (int i = 0; i < RADIX_A; i++)
            v[i] = at[i * (RADIX_B * C)];
        fft_registers<RADIX_A>(v);
        at[0] = v[0];
#pragma unroll
        for (int i = 1; i < RADIX_A; i++)
            at[i * (RADIX_B * C)] = complex_multiply(v[i], turn[i]);
    }
}

/* The last pass, to device memory: [spectrum][ka][jb][c] to [spectrum][k1 = ka + RADIX_A kb][j2]. */
static __device__ __forceinline__ void last_pass(const float2 *points, const float2 (&outer)[M1][C], float2 *out, int n)
{
    const int radix = RADIX_B == 1 ? RADIX_A : RADIX_B, n_first = M1 / radix;
    const int step = N_THREADS / (n_first * C);
    int ka = threadIdx.x / C % n_first, j2 = blockIdx.x * C + threadIdx.x % C;
    float2 turn[radix];

#pragma unroll
    for (int kb = 0; kb < radix; kb++)
        turn[kb] = outer[ka + n_first * kb][threadIdx.x % C];
    for (int s = threadIdx.x / (n_first * C); s < n; s += step) {
        const float2 *at = points + (s * M1 + ka * radix) * C + threadIdx.x % C;
        float2 *to = out + ((long)s * M1 + ka) * M2 + j2, v[radix];
#pragma unroll
        for (int i = 0; i < radix; i++)
            v[i] = at[i * C];
        fft_registers<radix>(v);
#pragma unroll
        for (int i = 0; i < radix; i++)
            to[(long)i * n_first * M2] = complex_multiply(v[i], turn[i]);
    }
}

/* Shared memory of the block, behind its points. */
struct tables {
    struct weights weights[(N_TAPS + 1) / 2][N_THREADS];
    float2 outer[M1][C];
    float2 inner[M1];
    struct stage stages[N_WARPS][STAGES];
    uint32_t more; /* a word more than the last sample needs is read */
};

static __device__ __forceinline__ void load_tables(const struct channelise_front_args &args, struct tables *tables)
{
    const float *mine = args.weights + threadIdx.x * PER / C * M2 + blockIdx.x * C + threadIdx.x * PER % C;

    for (int i = 0; i < (N_TAPS + 1) / 2 * 2; i++)
        for (int c = 0; c < PER; c++)
            tables->weights[i / 2][threadIdx.x].of[i % 2][c] = i < N_TAPS ? mine[(N_TAPS - 1 - i) * M + c] : 0.0f;
    for (unsigned i = threadIdx.x; i < M1 * C; i += N_THREADS)
        tables->outer[i / C][i % C] = ((const float2 *)args.outer)[i / C * M2 + blockIdx.x * C + i % C];
    for (unsigned i = threadIdx.x; i < M1; i += N_THREADS)
        tables->inner[i] = ((const float2 *)args.inner)[i];
}

extern "C" __global__ void __launch_bounds__(N_THREADS, FRONT_BLOCKS)
    channelise_front(const struct channelise_front_args args)
{
    extern __shared__ float4 shared_memory[];
    float2 *points = (float2 *)shared_memory; /* [spectrum][j1][c] */
    struct tables *tables = (struct tables *)(points + G * M1 * C);
    struct stage *stages = tables->stages[threadIdx.x / 32];
    const struct weights *weights = &tables->weights[0][threadIdx.x];
    uint32_t begin = blockIdx.y * args.section_spectra;
    uint32_t end = min(begin + args.section_spectra, args.n_spectra);
    int n_rows = (int)(end - begin) + N_TAPS - 1; /* not fetched yet */
    float sums[N_SUMS][2][PER], done[ROWS][2][PER], x[ROWS][2][PER];
    struct reader readers[2];
    uint32_t masks[PER];

#pragma unroll
    for (int c = 0; c < PER; c++)
        masks[c] = in_register(((1u << SAMPLE_BITS) - 1) << (PER - 1 - c) * SAMPLE_BITS);
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        readers[pol] = make_reader(args.in[pol], args.offset[pol] + (int64_t)begin * M + blockIdx.x * C);
#pragma unroll
        for (int f = 0; f < N_FETCHES; f++)
            readers[pol].words[f] -= SPARE_ROWS * PITCH;
#pragma unroll
        for (int i = 0; i < N_SUMS; i++)
#pragma unroll
            for (int c = 0; c < PER; c++)
                sums[i][pol][c] = 0;
    }
    n_rows += SPARE_ROWS;
    for (int i = 0; i < STAGES - 1; i++, n_rows -= ROWS)
        fetch_rows(readers, SPARE_ROWS - i * ROWS, n_rows, stages + i);
    load_tables(args, tables);
    __syncthreads();
#pragma unroll 1
    for (int row = 0; row < LEAD_ROWS; row += ROWS * STAGES)
#pragma unroll
        for (int i = 0; i < STAGES; i++, n_rows -= ROWS) {
            wait_for_stage();
            unpack_rows(readers, masks, stages + i, x);
            fetch_rows(readers, SPARE_ROWS - row - (i + STAGES - 1) * ROWS, n_rows, stages + (i + STAGES - 1) % STAGES);
            filter_rows(weights, x, sums, done);
        }
    for (uint32_t first = begin; first < end; first += G) {
#pragma unroll 1
        for (int s = 0; s < G; s += ROWS * STAGES)
#pragma unroll
            for (int i = 0; i < STAGES; i++, n_rows -= ROWS) {
                wait_for_stage();
                unpack_rows(readers, masks, stages + i, x);
                fetch_rows(readers, 0, n_rows, stages + (i + STAGES - 1) % STAGES);
                filter_rows(weights, x, sums, done);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    store_points(done[r], points + (s + i * ROWS + r) * (M1 * C) + threadIdx.x * PER);
            }
        __syncthreads();
        if (RADIX_B > 1) {
            first_pass(points, tables->inner);
            __syncthreads();
        }
        last_pass(points, tables->outer, (float2 *)args.out + (uint64_t)first * M, (int)min((uint32_t)G, end - first));
        __syncthreads();
    }
}
