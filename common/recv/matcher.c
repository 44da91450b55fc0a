/* matcher.c - combines chunks with the same timestamp into sets.
 *
 * Each member has a short queue of chunks in order of time.  After every change make_sets() examines the oldest chunk
 * in each queue.  Chunks beyond the horizon wait, because their timestamps are too far ahead to be trusted yet.  Ready
 * sets are moved to a separate ring.  All decisions use only the queues, so they do not depend on how busy the worker
 * is. */
#include "common/recv/matcher.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct member {
    struct chunk **held; /* [depth] queue of chunks, in order of time */
    unsigned n_held;     /* 0 <= n_held <= depth */
    bool ended;
    int64_t said_samples; /* timestamp of the last chunk added, even if it was given back */
    uint64_t said_at;     /* value of matcher->n_added after the member's last chunk was added; 0: no chunk yet */
    /* number of the member's latest far chunks, if these chunks are near each other, and if more members support each
     * chunk than contradict the chunk */
    unsigned n_claims;
};

struct matcher {
    struct matcher_config config; /* [const] */
    unsigned depth;               /* [const] */
    int64_t chunk_samples;        /* [const] */
    int64_t wait_samples;         /* [const] */
    /* [const] a chunk is far if it is more than this number of samples behind the last set */
    int64_t far_samples;
    /* [const] a chunk is far if it is more than this number of samples ahead of the last set */
    int64_t far_ahead_samples;
    bool started;            /* true if a set was made, and the matcher has not jumped back since */
    int64_t last_samples;    /* timestamp of the last set */
    int64_t horizon_samples; /* chunks up to this timestamp may become a set */
    uint64_t n_added;        /* number of chunks added; serves as a clock when claims are compared */
    unsigned n_alive;        /* number of members that have not ended */
    struct chunk **sets;     /* [max_chunks][n_members] ring of sets that are ready */
    int64_t *set_samples;    /* [max_chunks] timestamps of the sets */
    size_t first_set, n_sets;
    struct member members[]; /* [n_members] */
};

unsigned matcher_depth(const struct matcher_config *config)
{
    return config->wait_chunks + 1;
}

/* ---- Held chunks ------------------------------------------------------------------------------------------------- */

static void give_back(struct matcher *matcher, struct chunk *chunk)
{
    if (matcher->config.late_chunks)
        counter_add(matcher->config.late_chunks, 1);
    buffer_ref_put(&chunk->ref);
}

static struct chunk *take_oldest(struct member *member)
{
    struct chunk *oldest = member->held[0];

    assert(member->n_held > 0);
    member->n_held--;
    memmove(member->held, member->held + 1, member->n_held * sizeof(member->held[0]));
    return oldest;
}

static int64_t oldest_samples(const struct member *member)
{
    return member->held[0]->timestamp_samples;
}

static int64_t newest_samples(const struct member *member)
{
    return member->held[member->n_held - 1]->timestamp_samples;
}

static void hold(struct matcher *matcher, struct member *member, struct chunk *chunk)
{
    if (member->n_held > 0 && chunk->timestamp_samples <= newest_samples(member))
        while (member->n_held > 0)
            give_back(matcher, take_oldest(member));
    if (member->n_held == matcher->depth)
        give_back(matcher, take_oldest(member));
    member->held[member->n_held++] = chunk;
}

/* ---- Jumps ------------------------------------------------------------------------------------------------------- */

static bool is_within(int64_t a_samples, int64_t b_samples, int64_t distance_samples)
{
    return a_samples - b_samples <= distance_samples && b_samples - a_samples <= distance_samples;
}

static bool is_far(const struct matcher *matcher, int64_t timestamp)
{
    return matcher->started &&
           (timestamp < matcher->last_samples - matcher->far_samples || timestamp > matcher->horizon_samples);
}

/* Returns true if the matcher should follow 'claimant'.  The claimant's newest chunk is far.  A member agrees if its
 * newest chunk is near the claimant's newest chunk.  The age of the member's chunk does not matter.  A member
 * contradicts if its newest chunk is not far and was added after 'since'.  The claimant's previous chunk was added at
 * 'since'. */
static bool believe(struct matcher *matcher, struct member *claimant, uint64_t since)
{
    unsigned n_agree = 0, n_against = 0;

    for (unsigned i = 0; i < matcher->config.n_members; i++) {
        const struct member *member = &matcher->members[i];

        if (member->ended || member->said_at == 0)
            continue;
        if (is_within(member->said_samples, claimant->said_samples, matcher->far_samples))
            n_agree++;
        else if (member->said_at > since && !is_far(matcher, member->said_samples))
            n_against++;
    }
    if (n_agree <= n_against) {
        claimant->n_claims = 0;
        return false;
    }
    claimant->n_claims++;
    return n_agree >= matcher->config.jump_members || n_agree == matcher->n_alive ||
           claimant->n_claims >= matcher->config.window_chunks;
}

