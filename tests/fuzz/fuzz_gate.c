/* fuzz_gate.c - gates of any kind and row, by a phase, dispersed or switched.  The target checks which spectra a gate
 * takes, how long its answer holds, and its lists.
 *
 * The target computes the decision of a phase as a quotient of exact integers.  A spectrum that is nearer to an edge of
 * a bin than the gate's stated error may be on either side.  Gates are drawn as keys that the check of a running engine
 * accepts.
 * Input: the engine's rate and shape, then gates and questions. */
#include "common/base/units.h"
#include "tests/fuzz/fuzz_input.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config/gate.h"
#include "xbgpu/config/gate_config.h"

#include <math.h>

enum { ROWS_MAX = 8, BATCHES_MAX = 4, SPECTRA_MAX = 64, GATES_MAX = 4, ROUNDS_MAX = 400 };

typedef __int128 wide;

static int64_t take_i64(struct fuzz_input *input)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value = value << 8 | fuzz_u8(input);
    return (int64_t)value;
}

/* Any magnitude below 2^n_bits, small ones as often as large ones. */
static int64_t take_magnitude(struct fuzz_input *input, unsigned n_bits)
{
    unsigned bits = fuzz_u8(input) % (n_bits + 1);

    return take_i64(input) & ((INT64_C(1) << bits) - 1);
}

static int64_t take_signed(struct fuzz_input *input, unsigned n_bits)
{
    int64_t magnitude = take_magnitude(input, n_bits);

    return fuzz_u8(input) & 1 ? -magnitude : magnitude;
}

/* ---- The engine and its gates ------------------------------------------------------------------------------------ */

static struct xbgpu_config config;
static const struct xbgpu_config_gate *const no_gate = &(struct xbgpu_config_gate){.kind = XBGPU_GATE_PHASE};

static struct drawn {
    struct xbgpu_config_gate keys;
    int64_t take[GATE_MAX_BINS];
    bool is_taken[GATE_MAX_BINS];
    struct xbgpu_gate gate;
} gates[GATES_MAX];
static size_t n_gates;

static void draw_engine(struct fuzz_input *input)
{
    static const struct decimal rates_hz[] = {{1000000000, 0}, {1712000000, 0}, {1, 0}, {5376, 1}, {100000000000, 0}};

    config.time.adc_sample_rate_hz = rates_hz[fuzz_u8(input) % ARRAY_LEN(rates_hz)];
    config.time.sync_time_s = (struct decimal){take_magnitude(input, 31), 0};
    config.recv.n_chan_substream = 1 + fuzz_u8(input) % ROWS_MAX;
    config.recv.n_chan = config.recv.n_chan_substream << fuzz_u8(input) % 4;
    config.recv.chan_offset = config.recv.n_chan - config.recv.n_chan_substream;
    config.recv.samples_between_spectra = 1 + take_magnitude(input, 31);
    config.recv.spectra_per_heap = 1 + fuzz_u8(input) % (SPECTRA_MAX / BATCHES_MAX);
}

static void draw_phase(struct fuzz_input *input, struct drawn *drawn)
{
    struct xbgpu_config_gate *keys = &drawn->keys;

    keys->frequency_hz = (struct decimal){take_magnitude(input, 36), fuzz_u8(input) % 4};
    keys->frequency_derivative = (struct decimal){take_signed(input, 40), fuzz_u8(input) % 19};
    keys->phase_turns = (struct decimal){fuzz_i8(input), 3};
    keys->n_bins = 1 + fuzz_u16(input) % GATE_MAX_BINS;
    keys->bins.items = drawn->take;
    keys->bins.n = 1 + fuzz_u8(input) % 16;
    for (size_t i = 0; i < keys->bins.n; i++)
        drawn->take[i] = fuzz_u16(input) % keys->n_bins;
    if (fuzz_u8(input) & 1)
        return;
    keys->dispersion_measure = (double)take_magnitude(input, 26) / 1000;
    keys->centre_frequency_hz = (double)take_magnitude(input, 43);
    keys->reference_frequency_hz = (double)take_magnitude(input, 43);
}

static void draw_switch(struct fuzz_input *input, struct drawn *drawn)
{
    drawn->keys.period_samples = 1 + take_magnitude(input, 62);
    drawn->keys.on_from_samples = take_magnitude(input, 62);
    drawn->keys.on_until_samples = take_magnitude(input, 62);
}

