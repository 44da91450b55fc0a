/* check_baseband - from input to input.  Every sample that a device input allows is present, at its place on the grid.
 * Each sample equals its definition in long double, computed from the samples of the stream.  Steps divide neither
 * chunks nor timestamps.  Streams have gaps, and a stream begins again at the same time. */
#include "common/config/config.h"
#include "common/device/device.h"
#include "common/base/units.h"
#include "fgpu/input/device_input.h"
#include "fgpu/input/baseband.h"
#include "fgpu/config_check.h"
#include "fgpu/output.h"
#include "kernels/ddc/ddc.h"

#include "tests/unit/test_config.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

#define CHUNK    INT64_C(4096)
#define RATE     INT64_C(1000000007)
#define CENTRE   INT64_C(123456789)
#define N_CHUNKS 12
#define N_STREAM (N_CHUNKS * CHUNK)

struct fixture {
    struct fgpu_config values;
    struct config *config;
    struct fgpu_layout layout;
    struct test_device d;
    struct fgpu_baseband *baseband;
    struct fgpu_device_input input;
    int64_t start;          /* timestamp of stream[0] */
    int8_t *stream[N_POLS]; /* [N_STREAM] */
    int64_t subsampling;    /* A */
    int64_t n_taps;
    float *filter;
};

static void load(struct fixture *f, int decimation, bool keep)
{
    char yaml[1000];

    snprintf(
        yaml, sizeof(yaml),
        "time: {sync_time: 0, adc_sample_rate: %lld}\n"
        "device: {kind: cpu}\n"
        "recv: {packet_samples: 256, chunk_samples: %lld, max_delay_diff: 0, sample_bits: 8}\n"
        "antennas: [{name: a, feng_id: 0, pol0: 239.1.0.0, pol1: 239.1.0.1}]\n"
        "outputs: [{kind: narrowband, name: n, channels: 64, spectra_per_heap: 16, taps: 1, destinations: 239.2.0.0,\n"
        "           centre_frequency: %lld, decimation: %d, pass_bandwidth: %g}]\n"
        "send: {pcap_file: /dev/null}\n",
        (long long)RATE, (long long)CHUNK, (long long)CENTRE, decimation,
        keep ? 0.6 * (double)RATE / 2 / decimation : 0);
    load_config(&fgpu_config_table, yaml, &f->values, &f->config);
    fgpu_config_check(&f->values, f->config);
    config_print_errors(f->config, stdout);
    ck_assert_uint_eq(config_n_errors(f->config), 0);
}

/* Returns false where there is no such device. */
static bool setup(struct fixture *f, bool cuda, int decimation, bool keep)
{
    memset(f, 0, sizeof(*f));
    if (cuda && !test_device_open(&f->d))
        return false;
    if (!cuda) {
        f->d.device = test_open_kind(DEVICE_CPU, 2);
        ck_assert_int_eq(device_stream_create(f->d.device, "test", &f->d.stream), 0);
    }
    load(f, decimation, keep);
    const struct fgpu_config_output *output = fgpu_config_output(&f->values, 0);
    f->subsampling = fgpu_subsampling(output);
    ck_assert_int_eq(f->subsampling, decimation * (keep ? 2 : 1));
    f->n_taps = fgpu_band_taps(&output->band);
    fgpu_layout_init(&f->layout, &f->values);
    ck_assert_int_eq(fgpu_baseband_design(&f->values, &output->band, &f->filter), 0);
    ck_assert_int_eq(fgpu_baseband_create(&f->values, &f->layout, f->d.device, &output->band, f->filter,
                                          &(struct ddc_shape){0}, 0, &f->baseband),
                     0);
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        f->input.samples[pol] = device_alloc(f->d.device, fgpu_device_input_bytes(&f->layout));
        device_fill(f->d.stream, f->input.samples[pol], 0x5a, fgpu_device_input_bytes(&f->layout));
        f->stream[pol] = malloc(N_STREAM);
        random_bytes(f->stream[pol], N_STREAM);
    }
    return true;
}

static void teardown(struct fixture *f)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        device_free(f->d.device, f->input.samples[pol]);
        free(f->stream[pol]);
    }
    fgpu_baseband_destroy(f->baseband);
    free(f->filter);
    config_free(&fgpu_config_table, &f->values, f->config);
    test_device_close(&f->d);
}

