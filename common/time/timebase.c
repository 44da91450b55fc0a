/* timebase.c - exact conversions between ADC samples and UNIX time.  The receiver uses them to unwrap timestamps.  The
 * worker and the main thread use them to compute the times of data.
 *
 * At a sample rate of R * 10^-b Hz, one second has 10^9 ns and R * 10^-b samples, so samples = ns * R / 10^(9+b).  R <
 * 2^63 and 10^(9+b) <= 10^18 < 2^60.  Twice the product of a 64-bit number with R or with 10^(9+b) fits into a signed
 * 128-bit number. */
#include "common/time/timebase.h"

#include "common/base/clock.h"
#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define DECIMALS_MAX      18 /* at most 18 decimals, because 10^18 fits into 64 bits */
#define SYNC_DECIMALS_MAX 9  /* whole nanoseconds */
#define RATE_DECIMALS_MAX 9  /* at most 9 decimals, because 10^9 * 10^9 fits into 64 bits */
#define WIRE_PERIOD       (INT64_C(1) << TIMESTAMP_WIRE_BITS)
#define WIRE_MASK         ((uint64_t)WIRE_PERIOD - 1)

/* ---- Decimal numbers --------------------------------------------------------------------------------------------- */

/* Multiplies *value by 10^n.  Returns false if the product exceeds 64 bits. */
static bool shift_left(int64_t *value, int n)
{
    for (; n > 0 && *value != 0; n--)
        if (__builtin_mul_overflow(*value, 10, value))
            return false;
    return true;
}

/* Digits read so far, as mantissa * 10^exponent.  Zeros are counted in n_zeros until another digit follows.  So
 * trailing zeros, on either side of the point, never make the mantissa overflow. */
struct digits {
    int64_t mantissa;
    int exponent;
    int n_zeros;
    bool any;
    bool overflow;
};

static const char *read_digits(const char *text, bool fraction, struct digits *digits)
{
    for (; *text >= '0' && *text <= '9'; text++) {
        digits->any = true;
        digits->exponent -= fraction;
        digits->n_zeros++;
        if (*text == '0')
            continue;
        if (!shift_left(&digits->mantissa, digits->n_zeros) ||
            __builtin_add_overflow(digits->mantissa, *text - '0', &digits->mantissa))
            digits->overflow = true;
        digits->n_zeros = 0;
    }
    return text;
}

/* Reads an exponent like "e+12".  Returns the text after the exponent, or 'text' if there is none. */
static const char *read_exponent(const char *text, int *exponent)
{
    /* larger than the exponent of any number that fits into a struct decimal, but far below INT_MAX */
    const int far_out = 1000000;
    const char *digit = text + 1;

    if (*text != 'e' && *text != 'E')
        return text;
    bool negative = *digit == '-';
    if (*digit == '-' || *digit == '+')
        digit++;
    if (*digit < '0' || *digit > '9')
        return text;
    int value = 0;
    for (; *digit >= '0' && *digit <= '9'; digit++)
        value = value < far_out ? 10 * value + (*digit - '0') : far_out;
    *exponent += negative ? -value : value;
    return digit;
}

int timebase_parse_decimal(const char *text, int max_decimals, struct decimal *decimal)
{
    struct digits digits = {0};

    assert(max_decimals >= 0 && max_decimals <= DECIMALS_MAX);
    bool negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    text = read_digits(text, false, &digits);
    if (*text == '.')
        text = read_digits(text + 1, true, &digits);
    if (!digits.any)
        return -EINVAL;
    text = read_exponent(text, &digits.exponent);
    if (*text != '\0')
        return -EINVAL;

    int64_t mantissa = digits.mantissa;
    int exponent = digits.exponent + digits.n_zeros;
    if (digits.overflow)
        return -ERANGE;
    if (mantissa == 0)
        exponent = 0;
    if (exponent < -max_decimals || !shift_left(&mantissa, exponent))
        return -ERANGE;
    decimal->mantissa = negative ? -mantissa : mantissa;
    decimal->n_decimals = exponent < 0 ? -exponent : 0;
    return 0;
}

static int64_t power_of_ten(int n)
{
    int64_t value = 1;

    bool fits = shift_left(&value, n);
    assert(fits);
    return value;
}

