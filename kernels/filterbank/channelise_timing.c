/* channelise_timing.c - the work that is timed, made once for all candidates. */
#include "kernels/filterbank/channelise_timing.h"

#include "common/base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANDOM_BYTES (1 << 20) /* made on the host, and copied to wherever random bits are wanted */
#define OUT_SIGMA(b) ((b) == 8 ? 20 : 2)

struct timing {
    struct device *device;
    struct channelise_work work;
    int64_t run_ns;
    unsigned n_runs;
    size_t n_spectra; /* of an output buffer */
    struct device_stream *stream;
    struct channelise_buffer buffer;
    uint8_t *input[N_POLS]; /* device */
    float *gain;            /* device */
    struct channelise_spectrum *spectra;
};

/* ---- Making it --------------------------------------------------------------------------------------------------- */

/* Marsaglia's xorshift64*. */
static uint64_t random_u64(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

static int fill_inputs(struct timing *t, size_t bytes)
{
    uint64_t *host = device_alloc_pinned(t->device, RANDOM_BYTES), state = 1;

    if (!host)
        return -ENOMEM;
    for (size_t i = 0; i < RANDOM_BYTES / sizeof(*host); i++)
        host[i] = random_u64(&state);
    for (size_t pol = 0; pol < N_POLS; pol++)
        for (size_t at = 0; at < bytes; at += RANDOM_BYTES)
            device_copy(t->stream, t->input[pol] + at, host, bytes - at < RANDOM_BYTES ? bytes - at : RANDOM_BYTES);
    device_stream_wait(t->stream);
    device_free_pinned(t->device, host);
    return 0;
}

/* As white noise of full scale has a standard deviation of 2^bits / sqrt(12), and comes out with 1 / sqrt(2) of that. */
static int upload_gain(struct timing *t)
{
    const struct channelise_config *c = &t->work.config;
    size_t n = (size_t)c->n_chan * N_POLS, bytes = n * 2 * sizeof(float);
    float *host = device_alloc_pinned(t->device, bytes);

    if (!host)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        host[2 * i] = (float)(OUT_SIGMA(c->out_bits) * sqrt(24) / exp2(c->sample_bits));
        host[2 * i + 1] = 0;
    }
    device_copy(t->stream, t->gain, host, bytes);
    device_stream_wait(t->stream);
    device_free_pinned(t->device, host);
    return 0;
}

static int alloc_all(struct timing *t, size_t input_bytes)
{
    const struct channelise_config *c = &t->work.config;
    size_t rotation_bytes = N_POLS * t->n_spectra * 2 * sizeof(float);
    bool all;

    t->buffer.voltages = device_alloc(t->device, channelise_voltage_bytes(c));
    t->buffer.saturated = device_alloc(t->device, c->n_batches * N_POLS * sizeof(uint32_t));
    t->buffer.rotation = device_alloc_pinned(t->device, rotation_bytes);
    t->buffer.rotation_device = device_alloc(t->device, rotation_bytes);
    t->gain = device_alloc(t->device, (size_t)c->n_chan * N_POLS * 2 * sizeof(float));
    t->spectra = calloc(t->n_spectra, sizeof(*t->spectra));
    all = t->buffer.voltages && t->buffer.saturated && t->buffer.rotation && t->buffer.rotation_device && t->gain &&
          t->spectra;
    for (size_t pol = 0; pol < N_POLS; pol++) {
        t->input[pol] = device_alloc(t->device, input_bytes);
        all = all && t->input[pol];
    }
    return all ? 0 : -ENOMEM;
}

int timing_create(struct device *device, const struct channelise_work *work, int64_t run_ns, unsigned n_runs,
                  struct timing **timing)
{
    const struct channelise_config *c = &work->config;
    struct timing *t = calloc(1, sizeof(*t));
    size_t spacing = channelise_spacing_samples(c), input_bytes;

    if (!t)
        return -ENOMEM;
    *t = (struct timing){.device = device, .work = *work, .run_ns = run_ns, .n_runs = n_runs};
    t->n_spectra = (size_t)c->n_batches * c->spectra_per_heap;
    input_bytes = (channelise_window_samples(c) + t->n_spectra * spacing) * c->sample_bits / 8 + CHANNELISE_SPARE_BYTES;
    int err = device_stream_create(device, "tune", &t->stream);
    if (!err)
        err = alloc_all(t, input_bytes);
    if (!err)
        err = fill_inputs(t, input_bytes);
    if (!err)
        err = upload_gain(t);
    if (err) {
        timing_destroy(t);
        return err;
    }
    for (size_t i = 0; i < t->n_spectra; i++)
        t->spectra[i] = (struct channelise_spectrum){.offset = (int64_t)(i * spacing), .fine = 0.3f, .phase = 0.5f};
    *timing = t;
    return 0;
}

void timing_destroy(struct timing *timing)
{
    if (!timing)
        return;
    device_stream_destroy(timing->stream);
    for (size_t pol = 0; pol < N_POLS; pol++)
        device_free(timing->device, timing->input[pol]);
    device_free(timing->device, timing->gain);
    device_free(timing->device, timing->buffer.rotation_device);
    device_free_pinned(timing->device, timing->buffer.rotation);
    device_free(timing->device, timing->buffer.saturated);
    device_free(timing->device, timing->buffer.voltages);
    free(timing->spectra);
    free(timing);
}

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

static void queue(struct timing *t, struct channelise *channelise, enum channelise_part part)
{
    const uint8_t *const input[N_POLS] = {t->input[0], t->input[1]};
    size_t piece;

    if (part == PART_BACK)
        channelise_finish(channelise, t->stream, &t->buffer, t->gain, 0);
    for (size_t first = 0; part == PART_FRONT && first < t->n_spectra; first += piece) {
        const struct channelise_spectrum *const spectra[N_POLS] = {t->spectra + first, t->spectra + first};
        piece = t->n_spectra - first;
        piece = piece < t->work.append_spectra ? piece : t->work.append_spectra;
        channelise_append(channelise, t->stream, input, &t->buffer, first, piece, spectra);
    }
}

/* Time for one of 'n' buffers. */
static double time_run(struct timing *t, struct channelise *channelise, enum channelise_part part, size_t n)
{
    device_stream_wait(t->stream);
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        queue(t, channelise, part);
    device_stream_wait(t->stream);
    return (double)(clock_monotonic_ns() - start_ns) / (double)n;
}

int timing_measure(void *of, const struct channelise_choice *choice, enum channelise_part part, double hopeless_ns,
                   double *ns)
{
    struct timing *timing = of;
    struct channelise_config config = timing->work.config;
    struct channelise *channelise;

    channelise_choice_apply(choice, &config);
    *ns = INFINITY;
    int err = channelise_create(timing->device, &config, &channelise);
    if (err)
        return err == -ENOMEM ? 0 : err;
    queue(timing, channelise, PART_FRONT); /* so that the back has something to work on */
    queue(timing, channelise, part);
    size_t n = 1 + (size_t)((double)timing->run_ns / time_run(timing, channelise, part, 1));
    for (unsigned i = 0; i < timing->n_runs && (i == 0 || *ns <= hopeless_ns); i++)
        *ns = fmin(*ns, time_run(timing, channelise, part, n));
    channelise_destroy(channelise);
    return device_ok(timing->device) ? 0 : -EIO;
}