/* Chunk 'c' of the stream, behind as much of it as its history holds; 0x5a where that is none of the stream. */
static void advance(struct fixture *f, int64_t c, bool has_history)
{
    int64_t first = c * CHUNK - f->layout.history_samples;
    size_t n = (size_t)(f->layout.history_samples + CHUNK);
    uint8_t *pinned = device_alloc_pinned(f->d.device, n);

    f->input.timestamp_samples = f->start + first;
    f->input.has_history = has_history;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        for (int64_t i = 0; i < (int64_t)n; i++)
            pinned[i] = first + i >= (has_history ? 0 : c * CHUNK) ? (uint8_t)f->stream[pol][first + i] : 0x5a;
        device_copy(f->d.stream, f->input.samples[pol], pinned, n);
        device_stream_wait(f->d.stream);
    }
    device_free_pinned(f->d.device, pinned);
    for (int again = 0; again < 2; again++)
        fgpu_baseband_advance(f->baseband, f->d.stream, &f->input);
}

/* Samples of the band whose filters lie in the input's samples [from, end): some, with the first and the last. */
static void compare(const struct fixture *f, int64_t c, bool has_history)
{
    int64_t from = f->start + c * CHUNK - (has_history ? f->layout.history_samples : 0);
    int64_t first = round_up(from, f->subsampling), end = f->start + (c + 1) * CHUNK - f->n_taps;
    int64_t last = round_down(end, f->subsampling), n = (last - first) / f->subsampling + 1;
    size_t bytes = (size_t)(fgpu_baseband_index(f->baseband, last) + 1) * 2 * sizeof(float);
    float *out = malloc(bytes);

    ck_assert_int_gt(n, 0);
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        test_download(&f->d, out, fgpu_baseband_samples(f->baseband, pol), bytes);
        for (int64_t i = 0; i < n; i += i < 3 || i > n - 4 ? 1 : 1 + (int64_t)random_below((size_t)(n - i - 1))) {
            int64_t t = first + i * f->subsampling, at = fgpu_baseband_index(f->baseband, t);
            long double re = 0, im = 0, scale = 0;
            for (int64_t k = 0; k < f->n_taps; k++) {
                long double turns = -(long double)((__int128)CENTRE * (t + k) % RATE) / RATE;
                long double x = f->stream[pol][t + k - f->start] * (long double)f->filter[k];
                re += x * cosl(2 * M_PIl * turns);
                im += x * sinl(2 * M_PIl * turns);
                scale += 128 * fabsl(f->filter[k]);
            }
            if (!(hypotl(re - out[2 * at], im - out[2 * at + 1]) <= DDC_TOLERANCE * scale))
                ck_abort_msg("step %ld, chunk %ld, pol %u: sample %ld of %ld is %g %g, not %Lg %Lg",
                             (long)f->subsampling, (long)c, pol, (long)i, (long)n, out[2 * at], out[2 * at + 1], re,
                             im);
        }
    }
    free(out);
}

static const struct {
    int decimation;
    bool keep;
} rows[] = {{2, false}, {3, false}, {7, false}, {8, false}, {1, true}, {3, true}, {11, false}};

static void run(bool cuda, size_t row)
{
    static const int64_t starts[] = {0, 37 * CHUNK, INT64_C(1) << 47};
    struct fixture f;

    if (!setup(&f, cuda, rows[row].decimation, rows[row].keep))
        return;
    for (size_t s = 0; s < ARRAY_LEN(starts); s++) {
        f.start = starts[s];
        for (int64_t c = 0; c < N_CHUNKS; c += c == 5 ? 2 : 1) { /* without chunk 6 */
            bool has_history = c > 0 && c != 7;
            advance(&f, c, has_history);
            compare(&f, c, has_history);
        }
    }
    /* A stream that begins where the last one ended. */
    fgpu_baseband_restart(f.baseband);
    random_bytes(f.stream[0], N_STREAM);
    advance(&f, N_CHUNKS - 1, false);
    compare(&f, N_CHUNKS - 1, false);
    teardown(&f);
}

TEST(cpu, .end = ARRAY_LEN(rows))
{
    run(false, (size_t)_i);
}

TEST(cuda, .end = 4)
{
    run(true, (size_t)_i);
}

SUITE(.timeout_s = 120, .start = random_start);
