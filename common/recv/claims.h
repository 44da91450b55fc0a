/* claims.h - sources that say the time is another than the window's: who claims what, and who is believed.
 *
 * A source claims a jump with 'jump_heaps' consecutive heaps that the window does not accept (assemble.h), each later
 * than the one before and within one window of it.  Anything of that source inside or near the window ends its claim.
 *
 * A claim is believed when more sources make it than were heard inside or near the window meanwhile, and they are
 * 'jump_sources' or nobody was heard there.  Meanwhile is while the claim grew by its last 'jump_heaps' heaps or up to
 * twice that, and within the time that a window lasts.  So a member of few sources, or one where only one is alive,
 * recovers too.  The time counts against a source that was stopped and now sends in a burst what it had kept: it is the
 * only one heard, but not for long.  The time also counts against the claimant itself: a source that was heard near the
 * window within the time that a window lasts is not believed, so bursts of a stranger beside a stream that goes on move
 * nothing.
 *
 * Recordings: no time passes that could vouch for a claim, so its packets are held until it is believed.  Nothing that a
 * recording has may be lost by a gap before it.
 *
 * Ownership: part of an assembler.   Threads: the assembler's.   Blocking: none.   Allocation: claims_init() alone; pages of held
 * packets are touched when packets come. */
#ifndef COMMON_RECV_CLAIMS_H
#define COMMON_RECV_CLAIMS_H

#include "common/recv/assemble.h"
#include "common/base/counter.h"
#include "common/base/log.h"

struct claims_config {
    unsigned n_sources, jump_heaps, jump_sources; /* as in struct assembler_config */
    int64_t window_samples, window_ns;
    bool live; /* time passes while packets come: no recording */
    size_t heap_bytes;
    const char *name;        /* of the member; outlives the claims */
    struct counter *refused; /* held packets of claims that came to nothing */
};

/* A packet of a claim that is not yet believed. */
struct held_packet {
    struct assemble_packet packet;
    int64_t arrival_ns;
    uint8_t payload[]; /* [packet.n_bytes] */
};

/* Such packets of a source, one behind the other. */
struct held {
    uint8_t *bytes;
    size_t n_bytes, used_bytes, n_packets;
};

/* Knowledge about one source. */
struct claim_source {
    uint64_t n_heaps; /* consecutive heaps far from the window; 0: what came last was inside or near it */
    int64_t samples;  /* timestamp of the newest of those */
    uint64_t since;   /* n_packets when the claim was one to two times 'jump_heaps' shorter, or when it began */
    uint64_t renewed; /* n_packets when its length last was a multiple of 'jump_heaps', or when it began */
    uint64_t near_at; /* n_packets when something inside or near the window came last; 0: never */
    int64_t near_ns;  /* and its arrival */
    struct held held; /* the packets of its claim, where those are kept */
    const struct held_packet *next_held; /* of a believed claim: what claims_next_held() has not yet returned */
};

struct claims {
    struct claims_config config;  /* [const] */
    struct claim_source *sources; /* [n_sources] */
    uint64_t n_packets;           /* placed so far: the time by which claims are compared */
    int64_t near_ns;              /* arrival of what came last inside or near the window, from any source */
    struct log_limit limit;
};

/* Returns 0 or -ENOMEM; claims_fini() is right after either. */
int claims_init(struct claims *claims, const struct claims_config *config);
void claims_fini(struct claims *claims);

/* The window has begun somewhere else, and claims were against the former one. */
void claims_restart(struct claims *claims);

/* Ends all claims: their packets are refused. */
void claims_drop(struct claims *claims);

/* The source is heard inside or near the window. */
void claims_heard(struct claims *claims, unsigned source, int64_t arrival_ns);

/* Whether the source was heard inside or near the window within the time that a window lasts. */
bool claims_heard_lately(const struct claims *claims, unsigned source, int64_t arrival_ns);

/* Takes note of a packet that the window would have to jump for.  Returns true if it makes its source's claim, which is
 * long enough, longer by a heap, so that belief is worth another look. */
bool claims_extend(struct claims *claims, const struct assemble_packet *packet);

/* Whether a claim that is long enough is believed by the sources.  The clock is asked elsewhere. */
bool claims_are_enough(const struct claims *claims, unsigned source, int64_t arrival_ns);

/* Holds a packet of a recording; the caller puts its payload where this says.  NULL: there is no room. */
uint8_t *claims_hold(struct claims *claims, const struct assemble_packet *packet, int64_t arrival_ns);

/* The claim of 'source' is believed: all that disagree end.  Then claims_next_held() returns the packets held for it and
 * for those that agree, in the order of their timestamps; NULL behind the last.  claims_first_held() returns the next
 * one without passing it. */
void claims_believe(struct claims *claims, unsigned source);
const struct held_packet *claims_first_held(const struct claims *claims);
const struct held_packet *claims_next_held(struct claims *claims);

/* Lets all held packets go; they have been placed. */
void claims_release(struct claims *claims);

#endif
