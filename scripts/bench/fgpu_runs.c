/* fgpu_runs.c - the work whose duration bench_fgpu measures.  See fgpu_runs.h. */
#include "scripts/bench/fgpu_runs.h"

#include "common/base/clock.h"
#include "common/base/buffer_ref.h"
#include "common/engine/lane.h"
#include "fgpu/config/layout.h"
#include "scripts/bench/bench.h"
#include "tests/unit/test_random.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define N_BUFFERS    4
#define N_INPUTS     2 /* number of inputs that the kernels use in turn */
#define N_CHUNKS     4 /* chunks in host memory */
#define RANDOM_BYTES ((size_t)16 << 20)
#define GAIN         0.1f /* with this gain, full-scale noise of 10 bits gives an rms of 21 in each component */

/* An output buffer, and the reference that returns it to 'home'. */
struct buffer {
    struct channelise_buffer parts;
    uint8_t *host; /* chain: memory for the downloaded voltages */
    struct device_event *finished;
    struct buffer_ref ref;
};

/* The data of both kinds of runs. */
struct bench_engine {
    struct fgpu_runs_config config;
    struct device *device;
    struct device_stream *compute, *download;
    struct channelise *channelise;
    float *gain;
    size_t n_spectra, spacing_samples, window_samples; /* n_spectra: number of spectra in a buffer */
    struct channelise_spectrum *spectra;               /* [n_spectra]: arguments of an append */
    struct inbox *home;
    struct buffer buffers[N_BUFFERS];
};

static void *alloc_pinned(struct device *device, size_t bytes)
{
    void *memory = device_alloc_pinned(device, bytes);

    if (!memory)
        bench_fail("device_alloc_pinned failed");
    return memory;
}

static struct device_stream *create_stream(struct device *device, const char *name)
{
    struct device_stream *stream;

    if (device_stream_create(device, name, &stream))
        bench_fail("device_stream_create failed");
    return stream;
}

static struct device_event *create_event(struct device *device)
{
    struct device_event *event;

    if (device_event_create(device, &event))
        bench_fail("device_event_create failed");
    return event;
}

static void fill_floats(float *host, size_t n)
{
    for (size_t i = 0; i < n; i++)
        host[i] = (float)((int32_t)(random_u64() >> 32) * 0x1p-31);
}

static void fill_bits(uint8_t *host, size_t bytes)
{
    for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        uint64_t word = random_u64();
        memcpy(host + i, &word, sizeof(word));
    }
    random_bytes(host + bytes / sizeof(uint64_t) * sizeof(uint64_t), bytes % sizeof(uint64_t));
}

void fgpu_runs_fill_random(struct device *device, struct device_stream *stream, void *memory, size_t bytes,
                           enum random_kind kind)
{
    size_t block_bytes = bytes < RANDOM_BYTES ? bytes : RANDOM_BYTES;
    uint8_t *host = alloc_pinned(device, block_bytes);

    if (kind == RANDOM_FLOATS)
        fill_floats((float *)host, block_bytes / sizeof(float));
    else
        fill_bits(host, block_bytes);
    for (size_t at = 0; at < bytes; at += block_bytes)
        device_copy(stream, (uint8_t *)memory + at, host, bytes - at < block_bytes ? bytes - at : block_bytes);
    device_stream_wait(stream);
    device_free_pinned(device, host);
}

/* ---- The engine -------------------------------------------------------------------------------------------------- */

static size_t samples_bytes(const struct bench_engine *e, size_t n_samples)
{
    return n_samples * e->config.channelise.sample_bits / 8;
}

size_t fgpu_runs_buffer_samples(const struct fgpu_runs_config *config)
{
    return (size_t)config->channelise.n_batches * config->channelise.spectra_per_heap *
           channelise_spacing_samples(&config->channelise);
}

