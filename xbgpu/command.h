/* command.h - what main asks of xbgpu's worker: a snapshot, and from when on it holds (common/engine/command.h).
 *
 * Ownership: the slot's.  A gate is exchanged for one that the worker does not need any more. */
#ifndef XBGPU_COMMAND_H
#define XBGPU_COMMAND_H

#include "common/engine/command.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xbgpu_gate;
struct katcp_call;

enum xbgpu_command_what { XBGPU_COMMAND_CAPTURE, XBGPU_COMMAND_SHIFTS, XBGPU_COMMAND_GATE };

struct xbgpu_command {
    struct command base; /* first */
    enum xbgpu_command_what what;
    size_t index;            /* of the output or the gate */
    bool on;                 /* capture */
    int64_t from_samples;    /* capture, gate */
    uint32_t *delays;        /* shifts: [ant][pol], of the slot */
    struct xbgpu_gate *gate; /* gate: what it is to be; back: what is to be destroyed, or NULL */
    int64_t holds_samples;   /* back: data with this timestamp or a later one reflect it */
    struct katcp_call *call; /* [main] who waits for it, or NULL */
};

#endif
