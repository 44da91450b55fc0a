/* signal.c - the second step of dsim, before anything is sent: evaluates the expressions heap by heap, dithers,
 * quantises and packs.  A heap does not depend on earlier heaps, so heaps are computed in parallel. */
#include "tools/dsim/signal.h"

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/thread.h"
#include "common/base/why.h"
#include "kernels/util/philox.h"
#include "tools/dsim/gnss.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PHILOX_WORDS 4

/* ---- Seeds ----------------------------------------------------------------------------------------------------- */

int dsim_random_seed(uint64_t *seed)
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return -EIO;
    *seed = random >> 11;
    return 0;
}

int dsim_signal_choose_seeds(struct dsim_program *program)
{
    for (size_t i = 0; i < program->n_nodes; i++) {
        struct dsim_node *node = &program->nodes[i];
        unsigned line, column;

        if ((node->op != DSIM_WGN && node->op != DSIM_PULSAR) || node->has_seed)
            continue;
        int err = dsim_random_seed(&node->seed);
        if (err)
            return err;
        node->has_seed = true;
        dsim_parse_position(program->text, node->offset, &line, &column);
        log_info("%s at line %u, column %u of the specification: seed %llu", node->op == DSIM_WGN ? "wgn" : "pulsar",
                 line, column, (unsigned long long)node->seed);
    }
    return 0;
}

/* ---- The functions of the language ------------------------------------------------------------------------------ */

double dsim_signal_cycles(const struct dsim_axis *axis, double frequency_hz)
{
    double cycles = rint((double)axis->period_samples * frequency_hz / axis->adc_sample_rate_hz);

    return cycles < 1.0 ? 1.0 : cycles;
}

/* Adds one tone.  The number of cycles in a period is taken modulo period_samples, because a whole cycle per sample
 * does not change the samples.  This number then fits in 31 bits, and the product of this number and a sample's index
 * fits in 62 bits. */
static void add_tone(const struct dsim_axis *axis, double amplitude, double frequency_hz, int64_t first,
                     size_t n_samples, double *values)
{
    int64_t period = axis->period_samples;
    int64_t cycles = (int64_t)fmod(dsim_signal_cycles(axis, frequency_hz), (double)period);
    int64_t phase = cycles * first % period;
    double scale = 2.0 * M_PI / (double)period;

    for (size_t i = 0; i < n_samples; i++) {
        values[i] += amplitude * cos(scale * (double)phase);
        phase += cycles;
        if (phase >= period)
            phase -= period;
    }
}

static void evaluate_tones(const struct dsim_node *node, const struct dsim_axis *axis, int64_t first, size_t n_samples,
                           double *values)
{
    for (size_t i = 0; i < n_samples; i++)
        values[i] = 0.0;
    for (int64_t tone = 0; tone < node->n_tones; tone++)
        add_tone(axis, node->amplitude + (double)tone * node->amplitude_step,
                 node->frequency_hz + (double)tone * node->frequency_step_hz, first, n_samples, values);
}

/* Returns the index of the sample at impulse k: k * period / cycles, rounded half to even.  k >= 0, and k, period and
 * cycles are at most 2^31. */
static int64_t impulse_position(int64_t k, int64_t period, int64_t cycles)
{
    int64_t position = k * period / cycles;
    int64_t rest = 2 * (k * period % cycles);

    if (rest > cycles || (rest == cycles && position % 2 == 1))
        position++;
    return position;
}

/* Computes a comb.  If a period has more impulses than samples, every sample has one impulse. */
static void evaluate_comb(const struct dsim_node *node, const struct dsim_axis *axis, int64_t first, size_t n_samples,
                          double *values)
{
    int64_t period = axis->period_samples;
    int64_t cycles = (int64_t)fmin(dsim_signal_cycles(axis, node->frequency_hz), (double)period);
    int64_t k = first * cycles / period; /* number of the last impulse at or before 'first'; its rounded position may
                                          * be after 'first' */

    for (size_t i = 0; i < n_samples; i++)
        values[i] = 0.0;
    for (;; k++) {
        int64_t position = impulse_position(k, period, cycles) - first;
        if (position >= (int64_t)n_samples)
            return;
        if (position >= 0)
            values[position] = node->amplitude;
    }
}