static void create_buffer(struct bench_engine *e, struct buffer *buffer, bool with_host)
{
    const struct channelise_config *c = &e->config.channelise;
    size_t rotation_bytes = N_POLS * e->n_spectra * 2 * sizeof(float);

    buffer->parts = (struct channelise_buffer){
        .voltages = bench_alloc(e->device, channelise_voltage_bytes(c)),
        .saturated = bench_alloc(e->device, (size_t)c->n_batches * N_POLS * sizeof(uint32_t)),
        .rotation = alloc_pinned(e->device, rotation_bytes),
        .rotation_device = bench_alloc(e->device, rotation_bytes),
    };
    memset(buffer->parts.rotation, 0, rotation_bytes);
    buffer->host = with_host ? alloc_pinned(e->device, channelise_voltage_bytes(c)) : NULL;
    buffer->finished = create_event(e->device);
    buffer_ref_init(&buffer->ref, e->home, (struct inbox_item){.object = buffer});
    inbox_push(e->home, &buffer->ref.item);
}

static void upload_gain(struct bench_engine *e)
{
    size_t n = (size_t)e->config.channelise.n_chan * N_POLS, bytes = n * 2 * sizeof(float);
    float *host = alloc_pinned(e->device, bytes);

    for (size_t i = 0; i < n; i++) {
        host[2 * i] = GAIN;
        host[2 * i + 1] = 0;
    }
    e->gain = bench_alloc(e->device, bytes);
    device_copy(e->compute, e->gain, host, bytes);
    device_stream_wait(e->compute);
    device_free_pinned(e->device, host);
}

static void bench_engine_init(struct bench_engine *e, const struct fgpu_runs_config *config, bool with_host)
{
    *e = (struct bench_engine){.config = *config, .device = config->device};
    e->compute = create_stream(e->device, "compute");
    e->download = create_stream(e->device, "download");
    e->n_spectra = (size_t)config->channelise.n_batches * config->channelise.spectra_per_heap;
    e->spacing_samples = channelise_spacing_samples(&config->channelise);
    e->window_samples = channelise_window_samples(&config->channelise);
    e->spectra = calloc(e->n_spectra, sizeof(*e->spectra));
    if (!e->spectra || inbox_create(N_BUFFERS, &e->home) ||
        channelise_create(e->device, &config->channelise, &e->channelise))
        bench_fail("channelise_create failed");
    upload_gain(e);
    for (size_t i = 0; i < N_BUFFERS; i++)
        create_buffer(e, &e->buffers[i], with_host);
}

static void bench_engine_fini(struct bench_engine *e)
{
    device_stream_destroy(e->compute);
    device_stream_destroy(e->download);
    for (size_t i = 0; i < N_BUFFERS; i++) {
        struct buffer *buffer = &e->buffers[i];
        device_event_destroy(buffer->finished);
        device_free_pinned(e->device, buffer->host);
        device_free(e->device, buffer->parts.rotation_device);
        device_free_pinned(e->device, buffer->parts.rotation);
        device_free(e->device, buffer->parts.saturated);
        device_free(e->device, buffer->parts.voltages);
    }
    device_free(e->device, e->gain);
    channelise_destroy(e->channelise);
    inbox_destroy(e->home);
    free(e->spectra);
}

static struct buffer *take_buffer(struct bench_engine *e)
{
    struct inbox_item item;

    if (inbox_pop(e->home, &item))
        bench_fail("inbox_pop failed");
    return item.object;
}

/* Appends 'n' spectra with regular spacing.  The first of these spectra begins at sample 'offset' of the input. */
static void append(struct bench_engine *e, struct buffer *buffer, const uint8_t *const input[N_POLS], size_t offset,
                   size_t first, size_t n)
{
    const struct channelise_spectrum *const spectra[N_POLS] = {e->spectra, e->spectra};

    for (size_t i = 0; i < n; i++)
        e->spectra[i] = (struct channelise_spectrum){.offset = (int64_t)(offset + i * e->spacing_samples)};
    channelise_append(e->channelise, e->compute, input, &buffer->parts, first, n, spectra);
}

/* Finishes a buffer, downloads it if it has host memory, and returns it to 'home'. */
static void finish(struct bench_engine *e, struct buffer *buffer, uint64_t first_spectrum)
{
    channelise_finish(e->channelise, e->compute, &buffer->parts, e->gain, first_spectrum);
    device_event_record(buffer->finished, e->compute);
    device_stream_wait_event(e->download, buffer->finished);
    if (buffer->host)
        device_copy(e->download, buffer->host, buffer->parts.voltages, channelise_voltage_bytes(&e->config.channelise));
    buffer_ref_set(&buffer->ref, 1);
    device_then(e->download, buffer_ref_put, &buffer->ref);
}

