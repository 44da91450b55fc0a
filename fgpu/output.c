/* output.c - fills one output's buffers from an antenna's device inputs. */
#include "fgpu/output.h"

#include "common/device/device.h"
#include "fgpu/input/presence.h"
#include "common/base/units.h"
#include "common/engine/command.h"
#include "fgpu/input/baseband.h"
#include "fgpu/delay_text.h"
#include "fgpu/input/device_input.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An output confirms its time after it has produced CONFIRM_NS of data without a gap of CONFIRM_NS or more. */
#define CONFIRM_NS (10 * NS_PER_S)

struct fgpu_output {
    const struct fgpu_layout *layout;
    int64_t packet_samples;
    struct device *device;
    struct device_stream *compute, *download;
    struct fgpu_stream *stream;
    struct fgpu_baseband *baseband; /* baseband of a narrow band; NULL for a wide band */
    struct channelise *channelise;
    float *gain;                                            /* on the device: complex [chan][pol] */
    struct channelise_spectrum *spectra[N_POLS];            /* scratch memory for one append */
    int64_t spacing_samples, window_samples, batch_samples; /* [const] */
    int64_t subsampling, decimation;                        /* [const] */
    size_t n_buffer_spectra, spectra_per_heap;              /* [const] */
    struct fgpu_delay_queue delays[N_POLS];
    struct fgpu_delay_model shown[N_POLS]; /* the models that the delay sensors show */
    int64_t shown_since[N_POLS];           /* timestamps since which the models in 'shown' have been in effect */
    struct sensor delay_sensors[N_POLS];
    struct timebase timebase; /* [const] */
    struct gauge confirmed;   /* last confirmed time, as a timestamp */
    struct fgpu_gains gains[FGPU_N_GAINS];
    struct inbox *free_gains;
    struct fgpu_gains *new_gains;    /* gains for the next buffer; NULL: none */
    struct command_channel *channel; /* [const] */
    struct fgpu_buffer *filling;
    size_t n_filled; /* spectra in 'filling' */
    bool started;
    int64_t next_samples;        /* timestamp of the next spectrum */
    int64_t done_samples;        /* end of the last spectrum that was made or dropped */
    int64_t steady_samples;      /* timestamp from which the output uses all settings that were made */
    int64_t run_samples;         /* length of the output since the last long gap or restart, in samples */
    int64_t confirm_samples;     /* [const] */
    int64_t end_samples[N_POLS]; /* end of the last input */
    bool is_ahead;               /* true if the output is ahead of its input; the delay sensors report this */
    int64_t skipped_samples;     /* batches before this timestamp no longer count as skipped; 0 after a restart */
};

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

/* Queues the upload of new gains.  All work that uses the old gains must already be queued. */
static void upload_new_gains(struct fgpu_output *w)
{
    if (!w->new_gains)
        return;
    device_copy(w->compute, w->gain, w->new_gains->values, fgpu_gain_bytes(w->stream->output));
    device_then(w->compute, buffer_ref_put, &w->new_gains->ref);
    if (w->channel)
        device_then(w->compute, command_wake, w->channel);
    w->new_gains = NULL;
}

/* Takes a free output buffer.  The buffer's first batch starts at 'next_samples'.  Returns false if no buffer is
 * free. */
static bool take_buffer(struct fgpu_output *w)
{
    w->filling = (struct fgpu_buffer *)outbuf_take(&w->stream->pool);
    if (!w->filling)
        return false;
    upload_new_gains(w);
    w->filling->timestamp_samples = w->next_samples;
    for (size_t b = 0; b < w->filling->job.n_groups; b++)
        w->filling->job.groups[b].send = true;
    if (w->filling->power)
        device_fill(w->compute, w->filling->parts.power, 0, N_POLS * sizeof(*w->filling->power));
    return true;
}

/* Queues the download of the voltages.  If the host sends them, all voltages are downloaded.  If the NIC reads them
 * on the device, only spectra requested by the status page are downloaded. */
