/* output_input.h - the batches that the outputs correlate, and from which the beams are made.
 *
 * Ownership: input.c.   Threads: the worker. */
#ifndef XBGPU_CONFIG_OUTPUT_INPUT_H
#define XBGPU_CONFIG_OUTPUT_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
