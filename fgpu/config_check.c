/* config_check.c - checks keys that depend on each other. */
#include "fgpu/config_check.h"

#include "common/engine/engine.h"
#include "common/recv/keys.h"
#include "common/send/keys.h"
#include "fgpu/gnss/gnss_config.h"
#include "fgpu/config/layout.h"
#include "fgpu/memory.h"
#include "kernels/ddc/design_ddc.h"

#include <string.h>

/* minimum pass_bandwidth as a fraction of the band; the fraction is far above rounding errors */
#define MIN_PASS_FRACTION 1e-6

static void check_recv(const struct fgpu_config *config, struct config *errors)
{
    const struct fgpu_config_recv *recv = &config->recv;
    int64_t n_min = fgpu_chunks_to_wait(recv, recv->base.window_chunks);

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
    int64_t n_min = (int64_t)fgpu_chunk_buffers(config, out) + 1;
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

    fgpu_layout_init(&layout, config);
    const struct memory_use memory = fgpu_memory(&layout, config, 0, NULL, 0);
    if (layout.history_samples > config->recv.chunk_samples)
        config_error(errors, &config->recv.chunk_samples,
                     "chunk_samples (%lld) must be at least the longest filter window plus max_delay_diff: %lld",
                     (long long)config->recv.chunk_samples, (long long)layout.history_samples);
    if (bytes_plus(memory.host_bytes, memory.device_bytes) == UINT64_MAX)
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
