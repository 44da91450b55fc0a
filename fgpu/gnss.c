/* gnss.c - the worker's part of satellite tracking: converts device inputs to heaps of correlation sums. */
#include "fgpu/gnss.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "fgpu/gnss_stream.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RUNS    64   /* maximum number of runs of present samples in a chunk */
#define RETRY_S     10.0 /* seconds of data from a failed search to the next search for the same satellite */
#define FALSE_ALARM 1e-3
#define PEAK_S      1.0 /* time constant, in seconds of data, of the means of the taps' amplitudes */

/* A run [begin, end) of present samples among the new samples of a chunk. */
struct run {
    int64_t begin, end;
};

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

/* Finds the runs of present samples in [from, to).  A sample is present if all packets from which the filter computes
 * it have arrived on both polarisations.  Returns the number of runs. */
static size_t find_runs(const struct gnss_stream *s, const struct fgpu_device_input *in, int64_t from, int64_t to,
                        struct run runs[MAX_RUNS])
{
    const struct fgpu_layout *l = s->gnss->layout;
    const int64_t packet_samples = s->gnss->config->recv.packet_samples;
    const size_t n_heaps = l->history_heaps + l->heaps_per_chunk;
    int64_t begin = from;
    size_t n = 0;

    for (size_t h = 0; h < n_heaps && begin < to; h++) {
        if (in->present[0][h] && in->present[1][h])
            continue;
        const int64_t first = in->timestamp_samples + (int64_t)h * packet_samples;
        const int64_t touched = -floor_div(-(first - s->n_taps + 1), s->subsampling);
        const int64_t clear = floor_div(first + packet_samples - 1, s->subsampling) + 1;
        if (touched > begin) {
            runs[n++] = (struct run){begin, touched < to ? touched : to};
            if (n == MAX_RUNS)
                return n;
        }
        begin = clear > begin ? clear : begin;
    }
    if (begin < to)
        runs[n++] = (struct run){begin, to};
    return n;
}

static int64_t count_present(const struct run *runs, size_t n_runs, int64_t begin, int64_t end)
{
    int64_t n = 0;

    for (size_t i = 0; i < n_runs; i++) {
        const int64_t from = runs[i].begin > begin ? runs[i].begin : begin;
        const int64_t to = runs[i].end < end ? runs[i].end : end;
        n += to > from ? to - from : 0;
    }
    return n;
}

static void quantise(struct gnss_stream *s, struct device_stream *compute, struct gnss_buffer *b,
                     const struct run *runs, size_t n_runs)
{
    struct gnss_quantise_args args = {.pitch_samples = s->sizes.pitch_samples,
                                      .levels = b->device_levels,
                                      .scale = {b->scale[0], b->scale[1]},
                                      .im_sign = s->config->is_inverted ? -1 : 1};

    device_fill(compute, b->device_levels, 0, N_POLS * sizeof(*b->device_levels));
    if (b->n_present < (uint64_t)(b->end - b->begin))
        device_fill(compute, s->samples, 0, N_POLS * s->sizes.pitch_samples * 2);
    for (size_t i = 0; i < n_runs; i++) {
        const int64_t at = fgpu_baseband_index(s->baseband, runs[i].begin * s->subsampling);
        for (unsigned pol = 0; pol < N_POLS; pol++)
            args.in[pol] = (const float *)fgpu_baseband_samples(s->baseband, pol) + 2 * at;
        args.out = s->samples + 2 * (runs[i].begin - b->begin);
        args.n_samples = (uint64_t)(runs[i].end - runs[i].begin);
        struct kernel_grid grid = gnss_quantise_grid(&args);
        device_launch(compute, s->quantise, &grid, &args);
    }
}

/* ---- Searches ---------------------------------------------------------------------------------------------------- */

static bool wants_search(const struct gnss_followed *sat, int64_t sample)
{
    return sat->id.config->acquire && !sat->is_dropped && sat->track.stage == FGPU_GNSS_SEARCH &&
           sample >= sat->retry_sample;
}