static void philox_words(uint64_t seed, int64_t index, uint32_t input, uint32_t use, uint32_t words[PHILOX_WORDS])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), input, use};

    philox4x32(counter, key, words);
}

/* Computes four normal numbers of variance 1, for samples 4 * index to 4 * index + 3 (G. E. P. Box and M. E. Muller,
 * "A note on the generation of random normal deviates", 1958).  A half is added to the random word, so the logarithm
 * is finite. */
static void normal_group(uint64_t seed, int64_t index, double normals[PHILOX_WORDS])
{
    uint32_t words[PHILOX_WORDS];

    philox_words(seed, index, 0, DSIM_COUNTER_WGN, words);
    for (int i = 0; i < PHILOX_WORDS; i += 2) {
        double radius = sqrt(-2.0 * log(((double)words[i] + 0.5) * 0x1p-32));
        double angle = 2.0 * M_PI * 0x1p-32 * (double)words[i + 1];
        normals[i] = radius * cos(angle);
        normals[i + 1] = radius * sin(angle);
    }
}

static void evaluate_wgn(const struct dsim_node *node, int64_t first, size_t n_samples, double *values)
{
    double normals[PHILOX_WORDS];

    assert(node->has_seed);
    for (size_t i = 0; i < n_samples; i++) {
        int64_t sample = first + (int64_t)i;
        if (i == 0 || sample % PHILOX_WORDS == 0)
            normal_group(node->seed, sample / PHILOX_WORDS, normals);
        values[i] = node->amplitude * normals[sample % PHILOX_WORDS];
    }
}

/* Computes a delayed signal: consecutive samples of a repeating signal.  After the end of the period, the samples
 * continue at its beginning. */
static void evaluate_delay(const struct dsim_node *node, const struct dsim_axis *axis, int64_t first, size_t n_samples,
                           double *values, double *scratch)
{
    int64_t period = axis->period_samples;
    int64_t source = (first - node->delay_samples % period + period) % period;
    size_t n_before_end = (size_t)(period - source);

    if (n_before_end >= n_samples) {
        dsim_signal_evaluate(node->left, axis, source, n_samples, values, scratch);
        return;
    }
    dsim_signal_evaluate(node->left, axis, source, n_before_end, values, scratch);
    dsim_signal_evaluate(node->left, axis, 0, n_samples - n_before_end, values + n_before_end, scratch);
}

void dsim_signal_combine(enum dsim_op op, double *values, const double *right, size_t n_samples)
{
    for (size_t i = 0; i < n_samples; i++) {
        if (op == DSIM_ADD)
            values[i] += right[i];
        else if (op == DSIM_SUBTRACT)
            values[i] -= right[i];
        else
            values[i] *= right[i];
    }
}

static void evaluate_operator(const struct dsim_node *node, const struct dsim_axis *axis, int64_t first,
                              size_t n_samples, double *values, double *scratch)
{
    dsim_signal_evaluate(node->left, axis, first, n_samples, values, scratch);
    dsim_signal_evaluate(node->right, axis, first, n_samples, scratch, scratch + n_samples);
    dsim_signal_combine(node->op, values, scratch, n_samples);
}

void dsim_signal_evaluate(const struct dsim_node *signal, const struct dsim_axis *axis, int64_t first, size_t n_samples,
                          double *values, double *scratch)
{
    assert(first >= 0 && first + (int64_t)n_samples <= axis->period_samples);
    switch (signal->op) {
    case DSIM_CONSTANT:
        for (size_t i = 0; i < n_samples; i++)
            values[i] = signal->amplitude;
        break;
    case DSIM_TONES: evaluate_tones(signal, axis, first, n_samples, values); break;
    case DSIM_COMB: evaluate_comb(signal, axis, first, n_samples, values); break;
    case DSIM_WGN: evaluate_wgn(signal, first, n_samples, values); break;
    case DSIM_PULSAR: memcpy(values, signal->samples + first, n_samples * sizeof(*values)); break;
    case DSIM_DELAY: evaluate_delay(signal, axis, first, n_samples, values, scratch); break;
    case DSIM_REPEAT: dsim_signal_evaluate(signal->left, axis, first, n_samples, values, scratch); break;
    case DSIM_GNSS: dsim_gnss_evaluate(signal, &(struct dsim_shift){0}, first, n_samples, values); break;
    case DSIM_TRACK: assert(!"not reached: dsim_live evaluates live signals"); break;
    case DSIM_NODITHER: assert(!"only the parser sees nodither"); break;
    case DSIM_ADD:
    case DSIM_SUBTRACT:
    case DSIM_MULTIPLY: evaluate_operator(signal, axis, first, n_samples, values, scratch); break;
    }
}

