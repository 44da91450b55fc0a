/* baseband.h - a narrow band of one antenna: one device input at a time is mixed to frequency 0, filtered and
 * decimated.  A narrowband output channelises these samples.
 *
 * Flow:      device input [history | chunk] --ddc--> [history | chunk] of complex samples --channelise_append--> ...
 * Grid:      timestamps of samples are multiples of the subsampling A, whatever the start time of the process.  The
 *            timestamp of a sample is the timestamp of the first input sample from which the filter computes it.  The
 *            outputs' windows therefore begin on this grid (delay.h).
 * History:   the last samples of the previous device input move to the front, and only new samples are computed.  The
 *            samples also cover the device input's own history.  So each window that lies in the device input also
 *            lies in these samples.
 * Missing:   missing input yields samples of arbitrary value.  The output recognises these samples by the device
 *            input's presence flags.
 * Ownership: the object owns its samples and weights.
 * Threads:   the worker.   Blocking and allocation: none after create. */
#ifndef FGPU_INPUT_BASEBAND_H
#define FGPU_INPUT_BASEBAND_H

#include "fgpu/config/layout.h"

struct fgpu_baseband;
struct fgpu_device_input;

/* Returns the device memory that one baseband needs, in bytes.  'compiles' is the result of device_compiles(). */
uint64_t fgpu_baseband_bytes(const struct fgpu_layout *layout, const struct fgpu_config *config,
                             const struct fgpu_config_band *band, bool compiles);

/* Returns the parameters of the down-converter (ddc) for a band: n_taps, subsampling and sample_bits. */
struct ddc_args fgpu_baseband_sizes(const struct fgpu_config *config, const struct fgpu_config_band *band);

/* Designs the filter of a band.  '*filter' becomes a new array of fgpu_band_taps() values.  The caller frees this
 * array.  Returns 0, -ENOMEM, or -EDOM in the same cases as design_ddc(). */
int fgpu_baseband_design(const struct fgpu_config *config, const struct fgpu_config_band *band, float **filter);

/* Creates the baseband of a band.  'filter' and 'shape' are read only during the call.  A 'shape' of zeros selects the
 * default shape.  'measured_spacing_samples' is the spacing of the spectra for fgpu_baseband_measure(); 0: no
 * measurement.  Returns 0 or -ENOMEM. */
int fgpu_baseband_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct device *device,
                         const struct fgpu_config_band *band, const float *filter, const struct ddc_shape *shape,
                         int64_t measured_spacing_samples, struct fgpu_baseband **baseband);

/* Queues the computation of the samples of device input 'in'.  A further call with the same input queues nothing. */
void fgpu_baseband_advance(struct fgpu_baseband *baseband, struct device_stream *stream,
                           const struct fgpu_device_input *in);

/* Adds the squares of the device input's samples to power[pol] (device memory).  Each of the 'n' spectra contributes
 * the samples from its own start to the next spectrum's start.  spectra[pol][i].offset counts from the start of the
 * device input.  Called only for the output that measures the input power. */
void fgpu_baseband_measure(const struct fgpu_baseband *baseband, struct device_stream *stream,
                           const struct fgpu_device_input *in, const struct channelise_spectrum *const spectra[N_POLS],
                           size_t n, uint64_t *power);

/* Drops the history: the next call of fgpu_baseband_advance() discards all earlier samples. */
void fgpu_baseband_restart(struct fgpu_baseband *baseband);

/* Writes the range [*from, *to) of sample numbers that the last fgpu_baseband_advance() computed.  A sample's number is
 * its timestamp / subsampling. */
void fgpu_baseband_made(const struct fgpu_baseband *baseband, int64_t *from, int64_t *to);

/* fgpu_baseband_samples() returns the array of baseband samples of the last input: complex float in device memory.
 * fgpu_baseband_index() returns an index in this array: the index of the sample at 'timestamp_samples'.
 * 'timestamp_samples' is a multiple of the subsampling. */
const uint8_t *fgpu_baseband_samples(const struct fgpu_baseband *baseband, unsigned pol);
int64_t fgpu_baseband_index(const struct fgpu_baseband *baseband, int64_t timestamp_samples);

/* Destroys the baseband.  The stream must be idle.  NULL is accepted. */
void fgpu_baseband_destroy(struct fgpu_baseband *baseband);

#endif
