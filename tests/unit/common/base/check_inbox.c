/* check_inbox.c - no message is lost, doubled or overtaken between threads.  Stopping ends every wait. */
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define N_SLOTS 5

static struct inbox *inbox;

static void setup(void)
{
    ck_assert_int_eq(inbox_create(N_SLOTS, &inbox), 0);
}

static void teardown(void)
{
    inbox_destroy(inbox);
}

static void push_number(struct inbox *to, int64_t number)
{
    struct inbox_item item = {.kind = (int)(number % 11), .value = number, .object = (void *)(uintptr_t)(number * 3)};

    inbox_push(to, &item);
}

static void assert_number(const struct inbox_item *item, int64_t number)
{
    ck_assert_int_eq(item->kind, number % 11);
    ck_assert_int_eq(item->value, number);
    ck_assert_uint_eq((uintptr_t)item->object, (uintptr_t)(number * 3));
}

TEST(destroy_accepts_null)
{
    inbox_destroy(NULL);
}

TEST(order_is_kept_as_the_ring_wraps)
{
    unsigned seed = (unsigned)clock_unix_ns();
    int64_t n_pushed = 0, n_popped = 0;

    printf("order_is_kept_as_the_ring_wraps: seed %u\n", seed);
    for (int step = 0; step < 10000; step++) {
        struct inbox_item item = {.kind = -1};

        if (rand_r(&seed) % 2 && n_pushed - n_popped < N_SLOTS) {
            push_number(inbox, n_pushed++);
        } else {
            int err = inbox_try_pop(inbox, &item);

            ck_assert_int_eq(err, n_popped < n_pushed ? 0 : -EAGAIN);
            if (err)
                ck_assert_int_eq(item.kind, -1);
            else
                assert_number(&item, n_popped++);
        }
        ck_assert_uint_eq(inbox_length(inbox), (size_t)(n_pushed - n_popped));
    }
    ck_assert_int_gt(n_popped, N_SLOTS);
}

TEST(stopped_gives_what_is_there_then_epipe)
{
    struct inbox_item item;

    push_number(inbox, 1);
    inbox_stop(inbox);
    push_number(inbox, 2);
    inbox_stop(inbox);
    push_number(inbox, 3);
    ck_assert_int_eq(inbox_pop(inbox, &item), 0);
    assert_number(&item, 1);
    ck_assert_int_eq(inbox_try_pop(inbox, &item), 0);
    assert_number(&item, 2);
    ck_assert_int_eq(inbox_pop_until(inbox, 0, &item), 0);
    assert_number(&item, 3);
    ck_assert_int_eq(inbox_pop(inbox, &item), -EPIPE);
    ck_assert_int_eq(inbox_try_pop(inbox, &item), -EPIPE);
    ck_assert_int_eq(inbox_pop_until(inbox, 0, &item), -EPIPE);
    ck_assert_int_eq(inbox_pop_until(inbox, INT64_MAX, &item), -EPIPE);
    push_number(inbox, 4);
    ck_assert_int_eq(inbox_pop(inbox, &item), 0);
    assert_number(&item, 4);
}

TEST(pop_until_ends_at_the_deadline)
{
    struct inbox_item item = {.kind = -1};
    int64_t deadline_ns = clock_monotonic_ns() + 5 * NS_PER_MS;

    ck_assert_int_eq(inbox_pop_until(inbox, deadline_ns, &item), -ETIMEDOUT);
    ck_assert_int_ge(clock_monotonic_ns(), deadline_ns);
    ck_assert_int_eq(inbox_pop_until(inbox, clock_monotonic_ns() - 1, &item), -ETIMEDOUT);
    ck_assert_int_eq(inbox_pop_until(inbox, INT64_MIN, &item), -ETIMEDOUT);
    ck_assert_int_eq(item.kind, -1);
    /* A deadline in the past still takes what is there. */
    push_number(inbox, 9);
    ck_assert_int_eq(inbox_pop_until(inbox, 0, &item), 0);
    assert_number(&item, 9);
}

/* A consumer that may or may not have begun to wait when the test acts: either way it must come back. */
struct waiter {
    struct thread thread;
    bool timed;
    int result;
    struct inbox_item item;
};

static void *wait_for_one(void *arg)
{
    struct waiter *waiter = arg;

    waiter->result = waiter->timed ? inbox_pop_until(inbox, clock_monotonic_ns() + 600 * NS_PER_S, &waiter->item)
                                   : inbox_pop(inbox, &waiter->item);
    return NULL;
}

TEST(push_wakes_the_consumer)
{
    for (int64_t k = 0; k < 200; k++) {
        struct waiter waiter = {.timed = k % 2};

        ck_assert_int_eq(thread_start(&waiter.thread, "waiter", -1, wait_for_one, &waiter), 0);
        if (k % 4 >= 2)
            clock_sleep_until(clock_monotonic_ns() + 100 * NS_PER_US);
        push_number(inbox, k);
        thread_join(&waiter.thread);
        ck_assert_int_eq(waiter.result, 0);
        assert_number(&waiter.item, k);
    }
}

