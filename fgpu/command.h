/* command.h - what main asks of fgpu's worker: a snapshot of one antenna's one output (common/engine/command.h).
 *
 * Ownership: the slot's.  The gains are a walk's: fgpu_output_take_gains() gives them to main, and the command takes them
 *            back to the walk, which says when they are free again (output.h). */
#ifndef FGPU_COMMAND_H
#define FGPU_COMMAND_H

#include "common/engine/command.h"
#include "fgpu/output.h"

#include <stddef.h>

struct fgpu_command {
    struct command base; /* first */
    size_t ant, output;
    struct fgpu_gains *gains;  /* NULL: delays */
    struct fgpu_delays delays; /* with 'gains': not used */
    void *request;             /* [main] what waits for it */
};

#endif
