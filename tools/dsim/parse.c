/* parse.c - the first step of dsim: parses the specification of the signals and makes expressions, which
 * dsim/signal.c evaluates.  Recursive descent, one function per rule of the grammar in the header. */
#include "tools/dsim/parse.h"

#include "common/base/units.h"
#include "common/base/why.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Greatest depth of nested parentheses and functions.  This limit bounds the recursion of the parser. */
#define MAX_NESTING 64

/* Greatest delay of track().  Up to this delay, a double has enough digits for the fraction of a sample. */
#define MAX_TRACK_SAMPLES 1e9

#define MAX_DISPERSION_MEASURE 1e5 /* greatest dispersion measure, in pc/cm^3; xbgpu's gates have the same limit */
#define MAX_RADIO_HZ           1e12
#define MAX_CN0_DB_HZ          200
#define MAX_GNSS_DELAY         1e17 /* greatest delay in samples; this number of samples lasts years */
#define MAX_NOISE              1e6
#define MAX_DOPPLER_HZ         1e6
#define MAX_DOPPLER_RATE_HZ_S  1e4

struct variable {
    const char *name;
    size_t name_length;
    struct dsim_node *node;
};

struct parser {
    const char *text;
    size_t offset;
    struct dsim_program *program;
    struct variable *variables;
    size_t n_variables;
    unsigned nesting;
    char *why;
    size_t why_bytes;
};

/* A function of the language.  Its member 'read_arguments' reads the arguments between the parentheses into 'node',
 * and returns false after an error. */
struct function {
    const char *name;
    const char *usage;
    enum dsim_op op;
    bool (*read_arguments)(struct parser *p, const struct function *function, struct dsim_node *node);
};

static struct dsim_node *parse_expression(struct parser *p);

/* ---- Errors and characters ------------------------------------------------------------------------------------- */

void dsim_parse_position(const char *text, size_t offset, unsigned *line, unsigned *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            (*line)++;
            *column = 1;
        } else {
            (*column)++;
        }
    }
}

/* Writes the error message.  Always returns NULL, which converts to false, so that callers of either type can return
 * this value. */
__attribute__((format(printf, 3, 4))) static void *fail(struct parser *p, size_t offset, const char *format, ...)
{
    unsigned line, column;
    char sentence[200];
    va_list arguments;

    dsim_parse_position(p->text, offset, &line, &column);
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    snprintf(p->why, p->why_bytes, "line %u, column %u: %s", line, column, sentence);
    return NULL;
}

/* Skips blanks.  Returns the next character, '\0' at the end. */
static char peek(struct parser *p)
{
    while (p->text[p->offset] != '\0' && strchr(" \t\r\n", p->text[p->offset]))
        p->offset++;
    return p->text[p->offset];
}

static bool accept(struct parser *p, char wanted)
{
    if (peek(p) != wanted)
        return false;
    p->offset++;
    return true;
}

/* Returns a description of the next character, for error messages. */
static const char *found(struct parser *p, char *text, size_t text_bytes)
{
    char c = peek(p);

    if (c == '\0')
        return "the end of the text";
    if (isprint((unsigned char)c))
        snprintf(text, text_bytes, "'%c'", c);
    else
        snprintf(text, text_bytes, "byte 0x%02x", (unsigned char)c);
    return text;
}

static bool expect(struct parser *p, char wanted, const char *where)
{
    char text[16];

    if (accept(p, wanted))
        return true;
    const char *instead = found(p, text, sizeof(text));
    return fail(p, p->offset, "expected '%c' %s, found %s", wanted, where, instead);
}

