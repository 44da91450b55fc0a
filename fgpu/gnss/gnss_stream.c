/* gnss_stream.c - creates a stream of satellite sums of all antennas. */
#include "fgpu/gnss/gnss_stream.h"

#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/base/memory.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "common/net/spead.h"
#include "common/recv/matcher.h"
#include "common/send/sender_group.h"
#include "common/telemetry/stats.h"
#include "fgpu/config/send_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fgpu_gnss_stage_words[] = {"search", "pull-in", "settling", "tracking", NULL};

struct gnss_correlate_args gnss_stream_correlate_args(const struct gnss_stream *s, const struct gnss_buffer *b)
{
    struct gnss_correlate_args args = {.samples = s->samples,
                                       .pitch_samples = s->sizes.pitch_samples,
                                       .carrier = s->carrier,
                                       .codes = s->codes,
                                       .satellites = s->entries,
                                       .offsets = b ? b->device_offsets : NULL,
                                       .pieces = b ? b->device_pieces : NULL,
                                       .sums = b ? b->device_sums : NULL,
                                       .n_pieces = b ? (uint32_t)b->n_pieces : 0,
                                       .n_ants = (uint32_t)s->gnss->n_ants,
                                       .n_taps = FGPU_GNSS_N_TAPS,
                                       .max_spread = (uint32_t)s->sizes.delay_samples};

    for (size_t i = 0; b && i < b->n_pieces; i++)
        if (b->pieces[i].n_samples > args.max_samples)
            args.max_samples = b->pieces[i].n_samples;
    return args;
}

void fgpu_gnss_add_memory(const struct fgpu_layout *layout, const struct fgpu_config *config,
                          const struct fgpu_config_gnss *gnss, bool compiles, struct memory_use *memory)
{
    const struct fgpu_gnss_sizes z = fgpu_gnss_sizes(config, gnss);
    const size_t n = layout->n_ants, row = N_POLS * z.pitch_samples;
    const size_t sums = z.max_pieces * n * GNSS_ANTENNA_SUMS * sizeof(int64_t),
                 pieces = z.max_pieces * sizeof(struct gnss_piece);
    const size_t levels = n * N_POLS * sizeof(struct gnss_level), offsets = z.n_satellites * n * sizeof(int32_t);
    const size_t pinned = device_pinned_bytes(sums, compiles) + device_pinned_bytes(pieces, compiles) +
                          device_pinned_bytes(levels, compiles) + device_pinned_bytes(offsets, compiles) +
                          n * device_pinned_bytes(z.heap_bytes, compiles);
    struct gnss_acquire_limits limits = {0};

    fgpu_gnss_add_limits(config, gnss, &limits);
    bytes_add(&memory->buffers_bytes, FGPU_GNSS_N_BUFFERS, pinned);
    bytes_add(&memory->host_bytes, FGPU_GNSS_N_BUFFERS,
              pinned + n * (z.max_pieces * sizeof(uint32_t) + sizeof(struct gnss_part)));
    bytes_add(&memory->device_bytes, FGPU_GNSS_N_BUFFERS, sums + pieces + levels + offsets);
    bytes_add(&memory->host_bytes, n,
              gnss_acquire_pinned_bytes(&limits, compiles) + sizeof(struct gnss_antenna) +
                  z.n_slots * sizeof(struct gnss_chunk) +
                  z.n_satellites * (sizeof(struct gnss_view) + sizeof(struct fgpu_gnss_antenna)));
    bytes_add(&memory->host_bytes, 1,
              device_pinned_bytes(z.table_bytes, compiles) + z.n_satellites * sizeof(struct gnss_followed));
    bytes_add(&memory->device_bytes, n, z.n_slots * row * 2 * sizeof(float) + 2 * row);
    bytes_add(&memory->device_bytes, n, N_POLS * z.search_samples * 2 + gnss_acquire_device_bytes(&limits));
    bytes_add(&memory->device_bytes, 1,
              N_POLS * sizeof(struct gnss_level) + 2 * GNSS_CARRIER_ENTRIES + z.table_bytes +
                  z.n_satellites * sizeof(struct gnss_satellite));
    bytes_add(&memory->device_bytes, n, fgpu_baseband_bytes(layout, config, &gnss->band, compiles));
}

