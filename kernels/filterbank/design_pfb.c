/* design_pfb.c - computes the weights for pfb_fir.c, once per output at start. */
#include "kernels/filterbank/design_pfb.h"

#include <assert.h>
#include <math.h>

static double sinc(double x)
{
    return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x);
}

/* Returns weight i before normalisation.  Weights of both halves are computed from the distance to the nearer end.
 * So the filter is exactly symmetric, and a Hann window's end points are exactly zero. */
static double raw_weight(size_t i, size_t step, size_t n_taps, double w_cutoff, enum pfb_window window)
{
    size_t last = step * n_taps - 1;
    size_t from_end = i < last - i ? i : last - i;
    double position = ((double)from_end + 0.5) / (double)step - (double)n_taps / 2;
    double weight = sinc(w_cutoff * position);

    if (window == PFB_HANN) {
        double s = sin(M_PI * (double)from_end / (double)last);
        weight *= s * s;
    }
    return weight;
}

void design_pfb(size_t step, size_t n_taps, double w_cutoff, enum pfb_window window, float *weights)
{
    double power = 0;

    assert(step >= 2 && n_taps >= 1 && w_cutoff >= 0);
    for (size_t i = 0; i < step * n_taps; i++) {
        double weight = raw_weight(i, step, n_taps, w_cutoff, window);
        power += weight * weight;
    }
    assert(power > 0); /* the power is 0 only for a Hann window of two points; both weights of this window are 0 */
    /* The weights are computed again instead of being stored, so that no memory is allocated and no weight is rounded
     * twice. */
    for (size_t i = 0; i < step * n_taps; i++)
        weights[i] = (float)(raw_weight(i, step, n_taps, w_cutoff, window) / sqrt(power));
}
