/* beam_voltages.h - voltages as received, as the device has them: for the audits of beams.
 *
 * Threads:   the worker.   Blocking: never. */
#ifndef XBGPU_BEAM_VOLTAGES_H
#define XBGPU_BEAM_VOLTAGES_H

#include "xbgpu/layout.h"
#include "xbgpu/output.h"

/* Copies 'n' spectra of a channel of an antenna from 'first' on, counted from batch 0 of the input: shifted by the inputs'
 * delays, zeros where the antenna is absent.  out [spectrum][pol].  The input has 'heaps'. */
void xbgpu_beam_voltages_copy(const struct xbgpu_layout *layout, const struct xbgpu_output_input *input, size_t ant,
                              size_t chan, size_t first, size_t n, uint8_t *out);

#endif
