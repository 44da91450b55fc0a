/* config.c - key table of fsim's YAML, and checks across keys. */
#include "tools/fsim/config.h"

#include "common/base/file.h"

#include <inttypes.h>

#define MAX_HALF_INTEGER 2048 /* half floats represent every integer from 0 up to this value */
#define MAX_HEAP_BYTES   (UINT64_C(1) << 30)

static const char *const encodings[] = {"twos_complement", "offset", NULL};
static const char *const real_parts[] = {"low", "high", NULL};
static const char *const kinds[] = {"constant", "tone", "noise", "uniform", "recording", NULL};

#define KEYS_OF struct fsim_config_stream
static const struct config_key stream_keys[] = {
    KEY_INT("antennas", n_ants, KEY_REQUIRED, UNIT_NONE, 1, 4096,
            "Number of antennas in the array. Their F-engines have feng_id 0, 1, 2 and so on.", .example = "4"),
    KEY_INT("channels", n_chan, KEY_REQUIRED, UNIT_CHANNELS, 1, 65536, "Number of channels of the whole stream.",
            .example = "4096"),
    KEY_INT("channels_per_substream", n_chan_substream, KEY_REQUIRED, UNIT_CHANNELS, 1, 65536,
            "Number of channels that each destination receives.", .example = "256"),
    KEY_INT("channel_offset", chan_offset, "0", UNIT_CHANNELS, 0, 65535,
            "Number of the first channel that the first destination receives; a multiple of channels_per_substream."),
    KEY_ENDPOINTS("destinations", destinations, KEY_REQUIRED, 1, 4096,
                  "Addresses of the substreams, one for each; the first substream begins with channel channel_offset: "
                  "a.b.c.d[+n][:port], comma separated.",
                  .example = "239.10.1.0:7148"),
    KEY_INT("spectra_per_heap", spectra_per_heap, "256", UNIT_SPECTRA, 1, 65536, "Spectra in a heap."),
    KEY_INT("samples_between_spectra", samples_between_spectra, KEY_REQUIRED, UNIT_SAMPLES, 1, 2147483648.0,
            "Number of ADC samples from one spectrum to the next: 2 * channels for a wideband stream.",
            .example = "8192"),
    KEY_INT("sample_bits", sample_bits, "8", UNIT_BITS, 4, 16,
            "Width of each real or imaginary part: 4 or 8 (integers), or 16 (half floats)."),
    KEY_ENUM("sample_encoding", sample_encoding, "twos_complement", encodings,
             "Encoding of real and imaginary parts of 4 bits: two's complement, or offset binary (the value + 8)."),
    KEY_INT("first_timestamp", first_timestamp, "-1", UNIT_SAMPLES, -1, 4e18,
            "Timestamp of the first heaps, a multiple of spectra_per_heap * samples_between_spectra; fsim sends "
            "these heaps immediately, without regard to the clock. -1: the next multiple, sent at the time of its "
            "last sample."),
    KEY_DOUBLE("duration", duration_s, "0", UNIT_S, 0, 1e9,
               "Duration of the transmission, rounded down to whole heaps; 0: until stopped."),
    KEY_INT("drop", drop, "0", UNIT_NONE, 0, 1e9,
            "If this number is not 0, fsim does not send heap n of antenna a, counted from timestamp 0, if n * "
            "antennas + a + 1 is a multiple of this number."),
};
#undef KEYS_OF

#define CONSTANT  (1U << FSIM_CONSTANT)
#define TONE      (1U << FSIM_TONE)
#define NOISE     (1U << FSIM_NOISE)
#define UNIFORM   (1U << FSIM_UNIFORM)
#define RECORDING (1U << FSIM_RECORDING)

