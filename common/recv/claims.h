/* claims.h - claims of sources that the time is not the window's, and the decision which claims are believed.
 *
 * A source claims a jump with 'jump_heaps' consecutive heaps that the window does not accept (assemble.h).  Each heap
 * is later than the one before, by at most one window.  Any packet of the source inside or near the window ends the
 * claim.
 *
 * A claim is believed when more sources make the claim than were heard inside or near the window meanwhile.  In
 * addition, at least 'jump_sources' must make the claim, or no source was heard there.  The word meanwhile covers the
 * last window's time and the claim's last heaps: one to two times 'jump_heaps' of them.  So a member with few sources,
 * or with only one live source, recovers too.
 *
 * The window's time protects against a source that was stopped and then sends its backlog in a burst.  This source is
 * the only one heard, but not for long.  The window's time also applies to the claimant itself: a source that was heard
 * near the window within a window's time is not believed.  So bursts of a stranger beside a continuing stream move
 * nothing.
 *
 * Recordings: no time passes that could confirm a claim, so the claim's packets are held until the claim is believed.
 * So no data of a recording are lost because of a gap before them.
 *
 * Ownership: part of an assembler.   Threads: the assembler's.   Blocking: none.   Allocation: claims_init() alone.
 * The pages for held packets are touched when packets come. */
#ifndef COMMON_RECV_CLAIMS_H
#define COMMON_RECV_CLAIMS_H

#include "common/recv/assemble.h"
#include "common/base/counter.h"
#include "common/base/log.h"

struct claims_config {
    unsigned n_sources, jump_heaps, jump_sources; /* as in struct assembler_config */
    int64_t window_samples, window_ns;
    bool live; /* packets arrive in real time; false for a recording */
    size_t heap_bytes;
    const char *name;        /* the member's name; outlives the claims */
    struct counter *refused; /* counter of held packets whose claim ended without belief */
};

/* A packet of a claim that is not yet believed. */
struct held_packet {
    struct assemble_packet packet;
    int64_t arrival_ns;
    uint8_t payload[]; /* [packet.n_bytes] */
};

/* Held packets of one source, back to back. */
struct held {
    uint8_t *bytes;
    size_t n_bytes, used_bytes, n_packets;
};

/* State of one source. */
struct claim_source {
    uint64_t n_heaps; /* consecutive heaps far from the window; 0: the last heap was inside or near it */
    int64_t samples;  /* timestamp of the newest of these heaps */
    uint64_t since;   /* n_packets when the claim was one to two times 'jump_heaps' shorter, or when it began */
    uint64_t renewed; /* n_packets when its length last was a multiple of 'jump_heaps', or when it began */
    uint64_t near_at; /* n_packets when the last packet inside or near the window came; 0: never */
    int64_t near_ns;  /* arrival of this packet, monotonic */
    struct held held; /* packets of the claim, for a recording */
    const struct held_packet *next_held; /* next packet that claims_next_held() returns for a believed claim */
};

struct claims {
    struct claims_config config;  /* [const] */
    struct claim_source *sources; /* [n_sources] */
    uint64_t n_packets;           /* packets placed so far: the clock by which claims are compared */
    int64_t near_ns;              /* last arrival inside or near the window, from any source */
    struct log_limit limit;
};

/* Returns 0 or -ENOMEM.  Call claims_fini() in both cases. */
int claims_init(struct claims *claims, const struct claims_config *config);
void claims_fini(struct claims *claims);

/* Forgets all claims, because the window has begun at another place. */
void claims_restart(struct claims *claims);

/* Ends all claims and refuses their packets. */
void claims_drop(struct claims *claims);

/* Notes that the source is heard inside or near the window. */
void claims_heard(struct claims *claims, unsigned source, int64_t arrival_ns);

/* Returns true if the source was heard inside or near the window within the last window's time. */
bool claims_heard_lately(const struct claims *claims, unsigned source, int64_t arrival_ns);

/* Adds a packet that the window would have to jump for to its source's claim.  Returns true if the packet lengthens a
 * long enough claim by a heap, so that the claim must be judged again. */
bool claims_extend(struct claims *claims, const struct assemble_packet *packet);

/* Returns true if the sources support a claim that is long enough.  The caller compares with the clock. */
bool claims_are_enough(const struct claims *claims, unsigned source, int64_t arrival_ns);

/* Holds a packet of a recording.  Returns the address to which the caller copies the payload, or NULL if there is no
 * room. */
uint8_t *claims_hold(struct claims *claims, const struct assemble_packet *packet, int64_t arrival_ns);

/* Believes the claim of 'source' and ends all claims that disagree.  Afterwards claims_next_held() returns the held
 * packets of this claim and of the claims that agree, in order of timestamps, then NULL.  claims_first_held() returns
 * the next packet without consuming it. */
void claims_believe(struct claims *claims, unsigned source);
const struct held_packet *claims_first_held(const struct claims *claims);
const struct held_packet *claims_next_held(struct claims *claims);

/* Frees all held packets, once they have been placed. */
void claims_release(struct claims *claims);

#endif
