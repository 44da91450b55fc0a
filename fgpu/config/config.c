/* config.c - the keys of fgpu's YAML. */
#include "fgpu/config/config.h"

#include "common/base/units.h"
#include "fgpu/config/gnss_keys.h"

static const char *const kind_choices[] = {"wideband", "narrowband", NULL};
static const char *const window_choices[] = {"hann", "rect", NULL};
static const char *const dither_choices[] = {"uniform", "none", NULL};

#define KEYS_OF struct fgpu_config_recv
static const struct config_key recv_keys[] = {
    CONFIG_INTERFACE_ROW,
    CONFIG_PCAP_FILE_ROW,
    CONFIG_RECV_FROM_ROW,
    CONFIG_BUFFER_ROW,
    CONFIG_TRANSPORT_ROW,
    CONFIG_COMP_VECTOR_ROW,
    KEY_INT("sample_bits", sample_bits, "10", UNIT_BITS, 2, 16,
            "Number of bits in a digitiser sample: 2 to 10, 12 or 16."),
    KEY_INT("packet_samples", packet_samples, "4096", UNIT_SAMPLES, 8, 65536,
            "Number of samples in a digitiser heap. A heap is one packet."),
    KEY_INT("chunk_samples", chunk_samples, "4194304", UNIT_SAMPLES, 8, 1073741824,
            "Number of samples of one polarisation that are processed together; a multiple of packet_samples."),
    KEY_INT("max_delay_diff", max_delay_diff_samples, "65536", UNIT_SAMPLES, 0, 1073741824,
            "Largest difference between the delays of an antenna's polarisations. Larger differences lose data."),
    KEY_DOUBLE("max_delay", max_delay_s, "1", UNIT_S, 0, 1e6,
               "Largest magnitude of a delay that ?delays and files accept. If a delay is set too large by mistake, "
               "the output can be silent for the length of that delay."),
    KEY_INT("window", base.window_chunks, "2", UNIT_CHUNKS, 1, 64,
            "Number of chunks that an input keeps open for late packets."),
    KEY_INT("chunks", base.n_chunks, "8", UNIT_CHUNKS, 4, 4096,
            "Number of receive buffers per input; at least 2 * window + 3. Reception always needs window + 3 of these "
            "buffers; the others may contain data that wait for the other polarisation."),
    KEY_INT("threads", base.n_threads, "0", UNIT_NONE, 0, 256,
            "Number of receive threads, which share the inputs; 0: one thread per input."),
    CONFIG_AFFINITY_ROW,
    CONFIG_BUSY_POLL_ROW,
    CONFIG_DIRECT_ROW,
    CONFIG_GPUDIRECT_ROW,
};
#undef KEYS_OF

#define KEYS_OF struct fgpu_config_antenna
static const struct config_key antenna_keys[] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the antenna in logs, metrics and requests."),
    KEY_INT("feng_id", feng_id, KEY_REQUIRED, UNIT_NONE, 0, 65535, "Index of the antenna in the array, from 0."),
    KEY_ENDPOINTS("pol0", pols[0], KEY_REQUIRED, 1, 4096,
                  "Addresses to which the digitiser sends polarisation 0: a.b.c.d[+n][:port], comma separated."),
    KEY_ENDPOINTS("pol1", pols[1], KEY_REQUIRED, 1, 4096, "Addresses to which the digitiser sends polarisation 1."),
    KEY_STRING("from", from, "", 0, 4096,
               "Networks and addresses of the allowed senders of this antenna's data, instead of recv.from; empty: "
               "recv.from applies."),
    KEY_STRING("delays", delays, "", 0, 4096,
               "File of delay models for every output. Each line has start (UNIX s), polarisation (0 or 1), delay (s), "
               "rate (s/s), phase (rad), phase rate (rad/s) and optionally the accelerations of the delay (s/s^2) and "
               "the phase (rad/s^2)."),
    KEY_STRING("gains", gains, "", 0, 4096,
               "File of gains. Each line has output, polarisation (0 or 1), channels (*, 17 or 300-310), real and "
               "imaginary part. A channel without a line keeps the gain of its output."),
};
#undef KEYS_OF

#define ONLY_NARROW (1u << FGPU_NARROWBAND)