#define KEYS_OF struct fsim_config_signal
static const struct config_key signal_keys[] = {
    KEY_ENUM("kind", kind, KEY_REQUIRED, kinds,
             "Kind of the voltages. The lists in this section have a value for each input (antenna 0 pol 0, "
             "antenna 0 pol 1, antenna 1 pol 0 and so on); a short list repeats.",
             .example = "noise"),
    KEY_INT_LIST("real", real, "1", UNIT_NONE, -2048, 2048, "Real part of each input, in all channels and spectra.",
                 .variants = CONSTANT),
    KEY_INT_LIST("imag", imag, "0", UNIT_NONE, -2048, 2048, "Imaginary part of each input.", .variants = CONSTANT),
    KEY_INT("amplitude", amplitude, "7", UNIT_NONE, 1, 2048,
            "Amplitude of all inputs. Their phases are whole quarter turns, so the sum of n spectra's products is "
            "n * amplitude^2 times 1, i, -1 or -i.",
            .variants = TONE),
    KEY_INT_LIST("delays", delays, "0", UNIT_NONE, -1e9, 1e9,
                 "Increase of each input's phase from one channel to the next, in quarter turns.", .variants = TONE),
    KEY_INT_LIST("rates", rates, "0", UNIT_NONE, -1e9, 1e9,
                 "Increase of each input's phase from one spectrum to the next, in quarter turns. Over 4 spectra, "
                 "inputs with different rates do not correlate.",
                 .variants = TONE),
    KEY_INT("seed", seed, "1", UNIT_NONE, 0, 9e15, "Seed of all random numbers.", .variants = NOISE | UNIFORM),
    KEY_INT("period", period_batches, "8", UNIT_BATCHES, 1, 1e6,
            "Number of heaps after which the voltages repeat. fsim computes these heaps at the start and keeps "
            "them in memory.",
            .variants = NOISE | UNIFORM),
    KEY_DOUBLE("rms", rms, "2", UNIT_NONE, 1e-6, 5000,
               "Standard deviation of each real or imaginary part, before the part is rounded and clipped as in "
               "F-engines.",
               .variants = NOISE),
    KEY_DOUBLE("correlation", correlation, "0", UNIT_NONE, 0, 1,
               "Correlation coefficient of the same polarisation of any two antennas: the fraction of the power that "
               "is common to all antennas.",
               .variants = NOISE),
    KEY_STRING(
        "file", file, "", 0, 4096,
        "VDIF file of channelised voltages: complex samples of 4 bits, all channels of the stream in each frame.",
        .variants = RECORDING),
    KEY_INT_LIST("threads", threads, "0, 1", UNIT_NONE, 0, 1023, "Thread of each input.", .variants = RECORDING),
    KEY_DECIMAL("spectrum_rate", spectrum_rate_hz, "0", UNIT_HZ, 0, 1e11,
                "Spectra per second of the recording, which may differ from the playback rate. This rate gives the "
                "number of frames in a second. 0: adc_sample_rate / samples_between_spectra.",
                .variants = RECORDING),
    KEY_ENUM("real_part", real_part, "low", real_parts,
             "Position of the real part in a byte: the low 4 bits, as VDIF specifies, or the high 4 bits, as in files "
             "of CHIME's backend.",
             .variants = RECORDING),
    KEY_BOOL("loop", loop, false,
             "true: fsim repeats the whole heaps of the recording, or its spectra if it is shorter than a heap. false: "
             "fsim ends at the end of the recording.",
             .variants = RECORDING),
};
#undef KEYS_OF

static const struct config_section sections[] = {
    CONFIG_SECTION_PART(struct fsim_config, time, config_time_keys, CONFIG_N_TIME_KEYS - 2,
                        "Time: the meaning of timestamps."),
    CONFIG_SECTION(struct fsim_config, stream, stream_keys, "The channelised voltages of all antennas."),
    CONFIG_SECTION(struct fsim_config, signal, signal_keys, "Values of the voltages."),
    CONFIG_SEND_SECTION(struct fsim_config, "Transmission of voltages.", CONFIG_N_FSIM_SEND_KEYS),
    CONFIG_HTTP_SECTION(struct fsim_config),
};

const struct config_table fsim_config_table = {
    .program = "fsim",
    .help = "Simulates the F-engines of all antennas of an array: SPEAD heaps of channelised voltages over UDP.",
    .sections = sections,
    .n_sections = ARRAY_LEN(sections),
};

/* ---- Checks across keys ----------------------------------------------------------------------------------------- */

enum voltage_format fsim_config_format(const struct fsim_config_stream *stream)
{
    switch (stream->sample_bits) {
    case 4: return stream->sample_encoding == FSIM_OFFSET ? VOLTAGES_4_BITS_OFFSET : VOLTAGES_4_BITS;
    case 8: return VOLTAGES_8_BITS;
    default: return VOLTAGES_16_BITS;
    }
}

int64_t fsim_config_limit(const struct fsim_config_stream *stream)
{
    return stream->sample_bits == 16 ? MAX_HALF_INTEGER : (INT64_C(1) << (stream->sample_bits - 1)) - 1;
}

