/* check_dsim_recording.c - recordings of all kinds as numbers, against the numbers that the test wrote into the file;
 * files with every fault that can be detected, and files of any bytes. */
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tools/dsim/recording.h"
#include "tools/shared/vdif.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SAMPLES 100

static char directory[] = "/tmp/check_dsim_recording.XXXXXX";
static char path[64];
static struct dsim_recording_counters counters;
static char why[512];

static void setup(void)
{
    snprintf(path, sizeof(path), "%s/%d", directory, (int)getpid());
    memset(&counters, 0, sizeof(counters));
    memset(why, 0, sizeof(why));
}

static struct dsim_recording *recording; /* opened last */
static double *expected;                 /* its samples */

static void close_recording(void)
{
    dsim_recording_close(recording);
    recording = NULL;
}

static void teardown(void)
{
    close_recording();
    free(expected);
    expected = NULL;
    unlink(path);
}

static void write_file(const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");

    ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, file), n_bytes);
    ck_assert_int_eq(fclose(file), 0);
}

/* Opens 'path' as 'config' says otherwise. */
static int try_open(struct dsim_recording_config config, struct dsim_recording **opened)
{
    config.path = path;
    return dsim_recording_open(&config, MAX_SAMPLES, &counters, opened, why, sizeof(why));
}

/* In place of the recording before. */
static void open_good(struct dsim_recording_config config)
{
    close_recording();
    int err = try_open(config, &recording);
    ck_assert_msg(!err, "%d: %s", err, why);
}

static void open_bad(struct dsim_recording_config config, int err, const char *says)
{
    struct dsim_recording *untouched = (void *)1, *opened = untouched;

    ck_assert_int_eq(try_open(config, &opened), err);
    ck_assert_ptr_eq(opened, untouched);
    ck_assert_msg(strstr(why, says) && strstr(why, path), "'%s' does not say '%s'", why, says);
}

/* Compares samples [first, end), read in runs of random lengths, with wanted[first..end). */
static void check_run(const double *wanted, int64_t first, int64_t end)
{
    while (first < end) {
        int64_t n = 1 + (int64_t)random_below(MAX_SAMPLES);
        n = n < end - first ? n : end - first;
        double *values = malloc((size_t)n * sizeof(*values));
        memset(values, 0xA5, (size_t)n * sizeof(*values));
        int err = dsim_recording_read(recording, first, (size_t)n, values, why, sizeof(why));
        ck_assert_msg(!err, "%d: %s", err, why);
        for (int64_t i = 0; i < n; i++)
            ck_assert_msg(values[i] == wanted[first + i], "sample %lld is %g, not %g", (long long)(first + i),
                          values[i], wanted[first + i]);
        free(values);
        first += n;
    }
}

/* All of it in order, again from the beginning, and runs from anywhere. */
static void check_all(const double *wanted)
{
    int64_t n = dsim_recording_n_samples(recording);

    check_run(wanted, 0, n);
    check_run(wanted, 0, n);
    for (int i = 0; i < 30; i++) {
        int64_t first = (int64_t)random_below((size_t)n);
        check_run(wanted, first, first + 1 + (int64_t)random_below((size_t)(n - first)));
    }
}

/* ---- Raw files --------------------------------------------------------------------------------------------------- */

static const struct {
    enum dsim_recording_kind kind;
    size_t sample_bytes;
    const char *bytes; /* of five samples */
    double values[5];
} raw_kinds[] = {
    {DSIM_RECORDING_INT8, 1, "\x00\x01\x7F\x80\xFF", {0, 1, 127, -128, -1}},
    {DSIM_RECORDING_INT16, 2, "\x00\x00\x34\x12\xFF\x7F\x00\x80\xFE\xFF", {0, 0x1234, 32767, -32768, -2}},
    {DSIM_RECORDING_INT16BE, 2, "\x00\x00\x12\x34\x7F\xFF\x80\x00\xFF\xFE", {0, 0x1234, 32767, -32768, -2}},
    {DSIM_RECORDING_FLOAT32,
     4,
     "\x00\x00\x00\x80\x00\x00\x80\x3F\x00\x00\x80\x7F\x00\x00\x20\xC1\x01\x00\x00\x00",
     {0, 1, INFINITY, -10, 0x1p-149}},
};

