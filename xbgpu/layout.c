/* layout.c - computes the sizes that follow from the configuration, and checks keys that depend on each other. */
#include "xbgpu/layout.h"

#include "common/device/device.h"
#include "common/recv/matcher.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/recv/receiver.h"
#include "common/recv/keys.h"
#include "common/config/transport_keys.h"
#include "common/engine/engine.h"
#include "common/base/units.h"
#include "common/send/sender.h"
#include "kernels/beamform/beam_detect.h"
#include "kernels/correlate/checksum_dump.h"
#include "kernels/correlate/correlate.h"
#include "xbgpu/beam_audit.h"
#include "xbgpu/detected_audit.h"
#include "xbgpu/incoherent.h"
#include "xbgpu/settings.h"
#include "xbgpu/steering.h"
#include "xbgpu/gate.h"
#include "common/engine/labels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define N_SPARE_COMMANDS 16 /* number of command slots, in addition to one for each saved setting */

#define MAX_SPECTRA UINT32_MAX /* maximum number of spectra in a dump, because a weight has 32 bits */
/* Number of spectra in a batch of spectra that a gate selected.  The last batch of a window is padded.  Short batches
 * need less padding.  The fastest of 32, 64, 128 and 256 has not been measured yet. */
#define SELECTED_SPECTRA 64
/* Seconds of data for which the beams' output buffers have room.  A stall of the host up to this duration loses no
 * data.  The number of buffers is limited. */
#define BUFFERS_S   0.05
#define BUFFERS_MIN 8
#define BUFFERS_MAX 64
/* greatest length of a window or dump, in samples: a quarter of the range of 48-bit timestamps */
#define MAX_SAMPLES 0x1p46

int64_t xbgpu_integration_batches(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    if (output->integration_batches > 0)
        return output->integration_batches;
    double batch_s = (double)(config->recv.spectra_per_heap * config->recv.samples_between_spectra) /
                     timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double n = round(output->integration_time_s / batch_s);
    return n < 1 ? 1 : (int64_t)n;
}

/* Returns the number of dumps that can end in one chunk. */
static int64_t chunk_dumps(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    int64_t n_length = xbgpu_integration_batches(config, output);

    return (config->recv.batches_per_chunk + n_length - 1) / n_length;
}

size_t xbgpu_output_buffers(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    if (output->n_buffers > 0)
        return (size_t)output->n_buffers;
    return 2 * (size_t)chunk_dumps(config, output) + 2;
}

bool xbgpu_output_has_totals(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                             const struct xbgpu_config_output *output)
{
    return (uint64_t)xbgpu_integration_batches(config, output) * layout->n_spectra >
           correlate_max_spectra(layout->format);
}

size_t xbgpu_member_first(const struct xbgpu_layout *layout, size_t m)
{
    return m * layout->n_ants / layout->n_members;
}

size_t xbgpu_thread_first(const struct xbgpu_layout *layout, size_t t)
{
    return t * layout->n_members / layout->n_recv_threads;
}

int xbgpu_output_gate(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    return output->gate ? xbgpu_find_gate(&config->gates, output->gate) : -1;
}

size_t xbgpu_output_gate_rows(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    int gate = xbgpu_output_gate(config, output);

    return gate < 0 ? 0 : xbgpu_gate_n_rows(xbgpu_config_gate(&config->gates, (size_t)gate), config);
}

size_t xbgpu_output_shift_set(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    size_t set = 0;

    for (size_t o = 0; output->shifts.n > 0 && xbgpu_config_output(config, o) <= output; o++)
        set += xbgpu_config_output(config, o)->shifts.n > 0;
    return set;
}

static size_t n_dump_items(const struct xbgpu_config_output *output)
{
    return 3 + (output->missing == XBGPU_MISSING_WEIGHTS ? 1 : 0) + (output->gate ? 2 : 0);
}

size_t xbgpu_weights_bytes(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                           const struct xbgpu_config_output *output)
{
    size_t n_rows = output->gate ? xbgpu_output_gate_rows(config, output) : 1;

    return output->missing == XBGPU_MISSING_WEIGHTS ? n_rows * layout->n_baselines * sizeof(uint32_t) : 0;
}

size_t xbgpu_dump_bytes(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                        const struct xbgpu_config_output *output)
{
    size_t gate_spectra = output->gate ? layout->n_chan * sizeof(uint32_t) : 0;

    return layout->vis_bytes + xbgpu_weights_bytes(layout, config, output) + gate_spectra;
}

struct correlate_args xbgpu_correlate_sizes(const struct xbgpu_layout *layout, bool gated)
{
    return (struct correlate_args){
        .format = layout->format,
        .n_ants = (uint32_t)layout->n_ants,
        .n_chan = (uint32_t)layout->n_chan,
        .n_spectra = (uint32_t)(gated ? layout->n_selected_spectra : layout->n_spectra),
    };
}

