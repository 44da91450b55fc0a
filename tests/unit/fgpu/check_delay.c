/* check_delay - against worked examples, against exact rational arithmetic (Python's fractions, or 128-bit integers
 * here), and against searches that try every step. */
#include "common/base/units.h"
#include "fgpu/delay.h"
#include "fgpu/delay_text.h"
#include "tests/unit/test_file.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define WIRE_PERIOD (INT64_C(1) << 48)

/* ---- One model --------------------------------------------------------------------------------------------------- */

TEST(worked_examples)
{
    static const struct fgpu_delay_model model = {
        .start_samples = 12345, .delay_samples = 100, .rate = 0.25, .phase_rad = 0.1, .phase_rate_rad = 0.1};
    static const struct {
        int64_t t_samples, window_samples;
        double fine_samples;
    } table[] = {
        {12790, 12579, 0.25}, {12788, 12577, -0.25}, {12999, 12735, -0.5}, {13000, 12736, -0.25},
        {13001, 12737, 0},    {13002, 12738, 0.25},  {13003, 12739, 0.5},  {13004, 12739, -0.25},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct fgpu_delay_values values = fgpu_delay_evaluate(&model, table[i].t_samples);
        ck_assert_int_eq(table[i].t_samples - values.coarse_samples, table[i].window_samples);
        ck_assert(values.fine_samples == table[i].fine_samples);
    }
    /* 44.6 and 44.4 radians, less seven turns. */
    ck_assert_double_eq_tol(fgpu_delay_evaluate(&model, 12790).phase_rad, 0.6177028497428971, 1e-13);
    ck_assert_double_eq_tol(fgpu_delay_evaluate(&model, 12788).phase_rad, 0.4177028497428971, 1e-13);
}

/* The numbers' exact values in rational arithmetic. */
TEST(exact_wherever_in_time)
{
    static const struct {
        int64_t start_samples;
        double delay_samples, rate, acceleration;
        int64_t t_samples, window_samples;
        double fine_samples;
    } table[] = {
        {INT64_C(100000000000000), 0, 1e-10, 0, INT64_C(200000000000000), INT64_C(199999999990000), 0},
        {0, 136153.36, 2.56e-09, 0, INT64_C(281474976710655), INT64_C(281474975853926), 0.30037927674243314},
        {0, 136153.36, 2.56e-09, 0, INT64_C(281487322389557), INT64_C(281487321532796), -0.09468273413756878},
        {INT64_C(281474976710651), -0.00428, 2.5e-12, 0, INT64_C(281474976710659), INT64_C(281474976710659),
         -0.00427999998},
        {INT64_C(100000000000000), 7.25, -1.5e-09, 3e-24, INT64_C(103000000000000), INT64_C(103000000004479),
         -0.24999999999997027},
        {123, -1000000.0, 0.999, 0, 5000, 1000128, 0.12299999999999567},
        {INT64_C(1125899906842624), 350000.0, -2.5e-09, -4e-22, INT64_C(1125909906842624), INT64_C(1125909906492649),
         -0.020000000000000524},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct fgpu_delay_model model = {.start_samples = table[i].start_samples,
                                               .delay_samples = table[i].delay_samples,
                                               .rate = table[i].rate,
                                               .acceleration = table[i].acceleration};
        struct fgpu_delay_values values = fgpu_delay_evaluate(&model, table[i].t_samples);
        ck_assert_int_eq(table[i].t_samples - values.coarse_samples, table[i].window_samples);
        ck_assert_double_eq_tol(values.fine_samples, table[i].fine_samples, 1e-9);
    }
}

/* n / 2^shift rounded to nearest, of two the even. */
static int64_t divide_nearest_even(__int128 n, unsigned shift)
{
    __int128 one = (__int128)1 << shift;
    __int128 down = n >> shift; /* towards minus infinity */
    __int128 twice_rest = 2 * (n - down * one);

    return (int64_t)(down + (twice_rest > one || (twice_rest == one && (down & 1))));
}

