/* audit.c - computes sums of products on the host, for comparison with the device's sums. */
#include "xbgpu/audit/audit.h"

#include "kernels/correlate/correlate.h"
#include "kernels/util/half.h"
#include "kernels/correlate/reduce.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int xbgpu_audit_init(struct xbgpu_audit *audit, size_t n_samples, enum voltage_format format, size_t n_ants,
                     size_t n_chan, size_t n_spectra)
{
    *audit = (struct xbgpu_audit){
        .format = format, .n_ants = n_ants, .n_chan = n_chan, .n_spectra = n_spectra, .n_samples = n_samples};
    audit->samples = calloc(n_samples ? n_samples : 1, sizeof(*audit->samples));
    if (!audit->samples)
        return -ENOMEM;
    return xbgpu_draw_init(&audit->draw);
}

void xbgpu_audit_fini(struct xbgpu_audit *audit)
{
    free(audit->samples);
    audit->samples = NULL;
}

void xbgpu_audit_draw(struct xbgpu_audit *audit)
{
    for (size_t i = 0; i < audit->n_samples; i++) {
        struct xbgpu_audit_sample *s = &audit->samples[i];
        uint32_t bits[4];

        xbgpu_draw_bits(&audit->draw, (uint32_t)i, bits);
        size_t baseline = xbgpu_draw_below(bits[0], correlate_n_baselines(audit->n_ants));
        for (s->ant2 = 0; correlate_baseline(0, s->ant2 + 1) <= baseline; s->ant2++)
            continue;
        s->ant1 = baseline - correlate_baseline(0, s->ant2);
        s->chan = xbgpu_draw_below(bits[1], audit->n_chan);
        memset(&s->sums, 0, sizeof(s->sums));
        memset(s->magnitudes, 0, sizeof(s->magnitudes));
    }
    audit->draw.n++;
}

/* Returns the value of a nibble in two's complement. */
static int nibble(unsigned bits)
{
    return (int)(bits & 7) - (int)(bits & 8);
}

/* Reads the real and imaginary parts of both polarisations of one spectrum: [pol][re, im]. */
static void read_integers(enum voltage_format format, const uint8_t *at, int parts[N_POLS][2])
{
    for (int pol = 0; pol < N_POLS; pol++)
        if (format == VOLTAGES_8_BITS) {
            parts[pol][0] = (int8_t)at[2 * pol];
            parts[pol][1] = (int8_t)at[2 * pol + 1];
        } else {
            uint8_t byte = format == VOLTAGES_4_BITS_OFFSET ? at[pol] ^ 0x88 : at[pol];
            parts[pol][0] = nibble(byte >> 4);
            parts[pol][1] = nibble(byte);
        }
}

static void add_integers(struct xbgpu_audit_sample *s, enum voltage_format format, const uint8_t *at1,
                         const uint8_t *at2)
{
    int x[N_POLS][2], y[N_POLS][2];

    read_integers(format, at1, x);
    read_integers(format, at2, y);
    for (int product = 0; product < N_POL_PRODUCTS; product++) {
        const int *e1 = x[product % N_POLS], *e2 = y[product / N_POLS];
        s->sums.integer[product][0] += e1[0] * e2[0] + e1[1] * e2[1];
        s->sums.integer[product][1] += e1[1] * e2[0] - e1[0] * e2[1];
    }
}

static void read_halves(const uint8_t *at, double parts[N_POLS][2])
{
    for (int i = 0; i < N_POLS * 2; i++)
        parts[i / 2][i % 2] = half_to_float((uint16_t)(at[2 * i] | at[2 * i + 1] << 8));
}

static void add_halves(struct xbgpu_audit_sample *s, const uint8_t *at1, const uint8_t *at2)
{
    double x[N_POLS][2], y[N_POLS][2];

    read_halves(at1, x);
    read_halves(at2, y);
    for (int product = 0; product < N_POL_PRODUCTS; product++) {
        const double *e1 = x[product % N_POLS], *e2 = y[product / N_POLS];
        s->sums.real[product][0] += e1[0] * e2[0] + e1[1] * e2[1];
        s->sums.real[product][1] += e1[1] * e2[0] - e1[0] * e2[1];
        s->magnitudes[product][0] += fabs(e1[0] * e2[0]) + fabs(e1[1] * e2[1]);
        s->magnitudes[product][1] += fabs(e1[1] * e2[0]) + fabs(e1[0] * e2[1]);
    }
}

void xbgpu_audit_add_spectra(struct xbgpu_audit *audit, size_t i, const uint8_t *first, const uint8_t *second,
                             size_t n_spectra)
{
    size_t spectrum_bytes = N_POLS * voltage_bytes(audit->format);
    const uint8_t *x = first, *y = second;

    for (size_t t = 0; t < n_spectra; t++, x += spectrum_bytes, y += spectrum_bytes)
        if (correlate_sums_real(audit->format))
            add_halves(&audit->samples[i], x, y);
        else
            add_integers(&audit->samples[i], audit->format, x, y);
}

void xbgpu_audit_add(struct xbgpu_audit *audit, const uint8_t *const *heaps)
{
    size_t chan_bytes = audit->n_spectra * N_POLS * voltage_bytes(audit->format);

    for (size_t i = 0; i < audit->n_samples; i++) {
        const struct xbgpu_audit_sample *s = &audit->samples[i];
        if (heaps[s->ant1] && heaps[s->ant2])
            xbgpu_audit_add_spectra(audit, i, heaps[s->ant1] + s->chan * chan_bytes,
                                    heaps[s->ant2] + s->chan * chan_bytes, audit->n_spectra);
    }
}

static int32_t saturate(int64_t sum)
{
    return (int32_t)(sum > INT32_MAX ? INT32_MAX : sum < -INT32_MAX ? -INT32_MAX : sum);
}

static bool integers_agree(const struct xbgpu_audit_sample *sample, const int32_t *v, bool flagged)
{
    for (int product = 0; product < N_POL_PRODUCTS; product++) {
        int32_t re = flagged ? REDUCE_MISSING_RE : saturate(sample->sums.integer[product][0]);
        int32_t im = flagged ? REDUCE_MISSING_IM : saturate(sample->sums.integer[product][1]);
        if (v[2 * product] != re || v[2 * product + 1] != im)
            return false;
    }
    return true;
}

/* Compares floats.  If a term is infinite or not a number, the sum is not finite, in any order of addition. */
static bool floats_agree(const struct xbgpu_audit_sample *sample, const float *v, bool flagged)
{
    for (int i = 0; i < N_POL_PRODUCTS * 2; i++) {
        double sum = sample->sums.real[i / 2][i % 2], tolerance = AUDIT_TOLERANCE * sample->magnitudes[i / 2][i % 2];
        bool finite = !flagged && isfinite(sum);
        if (finite ? !(fabs((double)v[i] - sum) <= tolerance) : flagged ? !isnan(v[i]) : isfinite(v[i]))
            return false;
    }
    return true;
}

bool xbgpu_audit_agrees(const struct xbgpu_audit_sample *sample, enum voltage_format format, size_t n_baselines,
                        const void *visibilities, bool flagged)
{
    size_t baseline = correlate_baseline(sample->ant1, sample->ant2);
    size_t at = (sample->chan * n_baselines + baseline) * N_POL_PRODUCTS * 2;

    if (correlate_sums_real(format))
        return floats_agree(sample, (const float *)visibilities + at, flagged);
    return integers_agree(sample, (const int32_t *)visibilities + at, flagged);
}
