/* play.c - the reader: a thread that converts recordings or live signals to blocks of packed heaps before dsim_send
 * needs them. */
#include "tools/dsim/play.h"

#include "common/base/inbox.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/why.h"
#include "common/telemetry/stats.h"
#include "common/base/thread.h"
#include "tools/dsim/recording.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD_NS     (NS_PER_S / 2)
#define N_BLOCKS_MIN 4
/* Greatest number of an input's samples in a block, unless one heap has more samples.  This number of doubles fits in
 * the cache. */
#define BLOCK_SAMPLES_MAX 262144
#define BLOCK_BYTES_MAX   33554432.0  /* greatest size of a block, unless one heap of each input is larger */
#define BYTES_MAX         268435456.0 /* greatest size of all blocks together, unless N_BLOCKS_MIN blocks need more */

struct dsim_play {
    const struct dsim_config *config; /* [const] */
    size_t n_inputs;                  /* [const] */
    size_t packet_samples;            /* [const] */
    size_t heap_bytes;                /* [const] */
    int sample_bits;                  /* [const] */
    int64_t n_heaps_wanted;           /* [const] number of heaps to make for each input */
    int64_t n_heaps;                  /* [const] number of heaps in each recording; INT64_MAX for live signals */
    uint64_t n_unplayed_samples;      /* [const] number of samples after the last heap, summed over all recordings */

    struct dsim_live *live;             /* [reader] live signals; NULL: recordings are played */
    int64_t first_timestamp;            /* [reader] timestamp of the first heap of 'live' */
    struct dsim_recording **recordings; /* [config->recordings.n] [reader] */
    double *values;                     /* [block_heaps * packet_samples] [reader] values before quantisation */
    int32_t *quantised;                 /* [packet_samples] [reader] */
    /* [reader] true: an error has ended the reader; other threads may read this after 'full' has stopped */
    bool has_failed;
    struct dsim_recording_counters counters;

    size_t block_heaps;        /* [const] number of heaps of each input in a block */
    size_t n_blocks;           /* [const] */
    struct dsim_block *blocks; /* [n_blocks] */
    struct inbox *free;        /* free blocks, from the sender to the reader */
    struct inbox *full;        /* full blocks, from the reader to the sender */

    struct thread thread;
    bool is_running;
    atomic_bool stop;
};

/* ---- The reader -------------------------------------------------------------------------------------------------- */

void dsim_play_quantise(const double *values, double scale, size_t n_samples, int sample_bits, int32_t *quantised)
{
    double max = (double)((INT32_C(1) << (sample_bits - 1)) - 1), min = -max - 1.0;

    for (size_t i = 0; i < n_samples; i++) {
        double value = values[i] * scale;
        double clamped = value > min ? (value < max ? value : max) : min;
        quantised[i] = (int32_t)rint(clamped);
    }
}

/* Quantises and packs 'values' as the heaps [first, first + n) of an input of the block. */
static void pack_heaps(struct dsim_play *play, const double *values, double scale, size_t input, size_t first, size_t n,
                       struct dsim_heaps *heaps)
{
    for (size_t i = 0; i < n; i++) {
        size_t place = input * heaps->n_heaps + first + i;
        dsim_play_quantise(values + i * play->packet_samples, scale, play->packet_samples, play->sample_bits,
                           play->quantised);
        heaps->n_saturated[place] =
            (uint32_t)dsim_count_saturated(play->quantised, play->packet_samples, play->sample_bits);
        dsim_pack(play->quantised, play->packet_samples, play->sample_bits, heaps->payloads + place * play->heap_bytes);
    }
}

/* Fills one input's heaps in a block, beginning with heap number 'heap' of the input's recording.  After the
 * recording's last heap, begins again with the first heap. */
static int fill_input(struct dsim_play *play, size_t input, int64_t heap, struct dsim_heaps *heaps, char *why,
                      size_t why_bytes)
{
    int64_t step = (int64_t)play->packet_samples;

    for (size_t done = 0; done < heaps->n_heaps;) {
        int64_t at = (heap + (int64_t)done) % play->n_heaps;
        size_t n = heaps->n_heaps - done;
        n = (int64_t)n < play->n_heaps - at ? n : (size_t)(play->n_heaps - at);
        int err = dsim_recording_read(play->recordings[input], at * step, n * play->packet_samples, play->values, why,
                                      why_bytes);
        if (err)
            return err;
        pack_heaps(play, play->values, dsim_config_recording(play->config, input)->scale, input, done, n, heaps);
        done += n;
    }
    return 0;
}