double xbgpu_send_rate(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                       const struct xbgpu_config_output *output)
{
    double dump_s = (double)(xbgpu_integration_batches(config, output) * layout->batch_samples) /
                    timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    return send_keys_rate(&config->send, xbgpu_dump_bytes(layout, config, output), n_dump_items(output), dump_s);
}

/* Returns the default number of buffers, each of which has room for 'buffer_s' seconds of data. */
static size_t default_buffers(double buffer_s)
{
    double n = ceil(BUFFERS_S / buffer_s);

    return n < BUFFERS_MIN ? BUFFERS_MIN : n > BUFFERS_MAX ? BUFFERS_MAX : (size_t)n;
}

size_t xbgpu_beam_buffers(const struct xbgpu_config *config, const struct xbgpu_layout *layout)
{
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    if (config->beams.n == 0)
        return 0;
    return config->steering.n_buffers > 0 ? (size_t)config->steering.n_buffers
                                          : default_buffers((double)layout->chunk_samples / rate_hz);
}

size_t xbgpu_beam_payload_bytes(const struct xbgpu_config *config, const struct xbgpu_layout *layout)
{
    return layout->n_chan * layout->n_spectra * 2 + (config->steering.antenna_mask ? (layout->n_ants + 7) / 8 : 0);
}

double xbgpu_beam_rate(const struct xbgpu_config *config, const struct xbgpu_layout *layout)
{
    double batch_s = (double)layout->batch_samples / timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    return (double)config->beams.n * send_keys_rate(&config->send, xbgpu_beam_payload_bytes(config, layout),
                                                    4 + config->steering.antenna_mask, batch_s);
}

struct xbgpu_detected_sizes xbgpu_detected_sizes(const struct xbgpu_config *config, const struct xbgpu_layout *l,
                                                 size_t i)
{
    const struct xbgpu_config_detected *d = xbgpu_config_detected(config, i);
    struct xbgpu_detected_sizes s = {
        .n_beams = (size_t)d->n_beams,
        .n_products = beam_n_products((enum beam_products)d->products),
        .n_groups = l->n_chan / (size_t)d->group_channels,
        .heap_spectra = d->heap_windows * d->window_spectra,
        .fractions_bytes = (size_t)d->heap_windows * sizeof(float),
        .n_items = d->format == XBGPU_POWER_UINT8 ? 7 : 5,
    };
    double heap_s = (double)s.heap_spectra * (double)config->recv.samples_between_spectra /
                    timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    size_t chunk_spectra = l->n_batches * l->n_spectra;

    s.n_cells = s.n_products * s.n_groups;
    s.n_powers = s.n_beams * (size_t)d->heap_windows * s.n_cells;
    s.scales_bytes = d->format == XBGPU_POWER_UINT8 ? s.n_beams * s.n_cells * sizeof(float) : 0;
    s.heap_bytes = s.fractions_bytes + 2 * s.scales_bytes + (s.scales_bytes ? 1 : sizeof(float)) * s.n_powers;
    size_t least = 2 * (chunk_spectra / (size_t)s.heap_spectra + 1) + 1, n = default_buffers(heap_s);
    s.n_buffers = d->n_buffers > 0 ? (size_t)d->n_buffers : n > least ? n : least;
    s.rate = send_keys_rate(&config->send, s.heap_bytes, s.n_items, heap_s);
    return s;
}

size_t xbgpu_n_detected_beams(const struct xbgpu_config *config)
{
    size_t n = 0;

    for (size_t i = 0; i < config->detected.n; i++)
        n += (size_t)xbgpu_config_detected(config, i)->n_beams;
    return n;
}

static enum voltage_format format_of(const struct xbgpu_config_recv *recv)
{
    if (recv->sample_bits == 4)
        return recv->sample_encoding == XBGPU_OFFSET ? VOLTAGES_4_BITS_OFFSET : VOLTAGES_4_BITS;
    return recv->sample_bits == 8 ? VOLTAGES_8_BITS : VOLTAGES_16_BITS;
}

uint32_t xbgpu_delay(const struct xbgpu_layout *layout, int64_t shift)
{
    return (uint32_t)(shift + (int64_t)(layout->n_lag * layout->n_spectra));
}

int64_t xbgpu_config_shift(const struct xbgpu_config *config, size_t i)
{
    return config->recv.shifts.n > 0 ? config->recv.shifts.items[i] : 0;
}

static void add_shifts(struct xbgpu_layout *l, const struct config_int_list *shifts)
{
    for (size_t i = 0; i < shifts->n; i++) {
        l->min_shift = shifts->items[i] < l->min_shift ? shifts->items[i] : l->min_shift;
        l->max_shift = shifts->items[i] > l->max_shift ? shifts->items[i] : l->max_shift;
    }
}