void fgpu_gnss_add_search_memory(const struct fgpu_config *config, struct memory_use *memory)
{
    struct gnss_acquire_limits limits = {0};

    for (size_t g = 0; g < config->gnss.n; g++)
        fgpu_gnss_add_limits(config, fgpu_config_gnss(config, g), &limits);
    if (config->gnss.n > 0)
        bytes_add(&memory->device_bytes, 1, gnss_acquirer_device_bytes(&limits));
}

static struct device *device_of(const struct gnss_stream *s)
{
    return s->gnss->engine->c.device;
}

/* ---- Output buffers ---------------------------------------------------------------------------------------------- */

static int create_part(struct gnss_buffer *b, size_t ant)
{
    const struct gnss_stream *s = b->stream;
    struct gnss_part *part = &b->parts[ant];

    part->records = device_alloc_pinned(device_of(s), s->sizes.heap_bytes);
    if (!part->records)
        return -ENOMEM;
    part->heap = (struct send_heap){
        .payload = (const uint8_t *)part->records,
        .payload_bytes = s->sizes.heap_bytes,
        .items = {[ITEM_TIMESTAMP] = {SPEAD_TIMESTAMP, true, 0},
                  [ITEM_FENG_ID] = {SPEAD_FENG_ID, true, (uint64_t)fgpu_config_antenna(s->gnss->config, ant)->feng_id},
                  [ITEM_SUMS] = {SPEAD_GNSS_SUMS, false, 0}},
        .n_items = N_ITEMS,
    };
    part->group = (struct send_group){.heaps = &part->heap, .n_heaps = 1};
    part->job = (struct send_job){.ref = &b->base.ref, .groups = &part->group, .n_groups = 1};
    return 0;
}

static int create_buffer(struct gnss_stream *s, struct gnss_buffer *b)
{
    struct device *device = device_of(s);
    const struct fgpu_gnss_sizes *z = &s->sizes;
    const size_t n_ants = s->gnss->n_ants, sums_bytes = z->max_pieces * gnss_piece_sums(s) * sizeof(*b->sums);
    const size_t offsets_bytes = z->n_satellites * n_ants * sizeof(*b->offsets);
    const size_t levels_bytes = n_ants * N_POLS * sizeof(*b->levels);
    int err = 0;

    b->stream = s;
    b->pieces = device_alloc_pinned(device, z->max_pieces * sizeof(*b->pieces));
    b->device_pieces = device_alloc(device, z->max_pieces * sizeof(*b->pieces));
    b->offsets = device_alloc_pinned(device, offsets_bytes);
    b->device_offsets = device_alloc(device, offsets_bytes);
    b->sums = device_alloc_pinned(device, sums_bytes);
    b->device_sums = device_alloc(device, sums_bytes);
    b->levels = device_alloc_pinned(device, levels_bytes);
    b->device_levels = device_alloc(device, levels_bytes);
    b->n_missing = calloc(z->max_pieces * n_ants, sizeof(*b->n_missing));
    b->parts = calloc(n_ants, sizeof(*b->parts));
    if (!b->pieces || !b->device_pieces || !b->offsets || !b->device_offsets || !b->sums || !b->device_sums ||
        !b->levels || !b->device_levels || !b->n_missing || !b->parts)
        return -ENOMEM;
    for (size_t ant = 0; !err && ant < n_ants; ant++)
        err = create_part(b, ant);
    return err ? err : outbuf_init(&b->base, &s->pool, s->gnss->engine);
}

