/* ftrack_delay.c - measures the delays of antennas, from which their offsets follow.  See ftrack.h. */
#include "tests/world/ftrack.h"
#include "tests/world/sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_PERIODS 20
#define TAP_CHIPS     0.25 /* from the prompt tap to the other taps */

/* ---- Offsets ----------------------------------------------------------------------------------------------------- */

long double track_delay_of(const struct model *model, const struct model *signal)
{
    struct model at = track_moved(model, signal->sample);

    return remainderl(at.chips - signal->chips, CODE_CHIPS) / track_chips_step(model->doppler_hz);
}

void track_add_offset(struct follower *f, int64_t offset)
{
    for (unsigned i = f->n_stale; i < f->n_offsets; i++)
        if (f->offsets[i] == offset)
            return;
    if (f->n_offsets == MAX_OFFSETS)
        world_fail("an antenna has too many offsets");
    f->offsets[f->n_offsets++] = offset;
}

void track_make_stale(struct follower *f, unsigned h)
{
    unsigned n = f->n_offsets - f->n_stale;

    memmove(f->offsets, f->offsets + f->n_stale, n * sizeof(*f->offsets));
    f->n_stale = f->n_offsets = n;
    f->since = h;
}

void track_check_offset(const struct loops *l, unsigned ant, const struct record *r, int64_t offset, unsigned h)
{
    const struct follower *f = &l->ants[ant];

    for (unsigned i = track_is_new(f, h) ? 0 : f->n_stale; i < f->n_offsets; i++)
        if (f->offsets[i] == offset)
            return;
    if (!f->is_uncertain || llabs(offset) > gnss.delay_samples)
        world_fail("antenna %u, L1CA-%u, start %u: the offset at code period %lld is %lld samples", ant,
                   gnss.prns[l->index], r->n_starts, (long long)r->code_period, (long long)offset);
    world_note("satellites: the offset of an antenna is not known");
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
    double delay = f->block.delay / (double)track_chips_step(track_newest(l)->doppler_hz);
    double distance = fabs(delay - (double)f->offsets[f->n_stale]), to_half = fabs(delay - floor(delay) - 0.5);
    int64_t offset = llround(fmin(fmax(delay, (double)-gnss.delay_samples), (double)gnss.delay_samples));

    if (fabs(distance - 0.6) < 0.02 || (distance > 0.6 && to_half < 0.02))
        f->is_uncertain = true;
    if (distance <= 0.6 || f->is_uncertain)
        return;
    track_make_stale(f, h);
    track_add_offset(f, offset);
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
    long double late = replica->chips - track_moved(track_newest(l), replica->sample).chips;
    long double offset = (track_sample_of(r) - replica->sample) * track_chips_step(track_newest(l)->doppler_hz);
    for (unsigned k = 0; k < 2 * N_SATELLITE_TAPS; k++) {
        const double *z = r->sums[k / 2][k % 2], *c = reference->sums[1][k % 2];
        b->products[k / 2][k % 2][0] += scale * (z[0] * c[0] + z[1] * c[1]);
        b->products[k / 2][k % 2][1] += scale * (z[1] * c[0] - z[0] * c[1]);
    }
    b->open_s += data_s;
    b->replica += data_s * (double)(offset - late);
}

void track_measure(struct loops *l, const struct set *set, const struct model *replica, unsigned h)
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
