/* layout.h - the sizes that follow from fgpu's configuration: heaps, chunks, windows, rates, memory.
 *
 * Pure arithmetic on a checked configuration; used by every stage, and by --check-config to say what does not fit. */
#ifndef FGPU_LAYOUT_H
#define FGPU_LAYOUT_H

#include "common/base/memory.h"
#include "common/engine/engine.h"
#include "common/recv/chunk.h"
#include "fgpu/config.h"
#include "kernels/ddc/ddc.h"
#include "kernels/filterbank/channelise_tuner.h"

#include <stddef.h>
#include <stdint.h>

/* Gains of an output that may be on their way at once: one being copied to the device, and one more. */
#define FGPU_N_GAINS 2

/* Complex samples that the status page looks at in a batch. */
#define FGPU_PREVIEW_SAMPLES (UINT32_C(1) << 20)

/* Shapes, seed and filter of one output's kernels, the same on all antennas (choice.h).  Zeroed shapes are the defaults. */
struct fgpu_choice {
    struct channelise_choice channelise;
    struct ddc_shape ddc; /* of a narrow band */
    uint64_t dither_seed;
    float *filter; /* of a narrow band; else NULL */
};

struct fgpu_layout {
    size_t n_ants;
    size_t n_inputs;  /* antennas x polarisations; input = ant * N_POLS + pol */
    size_t n_outputs; /* per antenna */
    size_t n_recv_threads;
    size_t packet_bytes;    /* of a digitiser heap */
    size_t heaps_per_chunk; /* of one input */
    size_t chunk_bytes;
    int64_t history_samples; /* kept of the chunk before: longest window + max_delay_diff, in whole heaps */
    size_t history_heaps;
    size_t history_bytes;
    struct memory_use memory; /* UINT64_MAX where a sum goes beyond 64 bits; the device's with exported memory */
    size_t frames_per_heap;   /* of a card that a heap may lie in, with gpudirect; else 0 */
};

/* The timebase of the timestamps: sync time, ADC sample rate, and whether packets are the clock. */
static inline struct timebase fgpu_timebase(const struct fgpu_config *config)
{
    return (struct timebase){config->time.sync_time_s, config->time.adc_sample_rate_hz,
                             config->time.timebase == CONFIG_TIMEBASE_PACKETS};
}

/* Bytes of one polarisation of a device input. */
static inline size_t fgpu_device_input_bytes(const struct fgpu_layout *layout)
{
    const size_t spare = DDC_SPARE_BYTES > CHANNELISE_SPARE_BYTES ? DDC_SPARE_BYTES : CHANNELISE_SPARE_BYTES;

    return layout->history_bytes + layout->chunk_bytes + spare;
}

/* For how many samples of input a band has one: the decimation, doubled where nothing is discarded. */
static inline int64_t fgpu_band_subsampling(const struct fgpu_config_band *band)
{
    return band->decimation * (band->pass_bandwidth_hz > 0 ? 2 : 1);
}

/* Taps of its filter. */
int64_t fgpu_band_taps(const struct fgpu_config_band *band);

/* The part of the digitiser's band that an output has, 1 of a wide one; and for how many samples of input there is one
 * that is channelised, 1 of a wide one. */
static inline int64_t fgpu_decimation(const struct fgpu_config_output *output)
{
    return output->kind == FGPU_NARROWBAND ? output->band.decimation : 1;
}

static inline int64_t fgpu_subsampling(const struct fgpu_config_output *output)
{
    return output->kind == FGPU_NARROWBAND ? fgpu_band_subsampling(&output->band) : 1;
}

/* Samples of input that a spectrum of an output looks at. */
int64_t fgpu_window_samples(const struct fgpu_config_output *output);

/* The output that measures the inputs: the first wide one, whose filter takes it along, or else the first. */
size_t fgpu_power_output(const struct fgpu_config *config);

/* Derives the layout; 'shared_bytes' as of the device, 0 of a cpu; choices[output] or NULL for the defaults; 'mtu' of
 * the interface of recv, for frames of a card, or 0 for the largest.  The configuration must have passed the checks
 * that fgpu_config_check makes before it. */
void fgpu_layout_init(struct fgpu_layout *layout, const struct fgpu_config *config, size_t shared_bytes,
                      const struct fgpu_choice *choices, size_t mtu);

/* Chunks that a polarisation may be behind the other before that one is given up, chunk by chunk, as neither is of use
 * alone: as many as an input's chunks suffice for, at least 'window_chunks'.  It costs no time while both come. */
unsigned fgpu_layout_wait_chunks(const struct fgpu_config_recv *recv);

/* The chunks of an input. */
struct chunk_shape fgpu_chunk_shape(const struct fgpu_layout *layout, const struct fgpu_config *config);

/* Number of inputs of receive thread 't': inputs t, t + n_recv_threads and so on. */
size_t fgpu_thread_inputs(const struct fgpu_layout *layout, size_t t);
/* Largest number of a network card's frames that these inputs' chunks may keep at once. */
size_t fgpu_thread_frames(const struct fgpu_layout *layout, const struct fgpu_config *config, size_t t);

/* Whether the device's kernels can take the outputs' buffers.  Returns 0, or -EINVAL with one sentence in 'why'. */
int fgpu_layout_check_buffers(const struct fgpu_config *config, struct device *device, char *why, size_t why_bytes);

/* Whether this host has the memory and the CPUs, and its device the memory, before anything is made.  Returns 0, or
 * negative errno with one sentence in 'why'. */
int fgpu_layout_check_host(const struct fgpu_layout *layout, const struct fgpu_config *config, struct device *device,
                           char *why, size_t why_bytes);

/* The kernels' configuration for one output of one antenna. */
struct channelise_config fgpu_channelise_config(const struct fgpu_config *config, size_t ant, size_t output,
                                                uint64_t dither_seed);

/* Logs how many there are of everything, and the memory. */
void fgpu_layout_log(const struct fgpu_layout *layout);

/* The engine's sizes for this configuration. */
struct engine_sizes fgpu_engine_sizes(const struct fgpu_layout *layout, const struct fgpu_config *config);

/* Samples of input from batch to batch of an output, and bytes of a batch (all substreams). */
int64_t fgpu_batch_samples(const struct fgpu_config_output *output);
size_t fgpu_batch_bytes(const struct fgpu_config_output *output);

/* Spectra of a batch that the status page looks at, and bytes of their voltages. */
size_t fgpu_preview_spectra(const struct fgpu_config_output *output);
size_t fgpu_preview_bytes(const struct fgpu_config_output *output);

/* Bytes of an output's gains, complex float [chan][pol], and what they are unless something else is said. */
size_t fgpu_gain_bytes(const struct fgpu_config_output *output);
void fgpu_default_gains(const struct fgpu_config_output *output, float *gains);

/* Output buffers of an output, per antenna: as given, or enough for what one chunk makes to leave, at its pace, while
 * the next chunk's is made. */
size_t fgpu_output_buffers(const struct fgpu_config *config, const struct fgpu_config_output *output);

/* Shares in which one antenna's stream leaves: one, or as many as there are send threads for each stream. */
size_t fgpu_send_shares(const struct fgpu_config *config, const struct fgpu_config_output *output);

/* Bytes per second, headers included, at which one antenna's stream leaves; 0: unpaced. */
double fgpu_send_rate(const struct fgpu_config *config, const struct fgpu_config_output *output);

#endif
