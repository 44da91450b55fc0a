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
#include "xbgpu/audit.h"
#include "xbgpu/checksums.h"
#include "xbgpu/layout.h"
#include "xbgpu/window.h"
#include "xbgpu/send.h"

#include <stdbool.h>

struct device_stream;

/* The spectra that a gate takes from the present batches, as xbgpu_gate_list() (gate.h) writes them.  The lists are in
 * host memory and on the device. */
struct xbgpu_output_sums {
    size_t n_rows, row_pitch, ends_pitch;
    uint32_t *spectra, *ends;
    uint32_t *device_spectra, *device_ends;
};

/* The batches to correlate. */
struct xbgpu_output_input {
    int64_t first_batch;           /* batch 0's number: its timestamp / samples per batch */
    size_t begin;                  /* first batch to correlate: 0 or 1 */
    size_t n_batches;              /* index after the last batch to correlate; smaller than usual at the end of a
                                    * stream */
    const void *voltages;          /* device: [batch][ant][chan][spectrum][pol], shifted; 0 if absent.  With
                                    * device_delays: [n_history + batch][ant]..., not shifted */
    const uint8_t *present;        /* host: [batch][ant] 0 or 1 */
    const uint8_t *const *heaps;   /* host: [n_history + batch][ant] received heaps; NULL: absent, or in GPU memory */
    size_t n_history;              /* number of batches before batch 0 */
    const uint32_t *delays;        /* host: [ant][pol] delay of each input in spectra; 'heaps' are not delayed yet;
                                    * NULL: no delays */
    const uint32_t *device_delays; /* 'delays' on the device, if the output itself shifts 'voltages'; else NULL */
    const uint8_t *device_present; /* 'present' on the device, if the output has device_delays */
    const struct xbgpu_output_sums *gates; /* [n_gates] */
    int64_t last_arrival_ns;
    bool restarts; /* true if a stream begins with this input: earlier windows then do not count as absent */
};

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
