/* check_gnss_acquire - satellites in noise, made sample by sample in double precision, are found at their true places.
 * Powers of a whole search are compared with direct sums, and thresholds with scipy's gamma distribution.  The test
 * counts false alarms.  dsim's gnss() is a second source of signals.  All tests run on the device under test.  Some
 * tests also run with CUDA variants on the emulated device. */
#include "kernels/gnss/gnss_acquire.h"

#include "common/base/units.h"
#include "tests/unit/device_under_test.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"
#include "tools/dsim/gnss.h"
#include "tools/dsim/live.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOISE_RMS 16 /* of a component, in steps */

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

/* One satellite, in both polarisations. */
struct sky {
    const struct gnss_signal_facts *facts;
    double sample_rate_hz, carrier_hz;
    bool is_inverted;
    double cn0_db_hz, doppler_hz, chip; /* the last of sample 0 */
    bool has_data;                      /* of E1B, alike in two periods and then the other way round in two */
    double gains[N_POLS];
};

struct samples {
    int8_t *rows;
    uint64_t pitch;
};

static double gaussian(void)
{
    static double kept;
    static bool is_kept;
    double radius, angle;

    is_kept = !is_kept;
    if (!is_kept)
        return kept;
    radius = sqrt(-2 * log(random_between(0x1p-60, 1)));
    angle = random_between(0, 2 * M_PI);
    kept = radius * sin(angle);
    return radius * cos(angle);
}

static int8_t step_of(double v)
{
    return (int8_t)lrint(fmax(fmin(v, 127), -127));
}

/* Rows whose samples are all as large as can be, until they are written. */
static void samples_init(struct samples *s, size_t n_samples)
{
    s->pitch = n_samples + random_below(7);
    s->rows = malloc(2 * N_POLS * s->pitch);
    memset(s->rows, -128, 2 * N_POLS * s->pitch);
}

/* The level of a chip, with the sub-carrier BOC(1,1) or none. */
static double level_at(const struct gnss_signal_facts *facts, const int8_t *chips, double chip)
{
    double within = fmod(chip, facts->n_chips), whole;

    within += within < 0 ? facts->n_chips : 0;
    double fraction = modf(within, &whole);
    int level = chips[(size_t)whole % facts->n_chips];
    return facts->subcarrier == GNSS_PLAIN || fraction < 0.5 ? level : -level;
}

/* Sample i of the rows has the time of sample first + i. */
static void receive(const struct sky *sky, const int8_t *chips, int64_t first, size_t n, struct samples *s)
{
    double density = 2.0 * NOISE_RMS * NOISE_RMS / sky->sample_rate_hz;
    double amplitude = sqrt(pow(10, sky->cn0_db_hz / 10) * density);
    double frequency = sky->carrier_hz + (sky->is_inverted ? -1 : 1) * sky->doppler_hz;
    double chip_rate = sky->facts->chip_rate_hz * (1 + sky->doppler_hz / sky->facts->carrier_hz);
    double turns[N_POLS] = {random_between(0, 1), random_between(0, 1)};

    for (size_t i = 0; i < n; i++) {
        double t = (double)(first + (int64_t)i) / sky->sample_rate_hz, angle = 2 * M_PI * fmod(frequency * t, 1);
        double data = sky->has_data && (int64_t)floor(t / 4e-3) & 2 ? -1 : 1;
        double level = data * amplitude * level_at(sky->facts, chips, sky->chip + chip_rate * t);
        for (size_t pol = 0; pol < N_POLS; pol++) {
            int8_t *x = s->rows + 2 * (pol * s->pitch + i);
            double in_pol = angle + 2 * M_PI * turns[pol];
            x[0] = step_of(sky->gains[pol] * (level * cos(in_pol) + NOISE_RMS * gaussian()));
            x[1] = step_of(sky->gains[pol] * (level * sin(in_pol) + NOISE_RMS * gaussian()));
        }
    }
}

/* ---- A search ---------------------------------------------------------------------------------------------------- */

static const struct gnss_acquire_config usual = {.min_doppler_hz = -10e3, .max_doppler_hz = 10e3, .false_alarm = 1e-3};

