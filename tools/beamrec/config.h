/* config.h - configuration of the beam recorder: beamrec's YAML as structs.
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
#include "tools/beamrec/powers.h"

#include <stdbool.h>
#include <stdint.h>

struct beamrec_config_recv {
    struct config_recv base; /* keys that all receivers have, except the keys of chunks and threads */
    int64_t window_batches;
};

struct beamrec_config_stream {
    int64_t n_chan; /* number of channels of the whole stream */
    int64_t n_chan_substream;
    int64_t spectra_per_heap;
    int64_t samples_between_spectra;
    double centre_frequency_hz; /* 0: adc_sample_rate / 4, the centre of the first Nyquist zone */
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
    char *filterbank; /* NULL: no file */
    char *voltages;   /* NULL: no file */
    int64_t bits;
    int64_t sum_spectra;
    int64_t sum_channels;
};

/* A stream of detected beams.  Each heap contains all beams of the stream.  The keys that set the heap's shape have
 * the same names as in xbgpu. */
struct beamrec_config_detected {
    char *name;
    struct endpoint_list sources;
    int64_t n_beams;
    int products;           /* value of enum beam_products (kernels/beamform/beam_detect.h) */
    int64_t window_spectra; /* number of spectra that are summed into one power */
    int64_t group_channels; /* number of channels that are summed into one power */
    int64_t heap_windows;
    int format;       /* enum beamrec_format */
    char *filterbank; /* file name, into which beamrec_config_file() inserts the beam's number; NULL: no file */
    char *dada;       /* file name, like 'filterbank'; NULL: no file */
    int64_t bits;
};

enum beamrec_format { BEAMREC_FLOAT32, BEAMREC_UINT8 };

struct beamrec_config {
    struct config_time time;
    struct beamrec_config_recv recv;
    struct beamrec_config_stream stream;
    struct beamrec_config_output output;
    struct config_array beams;    /* struct beamrec_config_beam */
    struct config_array detected; /* struct beamrec_config_detected */
    struct config_http http;
};

extern const struct config_table beamrec_config_table;

/* Choices of the keys detected[].products and detected[].format: names of the values of enum beam_products and of
 * enum beamrec_format. */
extern const char *const beamrec_products_choices[], *const beamrec_format_choices[];

/* Checks keys against each other: channels and substreams, sums, addresses, files.  command_line_main() calls this
 * function. */
void beamrec_config_check(void *values, struct config *config);

static inline const struct beamrec_config_beam *beamrec_config_beam(const struct beamrec_config *config, size_t i)
{
    return (const struct beamrec_config_beam *)config->beams.items + i;
}

static inline const struct beamrec_config_detected *beamrec_config_detected(const struct beamrec_config *config,
                                                                            size_t i)
{
    return (const struct beamrec_config_detected *)config->detected.items + i;
}

struct beamrec_powers beamrec_config_powers(const struct beamrec_config *config, size_t i);

/* Returns the file name of a detected beam: the value of the key filterbank or dada, with {beam} replaced by the
 * beam's number.  The caller frees the name.  Returns NULL if memory runs out. */
char *beamrec_config_file(const char *key, size_t beam);

/* Returns the number of streams.  Streams are counted in the order of the configuration: first voltage beams, then
 * streams of detected beams. */
static inline size_t beamrec_config_n_streams(const struct beamrec_config *config)
{
    return config->beams.n + config->detected.n;
}

static inline bool beamrec_config_is_detected(const struct beamrec_config *config, size_t stream)
{
    return stream >= config->beams.n;
}

const char *beamrec_config_name(const struct beamrec_config *config, size_t stream);
const struct endpoint_list *beamrec_config_sources(const struct beamrec_config *config, size_t stream);

/* Returns the number of beams in all streams together. */
size_t beamrec_config_n_beams(const struct beamrec_config *config);

/* Returns the number of ADC samples from the beginning of one heap of the stream to the beginning of the next heap. */
int64_t beamrec_config_batch_samples(const struct beamrec_config *config, size_t stream);

#endif
