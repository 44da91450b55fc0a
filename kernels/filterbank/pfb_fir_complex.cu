/* pfb_fir_complex.cu - see pfb_fir_complex.h.
 *
 * The spectra are divided into gridDim.y sections.  A thread filters one column of a section, row by row.  Each sample
 * is loaded once, and is immediately added to its n_taps sums (the transposed form of the filter).
 *
 * Constants: N_BINS, N_TAPS, N_THREADS. */
#include "kernels/filterbank/pfb_fir_complex.h"
#include "kernels/filterbank/fir_complex.h"

#define ROWS_AHEAD 4 /* number of rows that a thread loads while it filters the previous ROWS_AHEAD rows */

/* Loads rows [row, row + ROWS_AHEAD).  Row n_rows and later rows do not exist.  Zeros replace these rows and add
 * nothing. */
static __device__ __forceinline__ void load_rows(const float2 *in, int row, int n_rows, float2 (&rows)[ROWS_AHEAD])
{
#pragma unroll
    for (int i = 0; i < ROWS_AHEAD; i++)
        rows[i] = row + i < n_rows ? __ldg(in + (int64_t)(row + i) * N_BINS) : make_float2(0, 0);
}

extern "C" __global__ void __launch_bounds__(N_THREADS) pfb_fir_complex(const struct pfb_fir_complex_args args)
{
    int column = blockIdx.x * N_THREADS + threadIdx.x;
    int section = (int)((args.n_spectra + gridDim.y - 1) / gridDim.y), begin = (int)blockIdx.y * section;
    int n_rows = min(section, (int)args.n_spectra - begin) + N_TAPS - 1;
    const float2 *in = (const float2 *)args.in + args.offset + (int64_t)begin * N_BINS + column;
    /* Address in the output for row 0.  Row N_TAPS - 1 completes the section's first spectrum, so this address lies
     * N_TAPS - 1 spectra before the section. */
    float2 *out = (float2 *)args.out + ((int64_t)begin - (N_TAPS - 1)) * N_BINS + column;
    float weights[N_TAPS];
    float2 sums[N_SUMS], now[ROWS_AHEAD], next[ROWS_AHEAD];

    if (n_rows < N_TAPS) /* all sections have the same length, so the last section may begin beyond the last spectrum */
        return;
    load_rows(in, 0, n_rows, next);
#pragma unroll
    for (int i = 0; i < N_TAPS; i++)
        weights[i] = args.weights[i * N_BINS + column];
#pragma unroll
    for (int i = 0; i < N_SUMS; i++)
        sums[i] = make_float2(0, 0);
    for (int row = 0; row < n_rows; row += ROWS_AHEAD) {
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++)
            now[i] = next[i];
        load_rows(in, row + ROWS_AHEAD, n_rows, next);
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++) {
            float2 done = filter(weights, now[i], sums);
            if (row + i >= N_TAPS - 1 && row + i < n_rows)
                out[(int64_t)(row + i) * N_BINS] = done;
        }
    }
}
