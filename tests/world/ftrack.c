/* ftrack.c - judges the records of a satellite with a model of the loops that all antennas share.  See fgnss.h.
 *
 * Loops:     the model begins with a request's code phase and Doppler, or with the first record after a search
 *            (docs/gnss.md, fgpu/gnss_model.h).  After each integration the reference antenna's sums correct the model.
 *            The replica of a later integration follows from the model after one of the integrations before it, because
 *            sums arrive some rounds later.  All integrations of a run last less than 0.4 s, so the stage is pull-in, and
 *            no other antenna is aligned (fgpu/gnss_align.h).
 * Antennas:  in a round, all antennas that are followed have records of the same integrations.  Another antenna's record
 *            is later by the antenna's offset.  The offset is known from the request or from the first block of sums.
 * Unseen:    an antenna without samples in a round sends no heap.  If the sums of the reference antenna are not seen,
 *            and may have corrected the model, the model is only known within bounds until the next start.  Sums are
 *            still compared exactly. */
#include "tests/world/faults.h"
#include "tests/world/fgnss.h"
#include "tests/world/sched.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MODELS    32
#define MAX_OFFSETS   40
#define SLOP          1e-6L /* chips and turns: error of a model in long double */
#define UNSEEN_CHIPS  0.02L /* bounds of unseen corrections */
#define UNSEEN_TURNS  0.2L
#define UNSEEN_HZ     9
#define BLOCK_PERIODS 20
#define TAP_CHIPS     0.25 /* from the prompt tap to the other taps */
/* from an antenna's delay to its offset, in chips, for samples that count: a sample, which is more than TAP_CHIPS */
#define MAX_DISTANCE (CHIP_RATE_HZ / GNSS_RATE_HZ)
#define SLOPE        0.375 /* chips of code error for a discriminator of 1 */

struct model {
    int64_t sample;
    long double chips, turns; /* since the start */
    double doppler_hz;
    bool is_guess; /* the Doppler is not known */
};

/* Rounds of consecutive samples. */
struct run {
    int64_t begin, end;   /* samples of replicas */
    unsigned first, last; /* indices of the rounds */
};

/* An integration, and its records at all antennas that sent a heap. */
struct set {
    struct record *of[MAX_ANTS];
    struct record *any; /* of the reference antenna, if it sent a heap */
};

/* The block of sums from which an antenna's delay is measured. */
struct block {
    bool is_unsure; /* sums were not seen */
    double open_s, replica, products[N_SATELLITE_TAPS][2][2];
    double span_s, span, delay_s; /* of all blocks since the antenna joined */
    double delay;                 /* chips */
    bool is_delay_known, is_coherent;
};

/* An antenna that the loops follow, or may follow later. */
struct follower {
    bool is_followed;
    uint32_t n_starts;
    unsigned next_order; /* the requests before this one are used up */
    /* Offsets that records may have.  The offsets before 'n_stale' are those of replicas that were made earlier. */
    int64_t offsets[MAX_OFFSETS];
    unsigned n_stale, n_offsets;
    unsigned since;    /* round in which the newest offsets became valid */
    bool is_uncertain; /* an unsure block may have changed the offset */
    struct block block;
};

struct loops {
    unsigned index;
    bool is_active, has_unseen; /* has_unseen: corrections since the start may be unseen */
    int64_t unseen_sample;      /* of the first model whose correction may be unseen */
    bool is_interrupted;        /* integrations may be unseen before the next record */
    bool has_seen_reference;    /* since the start, a record of the reference antenna was seen */
    unsigned reference;
    struct follower ants[MAX_ANTS];
    int64_t next;      /* first sample after all integrations so far */
    struct run run;    /* of the current round */
    struct run cut;    /* run in which a gap has cut an integration whose record has not come; 0, 0: none */
    unsigned n_models; /* since the start; the last MAX_MODELS are kept */
    struct model models[MAX_MODELS];
    int64_t block;       /* code period divided by BLOCK_PERIODS; -1: none */
    int64_t last_period; /* of 'last'; -1: none */
    double last[2][2];
    unsigned n_used;                     /* records in the moments for C/N0 */
    double data_s, mean_s, m2[2], m4[2]; /* of the moments */
};

