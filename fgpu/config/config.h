/* config.h - the configuration of an F-engine: fgpu's YAML as structs.
 *
 * The key tables (config.c, gnss_keys.c) are the only lists of keys, ranges, defaults and help. */
#ifndef FGPU_CONFIG_CONFIG_H
#define FGPU_CONFIG_CONFIG_H

#include "common/config/config.h"
#include "common/device/device.h"
#include "common/net/endpoint.h"
#include "common/net/access.h"
#include "common/recv/keys.h"
#include "common/send/keys.h"
#include "common/daemon/keys.h"
#include "common/config/time_keys.h"
#include "common/time/timebase.h"

#include <stdbool.h>
#include <stdint.h>

enum fgpu_output_kind { FGPU_WIDEBAND, FGPU_NARROWBAND };
/* The largest magnitude of a gain.  At gain 1, noise with an rms of one digitiser step becomes noise with an rms of
 * about one output step.  With 8-bit output the largest value is 127 steps.  Rounding errors of single precision are
 * below 0.01 step at gain 1.  With a gain of 1e5 or more, rounding errors alone saturate the output, and the signal
 * is lost.  At the limit the largest product of voltage and gain, 1e7 * 1e9, is far below the largest number of
 * single precision. */
#define FGPU_GAIN_MAX      1e9
#define FGPU_GAIN_MAX_TEXT "1e9"

enum fgpu_dither { FGPU_DITHER_UNIFORM, FGPU_DITHER_NONE };

struct fgpu_config_recv {
    struct config_recv base; /* in this struct, base.n_chunks is the number of chunks per input */
    int64_t sample_bits;
    int64_t packet_samples; /* number of samples in a digitiser heap */
    int64_t chunk_samples;  /* number of samples in a chunk of one input */
    int64_t max_delay_diff_samples;
    double max_delay_s; /* largest magnitude of a delay in requests and files */
};

struct fgpu_config_antenna {
    char *name;
    int64_t feng_id;
    struct endpoint_list pols[2];
    char *from;            /* networks of allowed senders, used instead of recv.from; NULL: recv.from applies */
    struct access senders; /* allowed senders, filled in by the check */
    char *delays;          /* file of delay models (delay_text.h); NULL: none */
    char *gains;           /* file of gains (gain_file.h); NULL: gains of the outputs */
};

/* A part of the digitiser's band, mixed to frequency 0 and filtered.  In a wideband output all members are zero. */
struct fgpu_config_band {
    struct decimal centre_hz; /* centre frequency, counted from the lower end of the digitiser's band */
    int64_t decimation;
    int64_t n_ddc_taps; /* number of taps of the filter; 0: fgpu_band_taps() computes this number */
    double weight_pass;
    double pass_bandwidth_hz; /* width of the flat middle part; 0: the whole narrow band is flat */
};

struct fgpu_config_output {
    int kind; /* enum fgpu_output_kind */
    char *name;
    int64_t n_chan;
    int64_t spectra_per_heap;
    int64_t n_batches; /* number of batches in an output buffer */
    int64_t n_buffers; /* number of output buffers per antenna; 0: fgpu_output_buffers() computes it */
    int64_t n_taps;
    double w_cutoff;
    int window; /* enum pfb_window */
    double gain;
    int64_t sample_bits;
    int dither;                        /* enum fgpu_dither */
    int64_t dither_seed;               /* -1: chosen at random and published */
    struct endpoint_list destinations; /* one destination per substream */
    struct fgpu_config_band band;      /* band of a narrowband output; zeros for a wideband output */
};

/* A stream of correlation sums of satellite signals.  Each antenna sends such a stream. */
struct fgpu_config_gnss {
    char *name;
    struct endpoint_list destination;
    struct fgpu_config_band band;
    double sky_hz;    /* radio frequency that appears at band.centre_hz */
    bool is_inverted; /* true if a rising sky frequency appears as a falling frequency in the digitised band */
    char *codes;      /* file of Galileo's codes (gnss_codes.h); NULL: none */
    int64_t acquire_periods, acquire_blocks;
    double max_delay_s; /* largest delay between two antennas */
};

/* Satellites of one signal. */
struct fgpu_config_satellite {
    int signal; /* enum gnss_signal */
    struct config_int_list prns;
    bool acquire;
    double doppler_hz, doppler_range_hz; /* centre and half width of the Doppler range of a search */
};

struct fgpu_config {
    struct daemon_config daemon; /* first */
    struct config_time time;
    struct fgpu_config_recv recv;
    struct config_array antennas;   /* struct fgpu_config_antenna */
    struct config_array outputs;    /* struct fgpu_config_output */
    struct config_array gnss;       /* struct fgpu_config_gnss */
    struct config_array satellites; /* struct fgpu_config_satellite */
    struct config_send send;
};

/* Rows of the key table for a struct fgpu_config_band.  The entries of a section may be of several kinds; 'which'
 * selects the kinds that have these keys. */
#define FGPU_BAND_ROWS(which)                                                                                          \
    KEY_DECIMAL("centre_frequency", band.centre_hz, KEY_REQUIRED, UNIT_HZ, 0, 5e10,                                    \
                "Centre frequency of the narrow band, relative to the digitiser's 0 Hz: the centre of channel number " \
                "channels / 2. The mixer uses centre_frequency / adc_sample_rate, where both numbers are first "       \
                "rounded to the nearest double.",                                                                      \
                .variants = (which)),                                                                                  \
        KEY_INT("decimation", band.decimation, KEY_REQUIRED, UNIT_NONE, 1, 256,                                        \
                "The digitiser's bandwidth divided by the bandwidth of the narrow band; need not be a power of two.",  \
                .variants = (which)),                                                                                  \
        KEY_INT("ddc_taps", band.n_ddc_taps, "0", UNIT_NONE, 0, 8192,                                                  \
                "Number of taps of the down-converter's filter; 0: 16 taps for each input sample per output sample.",  \
                .variants = (which)),                                                                                  \
        KEY_DOUBLE("weight_pass", band.weight_pass, "0.005", UNIT_NONE, 1e-9, 1e9,                                     \
                   "Weight of errors in the down-converter's pass band, relative to errors in its stop bands.",        \
                   .variants = (which)),                                                                               \
        KEY_DOUBLE("pass_bandwidth", band.pass_bandwidth_hz, "0", UNIT_HZ, 0, 5e10,                                    \
                   "Width of the middle part of the narrow band that must be flat and free of aliases. "               \
                   "0: the whole band is flat and free of aliases, because the device computes twice the band and "    \
                   "discards the outer half.",                                                                         \
                   .variants = (which))

extern const struct config_table fgpu_config_table;

static inline struct fgpu_config_antenna *fgpu_config_antenna(const struct fgpu_config *config, size_t i)
{
    return (struct fgpu_config_antenna *)config->antennas.items + i;
}

static inline struct fgpu_config_output *fgpu_config_output(const struct fgpu_config *config, size_t i)
{
    return (struct fgpu_config_output *)config->outputs.items + i;
}

static inline struct fgpu_config_gnss *fgpu_config_gnss(const struct fgpu_config *config, size_t i)
{
    return (struct fgpu_config_gnss *)config->gnss.items + i;
}

static inline struct fgpu_config_satellite *fgpu_config_satellite(const struct fgpu_config *config, size_t i)
{
    return (struct fgpu_config_satellite *)config->satellites.items + i;
}

#endif