static void check_channels(const struct fsim_config_stream *stream, struct config *config)
{
    if (stream->n_chan % stream->n_chan_substream != 0)
        config_error(config, &stream->n_chan_substream,
                     "channels_per_substream must divide channels (%" PRId64 "), but is %" PRId64 ".", stream->n_chan,
                     stream->n_chan_substream);
    else if (stream->chan_offset % stream->n_chan_substream != 0)
        config_error(config, &stream->chan_offset,
                     "channel_offset must be a multiple of channels_per_substream (%" PRId64 "), not %" PRId64 ".",
                     stream->n_chan_substream, stream->chan_offset);
    int64_t end = stream->chan_offset + (int64_t)stream->destinations.n * stream->n_chan_substream;
    if (end > stream->n_chan)
        config_error(config, &stream->destinations,
                     "%zu destinations would need channels up to %" PRId64 ", but the stream has %" PRId64 ".",
                     stream->destinations.n, end - 1, stream->n_chan);
}

static void check_stream(const struct fsim_config *values, struct config *config)
{
    const struct fsim_config_stream *stream = &values->stream;

    check_channels(stream, config);
    if (stream->sample_bits != 4 && stream->sample_bits != 8 && stream->sample_bits != 16)
        config_error(config, &stream->sample_bits, "sample_bits must be 4, 8 or 16, not %" PRId64 ".",
                     stream->sample_bits);
    else if (stream->sample_encoding == FSIM_OFFSET && stream->sample_bits != 4)
        config_error(config, &stream->sample_encoding,
                     "the encoding offset exists only for 4 bits, not for %" PRId64 ".", stream->sample_bits);
    else if (fsim_config_heap_bytes(values) > MAX_HEAP_BYTES)
        config_error(config, &stream->spectra_per_heap,
                     "A heap would have %" PRIu64 " bytes; at most %" PRIu64 " are possible.",
                     fsim_config_heap_bytes(values), MAX_HEAP_BYTES);
    int64_t batch_samples = fsim_config_batch_samples(values);
    if (stream->first_timestamp >= 0 && stream->first_timestamp % batch_samples != 0)
        config_error(config, &stream->first_timestamp,
                     "first_timestamp must be a multiple of spectra_per_heap * samples_between_spectra (%" PRId64 ").",
                     batch_samples);
}

/* Checks that the sample format can represent the values of 'list'.  Otherwise sums would differ from the formula of
 * the signal. */
static void check_list(const struct config_int_list *list, const char *name, int64_t min, int64_t max,
                       struct config *config)
{
    if (list->n == 0)
        config_error(config, list, "%s must have at least one value.", name);
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i] < min || list->items[i] > max)
            config_error(config, list,
                         "%s must be from %" PRId64 " to %" PRId64 " for this sample_bits, not %" PRId64 ".", name, min,
                         max, list->items[i]);
}

static void check_recording(const struct fsim_config *values, struct config *config)
{
    const struct fsim_config_signal *signal = &values->signal;

    if (!signal->file)
        config_error(config, &signal->file, "kind recording needs the key file.");
    check_list(&signal->threads, "threads", 0, INT64_MAX, config);
    if (files_are_same(signal->file, values->send.pcap_file))
        config_error(config, &values->send.pcap_file, "send.pcap_file would overwrite signal.file.");
}

static void check_signal(const struct fsim_config *values, struct config *config)
{
    const struct fsim_config_signal *signal = &values->signal;
    int64_t limit = fsim_config_limit(&values->stream);
    int64_t lowest = values->stream.sample_bits == 16 ? -limit : -limit - 1;

    switch (signal->kind) {
    case FSIM_CONSTANT:
        check_list(&signal->real, "real", lowest, limit, config);
        check_list(&signal->imag, "imag", lowest, limit, config);
        break;
    case FSIM_TONE:
        if (signal->amplitude > limit)
            config_error(config, &signal->amplitude,
                         "amplitude must be %" PRId64 " at most for this sample_bits, not %" PRId64 ".", limit,
                         signal->amplitude);
        check_list(&signal->delays, "delays", INT64_MIN, INT64_MAX, config);
        check_list(&signal->rates, "rates", INT64_MIN, INT64_MAX, config);
        break;
    case FSIM_RECORDING: check_recording(values, config); break;
    default: break;
    }
}

void fsim_config_check(void *values, struct config *config)
{
    const struct fsim_config *fsim = values;
    bool ends = fsim->stream.duration_s > 0 || (fsim->signal.kind == FSIM_RECORDING && !fsim->signal.loop);

    check_stream(fsim, config);
    check_signal(fsim, config);
    send_keys_check(&fsim->send, NULL, NULL, config);
    send_keys_check_destinations(&fsim->send, &fsim->stream.destinations, config);
    http_keys_check(&fsim->http, config);
    if (fsim->send.pcap_file && !ends)
        config_error(config, &fsim->send.pcap_file,
                     "pcap_file needs a duration in section stream, or a recording that is not looped.");
    if (fsim->http.listen.n > 1)
        config_error(config, &fsim->http.listen, "listen must be one address.");
}
