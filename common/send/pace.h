/* pace.h - computes the departure times of a stream's packets.  sender.h describes this schedule.  The functions here
 * read no clock: the caller passes the time.
 *
 * A departure time is start_ns + n_bytes * ns_per_byte, so rounding errors do not accumulate.  A double keeps the
 * time exact to the nanosecond for 100 days of uninterrupted sending. */
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
    /* number of bytes that departed since start_ns; the bytes of descriptors are multiplied by a weight <= 1 */
    double n_bytes;
    double quick_ns_per_byte; /* time per byte of an undisturbed hand-over to the sink; 0: not known */
    size_t piece_bytes;       /* size of the last piece; 0: no piece with a known hand-over time yet */
    int64_t clear_ns;         /* earliest departure of the next piece's first packet */
};

/* Returns the pace of a new stream.  A rate of 0 means unpaced. */
static inline struct pace pace_make(double rate_bytes_per_s)
{
    assert(rate_bytes_per_s >= 0);
    return (struct pace){.ns_per_byte = rate_bytes_per_s > 0 ? (double)NS_PER_S / rate_bytes_per_s : 0};
}

/* Returns the departure time of the next packet. */
static inline int64_t pace_departure_ns(const struct pace *pace)
{
    return pace->start_ns + (int64_t)(pace->ns_per_byte * pace->n_bytes);
}

/* Limits a stream's backlog: the stream makes up for at most 'late_max_ns' of its delay.  Call when the stream has
 * something to send.  If 'late_max_ns' is 0, the departures continue from now, so that the stream does not make up
 * for idle time. */
static inline void pace_limit_backlog(struct pace *pace, int64_t now_ns, int64_t late_max_ns)
{
    if (pace_departure_ns(pace) < now_ns - late_max_ns) {
        pace->start_ns = now_ns - late_max_ns;
        pace->n_bytes = 0;
    }
}

/* Ensures that the remaining 'n_bytes' depart within 'max_ns' from now.  If the rate is too low, multiplies all
 * remaining waits by the same factor, including the wait for the next departure.  Returns true in this case. */
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

/* Records that a piece was handed to the sink from 'begun_ns' to 'ended_ns'.  The piece has 'n_bytes' bytes, which
 * count as 'paced_bytes'.  Perhaps the whole piece left only at 'ended_ns', so the gap after the piece begins at this
 * time.  The gap lasts for PACE_APART times the piece's duration.  During this gap, a switch port with 2.5 times the
 * stream's rate forwards the whole piece.  The gap is shorter than a piece, so late streams can catch up. */
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

/* Returns the earliest time to begin the hand-over of the next piece.  A socket sends no packet of a piece until the
 * piece's first message ('first_bytes' bytes) has been handed over.  So the hand-over may begin before clear_ns, by the
 * time that the hand-over of the first message takes.  The function computes this time from the fastest recent
 * hand-over.  Each slower piece multiplies the computed time by PACE_QUICK_GROWTH, so a thousand slower pieces multiply
 * the time by 1.6.  A NIC may send packets before the hand-over of the first message ends, but a hand-over to a NIC
 * takes negligible time. */
static inline int64_t pace_next_ns(const struct pace *pace, size_t first_bytes)
{
    size_t n_bytes = first_bytes < pace->piece_bytes ? first_bytes : pace->piece_bytes;
    return pace->clear_ns - (int64_t)(pace->quick_ns_per_byte * (double)n_bytes);
}

/* Records the departure of a packet of 'n_bytes'. */
static inline void pace_depart(struct pace *pace, double n_bytes)
{
    pace->n_bytes += n_bytes;
}

#endif
