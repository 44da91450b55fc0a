/* log.c - writes each message as one record to the journal, or as one line to stderr.
 *
 * Between log_start() and log_stop() each thread pushes its lines into a ring (log_ring.h), and the logging thread
 * writes the lines.  At other times the caller writes its line itself. */
#include "common/base/log.h"

#include "common/base/clock.h"
#include "common/base/counter.h"
#include "common/base/datagram.h"
#include "common/base/log_ring.h"
#include "common/base/memory.h"
#include "common/base/thread.h"
#include "common/base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_INTERVAL_NS (10 * NS_PER_S)

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* Time until the next attempt if the journal or stderr has no room for a line. */
#define RETRY_NS (10 * NS_PER_MS)

/* FLUSH_NS: longest time that log_flush() waits until the logging thread has written all lines.  ENDED_NS: longest time
 * that log_stop() waits until the logging thread has ended.  After log_stop(), each caller writes its own line.  The
 * caller waits at most ENDED_NS until there is room for the line. */
#define FLUSH_NS NS_PER_S
#define ENDED_NS (100 * NS_PER_MS)

/* Names of the levels, and their syslog priorities.  The journal uses the same numbers; see sd-daemon(3). */
static const struct {
    const char *name;
    int priority;
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},
    [LOG_LEVEL_WARNING] = {"warning", 4},
    [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

/* Written by log_init() before other threads start; constant afterwards. */
static char log_program[32] = "cbf";
static struct datagram journal = {.fd = -1}; /* messages go to the journal if this socket is open */

static _Atomic int log_max_level = LOG_LEVEL_INFO;
static _Atomic int listener_max_level = LOG_NOTHING;
static void (*_Atomic log_listener)(enum log_level level, int64_t unix_ns, const char *message);

/* Ways in which a line is written.  DIRECT: the caller writes its line.  QUEUED: the logging thread writes the line.
 * ENDED: the caller writes the line within ENDED_NS, or drops it. */
static _Atomic enum { DIRECT, QUEUED, ENDED } log_mode;

static struct log_ring ring;
static sem_t ring_filled; /* semaphore, posted for each line in the ring, and once by log_stop() */
static struct thread writer;
static _Atomic bool is_ending;   /* if true, no thread waits any more for room in stderr or the journal */
static _Atomic size_t n_ended;   /* number of logging threads that have ended */
static _Atomic size_t n_written; /* number of lines taken from the ring and written or dropped */
static struct counter n_dropped;

/* True if systemd connected stderr to the journal: $JOURNAL_STREAM then names stderr's device and inode.  If an
 * operator redirects stderr, or starts the program by hand from a service's shell, the log goes to stderr as plain
 * lines.  A container may inherit stderr and $JOURNAL_STREAM without the journal's socket. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uintmax_t device, inode;
    struct stat st;

    if (!stream || sscanf(stream, "%" SCNuMAX ":%" SCNuMAX, &device, &inode) != 2)
        return false;
    if (fstat(STDERR_FILENO, &st) != 0 || st.st_dev != device || st.st_ino != inode)
        return false;
    return access(JOURNAL_SOCKET, W_OK) == 0;
}

/* Opens /dev/null for each of stdin, stdout and stderr that is closed.  Otherwise the next file or socket that the
 * process opens would receive the messages. */
static void occupy_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", O_RDWR); /* open() returns the lowest free descriptor, 'fd' */
}