/* Moves the matcher to the timestamp of a claim that is believed (matcher.h). */
static void jump(struct matcher *matcher, int64_t timestamp)
{
    if (timestamp > matcher->last_samples) {
        matcher->horizon_samples = timestamp;
        return;
    }
    matcher->started = false;
    matcher->horizon_samples = INT64_MAX;
}

static void make_sets(struct matcher *matcher);

/* ---- Adding chunks and making sets ------------------------------------------------------------------------------- */

void matcher_add(struct matcher *matcher, unsigned member, struct chunk *chunk)
{
    struct member *m = &matcher->members[member];
    int64_t timestamp = chunk->timestamp_samples;
    uint64_t said_before_at = m->said_at;

    assert(member < matcher->config.n_members && !m->ended);
    assert(timestamp % matcher->chunk_samples == 0);
    if (!is_within(timestamp, m->said_samples, matcher->far_samples))
        m->n_claims = 0;
    m->said_samples = timestamp;
    m->said_at = ++matcher->n_added;
    if (!is_far(matcher, timestamp))
        m->n_claims = 0;
    else if (believe(matcher, m, said_before_at))
        jump(matcher, timestamp);

    /* A claim that is now believed may have completed the set of the oldest chunk in a full queue. */
    if (m->n_held == matcher->depth && timestamp > newest_samples(m))
        make_sets(matcher);
    if (matcher->started && timestamp <= matcher->last_samples)
        give_back(matcher, chunk);
    else
        hold(matcher, m, chunk);
    make_sets(matcher);
}

void matcher_end(struct matcher *matcher, unsigned member)
{
    assert(member < matcher->config.n_members);
    if (matcher->members[member].ended)
        return;
    matcher->members[member].ended = true;
    matcher->n_alive--;
    /* All members have ended.  So no later chunk can contradict the chunks that wait beyond the horizon. */
    if (matcher->n_alive == 0)
        matcher->horizon_samples = INT64_MAX;
    make_sets(matcher);
}

/* Finds the timestamp of the oldest chunk in the queues.  Ignores chunks beyond the horizon.  If all chunks are beyond
 * the horizon, or if there is no chunk, returns false. */
static bool oldest_of_all(const struct matcher *matcher, int64_t *timestamp)
{
    bool found = false;

    for (unsigned i = 0; i < matcher->config.n_members; i++) {
        const struct member *member = &matcher->members[i];

        if (member->n_held == 0 || oldest_samples(member) > matcher->horizon_samples)
            continue;
        if (!found || oldest_samples(member) < *timestamp)
            *timestamp = oldest_samples(member);
        found = true;
    }
    return found;
}

/* Returns true if a member has a chunk that is at least 'wait_chunks' chunks after 'timestamp', and not beyond the
 * horizon.  If 'timestamp' is not beyond the horizon, chunks up to 'far_ahead_samples' after 'timestamp' are not beyond
 * the horizon, either.  Without this rule, the set of the first chunk after a gap might wait for a silent member until
 * the queue is full. */
static bool any_member_past(const struct matcher *matcher, int64_t timestamp)
{
    int64_t limit_samples = matcher->horizon_samples;

    if (timestamp <= limit_samples && timestamp + matcher->far_ahead_samples > limit_samples)
        limit_samples = timestamp + matcher->far_ahead_samples;
    for (unsigned i = 0; i < matcher->config.n_members; i++) {
        const struct member *member = &matcher->members[i];

        for (unsigned k = 0; k < member->n_held; k++) {
            int64_t held_samples = member->held[k]->timestamp_samples;

            if (held_samples >= timestamp + matcher->wait_samples && held_samples <= limit_samples)
                return true;
        }
    }
    return false;
}

/* Returns true if a member may still add its chunk for the set at 'timestamp', the oldest timestamp in the queues. */
static bool must_wait(const struct matcher *matcher, int64_t timestamp)
{
    for (unsigned i = 0; i < matcher->config.n_members; i++)
        if (matcher->members[i].n_held == 0 && !matcher->members[i].ended)
            return !any_member_past(matcher, timestamp);
    return false;
}

