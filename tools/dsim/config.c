/* config.c - the key table of dsim's YAML, and checks across keys. */
#include "tools/dsim/config.h"

#include "common/base/file.h"
#include "common/config/transport_keys.h"
#include "tools/dsim/gnss.h"
#include "tools/dsim/parse.h"
#include "tools/dsim/pulsar.h"
#include "tools/dsim/recording.h"
#include "tools/shared/sim_sender.h"

#define MAX_ANTENNAS      1024
#define MAX_PAYLOAD_BYTES 65000.0           /* bytes; leaves room for the SPEAD header in a UDP datagram */
#define MAX_DIGITISER_ID  281474976710654.0 /* 2^48 - 2 */

/* The default period is 1.25 MiB per polarisation at 10 bits, so the periods of an array of simulated antennas fit
 * in a laptop's memory.  At 2 MS/s the default period is half a second.  The sending then starts within half a second,
 * and the error of a tone's frequency is at most 1 Hz. */
/* The defaults as numbers; the table has the same defaults as text. */
#define DEFAULT_PERIOD_SAMPLES 1048576
#define DEFAULT_DITHER_SEED    (-1)

#define KEYS_OF struct dsim_config_digitiser
static const struct config_key digitiser_keys[] = {
    KEY_INT("sample_bits", sample_bits, "10", UNIT_BITS, 2, 16, "Width of a sample: 2 to 10, 12 or 16."),
    KEY_INT("packet_samples", packet_samples, "4096", UNIT_SAMPLES, 8, 65536,
            "Samples in a heap, which is one packet; a multiple of 8."),
    KEY_INT("period", period_samples, "1048576", UNIT_SAMPLES, 8, 2147483648.0,
            "Number of samples after which the signals repeat; a multiple of packet_samples. dsim computes one "
            "period of the signals at the start and keeps it in memory: period x sample_bits / 8 bytes for each "
            "polarisation (with track, 4 bytes per sample for each repeating signal of the expression)."),
    KEY_INT("dither_seed", dither_seed, "-1", UNIT_NONE, -1, 9e15,
            "Seed of the dither of all polarisations; -1: chosen at random, and logged."),
    KEY_DOUBLE("duration", duration_s, "0", UNIT_S, 0, 1e9,
               "Duration of the transmission, rounded down to whole heaps; 0: until stopped."),
    KEY_INT("first_timestamp", first_timestamp, "-1", UNIT_SAMPLES, -1, 4e18,
            "Timestamp of the first heap, a multiple of packet_samples; dsim sends this heap immediately, without "
            "regard to the clock. -1: the next multiple of the period (for recordings, of packet_samples), sent at "
            "its time."),
    KEY_BOOL("loop", loop, false,
             "true: dsim repeats the recordings. Each round plays as many whole heaps as the shortest recording has. "
             "false: dsim ends after one round."),
};
#undef KEYS_OF

#define KEYS_OF struct dsim_config_signals
static const struct config_key signals_keys[] = {
    KEY_STRING(
        "specification", specification, "", 0, 1000000,
        "One expression for all polarisations, or one for each, in this order: antenna 0 pol 0, antenna 0 pol 1, "
        "antenna 1 pol 0 and so on. Statements are 'variable = expression;' or 'expression;', with numbers (1 is full "
        "scale), + - * ( ), cw(amplitude, Hz), multicw(tones, amplitude, step, Hz, step), comb(amplitude, Hz), "
        "wgn(standard deviation[, seed]), pulsar(standard deviation, period s, width s, pc/cm^3, radio frequency "
        "of 0 Hz[, seed]), gnss(signal, PRN, dB-Hz, standard deviation, carrier Hz, delay samples, Doppler Hz, "
        "Hz/s[, seed]), delay(expression, samples), track(expression, samples, rate), repeat(expression), "
        "nodither(expression). pulsar is noise in dispersed pulses. If a pulsar of standard deviation a is added "
        "to noise of standard deviation s, n folded samples have the S/N (a / s)^2 sqrt(n d (1 - d) / 2), with d = "
        "width / period. track(pulsar, samples, 0) can delay a pulsar by a fraction of a sample. gnss is the "
        "signal of a navigation satellite, L1CA, L5I, L5Q, E1B or E1C, with this C/N0 relative to the noise "
        "wgn(standard deviation); with a seed, the signal has data (docs/satellites.md). track is a delay of "
        "samples + rate x timestamp, accurate below 0.45 of the sample rate. track and gnss are computed during "
        "the transmission by one processor core. This core computes about 80 million samples a second, summed over "
        "all polarisations. repeat(gnss) repeats the first period of the signal, so dsim computes it at the "
        "start.",
        .example = "|\n    sky = wgn(0.05);\n    sky + wgn(0.1); sky + wgn(0.1);"),
    KEY_STRING(
        "code_file", code_file, "", 0, 4096,
        "Memory codes of Galileo's E1B and E1C for gnss, a text file in the form of the Galileo OS SIS ICD: a line "
        "'E1B Code No 1', then the code's hexadecimal digits."),
};
#undef KEYS_OF

