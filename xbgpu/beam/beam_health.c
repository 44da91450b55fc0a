/* beam_health.c - computes statistics of beams for metrics and the status page. */
#include "xbgpu/beam/beam_health.h"

#include "common/base/clock.h"
#include "common/base/counter.h"
#include "common/base/units.h"
#include "common/http/spectrum.h"
#include "common/telemetry/snapshot.h"
#include "common/telemetry/stats.h"
#include "common/time/timebase.h"
#include "kernels/beamform/beamform.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_INTERVAL_NS (900 * NS_PER_MS)
#define FULL_SCALE       (BEAMFORM_LIMIT * BEAMFORM_LIMIT) /* power at 0 dB: the power of a tone of full amplitude */

struct figures {
    struct counter measured_samples, zero_samples;
    struct gauge rms_millionths;
    struct gauge antennas;
};

/* A sample of one beam's spectrum.  The worker and the HTTP thread pass it to each other. */
struct look {
    struct snapshot turn;
    /* The thread that has the turn (worker or HTTP) owns these fields: */
    size_t beam;
    int64_t batch;
    float *power; /* [n_chan] */
    /* The HTTP thread owns these fields: */
    int64_t wanted_ns;
    size_t found_beam; /* index of the last sample's beam; if there was no sample, the number of beams */
    int64_t found_batch;
    float *found_power;
};

struct xbgpu_beam_health {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct timebase timebase;
    size_t n;         /* [const] number of beams */
    int64_t n_turns;  /* [const] number of batches in a second */
    size_t chan_step; /* [const] every chan_step-th channel is measured */
    struct figures *figures;
    struct look look;
};

/* ---- The worker's side ------------------------------------------------------------------------------------------- */

static uint64_t sum_squares(const int8_t *parts, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (uint64_t)(parts[i] * parts[i]);
    return sum;
}

/* Measures a beam's heap: [chan][spectrum][re, im]. */
static void measure(struct xbgpu_beam_health *h, struct figures *figures, const int8_t *heap)
{
    size_t n_spectra = h->layout->n_spectra, n = 0, n_zero = 0;
    uint64_t sum = 0;

    for (size_t chan = 0; chan < h->layout->n_chan; chan += h->chan_step, n += n_spectra) {
        const int8_t *parts = heap + chan * n_spectra * 2;
        sum += sum_squares(parts, 2 * n_spectra);
        for (size_t s = 0; s < n_spectra; s++)
            n_zero += !parts[2 * s] && !parts[2 * s + 1];
    }
    counter_add(&figures->measured_samples, n);
    counter_add(&figures->zero_samples, n_zero);
    gauge_set(&figures->rms_millionths, llrint(1e6 * sqrt((double)sum / (double)(2 * n))));
}

static void take_spectrum(struct xbgpu_beam_health *h, int64_t batch, const int8_t *heaps, size_t pitch)
{
    size_t chan_bytes = h->layout->n_spectra * 2;

    if (!snapshot_begin(&h->look.turn))
        return;
    const int8_t *heap = heaps + h->look.beam * pitch;
    for (size_t chan = 0; chan < h->layout->n_chan; chan++)
        h->look.power[chan] = (float)sum_squares(heap + chan * chan_bytes, chan_bytes) / (float)h->layout->n_spectra;
    h->look.batch = batch;
    snapshot_end(&h->look.turn);
}

void xbgpu_beam_health_take(struct xbgpu_beam_health *health, int64_t batch, const uint8_t *heaps, size_t pitch,
                            size_t n_present)
{
    struct xbgpu_beam_health *h = health;

    if (!h)
        return;
    for (size_t beam = (size_t)(batch % h->n_turns); beam < h->n; beam += (size_t)h->n_turns) {
        gauge_set(&h->figures[beam].antennas, (int64_t)n_present);
        if (n_present > 0)
            measure(h, &h->figures[beam], (const int8_t *)heaps + beam * pitch);
    }
    if (n_present > 0)
        take_spectrum(h, batch, (const int8_t *)heaps, pitch);
}

/* ---- HTTP's side ------------------------------------------------------------------------------------------------- */

/* Returns the index of the beam with this name, or n if there is none. */
static size_t find_beam(const struct xbgpu_beam_health *h, const char *name)
{
    size_t beam = name ? 0 : h->n;

    while (beam < h->n && strcmp(xbgpu_config_beam(h->config, beam)->name, name) != 0)
        beam++;
    return beam;
}

/* Copies a finished sample.  Requests the next sample from the worker if a sample is due. */
static void refresh(struct xbgpu_beam_health *h, size_t beam)
{
    struct look *look = &h->look;
    int64_t now_ns = clock_monotonic_ns();

    if (snapshot_take(&look->turn)) {
        look->found_beam = look->beam;
        look->found_batch = look->batch;
        memcpy(look->found_power, look->power, h->layout->n_chan * sizeof(float));
    }
    /* The HTTP thread may read look->beam at any time, because only the HTTP thread changes look->beam, and only
     * during its own turn. */
    if ((now_ns - look->wanted_ns < LOOK_INTERVAL_NS && beam == look->beam) || !snapshot_retract(&look->turn))
        return;
    look->beam = beam;
    look->wanted_ns = now_ns;
    snapshot_want(&look->turn);
}

