/* control.h - what can be asked of a running xbgpu over KATCP, what of it is kept, and how it gets to the worker.
 *
 * Flow:      katcp/server.c --request--> checked wholly --command--> worker applies it --answer--> reply
 *            so that steady-state-timestamp is true when the reply comes.  Where the data's time goes back, so does it.
 * State:     what was set is kept in the file "control" of the state directory, and comes first at the next start.
 * Threads:   main, but for xbgpu_control_obeyed() and xbgpu_control_time_went_back().
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
struct xbgpu_control;
struct xbgpu_labels;

struct xbgpu_control_config {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    const struct xbgpu_labels *labels;
    struct ev_loop *loop;          /* main's */
    struct inbox *worker;          /* has room for xbgpu_control_n_commands() */
    int command_kind;              /* {command_kind, 0, struct xbgpu_command} */
    struct katcp_sensors *sensors; /* told when requests are in force */
    struct sensors *all_sensors;   /* gets one more, which lives as long as the control (state_file.h); NULL: none */
};

/* How many commands can be in the worker's inbox at once. */
size_t xbgpu_control_n_commands(const struct xbgpu_config *config);

/* Posts what was kept, which the worker so obeys before it sees any data.  Returns 0 or negative errno with one
 * sentence in 'why'. */
int xbgpu_control_create(const struct xbgpu_control_config *config, struct xbgpu_control **control, char *why,
                         size_t why_bytes);

/* What requests are answered. */
void xbgpu_control_serve(struct xbgpu_control *control, struct katcp_device *device);

/* [worker] Gives back the slot of a command that has been obeyed. */
void xbgpu_control_obeyed(struct xbgpu_control *control, struct xbgpu_command *command);

/* [worker] The data's time went back: all that was obeyed before shows from this timestamp on. */
void xbgpu_control_time_went_back(struct xbgpu_control *control, int64_t first_samples);

/* Writes what is to be kept.  The worker has ended, and nobody waits for an answer any more.  NULL is accepted. */
void xbgpu_control_destroy(struct xbgpu_control *control);

#endif
