/* beam_finish.c - plain C version of beam_finish: runs after beam_detect, for each heap of detected beams. */
#include "kernels/beamform/beam_finish.h"

static void beam_finish_cpu(const void *args, int n_threads)
{
    const struct beam_finish_args *a = args;

#pragma omp parallel for collapse(2) num_threads(n_threads)
    for (uint32_t beam = 0; beam < a->n_beams; beam++)
        for (uint32_t cell = 0; cell < a->n_cells; cell++)
            beam_finish_cell(a, beam, cell);
}

const struct kernel beam_finish_kernel = {
    .name = "beam_finish",
    .args_bytes = sizeof(struct beam_finish_args),
    .cpu = beam_finish_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

#define N_THREADS 128

struct kernel_grid beam_finish_grid(const struct beam_finish_args *args)
{
    return (struct kernel_grid){.blocks = {(args->n_beams * args->n_cells + N_THREADS - 1) / N_THREADS, 1, 1},
                                .threads = N_THREADS};
}