/* ---- Samples ---------------------------------------------------------------------------------------------------- */

static int32_t max_sample(int sample_bits)
{
    return (INT32_C(1) << (sample_bits - 1)) - 1;
}

void dsim_dither(uint64_t seed, uint32_t input, int64_t first, size_t n_samples, float *dither)
{
    uint32_t words[PHILOX_WORDS];

    for (size_t i = 0; i < n_samples; i++) {
        int64_t sample = first + (int64_t)i;
        if (i == 0 || sample % PHILOX_WORDS == 0)
            philox_words(seed, sample / PHILOX_WORDS, input, DSIM_COUNTER_DITHER, words);
        dither[i] = philox_dither(words[sample % PHILOX_WORDS], 1);
    }
}

void dsim_quantise(const double *values, const float *dither, size_t n_samples, int sample_bits, int32_t *quantised)
{
    double max = max_sample(sample_bits);

    for (size_t i = 0; i < n_samples; i++) {
        double value = values[i] * max + (dither ? (double)dither[i] : 0.0);
        double clamped = value > -max ? (value < max ? value : max) : -max;
        quantised[i] = (int32_t)rint(clamped);
    }
}

size_t dsim_count_saturated(const int32_t *quantised, size_t n_samples, int sample_bits)
{
    int32_t max = max_sample(sample_bits);
    size_t n_saturated = 0;

    for (size_t i = 0; i < n_samples; i++)
        n_saturated += quantised[i] >= max || quantised[i] <= -max;
    return n_saturated;
}

void dsim_pack(const int32_t *quantised, size_t n_samples, int sample_bits, uint8_t *packed)
{
    uint32_t mask = (UINT32_C(1) << sample_bits) - 1;
    uint32_t bits = 0; /* the lowest 'n_bits' bits of this number are not yet written */
    int n_bits = 0;

    for (size_t i = 0; i < n_samples; i++) {
        bits = bits << sample_bits | ((uint32_t)quantised[i] & mask);
        n_bits += sample_bits;
        for (; n_bits >= 8; n_bits -= 8)
            *packed++ = (uint8_t)(bits >> (n_bits - 8));
    }
    assert(n_bits == 0);
}

/* ---- Heaps ------------------------------------------------------------------------------------------------------ */

void dsim_workspace_destroy(struct dsim_workspace *space)
{
    if (!space)
        return;
    free(space->values);
    free(space->scratch);
    free(space->dither);
    free(space->quantised);
    free(space);
}

struct dsim_workspace *dsim_workspace_create(const struct dsim_program *program, size_t packet_samples)
{
    struct dsim_workspace *space = calloc(1, sizeof(*space));
    size_t n_scratch = 0;

    if (!space)
        return NULL;
    for (size_t i = 0; i < program->n_outputs; i++)
        if (program->outputs[i].signal->n_scratch > n_scratch)
            n_scratch = program->outputs[i].signal->n_scratch;
    space->values = malloc(packet_samples * sizeof(*space->values));
    space->scratch = malloc((n_scratch + 1) * packet_samples * sizeof(*space->scratch));
    space->dither = malloc(packet_samples * sizeof(*space->dither));
    space->quantised = malloc(packet_samples * sizeof(*space->quantised));
    if (space->values && space->scratch && space->dither && space->quantised)
        return space;
    dsim_workspace_destroy(space);
    return NULL;
}