/* Fills the heaps with live signals.  The first of these heaps has the number 'heap'. */
static void fill_live(struct dsim_play *play, int64_t heap, struct dsim_heaps *heaps)
{
    for (size_t input = 0; input < play->n_inputs; input++) {
        for (size_t i = 0; i < heaps->n_heaps; i++) {
            size_t place = input * heaps->n_heaps + i;
            int64_t timestamp = play->first_timestamp + (heap + (int64_t)i) * (int64_t)play->packet_samples;
            heaps->n_saturated[place] =
                dsim_live_heap(play->live, input, timestamp, heaps->payloads + place * heaps->heap_bytes);
        }
    }
}

static int fill(struct dsim_play *play, int64_t heap, struct dsim_heaps *heaps)
{
    size_t n_recordings = play->config->recordings.n;
    size_t input_bytes = heaps->n_heaps * heaps->heap_bytes;
    char why[512];

    if (play->live) {
        fill_live(play, heap, heaps);
        return 0;
    }
    for (size_t i = 0; i < n_recordings; i++) {
        int err = fill_input(play, i, heap, heaps, why, sizeof(why));
        if (!err)
            continue;
        log_error("recordings[%zu]: %s.", i, why);
        return err;
    }
    for (size_t i = n_recordings; i < play->n_inputs; i++) { /* copies the only recording to the other inputs */
        memcpy(heaps->payloads + i * input_bytes, heaps->payloads, input_bytes);
        memcpy(heaps->n_saturated + i * heaps->n_heaps, heaps->n_saturated,
               heaps->n_heaps * sizeof(*heaps->n_saturated));
    }
    return 0;
}

static void *run(void *arg)
{
    struct dsim_play *play = arg;
    int64_t end = play->n_heaps_wanted;
    struct inbox_item item;

    if (!play->config->digitiser.loop && end > play->n_heaps)
        end = play->n_heaps;
    for (int64_t heap = 0; heap < end && !inbox_pop(play->free, &item);) {
        struct dsim_block *block = item.object;
        int64_t n_left = end - heap;
        if (atomic_load_explicit(&play->stop, memory_order_relaxed))
            break;
        block->heaps.n_heaps = n_left < (int64_t)play->block_heaps ? (size_t)n_left : play->block_heaps;
        if (fill(play, heap, &block->heaps)) {
            play->has_failed = true;
            break;
        }
        heap += (int64_t)block->heaps.n_heaps;
        buffer_ref_set(&block->ref, 1);
        inbox_push(play->full, &(struct inbox_item){.object = block});
    }
    inbox_stop(play->full);
    return NULL;
}

int dsim_play_take(struct dsim_play *play, int64_t deadline_ns, struct dsim_block **block)
{
    struct inbox_item item;
    int err = inbox_pop_until(play->full, deadline_ns, &item);

    if (!err)
        *block = item.object;
    return err;
}

bool dsim_play_failed(const struct dsim_play *play)
{
    return play->has_failed;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* Chooses the number of blocks, and the number of heaps in a block.  See 'Ahead' in dsim/play.h. */
static void set_sizes(struct dsim_play *play)
{
    struct timebase timebase = {.adc_sample_rate_hz = play->config->time.adc_sample_rate_hz};
    size_t ahead_heaps = (size_t)timebase_duration_samples(&timebase, AHEAD_NS) / play->packet_samples + 1;
    double set_bytes = (double)play->n_inputs * (double)play->heap_bytes;
    size_t max_heaps = BLOCK_SAMPLES_MAX / play->packet_samples;

    if (set_bytes * (double)max_heaps > BLOCK_BYTES_MAX)
        max_heaps = (size_t)(BLOCK_BYTES_MAX / set_bytes);
    play->block_heaps = ahead_heaps / N_BLOCKS_MIN;
    if (play->block_heaps > max_heaps)
        play->block_heaps = max_heaps;
    if (play->block_heaps == 0)
        play->block_heaps = 1;
    size_t max_blocks = (size_t)(BYTES_MAX / (set_bytes * (double)play->block_heaps));
    play->n_blocks = ahead_heaps / play->block_heaps + 1;
    if (play->n_blocks > max_blocks)
        play->n_blocks = max_blocks;
    if (play->n_blocks < N_BLOCKS_MIN)
        play->n_blocks = N_BLOCKS_MIN;
}

static int open_recording(struct dsim_play *play, size_t i, char *why, size_t why_bytes)
{
    struct dsim_recording_config config = *dsim_config_recording(play->config, i);
    char reason[480];

    if (config.sample_rate_hz.mantissa == 0)
        config.sample_rate_hz = play->config->time.adc_sample_rate_hz;
    int err = dsim_recording_open(&config, play->block_heaps * play->packet_samples, &play->counters,
                                  &play->recordings[i], reason, sizeof(reason));

    if (err)
        snprintf(why, why_bytes, "recordings[%zu]: %s", i, reason);
    return err;
}

/* Opens all recordings.  The shortest recording determines the number of heaps. */
static int open_recordings(struct dsim_play *play, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < play->config->recordings.n; i++) {
        int err = open_recording(play, i, why, why_bytes);
        if (err)
            return err;
        int64_t n_samples = dsim_recording_n_samples(play->recordings[i]);
        int64_t n_heaps = n_samples / (int64_t)play->packet_samples;
        if (n_heaps == 0)
            return why_fail(-EINVAL, why, why_bytes,
                            "recordings[%zu]: %s has %lld samples to play, which do not fill a heap of %zu samples", i,
                            dsim_config_recording(play->config, i)->path, (long long)n_samples, play->packet_samples);
        if (n_heaps < play->n_heaps)
            play->n_heaps = n_heaps;
    }
    return 0;
}