/* Moves the oldest chunks to the ring if their set is ready.  Returns false if their set is not ready. */
static bool make_set(struct matcher *matcher)
{
    int64_t timestamp;

    if (!oldest_of_all(matcher, &timestamp) || must_wait(matcher, timestamp))
        return false;
    assert(matcher->n_sets < matcher->config.max_chunks);
    size_t slot = (matcher->first_set + matcher->n_sets++) % matcher->config.max_chunks;
    struct chunk **set = matcher->sets + slot * matcher->config.n_members;
    for (unsigned i = 0; i < matcher->config.n_members; i++) {
        struct member *member = &matcher->members[i];

        set[i] = member->n_held > 0 && oldest_samples(member) == timestamp ? take_oldest(member) : NULL;
    }
    int64_t horizon_samples = timestamp + matcher->far_ahead_samples;
    if (matcher->n_alive > 0 && (!matcher->started || matcher->horizon_samples < horizon_samples))
        matcher->horizon_samples = horizon_samples;
    matcher->started = true;
    matcher->last_samples = timestamp;
    matcher->set_samples[slot] = timestamp;
    return true;
}

static void make_sets(struct matcher *matcher)
{
    while (make_set(matcher))
        continue;
}

bool matcher_peek(const struct matcher *matcher, int64_t *timestamp_samples)
{
    if (matcher->n_sets == 0)
        return false;
    *timestamp_samples = matcher->set_samples[matcher->first_set];
    return true;
}

bool matcher_next(struct matcher *matcher, struct chunk **set, int64_t *timestamp_samples)
{
    if (matcher->n_sets == 0)
        return false;
    size_t slot = matcher->first_set;
    memcpy(set, matcher->sets + slot * matcher->config.n_members, matcher->config.n_members * sizeof(set[0]));
    *timestamp_samples = matcher->set_samples[slot];
    matcher->first_set = (slot + 1) % matcher->config.max_chunks;
    matcher->n_sets--;
    return true;
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

int matcher_create(const struct matcher_config *config, struct matcher **matcher)
{
    struct matcher *m = calloc(1, sizeof(*m) + config->n_members * sizeof(m->members[0]));

    assert(config->n_members >= 1 && config->jump_members >= 1);
    assert(config->window_chunks >= 1 && config->wait_chunks >= config->window_chunks);
    assert(config->chunk_samples > 0 && config->max_chunks > 0);
    if (!m)
        return -ENOMEM;
    m->config = *config;
    m->depth = matcher_depth(config);
    m->chunk_samples = config->chunk_samples;
    m->wait_samples = config->chunk_samples * config->wait_chunks;
    m->far_samples = config->chunk_samples * 2 * config->window_chunks;
    /* A queue may hold 'wait_chunks' chunks that are later than the last set.  In addition, an assembler may skip up to
     * 'window_chunks' chunks, and this skip is not a jump. */
    m->far_ahead_samples = config->chunk_samples * (config->wait_chunks + config->window_chunks);
    m->horizon_samples = INT64_MAX;
    m->n_alive = config->n_members;
    m->sets = calloc(config->max_chunks * config->n_members, sizeof(m->sets[0]));
    m->set_samples = calloc(config->max_chunks, sizeof(m->set_samples[0]));
    bool ok = m->sets && m->set_samples;
    for (unsigned i = 0; i < config->n_members; i++) {
        m->members[i].held = calloc(m->depth, sizeof(m->members[i].held[0]));
        ok = ok && m->members[i].held;
    }
    if (ok)
        *matcher = m;
    else
        matcher_destroy(m);
    return ok ? 0 : -ENOMEM;
}

size_t matcher_drop(struct matcher *matcher)
{
    size_t n_dropped = 0;

    for (; matcher->n_sets > 0; matcher->n_sets--) {
        for (unsigned i = 0; i < matcher->config.n_members; i++) {
            struct chunk *chunk = matcher->sets[matcher->first_set * matcher->config.n_members + i];
            if (chunk)
                buffer_ref_put(&chunk->ref);
            n_dropped += chunk != NULL;
        }
        matcher->first_set = (matcher->first_set + 1) % matcher->config.max_chunks;
    }
    for (unsigned i = 0; i < matcher->config.n_members; i++)
        for (; matcher->members[i].n_held > 0; n_dropped++)
            buffer_ref_put(&take_oldest(&matcher->members[i])->ref);
    return n_dropped;
}

void matcher_destroy(struct matcher *matcher)
{
    if (!matcher)
        return;
    matcher_drop(matcher);
    for (unsigned i = 0; i < matcher->config.n_members; i++)
        free(matcher->members[i].held);
    free(matcher->sets);
    free(matcher->set_samples);
    free(matcher);
}
