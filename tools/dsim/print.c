/* print.c - called by dsim/control.c: writes the signals in use as text for KATCP clients. */
#include "tools/dsim/print.h"

#include "common/katcp/python_number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_BYTES (64 << 10)

struct text {
    char *bytes;
    size_t n;
    bool too_long;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
    va_list args;

    if (t->too_long)
        return;
    va_start(args, format);
    int n = vsnprintf(t->bytes + t->n, MAX_BYTES - t->n, format, args);
    va_end(args);
    t->n += (size_t)n;
    t->too_long = t->n >= MAX_BYTES;
}

static void add_number(struct text *t, const char *before, double number)
{
    char text[PYTHON_FLOAT_BYTES];

    add(t, "%s%s", before, python_number_float_text(number, text));
}

static void add_node(struct text *t, const struct dsim_node *node);

static void add_tones(struct text *t, const struct dsim_node *node)
{
    if (node->n_tones == 1) {
        add_number(t, "cw(", node->amplitude);
        add_number(t, ", ", node->frequency_hz);
    } else {
        add(t, "multicw(%" PRId64, node->n_tones);
        add_number(t, ", ", node->amplitude);
        add_number(t, ", ", node->amplitude_step);
        add_number(t, ", ", node->frequency_hz);
        add_number(t, ", ", node->frequency_step_hz);
    }
    add(t, ")");
}

static void add_gnss(struct text *t, const struct dsim_node *node)
{
    const struct dsim_satellite *satellite = &node->satellite;

    add(t, "gnss(%s, %" PRId64, gnss_signal_facts(satellite->signal)->name, satellite->prn);
    add_number(t, ", ", satellite->cn0_db_hz);
    add_number(t, ", ", node->amplitude);
    add_number(t, ", ", node->frequency_hz);
    add_number(t, ", ", satellite->delay_samples);
    add_number(t, ", ", satellite->doppler_hz);
    add_number(t, ", ", satellite->doppler_rate_hz_s);
    if (node->has_seed)
        add(t, ", %" PRIu64, node->seed);
    add(t, ")");
}

static bool is_sum(const struct dsim_node *node)
{
    return node->op == DSIM_ADD || node->op == DSIM_SUBTRACT;
}

/* Writes an operator with its operands.  Operators associate from left to right, so the right operand needs parentheses
 * in more cases than the left operand. */
static void add_operator(struct text *t, const struct dsim_node *node, const char *symbol)
{
    bool left = node->op == DSIM_MULTIPLY && is_sum(node->left);
    bool right = is_sum(node->right) || (node->op == DSIM_MULTIPLY && node->right->op == DSIM_MULTIPLY);

    add(t, "%s", left ? "(" : "");
    add_node(t, node->left);
    add(t, "%s %s %s", left ? ")" : "", symbol, right ? "(" : "");
    add_node(t, node->right);
    add(t, "%s", right ? ")" : "");
}

static void add_node(struct text *t, const struct dsim_node *node)
{
    if (t->too_long)
        return;
    switch (node->op) {
    case DSIM_CONSTANT: add_number(t, "", node->amplitude); break;
    case DSIM_TONES: add_tones(t, node); break;
    case DSIM_COMB:
        add_number(t, "comb(", node->amplitude);
        add_number(t, ", ", node->frequency_hz);
        add(t, ")");
        break;
    case DSIM_WGN:
        add_number(t, "wgn(", node->amplitude);
        add(t, ", %" PRIu64 ")", node->seed);
        break;
    case DSIM_PULSAR:
        add_number(t, "pulsar(", node->amplitude);
        add_number(t, ", ", node->pulse_period_s);
        add_number(t, ", ", node->pulse_width_s);
        add_number(t, ", ", node->dispersion_measure);
        add_number(t, ", ", node->frequency_hz);
        add(t, ", %" PRIu64 ")", node->seed);
        break;
    case DSIM_GNSS: add_gnss(t, node); break;
    case DSIM_DELAY:
        add(t, "delay(");
        add_node(t, node->left);
        add(t, ", %" PRId64 ")", node->delay_samples);
        break;
    case DSIM_TRACK:
        add(t, "track(");
        add_node(t, node->left);
        add_number(t, ", ", node->track_samples);
        add_number(t, ", ", node->track_rate);
        add(t, ")");
        break;
    case DSIM_REPEAT:
        add(t, "repeat(");
        add_node(t, node->left);
        add(t, ")");
        break;
    case DSIM_NODITHER: add_node(t, node->left); break; /* dsim_print() writes the nodither() of an output */
    case DSIM_ADD: add_operator(t, node, "+"); break;
    case DSIM_SUBTRACT: add_operator(t, node, "-"); break;
    case DSIM_MULTIPLY: add_operator(t, node, "*"); break;
    }
}

char *dsim_print(const struct dsim_program *program)
{
    struct text t = {.bytes = malloc(MAX_BYTES)};

    if (!t.bytes)
        return NULL;
    for (size_t i = 0; i < program->n_outputs; i++) {
        add(&t, program->outputs[i].dither ? "%s" : "%snodither(", i ? " " : "");
        add_node(&t, program->outputs[i].signal);
        add(&t, program->outputs[i].dither ? ";" : ");");
    }
    if (t.too_long) {
        free(t.bytes);
        return NULL;
    }
    return t.bytes;
}
