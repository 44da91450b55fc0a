/* fmodel.c - the samples of fworld's digitisers, and the voltages that follow from them.  See fworld.h. */
#include "tests/world/fworld.h"

#include "tests/world/sched.h"

#include <math.h>
#include <string.h>

bool model_is_known;

static uint8_t references[MAX_ANTS][N_SUBSTREAMS][PERIOD][HEAP_BYTES];

/* ---- Samples --------------------------------------------------------------------------------------------------------- */

/* A sample of 10 bits at a time in samples since the sync time: pseudo-random, and about 50 rms. */
static int sample(unsigned ant, unsigned pol, int64_t time)
{
    uint64_t z = (uint64_t)(time % (PERIOD * BATCH)) * 0x9E3779B97F4A7C15 + (ant * 2 + pol);
    int sum = 0;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    for (int i = 0; i < 4; i++)
        sum += (int)(z >> (16 * i) & 0xFF) - 128;
    return sum / 3;
}

void model_pack(unsigned ant, unsigned pol, int64_t first, uint8_t *out)
{
    uint32_t held = 0;
    int n_held = 0;

    for (int64_t t = first; t < first + PACKET; t++) {
        held = held << BITS | ((uint32_t)sample(ant, pol, t) & ((1 << BITS) - 1));
        for (n_held += BITS; n_held >= 8; n_held -= 8)
            *out++ = (uint8_t)(held >> (n_held - 8));
    }
}

/* ---- The filter bank in double precision ----------------------------------------------------------------------------- */

/* The prototype filter: a Hann window times a sinc function, with unit energy. */
static void make_weights(double weights[N_TAPS * STEP])
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
}

/* Computes one complex channel of the spectrum whose window begins at 'time'. */
static void compute(unsigned ant, unsigned pol, int64_t time, unsigned chan, const double *weights, double out[2])
{
    out[0] = out[1] = 0;
    for (int i = 0; i < N_TAPS * STEP; i++) {
        double value = weights[i] * sample(ant, pol, time + i) * GAIN, turn = 2 * M_PI * chan * (i % STEP) / STEP;
        out[0] += value * cos(turn);
        out[1] -= value * sin(turn);
    }
}

/* Compares the voltages of the run without faults with the filter bank: a value may be rounded to the other side. */
void model_check(void)
{
    double weights[N_TAPS * STEP], exact[2];
    size_t n = 0, n_off = 0;

    make_weights(weights);
    for (size_t i = 0; i < sizeof(references); i += 2 * 7, n++) { /* some of the values */
        size_t at = i % HEAP_BYTES, heap = i / HEAP_BYTES;
        unsigned batch = heap % PERIOD, substream = heap / PERIOD % N_SUBSTREAMS,
                 ant = (unsigned)heap / PERIOD / N_SUBSTREAMS;
        unsigned pol = at / 2 % 2, spectrum = at / 4 % N_SPECTRA,
                 chan = (unsigned)(at / 4 / N_SPECTRA) + substream * SUB_CHAN;
        const int8_t *found = (const int8_t *)references[ant][substream][batch] + at / 2 * 2;
        compute(ant, pol, (int64_t)batch * BATCH + spectrum * STEP, chan, weights, exact);
        for (int part = 0; part < 2; part++) {
            if (fabs(found[part] - exact[part]) > 0.51)
                world_fail("antenna %u, channel %u, spectrum %u, polarisation %u: %d instead of %.3f", ant, chan,
                           spectrum, pol, found[part], exact[part]);
            n_off += found[part] != (int)rint(exact[part]);
        }
    }
    if (n_off > n / 100)
        world_fail("%zu of %zu values are rounded to the other side", n_off, 2 * n);
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
