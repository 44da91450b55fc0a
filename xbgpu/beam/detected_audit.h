/* detected_audit.h - the host computes some powers of one detected beam of a heap again, from voltages in pinned
 * memory.
 *
 * Powers are exact, so the plain C versions of beam_detect, beam_incoherent and beam_finish give bit-identical results.
 * Flow:      heap opens: draw chooses a beam, a window and a group of channels --> each launch of beam_detect or
 *            beam_incoherent: take copies voltages as received, and queues the download of coefficients or weights -->
 *            heap ends: fetch queues the download of the drawn beam's and group's powers, of all windows --> heap is in
 *            host memory: agrees
 * Compared:  the device's powers of the drawn window with the host's powers, for all products.  The heap is also
 *            compared with the output of beam_finish on the host, for all windows.
 * Finds:     errors of voltages, sums or powers in upload, device memory, kernels and download, if they affect the
 *            drawn powers.
 * Misses:    errors in coefficients and weights, because the audit uses the device's coefficients and weights.
 * Cost:      one heap is audited at a time.  The audit skips heaps so that it copies at most DETECTED_AUDIT_BYTES_PER_S
 *            bytes for each second of data.  A stream is not audited if its windows and groups need more than
 *            DETECTED_AUDIT_BYTES.  A window is not compared if more than DETECTED_AUDIT_PIECES launches contribute to
 *            it.
 * Threads:   the worker, except init and fini (main).   Blocking: never; nothing allocates after init. */
#ifndef XBGPU_BEAM_DETECTED_AUDIT_H
#define XBGPU_BEAM_DETECTED_AUDIT_H

#include "kernels/beamform/beam_incoherent.h"
#include "xbgpu/audit/draw.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/config/output_input.h"

#include <stdbool.h>

struct memory_use;

#define DETECTED_AUDIT_PIECES      32
#define DETECTED_AUDIT_BYTES       (4 << 20)
#define DETECTED_AUDIT_BYTES_PER_S (16 << 20)

/* A piece is the spectra that one launch adds to the window.  The number of these spectra is at most the number of
 * spectra in a device input. */
struct xbgpu_audit_piece {
    int64_t first;
    size_t n, n_padded; /* number of spectra, and this number rounded up to a multiple of 8, as the kernel requires */
    uint8_t *voltages;  /* [ant][chan][n_padded][pol] */
};

struct xbgpu_detected_audit {
    const struct xbgpu_layout *layout;          /* [const] */
    const struct xbgpu_config_detected *config; /* [const] */
    struct xbgpu_detected_sizes sizes;          /* [const] */
    size_t max_pieces;                          /* [const] 0: no audit */
    int64_t step_heaps;                         /* [const] number of heaps per draw */
    int64_t n_waited;                           /* number of heaps since the last draw */
    struct xbgpu_draw draw;
    const void *heap; /* heap from which the audit drew; NULL: none */
    size_t beam, window, group;
    int64_t first; /* number of the first spectrum of the window */
    size_t n_pieces, n_padded;
    struct xbgpu_audit_piece pieces[DETECTED_AUDIT_PIECES];
    uint8_t *voltages;
    int16_t *coefficients;                   /* coherent beams, pinned: [piece][chan][pol][ant][re, im] */
    int32_t *exponents;                      /* coherent beams, pinned: [piece][chan][pol] */
    struct beam_incoherent_weights *weights; /* incoherent beam, pinned: [piece][ant] */
    int64_t *powers;                         /* pinned: [window][product] */
    void *made;                              /* output of beam_finish on the host: [window][product] */
};

/* Initialises the audit.  Returns 0 or negative errno; the caller must call fini in either case.  fini also accepts a
 * zero-initialised audit. */
int xbgpu_detected_audit_init(struct xbgpu_detected_audit *audit, const struct xbgpu_config *config,
                              const struct xbgpu_layout *layout, size_t i, struct device *device);
void xbgpu_detected_audit_fini(struct xbgpu_detected_audit *audit, struct device *device);

/* Adds to 'memory' the memory that the audit of stream 'i' needs. */
void xbgpu_detected_audit_add_memory(const struct xbgpu_layout *layout, const struct xbgpu_config *config, bool on_gpu,
                                     size_t i, struct memory_use *memory);

/* Chooses random powers of the heap for the audit, or skips the heap.  Called when 'heap' with the index 'number' is
 * opened. */
void xbgpu_detected_audit_draw(struct xbgpu_detected_audit *audit, const void *heap, int64_t number);

/* Copies the voltages of the drawn powers, and queues the download of their coefficients.  Called when 'compute' adds
 * spectra [begin, end) of the device input to 'heap'.  Coefficients are [chan][beam][pol][ant][re, im], and exponents
 * are [chan][beam][pol].  Batch 0 of the device input begins with spectrum 'input_first'. */
void xbgpu_detected_audit_take(struct xbgpu_detected_audit *audit, const void *heap, struct device_stream *compute,
                               const struct xbgpu_output_input *input, int64_t input_first, int64_t begin, int64_t end,
                               const int16_t *coefficients, const int32_t *exponents);

/* Does the same as xbgpu_detected_audit_take() for the incoherent beam. */
void xbgpu_detected_audit_take_incoherent(struct xbgpu_detected_audit *audit, const void *heap,
                                          struct device_stream *compute, const struct xbgpu_output_input *input,
                                          int64_t input_first, int64_t begin, int64_t end,
                                          const struct beam_incoherent_weights *weights);

/* Queues the download of the powers that the audit has drawn from 'heap'.  Call when 'heap' has ended, and when
 * 'download' waits for 'powers'.  'powers' is on the device: [window][beam][cell].  The audit does not compare a window
 * without data. */
void xbgpu_detected_audit_fetch(struct xbgpu_detected_audit *audit, const void *heap, struct device_stream *download,
                                const int64_t *powers);

/* xbgpu_detected_audit_has() returns whether the audit has drawn powers from 'heap'.  If 'heap' has drawn powers, call
 * xbgpu_detected_audit_agrees() when 'payload' has its final content.  xbgpu_detected_audit_agrees() returns whether
 * host and device agree.  After the call, the audit may draw from another heap. */
bool xbgpu_detected_audit_has(const struct xbgpu_detected_audit *audit, const void *heap);
bool xbgpu_detected_audit_agrees(struct xbgpu_detected_audit *audit, const uint8_t *payload);

#endif