static void download_voltages(struct fgpu_output *w, struct fgpu_buffer *buffer)
{
    const struct fgpu_config_output *output = w->stream->output;
    size_t batch_bytes = fgpu_batch_bytes(output), batch = fgpu_buffer_first_sent(buffer);
    size_t n_chan = (size_t)output->n_chan, look_bytes = fgpu_preview_bytes(output) / n_chan;

    buffer->sampled_for_status = batch < buffer->job.n_groups && snapshot_begin(&w->stream->look);
    if (buffer->voltages)
        device_copy(w->download, buffer->voltages, buffer->parts.voltages, batch_bytes * buffer->job.n_groups);
    else if (buffer->sampled_for_status)
        device_copy_2d(w->download, w->stream->preview_voltages, look_bytes,
                       buffer->parts.voltages + batch * batch_bytes, batch_bytes / n_chan, look_bytes, n_chan);
}

/* Transforms the buffer's spectra and queues the download.  Batches after the filled batches are padding and are
 * never sent. */
static void finish_buffer(struct fgpu_output *w)
{
    struct fgpu_buffer *buffer = w->filling;
    size_t n_batches = w->n_filled / w->spectra_per_heap;

    buffer->n_filled = w->n_filled;
    buffer->whole = true;
    w->filling = NULL;
    w->n_filled = 0;
    for (size_t b = 0; b < buffer->job.n_groups; b++) {
        struct send_group *group = &buffer->job.groups[b];
        buffer->whole = buffer->whole && group->send;
        if (b < n_batches && !group->send)
            counter_add(&w->stream->skipped_heaps, group->n_heaps);
        group->send = group->send && b < n_batches;
    }
    channelise_finish(w->channelise, w->compute, &buffer->parts, w->gain,
                      (uint64_t)(buffer->timestamp_samples / w->spacing_samples));
    outbuf_finish(&buffer->base, w->compute, w->download);
    download_voltages(w, buffer);
    device_copy(w->download, buffer->saturated, buffer->parts.saturated,
                buffer->job.n_groups * N_POLS * sizeof(uint32_t));
    if (buffer->power)
        device_copy(w->download, buffer->power, buffer->parts.power, N_POLS * sizeof(*buffer->power));
    /* When the download has ended, a NIC may read the voltages.  CUDA gives the callback (cudaLaunchHostFunc) the same
     * guarantees as host code that has waited for the download.  CUDA's synchronisation is sufficient for a NIC that
     * reads the GPU's memory.  Only writes by a NIC would need a flush (GPUDirect RDMA, "Synchronization and Memory
     * Ordering"). */
    outbuf_download(&buffer->base, w->download);
}

void fgpu_output_flush(struct fgpu_output *w)
{
    if (!w->filling)
        return;
    if (w->n_filled >= w->spectra_per_heap) {
        finish_buffer(w);
    } else {
        outbuf_give(&w->filling->base);
        w->filling = NULL;
        w->n_filled = 0;
    }
}

/* ---- Where the next spectrum is ---------------------------------------------------------------------------------- */

/* Position of a spectrum's windows relative to the input.  FITS: the windows of both polarisations lie in the input.
 * TOO_EARLY: a window begins before the input, so no later input will contain the window.  TOO_LATE: a window ends
 * after the input, so a later input may contain the window. */
enum fit { FITS, TOO_EARLY /* never again */, TOO_LATE /* not yet */ };

/* Returns the timestamp of the first input sample that the output may use. */
static int64_t first_of(const struct fgpu_output *w, const struct fgpu_device_input *in, unsigned pol)
{
    if (!w->started)
        return in->first_samples[pol];
    return in->timestamp_samples + (in->has_history ? 0 : w->layout->history_samples);
}

/* Computes the windows, fine delays and phases of the spectrum at 't_samples' into spectra[pol][i]. */
static enum fit place_spectrum(struct fgpu_output *w, const struct fgpu_device_input *in, int64_t t_samples, size_t i)
{
    enum fit fit = FITS;

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        struct fgpu_delay_values values = fgpu_delay_queue_at(&w->delays[pol], t_samples, w->subsampling);
        int64_t start = t_samples - values.coarse_samples;
        if (start < first_of(w, in, pol))
            fit = TOO_EARLY;
        else if (start + w->window_samples > in->end_samples[pol] && fit == FITS)
            fit = TOO_LATE;
        w->spectra[pol][i] = (struct channelise_spectrum){
            .offset = start - in->timestamp_samples,
            .fine = (float)(values.fine_samples / (double)w->decimation),
            /* The mixer's phase follows the input's timestamps, so the coarse delay does not rotate the phase at the
             * band's centre. */
            .phase = (float)(w->baseband ? values.phase_rad : fgpu_delay_wideband_phase(&values)),
        };
    }
    return fit;
}

