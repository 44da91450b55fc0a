/* command.h - what main asks of xbgpu's worker: a snapshot, and from when on it holds.
 *
 * Flow:      control.c (main), fixed slots --command--> worker's inbox --obeyed--> control.c, xbgpu_control_obeyed()
 * Ownership: the worker's from the push on until it gives the slot back.  It frees nothing: a gate is exchanged for one
 *            that it does not need any more. */
#ifndef XBGPU_COMMAND_H
#define XBGPU_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xbgpu_gate;
struct katcp_call;

enum xbgpu_command_what { XBGPU_COMMAND_CAPTURE, XBGPU_COMMAND_SHIFTS, XBGPU_COMMAND_GATE };

struct xbgpu_command {
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
