/* gather.c - plain C version of gather: copies pieces of device memory to other places. */
#include "kernels/util/gather.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static void gather_cpu(const void *args, int n_threads)
{
    const struct gather_args *a = args;
    ptrdiff_t n_pieces = (ptrdiff_t)a->n_pieces;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (ptrdiff_t i = 0; i < n_pieces; i++)
        memcpy((void *)(uintptr_t)a->pieces[i].to, (const void *)(uintptr_t)a->pieces[i].from, a->pieces[i].n_bytes);
}

const struct kernel gather_kernel = {
    .name = "gather",
    .args_bytes = sizeof(struct gather_args),
    .cpu = gather_cpu,
};

/* ---- The CUDA variant -------------------------------------------------------------------------------------------- */

/* number of threads of a block; each thread loads 16 bytes at a time, so a packet of 8 KiB needs four rounds of loads
 * */
#define N_THREADS  128
#define MAX_BLOCKS 65536

void gather_constants(struct kernel_constant *constants)
{
    constants[0] = (struct kernel_constant){"N_THREADS", N_THREADS};
}

struct kernel_grid gather_grid(const struct gather_args *args)
{
    assert(args->n_pieces > 0);
    return (struct kernel_grid){.blocks = {args->n_pieces < MAX_BLOCKS ? (uint32_t)args->n_pieces : MAX_BLOCKS, 1, 1},
                                .threads = N_THREADS};
}
