/* inbox.h - a queue of messages to one thread, in order of arrival.
 *
 * Flow:      recv, send, main, device callbacks --push--> [n_slots] --pop--> the one thread that owns the inbox
 * Ownership: push passes the ownership of the object to the inbox; pop passes the ownership to the caller.
 * Threads:   many producers, one consumer; inbox_stop() from any thread.
 * Blocking:  pop and pop_until may sleep.  try_pop and push never sleep.  Only inbox_create() allocates memory.
 * Invariant: 0 <= n_pushed - n_popped <= n_slots.  The creator of an inbox sets n_slots to the number of objects that
 *            can be in the inbox at the same time (for example all buffers that return to it, and all command slots).
 *            So there is always a free slot for a push.  inbox_push() asserts this.
 * Property:  each item is popped exactly once, and the items of a producer in their order, also after inbox_stop().  A
 *            waiting consumer misses no push and no stop.  `build/tests/explore` checks this (protocol_inbox).
 * Locking:   one mutex.  Each holder holds the mutex for a few instructions, once per chunk and never per packet.
 *
 * The worker's inbox, the pools of free buffers and the senders' queues are all inboxes.  A receiver calls try_pop on
 * its pool.  A sender calls pop_until with the time at which it must send the next packet. */
#ifndef COMMON_BASE_INBOX_H
#define COMMON_BASE_INBOX_H

#include <stddef.h>
#include <stdint.h>

struct inbox;

struct inbox_item {
    int kind;      /* kind of message, from an enum of the consumer */
    int64_t value; /* meaning depends on 'kind' */
    void *object;  /* meaning depends on 'kind' */
};

/* Creates an inbox with room for 'n_slots' (> 0) items.  Returns 0 or -ENOMEM. */
int inbox_create(size_t n_slots, struct inbox **inbox);

/* Frees the inbox, not the objects in it.  NULL is accepted. */
void inbox_destroy(struct inbox *inbox);

/* Appends a copy of 'item', even after inbox_stop(): buffers must return to their pools during shutdown. */
void inbox_push(struct inbox *inbox, const struct inbox_item *item);

/* Pops the oldest item, and waits while there is no item.  Returns 0, or -EPIPE if the inbox is stopped and empty. */
int inbox_pop(struct inbox *inbox, struct inbox_item *item);

/* Pops the oldest item if there is one.  Returns 0, -EAGAIN if the inbox is empty, or -EPIPE if it is stopped and
 * empty. */
int inbox_try_pop(struct inbox *inbox, struct inbox_item *item);

/* If the inbox is empty, waits for an item until the monotonic clock reads 'deadline_ns'.  Pops the oldest item.
 * Returns 0, -ETIMEDOUT, or -EPIPE if the inbox is stopped and empty. */
int inbox_pop_until(struct inbox *inbox, int64_t deadline_ns, struct inbox_item *item);

/* Stops the inbox: from now on a pop from the empty inbox returns -EPIPE instead of waiting.  Idempotent. */
void inbox_stop(struct inbox *inbox);

/* Returns the number of waiting items, for gauges only: the number may be outdated when the caller reads it. */
size_t inbox_length(struct inbox *inbox);

#endif
