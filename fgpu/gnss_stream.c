/* gnss_stream.c - creates one antenna's stream of satellite sums. */
#include "fgpu/gnss_stream.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "common/net/spead.h"
#include "common/send/sender_group.h"
#include "common/telemetry/stats.h"
#include "fgpu/send.h"

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
                                       .offsets = s->offsets,
                                       .pieces = b ? b->device_pieces : NULL,
                                       .sums = b ? b->device_sums : NULL,
                                       .n_pieces = b ? (uint32_t)b->n_pieces : 0,
                                       .n_ants = 1,
                                       .n_taps = FGPU_GNSS_N_TAPS};

    for (size_t i = 0; b && i < b->n_pieces; i++)
        if (b->pieces[i].n_samples > args.max_samples)
            args.max_samples = b->pieces[i].n_samples;
    return args;
}

void fgpu_gnss_add_memory(const struct fgpu_layout *layout, const struct fgpu_config *config,
                          const struct fgpu_config_gnss *gnss, bool compiles, size_t n, struct memory_use *memory)
{
    const struct fgpu_gnss_sizes z = fgpu_gnss_sizes(config, gnss);
    const size_t sums = z.max_pieces * GNSS_SUMS_OF_PIECE * sizeof(int64_t),
                 pieces = z.max_pieces * sizeof(struct gnss_piece);
    const size_t levels = N_POLS * sizeof(struct gnss_level);
    const size_t pinned = device_pinned_bytes(sums, compiles) + device_pinned_bytes(pieces, compiles) +
                          device_pinned_bytes(levels, compiles) + device_pinned_bytes(z.heap_bytes, compiles);
    struct gnss_acquire_limits limits = {0};

    fgpu_gnss_add_limits(config, gnss, &limits);
    bytes_add(&memory->buffers_bytes, n * FGPU_GNSS_N_BUFFERS, pinned);
    bytes_add(&memory->host_bytes, n * FGPU_GNSS_N_BUFFERS, pinned + z.max_pieces * sizeof(struct gnss_piece_info));
    bytes_add(&memory->device_bytes, n * FGPU_GNSS_N_BUFFERS, sums + pieces + levels);
    bytes_add(&memory->host_bytes, n,
              device_pinned_bytes(z.table_bytes, compiles) + z.n_satellites * sizeof(struct gnss_followed) +
                  gnss_acquire_pinned_bytes(&limits, compiles));
    bytes_add(&memory->device_bytes, n, N_POLS * z.search_samples * 2 + gnss_acquire_device_bytes(&limits));
    bytes_add(&memory->device_bytes, n,
              N_POLS * z.pitch_samples * 2 + 2 * GNSS_CARRIER_ENTRIES + z.table_bytes +
                  z.n_satellites * (sizeof(struct gnss_satellite) + sizeof(int32_t)));
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

static int create_buffer(struct gnss_stream *s, struct gnss_buffer *b)
{
    struct device *device = device_of(s);
    const struct fgpu_gnss_sizes *z = &s->sizes;
    const size_t sums_bytes = z->max_pieces * GNSS_SUMS_OF_PIECE * sizeof(*b->sums);

    b->stream = s;
    b->pieces = device_alloc_pinned(device, z->max_pieces * sizeof(*b->pieces));
    b->device_pieces = device_alloc(device, z->max_pieces * sizeof(*b->pieces));
    b->sums = device_alloc_pinned(device, sums_bytes);
    b->device_sums = device_alloc(device, sums_bytes);
    b->levels = device_alloc_pinned(device, N_POLS * sizeof(*b->levels));
    b->device_levels = device_alloc(device, N_POLS * sizeof(*b->levels));
    b->infos = calloc(z->max_pieces, sizeof(*b->infos));
    b->records = device_alloc_pinned(device, z->heap_bytes);
    if (!b->pieces || !b->device_pieces || !b->sums || !b->device_sums || !b->levels || !b->device_levels ||
        !b->infos || !b->records)
        return -ENOMEM;
    b->heap = (struct send_heap){
        .payload = (const uint8_t *)b->records,
        .payload_bytes = z->heap_bytes,
        .items = {[ITEM_TIMESTAMP] = {SPEAD_TIMESTAMP, true, 0},
                  [ITEM_FENG_ID] = {SPEAD_FENG_ID, true,
                                    (uint64_t)fgpu_config_antenna(s->gnss->config, s->ant)->feng_id},
                  [ITEM_SUMS] = {SPEAD_GNSS_SUMS, false, 0}},
        .n_items = N_ITEMS,
    };
    b->group = (struct send_group){.heaps = &b->heap, .n_heaps = 1};
    b->job = (struct send_job){.ref = &b->base.ref, .groups = &b->group, .n_groups = 1};
    return outbuf_init(&b->base, &s->pool, s->gnss->engine);
}

static void destroy_buffer(struct device *device, struct gnss_buffer *b)
{
    outbuf_fini(&b->base);
    device_free_pinned(device, b->pieces);
    device_free(device, b->device_pieces);
    device_free_pinned(device, b->sums);
    device_free(device, b->device_sums);
    device_free_pinned(device, b->levels);
    device_free(device, b->device_levels);
    free(b->infos);
    device_free_pinned(device, b->records);
}

static void init_satellite(struct gnss_stream *s, struct gnss_followed *sat, const struct fgpu_gnss_satellite *id,
                           struct gnss_satellite *entry, size_t table_at)
{
    sat->id = *id;
    sat->table = s->tables + table_at;
    sat->retry_sample = INT64_MIN;
    fgpu_gnss_track_init(&sat->track, &(struct fgpu_gnss_track_config){.signal = id->signal,
                                                                       .subcarrier = id->subcarrier,
                                                                       .sample_rate_hz = s->sample_rate_hz,
                                                                       .carrier_hz = id->carrier_hz});
    fgpu_gnss_track_taps(&sat->track, entry);
    entry->table = (uint32_t)table_at;
}

/* Creates the tables of the codes, and the satellites.  'entries' is pinned memory. */
static int create_satellites(struct gnss_stream *s, struct gnss_satellite *entries, char *why, size_t why_bytes)
{
    struct fgpu_gnss_satellite ids[FGPU_GNSS_MAX_SATELLITES];
    int8_t chips[GNSS_MAX_CHIPS];
    char reason[400];
    size_t at = 0;

    fgpu_gnss_satellites(s->gnss->config, s->config, ids);
    for (size_t i = 0; i < s->sizes.n_satellites; i++) {
        const uint32_t n_chips = gnss_signal_facts(ids[i].signal)->n_chips;
        int err = fgpu_gnss_chips(s->config, &ids[i], chips, reason, sizeof(reason));
        if (err) {
            snprintf(why, why_bytes, "gnss[%zu].codes: %s", (size_t)(s - s->gnss->streams) % s->gnss->n_streams,
                     reason);
            return err;
        }
        gnss_code_table(chips, n_chips, ids[i].subcarrier, s->tables + at);
        init_satellite(s, &s->satellites[i], &ids[i], &entries[i], at);
        at += n_chips * (size_t)gnss_subchips(ids[i].subcarrier);
    }
    return 0;
}

/* Creates the correlator's tables on the device: codes, satellites, carrier, offsets. */
static int create_tables(struct gnss_stream *s, char *why, size_t why_bytes)
{
    struct device *device = device_of(s);
    const size_t n = s->sizes.n_satellites, entries_bytes = n * sizeof(struct gnss_satellite);
    struct gnss_satellite *entries = device_alloc_pinned(device, entries_bytes);
    int8_t *carrier = device_alloc_pinned(device, 2 * GNSS_CARRIER_ENTRIES);
    int32_t *zeros = device_alloc_pinned(device, n * sizeof(*zeros));
    int err = -ENOMEM;

    s->tables = device_alloc_pinned(device, s->sizes.table_bytes);
    s->satellites = calloc(n, sizeof(*s->satellites));
    s->codes = device_alloc(device, s->sizes.table_bytes);
    s->entries = device_alloc(device, entries_bytes);
    s->carrier = device_alloc(device, 2 * GNSS_CARRIER_ENTRIES);
    s->offsets = device_alloc(device, n * sizeof(*zeros));
    if (entries && carrier && zeros && s->tables && s->satellites && s->codes && s->entries && s->carrier &&
        s->offsets) {
        memset(entries, 0, entries_bytes);
        memset(zeros, 0, n * sizeof(*zeros));
        gnss_carrier_table(carrier);
        err = create_satellites(s, entries, why, why_bytes);
    }
    if (!err)
        err = device_upload(device, s->codes, s->tables, s->sizes.table_bytes);
    if (!err)
        err = device_upload(device, s->entries, entries, entries_bytes);
    if (!err)
        err = device_upload(device, s->carrier, carrier, 2 * GNSS_CARRIER_ENTRIES);
    if (!err)
        err = device_upload(device, s->offsets, zeros, n * sizeof(*zeros));
    device_free_pinned(device, entries);
    device_free_pinned(device, carrier);
    device_free_pinned(device, zeros);
    return err;
}

static int create_baseband(struct gnss_stream *s, char *why, size_t why_bytes)
{
    const struct fgpu_config *config = s->gnss->config;
    float *filter = NULL;
    int err = fgpu_baseband_design(config, &s->config->band, &filter);

    if (err == -EDOM) {
        snprintf(why, why_bytes,
                 "gnss[%zu].ddc_taps: no filter of %lld taps can be designed for stream %s in double precision",
                 (size_t)(s - s->gnss->streams) % s->gnss->n_streams, (long long)s->n_taps, s->config->name);
        return -EINVAL;
    }
    if (!err)
        err = fgpu_baseband_create(config, s->gnss->layout, device_of(s), &s->config->band, filter,
                                   &(struct ddc_shape){0}, 0, &s->baseband);
    free(filter);
    return err;
}

static int create_kernels(struct gnss_stream *s)
{
    const struct gnss_correlate_args args = gnss_stream_correlate_args(s, NULL);
    struct kernel_constant quantise_constants[GNSS_QUANTISE_N_CONSTANTS];
    struct kernel_constant constants[GNSS_CORRELATE_N_CONSTANTS];

    s->variant = gnss_correlate_variant(args.n_ants);
    gnss_quantise_constants(quantise_constants);
    gnss_correlate_constants(s->variant, &args, device_shared_bytes(device_of(s)), constants);
    int err = device_kernel_create(device_of(s), &gnss_quantise_kernel, quantise_constants, GNSS_QUANTISE_N_CONSTANTS,
                                   &s->quantise);
    return err ? err
               : device_kernel_create(device_of(s), s->variant, constants, GNSS_CORRELATE_N_CONSTANTS, &s->correlate);
}

static int open_stream(struct gnss_stream *s, char *why, size_t why_bytes)
{
    const struct fgpu_config *c = s->gnss->config;
    const struct spead_descriptor descriptors[N_ITEMS] = {
        [ITEM_TIMESTAMP] = OUTBUF_TIMESTAMP_DESCRIPTOR,
        [ITEM_FENG_ID] = FGPU_SEND_FENG_ID_DESCRIPTOR,
        [ITEM_SUMS] = {SPEAD_GNSS_SUMS, "gnss_sums",
                       "Integrations of satellites' signals; records with prn 0 are unused.", FGPU_GNSS_RECORD_DTYPE,
                       .n_dims = 1, .shape = {(int64_t)s->sizes.max_pieces}},
    };
    struct send_stream_config config;

    fgpu_send_stream_config(c, s->gnss->engine, s->ant, &config);
    config.name = s->config->name;
    config.sink.destinations = &s->config->destination;
    config.heap_bytes = s->sizes.heap_bytes;
    config.n_items = N_ITEMS;
    config.rate_bytes_per_s = fgpu_gnss_rate(c, s->config);
    config.descriptors = descriptors;
    config.n_descriptors = N_ITEMS;
    config.max_jobs = FGPU_GNSS_N_BUFFERS;
    config.stats = &s->stats;
    int err = sender_group_add_stream(s->gnss->engine->senders, &config, &s->send, why, why_bytes);
    for (size_t i = 0; !err && i < FGPU_GNSS_N_BUFFERS; i++)
        err = sender_add_memory(s->send, (uint8_t *)s->buffers[i].records, s->sizes.heap_bytes, why, why_bytes);
    return err;
}

static int add_satellite_sensors(struct gnss_stream *s, struct gnss_followed *sat)
{
    struct sensors *sensors = s->gnss->engine->c.sensors;
    char satellite[FGPU_GNSS_NAME_BYTES], name[160];
    const struct sensor_reading first = {clock_unix_ns(), SENSOR_INACTIVE, {.integer = 0}};
    const struct {
        struct sensor *sensor;
        const char *suffix, *units, *description;
        enum sensor_type type;
    } all[] = {
        {&sat->stage_sensor, "stage", "", "Stage of the satellite's search or tracking", SENSOR_DISCRETE},
        {&sat->cn0_sensor, "cn0", "dB-Hz", "C/N0 of the stronger polarisation", SENSOR_FLOAT},
        {&sat->doppler_sensor, "doppler", "Hz", "Doppler of the satellite", SENSOR_FLOAT},
        {&sat->age_sensor, "age", "s", "Time since the acquisition of the satellite", SENSOR_FLOAT},
    };
    int err = 0;

    fgpu_gnss_name(&sat->id, satellite);
    for (size_t i = 0; !err && i < ARRAY_LEN(all); i++) {
        snprintf(name, sizeof(name), "%s.ant%zu.%s.%s", s->config->name, s->ant, satellite, all[i].suffix);
        err = sensors_add(sensors, all[i].sensor,
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

static void register_satellite(const struct gnss_followed *sat, const char *of_stream)
{
    char labels[256], with_pol[280], name[FGPU_GNSS_NAME_BYTES];

    snprintf(labels, sizeof(labels), "%s", of_stream);
    stats_label(labels, sizeof(labels), "satellite", fgpu_gnss_name(&sat->id, name));
    stats_gauge("fgpu_gnss_stage", "Stage of the satellite: 0 is search, 1 pull-in, 2 settling, 3 tracking.", labels,
                &sat->stage);
    stats_gauge_scaled("fgpu_gnss_doppler_hz", "Doppler of the satellite; 0 while the satellite is not followed.",
                       labels, &sat->doppler_mhz, 1e-3);
    stats_counter("fgpu_gnss_losses", "Number of times that tracking of the satellite was lost.", labels, &sat->losses);
    stats_counter("fgpu_gnss_searches", "Number of searches for the satellite.", labels, &sat->searches);
    for (int pol = 0; pol < N_POLS; pol++) {
        const char value[2] = {(char)('0' + pol), '\0'};
        snprintf(with_pol, sizeof(with_pol), "%s", labels);
        stats_label(with_pol, sizeof(with_pol), "pol", value);
        stats_gauge_scaled("fgpu_gnss_cn0_db_hz", "C/N0 of the satellite; 0 while the satellite is not followed.",
                           with_pol, &sat->cn0_mdb[pol], 1e-3);
    }
}

static void register_metrics(struct gnss_stream *s)
{
    char labels[256] = "";

    stats_label(labels, sizeof(labels), "antenna", fgpu_config_antenna(s->gnss->config, s->ant)->name);
    stats_label(labels, sizeof(labels), "stream", s->config->name);
    outbuf_metrics("fgpu_gnss", labels, &s->stats);
    stats_counter("fgpu_gnss_dropped_heaps",
                  "Heaps of satellites' correlation sums that were not made because no output buffer was free.", labels,
                  &s->dropped_heaps);
    stats_counter("fgpu_gnss_samples", "Number of complex samples that were correlated, per polarisation.", labels,
                  &s->present_samples);
    stats_counter("fgpu_gnss_missing_samples",
                  "Number of complex samples that were not correlated because input was missing.", labels,
                  &s->missing_samples);
    stats_counter("fgpu_gnss_clipped_samples",
                  "Number of complex samples, of both polarisations, that exceeded the range of 8 bits.", labels,
                  &s->clipped_samples);
    for (size_t i = 0; i < s->sizes.n_satellites; i++)
        register_satellite(&s->satellites[i], labels);
}

int gnss_stream_init(struct gnss_stream *s, char *why, size_t why_bytes)
{
    struct gnss_acquire_limits limits = {0};

    fgpu_gnss_add_limits(s->gnss->config, s->config, &limits);
    s->sample_rate_hz = fgpu_gnss_sample_rate_hz(s->gnss->config, s->config);
    s->subsampling = fgpu_band_subsampling(&s->config->band);
    s->n_taps = fgpu_band_taps(&s->config->band);
    s->sizes = fgpu_gnss_sizes(s->gnss->config, s->config);
    s->search.pitch_samples = s->sizes.search_samples;
    s->search.samples = device_alloc(device_of(s), N_POLS * s->sizes.search_samples * 2);
    s->samples = device_alloc(device_of(s), N_POLS * s->sizes.pitch_samples * 2);
    s->buffers = calloc(FGPU_GNSS_N_BUFFERS, sizeof(*s->buffers));
    if (!s->search.samples || !s->samples || !s->buffers)
        return -ENOMEM;
    for (unsigned pol = 0; pol < N_POLS; pol++)
        s->scale[pol] = 1;
    int err = fgpu_gnss_search_init(s->gnss->searcher, &limits, &s->search);
    if (!err)
        err = create_baseband(s, why, why_bytes);
    if (!err)
        err = create_tables(s, why, why_bytes);
    if (!err)
        err = create_kernels(s);
    for (size_t b = 0; !err && b < FGPU_GNSS_N_BUFFERS; b++)
        err = create_buffer(s, &s->buffers[b]);
    if (err)
        return err;
    register_metrics(s);
    for (size_t i = 0; !err && i < s->sizes.n_satellites; i++)
        err = add_satellite_sensors(s, &s->satellites[i]);
    return err ? err : open_stream(s, why, why_bytes);
}

void gnss_stream_fini(struct gnss_stream *s, struct device *device)
{
    for (size_t b = 0; s->buffers && b < FGPU_GNSS_N_BUFFERS; b++)
        destroy_buffer(device, &s->buffers[b]);
    fgpu_gnss_search_fini(&s->search);
    fgpu_baseband_destroy(s->baseband);
    device_kernel_destroy(s->quantise);
    device_kernel_destroy(s->correlate);
    device_free(device, s->samples);
    device_free(device, s->codes);
    device_free(device, s->entries);
    device_free(device, s->carrier);
    device_free(device, s->offsets);
    device_free_pinned(device, s->tables);
    device_free(device, s->search.samples);
    free(s->satellites);
    free(s->buffers);
}
