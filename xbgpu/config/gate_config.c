/* gate_config.c - the keys of a gate, and checks of keys that depend on each other. */
#include "xbgpu/config/gate_config.h"

#include "common/base/units.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config/gate.h"
#include "common/engine/labels.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PHASE  (1u << XBGPU_GATE_PHASE)
#define SWITCH (1u << XBGPU_GATE_SWITCH)
#define FAR    4611686018427387904.0 /* limit of times, 2^62 samples; the difference of two times fits in 64 bits */

static const char *const kind_choices[] = {"phase", "switch", NULL};

#define KEYS_OF struct xbgpu_config_gate
const struct config_key xbgpu_gate_keys[XBGPU_N_GATE_KEYS] = {
    KEY_ENUM("kind", kind, KEY_REQUIRED, kind_choices,
             "phase: selects bins of a periodic phase, such as a pulsar's. switch: selects a part of a period that is "
             "an exact number of samples, such as the period of a switched calibration signal."),
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name by which outputs refer to the gate."),
    KEY_INT("epoch", epoch_samples, "0", UNIT_SAMPLES, -FAR, FAR,
            "Time at which the phase has the value of the key `phase`, or at which a period begins. The epoch is a "
            "64-bit timestamp: ADC samples since sync_time."),
    KEY_DECIMAL("epoch_time", epoch_time_s, "0", UNIT_S, 0, 4e9,
                "The epoch as UNIX time. The epoch is the last sample at or before this time; 0: the key epoch "
                "applies."),
    KEY_FINE("frequency", frequency_hz, KEY_REQUIRED, UNIT_HZ, 0, 1e11, "Turns of the phase per second, at the epoch.",
             .variants = PHASE),
    KEY_FINE("frequency_derivative", frequency_derivative, "0", UNIT_NONE, -1000, 1000,
             "Rate of change of frequency, in Hz per second.", .variants = PHASE),
    KEY_FINE("phase", phase_turns, "0", UNIT_NONE, -1, 1, "Value of the phase at the epoch, in turns.",
             .variants = PHASE),
    KEY_INT("bins", n_bins, KEY_REQUIRED, UNIT_NONE, 1, GATE_MAX_BINS,
            "Number of bins, which are equal parts of a turn; bin 0 begins at phase 0.", .variants = PHASE),
    KEY_INT_LIST("take", bins, KEY_REQUIRED, UNIT_NONE, 0, GATE_MAX_BINS - 1,
                 "Indices of the bins whose spectra are taken.", .variants = PHASE),
    KEY_DOUBLE("dispersion_measure", dispersion_measure, "0", UNIT_NONE, 0, 1e5,
               "Dispersion measure in pc/cm^3; pulses arrive later in lower channels.", .variants = PHASE),
    KEY_DOUBLE("reference_frequency", reference_frequency_hz, "0", UNIT_HZ, 0, 1e13,
               "Radio frequency to which the phase refers; 0: infinite frequency, without dispersion.",
               .variants = PHASE),
    KEY_DOUBLE("centre_frequency", centre_frequency_hz, "0", UNIT_HZ, 0, 1e13,
               "Radio frequency of the centre of the channel with the index recv.channels / 2; needed with a "
               "dispersion_measure.",
               .variants = PHASE),
    KEY_INT("period", period_samples, KEY_REQUIRED, UNIT_SAMPLES, 1, FAR, "Length of a period in samples.",
            .variants = SWITCH),
    KEY_INT("on_from", on_from_samples, "0", UNIT_SAMPLES, 0, FAR, "First taken sample of each period.",
            .variants = SWITCH),
    KEY_INT("on_until", on_until_samples, KEY_REQUIRED, UNIT_SAMPLES, 0, FAR,
            "First sample after on_from that is not taken. If this value is not above on_from, it is a sample of the "
            "next period.",
            .variants = SWITCH),
};
#undef KEYS_OF

const char xbgpu_gate_example[] = "  #- kind: phase\n"
                                  "  #  name: pulse\n"
                                  "  #  frequency: 11.1946499395\n"
                                  "  #  frequency_derivative: -1.5666e-11\n"
                                  "  #  epoch_time: 1700000000\n"
                                  "  #  bins: 16\n"
                                  "  #  take: [0, 1, 15]\n"
                                  "  #  dispersion_measure: 67.97\n"
                                  "  #  centre_frequency: 1284e6\n"
                                  "  #- kind: switch\n"
                                  "  #  name: noise-diode-on\n"
                                  "  #  period: 1712000000\n"
                                  "  #  on_until: 856000000\n";

int xbgpu_find_gate(const struct config_array *gates, const char *name)
{
    for (size_t g = 0; g < gates->n; g++)
        if (strcmp(name, xbgpu_config_gate(gates, g)->name) == 0)
            return (int)g;
    return -1;
}