/* Places the windows of up to 'n_max' spectra.  The first spectrum starts at 'next_samples'.  Tries the spectra in
 * order, until a spectrum does not fit.  Returns the number of spectra that fit.  '*fit' becomes the position of the
 * last tried spectrum's windows. */
static size_t place_spectra(struct fgpu_output *w, const struct fgpu_device_input *in, size_t n_max, enum fit *fit)
{
    for (size_t i = 0; i < n_max; i++) {
        *fit = place_spectrum(w, in, w->next_samples + (int64_t)i * w->spacing_samples, i);
        if (*fit != FITS)
            return i;
    }
    return n_max;
}

/* Starts again at the first batch that the input allows, and counts the skipped batches.  Returns false if no future
 * batch is possible with the present delays. */
static bool skip_to(struct fgpu_output *w, const struct fgpu_device_input *in)
{
    const struct fgpu_delay_queue *const delays[N_POLS] = {&w->delays[0], &w->delays[1]};
    const int64_t first_samples[N_POLS] = {first_of(w, in, 0), first_of(w, in, 1)};
    int64_t next = fgpu_delay_skip(delays, first_samples, N_POLS, w->subsampling, w->started ? w->next_samples : 0,
                                   w->batch_samples);

    fgpu_output_flush(w);
    if (next == INT64_MAX)
        return false;
    if (w->started) {
        int64_t cut = round_down(w->next_samples, w->batch_samples);
        int64_t from = cut > w->skipped_samples ? cut : w->skipped_samples;
        if (next > from)
            counter_add(&w->stream->skipped_heaps,
                        (uint64_t)((next - from) / w->batch_samples) * w->stream->output->destinations.n);
        if (next - w->next_samples >= w->confirm_samples)
            w->run_samples = 0;
    } else if (w->steady_samples > next) {
        w->steady_samples = next;
    }
    w->started = true;
    w->next_samples = next;
    if (next > w->skipped_samples)
        w->skipped_samples = next;
    return true;
}

/* ---- Spectra ----------------------------------------------------------------------------------------------------- */

/* Marks each batch in which a spectrum lacks input on 'pol'.  The spectra are [first, first + n) of the buffer. */
static void note_presence(struct fgpu_output *w, const struct fgpu_device_input *in, unsigned pol, size_t first,
                          size_t n)
{
    const struct channelise_spectrum *spectra = w->spectra[pol];

    for (size_t i = 0; i < n; i++) {
        size_t heap_first = (size_t)(spectra[i].offset / w->packet_samples);
        size_t heap_end = (size_t)((spectra[i].offset + w->window_samples - 1) / w->packet_samples) + 1;
        if (!fgpu_presence_all(in->sums[pol], heap_first, heap_end))
            w->filling->job.groups[(first + i) / w->spectra_per_heap].send = false;
    }
}

/* Converts offsets in the device input to offsets in the baseband's samples. */
static void place_in_baseband(struct fgpu_output *w, const struct fgpu_device_input *in, size_t n)
{
    for (unsigned pol = 0; pol < N_POLS; pol++)
        for (size_t i = 0; i < n; i++)
            w->spectra[pol][i].offset =
                fgpu_baseband_index(w->baseband, in->timestamp_samples + w->spectra[pol][i].offset);
}

static void show_delay(struct fgpu_output *w)
{
    double delay_samples = fmax(fabs(w->shown[0].delay_samples), fabs(w->shown[1].delay_samples));
    double delay_ps = 1e12 * delay_samples / timebase_decimal_to_double(w->timebase.adc_sample_rate_hz);

    gauge_set(&w->stream->delay_ps, delay_ps < 0x1p62 ? (int64_t)delay_ps : INT64_MAX);
}

