/* config.c - key table of beamrec's YAML, and checks across keys. */
#include "tools/beamrec/config.h"

#include "common/base/file.h"
#include "common/config/transport_keys.h"
#include "common/recv/chunk.h"
#include "kernels/beamform/beam_detect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BEAMS    1024
#define MAX_DETECTED 64

/* Placeholder in a file name.  The beam's number replaces this text. */
#define BEAM_MARK "{beam}"

const char *const beamrec_products_choices[] = {"power_0", "power_1", "I", "IQUV", NULL};
const char *const beamrec_format_choices[] = {"float32", "uint8", NULL};

#define KEYS_OF struct beamrec_config_recv
static const struct config_key recv_keys[] = {
    CONFIG_INTERFACE_ROW,
    KEY_STRING("pcap_file", base.pcap_file, "", 0, 4096,
               "Capture file that is read instead of the network. Nothing is lost if the reader is slow."),
    CONFIG_RECV_FROM_ROW,
    CONFIG_CRC_ROW,
    KEY_INT("buffer", base.buffer_bytes, "33554432", UNIT_BYTES, 0, 4294967296.0,
            "Socket buffer, shared by all beams; 0: the kernel's default. With ibverbs: the ring of frames."),
    CONFIG_TRANSPORT_ROW,
    CONFIG_COMP_VECTOR_ROW,
    KEY_INT("window", window_batches, "8", UNIT_BATCHES, 1, 64,
            "Number of batches of each stream that are kept open for late packets."),
};
#undef KEYS_OF

#define KEYS_OF struct beamrec_config_stream
static const struct config_key stream_keys[] = {
    KEY_INT("channels", n_chan, KEY_REQUIRED, UNIT_CHANNELS, 1, 65536,
            "Number of channels of the whole band, which all X-engines send together.", .example = "4096"),
    KEY_INT("channels_per_substream", n_chan_substream, KEY_REQUIRED, UNIT_CHANNELS, 1, 65536,
            "Number of channels that each X-engine sends.", .example = "256"),
    KEY_INT("spectra_per_heap", spectra_per_heap, "256", UNIT_SPECTRA, 1, 65520,
            "Number of spectra in a heap of a voltage beam. These spectra are a batch."),
    KEY_INT("samples_between_spectra", samples_between_spectra, KEY_REQUIRED, UNIT_SAMPLES, 1, 2147483648.0,
            "Number of ADC samples from one spectrum to the next: 2 * channels for a wideband stream.",
            .example = "8192"),
    KEY_DOUBLE("centre_frequency", centre_frequency_hz, "0", UNIT_HZ, 0, 1e12,
               "Sky frequency of the centre of channel number channels / 2. 0: adc_sample_rate / 4, the centre of the "
               "first Nyquist zone."),
};
#undef KEYS_OF

#define KEYS_OF struct beamrec_config_output
static const struct config_key output_keys[] = {
    KEY_STRING("telescope", telescope, "unknown", 1, 64, "Name of the telescope, for the headers."),
    KEY_STRING("source", source, "unknown", 1, 64, "Name of the source that the beams point at, for the headers."),
    KEY_BOOL("overwrite", overwrite, false,
             "true: existing files are replaced. false: beamrec does not start if a file exists and its name contains "
             "no time."),
    KEY_DOUBLE("max_gap", max_gap_s, "10", UNIT_S, 0, 1e6,
               "Longest gap in the data that is filled. After a longer gap the recorder begins a new file."),
    KEY_INT("max_batches", max_batches, "0", UNIT_BATCHES, 0, 1e15,
            "Number of batches, of all streams together, after which the recorder ends; 0: it runs until stopped."),
};
#undef KEYS_OF

