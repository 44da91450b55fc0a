/* ftrack.c - judges the records of a satellite with a model of the loops that all antennas share.  See fgnss.h.
 *
 * Loops:     the model begins with a request's code phase and Doppler, or with the first record after a search
 *            (docs/gnss.md, fgpu/gnss/gnss_model.h).  After each integration the reference antenna's sums correct
 *            the model.  The replica of a later integration follows from the model after one of the integrations before it, because
 *            sums arrive some rounds later.  All integrations of a run last less than 0.4 s, so the stage is pull-in, and
 *            no other antenna is aligned (fgpu/gnss/gnss_align.h).
 * Antennas:  in a round, all antennas that are followed have records of the same integrations.  Another antenna's record
 *            is later by the antenna's offset.  The offset is known from the request or from the first block of sums.
 * Unseen:    an antenna without samples in a round sends no heap.  If the sums of the reference antenna are not seen,
 *            and may have corrected the model, the model is only known within bounds until the next start.  Sums are
 *            still compared exactly. */
#include "tests/world/ftrack.h"
#include "tests/world/sched.h"

#include <math.h>
#include <string.h>

/* Checks that the first integration of a start is the first one of some round's samples. */
static int64_t first_next(const struct loops *l, int64_t begin)
{
    int64_t next = l->next;

    for (unsigned h = 0; h < gnss.n_rounds; h++)
        if (gnss.rounds[h].begin <= begin && gnss.rounds[h].begin > next &&
            begin - gnss.rounds[h].begin <= CODE_SAMPLES + 4)
            next = gnss.rounds[h].begin;
    return next > begin - CODE_CHIPS - 4 ? next : begin;
}

/* Returns the run that contains the sample, of the rounds up to 'h'. */
static struct run run_of(const struct loops *l, const struct record *r, unsigned h, int64_t sample)
{
    const struct round *all = gnss.rounds;
    unsigned first = h, last;

    while (first > 0 && (sample < all[first].begin || sample >= all[first].end))
        first--;
    if (sample < all[first].begin || sample >= all[first].end)
        track_fail(l, l->reference, r, "it begins in no round");
    for (last = first; last < h && all[last + 1].is_continued; last++)
        continue;
    while (first > 0 && all[first].is_continued)
        first--;
    return (struct run){all[first].begin, all[last].end, first, last};
}

/* Returns true if the sums of all antennas may be sums with this replica.  Some sums cannot be judged. */
static bool check_all_sums(const struct loops *l, struct set *set, const struct model *replica, const struct run *run,
                           unsigned h)
{
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (set->of[ant] && !track_check_sums(l, ant, set->of[ant], replica, run, h))
            return false;
    return true;
}

/* Finds the replica of an integration whose model is known within bounds.  The sums tell the Doppler.  Then the models
 * are known better. */
static bool find_near(struct loops *l, struct set *set, struct model *replica, unsigned h)
{
    struct model *model, m;

    if (!track_is_near(l, replica, set->of[l->reference]))
        return false;
    const struct run run = run_of(l, set->any, h, replica->sample - set->any->n_samples / 2);
    for (unsigned i = 0; (model = track_model_before(l, i)) != NULL; i++) {
        long double n = (long double)(replica->sample - model->sample);
        double doppler_hz = (double)((replica->turns - model->turns) * GNSS_RATE_HZ / n - CARRIER_HZ);
        replica->doppler_hz = model->is_guess && n > 0 ? doppler_hz : model->doppler_hz;
        if (fabs(replica->doppler_hz - model->doppler_hz) > UNSEEN_HZ || !check_all_sums(l, set, replica, &run, h))
            continue;
        model->doppler_hz = replica->doppler_hz;
        model->is_guess = false;
        m = track_moved(track_newest(l), replica->sample);
        for (unsigned k = 0; (model = track_model_before(l, k)) != NULL; k++) {
            model->chips += replica->chips - m.chips;
            model->turns += replica->turns - m.turns;
        }
        world_note("satellites: a model is found after unseen sums");
        return true;
    }
    return false;
}

/* Corrects the model after an integration.  If the reference antenna has no samples in the round, its sums are not
 * seen. */