static bool starts_name(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

/* Returns the length of the name at the current position.  Returns 0 if there is no name. */
static size_t name_length(struct parser *p)
{
    size_t length = 0;

    if (!starts_name(peek(p)))
        return 0;
    while (starts_name(p->text[p->offset + length]) || isdigit((unsigned char)p->text[p->offset + length]))
        length++;
    return length;
}

/* ---- Numbers --------------------------------------------------------------------------------------------------- */

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Returns the length of the number at 'text', which must have no sign.  Returns 0 if there is no number.  Does not use
 * strtod(), which also accepts "inf" and hexadecimal numbers. */
static size_t number_length(const char *text, bool *is_integer)
{
    size_t length = count_digits(text);
    size_t n_digits = length;

    *is_integer = true;
    if (text[length] == '.') {
        size_t n_decimals = count_digits(text + length + 1);
        *is_integer = false;
        n_digits += n_decimals;
        length += 1 + n_decimals;
    }
    if (n_digits == 0)
        return 0;
    if (text[length] == 'e' || text[length] == 'E') {
        size_t sign = text[length + 1] == '+' || text[length + 1] == '-';
        size_t n_exponent = count_digits(text + length + 1 + sign);
        if (n_exponent > 0) {
            *is_integer = false;
            length += 1 + sign + n_exponent;
        }
    }
    return length;
}

/* Finds a number with an optional sign.  Returns its first character, or NULL after an error. */
static const char *find_number(struct parser *p, const char *what, bool integer)
{
    char text[16];
    char first = peek(p);
    size_t start = p->offset;
    bool is_integer;

    if (first == '+' || first == '-')
        p->offset++;
    peek(p);
    size_t length = number_length(p->text + p->offset, &is_integer);
    if (length == 0 || (integer && !is_integer)) {
        const char *instead = length == 0 ? found(p, text, sizeof(text)) : "a fraction";
        return fail(p, p->offset, "expected %s%s%s, found %s", what, integer ? ", an integer" : "",
                    length == 0 && !integer ? ", a number" : "", instead);
    }
    p->offset += length;
    return p->text + start;
}

static bool read_real(struct parser *p, const char *what, double *value)
{
    const char *first = find_number(p, what, false);
    double sign = 1.0;

    if (!first)
        return false;
    if (*first == '+' || *first == '-') {
        sign = *first == '-' ? -1.0 : 1.0;
        do
            first++;
        while (isspace((unsigned char)*first));
    }
    /* strtod() would read "0x1" as a hexadecimal number.  In this language, "0x1" is the number 0 and then the text
     * "x1".  Other numbers end where strtod() ends. */
    *value = first[0] == '0' && (first[1] == 'x' || first[1] == 'X') ? 0.0 : sign * strtod(first, NULL);
    if (!isfinite(*value))
        return fail(p, (size_t)(first - p->text), "%s is out of the range of a double", what);
    return true;
}

/* Skips blanks, and returns the offset of the next character, for messages. */
static size_t next_offset(struct parser *p)
{
    peek(p);
    return p->offset;
}

static bool read_not_negative(struct parser *p, const char *what, double *value)
{
    size_t start = next_offset(p);

    if (!read_real(p, what, value))
        return false;
    return *value >= 0 || fail(p, start, "%s must not be negative", what);
}

static bool read_integer(struct parser *p, const char *what, int64_t *value)
{
    const char *first = find_number(p, what, true);

    if (!first)
        return false;
    bool negative = *first == '-';
    const char *digits = first + strcspn(first, "0123456789");
    errno = 0;
    long long magnitude = strtoll(digits, NULL, 10);
    if (errno == ERANGE)
        return fail(p, (size_t)(first - p->text), "%s does not fit in 64 bits", what);
    *value = negative ? -magnitude : magnitude;
    return true;
}

/* ---- Nodes ----------------------------------------------------------------------------------------------------- */

/* Returns a new node.  Every node stands for at least one character.  An array with as many nodes as the text has
 * characters is therefore large enough. */
static struct dsim_node *new_node(struct parser *p, enum dsim_op op, size_t offset)
{
    struct dsim_node *node = &p->program->nodes[p->program->n_nodes++];

    node->op = op;
    node->offset = offset;
    node->cost = 1.0;
    return node;
}

/* Refuses a nodither() inside a larger expression.  Returns false after an error. */
static bool is_operand(struct parser *p, const struct dsim_node *node, size_t offset)
{
    if (node->op != DSIM_NODITHER)
        return true;
    return fail(p, offset, "nodither() must be the outermost function of an expression");
}

static bool is_affordable(struct parser *p, const struct dsim_node *node)
{
    if (node->cost > DSIM_MAX_COST)
        return fail(p, node->offset, "the expression has too many terms: more than %.0f for each sample",
                    DSIM_MAX_COST);
    if (node->n_scratch > DSIM_MAX_SCRATCH)
        return fail(p, node->offset, "the expression is nested more than %d levels deep", DSIM_MAX_SCRATCH);
    return true;
}

/* Returns a new node for left OP right.  The left operand is evaluated in the result's buffer, the right operand in a
 * scratch buffer. */
static struct dsim_node *new_binary(struct parser *p, enum dsim_op op, const struct dsim_node *left,
                                    const struct dsim_node *right, size_t left_offset, size_t right_offset)
{
    if (!is_operand(p, left, left_offset) || !is_operand(p, right, right_offset))
        return NULL;

    struct dsim_node *node = new_node(p, op, left_offset);
    node->left = left;
    node->right = right;
    node->is_live = left->is_live || right->is_live;
    node->has_track = left->has_track || right->has_track;
    node->cost += left->cost + right->cost;
    node->n_scratch = left->n_scratch > right->n_scratch + 1 ? left->n_scratch : right->n_scratch + 1;
    return is_affordable(p, node) ? node : NULL;
}

/* ---- Functions ------------------------------------------------------------------------------------------------- */

static bool read_comma(struct parser *p, const struct function *function)
{
    char where[120];

    snprintf(where, sizeof(where), "in %s", function->usage);
    return expect(p, ',', where);
}

static bool read_tone(struct parser *p, const struct function *function, struct dsim_node *node)
{
    node->n_tones = 1;
    return read_real(p, "the amplitude", &node->amplitude) && read_comma(p, function) &&
           read_not_negative(p, "the frequency", &node->frequency_hz);
}

static bool read_multicw(struct parser *p, const struct function *function, struct dsim_node *node)
{
    size_t start = next_offset(p);

    if (!read_integer(p, "the number of tones", &node->n_tones))
        return false;
    if (node->n_tones < 1 || node->n_tones > DSIM_MAX_COST)
        return fail(p, start, "the number of tones must be 1 to %.0f", DSIM_MAX_COST);
    if (!read_comma(p, function) || !read_real(p, "the amplitude", &node->amplitude) || !read_comma(p, function) ||
        !read_real(p, "the amplitude step", &node->amplitude_step) || !read_comma(p, function) ||
        !read_not_negative(p, "the frequency", &node->frequency_hz) || !read_comma(p, function))
        return false;
    start = next_offset(p);
    if (!read_real(p, "the frequency step", &node->frequency_step_hz))
        return false;
    double last_hz = node->frequency_hz + (double)(node->n_tones - 1) * node->frequency_step_hz;
    if (!(last_hz >= 0) || !isfinite(last_hz))
        return fail(p, start, "the last tone would have the frequency %g Hz", last_hz);
    node->cost = (double)node->n_tones;
    return true;
}

static bool read_seed(struct parser *p, struct dsim_node *node)
{
    if (!accept(p, ','))
        return true;
    size_t start = next_offset(p);
    int64_t seed;
    if (!read_integer(p, "the seed", &seed))
        return false;
    if (seed < 0)
        return fail(p, start, "the seed must not be negative");
    node->seed = (uint64_t)seed;
    node->has_seed = true;
    return true;
}

static bool read_wgn(struct parser *p, const struct function *function, struct dsim_node *node)
{
    return read_not_negative(p, "the standard deviation", &node->amplitude) && read_seed(p, node);
}

static bool read_positive(struct parser *p, const char *what, double max, double *value)
{
    size_t start = next_offset(p);

    if (!read_real(p, what, value))
        return false;
    return (*value > 0 && *value <= max) || fail(p, start, "%s must be above 0, and %g at most", what, max);
}

static bool read_pulsar(struct parser *p, const struct function *function, struct dsim_node *node)
{
    p->program->has_pulsar = true;
    if (!read_not_negative(p, "the standard deviation", &node->amplitude) || !read_comma(p, function) ||
        !read_positive(p, "the period in seconds", 1e6, &node->pulse_period_s) || !read_comma(p, function) ||
        !read_positive(p, "the width in seconds", node->pulse_period_s, &node->pulse_width_s) ||
        !read_comma(p, function))
        return false;
    size_t start = next_offset(p);
    if (!read_not_negative(p, "the dispersion measure", &node->dispersion_measure))
        return false;
    if (node->dispersion_measure > MAX_DISPERSION_MEASURE)
        return fail(p, start, "the dispersion measure must be %g at most", MAX_DISPERSION_MEASURE);
    return read_comma(p, function) &&
           read_positive(p, "the radio frequency of 0 Hz", MAX_RADIO_HZ, &node->frequency_hz) && read_seed(p, node);
}

static bool read_within(struct parser *p, const char *what, double max, const char *unit, double *value)
{
    size_t start = next_offset(p);

    if (!read_real(p, what, value))
        return false;
    return fabs(*value) <= max || fail(p, start, "%s must be between -%g and %g%s", what, max, max, unit);
}

static bool read_gnss_signal(struct parser *p, enum gnss_signal *signal)
{
    size_t length = name_length(p);

    for (int i = 0; i < GNSS_N_SIGNALS; i++) {
        const char *name = gnss_signal_facts((enum gnss_signal)i)->name;
        if (strlen(name) == length && memcmp(name, p->text + p->offset, length) == 0) {
            p->offset += length;
            *signal = (enum gnss_signal)i;
            return true;
        }
    }
    return fail(p, p->offset, "expected a signal: L1CA, L5I, L5Q, E1B or E1C");
}

static bool read_prn(struct parser *p, struct dsim_satellite *satellite)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(satellite->signal);
    size_t start = next_offset(p);

    if (!read_integer(p, "the PRN", &satellite->prn))
        return false;
    return (satellite->prn >= 1 && satellite->prn <= facts->max_prn) ||
           fail(p, start, "the PRN of %s must be 1 to %u", facts->name, facts->max_prn);
}

