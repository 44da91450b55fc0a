/* check_log.c - the lines that arrive on stderr or in the journal. */
#include "common/base/log.h"

#include "common/base/datagram.h"
#include "common/base/units.h"

#include "tests/unit/fake_clock.h"
#include "tests/unit/test_capture.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- A journal of our own, which the linker prefers to the real one ---------------------------------------------- */

static bool journal_socket_exists;
static int journal_result;
static char journal_record[4096];

int access(const char *path, int mode)
{
    return journal_socket_exists && !strcmp(path, "/run/systemd/journal/socket") ? 0 : -1;
}

/* All of datagram.h. */
int datagram_open(struct datagram *datagram, const char *address)
{
    ck_assert_str_eq(address, "/run/systemd/journal/socket");
    datagram->fd = 1000;
    return 0;
}

int datagram_send(const struct datagram *datagram, const char *bytes, size_t n_bytes)
{
    ck_assert_int_eq(datagram->fd, 1000);
    ck_assert_uint_lt(n_bytes, sizeof(journal_record));
    memcpy(journal_record, bytes, n_bytes);
    journal_record[n_bytes] = '\0';
    if (journal_result != -EAGAIN)
        return journal_result;
    journal_result = 0; /* once */
    return -EAGAIN;
}

void datagram_close(struct datagram *datagram)
{
    datagram->fd = -1;
}

/* ---- stderr into a file
 * ---------------------------------------------------------------------------------------------- */

static void capture(void)
{
    capture_stderr();
    fake_unix_ns = INT64_C(1795230999) * NS_PER_S + 123999999; /* cut to milliseconds, not rounded */
    fake_monotonic_ns = 12345;
    journal_socket_exists = true;
    journal_result = 0;
    journal_record[0] = '\0';
}

static const char *line_of(const char *program, const char *level_and_text)
{
    static char line[4096];

    snprintf(line, sizeof(line), "2026-11-21T03:16:39.123Z %s[%ld] %s\n", program, (long)getpid(), level_and_text);
    return line;
}

TEST(lines)
{
    capture();
    log_init("fgpu", LOG_LEVEL_INFO);
    log_warning("%d packets of %s", 3, "m000");
    ck_assert_str_eq(written(), line_of("fgpu", "warning: 3 packets of m000"));
    log_debug("not shown");
    ck_assert_str_eq(written(), line_of("fgpu", "warning: 3 packets of m000"));
}

TEST(hostile_text)
{
    capture();
    log_init("fgpu", LOG_LEVEL_DEBUG);
    log_debug("a\nb\x1b[2Jc%s", "");
    ck_assert_str_eq(written(), line_of("fgpu", "debug: a b [2Jc"));
}

TEST(long_text)
{
    char text[5000];
    const char *line;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    capture();
    log_init("fgpu", LOG_LEVEL_ERROR);
    log_error("%s", text);
    line = written();
    ck_assert_uint_lt(strlen(line), 2300);
    ck_assert_str_eq(line + strlen(line) - 5, "x...\n");
}

TEST(limited)
{
    struct log_limit limit = {0};
    struct log_limit other = {0};

    capture();
    log_init("fgpu", LOG_LEVEL_INFO);
    for (int i = 0; i < 4; i++)
        log_limited(&limit, LOG_LEVEL_INFO, "packet %d", i);
    ck_assert_str_eq(written(), line_of("fgpu", "info: packet 0"));
    fake_monotonic_ns += 10 * NS_PER_S - 1;
    log_limited(&limit, LOG_LEVEL_INFO, "packet 4");
    ck_assert_str_eq(written(), line_of("fgpu", "info: packet 0"));
    fake_monotonic_ns += 1;
    log_limited(&limit, LOG_LEVEL_INFO, "packet 5");
    ck_assert_str_eq(written() + strlen(line_of("fgpu", "info: packet 0")),
                     line_of("fgpu", "info: packet 5 (4 similar messages were suppressed)"));
    capture();
    log_limited(&other, LOG_LEVEL_INFO, "another matter");
    ck_assert_str_eq(written(), line_of("fgpu", "info: another matter"));
    fake_monotonic_ns += 20 * NS_PER_S;
    log_limited(&other, LOG_LEVEL_INFO, "again");
    ck_assert_ptr_null(strstr(written(), "suppressed"));
}

static struct log_limit shared_limit;

static void *log_many(void *arg)
{
    for (int i = 0; i < 1000; i++)
        log_limited(&shared_limit, LOG_LEVEL_INFO, "from a thread");
    return NULL;
}

TEST(limited_threads)
{
    pthread_t threads[4];

    capture();
    log_init("fgpu", LOG_LEVEL_INFO);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_str_eq(written(), line_of("fgpu", "info: from a thread"));
    ck_assert_uint_eq(shared_limit.n_suppressed, 3999);
}

/* Sets $JOURNAL_STREAM to the inode of stderr plus 'inode_off'. */
static void set_journal_stream(int inode_off)
{
    char text[64];
    struct stat st;

    fstat(STDERR_FILENO, &st);
    snprintf(text, sizeof(text), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino + inode_off);
    setenv("JOURNAL_STREAM", text, 1);
}

TEST(journal)
{
    capture();
    set_journal_stream(0);
    log_init("xbgpu", LOG_LEVEL_INFO);
    log_warning("of %d\nlines", 2);
    ck_assert_str_eq(written(), "");
    ck_assert_str_eq(journal_record, "MESSAGE=of 2 lines\nPRIORITY=4\nSYSLOG_IDENTIFIER=xbgpu\n");
    log_error("worse");
    ck_assert_str_eq(journal_record, "MESSAGE=worse\nPRIORITY=3\nSYSLOG_IDENTIFIER=xbgpu\n");
    journal_result = -EAGAIN;
    log_info("better");
    ck_assert_str_eq(journal_record, "MESSAGE=better\nPRIORITY=6\nSYSLOG_IDENTIFIER=xbgpu\n");
    ck_assert_int_eq(journal_result, 0);
    ck_assert_str_eq(written(), "");
}

/* Every reason for plain lines. */
TEST(no_journal, .end = 4)
{
    capture();
    set_journal_stream(_i == 0 ? 1 : 0);
    if (_i == 1)
        setenv("JOURNAL_STREAM", "nonsense", 1);
    if (_i == 2)
        journal_socket_exists = false;
    if (_i == 3)
        journal_result = -ECONNREFUSED;
    log_init("xbgpu", LOG_LEVEL_INFO);
    log_info("here");
    ck_assert_str_eq(written(), line_of("xbgpu", "info: here"));
}
