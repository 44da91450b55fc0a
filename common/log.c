/* log.c - the end of every diagnostic: one record to the journal, or one line on stderr. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include "common/log.h"

#include "common/clock.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_INTERVAL_NS (10 * NS_PER_S)

/* A longer message is cut, which its last characters "..." show. */
#define MESSAGE_BYTES 2048

/* Syslog's numbers, which the journal uses too; see sd-daemon(3). */
static const struct {
    const char *name;
    int priority;
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},
    [LOG_LEVEL_WARNING] = {"warning", 4},
    [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

/* Written by log_init() before there are other threads, constant afterwards. */
static char log_program[32] = "cbf";
static bool log_to_journal;

static _Atomic int log_max_level = LOG_LEVEL_INFO;
static _Atomic int listener_max_level = LOG_NOTHING;
static void (*_Atomic log_listener)(enum log_level level, int64_t unix_ns, const char *message);

/* True if systemd connected stderr to the journal: $JOURNAL_STREAM then names stderr's device and inode.  An operator
 * who redirects stderr, or starts the program by hand from a service's shell, gets plain lines.  The socket is
 * missing in a container that inherited both, where sd_journal_send() would drop messages without an error. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uintmax_t device, inode;
    struct stat st;

    if (!stream || sscanf(stream, "%" SCNuMAX ":%" SCNuMAX, &device, &inode) != 2)
        return false;
    if (fstat(STDERR_FILENO, &st) != 0 || st.st_dev != device || st.st_ino != inode)
        return false;
    return access("/run/systemd/journal/socket", W_OK) == 0;
}

/* Started with stdin, stdout or stderr closed, the first file or socket that is opened would be what messages are
 * written to. */
static void occupy_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", O_RDWR); /* takes the least number that is free, which is this one */
}

void log_init(const char *program, enum log_level max_level)
{
    occupy_standard_files();
    snprintf(log_program, sizeof(log_program), "%s", program);
    log_set_level(max_level);
    log_to_journal = stderr_is_journal();
}

void log_set_level(enum log_level max_level)
{
    atomic_store_explicit(&log_max_level, (int)max_level, memory_order_relaxed);
}

void log_listen(void (*listener)(enum log_level level, int64_t unix_ns, const char *message), int max_level)
{
    atomic_store(&log_listener, listener);
    atomic_store(&listener_max_level, max_level);
}

static bool is_shown(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&log_max_level, memory_order_relaxed);
}

static bool is_listened_to(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&listener_max_level, memory_order_relaxed);
}

/* "2026-11-21T03:16:39.123Z fgpu[4711] warning: text\n", by a single write so that lines of several threads and
 * processes do not mix. */
static void write_line(enum log_level level, const char *message)
{
    char line[MESSAGE_BYTES + 128];
    int64_t now_ns = clock_unix_ns();
    time_t now_s = now_ns / NS_PER_S;
    struct tm tm;
    size_t n;

    gmtime_r(&now_s, &tm);
    n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
    n += snprintf(line + n, sizeof(line) - n, ".%03dZ %s[%ld] %s: %s\n", (int)(now_ns % NS_PER_S / NS_PER_MS),
                  log_program, (long)getpid(), levels[level].name, message);
    /* Nobody is left to be told when stderr is gone. */
    if (write(STDERR_FILENO, line, n) < 0)
        return;
}

static void log_va(enum log_level level, uint64_t n_suppressed, const char *format, va_list args)
{
    char message[MESSAGE_BYTES];
    int n = vsnprintf(message, sizeof(message), format, args);

    if (n < 0)
        return;
    if (n >= (int)sizeof(message))
        memcpy(message + sizeof(message) - 4, "...", 4);
    else if (n_suppressed)
        snprintf(message + n, sizeof(message) - n, " (%" PRIu64 " more like this were left out)", n_suppressed);

    /* A message is one line, whatever its arguments bring along. */
    for (char *c = message; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    }
    if (is_listened_to(level))
        atomic_load (&log_listener)(level, clock_unix_ns(), message);
    if (!is_shown(level))
        return;
    if (log_to_journal && sd_journal_send("MESSAGE=%s", message, "PRIORITY=%d", levels[level].priority,
                                          "SYSLOG_IDENTIFIER=%s", log_program, NULL) >= 0)
        return;
    write_line(level, message);
}

void log_message(enum log_level level, const char *format, ...)
{
    va_list args;

    if (!is_shown(level) && !is_listened_to(level))
        return;
    va_start(args, format);
    log_va(level, 0, format, args);
    va_end(args);
}

void log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
{
    int64_t now_ns, next_ns;
    va_list args;

    if (!is_shown(level) && !is_listened_to(level))
        return;
    now_ns = clock_monotonic_ns();
    next_ns = atomic_load_explicit(&limit->next_ns, memory_order_relaxed);
    /* Of several threads that find the interval over, the one that moves its end speaks. */
    if (now_ns < next_ns || !atomic_compare_exchange_strong(&limit->next_ns, &next_ns, now_ns + LIMIT_INTERVAL_NS)) {
        atomic_fetch_add_explicit(&limit->n_suppressed, 1, memory_order_relaxed);
        return;
    }
    va_start(args, format);
    log_va(level, atomic_exchange(&limit->n_suppressed, 0), format, args);
    va_end(args);
}
