/* signal.c - the first step of fsim: computes the value of each voltage, for fsim/heaps.c.  See fsim/signal.h. */
#include "tools/fsim/signal.h"

#include "common/base/units.h"
#include "kernels/util/philox.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define TURN            4 /* quarter turns */
#define SUM_OF_BYTES    8
#define SUM_MEAN        1020 /* mean of the sum of 8 random bytes, 8 * 255 / 2 */
#define SUM_VARIANCE    43690.0
#define COMMON_INPUT    (UINT32_MAX - 1) /* last argument of g() (signal.h) for the common noise of polarisation 0 */
#define MIN_HALF_EXP    (-14) /* exponent of the smallest normal half float; below it, the step is constant */
#define HALF_FRACTION   10
#define UNIFORM_BITS(b) ((b) == 16 ? 12 : (int)(b))

int64_t fsim_signal_period(const struct fsim_config *config)
{
    switch (config->signal.kind) {
    case FSIM_TONE: return config->stream.spectra_per_heap % TURN == 0 ? 1 : TURN;
    case FSIM_NOISE:
    case FSIM_UNIFORM: return config->signal.period_batches;
    default: return 1;
    }
}

/* ---- Random numbers --------------------------------------------------------------------------------------------- */

static void draw(int64_t seed, uint64_t spectrum, uint32_t chan, uint32_t last, uint32_t random[4])
{
    const uint32_t counter[4] = {(uint32_t)spectrum, (uint32_t)(spectrum >> 32), chan, last};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    philox4x32(counter, key, random);
}

static double sum_bytes(uint32_t a, uint32_t b)
{
    int sum = 0;

    for (int i = 0; i < SUM_OF_BYTES / 2; i++)
        sum += (int)(a >> 8 * i & 0xff) + (int)(b >> 8 * i & 0xff);
    return sum - SUM_MEAN;
}

static void noise(const struct fsim_config *config, size_t input, uint32_t chan, uint64_t spectrum, double value[2])
{
    const struct fsim_config_signal *signal = &config->signal;
    double own = signal->rms * sqrt((1 - signal->correlation) / SUM_VARIANCE);
    double common = signal->rms * sqrt(signal->correlation / SUM_VARIANCE);
    double limit = (double)fsim_config_limit(&config->stream);
    uint32_t a[4], b[4];

    draw(signal->seed, spectrum, chan, (uint32_t)input, a);
    if (common > 0)
        draw(signal->seed, spectrum, chan, COMMON_INPUT + input % N_POLS, b);
    for (int i = 0; i < 2; i++) {
        value[i] = own * sum_bytes(a[2 * i], a[2 * i + 1]);
        if (common > 0)
            value[i] += common * sum_bytes(b[2 * i], b[2 * i + 1]);
        if (config->stream.sample_bits < 16)
            value[i] = fmin(fmax(rint(value[i]), -limit), limit);
    }
}

static void uniform(const struct fsim_config *config, size_t input, uint32_t chan, uint64_t spectrum, double value[2])
{
    int shift = 32 - UNIFORM_BITS(config->stream.sample_bits);
    uint32_t random[4];

    draw(config->signal.seed, spectrum, chan, (uint32_t)input, random);
    value[0] = (int32_t)random[0] >> shift;
    value[1] = (int32_t)random[1] >> shift;
}

/* ---- Patterns ---------------------------------------------------------------------------------------------------- */

static void tone(const struct fsim_config_signal *signal, size_t input, uint32_t chan, uint64_t spectrum,
                 double value[2])
{
    static const int cosine[TURN] = {1, 0, -1, 0};
    /* The sum may wrap modulo 2^64, because 2^64 quarter turns are a whole number of turns. */
    uint64_t quarters = (uint64_t)fsim_config_item(&signal->delays, input) * chan +
                        (uint64_t)fsim_config_item(&signal->rates, input) * spectrum;

    value[0] = (double)signal->amplitude * cosine[quarters % TURN];
    value[1] = (double)signal->amplitude * cosine[(quarters + 3) % TURN];
}

void fsim_signal_value(const struct fsim_config *config, size_t input, uint32_t chan, uint64_t spectrum,
                       double value[2])
{
    switch (config->signal.kind) {
    case FSIM_CONSTANT:
        value[0] = (double)fsim_config_item(&config->signal.real, input);
        value[1] = (double)fsim_config_item(&config->signal.imag, input);
        break;
    case FSIM_TONE: tone(&config->signal, input, chan, spectrum, value); break;
    case FSIM_NOISE: noise(config, input, chan, spectrum, value); break;
    case FSIM_UNIFORM: uniform(config, input, chan, spectrum, value); break;
    default: assert(!"a recording has no formula"); abort();
    }
}

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

/* Converts a number to IEEE 754 binary16.  The step between half floats is a power of two, so the division by the step
 * is exact.  If rounding reaches the next power of two, the carry increments the exponent. */
static uint16_t half_of(double value)
{
    double magnitude = fabs(value);
    uint16_t sign = signbit(value) ? 0x8000 : 0;

    assert(magnitude < 65520);
    if (magnitude == 0)
        return sign;
    int exponent = ilogb(magnitude) > MIN_HALF_EXP ? ilogb(magnitude) : MIN_HALF_EXP;
    int steps = (int)rint(ldexp(magnitude, HALF_FRACTION - exponent));
    return (uint16_t)(sign | (((exponent - MIN_HALF_EXP) << HALF_FRACTION) + steps));
}

void fsim_put_voltage(enum voltage_format format, const double value[2], uint8_t *out)
{
    int re = (int)value[0], im = (int)value[1];

    switch (format) {
    case VOLTAGES_4_BITS: out[0] = (uint8_t)((re & 15) << 4 | (im & 15)); break;
    case VOLTAGES_4_BITS_OFFSET: out[0] = (uint8_t)((re + 8) << 4 | (im + 8)); break;
    case VOLTAGES_8_BITS:
        out[0] = (uint8_t)re;
        out[1] = (uint8_t)im;
        break;
    case VOLTAGES_16_BITS:
        for (int i = 0; i < 2; i++) {
            uint16_t half = half_of(value[i]);
            out[2 * i] = (uint8_t)half;
            out[2 * i + 1] = (uint8_t)(half >> 8);
        }
        break;
    }
}
