/* protocols.c - the program explore: the inbox, loans of buffers, and commands.
 *
 * Usage: explore [--quick] */
#include "tests/world/protocols.h"

#include "common/base/buffer_ref.h"
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/base/thread.h"
#include "common/engine/command.h"
#include "tests/world/explore.h"

#include <errno.h>
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The exploration itself: numbers of orders that are known -------------------------------------------------- */

static int shared, own[3];
static bool lost_an_update, counted_both;

static void *write_shared(void *arg)
{
    explore_access(&shared, true);
    explore_access(&shared, true);
    return NULL;
}

static void *write_own(void *arg)
{
    explore_access(arg, true);
    explore_access(arg, true);
    return NULL;
}

/* Adds 1 as two steps, so that an update of the other thread between them is lost. */
static void *count_up(void *arg)
{
    explore_access(&shared, false);
    int value = shared;
    explore_access(&shared, true);
    shared = value + 1;
    return NULL;
}

static void run_threads(size_t n, void *(*run)(void *arg))
{
    static const char *const names[] = {"first", "second", "third"};
    struct thread threads[3];

    for (size_t i = 0; i < n; i++)
        thread_start(&threads[i], names[i], -1, run, &own[i]);
    for (size_t i = 0; i < n; i++)
        thread_join(&threads[i]);
}

static void writes_of_shared_data(void)
{
    run_threads(3, write_shared);
}

static void writes_of_own_data(void)
{
    run_threads(3, write_own);
}

static void lost_update(void)
{
    shared = 0;
    run_threads(2, count_up);
    *(shared == 2 ? &counted_both : &lost_an_update) = true;
}

void protocols_expect(bool is_met, const char *sentence)
{
    if (!is_met) {
        fprintf(stderr, "explore: %s\n", sentence);
        exit(1);
    }
}

static uint64_t explore_lost_update(unsigned n_delays)
{
    counted_both = lost_an_update = false;
    return explore(&(struct explore_scenario){"lost update", lost_update, n_delays, 0});
}

static void check_exploration(void)
{
    uint64_t n = explore(&(struct explore_scenario){"shared data", writes_of_shared_data, EXPLORE_ALL, 0});
    protocols_expect(n == 90, "there are 6! / 2!^3 = 90 orders of three threads with two steps each");
    n = explore(&(struct explore_scenario){"own data", writes_of_own_data, EXPLORE_ALL, 0});
    protocols_expect(n == 1, "all orders of independent steps are the same");
    n = explore_lost_update(0);
    protocols_expect(n == 1 && counted_both && !lost_an_update, "without a delay, both updates are counted");
    explore_lost_update(1);
    protocols_expect(counted_both && lost_an_update, "with a delay, an update may be lost");
    n = explore_lost_update(EXPLORE_ALL);
    protocols_expect(n == 4 && counted_both && lost_an_update, "two reads and two writes have 4 orders that differ");
}

/* ---- The inbox: each item arrives exactly once, in the order of its producer ----------------------------------- */

#define N_PRODUCERS 2
#define N_ITEMS     2 /* of each producer */

static struct inbox *inbox;
static int n_producers, n_received[N_PRODUCERS], n_pushed;
static int64_t pushed_ns[N_PRODUCERS * N_ITEMS]; /* when inbox_push() returned, in order */

static void *produce(void *arg)
{
    int producer = (int)(intptr_t)arg;

    for (int i = 0; i < N_ITEMS; i++) {
        inbox_push(inbox, &(struct inbox_item){producer, i, NULL});
        pushed_ns[n_pushed++] = explore_now_ns();
    }
    return NULL;
}

static void receive(const struct inbox_item *item)
{
    explore_check(item->kind >= 0 && item->kind < N_PRODUCERS, "an item of nobody arrived");
    explore_check(item->value == n_received[item->kind], "item %d of producer %d arrived, not item %d",
                  (int)item->value, item->kind, n_received[item->kind]);
    n_received[item->kind]++;
}

static void check_all_received(void)
{
    for (int p = 0; p < n_producers; p++)
        explore_check(n_received[p] == N_ITEMS, "%d of %d items of producer %d arrived", n_received[p], N_ITEMS, p);
}

static void create_inbox(struct thread *producers, int n)
{
    n_producers = n;
    memset(n_received, 0, sizeof(n_received));
    n_pushed = 0;
    inbox_create(N_PRODUCERS * N_ITEMS, &inbox);
    for (intptr_t p = 0; p < n; p++)
        thread_start(&producers[p], p == 0 ? "producer 0" : "producer 1", -1, produce, (void *)p);
}

static void join_producers(struct thread *producers)
{
    for (int p = 0; p < n_producers; p++)
        thread_join(&producers[p]);
}

/* The consumer destroys the inbox when it has popped the last item, while a producer may still be in inbox_push(). */
static void inbox_end_after_last_item(void)
{
    struct thread producers[N_PRODUCERS];
    struct inbox_item item;

    create_inbox(producers, N_PRODUCERS);
    for (int i = 0; i < N_PRODUCERS * N_ITEMS; i++) {
        explore_check(inbox_pop(inbox, &item) == 0, "a pop failed");
        receive(&item);
    }
    inbox_destroy(inbox);
    check_all_received();
    join_producers(producers);
}

