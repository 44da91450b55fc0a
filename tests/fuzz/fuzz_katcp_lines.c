/* fuzz_katcp_lines.c - thousands of lines to an input, from a client to a real KATCP server over a pair of sockets.
 * The server answers each request once and in order, and answers no other line.
 *
 * Input: a seed, then text.  In this text a byte from 128 on stands for a word that the server knows.  The target
 * repeats the text, with chance alterations, until LINES_OF_INPUT lines have been sent.
 *
 * Model: a second reader of KATCP's grammar tells for each line whether the server replies, with which name and message
 * id, and for some requests with which result. */
#include "common/katcp/internal.h"
#include "tests/fuzz/fuzz_count.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_katcp_server.h"

#include <ctype.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

FUZZ_MODEL_BEGIN

enum { LINES_OF_INPUT = 1024, LINES_OF_BATCH = 64, LINE_BYTES_MAX = 400 };

/* What the server must reply to a line. */
struct expected {
    const char *head; /* "name[12]" in sent[] */
    size_t n_head;
    const char *result;      /* NULL: any */
    bool counts;             /* the reply "ok N" comes after N informs of this name */
    unsigned long n_informs; /* that have come */
};

static struct batch {
    char sent[(LINES_OF_BATCH + 1) * LINE_BYTES_MAX];
    size_t n_bytes, n_lines;
    struct expected expected[LINES_OF_BATCH * LINE_BYTES_MAX / 2]; /* a CR in a line makes two lines of it */
    size_t n_expected, n_replies;
} batch;

static uint64_t random_state;

static unsigned random_below(unsigned n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 32) * n >> 32);
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

static const struct request {
    const char *name;
    size_t min_args, max_args;
    bool counts;
} known[] = {
    {"client-list", 0, 0, true},  {"halt", 0, 0, false},
    {"help", 0, 1, true},         {"log-level", 0, 1, false},
    {"restart", 0, 0, false},     {"request-timeout-hint", 0, 1, false},
    {"sensor-list", 0, 1, true},  {"sensor-sampling", 1, SIZE_MAX, false},
    {"sensor-value", 0, 1, true}, {"sensor-sampling-clear", 0, 0, false},
    {"set", 0, 4, false},         {"version-list", 0, 0, true},
    {"watchdog", 0, 0, false},
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Returns the size of "[12]" at the start of the text, 0 if there is none, or -1 if it is wrong. */
static int read_mid(const char *text, size_t n)
{
    size_t n_digits = 0;

    if (n == 0 || text[0] != '[')
        return 0;
    while (1 + n_digits < n && isdigit((unsigned char)text[1 + n_digits]))
        n_digits++;
    if (n_digits == 0 || n_digits > 10 || text[1] == '0' || 1 + n_digits >= n || text[1 + n_digits] != ']')
        return -1;
    return strtoll(text + 1, NULL, 10) <= INT32_MAX ? (int)n_digits + 2 : -1;
}

/* Counts the arguments.  Returns false if one is wrong. */
static bool read_args(const char *text, size_t n, size_t *n_args, bool *has_nul)
{
    *n_args = 0;
    *has_nul = false;
    for (size_t i = 0; i < n; i++) {
        if (is_blank(text[i]))
            continue;
        *n_args += i == 0 || is_blank(text[i - 1]);
        if (text[i] == '\0' || text[i] == 0x1b)
            return false;
        if (text[i] != '\\')
            continue;
        if (++i == n || !text[i] || !strchr("\\_0nret@", text[i]))
            return false;
        *has_nul |= text[i] == '0';
    }
    return true;
}

static void expect(const struct request *request, const char *head, size_t n_head, size_t n_args, bool has_nul)
{
    struct expected *expected = &batch.expected[batch.n_expected++];

    *expected = (struct expected){head, n_head, NULL, request && request->counts, 0};
    if (!request || has_nul)
        expected->result = "invalid";
    else if (n_args < request->min_args || n_args > request->max_args)
        expected->result = "fail";
    else if (request->max_args == 0)
        expected->result = "ok";
}

/* Reads a line as the server must. */
static void read_line(const char *line, size_t n)
{
    const struct request *request = NULL;
    size_t n_name = 0, n_args;
    bool has_nul;

    if (n < 2 || line[0] != '?' || !isalpha((unsigned char)line[1]))
        return;
    while (1 + n_name < n && (isalnum((unsigned char)line[1 + n_name]) || line[1 + n_name] == '-'))
        n_name++;
    int n_mid = read_mid(line + 1 + n_name, n - 1 - n_name);
    if (n_mid < 0)
        return;
    size_t n_head = n_name + (size_t)n_mid;
    if ((1 + n_head < n && !is_blank(line[1 + n_head])) ||
        !read_args(line + 1 + n_head, n - 1 - n_head, &n_args, &has_nul))
        return;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strlen(known[i].name) == n_name && memcmp(known[i].name, line + 1, n_name) == 0)
            request = &known[i];
    expect(request, line + 1, n_head, n_args, has_nul);
}

