/* heaps.c - the second step of fsim: arranges computed or recorded voltages as heaps of F-engines. */
#include "tools/fsim/heaps.h"

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/thread.h"
#include "tools/fsim/recording.h"
#include "tools/fsim/signal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

/* ---- Contents ---------------------------------------------------------------------------------------------------- */

/* Returns the index of the recorded spectrum that becomes spectrum 's' of batch 'b'. */
static int64_t recorded_spectrum(const struct fsim_config *config, const struct fsim_recording *recording, size_t b,
                                 int64_t s)
{
    return ((int64_t)b * config->stream.spectra_per_heap + s) % fsim_recording_n_spectra(recording);
}

/* Writes the payload of heap 'h', which is an index in the array 'payloads' [batch][ant][substream]. */
static void fill_heap(const struct fsim_config *config, const struct fsim_recording *recording,
                      struct fsim_heaps *heaps, size_t h)
{
    const struct fsim_config_stream *stream = &config->stream;
    enum voltage_format format = fsim_config_format(stream);
    size_t batch = h / heaps->n_substreams / heaps->n_ants, ant = h / heaps->n_substreams % heaps->n_ants;
    int64_t first_chan = stream->chan_offset + (int64_t)(h % heaps->n_substreams) * stream->n_chan_substream;
    uint8_t *out = heaps->payloads + h * heaps->heap_bytes;

    if (heaps->is_absent && heaps->is_absent[batch * heaps->n_ants + ant])
        return;
    for (int64_t c = 0; c < stream->n_chan_substream; c++)
        for (int64_t s = 0; s < stream->spectra_per_heap; s++)
            for (size_t input = N_POLS * ant; input < N_POLS * (ant + 1); input++, out += voltage_bytes(format)) {
                double value[2];
                uint32_t chan = (uint32_t)(first_chan + c);
                if (recording)
                    fsim_recording_value(recording, fsim_config_item(&config->signal.threads, input), chan,
                                         recorded_spectrum(config, recording, batch, s), value);
                else
                    fsim_signal_value(config, input, chan, batch * (uint64_t)stream->spectra_per_heap + (uint64_t)s,
                                      value);
                fsim_put_voltage(format, value, out);
            }
}

static void fill_heaps(const struct fsim_config *config, const struct fsim_recording *recording,
                       struct fsim_heaps *heaps)
{
    size_t n = heaps->n_batches * heaps->n_ants * heaps->n_substreams;

#pragma omp parallel for schedule(dynamic)
    for (size_t h = 0; h < n; h++)
        fill_heap(config, recording, heaps, h);
}

/* Returns true if the recording has all spectra of a heap, in both polarisations. */
static bool is_recorded(const struct fsim_config *config, const struct fsim_recording *recording, size_t batch,
                        size_t ant)
{
    for (size_t input = N_POLS * ant; input < N_POLS * (ant + 1); input++)
        for (int64_t s = 0; s < config->stream.spectra_per_heap; s++)
            if (!fsim_recording_has(recording, fsim_config_item(&config->signal.threads, input),
                                    recorded_spectrum(config, recording, batch, s)))
                return false;
    return true;
}

static void mark_absent(const struct fsim_config *config, const struct fsim_recording *recording,
                        struct fsim_heaps *heaps)
{
    size_t n_absent = 0;

    for (size_t b = 0; b < heaps->n_batches; b++)
        for (size_t a = 0; a < heaps->n_ants; a++) {
            bool is_absent = !is_recorded(config, recording, b, a);
            heaps->is_absent[b * heaps->n_ants + a] = is_absent;
            n_absent += is_absent;
        }
    log_info("the recording makes %zu heaps of each of %zu antennas; %zu of all these heaps are not sent, because the "
             "recording lacks some of their spectra",
             heaps->n_batches, heaps->n_ants, n_absent);
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* Allocates memory, in huge pages if the kernel grants them, because packets contain data from all parts of the
 * memory. */
static uint8_t *allocate(uint64_t bytes)
{
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);

    if (memory)
        madvise(memory, bytes, MADV_HUGEPAGE); /* this call only advises the kernel, so a failure is ignored */
    return memory;
}

/* Returns the number of batches after which a recording ends or repeats.  Returns 0 if the recording is too short to be
 * played once. */
static int64_t recorded_period(const struct fsim_config *config, const struct fsim_recording *recording)
{
    int64_t n = fsim_recording_n_spectra(recording), heap = config->stream.spectra_per_heap, period = 1;

    if (n >= heap)
        return n / heap;
    while (config->signal.loop && period * heap % n != 0)
        period++;
    return config->signal.loop ? period : 0;
}

static int set_sizes(const struct fsim_config *config, const struct fsim_recording *recording, struct fsim_heaps *heaps,
                     char *why, size_t why_bytes)
{
    heaps->n_ants = (size_t)config->stream.n_ants;
    heaps->n_substreams = config->stream.destinations.n;
    heaps->heap_bytes = (size_t)fsim_config_heap_bytes(config);
    heaps->from_start = recording != NULL;
    heaps->n_batches = (size_t)(recording ? recorded_period(config, recording) : fsim_signal_period(config));
    if (heaps->n_batches > 0)
        return 0;
    snprintf(why, why_bytes, "signal.file: %s has only %lld spectra, less than a heap; 'loop: yes' repeats them",
             config->signal.file, (long long)fsim_recording_n_spectra(recording));
    return -EINVAL;
}

static int allocate_heaps(struct fsim_heaps *heaps, char *why, size_t why_bytes)
{
    const char *key = heaps->from_start ? "signal.file" : "signal.period";
    uint64_t n = bytes_times(heaps->n_batches, heaps->n_ants);
    uint64_t bytes = bytes_times(bytes_times(n, heaps->n_substreams), heaps->heap_bytes);
    int err = memory_check(bytes_plus(bytes, n), key, heaps->from_start ? "cut the file" : "make the period shorter",
                           why, why_bytes);

    if (err)
        return err;
    heaps->payloads = allocate(bytes);
    if (heaps->from_start)
        heaps->is_absent = calloc(n, sizeof(*heaps->is_absent));
    if (heaps->payloads && (heaps->is_absent || !heaps->from_start))
        return threads_probe((size_t)sysconf(_SC_NPROCESSORS_ONLN)); /* OpenMP exits if it cannot start a thread */
    snprintf(why, why_bytes, "%s: there is no memory for %zu heaps of each antenna", key, heaps->n_batches);
    return -ENOMEM;
}

int fsim_heaps_create(const struct fsim_config *config, struct fsim_heaps **heaps, char *why, size_t why_bytes)
{
    struct fsim_heaps *made = calloc(1, sizeof(*made));
    struct fsim_recording *recording = NULL;
    int err = made ? 0 : -ENOMEM;

    if (!err && config->signal.kind == FSIM_RECORDING)
        err = fsim_recording_open(config, &recording, why, why_bytes);
    if (!err)
        err = set_sizes(config, recording, made, why, why_bytes);
    if (!err)
        err = allocate_heaps(made, why, why_bytes);
    if (!err) {
        if (recording)
            mark_absent(config, recording, made);
        fill_heaps(config, recording, made);
        *heaps = made;
    } else {
        fsim_heaps_destroy(made);
    }
    fsim_recording_close(recording);
    return err;
}

void fsim_heaps_destroy(struct fsim_heaps *heaps)
{
    if (!heaps)
        return;
    free(heaps->payloads);
    free(heaps->is_absent);
    free(heaps);
}