double timebase_decimal_to_double(struct decimal decimal)
{
    char text[32];

    /* strtod() rounds once.  A division of a mantissa beyond 2^53 by a power of ten would round twice. */
    snprintf(text, sizeof(text), "%llde-%d", (long long)decimal.mantissa, decimal.n_decimals);
    return strtod(text, NULL);
}

/* ---- Conversions ------------------------------------------------------------------------------------------------- */

static int64_t divide_down(__int128 value, int64_t divisor)
{
    __int128 quotient = value / divisor;

    return (int64_t)(value % divisor < 0 ? quotient - 1 : quotient);
}

/* Divides and rounds to the nearest integer.  A value halfway between two integers is rounded up, even if it is
 * negative. */
static int64_t divide_nearest(__int128 value, int64_t divisor)
{
    __int128 doubled = 2 * value + divisor;
    __int128 quotient = doubled / (2 * (__int128)divisor);

    return (int64_t)(doubled % (2 * (__int128)divisor) < 0 ? quotient - 1 : quotient);
}

static int64_t divide_nearest_even(__int128 value, int64_t divisor)
{
    int64_t down = divide_down(value, divisor);
    __int128 doubled_rest = 2 * (value - (__int128)down * divisor);

    return down + (doubled_rest > divisor || (doubled_rest == divisor && down % 2 != 0));
}

/* Returns the numerator in the formula samples = nanoseconds * numerator / denominator. */
static int64_t rate_numerator(const struct timebase *timebase)
{
    assert(timebase->adc_sample_rate_hz.mantissa > 0);
    return timebase->adc_sample_rate_hz.mantissa;
}

static int64_t rate_denominator(const struct timebase *timebase)
{
    assert(timebase->adc_sample_rate_hz.n_decimals <= RATE_DECIMALS_MAX);
    return NS_PER_S * power_of_ten(timebase->adc_sample_rate_hz.n_decimals);
}

static __int128 sync_ns(const struct timebase *timebase)
{
    assert(timebase->sync_time_s.n_decimals <= SYNC_DECIMALS_MAX);
    return (__int128)timebase->sync_time_s.mantissa *
           power_of_ten(SYNC_DECIMALS_MAX - timebase->sync_time_s.n_decimals);
}

int64_t timebase_samples_at(const struct timebase *timebase, int64_t unix_ns)
{
    return divide_down((unix_ns - sync_ns(timebase)) * rate_numerator(timebase), rate_denominator(timebase));
}

int64_t timebase_samples_nearest(const struct timebase *timebase, int64_t unix_ns)
{
    return divide_nearest_even((unix_ns - sync_ns(timebase)) * rate_numerator(timebase), rate_denominator(timebase));
}

int timebase_parse_unix_ns(const char *text, int64_t *unix_ns)
{
    struct decimal seconds;
    int err = timebase_parse_decimal(text, SYNC_DECIMALS_MAX, &seconds);

    if (!err && !shift_left(&seconds.mantissa, SYNC_DECIMALS_MAX - seconds.n_decimals))
        err = -ERANGE;
    if (!err)
        *unix_ns = seconds.mantissa;
    return err;
}

int64_t timebase_unix_ns(const struct timebase *timebase, int64_t timestamp_samples)
{
    return (int64_t)(sync_ns(timebase) + timebase_duration_ns(timebase, timestamp_samples));
}

int64_t timebase_duration_ns(const struct timebase *timebase, int64_t n_samples)
{
    return divide_nearest((__int128)n_samples * rate_denominator(timebase), rate_numerator(timebase));
}

int64_t timebase_duration_samples(const struct timebase *timebase, int64_t duration_ns)
{
    return divide_nearest((__int128)duration_ns * rate_numerator(timebase), rate_denominator(timebase));
}

/* ---- 48 bits to 64 ----------------------------------------------------------------------------------------------- */

int64_t timebase_unwrap(uint64_t wire, int64_t near_samples)
{
    int64_t ahead = (int64_t)((wire - (uint64_t)near_samples) & WIRE_MASK);

    if (ahead > WIRE_PERIOD / 2)
        ahead -= WIRE_PERIOD;
    int64_t timestamp = near_samples + ahead;
    return timestamp >= 0 ? timestamp : (int64_t)(wire & WIRE_MASK);
}

int64_t timebase_first_near(const struct timebase *timebase)
{
    if (timebase->from_packets)
        return WIRE_PERIOD / 2 - 1;
    return timebase_samples_at(timebase, clock_unix_ns());
}
