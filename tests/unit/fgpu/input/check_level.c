/* check_level - levels against logarithms worked out by hand, with gaps in every place. */
#include "common/base/units.h"
#include "fgpu/input/level.h"
#include "tests/unit/test_main.h"

#define WINDOW INT64_C(1000)
#define BASE   (INT64_C(1) << 48)

/* Adds a buffer of samples that all have this value, in 10 bits. */
static bool add(struct fgpu_level *level, int64_t timestamp, int64_t n, uint64_t value, bool whole)
{
    const uint64_t power[N_POLS] = {value * value * (uint64_t)n, 0};

    return fgpu_level_add(level, timestamp, n, power, whole);
}

TEST(constant_input)
{
    struct fgpu_level level;

    fgpu_level_init(&level, WINDOW, 10);
    for (int64_t t = 0; t < 1000; t += 100)
        ck_assert(!add(&level, BASE / 1000 * 1000 + t, 100, 200, true));
    ck_assert(add(&level, BASE / 1000 * 1000 + 1000, 100, 511, true));
    ck_assert_double_eq_tol(level.dbfs[0], -5.137518132774, 1e-11); /* 20 log10(200 / 511) + 10 log10(2) */
    ck_assert(level.dbfs[1] == LEVEL_SILENCE_DBFS);
    ck_assert(!level.valid); /* nobody knows what was before the first */
    for (int64_t t = 1100; t < 2000; t += 100)
        ck_assert(!add(&level, BASE / 1000 * 1000 + t, 100, 511, true));
    ck_assert(add(&level, BASE / 1000 * 1000 + 2000, 100, 0, true));
    ck_assert_double_eq_tol(level.dbfs[0], 3.010299956640, 1e-11);
    ck_assert(level.valid);
}

/* Buffers that the grid does not divide: each counts where it begins. */
TEST(buffers_across_windows)
{
    struct fgpu_level level;
    int64_t n_closed = 0;

    fgpu_level_init(&level, WINDOW, 2);
    for (int64_t t = 0, i = 0; t < 100000; t += 300, i++) {
        int64_t before = t > 0 ? (t - 300) / 1000 : 0;
        bool closed = add(&level, t, 300, (uint64_t)(t / 1000 % 2), true);
        ck_assert_int_eq(closed, t / 1000 != before);
        if (!closed)
            continue;
        if (before % 2)
            ck_assert_double_eq_tol(level.dbfs[0], 3.010299956640, 1e-11);
        else
            ck_assert(level.dbfs[0] == LEVEL_SILENCE_DBFS);
        ck_assert_int_eq(level.valid, n_closed > 0);
        n_closed++;
    }
    ck_assert_int_eq(n_closed, 99);
}

/* Of eight windows of ten buffers, the third's is hurt: by a buffer that is missing or misses input, at any place.  A
 * window is valid only if that did not happen in it, or right before it. */
TEST(gaps_and_losses)
{
    for (int64_t place = 0; place < 10; place++)
        for (int kind = 0; kind < 3; kind++) {
            struct fgpu_level level;
            fgpu_level_init(&level, WINDOW, 10);
            for (int64_t i = 0; i < 80; i++) {
                bool bad = i == 20 + place;
                if (bad && kind == 1)
                    continue; /* lost */
                if (bad && kind == 2)
                    i += 30; /* a gap of three windows */
                if (!add(&level, 100 * i, 100, 7, kind > 0 || !bad))
                    continue;
                int64_t closed = (i - 1) / 10;
                bool hurt = closed == 0 || closed == 2 || (bad && kind == 2);
                if (kind == 1) /* at an end it might have belonged to either side */
                    hurt = hurt || (place == 0 && closed == 1) || (place == 9 && closed == 3);
                if (kind == 2)
                    hurt = hurt || closed == 5 || (place == 0 && (closed == 1 || i == 50));
                ck_assert_msg(level.valid == !hurt, "kind %d, place %d, buffer %d", kind, (int)place, (int)i);
            }
        }
}

/* The digitisers started anew: time goes back. */
TEST(time_may_go_back)
{
    struct fgpu_level level;

    fgpu_level_init(&level, WINDOW, 10);
    for (int64_t i = 0; i < 35; i++)
        add(&level, 1000000 + 100 * i, 100, 5, true);
    ck_assert(level.valid);
    ck_assert(add(&level, 0, 100, 5, true));
    ck_assert(!level.valid);
    for (int64_t i = 1; i < 11; i++)
        add(&level, 100 * i, 100, 5, true);
    ck_assert(!level.valid);
    for (int64_t i = 11; i < 21; i++)
        add(&level, 100 * i, 100, 5, true);
    ck_assert(level.valid);
}