static void *consume_until_stop(void *arg)
{
    struct inbox_item item;
    int err;

    while ((err = inbox_pop(inbox, &item)) == 0)
        receive(&item);
    explore_check(err == -EPIPE, "a pop returned %d", err);
    return NULL;
}

/* The inbox is stopped at any time.  Items pushed after the stop are not lost. */
static void inbox_stop_at_any_time(void)
{
    struct thread producers[N_PRODUCERS], consumer;
    struct inbox_item item;

    create_inbox(producers, N_PRODUCERS);
    thread_start(&consumer, "consumer", -1, consume_until_stop, NULL);
    inbox_stop(inbox);
    thread_join(&consumer);
    join_producers(producers);
    while (inbox_try_pop(inbox, &item) == 0)
        receive(&item);
    check_all_received();
    inbox_destroy(inbox);
}

void *protocols_watch_clock(void *deadline_ns)
{
    clock_sleep_until(*(const int64_t *)deadline_ns);
    return NULL;
}

/* The consumer's deadline passes at any time. */
static void inbox_deadline(void)
{
    struct thread producer, watch;
    struct inbox_item item;
    int64_t deadline_ns = EXPLORE_START_NS + 1000;

    create_inbox(&producer, 1);
    thread_start(&watch, "watch", -1, protocols_watch_clock, &deadline_ns);
    for (int i = 0; i < N_ITEMS; i++) {
        int err = inbox_pop_until(inbox, deadline_ns, &item);
        explore_check(err == 0 || err == -ETIMEDOUT, "a pop returned %d", err);
        if (err == -ETIMEDOUT) {
            explore_check(explore_now_ns() >= deadline_ns, "a pop ended before its deadline");
            explore_check(n_pushed == i || pushed_ns[i] >= deadline_ns,
                          "a pop did not return an item that was in time");
            err = inbox_pop(inbox, &item);
            explore_check(err == 0, "a pop returned %d", err);
        }
        receive(&item);
    }
    join_producers(&producer);
    thread_join(&watch);
    check_all_received();
    inbox_destroy(inbox);
}

void protocol_inbox(void)
{
    explore(&(struct explore_scenario){"inbox, end", inbox_end_after_last_item, EXPLORE_ALL, 1});
    explore(&(struct explore_scenario){"inbox, stop", inbox_stop_at_any_time, EXPLORE_ALL, 1});
    explore(&(struct explore_scenario){"inbox, deadline", inbox_deadline, EXPLORE_ALL, 1});
}

/* ---- Loans: a buffer returns when its last reader has released it ---------------------------------------------- */

#define N_READERS 2
#define N_BUFFERS 2
#define N_LOANS   3

struct buffer {
    struct buffer_ref ref;
    int content;
    bool is_lent;
};

static struct inbox *readers[N_READERS], *free_buffers;

static void *read_buffers(void *arg)
{
    struct inbox_item item;

    for (int i = 0; i < N_LOANS; i++) {
        explore_check(inbox_pop(*(struct inbox **)arg, &item) == 0, "a pop failed");
        struct buffer *buffer = item.object;
        explore_access(&buffer->content, false);
        explore_check(buffer->content == i, "a reader has loan %d, and finds the content of %d", i, buffer->content);
        buffer_ref_put(&buffer->ref);
    }
    return NULL;
}

static struct buffer *take_buffer(void)
{
    struct inbox_item item;

    explore_check(inbox_pop(free_buffers, &item) == 0, "a pop failed");
    struct buffer *buffer = item.object;
    explore_check(!buffer->is_lent, "a buffer returned that has a reader");
    return buffer;
}

static void loans(void)
{
    struct buffer buffers[N_BUFFERS] = {0};
    struct thread threads[N_READERS];

    inbox_create(N_BUFFERS, &free_buffers);
    for (int b = 0; b < N_BUFFERS; b++) {
        const struct inbox_item item = {.object = &buffers[b]};
        buffer_ref_init(&buffers[b].ref, free_buffers, item);
        inbox_push(free_buffers, &item);
    }
    for (int r = 0; r < N_READERS; r++) {
        inbox_create(N_LOANS, &readers[r]);
        thread_start(&threads[r], r == 0 ? "reader 0" : "reader 1", -1, read_buffers, &readers[r]);
    }
    for (int i = 0; i < N_LOANS; i++) {
        struct buffer *buffer = take_buffer();
        explore_access(&buffer->content, true);
        buffer->content = i;
        buffer_ref_set(&buffer->ref, N_READERS);
        for (int r = 0; r < N_READERS; r++)
            inbox_push(readers[r], &(struct inbox_item){.object = buffer});
    }
    for (int r = 0; r < N_READERS; r++)
        thread_join(&threads[r]);
    for (int b = 0; b < N_BUFFERS; b++)
        take_buffer()->is_lent = true; /* a second return of the buffer is then an error */
    explore_check(inbox_length(free_buffers) == 0, "a buffer returned twice");
    for (int r = 0; r < N_READERS; r++)
        inbox_destroy(readers[r]);
    inbox_destroy(free_buffers);
}