_Noreturn static void fail(const struct loops *l, unsigned ant, const struct record *r, const char *why)
{
    world_fail("antenna %u, L1CA-%u, start %u: the record of sample %lld, code period %lld, with %u of %u samples: %s",
               ant, gnss.prns[l->index], r->n_starts, (long long)(gnss_unwrap((uint64_t)r->timestamp) / SUBSAMPLING),
               (long long)r->code_period, r->n_present, r->n_samples, why);
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

static long double turns_step(double doppler_hz)
{
    return ((long double)CARRIER_HZ + doppler_hz) / GNSS_RATE_HZ;
}

static long double chips_step(double doppler_hz)
{
    return (long double)CHIP_RATE_HZ * (1 + doppler_hz / (long double)L1_HZ) / GNSS_RATE_HZ;
}

static struct model moved(const struct model *model, int64_t sample)
{
    long double n = (long double)(sample - model->sample);

    return (struct model){sample, model->chips + n * chips_step(model->doppler_hz),
                          model->turns + n * turns_step(model->doppler_hz), model->doppler_hz, false};
}

static struct model *newest(struct loops *l)
{
    return &l->models[(l->n_models - 1) % MAX_MODELS];
}

static void add_model(struct loops *l, struct model model)
{
    l->models[l->n_models++ % MAX_MODELS] = model;
}

/* Returns the model after the i-th newest integration, or NULL. */
static struct model *model_before(struct loops *l, unsigned i)
{
    return i < l->n_models && i < MAX_MODELS ? &l->models[(l->n_models - 1 - i) % MAX_MODELS] : NULL;
}

static int64_t sample_of(const struct record *r)
{
    return gnss_unwrap((uint64_t)r->timestamp) / SUBSAMPLING;
}

/* A record's phases in the units of a model.  The sample is right for the reference antenna only. */
static struct model phases_of(const struct record *r)
{
    return (struct model){.sample = sample_of(r),
                          .chips = (long double)r->code_period * CODE_CHIPS + r->code_phase,
                          .turns = (long double)r->carrier_cycles + r->carrier_phase,
                          .doppler_hz = r->doppler};
}

/* Returns true if a replica follows from the model, within bounds.  fgpu rounds the code's step to 2^-48 chips, and the
 * sky frequency to 2^-22 Hz (double precision).  If the replica's sample is not known, it becomes the sample that the
 * code phase says. */
static bool follows(struct model *replica, const struct model *model, bool is_sample_known, long double slop_chips,
                    long double slop_turns)
{
    int64_t sample = replica->sample;

    if (!is_sample_known)
        sample = model->sample + llroundl((replica->chips - model->chips) / chips_step(model->doppler_hz));
    struct model m = moved(model, sample);
    long double n = (long double)llabs(sample - model->sample);
    if (llabs(sample - replica->sample) > gnss.delay_samples ||
        fabsl(m.chips - replica->chips) >= slop_chips + n * 0x1p-49L ||
        fabsl(m.turns - replica->turns) >= slop_turns + n * 0x1p-23L / GNSS_RATE_HZ)
        return false;
    replica->sample = sample;
    replica->doppler_hz = model->doppler_hz;
    return true;
}

/* Finds the model from which the replica follows.  Writes its Doppler, and the sample if it is not known. */
static bool find_model(struct loops *l, struct model *replica, bool is_sample_known)
{
    const struct model *model;

    for (unsigned i = 0; (model = model_before(l, i)) != NULL; i++)
        if (follows(replica, model, is_sample_known, SLOP, SLOP))
            return true;
    return false;
}

/* Returns true if the replica is near the newest model, after corrections that are unseen. */
static bool is_near(struct loops *l, struct model *replica, bool is_sample_known)
{
    long double cycles = UNSEEN_HZ * fabsl((long double)(replica->sample - l->unseen_sample)) / GNSS_RATE_HZ;

    return l->has_unseen && follows(replica, newest(l), is_sample_known, UNSEEN_CHIPS + cycles * CHIP_RATE_HZ / L1_HZ,
                                    UNSEEN_TURNS + cycles);
}

/* The correction of the newest model may be unseen. */
static void set_unseen(struct loops *l)
{
    if (!l->has_unseen)
        l->unseen_sample = newest(l)->sample;
    l->has_unseen = true;
}

/* Corrects the newest model with the reference antenna's record: the code by a loop of 2 Hz, the Doppler by a loop of
 * 4 Hz.  K = 4 B T. */
static void correct(struct loops *l, const struct record *r)
{
    struct model replica = phases_of(r), model = moved(newest(l), replica.sample);
    double data_s = r->n_present / (double)GNSS_RATE_HZ, powers[N_SATELLITE_TAPS] = {0}, now[2][2], dot = 0, cross = 0;
    double angle = 2 * M_PI * (double)(replica.turns - model.turns);
    bool is_used = 2 * r->n_present >= r->n_samples;

    for (unsigned k = 0; k < 2 * N_SATELLITE_TAPS; k++)
        powers[k / 2] += pow(r->sums[k / 2][k % 2][0], 2) + pow(r->sums[k / 2][k % 2][1], 2);
    for (unsigned pol = 0; is_used && pol < 2; pol++) {
        const double *prompt = r->sums[1][pol];
        now[pol][0] = prompt[0] * cos(angle) - prompt[1] * sin(angle);
        now[pol][1] = prompt[0] * sin(angle) + prompt[1] * cos(angle);
        dot += now[pol][0] * l->last[pol][0] + now[pol][1] * l->last[pol][1];
        cross += now[pol][1] * l->last[pol][0] - now[pol][0] * l->last[pol][1];
        double power = pow(hypot(prompt[0], prompt[1]), 2) * r->n_samples / r->n_present;
        double weight = data_s / (l->data_s + data_s);
        l->m2[pol] += weight * (power - l->m2[pol]);
        l->m4[pol] += weight * (power * power - l->m4[pol]);
    }
    if (is_used) {
        double error = SLOPE * (powers[0] - powers[2]) / (powers[0] + powers[2]);
        model.chips += 4 * 2 * data_s * (error + (double)(replica.chips - model.chips));
        if (l->last_period >= 0 && r->code_period == l->last_period + 1)
            model.doppler_hz += 4 * 4 * data_s * atan(cross / dot) / (2 * M_PI * 1e-3);
        memcpy(l->last, now, sizeof(l->last));
        l->last_period = r->code_period;
        l->data_s += data_s;
        l->mean_s += data_s / l->data_s * (data_s - l->mean_s);
        l->n_used++;
    }
    add_model(l, model);
}

/* Compares the Doppler of a record with the model after the record's integration. */
static void check_doppler(struct loops *l, const struct record *r)
{
    if (fabs(newest(l)->doppler_hz - r->doppler) > (l->has_unseen ? UNSEEN_HZ : 1e-6))
        world_fail("L1CA-%u: the Doppler after code period %lld is %.9f Hz, not %.9f Hz", r->prn,
                   (long long)r->code_period, r->doppler, newest(l)->doppler_hz);
    newest(l)->doppler_hz = r->doppler;
    newest(l)->is_guess = false;
}

/* ---- Records ----------------------------------------------------------------------------------------------------- */

/* Another antenna's C/N0 is not measured before the stage after pull-in. */
static void check_constants(const struct loops *l, unsigned ant, const struct record *r)
{
    bool is_reference = ant == l->reference;

    if (r->timestamp % SUBSAMPLING != 0 || r->doppler_rate != 0 || r->signal != 0 || r->stage != 1 ||
        r->flags != (is_reference ? 5 : 4) || r->symbol_period != -1 || r->n_present > r->n_samples ||
        !(r->code_phase >= 0 && r->code_phase < CODE_CHIPS) || !(r->carrier_phase >= 0 && r->carrier_phase < 1))
        fail(l, ant, r, "the state is wrong");
    if (!is_reference && (r->cn0[0] != -INFINITY || r->cn0[1] != -INFINITY))
        fail(l, ant, r, "C/N0 is not measured yet");
}

/* C/N0 from the second and fourth moments of the prompt sums. */
static void check_cn0(const struct loops *l, const struct record *r)
{
    for (unsigned pol = 0; pol < 2 && !l->has_unseen; pol++) {
        double m2 = l->m2[pol], square = 2 * m2 * m2 - l->m4[pol], signal = sqrt(fmax(square, 0));
        bool is_clear = l->n_used > 1 && square > 1e-6 * m2 * m2 && m2 - signal > 1e-6 * m2;
        if (square < -1e-6 * m2 * m2 && r->cn0[pol] != -INFINITY)
            fail(l, l->reference, r, "there is no signal, and C/N0 is finite");
        if (is_clear && fabs(r->cn0[pol] - 10 * log10(signal / (m2 - signal) / l->mean_s)) > 1e-3)
            fail(l, l->reference, r, "C/N0 is wrong");
    }
}

/* Checks that the integration is the first one after 'next': it begins with the first sample of a code period, or less
 * than a chip later. */
static void check_begin(const struct loops *l, const struct set *set, const struct model *replica, int64_t next)
{
    const struct record *r = set->any;
    int64_t begin = replica->sample - r->n_samples / 2;
    long double period = (long double)r->code_period * CODE_CHIPS;
    long double step = chips_step(replica->doppler_hz), first = replica->chips - r->n_samples / 2 * step;
    long double at_next = first - (begin - next) * step, end = first + r->n_samples * step;

    if (begin < next || (begin > next && first - step >= period + SLOP) || first < period - SLOP ||
        first > period + 1 + SLOP || at_next <= period - CODE_CHIPS + 1 - SLOP)
        fail(l, l->reference, r, "it begins at the wrong sample");
    if (end < period + CODE_CHIPS - SLOP || end - step >= period + CODE_CHIPS + SLOP)
        fail(l, l->reference, r, "it ends at the wrong sample");
}

/* ---- Sums of records --------------------------------------------------------------------------------------------- */

/* If the samples before a heap's first sample are there, from the antenna's earlier chunk: */
enum earlier { NOT_THERE, MAYBE_THERE, THERE };

static enum earlier earlier_samples(const struct heap *heap)
{
    return heap->is_continued ? THERE : heap->continues_samples ? MAYBE_THERE : NOT_THERE;
}

static void add_part(struct integration *g, int64_t first, int64_t end, bool is_missing)
{
    if (first >= end)
        return;
    if (g->n_parts == MAX_PARTS)
        world_fail("an integration has too many parts");
    g->parts[g->n_parts++] = (struct integration_part){first, is_missing};
}

/* Adds the parts of the integration's samples at an antenna.  The samples of the first 'n_skipped' rounds are missing. */
static void make_parts(struct integration *g, const struct run *run, int64_t offset, unsigned n_skipped,
                       bool has_earlier)
{
    unsigned n_rounds = 0;

    g->n_parts = 0;
    for (unsigned h = run->first; h <= run->last; h++) {
        int64_t first = gnss.rounds[h].begin + offset, end = gnss.rounds[h].end + offset;
        const struct heap *heap = gnss.rounds[h].heaps[g->ant];
        first = first > g->first ? first : g->first;
        end = end < g->end ? end : g->end;
        if (first >= end)
            continue;
        if (n_rounds++ < n_skipped || !heap) {
            add_part(g, first, end, true);
            continue;
        }
        bool is_there = earlier_samples(heap) == THERE || (earlier_samples(heap) == MAYBE_THERE && has_earlier);
        int64_t split = is_there || heap->begin < first ? first : heap->begin < end ? heap->begin : end;
        add_part(g, first, split, true);
        add_part(g, split, end, false);
    }
}

/* Returns true if the sums of an antenna's record are the sums of the run's samples without the first rounds. */
static bool has_sums(unsigned ant, struct record *r, const struct model *replica, const struct run *run,
                     unsigned n_skipped)
{
    int64_t offset = sample_of(r) - replica->sample, first = replica->sample - r->n_samples / 2,
            end = first + r->n_samples;
    struct integration g = {.ant = ant,
                            .prn = r->prn,
                            .is_inverted = gnss.is_inverted,
                            .first = first + offset,
                            .end = (end < run->end ? end : run->end) + offset,
                            .middle = sample_of(r),
                            .carrier = (uint64_t)ldexp(r->carrier_phase, 64),
                            .carrier_step = (uint64_t)(__int128)rintl(turns_step(replica->doppler_hz) * 0x1p64L),
                            .code = (uint64_t)ldexp(r->code_phase, 48),
                            .code_step = (uint64_t)rintl(chips_step(replica->doppler_hz) * 0x1p48L),
                            .n_present = r->n_present};

    make_parts(&g, run, offset, n_skipped, true);
    if (sums_match(&g, r->sums))
        return true;
    make_parts(&g, run, offset, n_skipped, false);
    return sums_match(&g, r->sums);
}

/* Returns true if the antenna's record may be one of the first after it joined or after its offset changed: replicas
 * were made with the offset before. */
static bool is_new(const struct follower *f, unsigned h)
{
    return h <= f->since + MARGIN_HEAPS || f->is_uncertain;
}

/* Returns the distance of an antenna's delay from the offset of a record, in chips; 0: the delay is not known. */
static double distance_of(const struct follower *f, const struct record *r, const struct model *replica)
{
    double offset = (double)((sample_of(r) - replica->sample) * chips_step(replica->doppler_hz));

    return f->block.is_delay_known && !f->is_uncertain ? fabs(f->block.delay - offset) : 0;
}

/* Compares the sums with the samples of the run.  If an antenna joins within an integration, or if the earlier offset is
 * far from the delay, the samples before are missing.  If the offset changes a little within an integration, all samples
 * are missing. */
static bool check_sums(const struct loops *l, unsigned ant, struct record *r, const struct model *replica,
                       const struct run *run, unsigned h)
{
    const struct follower *f = &l->ants[ant];
    double distance = ant == l->reference ? 0 : distance_of(f, r, replica);

    if (distance > MAX_DISTANCE + 0.02)
        return r->n_present == 0 && sums_are_zero(r->sums);
    if (has_sums(ant, r, replica, run, 0))
        return true;
    if (ant == l->reference || (!is_new(f, h) && distance < MAX_DISTANCE - 0.02))
        return false;
    if (r->n_present == 0 && sums_are_zero(r->sums)) {
        world_note("satellites: the offset of an antenna changes within an integration");
        return true;
    }
    for (unsigned n_skipped = 1; n_skipped < MAX_PARTS; n_skipped++)
        if (has_sums(ant, r, replica, run, n_skipped)) {
            world_note("satellites: an antenna has the last samples of an integration");
            return true;
        }
    return false;
}

static void note_sums(const struct record *r)
{
    world_note(r->n_present == r->n_samples ? "satellites: sums"
               : r->n_present > 0           ? "satellites: sums, some samples are missing"
                                            : "satellites: sums, all samples are missing");
}

/* ---- Offsets ----------------------------------------------------------------------------------------------------- */

/* The delay of a signal relative to a model, in samples. */
static long double delay_of(const struct model *model, const struct model *signal)
{
    struct model at = moved(model, signal->sample);

    return remainderl(at.chips - signal->chips, CODE_CHIPS) / chips_step(model->doppler_hz);
}

static void add_offset(struct follower *f, int64_t offset)
{
    for (unsigned i = f->n_stale; i < f->n_offsets; i++)
        if (f->offsets[i] == offset)
            return;
    if (f->n_offsets == MAX_OFFSETS)
        world_fail("an antenna has too many offsets");
    f->offsets[f->n_offsets++] = offset;
}

/* Keeps only the newest offsets, as offsets of replicas that were made earlier. */
static void make_stale(struct follower *f, unsigned h)
{
    unsigned n = f->n_offsets - f->n_stale;

    memmove(f->offsets, f->offsets + f->n_stale, n * sizeof(*f->offsets));
    f->n_stale = f->n_offsets = n;
    f->since = h;
}

static void check_offset(const struct loops *l, unsigned ant, const struct record *r, int64_t offset, unsigned h)
{
    const struct follower *f = &l->ants[ant];

    for (unsigned i = is_new(f, h) ? 0 : f->n_stale; i < f->n_offsets; i++)
        if (f->offsets[i] == offset)
            return;
    if (!f->is_uncertain || llabs(offset) > gnss.delay_samples)
        world_fail("antenna %u, L1CA-%u, start %u: the offset at code period %lld is %lld samples", ant,
                   gnss.prns[l->index], r->n_starts, (long long)r->code_period, (long long)offset);
    world_note("satellites: the offset of an antenna is not known");
}

/* Returns the state that a request gives: the code phase at the last complex sample whose signal is from this time or
 * before. */
static struct model steered(const struct order *order)
{
    int64_t sample = gnss_order_sample(order);
    long double later = (long double)(sample * SUBSAMPLING - order->timestamp) + DELAY;
    long double chips = order->chips + later / SUBSAMPLING * chips_step(order->doppler_hz);

    return (struct model){
        .sample = sample, .chips = chips - floorl(chips / CODE_CHIPS) * CODE_CHIPS, .doppler_hz = order->doppler_hz};
}

/* Returns true if the request, or its effect, may come before the round's records. */
static bool may_precede(const struct order *order, const struct round *round)
{
    return order->n_before <= round->n_before[order->ant];
}

static bool is_meant(const struct loops *l, unsigned i, unsigned ant)
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

/* Adds the offsets with which a request lets an antenna join.  Returns false if the request's delay is too large. */
static bool add_order_offsets(struct loops *l, struct follower *f, const struct order *order)
{
    const struct model signal = steered(order), *model;
    bool is_possible = false;

    for (unsigned i = 0; (model = model_before(l, i)) != NULL; i++) {
        long double delay = delay_of(model, &signal), doubt = l->has_unseen ? 2 * UNSEEN_CHIPS : 1e-5L;
        for (int k = -1; k <= 1; k++) {
            int64_t offset = llroundl(delay + k * doubt);
            if (llabs(offset) > gnss.delay_samples)
                continue;
            is_possible = true;
            add_offset(f, offset);
        }
    }
    return is_possible;
}

/* A search finds the signal, or a peak of the noise at another Doppler. */
static void add_search_offsets(struct follower *f)
{
    for (int64_t offset = -gnss.delay_samples; offset <= gnss.delay_samples; offset++)
        add_offset(f, offset);
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

/* Returns the weight of new data in a mean over at most 'limit_s' seconds. */
static double weight_of(double *seconds, double data_s, double limit_s)
{
    *seconds = fmin(*seconds + data_s, limit_s);
    return data_s / *seconds;
}

/* Returns the signal's delay minus the antenna's delay, in chips.  The block's products are projected on the prompt
 * product. */
static double late_chips(struct block *b)
{
    double size[N_SATELLITE_TAPS] = {0};

    for (unsigned k = 0; k < 2 * N_SATELLITE_TAPS; k++) {
        const double *prompt = b->products[1][k % 2], *tap = b->products[k / 2][k % 2];
        double length = hypot(prompt[0], prompt[1]);
        size[k / 2] += length > 0 ? (tap[0] * prompt[0] + tap[1] * prompt[1]) / length : 0;
    }
    b->span += weight_of(&b->span_s, b->open_s, 0.5) * ((size[0] + size[2]) / b->open_s - b->span);
    if (b->span <= 0)
        return 0;
    return b->replica / b->open_s - 2 * SLOPE * (size[0] - size[2]) / (b->open_s * b->span) - b->delay;
}

/* Changes the offset if the delay differs from the offset by more than 0.6 samples.  Offsets stay in the permitted
 * range. */
static void change_offset(struct loops *l, struct follower *f, unsigned h)
{
    double delay = f->block.delay / (double)chips_step(newest(l)->doppler_hz);
    double distance = fabs(delay - (double)f->offsets[f->n_stale]), to_half = fabs(delay - floor(delay) - 0.5);
    int64_t offset = llround(fmin(fmax(delay, (double)-gnss.delay_samples), (double)gnss.delay_samples));

    if (fabs(distance - 0.6) < 0.02 || (distance > 0.6 && to_half < 0.02))
        f->is_uncertain = true;
    if (distance <= 0.6 || f->is_uncertain)
        return;
    make_stale(f, h);
    add_offset(f, offset);
    world_note(fabs(delay) <= (double)gnss.delay_samples + 0.5
                   ? "satellites: the offset of an antenna changes"
                   : "satellites: the delay of an antenna becomes too large");
}

static double limited(double late_chips)
{
    return fmin(fmax(late_chips, -TAP_CHIPS), TAP_CHIPS);
}

/* Uses the products of all antennas' blocks.  The delay is relative to the delay that the reference antenna measures at
 * itself. */
static void close_blocks(struct loops *l, unsigned h)
{
    const double least_s = 0.5e-3 * BLOCK_PERIODS;
    struct block *reference = &l->ants[l->reference].block;
    bool is_unsure = l->has_unseen || reference->is_unsure;
    double late = 0;

    /* The coherence of the reference antenna is known after its first block. */
    if (reference->open_s >= least_s) {
        double own = limited(late_chips(reference));
        late = reference->is_coherent ? own : 0;
        reference->is_coherent = true;
    }

    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        struct follower *f = &l->ants[ant];
        struct block *b = &f->block;
        if (ant != l->reference && f->is_followed) {
            f->is_uncertain |= is_unsure || b->is_unsure || !b->is_delay_known || f->n_offsets - f->n_stale != 1;
            world_note(f->is_uncertain ? "satellites: a block of an antenna's sums is not known"
                                       : "satellites: a block of an antenna's sums ends");
            if (!f->is_uncertain && b->open_s >= least_s) {
                double own = limited(late_chips(b));
                b->delay += weight_of(&b->delay_s, b->open_s, 2) * (own - late);
                change_offset(l, f, h);
            }
        }
        b->is_unsure = false;
        b->open_s = b->replica = 0;
        memset(b->products, 0, sizeof(b->products));
    }
    l->block = -1;
}

/* Adds an antenna's sums times the reference antenna's conjugate prompt sums to the antenna's block. */
static void add_to_block(struct loops *l, unsigned ant, const struct set *set, const struct model *replica)
{
    const struct record *r = set->of[ant], *reference = set->of[l->reference];
    struct block *b = &l->ants[ant].block;

    if (!r || !reference) {
        b->is_unsure = true;
        return;
    }
    if (r->n_present == 0 || r->n_present < r->n_samples / 2 || reference->n_present < 1e-3 * r->n_samples)
        return;
    double data_s = r->n_present / (double)GNSS_RATE_HZ, scale = (double)r->n_samples / reference->n_present;
    long double late = replica->chips - moved(newest(l), replica->sample).chips;
    long double offset = (sample_of(r) - replica->sample) * chips_step(newest(l)->doppler_hz);
    for (unsigned k = 0; k < 2 * N_SATELLITE_TAPS; k++) {
        const double *z = r->sums[k / 2][k % 2], *c = reference->sums[1][k % 2];
        b->products[k / 2][k % 2][0] += scale * (z[0] * c[0] + z[1] * c[1]);
        b->products[k / 2][k % 2][1] += scale * (z[1] * c[0] - z[0] * c[1]);
    }
    b->open_s += data_s;
    b->replica += data_s * (double)(offset - late);
}

/* Measures all antennas after an integration. */
static void measure(struct loops *l, const struct set *set, const struct model *replica, unsigned h)
{
    int64_t block = set->any->code_period / BLOCK_PERIODS;

    if (l->block >= 0 && l->block != block)
        close_blocks(l, h);
    l->block = block;
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (l->ants[ant].is_followed)
            add_to_block(l, ant, set, replica);
    if ((set->any->code_period + 1) / BLOCK_PERIODS != block)
        close_blocks(l, h);
}

/* ---- Starts ------------------------------------------------------------------------------------------------------ */

/* Returns true if a search may have found this state: the signal, or a peak of the noise at another Doppler.  Noise has
 * high peaks, because samples repeat.  The signal's code has no Doppler, but the replica's code has. */
static bool is_found(const struct loops *l, unsigned ant, const struct record *r)
{
    double truth = sums_true_chips(ant, (double)(sample_of(r) * SUBSAMPLING % (PERIOD * BATCH)) + DELAY);
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

    for (unsigned i = 0; (model = model_before(l, i)) != NULL; i++) {
        long double delay = fabsl(delay_of(model, &signal));
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
        is_possible |= is_meant(l, i, l->reference) && gnss.orders[i].kind != ADD &&
                       may_precede(&gnss.orders[i], round); /* the loops may have ended before */
    for (unsigned i = 0; &gnss.orders[i] <= order; i++)
        is_possible |=
            is_meant(l, i, order->ant) && gnss.orders[i].kind == STEER && may_be_too_late(l, &gnss.orders[i]);
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
    add_model(l, model);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        l->ants[ant].is_followed = ant == reference;
    f->block = (struct block){0};
    f->n_stale = f->n_offsets = 0;
    f->since = h;
    f->is_uncertain = false;
    add_offset(f, 0);
}

/* Returns the first sample of the next integration after 'from', about. */
static int64_t predict_begin(struct loops *l, int64_t from)
{
    struct model model = moved(newest(l), from);
    long double period = ceill((model.chips - 1) / CODE_CHIPS) * CODE_CHIPS;

    return period > model.chips ? from + (int64_t)ceill((period - model.chips) / chips_step(model.doppler_hz)) : from;
}

/* Integrations after 'next' may end unseen.  The sums of one of them may correct the model.  Adds models at the middles
 * of 'n' integrations, so that the sums of later records can tell the Doppler. */
static void interrupt(struct loops *l, int64_t next, unsigned n)
{
    set_unseen(l);
    for (unsigned i = 0; i < n; i++) {
        int64_t begin = predict_begin(l, next);
        struct model model = moved(newest(l), begin);
        long double end = (floorl((model.chips + 1) / CODE_CHIPS) + 1) * CODE_CHIPS;
        int64_t n_samples = (int64_t)ceill((end - model.chips) / chips_step(model.doppler_hz));
        add_model(l, moved(&model, begin + n_samples / 2));
        newest(l)->is_guess = true;
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
        struct model signal = steered(order), replica = phases_of(r);
        bool is_unseen = may_be_unseen(ant, signal.sample, h);
        if (order->kind != STEER || !is_meant(l, i, ant) || !may_precede(order, &gnss.rounds[h]) ||
            !follows(&replica, &signal, is_sample_known, is_unseen ? UNSEEN_CHIPS : SLOP,
                     is_unseen ? UNSEEN_TURNS : SLOP))
            continue;
        check_refused(l, order, &gnss.rounds[h]);
        use_up(l, i);
        begin(l, ant, is_unseen ? signal : replica, signal.sample, h); /* without the rounding since the request */
        if (is_unseen)
            interrupt(l, signal.sample, 4);
        world_note("satellites: steered");
        return true;
    }
    return false;
}

/* Begins a start with its first records.  The reference antenna's code counts as locked. */
static void start(struct loops *l, const struct set *set, unsigned h)
{
    const struct record *r = NULL;

    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (set->of[ant] && set->of[ant]->flags & 1) {
            r = set->of[ant];
            if (r->n_starts <= l->ants[ant].n_starts)
                fail(l, ant, r, "the tracking had ended");
            if (begin_with_order(l, ant, r, true, h))
                return;
            if (!is_found(l, ant, r))
                fail(l, ant, r, "no request and no signal has this code phase and Doppler");
            begin(l, ant, phases_of(r), INT64_MIN, h);
            if (may_be_unseen(ant, INT64_MIN, h)) {
                l->is_interrupted = true;
                set_unseen(l);
            }
            return;
        }
    for (unsigned ant = 0; !r && ant < s.n_ants; ant++)
        if (!set->of[ant] && begin_with_order(l, ant, set->any, false, h))
            return;
    world_fail("L1CA-%u: no antenna has begun code period %lld", gnss.prns[l->index], (long long)set->any->code_period);
}

/* Returns true if the records belong to the loops that run. */
static bool continues(struct loops *l, const struct set *set, unsigned h)
{
    const struct record *r = set->of[l->reference];
    struct model replica = phases_of(r ? r : set->any);

    if (!l->is_active)
        return false;
    if (gnss.rounds[h].heaps[l->reference] && (!r || r->n_starts < l->ants[l->reference].n_starts))
        return false;
    if (r && (l->has_seen_reference || r->n_starts == l->ants[l->reference].n_starts))
        return r->n_starts == l->ants[l->reference].n_starts;
    if (r)
        return find_model(l, &replica, true) || is_near(l, &replica, true);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (set->of[ant] && l->ants[ant].is_followed && set->of[ant]->n_starts == l->ants[ant].n_starts)
            return true;
    return find_model(l, &replica, false) || is_near(l, &replica, false);
}

/* Begins to follow another antenna. */
static void join(struct loops *l, unsigned ant, const struct record *r, unsigned h)
{
    struct follower *f = &l->ants[ant];
    unsigned first = UINT_MAX;

    if (r->n_starts <= f->n_starts)
        fail(l, ant, r, "the tracking had ended");
    make_stale(f, h);
    f->offsets[f->n_stale++] = 0;
    f->n_offsets = f->n_stale;
    f->is_followed = true;
    f->is_uncertain = false;
    f->block = (struct block){0};
    for (unsigned i = 0; i < gnss.n_sent; i++) {
        struct order *order = &gnss.orders[i];
        if (order->kind != STEER || !is_meant(l, i, ant) || !may_precede(order, &gnss.rounds[h]) ||
            !add_order_offsets(l, f, order))
            continue;
        const struct model signal = steered(order);
        f->block.delay = (double)(delay_of(newest(l), &signal) * chips_step(newest(l)->doppler_hz));
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
        fail(l, ant, r, "no request and no search let the antenna join");
    if (first < UINT_MAX)
        use_up(l, first);
    world_note(first < UINT_MAX ? "satellites: an antenna joins by a request"
                                : "satellites: an antenna joins by a search");
}

/* Returns true if a request may have ended the tracking of an antenna before the round's records. */
static bool may_leave(const struct loops *l, unsigned ant, unsigned h)
{
    if (gnss_may_restart() || l->ants[ant].is_uncertain)
        return true;
    for (unsigned i = 0; i < gnss.n_sent; i++)
        if (is_meant(l, i, ant) && gnss.orders[i].kind != ADD && may_precede(&gnss.orders[i], &gnss.rounds[h]))
            return true;
    return false;
}

/* Finds the antennas that have joined or left before the round's records. */
static void find_followers(struct loops *l, const struct set *set, unsigned h)
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
        if (!may_leave(l, ant, h))
            fail(l, ant, set->any, "an antenna that is followed has no record");
        f->is_followed = false;
        world_note("satellites: an antenna leaves");
    }
}

/* ---- Judging a run ----------------------------------------------------------------------------------------------- */

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
        fail(l, l->reference, r, "it begins in no round");
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
        if (set->of[ant] && !check_sums(l, ant, set->of[ant], replica, run, h))
            return false;
    return true;
}

