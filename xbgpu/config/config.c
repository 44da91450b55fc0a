/* config.c - the keys of xbgpu's YAML. */
#include "xbgpu/config/config.h"

#include "common/base/units.h"

static const char *const encoding_choices[] = {"twos_complement", "offset", NULL};
static const char *const kind_choices[] = {"correlate", NULL};
static const char *const dither_choices[] = {"uniform", "none", NULL};
static const char *const beam_kind_choices[] = {"coherent", "incoherent", NULL};         /* enum xbgpu_beam_kind */
static const char *const products_choices[] = {"power_0", "power_1", "I", "IQUV", NULL}; /* enum beam_products */
static const char *const power_format_choices[] = {"float32", "uint8", NULL};
static const char *const missing_choices[] = {"flag", "weights", NULL};
static const char *const missing_dump_choices[] = {"send", "skip", "always", NULL};

#define KEYS_OF struct xbgpu_config_recv
static const struct config_key recv_keys[] = {
    KEY_ENDPOINTS("sources", sources, KEY_REQUIRED, 1, 4096,
                  "Addresses to which the F-engines send this part of the band: a.b.c.d[+n][:port], comma separated.",
                  .example = "239.10.1.0:7148"),
    CONFIG_INTERFACE_ROW,
    CONFIG_PCAP_FILE_ROW,
    CONFIG_RECV_FROM_ROW,
    CONFIG_CRC_ROW,
    CONFIG_BUFFER_ROW,
    CONFIG_TRANSPORT_ROW,
    CONFIG_COMP_VECTOR_ROW,
    KEY_INT("antennas", n_ants, KEY_REQUIRED, UNIT_NONE, 1, 4096, "Number of antennas in the array.", .example = "4"),
    KEY_INT("channels", n_chan, KEY_REQUIRED, UNIT_CHANNELS, 1, 65536,
            "Number of channels of the whole stream, over all engines.", .example = "4096"),
    KEY_INT("channels_per_substream", n_chan_substream, KEY_REQUIRED, UNIT_CHANNELS, 1, 65536,
            "Number of channels that this engine receives.", .example = "256"),
    KEY_INT("channel_offset", chan_offset, "0", UNIT_CHANNELS, 0, 65535,
            "First channel that this engine receives; a multiple of channels_per_substream."),
    KEY_INT("spectra_per_heap", spectra_per_heap, "256", UNIT_SPECTRA, 16, 65520,
            "Number of spectra in a heap of an F-engine; a multiple of 16, at most 8192 with half floats."),
    KEY_INT("samples_between_spectra", samples_between_spectra, KEY_REQUIRED, UNIT_SAMPLES, 1, 2147483648.0,
            "Number of ADC samples from one spectrum to the next: 2 * channels for a wideband stream.",
            .example = "8192"),
    KEY_INT("filter_samples", filter_samples, "0", UNIT_SAMPLES, 0, 2147483648.0,
            "Number of ADC samples in the F-engine's filter window. It is only used to state the centre time of "
            "detected beams' windows; 0: 16 * samples_between_spectra."),
    KEY_INT("sample_bits", sample_bits, "8", UNIT_BITS, 4, 16,
            "Width of the real and of the imaginary part of a received voltage: 4 or 8 (integers), or 16 (half "
            "floats). If voltages are half floats, visibilities are float32."),
    KEY_ENUM("sample_encoding", sample_encoding, "twos_complement", encoding_choices,
             "Encoding of 4-bit numbers: two's complement, or with an offset of 8."),
    KEY_INT("batches_per_chunk", batches_per_chunk, "8", UNIT_BATCHES, 1, 65536,
            "Number of heaps of each F-engine that are processed together."),
    KEY_INT("window", base.window_chunks, "2", UNIT_CHUNKS, 1, 64,
            "Number of chunks that are kept open for late packets."),
    KEY_INT("chunks", base.n_chunks, "8", UNIT_CHUNKS, 4, 4096,
            "Number of receive buffers per receive thread; at least 2 * window + 3."),
    KEY_INT("threads", base.n_threads, "1", UNIT_NONE, 1, 256, "Number of receive threads, which share the F-engines."),
    CONFIG_AFFINITY_ROW,
    CONFIG_BUSY_POLL_ROW,
    CONFIG_DIRECT_ROW,
    CONFIG_GPUDIRECT_ROW,
    KEY_INT(
        "packet_payload", packet_payload_bytes, "8192", UNIT_BYTES, 8, 65000,
        "Smallest payload of the F-engines' packets; used only with gpudirect. A heap's last packet may be smaller."),
    KEY_INT_LIST("shifts", shifts, "", UNIT_SPECTRA, -65520, 65520,
                 "Delay of each input in spectra, applied before all other processing. A delay is at most the length "
                 "of a heap. The order is: polarisations 0 and 1 of antenna 0, then of antenna 1, and so on. []: no "
                 "delays."),
    KEY_INT("max_shift", max_shift, "0", UNIT_SPECTRA, 0, 65520,
            "Largest magnitude, in spectra, of a shift that ?input-shift can set; at most the length of a heap. 0: "
            "the range of the configured shifts."),
    KEY_STRING("antenna_names", antenna_names, "", 0, 262144,
               "Names of the antennas, comma separated, in the order of their feng_id; empty: the common beginning of "
               "each antenna's input_labels, else a0, a1 and so on."),
    KEY_STRING("input_labels", input_labels, "", 0, 262144,
               "Names of the inputs, in the order of shifts, comma separated; empty: the antenna's name with v for "
               "polarisation 0 and h for 1."),
    KEY_DOUBLE("centre_frequency", centre_frequency_hz, "0", UNIT_HZ, 0, 1e13,
               "Radio frequency of the centre of the channel with the index channels / 2, reported over KATCP; 0: not "
               "known."),
};
#undef KEYS_OF

