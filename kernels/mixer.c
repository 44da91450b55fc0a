/* mixer.c - where the phases that ddc.c begins with come from: integers of 128 bits. */
#include "kernels/mixer.h"

#include <assert.h>

#define MAX_DECIMALS 9

typedef unsigned __int128 u128;

void mixer_init(struct mixer *mixer, struct decimal centre_hz, struct decimal rate_hz)
{
    u128 numerator = (u128)centre_hz.mantissa, denominator = (u128)rate_hz.mantissa;

    assert(centre_hz.mantissa >= 0 && rate_hz.mantissa > 0);
    assert(centre_hz.n_decimals <= MAX_DECIMALS && rate_hz.n_decimals <= MAX_DECIMALS);
    for (int i = rate_hz.n_decimals; i > centre_hz.n_decimals; i--)
        numerator *= 10;
    for (int i = centre_hz.n_decimals; i > rate_hz.n_decimals; i--)
        denominator *= 10;
    numerator %= denominator;
    mixer->numerator = numerator == 0 ? 0 : denominator - numerator; /* f is negative */
    mixer->denominator = denominator;
}

/* a * b modulo m, m < 2^127, a < m. */
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

/* 2^64 a / m, rounded to nearest, modulo 2^64; a < m < 2^127. */
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
