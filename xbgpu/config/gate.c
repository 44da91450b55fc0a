/* gate.c - decides which spectra a gate takes.  input.c lists these decisions for a batch before the outputs correlate
 * the batch. */
#include "xbgpu/config/gate.h"

#include "common/base/units.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config/gate_config.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define DISPERSION_S_MHZ2 (1 / 2.41e-4) /* per pc/cm^3 */

typedef unsigned __int128 turns; /* unit: 2^-128 of a turn */

/* ---- Quotients of large integers --------------------------------------------------------------------------------- */

/* A number below 2^256, with the least significant word first. */
#define N_WORDS 8
struct large {
    uint32_t words[N_WORDS];
};

static struct large large_of(uint64_t value)
{
    return (struct large){{(uint32_t)value, (uint32_t)(value >> 32)}};
}

static struct large large_times(struct large a, uint64_t b)
{
    struct large out = {{0}};

    for (int half = 0; half < 2; half++) {
        uint64_t factor = half ? b >> 32 : (uint32_t)b, carry = 0;
        for (int i = 0; i + half < N_WORDS; i++) {
            carry += a.words[i] * factor + out.words[i + half];
            out.words[i + half] = (uint32_t)carry;
            carry >>= 32;
        }
        assert(carry == 0);
    }
    return out;
}

static void large_double(struct large *a, unsigned bit)
{
    for (int i = 0; i < N_WORDS; i++) {
        unsigned next = a->words[i] >> 31;
        a->words[i] = a->words[i] << 1 | bit;
        bit = next;
    }
}

