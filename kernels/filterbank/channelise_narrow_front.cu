/* channelise_narrow_front.cu - FIR of complex samples and the first factor of their transform.  See
 * channelise_narrow.h. */
#include "kernels/filterbank/channelise_narrow.h"
#include "kernels/filterbank/fft_registers.h"
#include "kernels/filterbank/fir_complex.h"

/* PITCH is the distance, in points, from index ka to index ka + 1.  With this distance the lanes of the last pass
 * access different banks.  With KEEPS_FACTORS a thread keeps its outer factors in registers.  N_LEAD is the number of
 * rows before the first spectrum is complete, rounded up to a whole number of steps. */
#define POINTS          N_BINS
#define M1              (RADIX_A * RADIX_B)
#define M2              (POINTS / M1)
#define COLUMNS         NARROW_COLUMNS
#define STEP_SPECTRA    NARROW_TOGETHER
#define N_THREADS       (M1 * COLUMNS)
#define N_REST          (RADIX_B * COLUMNS) /* number of points with the same ka */
#define PITCH           (N_REST + (RADIX_B > 1 ? COLUMNS : 0))
#define SPECTRUM_POINTS (RADIX_A * PITCH)
#define RADIX_LAST      (RADIX_B > 1 ? RADIX_B : RADIX_A) /* radix of the last pass */
#define KEEPS_FACTORS   (RADIX_A <= 8)
#define N_FIRST         (M1 / RADIX_LAST)
#define N_LEAD          ((N_TAPS - 1 + STEP_SPECTRA - 1) / STEP_SPECTRA * STEP_SPECTRA)

/* Shared memory: points of two buffers, float2 [2][STEP_SPECTRA][SPECTRUM_POINTS]; then the outer factors, float2
 * [M1][COLUMNS]. */
extern __shared__ float4 shared_memory[];

/* Loads rows [row, row + STEP_SPECTRA).  Rows that no spectrum of the section uses get arbitrary values. */
static __device__ __forceinline__ void load_rows(const float2 *in, int row, int n_rows, float2 (&rows)[STEP_SPECTRA])
{
    if (row >= 0 && row + STEP_SPECTRA <= n_rows) {
        in += (int64_t)row * POINTS;
#pragma unroll
        for (int i = 0; i < STEP_SPECTRA; i++)
            rows[i] = __ldg(in + i * POINTS);
    } else {
#pragma unroll
        for (int i = 0; i < STEP_SPECTRA; i++)
            rows[i] = __ldg(in + (int64_t)min(max(row + i, 0), n_rows - 1) * POINTS);
    }
}

/* Waits between the two passes.  If both radices are equal, the N_REST threads of a spectrum are the same in both
 * passes, and wait only for each other. */
static __device__ __forceinline__ void wait_for_spectrum(void)
{
    if (RADIX_A == RADIX_B && N_REST % 32 == 0)
#ifdef EMULATE_CUDA
        emulate_barrier_wait(1 + threadIdx.x / N_REST, N_REST);
#else
        asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / N_REST), "n"(N_REST) : "memory");
#endif
    else
        __syncthreads();
}

/* Does the first of two passes, in place: [spectrum][ja][jb][c] to [spectrum][ka][jb][c]. */
static __device__ __forceinline__ void first_pass(float2 *points)
{
    for (int i = threadIdx.x; i < STEP_SPECTRA * N_REST; i += N_THREADS) {
        float2 *at = points + i / N_REST * SPECTRUM_POINTS + i % N_REST, v[RADIX_A];
#pragma unroll
        for (int a = 0; a < RADIX_A; a++)
            v[a] = at[a * PITCH];
        fft_registers<RADIX_A>(v);
#pragma unroll
        for (int a = 0; a < RADIX_A; a++)
            at[a * PITCH] = v[a];
    }
}

/* Does the last pass of 'n' spectra, to device memory: [spectrum][ka][jb][c] to [spectrum][k1 = ka + RADIX_A kb][j2].
 * 'step' is e^{-2 pi i ka / M1} of the thread.  kept[kb] is the thread's outer[kb * N_FIRST * COLUMNS]. */
