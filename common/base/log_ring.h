/* log_ring.h - a queue of log lines, from the threads that log them to the thread that writes them.
 *
 * Flow:      any thread --push--> [LOG_RING_LINES] --pop--> the logging thread
 * Threads:   many producers, one consumer at a time.
 * Blocking:  neither push nor pop blocks, takes a lock or allocates.  A producer that the kernel suspends during a push
 *            delays the consumer, but not the other producers.
 * Order:     the consumer pops the lines of one thread in the order in which that thread pushed them.
 * Invariant: a zero-initialised ring is empty and ready for use. */
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
    bool is_raw; /* true if the line is written without time, program and level */
    int64_t unix_ns;
    char text[LOG_MESSAGE_BYTES];
};

/* Each slot of the ring has a turn number.  Each push to the slot and each pop from the slot adds 1 to the number.  A
 * push fills the slot if the number is even.  A pop empties the slot if the number is odd. */
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

/* Pops the oldest line into 'line'.  Returns false if the ring is empty. */
bool log_ring_pop(struct log_ring *ring, struct log_line *line);

#endif