/* ---- What comes from the server ---------------------------------------------------------------------------------- */

static bool begins_with(const char *line, size_t n, const struct expected *expected)
{
    return n > expected->n_head && memcmp(line + 1, expected->head, expected->n_head) == 0 &&
           (line[1 + expected->n_head] == ' ' || n == 1 + expected->n_head);
}

static void check_answer(const char *line, size_t n)
{
    struct expected *expected = batch.n_replies < batch.n_expected ? &batch.expected[batch.n_replies] : NULL;

    assert(n > 1 && (line[0] == '!' || line[0] == '#') && !memchr(line, '\0', n) && !memchr(line, 0x1b, n));
    if (line[0] == '#') {
        if (expected && begins_with(line, n, expected))
            expected->n_informs++;
        return;
    }
    assert(expected && begins_with(line, n, expected));
    const char *result = line + expected->n_head + 2;
    size_t n_left = n - expected->n_head - 2;
    size_t n_result = strcspn(result, " \n");
    assert(n_result <= n_left);
    if (expected->result)
        assert(strlen(expected->result) == n_result && memcmp(result, expected->result, n_result) == 0);
    bool is_ok = n_result == 2 && memcmp(result, "ok", 2) == 0;
    assert(is_ok || memcmp(result, "fail ", 5) == 0 || memcmp(result, "invalid ", 8) == 0);
    if (is_ok && expected->counts)
        assert(strtoul(result + 2, NULL, 10) == expected->n_informs);
    batch.n_replies++;
}

