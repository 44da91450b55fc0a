/* message.h - the grammar of KATCP: parses a line into a message, and formats arguments into a line.  No I/O.
 *
 * Line:      "?name[mid] argument argument", separated by blanks or tabs.  In an argument a backslash escapes special
 *            characters: \\ \_ (blank) \0 \n \r \e \t and \@ (nothing).  LF or CR ends the line.
 * Ownership: a message's strings are in the line, which the parser modifies.
 * Errors:    the functions return one static sentence. */
#ifndef COMMON_KATCP_MESSAGE_H
#define COMMON_KATCP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KATCP_MAX_LINE_BYTES (16u << 20)
#define KATCP_MAX_ARGS       (1u << 20)

struct katcp_message {
    char type; /* '?', '!', '#' */
    const char *name;
    int32_t mid;  /* 0: no message id */
    bool has_nul; /* true if an argument contains a NUL; the argument's string then ends before the NUL */
    const char **args;
    size_t n_args, n_args_allocated; /* the next message reuses the array */
};

/* Parses 'line', which has 'n_bytes' bytes without its line end.  The byte after the line must be writable.  A line of
 * blanks is not a message: its type is 0.  Returns NULL, or the error.  After an error, type, name and mid have their
 * values if the parser has found them, otherwise 0, "" and 0. */
const char *katcp_message_parse(char *line, size_t n_bytes, struct katcp_message *message);

void katcp_message_fini(struct katcp_message *message);

/* A text to which functions append.  If memory runs out, the text is unchanged and 'failed' is true. */
struct katcp_text {
    char *bytes;
    size_t n, n_allocated;
    bool failed;
};

void katcp_text_fini(struct katcp_text *text);

/* Empties the text and resets 'failed'. */
void katcp_text_clear(struct katcp_text *text);

void katcp_text_add(struct katcp_text *text, const char *bytes, size_t n);

/* Appends a blank and an escaped argument. */
void katcp_text_add_arg(struct katcp_text *text, const char *arg);

/* Begins a line with the type and name: "#name[mid]", or "#name" if 'mid' is 0. */
void katcp_text_begin(struct katcp_text *text, char type, const char *name, int32_t mid);

/* Appends " seconds.microseconds". */
void katcp_text_add_time(struct katcp_text *text, int64_t unix_ns);

void katcp_text_end(struct katcp_text *text);

/* Appends the line of an inform, "#name arg arg".  'args' ends with NULL. */
void katcp_text_add_inform(struct katcp_text *text, const char *name, const char *const *args);

#endif