/* Every kind, all columns, behind a header and a start. */
TEST(raw_values, .end = ARRAY_LEN(raw_kinds))
{
    size_t bytes = raw_kinds[_i].sample_bytes, n_rows = 1000;

    for (int round = 0; round < 10; round++) {
        size_t n_columns = 1 + random_below(6), header = random_below(3) * 5, start = random_below(500);
        size_t file_bytes = header + n_rows * n_columns * bytes;
        uint8_t *file = malloc(file_bytes);
        expected = realloc(expected, n_rows * n_columns * sizeof(*expected)); /* [column][row] */
        memset(file, 0xEE, header);
        for (size_t i = 0; i < n_rows * n_columns; i++) {
            size_t one = random_below(5);
            memcpy(file + header + i * bytes, raw_kinds[_i].bytes + one * bytes, bytes);
            expected[i % n_columns * n_rows + i / n_columns] = raw_kinds[_i].values[one];
        }
        write_file(file, file_bytes);
        for (size_t column = 0; column < n_columns; column++) {
            open_good((struct dsim_recording_config){
                .kind = raw_kinds[_i].kind,
                .start_samples = (int64_t)start,
                .header_bytes = (int64_t)header,
                .n_columns = (int64_t)n_columns,
                .column = (int64_t)column,
            });
            ck_assert_int_eq(dsim_recording_n_samples(recording), (int64_t)(n_rows - start));
            ck_assert_int_eq(dsim_recording_n_rest_bytes(recording), 0);
            check_all(expected + column * n_rows + start);
        }
        free(file);
    }
    ck_assert_uint_eq(counter_get(&counters.n_invalid_samples), 0);
}

/* Rows larger than what is read at once. */
TEST(raw_many_columns)
{
    size_t n_columns = 65536, n_rows = 9;
    uint8_t *file = malloc(n_rows * n_columns * 4);
    double wanted[9];

    for (size_t row = 0; row < n_rows; row++) {
        float value = (float)row - 4;
        memset(file + row * n_columns * 4, 0xA5, n_columns * 4);
        memcpy(file + ((row + 1) * n_columns - 1) * 4, &value, sizeof(value));
        wanted[row] = value;
    }
    write_file(file, n_rows * n_columns * 4);
    open_good((struct dsim_recording_config){
        .kind = DSIM_RECORDING_FLOAT32, .n_columns = (int64_t)n_columns, .column = (int64_t)n_columns - 1});
    check_all(wanted);
    free(file);
}

static const struct {
    size_t file_bytes;
    int64_t header_bytes, n_columns, start_samples;
    int64_t n_samples, n_rest_bytes; /* 0 samples: refused */
} raw_lengths[] = {
    {0, 0, 1, 0, 0, 0},   {1, 0, 1, 0, 0, 0},      {2, 0, 1, 0, 1, 0},    {3, 0, 1, 0, 1, 1},   {2, 1, 1, 0, 0, 0},
    {2, 2, 1, 0, 0, 0},   {2, 3, 1, 0, 0, 0},      {2, 1000, 1, 0, 0, 0}, {5, 3, 1, 0, 1, 0},   {20, 0, 3, 0, 3, 2},
    {20, 0, 10, 0, 1, 0}, {19, 0, 10, 0, 0, 0},    {20, 0, 1, 9, 1, 0},   {20, 0, 1, 10, 0, 0}, {20, 0, 1, 11, 0, 0},
    {23, 2, 2, 4, 1, 1},  {20, 0, 65536, 0, 0, 0},
};

TEST(raw_length, .end = ARRAY_LEN(raw_lengths))
{
    uint8_t bytes[32] = {0};
    struct dsim_recording_config config = {
        .kind = DSIM_RECORDING_INT16,
        .header_bytes = raw_lengths[_i].header_bytes,
        .n_columns = raw_lengths[_i].n_columns,
        .column = raw_lengths[_i].n_columns - 1,
        .start_samples = raw_lengths[_i].start_samples,
    };

    write_file(bytes, raw_lengths[_i].file_bytes);
    if (raw_lengths[_i].n_samples == 0) {
        open_bad(config, -EINVAL, "start must be less");
        return;
    }
    open_good(config);
    ck_assert_int_eq(dsim_recording_n_samples(recording), raw_lengths[_i].n_samples);
    ck_assert_int_eq(dsim_recording_n_rest_bytes(recording), raw_lengths[_i].n_rest_bytes);
    double values[32];
    ck_assert_int_eq(dsim_recording_read(recording, 0, (size_t)raw_lengths[_i].n_samples, values, why, sizeof(why)), 0);
}

