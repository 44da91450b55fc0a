/* live.c - interpolates in tables of repeating signals, at drifting positions, and adds signals that never repeat. */
#include "tools/dsim/live.h"

#include "common/base/memory.h"
#include "common/base/thread.h"
#include "kernels/util/clones.h"
#include "tools/dsim/gnss.h"
#include "tools/dsim/sinc.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_TAPS      DSIM_SINC_TAPS
#define N_FRACTIONS 512

#define LANES    16                   /* number of outputs that are computed together, with their sums in registers */
#define N_BEHIND (N_TAPS + LANES - 2) /* number of samples that the filter reads after the end of a period */

/* A table of a repeating signal. */
struct table {
    const struct dsim_node *node;
    float *values; /* [period + N_BEHIND] one period, then the period's first samples again */
};

struct dsim_live {
    const struct dsim_program *program;
    struct dsim_format format;
    struct table *tables;
    size_t n_tables;
    /* taps[r] is the filter for a position r / N_FRACTIONS after a sample.  slopes[r] is the filter for r + 1 minus the
     * filter for r. */
    float taps[N_FRACTIONS][N_TAPS];
    float slopes[N_FRACTIONS][N_TAPS];
    struct dsim_workspace *space;
};

/* ---- The filter -------------------------------------------------------------------------------------------------- */

/* Computes the taps.  Tap N_TAPS / 2 - 1 belongs to the last sample at or before the position.  Each following tap
 * belongs to the following sample. */
static void design(struct dsim_live *live)
{
    for (int r = 0; r < N_FRACTIONS; r++) {
        for (int k = 0; k < N_TAPS; k++) {
            double distance = k - (N_TAPS / 2 - 1) - r / (double)N_FRACTIONS;
            double first = dsim_sinc_tap(distance), next = dsim_sinc_tap(distance - 1.0 / N_FRACTIONS);
            live->taps[r][k] = (float)first;
            live->slopes[r][k] = (float)(next - first);
        }
    }
}

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Computes out[i] = sum over k of (taps[k] + (weight + i step) slopes[k]) in[i + k], 0 <= i < n.  Reads N_BEHIND
 * samples after in[n - 1]. */
KERNEL_CLONES
static void filter(const float *restrict in, size_t n, const float *restrict taps, const float *restrict slopes,
                   double weight, double step, double *restrict out)
{
    for (size_t first = 0; first < n; first += LANES) {
        size_t n_lanes = n - first < LANES ? n - first : LANES;
        lanes sums = {0}, changes = {0}, samples;
        for (size_t k = 0; k < N_TAPS; k++) {
            memcpy(&samples, in + first + k, sizeof(samples));
            sums += taps[k] * samples;
            changes += slopes[k] * samples;
        }
        for (size_t i = 0; i < n_lanes; i++)
            out[first + i] = (double)sums[i] + (weight + (double)(first + i) * step) * (double)changes[i];
    }
}

/* ---- Evaluation -------------------------------------------------------------------------------------------------- */

static int64_t modulo(int64_t value, int64_t period)
{
    int64_t rest = value % period;

    return rest < 0 ? rest + period : rest;
}

static const float *find_table(const struct dsim_live *live, const struct dsim_node *node)
{
    size_t i = 0;

    while (live->tables[i].node != node)
        i++;
    return live->tables[i].values;
}

/* 'taps' is a table of filters for fractions of a sample.  Returns the number of consecutive samples that lie between
 * the same two neighbouring fractions of the table.  'weight' is the first sample's position between the two fractions:
 * 0 at the lower fraction, 1 at the upper fraction. */
static size_t run_samples(double weight, double step, size_t n_left)
{
    double n = step == 0.0 ? (double)n_left : floor((step > 0.0 ? 1.0 - weight : weight) / fabs(step)) + 1.0;

    return n < (double)n_left ? (size_t)n : n_left;
}

