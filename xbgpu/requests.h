/* requests.h - functions for several request handlers.  The functions take command slots, and parse arguments.
 *
 * Threads:   main. */
#ifndef XBGPU_REQUESTS_H
#define XBGPU_REQUESTS_H

#include "xbgpu/settings.h"

/* Returns whether a command slot is free.  If none is free, fails the call. */
bool xbgpu_has_slot(const struct command_channel *channel, struct katcp_call *call);

/* Takes a slot for a command.  'call' is the request that waits for the command, or NULL. */
struct xbgpu_command *xbgpu_take_command(struct command_channel *channel, enum xbgpu_command_what what,
                                         struct katcp_call *call);

/* Finds the input that argument 'i' names.  If there is no such input, fails the call and returns false. */
bool xbgpu_arg_input(const struct labels *labels, struct katcp_call *call, int i, size_t *input);

#endif
