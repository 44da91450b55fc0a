/* layout.c - computes the sizes that follow from the configuration. */
#include "fgpu/config/layout.h"

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "common/recv/matcher.h"
#include "common/send/keys.h"

#include <errno.h>
#include <stdio.h>

#define N_OUTPUT_ITEMS     4  /* items of a heap: timestamp, feng_id, frequency, feng_raw */
#define TAPS_PER_SUBSAMPLE 16 /* default */

int64_t fgpu_band_taps(const struct fgpu_config_band *band)
{
    return band->n_ddc_taps ? band->n_ddc_taps : TAPS_PER_SUBSAMPLE * fgpu_band_subsampling(band);
}

/* Returns the number of bins of a narrow band's transform: its channels, or twice as many if the outer half is
 * discarded.  Returns 0 for a wide band. */
static unsigned n_bins_of(const struct fgpu_config_output *output)
{
    if (output->kind != FGPU_NARROWBAND)
        return 0;
    return (unsigned)output->n_chan * (output->band.pass_bandwidth_hz > 0 ? 1 : 2);
}

int64_t fgpu_window_samples(const struct fgpu_config_output *output)
{
    if (output->kind != FGPU_NARROWBAND)
        return output->n_taps * 2 * output->n_chan;
    return (output->n_taps * n_bins_of(output) - 1) * fgpu_subsampling(output) + fgpu_band_taps(&output->band);
}

size_t fgpu_power_output(const struct fgpu_config *config)
{
    for (size_t o = 0; o < config->outputs.n; o++)
        if (fgpu_config_output(config, o)->kind == FGPU_WIDEBAND)
            return o;
    return 0;
}

struct channelise_config fgpu_channelise_config(const struct fgpu_config *config, size_t ant, size_t output,
                                                uint64_t dither_seed)
{
    const struct fgpu_config_output *out = fgpu_config_output(config, output);
    int64_t n_buffer = out->n_batches * out->spectra_per_heap;
    int64_t n_chunk = config->recv.chunk_samples * out->spectra_per_heap / fgpu_batch_samples(out);

    /* One call of channelise_append() appends at most the spectra of a chunk.  If a buffer has fewer spectra, one
     * call appends at most the spectra of a buffer. */
    return (struct channelise_config){
        .n_chan = (unsigned)out->n_chan,
        .n_bins = n_bins_of(out),
        .n_taps = (unsigned)out->n_taps,
        .w_cutoff = out->w_cutoff,
        .window = (enum pfb_window)out->window,
        .sample_bits = (unsigned)config->recv.sample_bits,
        .spectra_per_heap = (unsigned)out->spectra_per_heap,
        .n_batches = (unsigned)out->n_batches,
        .out_bits = (unsigned)out->sample_bits,
        .dither = out->dither == FGPU_DITHER_UNIFORM,
        .power = out->kind == FGPU_WIDEBAND && output == fgpu_power_output(config),
        .seed = dither_seed,
        .stream_id = (uint32_t)(fgpu_config_antenna(config, ant)->feng_id * 256 + (int64_t)output),
        .append_spectra = (unsigned)(n_chunk < 1          ? 1
                                     : n_chunk < n_buffer ? n_chunk
                                                          : n_buffer),
    };
}

size_t fgpu_chunk_buffers(const struct fgpu_config *config, const struct fgpu_config_output *output)
{
    int64_t buffer_samples = fgpu_batch_samples(output) * output->n_batches;

    return (size_t)((config->recv.chunk_samples + buffer_samples - 1) / buffer_samples);
}

size_t fgpu_output_buffers(const struct fgpu_config *config, const struct fgpu_config_output *output)
{
    if (output->n_buffers > 0)
        return (size_t)output->n_buffers;
    return 2 * fgpu_chunk_buffers(config, output) + 2;
}

int64_t fgpu_batch_samples(const struct fgpu_config_output *output)
{
    return output->spectra_per_heap * 2 * output->n_chan * fgpu_decimation(output);
}

size_t fgpu_batch_bytes(const struct fgpu_config_output *output)
{
    return (size_t)(output->n_chan * output->spectra_per_heap * N_POLS * 2 * output->sample_bits / 8);
}

size_t fgpu_preview_spectra(const struct fgpu_config_output *output)
{
    size_t n_spectra = FGPU_PREVIEW_SAMPLES / N_POLS / (size_t)output->n_chan,
           n_heap = (size_t)output->spectra_per_heap;

    return n_spectra < 1 ? 1 : n_spectra < n_heap ? n_spectra : n_heap;
}

size_t fgpu_preview_bytes(const struct fgpu_config_output *output)
{
    return (size_t)output->n_chan * fgpu_preview_spectra(output) * N_POLS * 2 * (size_t)output->sample_bits / 8;
}

size_t fgpu_gain_bytes(const struct fgpu_config_output *output)
{
    return (size_t)output->n_chan * N_POLS * 2 * sizeof(float);
}

void fgpu_default_gains(const struct fgpu_config_output *output, float *gains)
{
    for (int64_t i = 0; i < output->n_chan * N_POLS; i++) {
        gains[2 * i] = (float)output->gain;
        gains[2 * i + 1] = 0.0f;
    }
}

