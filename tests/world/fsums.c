/* fsums.c - the satellite in the digitisers' samples, and the sums that follow from the samples.  See fworld.h.
 *
 * The baseband is computed in double precision, with the filter of design_ddc(); mixer, decimation, quantisation, codes
 * and replicas are this file's own.  Sums of 8-bit samples are exact.  A sample whose exact value is closer to the
 * boundary of two steps than the filter's tolerance may be one step off.  Such samples widen the bound of a sum. */
#include "kernels/ddc/design_ddc.h"
#include "tests/world/fworld.h"
#include "tests/world/sched.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_BASEBAND     (PERIOD * BATCH / SUBSAMPLING) /* samples until the baseband repeats */
#define N_SCALES       4
#define AMPLITUDE      63        /* of a replica's carrier */
#define TOLERANCE      1e-6      /* of the filter, relative to (sum of |weights|) * (largest sample) */
#define MAX_SAMPLE     192.0     /* largest sample of the digitisers */
#define UNSURE_CARRIER (1 << 30) /* 2^-64 turns: error of a record's phase, and of its step over an integration */
#define UNSURE_CODE    (1 << 20) /* 2^-48 chips */
#define LENGTH         ((uint64_t)CODE_CHIPS << 48)
#define CODE_SAMPLES   (SATELLITE_RATE_HZ / 1000) /* of the digitisers, in a code period */
#define LATER_SAMPLES  5                          /* of the digitisers */
#define MAX_GROUPS     64
#define MAX_SLOTS      20
#define MAX_LATE       10

/* ---- Signal ------------------------------------------------------------------------------------------------------ */

/* Writes the C/A code of a satellite (IS-GPS-200, 3.3.2.3): +1 for 0, -1 for 1. */
static void make_code(unsigned prn, int8_t chips[CODE_CHIPS])
{
    static const unsigned taps[][2] = {[7] = {1, 8}, [13] = {6, 7}};
    unsigned g1[11], g2[11];

    for (int i = 1; i <= 10; i++)
        g1[i] = g2[i] = 1;
    for (int k = 0; k < CODE_CHIPS; k++) {
        chips[k] = g1[10] ^ g2[taps[prn][0]] ^ g2[taps[prn][1]] ? -1 : 1;
        unsigned f1 = g1[3] ^ g1[10], f2 = g2[2] ^ g2[3] ^ g2[6] ^ g2[8] ^ g2[9] ^ g2[10];
        memmove(g1 + 2, g1 + 1, 9 * sizeof(*g1));
        memmove(g2 + 2, g2 + 1, 9 * sizeof(*g2));
        g1[1] = f1;
        g2[1] = f2;
    }
}

static const int8_t *code_of(unsigned prn)
{
    static int8_t codes[14][CODE_CHIPS];

    if (codes[prn][0] == 0)
        make_code(prn, codes[prn]);
    return codes[prn];
}

/* The samples repeat after a whole number of code periods.  The satellite's signal is later at the second antenna. */
double sums_true_chips(unsigned ant, double time_samples)
{
    double periods = (time_samples - (ant ? LATER_SAMPLES : 0)) / CODE_SAMPLES - 0.6113;

    return (periods - floor(periods)) * CODE_CHIPS;
}

double sums_true_offset_hz(void)
{
    return 31000; /* a multiple of 500 Hz, because samples repeat after 2 ms */
}

double sums_signal(unsigned ant, unsigned pol, int64_t time)
{
    double turns = (double)(time % (PERIOD * BATCH)) * (0.25 + sums_true_offset_hz() / SATELLITE_RATE_HZ);

    return 20 * code_of(SATELLITE)[(int)sums_true_chips(ant, (double)(time % CODE_SAMPLES))] *
           cos(2 * M_PI * turns + pol + 0.5 * ant);
}

/* ---- 8-bit samples ----------------------------------------------------------------------------------------------- */

static const double scales[N_SCALES] = {1, 0.5, 2, 0.25};

/* A component of a sample, and true if it may be one step off. */
struct step {
    int8_t value;
    bool is_unsure;
};

static struct step steps[N_SCALES][MAX_ANTS][2][N_BASEBAND][2]; /* [re, im] */

static struct step quantise(double value, double error)
{
    double distance = fabs(fabs(value - floor(value)) - 0.5);
    double limited = value > 127 ? 127 : value < -127 ? -127 : value;

    return (struct step){(int8_t)nearbyint(limited), distance < error && fabs(value) < 127.6};
}

static void make_row(unsigned ant, unsigned pol, const float *filter)
{
    static const double complex quarters[] = {1, -I, -1, I};
    double sum = 0;

    for (int k = 0; k < DDC_TAPS; k++)
        sum += fabs((double)filter[k]);
    for (int m = 0; m < N_BASEBAND; m++) {
        double complex value = 0;
        for (int k = 0; k < DDC_TAPS; k++)
            value +=
                (double)filter[k] * model_sample(ant, pol, SUBSAMPLING * m + k) * quarters[(SUBSAMPLING * m + k) % 4];
        for (unsigned i = 0; i < N_SCALES; i++) {
            double error = scales[i] * TOLERANCE * sum * MAX_SAMPLE;
            steps[i][ant][pol][m][0] = quantise(scales[i] * creal(value), error);
            steps[i][ant][pol][m][1] = quantise(scales[i] * cimag(value), error);
        }
    }
}

