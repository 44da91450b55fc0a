/* gnss_samples.c - see gnss_samples.h. */
#include "fgpu/gnss/gnss_samples.h"

#include "common/base/units.h"
#include "common/device/device.h"
#include "fgpu/input/device_input.h"

#include <assert.h>
#include <string.h>

/* ---- Presence ---------------------------------------------------------------------------------------------------- */

/* Finds the runs of present samples in [from, to).  A sample is present if all packets from which the filter computes
 * it have arrived on both polarisations.  Returns the number of runs. */
static size_t find_runs(const struct gnss_stream *s, const struct fgpu_device_input *in, int64_t from, int64_t to,
                        struct gnss_run runs[GNSS_MAX_RUNS])
{
    const struct fgpu_layout *l = s->gnss->layout;
    const int64_t packet_samples = s->gnss->config->recv.packet_samples;
    const size_t n_heaps = l->history_heaps + l->heaps_per_chunk;
    int64_t begin = from;
    size_t n = 0;

    for (size_t h = 0; h < n_heaps && begin < to; h++) {
        if (in->present[0][h] && in->present[1][h])
            continue;
        const int64_t first = in->timestamp_samples + (int64_t)h * packet_samples;
        const int64_t touched = -floor_div(-(first - s->n_taps + 1), s->subsampling);
        const int64_t clear = floor_div(first + packet_samples - 1, s->subsampling) + 1;
        if (touched > begin) {
            runs[n++] = (struct gnss_run){begin, touched < to ? touched : to};
            if (n == GNSS_MAX_RUNS)
                return n;
        }
        begin = clear > begin ? clear : begin;
    }
    if (begin < to)
        runs[n++] = (struct gnss_run){begin, to};
    return n;
}

int64_t gnss_samples_present(const struct gnss_chunk *chunk, int64_t begin, int64_t end)
{
    int64_t n = 0;

    for (size_t i = 0; i < chunk->n_runs; i++) {
        const int64_t from = chunk->runs[i].begin > begin ? chunk->runs[i].begin : begin;
        const int64_t to = chunk->runs[i].end < end ? chunk->runs[i].end : end;
        n += to > from ? to - from : 0;
    }
    return n;
}

/* Copies the runs of the samples from 'begin' on, at most GNSS_MAX_RUNS, from an earlier chunk. */
static void keep_runs(const struct gnss_chunk *earlier, int64_t begin, struct gnss_chunk *chunk)
{
    const size_t skipped = earlier->n_runs > GNSS_MAX_RUNS ? earlier->n_runs - GNSS_MAX_RUNS : 0;

    chunk->n_runs = 0;
    for (size_t i = skipped; i < earlier->n_runs; i++) {
        struct gnss_run run = earlier->runs[i];
        run.begin = run.begin > begin ? run.begin : begin;
        if (run.begin < run.end)
            chunk->runs[chunk->n_runs++] = run;
    }
}

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

void gnss_samples_take_back(struct gnss_stream *s)
{
    struct inbox_item item;

    while (inbox_try_pop(s->free_chunks, &item) == 0) {
        struct gnss_chunk *chunk = item.object;
        chunk->is_free = true;
        if (!chunk->is_used)
            counter_add(&s->antennas[chunk - chunk->slot->chunks].late_heaps, 1);
    }
}

struct gnss_chunk *gnss_samples_chunk(struct gnss_antenna *a, const struct fgpu_device_input *in)
{
    const struct gnss_stream *s = a->stream;
    const int64_t chunk_samples = s->gnss->config->recv.chunk_samples;
    const int64_t timestamp = in->timestamp_samples + s->gnss->layout->history_samples;
    const int64_t n_slots = (int64_t)s->sizes.n_slots, number = floor_div(timestamp, chunk_samples);
    struct gnss_chunk *chunk = &s->slots[number - floor_div(number, n_slots) * n_slots].chunks[a->ant];

    gnss_samples_take_back(a->stream);
    if (chunk->is_free)
        chunk->base.timestamp_samples = timestamp;
    return chunk;
}

static float *slot_row(const struct gnss_stream *s, const struct gnss_slot *slot, size_t ant, unsigned pol)
{
    return slot->samples + (ant * N_POLS + pol) * s->sizes.pitch_samples * 2;
}

