/* ftrack_start.c - which requests and searches start the loops, and let antennas join and leave.  See ftrack.h. */
#include "tests/world/ftrack.h"
#include "tests/world/sched.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Returns the state that a request gives: the code phase at the last complex sample whose signal is from this time or
 * before. */
static struct model steered(const struct order *order)
{
    int64_t sample = gnss_order_sample(order);
    long double later = (long double)(sample * SUBSAMPLING - order->timestamp) + DELAY;
    long double chips = order->chips + later / SUBSAMPLING * track_chips_step(order->doppler_hz);

    return (struct model){
        .sample = sample, .chips = chips - floorl(chips / CODE_CHIPS) * CODE_CHIPS, .doppler_hz = order->doppler_hz};
}

bool track_may_precede(const struct order *order, const struct round *round)
{
    return order->n_before <= round->n_before[order->ant];
}

bool track_is_meant(const struct loops *l, unsigned i, unsigned ant)
{
    return gnss.orders[i].ant == ant && gnss.orders[i].index == l->index && i >= l->ants[ant].next_order;
}

/* A request has had its effect: the requests before this one have been applied, except requests that wait for an
 * antenna's first data. */
static void use_up(struct loops *l, unsigned i)
{
    gnss.orders[i].has_begun = true;
    for (unsigned k = 0; k <= i && (k == i || !gnss_may_restart()); k++) {
        struct follower *f = &l->ants[gnss.orders[k].ant];
        if (f->next_order <= k && (k == i || gnss.orders[k].n_before > 0))
            f->next_order = k + 1;
    }
}

/* ---- Starts ------------------------------------------------------------------------------------------------------ */

/* Returns true if a search may have found this state: the signal, or a peak of the noise at another Doppler.  Noise has
 * high peaks, because samples repeat.  The signal's code has no Doppler, but the replica's code has. */
static bool is_found(const struct loops *l, unsigned ant, const struct record *r)
{
    double truth = sums_true_chips(ant, (double)(track_sample_of(r) * SUBSAMPLING % (PERIOD * BATCH)) + DELAY);
    double error = fabs(truth - r->code_phase), most = 0.5 + 1e-3 * (double)r->code_period * (1000 + 150) / 1540;
    bool is_signal = fabs(r->doppler - (sums_true_offset_hz() - CARRIER_HZ)) < 250;

    /* a wide search's grid goes beyond the range by 500 Hz, a narrow search's grid by up to 250 Hz more */
    if (!gnss.has_search || l->index != 0 || fabs(r->doppler - 100) > 1500 + 500 + 250)
        return false;
    world_note(is_signal && !gnss.is_inverted ? "satellites: found" : "satellites: noise found");
    return !is_signal || gnss.is_inverted || fmin(error, CODE_CHIPS - error) < most;
}

/* Returns true if the request's delay relative to the loops may be too large. */
static bool may_be_too_late(struct loops *l, const struct order *order)
{
    const struct model signal = steered(order), *model;
    bool is_possible = false;

    for (unsigned i = 0; (model = track_model_before(l, i)) != NULL; i++) {
        long double delay = fabsl(track_delay_of(model, &signal));
        is_possible |= llroundl(delay + (l->has_unseen ? 2 * UNSEEN_CHIPS : 1e-5L)) > gnss.delay_samples;
    }
    return is_possible;
}

/* Fails the run if neither this request nor an unseen request before it has too large a delay relative to the loops of
 * another antenna. */
static void check_refused(struct loops *l, const struct order *order, const struct round *round)
{
    bool is_possible = gnss_may_restart();

    if (l->n_models == 0 || l->reference == order->ant)
        return;
    for (unsigned i = 0; i < gnss.n_sent; i++)
        is_possible |= track_is_meant(l, i, l->reference) && gnss.orders[i].kind != ADD &&
                       track_may_precede(&gnss.orders[i], round); /* the loops may have ended before */
    for (unsigned i = 0; &gnss.orders[i] <= order; i++)
        is_possible |=
            track_is_meant(l, i, order->ant) && gnss.orders[i].kind == STEER && may_be_too_late(l, &gnss.orders[i]);
    if (!is_possible)
        world_fail("antenna %u, L1CA-%u: a request restarted the loops, and the delay is permitted", order->ant,
                   gnss.prns[l->index]);
    world_note("satellites: a request with too large a delay restarts the loops");
}