static bool read_gnss(struct parser *p, const struct function *function, struct dsim_node *node)
{
    struct dsim_satellite *satellite = &node->satellite;

    node->is_live = true;
    if (!read_gnss_signal(p, &satellite->signal) || !read_comma(p, function) || !read_prn(p, satellite) ||
        !read_comma(p, function) || !read_within(p, "C/N0", MAX_CN0_DB_HZ, " dB-Hz", &satellite->cn0_db_hz) ||
        !read_comma(p, function) || !read_positive(p, "the noise's standard deviation", MAX_NOISE, &node->amplitude) ||
        !read_comma(p, function) ||
        !read_within(p, "the carrier frequency", MAX_RADIO_HZ, " Hz", &node->frequency_hz) ||
        !read_comma(p, function) ||
        !read_within(p, "the delay", MAX_GNSS_DELAY, " samples", &satellite->delay_samples) ||
        !read_comma(p, function) || !read_within(p, "the Doppler", MAX_DOPPLER_HZ, " Hz", &satellite->doppler_hz) ||
        !read_comma(p, function) ||
        !read_within(p, "the Doppler rate", MAX_DOPPLER_RATE_HZ_S, " Hz/s", &satellite->doppler_rate_hz_s))
        return false;
    size_t start = next_offset(p);
    if (!read_seed(p, node))
        return false;
    return !node->has_seed || gnss_signal_facts(satellite->signal)->symbol_periods > 0 ||
           fail(p, start, "%s is a pilot signal without data, so it takes no seed",
                gnss_signal_facts(satellite->signal)->name);
}

