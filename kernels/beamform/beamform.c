/* beamform.c - plain C version of beamform.  The kernel runs for each batch that reaches the X-engine, as correlate
 * does. */
#include "kernels/beamform/beamform.h"

#include "common/base/units.h"
#include "kernels/beamform/beamform_sums.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static float clip(float v, float least, float most, float zero, bool *clipped)
{
    *clipped = *clipped || !(v >= least && v <= most);
    return v < least ? least : v > most ? most : v == v ? v : zero;
}

static int8_t round_even(float v, bool *clipped)
{
    return (int8_t)lrintf(clip(v, -BEAMFORM_LIMIT, BEAMFORM_LIMIT, 0, clipped));
}

/* Dithers, clips and rounds a real or imaginary part.  'half' is one half of beamform_dither_word(). */
static int8_t round_dithered(float v, uint32_t half, bool *clipped)
{
    v += 128 + (float)(half | 1) / 65536;
    return (int8_t)((int)clip(v, BEAMFORM_LEAST, BEAMFORM_MOST, BEAMFORM_ZERO, clipped) - 128);
}

/* Quantises 'n' spectra of a batch, beginning with spectrum 'first'.  Returns the number of clipped samples. */
static uint32_t finish(const struct beamform_args *a, const struct beamform_sums *sums, size_t batch, uint32_t beam,
                       uint32_t chan, size_t first, size_t n)
{
    const struct beam *of = &a->beams[beam];
    float renormalise = a->renormalise ? a->renormalise[batch * a->n_beams + beam] : 1;
    float scale = beamform_scale(a->exponents[(size_t)chan * a->n_beams + beam]);
    uint64_t spectrum = a->first_spectrum + batch * a->n_spectra + first;
    int8_t *out = a->out + (((batch * a->n_beams + beam) * a->n_chan + chan) * a->n_spectra + first) * 2;
    uint32_t words[4] = {0}, n_clipped = 0;

    for (size_t s = 0; s < n; s++) {
        float re = (float)sums->re[s] * scale * renormalise, im = (float)sums->im[s] * scale * renormalise;
        bool clipped = false;
        uint32_t i = (spectrum + s) % 8;
        if (of->dither && (s == 0 || i == 0))
            beamform_dither(of->seed, a->chan_offset + chan, (spectrum + s) / 8, words);
        uint32_t word = beamform_dither_word(words, i);
        out[2 * s] = of->dither ? round_dithered(re, word & 0xffff, &clipped) : round_even(re, &clipped);
        out[2 * s + 1] = of->dither ? round_dithered(im, word >> 16, &clipped) : round_even(im, &clipped);
        n_clipped += clipped;
    }
    return n_clipped;
}

/* Forms beams 'beam' to 'beam' + BEAMFORM_BLOCK_BEAMS - 1, or to the last beam, for a block of spectra of one
 * channel. */
static void form_block(const struct beamform_args *a, size_t batch, uint32_t chan, size_t first, uint32_t beam,
                       struct beamform_widened *block)
{
    size_t n = a->n_spectra - first < BEAMFORM_BLOCK_SPECTRA ? a->n_spectra - first : BEAMFORM_BLOCK_SPECTRA;
    uint32_t n_beams = a->n_beams - beam < BEAMFORM_BLOCK_BEAMS ? a->n_beams - beam : BEAMFORM_BLOCK_BEAMS;
    struct beamform_sums sums[BEAMFORM_BLOCK_BEAMS];

    beamform_sum_block(a, batch, chan, first, beam, n_beams, block, sums);
    for (uint32_t b = 0; b < n_beams; b++) {
        size_t heap = batch * a->n_beams + beam + b;
        uint32_t n_clipped = finish(a, &sums[b], batch, beam + b, chan, first, n);
#pragma omp atomic
        a->saturated[heap] += n_clipped;
    }
}