static void show_model(struct fgpu_output *w, unsigned pol)
{
    struct sensor_reading reading = fgpu_delay_text_reading(&w->shown[pol], &w->timebase, w->shown_since[pol]);

    if (w->is_ahead)
        reading.status = SENSOR_ERROR;
    sensor_set(&w->delay_sensors[pol], reading);
}

/* Publishes the duration of the input that must still arrive before the next batch can begin.  Called when no spectrum
 * fits.  The windows of the next spectrum are in spectra[pol][0].  A wait for at most one batch is normal and is
 * published as 0. */
static void note_ahead(struct fgpu_output *w, const struct fgpu_device_input *in)
{
    int64_t ahead_samples = 0;

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        int64_t missing_samples = in->timestamp_samples + w->spectra[pol][0].offset - in->end_samples[pol];
        if (missing_samples > w->batch_samples && missing_samples > ahead_samples)
            ahead_samples = missing_samples;
    }
    gauge_set(&w->stream->ahead_ns, timebase_duration_ns(&w->timebase, ahead_samples));
    if (w->is_ahead == (ahead_samples > 0))
        return;
    w->is_ahead = ahead_samples > 0;
    for (unsigned pol = 0; pol < N_POLS; pol++)
        show_model(w, pol);
}

/* Counts 'n_samples' more samples of output.  Confirms the output's time if enough samples have been produced without a
 * long gap. */
static void note_run(struct fgpu_output *w, int64_t n_samples)
{
    w->run_samples += n_samples;
    if (w->run_samples >= w->confirm_samples || w->next_samples < gauge_get(&w->confirmed))
        gauge_set(&w->confirmed, w->next_samples);
}

/* Updates the models in the delay sensors.  Called after the spectra from 'first_samples' to 'last_samples' have been
 * made. */
static void note_models(struct fgpu_output *w, int64_t first_samples, int64_t last_samples)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        const struct fgpu_delay_model *model = fgpu_delay_queue_model(&w->delays[pol], last_samples);
        int64_t since = model->start_samples > first_samples ? model->start_samples : first_samples;
        /* If time jumped to a time before 'shown_since', the model is shown again, as in effect since the jump. */
        if (memcmp(model, &w->shown[pol], sizeof(*model)) == 0 && w->shown_since[pol] <= since)
            continue;
        w->shown[pol] = *model;
        w->shown_since[pol] = since;
        show_model(w, pol);
        show_delay(w);
    }
}

/* Appends 'n' placed spectra to the open buffer, and finishes the buffer if it is full. */
static void append_spectra(struct fgpu_output *w, const struct fgpu_device_input *in, size_t n)
{
    const uint8_t *samples[N_POLS] = {in->samples[0], in->samples[1]};
    const struct channelise_spectrum *const spectra[N_POLS] = {w->spectra[0], w->spectra[1]};

    for (unsigned pol = 0; pol < N_POLS; pol++)
        note_presence(w, in, pol, w->n_filled, n);
    for (unsigned pol = 0; pol < N_POLS && w->baseband; pol++)
        samples[pol] = fgpu_baseband_samples(w->baseband, pol);
    if (w->baseband && w->filling->power)
        fgpu_baseband_measure(w->baseband, w->compute, in, spectra, n, w->filling->parts.power);
    if (w->baseband)
        place_in_baseband(w, in, n);
    channelise_append(w->channelise, w->compute, samples, &w->filling->parts, w->n_filled, n, spectra);
    for (size_t b = w->n_filled / w->spectra_per_heap; b <= (w->n_filled + n - 1) / w->spectra_per_heap; b++)
        w->filling->job.groups[b].ready_ns = in->last_arrival_ns;
    w->n_filled += n;
    note_models(w, w->next_samples, w->next_samples + (int64_t)(n - 1) * w->spacing_samples);
    w->next_samples += (int64_t)n * w->spacing_samples;
    w->done_samples = w->next_samples;
    note_run(w, (int64_t)n * w->spacing_samples);
    if (w->n_filled == w->n_buffer_spectra)
        finish_buffer(w);
}

