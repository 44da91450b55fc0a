/* name_pattern.h - regular expressions that search sensors' names in linear time.
 *
 * Syntax:    a character stands for itself, but  . [ ] ( ) * + ? { | ^ $ \  have a meaning:
 *              .            any character
 *              [a-z_] [^.]  one of a list, or none of it; ranges; \ escapes as outside; ] is first, or escaped
 *              \d \w        [0-9] and [A-Za-z0-9_]; \ before a sign that is neither letter nor digit: that sign
 *              ^ $          the name's beginning and end
 *              (x) x|y      a group; one of several, which may be empty
 *              x* x+ x?     any number, one or more, none or one
 *            Everything else is refused: {m,n}, a repetition of a repetition or of an anchor, back-references, (?...),
 *            [:classes:], \b and further letters, \< \> and \` \', which mean word and buffer boundaries elsewhere.
 *            An accepted expression finds the same names as in Python's re, of ASCII.
 * Algorithm: the expression becomes a program for a non-deterministic automaton (K. Thompson, "Regular Expression
 *            Search Algorithm", CACM 11, 1968).  All of its states are followed at once, each at most once for each
 *            place of the name.  So no expression takes more than (length of name + 1) * (length of program) steps.
 * Errors:    one sentence, static. */
#ifndef COMMON_KATCP_NAME_PATTERN_H
#define COMMON_KATCP_NAME_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NAME_PATTERN_MAX_BYTES 255
/* No character makes more than two instructions; the last one is the end. */
#define NAME_PATTERN_MAX_CODE (2 * NAME_PATTERN_MAX_BYTES + 1)

struct name_pattern_code {
    uint8_t kind;      /* kinds of name_pattern.c */
    int16_t to, or_to; /* distance to the next instruction: 'to' for a jump, either for a choice, else 1 */
    uint64_t set[4];   /* characters */
};

struct name_pattern {
    size_t n;
    struct name_pattern_code code[NAME_PATTERN_MAX_CODE];
};

/* Compiles the 'n_bytes' at 'text'.  Returns NULL, or the reason of a refusal. */
const char *name_pattern_compile(const char *text, size_t n_bytes, struct name_pattern *pattern);

/* Returns true if the pattern is found anywhere in 'name'.  Adds the number of examined instructions to 'n_steps'. */
bool name_pattern_matches(const struct name_pattern *pattern, const char *name, size_t *n_steps);

#endif