static void init_shifts(struct xbgpu_layout *l, const struct xbgpu_config *config)
{
    l->min_shift = -config->recv.max_shift;
    l->max_shift = config->recv.max_shift;
    l->n_shift_sets = 1;
    add_shifts(l, &config->recv.shifts);
    for (size_t o = 0; o < config->outputs.n; o++) {
        const struct config_int_list *shifts = &xbgpu_config_output(config, o)->shifts;
        add_shifts(l, shifts);
        l->n_shift_sets += shifts->n > 0;
    }
    l->shifted = l->min_shift < 0 || l->max_shift > 0 || l->n_shift_sets > 1;
    l->n_lag = l->min_shift < 0;
    l->n_history = (xbgpu_delay(l, l->max_shift) + l->n_spectra - 1) / l->n_spectra;
}

/* Adds the memory for selecting spectra to the layout.  Outputs with a gate and outputs with their own shifts select
 * spectra. */
static void add_gates(struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu)
{
    size_t n_spectra = l->n_batches * l->n_spectra;

    if (l->n_gates == 0 && l->n_shift_sets == 1)
        return;
    l->n_selected_spectra = n_spectra < SELECTED_SPECTRA ? n_spectra : SELECTED_SPECTRA;
    l->n_selected_batches = (n_spectra + l->n_selected_spectra - 1) / l->n_selected_spectra;
    size_t spectrum_bytes = l->n_ants * l->n_chan * N_POLS * voltage_bytes(l->format);
    bytes_add(&l->memory.device_bytes, l->n_selected_batches * l->n_selected_spectra, spectrum_bytes);
    for (size_t g = 0; g < l->n_gates; g++) {
        size_t n_rows = xbgpu_gate_n_rows(xbgpu_config_gate(&config->gates, g), config);
        uint64_t list = bytes_times(n_rows * sizeof(uint32_t), n_spectra);
        uint64_t ends = bytes_times(n_rows * sizeof(uint32_t), l->n_batches + 1);
        bytes_add(&l->memory.host_bytes, LANE_N_INPUTS,
                  bytes_plus(device_pinned_bytes(list, on_gpu), device_pinned_bytes(ends, on_gpu)));
        bytes_add(&l->memory.device_bytes, LANE_N_INPUTS, bytes_plus(list, ends));
    }
}

bool xbgpu_renormalises(const struct xbgpu_config *config)
{
    bool any = false;

    for (size_t b = 0; b < config->beams.n; b++)
        any = any || xbgpu_config_beam(config, b)->renormalise;
    return any;
}

bool xbgpu_can_read(const struct xbgpu_config *config)
{
    return !config->recv.base.direct && !config->recv.base.gpudirect;
}

/* Adds the memory of the voltage beams (beams.c) to the layout. */
static void add_beams(struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu)
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
    bytes_add(&l->memory.buffers_bytes, n_buffers, pinned);
    bytes_add(&l->memory.host_bytes, n_buffers, bytes_plus(pinned, n_heaps * 2 * sizeof(struct send_heap)));
    bytes_add(&l->memory.host_bytes, n_buffers, l->n_ants * BEAM_AUDIT_SPECTRA * N_POLS * voltage_bytes(l->format));
    bytes_add(&l->memory.device_bytes, n_buffers, bytes_plus(voltages, saturated + factors));
    xbgpu_steering_add_memory(l, n_beams, on_gpu);
}

/* Adds the memory of a stream of detected beams (detected.c) to the layout. */
static void add_detected(struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu, size_t i)
{
    struct xbgpu_detected_sizes s = xbgpu_detected_sizes(config, l, i);
    size_t saturated = s.n_beams * sizeof(uint32_t);
    size_t windows = (size_t)xbgpu_config_detected(config, i)->heap_windows;
    uint64_t pinned = bytes_plus(device_pinned_bytes(s.heap_bytes, on_gpu), device_pinned_bytes(saturated, on_gpu));

    bytes_add(&l->memory.buffers_bytes, s.n_buffers, pinned);
    bytes_add(&l->memory.host_bytes, s.n_buffers, bytes_plus(pinned, windows * sizeof(uint64_t)));
    bytes_add(&l->memory.device_bytes, s.n_buffers, bytes_plus(s.heap_bytes, saturated));
    bytes_add(&l->memory.device_bytes, s.n_buffers, bytes_times(s.n_powers, sizeof(int64_t)));
    if (xbgpu_config_detected(config, i)->kind == XBGPU_BEAM_INCOHERENT)
        xbgpu_incoherent_add_memory(l, on_gpu);
    else
        xbgpu_steering_add_memory(l, s.n_beams * N_POLS, on_gpu);
    xbgpu_detected_audit_add_memory(l, config, on_gpu, i);
}