/* Skips as many batches as 'n' spectra need, and counts these batches as dropped.  Called when no buffer is free. */
static void drop_batches(struct fgpu_output *w, size_t n)
{
    size_t n_batches = (n + w->spectra_per_heap - 1) / w->spectra_per_heap;

    counter_add(&w->stream->dropped_heaps, n_batches * w->stream->output->destinations.n);
    w->next_samples += (int64_t)n_batches * w->batch_samples;
    w->done_samples = w->next_samples;
}

bool fgpu_output_advance(struct fgpu_output *w, const struct fgpu_device_input *in, bool may_wait)
{
    if (w->baseband)
        fgpu_baseband_advance(w->baseband, w->compute, in);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        w->end_samples[pol] = in->end_samples[pol];
    if (!w->started && !skip_to(w, in))
        return true;
    for (;;) {
        enum fit fit;
        size_t n = place_spectra(w, in, w->n_buffer_spectra - w->n_filled, &fit);
        if (n == 0 && fit == TOO_LATE)
            note_ahead(w, in);
        if (n == 0 && (fit == TOO_LATE || !skip_to(w, in)))
            return true;
        if (n == 0)
            continue;
        if (w->filling || take_buffer(w))
            append_spectra(w, in, n);
        else if (may_wait)
            return false;
        else
            drop_batches(w, n);
    }
}

/* Records 'samples' as the timestamp from which all settings made so far are in effect.  Returns 'samples'. */
static int64_t set_steady(struct fgpu_output *w, int64_t samples)
{
    if (samples > w->steady_samples)
        w->steady_samples = samples;
    return samples;
}

/* Finds the first batch whose windows begin after all input so far.  If this batch is earlier than 'next_samples',
 * moves 'next_samples' back to the batch.  Otherwise does nothing. */
static void resume(struct fgpu_output *w)
{
    const struct fgpu_delay_queue *const delays[N_POLS] = {&w->delays[0], &w->delays[1]};
    const int64_t ends_samples[N_POLS] = {w->end_samples[0], w->end_samples[1]};
    int64_t next = fgpu_delay_skip(delays, ends_samples, N_POLS, w->subsampling, 0, w->batch_samples);

    if (!w->started || next >= w->next_samples)
        return;
    fgpu_output_flush(w);
    w->next_samples = w->done_samples = w->skipped_samples = next;
    if (w->steady_samples > next)
        w->steady_samples = next;
}

int64_t fgpu_output_set_delays(struct fgpu_output *w, const struct fgpu_delays *delays)
{
    memcpy(w->delays, delays->pols, sizeof(w->delays));
    /* Because of the replaced models, the output may have skipped to a distant time.  The new models may allow an
     * earlier time. */
    if (w->started && !w->filling)
        w->next_samples = round_up(w->done_samples, w->batch_samples);
    if (delays->resumes)
        resume(w);
    return set_steady(w, w->started ? w->next_samples : 0);
}

int64_t fgpu_output_steady_samples(const struct fgpu_output *w)
{
    return w->steady_samples;
}

int64_t fgpu_output_confirmed_samples(const struct fgpu_output *w)
{
    return gauge_get(&w->confirmed);
}

struct sensor *fgpu_output_delay_sensor(struct fgpu_output *w, unsigned pol)
{
    return &w->delay_sensors[pol];
}

const struct fgpu_delay_queue *fgpu_output_delays(const struct fgpu_output *w, unsigned pol)
{
    return &w->delays[pol];
}

struct fgpu_gains *fgpu_output_take_gains(struct fgpu_output *w)
{
    struct inbox_item item;

    return inbox_try_pop(w->free_gains, &item) ? NULL : item.object;
}

int64_t fgpu_output_set_gains(struct fgpu_output *w, struct fgpu_gains *gains)
{
    buffer_ref_set(&gains->ref, 1);
    if (w->new_gains)
        buffer_ref_put(&w->new_gains->ref);
    w->new_gains = gains;
    if (w->filling)
        return set_steady(w, w->filling->timestamp_samples + (int64_t)w->n_buffer_spectra * w->spacing_samples);
    return set_steady(w, w->started ? w->next_samples : 0);
}

