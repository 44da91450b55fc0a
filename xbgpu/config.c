/* config.c - the keys of xbgpu's YAML. */
#include "xbgpu/config.h"

#include "common/recv/keys.h"
#include "common/base/units.h"

static const char *const encoding_choices[] = {"twos_complement", "offset", NULL};
static const char *const kind_choices[] = {"correlate", NULL};
static const char *const missing_choices[] = {"flag", "weights", NULL};
static const char *const missing_dump_choices[] = {"send", "skip", NULL};

#define AT(member) offsetof(struct xbgpu_config_recv, member)
static const struct config_key recv_keys[] = {
    {"sources", CFG_ENDPOINTS, UNIT_NONE, 1, 4096, NULL, false, AT(sources), NULL,
     "Where the F-engines send this slice of the band to: a.b.c.d[+n][:port], comma separated.",
     .example = "239.10.1.0:7148"},
    CONFIG_INTERFACE_ROW(struct xbgpu_config_recv),
    CONFIG_PCAP_FILE_ROW(struct xbgpu_config_recv),
    CONFIG_RECV_FROM_ROW(struct xbgpu_config_recv),
    CONFIG_CRC_ROW(struct xbgpu_config_recv),
    CONFIG_BUFFER_ROW(struct xbgpu_config_recv),
    CONFIG_TRANSPORT_ROW(struct xbgpu_config_recv),
    CONFIG_COMP_VECTOR_ROW(struct xbgpu_config_recv),
    {"antennas", CFG_INT, UNIT_NONE, 1, 4096, NULL, false, AT(n_ants), NULL, "Antennas in the array.", .example = "4"},
    {"channels", CFG_INT, UNIT_CHANNELS, 1, 65536, NULL, false, AT(n_chan), NULL,
     "Channels of the whole stream, over all engines.", .example = "4096"},
    {"channels_per_substream", CFG_INT, UNIT_CHANNELS, 1, 65536, NULL, false, AT(n_chan_substream), NULL,
     "Channels that this engine receives.", .example = "256"},
    {"channel_offset", CFG_INT, UNIT_CHANNELS, 0, 65535, "0", false, AT(chan_offset), NULL,
     "First channel that this engine receives; a multiple of channels_per_substream."},
    {"spectra_per_heap", CFG_INT, UNIT_SPECTRA, 16, 65520, "256", false, AT(spectra_per_heap), NULL,
     "Spectra in a heap of an F-engine; a multiple of 16, of half floats at most 8192."},
    {"samples_between_spectra", CFG_INT, UNIT_SAMPLES, 1, 2147483648.0, NULL, false, AT(samples_between_spectra), NULL,
     "ADC samples from spectrum to spectrum: 2 * channels for a wideband stream.", .example = "8192"},
    {"sample_bits", CFG_INT, UNIT_BITS, 4, 16, "8", false, AT(sample_bits), NULL,
     "Width of each received component: integers of 4 or 8 bits, or half floats of 16, of which the visibilities are "
     "float32."},
    {"sample_encoding", CFG_ENUM, UNIT_NONE, 0, 0, "twos_complement", false, AT(sample_encoding), encoding_choices,
     "How 4 bits say a negative number: in two's complement, or by an offset of 8."},
    {"batches_per_chunk", CFG_INT, UNIT_BATCHES, 1, 65536, "8", false, AT(batches_per_chunk), NULL,
     "Heaps of each F-engine that are processed at once."},
    {"window", CFG_INT, UNIT_CHUNKS, 1, 64, "2", false, AT(window_chunks), NULL,
     "Chunks that are kept open for late packets."},
    {"chunks", CFG_INT, UNIT_CHUNKS, 4, 4096, "8", false, AT(n_chunks), NULL,
     "Receive buffers per receive thread; at least 2 window + 3."},
    {"threads", CFG_INT, UNIT_NONE, 1, 256, "1", false, AT(n_threads), NULL,
     "Receive threads, among which F-engines are dealt."},
    CONFIG_AFFINITY_ROW(struct xbgpu_config_recv),
    CONFIG_BUSY_POLL_ROW(struct xbgpu_config_recv),
    CONFIG_DIRECT_ROW(struct xbgpu_config_recv),
    CONFIG_GPUDIRECT_ROW(struct xbgpu_config_recv),
    {"packet_payload", CFG_INT, UNIT_BYTES, 8, 65000, "8192", false, AT(packet_payload_bytes), NULL,
     "With gpudirect: what packets of F-engines carry at least, but for the last of a heap."},
    {"shifts", CFG_INT_LIST, UNIT_SPECTRA, -65520, 65520, "", false, AT(shifts), NULL,
     "By how many spectra each input is made later before anything else, at most a heap's; polarisations 0 and 1 of "
     "antenna 0, then of antenna 1, and so on; none: by none."},
    {"max_shift", CFG_INT, UNIT_SPECTRA, 0, 65520, "0", false, AT(max_shift), NULL,
     "Spectra, at most a heap's, by which inputs can be shifted either way while running, whatever shifts says; with 0 "
     "as "
     "far as shifts goes."},
    {"antenna_names", CFG_STRING, UNIT_NONE, 0, 262144, "", false, AT(antenna_names), NULL,
     "Names of the antennas, comma separated, in the order of their feng_id; empty: what the input_labels of each "
     "begin "
     "with, else a0, a1 and so on."},
    {"input_labels", CFG_STRING, UNIT_NONE, 0, 262144, "", false, AT(input_labels), NULL,
     "Names of the inputs, in the order of shifts, comma separated; empty: the antenna's name with v for polarisation "
     "0 "
     "and h for 1."},
    {"centre_frequency", CFG_DOUBLE, UNIT_HZ, 0, 1e13, "0", false, AT(centre_frequency_hz), NULL,
     "Radio frequency of the centre of channel channels / 2, for who asks over KATCP; 0 is not known."},
};
#undef AT

