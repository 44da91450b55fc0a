/* audit.c - the host's own sums, on the side of the device's. */
#include "xbgpu/audit.h"

#include "kernels/correlate.h"
#include "kernels/philox.h"
#include "kernels/reduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int audit_init(struct audit *audit, size_t n_samples, size_t n_ants, size_t n_chan, size_t n_spectra)
{
    *audit = (struct audit){.n_ants = n_ants, .n_chan = n_chan, .n_spectra = n_spectra, .n_samples = n_samples};
    audit->samples = calloc(n_samples ? n_samples : 1, sizeof(*audit->samples));
    if (!audit->samples)
        return -ENOMEM;
    return getrandom(&audit->seed, sizeof(audit->seed), 0) == sizeof(audit->seed) ? 0 : -EIO;
}

void audit_fini(struct audit *audit)
{
    free(audit->samples);
    audit->samples = NULL;
}

/* A draw out of [0, n): 32 random bits scaled, even to within n / 2^32. */
static size_t scale(uint32_t bits, size_t n)
{
    return (size_t)(((uint64_t)bits * n) >> 32);
}

void audit_draw(struct audit *audit)
{
    const uint32_t key[2] = {(uint32_t)audit->seed, (uint32_t)(audit->seed >> 32)};

    for (size_t i = 0; i < audit->n_samples; i++) {
        struct audit_sample *s = &audit->samples[i];
        const uint32_t counter[4] = {(uint32_t)audit->n_drawn, (uint32_t)(audit->n_drawn >> 32), (uint32_t)i, 0};
        uint32_t bits[4];

        philox4x32(counter, key, bits);
        size_t baseline = scale(bits[0], correlate_n_baselines(audit->n_ants));
        for (s->ant2 = 0; correlate_baseline(0, s->ant2 + 1) <= baseline; s->ant2++)
            continue;
        s->ant1 = baseline - correlate_baseline(0, s->ant2);
        s->chan = scale(bits[1], audit->n_chan);
        memset(s->sums, 0, sizeof(s->sums));
    }
    audit->n_drawn++;
}

void audit_add_spectra(struct audit *audit, size_t i, const uint8_t *first, const uint8_t *second, size_t n_spectra)
{
    struct audit_sample *s = &audit->samples[i];
    const int8_t *x = (const int8_t *)first, *y = (const int8_t *)second;

    for (size_t t = 0; t < n_spectra; t++, x += N_POLS * 2, y += N_POLS * 2)
        for (int p2 = 0; p2 < N_POLS; p2++)
            for (int p1 = 0; p1 < N_POLS; p1++) {
                int xr = x[2 * p1], xi = x[2 * p1 + 1], yr = y[2 * p2], yi = y[2 * p2 + 1];
                s->sums[p1 + 2 * p2][0] += xr * yr + xi * yi;
                s->sums[p1 + 2 * p2][1] += xi * yr - xr * yi;
            }
}

void audit_add(struct audit *audit, const uint8_t *const *heaps)
{
    size_t chan_bytes = audit->n_spectra * N_POLS * 2;

    for (size_t i = 0; i < audit->n_samples; i++) {
        const struct audit_sample *s = &audit->samples[i];
        if (heaps[s->ant1] && heaps[s->ant2])
            audit_add_spectra(audit, i, heaps[s->ant1] + s->chan * chan_bytes, heaps[s->ant2] + s->chan * chan_bytes,
                              audit->n_spectra);
    }
}

static int32_t saturate(int64_t sum)
{
    return (int32_t)(sum > INT32_MAX ? INT32_MAX : sum < -INT32_MAX ? -INT32_MAX : sum);
}

bool audit_agrees(const struct audit_sample *sample, size_t n_baselines, const int32_t *visibilities, bool flagged)
{
    size_t baseline = correlate_baseline(sample->ant1, sample->ant2);
    const int32_t *v = visibilities + (sample->chan * n_baselines + baseline) * N_POL_PRODUCTS * 2;

    for (int product = 0; product < N_POL_PRODUCTS; product++) {
        int32_t re = flagged ? REDUCE_MISSING_RE : saturate(sample->sums[product][0]);
        int32_t im = flagged ? REDUCE_MISSING_IM : saturate(sample->sums[product][1]);
        if (v[2 * product] != re || v[2 * product + 1] != im)
            return false;
    }
    return true;
}
