/* checksums.h - the checksums of one output.  They verify each cell of a dump, from the device's input to host memory.
 *
 * Flow:      voltages --checksum--> rows;  at the end of a window rows, sums --checksum_dump--> checks --> download
 *            worker, when the dump is in host memory: xbgpu_checksums_agree(checks, visibilities)
 * Finds:     any single wrong integer in sums, totals or rows, or in the kernel reduce.  Any single voltage that
 *            changes in correlate's input, unless all other inputs were 0 in that spectrum.  Any integer that changes
 *            in the dump or in its count of clipped visibilities: on the device, during the download, or in host memory
 *            before the comparison.  With half floats the checksums find sums that are wrong by more than
 *            CHECKSUM_TOLERANCE, and every bit that changes after the sums.
 * Misses:    voltages that changed before they were on the device, because both computations use them.  The host's
 *            audit (audit.h) finds such voltages.
 * Threads:   the worker only.   Blocking: never. */
#ifndef XBGPU_CHECKSUMS_H
#define XBGPU_CHECKSUMS_H

#include "kernels/correlate/checksum_dump.h"
#include "xbgpu/layout.h"

#include <stdbool.h>

struct device;
struct device_stream;

struct xbgpu_checksums {
    const struct xbgpu_layout *layout;
    struct device *device;
    struct device_kernel *add, *dump;
    void *rows; /* on the device, laid out as in checksum.h; NULL: no checksums */
};

/* Creates the kernels for heaps of 'n_spectra' spectra.  Returns 0 or negative errno; fini follows in either case. */
int xbgpu_checksums_init(struct xbgpu_checksums *checksums, const struct xbgpu_layout *layout, struct device *device,
                         size_t n_spectra);
/* Frees the checksums.  Zeros are accepted. */
void xbgpu_checksums_fini(struct xbgpu_checksums *checksums);

/* Each function queues a kernel.  clear sets the rows to zero.  add adds the voltages that correlate uses with the same
 * 'args'.  finish makes the checks of the dump that reduce makes with 'args'; call finish before reduce. */
void xbgpu_checksums_clear(const struct xbgpu_checksums *checksums, struct device_stream *stream);
void xbgpu_checksums_add(const struct xbgpu_checksums *checksums, struct device_stream *stream,
                         const struct correlate_args *args);
void xbgpu_checksums_finish(const struct xbgpu_checksums *checksums, struct device_stream *stream,
                            const struct reduce_args *args, uint64_t *device_checks);

/* Compares a dump in host memory, and its count of clipped visibilities, with its checks.  If dump and checks disagree,
 * returns false with a reason in 'why'. */
bool xbgpu_checksums_agree(const struct xbgpu_layout *layout, const uint64_t *checks, const void *visibilities,
                           uint64_t n_saturated, char *why, size_t why_bytes);

#endif