/* Adds the memory of an output: dumps (send.c), sums and counts (output.c). */
static void add_output(struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu,
                       const struct xbgpu_config_output *output)
{
    uint64_t n_buffers = xbgpu_output_buffers(config, output), weights = l->n_baselines * sizeof(uint32_t);
    uint64_t dump = (output->gate ? xbgpu_dump_bytes(l, config, output) : l->vis_bytes) + weights;

    bytes_add(&l->memory.buffers_bytes, n_buffers, device_pinned_bytes(dump, on_gpu) + sizeof(uint64_t));
    bytes_add(&l->memory.host_bytes, n_buffers, device_pinned_bytes(dump, on_gpu) + sizeof(uint64_t));
    bytes_add(&l->memory.device_bytes, n_buffers, l->vis_bytes + weights + sizeof(uint64_t));
    bytes_add(&l->memory.device_bytes, 1, l->vis_bytes);
    if (xbgpu_output_has_totals(l, config, output))
        bytes_add(&l->memory.device_bytes, 1, l->totals_bytes);
    if (output->audit_checksum) {
        bytes_add(&l->memory.device_bytes, 1, l->rows_bytes);
        bytes_add(&l->memory.device_bytes, n_buffers, l->checks_bytes);
        bytes_add(&l->memory.host_bytes, n_buffers, device_pinned_bytes(l->checks_bytes, on_gpu));
    }
    if (output->gate)
        bytes_add(&l->memory.host_bytes, 1, xbgpu_weights_bytes(l, config, output));
}

/* Adds the memory of the receive chunks and the inputs (recv.c, input.c). */
static void add_inputs(struct xbgpu_layout *l, const struct xbgpu_config *config, bool on_gpu, size_t mtu)
{
    const struct xbgpu_config_recv *recv = &config->recv;
    size_t delays = l->n_shift_sets * l->n_ants * N_POLS * sizeof(uint32_t);
    size_t present = l->n_shift_sets * l->n_batches * l->n_ants;

    for (size_t m = 0; m < l->n_members; m++) {
        struct chunk_shape shape = xbgpu_chunk_shape(l, config, m);
        uint64_t chunks = chunk_pool_device_bytes(&shape);
        bytes_add(&l->memory.chunks_bytes, 1, chunk_pool_host_bytes(&shape, on_gpu));
        bytes_add(&l->memory.direct_bytes, recv->base.direct, chunks);
        bytes_add(&l->memory.device_bytes, 1, chunks);
    }
    for (size_t t = 0; t < l->n_recv_threads; t++)
        receiver_add_memory(&recv->base, mtu, xbgpu_thread_frames(l, config, t), &l->memory);
    l->memory.host_bytes = bytes_plus(l->memory.host_bytes, l->memory.chunks_bytes);
    bytes_add(&l->memory.device_bytes, LANE_N_INPUTS * (l->n_history + l->n_batches) * l->n_ants, l->heap_bytes);
    if (!l->shifted)
        return;
    bytes_add(&l->memory.device_bytes, l->n_batches * l->n_ants, l->heap_bytes);
    bytes_add(&l->memory.device_bytes, LANE_N_INPUTS, present + delays);
    bytes_add(&l->memory.host_bytes, LANE_N_INPUTS,
              device_pinned_bytes(present, on_gpu) + device_pinned_bytes(delays, on_gpu));
}

struct chunk_shape xbgpu_chunk_shape(const struct xbgpu_layout *layout, const struct xbgpu_config *config, size_t m)
{
    size_t n_sources = xbgpu_member_first(layout, m + 1) - xbgpu_member_first(layout, m);
    size_t n_heaps = layout->n_batches * n_sources;

    return (struct chunk_shape){.n_chunks = (size_t)config->recv.base.n_chunks,
                                .n_heaps = n_heaps,
                                .heap_bytes = layout->heap_bytes,
                                .direct = config->recv.base.direct,
                                .n_frames_max = n_heaps * layout->frames_per_heap};
}

size_t xbgpu_thread_frames(const struct xbgpu_layout *layout, const struct xbgpu_config *config, size_t t)
{
    size_t n = 0;

    for (size_t m = xbgpu_thread_first(layout, t); m < xbgpu_thread_first(layout, t + 1); m++) {
        struct chunk_shape chunks = xbgpu_chunk_shape(layout, config, m);
        n += chunks.n_chunks * chunks.n_frames_max;
    }
    return n;
}

static size_t frames_per_heap(const struct xbgpu_config_recv *recv, size_t heap_bytes)
{
    size_t payload = (size_t)recv->packet_payload_bytes;

    return recv->base.gpudirect ? (heap_bytes + payload - 1) / payload : 0;
}