TEST(raw_nans)
{
    const float samples[] = {1, NAN, -INFINITY, -NAN, 2};
    const double wanted[] = {1, 0, -INFINITY, 0, 2};

    write_file(samples, sizeof(samples));
    open_good((struct dsim_recording_config){.kind = DSIM_RECORDING_FLOAT32, .n_columns = 1});
    check_run(wanted, 0, 5);
    ck_assert_uint_eq(counter_get(&counters.n_invalid_samples), 2);
}

TEST(no_file, .end = 2)
{
    struct dsim_recording_config config = {.kind = _i ? DSIM_RECORDING_VDIF : DSIM_RECORDING_INT8, .n_columns = 1};

    open_bad(config, -ENOENT, "No such file");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    open_bad(config, -EINVAL, "not a regular file");
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    open_bad(config, -EISDIR, "not a regular file");
    rmdir(path);
}

/* A file that is cut while it plays is read up to there, and then an error that says where. */
TEST(raw_cut)
{
    uint8_t bytes[200];
    double values[100];

    memset(bytes, 1, sizeof(bytes));
    write_file(bytes, sizeof(bytes));
    open_good((struct dsim_recording_config){.kind = DSIM_RECORDING_INT16, .n_columns = 1});
    ck_assert_int_eq(truncate(path, 121), 0);
    ck_assert_int_eq(dsim_recording_read(recording, 0, 60, values, why, sizeof(why)), 0);
    ck_assert_int_eq(dsim_recording_read(recording, 59, 2, values, why, sizeof(why)), -ENODATA);
    ck_assert_msg(strstr(why, "has only 121 bytes now, but had 200 when"), "'%s'", why);
}

/* ---- Complex files ----------------------------------------------------------------------------------------------- */

#define N_ROWS 4200
#define N_EDGE 32 /* rows of the filter beyond an end */

/* A tone, complex, in one of the columns; samples of random numbers in the others. */
static void write_tone(double amplitude, double cycles_per_row, const struct dsim_recording_config *config)
{
    size_t n_columns = (size_t)config->n_columns, header = (size_t)config->header_bytes;
    size_t file_bytes = header + N_ROWS * n_columns * 4;
    uint8_t *file = malloc(file_bytes);

    random_bytes(file, file_bytes);
    for (size_t row = 0; row < N_ROWS; row++) {
        double angle = 2 * M_PI * fmod(cycles_per_row * (double)row, 1);
        int parts[2] = {(int)lrint(amplitude * cos(angle)), (int)lrint(amplitude * sin(angle))};
        for (size_t part = 0; part < 2; part++) {
            uint8_t *at = file + header + (row * n_columns + (size_t)config->column) * 4 + 2 * part;
            at[0] = (uint8_t)parts[part];
            at[1] = (uint8_t)(parts[part] >> 8);
        }
    }
    write_file(file, file_bytes);
    free(file);
}

/* A tone at f cycles a sample of the file is one at 1/4 + f/2; real parts are exact, imaginary ones to -90 dB and what the
 * rounding of the file does.  The same samples whatever runs they are read in. */
TEST(complex_tones, .end = 4)
{
    static double again[2 * N_ROWS];
    double cycles = random_between(-0.45, 0.45), amplitude = 29000;
    struct dsim_recording_config config = {.kind = DSIM_RECORDING_CI16, .n_columns = 1 + (int64_t)random_below(3)};
    size_t n;

    config.column = (int64_t)random_below((size_t)config.n_columns);
    config.header_bytes = (int64_t)random_below(50);
    config.start_samples = _i % 2 ? (int64_t)random_below(100) : 0;
    write_tone(amplitude, cycles, &config);
    open_good(config);
    n = 2 * (size_t)(N_ROWS - config.start_samples);
    ck_assert_int_eq(dsim_recording_n_samples(recording), (int64_t)n);
    expected = malloc(n * sizeof(*expected));
    ck_assert_int_eq(dsim_recording_read(recording, 0, n, expected, why, sizeof(why)), 0);
    for (size_t i = 0; i < n; i++) {
        double row = (double)config.start_samples + (double)i / 2;
        double wanted = amplitude * cos(2 * M_PI * fmod(cycles * row + (double)(i % 4) / 4, 1));
        if (i % 2 == 0)
            ck_assert_double_eq(expected[i], rint(wanted));
        else if (i / 2 >= N_EDGE && i / 2 < n / 2 - N_EDGE)
            ck_assert_double_eq_tol(expected[i], wanted, 3.2e-5 * amplitude + 2);
    }
    check_all(expected);
    ck_assert_int_eq(dsim_recording_read(recording, 1, n - 1, again, why, sizeof(why)), 0);
    ck_assert_mem_eq(again, expected + 1, (n - 1) * sizeof(*again));
}