static void destroy_buffer(const struct gnss_stream *s, struct gnss_buffer *b)
{
    struct device *device = device_of(s);

    outbuf_fini(&b->base);
    device_free_pinned(device, b->pieces);
    device_free(device, b->device_pieces);
    device_free_pinned(device, b->offsets);
    device_free(device, b->device_offsets);
    device_free_pinned(device, b->sums);
    device_free(device, b->device_sums);
    device_free_pinned(device, b->levels);
    device_free(device, b->device_levels);
    free(b->n_missing);
    for (size_t ant = 0; b->parts && ant < s->gnss->n_ants; ant++)
        device_free_pinned(device, b->parts[ant].records);
    free(b->parts);
}

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

static int create_slot(struct gnss_stream *s, struct gnss_slot *slot)
{
    struct device *device = device_of(s);
    int err = device_event_create(device, &slot->read);

    slot->samples = device_alloc(device, s->gnss->n_ants * N_POLS * s->sizes.pitch_samples * 2 * sizeof(float));
    slot->chunks = calloc(s->gnss->n_ants, sizeof(*slot->chunks));
    if (err || !slot->samples || !slot->chunks)
        return err ? err : -ENOMEM;
    for (size_t ant = 0; !err && ant < s->gnss->n_ants; ant++) {
        struct gnss_chunk *chunk = &slot->chunks[ant];
        chunk->slot = slot;
        chunk->is_free = true;
        buffer_ref_init(&chunk->base.ref, s->free_chunks, (struct inbox_item){0, 0, chunk});
        err = device_event_create(device, &chunk->written);
    }
    return err;
}

static void destroy_slot(const struct gnss_stream *s, struct gnss_slot *slot)
{
    device_event_destroy(slot->read);
    device_free(device_of(s), slot->samples);
    for (size_t ant = 0; slot->chunks && ant < s->gnss->n_ants; ant++)
        device_event_destroy(slot->chunks[ant].written);
    free(slot->chunks);
}

static int create_slots(struct gnss_stream *s)
{
    const size_t n_ants = s->gnss->n_ants, n_chunks = n_ants * s->sizes.n_slots;
    const unsigned wait_chunks = fgpu_gnss_wait_chunks(s->gnss->config);
    const struct matcher_config matcher = {
        .n_members = (unsigned)n_ants,
        .window_chunks = wait_chunks,
        .wait_chunks = wait_chunks,
        .jump_members = 2,
        .chunk_samples = s->gnss->config->recv.chunk_samples,
        .max_chunks = n_chunks,
    };
    int err = matcher_create(&matcher, &s->matcher);

    if (!err)
        err = inbox_create(n_chunks, &s->free_chunks);
    s->slots = calloc(s->sizes.n_slots, sizeof(*s->slots));
    if (!err && !s->slots)
        err = -ENOMEM;
    for (size_t i = 0; !err && i < s->sizes.n_slots; i++)
        err = create_slot(s, &s->slots[i]);
    s->last_end = s->shown_sample = INT64_MIN;
    return err;
}

/* ---- Satellites -------------------------------------------------------------------------------------------------- */

static int init_satellite(struct gnss_stream *s, size_t i, const struct fgpu_gnss_satellite *id,
                          struct gnss_satellite *entry, size_t table_at)
{
    const size_t n_ants = s->gnss->n_ants;
    struct gnss_followed *sat = &s->satellites[i];
    struct fgpu_gnss_antenna *ants = calloc(n_ants, sizeof(*ants));

    if (!ants)
        return -ENOMEM;
    sat->id = *id;
    sat->table = s->tables + table_at;
    fgpu_gnss_align_init(&sat->align,
                         &(struct fgpu_gnss_track_config){.signal = id->signal,
                                                          .subcarrier = id->subcarrier,
                                                          .sample_rate_hz = s->sample_rate_hz,
                                                          .carrier_hz = id->carrier_hz},
                         ants, n_ants);
    fgpu_gnss_track_taps(&sat->align.track, entry);
    entry->table = (uint32_t)table_at;
    return 0;
}