struct search {
    struct gnss_acquire_config config;
    int8_t chips[GNSS_MAX_CHIPS], table[GNSS_MAX_SUBCHIPS];
    struct device *device;
    struct device_stream *stream;
    struct gnss_acquirer *acquirer;
    struct gnss_acquire *acquire;
    size_t n_block;
};

/* Creates the objects for the search 's->config' and for smaller searches, and begins the search. */
static void search_begin(struct search *s)
{
    struct gnss_acquire_limits limits = {0};

    gnss_acquire_limits_add(&limits, s->config.facts, s->config.n_periods,
                            s->config.max_doppler_hz - s->config.min_doppler_hz);
    ck_assert_int_eq(device_stream_create(s->device, "search", &s->stream), 0);
    ck_assert_int_eq(gnss_acquirer_create(s->stream, &limits, &s->acquirer), 0);
    ck_assert_int_eq(gnss_acquire_create(s->acquirer, &limits, &s->acquire), 0);
    gnss_acquire_begin(s->acquire, &s->config);
    s->n_block = gnss_acquire_block_samples(s->acquire);
}

/* Opens a device, and begins a search for random chips.  'cuda': with CUDA variants.  Returns false, after a message, if
 * CUDA variants cannot be tested here. */
static bool search_open(struct search *s, const struct sky *sky, bool cuda, struct gnss_acquire_config config)
{
    enum gnss_subcarrier subcarrier = sky->facts->subcarrier == GNSS_PLAIN ? GNSS_PLAIN : GNSS_BOC;

    for (size_t i = 0; i < sky->facts->n_chips; i++)
        s->chips[i] = random_below(2) ? 1 : -1;
    gnss_code_table(s->chips, sky->facts->n_chips, subcarrier, s->table);
    s->config = config;
    s->config.facts = sky->facts;
    s->config.table = s->table;
    s->config.n_subchips = sky->facts->n_chips * gnss_subchips(subcarrier);
    s->config.sample_rate_hz = sky->sample_rate_hz;
    s->config.carrier_hz = sky->carrier_hz;
    s->config.is_inverted = sky->is_inverted;
    s->device = test_open_variant(cuda, 1);
    if (!s->device)
        return false;
    search_begin(s);
    memset(s->table, 99, sizeof(s->table)); /* nobody reads it any more */
    double exact = s->config.n_periods * sky->facts->n_chips / sky->facts->chip_rate_hz * sky->sample_rate_hz;
    ck_assert(fabs((double)s->n_block - exact) < 1);
    return true;
}

static void search_close(struct search *s)
{
    gnss_acquire_destroy(s->acquire);
    gnss_acquirer_destroy(s->acquirer);
    device_stream_destroy(s->stream);
    device_close(s->device);
}

/* Adds a block of samples, which are in host memory. */
static void search_add(struct search *s, const struct samples *samples, int64_t first)
{
    const size_t bytes = 2 * (samples->pitch + s->n_block);
    int8_t *uploaded = device_alloc(s->device, bytes);

    ck_assert_ptr_nonnull(uploaded);
    test_write(s->stream, uploaded, samples->rows, bytes);
    gnss_acquire_add(s->acquire, uploaded, samples->pitch, first);
    device_stream_wait(s->stream);
    device_free(s->device, uploaded);
}

static struct gnss_acquired search_find(struct search *s)
{
    gnss_acquire_finish(s->acquire);
    device_stream_wait(s->stream);
    return gnss_acquire_find(s->acquire);
}

/* Receives a block and adds it, 'n_blocks' times with 'gap' samples between them. */
static void search_blocks(struct search *s, const struct sky *sky, size_t n_blocks, size_t gap)
{
    struct samples samples;

    samples_init(&samples, s->n_block);
    for (size_t i = 0; i < n_blocks; i++) {
        int64_t first = (int64_t)(i * (s->n_block + gap));
        receive(sky, s->chips, first, s->n_block, &samples);
        search_add(s, &samples, first);
    }
    free(samples.rows);
}

static double doppler_step_hz(const struct search *s)
{
    return s->config.facts->chip_rate_hz / s->config.facts->n_chips / s->config.n_periods / 2;
}

