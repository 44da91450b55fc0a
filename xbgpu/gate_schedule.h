/* gate_schedule.h - the gates of a running xbgpu: each gate's past, present and future, and lists of the spectra that
 * gates take from device inputs.
 *
 * Flow:      xbgpu_gate_schedule_set() (a command) ... each input: xbgpu_gate_schedule_list() --> lists, host and
 *            device --> output.c
 * Changes:   the schedule has several versions (changes) of each gate, in order of time.  A spectrum's timestamp
 *            determines which version decides.  So the decision about a spectrum stays the same if the timestamps
 *            jump ahead or back.  A new change replaces all changes that begin at the same time or later, and all
 *            changes that are still pending.  The last GATING_MAX_CHANGES changes are kept.  The oldest change also
 *            decides for all earlier spectra.  Setting a gate swaps pointers, so that nothing is allocated or freed
 *            here.  The caller receives a gate that is no longer needed, and frees it on a thread that may free
 *            memory.
 * Threads:   the worker only, except init and fini.   Blocking: never. */
#ifndef XBGPU_GATE_SCHEDULE_H
#define XBGPU_GATE_SCHEDULE_H

#include "xbgpu/config/output_input.h"
#include "xbgpu/config/gate.h"
#include "xbgpu/config/layout.h"

#define GATING_MAX_CHANGES 8

struct xbgpu_gate_schedule {
    const struct xbgpu_config *config; /* [const] */
    const struct xbgpu_layout *layout; /* [const] */
    struct device *device;             /* [const] */
    struct xbgpu_gate_schedule_entry {
        /* number of changes, at least 1; the changes are in order of time */
        size_t n;
        struct xbgpu_gate_change changes[GATING_MAX_CHANGES]; /* entries n and above are spare gates or NULL */
    } * gates;                                                /* [n_gates] */
};

/* Initialises the gates as configured.  Returns 0 or -ENOMEM. */
int xbgpu_gate_schedule_init(struct xbgpu_gate_schedule *gating, const struct xbgpu_config *config,
                             const struct xbgpu_layout *layout, struct device *device);
void xbgpu_gate_schedule_fini(struct xbgpu_gate_schedule *gating);

/* Allocates the lists of all gates, [n_gates], for one input.  Returns 0 or -ENOMEM.  The free function accepts
 * NULL. */
int xbgpu_gate_schedule_create_lists(const struct xbgpu_gate_schedule *gating, struct xbgpu_output_sums **lists);
void xbgpu_gate_schedule_free_lists(const struct xbgpu_gate_schedule *gating, struct xbgpu_output_sums *lists);

/* Replaces gate 'g' by '*gate'.  The new gate takes effect at 'from_samples'.  'next_samples' is the end of the data
 * that have been listed.  If a change begins later, the change is pending.  On return, '*gate' is a gate that the
 * schedule no longer needs, or NULL. */
void xbgpu_gate_schedule_set(struct xbgpu_gate_schedule *gating, size_t g, struct xbgpu_gate **gate,
                             int64_t from_samples, int64_t next_samples);

/* Lists the spectra that each gate takes from 'n_batches' batches, and queues the upload of the lists.  The first batch
 * begins at 'timestamp_samples'. */
void xbgpu_gate_schedule_list(struct xbgpu_gate_schedule *gating, int64_t timestamp_samples, size_t n_batches,
                              struct device_stream *upload, struct xbgpu_output_sums *lists);

#endif