/* Checks that no channel's delay is too large.  The first channel has the largest delay.  With a reference frequency,
 * the last channel may have a negative delay.  The magnitude of this delay may exceed the first channel's delay. */
static void check_delay(const struct xbgpu_config *config, const struct xbgpu_config_gate *gate, struct config *errors)
{
    double first_samples = xbgpu_gate_dispersion_samples(gate, config, 0);
    double last_samples = xbgpu_gate_dispersion_samples(gate, config, (size_t)config->recv.n_chan_substream - 1);
    double most_samples = fmax(fabs(first_samples), fabs(last_samples));

    if (most_samples > FAR / 4)
        config_error(errors, &gate->dispersion_measure,
                     "gate %s with a dispersion_measure of %.9g delays a channel by %.3g samples, more than 2^60",
                     gate->name, gate->dispersion_measure, most_samples);
}

static void check_dispersion(const struct xbgpu_config *config, const struct xbgpu_config_gate *gate,
                             struct config *errors)
{
    if (gate->dispersion_measure == 0)
        return;
    if (gate->centre_frequency_hz == 0)
        config_error(errors, &gate->dispersion_measure, "gate %s with a dispersion_measure needs a centre_frequency",
                     gate->name);
    else if (xbgpu_gate_channel_hz(gate, config, 0) <= 0)
        config_error(errors, &gate->centre_frequency_hz,
                     "gate %s with a centre_frequency of %.9g Hz: channel %lld would be at %.9g Hz, but must be above "
                     "0 Hz",
                     gate->name, gate->centre_frequency_hz, (long long)config->recv.chan_offset,
                     xbgpu_gate_channel_hz(gate, config, 0));
    else
        check_delay(config, gate, errors);
}

static void check_phase(const struct xbgpu_config *config, const struct xbgpu_config_gate *gate, struct config *errors)
{
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double step_s = (double)config->recv.samples_between_spectra / rate_hz;
    double change = timebase_decimal_to_double(gate->frequency_derivative) * step_s * step_s;

    for (size_t i = 0; i < gate->bins.n; i++)
        if (gate->bins.items[i] >= gate->n_bins)
            config_error(errors, &gate->bins, "gate %s takes bin %lld, but the last of its %lld bins is bin %lld",
                         gate->name, (long long)gate->bins.items[i], (long long)gate->n_bins,
                         (long long)gate->n_bins - 1);
    if (gate->bins.n == 0)
        config_error(errors, &gate->bins, "gate %s takes no bins", gate->name);
    if (timebase_decimal_to_double(gate->frequency_hz) >= rate_hz)
        config_error(errors, &gate->frequency_hz,
                     "gate %s has a frequency of %.9g Hz, but the frequency must be below adc_sample_rate", gate->name,
                     timebase_decimal_to_double(gate->frequency_hz));
    if (fabs(change) * (double)config->recv.spectra_per_heap > 0.25)
        config_error(errors, &gate->frequency_derivative,
                     "the frequency of gate %s changes too fast: within a heap, the phase step between two spectra "
                     "changes by more than a quarter of a turn",
                     gate->name);
    check_dispersion(config, gate, errors);
}

static void check_switch(const struct xbgpu_config_gate *gate, struct config *errors)
{
    if (gate->on_from_samples >= gate->period_samples || gate->on_until_samples > gate->period_samples)
        config_error(errors, &gate->period_samples,
                     "gate %s is on from sample %lld until sample %lld, but its period has only %lld samples",
                     gate->name, (long long)gate->on_from_samples, (long long)gate->on_until_samples,
                     (long long)gate->period_samples);
    else if (gate->on_from_samples == gate->on_until_samples)
        config_error(errors, &gate->on_until_samples, "gate %s is on from sample %lld until the same sample",
                     gate->name, (long long)gate->on_from_samples);
}

static bool is_used(const struct xbgpu_config *config, const char *name)
{
    for (size_t o = 0; o < config->outputs.n; o++) {
        const char *gate = xbgpu_config_output(config, o)->gate;
        if (gate && strcmp(gate, name) == 0)
            return true;
    }
    return false;
}

/* Checks one gate without regard to the other gates and the outputs. */
static void check_gate(const struct xbgpu_config *config, const struct xbgpu_config_gate *gate, struct config *errors)
{
    if (gate->kind == XBGPU_GATE_PHASE)
        check_phase(config, gate, errors);
    else
        check_switch(gate, errors);
    double epoch_s =
        timebase_decimal_to_double(gate->epoch_time_s) - timebase_decimal_to_double(config->time.sync_time_s);
    if (gate->epoch_time_s.mantissa != 0 &&
        fabs(epoch_s) * timebase_decimal_to_double(config->time.adc_sample_rate_hz) > FAR)
        config_error(errors, &gate->epoch_time_s,
                     "gate %s has an epoch_time %.9g s from sync_time, more than 2^62 samples", gate->name, epoch_s);
    if (gate->epoch_samples != 0 && gate->epoch_time_s.mantissa != 0)
        config_error(errors, &gate->epoch_samples, "gate %s needs one of epoch and epoch_time, not both", gate->name);
}