#define KEYS_OF struct beamrec_config_beam
static const struct config_key beam_keys[] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the beam in messages and metrics."),
    KEY_ENDPOINTS("sources", sources, KEY_REQUIRED, 1, 4096,
                  "Addresses to which the X-engines send this beam: a.b.c.d[+n][:port], comma separated."),
    KEY_STRING("filterbank", filterbank, "", 0, 4096,
               "SIGPROC filterbank of the beam's total power. Codes of strftime in the name (%Y%m%dT%H%M%SZ) become "
               "the UTC at which the file begins. Empty: none."),
    KEY_STRING(
        "voltages", voltages, "", 0, 4096,
        "PSRDADA file of the beam's voltages; its name may contain the same codes as filterbank. Empty: no file."),
    KEY_INT("bits", bits, "8", UNIT_BITS, 8, 32,
            "Bits of a value in the filterbank: 32 (a float) or 8. With 8 bits the file has one offset and scale, "
            "chosen so that its first batch has a mean of 96 and a standard deviation of 24."),
    KEY_INT("sum_spectra", sum_spectra, "1", UNIT_SPECTRA, 1, 65520,
            "Number of spectra that are summed to one value of the filterbank; must divide spectra_per_heap."),
    KEY_INT("sum_channels", sum_channels, "1", UNIT_CHANNELS, 1, 65536,
            "Number of channels that are summed to one value of the filterbank; must divide channels_per_substream."),
};
#undef KEYS_OF

#define KEYS_OF struct beamrec_config_detected
static const struct config_key detected_keys[] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the stream in messages and metrics."),
    KEY_ENDPOINTS("sources", sources, KEY_REQUIRED, 1, 4096,
                  "Addresses to which the X-engines send this stream: a.b.c.d[+n][:port], comma separated."),
    KEY_INT("beams", n_beams, "1", UNIT_NONE, 1, MAX_BEAMS, "Number of beams in the stream."),
    KEY_ENUM("products", products, "I", beamrec_products_choices,
             "Products of each beam: the power of one polarisation, the power of both, or all Stokes parameters."),
    KEY_INT("spectra", window_spectra, "16", UNIT_SPECTRA, 1, BEAM_DETECT_MAX_SPECTRA,
            "Number of spectra in a window."),
    KEY_INT("channels", group_channels, "1", UNIT_CHANNELS, 1, 256,
            "Number of channels that the X-engines sum to one power; must divide channels_per_substream."),
    KEY_INT("windows", heap_windows, "16", UNIT_NONE, 1, 65536, "Number of windows in a heap."),
    KEY_ENUM("format", format, "float32", beamrec_format_choices, "Format of the received powers."),
    KEY_STRING(
        "filterbank", filterbank, "", 0, 4096,
        "SIGPROC filterbank of each beam; nifs is the number of products. In the name, the beam's number replaces "
        "{beam}, and the UTC at which the file begins replaces codes of strftime (%Y%m%dT%H%M%SZ). Empty: no file."),
    KEY_STRING("dada", dada, "", 0, 4096,
               "PSRDADA file of each beam's powers, with {beam} in its name. NPOL is the number of products. Empty: no "
               "file."),
    KEY_INT("bits", bits, "8", UNIT_BITS, 8, 32,
            "Bits of a value in the files: 32 (a float) or 8. With 8 bits each product of a file has one offset and "
            "scale, chosen so that its first batch has a mean of 96 and a standard deviation of 24."),
};
#undef KEYS_OF

static const char beams_example[] = "  - name: tied-array-channelised-voltage-0x\n"
                                    "    sources: 239.10.3.0:7148\n"
                                    "    filterbank: /data/beam-0x-%Y%m%dT%H%M%SZ.fil\n"
                                    "    sum_spectra: 16\n";

static const char detected_example[] = "  - name: detected-beams\n"
                                       "    sources: 239.10.4.0:7148\n"
                                       "    beams: 4\n"
                                       "    spectra: 64\n"
                                       "    filterbank: /data/beam-{beam}-%Y%m%dT%H%M%SZ.fil\n";

static const struct config_section sections[] = {
    CONFIG_TIME_SECTION(struct beamrec_config),
    CONFIG_SECTION(struct beamrec_config, recv, recv_keys, "Reception of beams.", .optional = true),
    CONFIG_SECTION(struct beamrec_config, stream, stream_keys,
                   "Numbers of channels, spectra and samples of the streams."),
    CONFIG_SECTION(struct beamrec_config, output, output_keys, "Keys that apply to all files.", .optional = true),
    CONFIG_LIST(struct beamrec_config, beams, struct beamrec_config_beam, beam_keys, 0, MAX_BEAMS,
                "Voltage beams and their files.", .optional = true, .example = beams_example),
    CONFIG_LIST(struct beamrec_config, detected, struct beamrec_config_detected, detected_keys, 0, MAX_DETECTED,
                "Streams of detected beams and their files. The keys from beams to format must have the same values as "
                "in the X-engines' files.",
                .optional = true, .example = detected_example),
    CONFIG_HTTP_SECTION(struct beamrec_config),
};

