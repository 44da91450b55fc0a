/* pulsar.c - computes a period of each pulsar, after the seeds are chosen.  dsim/signal.c copies samples from this
 * period. */
#include "tools/dsim/pulsar.h"

#include "common/base/memory.h"
#include "common/base/why.h"

#include <assert.h>
#include <complex.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define DISPERSION_S_MHZ2 (1 / 2.41e-4) /* dispersion constant, in s MHz^2 per pc/cm^3 */
#define HZ_PER_MHZ        1e6
#define BYTES_PER_SAMPLE  (sizeof(double) + sizeof(double complex))
#define BLOCK_SAMPLES     4096

bool dsim_pulsar_takes_period(int64_t period_samples)
{
    return (period_samples & (period_samples - 1)) == 0;
}

static void reverse_bits(double complex *values, size_t n)
{
    for (size_t i = 1, reversed = 0; i < n; i++) {
        size_t bit = n >> 1;
        for (; reversed & bit; bit >>= 1)
            reversed ^= bit;
        reversed |= bit;
        if (i < reversed) {
            double complex value = values[i];
            values[i] = values[reversed];
            values[reversed] = value;
        }
    }
}

/* Computes a Fourier transform in place: values[k] = sum over m of values[m] exp(sign 2 pi i m k / n).  The number of
 * values, n, is a power of two.  The algorithm is the radix-2 algorithm of Cooley and Tukey. */
static void transform(double complex *values, size_t n, double sign)
{
    reverse_bits(values, n);
    for (size_t half = 1; half < n; half *= 2) {
        for (size_t k = 0; k < half; k++) {
            double complex twiddle = cexp(I * (sign * M_PI * (double)k / (double)half));
            for (size_t i = k; i < n; i += 2 * half) {
                double complex odd = twiddle * values[i + half];
                values[i + half] = values[i] - odd;
                values[i] += odd;
            }
        }
    }
}

/* Returns the dispersion filter at frequency k, in cycles per period. */
static double complex disperse(const struct dsim_node *node, const struct dsim_axis *axis, int64_t k)
{
    double top_mhz = (node->frequency_hz + axis->adc_sample_rate_hz / 2) / HZ_PER_MHZ;
    double below_mhz = axis->adc_sample_rate_hz * (0.5 - (double)k / (double)axis->period_samples) / HZ_PER_MHZ;
    double turns = DISPERSION_S_MHZ2 * HZ_PER_MHZ * node->dispersion_measure * below_mhz * below_mhz /
                   (top_mhz * top_mhz * (top_mhz - below_mhz));

    return cexp(I * (2 * M_PI * remainder(turns, 1.0)));
}

/* Returns true if a pulse is on at sample i. */
static bool is_on(const struct dsim_node *node, const struct dsim_axis *axis, int64_t i)
{
    int64_t cycles = (int64_t)fmod(dsim_signal_cycles(axis, 1 / node->pulse_period_s), (double)axis->period_samples);

    return (double)(cycles * i % axis->period_samples) <
           node->pulse_width_s / node->pulse_period_s * (double)axis->period_samples;
}

static void fill_pulses(const struct dsim_node *node, const struct dsim_axis *axis, double complex *values)
{
    const struct dsim_node noise = {
        .op = DSIM_WGN, .amplitude = node->amplitude, .seed = node->seed, .has_seed = node->has_seed};
    double block[BLOCK_SAMPLES];
    int64_t period = axis->period_samples, n;

    for (int64_t first = 0; first < period; first += n) {
        n = period - first < BLOCK_SAMPLES ? period - first : BLOCK_SAMPLES;
        dsim_signal_evaluate(&noise, axis, first, (size_t)n, block, NULL);
        for (int64_t i = 0; i < n; i++)
            values[first + i] = is_on(node, axis, first + i) ? block[i] : 0.0;
    }
}

/* Computes a period of real samples.  The spectrum above half the sample rate is therefore the mirrored conjugate of
 * the lower half.  At 0 Hz and at half the sample rate, the spectrum is real. */
static void compute(struct dsim_node *node, const struct dsim_axis *axis, double complex *values)
{
    size_t n = (size_t)axis->period_samples;

    fill_pulses(node, axis, values);
    transform(values, n, -1);
    for (size_t k = 0; k <= n / 2; k++) {
        values[k] *= disperse(node, axis, (int64_t)k) / (double)n;
        if (k == 0 || k == n / 2)
            values[k] = creal(values[k]);
        else
            values[n - k] = conj(values[k]);
    }
    transform(values, n, 1);
    for (size_t i = 0; i < n; i++)
        node->samples[i] = creal(values[i]);
}

int dsim_pulsar_compute(struct dsim_program *program, const struct dsim_axis *axis, char *why, size_t why_bytes)
{
    size_t n = (size_t)axis->period_samples;
    int err = 0;

    for (size_t i = 0; i < program->n_nodes && !err; i++) {
        struct dsim_node *node = &program->nodes[i];
        if (node->op != DSIM_PULSAR)
            continue;
        if (!dsim_pulsar_takes_period(axis->period_samples))
            return why_fail(-EINVAL, why, why_bytes, "the period must be a power of two for pulsar(), not %zu", n);
        err = memory_check(n * BYTES_PER_SAMPLE, "digitiser.period", "make the period shorter", why, why_bytes);
        if (err)
            return err;
        double complex *values = malloc(n * sizeof(*values));
        node->samples = malloc(n * sizeof(*node->samples));
        if (values && node->samples)
            compute(node, axis, values);
        else
            err = why_out_of_memory(why, why_bytes);
        free(values);
    }
    return err;
}
