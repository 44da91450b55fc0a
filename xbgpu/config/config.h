/* config.h - the configuration of an X-engine: xbgpu's YAML as structs.
 *
 * The key tables (config.c, gate_config.c) are the only lists of keys, ranges, defaults and help. */
#ifndef XBGPU_CONFIG_CONFIG_H
#define XBGPU_CONFIG_CONFIG_H

#include "common/config/config.h"
#include "common/device/device.h"
#include "common/net/endpoint.h"
#include "common/net/access.h"
#include "common/recv/keys.h"
#include "common/send/keys.h"
#include "common/daemon/keys.h"
#include "common/config/time_keys.h"
#include "xbgpu/config/gate_config.h"

#include <stdbool.h>
#include <stdint.h>

#define XBGPU_BEAMS_MAX    1024
#define XBGPU_DETECTED_MAX 64

enum xbgpu_encoding { XBGPU_TWOS_COMPLEMENT, XBGPU_OFFSET };
enum xbgpu_output_kind { XBGPU_CORRELATE };
enum xbgpu_dither { XBGPU_DITHER_UNIFORM, XBGPU_DITHER_NONE };
enum xbgpu_beam_kind { XBGPU_BEAM_COHERENT, XBGPU_BEAM_INCOHERENT };
enum xbgpu_power_format { XBGPU_POWER_FLOAT32, XBGPU_POWER_UINT8 };
enum xbgpu_missing { XBGPU_MISSING_FLAG, XBGPU_MISSING_WEIGHTS };
enum xbgpu_missing_dump { XBGPU_MISSING_DUMP_SEND, XBGPU_MISSING_DUMP_SKIP, XBGPU_MISSING_DUMP_ALWAYS };

struct xbgpu_config_recv {
    struct config_recv base; /* base.n_chunks is the number of chunks per receive thread */
    struct endpoint_list sources;
    int64_t n_ants;
    int64_t n_chan; /* number of channels of the whole stream */
    int64_t n_chan_substream;
    int64_t chan_offset;
    int64_t spectra_per_heap;
    int64_t samples_between_spectra;
    int64_t filter_samples; /* 0: 16 * samples_between_spectra */
    int64_t sample_bits;
    int sample_encoding; /* enum xbgpu_encoding */
    int64_t batches_per_chunk;
    int64_t packet_payload_bytes;  /* minimum payload of an F-engine's packets, except a heap's last packet */
    struct config_int_list shifts; /* [2 * ant + pol] shifts of inputs in spectra; empty: no shifts */
    int64_t max_shift;             /* largest magnitude of a shift in spectra; 'shifts' may extend this range */
    char *antenna_names;           /* NULL: a0, a1... */
    char *input_labels;            /* comma-separated labels, one for each input; NULL: default labels */
    double centre_frequency_hz;    /* radio frequency of the stream's centre; 0: unknown */
};

struct xbgpu_config_output {
    int kind; /* enum xbgpu_output_kind */
    char *name;
    int64_t integration_batches;      /* 0: from integration_time */
    double integration_time_s;        /* 0: from integration_batches */
    struct endpoint_list destination; /* has one item */
    int missing;                      /* enum xbgpu_missing */
    int missing_dump;                 /* enum xbgpu_missing_dump */
    int64_t audit_samples;            /* pairs (baseline, channel) per dump whose sums the host computes again */
    bool audit_checksum;              /* true if the device checks every cell of every dump */
    bool send_enabled;
    int64_t n_buffers;             /* 0: default from xbgpu_output_buffers() */
    char *gate;                    /* name of a gate; NULL: all spectra are taken */
    struct config_int_list shifts; /* this output's own shifts; empty: the output uses recv.shifts */
};

/* A tied-array beam of one polarisation. */
struct xbgpu_config_beam {
    char *name;
    int64_t pol;
    struct endpoint_list destination; /* has one item */
    int dither;                       /* enum xbgpu_dither */
    int64_t dither_seed;              /* -1: chosen at random and published */
    bool send_enabled;
    bool renormalise; /* true if the beam is scaled up to compensate for missing antennas */
};

/* A stream of detected beams, or of one incoherent beam.  Each beam has both polarisations.  All beams share
 * heaps. */
struct xbgpu_config_detected {
    char *name;
    int kind; /* enum xbgpu_beam_kind */
    int64_t n_beams;
    int products;           /* enum beam_products (kernels/beamform/beam_detect.h) */
    int64_t window_spectra; /* number of spectra in the sum of one power */
    int64_t group_channels; /* number of channels in the sum of one power */
    int64_t heap_windows;
    int format;                       /* enum xbgpu_power_format */
    struct endpoint_list destination; /* has one item */
    bool send_enabled;
    int64_t n_buffers; /* 0: default from xbgpu_detected_sizes() */
};

/* Parameters that all beams share. */
struct xbgpu_config_steering {
    char *calibration;    /* file of gains (calibration.h); NULL: none */
    bool antenna_mask;    /* true if heaps contain a bitmap of the antennas whose heaps arrived */
    int64_t grid_batches; /* number of batches between two evaluations of rates; 0: default from
                           * xbgpu_grid_batches() */
    int64_t n_buffers;    /* number of buffers for voltage beams; 0: default from xbgpu_beam_buffers() */
};

struct xbgpu_config {
    struct daemon_config daemon; /* first */
    struct config_time time;
    struct xbgpu_config_recv recv;
    struct config_array gates;    /* struct xbgpu_config_gate */
    struct config_array outputs;  /* struct xbgpu_config_output */
    struct config_array beams;    /* struct xbgpu_config_beam */
    struct config_array detected; /* struct xbgpu_config_detected */
    struct xbgpu_config_steering steering;
    struct config_send send;
};

extern const struct config_table xbgpu_config_table;

static inline struct xbgpu_config_output *xbgpu_config_output(const struct xbgpu_config *config, size_t i)
{
    return (struct xbgpu_config_output *)config->outputs.items + i;
}

static inline struct xbgpu_config_beam *xbgpu_config_beam(const struct xbgpu_config *config, size_t i)
{
    return (struct xbgpu_config_beam *)config->beams.items + i;
}

static inline struct xbgpu_config_detected *xbgpu_config_detected(const struct xbgpu_config *config, size_t i)
{
    return (struct xbgpu_config_detected *)config->detected.items + i;
}

#endif
