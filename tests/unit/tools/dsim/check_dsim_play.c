/* check_dsim_play.c - recordings as blocks of packed heaps: which samples, in which heap, how many of them saturated;
 * and how playing ends. */
#include "common/base/clock.h"
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tools/dsim/play.h"
#include "tools/dsim/recording.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_INPUTS       4
#define PACKET_SAMPLES 16
#define FILE_SAMPLES   (PACKET_SAMPLES * 37 + 11)

static char directory[] = "/tmp/check_dsim_play.XXXXXX";
static char paths[N_INPUTS][80];
static int16_t samples[N_INPUTS][FILE_SAMPLES];
static struct dsim_config config;
static struct dsim_recording_config recordings[N_INPUTS];
static struct dsim_config_antenna antennas[N_INPUTS / N_POLS];
static char why[512];

/* Input i has a file of 37 heaps and 11 samples, less a heap for input 1. */
static void setup(void)
{
    config = (struct dsim_config){
        .time.adc_sample_rate_hz = {.mantissa = 1000, .n_decimals = 0},
        .digitiser = {.sample_bits = 12, .packet_samples = PACKET_SAMPLES},
        .recordings = {.n = N_INPUTS, .items = recordings},
        .antennas = {.n = N_INPUTS / N_POLS, .items = antennas},
    };
    for (size_t i = 0; i < N_INPUTS; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/%d.%zu", directory, (int)getpid(), i);
        random_bytes(samples[i], sizeof(samples[i]));
        for (size_t s = 0; s < FILE_SAMPLES; s++)
            samples[i][s] = (int16_t)(samples[i][s] >> 4); /* 12 bits */
        FILE *file = fopen(paths[i], "wb");
        fwrite(samples[i], sizeof(samples[i][0]), i == 1 ? FILE_SAMPLES - PACKET_SAMPLES : FILE_SAMPLES, file);
        ck_assert_int_eq(fclose(file), 0);
        recordings[i] = (struct dsim_recording_config){
            .kind = DSIM_RECORDING_INT16, .path = paths[i], .scale = 1.0, .n_columns = 1};
    }
}

static void teardown(void)
{
    for (size_t i = 0; i < N_INPUTS; i++)
        unlink(paths[i]);
}

static struct dsim_play *start(int64_t n_heaps_wanted)
{
    struct dsim_play *play = NULL;
    int err = dsim_play_open(&config, NULL, n_heaps_wanted, &play, why, sizeof(why));

    ck_assert_msg(!err, "%d: %s", err, why);
    ck_assert_int_eq(dsim_play_start(play, -1), 0);
    return play;
}

static int take(struct dsim_play *play, struct dsim_block **block)
{
    return dsim_play_take(play, clock_monotonic_ns() + 60 * NS_PER_S, block);
}

/* The samples of a heap as they must leave. */
static void check_heap(const struct dsim_heaps *heaps, size_t input, size_t heap, const int16_t *expected)
{
    int32_t values[PACKET_SAMPLES];
    uint8_t packed[PACKET_SAMPLES * 2];

    for (size_t i = 0; i < PACKET_SAMPLES; i++)
        values[i] = expected[i];
    dsim_pack(values, PACKET_SAMPLES, 12, packed);
    ck_assert_uint_eq(heaps->heap_bytes, PACKET_SAMPLES * 12 / 8);
    ck_assert_mem_eq(dsim_heaps_payload(heaps, input, heap), packed, heaps->heap_bytes);
    ck_assert_uint_eq(dsim_heaps_n_saturated(heaps, input, heap), dsim_count_saturated(values, PACKET_SAMPLES, 12));
}

/* Takes blocks until there are no more, holding some of them for a while; returns how many heaps came. */
static int64_t check_blocks(struct dsim_play *play, int64_t n_heaps, int64_t n_in_file)
{
    struct dsim_block *block, *held = NULL;
    int64_t heap = 0;
    int err;

    while (heap < n_heaps && !(err = take(play, &block))) {
        ck_assert_uint_eq(block->heaps.n_inputs, N_INPUTS);
        for (size_t i = 0; i < block->heaps.n_heaps; i++, heap++)
            for (size_t input = 0; input < N_INPUTS; input++)
                check_heap(&block->heaps, input, i,
                           samples[config.recordings.n == 1 ? 0 : input] + heap % n_in_file * PACKET_SAMPLES);
        if (held)
            buffer_ref_put(&held->ref);
        held = block;
    }
    if (held)
        buffer_ref_put(&held->ref);
    return heap;
}

static const struct {
    bool loop;
    int64_t n_wanted, n_heaps;
} runs[] = {
    {false, INT64_MAX, 36}, {false, 36, 36}, {false, 37, 36}, {false, 35, 35}, {false, 1, 1},
    {false, 0, 0},          {true, 0, 0},    {true, 36, 36},  {true, 37, 37},  {true, 36 * 50 + 5, 36 * 50 + 5},
};

/* All end with the shortest, at a whole heap, or begin again; samples of as many bits as the packets' are unchanged. */
TEST(ends, .end = ARRAY_LEN(runs))
{
    struct dsim_block *block;

    for (size_t n = 1; n <= N_INPUTS; n += N_INPUTS - 1) { /* one for all, or one for each */
        config.recordings.n = n;
        config.digitiser.loop = runs[_i].loop;
        struct dsim_play *play = start(runs[_i].n_wanted);
        int64_t n_in_file = n == 1 ? 37 : 36;
        int64_t n_heaps = n == 1 && runs[_i].n_wanted >= 37 && !runs[_i].loop ? 37 : runs[_i].n_heaps;
        ck_assert_int_eq(check_blocks(play, INT64_MAX, n_in_file), n_heaps);
        ck_assert_int_eq(take(play, &block), -EPIPE);
        ck_assert(!dsim_play_failed(play));
        dsim_play_destroy(play);
    }
}

