/* control.h - what can be asked of a running xbgpu over KATCP, what of it is kept, and how it gets to the worker.
 *
 * Flow:      katcp/server.c --request--> checked wholly --a command in one of a fixed number of slots--> worker's inbox
 *            worker obeys, xcontrol_obeyed() --slot--> main's loop --> reply
 *            so that steady-state-timestamp is true when the reply comes.  Where the data's time goes back, so does it.
 * State:     what was set is kept in the file "control" of the state directory, and comes first at the next start.
 * Threads:   main, but for xcontrol_obeyed() and xcontrol_time_went_back().
 *
 * ?capture-start STREAM [TIMESTAMP], ?capture-stop STREAM, ?input-shift [INPUT [SHIFT INPUT SHIFT...]],
 * ?gate [NAME [FROM KEY=VALUE...]]; docs/katcp.md. */
#ifndef XBGPU_CONTROL_H
#define XBGPU_CONTROL_H

#include "xbgpu/command.h"
#include "xbgpu/layout.h"

struct ev_loop;
struct inbox;
struct katcp_device;
struct katcp_sensors;
struct xcontrol;
struct xlabels;

struct xcontrol_config {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    const struct xlabels *labels;
    struct ev_loop *loop;          /* main's */
    struct inbox *worker;          /* has room for xcontrol_n_commands() */
    int command_kind;              /* {command_kind, 0, struct xcommand} */
    struct katcp_sensors *sensors; /* told when requests are in force */
    struct sensors *all_sensors;   /* gets one more, which lives as long as the control (state_file.h); NULL: none */
};

/* How many commands can be in the worker's inbox at once. */
size_t xcontrol_n_commands(const struct xbgpu_config *config);

/* Posts what was kept, which the worker so obeys before it sees any data.  Returns 0 or negative errno with one
 * sentence in 'why'. */
int xcontrol_create(const struct xcontrol_config *config, struct xcontrol **control, char *why, size_t why_bytes);

/* What requests are answered. */
void xcontrol_serve(struct xcontrol *control, struct katcp_device *device);

/* [worker] Gives back the slot of a command that has been obeyed. */
void xcontrol_obeyed(struct xcontrol *control, struct xcommand *command);

/* [worker] The data's time went back: all that was obeyed before shows from this timestamp on. */
void xcontrol_time_went_back(struct xcontrol *control, int64_t first_samples);

/* Writes what is to be kept.  The worker has ended, and nobody waits for an answer any more.  NULL is accepted. */
void xcontrol_destroy(struct xcontrol *control);

#endif
