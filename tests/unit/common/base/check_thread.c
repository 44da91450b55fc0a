/* check_thread.c - the state of a thread at its start: its argument, its name, its CPU, and all signals blocked. */
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <stdatomic.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct seen {
    bool ran;
    char name[16];
    cpu_set_t cpus;
    sigset_t blocked;
};

static void *look_around(void *arg)
{
    struct seen *seen = arg;

    seen->ran = true;
    pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
    pthread_getaffinity_np(pthread_self(), sizeof(seen->cpus), &seen->cpus);
    pthread_sigmask(SIG_BLOCK, NULL, &seen->blocked);
    return NULL;
}

static struct seen start_and_join(const char *name, int cpu)
{
    struct seen seen = {.ran = false};
    struct thread thread;

    ck_assert_int_eq(thread_start(&thread, name, cpu, look_around, &seen), 0);
    thread_join(&thread);
    ck_assert(seen.ran);
    return seen;
}

TEST(name_is_set_and_cut)
{
    ck_assert_str_eq(start_and_join("recv-0", -1).name, "recv-0");
    ck_assert_str_eq(start_and_join("exactly15chars.", -1).name, "exactly15chars.");
    ck_assert_str_eq(start_and_join("sixteen chars ..", -1).name, "sixteen chars .");
    ck_assert_str_eq(start_and_join("a name that is far too long for the kernel", -1).name, "a name that is ");
}

TEST(pinned_where_asked)
{
    cpu_set_t ours;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(ours), &ours), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &ours)) {
            struct seen seen = start_and_join("pinned", cpu);

            ck_assert_int_eq(CPU_COUNT(&seen.cpus), 1);
            ck_assert(CPU_ISSET(cpu, &seen.cpus));
        }
    }
}

TEST(unpinned_or_refused_keeps_all_cpus)
{
    static const int cpus[] = {-1, CPU_SETSIZE - 1, CPU_SETSIZE, 1 << 30};
    cpu_set_t ours;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(ours), &ours), 0);
    for (size_t k = 0; k < ARRAY_LEN(cpus); k++) {
        struct seen seen = start_and_join("unpinned", cpus[k]);

        ck_assert(CPU_EQUAL(&seen.cpus, &ours));
    }
}

TEST(signals_go_to_main_only)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGCHLD};
    sigset_t before, after;
    struct seen seen;

    pthread_sigmask(SIG_BLOCK, NULL, &before);
    seen = start_and_join("quiet", -1);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (size_t k = 0; k < ARRAY_LEN(signals); k++) {
        ck_assert_int_eq(sigismember(&seen.blocked, signals[k]), 1);
        ck_assert_int_eq(sigismember(&after, signals[k]), sigismember(&before, signals[k]));
    }
}

static void *count(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return NULL;
}

TEST(all_or_none_begin)
{
    struct thread threads[5], before;
    atomic_int n_begun = 0;

    for (int begin = 0; begin <= 1; begin++) {
        /* One that was started before is not held, however late it comes to run. */
        ck_assert_int_eq(thread_start(&before, "before", -1, count, &n_begun), 0);
        threads_hold();
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
            ck_assert_int_eq(thread_start(&threads[i], "held", -1, count, &n_begun), 0);
        thread_join(&before);
        ck_assert_int_eq(atomic_exchange(&n_begun, 0), 1);
        threads_release(begin);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
            thread_join(&threads[i]);
        ck_assert_int_eq(atomic_exchange(&n_begun, 0), begin ? ARRAY_LEN(threads) : 0);
    }
}

TEST(cpus_that_there_are)
{
    int64_t cpus[] = {-1, 0, -1};
    cpu_set_t before, after;
    char why[256] = "";

    ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
    while (!CPU_ISSET((size_t)cpus[1], &before))
        cpus[1]++;
    ck_assert_int_eq(threads_check_cpus(cpus, ARRAY_LEN(cpus), "recv.affinity", why, sizeof(why)), 0);
    ck_assert_int_eq(threads_check_cpus(NULL, 0, "recv.affinity", why, sizeof(why)), 0);
    ck_assert_str_eq(why, "");
    for (cpus[1] = CPU_SETSIZE - 1; cpus[1] < 5000; cpus[1] += 3000) {
        ck_assert_int_eq(threads_check_cpus(cpus, ARRAY_LEN(cpus), "recv.affinity", why, sizeof(why)), -EINVAL);
        ck_assert(!strncmp(why, "recv.affinity: ", 15));
    }
    ck_assert_int_eq(sched_getaffinity(0, sizeof(after), &after), 0);
    ck_assert(CPU_EQUAL(&before, &after));
    ck_assert_int_eq(threads_probe(0), 0);
    ck_assert_int_eq(threads_probe(7), 0);
}

