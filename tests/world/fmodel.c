/* fmodel.c - the samples of fworld's digitisers, and the voltages that follow from them.  See fworld.h. */
#include "tests/world/fworld.h"

#include "tests/world/sched.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool model_is_known;

static uint8_t references[MAX_ANTS][N_HEAPS][PERIOD][HEAP_BYTES];

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

/* Pseudo-random noise of about 50 rms, and a satellite's signal. */
static int make_sample(unsigned ant, unsigned pol, int64_t time)
{
    uint64_t z = (uint64_t)time * 0x9E3779B97F4A7C15 + (ant * 2 + pol);
    int sum = 0;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    for (int i = 0; i < 4; i++)
        sum += (int)(z >> (16 * i) & 0xFF) - 128;
    return sum / 3 + (int)lrint(sums_signal(ant, pol, time));
}

int model_sample(unsigned ant, unsigned pol, int64_t time)
{
    static int16_t samples[MAX_ANTS][2][PERIOD * BATCH];
    static bool is_made;

    for (int64_t i = 0; !is_made && i < 2 * MAX_ANTS * PERIOD * BATCH; i++)
        samples[i / (2 * PERIOD * BATCH)][i / (PERIOD * BATCH) % 2][i % (PERIOD * BATCH)] = (int16_t)make_sample(
            (unsigned)(i / (2 * PERIOD * BATCH)), (unsigned)(i / (PERIOD * BATCH) % 2), i % (PERIOD * BATCH));
    is_made = true;
    return samples[ant][pol][(uint64_t)time % (PERIOD * BATCH)];
}

void model_pack(unsigned ant, unsigned pol, int64_t first, uint8_t *out)
{
    uint32_t held = 0;
    int n_held = 0;

    for (int64_t t = first; t < first + PACKET; t++) {
        held = held << BITS | ((uint32_t)model_sample(ant, pol, t) & ((1 << BITS) - 1));
        for (n_held += BITS; n_held >= 8; n_held -= 8)
            *out++ = (uint8_t)(held >> (n_held - 8));
    }
}

/* ---- The filter bank in double precision ------------------------------------------------------------------------- */

static double weights[N_TAPS * STEP];
static double complex turns[STEP / 2]; /* exp(-2 pi i k / STEP) */

/* The prototype filter: a Hann window times a sinc function, with unit energy. */
static void make_tables(void)
{
    int n = N_TAPS * STEP;
    double energy = 0;

    for (int i = 0; i < n; i++) {
        double x = M_PI * ((i + 0.5) / STEP - N_TAPS / 2.0), hann = pow(sin(M_PI * i / (n - 1)), 2);
        weights[i] = hann * (x == 0 ? 1 : sin(x) / x);
        energy += weights[i] * weights[i];
    }
    for (int i = 0; i < n; i++)
        weights[i] /= sqrt(energy);
    for (int i = 0; i < STEP / 2; i++)
        turns[i] = cexp(-2 * M_PI * I * i / STEP);
}

/* The Fourier transform of STEP values, in place: decimation in time, after Cooley and Tukey. */
static void transform(double complex *values, unsigned n, double complex *scratch)
{
    if (n == 1)
        return;
    for (unsigned i = 0; i < n / 2; i++) {
        scratch[i] = values[2 * i];
        scratch[n / 2 + i] = values[2 * i + 1];
    }
    memcpy(values, scratch, n * sizeof(*values));
    transform(values, n / 2, scratch);
    transform(values + n / 2, n / 2, scratch);
    for (unsigned i = 0; i < n / 2; i++) {
        double complex even = values[i], odd = values[n / 2 + i] * turns[i * (STEP / n)];
        values[i] = even + odd;
        values[n / 2 + i] = even - odd;
    }
}

/* Computes the spectrum at 'time' of samples that are delayed by 'delay', for a gain of 1.  The filter's phases fold
 * onto STEP values.  The delay does not change the phase at the band's centre, a quarter of the sample rate. */