/* By how much the code phase found is off, in chips. */
static double chips_off(const struct search *s, uint64_t code_phase, double chip)
{
    double n_chips = s->config.facts->n_chips;
    double off = ldexp((double)code_phase, -48) * n_chips / s->config.n_subchips - chip;

    return remainder(off, n_chips);
}

static void check_found(const struct search *s, const struct gnss_acquired *found, double chip, double doppler_hz)
{
    double off_chips = chips_off(s, found->code_phase, chip), off_hz = found->doppler_hz - doppler_hz;

    ck_assert_msg(found->is_found, "peak %g, threshold %g", found->peak, found->threshold);
    ck_assert_msg(fabs(off_chips) < 0.2, "%g chips off", off_chips);
    ck_assert_msg(fabs(off_hz) < doppler_step_hz(s) / 2, "%g Hz off, with steps of %g", off_hz, doppler_step_hz(s));
}

/* ---- Satellites -------------------------------------------------------------------------------------------------- */

static const struct {
    enum gnss_signal signal;
    double sample_rate_hz, carrier_hz;
    bool is_inverted;
    double cn0_db_hz, max_doppler_hz;
    uint32_t n_periods;
    size_t n_blocks, gap;
    double min_loss_db, max_loss_db; /* of the signal at the peak */
} skies[] = {
    {GNSS_L1CA, 4.0921e6, 0, false, 45, 10e3, 1, 8, 0, 0.2, 2.2},
    {GNSS_L1CA, 26.75e6, -3.1e6, false, 45, 10e3, 1, 4, 0, 0.2, 2.2},
    {GNSS_L1CA, 26.75e6, 5.3e6, true, 45, 10e3, 1, 4, 333333, 0.2, 2.2},
    {GNSS_L1CA, 4.092e6, 1e6, false, 38, 5e3, 5, 4, 12345, 0.2, 2.2},
    {GNSS_L1CA, 2.5e6, 0.1e6, true, 45, 10e3, 2, 3, 77, 0.2, 4},
    {GNSS_E1C, 8.3e6, -1e6, false, 42, 2e3, 1, 4, 0, 0.2, 4},
    {GNSS_L5Q, 26.75e6, 2e6, false, 47, 2e3, 1, 4, 9999, 0.1, 2.2},
    {GNSS_L1CA, 2.6e6, 0.3e6, false, 30, 500, 20, 50, 0, 0.2, 2.2},
};

/* The ends of the range, too. */
static double random_doppler(double max_hz)
{
    return random_below(4) ? random_between(-max_hz, max_hz) : random_below(2) ? max_hz : -max_hz;
}

/* The last case is the first sky with CUDA variants. */
TEST(finds, .end = ARRAY_LEN(skies) + 1)
{
    const bool cuda = _i == ARRAY_LEN(skies);
    const size_t at = cuda ? 0 : (size_t)_i;
    static struct search s;
    struct gnss_acquire_config config = usual;
    const struct gnss_signal_facts *facts = gnss_signal_facts(skies[at].signal);
    struct sky sky = {.facts = facts,
                      .sample_rate_hz = skies[at].sample_rate_hz,
                      .carrier_hz = skies[at].carrier_hz,
                      .is_inverted = skies[at].is_inverted,
                      .cn0_db_hz = skies[at].cn0_db_hz,
                      .doppler_hz = random_doppler(skies[at].max_doppler_hz),
                      .chip = random_between(0, facts->n_chips),
                      .gains = {1, random_between(0.3, 2)}};

    config.n_periods = skies[at].n_periods;
    config.max_doppler_hz = skies[at].max_doppler_hz;
    config.min_doppler_hz = -config.max_doppler_hz;
    if (!search_open(&s, &sky, cuda, config))
        return;
    search_blocks(&s, &sky, skies[at].n_blocks, skies[at].gap);
    struct gnss_acquired found = search_find(&s);
    check_found(&s, &found, sky.chip, sky.doppler_hz);
    double n = (double)(N_POLS * skies[at].n_blocks);
    double ratio = pow(10, sky.cn0_db_hz / 10) * (double)s.n_block / sky.sample_rate_hz;
    double deviation = 10 / M_LN10 * sqrt((1 + 2 * ratio) / n) / ratio; /* of dB, of the mean of n powers */
    double loss_db = 10 * log10(ratio / (found.peak - 1));
    ck_assert_msg(loss_db > skies[at].min_loss_db - 4 * deviation && loss_db < skies[at].max_loss_db + 4 * deviation,
                  "loss of %g dB +- %g", loss_db, deviation);
    search_close(&s);
}

