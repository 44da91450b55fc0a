/* config_check.c - checks keys that depend on each other. */
#include "xbgpu/config_check.h"

#include "common/engine/engine.h"
#include "common/engine/labels.h"
#include "common/recv/keys.h"
#include "common/recv/matcher.h"
#include "common/send/keys.h"
#include "xbgpu/config/gate_config.h"
#include "xbgpu/beam/incoherent.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/memory.h"

#include <inttypes.h>
#include <string.h>

#define MAX_SPECTRA UINT32_MAX /* maximum number of spectra in a dump, because a weight has 32 bits */
/* greatest length of a window or dump, in samples: a quarter of the range of 48-bit timestamps */
#define MAX_SAMPLES 0x1p46

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
    if ((uint64_t)(recv->n_chan_substream * recv->spectra_per_heap) * N_POLS * voltage_bytes(xbgpu_format(recv)) >=
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
        xbgpu_layout_init_shifts(&shifts, config);
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
    else if (!config->recv.base.pcap_file && out->n_buffers > 0 && out->n_buffers < xbgpu_chunk_dumps(config, out) + 1)
        config_error(errors, &out->n_buffers,
                     "buffers must be at least %lld, not %lld: up to %lld dumps of output %s end in one chunk",
                     (long long)xbgpu_chunk_dumps(config, out) + 1, (long long)out->n_buffers,
                     (long long)xbgpu_chunk_dumps(config, out), out->name);
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

    xbgpu_layout_init(&layout, config);
    const struct memory_use memory = xbgpu_memory(&layout, config, false, 0);
    if (bytes_plus(memory.host_bytes, memory.device_bytes) == UINT64_MAX)
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