void xbgpu_layout_init(struct xbgpu_layout *layout, const struct xbgpu_config *config, bool on_gpu, size_t mtu)
{
    const struct xbgpu_config_recv *recv = &config->recv;
    struct xbgpu_layout l = {
        .format = format_of(recv),
        .n_ants = (size_t)recv->n_ants,
        .n_baselines = correlate_n_baselines((size_t)recv->n_ants),
        .n_chan = (size_t)recv->n_chan_substream,
        .n_spectra = (size_t)recv->spectra_per_heap,
        .n_batches = (size_t)recv->batches_per_chunk,
        .batch_samples = recv->spectra_per_heap * recv->samples_between_spectra,
        .n_outputs = config->outputs.n,
        .n_gates = config->gates.n,
    };

    init_shifts(&l, config);
    l.heap_bytes = l.n_chan * l.n_spectra * N_POLS * voltage_bytes(l.format);
    l.chunk_samples = l.batch_samples * (int64_t)l.n_batches;
    l.n_members = (size_t)recv->base.n_threads < l.n_ants ? (size_t)recv->base.n_threads : l.n_ants;
    l.n_recv_threads = recv->base.pcap_file ? 1 : l.n_members; /* a capture file is read by one thread */
    l.vis_bytes = l.n_chan * l.n_baselines * N_POL_PRODUCTS * 2 * sizeof(int32_t);
    l.totals_bytes = 2 * l.vis_bytes;
    l.rows_bytes = l.n_chan * l.n_ants * N_POLS * checksum_n_parts(l.format) * sizeof(uint64_t);
    l.checks_bytes = (VERDICT_LENGTH + 2 * l.n_chan) * sizeof(uint64_t);
    l.frames_per_heap = frames_per_heap(recv, l.heap_bytes);
    add_inputs(&l, config, on_gpu, mtu);
    for (size_t o = 0; o < l.n_outputs; o++)
        add_output(&l, config, on_gpu, xbgpu_config_output(config, o));
    add_gates(&l, config, on_gpu);
    add_beams(&l, config, on_gpu);
    for (size_t i = 0; i < config->detected.n; i++)
        add_detected(&l, config, on_gpu, i);
    if (config->beams.n + config->detected.n > 0)
        bytes_add(&l.memory.host_bytes, 1, xbgpu_calibration_bytes(&l)); /* calibration.c */
    *layout = l;
}

int xbgpu_layout_check_host(const struct xbgpu_layout *layout, const struct xbgpu_config *config, struct device *device,
                            char *why, size_t why_bytes)
{
    int err =
        device_check_memory(device, layout->memory.host_bytes, layout->memory.device_bytes, "recv.batches_per_chunk",
                            "lower recv.batches_per_chunk, recv.chunks, recv.channels_per_substream, or buffers of "
                            "outputs and beams, have fewer outputs or gates, or correlate fewer recv.antennas",
                            why, why_bytes);
    if (!err && config->recv.base.direct)
        err = device_check_direct(device, layout->memory.direct_bytes, "recv.direct",
                                  "lower recv.batches_per_chunk, recv.chunks or recv.channels_per_substream, correlate "
                                  "fewer recv.antennas, enable the GPU's resizable BAR (docs/operation.md), or set "
                                  "the key to false",
                                  why, why_bytes);
    if (!err && config->recv.base.gpudirect)
        err = device_check_exported(device, "recv.gpudirect", why, why_bytes);
    return err ? err : config_check_cpus(&config->recv.base.affinity, &config->send.affinity, why, why_bytes);
}

/* Checks the number and the values of a list's shifts.  Returns whether the list is valid. */
static bool check_list(const struct xbgpu_config_recv *recv, const struct config_int_list *shifts,
                       struct config *errors)
{
    if (shifts->n > 0 && shifts->n != (size_t)recv->n_ants * N_POLS) {
        config_error(errors, shifts, "shifts must have %lld items, one for each polarisation of %lld antennas, not %zu",
                     (long long)recv->n_ants * N_POLS, (long long)recv->n_ants, shifts->n);
        return false;
    }
    for (size_t i = 0; i < shifts->n; i++)
        if (shifts->items[i] > recv->spectra_per_heap || shifts->items[i] < -recv->spectra_per_heap) {
            config_error(
                errors, shifts,
                "a shift of %lld spectra, of polarisation %zu of antenna %zu, is longer than a heap of %lld spectra",
                (long long)shifts->items[i], i % N_POLS, i / N_POLS, (long long)recv->spectra_per_heap);
            return false;
        }
    return true;
}

static bool check_shifts(const struct xbgpu_config *config, struct config *errors)
{
    const struct xbgpu_config_recv *recv = &config->recv;
    bool ok = check_list(recv, &recv->shifts, errors);

    for (size_t o = 0; o < config->outputs.n; o++)
        ok = check_list(recv, &xbgpu_config_output(config, o)->shifts, errors) && ok;
    if (recv->max_shift > recv->spectra_per_heap) {
        config_error(errors, &recv->max_shift, "max_shift of %lld spectra is longer than a heap of %lld spectra",
                     (long long)recv->max_shift, (long long)recv->spectra_per_heap);
        return false;
    }
    return ok;
}

/* Warns about the cost of outputs with their own shifts: one copy of all voltages for each output, and one shared
 * buffer. */
static void say_shifts(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct config *errors)
{
    double chunk_mib = (double)layout->n_batches * (double)layout->n_ants * (double)layout->heap_bytes / (1 << 20);

    for (size_t o = 0; o < config->outputs.n; o++) {
        const struct xbgpu_config_output *out = xbgpu_config_output(config, o);
        if (out->shifts.n > 0)
            config_warning(errors, &out->shifts,
                           "output %s has its own shifts, which cost another copy of all voltages on the device, %.3g "
                           "MiB per chunk; all outputs with shifts or gates share one buffer of that size",
                           out->name, chunk_mib);
    }
}

