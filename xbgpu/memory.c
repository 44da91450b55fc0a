/* memory.c - adds up the memory of all stages, and checks that the host and the device have it. */
#include "xbgpu/memory.h"

#include "common/base/memory.h"
#include "common/device/device.h"
#include "common/recv/receiver.h"
#include "common/send/sender.h"
#include "xbgpu/beam/beam_audit.h"
#include "xbgpu/beam/calibration.h"
#include "xbgpu/beam/detected_audit.h"
#include "xbgpu/config/gate.h"
#include "xbgpu/beam/incoherent.h"
#include "xbgpu/settings.h"
#include "xbgpu/beam/steering.h"

#define N_SPARE_COMMANDS 16 /* number of command slots, in addition to one for each saved setting */

/* Adds the memory for selecting spectra.  Outputs with a gate and outputs with their own shifts select spectra. */
static void add_gates(const struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu,
                      struct memory_use *m)
{
    size_t n_spectra = l->n_batches * l->n_spectra;

    if (l->n_selected_batches == 0)
        return;
    size_t spectrum_bytes = l->n_ants * l->n_chan * N_POLS * voltage_bytes(l->format);
    bytes_add(&m->device_bytes, l->n_selected_batches * l->n_selected_spectra, spectrum_bytes);
    for (size_t g = 0; g < l->n_gates; g++) {
        size_t n_rows = xbgpu_gate_n_rows(xbgpu_config_gate(&config->gates, g), config);
        uint64_t list = bytes_times(n_rows * sizeof(uint32_t), n_spectra);
        uint64_t ends = bytes_times(n_rows * sizeof(uint32_t), l->n_batches + 1);
        bytes_add(&m->host_bytes, LANE_N_INPUTS,
                  bytes_plus(device_pinned_bytes(list, on_gpu), device_pinned_bytes(ends, on_gpu)));
        bytes_add(&m->device_bytes, LANE_N_INPUTS, bytes_plus(list, ends));
    }
}

/* Adds the memory of the voltage beams (beams.c). */
static void add_beams(const struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu,
                      struct memory_use *m)
{
    size_t n_beams = config->beams.n, n_heaps = l->n_batches * n_beams, saturated = n_heaps * sizeof(uint32_t);
    uint64_t voltages = bytes_times(n_heaps, l->n_chan * l->n_spectra * 2);
    uint64_t factors = xbgpu_renormalises(config) ? n_heaps * sizeof(float) : 0;

    if (n_beams == 0)
        return;
    uint64_t payload = bytes_times(n_heaps, xbgpu_beam_payload_bytes(config, l));
    uint64_t pinned = bytes_plus(device_pinned_bytes(payload, on_gpu),
                                 device_pinned_bytes(saturated, on_gpu) + device_pinned_bytes(factors, on_gpu));
    size_t n_buffers = xbgpu_beam_buffers(config, l);
    bytes_add(&m->buffers_bytes, n_buffers, pinned);
    bytes_add(&m->host_bytes, n_buffers, bytes_plus(pinned, n_heaps * 2 * sizeof(struct send_heap)));
    bytes_add(&m->host_bytes, n_buffers, l->n_ants * BEAM_AUDIT_SPECTRA * N_POLS * voltage_bytes(l->format));
    bytes_add(&m->device_bytes, n_buffers, bytes_plus(voltages, saturated + factors));
    xbgpu_steering_add_memory(l, n_beams, on_gpu, m);
}

/* Adds the memory of a stream of detected beams (detected.c). */
static void add_detected(const struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu, size_t i,
                         struct memory_use *m)
{
    struct xbgpu_detected_sizes s = xbgpu_detected_sizes(config, l, i);
    size_t saturated = s.n_beams * sizeof(uint32_t);
    size_t windows = (size_t)xbgpu_config_detected(config, i)->heap_windows;
    uint64_t pinned = bytes_plus(device_pinned_bytes(s.heap_bytes, on_gpu), device_pinned_bytes(saturated, on_gpu));

    bytes_add(&m->buffers_bytes, s.n_buffers, pinned);
    bytes_add(&m->host_bytes, s.n_buffers, bytes_plus(pinned, windows * sizeof(uint64_t)));
    bytes_add(&m->device_bytes, s.n_buffers, bytes_plus(s.heap_bytes, saturated));
    bytes_add(&m->device_bytes, s.n_buffers, bytes_times(s.n_powers, sizeof(int64_t)));
    if (xbgpu_config_detected(config, i)->kind == XBGPU_BEAM_INCOHERENT)
        xbgpu_incoherent_add_memory(l, on_gpu, m);
    else
        xbgpu_steering_add_memory(l, s.n_beams * N_POLS, on_gpu, m);
    xbgpu_detected_audit_add_memory(l, config, on_gpu, i, m);
}