static void beamform_cpu(const void *args, int n_threads)
{
    const struct beamform_args *a = args;

    assert(a->n_spectra % 4 == 0 && a->first_spectrum % 4 == 0 && a->n_ants <= BEAMFORM_MAX_ANTS);
    assert(a->format != VOLTAGES_16_BITS);
#pragma omp parallel num_threads(n_threads)
    {
        struct beamform_widened block = {0};
#pragma omp for collapse(2)
        for (size_t batch = a->first_batch; batch < a->first_batch + a->n_batches; batch++)
            for (uint32_t chan = 0; chan < a->n_chan; chan++)
                for (size_t first = 0; first < a->n_spectra; first += BEAMFORM_BLOCK_SPECTRA)
                    for (uint32_t beam = 0; beam < a->n_beams; beam += BEAMFORM_BLOCK_BEAMS)
                        form_block(a, batch, chan, first, beam, &block);
    }
}

const struct kernel beamform_kernel = {
    .name = "beamform",
    .args_bytes = sizeof(struct beamform_args),
    .cpu = beamform_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define N_WARPS     4
#define BLOCK_STEPS 8 /* number of steps in shared memory at a time; a step has the coefficients of 16 antennas */
/* with up to 256 antennas, the sum over the antennas fits in 32 bits: 256 * 2 * 32639 * 128 < 2^31 */
#define NARROW_ANTS 256
#define HELD_STEPS  6 /* maximum number of steps whose voltages fit in a warp's registers */
/* maximum number of groups of a block with beamform_held.h; the shared memory for slots limits this number */
#define HELD_GROUPS 32

/* Sizes of beamform_whole.h. */
#define WHOLE_WARPS       20  /* four warpgroups that compute, and one that loads */
#define WHOLE_SPECTRA     256 /* number of spectra of an item */
#define WHOLE_BUFFERS     2
#define WHOLE_BYTES       4  /* bytes of one spectrum of one antenna, with parts of 8 bits */
#define WHOLE_OTHER_BYTES 64 /* bytes of the items and barriers */
/* minimum number of groups for beamform_whole.h; with fewer groups, some warps would have no group */
#define WHOLE_GROUPS 5
/* maximum numbers of groups of a block, with up to 5 steps and with 6 steps; the shared memory limits these numbers */
#define WHOLE_MAX_GROUPS   128
#define WHOLE_MAX_GROUPS_6 64

uint32_t beamform_slots(const struct beam *beams, uint32_t n_beams, uint32_t *slots, uint32_t *slot_of)
{
    uint32_t next[N_POLS] = {0, 0}, n = 0;
    bool any = true;

    for (uint32_t turn = 0; any; turn++) {
        uint32_t pol = turn % N_POLS, begin = n;
        while (next[pol] < n_beams && n < begin + BEAM_GROUP_BEAMS) {
            if (beams[next[pol]].pol == pol) {
                slot_of[next[pol]] = n;
                slots[n++] = next[pol];
            }
            next[pol]++;
        }
        while (n % BEAM_GROUP_BEAMS)
            slots[n++] = BEAMFORM_NO_BEAM;
        any = next[0] < n_beams || next[1] < n_beams;
    }
    return n;
}

static uint32_t n_groups(const struct beamform_args *args)
{
    return args->n_slots / BEAM_GROUP_BEAMS;
}

uint32_t beamform_wgmma(const struct device *device)
{
    return device_has_wgmma(device) ? device_multiprocessors(device) : 0;
}

bool beamform_is_whole(const struct beamform_args *args)
{
    return args->wgmma && n_groups(args) >= WHOLE_GROUPS && beam_fragments_steps(args->n_ants) <= HELD_STEPS;
}

bool beamform_holds(const struct beamform_args *args)
{
    return n_groups(args) > BEAMFORM_TILE_GROUPS && beam_fragments_steps(args->n_ants) <= HELD_STEPS;
}

/* Returns the number of groups of a block.  The number is even, so that both polarisations of a detected beam are in
 * one block. */
static uint32_t block_groups(const struct beamform_args *args)
{
    uint32_t whole_most = beam_fragments_steps(args->n_ants) > 5 ? WHOLE_MAX_GROUPS_6 : WHOLE_MAX_GROUPS;
    uint32_t most = beamform_is_whole(args) ? whole_most : HELD_GROUPS;
    uint32_t n_blocks = (n_groups(args) + most - 1) / most;

    if (!beamform_holds(args))
        return BEAMFORM_TILE_GROUPS;
    return ((n_groups(args) + n_blocks - 1) / n_blocks + 1) / 2 * 2;
}

/* Returns the number of steps whose fragments are in shared memory together. */
static uint32_t block_steps(const struct beamform_args *args)
{
    return beamform_holds(args) ? beam_fragments_steps(args->n_ants) : BLOCK_STEPS;
}

/* Returns the number of blocks of a channel and batch. */
static uint32_t n_tiles(const struct beamform_args *args)
{
    return (n_groups(args) + block_groups(args) - 1) / block_groups(args);
}

void beamform_constants(const struct beamform_args *args, struct kernel_constant *constants)
{
    const struct kernel_constant all[BEAMFORM_N_CONSTANTS] = {
        {"SAMPLE_BYTES", voltage_bytes(args->format)},
        {"FLIP", voltage_zero(args->format)},
        {"N_WARPS", beamform_is_whole(args) ? WHOLE_WARPS : N_WARPS},
        {"BLOCK_GROUPS", block_groups(args)},
        {"BLOCK_STEPS", block_steps(args)},
        {"N_TILES", n_tiles(args)},
        {"N_ANTS", args->n_ants},
        {"WIDE", args->n_ants > NARROW_ANTS},
        {"WHOLE", beamform_is_whole(args)},
    };

    memcpy(constants, all, sizeof(all));
}

/* Returns the grid of beamform_whole.h.  The blocks of a tile share all items. */
static struct kernel_grid whole_grid(const struct beamform_args *args)
{
    uint32_t n_ants = beam_fragments_steps(args->n_ants) * BEAM_STEP_ANTS;
    uint32_t n_items = args->n_chan * args->n_batches * ((args->n_spectra + WHOLE_SPECTRA - 1) / WHOLE_SPECTRA);
    uint32_t n_blocks = args->wgmma > n_tiles(args) ? args->wgmma / n_tiles(args) : 1;

    /* the producer computes the number of bytes of an antenna's voltages in 32 bits */
    assert((uint64_t)args->n_chan * args->n_spectra * 2 * voltage_bytes(args->format) <= UINT32_MAX);
    return (struct kernel_grid){.blocks = {(n_items < n_blocks ? n_items : n_blocks) * n_tiles(args), 1, 1},
                                .threads = 32 * WHOLE_WARPS,
                                .shared_bytes = BEAMFORM_STAGES(n_ants / BEAM_STEP_ANTS) * BEAMFORM_STAGE_BYTES +
                                                WHOLE_BUFFERS * WHOLE_SPECTRA * WHOLE_BYTES * n_ants +
                                                block_groups(args) * BEAM_GROUP_BEAMS * BEAMFORM_LISTED_BYTES +
                                                WHOLE_OTHER_BYTES};
}

struct kernel_grid beamform_grid(const struct beamform_args *args)
{
    uint32_t slots_bytes = block_groups(args) * BEAM_GROUP_BEAMS * BEAMFORM_SLOT_BYTES;
    uint32_t n_blocks = args->n_chan * args->n_batches * n_tiles(args);

    if (beamform_is_whole(args))
        return whole_grid(args);
    return (struct kernel_grid){.blocks = {n_blocks, 1, 1},
                                .threads = 32 * N_WARPS,
                                .shared_bytes =
                                    BEAMFORM_TILE_GROUPS * block_steps(args) * BEAM_STEP_BYTES + slots_bytes};
}
