/* layout.c - computes the sizes that follow from the configuration. */
#include "xbgpu/config/layout.h"

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/units.h"
#include "common/send/keys.h"
#include "kernels/beamform/beam_detect.h"
#include "kernels/correlate/checksum_dump.h"
#include "xbgpu/config/gate.h"

#include <math.h>

/* Number of spectra in a batch of spectra that a gate selected.  The last batch of a window is padded.  Short batches
 * need less padding.  The fastest of 32, 64, 128 and 256 has not been measured yet. */
#define SELECTED_SPECTRA 64
/* Seconds of data for which the beams' output buffers have room.  A stall of the host up to this duration loses no
 * data.  The number of buffers is limited. */
#define BUFFERS_S   0.05
#define BUFFERS_MIN 8
#define BUFFERS_MAX 64

int64_t xbgpu_integration_batches(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    if (output->integration_batches > 0)
        return output->integration_batches;
    double batch_s = (double)(config->recv.spectra_per_heap * config->recv.samples_between_spectra) /
                     timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double n = round(output->integration_time_s / batch_s);
    return n < 1 ? 1 : (int64_t)n;
}

int64_t xbgpu_chunk_dumps(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    int64_t n_length = xbgpu_integration_batches(config, output);

    return (config->recv.batches_per_chunk + n_length - 1) / n_length;
}

size_t xbgpu_output_buffers(const struct xbgpu_config *config, const struct xbgpu_config_output *output)
{
    if (output->n_buffers > 0)
        return (size_t)output->n_buffers;
    return 2 * (size_t)xbgpu_chunk_dumps(config, output) + 2;
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

enum voltage_format xbgpu_format(const struct xbgpu_config_recv *recv)
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

void xbgpu_layout_init_shifts(struct xbgpu_layout *l, const struct xbgpu_config *config)
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

void xbgpu_layout_init(struct xbgpu_layout *layout, const struct xbgpu_config *config)
{
    const struct xbgpu_config_recv *recv = &config->recv;
    struct xbgpu_layout l = {
        .format = xbgpu_format(recv),
        .n_ants = (size_t)recv->n_ants,
        .n_baselines = correlate_n_baselines((size_t)recv->n_ants),
        .n_chan = (size_t)recv->n_chan_substream,
        .n_spectra = (size_t)recv->spectra_per_heap,
        .n_batches = (size_t)recv->batches_per_chunk,
        .batch_samples = recv->spectra_per_heap * recv->samples_between_spectra,
        .n_outputs = config->outputs.n,
        .n_gates = config->gates.n,
    };

    xbgpu_layout_init_shifts(&l, config);
    l.heap_bytes = l.n_chan * l.n_spectra * N_POLS * voltage_bytes(l.format);
    l.chunk_samples = l.batch_samples * (int64_t)l.n_batches;
    l.n_members = (size_t)recv->base.n_threads < l.n_ants ? (size_t)recv->base.n_threads : l.n_ants;
    l.n_recv_threads = recv->base.pcap_file ? 1 : l.n_members; /* a capture file is read by one thread */
    l.vis_bytes = l.n_chan * l.n_baselines * N_POL_PRODUCTS * 2 * sizeof(int32_t);
    l.totals_bytes = 2 * l.vis_bytes;
    l.rows_bytes = l.n_chan * l.n_ants * N_POLS * checksum_n_parts(l.format) * sizeof(uint64_t);
    l.checks_bytes = (VERDICT_LENGTH + 2 * l.n_chan) * sizeof(uint64_t);
    l.frames_per_heap = frames_per_heap(recv, l.heap_bytes);
    if (l.n_gates > 0 || l.n_shift_sets > 1) {
        size_t n_spectra = l.n_batches * l.n_spectra;
        l.n_selected_spectra = n_spectra < SELECTED_SPECTRA ? n_spectra : SELECTED_SPECTRA;
        l.n_selected_batches = (n_spectra + l.n_selected_spectra - 1) / l.n_selected_spectra;
    }
    *layout = l;
}

int64_t xbgpu_rx_timeout_ns(const struct xbgpu_config *config, const struct xbgpu_layout *layout)
{
    double chunk_ns =
        (double)NS_PER_S * (double)layout->chunk_samples / timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    return chunk_ns < NS_PER_S / 10 ? NS_PER_S : (int64_t)(10 * chunk_ns);
}

void xbgpu_layout_log(const struct xbgpu_layout *l, const struct memory_use *memory)
{
    log_info("this X-engine has %zu antenna%s, %zu channel%s, %zu output%s and %zu receive thread%s", l->n_ants,
             plural(l->n_ants), l->n_chan, plural(l->n_chan), l->n_outputs, plural(l->n_outputs), l->n_recv_threads,
             plural(l->n_recv_threads));
    memory_log(memory);
}
