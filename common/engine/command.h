/* command.h - what the control thread asks of the worker: applied on the worker, answered on the control thread.
 *
 * Flow:      control --command_take, fill in, command_post--> worker's inbox --applied--> command_answer --ev_async-->
 *            control: 'answered' --> the slot is free again
 * Ownership: slots are the channel's memory: each is a struct of the daemon that begins with a struct command.  A slot
 *            belongs to the control thread from take to post, and to the worker from post to answer.  The worker frees
 *            nothing: what it does not need any more goes back in the slot.
 * Steady:    an answer says from which timestamp on all data show all that has been applied.  Where the data's time
 *            goes back, so may that timestamp (command_steady).
 * Order:     answers come in the order of the posts.
 * Threads:   the control thread runs the loop and calls everything but command_answer and command_steady [worker] and
 *            command_wake [any].
 * Blocking:  never; nothing allocates after create.
 * Invariant: a slot is free, with the control thread, in the worker's inbox, or among the answers. */
#ifndef COMMON_ENGINE_COMMAND_H
#define COMMON_ENGINE_COMMAND_H

#include <stddef.h>
#include <stdint.h>

struct command_channel;
struct ev_loop;
struct inbox;

struct command {
    struct command *next; /* among the free slots; the channel's */
};

/* Makes 'n_slots' free slots of zeros, of 'slot_bytes' each.  Commands come to 'worker' as {kind, 0, struct command}; it
 * must have room for all of them.  Returns 0 or -ENOMEM. */
int command_create(size_t n_slots, size_t slot_bytes, struct ev_loop *loop, struct inbox *worker, int kind,
                   struct command_channel **channel);

/* Slot 'i', wherever it is.  Before the worker starts, or after it has ended. */
struct command *command_slot(const struct command_channel *channel, size_t i);
size_t command_n_slots(const struct command_channel *channel);

/* Starts answers: 'answered' gets each command, and 'woken' is called after that, and after each command_wake() and
 * command_steady(). */
void command_start(struct command_channel *channel, void (*answered)(void *arg, struct command *command),
                   void (*woken)(void *arg), void *arg);

/* A slot, with the content that it had; or NULL while none is free. */
struct command *command_take(struct command_channel *channel);
size_t command_n_free(const struct command_channel *channel);

/* Gives the command to the worker. */
void command_post(struct command_channel *channel, struct command *command);

/* [worker] The command has been applied; all that has been applied shows from 'steady_samples' on. */
void command_answer(struct command_channel *channel, struct command *command, int64_t steady_samples);

/* [worker] The data's time went back: all that has been applied shows from 'steady_samples' on. */
void command_steady(struct command_channel *channel, int64_t steady_samples);

/* From any thread: the timestamp that the worker said last; 0 before the first. */
int64_t command_steady_samples(const struct command_channel *channel);

/* [any] Has 'woken' called soon.  The signature is that of a device_then() callback. */
void command_wake(void *channel);

/* After this call neither 'answered' nor 'woken' is called.  Idempotent. */
void command_stop(struct command_channel *channel);

/* Stops first.  Nobody may answer or wake any more.  NULL is accepted. */
void command_destroy(struct command_channel *channel);

#endif