#define KEYS_OF struct fgpu_config_output
static const struct config_key output_keys[] = {
    KEY_ENUM("kind", kind, "wideband", kind_choices, "Kind of this output."),
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the stream."),
    KEY_POW2("channels", n_chan, KEY_REQUIRED, UNIT_CHANNELS, 64, 65536,
             "Number of channels in the whole band of this output."),
    KEY_INT("spectra_per_heap", spectra_per_heap, "256", UNIT_SPECTRA, 16, 65520,
            "Number of spectra in a heap, and so in a batch; a multiple of 16."),
    KEY_INT("batches_per_buffer", n_batches, "1", UNIT_BATCHES, 1, 65536,
            "Number of batches that the device processes together."),
    KEY_INT("buffers", n_buffers, "0", UNIT_NONE, 0, 65536,
            "Number of output buffers per antenna; 0: enough for the output of two chunks."),
    KEY_INT("taps", n_taps, "16", UNIT_NONE, 1, 32, "Number of taps of the polyphase filter bank, per channel."),
    KEY_DOUBLE("w_cutoff", w_cutoff, "1.0", UNIT_NONE, 0, 16, "Width of the filter's pass band, in channels."),
    KEY_ENUM("window_function", window, "hann", window_choices, "Window function of the prototype filter."),
    KEY_DOUBLE("gain", gain, "1.0", UNIT_NONE, 0, FGPU_GAIN_MAX, "Gain of every channel before quantisation."),
    KEY_INT("sample_bits", sample_bits, "8", UNIT_BITS, 4, 8,
            "Number of bits in the real and in the imaginary part of each sent voltage: 4 or 8."),
    KEY_ENUM("dither", dither, "uniform", dither_choices,
             "Dither before rounding: none, or uniformly distributed between -0.5 and 0.5 quantisation steps."),
    KEY_INT("dither_seed", dither_seed, "-1", UNIT_NONE, -1, 9007199254740991.0,
            "Seed of the dither; -1: a seed is chosen at random and logged."),
    KEY_ENDPOINTS("destinations", destinations, KEY_REQUIRED, 1, 4096,
                  "Addresses, one per substream. The channels are divided evenly among the substreams, in order."),
    FGPU_BAND_ROWS(ONLY_NARROW),
};
#undef ONLY_NARROW
#undef KEYS_OF

static const char antenna_example[] = "  - name: m000\n"
                                      "    feng_id: 0\n"
                                      "    pol0: 239.10.0.0+7:7148\n"
                                      "    pol1: 239.10.0.8+7:7148\n";
static const char output_example[] = "  - kind: wideband\n"
                                     "    name: antenna-channelised-voltage\n"
                                     "    channels: 4096\n"
                                     "    spectra_per_heap: 256\n"
                                     "    destinations: 239.10.1.0+15:7148\n";

static const struct config_section sections[] = {
    CONFIG_TIME_SECTION(struct fgpu_config),
    CONFIG_DEVICE_SECTION(struct daemon_config),
    CONFIG_SECTION(struct fgpu_config, recv, recv_keys, "Reception of digitiser packets.", .optional = true),
    CONFIG_LIST(struct fgpu_config, antennas, struct fgpu_config_antenna, antenna_keys, 1, 256,
                "The antennas that this service channelises.", .example = antenna_example),
    CONFIG_LIST(struct fgpu_config, outputs, struct fgpu_config_output, output_keys, 1, 64,
                "Output streams; each stream is made for every antenna.", .example = output_example),
    CONFIG_LIST(struct fgpu_config, gnss, struct fgpu_config_gnss, fgpu_gnss_keys, 0, 16,
                "Streams of navigation satellites' correlation sums; each stream is made for every antenna.",
                .optional = true, .example = fgpu_gnss_example),
    CONFIG_LIST(struct fgpu_config, satellites, struct fgpu_config_satellite, fgpu_satellite_keys, 0, 64,
                "Satellites that the streams of 'gnss' follow. Each stream follows the satellites whose carriers are "
                "in its band.",
                .optional = true, .example = fgpu_satellite_example),
    CONFIG_SEND_SECTION(struct fgpu_config, "Transmission of channelised voltages.", CONFIG_N_FGPU_SEND_KEYS),
    CONFIG_HTTP_SECTION(struct daemon_config),
    CONFIG_KATCP_SECTION(struct daemon_config),
    CONFIG_STATE_SECTION(struct daemon_config),
};

const struct config_table fgpu_config_table = {.program = "fgpu",
                                               .help = "F-engine: digitiser samples in, channelised voltages out.",
                                               .sections = sections,
                                               .n_sections = ARRAY_LEN(sections),
                                               .tunes = true};
