/* pace.h - when the packets of a stream depart: the arithmetic of sender.h, without a clock.
 *
 * Departures are a straight line, start + bytes since then * time per byte, so rounding never adds up, and a double is
 * good to the nanosecond for 100 days of a stream that is never idle. */
#ifndef COMMON_PACE_H
#define COMMON_PACE_H

#include "common/units.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct pace {
    double ns_per_byte; /* 0: unpaced */
    int64_t start_ns;
    double n_bytes;           /* departed since start_ns; of what counts less than the rest, parts */
    double quick_ns_per_byte; /* that sending takes where nothing holds it up; 0: not known yet */
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
static inline void pace_forget(struct pace *pace, int64_t now_ns, int64_t late_max_ns)
{
    if (pace_departure_ns(pace) < now_ns - late_max_ns) {
        pace->start_ns = now_ns - late_max_ns;
        pace->n_bytes = 0;
    }
}

/* The 'n_bytes' that are left, with the time that they take, are to be gone within 'max_ns' from now: if they are not
 * at the present rate, all that is still to come moves together evenly, the next departure included, and true is
 * returned. */
static inline bool pace_squeeze(struct pace *pace, int64_t now_ns, uint64_t n_bytes, int64_t max_ns)
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

/* How far the beginnings of a piece of 'n_bytes' and of the next are apart at least: a part of the time that the piece
 * takes at the rate, so that a port of two and a half times the rate has passed it on before the next comes, while a
 * stream that is late still gets on faster than its rate. */
#define PACE_APART 0.4
static inline int64_t pace_apart_ns(const struct pace *pace, double n_bytes)
{
    return (int64_t)(PACE_APART * pace->ns_per_byte * n_bytes);
}

/* A piece of 'n_bytes' was handed over from 'begun_ns' to 'ended_ns': returns when that began at the latest.  What it took
 * beyond what pieces do take, the thread may have been held up for before the first packet, and the piece be as much
 * closer to the next than it seems.  What pieces do take is the least of late: a hundred pieces that take longer make it
 * 1.6 times as long. */
#define PACE_QUICK_GROWTH 1.005
static inline int64_t pace_begun_ns(struct pace *pace, int64_t begun_ns, int64_t ended_ns, size_t n_bytes)
{
    assert(ended_ns >= begun_ns && n_bytes > 0);
    double ns_per_byte = (double)(ended_ns - begun_ns) / (double)n_bytes;
    double quick = pace->quick_ns_per_byte * PACE_QUICK_GROWTH;
    pace->quick_ns_per_byte = quick > 0 && quick < ns_per_byte ? quick : ns_per_byte;
    return ended_ns - (int64_t)(pace->quick_ns_per_byte * (double)n_bytes);
}

/* A packet of 'n_bytes' has departed. */
static inline void pace_depart(struct pace *pace, double n_bytes)
{
    pace->n_bytes += n_bytes;
}

#endif
