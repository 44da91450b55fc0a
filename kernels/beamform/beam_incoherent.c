/* beam_incoherent.c - plain C version of beam_incoherent: runs for each batch that reaches the X-engine, as correlate
 * does. */
#include "kernels/beamform/beam_incoherent.h"

#include "kernels/beamform/beamform_sums.h"
#include "kernels/util/clones.h"

#include <assert.h>
#include <string.h>

/* Sums over the antennas for each spectrum of a block, in one channel. */
struct block {
    int64_t x[BEAMFORM_BLOCK_SPECTRA], y[BEAMFORM_BLOCK_SPECTRA];
    int64_t re[BEAMFORM_BLOCK_SPECTRA], im[BEAMFORM_BLOCK_SPECTRA];
};

/* Adds the weighted products of an antenna's voltages to the sums.  'parts' is [pol][re or im][spectrum]. */
KERNEL_CLONES static void add_antenna(int16_t (*parts)[2][BEAMFORM_BLOCK_SPECTRA],
                                      const struct beam_incoherent_weights *weights, bool is_stokes, struct block *sums)
{
    const int16_t *xr = parts[0][0], *xi = parts[0][1], *yr = parts[1][0], *yi = parts[1][1];

    for (size_t s = 0; s < BEAMFORM_BLOCK_SPECTRA; s++) {
        sums->x[s] += (int64_t)weights->x * (xr[s] * xr[s] + xi[s] * xi[s]);
        sums->y[s] += (int64_t)weights->y * (yr[s] * yr[s] + yi[s] * yi[s]);
    }
    for (size_t s = 0; is_stokes && s < BEAMFORM_BLOCK_SPECTRA; s++) {
        sums->re[s] += (int64_t)weights->xy * (xr[s] * yr[s] + xi[s] * yi[s]);
        sums->im[s] += (int64_t)weights->xy * (xi[s] * yr[s] - xr[s] * yi[s]);
    }
}

/* Adds the sums of a window to the powers that all threads share. */
static void add_window(const struct beam_incoherent_args *a, uint32_t window, uint32_t chan,
                       const struct beam_incoherent_sums *sums)
{
    uint32_t n_products = beam_n_products(a->products), n_groups = a->n_chan / a->group_channels;
    int64_t powers[BEAM_MAX_PRODUCTS];

    beam_incoherent_products(a->products, sums, powers);
    for (uint32_t p = 0; p < n_products; p++) {
        int64_t *to = &a->powers[((size_t)window * n_products + p) * n_groups + chan / a->group_channels];
#pragma omp atomic
        *to += powers[p];
    }
}

/* Adds a block of 'n' spectra to the windows.  The block begins with spectrum 'first' of the batch. */
static void add_windows(const struct beam_incoherent_args *a, uint32_t batch, uint32_t chan, uint32_t first, size_t n,
                        const struct block *block)
{
    struct beam_incoherent_sums sums = {0, 0, 0, 0};
    uint32_t window = BEAM_INCOHERENT_NO_WINDOW;

    for (size_t s = 0; s < n; s++) {
        uint32_t now = beam_incoherent_window(a, batch, first + (uint32_t)s);
        if (now != window) {
            if (window != BEAM_INCOHERENT_NO_WINDOW)
                add_window(a, window, chan, &sums);
            sums = (struct beam_incoherent_sums){0, 0, 0, 0};
            window = now;
        }
        sums.x += block->x[s];
        sums.y += block->y[s];
        sums.re += block->re[s];
        sums.im += block->im[s];
    }
    if (window != BEAM_INCOHERENT_NO_WINDOW)
        add_window(a, window, chan, &sums);
}

static void add_block(const struct beam_incoherent_args *a, uint32_t batch, uint32_t chan, uint32_t first)
{
    size_t n = a->n_spectra - first < BEAMFORM_BLOCK_SPECTRA ? a->n_spectra - first : BEAMFORM_BLOCK_SPECTRA;
    int16_t parts[N_POLS][2][BEAMFORM_BLOCK_SPECTRA] = {0};
    struct block sums;

    memset(&sums, 0, sizeof(sums));
    for (uint32_t ant = 0; ant < a->n_ants; ant++) {
        size_t at = (((size_t)batch * a->n_ants + ant) * a->n_chan + chan) * a->n_spectra + first;
        beamform_widen((const uint8_t *)a->voltages + at * N_POLS * voltage_bytes(a->format), a->format, n, parts);
        add_antenna(parts, &a->weights[ant], a->products == BEAM_STOKES, &sums);
    }
    add_windows(a, batch, chan, first, n, &sums);
}

static void beam_incoherent_cpu(const void *args, int n_threads)
{
    const struct beam_incoherent_args *a = args;

    assert(a->n_spectra % 8 == 0 && a->n_ants <= BEAMFORM_MAX_ANTS && a->format != VOLTAGES_16_BITS);
    assert(a->window_spectra >= 1 && a->window_spectra <= BEAM_DETECT_MAX_SPECTRA);
    assert(a->n_chan % a->group_channels == 0);
#pragma omp parallel for collapse(2) num_threads(n_threads)
    for (uint32_t batch = a->first_batch; batch < a->first_batch + a->n_batches; batch++)
        for (uint32_t chan = 0; chan < a->n_chan; chan++)
            for (uint32_t first = 0; first < a->n_spectra; first += BEAMFORM_BLOCK_SPECTRA)
                add_block(a, batch, chan, first);
}

const struct kernel beam_incoherent_kernel = {
    .name = "beam_incoherent",
    .args_bytes = sizeof(struct beam_incoherent_args),
    .cpu = beam_incoherent_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define N_THREADS    128
#define LANE_SPECTRA 4

void beam_incoherent_constants(const struct beam_incoherent_args *args, struct kernel_constant *constants)
{
    constants[0] = (struct kernel_constant){"SAMPLE_BYTES", voltage_bytes(args->format)};
    constants[1] = (struct kernel_constant){"FLIP", voltage_zero(args->format)};
    constants[2] = (struct kernel_constant){"PRODUCTS", args->products};
    constants[3] = (struct kernel_constant){"N_THREADS", N_THREADS};
}

struct kernel_grid beam_incoherent_grid(const struct beam_incoherent_args *args)
{
    uint32_t block_spectra = N_THREADS * LANE_SPECTRA;
    uint32_t n_blocks = (args->n_chan * args->n_spectra + block_spectra - 1) / block_spectra;

    return (struct kernel_grid){.blocks = {n_blocks * args->n_batches, 1, 1}, .threads = N_THREADS};
}
