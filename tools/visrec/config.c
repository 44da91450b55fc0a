/* config.c - key table of visrec's YAML, and checks across keys. */
#include "tools/visrec/config.h"

#include "common/recv/chunk.h"
#include "common/base/file.h"
#include "common/config/transport_keys.h"
#include "common/base/units.h"

#include <math.h>
#include <string.h>

/* Shortest dump.  The file's Julian dates are doubles, whose resolution is 40 us, so shorter dumps could have equal
 * dates. */
#define INTEGRATION_MIN_S 1e-4

/* Sizes in the file, in bytes.  VALUE_BYTES: a visibility with its flag and its nsamples value.  ROW_BYTES: a row of
 * the header's arrays.  FILE_BYTES: an upper bound for the header and HDF5's tables. */
#define VALUE_BYTES (8 + 1 + 4)
#define ROW_BYTES   (12 * 8)
#define FILE_BYTES  (8 << 20)

#define KEYS_OF struct visrec_config_recv
static const struct config_key recv_keys[] = {
    KEY_ENDPOINTS("sources", sources, KEY_REQUIRED, 1, 4096,
                  "Addresses to which the X-engines send this stream: a.b.c.d[+n][:port], comma separated.",
                  .example = "239.10.2.0+15:7148"),
    CONFIG_INTERFACE_ROW,
    KEY_STRING("pcap_file", base.pcap_file, "", 0, 4096,
               "Capture file that is read instead of the network. Nothing is lost if the reader is slow."),
    CONFIG_RECV_FROM_ROW,
    CONFIG_CRC_ROW,
    KEY_INT("buffer", base.buffer_bytes, "33554432", UNIT_BYTES, 0, 4294967296.0,
            "Socket buffer, shared by the sources; 0: the kernel's default. With ibverbs: the ring of frames."),
    CONFIG_TRANSPORT_ROW,
    CONFIG_COMP_VECTOR_ROW,
    KEY_INT("window", window_dumps, "2", UNIT_NONE, 1, 64, "Number of dumps that are kept open for late packets."),
};
#undef KEYS_OF

static const char *const value_choices[] = {"int32", "float32", NULL};

#define KEYS_OF struct visrec_config_stream
static const struct config_key stream_keys[] = {
    KEY_INT("channels", n_chan, KEY_REQUIRED, UNIT_CHANNELS, 1, 65536,
            "Number of channels of the whole stream, which all X-engines send together.", .example = "4096"),
    KEY_INT("channels_per_substream", n_chan_substream, KEY_REQUIRED, UNIT_CHANNELS, 1, 65536,
            "Number of channels that each X-engine sends.", .example = "256"),
    KEY_INT("spectra_per_heap", spectra_per_heap, "256", UNIT_SPECTRA, 1, 65520,
            "Number of spectra in a heap of an F-engine. These spectra are a batch."),
    KEY_INT("samples_between_spectra", samples_between_spectra, KEY_REQUIRED, UNIT_SAMPLES, 1, 2147483648.0,
            "Number of ADC samples from one spectrum to the next: 2 * channels for a wideband stream.",
            .example = "8192"),
    KEY_INT("integration_batches", integration_batches, "0", UNIT_BATCHES, 0, 1e9,
            "Length of an accumulation in batches, as in xbgpu; 0: integration_time sets the length."),
    KEY_DOUBLE(
        "integration_time", integration_time_s, "0", UNIT_S, 0, 1e6,
        "Length of an accumulation in seconds, rounded to whole batches; 0: integration_batches sets the length.",
        .example = "0.5"),
    KEY_BOOL("weights", weights, false,
             "true: the stream contains the number of summed spectra of each baseline (xbgpu's `missing: weights`)."),
    KEY_STRING("gate", gate, "", 0, 4096,
               "Gate of the stream, copied from xbgpu's `gates`; visrec writes this text into the output file. "
               "Empty: the stream has no gate."),
    KEY_BOOL("gate_channels", gate_channels, false,
             "true: the gate has a dispersion_measure, so each channel has its own weights if the stream has "
             "weights."),
    KEY_ENUM("values", values, "int32", value_choices,
             "Type of visibilities: float32 if xbgpu's `recv.sample_bits` is 16."),
    KEY_DOUBLE("centre_frequency", centre_frequency_hz, "0", UNIT_HZ, 0, 1e12,
               "Sky frequency of the centre of channel number channels / 2. 0: adc_sample_rate / 4, the centre of the "
               "first Nyquist zone."),
};
#undef KEYS_OF

