/* status.c - computes numbers and spectra of outputs for the status page. */
#include "fgpu/status.h"

#include "common/base/clock.h"
#include "common/telemetry/snapshot.h"
#include "common/http/spectrum.h"
#include "common/telemetry/stats.h"
#include "common/time/timebase.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_INTERVAL_NS (900 * NS_PER_MS)

/* The result of one sample, except the powers. */
struct sample {
    int64_t timestamp_samples; /* timestamp of the first spectrum; -1: no sample yet */
    size_t n_spectra;
    int64_t next_samples; /* end of the buffer */
    struct fgpu_delay_model delays[N_POLS];
    size_t n_later[N_POLS]; /* number of models that have not started */
};

/* The samples of one output of one antenna for the status page. */
struct look {
    struct snapshot *turn; /* [const] exchange of requests with the worker; points into the stream */
    /* newest sample; the sample and 'power' belong to the side that owns the snapshot (snapshot.h) */
    struct sample sampled;
    float *power[N_POLS];       /* shape [pol][n_chan] */
    int64_t wanted_ns;          /* [HTTP] time of the last request; the fields below also belong to HTTP */
    struct sample found;        /* last sample taken */
    float *found_power[N_POLS]; /* shape [pol][n_chan] */
};

struct fgpu_status {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct timebase timebase;
    struct gauge look_ns;
    struct look looks[]; /* shape [ant][output] */
};

static size_t n_looks(const struct fgpu_status *status)
{
    return status->layout->n_ants * status->layout->n_outputs;
}

static const struct fgpu_config_output *output_of(const struct fgpu_status *status, size_t look)
{
    return fgpu_config_output(status->config, look % status->layout->n_outputs);
}

/* ---- The worker's side ------------------------------------------------------------------------------------------- */

static void add_powers_8(const uint8_t *voltages, size_t n_spectra, uint32_t sums[N_POLS])
{
    const int8_t(*v)[N_POLS][2] = (const int8_t(*)[N_POLS][2])voltages;

    for (size_t s = 0; s < n_spectra; s++)
        for (size_t pol = 0; pol < N_POLS; pol++)
            sums[pol] += (uint32_t)(v[s][pol][0] * v[s][pol][0] + v[s][pol][1] * v[s][pol][1]);
}

static void add_powers_4(const uint8_t *voltages, size_t n_spectra, uint32_t sums[N_POLS])
{
    for (size_t s = 0; s < n_spectra; s++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            uint8_t byte = voltages[s * N_POLS + pol];
            int re = (int8_t)byte >> 4, im = (int8_t)(byte << 4) >> 4;
            sums[pol] += (uint32_t)(re * re + im * im);
        }
}

void fgpu_status_power(const uint8_t *voltages, int sample_bits, size_t n_chan, size_t n_heap_spectra, size_t n_spectra,
                       float *const power[N_POLS])
{
    size_t chan_bytes = n_heap_spectra * N_POLS * 2 * (size_t)sample_bits / 8;

    for (size_t c = 0; c < n_chan; c++, voltages += chan_bytes) {
        uint32_t sums[N_POLS] = {0};
        if (sample_bits == 8)
            add_powers_8(voltages, n_spectra, sums);
        else
            add_powers_4(voltages, n_spectra, sums);
        for (size_t pol = 0; pol < N_POLS; pol++)
            power[pol][c] = (float)sums[pol] / (float)n_spectra;
    }
}