TEST(complex_length)
{
    const struct dsim_recording_config config = {.kind = DSIM_RECORDING_CI16, .header_bytes = 1, .n_columns = 1};
    const uint8_t bytes[12] = {0, 1, 0, 2, 0};

    write_file(bytes, 4);
    open_bad(config, -EINVAL, "hold 0 samples");
    write_file(bytes, 12);
    open_good(config);
    ck_assert_int_eq(dsim_recording_n_samples(recording), 4);
    ck_assert_int_eq(dsim_recording_n_rest_bytes(recording), 3);
}

/* ---- VDIF -------------------------------------------------------------------------------------------------------- */

#define BITS            8
#define LOG2_CHANNELS   1
#define N_CHANNELS      2
#define FRAME_SAMPLES   12
#define PAYLOAD_BYTES   (FRAME_SAMPLES * N_CHANNELS)
#define FPS             25
#define RATE_HZ         (FPS * FRAME_SAMPLES)
#define FIRST_SECOND    1000
#define FIRST_FRAME     7
#define DISORDER        16 /* as the header of the code says */
#define MAX_FILE_FRAMES 4096

/* A frame as the test writes it. */
struct frame {
    int64_t index; /* from that of (FIRST_SECOND, FIRST_FRAME) */
    unsigned thread;
    bool is_invalid;
};

struct file {
    struct frame frames[MAX_FILE_FRAMES];
    size_t n;
    bool is_legacy;
    uint8_t bytes[MAX_FILE_FRAMES * (32 + PAYLOAD_BYTES)];
    size_t n_bytes;
};

static struct file file; /* one for each test's process */

static size_t frame_bytes(void)
{
    return (file.is_legacy ? 16 : 32) + PAYLOAD_BYTES;
}

static void add_frame(int64_t index, unsigned thread)
{
    ck_assert_uint_lt(file.n, MAX_FILE_FRAMES);
    file.frames[file.n++] = (struct frame){.index = index, .thread = thread};
}

/* The code of a sample, different everywhere. */
static uint8_t code_of(int64_t sample, unsigned thread, unsigned channel)
{
    uint64_t x = ((uint64_t)sample * 64 + thread * 2 + channel) * UINT64_C(0x9E3779B97F4A7C15);

    return (uint8_t)(x >> 56);
}

static void store_word(uint8_t *bytes, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(word >> (8 * i));
}

static void write_frame(const struct frame *frame, uint8_t *bytes)
{
    int64_t number = frame->index + FIRST_FRAME;
    int64_t second = FIRST_SECOND + floor_div(number, FPS);
    uint8_t *payload = bytes + frame_bytes() - PAYLOAD_BYTES;

    memset(bytes, 0, frame_bytes());
    store_word(bytes, (uint32_t)frame->is_invalid << 31 | (uint32_t)file.is_legacy << 30 | (uint32_t)second);
    store_word(bytes + 4, 40U << 24 | (uint32_t)(number - round_down(number, FPS)));
    store_word(bytes + 8, 1U << 29 | LOG2_CHANNELS << 24 | (uint32_t)frame_bytes() / 8);
    store_word(bytes + 12, (BITS - 1) << 26 | frame->thread << 16 | 0x4142);
    for (int i = 0; i < FRAME_SAMPLES; i++)
        for (unsigned channel = 0; channel < N_CHANNELS; channel++)
            payload[i * N_CHANNELS + (int)channel] = code_of(frame->index * FRAME_SAMPLES + i, frame->thread, channel);
}

static uint8_t *bytes_of_frame(size_t k)
{
    return file.bytes + k * frame_bytes();
}