void protocol_loans(void)
{
    explore(&(struct explore_scenario){"loans", loans, EXPLORE_ALL, 0});
}

/* ---- Commands: each posted command gets one answer, in order --------------------------------------------------- */

#define N_COMMANDS 3
#define N_SLOTS    2
enum { COMMAND, STOP };

struct numbered {
    struct command base;
    int number;
};

static struct ev_loop *loop;
static struct command_channel *channel;
static int n_posted, n_applied, n_answered;
static bool has_called; /* shared by the waker and the loop's thread */
static bool saw_call;

static void *apply_commands(void *arg)
{
    struct inbox_item item;

    while (inbox_pop(inbox, &item) == 0 && item.kind == COMMAND) {
        struct numbered *command = item.object;
        explore_check(command->number == n_applied, "command %d was applied, not %d", command->number, n_applied);
        n_applied++;
        command_answer(channel, &command->base, 100 * n_applied);
    }
    return NULL;
}

static void post_commands(void)
{
    for (struct command *slot; n_posted < N_COMMANDS && (slot = command_take(channel)); n_posted++) {
        ((struct numbered *)slot)->number = n_posted;
        command_post(channel, slot);
    }
}

static void on_answer(void *arg, struct command *command)
{
    int number = ((struct numbered *)command)->number;

    explore_check(number == n_answered, "command %d was answered, not %d", number, n_answered);
    n_answered++;
    explore_check(command_steady_samples(channel) >= 100 * n_answered, "command %d is answered with an old timestamp",
                  number);
}

/* The slots of the answers are free again when 'woken' is called. */
static void on_woken(void *arg)
{
    explore_access(&has_called, false);
    saw_call = has_called;
    post_commands();
    if (n_answered == N_COMMANDS)
        ev_break(loop, EVBREAK_ALL);
}

static void create_channel(struct thread *worker)
{
    n_posted = n_applied = n_answered = 0;
    has_called = saw_call = false;
    loop = ev_loop_new(0);
    inbox_create(N_SLOTS + 1, &inbox);
    command_create(N_SLOTS, sizeof(struct numbered), loop, inbox, COMMAND, &channel);
    command_start(channel, on_answer, on_woken, NULL);
    thread_start(worker, "worker", -1, apply_commands, NULL);
}

static void stop_worker(struct thread *worker)
{
    inbox_push(inbox, &(struct inbox_item){.kind = STOP});
    thread_join(worker);
}

static void destroy_channel(void)
{
    command_destroy(channel);
    inbox_destroy(inbox);
    ev_loop_destroy(loop);
}

static void commands(void)
{
    struct thread worker;

    create_channel(&worker);
    post_commands();
    ev_run(loop, 0);
    explore_check(n_answered == N_COMMANDS && command_n_free(channel) == N_SLOTS, "a slot is lost");
    stop_worker(&worker);
    destroy_channel();
}

/* The engine stops at any time: the worker answers the commands that were posted before. */
static void commands_stop(void)
{
    struct thread worker;

    create_channel(&worker);
    post_commands();
    if (explore_choose(2))
        ev_run(loop, EVRUN_NOWAIT);
    stop_worker(&worker);
    explore_check(n_applied == n_posted, "%d commands were posted, and %d applied", n_posted, n_applied);
    ev_run(loop, EVRUN_NOWAIT);
    int n_last = n_posted - n_applied; /* posted by the last call of on_woken(), after the worker's end */
    explore_check(n_answered == n_applied, "%d commands were applied, and %d answered", n_applied, n_answered);
    explore_check(command_n_free(channel) + (size_t)n_last == N_SLOTS, "a slot is lost");
    destroy_channel();
}

static void *wake_channel(void *arg)
{
    explore_access(&has_called, true);
    has_called = true;
    command_wake(channel);
    return NULL;
}

/* Another thread, such as a device's callback, wakes the loop.  Each wake-up is followed by a call of 'woken'. */
static void commands_wake(void)
{
    struct thread worker, waker;

    create_channel(&worker);
    post_commands();
    thread_start(&waker, "waker", -1, wake_channel, NULL);
    do
        ev_run(loop, 0); /* waits for ever if the wake-up is lost */
    while (!saw_call);
    thread_join(&waker);
    stop_worker(&worker);
    destroy_channel();
}

void protocol_commands(void)
{
    explore(&(struct explore_scenario){"commands", commands, EXPLORE_ALL, 0});
    explore(&(struct explore_scenario){"commands, stop", commands_stop, EXPLORE_ALL, 0});
    explore(&(struct explore_scenario){"commands, wake", commands_wake, EXPLORE_ALL, 0});
}

int main(int argc, char **argv)
{
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;

    if (argc > 1 && !quick) {
        fprintf(stderr, "Usage: %s [--quick]\n", argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    check_exploration();
    protocol_inbox();
    protocol_loans();
    protocol_commands();
    protocol_sender();
    protocol_engine(quick);
    return 0;
}