/* Queues the copy of the earlier samples that the antenna's newest chunk has. */
static void copy_earlier(const struct gnss_antenna *a, struct gnss_chunk *chunk, struct device_stream *compute)
{
    const struct gnss_stream *s = a->stream;
    const int64_t n = 2 * s->sizes.delay_samples, begin = chunk->begin - n;
    const struct gnss_chunk *newest = a->newest;

    chunk->n_runs = 0;
    if (n == 0 || !newest || newest->end != chunk->begin)
        return;
    for (unsigned pol = 0; pol < N_POLS; pol++)
        device_copy(compute, slot_row(s, chunk->slot, a->ant, pol) + 2 * gnss_samples_index(s, chunk->end, begin),
                    slot_row(s, newest->slot, a->ant, pol) + 2 * gnss_samples_index(s, newest->end, begin),
                    (size_t)n * 2 * sizeof(float));
    keep_runs(newest, begin, chunk);
}

bool gnss_samples_take(struct gnss_antenna *a, struct gnss_chunk *chunk, struct device_stream *compute,
                       const struct fgpu_device_input *in)
{
    struct gnss_stream *s = a->stream;
    struct gnss_run *runs;

    fgpu_baseband_made(a->baseband, &chunk->begin, &chunk->end);
    if (chunk->begin >= chunk->end)
        return false;
    const int64_t n = chunk->end - chunk->begin;
    const int64_t at = fgpu_baseband_index(a->baseband, chunk->begin * s->subsampling);
    device_stream_wait_event(compute, chunk->slot->read);
    copy_earlier(a, chunk, compute);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        device_copy(compute,
                    slot_row(s, chunk->slot, a->ant, pol) + 2 * gnss_samples_index(s, chunk->end, chunk->begin),
                    (const float *)fgpu_baseband_samples(a->baseband, pol) + 2 * at, (size_t)n * 2 * sizeof(float));
    device_event_record(chunk->written, compute);
    runs = chunk->runs + chunk->n_runs;
    chunk->n_runs += find_runs(s, in, chunk->begin, chunk->end, runs);
    chunk->n_present = (uint64_t)gnss_samples_present(chunk, chunk->begin, chunk->end);
    chunk->last_arrival_ns = in->last_arrival_ns;
    chunk->is_free = chunk->is_used = false;
    buffer_ref_set(&chunk->base.ref, 1);
    a->newest = chunk;
    return true;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

/* Queues the conversion of samples [begin, end).  The kernel adds the levels of the samples to levels[pol]. */
static void convert(struct gnss_stream *s, const struct gnss_antenna *a, const struct gnss_chunk *chunk, int64_t begin,
                    int64_t end, struct gnss_level *levels)
{
    const int64_t at = gnss_samples_index(s, chunk->end, begin);
    struct gnss_quantise_args args = {.out = gnss_samples_row(s, a->ant) + 2 * at,
                                      .pitch_samples = s->sizes.pitch_samples,
                                      .levels = levels,
                                      .n_samples = (uint64_t)(end - begin),
                                      .scale = {a->scale[0], a->scale[1]},
                                      .im_sign = s->config->is_inverted ? -1 : 1};

    if (begin >= end)
        return;
    for (unsigned pol = 0; pol < N_POLS; pol++)
        args.in[pol] = slot_row(s, chunk->slot, a->ant, pol) + 2 * at;
    struct kernel_grid grid = gnss_quantise_grid(&args);
    device_launch(s->compute, s->quantise, &grid, &args);
}

static void quantise_chunk(struct gnss_stream *s, size_t ant, const struct gnss_chunk *chunk, struct gnss_buffer *b)
{
    const struct gnss_antenna *a = &s->antennas[ant];
    const int64_t first = b->begin - 2 * s->sizes.delay_samples;

    device_stream_wait_event(s->compute, chunk->written);
    if (gnss_samples_present(chunk, first, b->end) < b->end - first)
        device_fill(s->compute, gnss_samples_row(s, ant), 0, N_POLS * s->sizes.pitch_samples * 2);
    for (size_t i = 0; i < chunk->n_runs; i++) {
        const struct gnss_run *run = &chunk->runs[i];
        const int64_t middle = run->end < chunk->begin     ? run->end
                               : run->begin > chunk->begin ? run->begin
                                                           : chunk->begin;
        convert(s, a, chunk, run->begin, middle, s->levels);
        convert(s, a, chunk, middle, run->end, b->device_levels + ant * N_POLS);
    }
}

void gnss_samples_quantise(struct gnss_stream *s, struct gnss_chunk *const *set, struct gnss_buffer *b)
{
    struct gnss_slot *slot = NULL;

    device_fill(s->compute, b->device_levels, 0, s->gnss->n_ants * N_POLS * sizeof(*b->device_levels));
    for (size_t ant = 0; ant < s->gnss->n_ants; ant++)
        if (set[ant]) {
            quantise_chunk(s, ant, set[ant], b);
            slot = set[ant]->slot;
        }
    assert(slot); /* a round has at least one chunk */
    device_event_record(slot->read, s->compute);
}
