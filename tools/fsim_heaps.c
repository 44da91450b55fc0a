/* fsim_heaps.c - the second step of fsim: voltages, computed or recorded, in the heaps in which F-engines send them. */
#include "tools/fsim_heaps.h"

#include "common/memory.h"
#include "common/thread.h"
#include "tools/fsim_signal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

/* Writes heap 'h' of [batch][ant][substream]. */
static void fill_heap(const struct fsim_config *config, struct fsim_heaps *heaps, size_t h)
{
    const struct fsim_config_stream *stream = &config->stream;
    enum voltage_format format = fsim_config_format(stream);
    size_t ant = h / heaps->n_substreams % heaps->n_ants;
    uint64_t first_spectrum = h / heaps->n_substreams / heaps->n_ants * (uint64_t)stream->spectra_per_heap;
    int64_t first_chan = stream->chan_offset + (int64_t)(h % heaps->n_substreams) * stream->n_chan_substream;
    uint8_t *out = heaps->payloads + h * heaps->heap_bytes;
    double value[2];

    for (int64_t c = 0; c < stream->n_chan_substream; c++)
        for (int64_t s = 0; s < stream->spectra_per_heap; s++)
            for (size_t pol = 0; pol < N_POLS; pol++, out += voltage_bytes(format)) {
                fsim_signal_value(config, N_POLS * ant + pol, (uint32_t)(first_chan + c), first_spectrum + (uint64_t)s,
                                  value);
                fsim_put_voltage(format, value, out);
            }
}

static void fill_heaps(const struct fsim_config *config, struct fsim_heaps *heaps)
{
    size_t n = heaps->n_batches * heaps->n_ants * heaps->n_substreams;

#pragma omp parallel for schedule(dynamic)
    for (size_t h = 0; h < n; h++)
        fill_heap(config, heaps, h);
}

/* In huge pages where the kernel grants them: packets are gathered from all over. */
static uint8_t *allocate(uint64_t bytes)
{
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);

    if (memory)
        madvise(memory, bytes, MADV_HUGEPAGE); /* a wish */
    return memory;
}

int fsim_heaps_create(const struct fsim_config *config, struct fsim_heaps **heaps, char *why, size_t why_bytes)
{
    struct fsim_heaps *made = calloc(1, sizeof(*made));

    if (!made) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    made->n_batches = (size_t)fsim_signal_period(config);
    made->n_ants = (size_t)config->stream.n_ants;
    made->n_substreams = config->stream.destinations.n;
    made->heap_bytes = (size_t)fsim_config_heap_bytes(config);
    uint64_t bytes = bytes_times(bytes_times(made->n_ants * made->n_substreams, made->n_batches), made->heap_bytes);
    int err = memory_check(bytes, "signal.period", "make the period shorter", why, why_bytes);
    if (!err) /* OpenMP ends the process where it gets no threads. */
        err = threads_probe((size_t)sysconf(_SC_NPROCESSORS_ONLN));
    if (!err) {
        made->payloads = allocate(bytes);
        err = made->payloads ? 0 : -ENOMEM;
        if (err)
            snprintf(why, why_bytes, "signal.period: there is no memory for %zu heaps of each antenna",
                     made->n_batches);
    }
    if (err) {
        fsim_heaps_destroy(made);
        return err;
    }
    fill_heaps(config, made);
    *heaps = made;
    return 0;
}

void fsim_heaps_destroy(struct fsim_heaps *heaps)
{
    if (!heaps)
        return;
    free(heaps->payloads);
    free(heaps->is_absent);
    free(heaps);
}
