/* antenna.c - the middle stage: pairs of chunks become batches of spectra. */
#include "fgpu/antenna.h"

#include "common/device.h"
#include "common/log.h"
#include "common/matcher.h"
#include "common/presence.h"
#include "common/stats.h"
#include "common/units.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fgpu_device_input {
    struct loan loan;              /* home: the worker's inbox */
    struct fgpu_antenna *antenna;  /* [const] */
    uint8_t *samples[N_POLS];      /* [const] device: [history | chunk], packed */
    uint8_t *present[N_POLS];      /* [const] [history_heaps + heaps_per_chunk] flags */
    uint32_t *sums[N_POLS];        /* [const] their prefix sums */
    struct device_event *uploaded; /* [const] */
    int64_t timestamp_samples;     /* of the first sample of the history */
    int64_t first_samples;         /* timestamp of the first sample of both polarisations, if a stream starts here */
    int64_t end_samples;           /* timestamp behind the last sample that there is */
    bool has_history;
    int64_t last_arrival_ns;
};

/* How far one output has come. */
struct output_walk {
    struct fgpu_stream *stream;                             /* [const] */
    struct channelise *channelise;                          /* [const] */
    float *gain;                                            /* [const] device: complex [chan][pol] */
    struct channelise_spectrum *spectra[N_POLS];            /* [const] scratch for one append */
    int64_t spacing_samples, window_samples, batch_samples; /* [const] */
    size_t n_buffer_spectra, spectra_per_heap;              /* [const] */
    struct fgpu_buffer *filling;
    size_t n_filled; /* spectra in 'filling' */
    bool started;
    int64_t next_samples; /* timestamp of the next spectrum */
};

struct fgpu_antenna {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    const char *name; /* the configuration's */
    struct device *device;
    struct device_stream *upload, *compute, *download;
    struct matcher *matcher;
    struct fgpu_device_input inputs[FGPU_N_DEVICE_INPUTS];
    struct fgpu_device_input *free_inputs[FGPU_N_DEVICE_INPUTS];
    size_t n_free_inputs;
    struct fgpu_device_input *previous; /* whose tail is the next one's history */
    struct fgpu_device_input *current;  /* being walked */
    int64_t newest_samples;             /* timestamp of the newest pair */
    struct output_walk *walks;          /* [n_outputs] */
    size_t n_finished;                  /* buffers finished so far */
    struct counter clipped_samples[N_POLS];
    struct counter unmatched_chunks;
    struct counter late_chunks;
};

static void flush_walk(struct fgpu_antenna *a, struct output_walk *w);

/* ---- Pairs of chunks to device inputs -------------------------------------------------------------------------- */

void fgpu_antenna_add_chunk(struct fgpu_antenna *antenna, unsigned pol, struct chunk *chunk)
{
    matcher_add(antenna->matcher, pol, chunk);
}

struct fgpu_antenna *fgpu_antenna_give_input(struct fgpu_device_input *input)
{
    struct fgpu_antenna *antenna = input->antenna;

    antenna->free_inputs[antenna->n_free_inputs++] = input;
    return antenna;
}

void fgpu_antenna_end(struct fgpu_antenna *antenna)
{
    for (unsigned pol = 0; pol < N_POLS; pol++)
        matcher_end(antenna->matcher, pol);
}

/* The device input before is not needed any more once all that has been queued has run. */
static void release_previous(struct fgpu_antenna *a)
{
    if (!a->previous)
        return;
    loan_out(&a->previous->loan, 1);
    device_then(a->compute, loan_put, &a->previous->loan);
    a->previous = NULL;
}

static void count_saturated(struct fgpu_antenna *a, unsigned pol, const struct chunk *chunk)
{
    uint64_t sum = 0;

    for (size_t h = 0; h < chunk->n_heaps; h++)
        sum += chunk->extra[h];
    counter_add(&a->clipped_samples[pol], sum);
}

/* Presence of [history | chunk]. */
static void set_presence(struct fgpu_antenna *a, struct fgpu_device_input *in, unsigned pol, const struct chunk *chunk)
{
    size_t n_history = a->layout->history_heaps, n_chunk = a->layout->heaps_per_chunk;

    if (in->has_history)
        memcpy(in->present[pol], a->previous->present[pol] + n_chunk, n_history);
    else
        memset(in->present[pol], 0, n_history);
    memcpy(in->present[pol] + n_history, chunk->present, n_chunk);
    presence_sums(in->present[pol], n_history + n_chunk, in->sums[pol]);
}