static void make_steps(void)
{
    static bool is_made;
    float filter[DDC_TAPS];
    const struct design_ddc design = {SUBSAMPLING, DDC_TAPS, 0.005, 0.75};

    if (is_made)
        return;
    if (design_ddc(&design, filter) != 0)
        world_fail("the filter cannot be designed");
    for (unsigned i = 0; i < 2 * MAX_ANTS; i++)
        make_row(i / 2, i % 2, filter);
    is_made = true;
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

/* Consecutive samples of an integration that touch the same packets and are in the same part. */
struct group {
    unsigned first_slot, last_slot; /* packets, counted from the integration's first */
    unsigned part;                  /* counted from the integration's first part with samples */
    uint32_t n;
    double sums[N_SCALES][N_SATELLITE_TAPS][2][2], unsure[N_SCALES][N_SATELLITE_TAPS][2][2];
};

static struct group groups[MAX_GROUPS];
static unsigned n_groups;

/* The levels of a replica's sample. */
struct replica {
    int re, im; /* of the carrier */
    bool is_unsure;
    int chips[N_SATELLITE_TAPS];
    bool is_unsure_chip[N_SATELLITE_TAPS];
};

static struct replica replica_at(const struct integration *g, int64_t offset)
{
    static const int64_t taps[N_SATELLITE_TAPS] = {INT64_C(1) << 46, 0, -(INT64_C(1) << 46)}; /* a quarter of a chip */
    uint64_t phase = g->carrier + (uint64_t)offset * g->carrier_step, rest = phase & ((UINT64_C(1) << 56) - 1);
    double angle = 2 * M_PI * ((double)(phase >> 56) + 0.5) / 256;
    struct replica r = {.re = (int)lround(AMPLITUDE * cos(angle)),
                        .im = (int)lround(AMPLITUDE * sin(angle)),
                        .is_unsure = rest < UNSURE_CARRIER || rest > (UINT64_C(1) << 56) - UNSURE_CARRIER};

    for (unsigned tap = 0; tap < N_SATELLITE_TAPS; tap++) {
        __int128 moved = (__int128)g->code + (__int128)offset * (__int128)g->code_step + taps[tap];
        uint64_t code = (uint64_t)((moved % LENGTH + LENGTH) % LENGTH), part = code & ((UINT64_C(1) << 48) - 1);
        r.chips[tap] = code_of(g->prn)[code >> 48];
        r.is_unsure_chip[tap] = part < UNSURE_CODE || part > (UINT64_C(1) << 48) - UNSURE_CODE;
    }
    return r;
}

/* Adds the products of one sample to a group. */
static void add_sample(const struct integration *g, int64_t sample, struct group *group)
{
    const struct replica r = replica_at(g, sample - g->middle);
    int64_t at = (sample % N_BASEBAND + N_BASEBAND) % N_BASEBAND;
    int sign = g->is_inverted ? -1 : 1;

    group->n++;
    for (unsigned i = 0; i < N_SCALES; i++)
        for (unsigned pol = 0; pol < 2; pol++) {
            const struct step *x = steps[i][g->ant][pol][at];
            int re = x[0].value, im = sign * x[1].value;
            double total = abs(re) + abs(im);
            for (unsigned tap = 0; tap < N_SATELLITE_TAPS; tap++) {
                double *sums = group->sums[i][tap][pol], *unsure = group->unsure[i][tap][pol];
                sums[0] += r.chips[tap] * (re * r.re + im * r.im);
                sums[1] += r.chips[tap] * (im * r.re - re * r.im);
                double more = r.is_unsure ? 3 * total : 0;
                more += r.is_unsure_chip[tap] ? 2 * AMPLITUDE * total : 0;
                unsure[0] += more + (x[0].is_unsure ? abs(r.re) : 0) + (x[1].is_unsure ? abs(r.im) : 0);
                unsure[1] += more + (x[1].is_unsure ? abs(r.re) : 0) + (x[0].is_unsure ? abs(r.im) : 0);
            }
        }
}

static void make_groups(const struct integration *g)
{
    int64_t first_packet = g->first * SUBSAMPLING / PACKET;
    unsigned part = 0, n_missing = 0;

    n_groups = 0;
    for (int64_t sample = g->first; sample < g->end; sample++) {
        int64_t time = sample * SUBSAMPLING;
        unsigned from = (unsigned)(time / PACKET - first_packet);
        unsigned to = (unsigned)((time + DDC_TAPS - 1) / PACKET - first_packet);
        while (part + 1 < g->n_parts && sample >= g->parts[part + 1].first)
            n_missing += g->parts[part++].is_missing;
        if (g->parts[part].is_missing)
            continue;
        struct group *group = &groups[n_groups > 0 ? n_groups - 1 : 0];
        if (n_groups == 0 || group->first_slot != from || group->last_slot != to || group->part != part - n_missing) {
            if (n_groups == MAX_GROUPS || to >= MAX_SLOTS)
                world_fail("an integration has too many packets");
            group = &groups[n_groups++];
            *group = (struct group){.first_slot = from, .last_slot = to, .part = part - n_missing};
        }
        add_sample(g, sample, group);
    }
}

/* Returns true if the sums of a polarisation are right for the present packets and for these scales of the parts. */
static bool agrees(unsigned present, unsigned pol, const unsigned scale_of[], double found[N_SATELLITE_TAPS][2][2])
{
    for (unsigned k = 0; k < 2 * N_SATELLITE_TAPS; k++) {
        double sum = 0, unsure = 1e-9;
        for (const struct group *group = groups; group < groups + n_groups; group++) {
            unsigned i = scale_of[group->part];
            if (!(present >> group->first_slot & present >> group->last_slot & 1))
                continue;
            sum += group->sums[i][k / 2][pol][k % 2] / scales[i];
            unsure += group->unsure[i][k / 2][pol][k % 2] / scales[i];
        }
        if (fabs(found[k / 2][pol][k % 2] - sum) > unsure)
            return false;
    }
    return true;
}

/* Finds the scales of the integration's parts.  The scale changes by a factor of 2 between rounds. */
static bool find_scales(unsigned present, unsigned pol, double found[N_SATELLITE_TAPS][2][2],
                        unsigned scale_of[MAX_PARTS])
{
    unsigned n_parts = groups[n_groups - 1].part + 1;

    for (unsigned choice = 0; choice < 1U << (2 * n_parts); choice++) {
        bool is_possible = true;
        for (unsigned i = 0; i < n_parts; i++) {
            scale_of[i] = choice >> (2 * i) & 3;
            double ratio = i > 0 ? scales[scale_of[i]] / scales[scale_of[i - 1]] : 1;
            is_possible &= ratio <= 2 && ratio >= 0.5;
        }
        if (is_possible && agrees(present, pol, scale_of, found))
            return true;
    }
    return false;
}

static bool is_right(unsigned present, double found[N_SATELLITE_TAPS][2][2])
{
    unsigned scale_of[MAX_PARTS];

    for (unsigned pol = 0; pol < 2; pol++) {
        if (!find_scales(present, pol, found, scale_of))
            return false;
        world_note(scale_of[0] == 0 ? "satellites: sums of samples" : "satellites: sums of scaled samples");
        for (unsigned i = 1; i <= groups[n_groups - 1].part; i++)
            if (scale_of[i] != scale_of[i - 1])
                world_note("satellites: the scale changes within an integration");
    }
    return true;
}

static uint32_t count_present(unsigned present)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < n_groups; i++)
        if (present >> groups[i].first_slot & present >> groups[i].last_slot & 1)
            n += groups[i].n;
    return n;
}