/* Reads the bytes that have come, and keeps an unfinished line. */
static void read_answers(int fd)
{
    static char bytes[1 << 18];
    static size_t n_bytes;
    ssize_t n = recv(fd, bytes + n_bytes, sizeof(bytes) - n_bytes, MSG_DONTWAIT);
    char *at = bytes, *end;

    assert(n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
    n_bytes += n > 0 ? (size_t)n : 0;
    while ((end = memchr(at, '\n', (size_t)(bytes + n_bytes - at)))) {
        check_answer(at, (size_t)(end - at));
        at = end + 1;
    }
    n_bytes -= (size_t)(at - bytes);
    memmove(bytes, at, n_bytes);
    assert(n_bytes < sizeof(bytes));
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static const char *const words[] = {
    "?watchdog",
    "?set ",
    "?help ",
    "?sensor-value ",
    "?sensor-list ",
    "?sensor-sampling ",
    "?log-level ",
    "?client-list",
    "?version-list",
    "?halt",
    "?restart",
    "?request-timeout-hint ",
    "?sensor-sampling-clear",
    "[2147483647]",
    "[1]",
    " event",
    " period 0.01",
    " none",
    " auto",
    " differential 1",
    " event-rate 0.01 1",
    " differential-rate 1 0 inf",
    "a",
    "b.c",
    "time.esterror",
    "/^[a-c]|x$/",
    "/(^a|t$)*e?/",
    "\\@",
    "\\_",
    "\\0",
    "\\n",
    "1e3",
    "-17",
    "2.5",
    "trace",
    "all",
    "#log ",
    "!set ok",
    "\xff\xfe",
    " ",
};

/* Appends a line from the input's text.  Returns where the text continues. */
static size_t add_text(const uint8_t *text, size_t n_text, size_t at, char *line, size_t *n_line)
{
    size_t n = 0;

    for (size_t begin = at; n < LINE_BYTES_MAX / 2 && at - begin < n_text;) {
        uint8_t c = text[at++ % n_text];
        if (c == '\n')
            break;
        if (c >= 128) {
            const char *word = words[c % ARRAY_LEN(words)];
            memcpy(line + n, word, strlen(word));
            n += strlen(word);
        } else {
            line[n++] = (char)c;
        }
    }
    *n_line = n;
    return at;
}

/* Alters a byte, doubles a byte, removes a byte or adds a message id. */
static size_t alter(char *line, size_t n)
{
    size_t at = n > 0 ? random_below((unsigned)n) : 0;
    size_t n_name = 1;

    switch (random_below(8)) {
    case 0:
        if (n > 0)
            line[at] = (char)random_below(256);
        return n;
    case 1:
        if (n > 0)
            line[at] = "?#![] \\\t\r09a"[random_below(13)];
        return n;
    case 2: memmove(line + at + 1, line + at, n - at); return n > 0 ? n + 1 : 0;
    case 3:
        if (n == 0)
            return 0;
        memmove(line + at, line + at + 1, n - at - 1);
        return n - 1;
    case 4:
        while (n_name < n && (isalnum((unsigned char)line[n_name]) || line[n_name] == '-'))
            n_name++;
        if (n_name >= n || line[n_name] == ' ') {
            char mid[16];
            size_t n_mid = (size_t)snprintf(mid, sizeof(mid), "[%u]", 1 + random_below(UINT32_MAX));
            n_name = n_name < n ? n_name : n;
            memmove(line + n_name + n_mid, line + n_name, n - n_name);
            memcpy(line + n_name, mid, n_mid);
            return n + n_mid;
        }
    }
    return n;
}

/* A last request, so that the server has handled all lines once it has replied to all requests. */
static void end_batch(void)
{
    static const char last[] = "?watchdog[77]\n";

    memcpy(batch.sent + batch.n_bytes, last, sizeof(last) - 1);
    batch.n_bytes += sizeof(last) - 1;
    for (char *at = batch.sent, *end; at < batch.sent + batch.n_bytes; at = end + 1) {
        end = at;
        while (*end != '\n' && *end != '\r')
            end++;
        read_line(at, (size_t)(end - at));
        batch.n_lines++;
        assert(batch.n_expected <= batch.n_lines);
    }
}

static size_t make_batch(const uint8_t *text, size_t n_text, size_t at)
{
    batch.n_bytes = batch.n_lines = batch.n_expected = batch.n_replies = 0;
    for (size_t i = 0; i < LINES_OF_BATCH; i++) {
        char *line = batch.sent + batch.n_bytes;
        size_t n;

        at = add_text(text, n_text, at, line, &n);
        n = alter(line, n);
        line[n] = '\n';
        batch.n_bytes += n + 1;
    }
    end_batch();
    return at;
}

/* ---- An input ---------------------------------------------------------------------------------------------------- */

static void run_batch(int fd)
{
    size_t n_sent = 0;

    for (int i = 0; batch.n_replies < batch.n_expected; i++) {
        assert(i < 100000);
        if (n_sent < batch.n_bytes) {
            ssize_t n = send(fd, batch.sent + n_sent, batch.n_bytes - n_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            n_sent += n > 0 ? (size_t)n : 0;
        }
        ev_run(loop, EVRUN_NOWAIT);
        read_answers(fd);
    }
    fuzz_count("lines", batch.n_lines);
}

static void begin_client(int fd)
{
    static const char first[] = "?watchdog\n";

    batch.n_bytes = sizeof(first) - 1;
    batch.n_expected = batch.n_replies = batch.n_lines = 0;
    memcpy(batch.sent, first, sizeof(first) - 1);
    read_line(first, sizeof(first) - 2);
    batch.n_lines = 1;
    run_batch(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct endpoint peer = {.address.s_addr = 0x0100007f, .port = 7};
    struct fuzz_input input = {data, n_bytes};
    int fds[2];

    if (!server)
        open_server();
    random_state = 0x9e3779b97f4a7c15 ^ fuzz_u16(&input);
    if (input.n_left == 0)
        return 0;
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    assert(katcp_client_open(server, fds[1], &peer, false) == 0);
    begin_client(fds[0]);
    size_t n_lines = 0;
    for (size_t at = 0; n_lines < LINES_OF_INPUT; n_lines += batch.n_lines) {
        at = make_batch(input.at, input.n_left, at);
        run_batch(fds[0]);
    }
    close(fds[0]);
    ev_run(loop, EVRUN_NOWAIT);
    ev_run(loop, EVRUN_NOWAIT);
    return 0;
}

FUZZ_MODEL_END
