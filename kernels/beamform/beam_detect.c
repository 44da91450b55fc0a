/* beam_detect.c - plain C version of beam_detect: runs for each batch that reaches the X-engine, as correlate does. */
#include "kernels/beamform/beam_detect.h"

#include "common/base/units.h"
#include "kernels/beamform/beamform_sums.h"

#include <assert.h>
#include <string.h>

/* Adds the powers of a window to the sums that all threads share. */
static void add_window(const struct beam_detect_args *a, uint64_t window, uint32_t beam, uint32_t chan,
                       const int64_t *powers)
{
    uint32_t n_products = beam_n_products(a->products), n_groups = a->form.n_chan / a->group_channels;
    size_t row = ((size_t)window * (a->form.n_beams / N_POLS) + beam) * n_products;

    for (uint32_t p = 0; p < n_products; p++) {
        int64_t *to = &a->powers[(row + p) * n_groups + chan / a->group_channels];
#pragma omp atomic
        *to += powers[p];
    }
}

/* Detects 'n' spectra of a beam. sums[pol] has the sums of the beam's voltages.  'spectrum' is the number of the
 * first spectrum. */
static void detect(const struct beam_detect_args *a, const struct beamform_sums *sums, size_t batch, uint32_t beam,
                   uint32_t chan, uint64_t spectrum, size_t n)
{
    const int32_t *exponents = a->form.exponents + (size_t)chan * a->form.n_beams + beam * N_POLS;
    const float *factors = a->form.renormalise ? a->form.renormalise + batch * a->form.n_beams + beam * N_POLS : NULL;
    uint64_t window = 0, end = a->first + (uint64_t)a->n_windows * a->window_spectra;
    int64_t powers[BEAM_MAX_PRODUCTS] = {0};
    uint32_t n_clipped = 0;

    for (size_t s = 0; s < n; s++, spectrum++) {
        uint32_t clipped[N_POLS] = {0, 0};
        int32_t parts[N_POLS][2];
        if (spectrum < a->first || spectrum >= end)
            continue;
        if ((spectrum - a->first) / a->window_spectra != window) {
            add_window(a, window, beam, chan, powers);
            memset(powers, 0, sizeof(powers));
            window = (spectrum - a->first) / a->window_spectra;
        }
        for (int pol = 0; pol < N_POLS; pol++) {
            float scale = beamform_scale(exponents[pol]), factor = factors ? factors[pol] : 1;
            parts[pol][0] = beam_detect_round((float)sums[pol].re[s] * scale * factor, &clipped[pol]);
            parts[pol][1] = beam_detect_round((float)sums[pol].im[s] * scale * factor, &clipped[pol]);
        }
        beam_detect_add(a->products, parts[0], parts[1], powers);
        n_clipped += clipped[0] + clipped[1];
    }
    add_window(a, window, beam, chan, powers);
#pragma omp atomic
    a->form.saturated[beam] += n_clipped;
}

/* Detects all beams in a block of spectra of one channel. */
static void detect_block(const struct beam_detect_args *a, size_t batch, uint32_t chan, size_t first,
                         struct beamform_widened *block)
{
    const struct beamform_args *f = &a->form;
    uint64_t spectrum = f->first_spectrum + batch * f->n_spectra + first;
    size_t n = f->n_spectra - first < BEAMFORM_BLOCK_SPECTRA ? f->n_spectra - first : BEAMFORM_BLOCK_SPECTRA;
    struct beamform_sums sums[BEAMFORM_BLOCK_BEAMS];

    for (uint32_t row = 0; row < f->n_beams; row += BEAMFORM_BLOCK_BEAMS) {
        uint32_t n_rows = f->n_beams - row < BEAMFORM_BLOCK_BEAMS ? f->n_beams - row : BEAMFORM_BLOCK_BEAMS;
        beamform_sum_block(f, batch, chan, first, row, n_rows, block, sums);
        for (uint32_t r = 0; r < n_rows; r += N_POLS)
            detect(a, &sums[r], batch, (row + r) / N_POLS, chan, spectrum, n);
    }
}

static void beam_detect_cpu(const void *args, int n_threads)
{
    const struct beam_detect_args *a = args;
    const struct beamform_args *f = &a->form;

    assert(f->n_spectra % 8 == 0 && f->n_ants <= BEAMFORM_MAX_ANTS && f->n_beams % N_POLS == 0);
    assert(f->format != VOLTAGES_16_BITS && f->n_chan % a->group_channels == 0);
    assert(a->window_spectra >= 1 && a->window_spectra <= BEAM_DETECT_MAX_SPECTRA);
#pragma omp parallel num_threads(n_threads)
    {
        struct beamform_widened block = {0};
#pragma omp for collapse(2)
        for (size_t batch = f->first_batch; batch < f->first_batch + f->n_batches; batch++)
            for (uint32_t chan = 0; chan < f->n_chan; chan++)
                for (size_t first = 0; first < f->n_spectra; first += BEAMFORM_BLOCK_SPECTRA)
                    detect_block(a, batch, chan, first, &block);
    }
}

const struct kernel beam_detect_kernel = {
    .name = "beam_detect",
    .args_bytes = sizeof(struct beam_detect_args),
    .cpu = beam_detect_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define SPANS_BYTES  1024 /* bytes that the spans need in shared memory: struct span [2 buffers][8 pieces][4] */
#define WGMMA_GROUPS 16   /* minimum number of groups of beams for which wgmma is faster than mma */

/* Returns the arguments for beamform's code, which computes the sums.  A warpgroup sums only one polarisation, so the
 * wgmma variant cannot compute Stokes parameters. */
static struct beamform_args form_of(const struct beam_detect_args *args)
{
    struct beamform_args form = args->form;

    if (args->products == BEAM_STOKES || args->form.n_slots < WGMMA_GROUPS * BEAM_GROUP_BEAMS)
        form.wgmma = 0;
    return form;
}

void beam_detect_constants(const struct beam_detect_args *args, struct kernel_constant *constants)
{
    const struct beamform_args form = form_of(args);

    beamform_constants(&form, constants);
    constants[BEAMFORM_N_CONSTANTS] = (struct kernel_constant){"PRODUCTS", args->products};
}

/* Returns the grid.  The wgmma variant also stores the spans in shared memory.  If warps keep voltages in registers
 * (beamform_held.h), shared memory has the fragments of this turn's pair of groups and of the next turn's pair. */
struct kernel_grid beam_detect_grid(const struct beam_detect_args *args)
{
    const struct beamform_args form = form_of(args);
    struct kernel_grid grid = beamform_grid(&form);

    if (beamform_is_whole(&form))
        grid.shared_bytes += SPANS_BYTES;
    else if (beamform_holds(&form))
        grid.shared_bytes += BEAMFORM_TILE_GROUPS * (uint32_t)beam_fragments_group_bytes(form.n_ants);
    return grid;
}