size_t fgpu_send_shares(const struct fgpu_config *config, const struct fgpu_config_output *output)
{
    size_t n_shares = (size_t)config->send.n_threads / (config->antennas.n * config->outputs.n);

    if (n_shares == 0 || config->send.pcap_file)
        return 1; /* a file can have only one writer */
    return n_shares < output->destinations.n ? n_shares : output->destinations.n;
}

double fgpu_send_rate(const struct fgpu_config *config, const struct fgpu_config_output *output)
{
    size_t n_substreams = output->destinations.n, heap_bytes = fgpu_batch_bytes(output) / n_substreams;
    double batch_s = (double)fgpu_batch_samples(output) / timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    return (double)n_substreams * send_keys_rate(&config->send, heap_bytes, N_OUTPUT_ITEMS, batch_s);
}

struct chunk_shape fgpu_chunk_shape(const struct fgpu_layout *layout, const struct fgpu_config *config)
{
    return (struct chunk_shape){.n_chunks = (size_t)config->recv.base.n_chunks,
                                .n_heaps = layout->heaps_per_chunk,
                                .heap_bytes = layout->packet_bytes,
                                .direct = config->recv.base.direct,
                                .n_frames_max = layout->heaps_per_chunk * layout->frames_per_heap};
}

size_t fgpu_thread_inputs(const struct fgpu_layout *layout, size_t t)
{
    return (layout->n_inputs - t + layout->n_recv_threads - 1) / layout->n_recv_threads;
}

size_t fgpu_thread_frames(const struct fgpu_layout *layout, const struct fgpu_config *config, size_t t)
{
    struct chunk_shape chunks = fgpu_chunk_shape(layout, config);

    return fgpu_thread_inputs(layout, t) * chunks.n_chunks * chunks.n_frames_max;
}

void fgpu_layout_init(struct fgpu_layout *layout, const struct fgpu_config *config)
{
    int64_t window_max = 0;
    struct fgpu_layout l = {
        .n_ants = config->antennas.n,
        .n_inputs = config->antennas.n * N_POLS,
        .n_outputs = config->outputs.n,
        .packet_bytes = (size_t)(config->recv.packet_samples * config->recv.sample_bits / 8),
        .heaps_per_chunk = (size_t)(config->recv.chunk_samples / config->recv.packet_samples),
        .frames_per_heap = config->recv.base.gpudirect, /* a digitiser heap is one packet */
    };

    l.n_recv_threads = (size_t)config->recv.base.n_threads;
    if (l.n_recv_threads == 0 || l.n_recv_threads > l.n_inputs)
        l.n_recv_threads = l.n_inputs;
    if (config->recv.base.pcap_file)
        l.n_recv_threads = 1; /* a file can have only one reader */
    l.chunk_bytes = l.heaps_per_chunk * l.packet_bytes;

    for (size_t o = 0; o < l.n_outputs; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(config, o);
        /* The start of each window is rounded to a multiple of the subsampling.  The windows of the two polarisations
         * may be rounded in opposite directions. */
        int64_t window = fgpu_window_samples(output) + fgpu_subsampling(output) - 1;
        window_max = window > window_max ? window : window_max;
    }
    for (size_t g = 0; g < config->gnss.n; g++) {
        const struct fgpu_config_band *band = &fgpu_config_gnss(config, g)->band;
        int64_t window = fgpu_band_taps(band) + 2 * fgpu_band_subsampling(band);
        window_max = window > window_max ? window : window_max;
    }
    l.history_samples = round_up(window_max + config->recv.max_delay_diff_samples, config->recv.packet_samples);
    l.history_heaps = (size_t)(l.history_samples / config->recv.packet_samples);
    l.history_bytes = l.history_heaps * l.packet_bytes;
    *layout = l;
}

int fgpu_layout_check_buffers(const struct fgpu_config *config, struct device *device, char *why, size_t why_bytes)
{
    for (size_t o = 0; device_compiles(device) && o < config->outputs.n; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(config, o);
        if (output->n_batches * output->spectra_per_heap <= CHANNELISE_CUDA_SPECTRA)
            continue;
        snprintf(
            why, why_bytes,
            "outputs[%zu].batches_per_buffer: output %s has %lld spectra in a buffer, but the GPU kernels support at "
            "most %d",
            o, output->name, (long long)(output->n_batches * output->spectra_per_heap), CHANNELISE_CUDA_SPECTRA);
        return -EINVAL;
    }
    return 0;
}

int64_t fgpu_chunks_to_wait(const struct fgpu_config_recv *recv, int64_t wait_chunks)
{
    struct matcher_config matcher = {.n_members = N_POLS, .wait_chunks = (unsigned)wait_chunks};

    return recv->base.window_chunks + (int64_t)matcher_depth(&matcher) + 2;
}

unsigned fgpu_layout_wait_chunks(const struct fgpu_config_recv *recv)
{
    return (unsigned)(recv->base.n_chunks - fgpu_chunks_to_wait(recv, 0));
}

void fgpu_layout_log(const struct fgpu_layout *l, const struct memory_use *memory)
{
    log_info("this F-engine has %zu antenna%s, %zu output%s for each antenna, and %zu receive thread%s", l->n_ants,
             plural(l->n_ants), l->n_outputs, plural(l->n_outputs), l->n_recv_threads, plural(l->n_recv_threads));
    memory_log(memory);
}
