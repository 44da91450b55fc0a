/* sinc.c - computes the taps of the interpolation filter at the start, for dsim/live.c and dsim/recording_complex.c. */
#include "tools/dsim/sinc.h"

#include <math.h>

#define KAISER_BETA 10.0

/* Returns the modified Bessel function of the first kind and order 0, by its series (all terms positive, 0 <= x <=
 * 10). */
static double bessel_i0(double x)
{
    double term = 1.0, sum = 1.0;

    for (int k = 1; k < 60; k++) {
        term *= (x / (2.0 * k)) * (x / (2.0 * k));
        sum += term;
    }
    return sum;
}

double dsim_sinc_tap(double distance)
{
    double edge = distance / (DSIM_SINC_TAPS / 2);
    double window = bessel_i0(KAISER_BETA * sqrt(fmax(0.0, 1.0 - edge * edge))) / bessel_i0(KAISER_BETA);

    return distance == 0.0 ? window : window * sin(M_PI * distance) / (M_PI * distance);
}