/* Creates the tables of the codes, and the satellites.  'entries' is pinned memory. */
static int create_satellites(struct gnss_stream *s, struct gnss_satellite *entries, char *why, size_t why_bytes)
{
    struct fgpu_gnss_satellite ids[FGPU_GNSS_MAX_SATELLITES];
    int8_t chips[GNSS_MAX_CHIPS];
    char reason[400];
    size_t at = 0;
    int err = 0;

    fgpu_gnss_satellites(s->gnss->config, s->config, ids);
    for (size_t i = 0; !err && i < s->sizes.n_satellites; i++) {
        const uint32_t n_chips = gnss_signal_facts(ids[i].signal)->n_chips;
        err = fgpu_gnss_chips(s->config, &ids[i], chips, reason, sizeof(reason));
        if (err) {
            snprintf(why, why_bytes, "gnss[%zu].codes: %s", s->index, reason);
            return err;
        }
        gnss_code_table(chips, n_chips, ids[i].subcarrier, s->tables + at);
        err = init_satellite(s, i, &ids[i], &entries[i], at);
        at += n_chips * (size_t)gnss_subchips(ids[i].subcarrier);
    }
    return err;
}

/* Creates the correlator's tables on the device: codes, satellites, carrier. */
static int create_tables(struct gnss_stream *s, char *why, size_t why_bytes)
{
    struct device *device = device_of(s);
    const size_t n = s->sizes.n_satellites, entries_bytes = n * sizeof(struct gnss_satellite);
    struct gnss_satellite *entries = device_alloc_pinned(device, entries_bytes);
    int8_t *carrier = device_alloc_pinned(device, 2 * GNSS_CARRIER_ENTRIES);
    int err = -ENOMEM;

    s->tables = device_alloc_pinned(device, s->sizes.table_bytes);
    s->satellites = calloc(n, sizeof(*s->satellites));
    s->codes = device_alloc(device, s->sizes.table_bytes);
    s->entries = device_alloc(device, entries_bytes);
    s->carrier = device_alloc(device, 2 * GNSS_CARRIER_ENTRIES);
    if (entries && carrier && s->tables && s->satellites && s->codes && s->entries && s->carrier) {
        memset(entries, 0, entries_bytes);
        gnss_carrier_table(carrier);
        err = create_satellites(s, entries, why, why_bytes);
    }
    if (!err)
        err = device_upload(device, s->codes, s->tables, s->sizes.table_bytes);
    if (!err)
        err = device_upload(device, s->entries, entries, entries_bytes);
    if (!err)
        err = device_upload(device, s->carrier, carrier, 2 * GNSS_CARRIER_ENTRIES);
    device_free_pinned(device, entries);
    device_free_pinned(device, carrier);
    return err;
}

/* ---- Antennas ---------------------------------------------------------------------------------------------------- */

/* Creates the basebands of all antennas, which have the same filter. */
static int create_basebands(struct gnss_stream *s, char *why, size_t why_bytes)
{
    const struct fgpu_config *config = s->gnss->config;
    float *filter = NULL;
    int err = fgpu_baseband_design(config, &s->config->band, &filter);

    if (err == -EDOM) {
        snprintf(why, why_bytes,
                 "gnss[%zu].ddc_taps: no filter of %lld taps can be designed for stream %s in double precision",
                 s->index, (long long)s->n_taps, s->config->name);
        return -EINVAL;
    }
    for (size_t ant = 0; !err && ant < s->gnss->n_ants; ant++)
        err = fgpu_baseband_create(config, s->gnss->layout, device_of(s), &s->config->band, filter,
                                   &(struct ddc_shape){0}, 0, &s->antennas[ant].baseband);
    free(filter);
    return err;
}

