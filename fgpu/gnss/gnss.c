/* gnss.c - the worker's part of satellite tracking: converts device inputs to heaps of correlation sums. */
#include "fgpu/gnss/gnss.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "common/recv/matcher.h"
#include "common/telemetry/stats.h"
#include "fgpu/input/device_input.h"
#include "fgpu/gnss/gnss_follow.h"
#include "fgpu/gnss/gnss_samples.h"
#include "fgpu/gnss/gnss_stream.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

/* Writes the number of samples of a piece that are missing at each antenna. */
static void count_missing(const struct gnss_stream *s, struct gnss_chunk *const *set, struct gnss_buffer *b,
                          const struct gnss_piece *piece, int64_t first)
{
    const int32_t *offsets = b->offsets + piece->satellite * s->gnss->n_ants;
    uint32_t *n_missing = b->n_missing + piece->integration * s->gnss->n_ants;

    for (size_t ant = 0; ant < s->gnss->n_ants; ant++) {
        const int64_t from = first + offsets[ant];
        n_missing[ant] =
            piece->n_samples - (uint32_t)(set[ant] ? gnss_samples_present(set[ant], from, from + piece->n_samples) : 0);
    }
}

/* Makes the pieces of all satellites, one after the other in order of time: gnss_correlate_mma is then fast.  The replica
 * is late by the largest delay between antennas, so that all samples that it meets have arrived. */
static void make_pieces(struct gnss_stream *s, struct gnss_chunk *const *set, struct gnss_buffer *b)
{
    const int64_t begin = b->begin - s->sizes.delay_samples, end = b->end - s->sizes.delay_samples;
    const int64_t row_index = gnss_samples_index(s, b->end, begin);
    size_t n_before;

    for (size_t i = 0; i < s->sizes.n_satellites; i++)
        for (size_t ant = 0; ant < s->gnss->n_ants; ant++)
            b->offsets[i * s->gnss->n_ants + ant] = s->satellites[i].align.ants[ant].offset_samples;
    b->n_pieces = 0;
    do {
        n_before = b->n_pieces;
        for (size_t i = 0; i < s->sizes.n_satellites && b->n_pieces < s->sizes.max_pieces; i++) {
            struct gnss_piece *piece = b->pieces + b->n_pieces;
            if (fgpu_gnss_align_pieces(&s->satellites[i].align, begin, end, piece, 1) == 0)
                continue;
            const int64_t first = begin + piece->first;
            piece->first += row_index;
            piece->satellite = (uint32_t)i;
            piece->integration = (uint32_t)b->n_pieces++;
            count_missing(s, set, b, piece, first);
        }
    } while (b->n_pieces > n_before);
}

static void correlate(struct gnss_stream *s, struct gnss_buffer *b)
{
    const struct gnss_correlate_args args = gnss_stream_correlate_args(s, b);
    const struct device *device = s->gnss->engine->c.device;
    struct kernel_grid grid =
        gnss_correlate_grid(s->variant, &args, device_shared_bytes(device), device_multiprocessors(device));

    device_copy(s->compute, b->device_pieces, b->pieces, b->n_pieces * sizeof(*b->pieces));
    device_copy(s->compute, b->device_offsets, b->offsets,
                s->sizes.n_satellites * s->gnss->n_ants * sizeof(*b->offsets));
    device_fill(s->compute, b->device_sums, 0, b->n_pieces * gnss_piece_sums(s) * sizeof(*b->sums));
    device_launch(s->compute, s->correlate, &grid, &args);
}

