/* message.c - parses the lines of clients into messages, and formats answers into lines. */
#include "common/katcp/message.h"

#include "common/base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lines to messages ------------------------------------------------------------------------------------------- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Parses the message id "[123]" at '*at' in a line that ends at 'end'.  Moves '*at' past the id.  Returns NULL, or the
 * error. */
static const char *parse_mid(const char **at, const char *end, int32_t *mid)
{
    const char *c = *at + 1;
    int64_t value = 0;

    if (c == end || *c < '1' || *c > '9')
        return "a message id is a number from 1 to 2147483647";
    for (; c < end && is_digit(*c); c++) {
        value = 10 * value + (*c - '0');
        if (value > INT32_MAX)
            return "a message id is a number from 1 to 2147483647";
    }
    if (c == end || *c != ']')
        return "a message id must end in ]";
    *at = c + 1;
    *mid = (int32_t)value;
    return NULL;
}

/* Parses "?name[mid]".  Terminates the name with a NUL.  Stores the start of the arguments in '*rest'.  Returns NULL,
 * or the error. */
static const char *parse_head(char *line, const char *end, struct katcp_message *message, const char **rest)
{
    const char *c = line + 1;
    const char *why;

    if (line[0] != '?' && line[0] != '!' && line[0] != '#')
        return "a message begins with ?, ! or #";
    if (c == end || !is_letter(*c))
        return "a message's name begins with a letter";
    while (c < end && (is_letter(*c) || is_digit(*c) || *c == '-'))
        c++;
    char *end_of_name = line + (c - line);
    int32_t mid = 0;
    if (c < end && *c == '[') {
        why = parse_mid(&c, end, &mid);
        if (why)
            return why;
    }
    if (c < end && !is_blank(*c))
        return "a message's name has only letters, digits and -";
    message->type = line[0];
    message->name = line + 1;
    message->mid = mid;
    /* The NUL may overwrite the blank after the name, so '*rest' is set first. */
    *rest = c < end ? c + 1 : c;
    *end_of_name = '\0';
    return NULL;
}

/* special[i] is escaped as a backslash and letters[i].  NUL is escaped as \0. */
static const char special[] = "\\ \n\r\x1b\t", letters[] = "\\_nret";

/* Returns the character for the escape letter 'c', -1 for the empty string (\@), or -2 if 'c' is not an escape
 * letter. */
static int unescape(char c)
{
    const char *letter = c ? strchr(letters, c) : NULL;

    if (letter)
        return special[letter - letters];
    return c == '0' ? '\0' : c == '@' ? -1 : -2;
}

/* Unescapes the argument at '*c' into 'to', which is in the same line.  Terminates the argument with a NUL.  Moves '*c'
 * past the argument.  Returns NULL, or the error. */
static const char *parse_arg(const char **c, const char *end, char *to, bool *has_nul)
{
    const char *from = *c;

    while (from < end && !is_blank(*from)) {
        if (*from == '\0' || *from == 0x1b)
            return "NUL and ESC must be written as \\0 and \\e";
        if (*from != '\\') {
            *to++ = *from++;
            continue;
        }
        int value = from + 1 < end ? unescape(from[1]) : -2;
        if (value == -2)
            return "a backslash must be followed by one of \\ _ 0 n r e t @";
        *has_nul |= value == 0;
        if (value >= 0)
            *to++ = (char)value;
        from += 2;
    }
    *c = from < end ? from + 1 : from;
    *to = '\0'; /* overwrites a byte of the argument, the blank after the argument, or the byte after the line */
    return NULL;
}

static const char *add_arg(struct katcp_message *message, const char *arg)
{
    if (message->n_args == KATCP_MAX_ARGS)
        return "there are more than 1048576 arguments";
    if (message->n_args == message->n_args_allocated) {
        size_t n = message->n_args_allocated ? 2 * message->n_args_allocated : 16;
        const char **args = realloc(message->args, n * sizeof(*args));
        if (!args)
            return "there is no memory for so many arguments";
        message->args = args;
        message->n_args_allocated = n;
    }
    message->args[message->n_args++] = arg;
    return NULL;
}

