/* beam_audit.h - a stretch of one beam's channel of each input, summed again by the host out of pinned memory.
 *
 * Beams are exact, so the plain C twin of beamform makes the same bits.  For each input a beam, a batch, a channel and at
 * most BEAM_AUDIT_SPECTRA spectra are drawn.  The voltages as received are copied when the beams are queued, and compared
 * when these are in host memory, before they leave.
 * Finds:     what changes voltages, sums or beams in upload, device memory, kernel and download, where the draw hits it.
 * Misses:    wrong coefficients: the device's are used.
 * Threads:   the worker, except init and fini (main).   Blocking: never. */
#ifndef XBGPU_BEAM_AUDIT_H
#define XBGPU_BEAM_AUDIT_H

#include "kernels/beamform/beam_coefficients.h"
#include "xbgpu/draw.h"
#include "xbgpu/layout.h"
#include "xbgpu/output.h"

#define BEAM_AUDIT_SPECTRA 64

/* One output buffer's. */
struct xbgpu_beam_audit {
    const struct xbgpu_layout *layout; /* [const] */
    const struct beam *beams;          /* [const] [n_beams] on the host */
    size_t n_beams;                    /* [const] */
    size_t chan_offset;                /* [const] of the engine in the band */
    bool readable;                     /* [const] by the host: what came */
    struct xbgpu_draw draw;
    bool drawn; /* the rest */
    size_t beam, batch, chan, first, n;
    uint8_t *voltages;     /* [ant][spectrum][pol] */
    int16_t *coefficients; /* pinned: [ant][re, im] */
    int32_t *exponent;     /* pinned */
};

/* Returns 0 or negative errno; fini follows in either case.  The draw is different for every process. */
int xbgpu_beam_audit_init(struct xbgpu_beam_audit *audit, const struct xbgpu_config *config,
                          const struct xbgpu_layout *layout, struct device *device, const struct beam *beams);
void xbgpu_beam_audit_fini(struct xbgpu_beam_audit *audit, struct device *device);

/* Draws from batches [begin, end), and copies voltages.  Nothing is drawn where the host cannot read what came. */
void xbgpu_beam_audit_draw(struct xbgpu_beam_audit *audit, const struct xbgpu_output_input *input, size_t begin,
                           size_t end);

/* Queues the download of the coefficients, [chan][beam][ant][re, im] and [chan][beam], with which 'compute' forms batches
 * [begin, end), if the drawn batch is one of these. */
void xbgpu_beam_audit_fetch(struct xbgpu_beam_audit *audit, struct device_stream *compute, size_t begin, size_t end,
                            const int16_t *coefficients, const int32_t *exponents);

/* Compares what was drawn with the downloaded heaps, [batch][beam] of 'pitch' bytes each that begin with
 * [chan][spectrum][re, im].  Batch 0 has the number 'first_batch'.  'renormalise' is beamform's; NULL: 1.  Returns whether
 * they agree. */
bool xbgpu_beam_audit_agrees(const struct xbgpu_beam_audit *audit, const uint8_t *heaps, size_t pitch,
                             const float *renormalise, int64_t first_batch);

#endif
