/* gnss_signal.h - simulates the correlation sums of one satellite's signal at one antenna, in double precision.
 *
 * The simulation computes the signal's true phases in exact and 80-bit arithmetic.  A sum has the amplitude sqrt(2 C/N0
 * T).  Three factors multiply the amplitude: the sinc of the frequency's error, the autocorrelation at the code's error
 * and the tap, and data and secondary code.  The Gaussian noise has variance 1 and is correlated between taps. */
#ifndef TESTS_UNIT_FGPU_GNSS_SIGNAL_H
#define TESTS_UNIT_FGPU_GNSS_SIGNAL_H

#include "common/base/units.h"
#include "fgpu/gnss/gnss_track.h"
#include "kernels/gnss/gnss_codes.h"
#include "tests/unit/test_random.h"

#include <math.h>
#include <string.h>

#define SAMPLE_RATE_HZ INT64_C(26750000)
#define SIGMA          50 /* of a sample's contribution to a sum, in each part */

/* ---- The satellite ----------------------------------------------------------------------------------------------- */

struct satellite {
    enum gnss_signal signal;
    int64_t carrier_hz; /* in the baseband */
    double doppler_hz, rate_hz_s;
    double code_subchips; /* of sample 0, of code period 0 of the signal */
    double phase_turns;   /* of sample 0 */
    double pol_turns;     /* of polarisation 1 before polarisation 0 */
    double cn0[N_POLS];   /* Hz */
    uint64_t seed;        /* of data; 0: none */
    int subchips;         /* of a chip */
    int64_t n_subchips;
};

/* Times are in half samples, so that the middle of any piece is one. */
struct truth {
    double carrier_turns; /* [0, 1), without what is in 'theta' */
    long double theta;    /* turns of Doppler, and the phase of sample 0 */
    double doppler_hz;
    long double code_subchips;
};

static inline struct truth truth_at(const struct satellite *s, int64_t half_samples)
{
    const __int128 rate = 2 * (__int128)SAMPLE_RATE_HZ;
    const struct gnss_signal_facts *facts = gnss_signal_facts(s->signal);
    const long double t = (long double)half_samples / (2.0L * SAMPLE_RATE_HZ);
    const __int128 carrier = (s->carrier_hz * (__int128)half_samples) % rate;
    const __int128 code = (__int128)llrint(facts->chip_rate_hz) * s->subchips * half_samples;
    const long double doppler_turns = (s->doppler_hz + s->rate_hz_s * t / 2) * t;

    return (struct truth){
        .carrier_turns = (double)((long double)(carrier < 0 ? carrier + rate : carrier) / (long double)rate),
        .theta = doppler_turns + s->phase_turns,
        .doppler_hz = (double)(s->doppler_hz + s->rate_hz_s * t),
        .code_subchips = (long double)(code / rate) + (long double)(code % rate) / (long double)rate +
                         doppler_turns * facts->chip_rate_hz * s->subchips / facts->carrier_hz + s->code_subchips};
}

static inline double wrap(double turns)
{
    return turns - floor(turns + 0.5);
}

/* Where a piece's replica is, at its middle, minus where the signal is. */
static inline void replica_error(const struct satellite *s, const struct gnss_piece *piece, int64_t first,
                                 double *turns, double *hz, double *chips)
{
    const uint64_t last = piece->n_samples - 1;
    const struct truth truth = truth_at(s, 2 * first + (int64_t)last);
    const double step_turns = (double)(int64_t)piece->carrier_step * 0x1p-64;
    const double carrier_turns =
        (double)(piece->carrier_phase + last / 2 * piece->carrier_step) * 0x1p-64 + (last % 2 ? step_turns / 2 : 0);
    const long double code = ldexpl(
        (long double)((unsigned __int128)piece->code_phase * 2 + (unsigned __int128)piece->code_step * last), -49);
    const long double code_error = fmodl(code - truth.code_subchips, s->n_subchips);

    *turns = wrap(carrier_turns - truth.carrier_turns - (double)fmodl(truth.theta, 1));
    *hz = step_turns * SAMPLE_RATE_HZ - (double)s->carrier_hz - truth.doppler_hz;
    *chips = (double)remainderl(code_error, s->n_subchips) / s->subchips;
}

static inline int periods_of_symbol(enum gnss_signal signal)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(signal);

    return facts->symbol_periods ? (int)facts->symbol_periods : (int)strlen(facts->secondary);
}

static inline int64_t period_at(const struct satellite *s, int64_t half_samples)
{
    return (int64_t)floorl(truth_at(s, half_samples).code_subchips / s->n_subchips);
}

