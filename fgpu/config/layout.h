/* layout.h - the sizes that follow from fgpu's configuration: heaps, chunks, windows and rates.
 *
 * Pure arithmetic on a checked configuration, except fgpu_layout_check_buffers().  Every stage uses the layout. */
#ifndef FGPU_CONFIG_LAYOUT_H
#define FGPU_CONFIG_LAYOUT_H

#include "common/recv/chunk.h"
#include "fgpu/config/config.h"
#include "kernels/ddc/ddc.h"
#include "kernels/filterbank/channelise_tuner.h"

#include <stddef.h>
#include <stdint.h>

struct memory_use;

/* Number of gain buffers of an output: one that is being copied to the device, and one for new gains. */
#define FGPU_N_GAINS 2

/* Number of complex samples that the status page averages from a batch. */
#define FGPU_PREVIEW_SAMPLES (UINT32_C(1) << 20)

/* Shapes, seed and filter of one output's kernels, the same for all antennas (choice.h).  A shape of zeros selects the
 * default shape. */
struct fgpu_choice {
    struct channelise_choice channelise;
    struct ddc_shape ddc; /* narrow band only */
    uint64_t dither_seed;
    float *filter; /* filter of a narrow band; NULL for a wide band */
};

struct fgpu_layout {
    size_t n_ants;
    size_t n_inputs;  /* number of antennas * N_POLS; the index of an input is ant * N_POLS + pol */
    size_t n_outputs; /* per antenna */
    size_t n_recv_threads;
    size_t packet_bytes;    /* bytes of a digitiser heap */
    size_t heaps_per_chunk; /* number of heaps in a chunk of one input */
    size_t chunk_bytes;
    int64_t history_samples; /* kept samples of the previous chunk: longest window + max_delay_diff, in whole heaps */
    size_t history_heaps;
    size_t history_bytes;
    size_t frames_per_heap; /* with gpudirect: maximum number of NIC frames that a heap occupies; else 0 */
};

/* Returns the timebase of the timestamps: the sync time, the ADC sample rate and a flag.  The flag is true if the time
 * comes from packets instead of the host's clock. */
static inline struct timebase fgpu_timebase(const struct fgpu_config *config)
{
    return (struct timebase){config->time.sync_time_s, config->time.adc_sample_rate_hz,
                             config->time.timebase == CONFIG_TIMEBASE_PACKETS};
}

/* Returns the size in bytes of one polarisation of a device input. */
static inline size_t fgpu_device_input_bytes(const struct fgpu_layout *layout)
{
    const size_t spare = DDC_SPARE_BYTES > CHANNELISE_SPARE_BYTES ? DDC_SPARE_BYTES : CHANNELISE_SPARE_BYTES;

    return layout->history_bytes + layout->chunk_bytes + spare;
}

/* Returns the number of input samples per baseband sample: the decimation, doubled if no part of the computed band is
 * discarded. */
static inline int64_t fgpu_band_subsampling(const struct fgpu_config_band *band)
{
    return band->decimation * (band->pass_bandwidth_hz > 0 ? 2 : 1);
}

/* Returns the number of taps of the band's filter. */
int64_t fgpu_band_taps(const struct fgpu_config_band *band);

/* The first function returns the decimation of an output's band.  The second function returns the number of input
 * samples per channelised sample.  Both numbers are 1 for a wide band. */
static inline int64_t fgpu_decimation(const struct fgpu_config_output *output)
{
    return output->kind == FGPU_NARROWBAND ? output->band.decimation : 1;
}

static inline int64_t fgpu_subsampling(const struct fgpu_config_output *output)
{
    return output->kind == FGPU_NARROWBAND ? fgpu_band_subsampling(&output->band) : 1;
}

/* Returns the number of input samples in the window of an output's spectrum. */
int64_t fgpu_window_samples(const struct fgpu_config_output *output);

/* Returns the index of the output that measures the inputs' power.  The filter of a wideband output reads the input
 * samples, and can measure their power.  Therefore the first wideband output measures the power.  Without a wideband
 * output, output 0 measures the power. */
