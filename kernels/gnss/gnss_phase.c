/* gnss_phase.c - converts phases and steps from double precision to fixed point. */
#include "kernels/gnss/gnss_phase.h"

#include <assert.h>
#include <math.h>

uint64_t gnss_code_phase(double subchips, uint32_t n_subchips)
{
    double within = fmod(subchips, n_subchips);
    uint64_t phase;

    within += within < 0 ? n_subchips : 0;
    if (within >= n_subchips) /* the sum of n_subchips and a tiny negative number was rounded to n_subchips */
        return 0;
    phase = (uint64_t)nearbyint(ldexp(within, GNSS_CODE_BITS));
    return phase < gnss_code_length(n_subchips) ? phase : 0;
}

uint64_t gnss_code_step(double subchips)
{
    assert(subchips >= 0 && subchips < 4);
    return (uint64_t)nearbyint(ldexp(subchips, GNSS_CODE_BITS));
}

uint64_t gnss_carrier_turns(double turns)
{
    double within = fmod(turns, 1), units = nearbyint(ldexp(fabs(within), 64));
    uint64_t size = units < 0x1p64 ? (uint64_t)units : 0;

    return within < 0 ? -size : size;
}