/* Draws a gate; returns whether an engine would take it. */
static bool draw_gate(struct fuzz_input *input, struct drawn *drawn)
{
    unsigned how = fuzz_u8(input);
    char why[CONFIG_SENTENCE_BYTES];

    memset(drawn, 0, sizeof(*drawn));
    drawn->keys.name = (char *)"g";
    drawn->keys.kind = how & 1 ? XBGPU_GATE_SWITCH : XBGPU_GATE_PHASE;
    if (how & 2)
        drawn->keys.epoch_time_s = (struct decimal){take_magnitude(input, 32), 0};
    else
        drawn->keys.epoch_samples = take_signed(input, 62);
    if (how & 1)
        draw_switch(input, drawn);
    else
        draw_phase(input, drawn);
    const struct xbgpu_config_gate *before = xbgpu_gate_is_dispersed(&drawn->keys) ? &drawn->keys : no_gate;
    if (xbgpu_gate_check(&config, before, &drawn->keys, why, sizeof(why)) != 0)
        return false;
    for (size_t i = 0; i < drawn->keys.bins.n; i++)
        drawn->is_taken[drawn->take[i]] = true;
    assert(xbgpu_gate_init(&drawn->gate, &drawn->keys, &config) == 0);
    assert(drawn->gate.n_rows == (xbgpu_gate_is_dispersed(&drawn->keys) ? (size_t)config.recv.n_chan_substream : 1));
    return true;
}

/* ---- What a gate takes ------------------------------------------------------------------------------------------- */

/* The delay of a channel, by the definition: a difference of two delays from infinite frequency. */
static void check_delays(const struct drawn *drawn)
{
    const struct xbgpu_config_gate *keys = &drawn->keys;
    long double scale =
        keys->dispersion_measure / 2.41e-4L * timebase_decimal_to_double(config.time.adc_sample_rate_hz);
    long double reference = keys->reference_frequency_hz > 0 ? 1e6L / keys->reference_frequency_hz : 0;

    for (size_t row = 0; row < drawn->gate.n_rows && xbgpu_gate_is_dispersed(keys); row++) {
        long double channel = 1e6L / xbgpu_gate_channel_hz(keys, &config, row);
        long double from = scale * reference * reference, until = scale * channel * channel;
        long double error = fabsl((long double)drawn->gate.delays_samples[row] - (until - from));
        assert(error <= 0.5L + 1e-14L * (until + from));
    }
}

/* value in 1/1000; the value has at most 3 decimals. */
static wide thousandths(struct decimal value)
{
    static const int factors[] = {1000, 100, 10, 1};

    return (wide)value.mantissa * factors[value.n_decimals];
}

static bool is_small(struct decimal value, int n_bits)
{
    int64_t limit = INT64_C(1) << n_bits;

    return value.n_decimals <= 3 && value.mantissa < limit && value.mantissa > -limit;
}

/* Whether a phase takes a spectrum that is dt after the epoch; -1: it is too near to an edge, or the integers would be
 * too large. */
static int phase_takes(const struct drawn *drawn, wide dt)
{
    const struct xbgpu_config_gate *keys = &drawn->keys;
    wide rate = config.time.adc_sample_rate_hz.mantissa, limit = (wide)1 << 40;

    if (dt >= limit || dt < -limit || config.time.adc_sample_rate_hz.n_decimals > 0 || rate >= limit >> 9 ||
        !is_small(keys->frequency_hz, 24) || !is_small(keys->frequency_derivative, 16))
        return -1;
    /* Turns, as a numerator below 2^110 over 2000 rate^2. */
    wide denominator = 2000 * rate * rate, n_bins = keys->n_bins;
    wide turns = thousandths(keys->phase_turns) * 2 * rate * rate + thousandths(keys->frequency_hz) * dt * 2 * rate +
                 thousandths(keys->frequency_derivative) * dt * dt;
    wide part = turns % denominator, margin = denominator >> 36;
    part = (part < 0 ? part + denominator : part) * n_bins;
    wide rest = part % denominator;
    if (rest <= margin || rest >= denominator - margin)
        return -1;
    return drawn->is_taken[part / denominator];
}

/* 0 or 1, or -1 where that is not known. */
static int expected(const struct drawn *drawn, size_t row, int64_t time)
{
    wide dt = (wide)time - drawn->gate.delays_samples[row] - drawn->gate.epoch_samples;

    if (drawn->keys.kind == XBGPU_GATE_PHASE)
        return phase_takes(drawn, dt);
    wide period = drawn->keys.period_samples, length = drawn->keys.on_until_samples - drawn->keys.on_from_samples;
    wide place = dt % period; /* the gate's epoch is where what is taken begins */
    return (place < 0 ? place + period : place) < (length > 0 ? length : length + period);
}

