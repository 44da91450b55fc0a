/* gnss_follow.c - decides which antenna searches for which satellite, and which signals the loops follow. */
#include "fgpu/gnss/gnss_follow.h"

#include "common/base/units.h"
#include "common/device/device.h"
#include "fgpu/gnss/gnss_samples.h"

#include <assert.h>
#include <math.h>

#define RETRY_S     10.0 /* seconds of data from a failed search to the next search for the same satellite */
#define FALSE_ALARM 1e-3

static enum fgpu_gnss_stage stage_at(const struct gnss_followed *sat, size_t ant)
{
    return sat->align.ants[ant].stage;
}

static bool is_tracked(const struct gnss_followed *sat)
{
    return sat->align.track.stage != FGPU_GNSS_SEARCH;
}

/* Antennas that do not know a satellite's Doppler search for different satellites. */
static bool wants_search(const struct gnss_antenna *a, size_t satellite, int64_t sample)
{
    const struct gnss_followed *sat = &a->stream->satellites[satellite];
    const struct gnss_view *view = &a->views[satellite];

    return sat->id.config->acquire && !view->is_dropped && stage_at(sat, a->ant) == FGPU_GNSS_SEARCH &&
           sample >= view->retry_sample && (is_tracked(sat) || sat->n_wide == 0);
}

/* Returns true if a search has found the satellite with the Doppler with which other antennas follow the satellite. */
static bool agrees(const struct gnss_followed *sat, const struct fgpu_gnss_acquisition *found)
{
    const double doppler_hz = fgpu_gnss_track_at(&sat->align.track, found->sample).doppler_hz;

    return fabs(found->doppler_hz - doppler_hz) < 2 * fgpu_gnss_join_hz(gnss_signal_facts(sat->id.signal));
}

/* Begins a search around the Doppler with which other antennas follow the satellite. */
static void begin_join(struct gnss_antenna *a, const struct gnss_followed *sat, struct gnss_acquire_config *config,
                       int64_t sample)
{
    struct gnss_stream *s = a->stream;
    const struct fgpu_gnss_state state = fgpu_gnss_track_at(&sat->align.track, sample);
    const double range_hz = fgpu_gnss_join_hz(config->facts);
    const double period_samples =
        sat->align.track.period_s * s->sample_rate_hz / (1 + state.doppler_hz / config->facts->carrier_hz);
    const double periods = ldexp((double)state.code_phase, -GNSS_CODE_BITS) / config->n_subchips;

    config->min_doppler_hz = state.doppler_hz - range_hz;
    config->max_doppler_hz = state.doppler_hz + range_hz;
    fgpu_gnss_search_begin_narrow(s->gnss->searcher, &a->search, config, (uint32_t)s->config->acquire_blocks,
                                  (double)sample - periods * period_samples, period_samples);
}

static void begin_search_for(struct gnss_antenna *a, size_t satellite, int64_t sample)
{
    struct gnss_stream *s = a->stream;
    struct gnss_followed *sat = &s->satellites[satellite];
    struct gnss_acquire_config config = {
        .facts = gnss_signal_facts(sat->id.signal),
        .table = sat->table,
        .n_subchips = sat->align.track.n_subchips,
        .n_periods = (uint32_t)s->config->acquire_periods,
        .sample_rate_hz = s->sample_rate_hz,
        .carrier_hz = sat->id.carrier_hz,
        .min_doppler_hz = sat->id.config->doppler_hz - sat->id.config->doppler_range_hz,
        .max_doppler_hz = sat->id.config->doppler_hz + sat->id.config->doppler_range_hz,
        .false_alarm = FALSE_ALARM,
    };

    a->is_searching = true;
    a->is_stale = false;
    a->n_collected = 0;
    a->search.satellite = satellite;
    a->next_satellite = satellite + 1;
    counter_add(&a->views[satellite].searches, 1);
    if (is_tracked(sat) && !a->views[satellite].needs_wide) {
        begin_join(a, sat, &config, sample);
        return;
    }
    sat->n_wide++;
    a->is_wide = true;
    fgpu_gnss_search_begin(s->gnss->searcher, &a->search, &config, (uint32_t)s->config->acquire_blocks);
}

/* Begins a search for the next satellite that needs a search (wants_search()). */
static void begin_search(struct gnss_antenna *a, int64_t sample)
{
    const size_t n = a->stream->sizes.n_satellites;

    for (size_t i = 0; i < n && !a->is_searching; i++)
        if (wants_search(a, (a->next_satellite + i) % n, sample))
            begin_search_for(a, (a->next_satellite + i) % n, sample);
}

void gnss_follow_start(struct gnss_antenna *a, size_t satellite, const struct fgpu_gnss_acquisition *found)
{
    for (size_t ant = 0; ant < a->stream->gnss->n_ants; ant++) {
        struct gnss_view *view = &a->stream->antennas[ant].views[satellite];
        view->retry_sample = view->is_contrary ? INT64_MIN : view->retry_sample;
        view->needs_wide = view->is_contrary = false;
    }
    fgpu_gnss_align_start(&a->stream->satellites[satellite].align, a->ant, found);
}

