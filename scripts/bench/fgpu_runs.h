/* fgpu_runs.h - the work that bench_fgpu times: the F-engine's kernels alone, and the chain with uploads and downloads.
 *
 * Only through kernels/filterbank/channelise.h and common/device/device.h: how the spectra are made is not known here.
 *
 * Flow:   kernels: input on the device --append, finish--> output buffers
 *         chain:   pinned chunks --upload--> device inputs [history | chunk] --append, finish--> buffers --download-->
 *                  pinned memory, on three streams, with the device inputs and buffers of fgpu/antenna.c
 * Home:   a buffer comes back by way of the download stream, so that no callback holds up the compute stream.
 * Input:  random bytes, uploaded once; the kernels take several inputs in turn, together larger than a cache.
 * Time:   wall clock from the first operation given to an idle device until the last has run.
 * Errors: end the program. */
#ifndef SCRIPTS_BENCH_FGPU_RUNS_H
#define SCRIPTS_BENCH_FGPU_RUNS_H

#include "kernels/filterbank/channelise.h"

struct fgpu_runs_config {
    struct device *device;
    struct channelise_config channelise; /* n_batches: of an output buffer */
    size_t n_buffers_per_run;            /* kernels: output buffers made of one input */
    size_t chunk_samples;                /* chain: of an upload, at least a window */
};

/* Samples that an output buffer takes. */
size_t fgpu_runs_buffer_samples(const struct fgpu_runs_config *config);

struct kernel_runs;

struct kernel_runs *kernel_runs_create(const struct fgpu_runs_config *config);
/* Makes all buffers of 'n_runs' inputs.  Returns the wall time. */
int64_t kernel_runs_time_ns(struct kernel_runs *runs, size_t n_runs);
void kernel_runs_destroy(struct kernel_runs *runs);

struct chain_runs;

struct chain_runs *chain_runs_create(const struct fgpu_runs_config *config);
/* Uploads what 'n_buffers' output buffers take, makes and downloads them.  Returns the wall time. */
int64_t chain_runs_time_ns(struct chain_runs *runs, size_t n_buffers);
/* Root mean square of the components that were downloaded last: whether anything was computed. */
double chain_runs_output_rms(const struct chain_runs *runs);
void chain_runs_destroy(struct chain_runs *runs);

/* Fills device memory with random bits, or with floats in [-1, 1) ('bytes' is a multiple of 8 then). */
enum random_kind { RANDOM_BITS, RANDOM_FLOATS };
void fgpu_runs_fill_random(struct device *device, struct device_stream *stream, void *memory, size_t bytes,
                           enum random_kind kind);

#endif
