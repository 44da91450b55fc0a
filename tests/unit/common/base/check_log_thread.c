/* check_log_thread.c - log lines on their way from threads to a stderr that has perhaps no reader. */
#include "common/base/log.h"

#include "common/base/log_ring.h"
#include "common/daemon/service.h"
#include "common/base/thread.h"

#include "tests/unit/test_capture.h"
#include "tests/unit/test_main.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_THREADS 4

/* ---- The ring ---------------------------------------------------------------------------------------------------- */

static struct log_ring ring;

static bool push_number(uint64_t thread, uint64_t number)
{
    struct log_line line = {.level = LOG_LEVEL_INFO, .unix_ns = (int64_t)(1000 * thread + number)};

    snprintf(line.text, sizeof(line.text), "%" PRIu64 " %" PRIu64, thread, number);
    return log_ring_push(&ring, &line);
}

/* Takes a line of 'push_number' out.  Returns false if there is none. */
static bool pop_number(uint64_t *thread, uint64_t *number)
{
    struct log_line line;

    memset(&line, 0x55, sizeof(line));
    if (!log_ring_pop(&ring, &line))
        return false;
    ck_assert_int_eq(sscanf(line.text, "%" SCNu64 " %" SCNu64, thread, number), 2);
    ck_assert_int_eq(line.level, LOG_LEVEL_INFO);
    ck_assert(!line.is_raw);
    ck_assert_int_eq(line.unix_ns, (int64_t)(1000 * *thread + *number));
    return true;
}

/* It takes LOG_RING_LINES lines and no more, and gives them back in order, wherever it stands. */
TEST(ring_full)
{
    uint64_t n_pushed = 0, n_popped = 0, thread, number;

    for (unsigned round = 0; round < 50; round++) {
        while (push_number(7, n_pushed))
            n_pushed++;
        ck_assert_uint_eq(n_pushed - n_popped, LOG_RING_LINES);
        for (unsigned i = 0; i <= round * 37 % LOG_RING_LINES; i++, n_popped++) {
            ck_assert(pop_number(&thread, &number));
            ck_assert_uint_eq(number, n_popped);
        }
    }
    for (; n_popped < n_pushed; n_popped++)
        ck_assert(pop_number(&thread, &number) && number == n_popped);
    ck_assert(!pop_number(&thread, &number));
}

static _Atomic uint64_t n_in;
static _Atomic int n_running;

static void *push_many(void *arg)
{
    for (uint64_t i = 0; i < 20000; i++)
        n_in += push_number((uintptr_t)arg, i);
    n_running--;
    return NULL;
}

/* Whatever went in comes out once, and in the order of its thread. */
TEST(ring_threads)
{
    uint64_t next[N_THREADS] = {0}, n_out = 0, thread, number;
    pthread_t threads[N_THREADS];
    bool is_last;

    n_running = N_THREADS;
    for (uintptr_t i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, push_many, (void *)i), 0);
    do {
        is_last = n_running == 0; /* looked at before the ring is */
        while (pop_number(&thread, &number)) {
            ck_assert_uint_lt(thread, N_THREADS);
            ck_assert_uint_ge(number, next[thread]);
            next[thread] = number + 1;
            n_out++;
        }
    } while (!is_last);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(n_out, n_in);
}

/* ---- stderr ------------------------------------------------------------------------------------------------------ */

static void capture(void)
{
    capture_stderr();
    log_init("fgpu", LOG_LEVEL_INFO);
}

/* Whether 'text' holds "line 0" to "line n-1", one a line, in order and nothing else. */
static void check_lines(const char *text, unsigned n)
{
    char expected[32];

    for (unsigned i = 0; i < n; i++) {
        size_t line_bytes = strcspn(text, "\n");
        snprintf(expected, sizeof(expected), "info: line %u", i);
        ck_assert_uint_gt(line_bytes, strlen(expected));
        ck_assert_mem_eq(text + line_bytes - strlen(expected), expected, strlen(expected));
        text += line_bytes + 1;
    }
    ck_assert_str_eq(text, "");
}

static void log_lines(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++)
        log_info("line %u", i);
}