/* Heaps of a chunk before the first that arrived. */
static size_t n_leading_absent(const struct chunk *chunk)
{
    size_t n = 0;

    while (n < chunk->n_heaps && !chunk->present[n])
        n++;
    return n;
}

/* Queues the upload of a pair, and the copy of its history behind it. */
static void start_input(struct fgpu_antenna *a, struct fgpu_device_input *in, struct chunk *const *pair,
                        int64_t timestamp_samples)
{
    const struct fgpu_layout *l = a->layout;

    in->timestamp_samples = timestamp_samples - l->history_samples;
    in->has_history =
        a->previous && a->previous->timestamp_samples + a->config->recv.chunk_samples == in->timestamp_samples;
    in->first_samples = timestamp_samples;
    in->end_samples = timestamp_samples + a->config->recv.chunk_samples;
    in->last_arrival_ns = 0;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        struct chunk *chunk = pair[pol];
        set_presence(a, in, pol, chunk);
        count_saturated(a, pol, chunk);
        if (chunk->last_arrival_ns > in->last_arrival_ns)
            in->last_arrival_ns = chunk->last_arrival_ns;
        int64_t packet_samples = a->config->recv.packet_samples;
        int64_t first_samples = timestamp_samples + (int64_t)n_leading_absent(chunk) * packet_samples;
        int64_t end_samples = timestamp_samples + (int64_t)chunk->n_times * packet_samples;
        if (first_samples > in->first_samples)
            in->first_samples = first_samples;
        if (end_samples < in->end_samples)
            in->end_samples = end_samples;
        device_copy(a->upload, in->samples[pol] + l->history_bytes, chunk->payload, l->chunk_bytes);
        device_then(a->upload, loan_put, &chunk->loan);
    }
    device_event_record(in->uploaded, a->upload);
    device_stream_wait_event(a->compute, in->uploaded);
    for (unsigned pol = 0; pol < N_POLS && in->has_history; pol++)
        device_copy(a->compute, in->samples[pol], a->previous->samples[pol] + l->chunk_bytes, l->history_bytes);
    release_previous(a);
}

/* The digitisers were started anew: what comes is older than what was, and nothing of it can be continued. */
static void forget_past(struct fgpu_antenna *a)
{
    release_previous(a);
    for (size_t o = 0; o < a->layout->n_outputs; o++) {
        flush_walk(a, &a->walks[o]);
        a->walks[o].started = false;
    }
}

/* Makes the next pair the current device input.  Returns false if there is none, or nowhere to put it. */
static bool next_input(struct fgpu_antenna *a)
{
    struct chunk *pair[N_POLS];
    int64_t timestamp_samples;

    while (a->n_free_inputs && matcher_next(a->matcher, pair, &timestamp_samples)) {
        if (pair[0] && pair[1]) {
            if (timestamp_samples <= a->newest_samples)
                forget_past(a);
            a->newest_samples = timestamp_samples;
            a->current = a->free_inputs[--a->n_free_inputs];
            start_input(a, a->current, pair, timestamp_samples);
            return true;
        }
        for (unsigned pol = 0; pol < N_POLS; pol++)
            if (pair[pol]) {
                counter_add(&a->unmatched_chunks, 1);
                loan_put(&pair[pol]->loan);
            }
    }
    return false;
}

/* ---- Device inputs to output buffers ------------------------------------------------------------------------------
 * */

/* Transforms what is in the buffer and queues its download.  Batches beyond the filled ones are padding and never
 * sent. */