/* Stopped in the middle of an endless loop, with blocks full, free and taken. */
TEST(stop)
{
    struct dsim_block *block;

    config.digitiser.loop = true;
    struct dsim_play *play = start(INT64_MAX);
    check_blocks(play, 1000, 36);
    ck_assert_int_eq(take(play, &block), 0);
    dsim_play_stop(play);
    dsim_play_destroy(play);
}

/* A reader that waits for a free block leaves the taken ones alone, and the sender's wait has an end. */
TEST(all_taken)
{
    struct dsim_block *blocks[100];
    size_t n = 0;

    config.digitiser.loop = true;
    struct dsim_play *play = start(INT64_MAX);
    while (!dsim_play_take(play, clock_monotonic_ns() + 200 * NS_PER_MS, &blocks[n]))
        n++;
    ck_assert_uint_ge(n, 4);
    int64_t heap = 0;
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < blocks[b]->heaps.n_heaps; i++, heap++)
            check_heap(&blocks[b]->heaps, 2, i, samples[2] + heap % 36 * PACKET_SAMPLES);
    buffer_ref_put(&blocks[0]->ref);
    ck_assert_int_eq(take(play, &blocks[n]), 0);
    ck_assert_ptr_eq(blocks[n], blocks[0]);
    dsim_play_destroy(play);
}

/* A file that is cut while it plays ends the run as a failure; no heap of what is gone comes. */
TEST(cut)
{
    struct dsim_play *play = NULL;

    ck_assert_int_eq(dsim_play_open(&config, NULL, INT64_MAX, &play, why, sizeof(why)), 0);
    ck_assert_int_eq(truncate(paths[2], 20 * PACKET_SAMPLES * 2 - 1), 0);
    ck_assert_int_eq(dsim_play_start(play, -1), 0);
    ck_assert_int_lt(check_blocks(play, INT64_MAX, 36), 20);
    ck_assert(dsim_play_failed(play));
    dsim_play_destroy(play);
}

TEST(refused)
{
    struct dsim_play *untouched = (void *)1, *play = untouched;

    ck_assert_int_eq(truncate(paths[3], PACKET_SAMPLES * 2 - 1), 0);
    ck_assert_int_eq(dsim_play_open(&config, NULL, INT64_MAX, &play, why, sizeof(why)), -EINVAL);
    ck_assert_ptr_eq(play, untouched);
    ck_assert_msg(strstr(why, "recordings[3]: ") && strstr(why, "15 samples to play, which do not fill a heap of 16"),
                  "'%s'", why);
    unlink(paths[3]);
    ck_assert_int_eq(dsim_play_open(&config, NULL, INT64_MAX, &play, why, sizeof(why)), -ENOENT);
    ck_assert_msg(strstr(why, "recordings[3]: "), "'%s'", why);
}

/* ---- Quantisation ------------------------------------------------------------------------------------------------ */

static const struct {
    double value, scale;
    int bits;
    int32_t quantised;
} golden[] = {
    {0.5, 1, 8, 0},
    {1.5, 1, 8, 2},
    {2.5, 1, 8, 2},
    {-0.5, 1, 8, 0},
    {-1.5, 1, 8, -2},
    {126.5, 1, 8, 126},
    {127, 1, 8, 127},
    {127.5, 1, 8, 127},
    {1e300, 1e30, 8, 127},
    {INFINITY, 1, 8, 127},
    {-128, 1, 8, -128},
    {-128.5, 1, 8, -128},
    {-129, 1, 8, -128},
    {-INFINITY, 1, 8, -128},
    {3.316505, 16, 10, 53},
    {-1, 16, 10, -16},
    {1, 1, 2, 1},
    {-2, 1, 2, -2},
    {2, 1, 2, 1},
    {32767, 1, 16, 32767},
    {-32768, 1, 16, -32768},
    {32767, 1.0 / 64, 10, 511},
    {96, 1.0 / 64, 10, 2},
    {32, 1.0 / 64, 10, 0},
};

TEST(quantise_golden, .end = ARRAY_LEN(golden))
{
    int32_t quantised = 77;

    dsim_play_quantise(&golden[_i].value, golden[_i].scale, 1, golden[_i].bits, &quantised);
    ck_assert_int_eq(quantised, golden[_i].quantised);
}

/* Every integer that fits passes as it is. */
TEST(quantise_keeps_integers, .first = 2, .end = 17)
{
    for (int64_t i = -(INT64_C(1) << (_i - 1)); i < INT64_C(1) << (_i - 1); i++) {
        double value = (double)i;
        int32_t quantised;
        dsim_play_quantise(&value, 1.0, 1, _i, &quantised);
        ck_assert_int_eq(quantised, i);
    }
}

static void make_directory(void)
{
    log_init("check_dsim_play", LOG_LEVEL_ERROR);
    random_start();
    if (!mkdtemp(directory))
        abort();
}

static void finish(void)
{
    rmdir(directory);
}

SUITE(.timeout_s = 60, .setup = setup, .teardown = teardown, .start = make_directory, .finish = finish);