static int create_kernels(struct gnss_stream *s)
{
    const struct gnss_correlate_args args = gnss_stream_correlate_args(s, NULL);
    struct kernel_constant quantise_constants[GNSS_QUANTISE_N_CONSTANTS];
    struct kernel_constant constants[GNSS_CORRELATE_N_CONSTANTS];

    s->variant = device_compiles(device_of(s)) ? gnss_correlate_variant(args.n_ants) : &gnss_correlate_kernel;
    gnss_quantise_constants(quantise_constants);
    gnss_correlate_constants(s->variant, &args, device_shared_bytes(device_of(s)), constants);
    int err = device_kernel_create(device_of(s), &gnss_quantise_kernel, quantise_constants, GNSS_QUANTISE_N_CONSTANTS,
                                   &s->quantise);
    return err ? err
               : device_kernel_create(device_of(s), s->variant, constants, GNSS_CORRELATE_N_CONSTANTS, &s->correlate);
}

static int open_stream(struct gnss_antenna *a, char *why, size_t why_bytes)
{
    struct gnss_stream *s = a->stream;
    const struct fgpu_config *c = s->gnss->config;
    const struct spead_descriptor descriptors[N_ITEMS] = {
        [ITEM_TIMESTAMP] = OUTBUF_TIMESTAMP_DESCRIPTOR,
        [ITEM_FENG_ID] = FGPU_SEND_FENG_ID_DESCRIPTOR,
        [ITEM_SUMS] = {SPEAD_GNSS_SUMS, "gnss_sums",
                       "Integrations of satellites' signals; records with prn 0 are unused.", FGPU_GNSS_RECORD_DTYPE,
                       .n_dims = 1, .shape = {(int64_t)s->sizes.max_pieces}},
    };
    struct send_stream_config config;

    fgpu_send_stream_config(c, s->gnss->engine, a->ant, &config);
    config.name = s->config->name;
    config.sink.destinations = &s->config->destination;
    config.heap_bytes = s->sizes.heap_bytes;
    config.n_items = N_ITEMS;
    config.rate_bytes_per_s = fgpu_gnss_rate(c, s->config);
    config.descriptors = descriptors;
    config.n_descriptors = N_ITEMS;
    config.max_jobs = FGPU_GNSS_N_BUFFERS;
    config.stats = &a->stats;
    int err = sender_group_add_stream(s->gnss->engine->senders, &config, &a->send, why, why_bytes);
    for (size_t i = 0; !err && i < FGPU_GNSS_N_BUFFERS; i++)
        err = sender_add_memory(a->send, (uint8_t *)s->buffers[i].parts[a->ant].records, s->sizes.heap_bytes, why,
                                why_bytes);
    return err;
}

static int add_sensors(struct gnss_antenna *a, size_t satellite)
{
    const struct gnss_stream *s = a->stream;
    struct gnss_view *view = &a->views[satellite];
    char satellite_name[FGPU_GNSS_NAME_BYTES], name[160];
    const struct sensor_reading first = {clock_unix_ns(), SENSOR_INACTIVE, {.integer = 0}};
    const struct {
        struct sensor *sensor;
        const char *suffix, *units, *description;
        enum sensor_type type;
    } all[] = {
        {&view->stage_sensor, "stage", "", "Stage of the satellite's search or tracking", SENSOR_DISCRETE},
        {&view->cn0_sensor, "cn0", "dB-Hz", "C/N0 of the stronger polarisation", SENSOR_FLOAT},
        {&view->doppler_sensor, "doppler", "Hz", "Doppler of the satellite", SENSOR_FLOAT},
        {&view->age_sensor, "age", "s", "Time since the acquisition of the satellite", SENSOR_FLOAT},
    };
    int err = 0;

    fgpu_gnss_name(&s->satellites[satellite].id, satellite_name);
    for (size_t i = 0; !err && i < ARRAY_LEN(all); i++) {
        snprintf(name, sizeof(name), "%s.ant%zu.%s.%s", s->config->name, a->ant, satellite_name, all[i].suffix);
        err = sensors_add(s->gnss->engine->c.sensors, all[i].sensor,
                          &(struct sensor_desc){.name = name,
                                                .description = all[i].description,
                                                .units = all[i].units,
                                                .type = all[i].type,
                                                .words = all[i].type == SENSOR_DISCRETE ? fgpu_gnss_stage_words : NULL,
                                                .auto_shortest_s = 1.0},
                          first);
    }
    return err;
}