static const char *const recording_kinds[] = {"int8", "int16", "int16be", "float32", "vdif", "ci16", NULL};

#define VDIF (1U << DSIM_RECORDING_VDIF)
#define RAW  (((1U << (DSIM_RECORDING_CI16 + 1)) - 1) & ~VDIF)

#define KEYS_OF struct dsim_recording_config
static const struct config_key recording_keys[] = {
    KEY_ENUM("kind", kind, KEY_REQUIRED, recording_kinds,
             "Contents of the file: signed integers or floats, little-endian (int16be: big-endian); VDIF frames; or "
             "(ci16) little-endian complex integers of 16 bits, which SigMF calls ci16_le. dsim plays complex integers "
             "as real samples at twice their rate, with their 0 Hz at a quarter of adc_sample_rate."),
    KEY_STRING("file", path, KEY_REQUIRED, 1, 4096, "The file."),
    KEY_DOUBLE("scale", scale, "1", UNIT_NONE, 1e-30, 1e30,
               "Factor by which the values in the file are multiplied. The products are rounded half to even and "
               "clamped to the range of sample_bits. With the factor 1, integers stay unchanged. VDIF values are "
               "-1 and 1 (1 bit), -3.316505, -1, 1 and 3.316505 (2 bits), or the code minus half its range (more "
               "bits)."),
    KEY_INT("start", start_samples, "0", UNIT_SAMPLES, 0, 1e18,
            "Samples to skip at the beginning of the file, for example to align recordings."),
    KEY_INT("header", header_bytes, "0", UNIT_BYTES, 0, 1e18,
            "Number of bytes in the file before the first sample (DADA: usually 4096).", .variants = RAW),
    KEY_INT("columns", n_columns, "1", UNIT_NONE, 1, 65536,
            "Number of columns in the file. The samples of the same time are interleaved, one from each column. dsim "
            "plays one column.",
            .variants = RAW),
    KEY_INT("column", column, "0", UNIT_NONE, 0, 65535, "Number of the column that is played, counted from 0.",
            .variants = RAW),
    KEY_INT("thread", thread, "0", UNIT_NONE, 0, 1023, "Number of the VDIF thread that is played.", .variants = VDIF),
    KEY_INT("channel", channel, "0", UNIT_NONE, 0, 16777215,
            "Number of the played channel among the channels of a frame, counted from 0.", .variants = VDIF),
    KEY_DECIMAL("sample_rate", sample_rate_hz, "0", UNIT_HZ, 0, 1e11,
                "Sample rate of the recording, which may differ from adc_sample_rate. This rate gives the number of "
                "frames in a second. 0: adc_sample_rate.",
                .variants = VDIF),
};
#undef KEYS_OF

#define KEYS_OF struct dsim_config_antenna
static const struct config_key antenna_keys[] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the antenna in messages and metrics."),
    KEY_INT("digitiser_id", digitiser_id, KEY_REQUIRED, UNIT_NONE, 0, MAX_DIGITISER_ID,
            "Digitiser id of polarisation 0, which must be even; polarisation 1 has the next id."),
    KEY_ENDPOINTS("pol0", pols[0], KEY_REQUIRED, 1, 4096,
                  "Addresses to which polarisation 0 is sent: a.b.c.d[+n][:port], comma separated; its heaps go to "
                  "these addresses in rotation."),
    KEY_ENDPOINTS("pol1", pols[1], KEY_REQUIRED, 1, 4096, "Addresses to which polarisation 1 is sent."),
};
#undef KEYS_OF

#define KEYS_OF struct config_send
static const struct config_key send_keys[] = {
    KEY_ENUM("transport", transport, "udp", config_transport_choices,
             "How packets are sent. udp: through a socket. ibverbs: from a raw packet queue of the NIC of interface."),
    KEY_STRING("interface", interface, "", 0, 64,
               "Interface for multicast, by name or address; empty: the kernel chooses."),
    KEY_INT("ttl", ttl, "4", UNIT_NONE, 0, 255, "Time to live of multicast packets."),
    KEY_INT("buffer", buffer_bytes, "4194304", UNIT_BYTES, 0, 1073741824, "Socket buffer; 0: the kernel's default."),
    KEY_STRING("pcap_file", pcap_file, "", 0, 4096,
               "Write the packets to this capture instead of the network, as fast as possible; needs a duration."),
    KEY_INT("threads", n_threads, "1", UNIT_NONE, 1, 256,
            "Number of send threads, to which the polarisations are distributed; recordings, track and captures "
            "use one thread."),
    KEY_INT_LIST("affinity", affinity, "", UNIT_NONE, -1, 4095,
                 "CPU of each send thread; a short list repeats; []: not pinned."),
};
#undef KEYS_OF