/* Begins a search for the next satellite that needs a search (wants_search()). */
static void begin_search(struct gnss_stream *s, int64_t sample)
{
    for (size_t i = 0; i < s->sizes.n_satellites && !s->is_searching; i++) {
        const size_t at = (s->next_satellite + i) % s->sizes.n_satellites;
        struct gnss_followed *sat = &s->satellites[at];
        if (!wants_search(sat, sample))
            continue;
        const struct gnss_acquire_config config = {
            .facts = gnss_signal_facts(sat->id.signal),
            .table = sat->table,
            .n_subchips = sat->track.n_subchips,
            .n_periods = (uint32_t)s->config->acquire_periods,
            .sample_rate_hz = s->sample_rate_hz,
            .carrier_hz = sat->id.carrier_hz,
            .min_doppler_hz = sat->id.config->doppler_hz - sat->id.config->doppler_range_hz,
            .max_doppler_hz = sat->id.config->doppler_hz + sat->id.config->doppler_range_hz,
            .false_alarm = FALSE_ALARM,
        };
        s->is_searching = true;
        s->is_stale = false;
        s->n_collected = 0;
        s->search.satellite = at;
        s->next_satellite = at + 1;
        counter_add(&sat->searches, 1);
        fgpu_gnss_search_begin(s->gnss->searcher, &s->search, &config, (uint32_t)s->config->acquire_blocks);
    }
}

/* Begins to follow the satellite that a search has found, or sets the earliest sample of the next search. */
static void end_search(struct gnss_stream *s, int64_t sample)
{
    struct gnss_followed *sat = &s->satellites[s->search.satellite];
    const bool is_found = s->search.is_found && !s->is_stale;

    s->is_searching = false;
    s->search.state = FGPU_GNSS_SEARCH_IDLE;
    if (sat->track.stage != FGPU_GNSS_SEARCH || sat->is_dropped)
        return; /* a request steered or dropped the satellite during the search */
    if (is_found) {
        fgpu_gnss_track_start(&sat->track, &s->search.found);
        sat->started_sample = sample;
    } else if (!s->is_stale) {
        sat->retry_sample = sample + (int64_t)(RETRY_S * s->sample_rate_hz);
    }
}

/* Queues a copy of the buffer's samples that the search still needs for its block. */
static void collect(struct gnss_stream *s, struct device_stream *compute, struct gnss_buffer *b)
{
    struct fgpu_gnss_search *search = &s->search;
    int64_t begin = b->begin;

    assert(search->n_wanted <= search->pitch_samples);
    if (s->n_collected > 0 && s->collected_end != b->begin)
        s->n_collected = 0; /* a gap */
    if (s->n_collected == 0) {
        begin = fgpu_gnss_search_block(search, b->begin);
        if (begin >= b->end)
            return; /* the block begins in a later buffer */
        search->block_sample = begin;
        search->begins_anew = search->begins_anew || s->is_stale;
        s->is_stale = false;
    }
    const size_t n = least(search->n_wanted - s->n_collected, (uint64_t)(b->end - begin));
    device_copy_2d(compute, search->samples + 2 * s->n_collected, 2 * search->pitch_samples,
                   s->samples + 2 * (begin - b->begin), 2 * s->sizes.pitch_samples, 2 * n, N_POLS);
    s->n_collected += (uint32_t)n;
    s->collected_end = begin + (int64_t)n;
    if (s->n_collected < search->n_wanted)
        return;
    s->n_collected = 0;
    s->fills_block = true;
    b->ends_block = true;
}

static bool is_search_away(const struct gnss_stream *s)
{
    return s->fills_block || fgpu_gnss_search_is_away(&s->search);
}

