/* config.c - the keys of fgpu's YAML. */
#include "fgpu/config.h"

#include "common/recv/keys.h"
#include "common/base/units.h"

static const char *const kind_choices[] = {"wideband", "narrowband", NULL};
static const char *const window_choices[] = {"hann", "rect", NULL};
static const char *const dither_choices[] = {"uniform", "none", NULL};

#define AT(member) offsetof(struct fgpu_config_recv, member)
static const struct config_key recv_keys[] = {
    CONFIG_INTERFACE_ROW(struct fgpu_config_recv),
    CONFIG_PCAP_FILE_ROW(struct fgpu_config_recv),
    CONFIG_RECV_FROM_ROW(struct fgpu_config_recv),
    CONFIG_BUFFER_ROW(struct fgpu_config_recv),
    CONFIG_TRANSPORT_ROW(struct fgpu_config_recv),
    CONFIG_COMP_VECTOR_ROW(struct fgpu_config_recv),
    {"sample_bits", CFG_INT, UNIT_BITS, 2, 16, "10", false, AT(sample_bits), NULL,
     "Width of a digitiser sample: 2 to 10, 12 or 16."},
    {"packet_samples", CFG_INT, UNIT_SAMPLES, 8, 65536, "4096", false, AT(packet_samples), NULL,
     "Samples in a digitiser heap, which is one packet."},
    {"chunk_samples", CFG_INT, UNIT_SAMPLES, 8, 1073741824, "4194304", false, AT(chunk_samples), NULL,
     "Samples of one polarisation that are processed at once; a multiple of packet_samples."},
    {"max_delay_diff", CFG_INT, UNIT_SAMPLES, 0, 1073741824, "65536", false, AT(max_delay_diff_samples), NULL,
     "Largest difference between the delays of an antenna's polarisations that costs no data."},
    {"max_delay", CFG_DOUBLE, UNIT_S, 0, 1e6, "1", false, AT(max_delay_s), NULL,
     "Largest delay, either way, that ?delays and files take: the output is silent for as long as a wrong delay was "
     "large."},
    {"window", CFG_INT, UNIT_CHUNKS, 1, 64, "2", false, AT(window_chunks), NULL,
     "Chunks that an input keeps open for late packets."},
    {"chunks", CFG_INT, UNIT_CHUNKS, 4, 4096, "8", false, AT(n_chunks), NULL,
     "Receive buffers per input; at least 2 window + 3. All but window + 3 may wait for the other polarisation."},
    {"threads", CFG_INT, UNIT_NONE, 0, 256, "0", false, AT(n_threads), NULL,
     "Receive threads, among which inputs are dealt; 0 is one per input."},
    CONFIG_AFFINITY_ROW(struct fgpu_config_recv),
    CONFIG_BUSY_POLL_ROW(struct fgpu_config_recv),
    CONFIG_DIRECT_ROW(struct fgpu_config_recv),
    CONFIG_GPUDIRECT_ROW(struct fgpu_config_recv),
};
#undef AT

#define AT(member) offsetof(struct fgpu_config_antenna, member)
static const struct config_key antenna_keys[] = {
    {"name", CFG_STRING, UNIT_NONE, 1, 64, NULL, false, AT(name), NULL, "Name, for people and metrics."},
    {"feng_id", CFG_INT, UNIT_NONE, 0, 65535, NULL, false, AT(feng_id), NULL,
     "Index of the antenna in the array, from 0."},
    {"pol0", CFG_ENDPOINTS, UNIT_NONE, 1, 4096, NULL, false, AT(pols[0]), NULL,
     "Where polarisation 0 is sent to: a.b.c.d[+n][:port], comma separated."},
    {"pol1", CFG_ENDPOINTS, UNIT_NONE, 1, 4096, NULL, false, AT(pols[1]), NULL, "Where polarisation 1 is sent to."},
    CONFIG_FROM_ROW(struct fgpu_config_antenna,
                    "Networks and addresses that may send to this antenna, in place of recv.from; empty: that."),
    {"delays", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(delays), NULL,
     "File of delay models for every output, a line each: start (UNIX s), polarisation (0 or 1), delay (s), rate "
     "(s/s), "
     "phase (rad), phase rate (rad/s) and, if wanted, accelerations of the delay (s/s^2) and the phase (rad/s^2)."},
    {"gains", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(gains), NULL,
     "File of gains, a line each: output, polarisation (0 or 1), channels (*, 17 or 300-310), real and imaginary part; "
     "what it does not name has its output's gain."},
};
#undef AT