static void evaluate_track(const struct dsim_live *live, const struct dsim_node *node, const struct dsim_shift *shift,
                           int64_t timestamp, size_t n_samples, double *values)
{
    const struct dsim_node *track = shift->track;
    int64_t period = live->format.axis.period_samples;
    const float *table = find_table(live, node);
    long double delay = (long double)track->track_samples + (long double)track->track_rate * (long double)timestamp;
    long double whole = floorl(-delay);
    double fraction = (double)(-delay - whole);
    int64_t origin = modulo(
        timestamp % period - shift->delay_samples % period + modulo((int64_t)whole, period) - (N_TAPS / 2 - 1), period);
    double step = -track->track_rate * N_FRACTIONS;

    for (size_t i = 0; i < n_samples;) {
        double position = fraction - (double)i * track->track_rate; /* position in the signal, relative to sample i,
                                                                     * in samples */
        double below = floor(position);
        /* If position - below was rounded up to 1, 'place' is N_FRACTIONS. */
        double place = (position - below) * N_FRACTIONS;
        size_t r = place < N_FRACTIONS ? (size_t)place : N_FRACTIONS - 1;
        int64_t source = (origin + (int64_t)below + (int64_t)i + period) % period;
        size_t n = run_samples(place - (double)r, step, n_samples - i);
        if ((int64_t)n > period - source)
            n = (size_t)(period - source);
        filter(table + source, n, live->taps[r], live->slopes[r], place - (double)r, step, values + i);
        i += n;
    }
}

static void evaluate_periodic(const struct dsim_live *live, const struct dsim_node *node,
                              const struct dsim_shift *shift, int64_t timestamp, size_t n_samples, double *values)
{
    int64_t period = live->format.axis.period_samples;
    const float *table = find_table(live, node);
    int64_t source = modulo(timestamp % period - shift->delay_samples % period, period);

    for (size_t i = 0; i < n_samples; i++) {
        values[i] = (double)table[source];
        source = source + 1 < period ? source + 1 : 0;
    }
}

/* Returns the shift of the signals inside a DELAY or TRACK node.  This shift is the sum of 'shift' and the node's
 * delay.  'shift' applies to the node itself. */
static struct dsim_shift shift_below(const struct dsim_node *node, const struct dsim_shift *shift)
{
    return (struct dsim_shift){shift->delay_samples + node->delay_samples,
                               node->op == DSIM_TRACK ? node : shift->track};
}

static void evaluate(const struct dsim_live *live, const struct dsim_node *node, const struct dsim_shift *shift,
                     int64_t timestamp, size_t n_samples, double *values, double *scratch)
{
    if (node->op == DSIM_CONSTANT) {
        dsim_signal_evaluate(node, &live->format.axis, 0, n_samples, values, NULL);
    } else if (!node->is_live && shift->track) {
        evaluate_track(live, node, shift, timestamp, n_samples, values);
    } else if (!node->is_live) {
        evaluate_periodic(live, node, shift, timestamp, n_samples, values);
    } else if (node->op == DSIM_GNSS) {
        dsim_gnss_evaluate(node, shift, timestamp, n_samples, values);
    } else if (node->op == DSIM_DELAY || node->op == DSIM_TRACK) {
        const struct dsim_shift below = shift_below(node, shift);
        evaluate(live, node->left, &below, timestamp, n_samples, values, scratch);
    } else {
        evaluate(live, node->left, shift, timestamp, n_samples, values, scratch);
        evaluate(live, node->right, shift, timestamp, n_samples, scratch, scratch + n_samples);
        dsim_signal_combine(node->op, values, scratch, n_samples);
    }
}

void dsim_live_evaluate(struct dsim_live *live, size_t output, int64_t timestamp, size_t n_samples, double *values)
{
    const struct dsim_shift none = {0};

    assert(timestamp >= 0 && n_samples <= live->format.packet_samples);
    evaluate(live, live->program->outputs[output].signal, &none, timestamp, n_samples, values, live->space->scratch);
}

