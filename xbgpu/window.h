/* window.h - the accumulation window of one output: its batches, the antennas that were present, and the weights of its
 * baselines.
 *
 * Windows lie on a 64-bit grid: window w is batches [w * length, (w + 1) * length), a batch's number being its
 * timestamp divided by the samples of a batch.  A window was observed if any heap of it arrived.
 * Threads: the worker only.   Pure but for its own state. */
#ifndef XBGPU_WINDOW_H
#define XBGPU_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xbgpu_window {
    int64_t n_length;     /* [const] batches of a window */
    size_t n_ants;        /* [const] */
    bool count_baselines; /* [const] weights by baseline, not all or nothing */
    bool open;
    int64_t index;          /* of the open window */
    uint64_t n_heaps;       /* that arrived in it */
    int64_t n_full;         /* batches in which every antenna was there */
    int64_t *n_ant_batches; /* [n_ants] batches in which the antenna was there */
    uint32_t *n_extra;      /* [n_baselines] batches, not full ones, in which both antennas were there */
    /* Spectra that a gate took, where there is one; none of this says anything of flags. */
    size_t n_rows;           /* [const] 0: no gate; 1, or the number of channels, which then differ */
    uint32_t *n_taken;       /* [n_rows] in batches in which any antenna was there */
    uint32_t *n_full_taken;  /* [n_rows] in full ones */
    uint32_t *n_extra_taken; /* [n_rows][n_baselines] in others in which both antennas were there */
};

/* Returns 0 or -ENOMEM. */
int xbgpu_window_init(struct xbgpu_window *window, int64_t n_length, size_t n_ants, size_t n_rows,
                      bool count_baselines);
void xbgpu_window_fini(struct xbgpu_window *window);

/* First batch of the open window, and the one after its last. */
static inline int64_t xbgpu_window_first(const struct xbgpu_window *window)
{
    return window->index * window->n_length;
}
static inline int64_t xbgpu_window_end(const struct xbgpu_window *window)
{
    return xbgpu_window_first(window) + window->n_length;
}

/* Opens the window that 'batch' belongs to. */
void xbgpu_window_open(struct xbgpu_window *window, int64_t batch);

/* A batch of the open window: present[ant] is 0 or 1. */
void xbgpu_window_add(struct xbgpu_window *window, const uint8_t *present);

/* The same batch: so many spectra of it did the gate take of the channels of 'row'. */
void xbgpu_window_add_taken(struct xbgpu_window *window, const uint8_t *present, size_t row, uint32_t n_taken);

/* Writes what each baseline weighs, in spectra, 'n_spectra' to a batch.  Where baselines are not counted one by one, a
 * baseline has either all spectra of the window or none.  Returns the number of baselines with a weight. */
size_t xbgpu_window_weights(const struct xbgpu_window *window, uint32_t n_spectra, uint32_t *weights);

/* Writes for each row how many spectra the gate took that went into each baseline: weights[row][baseline].  Where
 * baselines are counted. */
void xbgpu_window_gate_weights(const struct xbgpu_window *window, uint32_t *weights);

#endif
