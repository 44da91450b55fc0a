/* layout.c - computes the sizes that follow from the configuration, and checks keys that depend on each other. */
#include "fgpu/layout.h"
#include "fgpu/settings.h"

#include "common/device/device.h"
#include "common/recv/matcher.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/recv/receiver.h"
#include "common/recv/keys.h"
#include "common/send/sender.h"
#include "common/config/transport_keys.h"
#include "common/engine/engine.h"
#include "common/base/units.h"
#include "fgpu/baseband.h"
#include "fgpu/gnss.h"
#include "fgpu/gnss_config.h"
#include "kernels/ddc/design_ddc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define N_OUTPUT_ITEMS 4 /* items of a heap: timestamp, feng_id, frequency, feng_raw */

#define TAPS_PER_SUBSAMPLE 16 /* default */
#define N_SPARE_COMMANDS   16 /* number of command slots in addition to one slot for each output of each antenna */
/* minimum pass_bandwidth as a fraction of the band; the fraction is far above rounding errors */
#define MIN_PASS_FRACTION 1e-6

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

/* Returns the number of output buffers that one chunk can fill, including a partly filled buffer. */
static size_t chunk_buffers(const struct fgpu_config *config, const struct fgpu_config_output *output)
{
    int64_t buffer_samples = fgpu_batch_samples(output) * output->n_batches;

    return (size_t)((config->recv.chunk_samples + buffer_samples - 1) / buffer_samples);
}

