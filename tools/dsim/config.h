/* config.h - the configuration of a digitiser simulator: dsim's YAML as structs.
 *
 * The key table (dsim/config.c) is the only list of keys, ranges, defaults and help. */
#ifndef TOOLS_DSIM_CONFIG_H
#define TOOLS_DSIM_CONFIG_H

#include "common/config/config.h"
#include "common/net/endpoint.h"
#include "common/http/keys.h"
#include "common/katcp/keys.h"
#include "common/send/keys.h"
#include "common/config/time_keys.h"
#include "common/base/units.h"
#include "tools/dsim/recording.h"

#include <stdbool.h>
#include <stdint.h>

struct dsim_config_digitiser {
    int64_t sample_bits;
    int64_t packet_samples;
    int64_t period_samples;
    int64_t dither_seed;     /* -1: chosen at random */
    double duration_s;       /* 0: until stopped */
    int64_t first_timestamp; /* -1: computed from the host's clock */
    bool loop;               /* recordings are repeated */
};

struct dsim_config_signals {
    char *specification; /* NULL: recordings replace the signals */
    char *code_file;     /* NULL: none */
};

struct dsim_config_antenna {
    char *name;
    int64_t digitiser_id; /* id of polarisation 0, which is even; polarisation 1 has the next id */
    struct endpoint_list pols[N_POLS];
};

struct dsim_config {
    struct config_time time;
    struct dsim_config_digitiser digitiser;
    struct dsim_config_signals signals;
    /* struct dsim_recording_config; one recording for all inputs, or one for each input */
    struct config_array recordings;
    struct config_array antennas; /* struct dsim_config_antenna */
    struct config_send send;
    struct config_http http;
    struct config_katcp katcp;
};

extern const struct config_table dsim_config_table;

/* Checks keys against each other: alignments, the specification of the signals, digitiser ids.  command_line_main()
 * calls this function. */
void dsim_config_check(void *values, struct config *config);

/* Returns the number of heaps of each input within the key 'duration'.  Returns INT64_MAX if dsim sends until it is
 * stopped. */
int64_t dsim_config_n_heaps(const struct dsim_config *config);

static inline struct dsim_recording_config *dsim_config_recording(const struct dsim_config *config, size_t i)
{
    return (struct dsim_recording_config *)config->recordings.items + i;
}

static inline struct dsim_config_antenna *dsim_config_antenna(const struct dsim_config *config, size_t i)
{
    return (struct dsim_config_antenna *)config->antennas.items + i;
}

/* Returns the number of inputs.  An input is one polarisation of an antenna.  The index of the input is 2 * antenna +
 * polarisation. */
static inline size_t dsim_config_n_inputs(const struct dsim_config *config)
{
    return N_POLS * config->antennas.n;
}

static inline const struct endpoint_list *dsim_config_input_endpoints(const struct dsim_config *config, size_t input)
{
    return &dsim_config_antenna(config, input / N_POLS)->pols[input % N_POLS];
}

#endif
