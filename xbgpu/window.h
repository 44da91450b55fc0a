/* window.h - the accumulation window of one output: its batches, the antennas present, and the weights of its
 * baselines.
 *
 * Windows lie on a 64-bit grid: window w has the batches [w * length, (w + 1) * length).  A batch's number is the
 * batch's timestamp divided by the number of samples per batch.  A window was observed if at least one of its heaps
 * arrived.
 * Threads:   the worker only.   The functions change only the window. */
#ifndef XBGPU_WINDOW_H
#define XBGPU_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xbgpu_window {
    int64_t n_length;     /* [const] number of batches in a window */
    size_t n_ants;        /* [const] */
    bool count_baselines; /* [const] false: each weight is either 0 or the number of all spectra of a window */
    bool open;
    int64_t index;          /* index of the open window */
    uint64_t n_heaps;       /* number of heaps of the window that arrived */
    int64_t n_full;         /* number of batches in which every antenna was present */
    int64_t *n_ant_batches; /* [n_ants] number of batches in which the antenna was present */
    uint32_t *n_extra;      /* [n_baselines] number of batches in which both antennas of the baseline, but not all
                             * antennas, were present */
    /* Spectra that a gate took.  These counts do not affect flags. */
    size_t n_rows;           /* [const] 0: no gate; 1: same spectra in all channels; else number of channels */
    uint32_t *n_taken;       /* [n_rows] number of taken spectra in batches with at least one antenna present */
    uint32_t *n_full_taken;  /* [n_rows] number of taken spectra in batches with all antennas present */
    uint32_t *n_extra_taken; /* [n_rows][n_baselines] spectra that the gate took in the batches that 'n_extra' counts */
};

/* Initialises the window.  Returns 0 or -ENOMEM. */
int xbgpu_window_init(struct xbgpu_window *window, int64_t n_length, size_t n_ants, size_t n_rows,
                      bool count_baselines);
void xbgpu_window_fini(struct xbgpu_window *window);

/* Return the first batch of the open window, and the batch after the window's last batch. */
static inline int64_t xbgpu_window_first(const struct xbgpu_window *window)
{
    return window->index * window->n_length;
}
static inline int64_t xbgpu_window_end(const struct xbgpu_window *window)
{
    return xbgpu_window_first(window) + window->n_length;
}

/* Opens the window to which 'batch' belongs. */
void xbgpu_window_open(struct xbgpu_window *window, int64_t batch);

/* Adds a batch to the open window: present[ant] is 0 or 1. */
void xbgpu_window_add(struct xbgpu_window *window, const uint8_t *present);

/* Returns true if an antenna was present in some, but not in all, batches of the open window. */
bool xbgpu_window_is_partial(const struct xbgpu_window *window);

/* Adds the number of spectra that the gate took from the channels of 'row' in one batch.  xbgpu_window_add() adds the
 * batch itself, with the same 'present'. */
void xbgpu_window_add_taken(struct xbgpu_window *window, const uint8_t *present, size_t row, uint32_t n_taken);

/* Writes the weight of each baseline, as a number of spectra.  A batch has 'n_spectra' spectra.  If 'count_baselines'
 * is false, the weight is either the number of all spectra of the window, or 0.  Returns the number of baselines whose
 * weight is not 0. */
size_t xbgpu_window_weights(const struct xbgpu_window *window, uint32_t n_spectra, uint32_t *weights);

/* Writes weights[row][baseline]: the number of spectra of each row that the gate took and that were added to the
 * baseline.  'count_baselines' must be true. */
void xbgpu_window_gate_weights(const struct xbgpu_window *window, uint32_t *weights);

#endif
