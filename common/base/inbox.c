/* inbox.c - a ring buffer under a mutex, which connects the threads of a daemon.  See inbox.h. */
#include "common/base/inbox.h"

#include "common/base/clock.h"
#include "common/base/lock.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct inbox {
    struct lock lock;
    pthread_cond_t changed;    /* signalled when an item is pushed or the inbox is stopped */
    size_t n_slots;            /* [const] */
    struct inbox_item *slots;  /* [pointer: const; items: lock] array [n_slots]; item k is in slots[k % n_slots] */
    uint64_t n_pushed GUARDED; /* [lock] number of pushes since creation */
    uint64_t n_popped GUARDED; /* [lock] number of pops since creation */
    bool stopped GUARDED;      /* [lock] */
};

int inbox_create(size_t n_slots, struct inbox **inbox)
{
    struct inbox *new = calloc(1, sizeof(*new));

    assert(n_slots > 0);
    if (!new)
        return -ENOMEM;
    new->n_slots = n_slots;
    new->slots = calloc(n_slots, sizeof(*new->slots));
    if (!new->slots) {
        free(new);
        return -ENOMEM;
    }
    lock_init(&new->lock);
    lock_init_condition(&new->changed);
    *inbox = new;
    return 0;
}

void inbox_destroy(struct inbox *inbox)
{
    if (!inbox)
        return;
    pthread_cond_destroy(&inbox->changed);
    lock_fini(&inbox->lock);
    free(inbox->slots);
    free(inbox);
}

void inbox_push(struct inbox *inbox, const struct inbox_item *item)
{
    lock_take(&inbox->lock);
    assert(inbox->n_pushed - inbox->n_popped < inbox->n_slots);
    inbox->slots[inbox->n_pushed++ % inbox->n_slots] = *item;
    /* The signal makes no system call unless the consumer waits.  The signal precedes the unlock, so that this function
     * does not touch the inbox after the unlock.  A consumer that has popped all items may thus destroy the inbox. */
    pthread_cond_signal(&inbox->changed);
    lock_give(&inbox->lock);
}

/* Pops the oldest item.  Returns 0, -EAGAIN if the inbox is empty, or -EPIPE if the inbox is stopped and empty. */
static int take_oldest(struct inbox *inbox, struct inbox_item *item) REQUIRES(inbox->lock)
{
    if (inbox->n_popped == inbox->n_pushed)
        return inbox->stopped ? -EPIPE : -EAGAIN;
    *item = inbox->slots[inbox->n_popped++ % inbox->n_slots];
    return 0;
}

int inbox_pop(struct inbox *inbox, struct inbox_item *item)
{
    int err;

    thread_beat();
    lock_take(&inbox->lock);
    while ((err = take_oldest(inbox, item)) == -EAGAIN)
        lock_wait_beat(&inbox->lock, &inbox->changed, INT64_MAX);
    lock_give(&inbox->lock);
    return err;
}

int inbox_try_pop(struct inbox *inbox, struct inbox_item *item)
{
    lock_take(&inbox->lock);
    int err = take_oldest(inbox, item);
    lock_give(&inbox->lock);
    return err;
}

int inbox_pop_until(struct inbox *inbox, int64_t deadline_ns, struct inbox_item *item)
{
    bool late = false;
    int err;

    thread_beat();
    lock_take(&inbox->lock);
    /* Tries once more after the deadline, because an item may have been pushed while this thread waited for the
     * lock. */
    while ((err = take_oldest(inbox, item)) == -EAGAIN && !late) {
        lock_wait_beat(&inbox->lock, &inbox->changed, deadline_ns);
        late = clock_monotonic_ns() >= deadline_ns;
    }
    lock_give(&inbox->lock);
    return err == -EAGAIN ? -ETIMEDOUT : err;
}

void inbox_stop(struct inbox *inbox)
{
    lock_take(&inbox->lock);
    inbox->stopped = true;
    pthread_cond_signal(&inbox->changed);
    lock_give(&inbox->lock);
}

size_t inbox_length(struct inbox *inbox)
{
    lock_take(&inbox->lock);
    size_t n = (size_t)(inbox->n_pushed - inbox->n_popped);
    lock_give(&inbox->lock);
    return n;
}