static void write_frames(void)
{
    for (size_t k = 0; k < file.n; k++)
        write_frame(&file.frames[k], bytes_of_frame(k));
    file.n_bytes = file.n * frame_bytes();
    write_file(file.bytes, file.n_bytes);
}

/* What a thread's channel must give, by the frames in the file; sets *n_zeros for the frames that are absent. */
static void expect(unsigned thread, unsigned channel, int64_t n_frames)
{
    free(expected);
    expected = calloc((size_t)n_frames * FRAME_SAMPLES, sizeof(*expected));

    for (size_t k = 0; k < file.n; k++) {
        const struct frame *frame = &file.frames[k];
        if (frame->thread != thread || frame->is_invalid || frame->index < 0 || frame->index >= n_frames)
            continue;
        for (int i = 0; i < FRAME_SAMPLES; i++) {
            int64_t sample = frame->index * FRAME_SAMPLES + i;
            expected[sample] = (double)code_of(sample, thread, channel) - 128;
        }
    }
}

static struct dsim_recording_config vdif_config(unsigned thread, unsigned channel)
{
    return (struct dsim_recording_config){.kind = DSIM_RECORDING_VDIF,
                                          .thread = thread,
                                          .channel = channel,
                                          .sample_rate_hz = {.mantissa = RATE_HZ, .n_decimals = 0}};
}

static void check_counters(uint64_t n_missing, uint64_t n_invalid, uint64_t n_bad, uint64_t n_late, uint64_t n_double)
{
    ck_assert_uint_eq(counter_get(&counters.n_missing_samples), n_missing);
    ck_assert_uint_eq(counter_get(&counters.n_invalid_samples), n_invalid);
    ck_assert_uint_eq(counter_get(&counters.n_bad_frames), n_bad);
    ck_assert_uint_eq(counter_get(&counters.n_late_frames), n_late);
    ck_assert_uint_eq(counter_get(&counters.n_double_frames), n_double);
}

/* Frames of three threads over several seconds, in order. */
static void make_orderly(int64_t n_frames)
{
    for (int64_t index = 0; index < n_frames; index++)
        for (unsigned thread = 0; thread < 3; thread++)
            add_frame(index, 3 * thread + 1);
    write_frames();
}

TEST(vdif_in_order, .end = 2)
{
    file.is_legacy = _i;
    make_orderly(300);
    for (unsigned thread = 1; thread < 8; thread += 3) {
        for (unsigned channel = 0; channel < N_CHANNELS; channel++) {
            open_good(vdif_config(thread, channel));
            expect(thread, channel, 300);
            ck_assert_int_eq(dsim_recording_n_samples(recording), 300 * FRAME_SAMPLES);
            ck_assert_int_eq(dsim_recording_n_rest_bytes(recording), 0);
            check_all(expected);
        }
    }
    check_counters(0, 0, 0, 0, 0);
}

