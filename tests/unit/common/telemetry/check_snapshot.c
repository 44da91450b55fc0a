/* check_snapshot.c - the writer and the reader of a snapshot never touch the memory at the same time. */
#include "common/telemetry/snapshot.h"
#include "tests/unit/test_main.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

TEST(turns)
{
    struct snapshot snapshot = {0};

    ck_assert(!snapshot_begin(&snapshot)); /* nobody asked */
    ck_assert(!snapshot_take(&snapshot));
    ck_assert(snapshot_retract(&snapshot)); /* it is the reader's anyway */
    snapshot_want(&snapshot);
    ck_assert(!snapshot_take(&snapshot));
    ck_assert(snapshot_retract(&snapshot));
    ck_assert(!snapshot_begin(&snapshot)); /* not any more */
    snapshot_want(&snapshot);
    ck_assert(snapshot_begin(&snapshot));
    ck_assert(!snapshot_begin(&snapshot));
    ck_assert(!snapshot_retract(&snapshot)); /* too late */
    ck_assert(!snapshot_take(&snapshot));
    snapshot_end(&snapshot);
    ck_assert(!snapshot_retract(&snapshot)); /* to be taken first */
    ck_assert(!snapshot_begin(&snapshot));
    ck_assert(snapshot_take(&snapshot));
    ck_assert(!snapshot_take(&snapshot));
}

#define N_WORDS 100
#define N_LOOKS 2000

struct shared {
    struct snapshot snapshot;
    _Atomic int stop;
    uint64_t wanted; /* as the words, of whose turn it is */
    uint64_t words[N_WORDS];
};

static void *write_looks(void *arg)
{
    struct shared *s = arg;

    while (!atomic_load(&s->stop)) {
        if (!snapshot_begin(&s->snapshot)) {
            sched_yield();
            continue;
        }
        for (size_t i = 0; i < N_WORDS; i++)
            s->words[i] = s->wanted + i;
        snapshot_end(&s->snapshot);
    }
    return NULL;
}

/* Plain memory on both sides: the thread sanitizer watches. */
TEST(threads)
{
    struct shared *s = calloc(1, sizeof(*s));
    uint64_t n_taken = 0;
    pthread_t writer;

    s->wanted = 1;
    ck_assert_int_eq(pthread_create(&writer, NULL, write_looks, s), 0);
    snapshot_want(&s->snapshot);
    for (uint64_t tries = 0; n_taken < N_LOOKS; tries++) {
        if (snapshot_take(&s->snapshot)) {
            for (size_t i = 0; i < N_WORDS; i++)
                ck_assert_uint_eq(s->words[i], s->wanted + i);
            n_taken++;
        } else if (tries % 7 || !snapshot_retract(&s->snapshot)) {
            sched_yield();
            continue;
        }
        s->wanted += 1000;
        snapshot_want(&s->snapshot);
    }
    atomic_store(&s->stop, 1);
    pthread_join(writer, NULL);
    free(s);
}

SUITE(.timeout_s = 120);
