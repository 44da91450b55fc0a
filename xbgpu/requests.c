/* requests.c - takes command slots for requests, and parses common arguments. */
#include "xbgpu/requests.h"

#include "common/katcp/server.h"

#include <assert.h>
#include <string.h>

bool xbgpu_has_slot(const struct command_channel *channel, struct katcp_call *call)
{
    bool has = command_n_free(channel) > 0;

    if (!has)
        katcp_fail(call, "too many requests are pending (%zu); try again", command_n_slots(channel));
    return has;
}

struct xbgpu_command *xbgpu_take_command(struct command_channel *channel, enum xbgpu_command_what what,
                                         struct katcp_call *call)
{
    struct xbgpu_command *command = (struct xbgpu_command *)command_take(channel);

    assert(command);
    *command = (struct xbgpu_command){.what = what,
                                      .call = call,
                                      .delays = command->delays,
                                      .steering = command->steering,
                                      .calibration = command->calibration};
    return command;
}

bool xbgpu_arg_input(const struct labels *labels, struct katcp_call *call, int i, size_t *input)
{
    long found = labels_find(labels, katcp_arg(call, i), strlen(katcp_arg(call, i)));

    if (found < 0)
        katcp_fail(call, "there is no input '%s': inputs are 0 to %zu, or have labels like %s", katcp_arg(call, i),
                   labels->n - 1, labels->labels[0]);
    *input = (size_t)found;
    return found >= 0;
}
