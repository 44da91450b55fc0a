/* check_dsim_parse.c - the signal language: a table of accepted texts, and a table of errors with their places. */
#include "common/base/units.h"
#include "tools/dsim/parse.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints an expression fully parenthesised, as the test's own account of what was understood. */
static void print(const struct dsim_node *node, char *text, size_t text_bytes)
{
    static const char operators[] = {[DSIM_ADD] = '+', [DSIM_SUBTRACT] = '-', [DSIM_MULTIPLY] = '*'};
    char left[600] = "", right[600] = "";

    if (node->left)
        print(node->left, left, sizeof(left));
    if (node->right)
        print(node->right, right, sizeof(right));
    switch (node->op) {
    case DSIM_CONSTANT: snprintf(text, text_bytes, "%g", node->amplitude); break;
    case DSIM_TONES:
        snprintf(text, text_bytes, "tones(%lld,%g,%g,%g,%g)", (long long)node->n_tones, node->amplitude,
                 node->amplitude_step, node->frequency_hz, node->frequency_step_hz);
        break;
    case DSIM_COMB: snprintf(text, text_bytes, "comb(%g,%g)", node->amplitude, node->frequency_hz); break;
    case DSIM_WGN:
        if (node->has_seed)
            snprintf(text, text_bytes, "wgn(%g,%llu)", node->amplitude, (unsigned long long)node->seed);
        else
            snprintf(text, text_bytes, "wgn(%g)", node->amplitude);
        break;
    case DSIM_PULSAR:
        snprintf(text, text_bytes, "pulsar(%g,%g,%g,%g,%g,%llu)", node->amplitude, node->pulse_period_s,
                 node->pulse_width_s, node->dispersion_measure, node->frequency_hz, (unsigned long long)node->seed);
        break;
    case DSIM_GNSS:
        snprintf(text, text_bytes, "gnss(%d,%lld,%g,%g,%g,%g,%g,%g,%d,%llu)", (int)node->satellite.signal,
                 (long long)node->satellite.prn, node->satellite.cn0_db_hz, node->amplitude, node->frequency_hz,
                 node->satellite.delay_samples, node->satellite.doppler_hz, node->satellite.doppler_rate_hz_s,
                 node->has_seed, (unsigned long long)node->seed);
        break;
    case DSIM_DELAY: snprintf(text, text_bytes, "delay(%.500s,%lld)", left, (long long)node->delay_samples); break;
    case DSIM_TRACK:
        snprintf(text, text_bytes, "track(%.500s,%g,%g)", left, node->track_samples, node->track_rate);
        break;
    case DSIM_REPEAT: snprintf(text, text_bytes, "repeat(%.500s)", left); break;
    case DSIM_NODITHER: ck_abort_msg("nodither inside an output"); break;
    case DSIM_ADD:
    case DSIM_SUBTRACT:
    case DSIM_MULTIPLY: snprintf(text, text_bytes, "(%.290s%c%.290s)", left, operators[node->op], right); break;
    }
}

/* All outputs, each ended by ';', with '!' in front of those without dither. */
static void print_program(const struct dsim_program *program, char *text, size_t text_bytes)
{
    char one[600];

    text[0] = '\0';
    for (size_t i = 0; i < program->n_outputs; i++) {
        size_t length = strlen(text);
        print(program->outputs[i].signal, one, sizeof(one));
        snprintf(text + length, text_bytes - length, "%s%s;", program->outputs[i].dither ? "" : "!", one);
    }
}

