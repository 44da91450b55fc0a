/* checksums.c - launches the checksum kernels with every launch of correlate, and before every dump (output.c).
 * Compares their results on the host. */
#include "xbgpu/audit/checksums.h"

#include "common/device/device.h"
#include "common/base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* offset of the array words[chan][2] in a dump's checks; the array follows the verdict */
#define CHECK_WORDS VERDICT_LENGTH

static struct checksum_args add_args(const struct xbgpu_checksums *c, const struct correlate_args *correlate)
{
    return (struct checksum_args){
        .voltages = correlate->voltages,
        .rows = {c->rows},
        .format = correlate->format,
        .n_ants = correlate->n_ants,
        .n_chan = correlate->n_chan,
        .n_spectra = correlate->n_spectra,
        .first_batch = correlate->first_batch,
        .n_batches = correlate->n_batches,
    };
}

static int create_kernels(struct xbgpu_checksums *c, size_t n_spectra)
{
    const struct xbgpu_layout *l = c->layout;
    struct checksum_args add = {.format = l->format,
                                .n_ants = (uint32_t)l->n_ants,
                                .n_chan = (uint32_t)l->n_chan,
                                .n_spectra = (uint32_t)n_spectra};
    struct checksum_dump_args dump = {.format = l->format};
    struct kernel_constant add_constants[CHECKSUM_N_CONSTANTS], dump_constants[CHECKSUM_DUMP_N_CONSTANTS];

    checksum_constants(&add, add_constants);
    checksum_dump_constants(&dump, dump_constants);
    int err = device_kernel_create(c->device, &checksum_kernel, add_constants, CHECKSUM_N_CONSTANTS, &c->add);
    return err ? err
               : device_kernel_create(c->device, &checksum_dump_kernel, dump_constants, CHECKSUM_DUMP_N_CONSTANTS,
                                      &c->dump);
}

int xbgpu_checksums_init(struct xbgpu_checksums *checksums, const struct xbgpu_layout *layout, struct device *device,
                         size_t n_spectra)
{
    *checksums = (struct xbgpu_checksums){.layout = layout, .device = device};
    int err = create_kernels(checksums, n_spectra);
    if (err)
        return err;
    checksums->rows = device_alloc(device, layout->rows_bytes);
    return checksums->rows ? 0 : -ENOMEM;
}

void xbgpu_checksums_fini(struct xbgpu_checksums *checksums)
{
    device_kernel_destroy(checksums->add);
    device_kernel_destroy(checksums->dump);
    if (checksums->device)
        device_free(checksums->device, checksums->rows);
}

void xbgpu_checksums_clear(const struct xbgpu_checksums *checksums, struct device_stream *stream)
{
    if (checksums->rows)
        /* Rows have integers or floats; zero bytes mean 0 in both types. */
        device_fill(stream, checksums->rows, 0, checksums->layout->rows_bytes);
}

void xbgpu_checksums_add(const struct xbgpu_checksums *checksums, struct device_stream *stream,
                         const struct correlate_args *args)
{
    if (!checksums->rows)
        return;
    struct checksum_args add = add_args(checksums, args);
    struct kernel_grid grid = checksum_grid(&add);
    device_launch(stream, checksums->add, &grid, &add);
}

void xbgpu_checksums_finish(const struct xbgpu_checksums *checksums, struct device_stream *stream,
                            const struct reduce_args *args, uint64_t *device_checks)
{
    if (!checksums->rows)
        return;
    struct checksum_dump_args dump = {
        .sums = args->sums,
        .totals = args->totals,
        .rows = {checksums->rows},
        .weights = args->weights,
        .verdict = device_checks,
        .words = device_checks + CHECK_WORDS,
        .format = args->format,
        .min_weight = args->min_weight,
        .n_ants = (uint32_t)checksums->layout->n_ants,
        .n_chan = args->n_chan,
    };
    struct kernel_grid grid = checksum_dump_grid(&dump);
    device_fill(stream, device_checks, 0, checksums->layout->checks_bytes);
    device_fill(stream, device_checks + VERDICT_FIRST_WRONG, 0xff, sizeof(*device_checks));
    device_launch(stream, checksums->dump, &grid, &dump);
}

bool xbgpu_checksums_agree(const struct xbgpu_layout *layout, const uint64_t *checks, const void *visibilities,
                           uint64_t n_saturated, char *why, size_t why_bytes)
{
    size_t chan_rows = layout->n_ants * N_POLS, n_rows = chan_rows * layout->n_chan;
    size_t n_words = layout->vis_bytes / sizeof(uint32_t) / layout->n_chan;
    uint64_t first = checks[VERDICT_FIRST_WRONG];

    if (first < n_rows) {
        snprintf(
            why, why_bytes,
            "%zu of %zu rows of sums disagree with their checksums; the first wrong row is antenna %zu, polarisation "
            "%zu, channel %zu",
            n_rows - (size_t)checks[VERDICT_N_AGREED], n_rows, (size_t)first % chan_rows / N_POLS,
            (size_t)first % N_POLS, (size_t)first / chan_rows);
        return false;
    }
    if (checks[VERDICT_N_AGREED] != n_rows || first != UINT64_MAX) {
        snprintf(why, why_bytes, "the device compared only %llu of %zu rows of sums with their checksums",
                 (unsigned long long)checks[VERDICT_N_AGREED], n_rows);
        return false;
    }
    if (checks[VERDICT_N_SATURATED] != n_saturated) {
        snprintf(why, why_bytes, "the dump reports %llu clipped visibilities, but %llu of its sums are clipped",
                 (unsigned long long)n_saturated, (unsigned long long)checks[VERDICT_N_SATURATED]);
        return false;
    }
    for (size_t chan = 0; chan < layout->n_chan; chan++) {
        uint64_t sums[2] = {0, 0};
        checksum_dump_words((const uint32_t *)visibilities + chan * n_words, 0, n_words,
                            correlate_sums_real(layout->format), sums);
        if (memcmp(sums, checks + CHECK_WORDS + 2 * chan, sizeof(sums)) != 0) {
            snprintf(why, why_bytes, "channel %zu of the dump differs from the sums on the device", chan);
            return false;
        }
    }
    return true;
}
