/* check_katcp_message.c - the grammar: a table of lines, and random arguments there and back. */
#include "common/katcp/message.h"

#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>
#include <string.h>

/* Parses a copy of which nothing is to be touched but one byte behind it, as the sanitizers see. */
static const char *parse(const char *text, size_t n, char **line, struct katcp_message *message)
{
    *line = malloc(n + 1);
    memcpy(*line, text, n);
    (*line)[n] = '\n';
    return katcp_message_parse(*line, n, message);
}

/* What a line means, written as "?|name|mid|arg|arg|"; "" for none. */
static void describe(const struct katcp_message *message, char *text, size_t text_bytes)
{
    size_t n = 0;

    text[0] = '\0';
    if (!message->type)
        return;
    n += (size_t)snprintf(text + n, text_bytes - n, "%c|%s|%d|", message->type, message->name, (int)message->mid);
    for (size_t i = 0; i < message->n_args; i++)
        n += (size_t)snprintf(text + n, text_bytes - n, "%s|", message->args[i]);
}

TEST(right_lines)
{
    static const struct {
        const char *line, *meaning;
    } rows[] = {
        {"", ""},
        {" \t ", ""},
        {"?a", "?|a|0|"},
        {"!set-rate2 ok", "!|set-rate2|0|ok|"},
        {"#A--9", "#|A--9|0|"},
        {"?a[1]", "?|a|1|"},
        {"?a[2147483647] x", "?|a|2147483647|x|"},
        {"?a  \t b\tc ", "?|a|0|b|c|"},
        {"?a \\@", "?|a|0||"},
        {"?a \\@ \\@b\\@ ", "?|a|0||b|"},
        {"?a \\\\\\_\\n\\r\\e\\t", "?|a|0|\\ \n\r\x1b\t|"},
        {"?a [1] ? # !", "?|a|0|[1]|?|#|!|"},
        {"?a \x80\xff\x01", "?|a|0|\x80\xff\x01|"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct katcp_message message = {0};
        char *line, meaning[200];
        const char *why = parse(rows[i].line, strlen(rows[i].line), &line, &message);
        ck_assert_msg(!why, "%s: %s", rows[i].line, why);
        describe(&message, meaning, sizeof(meaning));
        ck_assert_str_eq(meaning, rows[i].meaning);
        ck_assert(!message.has_nul);
        katcp_message_fini(&message);
        free(line);
    }
}

TEST(wrong_lines)
{
    static const char *const lines[] = {
        "a",        " ?a",
        "? a",      "?",
        "?9a",      "?-a",
        "?a_b",     "?a[",
        "?a[0]",    "?a[01]",
        "?a[]",     "?a[-1]",
        "?a[1",     "?a[1]b",
        "?a[1] \\", "?a[2147483648]",
        "?a[1][2]", "?a [\\q]",
        "?a \\ b",  "?a \x1b",
        "?a b\\",   "?a[99999999999999999999]",
        "?\\_a",    "?a\\_b",
        "\x80?a",   "?a\x80",
        "?a \\1",   "?[1]",
    };

    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct katcp_message message = {0};
        char *line;
        const char *why = parse(lines[i], strlen(lines[i]), &line, &message);
        ck_assert_msg(why, "%s was taken", lines[i]);
        katcp_message_fini(&message);
        free(line);
    }
}

TEST(nul)
{
    struct katcp_message message = {0};
    char *line;

    ck_assert_ptr_null(parse("?a[3] b\\0c", 10, &line, &message));
    ck_assert(message.has_nul);
    ck_assert_int_eq(message.mid, 3);
    ck_assert_str_eq(message.args[0], "b");
    free(line);
    ck_assert_ptr_nonnull(parse("?a b\0c", 6, &line, &message));
    free(line);
    ck_assert_ptr_nonnull(parse("?a\0", 3, &line, &message));
    free(line);
    ck_assert_ptr_null(parse("?a b", 4, &line, &message));
    ck_assert(!message.has_nul);
    free(line);
    katcp_message_fini(&message);
}

TEST(too_many_arguments)
{
    size_t n = 2 + 2 * ((size_t)KATCP_MAX_ARGS + 1);
    char *text = malloc(n), *line;
    struct katcp_message message = {0};

    memcpy(text, "?a", 2);
    for (size_t i = 2; i < n; i += 2)
        memcpy(text + i, " x", 2);
    ck_assert_ptr_nonnull(parse(text, n, &line, &message));
    free(line);
    ck_assert_ptr_null(parse(text, n - 2, &line, &message));
    ck_assert_uint_eq(message.n_args, KATCP_MAX_ARGS);
    free(line);
    katcp_message_fini(&message);
    free(text);
}

static void random_text(char *text, size_t max_bytes)
{
    static const char awkward[] = "\\ \t\n\r\x1b_@0ne?#![]";
    size_t n = random_below(max_bytes);

    for (size_t i = 0; i < n; i++) {
        unsigned char any = (unsigned char)(1 + random_below(255));
        text[i] = random_below(2) ? awkward[random_below(sizeof(awkward) - 1)] : (char)any;
    }
    text[n] = '\0';
}

/* Whatever arguments are written, the same are read, and nothing in the line ends it early. */
TEST(there_and_back)
{
    char args[8][32];

    for (int round = 0; round < 20000; round++) {
        struct katcp_message message = {0};
        struct katcp_text text = {0};
        size_t n = random_below(9);
        int32_t mid = random_below(2) ? (int32_t)(1 + random_below(INT32_MAX)) : 0;

        katcp_text_begin(&text, '!', "name", mid);
        for (size_t i = 0; i < n; i++) {
            random_text(args[i], sizeof(args[i]));
            katcp_text_add_arg(&text, args[i]);
        }
        katcp_text_end(&text);
        ck_assert_ptr_eq(memchr(text.bytes, '\n', text.n), text.bytes + text.n - 1);
        ck_assert_ptr_null(memchr(text.bytes, '\r', text.n));
        ck_assert_ptr_null(katcp_message_parse(text.bytes, text.n - 1, &message));
        ck_assert_int_eq(message.type, '!');
        ck_assert_int_eq(message.mid, mid);
        ck_assert_uint_eq(message.n_args, n);
        for (size_t i = 0; i < n; i++)
            ck_assert_str_eq(message.args[i], args[i]);
        katcp_message_fini(&message);
        katcp_text_fini(&text);
    }
}

TEST(times)
{
    static const struct {
        int64_t ns;
        const char *text;
    } rows[] = {{0, " 0.000000"},
                {INT64_C(1700000000999999999), " 1700000000.999999"},
                {1, " 0.000000"},
                {-1, " -0.000001"},
                {INT64_C(-1500000000), " -1.500000"}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct katcp_text text = {0};
        katcp_text_add_time(&text, rows[i].ns);
        katcp_text_add(&text, "", 1);
        ck_assert_str_eq(text.bytes, rows[i].text);
        katcp_text_fini(&text);
    }
}

SUITE(.timeout_s = 60, .start = random_start);