size_t fgpu_power_output(const struct fgpu_config *config);

/* Derives the layout.  fgpu_config_check() makes some checks before it calls this function.  The configuration must
 * have passed these checks. */
void fgpu_layout_init(struct fgpu_layout *layout, const struct fgpu_config *config);

/* Returns the number of chunks that an input needs if one polarisation may be 'wait_chunks' chunks behind the other
 * polarisation.  The number consists of 'window_chunks' open chunks, wait_chunks + 1 chunks in the matcher, one chunk
 * that is being uploaded, and one free chunk. */
int64_t fgpu_chunks_to_wait(const struct fgpu_config_recv *recv, int64_t wait_chunks);

/* Returns the number of chunks by which one polarisation may be behind the other.  If a polarisation is further
 * behind, the other polarisation's chunks are discarded one by one, because one polarisation alone is of no use.  The
 * number is as large as the number of an input's chunks permits, and at least 'window_chunks'.  While both
 * polarisations arrive, this wait adds no latency. */
unsigned fgpu_layout_wait_chunks(const struct fgpu_config_recv *recv);

/* Returns the shape of an input's chunks. */
struct chunk_shape fgpu_chunk_shape(const struct fgpu_layout *layout, const struct fgpu_config *config);

/* Returns the number of inputs of receive thread 't': inputs t, t + n_recv_threads and so on. */
size_t fgpu_thread_inputs(const struct fgpu_layout *layout, size_t t);
/* Returns the largest number of NIC frames that the chunks of receive thread 't' may occupy at once. */
size_t fgpu_thread_frames(const struct fgpu_layout *layout, const struct fgpu_config *config, size_t t);

/* Checks that the device's kernels support the outputs' buffers.  Returns 0, or -EINVAL with one sentence in 'why'. */
int fgpu_layout_check_buffers(const struct fgpu_config *config, struct device *device, char *why, size_t why_bytes);

/* Returns the kernels' configuration for one output of one antenna. */
struct channelise_config fgpu_channelise_config(const struct fgpu_config *config, size_t ant, size_t output,
                                                uint64_t dither_seed);

/* Logs the numbers of antennas, outputs and receive threads, and the memory. */
void fgpu_layout_log(const struct fgpu_layout *layout, const struct memory_use *memory);

/* The first function returns the number of input samples from one batch of an output to the next.  The second function
 * returns the size in bytes of a batch, with all substreams. */
int64_t fgpu_batch_samples(const struct fgpu_config_output *output);
size_t fgpu_batch_bytes(const struct fgpu_config_output *output);

/* The status page averages some spectra of a batch.  The first function returns the number of these spectra.  The
 * second function returns the size in bytes of the voltages of these spectra. */
size_t fgpu_preview_spectra(const struct fgpu_config_output *output);
size_t fgpu_preview_bytes(const struct fgpu_config_output *output);

/* The first function returns the size in bytes of an output's gains, complex float [chan][pol].  The second function
 * writes the configured gains. */
size_t fgpu_gain_bytes(const struct fgpu_config_output *output);
void fgpu_default_gains(const struct fgpu_config_output *output, float *gains);

/* Returns the number of output buffers that one chunk can fill, including a partly filled buffer. */
size_t fgpu_chunk_buffers(const struct fgpu_config *config, const struct fgpu_config_output *output);

/* Returns the number of output buffers of an output for each antenna: the configured number, or the default.  The
 * default number suffices to send the output of one chunk at its pace while the output of the next chunk is
 * computed. */
size_t fgpu_output_buffers(const struct fgpu_config *config, const struct fgpu_config_output *output);

/* Returns the number of shares (send.h) of one antenna's stream.  The number is the number of send threads per stream,
 * at least 1. */
size_t fgpu_send_shares(const struct fgpu_config *config, const struct fgpu_config_output *output);

/* Returns the pace of one antenna's stream in bytes per second, headers included; 0: unpaced. */
double fgpu_send_rate(const struct fgpu_config *config, const struct fgpu_config_output *output);

#endif