static const struct {
    const char *text;
    const char *understood;
} valid[] = {
    {"0;", "0;"},
    {"-0.5;", "-0.5;"},
    {"+ 3e-1;", "0.3;"},
    {".5; 5.; 1.5E+2; 1e3;", "0.5;5;150;1000;"},
    {"cw(1.0, 232101234.0);", "tones(1,1,0,2.32101e+08,0);"},
    {" cw ( - 1 , 0 ) \n;\t", "tones(1,-1,0,0,0);"},
    {"multicw(3, 0.1, -0.01, 1e6, 2e5);", "tones(3,0.1,-0.01,1e+06,200000);"},
    {"multicw(3, 1, 0, 2, -1);", "tones(3,1,0,2,-1);"},
    {"comb(1, 50);", "comb(1,50);"},
    {"wgn(0.1);", "wgn(0.1);"},
    {"wgn(0.1, 9223372036854775807);", "wgn(0.1,9223372036854775807);"},
    {"pulsar(0.1, 0.714, 6e-3, 26.8, 856e6, 5);", "pulsar(0.1,0.714,0.006,26.8,8.56e+08,5);"},
    {"pulsar(0, 1, 1, 0, 1e12);", "pulsar(0,1,1,0,1e+12,0);"},
    {"gnss(L1CA, 32, 45.5, 0.1, 4e6, 12.25, -1500, 0.5, 7);", "gnss(0,32,45.5,0.1,4e+06,12.25,-1500,0.5,1,7);"},
    {"gnss ( L5I,1,0,1,-1e12,-1e17,1e6,-1e4 ) ; gnss(E1B, 50, 1, 1, 0, 0, 0, 0, 0);",
     "gnss(1,1,0,1,-1e+12,-1e+17,1e+06,-10000,0,0);gnss(3,50,1,1,0,0,0,0,1,0);"},
    {"a = gnss(L5Q,1,0,1,0,0,0,0) - gnss(E1C,1,0,1,0,0,0,0); nodither(track(delay(a, -100000000000000), 1, 0));",
     "!track(delay((gnss(2,1,0,1,0,0,0,0,0,0)-gnss(4,1,0,1,0,0,0,0,0,0)),-100000000000000),1,0);"},
    {"delay(1, -5); delay(1, +5); delay(1, 0);", "delay(1,-5);delay(1,5);delay(1,0);"},
    {"1 + 2 * 3;", "(1+(2*3));"},
    {"1 * 2 + 3;", "((1*2)+3);"},
    {"(1 + 2) * 3;", "((1+2)*3);"},
    {"1 - 2 - 3;", "((1-2)-3);"},
    {"1-2;", "(1-2);"},
    {"1 - -2;", "(1--2);"},
    {"1 - (2 - 3);", "(1-(2-3));"},
    {"((((1))));", "1;"},
    {"a = 1; a; a + a;", "1;(1+1);"},
    {"a=wgn(1,2);b=delay(a+cw(1,2),3);b;b*1;",
     "delay((wgn(1,2)+tones(1,1,0,2,0)),3);(delay((wgn(1,2)+tones(1,1,0,2,0)),3)*1);"},
    {"cw1 = 1; _x9 = cw1 * 2; _x9;", "(1*2);"},
    {"nodither(1); 2;", "!1;2;"},
    {"track(1, -5.25, 2.5e-9); track(1, 0, -1e-3);", "track(1,-5.25,2.5e-09);track(1,0,-0.001);"},
    {"a = track(cw(1,2), 3, 0); nodither(2 * a - a);",
     "!((2*track(tones(1,1,0,2,0),3,0))-track(tones(1,1,0,2,0),3,0));"},
    {"a = repeat(delay(gnss(L1CA,1,0,1,0,0,0,0), 3)); nodither(a + track(a, 1, 0));",
     "!(repeat(delay(gnss(0,1,0,1,0,0,0,0,0,0),3))+track(repeat(delay(gnss(0,1,0,1,0,0,0,0,0,0),3)),1,0));"},
    {"a = nodither(1 + 2); a; (a);", "!(1+2);!(1+2);"},
};

TEST(test_valid, .end = ARRAY_LEN(valid))
{
    struct dsim_program *program = NULL;
    char why[256], understood[4000];

    int err = dsim_parse(valid[_i].text, &program, why, sizeof(why));
    ck_assert_msg(err == 0, "'%s': %s", valid[_i].text, why);
    print_program(program, understood, sizeof(understood));
    ck_assert_str_eq(understood, valid[_i].understood);
    dsim_program_free(program);
}