static void register_view(const struct gnss_antenna *a, size_t satellite, const char *of_antenna)
{
    const struct gnss_view *view = &a->views[satellite];
    char labels[256], with_pol[280], name[FGPU_GNSS_NAME_BYTES];

    snprintf(labels, sizeof(labels), "%s", of_antenna);
    stats_label(labels, sizeof(labels), "satellite", fgpu_gnss_name(&a->stream->satellites[satellite].id, name));
    stats_gauge("fgpu_gnss_stage", "Stage of the satellite: 0 is search, 1 pull-in, 2 settling, 3 tracking.", labels,
                &view->stage);
    stats_gauge_scaled("fgpu_gnss_doppler_hz", "Doppler of the satellite; 0 while the satellite is not followed.",
                       labels, &view->doppler_mhz, 1e-3);
    stats_counter("fgpu_gnss_losses", "Number of times that tracking of the satellite was lost.", labels,
                  &view->losses);
    stats_counter("fgpu_gnss_searches", "Number of searches for the satellite.", labels, &view->searches);
    for (int pol = 0; pol < N_POLS; pol++) {
        const char value[2] = {(char)('0' + pol), '\0'};
        snprintf(with_pol, sizeof(with_pol), "%s", labels);
        stats_label(with_pol, sizeof(with_pol), "pol", value);
        stats_gauge_scaled("fgpu_gnss_cn0_db_hz", "C/N0 of the satellite; 0 while the satellite is not followed.",
                           with_pol, &view->cn0_mdb[pol], 1e-3);
    }
}

static void register_antenna(struct gnss_antenna *a)
{
    const struct gnss_stream *s = a->stream;
    char labels[256] = "";

    stats_label(labels, sizeof(labels), "antenna", fgpu_config_antenna(s->gnss->config, a->ant)->name);
    stats_label(labels, sizeof(labels), "stream", s->config->name);
    outbuf_metrics("fgpu_gnss", labels, &a->stats);
    stats_counter("fgpu_gnss_dropped_heaps",
                  "Heaps of satellites' correlation sums that were not made because no output buffer was free.", labels,
                  &a->dropped_heaps);
    stats_counter(
        "fgpu_gnss_late_heaps",
        "Heaps of satellites' correlation sums that were not made because other antennas' data were much later, "
        "or because the data's time did not agree with the time of the other antennas.",
        labels, &a->late_heaps);
    stats_counter("fgpu_gnss_samples", "Number of complex samples that were correlated, per polarisation.", labels,
                  &a->present_samples);
    stats_counter("fgpu_gnss_missing_samples",
                  "Number of complex samples that were not correlated because input was missing.", labels,
                  &a->missing_samples);
    stats_counter("fgpu_gnss_clipped_samples",
                  "Number of complex samples, of both polarisations, that exceeded the range of 8 bits.", labels,
                  &a->clipped_samples);
    for (size_t i = 0; i < s->sizes.n_satellites; i++)
        register_view(a, i, labels);
}

