/* log_ring.c - see log_ring.h.  The ring is a bounded queue whose slots have turn numbers (D. Vyukov, "Bounded MPMC
 * queue"), here with one consumer. */
#include "common/base/log_ring.h"

#include <string.h>

/* Copies only the used part of the text, because most lines are short. */
static void copy_line(struct log_line *to, const struct log_line *from)
{
    to->level = from->level;
    to->is_raw = from->is_raw;
    to->unix_ns = from->unix_ns;
    strcpy(to->text, from->text);
}

bool log_ring_push(struct log_ring *ring, const struct log_line *line)
{
    size_t at = atomic_load_explicit(&ring->n_pushed, memory_order_relaxed);

    for (;;) {
        size_t fill_turn = at / LOG_RING_LINES * 2;
        /* Pairs with the release in log_ring_pop(): the consumer has copied the old line before this thread writes the
         * new line. */
        size_t turn = atomic_load_explicit(&ring->places[at % LOG_RING_LINES].turn, memory_order_acquire);
        if (turn < fill_turn)
            return false;
        if (turn > fill_turn)
            at = atomic_load_explicit(&ring->n_pushed, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(&ring->n_pushed, &at, at + 1, memory_order_relaxed,
                                                       memory_order_relaxed))
            break;
    }
    copy_line(&ring->places[at % LOG_RING_LINES].line, line);
    /* Pairs with the acquire in log_ring_pop(): the line is complete before the consumer copies it. */
    atomic_store_explicit(&ring->places[at % LOG_RING_LINES].turn, at / LOG_RING_LINES * 2 + 1, memory_order_release);
    return true;
}

bool log_ring_pop(struct log_ring *ring, struct log_line *line)
{
    size_t at = ring->n_popped;
    size_t empty_turn = at / LOG_RING_LINES * 2 + 1;

    if (atomic_load_explicit(&ring->places[at % LOG_RING_LINES].turn, memory_order_acquire) != empty_turn)
        return false;
    copy_line(line, &ring->places[at % LOG_RING_LINES].line);
    atomic_store_explicit(&ring->places[at % LOG_RING_LINES].turn, empty_turn + 1, memory_order_release);
    ring->n_popped = at + 1;
    return true;
}
