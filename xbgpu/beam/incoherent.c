/* incoherent.c - converts commands for incoherent beams to the weights of the kernel beam_incoherent. */
#include "xbgpu/beam/incoherent.h"

#include "common/base/memory.h"
#include "common/base/units.h"
#include "common/device/device.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_ONE 0x1p16 /* integer that the device uses for an amplitude of 1 */

/* The power of an antenna is summed over its two inputs, in squared voltage steps.  This power is at most 2 * 2^15.
 * The sum of all powers of a window must be at most 2^61. */
double xbgpu_incoherent_max(const struct xbgpu_config *config, const struct xbgpu_config_detected *stream)
{
    double n = (double)config->recv.n_ants * (double)stream->window_spectra * (double)stream->group_channels;

    return fmin((double)INT32_MAX, 0x1p61 / 0x1p16 / n) / WEIGHT_ONE;
}

static int32_t weight_of(double amplitude)
{
    return (int32_t)rint(amplitude * WEIGHT_ONE);
}

void xbgpu_incoherent_set(struct xbgpu_incoherent *incoherent, const struct beam_steering *values)
{
    for (size_t ant = 0; ant < incoherent->n_ants; ant++) {
        double x = fmax(0, fmin(incoherent->max, (double)values[ant].amplitude));
        double y = fmax(0, fmin(incoherent->max, (double)values[incoherent->n_ants + ant].amplitude));
        incoherent->wanted[ant] =
            (struct beam_incoherent_weights){.x = weight_of(x), .y = weight_of(y), .xy = weight_of(sqrt(x * y))};
    }
    incoherent->is_changed = true;
}

void xbgpu_incoherent_begin(struct xbgpu_incoherent *incoherent)
{
    incoherent->turn = (incoherent->turn + 1) % LANE_N_INPUTS;
    if (!incoherent->is_changed && !incoherent->is_due)
        return;
    memcpy(incoherent->staging[incoherent->turn], incoherent->wanted, incoherent->n_ants * sizeof(*incoherent->wanted));
    incoherent->is_changed = false;
    incoherent->is_due = true;
}

void xbgpu_incoherent_upload(struct xbgpu_incoherent *incoherent, struct device_stream *compute)
{
    if (incoherent->is_due)
        device_copy(compute, incoherent->weights, incoherent->staging[incoherent->turn],
                    incoherent->n_ants * sizeof(*incoherent->weights));
    incoherent->is_due = false;
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

void xbgpu_incoherent_add_memory(const struct xbgpu_layout *layout, bool on_gpu, struct memory_use *memory)
{
    size_t bytes = layout->n_ants * sizeof(struct beam_incoherent_weights);

    bytes_add(&memory->host_bytes, LANE_N_INPUTS, device_pinned_bytes(bytes, on_gpu));
    bytes_add(&memory->host_bytes, 1, bytes);
    bytes_add(&memory->device_bytes, 1, bytes);
}

int xbgpu_incoherent_init(struct xbgpu_incoherent *incoherent, const struct xbgpu_config *config,
                          const struct xbgpu_config_detected *stream, struct device *device)
{
    size_t n_ants = (size_t)config->recv.n_ants, bytes = n_ants * sizeof(*incoherent->weights);

    *incoherent = (struct xbgpu_incoherent){
        .device = device,
        .n_ants = n_ants,
        .max = xbgpu_incoherent_max(config, stream),
        .wanted = calloc(n_ants, sizeof(*incoherent->wanted)),
        .weights = device_alloc(device, bytes),
        .is_changed = true,
    };
    if (!incoherent->wanted || !incoherent->weights)
        return -ENOMEM;
    for (size_t i = 0; i < LANE_N_INPUTS; i++) {
        incoherent->staging[i] = device_alloc_pinned(device, bytes);
        if (!incoherent->staging[i])
            return -ENOMEM;
    }
    for (size_t ant = 0; ant < n_ants; ant++)
        incoherent->wanted[ant] = (struct beam_incoherent_weights){
            .x = (int32_t)WEIGHT_ONE, .y = (int32_t)WEIGHT_ONE, .xy = (int32_t)WEIGHT_ONE};
    return 0;
}

void xbgpu_incoherent_fini(struct xbgpu_incoherent *incoherent)
{
    if (!incoherent->device)
        return;
    for (size_t i = 0; i < LANE_N_INPUTS; i++)
        device_free_pinned(incoherent->device, incoherent->staging[i]);
    device_free(incoherent->device, incoherent->weights);
    free(incoherent->wanted);
}