static void finish(struct gnss_stream *s, struct gnss_buffer *b)
{
    struct device_stream *download = s->gnss->engine->download;

    s->n_downloading++;
    outbuf_finish(&b->base, s->compute, download);
    if (b->n_pieces > 0)
        device_copy(download, b->sums, b->device_sums, b->n_pieces * gnss_piece_sums(s) * sizeof(*b->sums));
    device_copy(download, b->levels, b->device_levels, s->gnss->n_ants * N_POLS * sizeof(*b->levels));
    outbuf_download(&b->base, download);
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

/* Ends the tracking of all satellites at an antenna. */
static void leave_all(struct gnss_antenna *a)
{
    for (size_t i = 0; i < a->stream->sizes.n_satellites; i++) {
        fgpu_gnss_align_leave(&a->stream->satellites[i].align, a->ant);
        a->views[i].retry_sample = INT64_MIN;
    }
    a->is_stale = true;
    a->n_collected = 0;
}

static void begin_part(const struct gnss_antenna *a, const struct gnss_chunk *chunk, struct gnss_part *part)
{
    part->is_present = chunk;
    part->ends_block = false;
    part->n_records = 0;
    memcpy(part->scale, a->scale, sizeof(part->scale));
    part->n_present = chunk ? chunk->n_present : 0;
    part->n_samples = chunk ? (uint64_t)(chunk->end - chunk->begin) : 0;
    part->heap.items[ITEM_TIMESTAMP].value =
        chunk ? (uint64_t)(chunk->begin * a->stream->subsampling) & SPEAD_VALUE_MASK : 0;
    part->group.ready_ns = chunk ? chunk->last_arrival_ns : 0;
}

/* Queues all work for a round: one chunk of each antenna, or NULL for an absent antenna. */
static void make_round(struct gnss_stream *s, struct gnss_chunk *const *set, struct gnss_buffer *b)
{
    b->begin = INT64_MAX;
    b->end = INT64_MIN;
    for (size_t ant = 0; ant < s->gnss->n_ants; ant++) {
        begin_part(&s->antennas[ant], set[ant], &b->parts[ant]);
        if (set[ant]) {
            b->begin = set[ant]->begin < b->begin ? set[ant]->begin : b->begin;
            b->end = set[ant]->end;
        }
    }
    if (b->begin < s->last_end)
        for (size_t ant = 0; ant < s->gnss->n_ants; ant++)
            leave_all(&s->antennas[ant]); /* time went back */
    s->last_end = b->end;
    gnss_samples_quantise(s, set, b);
    for (size_t ant = 0; ant < s->gnss->n_ants; ant++)
        if (set[ant])
            gnss_follow_search(&s->antennas[ant], set[ant], &b->parts[ant]);
        else
            gnss_follow_release(&s->antennas[ant]);
    make_pieces(s, set, b);
    if (b->n_pieces > 0)
        correlate(s, b);
    finish(s, b);
}

bool fgpu_gnss_is_replay(const struct fgpu_gnss *gnss)
{
    return gnss && gnss->config->recv.base.pcap_file && device_ok(gnss->engine->c.device);
}

/* Returns true if a replay must wait for sums or a search.  In a replay the next pieces are made only after the loops
 * have received all sums and search results.  If the device has failed, there are no results, so the replay does not
 * wait. */
static bool must_wait(const struct gnss_stream *s)
{
    bool is_away = s->n_downloading > 0;

    for (size_t ant = 0; ant < s->gnss->n_ants; ant++)
        is_away = is_away || gnss_follow_is_away(&s->antennas[ant]);
    return is_away && fgpu_gnss_is_replay(s->gnss);
}

/* Computes all rounds whose chunks are there.  Returns false if the caller must call again. */
static bool make_rounds(struct gnss_stream *s, bool may_wait)
{
    struct gnss_chunk *set[GNSS_MAX_ANTS];
    int64_t timestamp_samples;

    while (matcher_peek(s->matcher, &timestamp_samples)) {
        if (must_wait(s))
            return false;
        struct gnss_buffer *b = (struct gnss_buffer *)outbuf_take(&s->pool);
        if (!b && may_wait)
            return false;
        matcher_next(s->matcher, (struct chunk **)set, &timestamp_samples);
        if (b)
            make_round(s, set, b);
        for (size_t ant = 0; ant < s->gnss->n_ants; ant++) {
            if (!set[ant])
                continue;
            counter_add(&s->antennas[ant].dropped_heaps, !b);
            set[ant]->is_used = true;
            buffer_ref_put(&set[ant]->base.ref);
        }
    }
    return true;
}

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

/* Begins to follow a signal.  The order gives the state of the signal at one ADC sample.  Tracking begins with the last
 * complex sample whose filter is centred at or before this ADC sample.  If the delay to the other antennas is too
 * large, the order is right and the other antennas must be aligned again. */
static void steer(struct gnss_antenna *a, const struct fgpu_gnss_order *order)
{
    const struct gnss_stream *s = a->stream;
    struct gnss_followed *sat = &s->satellites[order->satellite];
    const int64_t wrap = (int64_t)SPEAD_VALUE_MASK + 1;
    const int64_t turns = floor_div(a->input_samples - order->timestamp_samples + wrap / 2, wrap);
    const double delay_samples = (double)(s->n_taps - 1) / 2;
    const int64_t timestamp = order->timestamp_samples + turns * wrap;
    const int64_t sample = floor_div(2 * timestamp - (s->n_taps - 1), 2 * s->subsampling);
    const double later_s =
        ((double)(sample * s->subsampling - timestamp) + delay_samples) / s->sample_rate_hz / (double)s->subsampling;
    const struct gnss_signal_facts *facts = gnss_signal_facts(sat->id.signal);
    const double chips =
        order->code_chips + later_s * facts->chip_rate_hz * (1 + order->doppler_hz / facts->carrier_hz);
    const double phase = chips - floor(chips / facts->n_chips) * facts->n_chips;
    const struct fgpu_gnss_acquisition acquisition = {
        .sample = sample,
        .code_subchips = phase < facts->n_chips ? phase * sat->align.track.chip_subchips : 0,
        .doppler_hz = order->doppler_hz,
    };

    fgpu_gnss_align_leave(&sat->align, a->ant);
    if (!gnss_follow_signal(a, order->satellite, &acquisition, sample)) {
        gnss_follow_start(a, order->satellite, &acquisition);
        a->views[order->satellite].started_sample = sample;
    }
}

/* Applies the steer orders that arrived before the first input.  Their 48-bit timestamps are ambiguous without the
 * timestamp of an input. */
static void first_orders(struct gnss_antenna *a)
{
    for (size_t i = 0; i < a->stream->sizes.n_satellites; i++) {
        struct fgpu_gnss_order *order = &a->views[i].first_order;

        if (order->action == FGPU_GNSS_STEER)
            steer(a, order);
        order->action = FGPU_GNSS_NO_ACTION;
    }
}

/* Queues the copy of an antenna's new samples.  Returns false if the caller must call again with the same input.  If
 * time has jumped, the new chunk's slot may have an old chunk that waits for another antenna.  The new chunk is then
 * dropped, because nothing else would end the wait. */
static bool take_input(struct gnss_antenna *a, struct device_stream *compute, const struct fgpu_device_input *in,
                       bool may_wait)
{
    struct gnss_chunk *chunk = gnss_samples_chunk(a, in);

    if (!chunk->is_free && !make_rounds(a->stream, may_wait))
        return false;
    chunk = gnss_samples_chunk(a, in);
    a->input_samples = in->timestamp_samples;
    if (!a->has_input)
        first_orders(a);
    a->has_input = true;
    fgpu_baseband_advance(a->baseband, compute, in);
    if (!chunk->is_free) {
        counter_add(&a->dropped_heaps, 1);
        a->newest = NULL;
    } else if (gnss_samples_take(a, chunk, compute, in)) {
        matcher_add(a->stream->matcher, (unsigned)a->ant, &chunk->base);
        gnss_samples_take_back(a->stream);
    }
    return true;
}

/* Queues a stream's work for one input.  Returns false if the caller must call again with the same input. */
static bool process(struct gnss_antenna *a, struct device_stream *compute, const struct fgpu_device_input *in,
                    bool may_wait)
{
    const bool is_taken = a->has_input && a->input_samples == in->timestamp_samples;

    return (is_taken || take_input(a, compute, in, may_wait)) && make_rounds(a->stream, may_wait);
}

bool fgpu_gnss_process(struct fgpu_gnss *gnss, size_t ant, struct device_stream *compute,
                       const struct fgpu_device_input *in, bool may_wait)
{
    bool is_done = true;

    if (!gnss)
        return true;
    for (size_t i = 0; i < gnss->n_streams; i++)
        is_done = process(&gnss->streams[i].antennas[ant], compute, in, may_wait) && is_done;
    return is_done;
}

bool fgpu_gnss_flush(struct fgpu_gnss *gnss, size_t ant)
{
    bool is_done = true;

    for (size_t i = 0; gnss && i < gnss->n_streams; i++) {
        struct gnss_antenna *a = &gnss->streams[i].antennas[ant];
        if (!a->has_ended)
            matcher_end(a->stream->matcher, (unsigned)ant);
        a->has_ended = true;
        is_done = make_rounds(a->stream, true) && is_done;
    }
    return is_done;
}

void fgpu_gnss_restart(struct fgpu_gnss *gnss, size_t ant)
{
    for (size_t i = 0; gnss && i < gnss->n_streams; i++) {
        struct gnss_antenna *a = &gnss->streams[i].antennas[ant];
        a->has_input = false;
        a->newest = NULL;
        fgpu_baseband_restart(a->baseband);
        leave_all(a);
    }
}

/* ---- Orders ------------------------------------------------------------------------------------------------------ */

static void apply(struct gnss_antenna *a, const struct fgpu_gnss_order *order)
{
    struct gnss_view *view = &a->views[order->satellite];

    view->is_dropped = order->action == FGPU_GNSS_DROP;
    view->retry_sample = INT64_MIN;
    view->first_order.action = FGPU_GNSS_NO_ACTION;
    if (order->action == FGPU_GNSS_DROP)
        fgpu_gnss_align_leave(&a->stream->satellites[order->satellite].align, a->ant);
    else if (order->action == FGPU_GNSS_STEER && a->has_input)
        steer(a, order);
    else if (order->action == FGPU_GNSS_STEER)
        view->first_order = *order;
}

void fgpu_gnss_apply(struct fgpu_gnss *gnss, const struct fgpu_gnss_order *order)
{
    for (size_t ant = 0; ant < gnss->n_ants; ant++)
        if (order->ant == ant || order->ant == FGPU_GNSS_ALL_ANTENNAS)
            apply(&gnss->streams[order->stream].antennas[ant], order);
}

/* ---- Told -------------------------------------------------------------------------------------------------------- */

static json_t *describe_taps(const struct gnss_view *view)
{
    if (gauge_get(&view->taps[FGPU_GNSS_PROMPT]) == 0)
        return json_null();
    json_t *taps = json_array();
    for (unsigned tap = 0; tap < FGPU_GNSS_N_TAPS; tap++)
        json_array_append_new(taps, json_real(1e-3 * (double)gauge_get(&view->taps[tap])));
    return taps;
}

static json_t *describe_satellite(const struct gnss_followed *sat, const struct gnss_view *view)
{
    const struct fgpu_gnss_track *track = &sat->align.track;
    char name[FGPU_GNSS_NAME_BYTES];

    return json_pack("{s:s, s:s, s:[f, f], s:f, s:f, s:f, s:o}", "name", fgpu_gnss_name(&sat->id, name), "stage",
                     fgpu_gnss_stage_words[gauge_get(&view->stage)], "cn0_db_hz",
                     1e-3 * (double)gauge_get(&view->cn0_mdb[0]), 1e-3 * (double)gauge_get(&view->cn0_mdb[1]),
                     "doppler_hz", 1e-3 * (double)gauge_get(&view->doppler_mhz), "age_s",
                     sensor_read(&view->age_sensor).value.real, "tap_chips", track->tap_subchips / track->chip_subchips,
                     "taps", describe_taps(view));
}

static json_t *describe_antenna(const struct gnss_antenna *a)
{
    const struct gnss_stream *s = a->stream;
    const bool has_data = counter_get(&a->present_samples) + counter_get(&a->missing_samples) > 0;
    const double unix_s = 1e-9 * (double)sensor_read(&a->views[0].age_sensor).unix_ns;
    json_t *satellites = json_array();

    for (size_t i = 0; i < s->sizes.n_satellites; i++)
        json_array_append_new(satellites, describe_satellite(&s->satellites[i], &a->views[i]));
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", s->config->name, "antenna",
                     fgpu_config_antenna(s->gnss->config, a->ant)->name, "destinations",
                     status_endpoints(&s->config->destination), "time", has_data ? json_real(unix_s) : json_null(),
                     "satellites", satellites);
}

