/* config.c - the key table of fsim's YAML, and the checks that no single key can make. */
#include "tools/fsim/config.h"

#include "common/base/file.h"

#include <inttypes.h>
#include <math.h>

#define MAX_HALF_INTEGER 2048 /* up to which half floats hold every integer */
#define MAX_HEAP_BYTES   (UINT64_C(1) << 30)

static const char *const encodings[] = {"twos_complement", "offset", NULL};
static const char *const real_parts[] = {"low", "high", NULL};
static const char *const kinds[] = {"constant", "tone", "noise", "uniform", "recording", NULL};

#define AT(member) offsetof(struct fsim_config_stream, member)
static const struct config_key stream_keys[] = {
    {"antennas", CFG_INT, UNIT_NONE, 1, 4096, NULL, false, AT(n_ants), NULL,
     "Antennas in the array, each an F-engine with feng_id 0, 1, 2 and so on.", .example = "4"},
    {"channels", CFG_INT, UNIT_CHANNELS, 1, 65536, NULL, false, AT(n_chan), NULL, "Channels of the whole stream.",
     .example = "4096"},
    {"channels_per_substream", CFG_INT, UNIT_CHANNELS, 1, 65536, NULL, false, AT(n_chan_substream), NULL,
     "Channels of each destination.", .example = "256"},
    {"channel_offset", CFG_INT, UNIT_CHANNELS, 0, 65535, "0", false, AT(chan_offset), NULL,
     "First channel of the first destination; a multiple of channels_per_substream."},
    {"destinations", CFG_ENDPOINTS, UNIT_NONE, 1, 4096, NULL, false, AT(destinations), NULL,
     "Where the substreams from there on are sent to, one each: a.b.c.d[+n][:port], comma separated.",
     .example = "239.10.1.0:7148"},
    {"spectra_per_heap", CFG_INT, UNIT_SPECTRA, 1, 65536, "256", false, AT(spectra_per_heap), NULL,
     "Spectra in a heap."},
    {"samples_between_spectra", CFG_INT, UNIT_SAMPLES, 1, 2147483648.0, NULL, false, AT(samples_between_spectra), NULL,
     "ADC samples from spectrum to spectrum: 2 * channels for a wideband stream.", .example = "8192"},
    {"sample_bits", CFG_INT, UNIT_BITS, 4, 16, "8", false, AT(sample_bits), NULL,
     "Width of each component: 4 or 8 (integers), or 16 (half floats)."},
    {"sample_encoding", CFG_ENUM, UNIT_NONE, 0, 0, "twos_complement", false, AT(sample_encoding), encodings,
     "Components of 4 bits: as they are, or each with 8 added (offset binary)."},
    {"first_timestamp", CFG_INT, UNIT_SAMPLES, -1, 4e18, "-1", false, AT(first_timestamp), NULL,
     "Timestamp of the first heaps, a multiple of spectra_per_heap * samples_between_spectra, sent at once whatever "
     "the "
     "clock says; -1: the next one, sent when its last sample would have been taken."},
    {"duration", CFG_DOUBLE, UNIT_S, 0, 1e9, "0", false, AT(duration_s), NULL,
     "Time to send for, rounded down to whole heaps; 0: until stopped."},
    {"drop", CFG_INT, UNIT_NONE, 0, 1e9, "0", false, AT(drop), NULL,
     "Leaves out one of so many heaps: heap n of antenna a, counted from timestamp 0, of which n * antennas + a + 1 is "
     "a multiple of this; 0: none."},
};
#undef AT

#define CONSTANT  (1U << FSIM_CONSTANT)
#define TONE      (1U << FSIM_TONE)
#define NOISE     (1U << FSIM_NOISE)
#define UNIFORM   (1U << FSIM_UNIFORM)
#define RECORDING (1U << FSIM_RECORDING)