void fgpu_output_restart(struct fgpu_output *w)
{
    fgpu_output_flush(w);
    if (w->baseband)
        fgpu_baseband_restart(w->baseband);
    w->started = false;
    w->done_samples = 0;
    w->skipped_samples = 0;
    w->run_samples = 0;
    gauge_set(&w->stream->ahead_ns, 0);
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

/* Creates the gains, all equal to the output's configured gain. */
static int create_gains(struct fgpu_output *w, size_t output)
{
    size_t bytes = fgpu_gain_bytes(w->stream->output);
    int err = inbox_create(FGPU_N_GAINS, &w->free_gains);

    if (err)
        return err;
    w->gain = device_alloc(w->device, bytes);
    if (!w->gain)
        return -ENOMEM;
    for (size_t i = 0; i < FGPU_N_GAINS; i++) {
        struct fgpu_gains *gains = &w->gains[i];
        gains->ant = w->stream->ant;
        gains->output = output;
        gains->values = device_alloc_pinned(w->device, bytes);
        if (!gains->values)
            return -ENOMEM;
        fgpu_default_gains(w->stream->output, gains->values);
        buffer_ref_init(&gains->ref, w->free_gains, (struct inbox_item){0, 0, gains});
        inbox_push(w->free_gains, &(struct inbox_item){0, 0, gains});
    }
    device_copy(w->compute, w->gain, w->gains[0].values, bytes);
    device_stream_wait(w->compute); /* this wait may block, but blocking is allowed before READY */
    return 0;
}

int fgpu_output_create(const struct fgpu_output_config *c, struct fgpu_output **walk)
{
    struct fgpu_output *w = calloc(1, sizeof(*w));
    struct channelise_config config =
        fgpu_channelise_config(c->config, c->stream->ant, c->output, c->choice->dither_seed);

    if (!w)
        return -ENOMEM;
    channelise_choice_apply(&c->choice->channelise, &config);
    w->layout = c->layout;
    w->packet_samples = c->config->recv.packet_samples;
    w->device = c->device;
    w->compute = c->compute;
    w->download = c->download;
    w->stream = c->stream;
    w->channel = c->channel;
    w->decimation = fgpu_decimation(w->stream->output);
    w->subsampling = fgpu_subsampling(w->stream->output);
    w->spacing_samples = (int64_t)channelise_spacing_samples(&config) * w->subsampling;
    w->window_samples = fgpu_window_samples(w->stream->output);
    w->batch_samples = fgpu_batch_samples(w->stream->output);
    w->timebase = fgpu_timebase(c->config);
    w->confirm_samples = timebase_duration_samples(&w->timebase, CONFIRM_NS);
    w->spectra_per_heap = config.spectra_per_heap;
    w->n_buffer_spectra = (size_t)config.n_batches * config.spectra_per_heap;
    int err = 0;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        fgpu_delay_queue_init(&w->delays[pol]);
        w->shown[pol] = w->delays[pol].models[0];
        w->spectra[pol] = calloc(w->n_buffer_spectra, sizeof(*w->spectra[pol]));
        if (!w->spectra[pol])
            err = -ENOMEM;
    }
    if (!err)
        err = channelise_create(w->device, &config, &w->channelise);
    if (!err)
        err = create_gains(w, c->output);
    if (!err && w->stream->output->kind == FGPU_NARROWBAND)
        err = fgpu_baseband_create(c->config, c->layout, c->device, &w->stream->output->band, c->choice->filter,
                                   &c->choice->ddc, c->output == fgpu_power_output(c->config) ? w->spacing_samples : 0,
                                   &w->baseband);
    if (err) {
        fgpu_output_destroy(w);
        return err;
    }
    *walk = w;
    return 0;
}

void fgpu_output_destroy(struct fgpu_output *w)
{
    if (!w)
        return;
    channelise_destroy(w->channelise);
    fgpu_baseband_destroy(w->baseband);
    device_free(w->device, w->gain);
    for (size_t i = 0; i < FGPU_N_GAINS; i++)
        device_free_pinned(w->device, w->gains[i].values);
    inbox_destroy(w->free_gains);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        free(w->spectra[pol]);
    free(w);
}
