/* log_ring.h - log lines between the threads that log them and the thread that writes them.
 *
 * Flow:      any thread --push--> [LOG_RING_LINES] --pop--> the logging thread
 * Threads:   many producers, one consumer at a time.
 * Blocking:  neither push nor pop blocks, takes a lock or allocates.  A producer that is stopped in the middle of a
 *            push holds back the consumer, not the other producers.
 * Order:     lines of one thread come out in the order in which they went in.
 * Invariant: a ring of zeros is empty and ready. */
#ifndef COMMON_BASE_LOG_RING_H
#define COMMON_BASE_LOG_RING_H

#include "common/base/log.h"

#include <stdbool.h>
#include <stddef.h>

/* Room for a message.  A longer message is cut and ends in "...". */
#define LOG_MESSAGE_BYTES 2048
#define LOG_RING_LINES    256

struct log_line {
    enum log_level level;
    bool is_raw; /* text for a terminal, without time, program and level */
    int64_t unix_ns;
    char text[LOG_MESSAGE_BYTES];
};

/* Each place counts its turns: an even turn fills the place, and the next odd turn empties it. */
struct log_ring {
    struct {
        _Atomic size_t turn;
        struct log_line line;
    } places[LOG_RING_LINES];
    _Atomic size_t n_pushed;
    size_t n_popped; /* [consumer] */
};

/* Copies 'line' into the ring.  Returns false if there is no room. */
bool log_ring_push(struct log_ring *ring, const struct log_line *line);

/* Takes out the oldest line.  Returns false if there is none. */
bool log_ring_pop(struct log_ring *ring, struct log_line *line);

#endif