static void finish_buffer(struct fgpu_antenna *a, struct output_walk *w)
{
    struct fgpu_buffer *buffer = w->filling;
    size_t n_batches = w->n_filled / w->spectra_per_heap;

    w->filling = NULL;
    w->n_filled = 0;
    for (size_t b = 0; b < buffer->job.n_groups; b++) {
        struct send_group *group = &buffer->job.groups[b];
        if (b < n_batches && !group->send)
            counter_add(&w->stream->skipped_heaps, group->n_heaps);
        group->send = group->send && b < n_batches;
    }
    channelise_finish(w->channelise, a->compute, &buffer->parts, w->gain,
                      (uint64_t)(buffer->timestamp_samples / w->spacing_samples));
    device_event_record(buffer->finished, a->compute);
    device_stream_wait_event(a->download, buffer->finished);
    device_copy(a->download, buffer->voltages, buffer->parts.voltages,
                fgpu_batch_bytes(w->stream->output) * buffer->job.n_groups);
    device_copy(a->download, buffer->saturated, buffer->parts.saturated,
                buffer->job.n_groups * N_POLS * sizeof(uint32_t));
    loan_out(&buffer->download, 1);
    device_then(a->download, loan_put, &buffer->download);
    a->n_finished++;
}

/* Gives up the batch that is being filled and what has not been sent of the buffer before it leaves. */
static void flush_walk(struct fgpu_antenna *a, struct output_walk *w)
{
    if (!w->filling)
        return;
    if (w->n_filled >= w->spectra_per_heap) {
        finish_buffer(a, w);
    } else {
        fgpu_stream_give(w->filling);
        w->filling = NULL;
        w->n_filled = 0;
    }
}

/* Starts again at the first batch that the input from 'first_samples' on allows. */
static void restart_walk(struct fgpu_antenna *a, struct output_walk *w, int64_t first_samples)
{
    int64_t next_samples = round_up(first_samples, w->batch_samples);

    if (w->started) {
        int64_t n_skipped = (next_samples - round_down(w->next_samples, w->batch_samples)) / w->batch_samples;
        if (n_skipped > 0)
            counter_add(&w->stream->skipped_heaps, (uint64_t)n_skipped * w->stream->output->destinations.n);
        flush_walk(a, w);
    }
    w->started = true;
    w->next_samples = next_samples;
}

/* Takes an output buffer for the batches from 'next' on. */
static bool take_buffer(struct output_walk *w)
{
    w->filling = fgpu_stream_take(w->stream);
    if (!w->filling)
        return false;
    w->filling->timestamp_samples = w->next_samples;
    for (size_t b = 0; b < w->filling->job.n_groups; b++)
        w->filling->job.groups[b].send = true;
    return true;
}

/* Marks the batches whose spectra [first, first + n) of the buffer miss input on 'pol'. */
static void note_presence(struct fgpu_antenna *a, struct output_walk *w, const struct fgpu_device_input *in,
                          unsigned pol, size_t first, size_t n)
{
    int64_t packet = a->config->recv.packet_samples;
    const struct channelise_spectrum *spectra = w->spectra[pol];

    for (size_t i = 0; i < n; i++) {
        size_t heap_first = (size_t)(spectra[i].offset / packet);
        size_t heap_end = (size_t)((spectra[i].offset + w->window_samples - 1) / packet) + 1;
        if (!presence_all(in->sums[pol], heap_first, heap_end))
            w->filling->job.groups[(first + i) / w->spectra_per_heap].send = false;
    }
}

/* Appends 'n' spectra from 'next' on. */
static void append_spectra(struct fgpu_antenna *a, struct output_walk *w, const struct fgpu_device_input *in, size_t n)
{
    const uint8_t *const samples[N_POLS] = {in->samples[0], in->samples[1]};
    const struct channelise_spectrum *const spectra[N_POLS] = {w->spectra[0], w->spectra[1]};

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        for (size_t i = 0; i < n; i++)
            w->spectra[pol][i] = (struct channelise_spectrum){
                .offset = w->next_samples + (int64_t)i * w->spacing_samples - in->timestamp_samples};
        note_presence(a, w, in, pol, w->n_filled, n);
    }
    channelise_append(w->channelise, a->compute, samples, &w->filling->parts, w->n_filled, n, spectra);
    for (size_t b = w->n_filled / w->spectra_per_heap; b <= (w->n_filled + n - 1) / w->spectra_per_heap; b++)
        w->filling->job.groups[b].ready_ns = in->last_arrival_ns;
    w->n_filled += n;
    w->next_samples += (int64_t)n * w->spacing_samples;
}

