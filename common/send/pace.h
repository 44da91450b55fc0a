/* pace.h - computes the departures of a stream's packets: the arithmetic of sender.h, without a clock.
 *
 * Departures lie on a straight line: start + bytes since then * time per byte.  So rounding errors never add up.  A
 * double is exact to the nanosecond for 100 days of a stream that is never idle. */
#ifndef COMMON_SEND_PACE_H
#define COMMON_SEND_PACE_H

#include "common/base/units.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pace {
    double ns_per_byte; /* 0: unpaced */
    int64_t start_ns;
    double n_bytes;           /* bytes departed since start_ns; descriptors may count by a fraction */
    double quick_ns_per_byte; /* time per byte of an undisturbed hand-over; 0: not known yet */
    size_t piece_bytes;       /* size of the last piece; 0: first piece, which may have been delayed */
    int64_t clear_ns;         /* time when the last piece is out of the way */
};

/* Returns the pace of a new stream.  'rate_bytes_per_s' 0: unpaced. */
static inline struct pace pace_make(double rate_bytes_per_s)
{
    assert(rate_bytes_per_s >= 0);
    return (struct pace){.ns_per_byte = rate_bytes_per_s > 0 ? (double)NS_PER_S / rate_bytes_per_s : 0};
}

/* Returns the time when the next packet departs. */
static inline int64_t pace_departure_ns(const struct pace *pace)
{
    return pace->start_ns + (int64_t)(pace->ns_per_byte * pace->n_bytes);
}

/* Limits the lateness that a stream makes up for.  Call when a stream has something to send.  Departures then continue
 * from now: idle time is not made up for, nor more than 'late_max_ns' of other lateness. */
static inline void pace_limit_backlog(struct pace *pace, int64_t now_ns, int64_t late_max_ns)
{
    if (pace_departure_ns(pace) < now_ns - late_max_ns) {
        pace->start_ns = now_ns - late_max_ns;
        pace->n_bytes = 0;
    }
}

/* Ensures that the last 'n_bytes' depart within 'max_ns' from now.  If they would not at the present rate, moves all
 * remaining departures together evenly, including the next one, and returns true. */
static inline bool pace_finish_within(struct pace *pace, int64_t now_ns, uint64_t n_bytes, int64_t max_ns)
{
    double wait_ns = (double)(pace_departure_ns(pace) - now_ns);
    double left_ns = wait_ns + pace->ns_per_byte * (double)n_bytes;
    if (left_ns <= (double)max_ns)
        return false;
    double factor = (double)max_ns / left_ns;
    pace->ns_per_byte *= factor;
    pace->start_ns = now_ns + (int64_t)(wait_ns * factor);
    pace->n_bytes = 0;
    return true;
}

/* Notes that a piece of 'n_bytes', counted as 'paced_bytes', was handed over from 'begun_ns' to 'ended_ns'.  If the
 * thread was delayed before, all of the piece may still have left only at the end.  With the gap a port of 2.5 times
 * the rate passes the piece on before the next piece leaves.  A late stream still sends faster than its rate. */
#define PACE_APART        0.4
#define PACE_QUICK_GROWTH 1.0005
static inline void pace_hand_over(struct pace *pace, int64_t begun_ns, int64_t ended_ns, size_t n_bytes,
                                  double paced_bytes)
{
    assert(ended_ns >= begun_ns && n_bytes > 0);
    double ns_per_byte = (double)(ended_ns - begun_ns) / (double)n_bytes;
    double quick = pace->quick_ns_per_byte * PACE_QUICK_GROWTH;
    pace->piece_bytes = quick > 0 ? n_bytes : 0;
    pace->quick_ns_per_byte = quick > 0 && quick < ns_per_byte ? quick : ns_per_byte;
    pace->clear_ns = ended_ns + (int64_t)(PACE_APART * pace->ns_per_byte * paced_bytes);
}

/* Returns the time when the thread may begin to hand over the next piece.  No packet of a piece leaves a socket before
 * the first message, of 'first_bytes', has been handed over.  So the thread may begin before clear_ns by the time of
 * this hand-over.  A NIC may send earlier, but its hand-over is negligible.  The time is the shortest of recent
 * hand-overs: a thousand slower pieces make it 1.6 times as long. */
static inline int64_t pace_next_ns(const struct pace *pace, size_t first_bytes)
{
    size_t n_bytes = first_bytes < pace->piece_bytes ? first_bytes : pace->piece_bytes;
    return pace->clear_ns - (int64_t)(pace->quick_ns_per_byte * (double)n_bytes);
}

/* Notes that a packet of 'n_bytes' has departed. */
static inline void pace_depart(struct pace *pace, double n_bytes)
{
    pace->n_bytes += n_bytes;
}

#endif