/* Data symbol times secondary code of a code period. */
static inline double sign_at(const struct satellite *s, int64_t period)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(s->signal);
    const int64_t n = (int64_t)strlen(facts->secondary), place = ((period % n) + n) % n;
    double sign = facts->secondary[place] == '1' ? -1 : 1;

    if (s->seed && facts->symbol_periods) {
        uint64_t z = s->seed + (uint64_t)(floor_div(period, facts->symbol_periods)) * UINT64_C(0x9E3779B97F4A7C15);
        z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
        sign *= (z >> 40) & 1 ? 1 : -1;
    }
    return sign;
}

/* The autocorrelation of a chip, from the interface documents' formulas: BPSK is a triangle; E1 is sqrt(10/11) BOC(1,1)
 * +- sqrt(1/11) BOC(6,1), of levels that change every twelfth of a chip. */
static inline double autocorrelation(enum gnss_signal signal, double chips)
{
    double x = fabs(chips) * 12, at[2] = {0, 0}, level[12];
    const int whole = (int)floor(x);

    if (fabs(chips) >= 1)
        return 0;
    if (signal != GNSS_E1B && signal != GNSS_E1C)
        return 1 - fabs(chips);
    for (int i = 0; i < 12; i++)
        level[i] =
            (i < 6 ? 1 : -1) * sqrt(10 / 11.0) + (i % 2 ? -1 : 1) * (signal == GNSS_E1B ? 1 : -1) * sqrt(1 / 11.0);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i + whole + k < 12; i++)
            at[k] += level[i] * level[i + whole + k] / 12;
    return at[0] + (x - whole) * (at[1] - at[0]);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static inline double gauss(void)
{
    static double spare;
    static bool has_spare;
    double u, v, w;

    if (has_spare) {
        has_spare = false;
        return spare;
    }
    do {
        u = random_between(-1, 1);
        v = random_between(-1, 1);
        w = u * u + v * v;
    } while (w >= 1 || w == 0);
    w = sqrt(-2 * log(w) / w);
    spare = u * w;
    has_spare = true;
    return v * w;
}

/* The taps, and their noise. */
struct taps {
    double chips;                                    /* distance of the taps */
    double root[FGPU_GNSS_N_TAPS][FGPU_GNSS_N_TAPS]; /* Cholesky's, of the noise between taps */
};

static inline void taps_init(struct taps *taps, enum gnss_signal signal, double chips)
{
    const double near = autocorrelation(signal, chips), far = autocorrelation(signal, 2 * chips);
    const double covariance[3][3] = {{1, near, far}, {near, 1, near}, {far, near, 1}};

    *taps = (struct taps){.chips = chips};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j <= i; j++) {
            double sum = covariance[i][j];
            for (int k = 0; k < j; k++)
                sum -= taps->root[i][k] * taps->root[j][k];
            taps->root[i][j] = i == j ? sqrt(sum) : sum / taps->root[j][j];
        }
}

/* The sums of a piece whose sample 0 meets the antenna's sample 'first'.  'strength' multiplies the amplitude, and
 * 'noise' the noise's. */
static inline void make_sums(const struct satellite *s, const struct taps *taps, const struct gnss_piece *piece,
                             int64_t first, uint32_t n_present, double strength, double noise,
                             int64_t sums[FGPU_GNSS_N_TAPS][N_POLS][2])
{
    double turns, hz, chips, x[3], amplitude, angle;

    replica_error(s, piece, first, &turns, &hz, &chips);
    x[0] = M_PI * hz * piece->n_samples / SAMPLE_RATE_HZ;
    amplitude = n_present * SIGMA * (fabs(x[0]) < 1e-9 ? 1 : sin(x[0]) / x[0]) / sqrt(SAMPLE_RATE_HZ);
    amplitude *= strength * sign_at(s, period_at(s, 2 * first + piece->n_samples - 1));
    for (int pol = 0; pol < N_POLS; pol++)
        for (int part = 0; part < 2; part++) {
            for (int i = 0; i < 3; i++)
                x[i] = noise > 0 ? gauss() * noise * SIGMA * sqrt(n_present) : 0;
            angle = 2 * M_PI * (pol * s->pol_turns - turns);
            for (int tap = 0; tap < 3; tap++) {
                double r = autocorrelation(s->signal, chips + (1 - tap) * taps->chips), sum = 0;
                for (int i = 0; i <= tap; i++)
                    sum += taps->root[tap][i] * x[i];
                r *= amplitude * sqrt(2 * s->cn0[pol]) * (part ? sin(angle) : cos(angle));
                sums[tap][pol][part] = llrint(r + sum);
            }
        }
}

#endif