/* Walks one output through the current input.  Returns false if it must wait for an output buffer. */
static bool walk_output(struct fgpu_antenna *a, struct output_walk *w, const struct fgpu_device_input *in,
                        bool may_wait)
{
    int64_t end = in->end_samples;
    int64_t first = in->timestamp_samples + (in->has_history ? 0 : a->layout->history_samples);

    if (!w->started)
        restart_walk(a, w, in->first_samples);
    else if (w->next_samples < first)
        restart_walk(a, w, first);
    while (w->next_samples + w->window_samples <= end) {
        if (!w->filling && !take_buffer(w)) {
            if (may_wait)
                return false;
            counter_add(&w->stream->dropped_heaps, w->stream->output->destinations.n);
            w->next_samples += w->batch_samples;
            continue;
        }
        size_t n = (size_t)((end - w->window_samples - w->next_samples) / w->spacing_samples) + 1;
        if (n > w->n_buffer_spectra - w->n_filled)
            n = w->n_buffer_spectra - w->n_filled;
        append_spectra(a, w, in, n);
        if (w->n_filled == w->n_buffer_spectra)
            finish_buffer(a, w);
    }
    return true;
}

bool fgpu_antenna_advance(struct fgpu_antenna *antenna, bool may_wait)
{
    for (;;) {
        if (!antenna->current && !next_input(antenna))
            return antenna->n_free_inputs > 0; /* else there may be more sets */
        bool done = true;
        for (size_t o = 0; o < antenna->layout->n_outputs; o++)
            done = walk_output(antenna, &antenna->walks[o], antenna->current, may_wait) && done;
        if (!done)
            return false;
        antenna->previous = antenna->current;
        antenna->current = NULL;
    }
}

void fgpu_antenna_flush(struct fgpu_antenna *antenna)
{
    for (size_t o = 0; o < antenna->layout->n_outputs; o++)
        flush_walk(antenna, &antenna->walks[o]);
}

void fgpu_antenna_log(const struct fgpu_antenna *antenna)
{
    log_info("%s: %llu chunks discarded for want of the other polarisation's, %llu because they came too late for it",
             antenna->name, (unsigned long long)counter_get(&antenna->unmatched_chunks),
             (unsigned long long)counter_get(&antenna->late_chunks));
}

size_t fgpu_antenna_n_finished(const struct fgpu_antenna *antenna)
{
    return antenna->n_finished;
}

/* ---- Making and unmaking ------------------------------------------------------------------------------------------
 * */

static int create_input(struct fgpu_antenna *a, const struct fgpu_antenna_config *c, struct fgpu_device_input *in)
{
    size_t n_heaps = a->layout->history_heaps + a->layout->heaps_per_chunk;

    in->antenna = a;
    loan_init(&in->loan, c->worker, (struct inbox_item){c->input_free_kind, 0, in});
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        in->samples[pol] = device_alloc(a->device, fgpu_device_input_bytes(a->layout));
        in->present[pol] = calloc(n_heaps, 1);
        in->sums[pol] = calloc(n_heaps + 1, sizeof(uint32_t));
        if (!in->samples[pol] || !in->present[pol] || !in->sums[pol])
            return -ENOMEM;
    }
    return device_event_create(a->device, &in->uploaded);
}

/* The gain is one real number for now; its table on the device is complex per channel and polarisation. */
static int upload_gain(struct fgpu_antenna *a, struct output_walk *w)
{
    size_t n = (size_t)w->stream->output->n_chan * N_POLS;
    float *host = device_alloc_pinned(a->device, n * 2 * sizeof(float));

    w->gain = device_alloc(a->device, n * 2 * sizeof(float));
    if (!host || !w->gain) {
        device_free_pinned(a->device, host);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        host[2 * i] = (float)w->stream->output->gain;
        host[2 * i + 1] = 0.0f;
    }
    device_copy(a->compute, w->gain, host, n * 2 * sizeof(float));
    device_stream_wait(a->compute); /* before READY */
    device_free_pinned(a->device, host);
    return 0;
}

