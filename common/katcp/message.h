/* message.h - the grammar of KATCP: one line to a message, and arguments to a line.  No I/O.
 *
 * Line:      "?name[mid] argument argument", with blanks or tabs between, in which a backslash escapes what would end
 *            an argument: \\ \_ (blank) \0 \n \r \e \t and \@ (nothing).  LF or CR ends it.
 * Ownership: a message's strings lie in the line that it was parsed from, which parsing changes.
 * Errors:    one sentence, static. */
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
    int32_t mid;  /* 0: none */
    bool has_nul; /* an argument does, and so ends before its end */
    const char **args;
    size_t n_args, n_args_allocated; /* the list is used again by the next message */
};

/* Parses 'line', of n_bytes without its end, but with a byte more that may be written to.  A line with nothing but
 * blanks is no message: type is 0.  Returns NULL, or what is wrong with it; type, name and mid are then those of the
 * line as far as they are known (0, "", 0). */
const char *katcp_message_parse(char *line, size_t n_bytes, struct katcp_message *message);

void katcp_message_fini(struct katcp_message *message);

/* Text that grows.  Once there is no memory it stays as it is, and 'failed'. */
struct katcp_text {
    char *bytes;
    size_t n, n_allocated;
    bool failed;
};

void katcp_text_fini(struct katcp_text *text);

/* Empties it for the next. */
void katcp_text_clear(struct katcp_text *text);

void katcp_text_add(struct katcp_text *text, const char *bytes, size_t n);

/* A blank and an argument, escaped. */
void katcp_text_add_arg(struct katcp_text *text, const char *arg);

/* Begins a line: "#name[mid]", without mid where it is 0. */
void katcp_text_begin(struct katcp_text *text, char type, const char *name, int32_t mid);

/* " seconds.microseconds". */
void katcp_text_add_time(struct katcp_text *text, int64_t unix_ns);

void katcp_text_end(struct katcp_text *text);

/* Appends the line of an inform, "#name arg arg"; 'args' end with NULL. */
void katcp_text_add_inform(struct katcp_text *text, const char *name, const char *const *args);

#endif