/* A strong signal: samples at the begins of bins or anywhere in the bins, and blocks so far apart that the Doppler moves
 * the code by chips. */
TEST(accurate, .end = 3)
{
    static const double max_off_chips[] = {0.08, 0.12, 0.04};
    static struct search s;
    struct sky sky = {.facts = gnss_signal_facts(GNSS_L1CA),
                      .sample_rate_hz = _i < 2 ? 4.096e6 : 4.13e6,
                      .cn0_db_hz = 60,
                      .doppler_hz = _i == 1 ? random_between(7e3, 9e3) : random_between(-100, 100),
                      .chip = random_between(0, 1023),
                      .gains = {1, 1}};
    struct gnss_acquire_config config = usual;

    config.n_periods = 1;
    search_open(&s, &sky, false, config);
    search_blocks(&s, &sky, 6, _i == 1 ? 1000000 : 0);
    struct gnss_acquired result = search_find(&s);
    check_found(&s, &result, sky.chip, sky.doppler_hz);
    double off_chips = chips_off(&s, result.code_phase, sky.chip);
    ck_assert_msg(result.peak > 200, "peak %g", result.peak); /* no block has it at another place */
    ck_assert_msg(fabs(off_chips) < max_off_chips[_i], "%g chips off", off_chips);
    search_close(&s);
}

static void check_same(const struct gnss_acquired *a, const struct gnss_acquired *b)
{
    ck_assert(a->is_found == b->is_found && a->code_phase == b->code_phase && a->doppler_hz == b->doppler_hz);
    ck_assert(a->peak == b->peak && a->threshold == b->threshold);
}

/* The same search gives the same result after a restart; without any samples nothing is found. */
TEST(restart, .end = 2)
{
    static struct search s;
    struct sky sky = {.facts = gnss_signal_facts(GNSS_L1CA), .sample_rate_hz = 2.7e6, .cn0_db_hz = 50, .gains = {1, 1}};
    struct gnss_acquired results[2], empty = {0};
    struct samples samples;

    if (!search_open(&s, &sky, _i,
                     (struct gnss_acquire_config){.n_periods = 1, .max_doppler_hz = 600, .false_alarm = 0.01}))
        return;
    samples_init(&samples, s.n_block);
    receive(&sky, s.chips, 0, s.n_block, &samples);
    for (size_t i = 0; i < 2; i++) {
        struct gnss_acquired none = search_find(&s);
        check_same(&none, &empty);
        search_add(&s, &samples, 0);
        results[i] = search_find(&s);
        check_found(&s, &results[i], 0, 0);
        gnss_acquire_restart(s.acquire);
    }
    check_same(&results[0], &results[1]);
    free(samples.rows);
    search_close(&s);
    gnss_acquire_destroy(NULL);
    gnss_acquirer_destroy(NULL);
}

/* Without the other polarisation there are half as many powers, and a satellite is found as well. */
TEST(one_polarisation, .end = N_POLS)
{
    static struct search s;
    struct sky sky = {.facts = gnss_signal_facts(GNSS_L1CA),
                      .sample_rate_hz = 2.7e6,
                      .cn0_db_hz = 48,
                      .doppler_hz = -1234,
                      .chip = random_between(0, 1023)};
    struct gnss_acquire_config config = usual;

    config.n_periods = 1;
    sky.gains[_i] = 1;
    search_open(&s, &sky, false, config);
    search_blocks(&s, &sky, 3, 0);
    struct gnss_acquired result = search_find(&s);
    check_found(&s, &result, sky.chip, sky.doppler_hz);
    ck_assert_double_eq(result.threshold, gnss_acquire_threshold(3, 43 * 4096, config.false_alarm) / 3);
    search_close(&s);
}

