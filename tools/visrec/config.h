/* config.h - configuration of the visibility recorder: visrec's YAML as structs.
 *
 * The key table (visrec/config.c) is the only list of keys, ranges, defaults and help. */
#ifndef TOOLS_VISREC_CONFIG_H
#define TOOLS_VISREC_CONFIG_H

#include "common/config/config.h"
#include "common/net/endpoint.h"
#include "common/http/keys.h"
#include "common/recv/keys.h"
#include "common/config/time_keys.h"

#include <stdbool.h>
#include <stdint.h>

enum visrec_values { VISREC_INT32, VISREC_FLOAT32 };

struct visrec_config_recv {
    struct config_recv base; /* keys that all receivers have, except the keys of chunks and threads */
    struct endpoint_list sources;
    int64_t window_dumps;
};

struct visrec_config_stream {
    int64_t n_chan; /* number of channels of the whole stream */
    int64_t n_chan_substream;
    int64_t spectra_per_heap;
    int64_t samples_between_spectra;
    int64_t integration_batches; /* 0: computed from integration_time */
    double integration_time_s;   /* 0: computed from integration_batches */
    bool weights;
    char *gate;                 /* text of the gate, which visrec writes into the output file; NULL: no gate */
    bool gate_channels;         /* true: the gate has a dispersion measure, so each channel has its own weights */
    int values;                 /* enum visrec_values */
    double centre_frequency_hz; /* 0: adc_sample_rate / 4, the centre of the first Nyquist zone */
};

struct visrec_config_telescope {
    char *name;
    double latitude_deg;
    double longitude_deg;
    double altitude_m;
    double ut1_utc_s;
};

struct visrec_config_antenna {
    char *name;
    double position_m[3]; /* vector from the telescope's reference position: east, north, up */
};

struct visrec_config_output {
    char *file;
    bool overwrite;
    int64_t max_file_bytes; /* 0: no limit */
    double max_file_time_s; /* 0: no limit */
    int64_t max_dumps;
};

struct visrec_config {
    struct config_time time;
    struct visrec_config_recv recv;
    struct visrec_config_stream stream;
    struct visrec_config_telescope telescope;
    struct config_array antennas; /* struct visrec_config_antenna, in the order of feng_id */
    struct visrec_config_output output;
    struct config_http http;
};

extern const struct config_table visrec_config_table;

/* Checks keys against each other: channels and substreams, the integration's length, limits of a file, antenna names.
 * command_line_main() calls this function. */
void visrec_config_check(void *values, struct config *config);

static inline const struct visrec_config_antenna *visrec_config_antenna(const struct visrec_config *config, size_t i)
{
    return (const struct visrec_config_antenna *)config->antennas.items + i;
}

/* Returns the number of batches in an integration, from integration_batches or integration_time.  A time is rounded as
 * in xbgpu. */
int64_t visrec_config_integration_batches(const struct visrec_config *config);

/* Returns the greatest number of bytes that a dump can need in the file. */
uint64_t visrec_config_dump_bytes(const struct visrec_config *config);

/* Returns the number of ADC samples in an integration. */
int64_t visrec_config_integration_samples(const struct visrec_config *config);

#endif