/* Models of dyadic numbers, whose delays 53 bits hold, are evaluated without any error: half to even, everywhere. */
TEST(dyadic_models_are_exact)
{
    static const int64_t places[] = {0, INT64_C(100000000000000), WIRE_PERIOD, INT64_C(1) << 55};
    size_t n_ties = 0;

    for (size_t i = 0; i < 200000; i++) {
        unsigned shift = 1 + (unsigned)random_below(20);
        int64_t delay = (int64_t)random_below((size_t)1 << (shift + 20)) - ((int64_t)1 << (shift + 19));
        int64_t rate = (int64_t)random_below((size_t)2 << shift) - ((int64_t)1 << shift);
        int64_t start = places[random_below(ARRAY_LEN(places))] + (int64_t)random_below(1000000);
        int64_t r = (int64_t)random_below((size_t)1 << random_below(30));
        double one = (double)(INT64_C(1) << shift);
        const struct fgpu_delay_model model = {
            .start_samples = start, .delay_samples = (double)delay / one, .rate = (double)rate / one};

        __int128 exact = (__int128)rate * r + delay; /* in units of 2^-shift samples */
        int64_t coarse = divide_nearest_even(exact, shift);
        __int128 fine = exact - (__int128)coarse * (INT64_C(1) << shift);
        struct fgpu_delay_values values = fgpu_delay_evaluate(&model, start + r);
        ck_assert_int_eq(values.coarse_samples, coarse);
        ck_assert(values.fine_samples == (double)(int64_t)fine / one);
        n_ties += fabs(values.fine_samples) == 0.5;
    }
    ck_assert_uint_gt(n_ties, 1000);
}

/* r^2 / 2 times an acceleration of 2^-20 is exact, too. */
TEST(acceleration_is_half_the_square)
{
    for (int64_t r = 0; r < 4096; r++) {
        const struct fgpu_delay_model model = {.start_samples = WIRE_PERIOD - 2000, .acceleration = 0x1p-20};
        struct fgpu_delay_values values = fgpu_delay_evaluate(&model, model.start_samples + r);
        int64_t coarse = divide_nearest_even(r * r, 21);
        ck_assert_int_eq(values.coarse_samples, coarse);
        ck_assert(values.fine_samples == (double)(r * r - coarse * (1 << 21)) * 0x1p-21);
    }
}

TEST(phases_are_wrapped)
{
    for (size_t i = 0; i < 100000; i++) {
        double angle = random_between(-1, 1) * pow(10.0, random_between(-3, 6));
        double wrapped = fgpu_delay_wrap(angle);
        double turns = (angle - wrapped) / (2 * M_PI);
        ck_assert(wrapped >= -M_PI && wrapped < M_PI);
        ck_assert_double_eq_tol(turns, nearbyint(turns), 1e-10);
    }
    const double ends[] = {-M_PI, M_PI, 3 * M_PI, nextafter(-M_PI, -4), nextafter(M_PI, 0), 1e15, -1e-300};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        ck_assert(fgpu_delay_wrap(ends[i]) >= -M_PI && fgpu_delay_wrap(ends[i]) < M_PI);
    ck_assert(fgpu_delay_wrap(-M_PI) == -M_PI && fgpu_delay_wrap(M_PI) == -M_PI && fgpu_delay_wrap(0) == 0);
}

/* A quarter of a turn for each sample of the coarse delay. */
TEST(phase_at_the_centre)
{
    for (int64_t coarse = -9; coarse <= 9; coarse++) {
        const struct fgpu_delay_values values = {.coarse_samples = coarse, .phase_rad = 0.3};
        double error = fgpu_delay_wideband_phase(&values) - (0.3 + M_PI / 2 * (double)coarse);
        ck_assert_double_eq_tol(remainder(error, 2 * M_PI), 0, 1e-12);
    }
}

/* Nothing of the delay is lost; half way between two multiples the part of a sample decides, or the later one is
 * taken. */
