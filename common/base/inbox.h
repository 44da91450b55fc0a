/* inbox.h - a queue of messages to one thread, in order of arrival.
 *
 * Flow:      recv, send, main, device callbacks --push--> [n_slots] --pop--> the one thread that owns the inbox
 * Ownership: push gives the object away; pop makes the caller its owner.
 * Threads:   many producers, one consumer; inbox_stop() from any thread.
 * Blocking:  pop and pop_until may sleep; try_pop and push never do; nothing allocates after create.
 * Invariant: 0 <= n_pushed - n_popped <= n_slots.  The creator of an inbox counts all objects that can be in it (each
 *            buffer that returns to it, each command slot).  So a push always finds room, and asserts that.
 * Locking:   one mutex, held for a few instructions, once per chunk and never per packet.
 *
 * The same queue serves as the worker's inbox, as a pool of free buffers (the receiver calls try_pop) and as a sender's
 * queue (pop_until the next departure). */
#ifndef COMMON_BASE_INBOX_H
#define COMMON_BASE_INBOX_H

#include <stddef.h>
#include <stdint.h>

struct inbox;

struct inbox_item {
    int kind;      /* value of the consumer's own enum */
    int64_t value; /* meaning depends on 'kind' */
    void *object;  /* meaning depends on 'kind' */
};

/* Makes an inbox of 'n_slots' (> 0) items.  Returns 0 or -ENOMEM. */
int inbox_create(size_t n_slots, struct inbox **inbox);

/* Frees the inbox, not the objects in it.  NULL is accepted. */
void inbox_destroy(struct inbox *inbox);

/* Appends a copy of 'item', even after inbox_stop(): buffers must return to their pools during shutdown. */
void inbox_push(struct inbox *inbox, const struct inbox_item *item);

/* Takes the oldest item, and waits if there is none.  Returns 0, or -EPIPE if the inbox is stopped and empty. */
int inbox_pop(struct inbox *inbox, struct inbox_item *item);

/* Takes the oldest item if there is one.  Returns 0, -EAGAIN if empty, -EPIPE if stopped and empty. */
int inbox_try_pop(struct inbox *inbox, struct inbox_item *item);

/* Takes the oldest item, waiting until the monotonic clock reads 'deadline_ns'.  Returns 0, -ETIMEDOUT or -EPIPE. */
int inbox_pop_until(struct inbox *inbox, int64_t deadline_ns, struct inbox_item *item);

/* Makes an empty inbox return -EPIPE from now on instead of waiting.  Idempotent. */
void inbox_stop(struct inbox *inbox);

/* Returns the number of waiting items, for gauges only: the number may be outdated when the caller reads it. */
size_t inbox_length(struct inbox *inbox);

#endif
