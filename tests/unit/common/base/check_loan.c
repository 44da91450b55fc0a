/* check_loan.c - a lent buffer comes home once, after its last reader, and with everything that the readers did. */
#include "common/base/buffer_ref.h"
#include "common/base/thread.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#define N_READERS  4
#define N_ROUNDS   2000
#define HOME_KIND  7
#define HOME_VALUE 12345

struct buffer {
    struct loan loan;
    int notes[N_READERS]; /* each reader's own, so that the owner can see that the reader was done */
};

static struct inbox *home;
static struct buffer buffer;

static void setup(void)
{
    ck_assert_int_eq(inbox_create(1, &home), 0);
    loan_init(&buffer.loan, home, (struct inbox_item){.kind = HOME_KIND, .value = HOME_VALUE, .object = &buffer});
}

static void teardown(void)
{
    inbox_destroy(home);
}

START_TEST(comes_home_after_the_last)
{
    struct inbox_item item = {.kind = -1};

    for (int n_readers = 1; n_readers <= 5; n_readers++) {
        loan_out(&buffer.loan, n_readers);
        for (int k = 0; k < n_readers; k++) {
            ck_assert_int_eq(inbox_try_pop(home, &item), -EAGAIN);
            loan_put(&buffer.loan);
        }
        ck_assert_int_eq(inbox_try_pop(home, &item), 0);
        ck_assert_int_eq(item.kind, HOME_KIND);
        ck_assert_int_eq(item.value, HOME_VALUE);
        ck_assert_ptr_eq(item.object, &buffer);
        ck_assert_int_eq(inbox_try_pop(home, &item), -EAGAIN);
    }
}
END_TEST

struct reader {
    struct thread thread;
    struct inbox *work;
    int index;
};

static void *read_and_put(void *arg)
{
    struct reader *reader = arg;
    struct inbox_item item;

    while (inbox_pop(reader->work, &item) == 0) {
        buffer.notes[reader->index]++;
        loan_put(item.object);
    }
    return NULL;
}

START_TEST(readers_are_done_when_it_is_home)
{
    struct reader readers[N_READERS];
    struct inbox_item item = {.object = &buffer.loan};

    for (int k = 0; k < N_READERS; k++) {
        readers[k].index = k;
        buffer.notes[k] = 0;
        ck_assert_int_eq(inbox_create(1, &readers[k].work), 0);
        ck_assert_int_eq(thread_start(&readers[k].thread, "reader", -1, read_and_put, &readers[k]), 0);
    }
    for (int round = 1; round <= N_ROUNDS; round++) {
        struct inbox_item back;

        loan_out(&buffer.loan, N_READERS);
        for (int k = 0; k < N_READERS; k++)
            inbox_push(readers[k].work, &item);
        ck_assert_int_eq(inbox_pop(home, &back), 0);
        for (int k = 0; k < N_READERS; k++)
            ck_assert_int_eq(buffer.notes[k], round);
    }
    for (int k = 0; k < N_READERS; k++) {
        inbox_stop(readers[k].work);
        thread_join(&readers[k].thread);
        inbox_destroy(readers[k].work);
    }
    ck_assert_int_eq(inbox_length(home), 0);
}
END_TEST

START_TEST(aborts_when_lent_twice)
{
    loan_out(&buffer.loan, 1);
    loan_out(&buffer.loan, 1);
}
END_TEST

START_TEST(aborts_when_lent_to_nobody)
{
    loan_out(&buffer.loan, 0);
}
END_TEST

START_TEST(aborts_when_put_too_often)
{
    loan_out(&buffer.loan, 1);
    loan_put(&buffer.loan);
    loan_put(&buffer.loan);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loan");
    TCase *tests = tcase_create("loan");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, comes_home_after_the_last);
    tcase_add_test(tests, readers_are_done_when_it_is_home);
    tcase_add_test_raise_signal(tests, aborts_when_lent_twice, SIGABRT);
    tcase_add_test_raise_signal(tests, aborts_when_lent_to_nobody, SIGABRT);
    tcase_add_test_raise_signal(tests, aborts_when_put_too_often, SIGABRT);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