TEST(windows_start_on_the_grid)
{
    static const struct {
        int64_t grid, start; /* where the window would start */
        double fine;
        int64_t aligned;
    } rows[] = {
        {8, 16, 0, 16},   {8, 19, 0.4, 16}, {8, 20, 0, 24},     {8, 20, -0.25, 24}, {8, 20, 0.25, 16},
        {8, 21, 0.5, 24}, {8, -20, 0, -16}, {8, -20, 0.1, -24}, {2, 5, 0.3, 4},     {2, 5, -0.3, 6},
        {2, 5, 0, 6},     {3, 4, 0.5, 3},   {3, 4, -0.5, 3},    {3, 5, 0.5, 6},     {3, -4, -0.5, -3},
        {7, 10, -0.5, 7}, {7, 11, 0.5, 14}, {1, 5, 0.5, 5},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const int64_t t = INT64_C(100000000000000); /* a delay, of whatever size */
        struct fgpu_delay_values values = {
            .coarse_samples = t - rows[i].start, .fine_samples = rows[i].fine, .phase_rad = 1};
        fgpu_delay_align(&values, t, rows[i].grid);
        ck_assert_int_eq(t - values.coarse_samples, rows[i].aligned);
        ck_assert_double_eq(values.fine_samples, rows[i].fine + (double)(rows[i].aligned - rows[i].start));
        ck_assert_double_eq(values.phase_rad, 1);
    }
}

/* ---- The queue --------------------------------------------------------------------------------------------------- */

TEST(queue_begins_with_zero)
{
    struct fgpu_delay_queue queue;

    fgpu_delay_queue_init(&queue);
    for (int64_t t = 0; t < INT64_C(1) << 60; t = 3 * t + 1) {
        struct fgpu_delay_values values = fgpu_delay_queue_at(&queue, t, 1);
        ck_assert_int_eq(values.coarse_samples, 0);
        ck_assert(values.fine_samples == 0 && values.phase_rad == 0);
    }
}

/* The queue against the rule itself, applied to all models that were ever added: at any time, later or earlier than any
 * that was asked for before, holds the last of those that have started and that no later addition removed. */
TEST(queue_follows_the_rule)
{
    enum { N = 40 };

    for (size_t round = 0; round < 200; round++) {
        struct fgpu_delay_queue queue;
        int64_t starts[N];
        bool removed[N] = {0};
        int64_t now = 0;

        fgpu_delay_queue_init(&queue);
        for (size_t i = 0; i < N; i++) {
            starts[i] = (int64_t)random_below((size_t)now + 60);
            for (size_t j = 0; j < i; j++)
                removed[j] |= starts[j] >= starts[i];
            /* Its number, wherever it is asked. */
            const struct fgpu_delay_model model = {.start_samples = starts[i], .delay_samples = (double)(i + 1)};
            ck_assert_int_eq(fgpu_delay_queue_add(&queue, &model), 0);
            now += (int64_t)random_below(20);
            for (size_t k = 0; k < 40; k++) {
                int64_t t = (int64_t)random_below((size_t)now + 100);
                int64_t holds = 0, newest = -1;
                for (size_t j = 0; j <= i; j++)
                    if (!removed[j] && starts[j] <= t && starts[j] > newest) {
                        newest = starts[j];
                        holds = (int64_t)j + 1;
                    }
                ck_assert_int_eq(fgpu_delay_queue_at(&queue, t, 1).coarse_samples, holds);
            }
        }
    }
}

/* It holds at once, r counted from its start, and those behind it are gone. */
TEST(a_model_may_start_in_the_past)
{
    struct fgpu_delay_queue queue;

    fgpu_delay_queue_init(&queue);
    ck_assert_int_eq(fgpu_delay_queue_add(&queue, &(struct fgpu_delay_model){.start_samples = 100, .delay_samples = 5}),
                     0);
    ck_assert_int_eq(
        fgpu_delay_queue_add(&queue, &(struct fgpu_delay_model){.start_samples = 50, .delay_samples = 1, .rate = 0.5}),
        0);
    ck_assert_uint_eq(queue.n, 2);
    ck_assert_int_eq(fgpu_delay_queue_at(&queue, 1000, 1).coarse_samples, 476);
}