/* Data of E1B turn within the blocks: half of them lose what their turn leaves. */
TEST(data)
{
    static struct search s;
    struct sky sky = {.facts = gnss_signal_facts(GNSS_E1B),
                      .sample_rate_hz = 8.3e6,
                      .cn0_db_hz = 42,
                      .doppler_hz = random_between(-600, 600),
                      .chip = random_between(0, 4092),
                      .has_data = true,
                      .gains = {1, 1}};
    struct gnss_acquire_config config = usual;

    config.n_periods = 1;
    config.min_doppler_hz = -600;
    config.max_doppler_hz = 600;
    search_open(&s, &sky, false, config);
    search_blocks(&s, &sky, 8, 12345);
    struct gnss_acquired result = search_find(&s);
    check_found(&s, &result, sky.chip, sky.doppler_hz);
    search_close(&s);
}

/* ---- The model: each cell by a direct sum ------------------------------------------------------------------------ */

#define MODEL_BINS 4096

/* The satellite's carrier at a phase in turns: an entry of the table stands for 1/256 turn. */
static double complex model_carrier(long double turns)
{
    long double angle = 2 * M_PIl * (floorl(256 * turns) + 0.5L) / 256;

    return (double)lrintl(63 * cosl(angle)) + I * (double)lrintl(63 * sinl(angle));
}

/* Adds the powers of a block of L1CA from sample 'first' on, of a polarisation and Doppler. */
static void model_powers(const struct search *s, const int8_t *x, int64_t first, double doppler_hz, double *powers)
{
    const struct gnss_acquire_config *c = &s->config;
    double middle_s = ((double)first + (double)s->n_block / 2) / c->sample_rate_hz;
    long moved = lround(doppler_hz / 1575.42e6 * middle_s * 1000 * MODEL_BINS);
    double complex bins[MODEL_BINS] = {0};
    double replica[MODEL_BINS];

    for (size_t i = 0; i < s->n_block; i++) {
        long double t = (long double)(first + (int64_t)i) / (long double)c->sample_rate_hz, period = floorl(1000 * t);
        size_t bin = (size_t)((1000 * t - period) * MODEL_BINS);
        double turns = (c->is_inverted ? -1 : 1) * doppler_hz * ((double)period + (double)bin / MODEL_BINS) / 1000;
        double complex wiped = (x[2 * i] + I * x[2 * i + 1]) * conj(model_carrier((long double)c->carrier_hz * t));
        bins[bin] += wiped * cexp(-2 * M_PI * I * fmod(turns, 1));
    }
    for (size_t bin = 0; bin < MODEL_BINS; bin++) { /* a bin has at most two chips */
        double begin = bin * 1023.0 / MODEL_BINS, end = (bin + 1) * 1023.0 / MODEL_BINS, edge = floor(end);
        double in_first = edge > begin ? edge - begin : end - begin;
        replica[bin] = (in_first * s->chips[(size_t)begin] + (end - begin - in_first) * s->chips[(size_t)edge % 1023]) /
                       (end - begin);
    }
    for (size_t phase = 0; phase < MODEL_BINS; phase++) {
        double complex sum = 0;
        for (size_t bin = 0; bin < MODEL_BINS; bin++)
            sum += bins[bin] * replica[(bin + phase + (size_t)moved) % MODEL_BINS];
        powers[phase] += creal(sum * conj(sum));
    }
}

#define MODEL_DOPPLERS 3
#define MODEL_BLOCKS   2