static json_t *describe_spectrum(const struct xbgpu_beam_health *h, const char *channels)
{
    const struct xbgpu_config_recv *recv = &h->config->recv;
    const struct xbgpu_config_beam *beam = xbgpu_config_beam(h->config, h->look.found_beam);
    struct spectrum_points points = spectrum_points_of((size_t)recv->chan_offset, h->layout->n_chan, channels);
    int64_t timestamp_samples = h->look.found_batch * h->layout->batch_samples;
    double step_hz =
        timebase_decimal_to_double(h->config->time.adc_sample_rate_hz) / (double)recv->samples_between_spectra;
    float mean[SPECTRUM_MAX_POINTS], most[SPECTRUM_MAX_POINTS];

    spectrum_reduce(&points, h->look.found_power + points.first_chan - recv->chan_offset, 1, mean, most);
    json_t *curve = json_pack("{s:s, s:I, s:o, s:o}", "kind", "power", "pol", (json_int_t)beam->pol, "mean",
                              spectrum_decibels(mean, points.n, (double)FULL_SCALE), "most",
                              spectrum_decibels(most, points.n, (double)FULL_SCALE));
    return json_pack("{s:s, s:b, s:I, s:o, s:I, s:s, s:o, s:b, s:[o]}", "stream", beam->name, "beam", true, "timestamp",
                     (json_int_t)timestamp_samples, "time",
                     status_number((double)timebase_unix_ns(&h->timebase, timestamp_samples) / (double)NS_PER_S),
                     "n_spectra", (json_int_t)h->layout->n_spectra, "unit", "dBFS", "axis",
                     spectrum_axis(&points, 0, step_hz), "relative", recv->samples_between_spectra != 2 * recv->n_chan,
                     "curves", curve);
}

void xbgpu_beam_health_describe(struct xbgpu_beam_health *health, const struct status_query *query, json_t *into)
{
    struct xbgpu_beam_health *h = health;
    json_t *beams = json_array();

    for (size_t i = 0; h && i < h->n; i++) {
        const struct xbgpu_config_beam *beam = xbgpu_config_beam(h->config, i);
        json_array_append_new(beams, json_pack("{s:s, s:I, s:o}", "name", beam->name, "pol", (json_int_t)beam->pol,
                                               "destinations", status_endpoints(&beam->destination)));
    }
    json_object_set_new(into, "beams", beams);
    size_t beam = h ? find_beam(h, query->stream) : 0;
    if (!h || beam == h->n || query->no_spectrum)
        return;
    refresh(h, beam);
    json_object_set_new(into, "spectrum",
                        h->look.found_beam == beam ? describe_spectrum(h, query->channels) : json_null());
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static void register_metrics(struct figures *figures, const char *name)
{
    char labels[128] = "";

    stats_label(labels, sizeof(labels), "stream", name);
    stats_counter("xbgpu_output_b_measured_samples", "Complex samples of a beam that were examined for zeros.", labels,
                  &figures->measured_samples);
    stats_counter("xbgpu_output_b_zero_samples", "Complex samples of a beam that were examined and are 0.", labels,
                  &figures->zero_samples);
    stats_gauge_scaled("xbgpu_output_b_rms",
                       "Root mean square of the real and imaginary parts of a beam's samples, in quantisation steps of "
                       "the 8-bit samples, when last measured.",
                       labels, &figures->rms_millionths, 1e-6);
    stats_gauge("xbgpu_output_b_antennas",
                "Number of antennas whose heaps arrived for the batch that was last examined.", labels,
                &figures->antennas);
}

int xbgpu_beam_health_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                             struct xbgpu_beam_health **health)
{
    const struct config_time *time = &config->time;
    size_t n_samples = layout->n_chan * layout->n_spectra;

    *health = NULL;
    if (config->beams.n == 0)
        return 0;
    struct xbgpu_beam_health *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->config = config;
    h->layout = layout;
    h->timebase = (struct timebase){time->sync_time_s, time->adc_sample_rate_hz, false};
    h->n = h->look.found_beam = config->beams.n;
    h->n_turns = llround(timebase_decimal_to_double(time->adc_sample_rate_hz) / (double)layout->batch_samples);
    h->n_turns = h->n_turns > 0 ? h->n_turns : 1;
    h->chan_step = (n_samples + BEAM_HEALTH_SAMPLES - 1) / BEAM_HEALTH_SAMPLES;
    h->figures = calloc(h->n, sizeof(*h->figures));
    h->look.power = calloc(layout->n_chan, sizeof(float));
    h->look.found_power = calloc(layout->n_chan, sizeof(float));
    if (!h->figures || !h->look.power || !h->look.found_power) {
        xbgpu_beam_health_destroy(h);
        return -ENOMEM;
    }
    for (size_t i = 0; i < h->n; i++)
        register_metrics(&h->figures[i], xbgpu_config_beam(config, i)->name);
    *health = h;
    return 0;
}

void xbgpu_beam_health_destroy(struct xbgpu_beam_health *health)
{
    if (!health)
        return;
    free(health->figures);
    free(health->look.power);
    free(health->look.found_power);
    free(health);
}
