/* check_presence.c - prefix sums against counting, for every interval. */
#include "fgpu/input/presence.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>
#include <string.h>

#define N_FLAGS 67

static void check_all_intervals(const uint8_t *present)
{
    uint32_t sums[N_FLAGS + 2];

    memset(sums, 0xa5, sizeof(sums));
    fgpu_presence_sums(present, N_FLAGS, sums);
    ck_assert_uint_eq(sums[N_FLAGS + 1], 0xa5a5a5a5);
    for (size_t first = 0; first <= N_FLAGS; first++)
        for (size_t end = first; end <= N_FLAGS; end++) {
            size_t n = 0;

            for (size_t i = first; i < end; i++)
                n += present[i];
            ck_assert_uint_eq(fgpu_presence_count(sums, first, end), n);
            ck_assert_int_eq(fgpu_presence_all(sums, first, end), n == end - first);
        }
}

TEST(intervals_count_their_flags)
{
    uint8_t present[N_FLAGS];
    unsigned seed = 20261101;

    for (int percent = 0; percent <= 100; percent += 10) {
        for (size_t i = 0; i < N_FLAGS; i++)
            present[i] = rand_r(&seed) % 100 < percent;
        check_all_intervals(present);
    }
}

TEST(no_flags_is_complete)
{
    uint32_t sums[1] = {7};

    fgpu_presence_sums(NULL, 0, sums);
    ck_assert_uint_eq(sums[0], 0);
    ck_assert(fgpu_presence_all(sums, 0, 0));
}