static void check_format(const struct xbgpu_config_recv *recv, struct config *errors)
{
    if (recv->base.crc && recv->base.gpudirect)
        config_error(errors, &recv->base.crc,
                     "crc and gpudirect exclude each other: the CPU cannot read the payloads in GPU memory");
    if (recv->sample_bits != 4 && recv->sample_bits != 8 && recv->sample_bits != 16)
        config_error(errors, &recv->sample_bits, "sample_bits must be 4, 8 or 16, not %lld",
                     (long long)recv->sample_bits);
    else if (recv->sample_encoding == XBGPU_OFFSET && recv->sample_bits != 4)
        config_error(errors, &recv->sample_encoding,
                     "sample_encoding can be offset only with sample_bits of 4, not %lld",
                     (long long)recv->sample_bits);
    if ((uint64_t)(recv->n_chan_substream * recv->spectra_per_heap) * N_POLS * voltage_bytes(format_of(recv)) >=
        CHUNK_HEAP_MAPPED)
        config_error(errors, &recv->n_chan_substream, "a heap of %lld channels and %lld spectra must be below 2 GiB",
                     (long long)recv->n_chan_substream, (long long)recv->spectra_per_heap);
}

static void check_sources(const struct xbgpu_config_recv *recv, size_t n_members, struct config *errors)
{
    for (size_t i = 0; i < recv->sources.n && n_members > 1 && !recv->base.pcap_file; i++)
        if (!endpoint_is_multicast(&recv->sources.items[i])) {
            config_error(errors, &recv->base.n_threads,
                         "threads must be 1 with a unicast source: only one socket gets its packets");
            break;
        }
    recv_keys_check_sources(&recv->sources, errors);
    /* F-engines may send one substream to several endpoints.  But usually several endpoints mean several substreams,
     * which is an error in the configuration. */
    if (recv->sources.n > 1)
        config_warning(errors, &recv->sources,
                       "sources has %zu endpoints, but a substream is usually sent to one endpoint; packets of other "
                       "substreams are received and refused",
                       recv->sources.n);
}

static void check_recv(const struct xbgpu_config *config, struct config *errors)
{
    const struct xbgpu_config_recv *recv = &config->recv;
    size_t n_members = (size_t)(recv->base.n_threads < recv->n_ants ? recv->base.n_threads : recv->n_ants);
    struct matcher_config matcher = {.n_members = (unsigned)n_members,
                                     .wait_chunks = (unsigned)recv->base.window_chunks};
    struct xbgpu_layout shifts = {.n_spectra = (size_t)recv->spectra_per_heap};

    if (check_shifts(config, errors))
        init_shifts(&shifts, config);
    int64_t n_min = recv->base.window_chunks + (int64_t)(matcher_depth(&matcher) + shifts.n_history) + 2;
    if (recv->n_chan % recv->n_chan_substream != 0)
        config_error(errors, &recv->n_chan_substream, "%lld channels cannot be divided into substreams of %lld",
                     (long long)recv->n_chan, (long long)recv->n_chan_substream);
    else if (recv->chan_offset % recv->n_chan_substream != 0 || recv->chan_offset >= recv->n_chan)
        config_error(
            errors, &recv->chan_offset,
            "channel_offset must be a multiple of channels_per_substream (%lld) below channels (%lld), not %lld",
            (long long)recv->n_chan_substream, (long long)recv->n_chan, (long long)recv->chan_offset);
    check_format(recv, errors);
    check_sources(recv, n_members, errors);
    if (recv->sample_bits == 16 && recv->spectra_per_heap > CORRELATE_FLOAT_SPECTRA)
        config_error(errors, &recv->spectra_per_heap,
                     "spectra_per_heap must be at most %d with sample_bits of 16, not %lld", CORRELATE_FLOAT_SPECTRA,
                     (long long)recv->spectra_per_heap);
    if (recv->spectra_per_heap % 16 != 0)
        config_error(errors, &recv->spectra_per_heap, "spectra_per_heap must be a multiple of 16, not %lld",
                     (long long)recv->spectra_per_heap);
    if ((double)recv->spectra_per_heap * (double)recv->samples_between_spectra * (double)recv->batches_per_chunk *
            (double)recv->base.window_chunks >
        MAX_SAMPLES)
        config_error(errors, &recv->batches_per_chunk,
                     "a window of %lld chunks of %lld batches of %lld spectra, %lld samples each, is longer than a "
                     "quarter of the range of 48-bit timestamps",
                     (long long)recv->base.window_chunks, (long long)recv->batches_per_chunk,
                     (long long)recv->spectra_per_heap, (long long)recv->samples_between_spectra);
    if (recv->base.n_chunks < n_min)
        config_error(errors, &recv->base.n_chunks, "chunks must be at least %lld with a window of %lld%s, not %lld",
                     (long long)n_min, (long long)recv->base.window_chunks, shifts.n_history ? " and shifts" : "",
                     (long long)recv->base.n_chunks);
}

