/* log.h - what the operator reads: the journal when systemd started us, else stderr.
 *
 * Flow:     any thread --> [ring] --> the logging thread --> the journal or stderr
 * Threads:  any; one message is one write.  Lines of one thread keep their order.
 * Blocking: never between log_start() and log_stop(): a line for which there is no room is dropped and counted, and the
 *           log says how many were as soon as it takes lines again.  Nothing is allocated.  Before log_start() the
 *           caller waits as the journal or stderr does; after log_stop() it waits a tenth of a second.
 * On the data path only through log_limited(), which says at most one message per key and interval and then how many
 * were left out. */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* 'program' names the process in each line; 'max_level' is the most talkative level shown. */
void log_init(const char *program, enum log_level max_level);

/* From now on lines are written by a thread of their own.  Main, before other threads; again after log_stop().
 * Returns 0 or negative errno. */
int log_start(void);

/* Writes what was said, for a second at most, and ends that thread.  Main, when other threads have ended. */
void log_stop(void);

/* Waits until what was said so far is written, for a second at most; safe in a signal handler.  Called where the
 * process ends by itself, and before READY. */
void log_flush(void);

/* How many lines were dropped since the process began. */
uint64_t log_n_dropped(void);

/* Shows up to another level from now on; any thread. */
void log_set_level(enum log_level max_level);

/* Hands messages up to 'max_level' (LOG_NOTHING: none) to 'listener' too, in the thread that says them: it must neither
 * block nor log.  One at a time, for as long as the process lives; any thread. */
#define LOG_NOTHING (-1)
void log_listen(void (*listener)(enum log_level level, int64_t unix_ns, const char *message), int max_level);

void log_message(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_message(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_message(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Text for a terminal on stderr, as it is: a line of progress that the next one replaces. */
void log_terminal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The state of one rate-limited message. */
struct log_limit {
    _Atomic int64_t next_ns;
    _Atomic uint64_t n_suppressed;
};

/* As log_message, but at most once every 10 s per 'limit'; the message that comes through then says how many were left
 * out in between. */
void log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