void fgpu_status_sample(struct fgpu_status *status, const struct lane *antenna, const struct fgpu_buffer *buffer)
{
    const struct fgpu_config_output *output = buffer->stream->output;
    size_t o = (size_t)(output - fgpu_config_output(status->config, 0));
    struct look *look = &status->looks[buffer->stream->ant * status->layout->n_outputs + o];
    size_t batch = fgpu_buffer_first_sent(buffer), n_spectra = fgpu_preview_spectra(output);

    if (!buffer->sampled_for_status)
        return;
    int64_t start_ns = clock_monotonic_ns();
    if (buffer->voltages)
        fgpu_status_power(buffer->voltages + batch * fgpu_batch_bytes(output), (int)output->sample_bits,
                          (size_t)output->n_chan, (size_t)output->spectra_per_heap, n_spectra, look->power);
    else
        fgpu_status_power(buffer->stream->preview_voltages, (int)output->sample_bits, (size_t)output->n_chan, n_spectra,
                          n_spectra, look->power);
    look->sampled = (struct sample){
        .timestamp_samples = buffer->timestamp_samples + (int64_t)batch * fgpu_batch_samples(output),
        .n_spectra = n_spectra,
        .next_samples = buffer->timestamp_samples +
                        (int64_t)buffer->n_filled * fgpu_batch_samples(output) / output->spectra_per_heap,
    };
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        const struct fgpu_delay_queue *queue = fgpu_output_delays(fgpu_antenna_output(antenna, o), pol);
        const struct fgpu_delay_model *model = fgpu_delay_queue_model(queue, look->sampled.next_samples);
        look->sampled.delays[pol] = *model;
        look->sampled.n_later[pol] = queue->n - 1 - (size_t)(model - queue->models);
    }
    gauge_set(&status->look_ns, clock_monotonic_ns() - start_ns);
    snapshot_end(look->turn);
}

/* ---- HTTP's side ------------------------------------------------------------------------------------------------- */

/* Copies the worker's result, and requests another sample from the worker if a sample is due. */
static void refresh(struct fgpu_status *status, size_t l, int64_t now_ns)
{
    struct look *look = &status->looks[l];

    if (snapshot_take(look->turn)) {
        look->found = look->sampled;
        for (size_t pol = 0; pol < N_POLS; pol++)
            memcpy(look->found_power[pol], look->power[pol], (size_t)output_of(status, l)->n_chan * sizeof(float));
    }
    if (now_ns - look->wanted_ns >= LOOK_INTERVAL_NS && snapshot_retract(look->turn)) {
        look->wanted_ns = now_ns;
        snapshot_want(look->turn);
    }
}

static double unix_s(const struct fgpu_status *status, int64_t timestamp_samples)
{
    return (double)timebase_unix_ns(&status->timebase, timestamp_samples) / (double)NS_PER_S;
}

/* Returns the power that corresponds to 0 dB: the power of a tone of full amplitude. */
static double full_scale(const struct fgpu_config_output *output)
{
    double most = (double)((1 << (output->sample_bits - 1)) - 1);

    return most * most;
}

static double band_hz(const struct fgpu_status *status, const struct fgpu_config_output *output)
{
    return timebase_decimal_to_double(status->config->time.adc_sample_rate_hz) / 2 / (double)fgpu_decimation(output);
}

/* Returns the frequency of channel 0 in the digitiser's band. */
static double first_hz(const struct fgpu_status *status, const struct fgpu_config_output *output)
{
    if (output->kind != FGPU_NARROWBAND)
        return 0;
    return timebase_decimal_to_double(output->band.centre_hz) - band_hz(status, output) / 2;
}

/* Returns the mean power over all channels in dBFS. */
static double level_of(const struct fgpu_status *status, size_t l, size_t pol)
{
    size_t n_chan = (size_t)output_of(status, l)->n_chan;
    double sum = 0;

    for (size_t c = 0; c < n_chan; c++)
        sum += (double)status->looks[l].found_power[pol][c];
    return 10 * log10(sum / (double)n_chan / full_scale(output_of(status, l)));
}