#define AT(member)  offsetof(struct fgpu_config_output, member)
#define ONLY_NARROW (1u << FGPU_NARROWBAND)
static const struct config_key output_keys[] = {
    {"kind", CFG_ENUM, UNIT_NONE, 0, 0, "wideband", false, AT(kind), kind_choices, "What sort of output this is."},
    {"name", CFG_STRING, UNIT_NONE, 1, 64, NULL, false, AT(name), NULL, "Name of the stream."},
    {"channels", CFG_POW2, UNIT_CHANNELS, 64, 65536, NULL, false, AT(n_chan), NULL,
     "Channels over the whole of its band."},
    {"spectra_per_heap", CFG_INT, UNIT_SPECTRA, 16, 65520, "256", false, AT(spectra_per_heap), NULL,
     "Spectra in a heap (and so in a batch); a multiple of 16."},
    {"batches_per_buffer", CFG_INT, UNIT_BATCHES, 1, 65536, "1", false, AT(n_batches), NULL,
     "Batches that are transformed at once."},
    {"buffers", CFG_INT, UNIT_NONE, 0, 65536, "0", false, AT(n_buffers), NULL,
     "Output buffers per antenna; 0 is enough for what two chunks make."},
    {"taps", CFG_INT, UNIT_NONE, 1, 32, "16", false, AT(n_taps), NULL, "Taps of the polyphase filter bank."},
    {"w_cutoff", CFG_DOUBLE, UNIT_NONE, 0, 16, "1.0", false, AT(w_cutoff), NULL,
     "Width of the filter's pass band, in channels."},
    {"window_function", CFG_ENUM, UNIT_NONE, 0, 0, "hann", false, AT(window), window_choices,
     "Window of the filter's prototype."},
    {"gain", CFG_DOUBLE, UNIT_NONE, 0, FGPU_GAIN_MAX, "1.0", false, AT(gain), NULL,
     "Gain of every channel before quantisation."},
    {"sample_bits", CFG_INT, UNIT_BITS, 4, 8, "8", false, AT(sample_bits), NULL,
     "Width of each component that is sent: 4 or 8."},
    {"dither", CFG_ENUM, UNIT_NONE, 0, 0, "uniform", false, AT(dither), dither_choices,
     "What is added before rounding: uniform in half a step either way, or none."},
    {"dither_seed", CFG_INT, UNIT_NONE, -1, 9007199254740991.0, "-1", false, AT(dither_seed), NULL,
     "Seed of the dither; -1 chooses one at random and logs it."},
    {"destinations", CFG_ENDPOINTS, UNIT_NONE, 1, 4096, NULL, false, AT(destinations), NULL,
     "One per substream: channels are divided evenly among them, in order."},
    {"centre_frequency", CFG_DECIMAL, UNIT_HZ, 0, 5e10, NULL, false, AT(centre_hz), NULL,
     "Centre of the narrow band, counted from the digitiser's 0: that of channel channels / 2.  The mixer takes the "
     "ratio of "
     "the doubles nearest to this and to adc_sample_rate.",
     ONLY_NARROW},
    {"decimation", CFG_INT, UNIT_NONE, 1, 256, NULL, false, AT(decimation), NULL,
     "The narrow band is this part of the digitiser's whole one; any number.", ONLY_NARROW},
    {"ddc_taps", CFG_INT, UNIT_NONE, 0, 8192, "0", false, AT(n_ddc_taps), NULL,
     "Taps of the down-converter's filter; 0 is 16 for each sample of input between two of its output.", ONLY_NARROW},
    {"weight_pass", CFG_DOUBLE, UNIT_NONE, 1e-9, 1e9, "0.005", false, AT(weight_pass), NULL,
     "What an error in that filter's pass band weighs, next to one in its stop bands.", ONLY_NARROW},
    {"pass_bandwidth", CFG_DOUBLE, UNIT_HZ, 0, 5e10, "0", false, AT(pass_bandwidth_hz), NULL,
     "The middle of the narrow band that is flat and free of aliases, where its edges need not be; 0: all of it is, as "
     "twice the band is made and half of that discarded.",
     ONLY_NARROW},
};
#undef ONLY_NARROW
#undef AT

static const char antenna_example[] = "  - name: m000\n"
                                      "    feng_id: 0\n"
                                      "    pol0: 239.10.0.0+7:7148\n"
                                      "    pol1: 239.10.0.8+7:7148\n";
static const char output_example[] = "  - kind: wideband\n"
                                     "    name: antenna-channelised-voltage\n"
                                     "    channels: 4096\n"
                                     "    spectra_per_heap: 256\n"
                                     "    destinations: 239.10.1.0+15:7148\n";

#define SECTION(keys) keys, ARRAY_LEN(keys)
static const struct config_section sections[] = {
    CONFIG_TIME_SECTION(struct fgpu_config),
    CONFIG_DEVICE_SECTION(struct fgpu_config),
    {"recv", "Digitiser packets in.", SECTION(recv_keys), sizeof(struct fgpu_config_recv),
     offsetof(struct fgpu_config, recv), false, 0, 0, true, NULL},
    {"antennas", "The antennas that this service channelises.", SECTION(antenna_keys),
     sizeof(struct fgpu_config_antenna), offsetof(struct fgpu_config, antennas), true, 1, 256, false, antenna_example},
    {"outputs", "Streams made of every antenna.", SECTION(output_keys), sizeof(struct fgpu_config_output),
     offsetof(struct fgpu_config, outputs), true, 1, 64, false, output_example},
    CONFIG_SEND_SECTION(struct fgpu_config, "Channelised voltages out.", CONFIG_N_FGPU_SEND_KEYS),
    CONFIG_HTTP_SECTION(struct fgpu_config),
    CONFIG_KATCP_SECTION(struct fgpu_config),
    CONFIG_STATE_SECTION(struct fgpu_config),
};

const struct config_table fgpu_config_table = {"fgpu", "F-engine: digitiser samples in, channelised voltages out.",
                                               sections, ARRAY_LEN(sections), .tunes = true};
