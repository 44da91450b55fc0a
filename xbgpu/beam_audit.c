/* beam_audit.c - the host's own beams, on the side of the device's. */
#include "xbgpu/beam_audit.h"

#include "common/device/device.h"
#include "kernels/beamform/beamform.h"
#include "kernels/util/philox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define STEP 8 /* spectra: those of a heap are a multiple, and the dither comes for four of them */

int xbgpu_beam_audit_init(struct xbgpu_beam_audit *audit, const struct xbgpu_config *config,
                          const struct xbgpu_layout *layout, struct device *device, const struct beam *beams)
{
    *audit =
        (struct xbgpu_beam_audit){.layout = layout,
                                  .beams = beams,
                                  .n_beams = config->beams.n,
                                  .chan_offset = (size_t)config->recv.chan_offset,
                                  .readable = !config->recv.base.direct && !config->recv.base.gpudirect,
                                  .n = layout->n_spectra < BEAM_AUDIT_SPECTRA ? layout->n_spectra : BEAM_AUDIT_SPECTRA};
    audit->voltages = malloc(layout->n_ants * audit->n * N_POLS * voltage_bytes(layout->format));
    audit->coefficients = device_alloc_pinned(device, layout->n_ants * 2 * sizeof(*audit->coefficients));
    audit->exponent = device_alloc_pinned(device, sizeof(*audit->exponent));
    if (!audit->voltages || !audit->coefficients || !audit->exponent)
        return -ENOMEM;
    return getrandom(&audit->seed, sizeof(audit->seed), 0) == sizeof(audit->seed) ? 0 : -EIO;
}

void xbgpu_beam_audit_fini(struct xbgpu_beam_audit *audit, struct device *device)
{
    free(audit->voltages);
    device_free_pinned(device, audit->coefficients);
    device_free_pinned(device, audit->exponent);
}

/* A draw out of [0, n): 32 random bits scaled, even to within n / 2^32. */
static size_t scale(uint32_t bits, size_t n)
{
    return (size_t)(((uint64_t)bits * n) >> 32);
}

/* Copies one polarisation of an antenna as the device has it: shifted by 'delay' spectra. */
static void copy_pol(struct xbgpu_beam_audit *a, const struct xbgpu_output_input *input, size_t ant, size_t pol)
{
    const struct xbgpu_layout *l = a->layout;
    size_t bytes = voltage_bytes(l->format), delay = input->delays ? input->delays[ant * N_POLS + pol] : 0;
    size_t from = (input->n_history + a->batch) * l->n_spectra + a->first - delay;
    uint8_t *out = a->voltages + (ant * a->n * N_POLS + pol) * bytes;

    for (size_t i = 0; i < a->n; i++, from++, out += N_POLS * bytes) {
        const uint8_t *heap = input->heaps[from / l->n_spectra * l->n_ants + ant];
        memcpy(out, heap + ((a->chan * l->n_spectra + from % l->n_spectra) * N_POLS + pol) * bytes, bytes);
    }
}

void xbgpu_beam_audit_draw(struct xbgpu_beam_audit *audit, const struct xbgpu_output_input *input, size_t begin,
                           size_t end)
{
    struct xbgpu_beam_audit *a = audit;
    const struct xbgpu_layout *l = a->layout;
    const uint32_t key[2] = {(uint32_t)a->seed, (uint32_t)(a->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)a->n_drawn, (uint32_t)(a->n_drawn >> 32), 0, 0};
    size_t ant_bytes = a->n * N_POLS * voltage_bytes(l->format);
    uint32_t bits[4];

    a->drawn = a->readable && input->heaps;
    if (!a->drawn)
        return;
    philox4x32(counter, key, bits);
    a->n_drawn++;
    a->beam = scale(bits[0], a->n_beams);
    a->chan = scale(bits[1], l->n_chan);
    a->batch = begin + scale(bits[2], end - begin);
    a->first = STEP * scale(bits[3], (l->n_spectra - a->n) / STEP + 1);
    for (size_t ant = 0; ant < l->n_ants; ant++)
        if (!input->present[a->batch * l->n_ants + ant])
            memset(a->voltages + ant * ant_bytes, voltage_zero(l->format), ant_bytes);
        else
            for (size_t pol = 0; pol < N_POLS; pol++)
                copy_pol(a, input, ant, pol);
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
