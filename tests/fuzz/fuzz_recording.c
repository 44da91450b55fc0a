/* fuzz_recording.c - any bytes as a recording that dsim plays, raw, complex or VDIF.
 *
 * Input: kind, start, header, columns, column, thread, channel, rate; then the file.  A recording that opens can be
 * read from its first sample to its last, and has no NaN.  Seeking the same position twice gives the same samples.  A
 * read that continues the one before gives the same samples too, unless a counter says that frames are missing, wrong
 * or too far out of order. */
#include "tools/dsim/recording.h"

#include "common/base/units.h"
#include "tests/fuzz/fuzz_input.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_READ 300

static char path[64]; /* of a file in memory */
static int fd = -1;

static void open_file(void)
{
    fd = memfd_create("recording", MFD_CLOEXEC);
    assert(fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
}

static void put(const uint8_t *bytes, size_t n_bytes)
{
    assert(ftruncate(fd, 0) == 0);
    assert(pwrite(fd, bytes, n_bytes, 0) == (ssize_t)n_bytes);
}

/* Reads as many samples as there are, N_READ at most.  Returns how many. */
static size_t read_at(struct dsim_recording *recording, int64_t first, double *values)
{
    int64_t n = dsim_recording_n_samples(recording) - first;
    char why[400] = "";

    if (n > N_READ)
        n = N_READ;
    int err = dsim_recording_read(recording, first, (size_t)n, values, why, sizeof(why));
    assert(!err);
    for (int64_t i = 0; i < n; i++)
        assert(!isnan(values[i]));
    return (size_t)n;
}

static uint64_t count_faults(const struct dsim_recording_counters *counters)
{
    return counter_get(&counters->n_missing_samples) + counter_get(&counters->n_bad_frames) +
           counter_get(&counters->n_late_frames) + counter_get(&counters->n_double_frames);
}

static void read_all(struct dsim_recording *recording, const struct dsim_recording_counters *counters,
                     struct fuzz_input *places)
{
    static double values[N_READ], sought[N_READ], again[N_READ];
    int64_t n_samples = dsim_recording_n_samples(recording);
    int64_t firsts[] = {
        0, N_READ, 2 * N_READ, n_samples - 1, n_samples / 2, n_samples * (int64_t)fuzz_u8(places) / 256};

    assert(n_samples > 0 && dsim_recording_n_rest_bytes(recording) >= 0);
    for (size_t i = 0; i < ARRAY_LEN(firsts); i++) {
        if (firsts[i] >= n_samples)
            continue;
        uint64_t n_faults = count_faults(counters);
        size_t n = read_at(recording, firsts[i], values);
        assert(read_at(recording, firsts[i], sought) == n && read_at(recording, firsts[i], again) == n);
        assert(memcmp(sought, again, n * sizeof(sought[0])) == 0);
        if (count_faults(counters) == n_faults)
            assert(memcmp(values, sought, n * sizeof(sought[0])) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const int64_t rates_hz[] = {8, 8000, 32000000, 1712000000};
    struct fuzz_input input = {data, n_bytes}, places = {data, n_bytes};
    struct dsim_recording_counters counters = {0};
    struct dsim_recording *recording;
    char why[400] = "";

    if (fd < 0)
        open_file();
    struct dsim_recording_config config = {.kind = fuzz_u8(&input) % (DSIM_RECORDING_CI16 + 1), .path = path};
    config.start_samples = fuzz_u8(&input);
    config.header_bytes = fuzz_u8(&input);
    config.n_columns = 1 + fuzz_u8(&input) % 8;
    config.column = (int64_t)fuzz_u8(&input) % config.n_columns;
    config.thread = fuzz_u8(&input) % 4;
    config.channel = fuzz_u8(&input) % 4;
    config.sample_rate_hz = (struct decimal){.mantissa = rates_hz[fuzz_u8(&input) % ARRAY_LEN(rates_hz)]};
    put(input.at, input.n_left);
    int err = dsim_recording_open(&config, N_READ, &counters, &recording, why, sizeof(why));
    if (err) {
        assert(why[0]);
        return 0;
    }
    read_all(recording, &counters, &places);
    dsim_recording_close(recording);
    return 0;
}
