/* config.h - what the beam recorder is told: beamrec's YAML as structs.
 *
 * The key table (beamrec/config.c) is the only list of keys, ranges, defaults and help. */
#ifndef TOOLS_BEAMREC_CONFIG_H
#define TOOLS_BEAMREC_CONFIG_H

#include "common/base/units.h"
#include "common/config/config.h"
#include "common/config/time_keys.h"
#include "common/http/keys.h"
#include "common/net/endpoint.h"
#include "common/recv/keys.h"

#include <stdbool.h>
#include <stdint.h>

struct beamrec_config_recv {
    struct config_recv base; /* without chunks and threads */
    int64_t window_batches;
};

struct beamrec_config_stream {
    int64_t n_chan; /* of the whole stream */
    int64_t n_chan_substream;
    int64_t spectra_per_heap;
    int64_t samples_between_spectra;
    double centre_frequency_hz; /* 0: the first Nyquist zone's, adc_sample_rate / 4 */
};

struct beamrec_config_output {
    char *telescope;
    char *source;
    bool overwrite;
    double max_gap_s;
    int64_t max_batches; /* 0: no end */
};

struct beamrec_config_beam {
    char *name;
    struct endpoint_list sources;
    char *filterbank; /* NULL: none */
    char *voltages;   /* NULL: none */
    int64_t bits;
    int64_t sum_spectra;
    int64_t sum_channels;
};

struct beamrec_config {
    struct config_time time;
    struct beamrec_config_recv recv;
    struct beamrec_config_stream stream;
    struct beamrec_config_output output;
    struct config_array beams; /* struct beamrec_config_beam */
    struct config_http http;
};

extern const struct config_table beamrec_config_table;

/* Checks across keys: channels and substreams, sums, addresses, files.  For command_line_main(). */
void beamrec_config_check(void *values, struct config *config);

static inline const struct beamrec_config_beam *beamrec_config_beam(const struct beamrec_config *config, size_t i)
{
    return (const struct beamrec_config_beam *)config->beams.items + i;
}

static inline int64_t beamrec_config_batch_samples(const struct beamrec_config *config)
{
    return config->stream.spectra_per_heap * config->stream.samples_between_spectra;
}

#endif
