/* select_spectra.c - plain C twin of select_spectra: between the upload and correlate.c, where inputs are shifted or an
 * output has a gate. */
#include "kernels/select_spectra.h"

#include "common/units.h"

#include <assert.h>
#include <string.h>

/* What is wanted of one channel: 'n' spectra, in list[0 .. n) or from 'first' on. */
struct wanted {
    const uint32_t *list;
    size_t first, n;
};

static struct wanted find_wanted(const struct select_spectra_args *a, size_t chan)
{
    size_t row = a->n_rows == 1 ? 0 : chan;
    struct wanted w = {NULL, (size_t)a->first_batch * a->n_spectra, (size_t)a->n_batches * a->n_spectra};

    if (a->spectra) {
        const uint32_t *ends = a->ends + row * a->ends_pitch + a->first_batch;
        w.list = a->spectra + row * a->row_pitch + ends[0];
        w.n = ends[a->n_batches] - ends[0];
    }
    return w;
}

/* Of an input, its spectrum 't' in channel 'chan'. */
static inline const uint8_t *find_sample(const struct select_spectra_args *a, size_t ant, size_t chan, size_t pol,
                                         size_t t, size_t bytes)
{
    size_t delay = a->delays ? a->delays[ant * N_POLS + pol] : 0;
    size_t from = (size_t)a->n_history * a->n_spectra + t - delay;
    size_t heap = (from / a->n_spectra * a->n_ants + ant) * a->n_chan + chan;

    return (const uint8_t *)a->in + ((heap * a->n_spectra + from % a->n_spectra) * N_POLS + pol) * bytes;
}

/* One antenna's channel of one batch out.  'bytes' of a sample is a constant to whoever inlines this. */
static inline void select_any(const struct select_spectra_args *a, size_t out_batch, size_t ant, size_t chan,
                              size_t bytes)
{
    struct wanted w = find_wanted(a, chan);
    size_t n_out = a->n_out_spectra, first = out_batch * n_out;
    uint8_t *out = (uint8_t *)a->out + ((out_batch * a->n_ants + ant) * a->n_chan + chan) * n_out * N_POLS * bytes;

    for (size_t j = 0; j < n_out; j++)
        for (size_t pol = 0; pol < N_POLS; pol++, out += bytes) {
            size_t t = first + j >= w.n ? 0 : w.list ? w.list[first + j] : w.first + first + j;
            if (first + j < w.n && (!a->present || a->present[t / a->n_spectra * a->n_ants + ant]))
                memcpy(out, find_sample(a, ant, chan, pol, t, bytes), bytes);
            else
                memset(out, voltage_zero(a->format), bytes);
        }
}

static void select_spectra_cpu(const void *args, int n_threads)
{
    const struct select_spectra_args *a = args;

    assert(a->n_rows == 1 || a->n_rows == a->n_chan);
#pragma omp parallel for collapse(3) num_threads(n_threads)
    for (size_t b = 0; b < a->n_out_batches; b++)
        for (size_t ant = 0; ant < a->n_ants; ant++)
            for (size_t chan = 0; chan < a->n_chan; chan++)
                switch (voltage_bytes(a->format)) {
                case 1: select_any(a, b, ant, chan, 1); break;
                case 2: select_any(a, b, ant, chan, 2); break;
                default: select_any(a, b, ant, chan, 4); break;
                }
}

const struct kernel select_spectra_kernel = {
    .name = "select_spectra",
    .args_bytes = sizeof(struct select_spectra_args),
    .cpu = select_spectra_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define MAX_THREADS 256 /* of a block; to be measured: 64, 128, 256, 512 */
#define BLOCK_ANTS  8   /* that share what is looked up of a spectrum; to be measured: 1, 4, 8, 16 */

void select_spectra_constants(const struct select_spectra_args *args, struct kernel_constant *constants)
{
    const struct kernel_constant all[SELECT_SPECTRA_N_CONSTANTS] = {
        {"SAMPLE_BYTES", voltage_bytes(args->format)},
        {"ZERO", voltage_zero(args->format)},
        {"N_SPECTRA", args->n_spectra},
        {"N_OUT_SPECTRA", args->n_out_spectra},
    };
    memcpy(constants, all, sizeof(all));
}

struct kernel_grid select_spectra_grid(const struct select_spectra_args *args)
{
    uint64_t n_out = (uint64_t)args->n_out_batches * args->n_out_spectra;
    uint32_t threads = n_out < MAX_THREADS ? (uint32_t)(n_out + 31) / 32 * 32 : MAX_THREADS;

    assert(n_out > 0);
    return (struct kernel_grid){
        .blocks = {(uint32_t)((n_out + threads - 1) / threads), (args->n_ants + BLOCK_ANTS - 1) / BLOCK_ANTS,
                   args->n_chan < 65535 ? args->n_chan : 65535},
        .threads = threads,
    };
}
