/* mixer.c - computes the start phases for ddc.c with integers of 128 bits. */
#include "kernels/ddc/mixer.h"

#include <assert.h>
#include <math.h>

typedef unsigned __int128 u128;

/* The exact value of a double: mantissa * 2^exponent.  The mantissa is odd. */
struct binary {
    uint64_t mantissa;
    int exponent;
};

static struct binary to_binary(double value)
{
    struct binary b;

    b.mantissa = (uint64_t)ldexp(frexp(value, &b.exponent), 53);
    b.exponent -= 53;
    for (; b.mantissa % 2 == 0; b.mantissa /= 2)
        b.exponent++;
    return b;
}

void mixer_init(struct mixer *mixer, double centre_hz, double rate_hz)
{
    *mixer = (struct mixer){0, 1};
    assert(rate_hz >= 1 && rate_hz < 0x1p37);
    if (centre_hz == 0)
        return;
    assert(centre_hz >= 0x1p-37 && centre_hz < 0x1p37);
    struct binary centre = to_binary(centre_hz), rate = to_binary(rate_hz);
    u128 denominator = rate.mantissa;
    for (int i = rate.exponent; i > centre.exponent; i--)
        denominator *= 2; /* at most rate * 2^89 < 2^126 */
    u128 numerator = centre.mantissa % denominator;
    for (int i = centre.exponent; i > rate.exponent; i--)
        numerator = 2 * numerator % denominator;
    mixer->numerator = numerator == 0 ? 0 : denominator - numerator; /* f is negative */
    mixer->denominator = denominator;
}

/* Returns a * b modulo m.  m < 2^127, a < m. */
static u128 multiply_modulo(u128 a, uint64_t b, u128 m)
{
    u128 product = 0;

    for (; b; b >>= 1) {
        if (b & 1)
            product = (product + a) % m;
        a = (a + a) % m;
    }
    return product;
}

/* Returns 2^64 a / m, rounded to nearest, modulo 2^64.  a < m < 2^127. */
static uint64_t to_turns(u128 a, u128 m)
{
    uint64_t turns = 0;

    for (int i = 0; i < 64; i++) {
        a += a;
        turns += turns + (a >= m);
        if (a >= m)
            a -= m;
    }
    return turns + (a + a >= m);
}

uint64_t mixer_turns(const struct mixer *mixer, int64_t t_samples)
{
    uint64_t size = t_samples < 0 ? -(uint64_t)t_samples : (uint64_t)t_samples;
    uint64_t turns = to_turns(multiply_modulo(mixer->numerator, size, mixer->denominator), mixer->denominator);

    return t_samples < 0 ? -turns : turns;
}
