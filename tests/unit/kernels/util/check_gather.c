/* check_gather - pieces of any size, from any place to any other, by the C version and by the CUDA variant.  Neither
 * touches memory beside the pieces. */
#include "kernels/util/gather.h"

#include "common/base/units.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PIECES  200
#define POISON      0xe7
#define GUARD_BYTES 64

static const size_t aligns[] = {1, 4, 8, 16, 64};

struct work {
    size_t from_bytes, to_bytes, n_pieces;
    uint8_t *from, *to, *expected;
    struct gather_piece pieces[MAX_PIECES];
};

/* A ring of packets that lie apart, and chunks that they belong to in another order, with gaps; what is 'align' at both
 * ends, but now and then not. */
static void work_init(struct work *w, size_t align, size_t max_bytes)
{
    size_t at = GUARD_BYTES, order[MAX_PIECES];

    *w = (struct work){.n_pieces = 1 + random_below(MAX_PIECES)};
    w->from_bytes = GUARD_BYTES;
    for (size_t i = 0; i < w->n_pieces; i++) {
        struct gather_piece *piece = &w->pieces[i];
        size_t odd = random_below(4) ? 0 : 1;
        order[i] = i;
        w->from_bytes = round_up((int64_t)w->from_bytes, (int64_t)align) + odd * random_below(align);
        piece->from = w->from_bytes;
        piece->n_bytes = random_below(8) ? random_below(max_bytes + 1) : random_below(40);
        w->from_bytes += piece->n_bytes + random_below(3) * align;
    }
    for (size_t i = w->n_pieces; i-- > 1;) {
        size_t k = random_below(i + 1), other = order[i];
        order[i] = order[k];
        order[k] = other;
    }
    for (size_t i = 0; i < w->n_pieces; i++) {
        struct gather_piece *piece = &w->pieces[order[i]];
        at = (size_t)round_up((int64_t)at, (int64_t)align) + (random_below(4) ? 0 : random_below(align));
        piece->to = at;
        at += piece->n_bytes + (random_below(2) ? 0 : random_below(50));
    }
    w->to_bytes = at + GUARD_BYTES;
    w->from = malloc(w->from_bytes);
    w->to = malloc(w->to_bytes);
    w->expected = malloc(w->to_bytes);
    random_bytes(w->from, w->from_bytes);
    memset(w->to, POISON, w->to_bytes);
    memset(w->expected, POISON, w->to_bytes);
    for (size_t i = 0; i < w->n_pieces; i++)
        for (size_t k = 0; k < w->pieces[i].n_bytes; k++)
            w->expected[w->pieces[i].to + k] = w->from[w->pieces[i].from + k];
}

static void work_fini(struct work *w)
{
    for (size_t i = 0; i < w->to_bytes; i++)
        if (w->to[i] != w->expected[i])
            ck_abort_msg("byte %zu of %zu is wrong", i, w->to_bytes);
    free(w->from);
    free(w->to);
    free(w->expected);
}

/* Pieces are counted from the beginning until it is known where that is. */
static void place_pieces(struct work *w, const void *from, const void *to)
{
    for (size_t i = 0; i < w->n_pieces; i++) {
        w->pieces[i].from += (uintptr_t)from;
        w->pieces[i].to += (uintptr_t)to;
    }
}

TEST(plain_c, .end = ARRAY_LEN(aligns))
{
    for (int trial = 0; trial < 20; trial++) {
        struct work w;
        work_init(&w, aligns[_i], 3000);
        place_pieces(&w, w.from, w.to);
        const struct gather_args args = {w.pieces, w.n_pieces};
        gather_kernel.cpu(&args, 1 + (int)random_below(3));
        work_fini(&w);
    }
}

static void run_cuda(struct test_device *d, size_t align, size_t max_bytes, int trial)
{
    struct work w;

    work_init(&w, align, max_bytes);
    void *from = test_copy_in(d, w.from, w.from_bytes), *to = test_copy_in(d, w.to, w.to_bytes);
    place_pieces(&w, from, to);
    struct gather_args args = {test_copy_in(d, w.pieces, w.n_pieces * sizeof(w.pieces[0])), w.n_pieces};
    struct kernel_grid grid = gather_grid(&args);
    if (trial % 2)
        grid.blocks[0] = 1 + (uint32_t)random_below(3); /* as if there were more pieces */
    test_launch(d, grid, &args);
    test_download(d, w.to, to, w.to_bytes);
    work_fini(&w);
}

TEST_ON_DEVICE(cuda, .end = ARRAY_LEN(aligns))
{
    struct kernel_constant constants[GATHER_N_CONSTANTS];

    gather_constants(constants);
    test_kernel(d, &gather_kernel, constants, GATHER_N_CONSTANTS);
    for (int trial = 0; trial < 6; trial++)
        run_cuda(d, aligns[_i], trial == 5 ? 9000 : 700, trial);
}

SUITE(.timeout_s = 60, .start = random_start);
