/* gnss_result.c - passes downloaded sums to the tracking loops, and makes heaps, sensors and metrics of the results. */
#include "fgpu/gnss/gnss_stream.h"

#include <math.h>
#include <string.h>

#define SHOW_S 0.05 /* shortest time between two updates of sensors and metrics, in seconds of data */
#define PEAK_S 1.0  /* time constant, in seconds of data, of the means of the taps' amplitudes */

static void write_record(const struct gnss_stream *s, const struct gnss_followed *sat,
                         const struct fgpu_gnss_integration *ended, const struct fgpu_gnss_measured *m,
                         struct fgpu_gnss_record *r)
{
    const struct fgpu_gnss_state *state = &ended->after;

    *r = (struct fgpu_gnss_record){
        .timestamp = ((ended->sample + m->offset_samples) * s->subsampling) & (int64_t)SPEAD_VALUE_MASK,
        .code_period = ended->code_period,
        .code_phase = ended->code_subchips / sat->align.track.chip_subchips,
        .carrier_cycles = ended->carrier_turns,
        .carrier_phase = ldexp((double)(ended->carrier_phase >> 11), -53),
        .doppler = m->doppler_hz,
        .doppler_rate = state->doppler_rate_hz_s,
        .cn0 = {(float)m->cn0_db_hz[0], (float)m->cn0_db_hz[1]},
        .n_samples = ended->n_samples,
        .n_present = m->n_present,
        .prn = (uint16_t)sat->id.prn,
        .signal = (uint16_t)sat->id.signal,
        .stage = (uint16_t)m->stage,
        .flags = (uint16_t)((m->is_code_locked ? FGPU_GNSS_CODE_LOCKED : 0) |
                            (m->is_carrier_locked ? FGPU_GNSS_CARRIER_LOCKED : 0) |
                            (state->has_half_turn ? FGPU_GNSS_HALF_TURN : 0)),
        .symbol_period = state->symbol_period,
        .n_starts = m->n_starts,
    };
    memcpy(r->sums, m->sums, sizeof(r->sums));
}

/* Updates the means of the taps' amplitudes.  The means of the three taps use the same weights, so the ratios of the
 * means are correct even after the first integration. */
static void follow_peak(const struct gnss_stream *s, struct gnss_view *view, uint32_t n_samples,
                        const struct fgpu_gnss_measured *m)
{
    const double weight = fmin(1, n_samples / (PEAK_S * s->sample_rate_hz));

    for (unsigned tap = 0; tap < FGPU_GNSS_N_TAPS; tap++) {
        const double(*sums)[2] = m->sums[tap];
        const double amplitude = hypot(hypot(sums[0][0], sums[0][1]), hypot(sums[1][0], sums[1][1]));
        view->peak[tap] += weight * (amplitude - view->peak[tap]);
    }
}

/* Writes a record of an integration for each antenna that took part. */
static void write_records(struct gnss_stream *s, struct gnss_buffer *b, size_t satellite,
                          const struct fgpu_gnss_integration *ended, const struct fgpu_gnss_measured *measured)
{
    for (size_t ant = 0; ant < s->gnss->n_ants; ant++) {
        struct gnss_part *part = &b->parts[ant];
        if (measured[ant].stage == FGPU_GNSS_SEARCH || !part->is_present)
            continue;
        follow_peak(s, &s->antennas[ant].views[satellite], ended->n_samples, &measured[ant]);
        if (part->n_records < s->sizes.max_pieces)
            write_record(s, &s->satellites[satellite], ended, &measured[ant], &part->records[part->n_records++]);
    }
}

/* Passes a buffer's sums to the loops, in order, and writes records. */
static void close_loops(struct gnss_stream *s, struct gnss_buffer *b)
{
    const size_t n_ants = s->gnss->n_ants, tap_stride = n_ants * N_POLS * 2;
    struct fgpu_gnss_measured measured[2 * GNSS_MAX_ANTS];
    struct fgpu_gnss_part parts[GNSS_MAX_ANTS];
    struct fgpu_gnss_integration ended[2];

    for (size_t p = 0; p < b->n_pieces; p++) {
        const size_t satellite = b->pieces[p].satellite;
        for (size_t ant = 0; ant < n_ants; ant++)
            parts[ant] = (struct fgpu_gnss_part){
                .sums = b->sums + p * gnss_piece_sums(s) + ant * N_POLS * 2,
                .tap_stride = tap_stride,
                .unit = {1.0 / b->parts[ant].scale[0], 1.0 / b->parts[ant].scale[1]},
                .n_missing = b->n_missing[p * n_ants + ant],
                .offset_samples = b->offsets[satellite * n_ants + ant],
            };
        const size_t n = fgpu_gnss_align_sums(&s->satellites[satellite].align, parts, ended, measured);
        for (size_t i = 0; i < n; i++)
            write_records(s, b, satellite, &ended[i], measured + i * n_ants);
    }
}

