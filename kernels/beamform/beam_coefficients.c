/* beam_coefficients.c - plain C version of beam_coefficients: runs before beamform if the steering of a beam has
 * changed. */
#include "kernels/beamform/beam_coefficients.h"

#include <math.h>
#include <stdbool.h>

static float larger(float a, float b)
{
    return a < b ? b : a;
}

static void put_fragments(const struct beam_coefficients_args *a, uint32_t beam, uint32_t chan, const int16_t *row)
{
    int8_t *to = a->fragments + chan * beam_fragments_chan_bytes(a->n_slots, a->n_ants);

    for (uint32_t ant = 0; ant < beam_fragments_steps(a->n_ants) * BEAM_STEP_ANTS; ant++) {
        bool is_there = ant < a->n_ants;
        beam_fragments_put(to, a->n_ants, a->slot_of[beam], ant, is_there ? row[2 * ant] : 0,
                           is_there ? row[2 * ant + 1] : 0);
    }
}

static void make_channel(const struct beam_coefficients_args *a, uint32_t beam, uint32_t chan)
{
    uint64_t row = (uint64_t)chan * a->n_beams + beam;
    const struct beam_steering *model = beam_coefficients_model(a, beam);
    int16_t *out = a->coefficients + row * a->n_ants * 2;
    float most = 0;

    for (uint32_t ant = 0; ant < a->n_ants; ant++) {
        struct beam_steered steered = beam_steer(a, &model[ant]);
        struct beam_complex c = beam_coefficient(a, &steered, beam, ant, chan);
        most = larger(most, larger(fabsf(c.re), fabsf(c.im)));
    }
    a->exponents[row] = beam_exponent(most);
    float scale = beam_power_of_two(a->exponents[row]);
    for (uint32_t ant = 0; ant < a->n_ants; ant++) {
        struct beam_steered steered = beam_steer(a, &model[ant]);
        struct beam_complex c = beam_coefficient(a, &steered, beam, ant, chan);
        out[2 * ant] = (int16_t)lrintf(c.re * scale);
        out[2 * ant + 1] = (int16_t)lrintf(c.im * scale);
    }
    if (a->fragments)
        put_fragments(a, beam, chan, out);
}

static void beam_coefficients_cpu(const void *args, int n_threads)
{
    const struct beam_coefficients_args *a = args;

#pragma omp parallel for num_threads(n_threads)
    for (uint32_t chan = 0; chan < a->n_chan; chan++)
        for (uint32_t i = 0; i < beam_coefficients_n(a); i++)
            make_channel(a, beam_coefficients_beam(a, i), chan);
}

const struct kernel beam_coefficients_kernel = {
    .name = "beam_coefficients",
    .args_bytes = sizeof(struct beam_coefficients_args),
    .cpu = beam_coefficients_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define RESIDENT_BLOCKS 396 /* blocks that run at a time on a GPU of 132 multiprocessors */
#define MAX_TURNS       24

/* Returns the number of blocks of a unit.  The channels are runs of BEAM_COEFFICIENTS_WARPS channels.  A block computes
 * several runs one after the other, and loads its steering once, which takes about half as long as a run. */
static uint32_t unit_blocks(uint32_t n_units, uint32_t n_runs)
{
    uint32_t best = n_runs, least_time = UINT32_MAX;

    for (uint32_t turns = 1; turns <= MAX_TURNS; turns++) {
        uint32_t n_blocks = (n_runs + turns - 1) / turns;
        uint32_t time = (n_units * n_blocks + RESIDENT_BLOCKS - 1) / RESIDENT_BLOCKS * (2 * turns + 1);
        if (time < least_time) {
            best = n_blocks;
            least_time = time;
        }
    }
    return best;
}

struct kernel_grid beam_coefficients_grid(const struct beam_coefficients_args *args)
{
    uint32_t n_units = beam_coefficients_units(args);
    uint32_t n_runs = (args->n_chan + BEAM_COEFFICIENTS_WARPS - 1) / BEAM_COEFFICIENTS_WARPS;

    return (struct kernel_grid){.blocks = {n_units * unit_blocks(n_units, n_runs), 1, 1},
                                .threads = 32 * BEAM_COEFFICIENTS_WARPS,
                                .shared_bytes = BEAM_COEFFICIENTS_SHARED_BYTES};
}
