/* beam_audit.h - for each device input, the host computes some spectra of one beam and channel again, from voltages
 * in pinned memory.
 *
 * Beams are exact, so the plain C version of the kernel beamform gives bit-identical results.  For each device input
 * the audit draws a beam, a batch, a channel and at most BEAM_AUDIT_SPECTRA spectra.  When the beams are queued,
 * the audit copies the received voltages.  Before the heaps leave, the audit compares its own beam with the downloaded
 * beam in host memory.
 * Finds:     errors of voltages, sums or beams in upload, device memory, kernel and download, if they affect the drawn
 *            spectra.
 * Misses:    errors in the coefficients, because the audit uses the device's coefficients.
 * Threads:   the worker, except init and fini (main).   Blocking: never. */
#ifndef XBGPU_BEAM_BEAM_AUDIT_H
#define XBGPU_BEAM_BEAM_AUDIT_H

#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/audit/draw.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/config/output_input.h"

#define BEAM_AUDIT_SPECTRA 64

/* The audit of one output buffer. */
struct xbgpu_beam_audit {
    const struct xbgpu_layout *layout; /* [const] */
    const struct beam *beams;          /* [const] [n_beams] parameters of the beams, on the host */
    size_t n_beams;                    /* [const] */
    size_t chan_offset;                /* [const] index of the engine's first channel in the whole band */
    bool readable;                     /* [const] true if the host can read the received voltages */
    struct xbgpu_draw draw;
    bool drawn; /* true if the fields below are valid */
    size_t beam, batch, chan, first, n;
    uint8_t *voltages;     /* [ant][spectrum][pol] */
    int16_t *coefficients; /* pinned, downloaded: [ant][re, im] */
    int32_t *exponent;     /* pinned */
};

/* Initialises the audit.  Returns 0 or negative errno; the caller must call fini in either case.  The draw is
 * different for every process. */
int xbgpu_beam_audit_init(struct xbgpu_beam_audit *audit, const struct xbgpu_config *config,
                          const struct xbgpu_layout *layout, struct device *device, const struct beam *beams);
void xbgpu_beam_audit_fini(struct xbgpu_beam_audit *audit, struct device *device);

/* Draws a beam, a batch in [begin, end), a channel and spectra, and copies their voltages.  Draws nothing if the host
 * cannot read the received voltages. */
void xbgpu_beam_audit_draw(struct xbgpu_beam_audit *audit, const struct xbgpu_output_input *input, size_t begin,
                           size_t end);

/* Queues the download of the drawn coefficients, if the drawn batch is in [begin, end).  The device stream 'compute'
 * forms the beams of these batches, with 'coefficients' [chan][beam][ant][re, im] and 'exponents' [chan][beam]. */
void xbgpu_beam_audit_fetch(struct xbgpu_beam_audit *audit, struct device_stream *compute, size_t begin, size_t end,
                            const int16_t *coefficients, const int32_t *exponents);

/* Compares the drawn spectra with the downloaded heaps.  'heaps' is [batch][beam].  Each heap has 'pitch' bytes and
 * begins with [chan][spectrum][re, im].  Batch 0 has the number 'first_batch'.  'renormalise' is the array of factors
 * that the kernel beamform used; NULL means a factor of 1.  Returns whether the spectra and the heaps agree. */
bool xbgpu_beam_audit_agrees(const struct xbgpu_beam_audit *audit, const uint8_t *heaps, size_t pitch,
                             const float *renormalise, int64_t first_batch);

#endif