static int init_antenna(struct gnss_antenna *a, char *why, size_t why_bytes)
{
    const struct gnss_stream *s = a->stream;
    struct gnss_acquire_limits limits = {0};

    fgpu_gnss_add_limits(s->gnss->config, s->config, &limits);
    a->search.pitch_samples = s->sizes.search_samples;
    a->search.samples = device_alloc(device_of(s), N_POLS * s->sizes.search_samples * 2);
    a->views = calloc(s->sizes.n_satellites, sizeof(*a->views));
    if (!a->search.samples || !a->views)
        return -ENOMEM;
    for (unsigned pol = 0; pol < N_POLS; pol++)
        a->scale[pol] = 1;
    for (size_t i = 0; i < s->sizes.n_satellites; i++)
        a->views[i].retry_sample = INT64_MIN;
    int err = fgpu_gnss_search_init(s->gnss->searcher, &limits, &a->search);
    if (err)
        return err;
    register_antenna(a);
    for (size_t i = 0; !err && i < s->sizes.n_satellites; i++)
        err = add_sensors(a, i);
    return err ? err : open_stream(a, why, why_bytes);
}

/* ---- The stream -------------------------------------------------------------------------------------------------- */

int gnss_stream_init(struct gnss_stream *s, char *why, size_t why_bytes)
{
    struct device *device = device_of(s);
    const size_t n_ants = s->gnss->n_ants;

    s->sample_rate_hz = fgpu_gnss_sample_rate_hz(s->gnss->config, s->config);
    s->subsampling = fgpu_band_subsampling(&s->config->band);
    s->n_taps = fgpu_band_taps(&s->config->band);
    s->sizes = fgpu_gnss_sizes(s->gnss->config, s->config);
    s->samples = device_alloc(device, n_ants * N_POLS * s->sizes.pitch_samples * 2);
    s->levels = device_alloc(device, N_POLS * sizeof(*s->levels));
    s->buffers = calloc(FGPU_GNSS_N_BUFFERS, sizeof(*s->buffers));
    s->antennas = calloc(n_ants, sizeof(*s->antennas));
    if (!s->samples || !s->levels || !s->buffers || !s->antennas)
        return -ENOMEM;
    for (size_t ant = 0; ant < n_ants; ant++) {
        s->antennas[ant].stream = s;
        s->antennas[ant].ant = ant;
    }
    int err = device_stream_create(device, "gnss", &s->compute);
    if (!err)
        err = create_slots(s);
    if (!err)
        err = create_basebands(s, why, why_bytes);
    if (!err)
        err = create_tables(s, why, why_bytes);
    if (!err)
        err = create_kernels(s);
    for (size_t b = 0; !err && b < FGPU_GNSS_N_BUFFERS; b++)
        err = create_buffer(s, &s->buffers[b]);
    if (err)
        return err;
    for (size_t ant = 0; !err && ant < n_ants; ant++)
        err = init_antenna(&s->antennas[ant], why, why_bytes);
    return err;
}

static void fini_antenna(struct gnss_antenna *a)
{
    fgpu_gnss_search_fini(&a->search);
    fgpu_baseband_destroy(a->baseband);
    device_free(device_of(a->stream), a->search.samples);
    free(a->views);
}

void gnss_stream_fini(struct gnss_stream *s, struct device *device)
{
    device_stream_destroy(s->compute);
    matcher_destroy(s->matcher);
    for (size_t b = 0; s->buffers && b < FGPU_GNSS_N_BUFFERS; b++)
        if (s->buffers[b].stream)
            destroy_buffer(s, &s->buffers[b]);
    for (size_t i = 0; s->slots && i < s->sizes.n_slots; i++)
        destroy_slot(s, &s->slots[i]);
    for (size_t ant = 0; s->antennas && ant < s->gnss->n_ants; ant++)
        if (s->antennas[ant].stream)
            fini_antenna(&s->antennas[ant]);
    for (size_t i = 0; s->satellites && i < s->sizes.n_satellites; i++)
        free(s->satellites[i].align.ants);
    inbox_destroy(s->free_chunks);
    device_kernel_destroy(s->quantise);
    device_kernel_destroy(s->correlate);
    device_free(device, s->samples);
    device_free(device, s->levels);
    device_free(device, s->codes);
    device_free(device, s->entries);
    device_free(device, s->carrier);
    device_free_pinned(device, s->tables);
    free(s->satellites);
    free(s->antennas);
    free(s->slots);
    free(s->buffers);
}