#define KEYS_OF struct xbgpu_config_output
static const struct config_key output_keys[] = {
    KEY_ENUM("kind", kind, "correlate", kind_choices, "Kind of this output."),
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the stream."),
    KEY_INT("integration_batches", integration_batches, "0", UNIT_BATCHES, 0, 1e9,
            "Length of an accumulation in batches; 0: integration_time applies."),
    KEY_DOUBLE("integration_time", integration_time_s, "0", UNIT_S, 0, 1e6,
               "Length of an accumulation in seconds, rounded to whole batches; 0: integration_batches applies."),
    KEY_ENDPOINTS("destination", destination, KEY_REQUIRED, 1, 1, "Address to which the visibilities are sent."),
    KEY_ENUM("missing", missing, "flag", missing_choices,
             "Effect of a lost heap. flag: all baselines of the heap's antenna are flagged in the dump. weights: the "
             "heap counts as zero, and the dump contains the number of spectra that were added for each baseline."),
    KEY_ENUM("missing_dump", missing_dump, "send", missing_dump_choices,
             "Treatment of a dump in which no antenna is complete. send: the dump is sent, with all values flagged. "
             "skip: the dump is not sent. always: like send, and a gap without any heap is filled with flagged dumps. "
             "A gap is filled only if dumps with heaps precede and follow it, and if it has at most as many dumps as "
             "there are buffers."),
    KEY_INT("audit_samples", audit_samples, "1", UNIT_NONE, 0, 65536,
            "Number of (baseline, channel) pairs per dump, chosen at random, whose sums the host computes again and "
            "compares; 0: no audit."),
    KEY_BOOL("audit_checksum", audit_checksum, true,
             "The device computes a checksum for each input and channel by a different method, and compares the "
             "checksum with the dump. A wrong dump is sent with all values flagged."),
    KEY_BOOL("send_enabled", send_enabled, true,
             "true: data are sent from the start. false: data are sent only after ?capture-start."),
    KEY_INT("buffers", n_buffers, "0", UNIT_NONE, 0, 65536,
            "Number of dump buffers; 0: enough for the dumps of two chunks."),
    KEY_STRING("gate", gate, "", 0, 64, "Name of the gate whose spectra are accumulated; empty: all spectra."),
    KEY_INT_LIST("shifts", shifts, "", UNIT_SPECTRA, -65520, 65520,
                 "Shifts of this output alone, instead of recv.shifts. Outputs with different shifts measure "
                 "different lags. Each such output costs another copy of the voltages on the device for every chunk."),
};
#undef KEYS_OF

#define KEYS_OF struct xbgpu_config_beam
static const struct config_key beam_keys[] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the stream."),
    KEY_INT("pol", pol, KEY_REQUIRED, UNIT_NONE, 0, 1, "Polarisation of the antennas that the beam sums."),
    KEY_ENDPOINTS("destination", destination, KEY_REQUIRED, 1, 1, "Address to which the beam's voltages are sent."),
    KEY_ENUM("dither", dither, "uniform", dither_choices,
             "Dither before rounding: none, or uniformly distributed between -0.5 and 0.5 quantisation steps."),
    KEY_INT("dither_seed", dither_seed, "-1", UNIT_NONE, -1, 9007199254740991.0,
            "Seed of the dither; -1: a seed is chosen at random."),
    KEY_BOOL("send_enabled", send_enabled, true,
             "true: data are sent from the start. false: data are sent only after ?capture-start."),
    KEY_BOOL("renormalise", renormalise, false,
             "true: the beam is multiplied by sqrt(n / n_present) if antennas are missing. n counts the antennas whose "
             "weight is not 0, and n_present counts those of them that are present."),
};
#undef KEYS_OF