/* What the test and the threads that it watches say to each other: each answers every request, unless it is the one
 * that stands still, which reads nothing until it is told to. */
struct watched {
    struct thread thread;
    int requests[2], answers[2];
};

static void *beat_on_request(void *arg)
{
    struct watched *w = arg;
    char c;

    while (read(w->requests[0], &c, 1) == 1) {
        thread_beat();
        ck_assert_int_eq(write(w->answers[1], &c, 1), 1);
    }
    return NULL;
}

static void request(struct watched *w)
{
    char c = 'b';

    ck_assert_int_eq(write(w->requests[1], &c, 1), 1);
    ck_assert_int_eq(read(w->answers[0], &c, 1), 1);
}

TEST(who_stands_still)
{
    static const char *const names[] = {"first", "second", "a third, cut to 15"};
    struct watched watched[ARRAY_LEN(names)];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        ck_assert_int_eq(pipe(watched[i].requests), 0);
        ck_assert_int_eq(pipe(watched[i].answers), 0);
        ck_assert_int_eq(thread_start(&watched[i].thread, names[i], -1, beat_on_request, &watched[i]), 0);
    }
    for (size_t still = 0; still < ARRAY_LEN(names); still++) {
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            request(&watched[i]);
        ck_assert_uint_eq(threads_find_stalled().n_looks, 0);
        for (unsigned n = 1; n < 5; n++) {
            for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                if (i != still)
                    request(&watched[i]);
            }
            struct thread_stalled found = threads_find_stalled();
            ck_assert_uint_eq(found.n_looks, n);
            ck_assert(!strncmp(found.name, names[still], 15));
            ck_assert_int_ne(found.tid, getpid());
        }
    }
    /* The first has stood still longer than the second. */
    request(&watched[1]);
    request(&watched[2]);
    ck_assert_str_eq(threads_find_stalled().name, "first");
    request(&watched[2]);
    ck_assert_str_eq(threads_find_stalled().name, "first");
    /* One that has ended is missed by nobody. */
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        close(watched[i].requests[1]);
        thread_join(&watched[i].thread);
    }
    for (int n = 0; n < 3; n++)
        ck_assert_uint_eq(threads_find_stalled().n_looks, 0);
    thread_beat(); /* of a thread that is not watched */
}

/* Waits of all kinds, each longer than a beat's interval. */
static void *wait_long(void *arg)
{
    struct inbox *inbox = arg;
    struct inbox_item item;

    clock_sleep_until(clock_monotonic_ns() + 3 * THREAD_BEAT_NS);
    ck_assert_int_eq(inbox_pop_until(inbox, clock_monotonic_ns() + 3 * THREAD_BEAT_NS, &item), -ETIMEDOUT);
    ck_assert_int_eq(inbox_pop(inbox, &item), 0);
    return NULL;
}

TEST(waiting_is_no_standing_still)
{
    const unsigned looks_per_beat = 10;
    struct inbox *inbox;
    struct thread thread;
    unsigned most = 0;

    ck_assert_int_eq(inbox_create(1, &inbox), 0);
    ck_assert_int_eq(thread_start(&thread, "waits", -1, wait_long, inbox), 0);
    int64_t begin_ns = clock_monotonic_ns();
    for (unsigned n = 0; n < 9 * looks_per_beat; n++) {
        unsigned n_looks = threads_find_stalled().n_looks;
        most = n_looks > most ? n_looks : most;
        clock_sleep_until(begin_ns + n * THREAD_BEAT_NS / looks_per_beat);
    }
    inbox_push(inbox, &(struct inbox_item){0, 0, NULL});
    thread_join(&thread);
    ck_assert_uint_le(most, 2 * looks_per_beat);
    ck_assert_uint_gt(most, looks_per_beat / 2); /* the test would have noticed */
    inbox_destroy(inbox);
}

SUITE(.timeout_s = 30);