static void correct_with(struct loops *l, const struct set *set, const struct model *replica, const struct run *run)
{
    const struct record *any = set->any;
    int64_t first = replica->sample - any->n_samples / 2, n = 0;

    if (set->of[l->reference]) {
        track_correct(l, set->of[l->reference]);
        return;
    }
    for (unsigned h = run->first; h <= run->last; h++) {
        int64_t from = first > gnss.rounds[h].begin ? first : gnss.rounds[h].begin, end = first + any->n_samples;
        end = end < gnss.rounds[h].end ? end : gnss.rounds[h].end;
        n += gnss.rounds[h].heaps[l->reference] && end > from ? end - from : 0;
    }
    if (2 * n >= any->n_samples)
        track_set_unseen(l);
    track_add_model(l, track_moved(track_newest(l), replica->sample));
    world_note("satellites: sums of the reference antenna are not seen");
}

static void check_antenna(struct loops *l, unsigned ant, struct set *set, const struct model *replica,
                          const struct run *run, unsigned h)
{
    struct record *r = set->of[ant];
    struct follower *f = &l->ants[ant];

    if (!r) {
        if (gnss.rounds[h].heaps[ant] && f->is_followed)
            track_fail(l, ant, set->any, "an antenna that is followed has no record");
        return;
    }
    if (!f->is_followed || r->n_starts != f->n_starts)
        track_fail(l, ant, r, "the tracking had ended");
    track_check_constants(l, ant, r);
    track_check_offset(l, ant, r, track_sample_of(r) - replica->sample, h);
    if (!track_check_sums(l, ant, r, replica, run, h))
        track_fail(l, ant, r, "the sums or the number of present samples is wrong");
    track_note_sums(r);
}

static void judge_set(struct loops *l, struct set *set, bool is_first, unsigned h)
{
    struct record *r = set->any;
    struct model replica = track_phases_of(r);
    const struct round *round = &gnss.rounds[h];

    if (!track_find_model(l, &replica, set->of[l->reference]) && !find_near(l, set, &replica, h))
        track_fail(l, l->reference, r, "the replica does not follow from the records before it");
    int64_t begin = replica.sample - r->n_samples / 2, end = begin + r->n_samples, next;
    const struct run run = run_of(l, r, h, begin);
    if (l->cut.end > 0 && run.begin != l->cut.begin)
        track_fail(l, l->reference, r, "the sums before a gap are missing");
    if (run.begin != l->run.begin)
        world_note("satellites: a gap cuts an integration");
    l->cut = (struct run){0, 0, 0, 0};
    next = l->is_interrupted ? begin : is_first ? first_next(l, begin) : l->next > run.begin ? l->next : run.begin;
    l->is_interrupted = false;
    track_check_begin(l, set, &replica, next);
    if (run.end == round->end && (end > run.end || end <= round->begin))
        track_fail(l, l->reference, r, "it does not end in this round");
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        check_antenna(l, ant, set, &replica, &run, h);
    l->next = end < run.end ? end : run.end;
    correct_with(l, set, &replica, &run);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (set->of[ant])
            track_check_doppler(l, set->of[ant]);
    if (set->of[l->reference])
        track_check_cn0(l, set->of[l->reference]);
    track_measure(l, set, &replica, h);
}

static int64_t next_begin(struct loops *l)
{
    return track_predict_begin(l, l->next > l->run.begin ? l->next : l->run.begin);
}

/* Returns true if the loops may have ended before the round's records, or if a new start may have followed. */
static bool may_end(const struct loops *l, unsigned h)
{
    if (track_may_leave(l, l->reference, h))
        return true;
    for (unsigned i = 0; i < gnss.n_sent; i++) {
        const struct order *order = &gnss.orders[i];
        if (track_is_meant(l, i, order->ant) && track_may_precede(order, &gnss.rounds[h]) &&
            (order->kind == STEER || (order->kind == DROP && !gnss.rounds[h].heaps[l->reference])))
            return true;
    }
    return false;
}

/* Returns true if a later request may have started the tracking again before the round. */
static bool is_revoked(const struct loops *l, unsigned drop, unsigned h)
{
    for (unsigned i = drop + 1; i < gnss.n_sent; i++)
        if (gnss.orders[i].ant == gnss.orders[drop].ant && gnss.orders[i].index == l->index &&
            gnss.orders[i].kind != DROP && track_may_precede(&gnss.orders[i], &gnss.rounds[h]))
            return true;
    return false;
}

