/* claims.h - collects claims: series of heaps far from the window.  Decides whether the window follows a claim.
 *
 * A source makes a claim by sending 'jump_heaps' consecutive heaps that the window does not accept (assemble.h).
 * Each heap is later than the previous heap by at most a window's duration.  Any packet of the source inside or near
 * the window ends the claim.  A packet is near if it is late, or due.
 *
 * A claim is believed if more sources support it than contradict it.  A source supports the claim if the source itself
 * claims a jump to about the same time.  A source contradicts the claim if it was recently heard inside or near the
 * window.  "Recently" means: within a time that equals the window's duration, or during the claim's last heaps (one
 * to two times 'jump_heaps').  In addition, at least 'jump_sources' sources must support the claim, or no source may
 * contradict the claim.  So a member with few sources, or with only one live source, recovers, too.
 *
 * The window's duration protects against a stalled source.  Such a source sends its backlog in a burst, and no other
 * source is heard during the burst.  The window's duration applies to the claimant, too: its claim is not believed if
 * it was heard near the window within this time.  So if a second sender uses a source's identity in bursts, the
 * window does not move.
 *
 * Backlog: a source that was stalled for longer than a window later sends the data of that time.  A live claim behind the
 * window is taken for such a backlog if the claim continues the source's own series: its timestamps are later than the
 * source's last timestamp inside or near the window.  The window does not follow the backlog until its packets have
 * arrived for as long as the source was silent, or for 10 s.  So the window follows a source whose clock was set back
 * during a silence, too.
 *
 * Recordings: arrival times cannot confirm a claim, so the window's duration is not considered.  The claim's packets
 * are held until the claim is believed, so that no data after a gap are lost.
 *
 * Ownership: part of an assembler.   Threads: the assembler's.   Blocking: none.   Allocation: claims_init() only.  The
 * pages for held packets are not touched before packets are held. */
#ifndef COMMON_RECV_CLAIMS_H
#define COMMON_RECV_CLAIMS_H

#include "common/recv/assemble.h"
#include "common/base/counter.h"
#include "common/base/log.h"

struct claims_config {
    unsigned n_sources, jump_heaps, jump_sources; /* see struct assembler_config */
    int64_t window_samples, window_ns;
    bool live; /* true if packets arrive in real time, false for a recording */
    size_t heap_bytes;
    const char *name;        /* the member's name, for messages; must outlive the claims */
    struct counter *refused; /* counter of held packets whose claim was dropped */
};

/* A packet that is held until its claim is believed or dropped. */
struct held_packet {
    struct assemble_packet packet;
    int64_t arrival_ns;
    uint8_t payload[]; /* [packet.n_bytes] */
};

/* Held packets of one source, contiguous in memory. */
struct held {
    uint8_t *bytes;
    size_t n_bytes, used_bytes, n_packets;
};

/* State of one source.  The fields 'since', 'renewed' and 'near_at' are values of claims->n_packets.  This counter
 * serves as a clock when claims are compared. */
struct claim_source {
    uint64_t n_heaps; /* length of the claim in heaps; 0: the last heap was inside or near the window */
    int64_t samples;  /* timestamp of the claim's newest heap */
    /* value of n_packets at an earlier heap of the claim.  This heap is one to two times jump_heaps before the newest
     * heap.  In a shorter claim, this heap is the first heap. */
    uint64_t since;
    /* next value of 'since': n_packets at the claim's start, renewed when n_heaps is a multiple of jump_heaps */
    uint64_t renewed;
    uint64_t near_at;     /* value of n_packets at the last packet inside or near the window; 0: no such packet */
    int64_t near_ns;      /* monotonic arrival time of the last packet inside or near the window */
    int64_t near_samples; /* timestamp of that packet */
    int64_t away_ns;      /* monotonic arrival time of the first packet after that packet; 0: no such packet */
    struct held held;     /* packets of the claim, in a recording */
    const struct held_packet *next_held; /* next packet that claims_next_held() returns for a believed claim */
};

struct claims {
    struct claims_config config;  /* [const] */
    struct claim_source *sources; /* [n_sources] */
    uint64_t n_packets;           /* number of packets so far */
    int64_t near_ns;              /* monotonic arrival time of the last packet, from any source, inside or near the
                                   * window */
    struct log_limit limit;
};

/* Initialises the claims.  Returns 0 or -ENOMEM.  Call claims_fini() in both cases. */
int claims_init(struct claims *claims, const struct claims_config *config);
void claims_fini(struct claims *claims);

/* Forgets all claims.  Called when the window starts at another place. */
void claims_restart(struct claims *claims);

/* Drops all claims.  The held packets of the claims count as refused. */
void claims_drop(struct claims *claims);

/* Records that the source was heard inside or near the window, with the timestamp 'samples'.  If the source has a claim,
 * drops the claim. */
void claims_heard(struct claims *claims, unsigned source, int64_t samples, int64_t arrival_ns);

/* Returns true if the source was heard inside or near the window within the last 'window_ns'. */
bool claims_heard_lately(const struct claims *claims, unsigned source, int64_t arrival_ns);

/* Adds a packet to the claim of the packet's source.  The packet must be a packet that the window does not accept.
 * Returns true if the claim grew by a heap and has at least 'jump_heaps' heaps.  The caller then judges the claim, even
 * if the caller has judged the claim before. */
bool claims_extend(struct claims *claims, const struct assemble_packet *packet, int64_t arrival_ns);

/* Returns true if the source's claim, which must be behind the window, is taken for a backlog. */
bool claims_is_backlog(const struct claims *claims, unsigned source, int64_t arrival_ns);

/* Returns true if the sources allow a jump to the claim of 'source'.  The claim must have at least 'jump_heaps' heaps.
 * The caller also compares the claim with the clock. */
bool claims_are_enough(const struct claims *claims, unsigned source, int64_t arrival_ns);

/* Holds a packet of a recording.  Returns the address to which the caller must copy the payload, or NULL if there is no
 * room. */
uint8_t *claims_hold(struct claims *claims, const struct assemble_packet *packet, int64_t arrival_ns);

/* Accepts the claim of 'source', and drops all claims that do not support it.  Afterwards claims_next_held() returns
 * the held packets of the remaining claims in order of timestamps.  After the last packet it returns NULL.
 * claims_first_held() returns the next packet without consuming it. */
void claims_believe(struct claims *claims, unsigned source);
const struct held_packet *claims_first_held(const struct claims *claims);
const struct held_packet *claims_next_held(struct claims *claims);

/* Discards all held packets after they have been placed. */
void claims_release(struct claims *claims);

#endif