/* Logs the length of the recordings, and the samples that are not played. */
static void describe(struct dsim_play *play)
{
    int64_t n_played = play->live ? 0 : play->n_heaps * (int64_t)play->packet_samples;

    if (play->live)
        log_info("track(): dsim computes %zu blocks of %zu heaps ahead", play->n_blocks, play->block_heaps);
    else
        log_info("recordings: dsim plays %lld heaps (%lld samples) of each recording %s, and reads %zu blocks of %zu "
                 "heaps ahead",
                 (long long)play->n_heaps, (long long)n_played,
                 play->config->digitiser.loop ? "again and again" : "once", play->n_blocks, play->block_heaps);
    for (size_t i = 0; i < play->config->recordings.n; i++) {
        int64_t n_rest = dsim_recording_n_samples(play->recordings[i]) - n_played;
        int64_t n_rest_bytes = dsim_recording_n_rest_bytes(play->recordings[i]);
        const char *file = dsim_config_recording(play->config, i)->path;
        if (n_rest > 0)
            log_info("recordings[%zu]: the last %lld samples of %s are not played: they fill no heap, or another "
                     "recording is shorter",
                     i, (long long)n_rest, file);
        if (n_rest_bytes > 0)
            log_warning("recordings[%zu]: the last %lld bytes of %s are less than a sample or frame", i,
                        (long long)n_rest_bytes, file);
        play->n_unplayed_samples += (uint64_t)n_rest;
    }
}

static int make_blocks(struct dsim_play *play, char *why, size_t why_bytes)
{
    size_t n_all = play->n_inputs * play->block_heaps;
    uint64_t bytes = bytes_times(play->n_blocks, bytes_times(n_all, play->heap_bytes + sizeof(uint32_t)));
    int err = memory_check(bytes, "digitiser.packet_samples", "lower it, or play fewer antennas", why, why_bytes);

    if (err)
        return err;
    play->values = malloc(play->block_heaps * play->packet_samples * sizeof(*play->values));
    play->quantised = malloc(play->packet_samples * sizeof(*play->quantised));
    play->blocks = calloc(play->n_blocks, sizeof(*play->blocks));
    if (!play->values || !play->quantised || !play->blocks || inbox_create(play->n_blocks, &play->free) ||
        inbox_create(play->n_blocks, &play->full))
        return why_out_of_memory(why, why_bytes);
    for (size_t i = 0; i < play->n_blocks; i++) {
        struct dsim_block *block = &play->blocks[i];
        const struct inbox_item item = {.object = block};
        block->heaps = (struct dsim_heaps){
            .n_inputs = play->n_inputs, .n_heaps = play->block_heaps, .heap_bytes = play->heap_bytes};
        block->heaps.payloads = malloc(n_all * play->heap_bytes);
        block->heaps.n_saturated = malloc(n_all * sizeof(*block->heaps.n_saturated));
        if (!block->heaps.payloads || !block->heaps.n_saturated)
            return why_out_of_memory(why, why_bytes);
        buffer_ref_init(&block->ref, play->free, item);
        inbox_push(play->free, &item);
    }
    return 0;
}