/* The audit reads voltages from the chunks, so it is impossible if the host cannot read the chunks. */
static void check_audit(const struct xbgpu_config *config, struct xbgpu_config_output *out, struct config *errors)
{
    if (xbgpu_can_read(config))
        return;
    if (config_given(errors, &out->audit_samples) && out->audit_samples > 0)
        config_error(errors, &out->audit_samples,
                     "audit_samples must be 0 with recv.%s: the host does not read data in GPU memory",
                     config->recv.base.direct ? "direct" : "gpudirect");
    out->audit_samples = 0;
}

static void check_output(const struct xbgpu_config *config, size_t o, struct config *errors)
{
    const struct xbgpu_config_output *out = xbgpu_config_output(config, o);
    bool batches = out->integration_batches > 0, time = out->integration_time_s > 0;

    for (size_t p = 0; p < o; p++)
        if (strcmp(out->name, xbgpu_config_output(config, p)->name) == 0)
            config_error(errors, &out->name, "two outputs are called %s", out->name);
    if (!labels_is_name(out->name))
        config_error(errors, &out->name,
                     "an output's name may have only letters, digits, '.', '-' and '_', but is '%s'", out->name);
    if (batches == time)
        config_error(errors, batches ? (const void *)&out->integration_time_s : (const void *)&out->name,
                     "output %s needs one of integration_batches and integration_time%s", out->name,
                     batches ? ", not both" : "");
    else if (!config->recv.base.pcap_file && out->n_buffers > 0 && out->n_buffers < chunk_dumps(config, out) + 1)
        config_error(errors, &out->n_buffers,
                     "buffers must be at least %lld, not %lld: up to %lld dumps of output %s end in one chunk",
                     (long long)chunk_dumps(config, out) + 1, (long long)out->n_buffers,
                     (long long)chunk_dumps(config, out), out->name);
    else if (xbgpu_integration_batches(config, out) > (int64_t)(MAX_SPECTRA / (uint64_t)config->recv.spectra_per_heap))
        config_error(errors, batches ? (const void *)&out->integration_batches : (const void *)&out->integration_time_s,
                     "output %s integrates more than %u spectra", out->name, MAX_SPECTRA);
    else if ((double)xbgpu_integration_batches(config, out) * (double)config->recv.spectra_per_heap *
                 (double)config->recv.samples_between_spectra >
             MAX_SAMPLES)
        config_error(errors, batches ? (const void *)&out->integration_batches : (const void *)&out->integration_time_s,
                     "output %s integrates longer than a quarter of the range of 48-bit timestamps", out->name);
}

static void check_beam(const struct xbgpu_config *config, size_t i, struct config *errors)
{
    const struct xbgpu_config_beam *beam = xbgpu_config_beam(config, i);

    for (size_t o = 0; o < config->outputs.n; o++)
        if (strcmp(beam->name, xbgpu_config_output(config, o)->name) == 0)
            config_error(errors, &beam->name, "an output and a beam are called %s", beam->name);
    for (size_t j = 0; j < i; j++) {
        const struct xbgpu_config_beam *other = xbgpu_config_beam(config, j);
        if (strcmp(beam->name, other->name) == 0)
            config_error(errors, &beam->name, "two beams are called %s", beam->name);
        if (endpoint_equal(&beam->destination.items[0], &other->destination.items[0]))
            config_error(errors, &beam->destination, "beams %s and %s have the same destination", other->name,
                         beam->name);
    }
    if (!labels_is_name(beam->name))
        config_error(errors, &beam->name, "a beam's name may have only letters, digits, '.', '-' and '_', but is '%s'",
                     beam->name);
    if (config->recv.sample_bits == 16)
        config_error(errors, &beam->name, "beams need recv.sample_bits of 4 or 8, not 16");
    send_keys_check_destinations(&config->send, &beam->destination, errors);
    if (!config->recv.base.pcap_file && !config->send.pcap_file)
        send_keys_check_loop(&config->recv.sources, &beam->destination, errors);
}