static void search(struct gnss_stream *s, struct device_stream *compute, struct gnss_buffer *b)
{
    if (is_search_away(s))
        return;
    if (s->is_searching && s->search.state == FGPU_GNSS_SEARCH_ENDED)
        end_search(s, b->end);
    if (!s->is_searching)
        begin_search(s, b->end);
    else if (s->search.state == FGPU_GNSS_SEARCH_WANTS)
        collect(s, compute, b);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static void make_pieces(struct gnss_stream *s, struct gnss_buffer *b, const struct run *runs, size_t n_runs)
{
    b->n_pieces = 0;
    for (size_t i = 0; i < s->sizes.n_satellites; i++) {
        struct gnss_piece *pieces = b->pieces + b->n_pieces;
        const size_t n = fgpu_gnss_track_pieces(&s->satellites[i].track, b->begin, b->end, pieces,
                                                s->sizes.max_pieces - b->n_pieces);
        for (size_t p = 0; p < n; p++) {
            const int64_t first = b->begin + pieces[p].first, end = first + pieces[p].n_samples;
            const int64_t n_present = count_present(runs, n_runs, first, end);
            pieces[p].satellite = (uint32_t)i;
            pieces[p].integration = (uint32_t)(b->n_pieces + p);
            b->infos[b->n_pieces + p] =
                (struct gnss_piece_info){(uint16_t)i, (uint32_t)(pieces[p].n_samples - n_present)};
        }
        b->n_pieces += n;
    }
}

static void correlate(struct gnss_stream *s, struct device_stream *compute, struct gnss_buffer *b)
{
    const struct gnss_correlate_args args = gnss_stream_correlate_args(s, b);
    const struct device *device = s->gnss->engine->c.device;
    struct kernel_grid grid =
        gnss_correlate_grid(s->variant, &args, device_shared_bytes(device), device_multiprocessors(device));

    device_copy(compute, b->device_pieces, b->pieces, b->n_pieces * sizeof(*b->pieces));
    device_fill(compute, b->device_sums, 0, b->n_pieces * GNSS_SUMS_OF_PIECE * sizeof(*b->sums));
    device_launch(compute, s->correlate, &grid, &args);
}

static void finish(struct gnss_stream *s, struct device_stream *compute, struct gnss_buffer *b)
{
    struct device_stream *download = s->gnss->engine->download;

    s->n_downloading++;
    outbuf_finish(&b->base, compute, download);
    if (b->n_pieces > 0)
        device_copy(download, b->sums, b->device_sums, b->n_pieces * GNSS_SUMS_OF_PIECE * sizeof(*b->sums));
    device_copy(download, b->levels, b->device_levels, N_POLS * sizeof(*b->levels));
    outbuf_download(&b->base, download);
}

/* Returns true if a replay must wait for sums or a search.  In a replay the next pieces are made only after the loops
 * have received all sums and search results.  If the device has failed, there are no results, so the replay does not
 * wait. */
static bool must_wait(const struct gnss_stream *s)
{
    const struct fgpu_gnss *gnss = s->gnss;

    return gnss->config->recv.base.pcap_file && (s->n_downloading > 0 || is_search_away(s)) &&
           device_ok(gnss->engine->c.device);
}

/* Begins to follow a signal.  The order gives the state of the signal at one ADC sample.  Tracking begins with the last
 * complex sample whose filter is centred at or before this ADC sample. */
static void steer(struct gnss_stream *s, struct gnss_followed *sat, const struct fgpu_gnss_order *order)
{
    const int64_t wrap = (int64_t)SPEAD_VALUE_MASK + 1;
    const int64_t turns = floor_div(s->input_samples - order->timestamp_samples + wrap / 2, wrap);
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
        .code_subchips = phase < facts->n_chips ? phase * sat->track.chip_subchips : 0,
        .doppler_hz = order->doppler_hz,
    };

    fgpu_gnss_track_start(&sat->track, &acquisition);
    sat->started_sample = sample;
}

/* Applies the steer orders that arrived before the first input.  Their 48-bit timestamps are ambiguous without the
 * timestamp of an input. */
static void first_orders(struct gnss_stream *s)
{
    for (size_t k = 0; k < s->sizes.n_satellites; k++) {
        struct gnss_followed *sat = &s->satellites[k];

        if (sat->first_order.action == FGPU_GNSS_STEER)
            steer(s, sat, &sat->first_order);
        sat->first_order.action = FGPU_GNSS_NO_ACTION;
    }
}

