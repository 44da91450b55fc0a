/* output.h - one correlation output in xbgpu's worker: its window, sums, audit and dumps.
 *
 * Flow:      xbgpu_output_correlate(device input, host chunks) --> launches of correlate and checksum;
 *            reduce to totals when the sums are full; at each window's end checksum_dump, reduce --> download
 *            worker, after the download: xbgpu_output_check --> xbgpu_send_push
 * Windows:   a window adds its batches in order, each batch once.  If the timestamps go back, the dump ends, even
 *            within the window.
 * Threads:   the worker only.   Blocking: never; if no dump buffer is free, xbgpu_output_correlate() returns false, and
 *            is called again. */
#ifndef XBGPU_OUTPUT_H
#define XBGPU_OUTPUT_H

#include "kernels/correlate/correlate_shape.h"
#include "xbgpu/audit/audit.h"
#include "xbgpu/audit/checksums.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/config/output_input.h"
#include "xbgpu/window.h"
#include "xbgpu/send.h"

#include <stdbool.h>

struct device_stream;

struct xbgpu_output {
    const struct xbgpu_layout *layout;
    struct device *device;
    struct device_stream *compute, *download;
    struct xbgpu_stream *stream;
    struct xbgpu_window window;
    struct xbgpu_audit audit;
    struct xbgpu_checksums checksums;
    struct correlate_kernels correlate;
    struct device_kernel *reduce;
    void *sums;                   /* device: [chan][baseline][product][re, im], as correlate.h says */
    void *totals;                 /* device: 64-bit sums in the same shape (reduce.h); NULL: 32-bit sums suffice */
    uint32_t n_held;              /* number of spectra in 'sums', or an upper bound if there is a gate */
    int64_t next_window;          /* 1 + number of the last ended window that had a heap */
    bool has_begun;               /* true after the first window with a heap has ended */
    int64_t end;                  /* 1 + number of the last correlated batch */
    size_t next;                  /* next batch of the current input to correlate */
    int gate;                     /* number of the gate; -1: all spectra are taken */
    size_t shift_set;             /* set of shifts with which the output correlates its input */
    struct device_kernel *select; /* NULL if the output has neither a gate nor its own shifts */
    void *selected; /* device, shared by all outputs: [n_selected_batches][ant][chan][n_selected_spectra][pol] */
    int64_t last_arrival_ns;
    uint8_t *audited; /* [2][spectrum][pol] voltages for the audit, if they differ from the received heaps */
};

/* Initialises an output.  'selected' is memory shared by all outputs that have a gate or their own shifts; NULL if
 * there are no such outputs.  'compute' is the device stream on which the kernels run. */
int xbgpu_output_init(struct xbgpu_output *correlation, const struct xbgpu_config *config,
                      const struct xbgpu_layout *layout, struct engine *engine, struct device_stream *compute,
                      void *selected, struct xbgpu_stream *stream);
void xbgpu_output_fini(struct xbgpu_output *correlation);

/* All outputs, and their shared memory. */
struct xbgpu_outputs {
    struct xbgpu_output *items; /* [n] */
    size_t n;
    void *selected; /* selected spectra, on the device; NULL if no output has a gate or its own shifts */
    struct device *device;
};

/* Initialises zeroed outputs.  Returns 0 or negative errno; the caller must call fini in either case. */
int xbgpu_outputs_init(struct xbgpu_outputs *outputs, const struct xbgpu_config *config,
                       const struct xbgpu_layout *layout, struct engine *engine, struct xbgpu_send *send);
void xbgpu_outputs_fini(struct xbgpu_outputs *outputs);

/* Begins an input to correlate. */
void xbgpu_output_begin(struct xbgpu_output *correlation, const struct xbgpu_output_input *input);

/* Correlates the batches of the input.  If no dump buffer is free and 'may_wait' is true, returns false.  If 'may_wait'
 * is false, drops and counts the dump. */
bool xbgpu_output_correlate(struct xbgpu_output *correlation, const struct xbgpu_output_input *input, bool may_wait);

/* Compares a downloaded dump with its checksums and with the audit's sums.  Returns whether all agree. */
bool xbgpu_output_check(struct xbgpu_dump *dump);

#endif