static const char recordings_example[] = "  # - kind: vdif\n"
                                         "  #   file: recording.vdif\n"
                                         "  #   scale: 16\n";

static const char antenna_example[] = "  - name: m000\n"
                                      "    digitiser_id: 0\n"
                                      "    pol0: 239.10.0.0+7:7148\n"
                                      "    pol1: 239.10.0.8+7:7148\n";

static const struct config_section sections[] = {
    CONFIG_SECTION_PART(struct dsim_config, time, config_time_keys, CONFIG_N_TIME_KEYS - 2,
                        "Time: the meaning of timestamps."),
    CONFIG_SECTION(struct dsim_config, digitiser, digitiser_keys, "Keys that apply to all digitisers.",
                   .optional = true),
    CONFIG_SECTION(struct dsim_config, signals, signals_keys,
                   "Computed signals of the antennas, instead of recordings.", .optional = true),
    CONFIG_LIST(struct dsim_config, recordings, struct dsim_recording_config, recording_keys, 0, N_POLS *MAX_ANTENNAS,
                "Signals of the antennas, from files: one file for all polarisations, or one for each, in this order: "
                "antenna 0 pol 0, antenna 0 pol 1, antenna 1 pol 0 and so on.",
                .optional = true, .example = recordings_example),
    CONFIG_LIST(struct dsim_config, antennas, struct dsim_config_antenna, antenna_keys, 1, MAX_ANTENNAS,
                "The antennas and the addresses of their samples.", .example = antenna_example),
    CONFIG_SECTION(struct dsim_config, send, send_keys, "Transmission of packets.", .optional = true),
    CONFIG_HTTP_SECTION(struct dsim_config),
    CONFIG_KATCP_SECTION(struct dsim_config),
};

const struct config_table dsim_config_table = {
    .program = "dsim",
    .help = "Simulates the digitisers of dual-polarisation antennas: SPEAD heaps of packed samples over UDP.",
    .sections = sections,
    .n_sections = ARRAY_LEN(sections),
};

static void check_digitiser(const struct dsim_config *values, struct config *config)
{
    const struct dsim_config_digitiser *digitiser = &values->digitiser;

    if (digitiser->sample_bits == 11 || (digitiser->sample_bits > 12 && digitiser->sample_bits < 16))
        config_error(config, &digitiser->sample_bits, "sample_bits must be 2 to 10, 12 or 16.");
    if (digitiser->packet_samples % 8 != 0)
        config_error(config, &digitiser->packet_samples, "packet_samples must be a multiple of 8.");
    else if ((double)(digitiser->packet_samples * digitiser->sample_bits) / 8 > MAX_PAYLOAD_BYTES)
        config_error(config, &digitiser->packet_samples,
                     "packet_samples x sample_bits / 8 must be at most %.0f bytes, because a heap is one packet.",
                     MAX_PAYLOAD_BYTES);
    if (digitiser->packet_samples <= 0)
        return;
    if (digitiser->period_samples % digitiser->packet_samples != 0)
        config_error(config, &digitiser->period_samples, "period must be a multiple of packet_samples (%lld).",
                     (long long)digitiser->packet_samples);
    if (digitiser->first_timestamp >= 0 && digitiser->first_timestamp % digitiser->packet_samples != 0)
        config_error(config, &digitiser->first_timestamp,
                     "first_timestamp must be a multiple of packet_samples (%lld).",
                     (long long)digitiser->packet_samples);
}

static void check_signals(const struct dsim_config *values, struct config *config)
{
    const char *specification = values->signals.specification;
    size_t n_inputs = dsim_config_n_inputs(values);
    struct dsim_program *program;
    char why[256];

    if (!specification || values->recordings.n > 0)
        return;
    if (dsim_parse(specification, &program, why, sizeof(why))) {
        config_error(config, &values->signals.specification, "The specification is not understood: %s.", why);
        return;
    }
    if (program->n_outputs != 1 && program->n_outputs != n_inputs)
        config_error(config, &values->signals.specification,
                     "The specification has %zu expressions; it must have one, or one for each of %zu polarisations.",
                     program->n_outputs, n_inputs);
    if (program->has_pulsar && !dsim_pulsar_takes_period(values->digitiser.period_samples))
        config_error(config, &values->digitiser.period_samples, "pulsar() needs a period that is a power of two.");
    if (dsim_gnss_check(program, timebase_decimal_to_double(values->time.adc_sample_rate_hz), values->signals.code_file,
                        why, sizeof(why)))
        config_error(config, &values->signals.specification, "%s.", why);
    dsim_program_free(program);
}