/* The largest of all cells, over the noise, of noise alone or with a weak satellite.  Polarisations differ in level. */
TEST(model, .end = 8)
{
    static struct search s;
    static double powers[N_POLS][MODEL_DOPPLERS * MODEL_BINS];
    double means[N_POLS] = {0}, peak = 0;
    struct sky sky = {.facts = gnss_signal_facts(GNSS_L1CA),
                      .sample_rate_hz = random_between(2.1e6, 4e6),
                      .carrier_hz = random_between(-1e6, 1e6),
                      .is_inverted = _i % 2,
                      .cn0_db_hz = _i / 2 % 2 ? 42 : 0,
                      .doppler_hz = 5e4,
                      .chip = random_between(0, 1023),
                      .gains = {1, 0.4}};
    struct gnss_acquire_config config = {.n_periods = 1 + (uint32_t)_i % 2 * 2, .false_alarm = 1e-3};
    int64_t first = (int64_t)random_below(1000000);
    struct samples samples;

    memset(powers, 0, sizeof(powers)); /* the cases may run in one process */
    config.min_doppler_hz = sky.doppler_hz - 100;
    config.max_doppler_hz = config.min_doppler_hz; /* and one more at both ends */
    if (!search_open(&s, &sky, _i >= 4, config))
        return;
    samples_init(&samples, s.n_block);
    for (size_t block = 0; block < MODEL_BLOCKS; block++, first += (int64_t)s.n_block + 1000) {
        receive(&sky, s.chips, first, s.n_block, &samples);
        search_add(&s, &samples, first);
        for (size_t i = 0; i < N_POLS * MODEL_DOPPLERS; i++)
            model_powers(&s, samples.rows + 2 * (i / MODEL_DOPPLERS) * samples.pitch, first,
                         config.min_doppler_hz + ((double)(i % MODEL_DOPPLERS) - 1) * 500 / config.n_periods,
                         powers[i / MODEL_DOPPLERS] + i % MODEL_DOPPLERS * MODEL_BINS);
    }
    for (size_t i = 0; i < MODEL_DOPPLERS * MODEL_BINS; i++)
        for (size_t pol = 0; pol < N_POLS; pol++)
            means[pol] += powers[pol][i] / (MODEL_DOPPLERS * MODEL_BINS);
    for (size_t i = 0; i < MODEL_DOPPLERS * MODEL_BINS; i++)
        peak = fmax(peak, (powers[0][i] / means[0] + powers[1][i] / means[1]) / N_POLS);
    struct gnss_acquired result = search_find(&s);
    ck_assert_msg(fabs(result.peak / peak - 1) < 1e-4, "peak %g, not %g", result.peak, peak);
    free(samples.rows);
    search_close(&s);
}

/* ---- Detection --------------------------------------------------------------------------------------------------- */

/* scipy.stats.gamma.isf(false_alarm / n_cells, n_powers) of scipy 1.17.1. */
static const struct {
    uint64_t n_powers, n_cells;
    double false_alarm, threshold;
} thresholds[] = {
    {1, 1, 0.5, 0.6931471806},     {1, 167936, 1e-3, 18.93909351},  {2, 167936, 1e-2, 19.66494732},
    {8, 20480, 1e-3, 33.01800929}, {20, 2686976, 1e-6, 70.4230747}, {100, 3280896, 1e-3, 174.793561},
    {2000, 100, 0.1, 2141.053931},
};

TEST(threshold, .end = ARRAY_LEN(thresholds))
{
    double found = gnss_acquire_threshold(thresholds[_i].n_powers, thresholds[_i].n_cells, thresholds[_i].false_alarm);

    ck_assert_msg(fabs(found / thresholds[_i].threshold - 1) < 1e-8, "%.10g, not %.10g", found,
                  thresholds[_i].threshold);
}

#define ALARM_SEARCHES    300
#define ALARM_PROBABILITY 0.3

/* The fraction of searches in noise that find something is at most the one stated, and two thirds of it at least. */
TEST(false_alarms, .end = 2)
{
    static struct search s;
    struct sky sky = {.facts = gnss_signal_facts(GNSS_L1CA), .sample_rate_hz = 2.5e6, .gains = {1, 0.5}};
    struct gnss_acquire_config config = {
        .n_periods = 1 + (uint32_t)_i, .min_doppler_hz = -1e3, .max_doppler_hz = 1e3, .false_alarm = ALARM_PROBABILITY};
    size_t n = 0;

    random_state = 1; /* the same samples each time */
    sky.cn0_db_hz = -200;
    search_open(&s, &sky, false, config);
    for (size_t i = 0; i < ALARM_SEARCHES; i++) {
        search_blocks(&s, &sky, 2, 0);
        n += search_find(&s).is_found;
        gnss_acquire_restart(s.acquire);
    }
    ck_assert_msg(n <= ALARM_SEARCHES * ALARM_PROBABILITY && n >= ALARM_SEARCHES * ALARM_PROBABILITY * 2 / 3,
                  "%zu false alarms in %d searches", n, ALARM_SEARCHES);
    search_close(&s);
}