/* A time ahead and a time back, in turns, with every number of models: the last that has started, by trying all. */
TEST(time_may_jump_ahead_and_back)
{
    struct fgpu_delay_queue queue;

    fgpu_delay_queue_init(&queue);
    for (int64_t n = 1; n < DELAY_MAX_MODELS; n++) {
        ck_assert_int_eq(
            fgpu_delay_queue_add(&queue, &(struct fgpu_delay_model){.start_samples = 1000 * n, .delay_samples = n}), 0);
        for (int64_t i = 0; i <= n; i++) {
            const int64_t ends[] = {1000 * i, 1000 * i + 999};
            for (size_t k = 0; k < ARRAY_LEN(ends); k++) {
                ck_assert_int_eq(fgpu_delay_queue_at(&queue, ends[k], 1).coarse_samples, i);
                ck_assert_int_eq(fgpu_delay_queue_at(&queue, INT64_C(1) << 60, 1).coarse_samples, n);
            }
        }
    }
}

/* One at a time, and only where the next one has started: of those that stay none holds earlier than it did. */
TEST(the_oldest_is_forgotten)
{
    struct fgpu_delay_queue queue;

    fgpu_delay_queue_init(&queue);
    ck_assert(!fgpu_delay_queue_forget_oldest(&queue, INT64_MAX));
    for (int64_t i = 1; i < DELAY_MAX_MODELS; i++)
        ck_assert_int_eq(
            fgpu_delay_queue_add(&queue, &(struct fgpu_delay_model){.start_samples = 10 * i, .delay_samples = i}), 0);
    for (int64_t i = 1; i < DELAY_MAX_MODELS - 1; i++) {
        ck_assert(!fgpu_delay_queue_forget_oldest(&queue, 10 * (i + 1) - 1));
        ck_assert(fgpu_delay_queue_forget_oldest(&queue, 10 * (i + 1)));
        ck_assert_uint_eq(queue.n, (size_t)(DELAY_MAX_MODELS - i));
        for (int64_t t = 0; t < 10 * DELAY_MAX_MODELS; t += 5) {
            int64_t holds = t / 10 < DELAY_MAX_MODELS ? t / 10 : DELAY_MAX_MODELS - 1;
            ck_assert_int_eq(fgpu_delay_queue_at(&queue, t, 1).coarse_samples, t / 10 > i ? holds : 0);
        }
    }
    ck_assert(!fgpu_delay_queue_forget_oldest(&queue, INT64_MAX)); /* the one that holds */
}

TEST(a_full_queue_refuses)
{
    struct fgpu_delay_queue queue, before;

    fgpu_delay_queue_init(&queue);
    for (int64_t i = 1; i < DELAY_MAX_MODELS; i++)
        ck_assert_int_eq(fgpu_delay_queue_add(&queue, &(struct fgpu_delay_model){.start_samples = 10 * i}), 0);
    memcpy(&before, &queue, sizeof(queue));
    ck_assert_int_eq(fgpu_delay_queue_add(&queue, &(struct fgpu_delay_model){.start_samples = INT64_C(1) << 40}),
                     -ENOSPC);
    ck_assert_mem_eq(&before, &queue, sizeof(queue));
    ck_assert_int_eq(fgpu_delay_queue_add(&queue, &(struct fgpu_delay_model){.start_samples = 25}), 0);
    ck_assert_uint_eq(queue.n, 4);
}

/* ---- Where to begin again ---------------------------------------------------------------------------------------- */

static void random_queue(struct fgpu_delay_queue *queue, int64_t base)
{
    fgpu_delay_queue_init(queue);
    queue->models[0].delay_samples = random_between(-5000, 5000); /* evaluated from -1 on, all alike */
    for (size_t i = random_below(5); i > 0; i--) {
        const struct fgpu_delay_model model = {.start_samples = base + (int64_t)random_below(20000),
                                               .delay_samples = random_between(-5000, 5000),
                                               .rate = random_between(-0.5, 0.5),
                                               .acceleration = random_below(2) ? random_between(-1e-6, 1e-6) : 0};
        ck_assert_int_eq(fgpu_delay_queue_add(queue, &model), 0);
    }
}

static bool there(const struct fgpu_delay_queue *queues, const int64_t *first_samples, int64_t grid, int64_t t)
{
    for (unsigned pol = 0; pol < N_POLS; pol++)
        if (t - fgpu_delay_queue_at(&queues[pol], t, grid).coarse_samples < first_samples[pol])
            return false;
    return true;
}

