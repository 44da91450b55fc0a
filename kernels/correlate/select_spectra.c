/* select_spectra.c - plain C version of select_spectra: runs between the upload and correlate.c if inputs are shifted
 * or an output has a gate. */
#include "kernels/correlate/select_spectra.h"

#include "common/base/units.h"

#include <assert.h>
#include <string.h>

/* Wanted spectra of one channel: the spectra list[0 .. n).  If 'list' is NULL: 'n' spectra, beginning with
 * 'first'. */
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

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the index in 'in' of the spectrum that an input contributes to wanted spectrum 't'.  The index includes the
 * spectra of the history. */
static inline size_t find_source(const struct select_spectra_args *a, size_t ant, size_t pol, size_t t)
{
    return (size_t)a->n_history * a->n_spectra + t - (a->delays ? a->delays[ant * N_POLS + pol] : 0);
}

static inline const uint8_t *find_sample(const struct select_spectra_args *a, size_t ant, size_t chan, size_t pol,
                                         size_t from, size_t bytes)
{
    size_t heap = (from / a->n_spectra * a->n_ants + ant) * a->n_chan + chan;

    return (const uint8_t *)a->in + ((heap * a->n_spectra + from % a->n_spectra) * N_POLS + pol) * bytes;
}

/* Returns the length of the run of consecutive spectra that begins with the j-th wanted spectrum, 't'.  The spectra
 * of a run are in one batch.  For each polarisation, they come from one heap of 'in'. */
static size_t find_run(const struct select_spectra_args *a, const struct wanted *w, size_t j, size_t t, size_t ant)
{
    size_t n = smaller(w->n - j, a->n_spectra - t % a->n_spectra), run = 1;

    for (size_t pol = 0; pol < N_POLS; pol++)
        n = smaller(n, a->n_spectra - find_source(a, ant, pol, t) % a->n_spectra);
    if (!w->list)
        return n;
    while (run < n && w->list[j + run] == t + run)
        run++;
    return run;
}

/* Copies 'n' spectra of one antenna and channel.  'bytes', the size of a sample, is a constant in each inlined copy. */
static inline void copy_run(const struct select_spectra_args *a, size_t t, size_t ant, size_t chan, size_t n,
                            size_t bytes, uint8_t *out)
{
    const uint8_t *x = find_sample(a, ant, chan, 0, find_source(a, ant, 0, t), bytes);
    const uint8_t *y = find_sample(a, ant, chan, 1, find_source(a, ant, 1, t), bytes);

    if (y == x + bytes) {
        memcpy(out, x, n * N_POLS * bytes);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(out + i * N_POLS * bytes, x + i * N_POLS * bytes, bytes);
        memcpy(out + (i * N_POLS + 1) * bytes, y + i * N_POLS * bytes, bytes);
    }
}

/* Writes one antenna and channel of one output batch. */
static inline void select_any(const struct select_spectra_args *a, size_t out_batch, size_t ant, size_t chan,
                              size_t bytes)
{
    struct wanted w = find_wanted(a, chan);
    size_t first = out_batch * a->n_out_spectra, end = first + a->n_out_spectra, step = N_POLS * bytes;
    uint8_t *out = (uint8_t *)a->out + ((out_batch * a->n_ants + ant) * a->n_chan + chan) * a->n_out_spectra * step;

    for (size_t j = first, n; j < end; j += n, out += n * step) {
        size_t t = j >= w.n ? 0 : w.list ? w.list[j] : w.first + j;
        n = j < w.n ? smaller(find_run(a, &w, j, t, ant), end - j) : end - j;
        if (j < w.n && (!a->present || a->present[t / a->n_spectra * a->n_ants + ant]))
            copy_run(a, t, ant, chan, n, bytes, out);
        else
            memset(out, voltage_zero(a->format), n * step);
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

#define MAX_THREADS 256 /* number of threads of a block; values worth measuring: 64, 128, 256, 512 */
/* number of antennas of a block; a thread looks up a spectrum once for these antennas; worth measuring: 1, 4, 8, 16 */
#define BLOCK_ANTS 8

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