uint32_t dsim_workspace_pack(struct dsim_workspace *space, const struct dsim_format *format, bool has_dither,
                             uint8_t *payload)
{
    size_t n = format->packet_samples;

    dsim_quantise(space->values, has_dither ? space->dither : NULL, n, format->sample_bits, space->quantised);
    dsim_pack(space->quantised, n, format->sample_bits, payload);
    return (uint32_t)dsim_count_saturated(space->quantised, n, format->sample_bits);
}

/* Computes a heap.  If the period ends within the heap, continues at the beginning of the period. */
static void compute_heap(const struct dsim_output *output, const struct dsim_format *format, size_t input, size_t heap,
                         struct dsim_workspace *space, struct dsim_heaps *heaps)
{
    size_t n_samples = format->packet_samples, n;
    int64_t period = format->axis.period_samples, start = (int64_t)(heap * n_samples);
    size_t place = input * heaps->n_heaps + heap;

    for (size_t done = 0; done < n_samples; done += n) {
        int64_t first = (start + (int64_t)done) % period;
        n = n_samples - done < (size_t)(period - first) ? n_samples - done : (size_t)(period - first);
        dsim_signal_evaluate(output->signal, &format->axis, first, n, space->values + done, space->scratch);
        if (output->dither)
            dsim_dither(format->dither_seed, (uint32_t)input, first, n, space->dither + done);
    }
    heaps->n_saturated[place] =
        dsim_workspace_pack(space, format, output->dither, heaps->payloads + place * heaps->heap_bytes);
}

/* Computes all heaps.  Returns 0 or -ENOMEM. */
static int compute_heaps(const struct dsim_program *program, const struct dsim_format *format, struct dsim_heaps *heaps)
{
    size_t n_all = heaps->n_inputs * heaps->n_heaps;
    int err = 0;

#pragma omp parallel
    {
        struct dsim_workspace *space = dsim_workspace_create(program, format->packet_samples);
#pragma omp for schedule(static)
        for (size_t i = 0; i < n_all; i++) {
            size_t input = i / heaps->n_heaps;
            if (space)
                compute_heap(&program->outputs[program->n_outputs == 1 ? 0 : input], format, input, i % heaps->n_heaps,
                             space, heaps);
        }
        if (!space) {
#pragma omp atomic write
            err = -ENOMEM;
        }
        dsim_workspace_destroy(space);
    }
    return err;
}

static size_t greatest_common_divisor(size_t a, size_t b)
{
    while (b) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int dsim_heaps_create(const struct dsim_program *program, const struct dsim_format *format, struct dsim_heaps **heaps,
                      char *why, size_t why_bytes)
{
    struct dsim_heaps *made = calloc(1, sizeof(*made));

    assert(program->n_outputs == 1 || program->n_outputs == format->n_inputs);
    if (!made)
        return -ENOMEM;
    made->n_inputs = format->n_inputs;
    made->n_heaps = (size_t)format->axis.period_samples /
                    greatest_common_divisor((size_t)format->axis.period_samples, format->packet_samples);
    made->heap_bytes = format->packet_samples * (size_t)format->sample_bits / 8;
    size_t n_all = made->n_inputs * made->n_heaps;
    size_t bytes = n_all * (made->heap_bytes + sizeof(*made->n_saturated));
    int err = memory_check(bytes, "digitiser.period", "make the period shorter", why, why_bytes);
    /* OpenMP ends the process if it gets no threads. */
    if (!err)
        err = threads_probe((size_t)sysconf(_SC_NPROCESSORS_ONLN));
    if (!err) {
        made->payloads = malloc(n_all * made->heap_bytes);
        made->n_saturated = malloc(n_all * sizeof(*made->n_saturated));
        if (!made->payloads || !made->n_saturated || compute_heaps(program, format, made))
            err = why_fail(-ENOMEM, why, why_bytes,
                           "digitiser.period: there is no memory for a period of %zu polarisations: %zu MiB",
                           made->n_inputs, bytes >> 20);
    }
    if (err)
        dsim_heaps_destroy(made);
    else
        *heaps = made;
    return err;
}

void dsim_heaps_destroy(struct dsim_heaps *heaps)
{
    if (!heaps)
        return;
    free(heaps->payloads);
    free(heaps->n_saturated);
    free(heaps);
}