uint32_t dsim_live_heap(struct dsim_live *live, size_t input, int64_t timestamp, uint8_t *payload)
{
    size_t output = live->program->n_outputs == 1 ? 0 : input;
    size_t n_samples = live->format.packet_samples;
    bool dither = live->program->outputs[output].dither;

    dsim_live_evaluate(live, output, timestamp, n_samples, live->space->values);
    if (dither)
        dsim_dither(live->format.dither_seed, (uint32_t)input, timestamp, n_samples, live->space->dither);
    return dsim_workspace_pack(live->space, &live->format, dither, payload);
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

/* Adds a table for each repeating part of an expression.  A part inside a larger repeating part gets no table.  A part
 * that occurs twice gets one table.  Constants need no table. */
static void find_periodic(struct dsim_live *live, const struct dsim_node *node)
{
    if (node->op == DSIM_CONSTANT || node->op == DSIM_GNSS)
        return;
    if (node->is_live) {
        find_periodic(live, node->left);
        if (node->right)
            find_periodic(live, node->right);
        return;
    }
    for (size_t i = 0; i < live->n_tables; i++)
        if (live->tables[i].node == node)
            return;
    live->tables[live->n_tables++].node = node;
}

/* Computes a table.  Returns 0 or -ENOMEM. */
static int fill_table(const struct dsim_live *live, const struct table *table)
{
    const struct dsim_format *format = &live->format;
    size_t n = format->packet_samples, period = (size_t)format->axis.period_samples;
    int err = 0;

#pragma omp parallel
    {
        double *values = malloc((table->node->n_scratch + 1) * n * sizeof(*values));
#pragma omp for schedule(static)
        for (size_t first = 0; first < period; first += n) {
            if (values)
                dsim_signal_evaluate(table->node, &format->axis, (int64_t)first, n, values, values + n);
            for (size_t i = 0; values && i < n; i++)
                table->values[first + i] = (float)values[i];
        }
        if (!values) {
#pragma omp atomic write
            err = -ENOMEM;
        }
        free(values);
    }
    for (size_t i = 0; i < N_BEHIND; i++)
        table->values[period + i] = table->values[i % period];
    return err;
}

static int make_tables(struct dsim_live *live, char *why, size_t why_bytes)
{
    const struct dsim_program *program = live->program;
    size_t table_bytes = ((size_t)live->format.axis.period_samples + N_BEHIND) * sizeof(float);

    live->tables = calloc(program->n_nodes, sizeof(*live->tables));
    if (!live->tables)
        return -ENOMEM;
    for (size_t i = 0; i < program->n_outputs; i++)
        find_periodic(live, program->outputs[i].signal);
    int err = memory_check(bytes_times(live->n_tables, table_bytes), "digitiser.period", "make the period shorter", why,
                           why_bytes);
    /* OpenMP ends the process if it gets no threads. */
    if (!err)
        err = threads_probe((size_t)sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < live->n_tables && !err; i++) {
        live->tables[i].values = malloc(table_bytes);
        err = live->tables[i].values ? fill_table(live, &live->tables[i]) : -ENOMEM;
    }
    return err;
}

int dsim_live_create(const struct dsim_program *program, const struct dsim_format *format, struct dsim_live **live,
                     char *why, size_t why_bytes)
{
    struct dsim_live *made = calloc(1, sizeof(*made));

    snprintf(why, why_bytes, "digitiser.period: there is no memory for a period of all signals");
    if (!made)
        return -ENOMEM;
    made->program = program;
    made->format = *format;
    design(made);
    made->space = dsim_workspace_create(program, format->packet_samples);
    int err = made->space ? make_tables(made, why, why_bytes) : -ENOMEM;
    if (err)
        dsim_live_destroy(made);
    else
        *live = made;
    return err;
}

void dsim_live_destroy(struct dsim_live *live)
{
    if (!live)
        return;
    for (size_t i = 0; i < live->n_tables; i++)
        free(live->tables[i].values);
    free(live->tables);
    dsim_workspace_destroy(live->space);
    free(live);
}