void log_init(const char *program, enum log_level max_level)
{
    occupy_standard_files();
    snprintf(log_program, sizeof(log_program), "%s", program);
    log_set_level(max_level);
    datagram_close(&journal);
    if (stderr_is_journal())
        datagram_open(&journal, JOURNAL_SOCKET);
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

/* ---- Writing a line ---------------------------------------------------------------------------------------------- */

/* Writes the line in the journal's native protocol, one field per line.  Returns 0 or negative errno. */
static int put_in_journal(const struct log_line *line)
{
    char record[LOG_MESSAGE_BYTES + 128];
    int n = snprintf(record, sizeof(record), "MESSAGE=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=%s\n", line->text,
                     levels[line->level].priority, log_program);

    return datagram_send(&journal, record, (size_t)n);
}

/* Computes the Gregorian date of day 'day' since 1970-01-01.  In this computation years begin in March, so that a leap
 * day is the last day of its year.  gmtime_r() is avoided because it reads the time zone, which other threads may
 * set. */
static void date_of(int64_t day, int *year, int *month, int *day_of_month)
{
    int64_t since = day + 719468, era = since / 146097, of_era = since % 146097;
    int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t march_month = (5 * of_year + 2) / 153;

    *day_of_month = (int)(of_year - (153 * march_month + 2) / 5 + 1);
    *month = (int)(march_month < 10 ? march_month + 3 : march_month - 9);
    *year = (int)(year_of_era + era * 400 + (*month <= 2));
}

/* Writes the line as "2026-11-21T03:16:39.123Z fgpu[4711] warning: text\n".  Returns the number of characters. */
static size_t format_line(const struct log_line *line, char *text, size_t text_bytes)
{
    int64_t unix_s = line->unix_ns / NS_PER_S, second = unix_s % 86400;
    int year, month, day;

    if (line->is_raw)
        return (size_t)snprintf(text, text_bytes, "%s", line->text);
    date_of(unix_s / 86400, &year, &month, &day);
    size_t n = (size_t)snprintf(text, text_bytes, "%04d-%02d-%02dT%02d:%02d:%02d", year, month, day,
                                (int)(second / 3600), (int)(second / 60 % 60), (int)(second % 60));
    return n + (size_t)snprintf(text + n, text_bytes - n, ".%03dZ %s[%ld] %s: %s\n",
                                (int)(line->unix_ns % NS_PER_S / NS_PER_MS), log_program, (long)getpid(),
                                levels[line->level].name, line->text);
}

/* Writes the line with a single write(), so that lines of several processes do not mix.  A pipe that poll() reports as
 * writable accepts a line, up to PIPE_BUF bytes, without blocking.  Returns 0, or -EAGAIN while stderr has no room. */
static int put_on_stderr(const struct log_line *line)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    char text[LOG_MESSAGE_BYTES + 128];

    if (poll(&ready, 1, 0) == 0)
        return -EAGAIN;
    /* An error other than EAGAIN cannot be reported anywhere. */
    return write(STDERR_FILENO, text, format_line(line, text, sizeof(text))) < 0 && errno == EAGAIN ? -EAGAIN : 0;
}

/* Writes the line to the journal, or to stderr if the journal fails.  Returns 0, or -EAGAIN while the journal or stderr
 * has no room. */
static int put(const struct log_line *line)
{
    int err = journal.fd < 0 ? -ENOENT : put_in_journal(line);

    return err && err != -EAGAIN ? put_on_stderr(line) : err;
}

/* Writes the line, and waits for room until the monotonic clock reads 'deadline_ns'.  With INT64_MAX the wait has no
 * deadline, but log_stop() ends it.  Returns false if the line was not written. */
static bool put_until(const struct log_line *line, int64_t deadline_ns)
{
    while (put(line) != 0) {
        int64_t now_ns = clock_monotonic_ns();
        if (now_ns >= deadline_ns || (atomic_load(&is_ending) && deadline_ns == INT64_MAX))
            return false;
        clock_sleep_until(now_ns + RETRY_NS);
    }
    return true;
}

/* ---- The logging thread ------------------------------------------------------------------------------------------ */

/* Logs the number of lines that were dropped since the last report of dropped lines. */
static void write_dropped(uint64_t *n_said)
{
    struct log_line line = {.level = LOG_LEVEL_WARNING, .unix_ns = clock_unix_ns()};
    uint64_t n = counter_get(&n_dropped) - *n_said;

    if (n == 0)
        return;
    snprintf(line.text, sizeof(line.text), "%" PRIu64 " log lines were dropped: %s was not read fast enough", n,
             journal.fd < 0 ? "stderr" : "the journal");
    if (put_until(&line, INT64_MAX))
        *n_said += n;
}