/* Against trying every multiple, near 0, far away and across the wrap of the wire. */
TEST(skips_are_aligned_and_minimal)
{
    static const int64_t bases[] = {0, INT64_C(100000000000000), WIRE_PERIOD - 10000, INT64_C(1) << 54};
    size_t n_later_pieces = 0;

    for (size_t round = 0; round < 1000; round++) {
        struct fgpu_delay_queue queues[N_POLS];
        const struct fgpu_delay_queue *const pointers[N_POLS] = {&queues[0], &queues[1]};
        int64_t base = bases[random_below(ARRAY_LEN(bases))];
        int64_t align = 1 + (int64_t)random_below(random_below(2) ? 700 : 7);
        int64_t grid = random_below(2) ? 1 : 2 + (int64_t)random_below(40);
        int64_t start = base + (int64_t)random_below(10000), first[N_POLS];

        for (unsigned pol = 0; pol < N_POLS; pol++) {
            random_queue(&queues[pol], base);
            first[pol] = start + (int64_t)random_below(12000) - 3000;
        }
        int64_t expected = round_up(start, align);
        while (!there(queues, first, grid, expected))
            expected += align;
        ck_assert_int_eq(fgpu_delay_skip(pointers, first, N_POLS, grid, start, align), expected);
        n_later_pieces += queues[0].n > 1 && expected > queues[0].models[1].start_samples;
    }
    ck_assert_uint_gt(n_later_pieces, 30);
}