/* Queues a stream's work for one input.  Returns false if the caller must call again with the same input. */
static bool process(struct gnss_stream *s, struct device_stream *compute, const struct fgpu_device_input *in,
                    bool may_wait)
{
    struct run runs[MAX_RUNS];

    if (s->has_input && s->input_samples == in->timestamp_samples)
        return true;
    if (must_wait(s))
        return false;
    struct gnss_buffer *b = (struct gnss_buffer *)outbuf_take(&s->pool);
    if (!b && may_wait)
        return false;
    s->input_samples = in->timestamp_samples;
    if (!s->has_input)
        first_orders(s);
    s->has_input = true;
    fgpu_baseband_advance(s->baseband, compute, in);
    if (!b) {
        counter_add(&s->dropped_heaps, 1);
        return true;
    }
    fgpu_baseband_made(s->baseband, &b->begin, &b->end);
    if (b->begin >= b->end) {
        outbuf_give(&b->base);
        return true;
    }
    const size_t n_runs = find_runs(s, in, b->begin, b->end, runs);
    b->n_present = (uint64_t)count_present(runs, n_runs, b->begin, b->end);
    b->ends_block = false;
    memcpy(b->scale, s->scale, sizeof(b->scale));
    b->group.ready_ns = in->last_arrival_ns;
    quantise(s, compute, b, runs, n_runs);
    search(s, compute, b);
    make_pieces(s, b, runs, n_runs);
    if (b->n_pieces > 0)
        correlate(s, compute, b);
    finish(s, compute, b);
    return true;
}

bool fgpu_gnss_process(struct fgpu_gnss *gnss, size_t ant, struct device_stream *compute,
                       const struct fgpu_device_input *in, bool may_wait)
{
    bool is_done = true;

    for (size_t i = 0; gnss && i < gnss->n_streams; i++)
        is_done = process(&gnss->streams[ant * gnss->n_streams + i], compute, in, may_wait) && is_done;
    return is_done;
}

void fgpu_gnss_restart(struct fgpu_gnss *gnss, size_t ant)
{
    for (size_t i = 0; gnss && i < gnss->n_streams; i++) {
        struct gnss_stream *s = &gnss->streams[ant * gnss->n_streams + i];
        s->has_input = false;
        fgpu_baseband_restart(s->baseband);
        for (size_t k = 0; k < s->sizes.n_satellites; k++) {
            fgpu_gnss_track_stop(&s->satellites[k].track);
            s->satellites[k].retry_sample = INT64_MIN;
        }
        s->is_stale = true;
        s->n_collected = 0;
    }
}

/* ---- Orders ------------------------------------------------------------------------------------------------------ */

static void apply(struct gnss_stream *s, const struct fgpu_gnss_order *order)
{
    struct gnss_followed *sat = &s->satellites[order->satellite];

    sat->is_dropped = order->action == FGPU_GNSS_DROP;
    sat->retry_sample = INT64_MIN;
    sat->first_order.action = FGPU_GNSS_NO_ACTION;
    if (order->action == FGPU_GNSS_DROP)
        fgpu_gnss_track_stop(&sat->track);
    else if (order->action == FGPU_GNSS_STEER && s->has_input)
        steer(s, sat, order);
    else if (order->action == FGPU_GNSS_STEER)
        sat->first_order = *order;
}

void fgpu_gnss_apply(struct fgpu_gnss *gnss, const struct fgpu_gnss_order *order)
{
    for (size_t ant = 0; ant < gnss->layout->n_ants; ant++)
        if (order->ant == ant || order->ant == FGPU_GNSS_ALL_ANTENNAS)
            apply(&gnss->streams[ant * gnss->n_streams + order->stream], order);
}

/* ---- Downloaded -------------------------------------------------------------------------------------------------- */

static double stronger(const struct fgpu_gnss_state *state)
{
    return fmax(state->cn0_db_hz[0], state->cn0_db_hz[1]);
}