const char *katcp_message_parse(char *line, size_t n_bytes, struct katcp_message *message)
{
    const char *c = line, *end = line + n_bytes, *why;

    message->type = 0;
    message->name = "";
    message->mid = 0;
    message->n_args = 0;
    message->has_nul = false;
    while (c < end && is_blank(*c))
        c++;
    if (c == end)
        return NULL;
    if (c > line)
        return "a message begins with ?, ! or #, without blanks before it";
    why = parse_head(line, end, message, &c);
    while (!why) {
        while (c < end && is_blank(*c))
            c++;
        if (c == end)
            return NULL;
        char *arg = line + (c - line);
        why = parse_arg(&c, end, arg, &message->has_nul);
        if (!why)
            why = add_arg(message, arg);
    }
    return why;
}

void katcp_message_fini(struct katcp_message *message)
{
    free(message->args);
    *message = (struct katcp_message){0};
}

/* ---- Arguments to lines ------------------------------------------------------------------------------------------ */

void katcp_text_fini(struct katcp_text *text)
{
    free(text->bytes);
    *text = (struct katcp_text){0};
}

void katcp_text_clear(struct katcp_text *text)
{
    text->n = 0;
    text->failed = false;
}

static bool make_room(struct katcp_text *text, size_t n)
{
    size_t n_allocated = text->n_allocated ? text->n_allocated : 4096;

    if (text->failed)
        return false;
    if (n <= text->n_allocated - text->n)
        return true;
    while (n > n_allocated - text->n)
        n_allocated *= 2;
    char *bytes = realloc(text->bytes, n_allocated);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->n_allocated = n_allocated;
    return true;
}

void katcp_text_add(struct katcp_text *text, const char *bytes, size_t n)
{
    if (!make_room(text, n))
        return;
    if (n > 0)
        memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
}

/* Returns the escape letter of the character 'c', or 0 if 'c' is not escaped. */
static char escape(char c)
{
    const char *found = strchr(special, c);

    return found ? letters[found - special] : 0;
}

void katcp_text_add_arg(struct katcp_text *text, const char *arg)
{
    size_t n = strlen(arg);

    if (n == 0) {
        katcp_text_add(text, " \\@", 3);
        return;
    }
    if (!make_room(text, 1 + 2 * n))
        return;
    char *to = text->bytes + text->n;
    *to++ = ' ';
    for (; *arg; arg++) {
        char escaped = escape(*arg);
        if (escaped)
            *to++ = '\\';
        *to++ = escaped ? escaped : *arg;
    }
    text->n = (size_t)(to - text->bytes);
}

void katcp_text_begin(struct katcp_text *text, char type, const char *name, int32_t mid)
{
    char mid_text[16] = "";

    if (mid)
        snprintf(mid_text, sizeof(mid_text), "[%" PRId32 "]", mid);
    katcp_text_add(text, &type, 1);
    katcp_text_add(text, name, strlen(name));
    katcp_text_add(text, mid_text, strlen(mid_text));
}

void katcp_text_add_time(struct katcp_text *text, int64_t unix_ns)
{
    int64_t us = floor_div(unix_ns, NS_PER_US);
    bool negative = us < 0;
    char out[40];

    if (negative)
        us = -us;
    int n = snprintf(out, sizeof(out), " %s%" PRId64 ".%06" PRId64, negative ? "-" : "", us / 1000000, us % 1000000);
    katcp_text_add(text, out, (size_t)n);
}

void katcp_text_end(struct katcp_text *text)
{
    katcp_text_add(text, "\n", 1);
}

void katcp_text_add_inform(struct katcp_text *text, const char *name, const char *const *args)
{
    katcp_text_begin(text, '#', name, 0);
    for (; *args; args++)
        katcp_text_add_arg(text, *args);
    katcp_text_end(text);
}
