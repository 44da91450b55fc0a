/* check_record_health.c - what the recorder says of itself, look by look. */
#include "tools/shared/record_health.h"
#include "tests/unit/test_main.h"

#define LIMIT 5

struct setup {
    struct record_health health;
    struct record_health_counts counts;
};

static struct setup begin(void)
{
    struct setup s = {.counts = {0}};

    record_health_init(&s.health, LIMIT);
    return s;
}

/* 'n' looks, before each of which so much is added.  Returns whether all was well at the last. */
static bool look(struct setup *s, unsigned n, uint64_t n_dumps, uint64_t n_lost, uint64_t n_refused)
{
    for (unsigned i = 0; i < n; i++) {
        s->counts.n_dumps += n_dumps;
        s->counts.n_lost += n_lost;
        s->counts.n_refused += n_refused;
        record_health_poll(&s->health, &s->counts);
    }
    return record_health_is_good(&s->health);
}

TEST(waiting_and_recording_are_well)
{
    struct setup s = begin();

    ck_assert(record_health_is_good(&s.health));
    ck_assert(look(&s, 20 * LIMIT, 0, 0, 0));
    ck_assert(look(&s, 20 * LIMIT, 1, 0, 0));
    ck_assert(look(&s, 20 * LIMIT, 0, 0, 0));
    ck_assert(!record_health_was_refusing(&s.health));
}

TEST(a_loss_is_bad_for_a_while)
{
    struct setup s = begin();

    ck_assert(look(&s, LIMIT, 1, 0, 0));
    ck_assert(!look(&s, 1, 1, 1, 0));
    ck_assert(!look(&s, LIMIT - 1, 1, 0, 0));
    ck_assert(look(&s, 1, 1, 0, 0));
}

TEST(dumps_that_are_refused_are_bad_until_one_is_written)
{
    struct setup s = begin();

    ck_assert(look(&s, 3, 1, 0, 0));
    ck_assert(look(&s, LIMIT - 1, 0, 0, 7));
    ck_assert(!record_health_was_refusing(&s.health));
    ck_assert(!look(&s, 1, 0, 0, 7));
    ck_assert(!look(&s, 100, 0, 0, 7));
    ck_assert(record_health_was_refusing(&s.health));
    ck_assert(look(&s, 1, 1, 0, 7));
    ck_assert(!record_health_was_refusing(&s.health));
}

TEST(a_stray_packet_in_a_pause_is_forgotten)
{
    struct setup s = begin();

    ck_assert(look(&s, 1, 1, 0, 0));
    ck_assert(look(&s, 3 * LIMIT, 0, 0, 0));
    ck_assert(!look(&s, 1, 0, 0, 1));
    ck_assert(!look(&s, LIMIT - 1, 0, 0, 0));
    ck_assert(look(&s, 1, 0, 0, 0));
    ck_assert(!record_health_was_refusing(&s.health));
}

TEST(refused_from_the_first_packet_on)
{
    struct setup s = begin();

    ck_assert(look(&s, 1, 0, 0, 1));
    ck_assert(record_health_was_refusing(&s.health)); /* a short capture */
}

TEST(silence_is_told_now_and_then)
{
    struct setup s = begin();
    unsigned n_told = 0;

    for (unsigned i = 0; i < 3 * LIMIT + 1; i++) {
        look(&s, 1, 0, 0, 0);
        n_told += record_health_is_silent(&s.health);
    }
    ck_assert_uint_eq(n_told, 3);
    look(&s, 1, 1, 0, 0);
    ck_assert(!record_health_is_silent(&s.health));
}
