/* beam_finish.cu - see beam_finish.h.  A thread converts all windows of a beam and cell. */
#include "kernels/beamform/beam_finish.h"

extern "C" __global__ void beam_finish(const struct beam_finish_args args)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < args.n_beams * args.n_cells)
        beam_finish_cell(&args, i / args.n_cells, i % args.n_cells);
}
