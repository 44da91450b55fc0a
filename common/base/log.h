/* log.h - messages to the operator: to the journal if systemd started this process, else to stderr.
 *
 * Flow:     any thread --> [ring] --> the logging thread --> the journal or stderr
 * Threads:  any; one message is one write.  Lines of one thread keep their order.
 * Blocking: never between log_start() and log_stop().  A line that finds no room in the ring is dropped and counted.
 *           The log reports the number of dropped lines as soon as it takes lines again.  Nothing is allocated.  Before
 *           log_start() the caller waits until the journal or stderr takes the line.  After log_stop() it waits a tenth
 *           of a second at most.
 * The data path uses only log_limited(), which writes at most one message per 'limit' and interval.  The next message
 * gives the number of messages left out. */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* 'program' names the process in each line; 'max_level' is the most verbose level shown. */
void log_init(const char *program, enum log_level max_level);

/* Starts a thread that writes all lines from now on.  Call on the main thread before other threads start.  May be
 * called again after log_stop().  Returns 0 or negative errno. */
int log_start(void);

/* Writes the pending lines, for a second at most, and ends the logging thread.  Call on main after other threads have
 * ended. */
void log_stop(void);

/* Waits until all lines so far are written, for a second at most.  Safe in a signal handler.  Called before the process
 * ends by itself, and before READY. */
void log_flush(void);

/* Returns the number of lines dropped since the process began. */
uint64_t log_n_dropped(void);

/* Shows messages up to another level from now on.  Any thread. */
void log_set_level(enum log_level max_level);

/* Also hands messages up to 'max_level' (LOG_NOTHING: none) to 'listener', on the thread that logs them.  The listener
 * must neither block nor log.  There is one listener at a time, for as long as the process lives.  Any thread. */
#define LOG_NOTHING (-1)
void log_listen(void (*listener)(enum log_level level, int64_t unix_ns, const char *message), int max_level);

void log_message(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_message(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_message(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Writes text to a terminal on stderr without time and level: a line of progress that the next line replaces. */
void log_terminal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The state of one rate-limited message. */
struct log_limit {
    _Atomic int64_t next_ns;
    _Atomic uint64_t n_suppressed;
};

/* Logs like log_message(), but at most once every 10 s per 'limit'.  The next message also gives the number of messages
 * that were left out. */
void log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
