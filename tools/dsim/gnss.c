/* gnss.c - computes the signals of satellites for dsim/live.c, while heaps are sent. */
#include "tools/dsim/gnss.h"

#include "common/base/why.h"
#include "kernels/gnss/gnss_codes.h"
#include "kernels/gnss/gnss_phase.h"
#include "kernels/util/clones.h"
#include "kernels/util/philox.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENT_BITS     12 /* log2 of the number of samples in a segment, in which the frequencies are constant */
#define SEGMENT_SAMPLES  (INT64_C(1) << SEGMENT_BITS)
#define MAX_POSITION     (INT64_C(1) << 59) /* at most 2^66 units (4 sub-chips) per sample, so phases are < 2^127 */
#define MAX_TURNS        0x1p61L
#define MAX_CODE_STEP    3.0 /* greatest code_rate in sub-chips per sample; with Doppler and tracks, the limit is 4 */
#define UNITS_PER_TURN   0x1p64L
#define BITS_PER_COUNTER 128

struct dsim_gnss {
    const struct gnss_signal_facts *facts;
    size_t n_secondary;
    int64_t start_samples; /* T = 0 is at the sample start_samples + start_fraction */
    long double start_fraction;
    long double carrier_rate, code_rate; /* carrier_rate in turns per sample, code_rate in sub-chips per sample, both
                                          * without Doppler */
    __int128 carrier_step, code_step;    /* carrier_rate modulo one turn, and code_rate, in units of 2^-64 */
    long double doppler, doppler_rate;   /* doppler in turns per sample; doppler_rate is its change per sample */
    long double subchips_per_turn;       /* ratio of the code's Doppler (sub-chips) to the carrier's Doppler (turns) */
    long double phase_turns;
    double amplitude;
    uint32_t n_subchips; /* number of sub-chips in 'table', which holds one code period */
    int8_t table[];
};

/* Phases at a sample, in units of 2^-64 turns (carrier) and 2^-64 sub-chips (code).  The phases are not wrapped. */
struct phases {
    __int128 carrier, code;
};

/* A run of SEGMENT_SAMPLES samples, in which both phases are linear functions of the sample. */
struct segment {
    uint64_t carrier, carrier_step; /* 2^-64 turns */
    uint64_t code, code_step;       /* in the format of gnss_phase.h */
    int64_t code_period;            /* number of the code period at the first sample */
};

/* ---- Functions that run before the transmission ------------------------------------------------------------------ */

static double subchip_rate_hz(const struct gnss_signal_facts *facts)
{
    return facts->chip_rate_hz * gnss_subchips(facts->subcarrier);
}

int dsim_gnss_check(const struct dsim_program *program, double adc_sample_rate_hz, const char *code_file, char *why,
                    size_t why_bytes)
{
    for (size_t i = 0; i < program->n_nodes; i++) {
        if (program->nodes[i].op != DSIM_GNSS)
            continue;
        const struct gnss_signal_facts *facts = gnss_signal_facts(program->nodes[i].satellite.signal);
        double min_hz = subchip_rate_hz(facts) / MAX_CODE_STEP;
        if (adc_sample_rate_hz < min_hz)
            return why_fail(-EINVAL, why, why_bytes, "gnss(%s, ...) needs an adc_sample_rate of at least %.0f Hz",
                            facts->name, min_hz);
        if (facts->is_in_memory && !code_file)
            return why_fail(-EINVAL, why, why_bytes, "gnss(%s, ...) needs a file of codes, signals.code_file",
                            facts->name);
    }
    return 0;
}

static void set_rates(struct dsim_gnss *gnss, const struct dsim_node *node, double rate_hz)
{
    const struct dsim_satellite *satellite = &node->satellite;

    gnss->carrier_rate = (long double)node->frequency_hz / rate_hz;
    gnss->carrier_step = (__int128)rintl((long double)fmod(node->frequency_hz, rate_hz) / rate_hz * UNITS_PER_TURN);
    gnss->code_rate = (long double)subchip_rate_hz(gnss->facts) / rate_hz;
    gnss->code_step = (__int128)rintl(gnss->code_rate * UNITS_PER_TURN);
    gnss->doppler = (long double)satellite->doppler_hz / rate_hz;
    gnss->doppler_rate = (long double)satellite->doppler_rate_hz_s / rate_hz / rate_hz;
    gnss->subchips_per_turn = (long double)subchip_rate_hz(gnss->facts) / gnss->facts->carrier_hz;
    gnss->phase_turns = satellite->signal == GNSS_L5Q ? -0.25L : 0;
}

static double mean_square(const int8_t *table, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += table[i] * table[i];
    return sum / (double)n;
}

static int read_code(const char *path, const struct dsim_satellite *satellite, int8_t *chips, char *why,
                     size_t why_bytes)
{
    char reason[400];
    int err = gnss_code_read(path, satellite->signal, (unsigned)satellite->prn, chips, reason, sizeof(reason));

    return err ? why_fail(err, why, why_bytes, "signals.code_file: %s", reason) : 0;
}