#define KEYS_OF struct xbgpu_config_detected
static const struct config_key detected_keys[] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64,
               "Name of the stream, whose beams are called NAME.0, NAME.1 and so on."),
    KEY_ENUM("kind", kind, "coherent", beam_kind_choices,
             "coherent: each beam is the power of a weighted sum of the antennas' voltages. incoherent: the single "
             "beam is the sum of the antennas' powers."),
    KEY_INT("beams", n_beams, "1", UNIT_NONE, 1, XBGPU_BEAMS_MAX,
            "Number of beams in the stream, each of both polarisations."),
    KEY_ENUM("products", products, "I", products_choices,
             "The powers in the stream: of one polarisation, of both polarisations together (Stokes I), or all Stokes "
             "parameters."),
    KEY_INT("spectra", window_spectra, "16", UNIT_SPECTRA, 1, 4096, "Number of spectra that are summed for one power."),
    KEY_INT("channels", group_channels, "1", UNIT_CHANNELS, 1, 256,
            "Number of channels that are summed for one power; a divisor of channels_per_substream."),
    KEY_INT("windows", heap_windows, "16", UNIT_NONE, 1, 65536, "Number of windows (sums over time) in a heap."),
    KEY_ENUM("format", format, "float32", power_format_choices,
             "Format of the powers: float32, or uint8 with an offset and a scale for each beam, product and channel of "
             "a heap."),
    KEY_ENDPOINTS("destination", destination, KEY_REQUIRED, 1, 1, "Address to which the powers are sent."),
    KEY_BOOL("send_enabled", send_enabled, true,
             "true: data are sent from the start. false: data are sent only after ?capture-start."),
    KEY_INT("buffers", n_buffers, "0", UNIT_NONE, 0, 65536,
            "Number of heap buffers; 0: enough for 50 ms (from 8 to 64), and for the heaps of two chunks."),
};
#undef KEYS_OF

#define KEYS_OF struct xbgpu_config_steering
static const struct config_key steering_keys[] = {
    KEY_STRING("calibration", calibration, "", 0, 4096,
               "File of gains. Each line has input (label or number), channels of the whole stream (*, 17 or 300-310), "
               "real and imaginary part. Channels without a line have a gain of 1."),
    KEY_BOOL("antenna_mask", antenna_mask, false,
             "true: each heap of a beam ends with a bitmap of the present antennas. katgpucbf's receivers and beamrec "
             "refuse these longer heaps."),
    KEY_INT("grid_batches", grid_batches, "0", UNIT_NONE, 0, 1048576,
            "Number of batches between two evaluations of delay rates; 0: the batches in 10 ms, at least one batch."),
    KEY_INT("buffers", n_buffers, "0", UNIT_NONE, 0, 65536,
            "Number of buffers of voltage beams. A buffer has room for the heaps of a chunk. 0: enough for 50 ms (from "
            "8 to 64)."),
};
#undef KEYS_OF

static const char beam_example[] = "  - name: tied-array-channelised-voltage-0x\n"
                                   "    pol: 0\n"
                                   "    destination: 239.10.3.0:7148\n";
static const char detected_example[] = "  - name: detected-beams\n"
                                       "    beams: 4\n"
                                       "    products: I\n"
                                       "    spectra: 64\n"
                                       "    destination: 239.10.4.0:7148\n";
static const char output_example[] = "  - kind: correlate\n"
                                     "    name: baseline-correlation-products\n"
                                     "    integration_time: 0.5\n"
                                     "    destination: 239.10.2.0:7148\n"
                                     "    send_enabled: true\n";

static const struct config_section sections[] = {
    CONFIG_TIME_SECTION(struct xbgpu_config),
    CONFIG_DEVICE_SECTION(struct daemon_config),
    CONFIG_SECTION(struct xbgpu_config, recv, recv_keys, "Reception of channelised voltages."),
    CONFIG_LIST(struct xbgpu_config, gates, struct xbgpu_config_gate, xbgpu_gate_keys, 0, XBGPU_GATES_MAX,
                "Gates: selections of spectra, to which outputs refer.", .optional = true,
                .example = xbgpu_gate_example),
    CONFIG_LIST(struct xbgpu_config, outputs, struct xbgpu_config_output, output_keys, 1, 64,
                "Correlation streams made from the voltages.", .example = output_example),
    CONFIG_LIST(struct xbgpu_config, beams, struct xbgpu_config_beam, beam_keys, 0, XBGPU_BEAMS_MAX,
                "Tied-array beams made from the voltages. Each beam has one polarisation.", .optional = true,
                .example = beam_example),
    CONFIG_LIST(struct xbgpu_config, detected, struct xbgpu_config_detected, detected_keys, 0, XBGPU_DETECTED_MAX,
                "Streams of detected beams: the powers of beams that have both polarisations.", .optional = true,
                .example = detected_example),
    CONFIG_SECTION(struct xbgpu_config, steering, steering_keys, "Keys that all beams share.", .optional = true),
    CONFIG_SEND_SECTION(struct xbgpu_config, "Transmission of visibilities and beams.", CONFIG_N_SEND_KEYS),
    CONFIG_HTTP_SECTION(struct daemon_config),
    CONFIG_KATCP_SECTION(struct daemon_config),
    CONFIG_STATE_SECTION(struct daemon_config),
};

const struct config_table xbgpu_config_table = {.program = "xbgpu",
                                                .help = "X-engine: channelised voltages in, visibilities out.",
                                                .sections = sections,
                                                .n_sections = ARRAY_LEN(sections),
                                                .tunes = true};