static __device__ __forceinline__ void last_pass(const float2 *points, float2 step, const float2 *outer,
                                                 const float2 (&kept)[RADIX_LAST], float2 *out, int n)
{
    for (int i = threadIdx.x; i < n * N_FIRST * COLUMNS; i += N_THREADS) {
        int c = i % COLUMNS, ka = i / COLUMNS % N_FIRST, s = i / COLUMNS / N_FIRST;
        const float2 *at = points + s * SPECTRUM_POINTS + ka * PITCH + c;
        float2 *to = out + ((int64_t)s * M1 + ka) * M2 + blockIdx.x * COLUMNS + c, v[RADIX_LAST], turn = step;
        v[0] = at[0];
#pragma unroll
        for (int b = 1; b < RADIX_LAST; b++) {
            v[b] = RADIX_B > 1 ? complex_multiply(at[b * COLUMNS], turn) : at[b * COLUMNS];
            turn = complex_multiply(turn, step);
        }
        fft_registers<RADIX_LAST>(v);
#pragma unroll
        for (int b = 0; b < RADIX_LAST; b++)
            to[(int64_t)b * N_FIRST * M2] =
                complex_multiply(v[b], KEEPS_FACTORS ? kept[b] : outer[(ka + N_FIRST * b) * COLUMNS + c]);
    }
}

extern "C" __global__ void __launch_bounds__(N_THREADS, N_TAPS <= 16 && N_THREADS <= 256 ? 2 : 1)
    channelise_narrow_front(const struct channelise_narrow_front_args args)
{
    float2 *buffers = (float2 *)shared_memory, *outer = buffers + 2 * STEP_SPECTRA * SPECTRUM_POINTS;
    int begin = (int)(blockIdx.y * args.section_spectra), column = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    int n = min((int)args.section_spectra, (int)args.n_spectra - begin), n_rows = n + N_TAPS - 1;
    int place = threadIdx.x / COLUMNS * M2 + column; /* index in a row */
    int point = threadIdx.x / N_REST * PITCH + threadIdx.x % N_REST;
    const float2 *in = (const float2 *)(blockIdx.z ? args.in[1] : args.in[0]) +
                       (blockIdx.z ? args.offset[1] : args.offset[0]) + (int64_t)begin * POINTS + place;
    float2 *out = (float2 *)args.out + ((int64_t)blockIdx.z * args.n_buffer + begin) * POINTS;
    float weights[N_TAPS];
    float2 sums[N_SUMS], rows[STEP_SPECTRA], kept[RADIX_LAST], step; /* 'rows' has the next STEP_SPECTRA rows */

    load_rows(in, N_TAPS - 1 - N_LEAD, n_rows, rows);
    sincospif(-2.0f * (threadIdx.x / COLUMNS % N_FIRST) / M1, &step.y, &step.x);
#pragma unroll
    for (int i = 0; i < N_TAPS; i++)
        weights[i] = args.weights[i * POINTS + place];
#pragma unroll
    for (int i = 0; i < N_SUMS; i++)
        sums[i] = make_float2(0, 0);
    outer[threadIdx.x] = ((const float2 *)args.outer)[place];
    __syncthreads();
#pragma unroll
    for (int b = 0; b < RADIX_LAST; b++)
        kept[b] = outer[threadIdx.x % (N_FIRST * COLUMNS) + b * N_FIRST * COLUMNS];
    for (int s = -N_LEAD; s < n; s += STEP_SPECTRA) { /* 's' is the first spectrum that these rows complete */
        /* Successive steps use two buffers in turn.  So no thread waits for slower threads, which may still be in the
         * last pass of the previous step. */
        float2 *points = buffers + (s & STEP_SPECTRA) * SPECTRUM_POINTS;
#pragma unroll
        for (int i = 0; i < STEP_SPECTRA; i++) {
            float2 done = filter(weights, rows[i], sums);
            if (s >= 0)
                points[i * SPECTRUM_POINTS + point] = done;
        }
        load_rows(in, s + STEP_SPECTRA + N_TAPS - 1, n_rows, rows);
        if (s < 0)
            continue;
        __syncthreads();
        if (RADIX_B > 1) {
            first_pass(points);
            wait_for_spectrum();
        }
        last_pass(points, step, outer, kept, out + (int64_t)s * POINTS, min(STEP_SPECTRA, n - s));
    }
}