static int compute(struct dsim_node *node, double rate_hz, const char *code_file, char *why, size_t why_bytes)
{
    const struct dsim_satellite *satellite = &node->satellite;
    const struct gnss_signal_facts *facts = gnss_signal_facts(satellite->signal);
    uint32_t n_subchips = facts->n_chips * gnss_subchips(facts->subcarrier);
    struct dsim_gnss *gnss = calloc(1, sizeof(*gnss) + n_subchips);
    int8_t chips[GNSS_MAX_CHIPS];
    int err = 0;

    node->gnss = gnss; /* dsim_program_free() frees 'gnss' */
    if (!gnss)
        return why_out_of_memory(why, why_bytes);
    if (facts->is_in_memory)
        err = read_code(code_file, satellite, chips, why, why_bytes);
    else
        gnss_code_generate(satellite->signal, (unsigned)satellite->prn, chips);
    if (err)
        return err;
    gnss_code_table(chips, facts->n_chips, facts->subcarrier, gnss->table);
    gnss->facts = facts;
    gnss->n_secondary = strlen(facts->secondary);
    gnss->n_subchips = n_subchips;
    gnss->start_samples = (int64_t)floor(satellite->delay_samples);
    gnss->start_fraction = satellite->delay_samples - floor(satellite->delay_samples);
    gnss->amplitude = 2 * node->amplitude *
                      sqrt(pow(10, satellite->cn0_db_hz / 10) / (rate_hz * mean_square(gnss->table, n_subchips)));
    set_rates(gnss, node, rate_hz);
    return 0;
}

int dsim_gnss_compute(struct dsim_program *program, double adc_sample_rate_hz, const char *code_file, char *why,
                      size_t why_bytes)
{
    int err = dsim_gnss_check(program, adc_sample_rate_hz, code_file, why, why_bytes);

    for (size_t i = 0; i < program->n_nodes && !err; i++)
        if (program->nodes[i].op == DSIM_GNSS)
            err = compute(&program->nodes[i], adc_sample_rate_hz, code_file, why, why_bytes);
    return err;
}

/* ---- Phases ------------------------------------------------------------------------------------------------------ */

/* Computes the phases at 'timestamp', which is 'position' samples after the start.  A part of each phase is
 * proportional to 'position'.  This part is computed in integers, so this part is exact.  Returns false if the phases
 * are out of range. */
static bool phases_at(const struct dsim_gnss *gnss, const struct dsim_node *track, int64_t timestamp, int64_t position,
                      struct phases *phases)
{
    long double late = gnss->start_fraction;

    if (track)
        late += (long double)track->track_samples + (long double)track->track_rate * (long double)timestamp;
    long double samples = (long double)position - late;
    long double theta = samples * (gnss->doppler + samples * gnss->doppler_rate / 2);
    long double carrier = theta + gnss->phase_turns - late * gnss->carrier_rate;
    long double code = theta * gnss->subchips_per_turn - late * gnss->code_rate;
    if (position < -MAX_POSITION || position > MAX_POSITION || fabsl(carrier) > MAX_TURNS || fabsl(code) > MAX_TURNS)
        return false;
    phases->carrier = position * gnss->carrier_step + (__int128)(carrier * UNITS_PER_TURN);
    phases->code = position * gnss->code_step + (__int128)(code * UNITS_PER_TURN);
    return true;
}

/* Computes the segment whose first sample is 'position' samples after the start.  Returns false if the signal is 0 in
 * this segment. */
static bool segment_at(const struct dsim_gnss *gnss, const struct dsim_node *track, int64_t timestamp, int64_t position,
                       struct segment *segment)
{
    const int step_bits = 64 - GNSS_CODE_BITS + SEGMENT_BITS;
    struct phases begin, end;

    if (!phases_at(gnss, track, timestamp, position, &begin) ||
        !phases_at(gnss, track, timestamp + SEGMENT_SAMPLES, position + SEGMENT_SAMPLES, &end))
        return false;
    __int128 advance = end.code - begin.code;
    if (advance < 0 || advance >> step_bits >= INT64_C(1) << GNSS_STEP_BITS)
        return false;
    int64_t subchips = (int64_t)(begin.code >> 64), within = subchips % gnss->n_subchips;
    within += within < 0 ? gnss->n_subchips : 0;
    segment->carrier = (uint64_t)begin.carrier;
    segment->carrier_step = (uint64_t)((end.carrier - begin.carrier) >> SEGMENT_BITS);
    segment->code = (uint64_t)within << GNSS_CODE_BITS | (uint64_t)begin.code >> (64 - GNSS_CODE_BITS);
    segment->code_step = (uint64_t)(advance >> step_bits);
    segment->code_period = (subchips - within) / gnss->n_subchips;
    return true;
}

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