bool gnss_follow_signal(struct gnss_antenna *a, size_t satellite, const struct fgpu_gnss_acquisition *found,
                        int64_t sample)
{
    struct gnss_followed *sat = &a->stream->satellites[satellite];

    if (!is_tracked(sat))
        gnss_follow_start(a, satellite, found);
    else if (!fgpu_gnss_align_join(&sat->align, a->ant, found, (int32_t)a->stream->sizes.delay_samples))
        return false;
    a->views[satellite].started_sample = sample;
    return true;
}

void gnss_follow_release(struct gnss_antenna *a)
{
    if (a->is_wide)
        a->stream->satellites[a->search.satellite].n_wide--;
    a->is_wide = false;
}

/* An antenna has not found the satellite where the only steering antenna follows the satellite.  The antenna's next
 * search has all Dopplers.  If two antennas have found the satellite elsewhere, the steering antenna has a wrong clock
 * or a delay that is too large: the loops start again, and this antenna searches again only after RETRY_S. */
static void object(struct gnss_antenna *a, size_t satellite, int64_t sample)
{
    struct gnss_stream *s = a->stream;
    const size_t wrong = s->satellites[satellite].align.reference;
    size_t n_contrary = 0;

    a->views[satellite].needs_wide = !a->search.is_found;
    a->views[satellite].is_contrary = a->search.is_found;
    for (size_t ant = 0; ant < s->gnss->n_ants; ant++)
        n_contrary += s->antennas[ant].views[satellite].is_contrary;
    if (n_contrary < 2)
        return;
    s->antennas[wrong].views[satellite].retry_sample = a->views[satellite].retry_sample;
    gnss_follow_start(a, satellite, &a->search.found);
    a->views[satellite].started_sample = sample;
}

/* Begins to follow the satellite that a search has found, or sets the earliest sample of the next search. */
static void end_search(struct gnss_antenna *a, int64_t sample)
{
    const struct gnss_followed *sat = &a->stream->satellites[a->search.satellite];
    struct gnss_view *view = &a->views[a->search.satellite];

    a->is_searching = false;
    a->search.state = FGPU_GNSS_SEARCH_IDLE;
    gnss_follow_release(a);
    if (stage_at(sat, a->ant) != FGPU_GNSS_SEARCH || view->is_dropped || a->is_stale)
        return; /* a request steered or dropped the satellite during the search, or time restarted */
    if (a->search.is_found && (!is_tracked(sat) || agrees(sat, &a->search.found)) &&
        gnss_follow_signal(a, a->search.satellite, &a->search.found, sample))
        return;
    view->retry_sample = sample + (int64_t)(RETRY_S * a->stream->sample_rate_hz);
    if (is_tracked(sat) && sat->align.n_aligned == 1)
        object(a, a->search.satellite, sample);
}

/* Queues a copy of the chunk's samples that the search still needs for its block. */
static void collect(struct gnss_antenna *a, const struct gnss_chunk *chunk, struct gnss_part *part)
{
    struct gnss_stream *s = a->stream;
    struct fgpu_gnss_search *search = &a->search;
    int64_t begin = chunk->begin;

    assert(search->n_wanted <= search->pitch_samples);
    if (a->n_collected > 0 && a->collected_end != chunk->begin)
        a->n_collected = 0; /* a gap */
    if (a->n_collected == 0) {
        begin = fgpu_gnss_search_block(search, chunk->begin);
        if (begin >= chunk->end)
            return; /* the block begins in a later chunk */
        search->block_sample = begin;
        search->begins_anew = search->begins_anew || a->is_stale;
        a->is_stale = false;
    }
    const size_t n = least(search->n_wanted - a->n_collected, (uint64_t)(chunk->end - begin));
    device_copy_2d(s->compute, search->samples + 2 * a->n_collected, 2 * search->pitch_samples,
                   gnss_samples_row(s, a->ant) + 2 * gnss_samples_index(s, chunk->end, begin),
                   2 * s->sizes.pitch_samples, 2 * n, N_POLS);
    a->n_collected += (uint32_t)n;
    a->collected_end = begin + (int64_t)n;
    if (a->n_collected < search->n_wanted)
        return;
    a->n_collected = 0;
    a->fills_block = true;
    part->ends_block = true;
}

bool gnss_follow_is_away(const struct gnss_antenna *a)
{
    return a->fills_block || fgpu_gnss_search_is_away(&a->search);
}

void gnss_follow_search(struct gnss_antenna *a, const struct gnss_chunk *chunk, struct gnss_part *part)
{
    if (gnss_follow_is_away(a))
        return;
    if (a->is_searching && a->search.state == FGPU_GNSS_SEARCH_ENDED)
        end_search(a, chunk->end);
    if (!a->is_searching)
        begin_search(a, chunk->end);
    else if (a->search.state == FGPU_GNSS_SEARCH_WANTS)
        collect(a, chunk, part);
}