/* Without, with and after the logging thread, and again. */
TEST(order)
{
    capture();
    log_lines(0, 10);
    check_lines(written(), 10);
    ck_assert_int_eq(log_start(), 0);
    log_lines(10, 200);
    log_flush();
    check_lines(written(), 210);
    log_lines(210, 200);
    log_stop();
    check_lines(written(), 410);
    log_lines(410, 10);
    check_lines(written(), 420);
    ck_assert_int_eq(log_start(), 0);
    log_lines(420, 10);
    log_stop();
    check_lines(written(), 430);
    ck_assert_uint_eq(log_n_dropped(), 0);
}

/* stderr becomes a pipe that is full.  Returns the end that nobody reads. */
static int fill_stderr(void)
{
    char filler[4096];
    int ends[2];

    memset(filler, '\n', sizeof(filler));
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    while (write(ends[1], filler, sizeof(filler)) > 0)
        ;
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0); /* as anybody's stderr */
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    unsetenv("JOURNAL_STREAM");
    log_init("fgpu", LOG_LEVEL_INFO);
    return ends[0];
}

static void *log_many(void *arg)
{
    for (int i = 0; i < 1000; i++)
        log_info("%d of thread %d", i, (int)(uintptr_t)arg);
    return NULL;
}

/* All threads go on; what did not fit is counted, and said once the lines are read. */
TEST(full_stderr)
{
    int fd = fill_stderr(), next[N_THREADS] = {0}, thread, number;
    pthread_t threads[N_THREADS];
    uint64_t n_read = 0, n_dropped = 0;
    FILE *reader = fdopen(fd, "r");
    char line[4096];

    ck_assert_int_eq(log_start(), 0);
    for (uintptr_t i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, (void *)i), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    log_info("from main");
    ck_assert_uint_gt(log_n_dropped(), 0);
    while (n_dropped == 0 && fgets(line, sizeof(line), reader)) {
        const char *text = strstr(line, "info: ");
        const char *dropped = strstr(line, "warning: ");
        if (dropped)
            ck_assert_int_eq(sscanf(dropped, "warning: %" SCNu64 " log lines were dropped", &n_dropped), 1);
        n_read += text && strstr(text, "from main");
        if (!text || sscanf(text, "info: %d of thread %d", &number, &thread) != 2)
            continue;
        ck_assert_int_ge(number, next[thread]);
        next[thread] = number + 1;
        n_read++;
    }
    ck_assert_uint_eq(n_dropped, log_n_dropped());
    ck_assert_uint_eq(n_read + n_dropped, N_THREADS * 1000 + 1);
    log_stop();
    fclose(reader);
}

/* The end waits for a stderr that nobody reads for a bounded time, and what is said then does not wait for ever. */
TEST(stop_unread)
{
    int fd = fill_stderr();

    ck_assert_int_eq(log_start(), 0);
    log_lines(0, 10);
    log_stop();
    ck_assert_uint_eq(log_n_dropped(), 10);
    log_info("after all");
    ck_assert_uint_eq(log_n_dropped(), 11);
    close(fd);
}

/* The exit status of a child that runs 'run'. */
static int run_child(void (*run)(void))
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        run();
        _exit(0);
    }
    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

static void log_and_abort(void)
{
    struct service *service;

    if (service_open(&service) != 0)
        _exit(1);
    log_lines(0, 100);
    abort();
}

/* Lines logged before a failed assertion are written, and the process ends as usual. */
TEST(aborted)
{
    for (int i = 0; i < 10; i++) {
        capture();
        int status = run_child(log_and_abort);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        check_lines(written(), 100);
        fclose(captured);
    }
}

static void stop_twice(void)
{
    struct service *service;

    if (service_open(&service) != 0)
        _exit(2);
    raise(SIGTERM);
    raise(SIGTERM);
}

/* A second signal ends the process although stderr takes nothing. */
TEST(second_signal_unread)
{
    int fd = fill_stderr();
    int status = run_child(stop_twice);

    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    close(fd);
}

/* A service ends in bounded time, too. */
static void serve(void)
{
    struct service *service;

    if (service_open(&service) != 0)
        _exit(2);
    raise(SIGTERM);
    int code = service_run(service);
    service_close(service);
    _exit(code ? 3 : 0);
}

TEST(service_unread)
{
    int fd = fill_stderr();
    int status = run_child(serve);

    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(fd);
}

SUITE(.timeout_s = 30);