/* The epoch is the key, or the last sample at or before its time. */
static void check_epoch(const struct drawn *drawn)
{
    const struct xbgpu_config_gate *keys = &drawn->keys;
    const struct decimal rate = config.time.adc_sample_rate_hz;
    wide epoch = keys->epoch_samples, scale = rate.n_decimals ? 10 : 1;

    if (keys->epoch_time_s.mantissa) {
        wide scaled = (wide)(keys->epoch_time_s.mantissa - config.time.sync_time_s.mantissa) * rate.mantissa;
        epoch = scaled / scale - (scaled % scale < 0);
    }
    assert(drawn->gate.epoch_samples == epoch + keys->on_from_samples);
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

/* Any time, or one near the epoch of a gate. */
static int64_t take_time(struct fuzz_input *input)
{
    unsigned how = fuzz_u8(input);
    int64_t time = take_signed(input, (how & 1) ? 60 : 39);

    if (how & 2 && n_gates > 0)
        time += gates[how / 4 % n_gates].gate.epoch_samples;
    const int64_t limit = INT64_C(1) << 60; /* beyond which a step from heap to heap might not fit */
    return time > limit || time < -limit ? time % limit : time;
}

static void check_answers(struct fuzz_input *input)
{
    const struct drawn *drawn = &gates[fuzz_u8(input) % n_gates];
    size_t row = fuzz_u8(input) % drawn->gate.n_rows, n_max = 1 + fuzz_u8(input) % SPECTRA_MAX;
    int64_t time = take_time(input), step = config.recv.samples_between_spectra;

    if (n_max > (size_t)config.recv.spectra_per_heap)
        n_max = (size_t)config.recv.spectra_per_heap;
    bool takes = xbgpu_gate_takes(&drawn->gate, row, time);
    size_t n = xbgpu_gate_run(&drawn->gate, row, time, step, n_max);
    assert(n >= 1 && n <= n_max);
    for (size_t i = 0; i < n_max; i++) {
        bool this = xbgpu_gate_takes(&drawn->gate, row, time + (int64_t)i * step);
        int wanted = expected(drawn, row, time + (int64_t)i * step);
        assert(wanted < 0 || wanted == this);
        assert(i >= n || this == takes);
    }
}

/* Which of the changes decides: the last that has begun, else the first. */
static size_t find_change(const struct xbgpu_gate_change *changes, size_t n, int64_t time)
{
    size_t found = 0;

    for (size_t i = 1; i < n; i++)
        if (changes[i].from_samples <= time)
            found = i;
    return found;
}

static void check_list(struct fuzz_input *input)
{
    struct xbgpu_gate_change changes[GATES_MAX];
    size_t n_changes = 0, n_rows = 0, n_batches = 1 + fuzz_u8(input) % BATCHES_MAX;
    size_t n_spectra = (size_t)config.recv.spectra_per_heap, first = fuzz_u8(input) % n_gates;
    int64_t time = take_time(input), step = config.recv.samples_between_spectra;
    static uint32_t spectra[ROWS_MAX * SPECTRA_MAX], ends[ROWS_MAX * (BATCHES_MAX + 1)];

    /* Those with as many rows as the first, in order of time. */
    n_rows = gates[first].gate.n_rows;
    for (size_t i = first; i < n_gates; i++)
        if (gates[i].gate.n_rows == n_rows) {
            int64_t from = time + (int64_t)fuzz_u8(input) * step * (int64_t)n_spectra / 32 - (fuzz_u8(input) & 3);
            if (n_changes > 0 && from < changes[n_changes - 1].from_samples)
                from = changes[n_changes - 1].from_samples;
            changes[n_changes++] = (struct xbgpu_gate_change){&gates[i].gate, from};
        }
    memset(spectra, 0xff, sizeof(spectra));
    size_t most = xbgpu_gate_list(changes, n_changes, time, step, n_spectra, n_batches, SPECTRA_MAX, spectra, ends),
           seen = 0;
    for (size_t row = 0; row < n_rows; row++) {
        const uint32_t *listed = spectra + row * SPECTRA_MAX, *row_ends = ends + row * (n_batches + 1);
        size_t n = 0;
        for (size_t i = 0; i < n_batches * n_spectra; i++) {
            int64_t t = time + (int64_t)i * step;
            if (i % n_spectra == 0)
                assert(row_ends[i / n_spectra] == n);
            if (xbgpu_gate_takes(changes[find_change(changes, n_changes, t)].gate, row, t))
                assert(listed[n++] == i);
        }
        assert(row_ends[n_batches] == n);
        assert(n == SPECTRA_MAX || listed[n] == UINT32_MAX);
        seen = n > seen ? n : seen;
    }
    assert(seen == most);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};

    draw_engine(&input);
    n_gates = 0;
    for (int i = 0; i < ROUNDS_MAX && !fuzz_ended(&input); i++) {
        unsigned how = fuzz_u8(&input) % 4;
        if (how == 0 || n_gates == 0) {
            if (n_gates == GATES_MAX)
                xbgpu_gate_fini(&gates[--n_gates].gate);
            if (!draw_gate(&input, &gates[n_gates]))
                continue;
            check_delays(&gates[n_gates]);
            check_epoch(&gates[n_gates]);
            n_gates++;
        } else if (how == 1) {
            check_list(&input);
        } else {
            check_answers(&input);
        }
    }
    while (n_gates > 0)
        xbgpu_gate_fini(&gates[--n_gates].gate);
    return 0;
}