static int compare_keys(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Puts the frames in the order of their place plus up to 'disorder' frames of their thread, of which there are
 * n_threads. */
static void shuffle(double disorder, unsigned n_threads)
{
    static struct {
        double key;
        struct frame frame;
    } keyed[MAX_FILE_FRAMES];

    for (size_t k = 0; k < file.n; k++) {
        keyed[k].key = (double)k + random_between(0, disorder * n_threads);
        keyed[k].frame = file.frames[k];
    }
    qsort(keyed, file.n, sizeof(keyed[0]), compare_keys);
    for (size_t k = 0; k < file.n; k++)
        file.frames[k] = keyed[k].frame;
}

/* Out of order, with gaps, invalid frames and doubles, from a first frame that is in its place. */
TEST(vdif_disorder, .end = 4)
{
    uint64_t n_absent = 0, n_invalid = 0, n_doubles = 0;
    int64_t n_frames = 500;

    for (int64_t index = 0; index < n_frames; index++) {
        bool is_edge = index == 0 || index > n_frames - 3;
        for (unsigned thread = 0; thread < 3; thread++) {
            bool is_ours = thread == 2;
            if (!is_edge && random_below(10) == 0) {
                n_absent += is_ours;
                continue;
            }
            add_frame(index, thread);
            if (!is_edge && random_below(10) == 0) {
                file.frames[file.n - 1].is_invalid = true;
                n_invalid += is_ours;
            } else if (!is_edge && random_below(10) == 0) {
                add_frame(index, thread);
                n_doubles += is_ours;
            }
        }
    }
    shuffle((double)_i * DISORDER / 3, 3);
    for (size_t k = 0; k < file.n; k++) { /* the time axis begins with the first frame of the file */
        if (file.frames[k].index > 0)
            continue;
        struct frame first = file.frames[k];
        memmove(file.frames + 1, file.frames, k * sizeof(first));
        file.frames[0] = first;
        break;
    }
    write_frames();
    open_good(vdif_config(2, 1));
    expect(2, 1, n_frames);
    ck_assert_int_eq(dsim_recording_n_samples(recording), n_frames * FRAME_SAMPLES);
    check_run(expected, 0, n_frames * FRAME_SAMPLES);
    ck_assert_uint_eq(counter_get(&counters.n_missing_samples), n_absent * FRAME_SAMPLES);
    ck_assert_uint_eq(counter_get(&counters.n_invalid_samples), n_invalid * FRAME_SAMPLES);
    ck_assert_uint_eq(counter_get(&counters.n_double_frames) + counter_get(&counters.n_late_frames), n_doubles);
    ck_assert_uint_eq(counter_get(&counters.n_bad_frames), 0);
    check_all(expected);
}

/* What is displaced by more than a file may be is not played, and neither is anything in its place. */
TEST(vdif_late)
{
    for (int64_t index = 0; index < 1000; index++)
        if (index != 20)
            add_frame(index, 0);
        else
            for (int i = 0; i < 3; i++)
                add_frame(900, 0); /* early by far, and twice more */
    for (int64_t index = 0; index < 3; index++)
        file.frames[990 + index].index = 20;
    write_frames();
    open_good(vdif_config(0, 0));
    expect(0, 0, 1000);
    memset(expected + 20 * FRAME_SAMPLES, 0, FRAME_SAMPLES * sizeof(*expected));
    check_run(expected, 0, dsim_recording_n_samples(recording));
    ck_assert_uint_eq(counter_get(&counters.n_late_frames), 3);
    ck_assert_uint_eq(counter_get(&counters.n_missing_samples), (1 + 3) * FRAME_SAMPLES);
}

/* Frames that are early by far, one after each of many, do not hide those that are in their place. */
TEST(vdif_early)
{
    for (int64_t index = 0; index < 1000; index++) {
        add_frame(index, 0);
        if (index >= 200 && index < 300)
            add_frame(index + 700, 0);
    }
    write_frames();
    open_good(vdif_config(0, 0));
    expect(0, 0, 1000);
    check_run(expected, 0, dsim_recording_n_samples(recording));
    check_counters(0, 0, 0, 0, 0);
}

/* Neither do frames whose number is too low mislead a read that has to seek. */
TEST(vdif_seek)
{
    for (int64_t index = 0; index < 1000; index++)
        add_frame(index % 3 == 0 && index > 200 ? index - 200 : index, 0);
    write_frames();
    open_good(vdif_config(0, 1));
    expect(0, 1, 1000);
    check_all(expected);
}

/* Gaps longer than all that is looked ahead. */
TEST(vdif_long_gap)
{
    const int64_t edges[] = {0, 150, 220, 221, 360, 460};

    for (size_t i = 0; i < ARRAY_LEN(edges); i += 2)
        for (int64_t index = edges[i]; index < edges[i + 1]; index++)
            add_frame(index, 5);
    write_frames();
    open_good(vdif_config(5, 0));
    expect(5, 0, 460);
    ck_assert_int_eq(dsim_recording_n_samples(recording), 460 * FRAME_SAMPLES);
    check_run(expected, 0, 460 * FRAME_SAMPLES);
    check_counters((70 + 139) * FRAME_SAMPLES, 0, 0, 0, 0);
    check_all(expected);
}

/* Headers that contradict the others are left out, wherever they are but at the very beginning. */
TEST(vdif_wrong_headers, .end = 6)
{
    const size_t wrong[] = {1, 50, 51, 120, 121, 122, 297, 298, 299};

    for (int64_t index = 0; index < 300; index++)
        add_frame(index, 3);
    write_frames();
    expect(3, 1, 300);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        uint8_t *bytes = bytes_of_frame(wrong[i]);
        memset(expected + wrong[i] * FRAME_SAMPLES, 0, FRAME_SAMPLES * sizeof(*expected));
        switch ((i + (size_t)_i) % 6) {
        case 0: bytes[1] ^= 0x08; break;  /* seconds */
        case 1: bytes[7] ^= 0x01; break;  /* epoch */
        case 2: bytes[6] ^= 0x01; break;  /* number in the second */
        case 3: bytes[8] ^= 0x04; break;  /* length */
        case 4: bytes[11] ^= 0x02; break; /* channels */
        case 5: bytes[15] ^= 0x84; break; /* complex, bits */
        }
    }
    write_file(file.bytes, file.n_bytes);
    open_good(vdif_config(3, 1));
    ck_assert_int_eq(dsim_recording_n_samples(recording), 297 * FRAME_SAMPLES);
    check_run(expected, 0, 297 * FRAME_SAMPLES);
    ck_assert_uint_eq(counter_get(&counters.n_bad_frames), ARRAY_LEN(wrong));
    ck_assert_uint_eq(counter_get(&counters.n_missing_samples), 6 * FRAME_SAMPLES);
}