static void write_record(const struct gnss_stream *s, const struct gnss_followed *sat,
                         const struct fgpu_gnss_integration *ended, struct fgpu_gnss_record *r)
{
    const struct fgpu_gnss_state *state = &ended->after;

    *r = (struct fgpu_gnss_record){
        .timestamp = (ended->sample * s->subsampling) & (int64_t)SPEAD_VALUE_MASK,
        .code_period = ended->code_period,
        .code_phase = ended->code_subchips / sat->track.chip_subchips,
        .carrier_cycles = ended->carrier_turns,
        .carrier_phase = ldexp((double)(ended->carrier_phase >> 11), -53),
        .doppler = state->doppler_hz,
        .doppler_rate = state->doppler_rate_hz_s,
        .cn0 = {(float)state->cn0_db_hz[0], (float)state->cn0_db_hz[1]},
        .n_samples = ended->n_samples,
        .n_present = ended->n_present,
        .prn = (uint16_t)sat->id.prn,
        .signal = (uint16_t)sat->id.signal,
        .stage = (uint16_t)ended->stage,
        .flags = (uint16_t)((state->is_code_locked ? FGPU_GNSS_CODE_LOCKED : 0) |
                            (state->is_carrier_locked ? FGPU_GNSS_CARRIER_LOCKED : 0) |
                            (state->has_half_turn ? FGPU_GNSS_HALF_TURN : 0)),
        .symbol_period = state->symbol_period,
        .n_starts = sat->track.n_starts,
    };
    memcpy(r->sums, ended->sums, sizeof(r->sums));
}

/* Updates the means of the taps' amplitudes.  The means of the three taps use the same weights, so the ratios of the
 * means are correct even after the first integration. */
static void follow_peak(const struct gnss_stream *s, struct gnss_followed *sat,
                        const struct fgpu_gnss_integration *ended)
{
    const double weight = fmin(1, ended->n_samples / (PEAK_S * s->sample_rate_hz));

    for (unsigned tap = 0; tap < FGPU_GNSS_N_TAPS; tap++) {
        const double(*sums)[2] = ended->sums[tap];
        const double amplitude = hypot(hypot(sums[0][0], sums[0][1]), hypot(sums[1][0], sums[1][1]));
        sat->peak[tap] += weight * (amplitude - sat->peak[tap]);
    }
}

/* Passes a buffer's sums to the loops, in order, and writes a record for each integration that ended.  Returns the
 * number of records written. */
static size_t close_loops(struct gnss_stream *s, struct gnss_buffer *b)
{
    const double unit[N_POLS] = {1.0 / b->scale[0], 1.0 / b->scale[1]};
    size_t n_records = 0;

    for (size_t p = 0; p < b->n_pieces; p++) {
        struct gnss_followed *sat = &s->satellites[b->infos[p].satellite];
        const int64_t(*sums)[N_POLS][2] = (const int64_t(*)[N_POLS][2])(b->sums + p * GNSS_SUMS_OF_PIECE);
        struct fgpu_gnss_integration ended[2];
        const uint32_t n_losses = sat->track.n_losses;
        const size_t n = fgpu_gnss_track_sums(&sat->track, sums, unit, b->infos[p].n_missing, ended);
        for (size_t i = 0; i < n; i++)
            follow_peak(s, sat, &ended[i]);
        for (size_t i = 0; i < n && n_records < s->sizes.max_pieces; i++)
            write_record(s, sat, &ended[i], &b->records[n_records++]);
        counter_add(&sat->losses, sat->track.n_losses - n_losses);
    }
    return n_records;
}

static void show_peak(struct gnss_followed *sat, bool is_followed)
{
    if (!is_followed)
        memset(sat->peak, 0, sizeof(sat->peak));
    const double prompt = sat->peak[FGPU_GNSS_PROMPT];
    for (unsigned tap = 0; tap < FGPU_GNSS_N_TAPS; tap++)
        gauge_set(&sat->taps[tap], prompt > 0 ? (int64_t)rint(1e3 * sat->peak[tap] / prompt) : 0);
}