#define AT(member) offsetof(struct xbgpu_config_output, member)
static const struct config_key output_keys[] = {
    {"kind", CFG_ENUM, UNIT_NONE, 0, 0, "correlate", false, AT(kind), kind_choices, "Kind of this output."},
    {"name", CFG_STRING, UNIT_NONE, 1, 64, NULL, false, AT(name), NULL, "Name of the stream."},
    {"integration_batches", CFG_INT, UNIT_BATCHES, 0, 1e9, "0", false, AT(integration_batches), NULL,
     "Length of an accumulation in batches; 0 takes integration_time."},
    {"integration_time", CFG_DOUBLE, UNIT_S, 0, 1e6, "0", false, AT(integration_time_s), NULL,
     "Length of an accumulation in seconds, rounded to whole batches; 0 takes integration_batches."},
    {"destination", CFG_ENDPOINTS, UNIT_NONE, 1, 1, NULL, false, AT(destination), NULL,
     "Where the visibilities are sent to."},
    {"missing", CFG_ENUM, UNIT_NONE, 0, 0, "flag", false, AT(missing), missing_choices,
     "A lost heap flags its antenna's baselines for the whole dump, or counts as zero and the spectra that went into "
     "each baseline are sent along."},
    {"missing_dump", CFG_ENUM, UNIT_NONE, 0, 0, "send", false, AT(missing_dump), missing_dump_choices,
     "A dump in which no antenna was complete is sent, all flagged, or skipped."},
    {"audit_samples", CFG_INT, UNIT_NONE, 0, 65536, "1", false, AT(audit_samples), NULL,
     "Baselines and channels, drawn anew for each dump, that the host sums again and compares; 0: no audit."},
    {"audit_checksum", CFG_BOOL, UNIT_NONE, 0, 0, "true", false, AT(audit_checksum), NULL,
     "The device makes a checksum of each input and channel in another way and compares it with the dump; one that is "
     "wrong is sent all flagged."},
    {"send_enabled", CFG_BOOL, UNIT_NONE, 0, 0, "true", false, AT(send_enabled), NULL,
     "Send data from the start; with false not before ?capture-start asks for it."},
    {"buffers", CFG_INT, UNIT_NONE, 0, 65536, "0", false, AT(n_buffers), NULL,
     "Dump buffers; 0 is enough for the dumps of two chunks."},
    {"gate", CFG_STRING, UNIT_NONE, 0, 64, "", false, AT(gate), NULL,
     "Name of the gate whose spectra are accumulated; empty: all are."},
};
#undef AT

static const char output_example[] = "  - kind: correlate\n"
                                     "    name: baseline-correlation-products\n"
                                     "    integration_time: 0.5\n"
                                     "    destination: 239.10.2.0:7148\n"
                                     "    send_enabled: true\n";

#define SECTION(keys) keys, ARRAY_LEN(keys)
static const struct config_section sections[] = {
    CONFIG_TIME_SECTION(struct xbgpu_config),
    CONFIG_DEVICE_SECTION(struct xbgpu_config),
    {"recv", "Channelised voltages in.", SECTION(recv_keys), sizeof(struct xbgpu_config_recv),
     offsetof(struct xbgpu_config, recv), false, 0, 0, false, NULL},
    {"gates", "Which spectra there may be outputs of.", SECTION(xbgpu_gate_keys), sizeof(struct xbgpu_config_gate),
     offsetof(struct xbgpu_config, gates), true, 0, XBGPU_GATES_MAX, true, xbgpu_gate_example},
    {"outputs", "Streams made of the voltages.", SECTION(output_keys), sizeof(struct xbgpu_config_output),
     offsetof(struct xbgpu_config, outputs), true, 1, 64, false, output_example},
    CONFIG_SEND_SECTION(struct xbgpu_config, "Visibilities out.", CONFIG_N_SEND_KEYS),
    CONFIG_HTTP_SECTION(struct xbgpu_config),
    CONFIG_KATCP_SECTION(struct xbgpu_config),
    CONFIG_STATE_SECTION(struct xbgpu_config),
};

const struct config_table xbgpu_config_table = {"xbgpu", "X-engine: channelised voltages in, visibilities out.",
                                                sections, ARRAY_LEN(sections)};