/* ---- Kernels alone ----------------------------------------------------------------------------------------------- */

struct kernel_runs {
    struct bench_engine engine;
    uint8_t *inputs[N_INPUTS][N_POLS];
    size_t n_done; /* runs so far */
};

struct kernel_runs *kernel_runs_create(const struct fgpu_runs_config *config)
{
    struct kernel_runs *runs = calloc(1, sizeof(*runs));

    if (!runs)
        bench_fail("calloc failed");
    bench_engine_init(&runs->engine, config, false);
    size_t n_samples = config->n_buffers_per_run * fgpu_runs_buffer_samples(config) + runs->engine.window_samples;
    for (size_t i = 0; i < N_INPUTS; i++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            size_t bytes = samples_bytes(&runs->engine, n_samples);
            runs->inputs[i][pol] = bench_alloc(config->device, bytes + CHANNELISE_SPARE_BYTES);
            fgpu_runs_fill_random(config->device, runs->engine.compute, runs->inputs[i][pol], bytes, RANDOM_BITS);
        }
    return runs;
}

int64_t kernel_runs_time_ns(struct kernel_runs *runs, size_t n_runs)
{
    struct bench_engine *e = &runs->engine;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t r = 0; r < n_runs; r++) {
        const uint8_t *const *input = (const uint8_t *const *)runs->inputs[runs->n_done++ % N_INPUTS];
        for (size_t b = 0; b < e->config.n_buffers_per_run; b++) {
            struct buffer *buffer = take_buffer(e);
            append(e, buffer, input, b * e->n_spectra * e->spacing_samples, 0, e->n_spectra);
            finish(e, buffer, b * e->n_spectra);
        }
    }
    device_stream_wait(e->compute);
    int64_t wall_ns = clock_monotonic_ns() - start_ns;
    device_stream_wait(e->download);
    return wall_ns;
}

void kernel_runs_destroy(struct kernel_runs *runs)
{
    bench_engine_fini(&runs->engine);
    for (size_t i = 0; i < N_INPUTS; i++)
        for (size_t pol = 0; pol < N_POLS; pol++)
            device_free(runs->engine.device, runs->inputs[i][pol]);
    free(runs);
}

/* ---- The chain --------------------------------------------------------------------------------------------------- */

struct bench_input {
    uint8_t *samples[N_POLS]; /* [history | chunk] */
    struct device_event *uploaded, *consumed;
};

struct chain_runs {
    struct bench_engine engine;
    struct device_stream *upload;
    size_t history_samples;
    struct bench_input inputs[LANE_N_INPUTS];
    uint8_t *chunks[N_CHUNKS][N_POLS]; /* pinned */
    struct buffer *last;
};

struct chain_runs *chain_runs_create(const struct fgpu_runs_config *config)
{
    struct chain_runs *runs = calloc(1, sizeof(*runs));
    struct bench_engine *e = &runs->engine;

    if (!runs)
        bench_fail("calloc failed");
    bench_engine_init(e, config, true);
    assert(config->chunk_samples >= e->window_samples);
    runs->upload = create_stream(config->device, "upload");
    runs->history_samples = e->window_samples;
    size_t chunk_bytes = samples_bytes(e, config->chunk_samples);
    for (size_t i = 0; i < LANE_N_INPUTS; i++) {
        struct bench_input *in = &runs->inputs[i];
        for (size_t pol = 0; pol < N_POLS; pol++)
            in->samples[pol] = bench_alloc(config->device, samples_bytes(e, runs->history_samples) + chunk_bytes +
                                                               CHANNELISE_SPARE_BYTES);
        in->uploaded = create_event(config->device);
        in->consumed = create_event(config->device);
    }
    for (size_t i = 0; i < N_CHUNKS; i++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            runs->chunks[i][pol] = alloc_pinned(config->device, chunk_bytes);
            fill_bits(runs->chunks[i][pol], chunk_bytes < RANDOM_BYTES ? chunk_bytes : RANDOM_BYTES);
            for (size_t at = RANDOM_BYTES; at < chunk_bytes; at += RANDOM_BYTES)
                memcpy(runs->chunks[i][pol] + at, runs->chunks[i][pol],
                       chunk_bytes - at < RANDOM_BYTES ? chunk_bytes - at : RANDOM_BYTES);
        }
    return runs;
}