static void show(struct gnss_stream *s, const struct gnss_buffer *b)
{
    const int64_t unix_ns = timebase_unix_ns(&s->gnss->timebase, b->end * s->subsampling);

    for (size_t i = 0; i < s->sizes.n_satellites; i++) {
        struct gnss_followed *sat = &s->satellites[i];
        const struct fgpu_gnss_state state = fgpu_gnss_track_at(&sat->track, b->end);
        const bool is_followed = state.stage != FGPU_GNSS_SEARCH;
        const enum sensor_status status = is_followed ? SENSOR_NOMINAL : SENSOR_INACTIVE;
        const double cn0_db_hz = is_followed && isfinite(stronger(&state)) ? stronger(&state) : 0;
        gauge_set(&sat->stage, state.stage);
        for (unsigned pol = 0; pol < N_POLS; pol++)
            gauge_set(&sat->cn0_mdb[pol],
                      is_followed && isfinite(state.cn0_db_hz[pol]) ? (int64_t)rint(1e3 * state.cn0_db_hz[pol]) : 0);
        gauge_set(&sat->doppler_mhz, is_followed ? (int64_t)rint(1e3 * state.doppler_hz) : 0);
        show_peak(sat, is_followed);
        sensor_set_integer(&sat->stage_sensor, unix_ns, status, state.stage);
        sensor_set_real(&sat->cn0_sensor, unix_ns, status, cn0_db_hz);
        sensor_set_real(&sat->doppler_sensor, unix_ns, status, is_followed ? state.doppler_hz : 0);
        sensor_set_real(&sat->age_sensor, unix_ns, status,
                        is_followed ? (double)(b->end - sat->started_sample) / s->sample_rate_hz : 0);
    }
}

/* Adjusts the scales to a buffer's levels.  Ignores a buffer that was quantised with an earlier scale. */
static void follow_level(struct gnss_stream *s, const struct gnss_buffer *b)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        counter_add(&s->clipped_samples, b->levels[pol].n_clipped);
        if (b->scale[pol] == s->scale[pol] && b->n_present > 0)
            s->scale[pol] = gnss_quantise_scale(s->scale[pol], b->levels[pol].squares, b->n_present);
    }
}

void fgpu_gnss_push(struct outbuf *buffer)
{
    struct gnss_buffer *b = (struct gnss_buffer *)buffer;
    struct gnss_stream *s = b->stream;
    const int64_t timestamp = b->begin * s->subsampling;

    s->n_downloading--;
    if (b->ends_block) {
        s->fills_block = false;
        fgpu_gnss_search_push(s->gnss->searcher, &s->search);
    }
    follow_level(s, b);
    counter_add(&s->present_samples, b->n_present);
    counter_add(&s->missing_samples, (uint64_t)(b->end - b->begin) - b->n_present);
    const size_t n_records = close_loops(s, b);
    memset(b->records + n_records, 0, (s->sizes.max_pieces - n_records) * sizeof(*b->records));
    show(s, b);
    b->heap.items[ITEM_TIMESTAMP].value = (uint64_t)timestamp & SPEAD_VALUE_MASK;
    b->group.send = true;
    buffer_ref_set(&b->base.ref, 1);
    sender_push(s->send, &b->job);
}

bool fgpu_gnss_own(const struct fgpu_gnss *gnss, const struct outbuf *buffer)
{
    for (size_t i = 0; gnss && i < gnss->layout->n_ants * gnss->n_streams; i++)
        if (buffer->pool == &gnss->streams[i].pool)
            return true;
    return false;
}

/* ---- Told -------------------------------------------------------------------------------------------------------- */

static json_t *describe_taps(const struct gnss_followed *sat)
{
    if (gauge_get(&sat->taps[FGPU_GNSS_PROMPT]) == 0)
        return json_null();
    json_t *taps = json_array();
    for (unsigned tap = 0; tap < FGPU_GNSS_N_TAPS; tap++)
        json_array_append_new(taps, json_real(1e-3 * (double)gauge_get(&sat->taps[tap])));
    return taps;
}