/* Subtracts 'b' from 'a' if the result is not negative.  Returns false if the result would be negative. */
static bool large_take(struct large *a, const struct large *b)
{
    struct large out;
    int64_t borrow = 0;

    for (int i = 0; i < N_WORDS; i++) {
        borrow += (int64_t)a->words[i] - b->words[i];
        out.words[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    if (borrow < 0)
        return false;
    *a = out;
    return true;
}

/* Returns the quotient numerator / denominator as a number of turns, rounded to the nearest value.  Both arguments
 * are below 2^255. */
static turns divide(const struct large *numerator, const struct large *denominator)
{
    struct large rest = {{0}};
    turns quotient = 0;

    for (int bit = 32 * N_WORDS - 1; bit >= -128; bit--) {
        large_double(&rest, bit >= 0 ? numerator->words[bit / 32] >> (bit % 32) & 1 : 0);
        quotient = quotient << 1 | large_take(&rest, denominator);
    }
    large_double(&rest, 0);
    return quotient + large_take(&rest, denominator);
}

static uint64_t power_of_ten(int n)
{
    uint64_t value = 1;

    for (int i = 0; i < n; i++)
        value *= 10;
    return value;
}

/* Returns value / (divisor * rate^power) in turns. */
static turns divide_by_rate(struct decimal value, struct decimal rate, int power, uint64_t divisor)
{
    bool negative = value.mantissa < 0;
    struct large numerator = large_of(negative ? -(uint64_t)value.mantissa : (uint64_t)value.mantissa);
    struct large denominator = large_times(large_of(power_of_ten(value.n_decimals)), divisor);

    for (int i = 0; i < power; i++) {
        numerator = large_times(numerator, power_of_ten(rate.n_decimals));
        denominator = large_times(denominator, (uint64_t)rate.mantissa);
    }
    turns quotient = divide(&numerator, &denominator);
    return negative ? -quotient : quotient;
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

bool xbgpu_gate_is_dispersed(const struct xbgpu_config_gate *config)
{
    return config->kind == XBGPU_GATE_PHASE && config->dispersion_measure > 0;
}

size_t xbgpu_gate_n_rows(const struct xbgpu_config_gate *config, const struct xbgpu_config *all)
{
    return xbgpu_gate_is_dispersed(config) ? (size_t)all->recv.n_chan_substream : 1;
}

double xbgpu_gate_channel_hz(const struct xbgpu_config_gate *config, const struct xbgpu_config *all, size_t chan)
{
    double width_hz =
        timebase_decimal_to_double(all->time.adc_sample_rate_hz) / (double)all->recv.samples_between_spectra;

    return config->centre_frequency_hz +
           (double)(all->recv.chan_offset + (int64_t)chan - all->recv.n_chan / 2) * width_hz;
}

static double per_mhz2(double frequency_hz)
{
    return frequency_hz > 0 ? 1e12 / (frequency_hz * frequency_hz) : 0;
}

double xbgpu_gate_dispersion_samples(const struct xbgpu_config_gate *config, const struct xbgpu_config *all,
                                     size_t chan)
{
    double delay_s = DISPERSION_S_MHZ2 * config->dispersion_measure *
                     (per_mhz2(xbgpu_gate_channel_hz(config, all, chan)) - per_mhz2(config->reference_frequency_hz));

    return delay_s * timebase_decimal_to_double(all->time.adc_sample_rate_hz);
}

static int64_t epoch_of(const struct xbgpu_config_gate *config, const struct xbgpu_config *all)
{
    const struct timebase timebase = {all->time.sync_time_s, all->time.adc_sample_rate_hz, false};
    const struct decimal time = config->epoch_time_s;

    if (time.mantissa == 0)
        return config->epoch_samples;
    return timebase_samples_at(&timebase, time.mantissa * (int64_t)power_of_ten(9 - time.n_decimals));
}

int xbgpu_gate_init(struct xbgpu_gate *gate, const struct xbgpu_config_gate *config, const struct xbgpu_config *all)
{
    struct decimal rate = all->time.adc_sample_rate_hz;
    struct xbgpu_gate g = {.is_switch = config->kind == XBGPU_GATE_SWITCH,
                           .epoch_samples = epoch_of(config, all),
                           .n_rows = xbgpu_gate_n_rows(config, all)};

    g.delays_samples = calloc(g.n_rows, sizeof(*g.delays_samples));
    if (!g.delays_samples)
        return -ENOMEM;
    if (g.is_switch) {
        int64_t on = config->on_until_samples - config->on_from_samples;
        g.epoch_samples += config->on_from_samples;
        g.period_samples = (uint64_t)config->period_samples;
        g.on_samples = (uint64_t)(on > 0 ? on : on + config->period_samples);
    } else {
        g.phase = divide_by_rate(config->phase_turns, rate, 0, 1);
        g.slope = divide_by_rate(config->frequency_hz, rate, 1, 1);
        g.curve = divide_by_rate(config->frequency_derivative, rate, 2, 2);
        g.n_bins = (uint32_t)config->n_bins;
        for (size_t i = 0; i < config->bins.n; i++)
            g.taken[config->bins.items[i]] = 1;
        for (uint32_t bin = g.n_bins; bin-- > 0;) {
            bool same = bin + 1 < g.n_bins && g.taken[bin + 1] == g.taken[bin];
            g.stretch_end[bin] = same ? g.stretch_end[bin + 1] : (uint16_t)(bin + 1);
        }
    }
    if (xbgpu_gate_is_dispersed(config))
        for (size_t chan = 0; chan < g.n_rows; chan++)
            g.delays_samples[chan] = llround(xbgpu_gate_dispersion_samples(config, all, chan));
    *gate = g;
    return 0;
}

void xbgpu_gate_fini(struct xbgpu_gate *gate)
{
    free(gate->delays_samples);
    gate->delays_samples = NULL;
}

int xbgpu_gate_create(const struct xbgpu_config_gate *config, const struct xbgpu_config *all, struct xbgpu_gate **gate)
{
    struct xbgpu_gate *g = malloc(sizeof(*g));
    int err = g ? xbgpu_gate_init(g, config, all) : -ENOMEM;

    if (err) {
        free(g);
        return err;
    }
    *gate = g;
    return 0;
}

void xbgpu_gate_destroy(struct xbgpu_gate *gate)
{
    if (!gate)
        return;
    xbgpu_gate_fini(gate);
    free(gate);
}

/* ---- Decisions --------------------------------------------------------------------------------------------------- */

static turns phase_at(const struct xbgpu_gate *gate, int64_t dt)
{
    turns t = (turns)(__int128)dt; /* this conversion and the products below are modulo 2^128 */

    return gate->phase + gate->slope * t + gate->curve * t * t;
}

static uint64_t switch_at(const struct xbgpu_gate *gate, int64_t dt)
{
    int64_t rest = dt % (int64_t)gate->period_samples;

    return (uint64_t)(rest < 0 ? rest + (int64_t)gate->period_samples : rest);
}

static uint32_t bin_at(const struct xbgpu_gate *gate, uint64_t phase)
{
    return (uint32_t)((turns)phase * gate->n_bins >> 64);
}

bool xbgpu_gate_takes(const struct xbgpu_gate *gate, size_t row, int64_t timestamp_samples)
{
    int64_t dt = timestamp_samples - gate->delays_samples[row] - gate->epoch_samples;

    if (gate->is_switch)
        return switch_at(gate, dt) < gate->on_samples;
    return gate->taken[bin_at(gate, (uint64_t)(phase_at(gate, dt) >> 64))];
}

/* Returns the largest step of the phase from one spectrum to the next over 'n' spectra, in 2^-64 of a turn.  Returns
 * UINT64_MAX if the phase may go back, or a step may be half a turn or more.  The steps change linearly, so the first
 * or the last step is the largest.  The first and the last step differ by less than half a turn (check_phase()). */
static uint64_t largest_move(const struct xbgpu_gate *gate, int64_t dt, int64_t step, size_t n)
{
    int64_t last = dt + (int64_t)(n - 1) * step;
    uint64_t a = (uint64_t)((phase_at(gate, dt + step) - phase_at(gate, dt)) >> 64);
    uint64_t b = (uint64_t)((phase_at(gate, last + step) - phase_at(gate, last)) >> 64);

    if (a >> 63 || b >> 63)
        return UINT64_MAX;
    return (a > b ? a : b) + 1;
}

size_t xbgpu_gate_run(const struct xbgpu_gate *gate, size_t row, int64_t timestamp_samples, int64_t step_samples,
                      size_t n_max)
{
    int64_t dt = timestamp_samples - gate->delays_samples[row] - gate->epoch_samples;
    uint64_t left, move; /* distance to the next change of the decision, and distance between two spectra */

    if (gate->is_switch) {
        uint64_t at = switch_at(gate, dt);
        left = (at < gate->on_samples ? gate->on_samples : gate->period_samples) - at;
        move = (uint64_t)step_samples;
    } else {
        uint64_t phase = (uint64_t)(phase_at(gate, dt) >> 64);
        /* phase at the end of the run of equal bins, rounded down by less than 2^-64 of a turn */
        turns edge = ((turns)gate->stretch_end[bin_at(gate, phase)] << 64) / gate->n_bins;
        turns distance = edge - phase;
        left = distance >> 64 ? UINT64_MAX : (uint64_t)distance; /* the run of equal bins covers a whole turn */
        move = largest_move(gate, dt, step_samples, n_max);
    }
    if (left == 0)
        return 1;
    uint64_t n = (left - 1) / move + 1;
    return n < n_max ? (size_t)n : n_max;
}

/* Lists the spectra that the gate takes from a batch or from a part of a batch.  The number of the first spectrum is
 * 'first'.  Returns the number of taken spectra. */
static size_t list_spectra(const struct xbgpu_gate *gate, size_t row, int64_t timestamp_samples, int64_t step_samples,
                           size_t first, size_t n_spectra, uint32_t *spectra)
{
    size_t n = 0;

    for (size_t s = 0; s < n_spectra;) {
        int64_t t = timestamp_samples + (int64_t)s * step_samples;
        bool takes = xbgpu_gate_takes(gate, row, t);
        size_t end = s + xbgpu_gate_run(gate, row, t, step_samples, n_spectra - s);
        for (; s < end; s++)
            if (takes)
                spectra[n++] = (uint32_t)(first + s);
    }
    return n;
}

/* Returns how many spectra of a batch are before 'from_samples'.  The batch begins at 'timestamp_samples'. */
static size_t n_before(int64_t from_samples, int64_t timestamp_samples, int64_t step_samples, size_t n_spectra)
{
    if (from_samples <= timestamp_samples)
        return 0;
    uint64_t n = ((uint64_t)from_samples - (uint64_t)timestamp_samples - 1) / (uint64_t)step_samples + 1;
    return n < n_spectra ? (size_t)n : n_spectra;
}

/* Does the same as list_spectra() for a whole batch.  Several successive gates may be in effect during the batch.
 * Each gate decides for its own part of the batch. */
static size_t list_batch(const struct xbgpu_gate_change *changes, size_t n_changes, size_t row,
                         int64_t timestamp_samples, int64_t step_samples, size_t first, size_t n_spectra,
                         uint32_t *spectra)
{
    size_t n = 0, begin = 0;

    for (size_t i = 0; i < n_changes && begin < n_spectra; i++) {
        size_t end = n_spectra;
        if (i + 1 < n_changes)
            end = n_before(changes[i + 1].from_samples, timestamp_samples, step_samples, n_spectra);
        if (end > begin)
            n += list_spectra(changes[i].gate, row, timestamp_samples + (int64_t)begin * step_samples, step_samples,
                              first + begin, end - begin, spectra + n);
        begin = end;
    }
    return n;
}

size_t xbgpu_gate_list(const struct xbgpu_gate_change *changes, size_t n_changes, int64_t timestamp_samples,
                       int64_t step_samples, size_t n_spectra, size_t n_batches, size_t row_pitch, uint32_t *spectra,
                       uint32_t *ends)
{
    size_t most = 0;

    for (size_t row = 0; row < changes[0].gate->n_rows; row++, spectra += row_pitch, ends += n_batches + 1) {
        size_t n = 0;
        for (size_t b = 0; b < n_batches; b++) {
            ends[b] = (uint32_t)n;
            n += list_batch(changes, n_changes, row, timestamp_samples + (int64_t)(b * n_spectra) * step_samples,
                            step_samples, b * n_spectra, n_spectra, spectra + n);
        }
        ends[n_batches] = (uint32_t)n;
        most = n > most ? n : most;
    }
    return most;
}