/* A skip of days, and one that has no end. */
TEST(skips_may_be_long)
{
    struct fgpu_delay_queue queue;
    const struct fgpu_delay_queue *const pointer = &queue;
    const int64_t first = 12345;

    fgpu_delay_queue_init(&queue);
    queue.models[0].delay_samples = 1e15;
    ck_assert_int_eq(fgpu_delay_skip(&pointer, &first, 1, 1, 7, 1000), INT64_C(1000000000013000));
    queue.models[0] = (struct fgpu_delay_model){.rate = 1.5};
    ck_assert_int_eq(fgpu_delay_skip(&pointer, &first, 1, 1, 7, 1000), INT64_MAX);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

#define MAX_DELAY_S 3

static int read_text(const char *text, struct fgpu_delay_queue *pols, char *why, size_t why_bytes)
{
    char path[] = "/tmp/check_delay.XXXXXX";
    struct timebase timebase = {.from_packets = false};

    write_file(path, text);
    ck_assert_int_eq(timebase_parse_decimal("1700000000.25", 9, &timebase.sync_time_s), 0);
    ck_assert_int_eq(timebase_parse_decimal("2e9", 9, &timebase.adc_sample_rate_hz), 0);
    int err = fgpu_delay_text_read_file(path, &timebase, MAX_DELAY_S, pols, why, why_bytes);
    unlink(path);
    if (err) { /* the path's name is made up */
        ck_assert_int_eq(strncmp(why, path, strlen(path)), 0);
        memmove(why, why + strlen(path), strlen(why) - strlen(path) + 1);
    }
    return err;
}

TEST(files_are_read)
{
    struct fgpu_delay_queue pols[N_POLS];
    char why[512];

    ck_assert_int_eq(read_text("# start pol delay\n"
                               "1700000000.250000003 1  1e-6\t-2e-9 4 1e3\n"
                               "\n"
                               "  1700000000.25 0 -3 0.5 -7 0 1e-3 # a comment\r\n"
                               "1700000001 1 0 0 0 0",
                               pols, why, sizeof(why)),
                     0);
    ck_assert_uint_eq(pols[0].n, 2);
    ck_assert_uint_eq(pols[1].n, 3);
    const struct fgpu_delay_model *a = &pols[0].models[1], *b = &pols[1].models[1];
    ck_assert_int_eq(pols[0].models[0].start_samples, -1);
    ck_assert_int_eq(a->start_samples, 0);
    ck_assert(a->delay_samples == -6e9 && a->rate == 0.5 && a->phase_rate_rad == 0);
    ck_assert_double_eq_tol(a->phase_rad, -7 + 2 * M_PI, 1e-14);
    ck_assert_double_eq_tol(a->acceleration, 5e-13, 1e-27);
    ck_assert_int_eq(b->start_samples, 6);
    ck_assert(b->rate == -2e-9 && b->acceleration == 0);
    ck_assert_double_eq_tol(b->delay_samples, 2000, 1e-12);
    ck_assert_double_eq_tol(b->phase_rad, 4 - 2 * M_PI, 1e-14);
    ck_assert_double_eq_tol(b->phase_rate_rad, 5e-7, 1e-20);
    ck_assert_int_eq(pols[1].models[2].start_samples, 1500000000);
}

TEST(what_is_wrong_in_a_file_is_named)
{
    static const struct {
        const char *text, *why;
    } table[] = {
        {"1700000001 0 0 0 0\n", ":1: a line must have"},
        {"\n1700000001 0 0 0 0 0 0 0 0\n", ":2: a line must have"},
        {"then 0 0 0 0 0\n", ":1: the start must be a UNIX time in seconds with at most 9 decimals, not then"},
        {"1700000001.0000000001 0 0 0 0 0\n", ":1: the start must be a UNIX time"},
        {"1e10 0 0 0 0 0\n", ":1: the start must be a UNIX time"},
        {"1700000000 0 0 0 0 0\n", ":1: the start must not be before time.sync_time, not 1700000000"},
        {"1700000001 2 0 0 0 0\n", ":1: the polarisation must be 0 or 1, not 2"},
        {"1700000001 00 0 0 0 0\n", ":1: the polarisation must be 0 or 1"},
        {"1700000001 0 x 0 0 0\n", ":1: delay, rate, phase, phase rate and accelerations must be numbers, not x"},
        {"1700000001 0 0 0 nan 0\n", ":1: delay, rate, phase"},
        {"1700000001 0 0 0 0 0 inf\n", ":1: delay, rate, phase"},
        {"1700000001 0 1s 0 0 0\n", ":1: delay, rate, phase"},
        {"1700000001 0 1e8 0 0 0\n", ":1: the magnitude of a delay must be at most 2^53 samples"},
        {"1700000001 0 -3 0 0 0\n1700000002 0 3.0000001 0 0 0\n",
         ":2: the magnitude of a delay must be at most 3 s (recv.max_delay), not 3.0000001"},
        {"1700000001 0 -3.0000001 0 0 0\n", ":1: the magnitude of a delay must be at most 3 s"},
        {"1700000001 0 0 1 0 0\n", ":1: a delay rate must be between -1 and 1"},
        {"1700000001 0 0 -1.5 0 0\n", ":1: a delay rate must be"},
        {"1700000001 0 0 0 0 0\n1700000001 1 0 0 0 0\n1700000001 0 0 0 0 0\n",
         ":3: the models of a polarisation must be in"},
    };
    struct fgpu_delay_queue pols[N_POLS];
    char why[512];

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        ck_assert_int_eq(read_text(table[i].text, pols, why, sizeof(why)), -EINVAL);
        ck_assert_msg(strncmp(why, table[i].why, strlen(table[i].why)) == 0, "%s", why);
    }
    ck_assert_int_eq(fgpu_delay_text_read_file("/nowhere/at/all", &(struct timebase){.adc_sample_rate_hz = {1, 0}}, 1,
                                               pols, why, sizeof(why)),
                     -ENOENT);
    ck_assert_str_eq(why, "/nowhere/at/all: No such file or directory");
}

TEST(files_may_be_too_long)
{
    struct fgpu_delay_queue pols[N_POLS];
    static char text[64 * (DELAY_MAX_MODELS + 1)];
    char why[512];
    size_t length = 0;

    for (int i = 0; i <= DELAY_MAX_MODELS; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%d 1 0 0 0 0\n", 1700000001 + i);
        /* One is kept for what holds until the first begins. */
        int err = read_text(text, pols, why, sizeof(why));
        ck_assert_int_eq(err, i < DELAY_MAX_MODELS - 1 ? 0 : -EINVAL);
    }
    ck_assert(strstr(why, "255 models"));
}

SUITE(.start = random_start);
