/* fgpu_runs.h - the work whose duration bench_fgpu measures: the F-engine's kernels alone, and the chain with uploads
 * and downloads.
 *
 * This file uses only kernels/filterbank/channelise.h and common/device/device.h.  So it does not depend on the
 * kernels that make the spectra.
 *
 * Flow:   kernels: input on the device --append, finish--> output buffers
 *         chain:   pinned chunks --upload--> device inputs [history | chunk] --append, finish--> buffers
 *                  --download--> pinned memory, on three streams, with the device inputs and buffers of
 *                  fgpu/antenna.c
 * Home:   the download stream returns a buffer to 'home', so that no callback delays the compute stream.
 * Input:  random bytes, uploaded once.  The kernels use several inputs in turn, which together are larger than a
 *         cache.
 * Time:   wall clock, from the first operation on an idle device to the end of the last operation.
 * Errors: end the program. */
#ifndef SCRIPTS_BENCH_FGPU_RUNS_H
#define SCRIPTS_BENCH_FGPU_RUNS_H

#include "kernels/filterbank/channelise.h"

struct fgpu_runs_config {
    struct device *device;
    struct channelise_config channelise; /* channelise.n_batches: number of batches in an output buffer */
    size_t n_buffers_per_run;            /* kernels alone: number of output buffers made from one input */
    size_t chunk_samples;                /* chain: number of samples in an upload; at least the filter's window */
};

/* Returns the number of samples that an output buffer uses. */
size_t fgpu_runs_buffer_samples(const struct fgpu_runs_config *config);

struct kernel_runs;

struct kernel_runs *kernel_runs_create(const struct fgpu_runs_config *config);
/* Makes all output buffers from 'n_runs' inputs.  Returns the wall time in ns. */
int64_t kernel_runs_time_ns(struct kernel_runs *runs, size_t n_runs);
void kernel_runs_destroy(struct kernel_runs *runs);

struct chain_runs;

struct chain_runs *chain_runs_create(const struct fgpu_runs_config *config);
/* Uploads the samples of 'n_buffers' output buffers, makes the buffers and downloads them.  Returns the wall time in
 * ns. */
int64_t chain_runs_time_ns(struct chain_runs *runs, size_t n_buffers);
/* Returns the root mean square of the components of the last downloaded voltages.  A wrong value shows that the
 * kernels did not work. */
double chain_runs_output_rms(const struct chain_runs *runs);
void chain_runs_destroy(struct chain_runs *runs);

/* Fills device memory with random bits, or with random floats in [-1, 1).  For floats, 'bytes' is a multiple of 8. */
enum random_kind { RANDOM_BITS, RANDOM_FLOATS };
void fgpu_runs_fill_random(struct device *device, struct device_stream *stream, void *memory, size_t bytes,
                           enum random_kind kind);

#endif