static int64_t divide_down(int64_t value, int64_t divisor)
{
    return value / divisor - (value % divisor < 0);
}

/* Returns the sign of a code period, +1 or -1: the secondary code's chip times the data symbol. */
static double sign_of(const struct dsim_gnss *gnss, const struct dsim_node *node, int64_t code_period)
{
    int64_t n = (int64_t)gnss->n_secondary, chip = code_period - divide_down(code_period, n) * n;
    bool is_negative = gnss->facts->secondary[chip] == '1';

    if (node->has_seed) {
        int64_t symbol = divide_down(code_period, gnss->facts->symbol_periods);
        uint64_t counter = (uint64_t)divide_down(symbol, BITS_PER_COUNTER);
        uint32_t place = (uint32_t)((uint64_t)symbol % BITS_PER_COUNTER), words[4];
        philox4x32((const uint32_t[4]){(uint32_t)counter, (uint32_t)(counter >> 32), 0, DSIM_COUNTER_GNSS},
                   (const uint32_t[2]){(uint32_t)node->seed, (uint32_t)(node->seed >> 32)}, words);
        is_negative ^= words[place / 32] >> place % 32 & 1;
    }
    return is_negative ? -1 : 1;
}

/* Returns cos(2 pi turns), -1/2 <= turns <= 1/2, by the series of the sine, with an error of at most 1e-11. */
static inline double cosine(double turns)
{
    double x = 2 * M_PI * (0.25 - fabs(turns)), z = x * x;

    return x *
           (1 -
            z / 6 *
                (1 - z * (1 / 20.0) *
                         (1 - z * (1 / 42.0) *
                                  (1 - z * (1 / 72.0) *
                                           (1 - z * (1 / 110.0) * (1 - z * (1 / 156.0) * (1 - z * (1 / 210.0))))))));
}

/* Computes samples of one code period.  The first loop computes the levels without vector instructions.  The second
 * loop computes the carrier with vector instructions. */
KERNEL_CLONES
static void evaluate_run(const int8_t *table, double amplitude, const struct segment *from, size_t n_samples,
                         double *restrict values)
{
    uint64_t code = from->code, code_step = from->code_step;
    uint64_t carrier = from->carrier, carrier_step = from->carrier_step;

    for (size_t i = 0; i < n_samples; i++)
        values[i] = table[(code + i * code_step) >> GNSS_CODE_BITS];
    for (size_t i = 0; i < n_samples; i++) {
        int32_t phase = (int32_t)(uint32_t)((carrier + i * carrier_step) >> 32);
        values[i] *= amplitude * cosine(phase * 0x1p-32);
    }
}

/* Moves the beginning of a segment 'n' samples later. */
static void segment_skip(struct segment *segment, uint64_t length, uint64_t n)
{
    unsigned __int128 code = (unsigned __int128)n * segment->code_step + segment->code;

    segment->code = (uint64_t)(code % length);
    segment->code_period += (int64_t)(code / length);
    segment->carrier += n * segment->carrier_step;
}

static void evaluate_segment(const struct dsim_node *node, struct segment *segment, uint64_t n_samples, double *values)
{
    const struct dsim_gnss *gnss = node->gnss;
    const uint64_t length = gnss_code_length(gnss->n_subchips);

    for (uint64_t n; n_samples > 0; n_samples -= n, values += n) {
        n = segment->code_step > 0 ? (length - 1 - segment->code) / segment->code_step + 1 : n_samples;
        n = n < n_samples ? n : n_samples;
        evaluate_run(gnss->table, gnss->amplitude * sign_of(gnss, node, segment->code_period), segment, n, values);
        segment_skip(segment, length, n);
    }
}

void dsim_gnss_evaluate(const struct dsim_node *node, const struct dsim_shift *shift, int64_t timestamp,
                        size_t n_samples, double *values)
{
    const struct dsim_gnss *gnss = node->gnss;
    struct segment segment;

    assert(gnss && timestamp >= 0);
    for (size_t done = 0, n; done < n_samples; done += n) {
        int64_t t = timestamp + (int64_t)done, position = t - shift->delay_samples - gnss->start_samples;
        int64_t skipped = position - divide_down(position, SEGMENT_SAMPLES) * SEGMENT_SAMPLES;
        n = n_samples - done < (size_t)(SEGMENT_SAMPLES - skipped) ? n_samples - done
                                                                   : (size_t)(SEGMENT_SAMPLES - skipped);
        if (segment_at(gnss, shift->track, t - skipped, position - skipped, &segment)) {
            segment_skip(&segment, gnss_code_length(gnss->n_subchips), (uint64_t)skipped);
            evaluate_segment(node, &segment, n, values + done);
        } else {
            memset(values + done, 0, n * sizeof(*values));
        }
    }
}