TEST(stop_wakes_the_consumer)
{
    for (int k = 0; k < 200; k++) {
        struct waiter waiter = {.timed = k % 2};

        teardown();
        setup();
        ck_assert_int_eq(thread_start(&waiter.thread, "waiter", -1, wait_for_one, &waiter), 0);
        if (k % 4 >= 2)
            clock_sleep_until(clock_monotonic_ns() + 100 * NS_PER_US);
        inbox_stop(inbox);
        thread_join(&waiter.thread);
        ck_assert_int_eq(waiter.result, -EPIPE);
    }
}

TEST(aborts_when_overfull, .signal = SIGABRT)
{
    for (int64_t k = 0; k < N_SLOTS; k++)
        push_number(inbox, k);
    ck_assert_uint_eq(inbox_length(inbox), N_SLOTS);
    inbox_push(inbox, &(struct inbox_item){.kind = 0});
}

TEST(full_is_not_overfull)
{
    for (int64_t k = 0; k < N_SLOTS; k++)
        push_number(inbox, k);
    ck_assert_uint_eq(inbox_length(inbox), N_SLOTS);
}

/* Producers with a few buffers each, as receivers have chunks: a buffer goes to the consumer with the producer's next
 * number in it, and comes home to be used again. */
#define N_PRODUCERS 4
#define N_BUFFERS   3
#define N_NUMBERS   20000

struct producer {
    struct thread thread;
    struct inbox *to, *return_to;
    int index;
};

struct buffer {
    struct producer *producer;
    int64_t number; /* under no lock: the hand-over must order it */
};

static void *produce(void *arg)
{
    struct producer *producer = arg;

    for (int64_t k = 0; k < N_NUMBERS; k++) {
        struct inbox_item item;
        struct buffer *buffer;

        if (inbox_pop(producer->return_to, &item))
            return NULL;
        buffer = item.object;
        buffer->number = k;
        inbox_push(producer->to, &(struct inbox_item){.kind = producer->index, .value = k, .object = buffer});
    }
    return NULL;
}

static int pop_somehow(struct inbox *from, unsigned *seed, struct inbox_item *item)
{
    int err;

    switch (rand_r(seed) % 3) {
    case 0: return inbox_pop(from, item);
    case 1:
        err = inbox_pop_until(from, clock_monotonic_ns() + rand_r(seed) % 1000, item);
        return err == -ETIMEDOUT ? -EAGAIN : err;
    default: return inbox_try_pop(from, item);
    }
}

TEST(every_item_of_many_producers_is_accounted_for)
{
    struct producer producers[N_PRODUCERS];
    struct buffer buffers[N_PRODUCERS][N_BUFFERS];
    int64_t next[N_PRODUCERS] = {0};
    unsigned seed = (unsigned)clock_unix_ns();
    struct inbox *to;

    printf("every_item_of_many_producers_is_accounted_for: seed %u\n", seed);
    ck_assert_int_eq(inbox_create(N_PRODUCERS * N_BUFFERS, &to), 0);
    for (int p = 0; p < N_PRODUCERS; p++) {
        producers[p] = (struct producer){.to = to, .index = p};
        ck_assert_int_eq(inbox_create(N_BUFFERS, &producers[p].return_to), 0);
        for (int b = 0; b < N_BUFFERS; b++) {
            buffers[p][b] = (struct buffer){.producer = &producers[p], .number = -1};
            inbox_push(producers[p].return_to, &(struct inbox_item){.object = &buffers[p][b]});
        }
        ck_assert_int_eq(thread_start(&producers[p].thread, "producer", -1, produce, &producers[p]), 0);
    }
    for (int64_t n = 0; n < N_PRODUCERS * N_NUMBERS;) {
        struct inbox_item item;
        struct buffer *buffer;
        int err = pop_somehow(to, &seed, &item);

        if (err == -EAGAIN)
            continue;
        ck_assert_int_eq(err, 0);
        buffer = item.object;
        ck_assert_ptr_eq(buffer->producer, &producers[item.kind]);
        ck_assert_int_eq(item.value, next[item.kind]);
        ck_assert_int_eq(buffer->number, next[item.kind]);
        next[item.kind]++;
        n++;
        inbox_push(buffer->producer->return_to, &(struct inbox_item){.object = buffer});
    }
    for (int p = 0; p < N_PRODUCERS; p++) {
        thread_join(&producers[p].thread);
        ck_assert_int_eq(next[p], N_NUMBERS);
        ck_assert_uint_eq(inbox_length(producers[p].return_to), N_BUFFERS);
        inbox_destroy(producers[p].return_to);
    }
    ck_assert_uint_eq(inbox_length(to), 0);
    inbox_destroy(to);
}

SUITE(.timeout_s = 60, .setup = setup, .teardown = teardown);