/* Returns true if few packets or consecutive packets are missing, or few are present. */
static bool is_likely(unsigned choice, unsigned n)
{
    unsigned missing = ~choice & ((1U << n) - 1);

    return __builtin_popcount(choice) <= 3 || __builtin_popcount(missing) <= 3 ||
           (missing & (missing + (missing & -missing))) == 0;
}

bool sums_are_zero(double found[N_SATELLITE_TAPS][2][2])
{
    for (unsigned k = 0; k < 4 * N_SATELLITE_TAPS; k++)
        if (found[k / 4][k / 2 % 2][k % 2] != 0)
            return false;
    return true;
}

bool sums_match(const struct integration *g, double found[N_SATELLITE_TAPS][2][2])
{
    unsigned unsure[MAX_SLOTS], n_unsure = 0, sure = 0;
    int64_t first_packet = g->first * SUBSAMPLING / PACKET;

    make_steps();
    make_groups(g);
    if (n_groups == 0)
        return g->n_present == 0 && sums_are_zero(found);
    for (unsigned slot = 0; slot <= groups[n_groups - 1].last_slot; slot++) {
        enum presence presence = judge_presence(g->ant, first_packet + slot);
        sure |= presence == PRESENT ? 1U << slot : 0;
        if (presence == UNSURE)
            unsure[n_unsure++] = slot;
        if (presence == SUSPECT) {
            world_note("satellites: sums of suspect samples");
            return true;
        }
    }
    for (unsigned choice = 0; choice < 1U << n_unsure; choice++) {
        unsigned present = sure;
        if (n_unsure > MAX_LATE && !is_likely(choice, n_unsure))
            continue;
        for (unsigned i = 0; i < n_unsure; i++)
            present |= (choice >> i & 1) << unsure[i];
        if (count_present(present) == g->n_present && is_right(present, found))
            return true;
    }
    if (n_unsure <= MAX_LATE)
        return false;
    world_note("satellites: sums are not judged, because too many packets may be missing");
    return true;
}