static json_t *describe_delay(const struct fgpu_status *status, size_t l, unsigned pol)
{
    const struct sample *found = &status->looks[l].found;
    const struct fgpu_delay_model *model = &found->delays[pol];
    double rate_hz = timebase_decimal_to_double(status->config->time.adc_sample_rate_hz);
    struct fgpu_delay_values now = fgpu_delay_evaluate(model, found->next_samples);

    return json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "antenna",
        fgpu_config_antenna(status->config, l / status->layout->n_outputs)->name, "stream", output_of(status, l)->name,
        "pol", (json_int_t)pol, "start_timestamp", (json_int_t)model->start_samples, "start_time",
        status_number(model->start_samples < 0 ? NAN : unix_s(status, model->start_samples)), "delay_s",
        status_number(model->delay_samples / rate_hz), "rate", status_number(model->rate), "acceleration_per_s",
        status_number(model->acceleration * rate_hz), "phase_rad", status_number(model->phase_rad), "now_delay_s",
        status_number(((double)now.coarse_samples + now.fine_samples) / rate_hz), "now_phase_rad",
        status_number(now.phase_rad), "later_models", (json_int_t)found->n_later[pol]);
}

static json_t *describe_look(const struct fgpu_status *status, size_t l, const char *channels)
{
    const struct look *look = &status->looks[l];
    const struct fgpu_config_output *output = output_of(status, l);
    struct spectrum_points points = spectrum_points_of(0, (size_t)output->n_chan, channels);
    json_t *curves = json_array();

    for (size_t pol = 0; pol < N_POLS; pol++) {
        float mean[SPECTRUM_MAX_POINTS], most[SPECTRUM_MAX_POINTS];
        spectrum_reduce(&points, look->found_power[pol] + points.first_chan, 1, mean, most);
        json_array_append_new(curves, json_pack("{s:s, s:I, s:o, s:o}", "kind", "power", "pol", (json_int_t)pol, "mean",
                                                spectrum_decibels(mean, points.n, full_scale(output)), "most",
                                                spectrum_decibels(most, points.n, full_scale(output))));
    }
    return json_pack("{s:s, s:s, s:I, s:o, s:I, s:s, s:o, s:o}", "stream", output->name, "antenna",
                     fgpu_config_antenna(status->config, l / status->layout->n_outputs)->name, "timestamp",
                     (json_int_t)look->found.timestamp_samples, "time",
                     status_number(unix_s(status, look->found.timestamp_samples)), "n_spectra",
                     (json_int_t)look->found.n_spectra, "unit", "dBFS", "axis",
                     spectrum_axis(&points, first_hz(status, output), band_hz(status, output) / (double)output->n_chan),
                     "curves", curves);
}

/* Returns true if the query selects this output.  A query without antenna and stream selects every output; the caller
 * shows the first output that is selected. */
static bool is_asked(const struct fgpu_status *status, const struct status_query *query, size_t l)
{
    const char *antenna = fgpu_config_antenna(status->config, l / status->layout->n_outputs)->name;

    return (!query->antenna || !strcmp(query->antenna, antenna)) &&
           (!query->stream || !strcmp(query->stream, output_of(status, l)->name));
}

static json_t *describe_output(const struct fgpu_status *status, const struct fgpu_config_output *output)
{
    return json_pack("{s:s, s:s, s:I, s:f, s:f, s:I, s:I, s:I, s:s, s:o}", "name", output->name, "kind",
                     output->kind == FGPU_NARROWBAND ? "narrowband" : "wideband", "channels",
                     (json_int_t)output->n_chan, "first_hz", first_hz(status, output), "bandwidth_hz",
                     band_hz(status, output), "sample_bits", (json_int_t)output->sample_bits, "spectra_per_heap",
                     (json_int_t)output->spectra_per_heap, "taps", (json_int_t)output->n_taps, "dither",
                     output->dither == FGPU_DITHER_NONE ? "none" : "uniform", "destinations",
                     status_endpoints(&output->destinations));
}

static void describe_config(const struct fgpu_status *status, json_t *into)
{
    json_t *antennas = json_array(), *outputs = json_array();

    for (size_t a = 0; a < status->layout->n_ants; a++)
        json_array_append_new(antennas, json_string(fgpu_config_antenna(status->config, a)->name));
    for (size_t o = 0; o < status->layout->n_outputs; o++)
        json_array_append_new(outputs, describe_output(status, fgpu_config_output(status->config, o)));
    json_object_set_new(into, "antenna_names", antennas);
    json_object_set_new(into, "outputs", outputs);
    json_object_set_new(into, "max_delay_s", json_real(status->config->recv.max_delay_s));
}