/* Finds the replica of an integration whose model is known within bounds.  The sums tell the Doppler.  Then the models
 * are known better. */
static bool find_near(struct loops *l, struct set *set, struct model *replica, unsigned h)
{
    struct model *model, m;

    if (!is_near(l, replica, set->of[l->reference]))
        return false;
    const struct run run = run_of(l, set->any, h, replica->sample - set->any->n_samples / 2);
    for (unsigned i = 0; (model = model_before(l, i)) != NULL; i++) {
        long double n = (long double)(replica->sample - model->sample);
        double doppler_hz = (double)((replica->turns - model->turns) * GNSS_RATE_HZ / n - CARRIER_HZ);
        replica->doppler_hz = model->is_guess && n > 0 ? doppler_hz : model->doppler_hz;
        if (fabs(replica->doppler_hz - model->doppler_hz) > UNSEEN_HZ ||
            !check_all_sums(l, set, replica, &run, h))
            continue;
        model->doppler_hz = replica->doppler_hz;
        model->is_guess = false;
        m = moved(newest(l), replica->sample);
        for (unsigned k = 0; (model = model_before(l, k)) != NULL; k++) {
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
        correct(l, set->of[l->reference]);
        return;
    }
    for (unsigned h = run->first; h <= run->last; h++) {
        int64_t from = first > gnss.rounds[h].begin ? first : gnss.rounds[h].begin, end = first + any->n_samples;
        end = end < gnss.rounds[h].end ? end : gnss.rounds[h].end;
        n += gnss.rounds[h].heaps[l->reference] && end > from ? end - from : 0;
    }
    if (2 * n >= any->n_samples)
        set_unseen(l);
    add_model(l, moved(newest(l), replica->sample));
    world_note("satellites: sums of the reference antenna are not seen");
}

static void check_antenna(struct loops *l, unsigned ant, struct set *set, const struct model *replica,
                          const struct run *run, unsigned h)
{
    struct record *r = set->of[ant];
    struct follower *f = &l->ants[ant];

    if (!r) {
        if (gnss.rounds[h].heaps[ant] && f->is_followed)
            fail(l, ant, set->any, "an antenna that is followed has no record");
        return;
    }
    if (!f->is_followed || r->n_starts != f->n_starts)
        fail(l, ant, r, "the tracking had ended");
    check_constants(l, ant, r);
    check_offset(l, ant, r, sample_of(r) - replica->sample, h);
    if (!check_sums(l, ant, r, replica, run, h))
        fail(l, ant, r, "the sums or the number of present samples is wrong");
    note_sums(r);
}

static void judge_set(struct loops *l, struct set *set, bool is_first, unsigned h)
{
    struct record *r = set->any;
    struct model replica = phases_of(r);
    const struct round *round = &gnss.rounds[h];

    if (!find_model(l, &replica, set->of[l->reference]) && !find_near(l, set, &replica, h))
        fail(l, l->reference, r, "the replica does not follow from the records before it");
    int64_t begin = replica.sample - r->n_samples / 2, end = begin + r->n_samples, next;
    const struct run run = run_of(l, r, h, begin);
    if (l->cut.end > 0 && run.begin != l->cut.begin)
        fail(l, l->reference, r, "the sums before a gap are missing");
    if (run.begin != l->run.begin)
        world_note("satellites: a gap cuts an integration");
    l->cut = (struct run){0, 0, 0, 0};
    next = l->is_interrupted ? begin : is_first ? first_next(l, begin) : l->next > run.begin ? l->next : run.begin;
    l->is_interrupted = false;
    check_begin(l, set, &replica, next);
    if (run.end == round->end && (end > run.end || end <= round->begin))
        fail(l, l->reference, r, "it does not end in this round");
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        check_antenna(l, ant, set, &replica, &run, h);
    l->next = end < run.end ? end : run.end;
    correct_with(l, set, &replica, &run);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (set->of[ant])
            check_doppler(l, set->of[ant]);
    if (set->of[l->reference])
        check_cn0(l, set->of[l->reference]);
    measure(l, set, &replica, h);
}

static int64_t next_begin(struct loops *l)
{
    return predict_begin(l, l->next > l->run.begin ? l->next : l->run.begin);
}

/* Returns true if the loops may have ended before the round's records, or if a new start may have followed. */
static bool may_end(const struct loops *l, unsigned h)
{
    if (may_leave(l, l->reference, h))
        return true;
    for (unsigned i = 0; i < gnss.n_sent; i++) {
        const struct order *order = &gnss.orders[i];
        if (is_meant(l, i, order->ant) && may_precede(order, &gnss.rounds[h]) &&
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
            gnss.orders[i].kind != DROP && may_precede(&gnss.orders[i], &gnss.rounds[h]))
            return true;
    return false;
}

/* Fails the run if the satellite is tracked at an antenna MARGIN_HEAPS heaps after a drop. */
static void check_drops(const struct loops *l, unsigned ant, const struct record *r, unsigned h)
{
    unsigned n = gnss.rounds[h].n_before[ant];

    for (unsigned i = 0; i < gnss.n_sent; i++)
        if (is_meant(l, i, ant) && gnss.orders[i].kind == DROP && gnss.orders[i].n_after < n &&
            n - gnss.orders[i].n_after > MARGIN_HEAPS && r->n_starts == l->ants[ant].n_starts && !is_revoked(l, i, h))
            fail(l, ant, r, "it was dropped");
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
                fail(l, ant, r, "the antennas have different replicas");
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
        is_first = !continues(l, &sets[0], h);
        if (is_first)
            start(l, &sets[0], h);
        find_followers(l, &sets[0], h);
    }
    for (unsigned i = 0; i < n; i++) {
        sets[i].any = sets[i].of[l->reference] ? sets[i].of[l->reference] : sets[i].any;
        judge_set(l, &sets[i], is_first && i == 0, h);
    }
    if (!l->is_active)
        return;
    if (!is_seen(l, round)) {
        if (!l->is_interrupted)
            interrupt(l, l->next, 1);
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