static const struct {
    const char *text;
    unsigned line, column;
    const char *says;
} invalid[] = {
    {"", 1, 1, "no output"},
    {"  \n ", 2, 2, "no output"},
    {"a = 1;", 1, 7, "no output"},
    {";", 1, 1, "found ';'"},
    {"1", 1, 2, "found the end of the text"},
    {"1;;", 1, 3, "found ';'"},
    {"1 2;", 1, 3, "expected ';' after the expression, found '2'"},
    {"1 +;", 1, 4, "found ';'"},
    {"* 1;", 1, 1, "found '*'"},
    {"(1;", 1, 3, "expected ')'"},
    {"1);", 1, 2, "expected ';'"},
    {"- cw(1, 2);", 1, 3, "expected a constant"},
    {"1 / 2;", 1, 3, "found '/'"},
    {"0x10;", 1, 2, "expected ';'"},
    {"1e400;", 1, 1, "out of the range"},
    {"1e;", 1, 2, "expected ';'"},
    {".;", 1, 1, "a number"},
    {"inf;", 1, 1, "the variable 'inf' is not defined"},
    {"1;\n2;\n  x;", 3, 3, "the variable 'x' is not defined"},
    {"a = a;", 1, 5, "'a' is not defined"},
    {"a = 1;\na = 2; a;", 2, 1, "'a' is already defined"},
    {"cw = 1; 1;", 1, 1, "is a function"},
    {"cw;", 1, 3, "expected '(' in cw(amplitude, frequency)"},
    {"sin(1, 2);", 1, 1, "there is no function 'sin'"},
    {"cw(1);", 1, 5, "expected ',' in cw(amplitude, frequency), found ')'"},
    {"cw(1, 2, 3);", 1, 8, "expected ')'"},
    {"cw(1, -2);", 1, 7, "the frequency must not be negative"},
    {"cw(1, 1+1);", 1, 8, "expected ')'"},
    {"cw(a, 1);", 1, 4, "expected the amplitude, a number, found 'a'"},
    {"cw(1 2);", 1, 6, "expected ','"},
    {"multicw(2.5, 1, 0, 1, 0);", 1, 9, "an integer"},
    {"multicw(0, 1, 0, 1, 0);", 1, 9, "must be 1 to"},
    {"multicw(10001, 1, 0, 1, 0);", 1, 9, "must be 1 to"},
    {"multicw(4, 1, 0, 2, -1);", 1, 21, "the last tone"},
    {"multicw(2, 1, 0, 1);", 1, 19, "expected ','"},
    {"comb(1, -1);", 1, 9, "must not be negative"},
    {"wgn(-1);", 1, 5, "must not be negative"},
    {"wgn(1, -1);", 1, 8, "must not be negative"},
    {"wgn(1, 1.5);", 1, 8, "an integer, found a fraction"},
    {"wgn(1, 9223372036854775808);", 1, 8, "64 bits"},
    {"pulsar(-1, 1, 1, 0, 1);", 1, 8, "must not be negative"},
    {"pulsar(1, 0, 1, 0, 1);", 1, 11, "the period in seconds must be above 0, and 1e+06 at most"},
    {"pulsar(1, 0.5, 0.6, 0, 1);", 1, 16, "the width in seconds must be above 0, and 0.5 at most"},
    {"pulsar(1, 1, 1, 1.1e5, 1);", 1, 17, "the dispersion measure must be 100000 at most"},
    {"pulsar(1, 1, 1, 0, 0);", 1, 20, "the radio frequency of 0 Hz must be above 0"},
    {"pulsar(1, 1, 1, 0, 1, -5);", 1, 23, "must not be negative"},
    {"pulsar(1, 1, 1, 0);", 1, 18, "expected ','"},
    {"gnss(L2C, 1);", 1, 6, "expected a signal: L1CA, L5I, L5Q, E1B or E1C"},
    {"gnss(L1CAX, 1);", 1, 6, "expected a signal"},
    {"gnss(1, 1);", 1, 6, "expected a signal"},
    {"gnss(L1CA, 33, 1);", 1, 12, "the PRN of L1CA must be 1 to 32"},
    {"gnss(E1B, 0, 1);", 1, 11, "the PRN of E1B must be 1 to 50"},
    {"gnss(L1CA, 1, 201);", 1, 15, "C/N0 must be between -200 and 200 dB-Hz"},
    {"gnss(L1CA, 1, 45, 0, 1);", 1, 19, "the noise's standard deviation must be above 0"},
    {"gnss(L1CA, 1, 45, 1, 2e12, 0);", 1, 22, "the carrier frequency must be between -1e+12 and 1e+12 Hz"},
    {"gnss(L1CA, 1, 45, 1, 0, 1.1e17, 0);", 1, 25, "the delay must be between -1e+17 and 1e+17 samples"},
    {"gnss(L1CA, 1, 45, 1, 0, 0, 1e7, 0);", 1, 28, "the Doppler must be between -1e+06 and 1e+06 Hz"},
    {"gnss(L1CA, 1, 45, 1, 0, 0, 0, -2e4);", 1, 31, "the Doppler rate must be between -10000 and 10000 Hz/s"},
    {"gnss(L1CA, 1, 45, 1, 0, 0, 0);", 1, 29, "expected ',' in gnss("},
    {"gnss(L5Q, 1, 45, 1, 0, 0, 0, 0, 3);", 1, 31, "L5Q is a pilot signal without data, so it takes no seed"},
    {"delay(gnss(L1CA, 1, 45, 1, 0, 0, 0, 0), 100000000000001);", 1, 41,
     "the delay must be between -1e+14 and 1e+14 samples"},
    {"delay(1 + track(gnss(L1CA, 1, 45, 1, 0, 0, 0, 0), 1, 1e-9), 4);", 1, 7, "without track()"},
    {"wgn(1,);", 1, 7, "the seed, an integer, found ')'"},
    {"delay(1, 2.0);", 1, 10, "an integer"},
    {"delay(1, b);", 1, 10, "the delay in samples"},
    {"delay(1);", 1, 8, "expected ','"},
    {"track(1, 2);", 1, 11, "expected ','"},
    {"track(1, 2, 1.1e-3);", 1, 13, "between -0.001 and 0.001 samples per sample"},
    {"track(1, 2, -2e-3);", 1, 13, "the rate must be"},
    {"track(1, 1.1e9, 0);", 1, 10, "between -1e+09 and 1e+09"},
    {"track(nodither(1), 2, 0);", 1, 7, "outermost"},
    {"track(2 + track(1, 2, 0), 2, 0);", 1, 7, "track() needs a signal without track()"},
    {"repeat(2 + track(1, 2, 0));", 1, 8, "repeat() needs a signal without track()"},
    {"a = 1 - track(1, 2, 0); delay(2 * a, 2);", 1, 31, "delay() needs a signal without track()"},
    {"nodither(1) + 2;", 1, 1, "outermost"},
    {"2 * nodither(1);", 1, 5, "outermost"},
    {"delay(nodither(1), 2);", 1, 7, "outermost"},
    {"nodither(nodither(1));", 1, 10, "outermost"},
    {"a = nodither(1); 1 + a;", 1, 22, "outermost"},
    {"nodither(nodither_ * 2);", 1, 10, "'nodither_' is not defined"},
    {"1 \xc3\xa9;", 1, 3, "found byte 0xc3"},
};