static void check_detected(const struct xbgpu_config *config, size_t i, struct config *errors)
{
    const struct xbgpu_config_detected *d = xbgpu_config_detected(config, i);
    int64_t heap_spectra = d->heap_windows * d->window_spectra;

    for (size_t o = 0; o < config->outputs.n; o++)
        if (strcmp(d->name, xbgpu_config_output(config, o)->name) == 0)
            config_error(errors, &d->name, "an output and a stream of detected beams have the same name, %s", d->name);
    for (size_t b = 0; b < config->beams.n; b++)
        if (strncmp(d->name, xbgpu_config_beam(config, b)->name, strlen(d->name)) == 0)
            config_error(errors, &d->name, "the name of beam %s begins with the name of detected beams %s",
                         xbgpu_config_beam(config, b)->name, d->name);
    for (size_t j = 0; j < i; j++)
        if (strcmp(d->name, xbgpu_config_detected(config, j)->name) == 0)
            config_error(errors, &d->name, "two streams of detected beams are called %s", d->name);
    if (!labels_is_name(d->name))
        config_error(errors, &d->name, "a beam's name may have only letters, digits, '.', '-' and '_', but is '%s'",
                     d->name);
    if (config->recv.sample_bits == 16)
        config_error(errors, &d->name, "beams need recv.sample_bits of 4 or 8, not 16");
    if (config->recv.n_chan_substream % d->group_channels)
        config_error(errors, &d->group_channels,
                     "the key channels of %s must be a divisor of recv.channels_per_substream", d->name);
    int64_t n_heaps = config->recv.batches_per_chunk * config->recv.spectra_per_heap / heap_spectra + 1;
    if (!config->recv.base.pcap_file && d->n_buffers > 0 && d->n_buffers < n_heaps + 1)
        config_error(errors, &d->n_buffers,
                     "buffers must be at least %lld, not %lld; the number of heaps of %s that end in one chunk is %lld",
                     (long long)n_heaps + 1, (long long)d->n_buffers, d->name, (long long)n_heaps);
    if ((double)heap_spectra * (double)config->recv.samples_between_spectra > MAX_SAMPLES)
        config_error(errors, &d->heap_windows,
                     "a heap of %s is longer than a quarter of the range of 48-bit timestamps", d->name);
    send_keys_check_destinations(&config->send, &d->destination, errors);
    if (!config->recv.base.pcap_file && !config->send.pcap_file)
        send_keys_check_loop(&config->recv.sources, &d->destination, errors);
}

static void check_incoherent(const struct xbgpu_config *config, const struct xbgpu_config_detected *d,
                             struct config *errors)
{
    if (d->n_beams != 1)
        config_error(errors, &d->n_beams, "%s is incoherent, so it has one beam, not %" PRId64, d->name, d->n_beams);
    if (xbgpu_incoherent_max(config, d) < 1)
        config_error(
            errors, &d->window_spectra,
            "powers of %s do not fit in 64 bits: recv.antennas times spectra times channels must be at most 2^29",
            d->name);
}

static void check_sizes(const struct xbgpu_config *config, struct config *errors)
{
    struct xbgpu_layout layout;

    xbgpu_layout_init(&layout, config, false, 0);
    if (bytes_plus(layout.memory.host_bytes, layout.memory.device_bytes) == UINT64_MAX)
        config_error(errors, &config->recv.batches_per_chunk,
                     "this configuration needs more memory than 64 bits can count: lower recv.batches_per_chunk, "
                     "recv.chunks, recv.channels_per_substream, or buffers of outputs and beams");
    say_shifts(config, &layout, errors);
}

void xbgpu_config_check(void *values, struct config *errors)
{
    struct xbgpu_config *config = values;

    check_recv(config, errors);
    recv_keys_set_senders(&config->recv.sources, &config->recv.base.senders);
    for (size_t o = 0; o < config->outputs.n; o++) {
        check_output(config, o, errors);
        send_keys_check_destinations(&config->send, &xbgpu_config_output(config, o)->destination, errors);
        if (!config->recv.base.pcap_file && !config->send.pcap_file)
            send_keys_check_loop(&config->recv.sources, &xbgpu_config_output(config, o)->destination, errors);
        check_audit(config, xbgpu_config_output(config, o), errors);
    }
    for (size_t b = 0; b < config->beams.n; b++)
        check_beam(config, b, errors);
    for (size_t i = 0; i < config->detected.n; i++) {
        check_detected(config, i, errors);
        if (xbgpu_config_detected(config, i)->kind == XBGPU_BEAM_INCOHERENT)
            check_incoherent(config, xbgpu_config_detected(config, i), errors);
    }
    if (xbgpu_n_detected_beams(config) > XBGPU_BEAMS_MAX)
        config_error(errors, &xbgpu_config_detected(config, 0)->n_beams, "there are more than %d detected beams",
                     XBGPU_BEAMS_MAX);
    xbgpu_gates_check(config, errors);
    labels_check((const char *const *)&config->recv.antenna_names, (const char *const *)&config->recv.input_labels,
                 (size_t)config->recv.n_ants, errors);
    engine_keys_check(&config->daemon, &config->recv.base, &config->send, errors);
    if (config_n_errors(errors) == 0)
        check_sizes(config, errors);
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

int64_t xbgpu_rx_timeout_ns(const struct xbgpu_config *config, const struct xbgpu_layout *layout)
{
    double chunk_ns =
        (double)NS_PER_S * (double)layout->chunk_samples / timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    return chunk_ns < NS_PER_S / 10 ? NS_PER_S : (int64_t)(10 * chunk_ns);
}

void xbgpu_layout_log(const struct xbgpu_layout *l)
{
    log_info("this X-engine has %zu antenna%s, %zu channel%s, %zu output%s and %zu receive thread%s", l->n_ants,
             plural(l->n_ants), l->n_chan, plural(l->n_chan), l->n_outputs, plural(l->n_outputs), l->n_recv_threads,
             plural(l->n_recv_threads));
    memory_log(&l->memory);
}