/* Queues the upload of chunk 'k', and the copy of its history from the previous input.  After this copy the previous
 * input is free. */
static struct bench_input *start_input(struct chain_runs *runs, size_t k)
{
    struct bench_engine *e = &runs->engine;
    struct bench_input *in = &runs->inputs[k % LANE_N_INPUTS];
    struct bench_input *previous = &runs->inputs[(k + LANE_N_INPUTS - 1) % LANE_N_INPUTS];
    size_t history_bytes = samples_bytes(e, runs->history_samples);
    size_t chunk_bytes = samples_bytes(e, e->config.chunk_samples);

    device_stream_wait_event(runs->upload, in->consumed);
    for (size_t pol = 0; pol < N_POLS; pol++)
        device_copy(runs->upload, in->samples[pol] + history_bytes, runs->chunks[k % N_CHUNKS][pol], chunk_bytes);
    device_event_record(in->uploaded, runs->upload);
    device_stream_wait_event(e->compute, in->uploaded);
    if (k > 0) {
        for (size_t pol = 0; pol < N_POLS; pol++)
            device_copy(e->compute, in->samples[pol], previous->samples[pol] + chunk_bytes, history_bytes);
        device_event_record(previous->consumed, e->compute);
    }
    return in;
}

int64_t chain_runs_time_ns(struct chain_runs *runs, size_t n_buffers)
{
    struct bench_engine *e = &runs->engine;
    size_t spacing = e->spacing_samples, chunk = e->config.chunk_samples;
    /* start of the next spectrum in samples; sample 0 is the first sample of the first input's history */
    size_t next_samples = runs->history_samples;
    size_t n_done = 0, n_filled = 0;
    struct buffer *filling = NULL;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t k = 0; n_done < n_buffers; k++) {
        struct bench_input *in = start_input(runs, k);
        const uint8_t *const input[N_POLS] = {in->samples[0], in->samples[1]};
        /* range of samples in the device input */
        size_t begin = k * chunk, end = begin + runs->history_samples + chunk;
        while (n_done < n_buffers && next_samples + e->window_samples <= end) {
            size_t n = (end - e->window_samples - next_samples) / spacing + 1;
            if (!filling)
                filling = take_buffer(e);
            if (n > e->n_spectra - n_filled)
                n = e->n_spectra - n_filled;
            append(e, filling, input, next_samples - begin, n_filled, n);
            n_filled += n;
            next_samples += n * spacing;
            if (n_filled < e->n_spectra)
                continue;
            finish(e, filling, n_done++ * e->n_spectra);
            runs->last = filling;
            filling = NULL;
            n_filled = 0;
        }
    }
    device_stream_wait(e->download);
    int64_t wall_ns = clock_monotonic_ns() - start_ns;
    device_stream_wait(runs->upload);
    device_stream_wait(e->compute);
    return wall_ns;
}

double chain_runs_output_rms(const struct chain_runs *runs)
{
    size_t n = channelise_voltage_bytes(&runs->engine.config.channelise);
    const int8_t *voltages = (const int8_t *)runs->last->host;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)voltages[i] * voltages[i];
    return sqrt(sum / (double)n);
}

void chain_runs_destroy(struct chain_runs *runs)
{
    struct device *device = runs->engine.device;

    device_stream_destroy(runs->upload);
    bench_engine_fini(&runs->engine);
    for (size_t i = 0; i < LANE_N_INPUTS; i++) {
        for (size_t pol = 0; pol < N_POLS; pol++)
            device_free(device, runs->inputs[i].samples[pol]);
        device_event_destroy(runs->inputs[i].uploaded);
        device_event_destroy(runs->inputs[i].consumed);
    }
    for (size_t i = 0; i < N_CHUNKS; i++)
        for (size_t pol = 0; pol < N_POLS; pol++)
            device_free_pinned(device, runs->chunks[i][pol]);
    free(runs);
}