TEST(test_invalid, .end = ARRAY_LEN(invalid))
{
    struct dsim_program *program = (struct dsim_program *)&invalid;
    char why[256] = "", position[40];

    ck_assert_int_eq(dsim_parse(invalid[_i].text, &program, why, sizeof(why)), -EINVAL);
    snprintf(position, sizeof(position), "line %u, column %u: ", invalid[_i].line, invalid[_i].column);
    ck_assert_msg(strncmp(why, position, strlen(position)) == 0 && strstr(why, invalid[_i].says), "'%s': %s",
                  invalid[_i].text, why);
    ck_assert_ptr_eq(program, &invalid);
}

/* A variable's node is shared, so that its noise is the same wherever it is used. */
TEST(test_sharing)
{
    struct dsim_program *program;
    char why[256];

    ck_assert_int_eq(dsim_parse("a = wgn(1); a; a + 1; wgn(1);", &program, why, sizeof(why)), 0);
    ck_assert_uint_eq(program->n_outputs, 3);
    ck_assert_ptr_eq(program->outputs[0].signal, program->outputs[1].signal->left);
    ck_assert_ptr_ne(program->outputs[0].signal, program->outputs[2].signal);
    dsim_program_free(program);
}

/* Repeats 'unit' n times between 'before' and 'after', and parses that. */
static int parse_repeated(const char *before, const char *unit, size_t n, const char *after)
{
    size_t bytes = strlen(before) + n * strlen(unit) + strlen(after) + 1;
    char *text = malloc(bytes);
    char *end = stpcpy(text, before);
    struct dsim_program *program = NULL;
    char why[256];

    for (size_t i = 0; i < n; i++)
        end = stpcpy(end, unit);
    strcpy(end, after);
    int err = dsim_parse(text, &program, why, sizeof(why));
    dsim_program_free(program);
    free(text);
    return err;
}

/* Neither depth nor size of a specification can exhaust the stack or take for ever. */
TEST(test_limits)
{
    struct dsim_program *program;
    char text[2000] = "a0 = 1;", why[256];

    ck_assert_int_eq(parse_repeated("", "(", 60, "1"), -EINVAL);
    ck_assert_int_eq(parse_repeated("1", ")", 60, ";"), -EINVAL);
    ck_assert_int_eq(parse_repeated("", "(", 100000, ""), -EINVAL);
    ck_assert_int_eq(parse_repeated("", "delay(", 100000, ""), -EINVAL);
    ck_assert_int_eq(parse_repeated("1", "+1", 4000, ";"), 0);
    ck_assert_int_eq(parse_repeated("1", "+1", 6000, ";"), -EINVAL);
    for (int i = 1; i < 40; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "a%d = a%d + a%d;", i, i - 1, i - 1);
    strcat(text, "a39;");
    ck_assert_int_eq(dsim_parse(text, &program, why, sizeof(why)), -EINVAL);
    ck_assert_msg(strstr(why, "too many terms"), "%s", why);
}
