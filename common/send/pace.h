/* pace.h - when the packets of a stream depart: the arithmetic of sender.h, without a clock.
 *
 * Departures are a straight line, start + bytes since then * time per byte, so rounding never adds up, and a double is
 * good to the nanosecond for 100 days of a stream that is never idle. */
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
    double n_bytes;           /* departed since start_ns; of what counts less than the rest, parts */
    double quick_ns_per_byte; /* that sending takes where nothing holds it up; 0: not known yet */
    size_t piece_bytes;       /* of the last piece; 0: of the first, which nothing says was not held up */
    int64_t clear_ns;         /* when it is out of the way */
};

/* 'rate_bytes_per_s' 0: unpaced. */
static inline struct pace pace_make(double rate_bytes_per_s)
{
    assert(rate_bytes_per_s >= 0);
    return (struct pace){.ns_per_byte = rate_bytes_per_s > 0 ? (double)NS_PER_S / rate_bytes_per_s : 0};
}

/* When the next packet departs. */
static inline int64_t pace_departure_ns(const struct pace *pace)
{
    return pace->start_ns + (int64_t)(pace->ns_per_byte * pace->n_bytes);
}

/* The departures of a stream that has something to send go on from here, not from before: neither the time in which it
 * had nothing to send nor more than 'late_max_ns' of other lateness is made up for. */
static inline void pace_limit_backlog(struct pace *pace, int64_t now_ns, int64_t late_max_ns)
{
    if (pace_departure_ns(pace) < now_ns - late_max_ns) {
        pace->start_ns = now_ns - late_max_ns;
        pace->n_bytes = 0;
    }
}

/* The 'n_bytes' that are left, with the time that they take, are to be gone within 'max_ns' from now: if they are not
 * at the present rate, all that is still to come moves together evenly, the next departure included, and true is
 * returned. */
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

/* A piece of 'n_bytes', which count 'paced_bytes', has been handed over from 'begun_ns' to 'ended_ns'.  All of it may have
 * left at the end, whatever held the thread up before; and before the next piece leaves, a port of two and a half times
 * the rate is to have passed it on, while a stream that is late still gets on faster than its rate. */
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

/* Returns when the thread may begin to hand over the next piece.  No packet of a piece leaves a socket before the first
 * message, of 'first_bytes', has been handed over; so the thread may begin that much before clear_ns.  A NIC may send
 * earlier, but its hand-over is negligible.  The time of a hand-over is the shortest of late: a thousand slower pieces
 * make it 1.6 times as long. */
static inline int64_t pace_next_ns(const struct pace *pace, size_t first_bytes)
{
    size_t n_bytes = first_bytes < pace->piece_bytes ? first_bytes : pace->piece_bytes;
    return pace->clear_ns - (int64_t)(pace->quick_ns_per_byte * (double)n_bytes);
}

/* A packet of 'n_bytes' has departed. */
static inline void pace_depart(struct pace *pace, double n_bytes)
{
    pace->n_bytes += n_bytes;
}

#endif