void xbgpu_gates_check(const struct xbgpu_config *config, struct config *errors)
{
    for (size_t g = 0; g < config->gates.n; g++) {
        const struct xbgpu_config_gate *gate = xbgpu_config_gate(&config->gates, g);
        if (xbgpu_find_gate(&config->gates, gate->name) != (int)g)
            config_error(errors, &gate->name, "two gates are called %s", gate->name);
        if (!labels_is_name(gate->name))
            config_error(errors, &gate->name,
                         "a gate's name may have only letters, digits, '.', '-' and '_', but is '%s'", gate->name);
        if (!is_used(config, gate->name))
            config_error(errors, &gate->name, "no output uses gate %s", gate->name);
        check_gate(config, gate, errors);
    }
    for (size_t o = 0; o < config->outputs.n; o++) {
        const struct xbgpu_config_output *output = xbgpu_config_output(config, o);
        if (output->gate && xbgpu_find_gate(&config->gates, output->gate) < 0)
            config_error(errors, &output->gate, "output %s has gate %s, but gates has no gate of that name",
                         output->name, output->gate);
    }
}

/* ---- While running ----------------------------------------------------------------------------------------------- */

#define FIRST_LIVE_KEY 2 /* index of the first key that can change; the earlier keys, kind and name, cannot change */

static void *field_of(const struct xbgpu_config_gate *gate, const struct config_key *key)
{
    return (char *)gate + key->offset;
}

int xbgpu_gate_copy(const struct xbgpu_config_gate *gate, struct xbgpu_config_gate *copy)
{
    struct xbgpu_config_gate out = *gate;
    size_t bins_bytes = gate->bins.n * sizeof(*gate->bins.items);

    out.name = strdup(gate->name);
    out.bins.items = malloc(bins_bytes + 1);
    if (!out.name || !out.bins.items) {
        xbgpu_gate_free(&out);
        return -ENOMEM;
    }
    if (bins_bytes)
        memcpy(out.bins.items, gate->bins.items, bins_bytes);
    *copy = out;
    return 0;
}

void xbgpu_gate_free(struct xbgpu_config_gate *gate)
{
    for (size_t k = 0; k < XBGPU_N_GATE_KEYS; k++)
        config_value_free(&xbgpu_gate_keys[k], field_of(gate, &xbgpu_gate_keys[k]));
}

int xbgpu_gate_set(struct xbgpu_config_gate *gate, const char *key, const char *value, char *why, size_t why_bytes)
{
    char predicate[CONFIG_SENTENCE_BYTES];

    for (size_t k = FIRST_LIVE_KEY; k < XBGPU_N_GATE_KEYS; k++) {
        const struct config_key *row = &xbgpu_gate_keys[k];
        if (strcmp(row->name, key) != 0 || !config_key_applies(row, gate->kind))
            continue;
        int err = config_value_set(row, value, field_of(gate, row), predicate, sizeof(predicate));
        if (err == -EINVAL)
            snprintf(why, why_bytes, "%s %s", key, predicate);
        return err;
    }
    snprintf(why, why_bytes, "a gate of kind %s has no key %s that can be set while running", kind_choices[gate->kind],
             key);
    return -EINVAL;
}

int xbgpu_gate_check(const struct xbgpu_config *config, const struct xbgpu_config_gate *before,
                     const struct xbgpu_config_gate *gate, char *why, size_t why_bytes)
{
    struct config *book = config_create_book();

    if (!book)
        return -ENOMEM;
    check_gate(config, gate, book);
    if (xbgpu_gate_is_dispersed(before) != xbgpu_gate_is_dispersed(gate))
        config_error(book, gate, "gate %s must keep a dispersion_measure %s 0 until xbgpu restarts", gate->name,
                     xbgpu_gate_is_dispersed(before) ? "above" : "of");
    int err = config_result(book);
    if (err)
        snprintf(why, why_bytes, "%s", config_first_error(book));
    config_free(NULL, NULL, book);
    return err;
}

void xbgpu_gate_write(const struct xbgpu_config_gate *gate, const char *before, const char *between, const char *after,
                      FILE *out)
{
    for (size_t k = FIRST_LIVE_KEY; k < XBGPU_N_GATE_KEYS; k++) {
        const struct config_key *key = &xbgpu_gate_keys[k];
        if (!config_key_applies(key, gate->kind) ||
            (key->offset == offsetof(struct xbgpu_config_gate, epoch_time_s) && gate->epoch_time_s.mantissa == 0) ||
            (key->offset == offsetof(struct xbgpu_config_gate, epoch_samples) && gate->epoch_time_s.mantissa != 0))
            continue;
        fprintf(out, "%s%s%s", before, key->name, between);
        config_value_write(key, field_of(gate, key), out);
        fputs(after, out);
    }
}
