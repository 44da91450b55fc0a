/* command.h - a channel for requests from the control thread: the worker applies each request, and the control thread
 * answers the client.
 *
 * Flow:      control --command_take, fill in, command_post--> worker's inbox --applied--> command_answer --ev_async-->
 *            control: 'answered' --> the slot is free again
 * Ownership: slots are the channel's memory.  Each slot is a struct of the daemon that begins with a struct command.  A
 *            slot belongs to the control thread from take to post, and to the worker from post to answer.  The worker
 *            frees no memory: it returns unneeded memory in the slot, and the control thread frees it.
 * Steady:    each answer has a timestamp, 'steady_samples'.  Data at or after this timestamp reflect all applied
 *            commands.
 *            If the data's timestamps jump back, this timestamp may decrease, too (command_steady).
 * Order:     commands are answered in the order in which they were posted.
 * Property:  each posted command is applied once and answered once, also if the engine stops meanwhile.  Only commands
 *            that the worker has not popped at its end have no answer.  `build/tests/explore` checks this
 *            (protocol_commands, protocol_engine).
 * Threads:   the control thread runs the loop, and calls all functions but four.  The worker calls command_answer and
 *            command_steady.  Any thread may call command_wake and command_steady_samples.
 * Blocking:  never; nothing allocates after create.
 * Invariant: a slot is free, in use by the control thread or the worker, or in one of their two inboxes. */
#ifndef COMMON_ENGINE_COMMAND_H
#define COMMON_ENGINE_COMMAND_H

#include <stddef.h>
#include <stdint.h>

struct command_channel;
struct ev_loop;
struct inbox;

struct command {
    struct command *next; /* next free slot; only the channel uses this member */
};

/* Creates 'n_slots' free, zero-initialised slots of 'slot_bytes' bytes each.  The inbox 'worker' receives each command
 * as {kind, 0, struct command}, and must have room for 'n_slots' commands.  Returns 0 or -ENOMEM. */
int command_create(size_t n_slots, size_t slot_bytes, struct ev_loop *loop, struct inbox *worker, int kind,
                   struct command_channel **channel);

/* Returns slot 'i', even if it is free.  Call before the worker starts, or after it has ended. */
struct command *command_slot(const struct command_channel *channel, size_t i);
size_t command_n_slots(const struct command_channel *channel);

/* Starts the delivery of answers.  The loop calls 'answered' for each answered command.  It calls 'woken' after these
 * calls, and after each command_wake() and command_steady(). */
void command_start(struct command_channel *channel, void (*answered)(void *arg, struct command *command),
                   void (*woken)(void *arg), void *arg);

/* Takes a free slot, which still has its previous content.  Returns NULL if no slot is free. */
struct command *command_take(struct command_channel *channel);
size_t command_n_free(const struct command_channel *channel);

/* Pushes the command to the worker's inbox. */
void command_post(struct command_channel *channel, struct command *command);

/* [worker] Answers an applied command.  Data at or after the timestamp 'steady_samples' reflect all applied
 * commands. */
void command_answer(struct command_channel *channel, struct command *command, int64_t steady_samples);

/* [worker] Reports that the data's timestamps jumped back.  Data at or after the timestamp 'steady_samples' reflect
 * all applied commands. */
void command_steady(struct command_channel *channel, int64_t steady_samples);

/* [any] Returns the last 'steady_samples' that the worker reported, or 0 before the first report. */
int64_t command_steady_samples(const struct command_channel *channel);

/* [any] Makes the loop call 'woken' soon.  The signature fits device_then(). */
void command_wake(void *channel);

/* After this call, the loop no longer calls 'answered' and 'woken'.  Idempotent. */
void command_stop(struct command_channel *channel);

/* Stops and frees the channel.  No thread may use the channel any more.  NULL is accepted. */
void command_destroy(struct command_channel *channel);

#endif
