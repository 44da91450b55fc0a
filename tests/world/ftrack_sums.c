/* ftrack_sums.c - compares a record's sums with the samples that an antenna has.  See ftrack.h. */
#include "tests/world/ftrack.h"
#include "tests/world/sched.h"

#include <math.h>

/* From an antenna's delay to its offset, in chips, for samples that count: a sample, which is more than the distance
 * between two taps. */
#define MAX_DISTANCE (CHIP_RATE_HZ / GNSS_RATE_HZ)

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
    int64_t offset = track_sample_of(r) - replica->sample, first = replica->sample - r->n_samples / 2,
            end = first + r->n_samples;
    struct integration g = {.ant = ant,
                            .prn = r->prn,
                            .is_inverted = gnss.is_inverted,
                            .first = first + offset,
                            .end = (end < run->end ? end : run->end) + offset,
                            .middle = track_sample_of(r),
                            .carrier = (uint64_t)ldexp(r->carrier_phase, 64),
                            .carrier_step = (uint64_t)(__int128)rintl(track_turns_step(replica->doppler_hz) * 0x1p64L),
                            .code = (uint64_t)ldexp(r->code_phase, 48),
                            .code_step = (uint64_t)rintl(track_chips_step(replica->doppler_hz) * 0x1p48L),
                            .n_present = r->n_present};

    make_parts(&g, run, offset, n_skipped, true);
    if (sums_match(&g, r->sums))
        return true;
    make_parts(&g, run, offset, n_skipped, false);
    return sums_match(&g, r->sums);
}

bool track_is_new(const struct follower *f, unsigned h)
{
    return h <= f->since + MARGIN_HEAPS || f->is_uncertain;
}

/* Returns the distance of an antenna's delay from the offset of a record, in chips; 0: the delay is not known. */
static double distance_of(const struct follower *f, const struct record *r, const struct model *replica)
{
    double offset = (double)((track_sample_of(r) - replica->sample) * track_chips_step(replica->doppler_hz));

    return f->block.is_delay_known && !f->is_uncertain ? fabs(f->block.delay - offset) : 0;
}

bool track_check_sums(const struct loops *l, unsigned ant, struct record *r, const struct model *replica,
                      const struct run *run, unsigned h)
{
    const struct follower *f = &l->ants[ant];
    double distance = ant == l->reference ? 0 : distance_of(f, r, replica);

    if (distance > MAX_DISTANCE + 0.02)
        return r->n_present == 0 && sums_are_zero(r->sums);
    if (has_sums(ant, r, replica, run, 0))
        return true;
    if (ant == l->reference || (!track_is_new(f, h) && distance < MAX_DISTANCE - 0.02))
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

void track_note_sums(const struct record *r)
{
    world_note(r->n_present == r->n_samples ? "satellites: sums"
               : r->n_present > 0           ? "satellites: sums, some samples are missing"
                                            : "satellites: sums, all samples are missing");
}