static json_t *describe_satellite(const struct gnss_followed *sat)
{
    char name[FGPU_GNSS_NAME_BYTES];

    return json_pack("{s:s, s:s, s:[f, f], s:f, s:f, s:f, s:o}", "name", fgpu_gnss_name(&sat->id, name), "stage",
                     fgpu_gnss_stage_words[gauge_get(&sat->stage)], "cn0_db_hz",
                     1e-3 * (double)gauge_get(&sat->cn0_mdb[0]), 1e-3 * (double)gauge_get(&sat->cn0_mdb[1]),
                     "doppler_hz", 1e-3 * (double)gauge_get(&sat->doppler_mhz), "age_s",
                     sensor_read(&sat->age_sensor).value.real, "tap_chips",
                     sat->track.tap_subchips / sat->track.chip_subchips, "taps", describe_taps(sat));
}

void fgpu_gnss_describe(const struct fgpu_gnss *gnss, json_t *into)
{
    json_t *streams = json_array();

    for (size_t i = 0; gnss && i < gnss->layout->n_ants * gnss->n_streams; i++) {
        const struct gnss_stream *s = &gnss->streams[i];
        const bool has_data = counter_get(&s->present_samples) + counter_get(&s->missing_samples) > 0;
        const double unix_s = 1e-9 * (double)sensor_read(&s->satellites[0].age_sensor).unix_ns;
        json_t *satellites = json_array();
        for (size_t k = 0; k < s->sizes.n_satellites; k++)
            json_array_append_new(satellites, describe_satellite(&s->satellites[k]));
        json_array_append_new(streams, json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", s->config->name, "antenna",
                                                 fgpu_config_antenna(gnss->config, s->ant)->name, "destinations",
                                                 status_endpoints(&s->config->destination), "time",
                                                 has_data ? json_real(unix_s) : json_null(), "satellites", satellites));
    }
    json_object_set_new(into, "gnss", streams);
}

void fgpu_gnss_log(const struct fgpu_gnss *gnss)
{
    for (size_t i = 0; gnss && i < gnss->layout->n_ants * gnss->n_streams; i++) {
        const struct gnss_stream *s = &gnss->streams[i];
        uint64_t n_heaps = counter_get(&s->stats.heaps);
        log_info("%s %s: %llu heap%s of satellites' sums sent, %llu dropped (no free output buffer)",
                 fgpu_config_antenna(gnss->config, s->ant)->name, s->config->name, (unsigned long long)n_heaps,
                 plural(n_heaps), (unsigned long long)counter_get(&s->dropped_heaps));
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
    const size_t n = layout->n_ants * config->gnss.n;
    *g = (struct fgpu_gnss){.config = config,
                            .layout = layout,
                            .engine = engine,
                            .timebase = fgpu_timebase(config),
                            .n_streams = config->gnss.n,
                            .streams = calloc(n, sizeof(*g->streams))};
    *gnss = g;
    for (size_t i = 0; i < g->n_streams; i++)
        fgpu_gnss_add_limits(config, fgpu_config_gnss(config, i), &limits);
    int err = g->streams ? fgpu_gnss_searcher_create(engine, n, &limits, &g->searcher) : -ENOMEM;
    for (size_t i = 0; !err && i < n; i++) {
        g->streams[i].gnss = g;
        g->streams[i].ant = i / g->n_streams;
        g->streams[i].config = fgpu_config_gnss(config, i % g->n_streams);
        err = gnss_stream_init(&g->streams[i], why, why_bytes);
    }
    return err ? err : fgpu_gnss_searcher_start(g->searcher);
}

void fgpu_gnss_destroy(struct fgpu_gnss *gnss)
{
    if (!gnss)
        return;
    fgpu_gnss_searcher_destroy(gnss->searcher);
    for (size_t i = 0; gnss->streams && i < gnss->layout->n_ants * gnss->n_streams; i++)
        gnss_stream_fini(&gnss->streams[i], gnss->engine->c.device);
    free(gnss->streams);
    free(gnss);
}