/* Threads share the time axis of the file's first frame, wherever their own first one is. */
TEST(vdif_threads_begin_apart)
{
    for (int64_t index = 0; index < 200; index++) {
        add_frame(index, 1);
        if (index >= 3)
            add_frame(index - 5, 2); /* the first two belong before the beginning */
        if (index >= FPS)
            add_frame(index, 3);
    }
    write_frames();
    const struct {
        unsigned thread;
        int64_t n_frames, n_missing;
    } threads[] = {{1, 200, 0}, {2, 195, 0}, {3, 200, FPS}};
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        open_good(vdif_config(threads[i].thread, 0));
        expect(threads[i].thread, 0, threads[i].n_frames);
        memset(&counters, 0, sizeof(counters));
        ck_assert_int_eq(dsim_recording_n_samples(recording), threads[i].n_frames * FRAME_SAMPLES);
        check_run(expected, 0, threads[i].n_frames * FRAME_SAMPLES);
        check_counters((uint64_t)threads[i].n_missing * FRAME_SAMPLES, 0, 0, 0, 0);
    }
}

/* A start inside a frame, in the first and in the last one. */
TEST(vdif_start)
{
    const int64_t starts[] = {1, FRAME_SAMPLES - 1, FRAME_SAMPLES, 100 * FRAME_SAMPLES + 5, 300 * FRAME_SAMPLES - 1};

    make_orderly(300);
    expect(4, 0, 300);
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        struct dsim_recording_config config = vdif_config(4, 0);
        config.start_samples = starts[i];
        open_good(config);
        ck_assert_int_eq(dsim_recording_n_samples(recording), 300 * FRAME_SAMPLES - starts[i]);
        check_all(expected + starts[i]);
    }
    check_counters(0, 0, 0, 0, 0);
}

/* A recording that ends inside a frame; and one that is cut while it plays. */
TEST(vdif_cut)
{
    make_orderly(100);
    ck_assert_int_eq(truncate(path, (off_t)(file.n_bytes - 1)), 0);
    open_good(vdif_config(7, 0));
    expect(7, 0, 100);
    ck_assert_int_eq(dsim_recording_n_samples(recording), 99 * FRAME_SAMPLES);
    ck_assert_int_eq(dsim_recording_n_rest_bytes(recording), (int64_t)frame_bytes() - 1);
    check_all(expected);
    size_t cut = 150 * frame_bytes() + 33;
    ck_assert_int_eq(truncate(path, (off_t)cut), 0);
    double values[MAX_SAMPLES];
    ck_assert_int_eq(dsim_recording_read(recording, 80 * FRAME_SAMPLES, 30, values, why, sizeof(why)), -ENODATA);
    ck_assert_msg(strstr(why, "has only 8433 bytes now"), "'%s'", why);
}

