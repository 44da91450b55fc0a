/* check_window - accumulation windows against a model that remembers every batch. */
#include "xbgpu/window.h"

#include "kernels/correlate/correlate.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <string.h>

#define N_ANTS_MAX   9
#define N_LENGTH_MAX 12
#define N_SPECTRA    48

/* What a baseline must weigh, out of the flags of every batch that was added. */
static uint32_t model_weight(uint8_t added[][N_ANTS_MAX], size_t n_added, size_t length, size_t a1, size_t a2,
                             bool by_baseline)
{
    size_t n1 = 0, n2 = 0, both = 0;

    for (size_t b = 0; b < n_added; b++) {
        n1 += added[b][a1];
        n2 += added[b][a2];
        both += added[b][a1] && added[b][a2];
    }
    if (by_baseline)
        return (uint32_t)(both * N_SPECTRA);
    return n1 == length && n2 == length ? (uint32_t)(length * N_SPECTRA) : 0;
}

static void check_once(bool by_baseline)
{
    size_t n_ants = 1 + random_below(N_ANTS_MAX), length = 1 + random_below(N_LENGTH_MAX);
    size_t n_added = random_below(length + 1), n_heaps = 0, n_weighted = 0;
    uint8_t added[N_LENGTH_MAX][N_ANTS_MAX];
    uint32_t weights[N_ANTS_MAX * (N_ANTS_MAX + 1) / 2];
    struct xbgpu_window window;
    int64_t batch = (int64_t)(random_u64() >> 8) - (INT64_C(1) << 54);

    ck_assert_int_eq(xbgpu_window_init(&window, (int64_t)length, n_ants, 0, by_baseline), 0);
    for (int again = 0; again < 2; again++) { /* the second window must remember nothing of the first */
        n_added = again ? n_added : length;
        xbgpu_window_open(&window, batch);
        ck_assert(xbgpu_window_first(&window) <= batch && batch < xbgpu_window_end(&window));
        ck_assert_int_eq(xbgpu_window_first(&window) % (int64_t)length, 0);
        ck_assert_int_eq(xbgpu_window_end(&window) - xbgpu_window_first(&window), (int64_t)length);
        n_heaps = 0;
        for (size_t b = 0; b < n_added; b++) {
            for (size_t a = 0; a < n_ants; a++)
                n_heaps += added[b][a] = random_below(5) > 0;
            xbgpu_window_add(&window, added[b]);
        }
        ck_assert_uint_eq(window.n_heaps, n_heaps);
    }
    memset(weights, 0xA5, sizeof(weights));
    size_t n_said = xbgpu_window_weights(&window, N_SPECTRA, weights);
    for (size_t a2 = 0; a2 < n_ants; a2++)
        for (size_t a1 = 0; a1 <= a2; a1++) {
            uint32_t expected = model_weight(added, n_added, length, a1, a2, by_baseline);
            ck_assert_uint_eq(weights[correlate_baseline(a1, a2)], expected);
            n_weighted += expected > 0;
        }
    ck_assert_uint_eq(n_said, n_weighted);
    xbgpu_window_fini(&window);
}

/* Spectra that a gate took of each baseline, and in all batches of which any heap came, by rows. */
TEST(gate_counts)
{
    for (int trial = 0; trial < 1000; trial++) {
        size_t n_ants = 1 + random_below(N_ANTS_MAX), n_rows = 1 + random_below(3),
               n_added = random_below(N_LENGTH_MAX);
        size_t n_baselines = correlate_n_baselines(n_ants);
        uint32_t expected[3][N_ANTS_MAX * (N_ANTS_MAX + 1) / 2], found[3 * N_ANTS_MAX * (N_ANTS_MAX + 1) / 2], total[3];
        struct xbgpu_window window;

        ck_assert_int_eq(xbgpu_window_init(&window, N_LENGTH_MAX, n_ants, n_rows, true), 0);
        for (int again = 0; again < 2; again++) { /* the second window must remember nothing of the first */
            xbgpu_window_open(&window, 0);
            memset(expected, 0, sizeof(expected));
            memset(total, 0, sizeof(total));
            for (size_t b = 0; b < n_added; b++) {
                uint8_t present[N_ANTS_MAX];
                size_t n_present = 0, nobody = random_below(4) == 0;
                for (size_t a = 0; a < n_ants; a++)
                    n_present += present[a] = !nobody && random_below(8) > 0;
                xbgpu_window_add(&window, present);
                for (size_t row = 0; row < n_rows; row++) {
                    uint32_t n = (uint32_t)random_below(N_SPECTRA + 1);
                    xbgpu_window_add_taken(&window, present, row, n);
                    total[row] += n_present > 0 ? n : 0;
                    for (size_t a2 = 0; a2 < n_ants; a2++)
                        for (size_t a1 = 0; a1 <= a2; a1++)
                            expected[row][correlate_baseline(a1, a2)] += present[a1] && present[a2] ? n : 0;
                }
            }
        }
        memset(found, 0xA5, sizeof(found));
        xbgpu_window_gate_weights(&window, found);
        for (size_t row = 0; row < n_rows; row++) {
            ck_assert_uint_eq(window.n_taken[row], total[row]);
            ck_assert_mem_eq(found + row * n_baselines, expected[row], n_baselines * sizeof(uint32_t));
        }
        xbgpu_window_fini(&window);
    }
}

TEST(all_or_nothing)
{
    for (int i = 0; i < 2000; i++)
        check_once(false);
}

TEST(by_baseline)
{
    for (int i = 0; i < 2000; i++)
        check_once(true);
}

SUITE(.timeout_s = 60, .start = random_start);