#define KEYS_OF struct visrec_config_telescope
static const struct config_key telescope_keys[] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the telescope.", .example = "array"),
    KEY_DOUBLE("latitude", latitude_deg, KEY_REQUIRED, UNIT_DEG, -90, 90,
               "Geodetic latitude (WGS84) of the reference position, north positive.", .example = "-30.7128"),
    KEY_DOUBLE("longitude", longitude_deg, KEY_REQUIRED, UNIT_DEG, -180, 360,
               "Longitude of the reference position, east positive.", .example = "21.4436"),
    KEY_DOUBLE("altitude", altitude_m, KEY_REQUIRED, UNIT_M, -1000, 10000,
               "Height of the reference position above the ellipsoid.", .example = "1038"),
    KEY_DOUBLE("ut1_utc", ut1_utc_s, "0", UNIT_S, -0.9, 0.9,
               "Current value of UT1 - UTC (IERS Bulletin A), for the file's sidereal times; with 0, these times are "
               "wrong by UT1 - UTC."),
};
#undef KEYS_OF

#define KEYS_OF struct visrec_config_antenna
static const struct config_key antenna_keys[] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the antenna."),
    KEY_POSITION("position", position_m, KEY_REQUIRED, UNIT_M, -1e7, 1e7,
                 "Position of the antenna relative to the telescope's reference position: east, north, up."),
};
#undef KEYS_OF

#define KEYS_OF struct visrec_config_output
static const struct config_key output_keys[] = {
    KEY_STRING("file", file, KEY_REQUIRED, 1, 4096,
               "Name of the UVH5 file. The UTC at which the file begins replaces codes of strftime in the name "
               "(%Y%m%dT%H%M%SZ).",
               .example = "/data/array-%Y%m%dT%H%M%SZ.uvh5"),
    KEY_BOOL("overwrite", overwrite, false,
             "true: an existing file is replaced. false: visrec does not start if the file exists and its name "
             "contains no time."),
    KEY_INT("max_file_size", max_file_bytes, "0", UNIT_BYTES, 0, 1e18,
            "Largest size of a file. A dump that would exceed this size begins the next file. 0: no limit."),
    KEY_DOUBLE("max_file_time", max_file_time_s, "0", UNIT_S, 0, 1e9,
               "Longest time that a file covers, for example 3600. A dump that would exceed this time begins the "
               "next file. 0: no limit."),
    KEY_INT("max_dumps", max_dumps, "0", UNIT_NONE, 0, 1e9,
            "Number of dumps after which visrec ends; 0: visrec runs until stopped."),
};
#undef KEYS_OF

static const char antenna_example[] = "  - name: m000\n"
                                      "    position: [0.0, 0.0, 0.0]\n"
                                      "  - name: m001\n"
                                      "    position: [30.0, 0.0, 0.0]\n";

static const struct config_section sections[] = {
    CONFIG_TIME_SECTION(struct visrec_config),
    CONFIG_SECTION(struct visrec_config, recv, recv_keys, "Reception of visibilities."),
    CONFIG_SECTION(struct visrec_config, stream, stream_keys,
                   "Numbers of channels, spectra and samples of the stream."),
    CONFIG_SECTION(struct visrec_config, telescope, telescope_keys, "The telescope and its position."),
    CONFIG_LIST(struct visrec_config, antennas, struct visrec_config_antenna, antenna_keys, 1, 4096,
                "All antennas of the array, in the order of their feng_id.", .example = antenna_example),
    CONFIG_SECTION(struct visrec_config, output, output_keys, "The recorded files."),
    CONFIG_HTTP_SECTION(struct visrec_config),
};

const struct config_table visrec_config_table = {.program = "visrec",
                                                 .help = "Records visibilities to UVH5 files.",
                                                 .sections = sections,
                                                 .n_sections = ARRAY_LEN(sections)};

int64_t visrec_config_integration_batches(const struct visrec_config *config)
{
    const struct visrec_config_stream *stream = &config->stream;
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double batch_samples = (double)stream->spectra_per_heap * (double)stream->samples_between_spectra;

    if (stream->integration_batches > 0)
        return stream->integration_batches;
    double n_batches = rint(stream->integration_time_s * rate_hz / batch_samples);
    return n_batches < 1 ? 1 : (int64_t)n_batches;
}

int64_t visrec_config_integration_samples(const struct visrec_config *config)
{
    return visrec_config_integration_batches(config) * config->stream.spectra_per_heap *
           config->stream.samples_between_spectra;
}

uint64_t visrec_config_dump_bytes(const struct visrec_config *config)
{
    uint64_t n_baselines = config->antennas.n * (config->antennas.n + 1) / 2;

    return n_baselines * ((uint64_t)config->stream.n_chan * N_POL_PRODUCTS * VALUE_BYTES + ROW_BYTES);
}