static void check_recordings(const struct dsim_config *values, struct config *config)
{
    const struct dsim_config_digitiser *digitiser = &values->digitiser;
    size_t n_inputs = dsim_config_n_inputs(values), n = values->recordings.n;

    if (n != 1 && n != n_inputs)
        config_error(config, &values->recordings,
                     "recordings has %zu items; it must have one, or one for each of %zu polarisations.", n, n_inputs);
    for (size_t i = 0; i < n; i++) {
        const struct dsim_recording_config *recording = dsim_config_recording(values, i);
        if (recording->kind != DSIM_RECORDING_VDIF && recording->column >= recording->n_columns)
            config_error(config, &recording->column, "column must be less than columns (%lld), not %lld.",
                         (long long)recording->n_columns, (long long)recording->column);
        if (files_are_same(recording->path, values->send.pcap_file))
            config_error(config, &values->send.pcap_file, "send.pcap_file would overwrite recordings[%zu].file.", i);
    }
    /* --print-config also prints defaults, and dsim must accept the printed file.  So a period or seed with its default
     * value counts as absent. */
    if (digitiser->period_samples != DEFAULT_PERIOD_SAMPLES)
        config_error(config, &digitiser->period_samples,
                     "period applies to signals only: leave this key out with recordings.");
    if (digitiser->dither_seed != DEFAULT_DITHER_SEED)
        config_error(config, &digitiser->dither_seed,
                     "dither_seed applies to signals only: leave this key out, because recordings are not dithered.");
}

/* Checks that the file has either signals or recordings.  Signals permit no keys that apply only to recordings, and
 * vice versa. */
static void check_contents(const struct dsim_config *values, struct config *config)
{
    bool has_recordings = values->recordings.n > 0;

    if (has_recordings)
        check_recordings(values, config);
    else if (values->digitiser.loop)
        config_error(config, &values->digitiser.loop, "loop applies to recordings only: signals always repeat.");
    if (has_recordings == !!values->signals.specification)
        config_error(config, &values->signals, "Either signals or recordings must be given%s.",
                     has_recordings ? ", not both" : "");
    if (values->send.pcap_file && values->digitiser.duration_s <= 0 && (!has_recordings || values->digitiser.loop))
        config_error(config, &values->send.pcap_file,
                     "pcap_file needs a duration in section digitiser, or recordings that are not looped.");
}

static void check_antennas(const struct dsim_config *values, struct config *config)
{
    for (size_t i = 0; i < values->antennas.n; i++) {
        const struct dsim_config_antenna *antenna = dsim_config_antenna(values, i);
        if (antenna->digitiser_id % N_POLS != 0)
            config_error(config, &antenna->digitiser_id, "digitiser_id must be even: its bit 0 is the polarisation.");
        for (size_t j = 0; j < i; j++) {
            const struct dsim_config_antenna *other = dsim_config_antenna(values, j);
            if (other->digitiser_id == antenna->digitiser_id)
                config_error(config, &antenna->digitiser_id, "digitiser_id %lld already belongs to antenna '%s'.",
                             (long long)antenna->digitiser_id, other->name ? other->name : "");
        }
    }
}

static void check_send(const struct dsim_config *values, struct config *config)
{
    config_check_transport(&values->send.transport, values->send.interface, values->send.pcap_file, config);
    for (size_t i = 0; i < dsim_config_n_inputs(values); i++)
        send_keys_check_destinations(&values->send, dsim_config_input_endpoints(values, i), config);
}

void dsim_config_check(void *values, struct config *config)
{
    const struct dsim_config *dsim = values;

    http_keys_check(&dsim->http, config);
    check_digitiser(dsim, config);
    check_signals(dsim, config);
    check_contents(dsim, config);
    check_antennas(dsim, config);
    check_send(dsim, config);
    if (dsim->http.listen.n > 1)
        config_error(config, &dsim->http.listen, "listen must be one address.");
    katcp_keys_check(&dsim->katcp, &dsim->http.listen, config);
}

int64_t dsim_config_n_heaps(const struct dsim_config *config)
{
    return sim_senders_count_heaps(&config->time, config->digitiser.duration_s, config->digitiser.packet_samples);
}