/* Adds the memory of an output: dumps (send.c), sums and counts (output.c). */
static void add_output(const struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu,
                       const struct xbgpu_config_output *output, struct memory_use *m)
{
    uint64_t n_buffers = xbgpu_output_buffers(config, output), weights = l->n_baselines * sizeof(uint32_t);
    uint64_t dump = (output->gate ? xbgpu_dump_bytes(l, config, output) : l->vis_bytes) + weights;

    bytes_add(&m->buffers_bytes, n_buffers, device_pinned_bytes(dump, on_gpu) + sizeof(uint64_t));
    bytes_add(&m->host_bytes, n_buffers, device_pinned_bytes(dump, on_gpu) + sizeof(uint64_t));
    bytes_add(&m->device_bytes, n_buffers, l->vis_bytes + weights + sizeof(uint64_t));
    bytes_add(&m->device_bytes, 1, l->vis_bytes);
    if (xbgpu_output_has_totals(l, config, output))
        bytes_add(&m->device_bytes, 1, l->totals_bytes);
    if (output->audit_checksum) {
        bytes_add(&m->device_bytes, 1, l->rows_bytes);
        bytes_add(&m->device_bytes, n_buffers, l->checks_bytes);
        bytes_add(&m->host_bytes, n_buffers, device_pinned_bytes(l->checks_bytes, on_gpu));
    }
    if (output->gate)
        bytes_add(&m->host_bytes, 1, xbgpu_weights_bytes(l, config, output));
}

/* Adds the memory of the receive chunks and the inputs (recv.c, input.c). */
static void add_inputs(const struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu, size_t mtu,
                       struct memory_use *m)
{
    const struct xbgpu_config_recv *recv = &config->recv;
    size_t delays = l->n_shift_sets * l->n_ants * N_POLS * sizeof(uint32_t);
    size_t present = l->n_shift_sets * l->n_batches * l->n_ants;

    for (size_t i = 0; i < l->n_members; i++) {
        struct chunk_shape shape = xbgpu_chunk_shape(l, config, i);
        uint64_t chunks = chunk_pool_device_bytes(&shape);
        bytes_add(&m->chunks_bytes, 1, chunk_pool_host_bytes(&shape, on_gpu));
        bytes_add(&m->direct_bytes, recv->base.direct, chunks);
        bytes_add(&m->device_bytes, 1, chunks);
    }
    for (size_t t = 0; t < l->n_recv_threads; t++)
        receiver_add_memory(&recv->base, mtu, xbgpu_thread_frames(l, config, t), m);
    m->host_bytes = bytes_plus(m->host_bytes, m->chunks_bytes);
    bytes_add(&m->device_bytes, LANE_N_INPUTS * (l->n_history + l->n_batches) * l->n_ants, l->heap_bytes);
    if (!l->shifted)
        return;
    bytes_add(&m->device_bytes, l->n_batches * l->n_ants, l->heap_bytes);
    bytes_add(&m->device_bytes, LANE_N_INPUTS, present + delays);
    bytes_add(&m->host_bytes, LANE_N_INPUTS,
              device_pinned_bytes(present, on_gpu) + device_pinned_bytes(delays, on_gpu));
}

struct memory_use xbgpu_memory(const struct xbgpu_layout *layout, const struct xbgpu_config *config, bool on_gpu,
                               size_t mtu)
{
    struct memory_use m = {0};

    add_inputs(layout, config, on_gpu, mtu, &m);
    for (size_t o = 0; o < layout->n_outputs; o++)
        add_output(layout, config, on_gpu, xbgpu_config_output(config, o), &m);
    add_gates(layout, config, on_gpu, &m);
    add_beams(layout, config, on_gpu, &m);
    for (size_t i = 0; i < config->detected.n; i++)
        add_detected(layout, config, on_gpu, i, &m);
    if (config->beams.n + config->detected.n > 0)
        bytes_add(&m.host_bytes, 1, xbgpu_calibration_bytes(layout)); /* calibration.c */
    return m;
}

int xbgpu_memory_check(const struct memory_use *memory, const struct xbgpu_config *config, struct device *device,
                       char *why, size_t why_bytes)
{
    return engine_check_memory(device, memory, &config->recv.base, &config->send, "recv.batches_per_chunk",
                               "lower recv.batches_per_chunk, recv.chunks, recv.channels_per_substream, or buffers of "
                               "outputs and beams, have fewer outputs or gates, or correlate fewer recv.antennas",
                               "lower recv.batches_per_chunk, recv.chunks or recv.channels_per_substream, correlate "
                               "fewer recv.antennas, enable the GPU's resizable BAR (docs/operation.md), or set the "
                               "key to false",
                               why, why_bytes);
}

struct engine_sizes xbgpu_engine_sizes(const struct xbgpu_layout *layout, const struct xbgpu_config *config)
{
    struct engine_sizes sizes = {
        .n_lanes = 1,
        .n_chunks = layout->n_members * (size_t)config->recv.base.n_chunks,
        .n_commands = config->outputs.n + config->gates.n + 2 * config->beams.n + xbgpu_n_detected_beams(config) +
                      config->detected.n + 1 /* shifts */ + N_SPARE_COMMANDS,
        .command_bytes = sizeof(struct xbgpu_command),
        .n_recv_threads = layout->n_recv_threads,
    };

    for (size_t o = 0; o < layout->n_outputs; o++)
        sizes.n_outbufs += xbgpu_output_buffers(config, xbgpu_config_output(config, o));
    sizes.n_outbufs += xbgpu_beam_buffers(config, layout);
    for (size_t i = 0; i < config->detected.n; i++)
        sizes.n_outbufs += xbgpu_detected_sizes(config, layout, i).n_buffers;
    return sizes;
}
