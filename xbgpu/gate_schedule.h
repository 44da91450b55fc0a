/* gate_schedule.h - the gates of a running xbgpu: each gate's past, present and future, and lists of the spectra that
 * gates take of device inputs.
 *
 * Flow:      xbgpu_gate_schedule_set() (a command) ... each input: xbgpu_gate_schedule_list() --> lists, host and device --> output.c
 * Changes:   a set of gates in order of time, from which every spectrum chooses by its timestamp: so time may jump
 *            ahead and back, and the same gates decide as before.  A new change takes the place of those that begin at
 *            its time or later, and of one that waits for its time.  The last GATING_MAX_CHANGES are kept.  The oldest
 *            of them decides for all earlier spectra, too.  Gates are exchanged, not copied, so that nothing is
 *            allocated here.  The caller that sets a gate gets another gate back, and frees it where it may free
 *            memory.
 * Threads:   the worker only, but for init and fini.   Blocking: never. */
#ifndef XBGPU_GATE_SCHEDULE_H
#define XBGPU_GATE_SCHEDULE_H

#include "xbgpu/output.h"
#include "xbgpu/gate.h"
#include "xbgpu/layout.h"

#define GATING_MAX_CHANGES 8

struct xbgpu_gate_schedule {
    const struct xbgpu_config *config; /* [const] */
    const struct xbgpu_layout *layout; /* [const] */
    struct device *device;             /* [const] */
    struct xbgpu_gate_schedule_entry {
        size_t n; /* changes in order of time; >= 1 */
        struct xbgpu_gate_change
            changes[GATING_MAX_CHANGES]; /* of those behind the n-th the gates are spare, or NULL */
    } * gates;                           /* [n_gates] */
};

/* Gates as configured.  Returns 0 or -ENOMEM. */
int xbgpu_gate_schedule_init(struct xbgpu_gate_schedule *gating, const struct xbgpu_config *config,
                             const struct xbgpu_layout *layout, struct device *device);
void xbgpu_gate_schedule_fini(struct xbgpu_gate_schedule *gating);

/* Room for what all gates take of one input: [n_gates].  Returns 0 or -ENOMEM; free accepts NULL. */
int xbgpu_gate_schedule_create_lists(const struct xbgpu_gate_schedule *gating, struct xbgpu_output_sums **lists);
void xbgpu_gate_schedule_free_lists(const struct xbgpu_gate_schedule *gating, struct xbgpu_output_sums *lists);

/* Gate 'g' is to be '*gate' from this timestamp on; a change that begins later than 'next_samples', the end of what has
 * been listed, waits.  '*gate' becomes one that is not needed any more, or NULL. */
void xbgpu_gate_schedule_set(struct xbgpu_gate_schedule *gating, size_t g, struct xbgpu_gate **gate,
                             int64_t from_samples, int64_t next_samples);

/* Decides what each gate takes of 'n_batches' batches, the first of which has this timestamp, and queues the upload of
 * that. */
void xbgpu_gate_schedule_list(struct xbgpu_gate_schedule *gating, int64_t timestamp_samples, size_t n_batches,
                              struct device_stream *upload, struct xbgpu_output_sums *lists);

#endif