/* Fails the run if the satellite is tracked at an antenna MARGIN_HEAPS heaps after a drop. */
static void check_drops(const struct loops *l, unsigned ant, const struct record *r, unsigned h)
{
    unsigned n = gnss.rounds[h].n_before[ant];

    for (unsigned i = 0; i < gnss.n_sent; i++)
        if (track_is_meant(l, i, ant) && gnss.orders[i].kind == DROP && gnss.orders[i].n_after < n &&
            n - gnss.orders[i].n_after > MARGIN_HEAPS && r->n_starts == l->ants[ant].n_starts && !is_revoked(l, i, h))
            track_fail(l, ant, r, "it was dropped");
}

/* Collects the satellite's records of a round.  Returns the number of integrations. */
static unsigned collect(const struct loops *l, const struct round *round, struct set sets[MAX_RECORDS])
{
    unsigned n_sets = 0;

    memset(sets, 0, MAX_RECORDS * sizeof(*sets));
    for (unsigned k = 0; k < s.n_ants; k++) {
        unsigned ant = l->is_active ? (l->reference + k) % s.n_ants : k, n = 0;
        for (unsigned i = 0; round->heaps[ant] && i < MAX_RECORDS; i++) {
            struct record *r = &round->heaps[ant]->records[i];
            if (r->prn != gnss.prns[l->index])
                continue;
            struct set *set = &sets[n++];
            set->of[ant] = r;
            set->any = set->any ? set->any : r;
            if (r->code_period != set->any->code_period || r->code_phase != set->any->code_phase ||
                r->carrier_cycles != set->any->carrier_cycles || r->carrier_phase != set->any->carrier_phase ||
                r->n_samples != set->any->n_samples || r->doppler != set->any->doppler)
                track_fail(l, ant, r, "the antennas have different replicas");
        }
        n_sets = n > n_sets ? n : n_sets;
    }
    return n_sets;
}

/* Extends the run by a round, or begins a new run after a gap. */
static void extend_run(struct loops *l, unsigned h)
{
    const struct round *round = &gnss.rounds[h];

    if (!round->is_continued) {
        if (l->is_active && l->cut.end == 0 && next_begin(l) < l->run.end && !l->is_interrupted)
            l->cut = l->run;
        l->run.begin = round->begin;
        l->run.first = h;
    }
    if (round->went_back) {
        l->is_active = false;
        l->n_models = 0;
        l->cut = (struct run){0, 0, 0, 0};
    }
    l->run.end = round->end;
    l->run.last = h;
}

/* Returns true if the records of the loops' integrations are seen in a round. */
static bool is_seen(const struct loops *l, const struct round *round)
{
    bool is_seen = false;

    for (unsigned ant = 0; ant < s.n_ants; ant++)
        is_seen |= round->heaps[ant] && l->ants[ant].is_followed;
    return is_seen;
}

static void judge_round(struct loops *l, unsigned h)
{
    struct round *round = &gnss.rounds[h];
    struct set sets[MAX_RECORDS];
    bool is_first = false;

    extend_run(l, h);
    unsigned n = collect(l, round, sets);
    if (n > 0) {
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            if (sets[0].of[ant])
                check_drops(l, ant, sets[0].of[ant], h);
        is_first = !track_continues(l, &sets[0], h);
        if (is_first)
            track_start(l, &sets[0], h);
        track_find_followers(l, &sets[0], h);
    }
    for (unsigned i = 0; i < n; i++) {
        sets[i].any = sets[i].of[l->reference] ? sets[i].of[l->reference] : sets[i].any;
        judge_set(l, &sets[i], is_first && i == 0, h);
    }
    if (!l->is_active)
        return;
    if (!is_seen(l, round)) {
        if (!l->is_interrupted)
            track_interrupt(l, l->next, 1);
        world_note("satellites: the loops run, and no antenna that is followed has samples");
    } else if (!l->is_interrupted && next_begin(l) + CODE_SAMPLES + 4 <= round->end) {
        if (!may_end(l, h))
            world_fail("antenna %u, L1CA-%u: the record of the code period from sample %lld on is missing in round %u",
                       l->reference, gnss.prns[l->index], (long long)next_begin(l), h);
        l->is_active = false;
    }
}

void gnss_judge_satellite(unsigned index)
{
    struct loops l = {.index = index};

    for (unsigned h = 0; h < gnss.n_rounds; h++)
        judge_round(&l, h);
}