void fgpu_status_describe(void *arg, const struct status_query *query, json_t *into)
{
    struct fgpu_status *status = arg;
    const struct config_time *time = &status->config->time;
    json_t *levels = json_array(), *delays = json_array(), *spectrum = NULL;
    int64_t now_ns = clock_monotonic_ns();

    for (size_t l = 0; l < n_looks(status); l++) {
        if (!query->no_spectrum)
            refresh(status, l, now_ns);
        if (status->looks[l].found.timestamp_samples < 0)
            continue;
        for (unsigned pol = 0; pol < N_POLS; pol++) {
            json_array_append_new(levels,
                                  json_pack("{s:s, s:s, s:I, s:o, s:o}", "antenna",
                                            fgpu_config_antenna(status->config, l / status->layout->n_outputs)->name,
                                            "stream", output_of(status, l)->name, "pol", (json_int_t)pol, "dbfs",
                                            status_number(level_of(status, l, pol)), "time",
                                            status_number(unix_s(status, status->looks[l].found.timestamp_samples))));
            json_array_append_new(delays, describe_delay(status, l, pol));
        }
        if (!spectrum && !query->no_spectrum && is_asked(status, query, l))
            spectrum = describe_look(status, l, query->channels);
    }
    json_object_set_new(into, "sync_time", status_number(timebase_decimal_to_double(time->sync_time_s)));
    json_object_set_new(into, "adc_sample_rate", status_number(timebase_decimal_to_double(time->adc_sample_rate_hz)));
    describe_config(status, into);
    json_object_set_new(into, "levels", levels);
    json_object_set_new(into, "delays", delays);
    json_object_set_new(into, "spectrum", spectrum ? spectrum : json_null());
}

/* ---- Making and unmaking ---------------------------------------------------------------------------------------- */

static int create_look(struct fgpu_status *status, struct fgpu_send *send, size_t l)
{
    struct look *look = &status->looks[l];
    size_t n_chan = (size_t)output_of(status, l)->n_chan;

    look->turn = &fgpu_send_stream(send, l / status->layout->n_outputs, l % status->layout->n_outputs)->look;
    look->found.timestamp_samples = -1;
    for (size_t pol = 0; pol < N_POLS; pol++) {
        look->power[pol] = calloc(n_chan, sizeof(float));
        look->found_power[pol] = calloc(n_chan, sizeof(float));
        if (!look->power[pol] || !look->found_power[pol])
            return -ENOMEM;
    }
    return 0;
}

int fgpu_status_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct fgpu_send *send,
                       struct fgpu_status **status)
{
    size_t n = layout->n_ants * layout->n_outputs;
    struct fgpu_status *s = calloc(1, sizeof(*s) + n * sizeof(s->looks[0]));
    int err = 0;

    if (!s)
        return -ENOMEM;
    s->config = config;
    s->layout = layout;
    s->timebase = (struct timebase){config->time.sync_time_s, config->time.adc_sample_rate_hz, false};
    for (size_t l = 0; !err && l < n; l++)
        err = create_look(s, send, l);
    if (err) {
        fgpu_status_destroy(s);
        return err;
    }
    *status = s;
    stats_gauge_scaled("fgpu_snapshot_seconds",
                       "Time in which the worker collected the newest data for the status page, in seconds.", NULL,
                       &s->look_ns, 1e-9);
    return 0;
}

void fgpu_status_destroy(struct fgpu_status *status)
{
    if (!status)
        return;
    for (size_t l = 0; l < n_looks(status); l++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            free(status->looks[l].power[pol]);
            free(status->looks[l].found_power[pol]);
        }
    free(status);
}