static int create_walk(struct fgpu_antenna *a, const struct fgpu_antenna_config *c, size_t o)
{
    struct output_walk *w = &a->walks[o];
    struct channelise_config config = fgpu_channelise_config(a->config, c->ant, o, c->dither_seeds[o]);

    channelise_choice_apply(&c->choices[o], &config);
    w->stream = fgpu_send_stream(c->send, c->ant, o);
    w->spacing_samples = (int64_t)channelise_spacing_samples(&config);
    w->window_samples = (int64_t)channelise_window_samples(&config);
    w->batch_samples = fgpu_batch_samples(w->stream->output);
    w->spectra_per_heap = config.spectra_per_heap;
    w->n_buffer_spectra = (size_t)config.n_batches * config.spectra_per_heap;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        w->spectra[pol] = calloc(w->n_buffer_spectra, sizeof(*w->spectra[pol]));
        if (!w->spectra[pol])
            return -ENOMEM;
    }
    int err = channelise_create(a->device, &config, &w->channelise);
    return err ? err : upload_gain(a, w);
}

static void register_metrics(struct fgpu_antenna *a)
{
    char labels[256] = "", with_pol[280];

    stats_label(labels, sizeof(labels), "antenna", a->name);
    stats_counter("fgpu_unmatched_chunks", "Chunks discarded because the other polarisation's was missing.", labels,
                  &a->unmatched_chunks);
    stats_counter("fgpu_late_chunks", "Chunks discarded because later ones had been processed.", labels,
                  &a->late_chunks);
    for (int pol = 0; pol < N_POLS; pol++) {
        char value[2] = {(char)('0' + pol), '\0'};
        snprintf(with_pol, sizeof(with_pol), "%s", labels);
        stats_label(with_pol, sizeof(with_pol), "pol", value);
        stats_counter("fgpu_input_clipped_samples", "Samples that the digitiser reports as saturated.", with_pol,
                      &a->clipped_samples[pol]);
    }
}

int fgpu_antenna_create(const struct fgpu_antenna_config *config, struct fgpu_antenna **antenna)
{
    struct fgpu_antenna *a = calloc(1, sizeof(*a));
    char name[32];

    if (!a)
        return -ENOMEM;
    a->config = config->config;
    a->layout = config->layout;
    a->name = fgpu_config_antenna(a->config, config->ant)->name;
    a->device = config->device;
    a->upload = config->upload;
    a->download = config->download;
    a->newest_samples = INT64_MIN;
    struct matcher_config matcher = {
        .n_members = N_POLS,
        .window_chunks = (unsigned)a->config->recv.window_chunks,
        .jump_members = N_POLS,
        .chunk_samples = a->config->recv.chunk_samples,
        .max_chunks = N_POLS * (size_t)a->config->recv.n_chunks,
        .late_chunks = &a->late_chunks,
    };
    snprintf(name, sizeof(name), "compute%zu", config->ant);
    int err = matcher_create(&matcher, &a->matcher);
    if (!err)
        err = device_stream_create(a->device, name, &a->compute);
    for (size_t i = 0; !err && i < FGPU_N_DEVICE_INPUTS; i++) {
        err = create_input(a, config, &a->inputs[i]);
        a->free_inputs[a->n_free_inputs++] = &a->inputs[i];
    }
    a->walks = err ? NULL : calloc(a->layout->n_outputs, sizeof(*a->walks));
    if (!err && !a->walks)
        err = -ENOMEM;
    for (size_t o = 0; !err && o < a->layout->n_outputs; o++)
        err = create_walk(a, config, o);
    if (err) {
        fgpu_antenna_destroy(a);
        return err;
    }
    register_metrics(a);
    *antenna = a;
    return 0;
}

void fgpu_antenna_destroy(struct fgpu_antenna *antenna)
{
    if (!antenna)
        return;
    matcher_destroy(antenna->matcher);
    device_stream_destroy(antenna->compute);
    for (size_t o = 0; antenna->walks && o < antenna->layout->n_outputs; o++) {
        struct output_walk *w = &antenna->walks[o];
        channelise_destroy(w->channelise);
        device_free(antenna->device, w->gain);
        free(w->spectra[0]);
        free(w->spectra[1]);
    }
    free(antenna->walks);
    for (size_t i = 0; i < FGPU_N_DEVICE_INPUTS; i++) {
        struct fgpu_device_input *in = &antenna->inputs[i];
        device_event_destroy(in->uploaded);
        for (unsigned pol = 0; pol < N_POLS; pol++) {
            device_free(antenna->device, in->samples[pol]);
            free(in->present[pol]);
            free(in->sums[pol]);
        }
    }
    free(antenna);
}
