/* parse.h - the signal language of the digitiser simulator: text -> expressions.
 *
 *   program    = statement { statement }
 *   statement  = [ variable "=" ] expression ";"         an expression without a variable is the next output
 *   expression = term { ( "+" | "-" ) term }             left to right
 *   term       = atom { "*" atom }
 *   atom       = number | variable | "(" expression ")" | function
 *   function   = "cw(" amplitude "," frequency ")"       a * cos(2 pi f t), phase 0 at the start of the period
 *              | "multicw(" count "," amplitude "," amplitude step "," frequency "," frequency step ")"
 *              | "comb(" amplitude "," frequency ")"     impulses of one sample
 *              | "wgn(" standard deviation [ "," seed ] ")"
 *              | "pulsar(" standard deviation "," period "," width "," dispersion measure "," radio frequency of 0 Hz
 *                [ "," seed ] ")"                      dispersed pulses of noise (dsim/pulsar.h), in s and pc/cm^3
 *              | "gnss(" signal "," PRN "," C/N0 "," standard deviation of the noise "," carrier frequency ","
 *                delay "," Doppler "," Doppler rate [ "," seed ] ")"
 *                                                      a navigation satellite (dsim/gnss.h), in dB-Hz, Hz, samples
 *                                                      and Hz/s; the seed determines the data bits
 *              | "delay(" expression "," samples ")"     later by this number of samples, modulo the period
 *              | "track(" expression "," samples "," rate ")"
 *                                                        later by samples + rate t at timestamp t: a drifting delay
 *              | "repeat(" expression ")"                repeats the first period of a gnss(), from timestamp 0
 *              | "nodither(" expression ")"              no dither; must enclose the whole expression of a statement
 *   signal     = "L1CA" | "L5I" | "L5Q" | "E1B" | "E1C"
 *   number     = [ "+" | "-" ] decimal                   frequencies in Hz, amplitude 1 is full scale
 *
 * Arguments of functions are numbers, except where the grammar says 'expression'.  A variable is defined once, before
 * its first use.  All uses of a variable share one node, so they give the same signal, noise included.
 *
 * All signals except track() and gnss() repeat after a period.  An expression with track() or gnss() is live
 * (dsim/live.h), except in repeat().  delay(), track() and repeat() accept no expression with a track() in it. */
#ifndef TOOLS_DSIM_PARSE_H
#define TOOLS_DSIM_PARSE_H

#include "kernels/gnss/gnss_codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits on the evaluation of one sample.  Without limits, a mistyped expression could take so long that
 * dsim seems to hang. */
#define DSIM_MAX_COST    10000.0
#define DSIM_MAX_SCRATCH 64

/* greatest delay() of a signal that does not repeat, in samples.  The sum of DSIM_MAX_COST delays of this size fits
 * in 63 bits. */
#define DSIM_MAX_DELAY 1e14

#define DSIM_MAX_TRACK_RATE 1e-3 /* greatest drift of a track(), in samples per sample; sky sources have about 1e-9 */

enum dsim_op {
    DSIM_CONSTANT,
    DSIM_TONES, /* cw and multicw */
    DSIM_COMB,
    DSIM_WGN,
    DSIM_PULSAR,
    DSIM_GNSS,
    DSIM_DELAY,
    DSIM_TRACK,
    DSIM_REPEAT,
    DSIM_NODITHER,
    DSIM_ADD,
    DSIM_SUBTRACT,
    DSIM_MULTIPLY,
};

/* Arguments that only gnss() has. */
struct dsim_satellite {
    enum gnss_signal signal;
    int64_t prn;
    double cn0_db_hz;
    double delay_samples;
    double doppler_hz;
    double doppler_rate_hz_s;
};

struct dsim_gnss;

/* An expression.  A member's comment lists the operations (enum dsim_op) that use the member.  Members that an
 * operation does not use are zero. */
struct dsim_node {
    enum dsim_op op;
    size_t offset;                 /* offset of the expression's first character in the text */
    const struct dsim_node *left;  /* argument of DELAY, TRACK, REPEAT and NODITHER; left operand of an operator */
    const struct dsim_node *right; /* right operand of an operator */
    double amplitude;              /* TONES, COMB: amplitude; CONSTANT: value; WGN, PULSAR, GNSS: standard
                                    * deviation */
    double amplitude_step;         /* TONES */
    double frequency_hz;           /* TONES, COMB: frequency; PULSAR: radio frequency that becomes 0 Hz; GNSS: carrier
                                    * frequency */
    double frequency_step_hz;      /* TONES */
    int64_t n_tones;               /* TONES */
    int64_t delay_samples;         /* DELAY */
    double track_samples;          /* TRACK: delay at timestamp 0 */
    double track_rate;             /* TRACK: drift of the delay, in samples per sample */
    double pulse_period_s;         /* PULSAR */
    double pulse_width_s;          /* PULSAR */
    double dispersion_measure;     /* PULSAR: pc/cm^3 */
    double *samples;               /* PULSAR: [period_samples] one period, from dsim_pulsar_compute() */
    struct dsim_satellite satellite;
    struct dsim_gnss *gnss; /* GNSS: set by dsim_gnss_compute() */
    uint64_t seed;          /* WGN, PULSAR, GNSS */
    bool has_seed;          /* WGN, PULSAR: a seed was given or chosen; GNSS: a seed was given */
    bool is_live;           /* true: the expression is a TRACK or GNSS, or contains a TRACK or GNSS outside a
                             * REPEAT */
    bool has_track;         /* true: the expression is a TRACK, or contains a TRACK */
    double cost;            /* number of terms that are evaluated for one sample, including the terms of operands */
    size_t n_scratch;       /* number of buffers that the evaluation needs in addition to the result */
};

/* An output.  'signal' contains no DSIM_NODITHER. */
struct dsim_output {
    const struct dsim_node *signal;
    bool dither;
};

struct dsim_program {
    char *text;
    struct dsim_node *nodes;
    size_t n_nodes;
    struct dsim_output *outputs;
    size_t n_outputs; /* >= 1 */
    bool is_live;     /* true: at least one output is live */
    bool has_pulsar;
};

/* Parses 'text'.  Returns 0, -EINVAL with one sentence in 'why' that starts with "line L, column C: ", or -ENOMEM. */
int dsim_parse(const char *text, struct dsim_program **program, char *why, size_t why_bytes);

/* Computes the line and the column of the character at 'offset' in 'text'.  Both are counted from 1. */
void dsim_parse_position(const char *text, size_t offset, unsigned *line, unsigned *column);

void dsim_program_free(struct dsim_program *program);

#endif
