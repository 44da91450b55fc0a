/* beam_voltages.h - copies received voltages in the device's format and with the device's shifts, for the audits of
 * beams.
 *
 * Threads:   the worker.   Blocking: never. */
#ifndef XBGPU_BEAM_BEAM_VOLTAGES_H
#define XBGPU_BEAM_BEAM_VOLTAGES_H

#include "xbgpu/config/layout.h"
#include "xbgpu/config/output_input.h"

/* Copies 'n' spectra of an antenna's channel to 'out' [spectrum][pol].  'first' is the first spectrum, counted from
 * batch 0 of the input.  The spectra are shifted by the inputs' delays.  Spectra of an absent antenna are zeros.
 * input->heaps must not be NULL. */
void xbgpu_beam_voltages_copy(const struct xbgpu_layout *layout, const struct xbgpu_output_input *input, size_t ant,
                              size_t chan, size_t first, size_t n, uint8_t *out);

#endif
