/* memory.c - adds up the memory of all stages, and checks that the host and the device have it. */
#include "fgpu/memory.h"

#include "common/base/memory.h"
#include "common/device/device.h"
#include "common/recv/receiver.h"
#include "common/send/sender.h"
#include "fgpu/input/baseband.h"
#include "fgpu/gnss/gnss.h"
#include "fgpu/gnss/gnss_config.h"
#include "fgpu/settings.h"

#define N_SPARE_COMMANDS 16 /* number of command slots in addition to one slot for each output of each antenna */

/* Adds the memory of the buffers of output 'o', for all antennas (send.c). */
static void add_buffers(const struct fgpu_layout *l, const struct fgpu_config *config, size_t o, bool on_gpu,
                        const struct channelise_config *c, struct memory_use *m)
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

    bytes_add(&m->buffers_bytes, n_buffers, pinned);
    bytes_add(&m->host_bytes, n_buffers, pinned + heaps);
    bytes_add(&m->device_bytes, n_buffers, rotation + saturated + power);
    if (!config->send.gpudirect) {
        bytes_add(&m->device_bytes, n_buffers, voltages);
        return;
    }
    bytes_add(&m->device_bytes, l->n_ants, device_exported_bytes(bytes_times(n_buffers / l->n_ants, voltages)));
    bytes_add(&m->host_bytes, l->n_ants, device_pinned_bytes(fgpu_preview_bytes(output), on_gpu));
}

/* Adds the memory of output 'o' without its buffers, for all antennas (output.c, settings.c). */
static void add_output(const struct fgpu_layout *l, const struct fgpu_config *config, size_t o, size_t shared_bytes,
                       const struct channelise_config *c, struct memory_use *m)
{
    const struct fgpu_config_output *output = fgpu_config_output(config, o);
    size_t spectra = (size_t)c->n_batches * c->spectra_per_heap * N_POLS * sizeof(struct channelise_spectrum);
    size_t gains = fgpu_gain_bytes(output);

    bytes_add(&m->host_bytes, l->n_ants,
              spectra + FGPU_N_GAINS * device_pinned_bytes(gains, shared_bytes > 0) + 2 * gains);
    bytes_add(&m->device_bytes, l->n_ants, bytes_plus(gains, channelise_scratch_bytes(c, shared_bytes)));
    if (output->kind == FGPU_NARROWBAND)
        bytes_add(&m->device_bytes, l->n_ants, fgpu_baseband_bytes(l, config, &output->band, shared_bytes > 0));
}

/* Adds the memory of the receive chunks and the device inputs (recv.c, antenna.c). */
static void add_inputs(const struct fgpu_layout *l, const struct fgpu_config *config, bool on_gpu, size_t mtu,
                       struct memory_use *m)
{
    const struct fgpu_config_recv *recv = &config->recv;
    struct chunk_shape shape = fgpu_chunk_shape(l, config);
    uint64_t chunks = chunk_pool_device_bytes(&shape);
    size_t n_heaps = l->history_heaps + l->heaps_per_chunk;

    m->chunks_bytes = bytes_times(l->n_inputs, chunk_pool_host_bytes(&shape, on_gpu));
    m->direct_bytes = recv->base.direct ? bytes_times(l->n_inputs, chunks) : 0;
    m->host_bytes = bytes_plus(m->host_bytes, m->chunks_bytes);
    bytes_add(&m->host_bytes, l->n_inputs * LANE_N_INPUTS, n_heaps + (n_heaps + 1) * sizeof(uint32_t));
    bytes_add(&m->device_bytes, l->n_inputs, chunks);
    bytes_add(&m->device_bytes, l->n_inputs * LANE_N_INPUTS, fgpu_device_input_bytes(l));
    for (size_t t = 0; t < l->n_recv_threads; t++)
        receiver_add_memory(&recv->base, mtu, fgpu_thread_frames(l, config, t), m);
}

struct memory_use fgpu_memory(const struct fgpu_layout *layout, const struct fgpu_config *config, size_t shared_bytes,
                              const struct fgpu_choice *choices, size_t mtu)
{
    const bool on_gpu = shared_bytes > 0;
    struct memory_use m = {0};

    for (size_t o = 0; o < layout->n_outputs; o++) {
        struct channelise_config c = fgpu_channelise_config(config, 0, o, 0);
        if (choices)
            channelise_choice_apply(&choices[o].channelise, &c);
        add_buffers(layout, config, o, on_gpu, &c, &m);
        add_output(layout, config, o, shared_bytes, &c, &m);
    }
    for (size_t g = 0; g < config->gnss.n; g++)
        fgpu_gnss_add_memory(layout, config, fgpu_config_gnss(config, g), on_gpu, &m);
    fgpu_gnss_add_search_memory(config, &m);
    add_inputs(layout, config, on_gpu, mtu, &m);
    return m;
}

int fgpu_memory_check(const struct memory_use *memory, const struct fgpu_config *config, struct device *device,
                      char *why, size_t why_bytes)
{
    int err = fgpu_layout_check_buffers(config, device, why, why_bytes);

    if (err)
        return err;
    return engine_check_memory(device, memory, &config->recv.base, &config->send, "recv.chunk_samples",
                               "lower recv.chunk_samples or recv.chunks, lower batches_per_buffer or buffers of "
                               "outputs, or serve fewer antennas",
                               "lower recv.chunk_samples or recv.chunks, serve fewer antennas, enable the GPU's "
                               "resizable BAR (docs/operation.md), or set the key to false",
                               why, why_bytes);
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