/* Reads an argument that is a signal. */
static bool read_signal(struct parser *p, struct dsim_node *node)
{
    size_t start = next_offset(p);
    const struct dsim_node *signal = parse_expression(p);

    if (!signal || !is_operand(p, signal, start))
        return false;
    node->left = signal;
    node->is_live = signal->is_live;
    node->cost += signal->cost;
    node->n_scratch = signal->n_scratch;
    return true;
}

/* Reads an argument that must be a signal without track(). */
static bool read_trackless(struct parser *p, const struct function *function, struct dsim_node *node)
{
    size_t start = next_offset(p);

    if (!read_signal(p, node))
        return false;
    return !node->left->has_track || fail(p, start, "%s() needs a signal without track()", function->name);
}

/* Reads the signal that delay() or track() delays, and the comma after the signal. */
static bool read_moved(struct parser *p, const struct function *function, struct dsim_node *node)
{
    return read_trackless(p, function, node) && read_comma(p, function);
}

static bool read_delay(struct parser *p, const struct function *function, struct dsim_node *node)
{
    if (!read_moved(p, function, node))
        return false;
    size_t start = next_offset(p);
    if (!read_integer(p, "the delay in samples", &node->delay_samples))
        return false;
    return !node->is_live || fabs((double)node->delay_samples) <= DSIM_MAX_DELAY ||
           fail(p, start, "the delay must be between -%g and %g samples", DSIM_MAX_DELAY, DSIM_MAX_DELAY);
}