TEST(vdif_refused)
{
    struct dsim_recording_config config = vdif_config(1, 0);

    write_file("short", 5);
    open_bad(config, -EINVAL, "only 5 bytes");
    make_orderly(100);
    ck_assert_int_eq(truncate(path, (off_t)frame_bytes() - 1), 0);
    open_bad(config, -EINVAL, "the frame at byte 0 says that it has 56");
    write_frames();

    config = vdif_config(2, 0);
    open_bad(config, -EINVAL, "no thread 2 among its first 300 frames, but only 1, 4, 7;");
    config = vdif_config(1, N_CHANNELS);
    open_bad(config, -EINVAL, "has 2 channels; channel must be less");
    config = vdif_config(4, 0);
    config.start_samples = 100 * FRAME_SAMPLES;
    open_bad(config, -EINVAL, "has 1200 samples of thread 4; start must be less");
    config.start_samples = INT64_C(1000000000000000000);
    open_bad(config, -EINVAL, "start must be less");

    config = vdif_config(1, 0);
    config.sample_rate_hz.mantissa = RATE_HZ + 1;
    open_bad(config, -EINVAL, "sample_rate must be the rate");
    config.sample_rate_hz = (struct decimal){.mantissa = RATE_HZ, .n_decimals = 1};
    open_bad(config, -EINVAL, "2.500000 frames would fill a second");
    config.sample_rate_hz = (struct decimal){.mantissa = FIRST_FRAME * FRAME_SAMPLES, .n_decimals = 0};
    open_bad(config, -EINVAL, "number 7 of its second, but according to sample_rate a second has 7 frames");
    config.sample_rate_hz = (struct decimal){.mantissa = 10 * RATE_HZ, .n_decimals = 1};
    open_good(config);
    config.sample_rate_hz = (struct decimal){.mantissa = INT64_C(100000000008), .n_decimals = 0};
    open_bad(config, -EINVAL, "sample_rate must be the rate");

    bytes_of_frame(0)[15] |= 0x80;
    write_file(file.bytes, file.n_bytes);
    open_bad(vdif_config(4, 0), -EINVAL, "the frame at byte 0 holds complex samples");
    write_frames();
    bytes_of_frame(1)[15] |= 0x80;
    write_file(file.bytes, file.n_bytes);
    open_bad(vdif_config(4, 0), -EINVAL, "the frame at byte 56 holds complex samples");
    open_good(vdif_config(1, 0));

    write_frames();
    for (size_t k = 2; k < file.n; k += 3)
        bytes_of_frame(k)[1] ^= 0x08; /* 2048 s later */
    write_file(file.bytes, file.n_bytes);
    open_bad(vdif_config(7, 0), -EINVAL, "the frame at byte 112, the first of thread 7, is 2048.000 s after");
    open_good(vdif_config(4, 0));

    write_frames();
    for (size_t k = 100; k < file.n; k++)
        bytes_of_frame(k)[1] ^= 0x08;
    write_file(file.bytes, file.n_bytes);
    open_bad(vdif_config(7, 0), -EINVAL, "but is less than half as long");
}

/* Whatever stands in the file, it is refused in one sentence or read to the end; and frames that are as they were
 * written are right. */
TEST(vdif_rubbish)
{
    int n_opened = 0;

    for (int round = 0; round < 120; round++) {
        file.n = 0;
        make_orderly(50);
        size_t n_wrong = 1 + random_below(round % 3 == 0 ? 2000 : 30);
        for (size_t i = 0; i < n_wrong; i++) {
            size_t k = random_below(file.n), at = random_below(round % 2 ? 16 : frame_bytes());
            bytes_of_frame(k)[at] = (uint8_t)random_u64();
        }
        write_file(file.bytes, file.n_bytes - (round % 5 ? 0 : random_below(file.n_bytes)));
        close_recording();
        if (try_open(vdif_config(4, 0), &recording)) {
            ck_assert_msg(strstr(why, path), "'%s'", why);
            continue;
        }
        n_opened++;
        int64_t n = dsim_recording_n_samples(recording);
        ck_assert_int_gt(n, 0);
        for (int64_t first = 0; first < n; first += MAX_SAMPLES) {
            double values[MAX_SAMPLES];
            size_t n_read = n - first < MAX_SAMPLES ? (size_t)(n - first) : MAX_SAMPLES;
            ck_assert_int_eq(dsim_recording_read(recording, first, n_read, values, why, sizeof(why)), 0);
            for (size_t i = 0; i < n_read; i++)
                ck_assert(values[i] >= -2147483648.0 && values[i] <= 2147483647.0);
        }
    }
    ck_assert_int_gt(n_opened, 10);
}

static void start(void)
{
    log_init("check_dsim_recording", LOG_LEVEL_ERROR);
    random_start();
    if (!mkdtemp(directory))
        abort();
}

static void finish(void)
{
    rmdir(directory);
}

SUITE(.timeout_s = 60, .setup = setup, .teardown = teardown, .start = start, .finish = finish);