static void compute(unsigned ant, unsigned pol, int64_t time, int64_t delay, double complex spectrum[STEP])
{
    static const double complex quarters[] = {1, I, -1, -I};
    double complex scratch[STEP];

    if (turns[0] == 0)
        make_tables();
    for (int i = 0; i < STEP; i++) {
        spectrum[i] = 0;
        for (int tap = 0; tap < N_TAPS; tap++)
            spectrum[i] += weights[tap * STEP + i] * model_sample(ant, pol, time - delay + tap * STEP + i);
    }
    transform(spectrum, STEP, scratch);
    for (int chan = 0; chan < N_CHAN; chan++)
        spectrum[chan] *= quarters[delay & 3];
}

/* Returns the position of a voltage in a heap. */
static size_t position(unsigned chan, unsigned spectrum, unsigned pol)
{
    return ((size_t)(chan % SUB_CHAN) * N_SPECTRA + spectrum) * 4 + pol * 2;
}

static uint64_t n_clipped_least, n_clipped_most;

void model_forget_clipped(void)
{
    n_clipped_least = n_clipped_most = 0;
}

void model_count_clipped(uint64_t *n_least, uint64_t *n_most)
{
    *n_least = n_clipped_least;
    *n_most = n_clipped_most;
}

static double clip(double value)
{
    return fmax(-127, fmin(127, value));
}

/* Returns true if the channels of one spectrum in a heap are the exact values times 'gain', clipped and rounded. */
static bool matches(const double complex *exact, double gain, unsigned substream, unsigned spectrum, unsigned pol,
                    const uint8_t *heap)
{
    unsigned n_least = 0, n_most = 0;

    for (unsigned chan = substream * SUB_CHAN; chan < (substream + 1) * SUB_CHAN; chan++) {
        const int8_t *found = (const int8_t *)heap + position(chan, spectrum, pol);
        double re = gain * creal(exact[chan]), im = gain * cimag(exact[chan]);
        if (fabs(found[0] - clip(re)) > 0.501 || fabs(found[1] - clip(im)) > 0.501)
            return false;
        n_least += fabs(re) > 128 || fabs(im) > 128;
        n_most += abs(found[0]) == 127 || abs(found[1]) == 127;
    }
    n_clipped_least += n_least;
    n_clipped_most += n_most;
    return true;
}

static bool any_matches(unsigned ant, unsigned pol, int64_t time, const struct settings *settings, unsigned substream,
                        unsigned spectrum, const uint8_t *heap)
{
    double complex exact[STEP];

    for (unsigned d = 0; d < settings->n_delays; d++) {
        compute(ant, pol, time, settings->delays[d], exact);
        for (unsigned g = 0; g < settings->n_gains; g++)
            if (matches(exact, settings->gains[g], substream, spectrum, pol, heap))
                return true;
    }
    return false;
}

void model_compare(unsigned ant, unsigned substream, int64_t batch, const uint8_t *heap)
{
    for (unsigned pol = 0; pol < 2; pol++)
        for (unsigned spectrum = 0; spectrum < N_SPECTRA; spectrum++) {
            struct settings settings;
            int64_t time = batch * BATCH + spectrum * STEP;
            settings_at(2 * ant + pol, time, &settings);
            if (!any_matches(ant, pol, time, &settings, substream, spectrum, heap))
                world_fail("antenna %u, batch %lld, substream %u, spectrum %u, polarisation %u: wrong voltages for "
                           "%u delays from %lld samples on and %u gains from %g on",
                           ant, (long long)batch, substream, spectrum, pol, settings.n_delays,
                           (long long)settings.delays[0], settings.n_gains, settings.gains[0]);
        }
}

/* Compares the voltages of the run without faults with the filter bank. */
void model_check(void)
{
    for (unsigned ant = 0; ant < MAX_ANTS; ant++)
        for (unsigned substream = 0; substream < N_SUBSTREAMS; substream++)
            for (int64_t batch = 0; batch < PERIOD; batch++)
                model_compare(ant, substream, batch, references[ant][substream][batch]);
    model_is_known = true;
}

void model_keep(unsigned ant, unsigned substream, int64_t batch, const uint8_t *heap)
{
    memcpy(references[ant][substream][batch % PERIOD], heap, HEAP_BYTES);
}

bool model_is_exact(unsigned ant, unsigned substream, int64_t batch, const uint8_t *heap)
{
    return memcmp(heap, references[ant][substream][batch % PERIOD], HEAP_BYTES) == 0;
}