static bool read_track(struct parser *p, const struct function *function, struct dsim_node *node)
{
    if (!read_moved(p, function, node))
        return false;
    node->is_live = true;
    node->has_track = true;
    return read_within(p, "the delay", MAX_TRACK_SAMPLES, " samples", &node->track_samples) &&
           read_comma(p, function) &&
           read_within(p, "the rate", DSIM_MAX_TRACK_RATE, " samples per sample", &node->track_rate);
}

static bool read_repeat(struct parser *p, const struct function *function, struct dsim_node *node)
{
    bool ok = read_trackless(p, function, node);

    node->is_live = false;
    return ok;
}

static bool read_nodither(struct parser *p, const struct function *function, struct dsim_node *node)
{
    return read_signal(p, node);
}

static const struct function functions[] = {
    {"cw", "cw(amplitude, frequency)", DSIM_TONES, read_tone},
    {"multicw", "multicw(tones, amplitude, amplitude step, frequency, frequency step)", DSIM_TONES, read_multicw},
    {"comb", "comb(amplitude, frequency)", DSIM_COMB, read_tone},
    {"wgn", "wgn(standard deviation[, seed])", DSIM_WGN, read_wgn},
    {"pulsar", "pulsar(standard deviation, period, width, dispersion measure, radio frequency[, seed])", DSIM_PULSAR,
     read_pulsar},
    {"gnss", "gnss(signal, PRN, C/N0, noise, carrier, delay, Doppler, Doppler rate[, seed])", DSIM_GNSS, read_gnss},
    {"delay", "delay(expression, samples)", DSIM_DELAY, read_delay},
    {"track", "track(expression, samples, samples per sample)", DSIM_TRACK, read_track},
    {"repeat", "repeat(expression)", DSIM_REPEAT, read_repeat},
    {"nodither", "nodither(expression)", DSIM_NODITHER, read_nodither},
};

static const struct function *find_function(const char *name, size_t length)
{
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        if (strlen(functions[i].name) == length && memcmp(functions[i].name, name, length) == 0)
            return &functions[i];
    return NULL;
}

/* ---- The rules of the grammar, innermost rules first ----------------------------------------------------------- */

static const struct variable *find_variable(const struct parser *p, const char *name, size_t length)
{
    for (size_t i = 0; i < p->n_variables; i++)
        if (p->variables[i].name_length == length && memcmp(p->variables[i].name, name, length) == 0)
            return &p->variables[i];
    return NULL;
}

static struct dsim_node *parse_function(struct parser *p, const struct function *function, size_t start)
{
    char where[120];
    struct dsim_node *node = new_node(p, function->op, start);

    snprintf(where, sizeof(where), "in %s", function->usage);
    if (!expect(p, '(', where) || !function->read_arguments(p, function, node) || !expect(p, ')', where))
        return NULL;
    return is_affordable(p, node) ? node : NULL;
}

static struct dsim_node *parse_name(struct parser *p, size_t length)
{
    const char *name = p->text + p->offset;
    size_t start = p->offset;
    int shown = length < 40 ? (int)length : 40;

    p->offset += length;
    const struct function *function = find_function(name, length);
    if (function)
        return parse_function(p, function, start);
    if (peek(p) == '(')
        return fail(p, start,
                    "there is no function '%.*s'; there are cw, multicw, comb, wgn, pulsar, gnss, delay, track, "
                    "repeat, nodither",
                    shown, name);
    const struct variable *variable = find_variable(p, name, length);
    if (!variable)
        return fail(p, start, "the variable '%.*s' is not defined", shown, name);
    return variable->node;
}

static struct dsim_node *parse_parentheses(struct parser *p)
{
    struct dsim_node *inner = parse_expression(p);

    if (!inner || !expect(p, ')', "to close the parentheses"))
        return NULL;
    return inner;
}

static struct dsim_node *parse_atom(struct parser *p)
{
    char c = peek(p);
    size_t start = p->offset;
    size_t length = name_length(p);

    if (length > 0)
        return parse_name(p, length);
    if (accept(p, '('))
        return parse_parentheses(p);