static void register_metrics(struct dsim_play *play)
{
    const char *zeroed = "Samples of recordings that were played as zeros.";
    const char *frames = "Frames of VDIF recordings that were not played.";

    if (play->live)
        return;
    stats_counter("dsim_zeroed_samples", zeroed, "reason=\"missing\"", &play->counters.n_missing_samples);
    stats_counter("dsim_zeroed_samples", zeroed, "reason=\"invalid\"", &play->counters.n_invalid_samples);
    stats_counter("dsim_refused_frames", frames, "reason=\"header\"", &play->counters.n_bad_frames);
    stats_counter("dsim_refused_frames", frames, "reason=\"late\"", &play->counters.n_late_frames);
    stats_counter("dsim_refused_frames", frames, "reason=\"double\"", &play->counters.n_double_frames);
}

static int open_play(struct dsim_play *play, char *why, size_t why_bytes)
{
    int err = 0;

    set_sizes(play);
    play->n_heaps = INT64_MAX;
    if (!play->live) {
        play->recordings = calloc(play->config->recordings.n, sizeof(struct dsim_recording *));
        if (!play->recordings)
            return why_out_of_memory(why, why_bytes);
        err = open_recordings(play, why, why_bytes);
    }
    return err ? err : make_blocks(play, why, why_bytes);
}

int dsim_play_open(const struct dsim_config *config, struct dsim_live *live, int64_t n_heaps_wanted,
                   struct dsim_play **play, char *why, size_t why_bytes)
{
    struct dsim_play *made = calloc(1, sizeof(*made));

    assert(live || config->recordings.n == 1 || config->recordings.n == dsim_config_n_inputs(config));
    if (!made)
        return why_out_of_memory(why, why_bytes);
    made->config = config;
    made->live = live;
    made->n_inputs = dsim_config_n_inputs(config);
    made->packet_samples = (size_t)config->digitiser.packet_samples;
    made->sample_bits = (int)config->digitiser.sample_bits;
    made->heap_bytes = made->packet_samples * (size_t)made->sample_bits / 8;
    made->n_heaps_wanted = n_heaps_wanted;
    int err = open_play(made, why, why_bytes);
    if (err) {
        dsim_play_destroy(made);
        return err;
    }
    describe(made);
    register_metrics(made);
    *play = made;
    return 0;
}

const struct dsim_block *dsim_play_blocks(const struct dsim_play *play, size_t *n)
{
    *n = play->n_blocks;
    return play->blocks;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

int dsim_play_start(struct dsim_play *play, int64_t first_timestamp)
{
    play->first_timestamp = first_timestamp;
    int err = thread_start(&play->thread, "read", -1, run, play);

    play->is_running = !err;
    return err;
}

void dsim_play_stop(struct dsim_play *play)
{
    if (!play || !play->is_running)
        return;
    atomic_store_explicit(&play->stop, true, memory_order_relaxed);
    inbox_stop(play->free);
    thread_join(&play->thread);
    play->is_running = false;
}

void dsim_play_print_summary(const struct dsim_play *play)
{
    if (!play || play->live)
        return;
    const struct dsim_recording_counters *counters = &play->counters;
    assert(!play->is_running);
    printf("recordings: %" PRIu64 " samples at their ends not played; %" PRIu64 " missing and %" PRIu64
           " invalid samples read as zeros; frames not played: %" PRIu64 " with a wrong header, %" PRIu64
           " too late, %" PRIu64 " double\n",
           play->n_unplayed_samples, counter_get(&counters->n_missing_samples),
           counter_get(&counters->n_invalid_samples), counter_get(&counters->n_bad_frames),
           counter_get(&counters->n_late_frames), counter_get(&counters->n_double_frames));
}

void dsim_play_destroy(struct dsim_play *play)
{
    if (!play)
        return;
    dsim_play_stop(play);
    for (size_t i = 0; play->recordings && i < play->config->recordings.n; i++)
        dsim_recording_close(play->recordings[i]);
    for (size_t i = 0; play->blocks && i < play->n_blocks; i++) {
        free(play->blocks[i].heaps.payloads);
        free(play->blocks[i].heaps.n_saturated);
    }
    inbox_destroy(play->free);
    inbox_destroy(play->full);
    free(play->recordings);
    free(play->blocks);
    free(play->values);
    free(play->quantised);
    free(play);
}
