/* design_ddc.c - designs the filter of ddc.c, once per narrowband output at start. */
#include "kernels/ddc/design_ddc.h"

#include "kernels/ddc/remez.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Lists the edges of the bands, in units of the sample rate after subsampling.  Returns the number of bands. */
static size_t find_bands(const struct design_ddc *d, struct remez_band *bands)
{
    double half_rate = d->subsampling / 2.0;
    size_t n = 1;

    if (d->pass_fraction > 0) {
        bands[0] = (struct remez_band){0, d->pass_fraction / 2, 1, d->weight_pass};
        bands[1] = (struct remez_band){1 - d->pass_fraction / 2, half_rate, 0, 1};
        return 2;
    }
    bands[0] = (struct remez_band){0, 0.25, 1, d->weight_pass};
    for (double low = 0.75; low < half_rate; low += 1)
        bands[n++] = (struct remez_band){low, fmin(low + 0.5, half_rate), 0, 1};
    return n;
}

int design_ddc_double(const struct design_ddc *d, double *weights)
{
    struct remez_band bands[DESIGN_DDC_MAX_SUBSAMPLING / 2 + 1];
    size_t n_bands;
    int err;

    assert(d->subsampling >= 2 && d->subsampling <= DESIGN_DDC_MAX_SUBSAMPLING);
    assert(d->n_taps >= 4 && d->n_taps <= DESIGN_DDC_MAX_TAPS);
    assert(d->weight_pass > 0 && d->pass_fraction >= 0 && d->pass_fraction < 1);
    n_bands = find_bands(d, bands);
    for (size_t i = 0; i < n_bands; i++) {
        bands[i].low /= d->subsampling;
        bands[i].high /= d->subsampling;
    }
    err = remez(d->n_taps, bands, n_bands, weights);
    if (err)
        return err;
    for (size_t i = 0; i < d->n_taps; i++)
        weights[i] *= sqrt(d->subsampling);
    return 0;
}

int design_ddc(const struct design_ddc *d, float *weights)
{
    double *exact = malloc(d->n_taps * sizeof(*exact));
    int err = -ENOMEM;

    if (!exact)
        return err;
    err = design_ddc_double(d, exact);
    for (size_t i = 0; i < d->n_taps && !err; i++)
        weights[i] = (float)exact[i];
    free(exact);
    return err;
}
