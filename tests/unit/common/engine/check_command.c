/* check_command - commands to a worker, and their answers.  The test plays the worker. */
#include "common/base/inbox.h"
#include "common/engine/command.h"
#include "tests/unit/test_main.h"

#include <ev.h>

#define N_SLOTS 3
#define KIND    7

struct numbered {
    struct command base;
    int number;
};

static struct ev_loop *loop;
static struct inbox *worker;
static struct command_channel *channel;
static int answers[2 * N_SLOTS], n_answers, n_wakes;

static void on_answer(void *arg, struct command *command)
{
    ck_assert_ptr_eq(arg, &n_answers);
    ck_assert_int_lt(n_answers, 2 * N_SLOTS);
    answers[n_answers++] = ((struct numbered *)command)->number;
}

static void on_wake(void *arg)
{
    ck_assert_ptr_eq(arg, &n_answers);
    n_wakes++;
}

static void setup(void)
{
    loop = ev_loop_new(0);
    n_answers = n_wakes = 0;
    ck_assert_int_eq(inbox_create(N_SLOTS, &worker), 0);
    ck_assert_int_eq(command_create(N_SLOTS, sizeof(struct numbered), loop, worker, KIND, &channel), 0);
    ck_assert_uint_eq(command_n_slots(channel), N_SLOTS);
    command_start(channel, on_answer, on_wake, &n_answers);
}

static void teardown(void)
{
    command_destroy(channel);
    inbox_destroy(worker);
    ev_loop_destroy(loop);
}

static void post(int number)
{
    struct numbered *command = (struct numbered *)command_take(channel);

    ck_assert_ptr_nonnull(command);
    command->number = number;
    command_post(channel, &command->base);
}

/* The worker's part of one command. */
static void apply(int64_t steady_samples)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_try_pop(worker, &item), 0);
    ck_assert_int_eq(item.kind, KIND);
    command_answer(channel, item.object, steady_samples);
}

TEST(answers_come_in_order)
{
    for (int i = 1; i <= N_SLOTS; i++)
        post(i);
    ck_assert_ptr_null(command_take(channel));
    apply(100);
    apply(200);
    ck_assert_ptr_null(command_take(channel)); /* not before the loop has told of it */
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_int_eq(n_answers, 2);
    ck_assert_int_eq(command_n_free(channel), 2);
    ck_assert_int_eq(command_steady_samples(channel), 200);
    post(4);
    apply(300);
    apply(400);
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_int_eq(n_answers, 4);
    for (int i = 0; i < n_answers; i++)
        ck_assert_int_eq(answers[i], i + 1);
    ck_assert_int_eq(command_n_free(channel), N_SLOTS);
}

TEST(time_goes_back)
{
    post(1);
    apply(1000);
    command_steady(channel, 10);
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_int_eq(n_answers, 1);
    ck_assert_int_eq(n_wakes, 1);
    ck_assert_int_eq(command_steady_samples(channel), 10);
    command_wake(channel);
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_int_eq(n_wakes, 2);
}

TEST(stopped_channel_is_silent)
{
    post(1);
    command_stop(channel);
    command_stop(channel);
    apply(1000);
    command_wake(channel);
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_int_eq(n_answers + n_wakes, 0);
}

SUITE(.setup = setup, .teardown = teardown);
