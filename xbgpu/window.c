/* window.c - counts the heaps present in an accumulation.  Flags and weights follow from these counts. */
#include "xbgpu/window.h"

#include "common/base/units.h"
#include "kernels/correlate/correlate.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int xbgpu_window_init(struct xbgpu_window *window, int64_t n_length, size_t n_ants, size_t n_rows, bool count_baselines)
{
    size_t n_baselines = count_baselines ? correlate_n_baselines(n_ants) : 0;

    *window = (struct xbgpu_window){
        .n_length = n_length, .n_ants = n_ants, .n_rows = n_rows, .count_baselines = count_baselines};
    window->n_taken = calloc(n_rows + 1, sizeof(*window->n_taken));
    window->n_full_taken = calloc(n_rows + 1, sizeof(*window->n_full_taken));
    window->n_extra_taken = calloc(n_rows * n_baselines + 1, sizeof(*window->n_extra_taken));
    window->n_ant_batches = calloc(n_ants, sizeof(*window->n_ant_batches));
    window->n_extra = calloc(correlate_n_baselines(n_ants), sizeof(*window->n_extra));
    if (!window->n_ant_batches || !window->n_extra || !window->n_taken || !window->n_full_taken ||
        !window->n_extra_taken) {
        xbgpu_window_fini(window);
        return -ENOMEM;
    }
    return 0;
}

void xbgpu_window_fini(struct xbgpu_window *window)
{
    free(window->n_ant_batches);
    free(window->n_extra);
    free(window->n_taken);
    free(window->n_full_taken);
    free(window->n_extra_taken);
    window->n_taken = window->n_full_taken = window->n_extra_taken = NULL;
    window->n_ant_batches = NULL;
    window->n_extra = NULL;
}

void xbgpu_window_open(struct xbgpu_window *window, int64_t batch)
{
    window->open = true;
    window->index = floor_div(batch, window->n_length);
    window->n_heaps = 0;
    window->n_full = 0;
    memset(window->n_ant_batches, 0, window->n_ants * sizeof(*window->n_ant_batches));
    memset(window->n_taken, 0, window->n_rows * sizeof(*window->n_taken));
    memset(window->n_full_taken, 0, window->n_rows * sizeof(*window->n_full_taken));
    if (window->count_baselines) {
        size_t n_baselines = correlate_n_baselines(window->n_ants);
        memset(window->n_extra, 0, n_baselines * sizeof(*window->n_extra));
        memset(window->n_extra_taken, 0, window->n_rows * n_baselines * sizeof(*window->n_extra_taken));
    }
}

/* Adds 'n' to the counts of all baselines whose two antennas are present. */
static void add_baselines(const struct xbgpu_window *window, const uint8_t *present, uint32_t n, uint32_t *counts)
{
    for (size_t a2 = 0; a2 < window->n_ants; a2++)
        for (size_t a1 = 0; present[a2] && a1 <= a2; a1++)
            counts[correlate_baseline(a1, a2)] += present[a1] * n;
}

void xbgpu_window_add(struct xbgpu_window *window, const uint8_t *present)
{
    size_t n_present = 0;

    assert(window->open);
    for (size_t a = 0; a < window->n_ants; a++) {
        n_present += present[a];
        window->n_ant_batches[a] += present[a];
    }
    window->n_heaps += n_present;
    if (n_present == window->n_ants)
        window->n_full++;
    else if (window->count_baselines && n_present > 0)
        add_baselines(window, present, 1, window->n_extra);
}

bool xbgpu_window_is_partial(const struct xbgpu_window *window)
{
    for (size_t a = 0; a < window->n_ants; a++)
        if (window->n_ant_batches[a] != 0 && window->n_ant_batches[a] != window->n_length)
            return true;
    return false;
}

void xbgpu_window_add_taken(struct xbgpu_window *window, const uint8_t *present, size_t row, uint32_t n_taken)
{
    assert(window->open && row < window->n_rows);
    if (!memchr(present, 1, window->n_ants))
        return;
    window->n_taken[row] += n_taken;
    if (!memchr(present, 0, window->n_ants))
        window->n_full_taken[row] += n_taken;
    else if (window->count_baselines && n_taken > 0)
        add_baselines(window, present, n_taken, window->n_extra_taken + row * correlate_n_baselines(window->n_ants));
}

size_t xbgpu_window_weights(const struct xbgpu_window *window, uint32_t n_spectra, uint32_t *weights)
{
    size_t n_weighted = 0;

    for (size_t a2 = 0; a2 < window->n_ants; a2++)
        for (size_t a1 = 0; a1 <= a2; a1++) {
            size_t b = correlate_baseline(a1, a2);
            int64_t n;
            if (window->count_baselines)
                n = window->n_full + window->n_extra[b];
            else
                n = window->n_ant_batches[a1] == window->n_length && window->n_ant_batches[a2] == window->n_length
                        ? window->n_length
                        : 0;
            weights[b] = (uint32_t)n * n_spectra;
            n_weighted += n > 0;
        }
    return n_weighted;
}

void xbgpu_window_gate_weights(const struct xbgpu_window *window, uint32_t *weights)
{
    size_t n_baselines = correlate_n_baselines(window->n_ants);

    for (size_t row = 0; row < window->n_rows; row++)
        for (size_t b = 0; b < n_baselines; b++)
            weights[row * n_baselines + b] = window->n_full_taken[row] + window->n_extra_taken[row * n_baselines + b];
}