#define AT(member) offsetof(struct fsim_config_signal, member)
static const struct config_key signal_keys[] = {
    {"kind", CFG_ENUM, UNIT_NONE, 0, 0, NULL, false, AT(kind), kinds,
     "Kind of the voltages. Lists below have a value for each input (antenna 0 pol 0, antenna 0 pol 1, antenna 1 pol "
     "0 and so on) and are repeated as needed.",
     .example = "noise"},
    {"real", CFG_INT_LIST, UNIT_NONE, -2048, 2048, "1", false, AT(real), NULL,
     "Real part of each input, in all channels and spectra.", .variants = CONSTANT},
    {"imag", CFG_INT_LIST, UNIT_NONE, -2048, 2048, "0", false, AT(imag), NULL, "Imaginary part of each input.",
     .variants = CONSTANT},
    {"amplitude", CFG_INT, UNIT_NONE, 1, 2048, "7", false, AT(amplitude), NULL,
     "Amplitude of all inputs, whose phases are whole quarter turns: the products of n spectra sum up to "
     "n * amplitude^2 times 1, i, -1 or -i.",
     .variants = TONE},
    {"delays", CFG_INT_LIST, UNIT_NONE, -1e9, 1e9, "0", false, AT(delays), NULL,
     "Phase of each input, in quarter turns per channel.", .variants = TONE},
    {"rates", CFG_INT_LIST, UNIT_NONE, -1e9, 1e9, "0", false, AT(rates), NULL,
     "Phase of each input, in quarter turns per spectrum; inputs of different rates do not correlate over 4 spectra.",
     .variants = TONE},
    {"seed", CFG_INT, UNIT_NONE, 0, 9e15, "1", false, AT(seed), NULL, "Seed of all random numbers.",
     .variants = NOISE | UNIFORM},
    {"period", CFG_INT, UNIT_BATCHES, 1, 1e6, "8", false, AT(period_batches), NULL,
     "The voltages repeat after this many heaps, which are computed at the start and kept in memory.",
     .variants = NOISE | UNIFORM},
    {"rms", CFG_DOUBLE, UNIT_NONE, 1e-6, 5000, "2", false, AT(rms), NULL,
     "Standard deviation of each component before it is rounded, and clipped as F-engines do.", .variants = NOISE},
    {"correlation", CFG_DOUBLE, UNIT_NONE, 0, 1, "0", false, AT(correlation), NULL,
     "Correlation coefficient of the same polarisation of any two antennas: the part of the power that all share.",
     .variants = NOISE},
    {"file", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(file), NULL,
     "VDIF file of channelised voltages: complex samples of 4 bits, all channels of the stream in each frame.",
     .variants = RECORDING},
    {"threads", CFG_INT_LIST, UNIT_NONE, 0, 1023, "0, 1", false, AT(threads), NULL, "Thread of each input.",
     .variants = RECORDING},
    {"spectrum_rate", CFG_DECIMAL, UNIT_HZ, 0, 1e11, "0", false, AT(spectrum_rate_hz), NULL,
     "Spectra per second of the recording, whatever it is played at; it tells how many frames a second has. 0: "
     "adc_sample_rate / samples_between_spectra.",
     .variants = RECORDING},
    {"real_part", CFG_ENUM, UNIT_NONE, 0, 0, "low", false, AT(real_part), real_parts,
     "Which 4 bits of a byte are the real part: the low ones, as VDIF has it, or the high ones, as CHIME's backend "
     "writes.",
     .variants = RECORDING},
    {"loop", CFG_BOOL, UNIT_NONE, 0, 0, "no", false, AT(loop), NULL,
     "Play the recording again and again: its whole heaps, or, where it is shorter than a heap, its spectra; no: fsim "
     "ends with it.",
     .variants = RECORDING},
};
#undef AT

#define SECTION(section_keys, type, member)                                                                            \
    .keys = section_keys, .n_keys = ARRAY_LEN(section_keys), .struct_bytes = sizeof(struct type),                      \
    .offset = offsetof(struct fsim_config, member)

static const struct config_section sections[] = {
    {.name = "time",
     .help = "Time: what a timestamp means.",
     .keys = config_time_keys,
     .n_keys = CONFIG_N_TIME_KEYS - 2, /* what is received has a timebase and a tolerance */
     .struct_bytes = sizeof(struct config_time),
     .offset = offsetof(struct fsim_config, time)},
    {.name = "stream",
     .help = "The channelised voltages of all antennas.",
     SECTION(stream_keys, fsim_config_stream, stream)},
    {.name = "signal", .help = "The voltages.", SECTION(signal_keys, fsim_config_signal, signal)},
    CONFIG_SEND_SECTION(struct fsim_config, "Voltages out.", CONFIG_N_FSIM_SEND_KEYS),
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
                     "channels_per_substream must divide channels (%" PRId64 "), not be %" PRId64 ".", stream->n_chan,
                     stream->n_chan_substream);
    else if (stream->chan_offset % stream->n_chan_substream != 0)
        config_error(config, &stream->chan_offset,
                     "channel_offset must be a multiple of channels_per_substream (%" PRId64 "), not %" PRId64 ".",
                     stream->n_chan_substream, stream->chan_offset);
    int64_t end = stream->chan_offset + (int64_t)stream->destinations.n * stream->n_chan_substream;
    if (end > stream->n_chan)
        config_error(config, &stream->destinations,
                     "%zu destinations would reach to channel %" PRId64 ", but the stream has %" PRId64 ".",
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
        config_error(config, &stream->sample_encoding, "offset is an encoding of 4 bits, not of %" PRId64 ".",
                     stream->sample_bits);
    else if (fsim_config_heap_bytes(values) > MAX_HEAP_BYTES)
        config_error(config, &stream->spectra_per_heap,
                     "A heap would have %" PRIu64 " bytes; %" PRIu64 " at most will do.",
                     fsim_config_heap_bytes(values), MAX_HEAP_BYTES);
    int64_t batch_samples = fsim_config_batch_samples(values);
    if (stream->first_timestamp >= 0 && stream->first_timestamp % batch_samples != 0)
        config_error(config, &stream->first_timestamp,
                     "first_timestamp must be a multiple of spectra_per_heap * samples_between_spectra (%" PRId64 ").",
                     batch_samples);
}

/* The values of a pattern must be what the samples hold, so that sums are what the pattern says. */
static void check_list(const struct config_int_list *list, const char *name, int64_t min, int64_t max,
                       struct config *config)
{
    if (list->n == 0)
        config_error(config, list, "%s must have a value at least.", name);
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
        config_error(config, &signal->file, "A recording needs its file.");
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
    config_check_send(&fsim->send, NULL, NULL, config);
    config_check_destinations(&fsim->send, &fsim->stream.destinations, config);
    config_check_http(&fsim->http, config);
    if (fsim->send.pcap_file && !ends)
        config_error(config, &fsim->send.pcap_file,
                     "pcap_file needs a duration in section stream, or a recording that is not looped.");
    if (fsim->http.listen.n > 1)
        config_error(config, &fsim->http.listen, "listen must be one address.");
}

int64_t fsim_config_n_batches(const struct fsim_config *config)
{
    struct timebase timebase = {.adc_sample_rate_hz = config->time.adc_sample_rate_hz};
    int64_t duration_ns = (int64_t)rint(config->stream.duration_s * 1e9);

    if (duration_ns <= 0)
        return INT64_MAX;
    return timebase_duration_samples(&timebase, duration_ns) / fsim_config_batch_samples(config);
}