    double value;
    if (!isdigit((unsigned char)c) && (c == '\0' || !strchr("+-.", c))) {
        char text[16];
        return fail(p, start, "expected a number, a variable or a function, found %s", found(p, text, sizeof(text)));
    }
    if (!read_real(p, "a constant", &value))
        return NULL;
    struct dsim_node *node = new_node(p, DSIM_CONSTANT, start);
    node->amplitude = value;
    return node;
}

static struct dsim_node *parse_term(struct parser *p)
{
    size_t start = next_offset(p);
    struct dsim_node *left = parse_atom(p);

    while (left && accept(p, '*')) {
        size_t right_start = next_offset(p);
        struct dsim_node *right = parse_atom(p);
        if (!right)
            return NULL;
        left = new_binary(p, DSIM_MULTIPLY, left, right, start, right_start);
    }
    return left;
}

static struct dsim_node *parse_expression(struct parser *p)
{
    size_t start = next_offset(p);
    char c;

    if (p->nesting == MAX_NESTING)
        return fail(p, start, "the expression is nested more than %d levels deep", MAX_NESTING);
    p->nesting++;
    struct dsim_node *left = parse_term(p);
    while (left && ((c = peek(p)) == '+' || c == '-')) {
        p->offset++;
        size_t right_start = next_offset(p);
        struct dsim_node *right = parse_term(p);
        if (!right)
            return NULL;
        left = new_binary(p, c == '+' ? DSIM_ADD : DSIM_SUBTRACT, left, right, start, right_start);
    }
    p->nesting--;
    return left;
}

/* Reads the name at the beginning of a statement "name = ...".  If the statement is an output, sets *length to 0. */
static bool parse_target(struct parser *p, const char **name, size_t *length)
{
    *length = name_length(p);
    *name = p->text + p->offset;
    size_t start = p->offset;
    int shown = *length < 40 ? (int)*length : 40;

    p->offset += *length;
    if (*length == 0 || !accept(p, '=')) {
        p->offset = start;
        *length = 0;
        return true;
    }
    if (find_function(*name, *length))
        return fail(p, start, "'%.*s' is a function and cannot be a variable", shown, *name);
    if (find_variable(p, *name, *length))
        return fail(p, start, "the variable '%.*s' is already defined", shown, *name);
    return true;
}

static bool parse_statement(struct parser *p)
{
    const char *name;
    size_t length;

    if (!parse_target(p, &name, &length))
        return false;
    struct dsim_node *node = parse_expression(p);
    if (!node || !expect(p, ';', "after the expression"))
        return false;
    if (length > 0) {
        p->variables[p->n_variables++] = (struct variable){name, length, node};
        return true;
    }
    bool dither = node->op != DSIM_NODITHER;
    p->program->is_live |= node->is_live;
    p->program->outputs[p->program->n_outputs++] = (struct dsim_output){dither ? node : node->left, dither};
    return true;
}

static bool parse_program(struct parser *p)
{
    while (peek(p) != '\0')
        if (!parse_statement(p))
            return false;
    if (p->program->n_outputs > 0)
        return true;
    return fail(p, p->offset, "there is no output: an expression without a variable, such as 'wgn(0.1);'");
}

int dsim_parse(const char *text, struct dsim_program **program, char *why, size_t why_bytes)
{
    size_t capacity = strlen(text) + 1;
    struct parser p = {.why = why, .why_bytes = why_bytes};
    struct dsim_program *made = calloc(1, sizeof(*made));
    int err = 0;

    if (!made)
        return why_out_of_memory(why, why_bytes);
    made->text = strdup(text);
    made->nodes = calloc(capacity, sizeof(*made->nodes));
    made->outputs = calloc(capacity, sizeof(*made->outputs));
    p.variables = calloc(capacity, sizeof(*p.variables));
    p.text = made->text;
    p.program = made;
    if (!made->text || !made->nodes || !made->outputs || !p.variables)
        err = why_out_of_memory(why, why_bytes);
    else if (!parse_program(&p))
        err = -EINVAL;
    free(p.variables);
    if (err)
        dsim_program_free(made);
    else
        *program = made;
    return err;
}

void dsim_program_free(struct dsim_program *program)
{
    if (!program)
        return;
    for (size_t i = 0; i < program->n_nodes; i++) {
        free(program->nodes[i].samples);
        free(program->nodes[i].gnss);
    }
    free(program->text);
    free(program->nodes);
    free(program->outputs);
    free(program);
}
