/* check_buffer_ref.c - a lent buffer returns once, after its last reader, with all writes of its readers visible. */
#include "common/base/buffer_ref.h"
#include "common/base/thread.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <signal.h>

#define N_READERS  4
#define N_ROUNDS   2000
#define HOME_KIND  7
#define HOME_VALUE 12345

struct buffer {
    struct buffer_ref ref;
    int notes[N_READERS]; /* each reader's own, so that the owner can see that the reader was done */
};

static struct inbox *return_to;
static struct buffer buffer;

static void setup(void)
{
    ck_assert_int_eq(inbox_create(1, &return_to), 0);
    buffer_ref_init(&buffer.ref, return_to,
                    (struct inbox_item){.kind = HOME_KIND, .value = HOME_VALUE, .object = &buffer});
}

static void teardown(void)
{
    inbox_destroy(return_to);
}

TEST(comes_home_after_the_last)
{
    struct inbox_item item = {.kind = -1};

    for (int n_readers = 1; n_readers <= 5; n_readers++) {
        buffer_ref_set(&buffer.ref, n_readers);
        for (int k = 0; k < n_readers; k++) {
            ck_assert_int_eq(inbox_try_pop(return_to, &item), -EAGAIN);
            buffer_ref_put(&buffer.ref);
        }
        ck_assert_int_eq(inbox_try_pop(return_to, &item), 0);
        ck_assert_int_eq(item.kind, HOME_KIND);
        ck_assert_int_eq(item.value, HOME_VALUE);
        ck_assert_ptr_eq(item.object, &buffer);
        ck_assert_int_eq(inbox_try_pop(return_to, &item), -EAGAIN);
    }
}

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
        buffer_ref_put(item.object);
    }
    return NULL;
}

TEST(readers_are_done_when_it_is_home)
{
    struct reader readers[N_READERS];
    struct inbox_item item = {.object = &buffer.ref};

    for (int k = 0; k < N_READERS; k++) {
        readers[k].index = k;
        buffer.notes[k] = 0;
        ck_assert_int_eq(inbox_create(1, &readers[k].work), 0);
        ck_assert_int_eq(thread_start(&readers[k].thread, "reader", -1, read_and_put, &readers[k]), 0);
    }
    for (int round = 1; round <= N_ROUNDS; round++) {
        struct inbox_item back;

        buffer_ref_set(&buffer.ref, N_READERS);
        for (int k = 0; k < N_READERS; k++)
            inbox_push(readers[k].work, &item);
        ck_assert_int_eq(inbox_pop(return_to, &back), 0);
        for (int k = 0; k < N_READERS; k++)
            ck_assert_int_eq(buffer.notes[k], round);
    }
    for (int k = 0; k < N_READERS; k++) {
        inbox_stop(readers[k].work);
        thread_join(&readers[k].thread);
        inbox_destroy(readers[k].work);
    }
    ck_assert_int_eq(inbox_length(return_to), 0);
}

TEST(aborts_when_lent_twice, .signal = SIGABRT)
{
    buffer_ref_set(&buffer.ref, 1);
    buffer_ref_set(&buffer.ref, 1);
}

TEST(aborts_when_lent_to_nobody, .signal = SIGABRT)
{
    buffer_ref_set(&buffer.ref, 0);
}

TEST(aborts_when_put_too_often, .signal = SIGABRT)
{
    buffer_ref_set(&buffer.ref, 1);
    buffer_ref_put(&buffer.ref);
    buffer_ref_put(&buffer.ref);
}

SUITE(.timeout_s = 60, .setup = setup, .teardown = teardown);