static void *write_lines(void *arg)
{
    static struct log_line line;
    /* number of dropped lines that are already logged; static, because lines may be dropped before this thread runs */
    static uint64_t n_said;

    thread_watched(false); /* the watchdog ignores this thread, which may wait for a slow reader */
    do {
        sem_wait(&ring_filled);
        while (log_ring_pop(&ring, &line)) {
            if (!put_until(&line, INT64_MAX))
                counter_add(&n_dropped, 1);
            atomic_fetch_add(&n_written, 1);
        }
        write_dropped(&n_said);
    } while (!atomic_load(&is_ending));
    atomic_store(&n_ended, 1);
    return NULL;
}

int log_start(void)
{
    if (atomic_load(&log_mode) == QUEUED)
        return 0;
    atomic_store(&is_ending, false);
    atomic_store(&n_ended, 0);
    sem_init(&ring_filled, 0, 0);
    memory_touch(&ring, sizeof(ring)); /* lines would touch it over hours, as if memory leaked */
    int err = thread_start(&writer, "log", -1, write_lines, NULL);
    if (!err)
        atomic_store(&log_mode, QUEUED);
    return err;
}

/* Waits until '*value' is at least 'least', but not longer than 'wait_ns'.  Returns false if the wait timed out. */
static bool wait_for(const _Atomic size_t *value, size_t least, int64_t wait_ns)
{
    int64_t deadline_ns = clock_monotonic_ns() + wait_ns;

    while (atomic_load(value) < least) {
        int64_t now_ns = clock_monotonic_ns();
        if (now_ns >= deadline_ns)
            return false;
        clock_sleep_until(now_ns + NS_PER_MS);
    }
    return true;
}

void log_flush(void)
{
    if (atomic_load(&log_mode) == QUEUED)
        wait_for(&n_written, atomic_load(&ring.n_pushed), FLUSH_NS);
}

void log_stop(void)
{
    if (atomic_load(&log_mode) != QUEUED)
        return;
    log_flush();
    atomic_store(&log_mode, ENDED);
    atomic_store(&is_ending, true);
    sem_post(&ring_filled);
    /* The logging thread may block in write() if stderr has less room than poll() reported.  The process ends without
     * joining a blocked logging thread. */
    if (wait_for(&n_ended, 1, ENDED_NS))
        thread_join(&writer);
}

uint64_t log_n_dropped(void)
{
    return counter_get(&n_dropped);
}

/* ---- Saying something -------------------------------------------------------------------------------------------- */

static void write_or_drop(const struct log_line *line)
{
    int mode = atomic_load(&log_mode);

    if (mode == QUEUED && log_ring_push(&ring, line))
        sem_post(&ring_filled);
    else if (mode == QUEUED || !put_until(line, mode == DIRECT ? INT64_MAX : clock_monotonic_ns() + ENDED_NS))
        counter_add(&n_dropped, 1);
}

static void log_va(enum log_level level, uint64_t n_suppressed, const char *format, va_list args)
{
    struct log_line line;
    int n = vsnprintf(line.text, sizeof(line.text), format, args);

    if (n < 0)
        return;
    if (n >= (int)sizeof(line.text))
        memcpy(line.text + sizeof(line.text) - 4, "...", 4);
    else if (n_suppressed)
        snprintf(line.text + n, sizeof(line.text) - n, " (%" PRIu64 " similar messages were suppressed)", n_suppressed);

    /* Replaces control characters by blanks, so that a message is one line. */
    for (char *c = line.text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    }
    line.level = level;
    line.is_raw = false;
    line.unix_ns = clock_unix_ns();
    if (is_listened_to(level))
        atomic_load (&log_listener)(level, line.unix_ns, line.text);
    if (is_shown(level))
        write_or_drop(&line);
}

void log_terminal(const char *format, ...)
{
    struct log_line line = {.is_raw = true};
    va_list args;

    va_start(args, format);
    vsnprintf(line.text, sizeof(line.text), format, args);
    va_end(args);
    write_or_drop(&line);
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
    /* Several threads may see that the interval has ended.  Only the thread that sets the end of the next interval logs
     * its message. */
    if (now_ns < next_ns || !atomic_compare_exchange_strong(&limit->next_ns, &next_ns, now_ns + LIMIT_INTERVAL_NS)) {
        atomic_fetch_add_explicit(&limit->n_suppressed, 1, memory_order_relaxed);
        return;
    }
    va_start(args, format);
    log_va(level, atomic_exchange(&limit->n_suppressed, 0), format, args);
    va_end(args);
}
