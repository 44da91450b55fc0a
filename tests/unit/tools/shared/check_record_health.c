/* check_record_health.c - the recorder's report on itself, one interval after the other. */
#include "tools/shared/record_health.h"
#include "tests/unit/test_main.h"

#define LIMIT 5

static struct record_health health;
static struct record_health_counts counts;

static void setup(void)
{
    counts = (struct record_health_counts){0};
    record_health_init(&health, LIMIT);
}

/* 'n' looks, before each of which so much is added.  Returns whether all was well at the last. */
static bool look(unsigned n, uint64_t n_dumps, uint64_t n_lost, uint64_t n_refused)
{
    for (unsigned i = 0; i < n; i++) {
        counts.n_dumps += n_dumps;
        counts.n_lost += n_lost;
        counts.n_refused += n_refused;
        record_health_poll(&health, &counts);
    }
    return record_health_is_good(&health);
}

TEST(waiting_and_recording_are_well)
{
    ck_assert(record_health_is_good(&health));
    ck_assert(look(20 * LIMIT, 0, 0, 0));
    ck_assert(look(20 * LIMIT, 1, 0, 0));
    ck_assert(look(20 * LIMIT, 0, 0, 0));
    ck_assert(!record_health_was_refusing(&health));
}

TEST(a_loss_is_bad_for_a_while)
{
    ck_assert(look(LIMIT, 1, 0, 0));
    ck_assert(!look(1, 1, 1, 0));
    ck_assert(!look(LIMIT - 1, 1, 0, 0));
    ck_assert(look(1, 1, 0, 0));
}

TEST(dumps_that_are_refused_are_bad_until_one_is_written)
{
    ck_assert(look(3, 1, 0, 0));
    ck_assert(look(LIMIT - 1, 0, 0, 7));
    ck_assert(!record_health_was_refusing(&health));
    ck_assert(!look(1, 0, 0, 7));
    ck_assert(!look(100, 0, 0, 7));
    ck_assert(record_health_was_refusing(&health));
    ck_assert(look(1, 1, 0, 7));
    ck_assert(!record_health_was_refusing(&health));
}

TEST(a_stray_packet_in_a_pause_is_forgotten)
{
    ck_assert(look(1, 1, 0, 0));
    ck_assert(look(3 * LIMIT, 0, 0, 0));
    ck_assert(!look(1, 0, 0, 1));
    ck_assert(!look(LIMIT - 1, 0, 0, 0));
    ck_assert(look(1, 0, 0, 0));
    ck_assert(!record_health_was_refusing(&health));
}

TEST(refused_from_the_first_packet_on)
{
    ck_assert(look(1, 0, 0, 1));
    ck_assert(record_health_was_refusing(&health)); /* a short capture */
}

TEST(silence_is_told_now_and_then)
{
    unsigned n_told = 0;

    for (unsigned i = 0; i < 3 * LIMIT + 1; i++) {
        look(1, 0, 0, 0);
        n_told += record_health_is_silent(&health);
    }
    ck_assert_uint_eq(n_told, 3);
    look(1, 1, 0, 0);
    ck_assert(!record_health_is_silent(&health));
}

SUITE(.setup = setup);
