/* checksums.h - the checksums of one output.  The checksums verify each cell of a dump, on the whole way from the
 * device's input to host memory.
 *
 * Flow:      voltages --checksum--> rows;  at the end of a window rows, sums --checksum_dump--> checks --> download
 *            worker, when the dump is in host memory: xbgpu_checksums_agree(checks, visibilities)
 * Finds:     any single wrong integer in sums, totals, rows or results of the kernel 'reduce'.  Any change of a
 *            single voltage that the kernel 'correlate' reads, unless the voltages of all other inputs were
 *            0 in that spectrum.  Any change of an integer in the dump or in its count of clipped visibilities: on the
 *            device, during the download, or in host memory before the comparison.  With half floats the checksums
 *            find sums that are wrong by more than CHECKSUM_TOLERANCE, and every bit error after the summation.
 * Misses:    errors in voltages before they were on the device, because sums and checksums are both computed from these
 *            voltages.  The host's audit (audit.h) finds such voltages.
 * Threads:   the worker only.   Blocking: never. */
#ifndef XBGPU_AUDIT_CHECKSUMS_H
#define XBGPU_AUDIT_CHECKSUMS_H

#include "kernels/correlate/checksum_dump.h"
#include "xbgpu/config/layout.h"

#include <stdbool.h>

struct device;
struct device_stream;

struct xbgpu_checksums {
    const struct xbgpu_layout *layout;
    struct device *device;
    struct device_kernel *add, *dump;
    void *rows; /* rows of checksums on the device, laid out as in checksum.h; NULL: no checksums */
};

/* Creates the kernels for heaps of 'n_spectra' spectra.  Returns 0 or negative errno; the caller must call fini in
 * either case. */
int xbgpu_checksums_init(struct xbgpu_checksums *checksums, const struct xbgpu_layout *layout, struct device *device,
                         size_t n_spectra);
/* Frees the checksums.  A zero-initialised struct is accepted. */
void xbgpu_checksums_fini(struct xbgpu_checksums *checksums);

/* Each of these functions queues one kernel.  xbgpu_checksums_clear() sets the rows to zero.  xbgpu_checksums_add()
 * adds the voltages that the kernel correlate processes with the same 'args'.  xbgpu_checksums_finish() computes the
 * checks of the dump that the kernel reduce makes with 'args'; call it before reduce is queued. */
void xbgpu_checksums_clear(const struct xbgpu_checksums *checksums, struct device_stream *stream);
void xbgpu_checksums_add(const struct xbgpu_checksums *checksums, struct device_stream *stream,
                         const struct correlate_args *args);
void xbgpu_checksums_finish(const struct xbgpu_checksums *checksums, struct device_stream *stream,
                            const struct reduce_args *args, uint64_t *device_checks);

/* Compares a dump in host memory, and its count of clipped visibilities, with the dump's checks.  If they disagree,
 * returns false with a reason in 'why'. */
bool xbgpu_checksums_agree(const struct xbgpu_layout *layout, const uint64_t *checks, const void *visibilities,
                           uint64_t n_saturated, char *why, size_t why_bytes);

#endif
