/* signal.h - computes the packed heaps of one period from expressions.
 *
 * Flow: dsim_parse -> dsim_signal_choose_seeds -> dsim_heaps_create (evaluate, dither, quantise, pack) -> dsim_send
 *       If an output is live (dsim/live.h), dsim_live replaces dsim_heaps.
 *
 * Every signal is a function of only the sample's index in the period, because random numbers are counter-based.  The
 * samples therefore do not depend on the number of threads, the length of a heap or the order of evaluation. */
#ifndef TOOLS_DSIM_SIGNAL_H
#define TOOLS_DSIM_SIGNAL_H

#include "tools/dsim/parse.h"

#include <stddef.h>
#include <stdint.h>

/* The time axis of all signals. */
struct dsim_axis {
    int64_t period_samples; /* 1 to 2^31 */
    double adc_sample_rate_hz;
};

/* Values of the last word of the Philox counter.  Each use of random numbers has its own value.  So the numbers of
 * different uses are independent, even with the same seed. */
enum dsim_counter { DSIM_COUNTER_WGN = 1, DSIM_COUNTER_DITHER = 2, DSIM_COUNTER_GNSS = 3 };

/* Chooses and logs a random seed for each wgn() and pulsar() without a seed.  Returns 0 or negative errno. */
int dsim_signal_choose_seeds(struct dsim_program *program);

/* Draws a random seed of 53 bits, because any YAML parser reads 53 bits exactly.  Returns 0 or negative errno. */
int dsim_random_seed(uint64_t *seed);

/* Returns the number of cycles of a tone or comb in a period.  The number is a whole number, and at least 1.  The
 * resulting frequency is as near to the requested frequency as possible. */
double dsim_signal_cycles(const struct dsim_axis *axis, double frequency_hz);

/* Computes n_samples samples of a signal, beginning with sample 'first' of the period.  0 <= first and
 * first + n_samples <= period.  The signal must not be live.  'scratch' has room for signal->n_scratch * n_samples
 * values.  The value 1 is full scale.
 *   tone:      a cos(2 pi (w i mod period) / period), where w = cycles.  w i mod period is an exact integer.
 *   comb:      a if i = round(k period / w) (half to even) for an integer k, else 0.  The integers are exact.
 *   pulsar:    dsim/pulsar.h.
 *   wgn:       Box-Muller of Philox with the key 'seed' and the counter i / 4; |value| <= 6.8 standard deviations. */
void dsim_signal_evaluate(const struct dsim_node *signal, const struct dsim_axis *axis, int64_t first, size_t n_samples,
                          double *values, double *scratch);

/* Computes values = values 'op' right, where 'op' is +, - or *. */
void dsim_signal_combine(enum dsim_op op, double *values, const double *right, size_t n_samples);

/* Computes q = round half to even of (value * m + dither), with m = 2^(bits-1) - 1.  The sum is clamped to +-m before
 * it is rounded.  A NaN becomes -m.  'dither' is in (-1/2, 1/2), or NULL for none. */
void dsim_quantise(const double *values, const float *dither, size_t n_samples, int sample_bits, int32_t *quantised);

/* Computes the dither of input 'input' for n_samples samples, beginning with sample 'first'. */
void dsim_dither(uint64_t seed, uint32_t input, int64_t first, size_t n_samples, float *dither);

/* Returns the number of samples at the limit: |q| >= 2^(bits-1) - 1. */
size_t dsim_count_saturated(const int32_t *quantised, size_t n_samples, int sample_bits);

/* Writes the low 'sample_bits' of each sample, most significant bit first, without gaps.  n_samples * sample_bits is
 * a multiple of 8. */
void dsim_pack(const int32_t *quantised, size_t n_samples, int sample_bits, uint8_t *packed);

/* The format of the signals' heaps. */
struct dsim_format {
    struct dsim_axis axis;
    size_t n_inputs;
    size_t packet_samples;
    int sample_bits;
    uint64_t dither_seed;
};

/* Buffers for the samples of one heap: values, dither and quantised samples.  Each thread needs its own workspace. */
struct dsim_workspace {
    double *values;  /* [packet_samples] */
    double *scratch; /* [scratch buffer][packet_samples] scratch buffers, as many as the program's outputs need */
    float *dither;   /* [packet_samples] */
    int32_t *quantised;
};

/* Creates a workspace.  Returns NULL if memory runs out. */
struct dsim_workspace *dsim_workspace_create(const struct dsim_program *program, size_t packet_samples);

/* Accepts NULL. */
void dsim_workspace_destroy(struct dsim_workspace *space);

/* Quantises and packs the workspace's values.  Adds the workspace's dither first if 'has_dither' is true.  Returns the
 * number of saturated samples. */
uint32_t dsim_workspace_pack(struct dsim_workspace *space, const struct dsim_format *format, bool has_dither,
                             uint8_t *payload);

/* All heaps of a period. */
struct dsim_heaps {
    size_t n_inputs;
    /* number of heaps after which the heaps of an input repeat: the smallest number of heaps that fills whole
     * periods */
    size_t n_heaps;
    size_t heap_bytes;
    uint8_t *payloads;     /* [input][heap][heap_bytes] packed samples */
    uint32_t *n_saturated; /* [input][heap] */
};

/* Computes the heaps of whole periods.  Input i gets output i of the program.  If the program has only one output,
 * all inputs get this output.  Returns 0, or -ENOMEM with one sentence in 'why' if the heaps do not fit in the
 * available memory. */
int dsim_heaps_create(const struct dsim_program *program, const struct dsim_format *format, struct dsim_heaps **heaps,
                      char *why, size_t why_bytes);

void dsim_heaps_destroy(struct dsim_heaps *heaps);

static inline size_t dsim_heaps_bytes(const struct dsim_heaps *heaps)
{
    return heaps->n_inputs * heaps->n_heaps * heaps->heap_bytes;
}

static inline const uint8_t *dsim_heaps_payload(const struct dsim_heaps *heaps, size_t input, size_t heap)
{
    return heaps->payloads + (input * heaps->n_heaps + heap) * heaps->heap_bytes;
}

static inline uint32_t dsim_heaps_n_saturated(const struct dsim_heaps *heaps, size_t input, size_t heap)
{
    return heaps->n_saturated[input * heaps->n_heaps + heap];
}

#endif
