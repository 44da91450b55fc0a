/* baseband.h - a narrow band of one antenna, mixed to frequency 0, filtered and with fewer samples, as long as a device
 * input.  A narrowband output channelises these samples.
 *
 * Flow:      device input [history | chunk] --ddc--> [history | chunk] of complex samples --channelise_append--> ...
 * Grid:      samples have timestamps that are multiples of the subsampling A, whenever the process was started; each is
 *            that of the first sample of input that the filter looks at.  So windows begin on this grid (delay.h).
 * History:   what the last device input gave stays, moved to the front, and only what is new is computed.  It is as
 *            much as the device input's own history allows, so whatever lies in that for the walk lies here.
 * Missing:   of input that is not there comes something; the walk knows by the device input's presence.
 * Ownership: the object owns its samples and weights.   Threads: the worker.   Blocking and allocation: none after
 *            create. */
#ifndef FGPU_BASEBAND_H
#define FGPU_BASEBAND_H

#include "fgpu/layout.h"

struct fgpu_baseband;
struct fgpu_device_input;

/* Device memory of one.  'compiles' as of device_compiles(). */
uint64_t fgpu_baseband_bytes(const struct fgpu_layout *layout, const struct fgpu_config *config,
                             const struct fgpu_config_band *band, bool compiles);

/* The ddc's parameters for a band: n_taps, subsampling and sample_bits. */
struct ddc_args fgpu_baseband_sizes(const struct fgpu_config *config, const struct fgpu_config_band *band);

/* Designs the filter of a band: fgpu_band_taps() values in '*filter', the caller's to free.  Returns 0, -ENOMEM, or
 * -EDOM as design_ddc(). */
int fgpu_baseband_design(const struct fgpu_config *config, const struct fgpu_config_band *band, float **filter);

/* 'filter' and 'shape' (zeroed: the default) are read before it returns.  'measured_spacing_samples': of the spectra for
 * fgpu_baseband_measure(); 0: nothing is measured.  Returns 0 or -ENOMEM. */
int fgpu_baseband_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct device *device,
                         const struct fgpu_config_band *band, const float *filter, const struct ddc_shape *shape,
                         int64_t measured_spacing_samples, struct fgpu_baseband **baseband);

/* Queues what has to be done for 'in', once: called with the same input again, nothing. */
void fgpu_baseband_advance(struct fgpu_baseband *baseband, struct device_stream *stream,
                           const struct fgpu_device_input *in);

/* Adds to power[pol] (device memory) the squares of all samples of the device input that 'n' spectra take from where
 * they begin to where the next one does; spectra[pol][i].offset is in the device input.  Only of the output that
 * measures. */
void fgpu_baseband_measure(const struct fgpu_baseband *baseband, struct device_stream *stream,
                           const struct fgpu_device_input *in, const struct channelise_spectrum *const spectra[N_POLS],
                           size_t n, uint64_t *power);

/* Drops the history: the next advance keeps none of the earlier samples. */
void fgpu_baseband_restart(struct fgpu_baseband *baseband);

/* Numbers, timestamp / subsampling, of the samples that the last advance has made: [*from, *to). */
void fgpu_baseband_made(const struct fgpu_baseband *baseband, int64_t *from, int64_t *to);

/* The baseband samples of the input last advanced to: device memory, complex float.  fgpu_baseband_index() is the index
 * of the sample with this timestamp, a multiple of the subsampling. */
const uint8_t *fgpu_baseband_samples(const struct fgpu_baseband *baseband, unsigned pol);
int64_t fgpu_baseband_index(const struct fgpu_baseband *baseband, int64_t timestamp_samples);

/* The stream must be idle.  NULL is accepted. */
void fgpu_baseband_destroy(struct fgpu_baseband *baseband);

#endif
