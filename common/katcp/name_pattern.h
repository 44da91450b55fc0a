/* name_pattern.h - regular expressions that search sensors' names in linear time.
 *
 * Syntax:    a character matches itself, but these characters have another meaning:  . [ ] ( ) * + ? { | ^ $ \ .
 *              .            any character
 *              [a-z_] [^.]  a character in the list, or not in the list.  A list may contain ranges and the escapes
 *                           below.  The character ] must be the first in the list, or must be escaped
 *              \d \w        [0-9] and [A-Za-z0-9_]
 *              \.           the character after the \, if it is not a letter or digit
 *              ^ $          the beginning and the end of the name
 *              (x) x|y      a group; alternatives, which may be empty
 *              x* x+ x?     x any number of times, at least once, at most once
 *            The compiler refuses all other syntax: {m,n}, a repetition of a repetition or of an anchor,
 *            back-references, (?...), [:classes:], and \ before other letters.  It also refuses \< \> \` \', which in
 *            other programs match the boundaries of words and buffers.  An accepted expression finds the same names (in
 *            ASCII) as Python's re.
 * Algorithm: the expression is compiled into a program for a non-deterministic automaton (K. Thompson, "Regular
 *            Expression Search Algorithm", CACM 11, 1968).  The search follows all states of the automaton in parallel,
 *            each state at most once per position in the name.  So a search takes at most (length of name + 1) *
 *            (length of program) steps.
 * Errors:    the compiler returns one static sentence. */
#ifndef COMMON_KATCP_NAME_PATTERN_H
#define COMMON_KATCP_NAME_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NAME_PATTERN_MAX_BYTES 255
/* Largest number of instructions: two for each character of the expression, and one for the end. */
#define NAME_PATTERN_MAX_CODE (2 * NAME_PATTERN_MAX_BYTES + 1)

struct name_pattern_code {
    uint8_t kind; /* kind of instruction: an enum in name_pattern.c */
    /* distances to the next instructions.  A choice has two next instructions, at 'to' and at 'or_to'.  A jump has one,
     * at 'to'.  For any other instruction 'to' is 1. */
    int16_t to, or_to;
    uint64_t set[4]; /* set of 256 characters, for an instruction that matches a character */
};

struct name_pattern {
    size_t n;
    struct name_pattern_code code[NAME_PATTERN_MAX_CODE];
};

/* Compiles the expression of 'n_bytes' bytes at 'text'.  Returns NULL, or the reason why it is refused. */
const char *name_pattern_compile(const char *text, size_t n_bytes, struct name_pattern *pattern);

/* Returns true if the pattern matches any part of 'name'.  Adds the number of executed instructions to '*n_steps'. */
bool name_pattern_matches(const struct name_pattern *pattern, const char *name, size_t *n_steps);

#endif