/* Begins the model of a start. */
static void begin(struct loops *l, unsigned reference, struct model model, int64_t next, unsigned h)
{
    struct follower *f = &l->ants[reference];

    l->is_active = true;
    l->has_unseen = l->is_interrupted = l->has_seen_reference = false;
    l->reference = reference;
    l->next = next;
    l->cut = (struct run){0, 0, 0, 0};
    l->n_models = l->n_used = 0;
    l->last_period = l->block = -1;
    l->data_s = l->mean_s = 0;
    memset(l->m2, 0, sizeof(l->m2));
    memset(l->m4, 0, sizeof(l->m4));
    track_add_model(l, model);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        l->ants[ant].is_followed = ant == reference;
    f->block = (struct block){0};
    f->n_stale = f->n_offsets = 0;
    f->since = h;
    f->is_uncertain = false;
    track_add_offset(f, 0);
}

int64_t track_predict_begin(struct loops *l, int64_t from)
{
    struct model model = track_moved(track_newest(l), from);
    long double period = ceill((model.chips - 1) / CODE_CHIPS) * CODE_CHIPS;

    return period > model.chips ? from + (int64_t)ceill((period - model.chips) / track_chips_step(model.doppler_hz))
                                : from;
}

void track_interrupt(struct loops *l, int64_t next, unsigned n)
{
    track_set_unseen(l);
    for (unsigned i = 0; i < n; i++) {
        int64_t begin = track_predict_begin(l, next);
        struct model model = track_moved(track_newest(l), begin);
        long double end = (floorl((model.chips + 1) / CODE_CHIPS) + 1) * CODE_CHIPS;
        int64_t n_samples = (int64_t)ceill((end - model.chips) / track_chips_step(model.doppler_hz));
        track_add_model(l, track_moved(&model, begin + n_samples / 2));
        track_newest(l)->is_guess = true;
        next = begin + n_samples;
    }
    l->is_interrupted = true;
    l->cut = (struct run){0, 0, 0, 0};
}

/* Returns true if the reference antenna may have had no heap since the start. */
static bool may_be_unseen(unsigned reference, int64_t sample, unsigned h)
{
    bool is_unseen = false;

    for (unsigned i = h > 2 * MARGIN_HEAPS ? h - 2 * MARGIN_HEAPS : 0; i <= h; i++)
        is_unseen |= gnss.rounds[i].end > sample && !gnss.rounds[i].heaps[reference];
    return is_unseen;
}

/* Begins with a request of an antenna, if the record's replica follows from the request. */
static bool begin_with_order(struct loops *l, unsigned ant, const struct record *r, bool is_sample_known, unsigned h)
{
    for (unsigned i = 0; i < gnss.n_sent; i++) {
        struct order *order = &gnss.orders[i];
        struct model signal = steered(order), replica = track_phases_of(r);
        bool is_unseen = may_be_unseen(ant, signal.sample, h);
        if (order->kind != STEER || !track_is_meant(l, i, ant) || !track_may_precede(order, &gnss.rounds[h]) ||
            !track_follows(&replica, &signal, is_sample_known, is_unseen ? UNSEEN_CHIPS : SLOP,
                           is_unseen ? UNSEEN_TURNS : SLOP))
            continue;
        check_refused(l, order, &gnss.rounds[h]);
        use_up(l, i);
        begin(l, ant, is_unseen ? signal : replica, signal.sample, h); /* without the rounding since the request */
        if (is_unseen)
            track_interrupt(l, signal.sample, 4);
        world_note("satellites: steered");
        return true;
    }
    return false;
}

void track_start(struct loops *l, const struct set *set, unsigned h)
{
    const struct record *r = NULL;

    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (set->of[ant] && set->of[ant]->flags & 1) {
            r = set->of[ant];
            if (r->n_starts <= l->ants[ant].n_starts)
                track_fail(l, ant, r, "the tracking had ended");
            if (begin_with_order(l, ant, r, true, h))
                return;
            if (!is_found(l, ant, r))
                track_fail(l, ant, r, "no request and no signal has this code phase and Doppler");
            begin(l, ant, track_phases_of(r), INT64_MIN, h);
            if (may_be_unseen(ant, INT64_MIN, h)) {
                l->is_interrupted = true;
                track_set_unseen(l);
            }
            return;
        }
    for (unsigned ant = 0; !r && ant < s.n_ants; ant++)
        if (!set->of[ant] && begin_with_order(l, ant, set->any, false, h))
            return;
    world_fail("L1CA-%u: no antenna has begun code period %lld", gnss.prns[l->index], (long long)set->any->code_period);
}

