/* command.c - passes commands from the control thread to the worker, and the answers back to the control thread. */
#include "common/engine/command.h"

#include "common/base/inbox.h"

#include <errno.h>
#include <ev.h>
#include <stdatomic.h>
#include <stdlib.h>

struct command_channel {
    struct ev_loop *loop;
    struct inbox *worker; /* [const] */
    int kind;             /* [const] */
    char *slots;          /* [n_slots][slot_bytes] */
    size_t n_slots;       /* [const] */
    size_t slot_bytes;    /* [const] */
    struct command *free;
    size_t n_free;
    struct inbox *answers; /* answered commands, popped by the control thread */
    ev_async wake;
    void (*answered)(void *arg, struct command *command);
    void (*woken)(void *arg);
    void *arg;
    _Atomic int64_t steady_samples; /* [worker] written before the answer is pushed */
};

static void give_slot(struct command_channel *c, struct command *slot)
{
    slot->next = c->free;
    c->free = slot;
    c->n_free++;
}

static void on_wake(struct ev_loop *loop, ev_async *watcher, int events)
{
    struct command_channel *c = watcher->data;
    struct inbox_item item;

    while (inbox_try_pop(c->answers, &item) == 0) {
        c->answered(c->arg, item.object);
        give_slot(c, item.object);
    }
    c->woken(c->arg);
}

struct command *command_slot(const struct command_channel *c, size_t i)
{
    return (struct command *)(void *)(c->slots + i * c->slot_bytes);
}

size_t command_n_slots(const struct command_channel *c)
{
    return c->n_slots;
}

int command_create(size_t n_slots, size_t slot_bytes, struct ev_loop *loop, struct inbox *worker, int kind,
                   struct command_channel **channel)
{
    struct command_channel *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->loop = loop;
    c->worker = worker;
    c->kind = kind;
    ev_async_init(&c->wake, on_wake);
    c->wake.data = c;
    c->n_slots = n_slots;
    c->slot_bytes = slot_bytes;
    c->slots = calloc(n_slots, slot_bytes);
    int err = c->slots ? inbox_create(n_slots, &c->answers) : -ENOMEM;
    if (err) {
        command_destroy(c);
        return err;
    }
    for (size_t i = 0; i < n_slots; i++)
        give_slot(c, command_slot(c, i));
    *channel = c;
    return 0;
}

void command_start(struct command_channel *c, void (*answered)(void *arg, struct command *command),
                   void (*woken)(void *arg), void *arg)
{
    c->answered = answered;
    c->woken = woken;
    c->arg = arg;
    ev_async_start(c->loop, &c->wake);
}

struct command *command_take(struct command_channel *c)
{
    struct command *command = c->free;

    if (!command)
        return NULL;
    c->free = command->next;
    c->n_free--;
    return command;
}

size_t command_n_free(const struct command_channel *c)
{
    return c->n_free;
}

void command_post(struct command_channel *c, struct command *command)
{
    inbox_push(c->worker, &(struct inbox_item){c->kind, 0, command});
}

void command_answer(struct command_channel *c, struct command *command, int64_t steady_samples)
{
    atomic_store_explicit(&c->steady_samples, steady_samples, memory_order_relaxed);
    inbox_push(c->answers, &(struct inbox_item){0, 0, command});
    command_wake(c);
}

void command_steady(struct command_channel *c, int64_t steady_samples)
{
    atomic_store_explicit(&c->steady_samples, steady_samples, memory_order_relaxed);
    command_wake(c);
}

int64_t command_steady_samples(const struct command_channel *c)
{
    return atomic_load_explicit(&c->steady_samples, memory_order_relaxed);
}

void command_wake(void *channel)
{
    struct command_channel *c = channel;

    ev_async_send(c->loop, &c->wake);
}

void command_stop(struct command_channel *c)
{
    ev_async_stop(c->loop, &c->wake);
}

void command_destroy(struct command_channel *c)
{
    if (!c)
        return;
    command_stop(c);
    inbox_destroy(c->answers);
    free(c->slots);
    free(c);
}
