/* fuzz_signal.c - any text as signals of dsim.  An error names a place in the text.  Signals that were parsed are
 * printed and parsed again: the printed text stays the same, and the samples of signals that repeat are the same.
 *
 * Input: the length of the period, then the text. */
#include "tests/fuzz/fuzz_count.h"
#include "tests/fuzz/fuzz_input.h"
#include "tools/dsim/parse.h"
#include "tools/dsim/print.h"
#include "tools/dsim/signal.h"

#include <errno.h>
#include <stdio.h>

enum { N_SAMPLES = 16 };

static struct dsim_program *parse(const char *text)
{
    struct dsim_program *program = NULL;
    unsigned line, column;
    char why[400] = "";
    int err = dsim_parse(text, &program, why, sizeof(why));

    if (!err) {
        assert(program && program->n_outputs > 0);
        return program;
    }
    assert(err == -EINVAL && !program);
    assert(sscanf(why, "line %u, column %u: ", &line, &column) == 2 && line > 0 && column > 0);
    unsigned n_lines = 1;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        n_lines++;
    assert(line <= n_lines && column <= strlen(text) + 1);
    return NULL;
}

/* Seeds, which dsim chooses by chance, so that the printed text has all of them. */
static void set_seeds(struct dsim_program *program)
{
    for (size_t i = 0; i < program->n_nodes; i++) {
        struct dsim_node *node = &program->nodes[i];
        if ((node->op == DSIM_WGN || node->op == DSIM_PULSAR) && !node->has_seed) {
            node->seed = 7;
            node->has_seed = true;
        }
    }
}

/* Returns true if the samples of an output can be computed without tables of a whole period, and soon. */
static bool is_simple(const struct dsim_program *program, const struct dsim_output *output)
{
    for (size_t i = 0; i < program->n_nodes; i++)
        if (program->nodes[i].op == DSIM_GNSS || program->nodes[i].op == DSIM_PULSAR)
            return false;
    return !output->signal->is_live && output->signal->cost < 300;
}

static void evaluate(const struct dsim_output *output, const struct dsim_axis *axis, double values[N_SAMPLES])
{
    static double scratch[DSIM_MAX_SCRATCH * N_SAMPLES];

    assert(output->signal->n_scratch <= DSIM_MAX_SCRATCH);
    dsim_signal_evaluate(output->signal, axis, axis->period_samples - N_SAMPLES, N_SAMPLES, values, scratch);
}

static void compare(const struct dsim_program *a, const struct dsim_program *b, const struct dsim_axis *axis)
{
    double from_a[N_SAMPLES], from_b[N_SAMPLES];

    assert(a->n_outputs == b->n_outputs && a->is_live == b->is_live && a->has_pulsar == b->has_pulsar);
    for (size_t i = 0; i < a->n_outputs; i++) {
        assert(a->outputs[i].dither == b->outputs[i].dither);
        if (!is_simple(a, &a->outputs[i]))
            continue;
        evaluate(&a->outputs[i], axis, from_a);
        evaluate(&b->outputs[i], axis, from_b);
        assert(memcmp(from_a, from_b, sizeof(from_a)) == 0);
    }
}

static void check_round_trip(struct dsim_program *program, const struct dsim_axis *axis)
{
    set_seeds(program);
    char *text = dsim_print(program);
    if (!text)
        return; /* the text would be too long */
    struct dsim_program *again = parse(text);
    assert(again);
    char *text_again = dsim_print(again);
    assert(text_again && strcmp(text, text_again) == 0);
    compare(program, again, axis);
    free(text_again);
    dsim_program_free(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};
    struct dsim_axis axis = {N_SAMPLES + (int64_t)fuzz_u16(&input), 1712e6};
    char *text = (char *)fuzz_exact(input.n_left + 1);

    if (input.n_left > 0)
        memcpy(text, input.at, input.n_left);
    text[input.n_left] = '\0';
    struct dsim_program *program = parse(text);
    if (program)
        check_round_trip(program, &axis);
    dsim_program_free(program);
    free(text);
    fuzz_count("texts", 1);
    return 0;
}