bool track_continues(struct loops *l, const struct set *set, unsigned h)
{
    const struct record *r = set->of[l->reference];
    struct model replica = track_phases_of(r ? r : set->any);

    if (!l->is_active)
        return false;
    if (gnss.rounds[h].heaps[l->reference] && (!r || r->n_starts < l->ants[l->reference].n_starts))
        return false;
    if (r && (l->has_seen_reference || r->n_starts == l->ants[l->reference].n_starts))
        return r->n_starts == l->ants[l->reference].n_starts;
    if (r)
        return track_find_model(l, &replica, true) || track_is_near(l, &replica, true);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (set->of[ant] && l->ants[ant].is_followed && set->of[ant]->n_starts == l->ants[ant].n_starts)
            return true;
    return track_find_model(l, &replica, false) || track_is_near(l, &replica, false);
}

/* ---- Antennas ---------------------------------------------------------------------------------------------------- */

/* Adds the offsets with which a request lets an antenna join.  Returns false if the request's delay is too large. */
static bool add_order_offsets(struct loops *l, struct follower *f, const struct order *order)
{
    const struct model signal = steered(order), *model;
    bool is_possible = false;

    for (unsigned i = 0; (model = track_model_before(l, i)) != NULL; i++) {
        long double delay = track_delay_of(model, &signal), doubt = l->has_unseen ? 2 * UNSEEN_CHIPS : 1e-5L;
        for (int k = -1; k <= 1; k++) {
            int64_t offset = llroundl(delay + k * doubt);
            if (llabs(offset) > gnss.delay_samples)
                continue;
            is_possible = true;
            track_add_offset(f, offset);
        }
    }
    return is_possible;
}

/* A search finds the signal, or a peak of the noise at another Doppler. */
static void add_search_offsets(struct follower *f)
{
    for (int64_t offset = -gnss.delay_samples; offset <= gnss.delay_samples; offset++)
        track_add_offset(f, offset);
}

/* Begins to follow another antenna. */
static void join(struct loops *l, unsigned ant, const struct record *r, unsigned h)
{
    struct follower *f = &l->ants[ant];
    unsigned first = UINT_MAX;

    if (r->n_starts <= f->n_starts)
        track_fail(l, ant, r, "the tracking had ended");
    track_make_stale(f, h);
    f->offsets[f->n_stale++] = 0;
    f->n_offsets = f->n_stale;
    f->is_followed = true;
    f->is_uncertain = false;
    f->block = (struct block){0};
    for (unsigned i = 0; i < gnss.n_sent; i++) {
        struct order *order = &gnss.orders[i];
        if (order->kind != STEER || !track_is_meant(l, i, ant) || !track_may_precede(order, &gnss.rounds[h]) ||
            !add_order_offsets(l, f, order))
            continue;
        const struct model signal = steered(order);
        f->block.delay =
            (double)(track_delay_of(track_newest(l), &signal) * track_chips_step(track_newest(l)->doppler_hz));
        f->block.is_delay_known = first == UINT_MAX;
        order->has_begun = true;
        first = first < i ? first : i;
    }
    bool is_sure =
        first < UINT_MAX && !gnss_may_restart() && gnss.orders[first].n_after <= gnss.rounds[h].n_before[ant];
    f->block.is_delay_known &= is_sure;
    if (!is_sure && gnss.has_search && l->index == 0)
        add_search_offsets(f);
    else if (first == UINT_MAX)
        track_fail(l, ant, r, "no request and no search let the antenna join");
    if (first < UINT_MAX)
        use_up(l, first);
    world_note(first < UINT_MAX ? "satellites: an antenna joins by a request"
                                : "satellites: an antenna joins by a search");
}

bool track_may_leave(const struct loops *l, unsigned ant, unsigned h)
{
    if (gnss_may_restart() || l->ants[ant].is_uncertain)
        return true;
    for (unsigned i = 0; i < gnss.n_sent; i++)
        if (track_is_meant(l, i, ant) && gnss.orders[i].kind != ADD &&
            track_may_precede(&gnss.orders[i], &gnss.rounds[h]))
            return true;
    return false;
}

void track_find_followers(struct loops *l, const struct set *set, unsigned h)
{
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        const struct record *r = set->of[ant];
        struct follower *f = &l->ants[ant];
        if (r && ant != l->reference && (!f->is_followed || r->n_starts != f->n_starts))
            join(l, ant, r, h);
        if (r)
            f->n_starts = r->n_starts;
        l->has_seen_reference |= r && ant == l->reference;
        if (!gnss.rounds[h].heaps[ant] || r || !f->is_followed)
            continue;
        if (!track_may_leave(l, ant, h))
            track_fail(l, ant, set->any, "an antenna that is followed has no record");
        f->is_followed = false;
        world_note("satellites: an antenna leaves");
    }
}
