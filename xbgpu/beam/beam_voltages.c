/* beam_voltages.c - copies received voltages for the audits of beams. */
#include "xbgpu/beam/beam_voltages.h"

#include "common/base/units.h"

#include <string.h>

/* Copies polarisations [pol, end_pol), which have the same delay.  Each copy covers consecutive spectra of a single
 * heap. */
static void copy_pols(const struct xbgpu_layout *l, const struct xbgpu_output_input *input, size_t ant, size_t chan,
                      size_t first, size_t n, size_t pol, size_t end_pol, uint8_t *out)
{
    size_t bytes = voltage_bytes(l->format), spectrum_bytes = N_POLS * bytes;
    size_t delay = input->delays ? input->delays[ant * N_POLS + pol] : 0;
    size_t from = input->n_history * l->n_spectra + first - delay;

    for (size_t end = from + n, run; from < end; from += run, out += run * spectrum_bytes) {
        size_t spectrum = from % l->n_spectra;
        const uint8_t *in = input->heaps[from / l->n_spectra * l->n_ants + ant];
        run = l->n_spectra - spectrum < end - from ? l->n_spectra - spectrum : end - from;
        in += (chan * l->n_spectra + spectrum) * spectrum_bytes;
        if (end_pol - pol == N_POLS)
            memcpy(out, in, run * spectrum_bytes);
        else
            for (size_t i = 0; i < run; i++)
                memcpy(out + i * spectrum_bytes + pol * bytes, in + i * spectrum_bytes + pol * bytes, bytes);
    }
}

void xbgpu_beam_voltages_copy(const struct xbgpu_layout *layout, const struct xbgpu_output_input *input, size_t ant,
                              size_t chan, size_t first, size_t n, uint8_t *out)
{
    const struct xbgpu_layout *l = layout;
    const uint32_t *delays = input->delays ? input->delays + ant * N_POLS : NULL;
    size_t spectrum_bytes = N_POLS * voltage_bytes(l->format);

    for (size_t end = first + n, run; first < end; first += run, out += run * spectrum_bytes) {
        size_t batch = first / l->n_spectra, left = (batch + 1) * l->n_spectra - first;
        run = left < end - first ? left : end - first;
        if (!input->present[batch * l->n_ants + ant]) {
            memset(out, voltage_zero(l->format), run * spectrum_bytes);
        } else if (!delays || delays[0] == delays[1]) {
            copy_pols(l, input, ant, chan, first, run, 0, N_POLS, out);
        } else {
            for (size_t pol = 0; pol < N_POLS; pol++)
                copy_pols(l, input, ant, chan, first, run, pol, pol + 1, out);
        }
    }
}
