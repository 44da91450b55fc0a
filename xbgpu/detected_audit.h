/* detected_audit.h - one power of detected beams of a heap, made again by the host out of pinned memory.
 *
 * Powers are exact, so the plain C twins of beam_detect, beam_incoherent and beam_finish make the same bits.
 * Flow:      heap opens: draw a beam, a window and a group of channels --> with each launch of beam_detect or
 *            beam_incoherent: take copies voltages as received, and queues the download of coefficients or weights -->
 *            heap ends: fetch queues the download of the drawn beam's and group's powers, of all windows --> heap is in
 *            host memory: agrees
 * Compared:  the powers of the window with the host's, all products; and what beam_finish made of the powers of all
 *            windows with the heap.
 * Finds:     what changes voltages, sums or powers in upload, device memory, kernels and download, where the draw hits it.
 * Misses:    wrong coefficients and weights: the device's are used.
 * Cost:      a heap at a time; one in so many that the audit moves at most DETECTED_AUDIT_BYTES_PER_S of data time.  A
 *            stream whose windows and groups take more than DETECTED_AUDIT_BYTES has none.  A window is left out that
 *            more than DETECTED_AUDIT_PIECES launches make.
 * Threads:   the worker, except init and fini (main).   Blocking: never; nothing allocates after init. */
#ifndef XBGPU_DETECTED_AUDIT_H
#define XBGPU_DETECTED_AUDIT_H

#include "kernels/beamform/beam_incoherent.h"
#include "xbgpu/draw.h"
#include "xbgpu/layout.h"
#include "xbgpu/output.h"

#include <stdbool.h>

#define DETECTED_AUDIT_PIECES      32
#define DETECTED_AUDIT_BYTES       (4 << 20)
#define DETECTED_AUDIT_BYTES_PER_S (16 << 20)

/* Spectra of the window that one launch makes, at most as many as an input has. */
struct xbgpu_audit_piece {
    int64_t first;
    size_t n, n_padded; /* the kernel takes a multiple of 8 */
    uint8_t *voltages;  /* [ant][chan][n_padded][pol] */
};

struct xbgpu_detected_audit {
    const struct xbgpu_layout *layout;          /* [const] */
    const struct xbgpu_config_detected *config; /* [const] */
    struct xbgpu_detected_sizes sizes;          /* [const] */
    size_t max_pieces;                          /* [const] 0: there is no audit */
    int64_t step_heaps;                         /* [const] of which one is drawn */
    int64_t n_waited;                           /* heaps since the last draw */
    struct xbgpu_draw draw;
    const void *heap; /* that was drawn; NULL: none */
    size_t beam, window, group;
    int64_t first; /* spectrum of the window */
    size_t n_pieces, n_padded;
    struct xbgpu_audit_piece pieces[DETECTED_AUDIT_PIECES];
    uint8_t *voltages;
    int16_t *coefficients;                   /* of coherent beams.  Pinned: [piece][chan][pol][ant][re, im] */
    int32_t *exponents;                      /* of coherent beams.  Pinned: [piece][chan][pol] */
    struct beam_incoherent_weights *weights; /* of the incoherent beam.  Pinned: [piece][ant] */
    int64_t *powers;                         /* pinned: [window][product] */
    void *made;                              /* [window][product], as they are sent */
};

/* Returns 0 or negative errno; fini follows in either case, and accepts zeros. */
int xbgpu_detected_audit_init(struct xbgpu_detected_audit *audit, const struct xbgpu_config *config,
                              const struct xbgpu_layout *layout, size_t i, struct device *device);
void xbgpu_detected_audit_fini(struct xbgpu_detected_audit *audit, struct device *device);

/* Adds what the audit of stream 'i' takes. */
void xbgpu_detected_audit_add_memory(struct xbgpu_layout *layout, const struct xbgpu_config *config, bool on_gpu,
                                     size_t i);

/* 'heap', with number 'number', opens. */
void xbgpu_detected_audit_draw(struct xbgpu_detected_audit *audit, const void *heap, int64_t number);

/* 'compute' adds spectra [begin, end) of the input to 'heap', with coefficients [chan][beam][pol][ant][re, im] and
 * exponents [chan][beam][pol].  Batch 0 of the input begins with spectrum 'input_first'. */
void xbgpu_detected_audit_take(struct xbgpu_detected_audit *audit, const void *heap, struct device_stream *compute,
                               const struct xbgpu_output_input *input, int64_t input_first, int64_t begin, int64_t end,
                               const int16_t *coefficients, const int32_t *exponents);

/* As xbgpu_detected_audit_take(), of the incoherent beam. */
void xbgpu_detected_audit_take_incoherent(struct xbgpu_detected_audit *audit, const void *heap,
                                          struct device_stream *compute, const struct xbgpu_output_input *input,
                                          int64_t input_first, int64_t begin, int64_t end,
                                          const struct beam_incoherent_weights *weights);

/* 'heap' has ended with these powers, for which 'download' waits: [window][beam][cell] on the device.  A window of which
 * nothing came is left out. */
void xbgpu_detected_audit_fetch(struct xbgpu_detected_audit *audit, const void *heap, struct device_stream *download,
                                const int64_t *powers);

/* Whether something of 'heap' was drawn.  Then agrees() follows, once 'payload' is as it is sent; it returns whether host
 * and device agree, and the next heap that opens may be drawn. */
bool xbgpu_detected_audit_has(const struct xbgpu_detected_audit *audit, const void *heap);
bool xbgpu_detected_audit_agrees(struct xbgpu_detected_audit *audit, const uint8_t *payload);

#endif
