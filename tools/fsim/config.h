/* config.h - configuration of an F-engine simulator: fsim's YAML as structs.
 *
 * The key table (fsim/config.c) is the only list of keys, ranges, defaults and help. */
#ifndef TOOLS_FSIM_CONFIG_H
#define TOOLS_FSIM_CONFIG_H

#include "common/config/config.h"
#include "common/net/endpoint.h"
#include "common/http/keys.h"
#include "common/send/keys.h"
#include "common/config/time_keys.h"
#include "common/time/timebase.h"
#include "common/base/units.h"
#include "kernels/util/voltages.h"

#include <stdbool.h>
#include <stdint.h>

enum fsim_encoding { FSIM_TWOS_COMPLEMENT, FSIM_OFFSET };
enum fsim_real_part { FSIM_REAL_LOW, FSIM_REAL_HIGH };
enum fsim_signal_kind { FSIM_CONSTANT, FSIM_TONE, FSIM_NOISE, FSIM_UNIFORM, FSIM_RECORDING };

struct fsim_config_stream {
    int64_t n_ants;
    int64_t n_chan; /* number of channels of the whole stream */
    int64_t n_chan_substream;
    int64_t chan_offset;               /* number of the first channel of the first substream that is sent */
    struct endpoint_list destinations; /* one endpoint for each substream; the first one begins at chan_offset */
    int64_t spectra_per_heap;
    int64_t samples_between_spectra;
    int64_t sample_bits;
    int sample_encoding;     /* enum fsim_encoding */
    int64_t first_timestamp; /* -1: computed from the host's clock */
    double duration_s;       /* 0: until stopped */
    int64_t drop;            /* every drop-th heap is not sent; 0: all heaps are sent */
};

/* Keys of the signal.  A list has an item for each input: antenna 0 pol 0, antenna 0 pol 1, antenna 1 pol 0 and so on.
 * A shorter list is repeated. */
struct fsim_config_signal {
    int kind; /* enum fsim_signal_kind */
    struct config_int_list real, imag;
    int64_t amplitude;
    struct config_int_list delays; /* increase of the phase from one channel to the next, in quarter turns */
    struct config_int_list rates;  /* increase of the phase from one spectrum to the next, in quarter turns */
    int64_t seed;
    int64_t period_batches;
    double rms;
    double correlation;
    char *file;
    struct config_int_list threads;
    struct decimal spectrum_rate_hz; /* 0: adc_sample_rate / samples_between_spectra */
    int real_part;                   /* enum fsim_real_part */
    bool loop;
};

struct fsim_config {
    struct config_time time;
    struct fsim_config_stream stream;
    struct fsim_config_signal signal;
    struct config_send send;
    struct config_http http;
};

extern const struct config_table fsim_config_table;

/* Checks keys against each other: channels and substreams, ranges of values, keys for captures.  command_line_main()
 * calls this function. */
void fsim_config_check(void *values, struct config *config);

enum voltage_format fsim_config_format(const struct fsim_config_stream *stream);

/* Returns the largest integer n for which the sample format represents all integers from -n to n: 7, 127, or 2048 for
 * half floats. */
int64_t fsim_config_limit(const struct fsim_config_stream *stream);

static inline size_t fsim_config_n_inputs(const struct fsim_config *config)
{
    return N_POLS * (size_t)config->stream.n_ants;
}

static inline int64_t fsim_config_batch_samples(const struct fsim_config *config)
{
    return config->stream.spectra_per_heap * config->stream.samples_between_spectra;
}

static inline uint64_t fsim_config_heap_bytes(const struct fsim_config *config)
{
    return (uint64_t)config->stream.n_chan_substream * (uint64_t)config->stream.spectra_per_heap * N_POLS *
           voltage_bytes(fsim_config_format(&config->stream));
}

/* Returns item 'i' of a list that is repeated as needed. */
static inline int64_t fsim_config_item(const struct config_int_list *list, size_t i)
{
    return list->items[i % list->n];
}

#endif