size_t fgpu_output_buffers(const struct fgpu_config *config, const struct fgpu_config_output *output)
{
    if (output->n_buffers > 0)
        return (size_t)output->n_buffers;
    return 2 * chunk_buffers(config, output) + 2;
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

/* Adds the memory of the buffers of output 'o', for all antennas (send.c). */
static void add_buffers(struct fgpu_layout *l, const struct fgpu_config *config, size_t o, bool on_gpu,
                        const struct channelise_config *c)
{
    const struct fgpu_config_output *output = fgpu_config_output(config, o);
    uint64_t n_buffers = l->n_ants * fgpu_output_buffers(config, output);
    size_t rotation = (size_t)c->n_batches * c->spectra_per_heap * N_POLS * 2 * sizeof(float);
    size_t power = o == fgpu_power_output(config) ? N_POLS * sizeof(uint64_t) : 0;
    size_t saturated = c->n_batches * N_POLS * sizeof(uint32_t), voltages = channelise_voltage_bytes(c);
    size_t host_voltages = config->send.gpudirect ? 0 : voltages;
    size_t n_shares = fgpu_send_shares(config, output), n_groups = c->n_batches * (1 + n_shares);
    size_t heaps = n_groups * sizeof(struct send_group) + n_shares * sizeof(struct send_job) +
                   c->n_batches * output->destinations.n * sizeof(struct send_heap);
    uint64_t pinned = device_pinned_bytes(host_voltages, on_gpu) + device_pinned_bytes(rotation, on_gpu) +
                      device_pinned_bytes(saturated, on_gpu) + device_pinned_bytes(power, on_gpu);

    bytes_add(&l->memory.buffers_bytes, n_buffers, pinned);
    bytes_add(&l->memory.host_bytes, n_buffers, pinned + heaps);
    bytes_add(&l->memory.device_bytes, n_buffers, rotation + saturated + power);
    if (!config->send.gpudirect) {
        bytes_add(&l->memory.device_bytes, n_buffers, voltages);
        return;
    }
    bytes_add(&l->memory.device_bytes, l->n_ants, device_exported_bytes(bytes_times(n_buffers / l->n_ants, voltages)));
    bytes_add(&l->memory.host_bytes, l->n_ants, device_pinned_bytes(fgpu_preview_bytes(output), on_gpu));
}

/* Adds the memory of output 'o' without its buffers, for all antennas (output.c, settings.c). */
static void add_output(struct fgpu_layout *l, const struct fgpu_config *config, size_t o, size_t shared_bytes,
                       const struct channelise_config *c)
{
    const struct fgpu_config_output *output = fgpu_config_output(config, o);
    size_t spectra = (size_t)c->n_batches * c->spectra_per_heap * N_POLS * sizeof(struct channelise_spectrum);
    size_t gains = fgpu_gain_bytes(output);

    bytes_add(&l->memory.host_bytes, l->n_ants,
              spectra + FGPU_N_GAINS * device_pinned_bytes(gains, shared_bytes > 0) + 2 * gains);
    bytes_add(&l->memory.device_bytes, l->n_ants, bytes_plus(gains, channelise_scratch_bytes(c, shared_bytes)));
    if (output->kind == FGPU_NARROWBAND)
        bytes_add(&l->memory.device_bytes, l->n_ants, fgpu_baseband_bytes(l, config, &output->band, shared_bytes > 0));
}

/* Adds the memory of the receive chunks and the device inputs (recv.c, antenna.c). */
static void add_inputs(struct fgpu_layout *l, const struct fgpu_config *config, bool on_gpu, size_t mtu)
{
    const struct fgpu_config_recv *recv = &config->recv;
    struct chunk_shape shape = fgpu_chunk_shape(l, config);
    uint64_t chunks = chunk_pool_device_bytes(&shape);
    size_t n_heaps = l->history_heaps + l->heaps_per_chunk;

    l->memory.chunks_bytes = bytes_times(l->n_inputs, chunk_pool_host_bytes(&shape, on_gpu));
    l->memory.direct_bytes = recv->base.direct ? bytes_times(l->n_inputs, chunks) : 0;
    l->memory.host_bytes = bytes_plus(l->memory.host_bytes, l->memory.chunks_bytes);
    bytes_add(&l->memory.host_bytes, l->n_inputs * LANE_N_INPUTS, n_heaps + (n_heaps + 1) * sizeof(uint32_t));
    bytes_add(&l->memory.device_bytes, l->n_inputs, chunks);
    bytes_add(&l->memory.device_bytes, l->n_inputs * LANE_N_INPUTS, fgpu_device_input_bytes(l));
    for (size_t t = 0; t < l->n_recv_threads; t++)
        receiver_add_memory(&recv->base, mtu, fgpu_thread_frames(l, config, t), &l->memory);
}

void fgpu_layout_init(struct fgpu_layout *layout, const struct fgpu_config *config, size_t shared_bytes,
                      const struct fgpu_choice *choices, size_t mtu)
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
    for (size_t o = 0; o < l.n_outputs; o++) {
        struct channelise_config c = fgpu_channelise_config(config, 0, o, 0);
        if (choices)
            channelise_choice_apply(&choices[o].channelise, &c);
        add_buffers(&l, config, o, shared_bytes > 0, &c);
        add_output(&l, config, o, shared_bytes, &c);
    }
    for (size_t g = 0; g < config->gnss.n; g++)
        fgpu_gnss_add_memory(&l, config, fgpu_config_gnss(config, g), shared_bytes > 0, &l.memory);
    fgpu_gnss_add_search_memory(config, &l.memory);
    add_inputs(&l, config, shared_bytes > 0, mtu);
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

int fgpu_layout_check_host(const struct fgpu_layout *layout, const struct fgpu_config *config, struct device *device,
                           char *why, size_t why_bytes)
{
    int err = fgpu_layout_check_buffers(config, device, why, why_bytes);

    if (err)
        return err;
    err = device_check_memory(
        device, layout->memory.host_bytes, layout->memory.device_bytes, "recv.chunk_samples",
        "lower recv.chunk_samples or recv.chunks, lower batches_per_buffer or buffers of outputs, or serve fewer "
        "antennas",
        why, why_bytes);
    if (!err && config->recv.base.direct)
        err = device_check_direct(
            device, layout->memory.direct_bytes, "recv.direct",
            "lower recv.chunk_samples or recv.chunks, serve fewer antennas, enable the GPU's resizable BAR "
            "(docs/operation.md), or set the key to false",
            why, why_bytes);
    if (!err && config->recv.base.gpudirect)
        err = device_check_exported(device, "recv.gpudirect", why, why_bytes);
    return err ? err : config_check_cpus(&config->recv.base.affinity, &config->send.affinity, why, why_bytes);
}

/* Returns the number of chunks that an input needs if one polarisation may be 'wait_chunks' chunks behind the other
 * polarisation.  The number consists of 'window_chunks' open chunks, wait_chunks + 1 chunks in the matcher, one chunk
 * that is being uploaded, and one free chunk. */
static int64_t chunks_to_wait(const struct fgpu_config_recv *recv, int64_t wait_chunks)
{
    struct matcher_config matcher = {.n_members = N_POLS, .wait_chunks = (unsigned)wait_chunks};

    return recv->base.window_chunks + (int64_t)matcher_depth(&matcher) + 2;
}

unsigned fgpu_layout_wait_chunks(const struct fgpu_config_recv *recv)
{
    return (unsigned)(recv->base.n_chunks - chunks_to_wait(recv, 0));
}

static void check_recv(const struct fgpu_config *config, struct config *errors)
{
    const struct fgpu_config_recv *recv = &config->recv;
    int64_t n_min = chunks_to_wait(recv, recv->base.window_chunks);

    if (recv->sample_bits == 11 || (recv->sample_bits > 12 && recv->sample_bits < 16))
        config_error(errors, &recv->sample_bits, "sample_bits must be from 2 to 10, or 12 or 16, not %lld",
                     (long long)recv->sample_bits);
    if (recv->packet_samples % 8 != 0)
        config_error(errors, &recv->packet_samples, "packet_samples must be a multiple of 8, not %lld",
                     (long long)recv->packet_samples);
    if (recv->chunk_samples % recv->packet_samples != 0)
        config_error(errors, &recv->chunk_samples, "chunk_samples (%lld) must be a multiple of packet_samples (%lld)",
                     (long long)recv->chunk_samples, (long long)recv->packet_samples);
    if (recv->base.n_chunks < n_min)
        config_error(errors, &recv->base.n_chunks, "chunks must be at least %lld with a window of %lld, not %lld",
                     (long long)n_min, (long long)recv->base.window_chunks, (long long)recv->base.n_chunks);
}

static void check_antennas(const struct fgpu_config *config, struct config *errors)
{
    for (size_t a = 0; a < config->antennas.n; a++) {
        const struct fgpu_config_antenna *ant = fgpu_config_antenna(config, a);
        if (ant->feng_id >= config->send.array_size)
            config_error(errors, &ant->feng_id, "feng_id %lld must be below the array_size of %lld",
                         (long long)ant->feng_id, (long long)config->send.array_size);
        for (size_t b = 0; b < a; b++) {
            if (ant->feng_id == fgpu_config_antenna(config, b)->feng_id)
                config_error(errors, &ant->feng_id, "feng_id %lld is already used by antenna %s",
                             (long long)ant->feng_id, fgpu_config_antenna(config, b)->name);
            if (strcmp(ant->name, fgpu_config_antenna(config, b)->name) == 0)
                config_error(errors, &ant->name, "two antennas are called %s", ant->name);
        }
    }
}

static const struct endpoint_list *input_endpoints(const struct fgpu_config *config, size_t input)
{
    return &fgpu_config_antenna(config, input / N_POLS)->pols[input % N_POLS];
}

/* Checks that each endpoint belongs to one input, because the endpoint determines a packet's input. */
static void check_endpoints(const struct fgpu_config *config, struct config *errors)
{
    char text[32];

    for (size_t i = 0; i < config->antennas.n * N_POLS; i++) {
        const struct endpoint_list *mine = input_endpoints(config, i);
        for (size_t m = 0; m < mine->n; m++)
            for (size_t j = 0; j <= i; j++) {
                const struct endpoint_list *others = input_endpoints(config, j);
                for (size_t n = 0; n < (j == i ? m : others->n); n++)
                    if (endpoint_equal(&mine->items[m], &others->items[n]))
                        config_error(errors, mine, "%s is already used by antenna %s pol%zu",
                                     endpoint_format(&mine->items[m], text, sizeof(text)),
                                     fgpu_config_antenna(config, j / N_POLS)->name, j % N_POLS);
            }
    }
}

/* Checks that no output is sent to the address of an input.  Reports one error for each such output. */
static void check_loops(const struct fgpu_config *config, struct config *errors)
{
    for (size_t o = 0; o < config->outputs.n && !config->recv.base.pcap_file && !config->send.pcap_file; o++)
        for (size_t i = 0; i < config->antennas.n * N_POLS; i++)
            if (send_keys_check_loop(input_endpoints(config, i), &fgpu_config_output(config, o)->destinations, errors))
                break;
}

static void check_senders(struct fgpu_config *config, struct config *errors)
{
    for (size_t a = 0; a < config->antennas.n; a++) {
        struct fgpu_config_antenna *ant = fgpu_config_antenna(config, a);
        recv_keys_check_from(&ant->from, &ant->senders, errors);
        for (size_t pol = 0; pol < N_POLS; pol++)
            recv_keys_set_senders(&ant->pols[pol], ant->from ? &ant->senders : &config->recv.base.senders);
    }
}

static void check_band(const struct fgpu_config *config, const struct fgpu_config_band *band, struct config *errors)
{
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double band_hz = rate_hz / 2 / (double)band->decimation;
    int64_t subsampling = fgpu_band_subsampling(band);

    if (timebase_decimal_to_double(band->centre_hz) > rate_hz / 2)
        config_error(errors, &band->centre_hz, "centre_frequency must be from 0 to %.9g Hz, half of the sample rate",
                     rate_hz / 2);
    if (subsampling < 2 || subsampling > DESIGN_DDC_MAX_SUBSAMPLING)
        config_error(errors, &band->decimation, "decimation must be %s, not %lld",
                     band->pass_bandwidth_hz > 0 ? "1 to 128 with a pass_bandwidth"
                                                 : "2 to 256 without a pass_bandwidth",
                     (long long)band->decimation);
    else if (fgpu_band_taps(band) < subsampling || fgpu_band_taps(band) < 4 || fgpu_band_taps(band) > 64 * subsampling)
        config_error(errors, &band->n_ddc_taps, "ddc_taps must be from %lld to %lld with this decimation, not %lld",
                     (long long)(subsampling < 4 ? 4 : subsampling), (long long)(64 * subsampling),
                     (long long)band->n_ddc_taps);
    if (band->pass_bandwidth_hz > 0 && band->pass_bandwidth_hz < MIN_PASS_FRACTION * band_hz)
        config_error(errors, &band->pass_bandwidth_hz,
                     "pass_bandwidth must be at least %.9g Hz, a millionth of the output's band, or 0, not %.9g Hz",
                     MIN_PASS_FRACTION * band_hz, band->pass_bandwidth_hz);
    if (band->pass_bandwidth_hz >= band_hz)
        config_error(errors, &band->pass_bandwidth_hz,
                     "pass_bandwidth must be less than the output's band of %.9g Hz, or 0, not %.9g Hz", band_hz,
                     band->pass_bandwidth_hz);
}

/* Returns true if a name has only characters that are allowed in a sensor's name. */
static bool is_sensor_name(const char *name)
{
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") == strlen(name);
}

static void check_output(const struct fgpu_config *config, size_t o, struct config *errors)
{
    const struct fgpu_config_output *out = fgpu_config_output(config, o);
    int64_t n_substreams = (int64_t)out->destinations.n;

    for (size_t p = 0; p < o; p++)
        if (strcmp(out->name, fgpu_config_output(config, p)->name) == 0)
            config_error(errors, &out->name, "two outputs are called %s", out->name);
    if (!is_sensor_name(out->name))
        config_error(errors, &out->name, "name must consist of letters, digits, '.', '-' and '_', not %s", out->name);
    if (out->spectra_per_heap % 16 != 0)
        config_error(errors, &out->spectra_per_heap, "spectra_per_heap must be a multiple of 16, not %lld",
                     (long long)out->spectra_per_heap);
    if (out->gain == 0)
        config_error(errors, &out->gain, "gain must not be 0: output %s would send only zeros", out->name);
    if (out->sample_bits != 4 && out->sample_bits != 8)
        config_error(errors, &out->sample_bits, "sample_bits must be 4 or 8, not %lld", (long long)out->sample_bits);
    if (out->kind == FGPU_NARROWBAND)
        check_band(config, &out->band, errors);
    if (out->n_chan % n_substreams != 0) {
        config_error(errors, &out->destinations, "%lld channels cannot be divided among %lld destinations",
                     (long long)out->n_chan, (long long)n_substreams);
        return;
    }
    send_keys_check_destinations(&config->send, &out->destinations, errors);
    /* Only some receivers need this alignment, so a misalignment is no error.  A receiver that processes each packet
     * separately expects whole channels, or a channel divided into equal packets. */
    int64_t chan_bytes = out->spectra_per_heap * N_POLS * 2 * out->sample_bits / 8;
    int64_t heap_bytes = chan_bytes * (out->n_chan / n_substreams);
    int64_t payload = config->send.packet_payload_bytes;
    if (heap_bytes > payload && payload % chan_bytes != 0 && chan_bytes % payload != 0)
        config_warning(errors,
                       config_given(errors, &config->send.packet_payload_bytes)
                           ? (const void *)&config->send.packet_payload_bytes
                           : (const void *)&out->spectra_per_heap,
                       "packets of %lld bytes do not align with the channels of %lld bytes of output %s; "
                       "use a packet_payload that is a multiple or divisor of %lld",
                       (long long)payload, (long long)chan_bytes, out->name, (long long)chan_bytes);
    /* With too few buffers the engine would drop batches of live data.  A replay waits for buffers instead. */
    int64_t n_min = (int64_t)chunk_buffers(config, out) + 1;
    if (!config->recv.base.pcap_file && out->n_buffers > 0 && out->n_buffers < n_min)
        config_error(errors, &out->n_buffers,
                     "buffers must be at least %lld, not %lld, because one chunk fills up to %lld buffers of output %s",
                     (long long)n_min, (long long)out->n_buffers, (long long)n_min - 1, out->name);
}

static void check_gnss(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss, struct config *errors)
{
    check_band(config, &gnss->band, errors);
    if (!is_sensor_name(gnss->name))
        config_error(errors, &gnss->name, "name must consist of letters, digits, '.', '-' and '_', not %s", gnss->name);
    send_keys_check_destinations(&config->send, &gnss->destination, errors);
    for (size_t i = 0; i < config->antennas.n * N_POLS && !config->recv.base.pcap_file && !config->send.pcap_file; i++)
        if (send_keys_check_loop(input_endpoints(config, i), &gnss->destination, errors))
            break;
}

static void check_sizes(const struct fgpu_config *config, struct config *errors)
{
    struct fgpu_layout layout;

    fgpu_layout_init(&layout, config, 0, NULL, 0);
    if (layout.history_samples > config->recv.chunk_samples)
        config_error(errors, &config->recv.chunk_samples,
                     "chunk_samples (%lld) must be at least the longest filter window plus max_delay_diff: %lld",
                     (long long)config->recv.chunk_samples, (long long)layout.history_samples);
    if (bytes_plus(layout.memory.host_bytes, layout.memory.device_bytes) == UINT64_MAX)
        config_error(errors, &config->recv.chunk_samples,
                     "this configuration needs more memory than 64 bits can count: lower recv.chunk_samples, "
                     "recv.chunks, batches_per_buffer or the outputs' buffers");
}

void fgpu_config_check(void *values, struct config *errors)
{
    struct fgpu_config *config = values;

    check_recv(config, errors);
    check_antennas(config, errors);
    check_endpoints(config, errors);
    check_loops(config, errors);
    check_senders(config, errors);
    for (size_t o = 0; o < config->outputs.n; o++)
        check_output(config, o, errors);
    for (size_t g = 0; g < config->gnss.n; g++)
        check_gnss(config, fgpu_config_gnss(config, g), errors);
    fgpu_gnss_check(config, errors);
    engine_keys_check(&config->daemon, &config->recv.base, &config->send, errors);
    if (config_n_errors(errors) == 0)
        check_sizes(config, errors);
}

struct engine_sizes fgpu_engine_sizes(const struct fgpu_layout *layout, const struct fgpu_config *config)
{
    struct engine_sizes sizes = {
        .n_lanes = layout->n_ants,
        .n_chunks = layout->n_inputs * (size_t)config->recv.base.n_chunks,
        .n_commands = layout->n_ants * layout->n_outputs + N_SPARE_COMMANDS,
        .command_bytes = sizeof(struct fgpu_command),
        .n_recv_threads = layout->n_recv_threads,
        .n_wakes = layout->n_ants * config->gnss.n,
        .n_other_streams = config->gnss.n > 0 ? config->gnss.n + 1 : 0, /* rounds of each stream, and searches */
    };

    sizes.n_outbufs = config->gnss.n * FGPU_GNSS_N_BUFFERS;

    for (size_t o = 0; o < layout->n_outputs; o++)
        sizes.n_outbufs += layout->n_ants * fgpu_output_buffers(config, fgpu_config_output(config, o));
    return sizes;
}

void fgpu_layout_log(const struct fgpu_layout *l)
{
    log_info("this F-engine has %zu antenna%s, %zu output%s for each antenna, and %zu receive thread%s", l->n_ants,
             plural(l->n_ants), l->n_outputs, plural(l->n_outputs), l->n_recv_threads, plural(l->n_recv_threads));
    memory_log(&l->memory);
}