void fgpu_gnss_describe(const struct fgpu_gnss *gnss, json_t *into)
{
    json_t *streams = json_array();

    for (size_t i = 0; gnss && i < gnss->n_ants * gnss->n_streams; i++)
        json_array_append_new(streams,
                              describe_antenna(&gnss->streams[i % gnss->n_streams].antennas[i / gnss->n_streams]));
    json_object_set_new(into, "gnss", streams);
}

void fgpu_gnss_log(const struct fgpu_gnss *gnss)
{
    for (size_t i = 0; gnss && i < gnss->n_ants * gnss->n_streams; i++) {
        const struct gnss_antenna *a = &gnss->streams[i % gnss->n_streams].antennas[i / gnss->n_streams];
        uint64_t n_heaps = counter_get(&a->stats.heaps);
        log_info("%s %s: %llu heap%s of satellites' sums sent, %llu dropped (no free output buffer)",
                 fgpu_config_antenna(gnss->config, a->ant)->name, a->stream->config->name, (unsigned long long)n_heaps,
                 plural(n_heaps), (unsigned long long)counter_get(&a->dropped_heaps));
    }
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

int fgpu_gnss_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                     struct fgpu_gnss **gnss, char *why, size_t why_bytes)
{
    struct gnss_acquire_limits limits = {0};

    *gnss = NULL;
    if (config->gnss.n == 0)
        return 0;
    struct fgpu_gnss *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    *g = (struct fgpu_gnss){.config = config,
                            .layout = layout,
                            .engine = engine,
                            .timebase = fgpu_timebase(config),
                            .n_ants = layout->n_ants,
                            .n_streams = config->gnss.n,
                            .streams = calloc(config->gnss.n, sizeof(*g->streams))};
    *gnss = g;
    for (size_t i = 0; i < g->n_streams; i++)
        fgpu_gnss_add_limits(config, fgpu_config_gnss(config, i), &limits);
    int err = g->streams ? fgpu_gnss_searcher_create(engine, g->n_ants * g->n_streams, &limits, &g->searcher) : -ENOMEM;
    for (size_t i = 0; !err && i < g->n_streams; i++) {
        g->streams[i].gnss = g;
        g->streams[i].index = i;
        g->streams[i].config = fgpu_config_gnss(config, i);
        err = gnss_stream_init(&g->streams[i], why, why_bytes);
    }
    if (err)
        stats_reset(); /* /metrics could read freed counters */
    return err ? err : fgpu_gnss_searcher_start(g->searcher);
}

void fgpu_gnss_destroy(struct fgpu_gnss *gnss)
{
    if (!gnss)
        return;
    fgpu_gnss_searcher_destroy(gnss->searcher);
    for (size_t i = 0; gnss->streams && i < gnss->n_streams; i++)
        gnss_stream_fini(&gnss->streams[i], gnss->engine->c.device);
    free(gnss->streams);
    free(gnss);
}