static void check_integration(const struct visrec_config *values, struct config *config)
{
    const struct visrec_config_stream *stream = &values->stream;
    double batch_samples = (double)stream->spectra_per_heap * (double)stream->samples_between_spectra;
    double rate_hz = timebase_decimal_to_double(values->time.adc_sample_rate_hz);
    double n_samples;

    if ((stream->integration_batches > 0) == (stream->integration_time_s > 0)) {
        config_error(config, &stream->integration_batches, "give either integration_batches or integration_time");
        return;
    }
    if (stream->integration_batches > 0)
        n_samples = (double)stream->integration_batches * batch_samples;
    else
        n_samples = stream->integration_time_s * rate_hz;
    if (n_samples >= 0x1p47)
        config_error(config, &stream->integration_batches,
                     "the integration is longer than half the range of timestamps");
    else if (rate_hz > 0 && (double)visrec_config_integration_samples(values) < INTEGRATION_MIN_S * rate_hz)
        config_error(config, &stream->integration_batches,
                     "the integration is shorter than 0.1 ms: the file's Julian dates could not distinguish dumps");
    else if ((stream->weights || stream->gate) && n_samples / (double)stream->samples_between_spectra > UINT32_MAX)
        config_error(config, &stream->integration_batches,
                     "the integration has more spectra than a weight can represent");
}

/* Checks that the size of a heap fits in 32 bits. */
static void check_heap(const struct visrec_config *values, struct config *config)
{
    uint64_t n_baselines = values->antennas.n * (values->antennas.n + 1) / 2;
    uint64_t vis_bytes = N_POL_PRODUCTS * 2 * sizeof(int32_t);

    uint64_t n_chan = (uint64_t)values->stream.n_chan_substream, n_rows = values->stream.gate_channels ? n_chan : 1;

    if (values->stream.gate_channels && !values->stream.gate)
        config_error(config, &values->stream.gate_channels, "gate_channels needs a gate");
    if (n_chan * n_baselines * vis_bytes + (n_rows * n_baselines + n_chan) * sizeof(uint32_t) >= CHUNK_HEAP_MAPPED)
        config_error(config, &values->stream.n_chan_substream,
                     "a heap of %lld channels and %llu baselines must be below 2 GiB",
                     (long long)values->stream.n_chan_substream, (unsigned long long)n_baselines);
}

/* Checks that the limits of a file allow at least one dump.  Otherwise no dump could ever be written. */
static void check_output(const struct visrec_config *values, struct config *config)
{
    const struct visrec_config_output *output = &values->output;
    double rate_hz = timebase_decimal_to_double(values->time.adc_sample_rate_hz);
    double dump_s = rate_hz > 0 ? (double)visrec_config_integration_samples(values) / rate_hz : 0;
    uint64_t least_bytes = FILE_BYTES + visrec_config_dump_bytes(values);

    if (output->max_file_bytes > 0 && (uint64_t)output->max_file_bytes < least_bytes)
        config_error(config, &output->max_file_bytes,
                     "a file with one dump may have %llu bytes: set max_file_size to this or more",
                     (unsigned long long)least_bytes);
    if (output->max_file_time_s > 0 && output->max_file_time_s < dump_s)
        config_error(config, &output->max_file_time_s, "a dump lasts %.6g s: set max_file_time to this or more",
                     dump_s);
}

void visrec_config_check(void *values_, struct config *config)
{
    struct visrec_config *values = values_;
    const struct visrec_config_stream *stream = &values->stream;

    if (config_n_errors(config) > 0)
        return; /* after an error, do not check 'values', because members may be missing */
    http_keys_check(&values->http, config);
    if (stream->n_chan % stream->n_chan_substream != 0)
        config_error(config, &stream->n_chan_substream, "channels_per_substream must divide channels (%lld)",
                     (long long)stream->n_chan);
    check_integration(values, config);
    recv_keys_check_sources(&values->recv.sources, config);
    recv_keys_check(&values->recv.base, NULL, config);
    recv_keys_set_senders(&values->recv.sources, &values->recv.base.senders);
    check_heap(values, config);
    check_output(values, config);
    if (files_are_same(values->recv.base.pcap_file, values->output.file))
        config_error(config, &values->output.file, "output.file would overwrite the capture that is read");
    for (size_t i = 0; i < values->antennas.n; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct visrec_config_antenna *antenna = visrec_config_antenna(values, i);

            if (strcmp(antenna->name, visrec_config_antenna(values, j)->name) == 0)
                config_error(config, &antenna->name, "antenna %zu also has the name %s; names must differ", j,
                             antenna->name);
        }
    }
}