const struct config_table beamrec_config_table = {.program = "beamrec",
                                                  .help = "Records beams to filterbank and PSRDADA files.",
                                                  .sections = sections,
                                                  .n_sections = ARRAY_LEN(sections)};

struct beamrec_powers beamrec_config_powers(const struct beamrec_config *config, size_t i)
{
    const struct beamrec_config_detected *d = beamrec_config_detected(config, i);

    return (struct beamrec_powers){
        .n_beams = (size_t)d->n_beams,
        .n_windows = (size_t)d->heap_windows,
        .n_products = beam_n_products((enum beam_products)d->products),
        .n_groups = (size_t)(config->stream.n_chan_substream / d->group_channels),
        .is_uint8 = d->format == BEAMREC_UINT8,
    };
}

char *beamrec_config_file(const char *key, size_t beam)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);

    if (!out)
        return NULL;
    const char *rest = key;
    for (const char *mark; (mark = strstr(rest, BEAM_MARK)); rest = mark + strlen(BEAM_MARK))
        fprintf(out, "%.*s%zu", (int)(mark - rest), rest, beam);
    fputs(rest, out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

const char *beamrec_config_name(const struct beamrec_config *config, size_t stream)
{
    return beamrec_config_is_detected(config, stream) ? beamrec_config_detected(config, stream - config->beams.n)->name
                                                      : beamrec_config_beam(config, stream)->name;
}

const struct endpoint_list *beamrec_config_sources(const struct beamrec_config *config, size_t stream)
{
    return beamrec_config_is_detected(config, stream)
               ? &beamrec_config_detected(config, stream - config->beams.n)->sources
               : &beamrec_config_beam(config, stream)->sources;
}

size_t beamrec_config_n_beams(const struct beamrec_config *config)
{
    size_t n = config->beams.n;

    for (size_t i = 0; i < config->detected.n; i++)
        n += (size_t)beamrec_config_detected(config, i)->n_beams;
    return n;
}

int64_t beamrec_config_batch_samples(const struct beamrec_config *config, size_t stream)
{
    int64_t n_spectra = config->stream.spectra_per_heap;

    if (beamrec_config_is_detected(config, stream)) {
        const struct beamrec_config_detected *d = beamrec_config_detected(config, stream - config->beams.n);
        n_spectra = d->heap_windows * d->window_spectra;
    }
    return n_spectra * config->stream.samples_between_spectra;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static void check_sources(const struct beamrec_config *values, size_t stream, struct config *config)
{
    const struct endpoint_list *mine = beamrec_config_sources(values, stream);
    char text[32];

    recv_keys_check_sources(mine, config);
    for (size_t j = 0; j < stream; j++) {
        const struct endpoint_list *others = beamrec_config_sources(values, j);
        bool detected = beamrec_config_is_detected(values, j);
        for (size_t m = 0; m < mine->n * others->n; m++)
            if (endpoint_equal(&mine->items[m / others->n], &others->items[m % others->n]))
                config_error(config, mine, "%s[%zu] already has the address %s", detected ? "detected" : "beams",
                             detected ? j - values->beams.n : j,
                             endpoint_format(&others->items[m % others->n], text, sizeof(text)));
    }
}

static void check_beam(const struct beamrec_config *values, size_t i, struct config *config)
{
    struct beamrec_config_beam *beam = (struct beamrec_config_beam *)values->beams.items + i;

    if (!beam->filterbank && !beam->voltages)
        config_error(config, &beam->name, "beam %s has neither filterbank nor voltages", beam->name);
    if (beam->filterbank && beam->voltages && strcmp(beam->filterbank, beam->voltages) == 0)
        config_error(config, &beam->voltages, "filterbank and voltages of beam %s are the same file", beam->name);
    if (beam->bits != 8 && beam->bits != 32)
        config_error(config, &beam->bits, "bits must be 8 or 32");
    if (values->stream.spectra_per_heap % beam->sum_spectra != 0)
        config_error(config, &beam->sum_spectra, "sum_spectra must divide spectra_per_heap (%lld)",
                     (long long)values->stream.spectra_per_heap);
    if (values->stream.n_chan_substream % beam->sum_channels != 0)
        config_error(config, &beam->sum_channels, "sum_channels must divide channels_per_substream (%lld)",
                     (long long)values->stream.n_chan_substream);
    recv_keys_set_senders(&beam->sources, &values->recv.base.senders);
    if (files_are_same(values->recv.base.pcap_file, beam->filterbank) ||
        files_are_same(values->recv.base.pcap_file, beam->voltages))
        config_error(config, &beam->name, "a file of beam %s would overwrite the capture that is read", beam->name);
}

/* Checks a file name of detected beams.  The key 'key' (filterbank or dada) sets this name.  If '*file' is NULL, the
 * key is absent. */
static void check_detected_file(const struct beamrec_config *values, const struct beamrec_config_detected *d,
                                const char *key, char *const *file, struct config *config)
{
    if (!*file)
        return;
    if (d->n_beams > 1 && !strstr(*file, BEAM_MARK))
        config_error(config, file, "%s of %s needs " BEAM_MARK " in its name, because it has %lld beams", key, d->name,
                     (long long)d->n_beams);
    for (size_t beam = 0; values->recv.base.pcap_file && beam < (size_t)d->n_beams; beam++) {
        char *path = beamrec_config_file(*file, beam);
        if (path && files_are_same(values->recv.base.pcap_file, path))
            config_error(config, file, "a file of %s would overwrite the capture that is read", d->name);
        free(path);
    }
}

static void check_detected(const struct beamrec_config *values, size_t i, struct config *config)
{
    struct beamrec_config_detected *d = (struct beamrec_config_detected *)values->detected.items + i;

    if (d->bits != 8 && d->bits != 32)
        config_error(config, &d->bits, "bits must be 8 or 32");
    if (!d->filterbank && !d->dada)
        config_error(config, &d->name, "%s has neither filterbank nor dada", d->name);
    check_detected_file(values, d, "filterbank", &d->filterbank, config);
    check_detected_file(values, d, "dada", &d->dada, config);
    if (d->filterbank && d->dada && strcmp(d->filterbank, d->dada) == 0)
        config_error(config, &d->dada, "filterbank and dada of %s are the same file", d->name);
    if (values->stream.n_chan_substream % d->group_channels != 0) {
        config_error(config, &d->group_channels, "channels of %s must divide channels_per_substream (%lld)", d->name,
                     (long long)values->stream.n_chan_substream);
        return;
    }
    const struct beamrec_powers powers = beamrec_config_powers(values, i);
    if (beamrec_powers_heap_bytes(&powers) >= CHUNK_HEAP_MAPPED)
        config_error(config, &d->heap_windows, "a heap of %s must be below 2 GiB", d->name);
    recv_keys_set_senders(&d->sources, &values->recv.base.senders);
}

void beamrec_config_check(void *values_, struct config *config)
{
    struct beamrec_config *values = values_;
    const struct beamrec_config_stream *stream = &values->stream;

    if (config_n_errors(config) > 0)
        return; /* after an error, do not check 'values', because members may be missing */
    http_keys_check(&values->http, config);
    recv_keys_check(&values->recv.base, NULL, config);
    if (beamrec_config_n_streams(values) == 0)
        config_error(config, &values->beams, "there is nothing to record: give beams or detected");
    if (stream->n_chan % stream->n_chan_substream != 0)
        config_error(config, &stream->n_chan_substream, "channels_per_substream must divide channels (%lld)",
                     (long long)stream->n_chan);
    if ((uint64_t)stream->n_chan_substream * (uint64_t)stream->spectra_per_heap * 2 >= CHUNK_HEAP_MAPPED)
        config_error(config, &stream->n_chan_substream, "a heap of %lld channels must be below 2 GiB",
                     (long long)stream->n_chan_substream);
    for (size_t i = 0; i < beamrec_config_n_streams(values); i++)
        check_sources(values, i, config);
    for (size_t i = 0; i < values->beams.n; i++)
        check_beam(values, i, config);
    for (size_t i = 0; i < values->detected.n; i++)
        check_detected(values, i, config);
}
