/* beam_audit.c - computes beams on the host, for comparison with the device's beams. */
#include "xbgpu/beam/beam_audit.h"

#include "common/device/device.h"
#include "kernels/beamform/beamform.h"
#include "xbgpu/beam/beam_voltages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* spectra per step; divides spectra_per_heap, and is a multiple of the 4 spectra that share a dither draw */
#define STEP 8

int xbgpu_beam_audit_init(struct xbgpu_beam_audit *audit, const struct xbgpu_config *config,
                          const struct xbgpu_layout *layout, struct device *device, const struct beam *beams)
{
    *audit =
        (struct xbgpu_beam_audit){.layout = layout,
                                  .beams = beams,
                                  .n_beams = config->beams.n,
                                  .chan_offset = (size_t)config->recv.chan_offset,
                                  .readable = xbgpu_can_read(config),
                                  .n = layout->n_spectra < BEAM_AUDIT_SPECTRA ? layout->n_spectra : BEAM_AUDIT_SPECTRA};
    audit->voltages = malloc(layout->n_ants * audit->n * N_POLS * voltage_bytes(layout->format));
    audit->coefficients = device_alloc_pinned(device, layout->n_ants * 2 * sizeof(*audit->coefficients));
    audit->exponent = device_alloc_pinned(device, sizeof(*audit->exponent));
    if (!audit->voltages || !audit->coefficients || !audit->exponent)
        return -ENOMEM;
    return xbgpu_draw_init(&audit->draw);
}

void xbgpu_beam_audit_fini(struct xbgpu_beam_audit *audit, struct device *device)
{
    free(audit->voltages);
    device_free_pinned(device, audit->coefficients);
    device_free_pinned(device, audit->exponent);
}

void xbgpu_beam_audit_draw(struct xbgpu_beam_audit *audit, const struct xbgpu_output_input *input, size_t begin,
                           size_t end)
{
    struct xbgpu_beam_audit *a = audit;
    const struct xbgpu_layout *l = a->layout;
    size_t ant_bytes = a->n * N_POLS * voltage_bytes(l->format);
    uint32_t bits[4];

    a->drawn = a->readable && input->heaps;
    if (!a->drawn)
        return;
    xbgpu_draw_bits(&a->draw, 0, bits);
    a->draw.n++;
    a->beam = xbgpu_draw_below(bits[0], a->n_beams);
    a->chan = xbgpu_draw_below(bits[1], l->n_chan);
    a->batch = begin + xbgpu_draw_below(bits[2], end - begin);
    a->first = STEP * xbgpu_draw_below(bits[3], (l->n_spectra - a->n) / STEP + 1);
    for (size_t ant = 0; ant < l->n_ants; ant++)
        xbgpu_beam_voltages_copy(l, input, ant, a->chan, a->batch * l->n_spectra + a->first, a->n,
                                 a->voltages + ant * ant_bytes);
}

void xbgpu_beam_audit_fetch(struct xbgpu_beam_audit *audit, struct device_stream *compute, size_t begin, size_t end,
                            const int16_t *coefficients, const int32_t *exponents)
{
    const struct xbgpu_beam_audit *a = audit;
    const struct xbgpu_layout *l = a->layout;

    if (!a->drawn || a->batch < begin || a->batch >= end)
        return;
    size_t row = a->chan * a->n_beams + a->beam;
    device_copy(compute, a->coefficients, coefficients + row * l->n_ants * 2, l->n_ants * 2 * sizeof(*a->coefficients));
    device_copy(compute, a->exponent, exponents + row, sizeof(*a->exponent));
}

bool xbgpu_beam_audit_agrees(const struct xbgpu_beam_audit *audit, const uint8_t *heaps, size_t pitch,
                             const float *renormalise, int64_t first_batch)
{
    const struct xbgpu_beam_audit *a = audit;
    const struct xbgpu_layout *l = a->layout;
    int8_t out[BEAM_AUDIT_SPECTRA * 2];
    uint32_t n_saturated = 0;
    size_t heap = a->batch * a->n_beams + a->beam;
    const struct beamform_args args = {
        .voltages = a->voltages,
        .coefficients = a->coefficients,
        .exponents = a->exponent,
        .beams = &a->beams[a->beam],
        .renormalise = renormalise ? &renormalise[heap] : NULL,
        .out = out,
        .saturated = &n_saturated,
        .first_spectrum = (uint64_t)(first_batch + (int64_t)a->batch) * l->n_spectra + a->first,
        .format = l->format,
        .n_beams = 1,
        .n_ants = (uint32_t)l->n_ants,
        .n_chan = 1,
        .n_spectra = (uint32_t)a->n,
        .chan_offset = (uint32_t)(a->chan_offset + a->chan),
        .n_batches = 1,
    };

    beamform_kernel.cpu(&args, 1);
    return memcmp(out, heaps + heap * pitch + (a->chan * l->n_spectra + a->first) * 2, a->n * 2) == 0;
}
