/* check_power - sums of squares of the C version and of the CUDA variant, against samples that are read bit by bit.
 * Cases: every width, any place, full scale of the negative sign. */
#include "kernels/util/power.h"

#include "common/base/units.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_samples.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t widths[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};

#define BEFORE (UINT64_C(1) << 50)

struct work {
    struct power_args args;
    size_t bytes;
    uint8_t *in[N_POLS];
    uint64_t power[N_POLS + 1];
};

static void work_init(struct work *w, uint32_t bits, size_t max_samples, bool full_scale)
{
    *w = (struct work){.power = {BEFORE, BEFORE + 1, 77}};
    w->args.sample_bits = bits;
    w->args.n_samples = 1 + random_below(max_samples);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        w->args.offset[pol] = (int64_t)random_below(200);
    w->bytes = ((200 + w->args.n_samples) * bits + 31) / 32 * 4;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        w->in[pol] = malloc(w->bytes);
        random_bytes(w->in[pol], w->bytes);
        if (full_scale && bits == 16)
            for (size_t i = 0; i < w->bytes; i++)
                w->in[pol][i] = i % 2 ? 0 : 0x80;
    }
}

static void work_fini(struct work *w)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        uint64_t expected = BEFORE + pol;
        for (size_t i = 0; i < w->args.n_samples; i++) {
            int64_t x = sample_at(w->in[pol], (size_t)w->args.offset[pol] + i, w->args.sample_bits);
            expected += (uint64_t)(x * x);
        }
        ck_assert_uint_eq(w->power[pol], expected);
        free(w->in[pol]);
    }
    ck_assert_uint_eq(w->power[N_POLS], 77);
}

TEST(plain_c, .end = ARRAY_LEN(widths))
{
    for (int trial = 0; trial < 20; trial++) {
        struct work w;
        work_init(&w, widths[_i], 3000, trial % 4 == 0);
        memcpy(w.args.in, w.in, sizeof(w.in));
        w.args.power = w.power;
        power_kernel.cpu(&w.args, 1 + (int)random_below(3));
        work_fini(&w);
    }
}

static void run_cuda(struct test_device *d, uint32_t bits, int trial)
{
    struct kernel_grid grid;
    struct work w;

    work_init(&w, bits, trial % 2 ? 100 : 30000, trial == 4);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        w.args.in[pol] = test_copy_in(d, w.in[pol], w.bytes);
    w.args.power = test_copy_in(d, w.power, sizeof(w.power));
    grid = power_grid(&w.args);
    if (trial % 3 == 0)
        grid.blocks[0] = 1; /* as if there were more samples */
    test_launch(d, grid, &w.args);
    test_download(d, w.power, w.args.power, sizeof(w.power));
    work_fini(&w);
}

TEST_ON_DEVICE(cuda, .end = ARRAY_LEN(widths))
{
    const struct power_args args = {.sample_bits = widths[_i]};
    struct kernel_constant constants[POWER_N_CONSTANTS];

    power_constants(&args, constants);
    test_kernel(d, &power_kernel, constants, POWER_N_CONSTANTS);
    for (int trial = 0; trial < 6; trial++)
        run_cuda(d, args.sample_bits, trial);
}

SUITE(.timeout_s = 60, .start = random_start);