/* ---- dsim -------------------------------------------------------------------------------------------------------- */

#define DSIM_RATE_HZ 8.184e6
#define DSIM_SAMPLES 163680 /* 20 ms */
#define DSIM_SIGMA   0.1

/* Real samples have the satellite at both signs of its frequency, upright and inverted: it is found at either. */
static const struct {
    const char *signal;
    unsigned prn;
    double carrier_hz; /* as dsim has it */
    double found_hz;
    bool is_inverted;
    uint32_t n_periods;
} dsim_skies[] = {
    {"L1CA", 7, 1.6e6, 1.6e6, false, 1},
    {"L1CA", 31, 1.6e6, -1.6e6, true, 2},
    {"L1CA", 12, DSIM_RATE_HZ - 2.1e6, 2.1e6, true, 1}, /* above half the sample rate */
};

static void dsim_samples(const char *text, double *values)
{
    static const struct dsim_format format = {.axis = {5000, DSIM_RATE_HZ}, .packet_samples = 4092, .n_inputs = 2};
    struct dsim_program *program;
    struct dsim_live *live;
    char why[256] = "";

    ck_assert_msg(dsim_parse(text, &program, why, sizeof(why)) == 0, "'%s': %s", text, why);
    ck_assert_msg(dsim_gnss_compute(program, DSIM_RATE_HZ, NULL, why, sizeof(why)) == 0, "%s", why);
    ck_assert_msg(dsim_live_create(program, &format, &live, why, sizeof(why)) == 0, "%s", why);
    for (size_t at = 0; at < DSIM_SAMPLES; at += 4092)
        dsim_live_evaluate(live, 0, (int64_t)at, 4092, values + at);
    dsim_live_destroy(live);
    dsim_program_free(program);
}

TEST(dsim, .end = ARRAY_LEN(dsim_skies))
{
    static struct search s;
    static double values[DSIM_SAMPLES];
    static int8_t rows[N_POLS][2 * DSIM_SAMPLES];
    double delay = random_between(0, 50000), doppler = random_between(-6e3, 6e3);
    struct gnss_acquire_config config = usual;
    struct sky sky = {.facts = gnss_signal_facts(GNSS_L1CA),
                      .sample_rate_hz = DSIM_RATE_HZ,
                      .carrier_hz = dsim_skies[_i].found_hz,
                      .is_inverted = dsim_skies[_i].is_inverted};
    char text[256];

    snprintf(text, sizeof(text), "gnss(%s, %u, 45, %g, %.17g, %.17g, %.17g, 0, 9);", dsim_skies[_i].signal,
             dsim_skies[_i].prn, DSIM_SIGMA, dsim_skies[_i].carrier_hz, delay, doppler);
    dsim_samples(text, values);
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t i = 0; i < DSIM_SAMPLES; i++)
            rows[pol][2 * i] = step_of(NOISE_RMS * (values[i] / DSIM_SIGMA + gaussian()));
    config.false_alarm = 1e-9; /* the other code is searched beside a strong satellite */
    for (unsigned other = 0; other < 2; other++) {
        config.n_periods = dsim_skies[_i].n_periods;
        search_open(&s, &sky, false, config);
        gnss_code_generate(GNSS_L1CA, dsim_skies[_i].prn - other, s.table);
        gnss_acquire_begin(s.acquire, &s.config);
        for (size_t at = 3; at + s.n_block <= DSIM_SAMPLES; at += s.n_block + 10000)
            search_add(&s, &(struct samples){&rows[0][2 * at], DSIM_SAMPLES}, (int64_t)at);
        struct gnss_acquired result = search_find(&s);
        double chip = -delay * 1.023e6 * (1 + doppler / 1575.42e6) / DSIM_RATE_HZ;
        if (other)
            ck_assert_msg(!result.is_found, "peak %g, threshold %g", result.peak, result.threshold);
        else
            check_found(&s, &result, chip, doppler);
        search_close(&s);
    }
}

SUITE(.timeout_s = 60, .start = random_start);
