/* log.h - messages to the operator: to the journal if systemd started this process, else to stderr.
 *
 * Flow:     any thread --> [ring] --> the logging thread --> the journal or stderr
 * Threads: any.  Each message is one write.  Lines of one thread keep their order.
 * Blocking: never between log_start() and log_stop().  If the ring has no room, the line is dropped and counted.  A
 *           later line reports the number of dropped lines.  No function allocates memory.  Before log_start() the
 *           caller waits until the journal or stderr has room for the line.  After log_stop() the caller waits for at
 *           most a tenth of a second.
 * The data path uses only log_limited(), which logs at most one message in 10 s for each struct log_limit.  The next
 * message for the same struct reports the number of suppressed messages. */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Opens the log.  'program' is the name of the process in each line.  'max_level' is the most verbose level that is
 * written. */
void log_init(const char *program, enum log_level max_level);

/* Starts the logging thread, which writes all lines from now on.  Call this function on the main thread before other
 * threads start.  It may be called again after log_stop().  Returns 0 or negative errno. */
int log_start(void);

/* Waits at most one second until the pending lines are written.  Then ends the logging thread.  Call this function on
 * the main thread after the other threads have ended. */
void log_stop(void);

/* Waits at most one second until the logging thread has written all lines that were logged before this call.  Safe in a
 * signal handler.  The program calls this function before READY and before an abnormal exit. */
void log_flush(void);

/* Returns the number of lines dropped since the process began. */
uint64_t log_n_dropped(void);

/* Sets the most verbose level that is written from now on.  Any thread may call this function. */
void log_set_level(enum log_level max_level);

/* Also passes each message up to 'max_level' to 'listener', which runs on the thread that logs the message.
 * LOG_NOTHING passes no messages.  The listener must neither block nor log.  A call replaces the previous listener.
 * Every listener must remain callable until the process ends.  Any thread may call this function. */
#define LOG_NOTHING (-1)
void log_listen(void (*listener)(enum log_level level, int64_t unix_ns, const char *message), int max_level);

void log_message(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_message(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_message(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Writes text without time and level, for progress on a terminal.  Each progress line overwrites the line before
 * it. */
void log_terminal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The state of one message that is logged at most once every 10 s. */
struct log_limit {
    _Atomic int64_t next_ns;
    _Atomic uint64_t n_suppressed;
};

/* Logs a message as log_message() does, but at most one message in 10 s for each 'limit'.  The next logged message
 * also reports the number of suppressed messages. */
void log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