static void show_peak(struct gnss_view *view, bool is_followed)
{
    if (!is_followed)
        memset(view->peak, 0, sizeof(view->peak));
    const double prompt = view->peak[FGPU_GNSS_PROMPT];
    for (unsigned tap = 0; tap < FGPU_GNSS_N_TAPS; tap++)
        gauge_set(&view->taps[tap], prompt > 0 ? (int64_t)rint(1e3 * view->peak[tap] / prompt) : 0);
}

static void show(struct gnss_antenna *a, size_t satellite, const struct gnss_buffer *b, int64_t unix_ns)
{
    const struct fgpu_gnss_align *align = &a->stream->satellites[satellite].align;
    const struct fgpu_gnss_state state = fgpu_gnss_align_at(align, a->ant, b->end);
    struct gnss_view *view = &a->views[satellite];
    const bool is_followed = state.stage != FGPU_GNSS_SEARCH;
    const enum sensor_status status = is_followed ? SENSOR_NOMINAL : SENSOR_INACTIVE;
    const double doppler_hz = is_followed ? state.doppler_hz : 0;
    const double cn0_db_hz = fmax(state.cn0_db_hz[0], state.cn0_db_hz[1]);

    gauge_set(&view->stage, state.stage);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        gauge_set(&view->cn0_mdb[pol],
                  is_followed && isfinite(state.cn0_db_hz[pol]) ? (int64_t)rint(1e3 * state.cn0_db_hz[pol]) : 0);
    gauge_set(&view->doppler_mhz, (int64_t)rint(1e3 * doppler_hz));
    counter_add(&view->losses, align->ants[a->ant].n_losses - counter_get(&view->losses));
    show_peak(view, is_followed);
    sensor_set_integer(&view->stage_sensor, unix_ns, status, state.stage);
    sensor_set_real(&view->cn0_sensor, unix_ns, status, is_followed && isfinite(cn0_db_hz) ? cn0_db_hz : 0);
    sensor_set_real(&view->doppler_sensor, unix_ns, status, doppler_hz);
    sensor_set_real(&view->age_sensor, unix_ns, status,
                    is_followed ? (double)(b->end - view->started_sample) / a->stream->sample_rate_hz : 0);
}

/* Updates sensors and metrics of all satellites and antennas. */
static void show_all(struct gnss_stream *s, const struct gnss_buffer *b)
{
    const int64_t unix_ns = timebase_unix_ns(&s->gnss->timebase, b->end * s->subsampling);

    if (b->end >= s->shown_sample && (double)b->end - (double)s->shown_sample < SHOW_S * s->sample_rate_hz)
        return;
    s->shown_sample = b->end;
    for (size_t i = 0; i < s->gnss->n_ants * s->sizes.n_satellites; i++)
        show(&s->antennas[i / s->sizes.n_satellites], i % s->sizes.n_satellites, b, unix_ns);
}

/* Adjusts the scales to a buffer's levels.  Ignores a buffer that was quantised with an earlier scale. */
static void follow_level(struct gnss_antenna *a, const struct gnss_part *part, const struct gnss_level *levels)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        counter_add(&a->clipped_samples, levels[pol].n_clipped);
        if (part->scale[pol] == a->scale[pol] && part->n_present > 0)
            a->scale[pol] = gnss_quantise_scale(a->scale[pol], levels[pol].squares, part->n_present);
    }
}

/* Sends an antenna's heap. */
static void send_part(struct gnss_antenna *a, struct gnss_part *part)
{
    const size_t n_left = a->stream->sizes.max_pieces - part->n_records;

    memset(part->records + part->n_records, 0, n_left * sizeof(*part->records));
    counter_add(&a->present_samples, part->n_present);
    counter_add(&a->missing_samples, part->n_samples - part->n_present);
    part->group.send = true;
    sender_push(a->send, &part->job);
}

void fgpu_gnss_push(struct outbuf *buffer)
{
    struct gnss_buffer *b = (struct gnss_buffer *)buffer;
    struct gnss_stream *s = b->stream;
    int n_present = 0;

    s->n_downloading--;
    for (size_t ant = 0; ant < s->gnss->n_ants; ant++) {
        struct gnss_antenna *a = &s->antennas[ant];
        if (b->parts[ant].ends_block) {
            a->fills_block = false;
            fgpu_gnss_search_push(s->gnss->searcher, &a->search);
        }
        if (b->parts[ant].is_present)
            follow_level(a, &b->parts[ant], b->levels + ant * N_POLS);
        n_present += b->parts[ant].is_present;
    }
    close_loops(s, b);
    show_all(s, b);
    buffer_ref_set(&b->base.ref, n_present);
    for (size_t ant = 0; ant < s->gnss->n_ants; ant++)
        if (b->parts[ant].is_present)
            send_part(&s->antennas[ant], &b->parts[ant]);
}

bool fgpu_gnss_own(const struct fgpu_gnss *gnss, const struct outbuf *buffer)
{
    for (size_t i = 0; gnss && i < gnss->n_streams; i++)
        if (buffer->pool == &gnss->streams[i].pool)
            return true;
    return false;
}
