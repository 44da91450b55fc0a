/* check_walk - commands between one input and the next.  The input is constant, so the channel at 0 Hz is the sum of the
 * filter's weights times gain, turned by pi / 2 for each sample of delay (that is -2 pi (f - fs / 4) d), plus the phase. */
#include "common/config.h"
#include "common/device.h"
#include "common/inbox.h"
#include "common/presence.h"
#include "common/units.h"
#include "device_under_test.h"
#include "fgpu/walk.h"

#include <check.h>
#include <complex.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_CHAN        64
#define N_TAPS        2
#define BATCH         INT64_C(2048) /* 16 spectra of 128 samples */
#define CHUNK         INT64_C(8192)
#define PACKET        256
#define SAMPLE        20 /* the constant */
#define N_BUFFERS     16
#define START_SAMPLES (CHUNK * 1000)

static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1e9}\n"
                           "device: {kind: cpu}\n"
                           "recv: {packet_samples: 256, chunk_samples: 8192, max_delay_diff: 512, sample_bits: 8}\n"
                           "antennas: [{name: a, feng_id: 0, pol0: 239.1.0.0, pol1: 239.1.0.1}]\n"
                           "outputs: [{name: w, channels: 64, spectra_per_heap: 16, taps: 2, buffers: 16,\n"
                           "           dither: none, gain: 1, destinations: 239.2.0.0}]\n"
                           "send: {pcap_file: /dev/null}\n";

struct fixture {
    struct fgpu_config values;
    struct config *config;
    struct fgpu_layout layout;
    struct device *device;
    struct device_stream *compute, *download;
    struct inbox *worker;
    struct fgpu_send *send;
    struct fgpu_stream *stream;
    struct fgpu_walk *walk;
    struct fgpu_device_input input;
    int64_t n_chunks; /* that the walk has seen */
    struct fgpu_delays delays;
    struct sensors *sensors;
};

static void load(struct fixture *f)
{
    char path[] = "/tmp/check_walk.XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, yaml, strlen(yaml)), (ssize_t)strlen(yaml));
    close(fd);
    int err = config_load(&fgpu_config_table, path, &f->values, &f->config);
    unlink(path);
    config_print_errors(f->config, stdout);
    ck_assert_int_eq(err, 0);
}

/* Both polarisations, history and chunk: constant and all there. */
static void make_input(struct fixture *f)
{
    size_t n_heaps = f->layout.history_heaps + f->layout.heaps_per_chunk, bytes = fgpu_device_input_bytes(&f->layout);
    uint8_t *samples = malloc(bytes);

    memset(samples, SAMPLE, bytes);
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        f->input.samples[pol] = device_alloc(f->device, bytes);
        test_write(f->compute, f->input.samples[pol], samples, bytes);
        f->input.present[pol] = malloc(n_heaps);
        memset(f->input.present[pol], 1, n_heaps);
        f->input.sums[pol] = calloc(n_heaps + 1, sizeof(uint32_t));
        presence_sums(f->input.present[pol], n_heaps, f->input.sums[pol]);
    }
    free(samples);
}

static void setup(struct fixture *f)
{
    static const struct channelise_choice no_choice;
    char why[600] = "";

    memset(f, 0, sizeof(*f));
    load(f);
    f->device = test_open_device(1);
    fgpu_layout_init(&f->layout, &f->values, device_shared_bytes(f->device), NULL, 0);
    ck_assert_int_eq(device_stream_create(f->device, "compute", &f->compute), 0);
    ck_assert_int_eq(device_stream_create(f->device, "download", &f->download), 0);
    ck_assert_int_eq(inbox_create(2 * N_BUFFERS, &f->worker), 0);
    ck_assert_int_eq(sensors_create(&f->sensors), 0);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        delay_queue_init(&f->delays.pols[pol]);
    const struct fgpu_send_config send = {&f->values, &f->layout, f->device, f->worker, 1, 2, f->sensors};
    ck_assert_msg(fgpu_send_create(&send, &f->send, why, sizeof(why)) == 0, "%s", why);
    f->stream = fgpu_send_stream(f->send, 0, 0);
    const struct fgpu_walk_config walk = {&f->values, &f->layout, f->device, f->compute, f->download,
                                          f->stream,  0,          0,         &no_choice};
    ck_assert_int_eq(fgpu_walk_create(&walk, &f->walk), 0);
    make_input(f);
}

static void teardown(struct fixture *f)
{
    device_stream_destroy(f->compute);
    device_stream_destroy(f->download);
    fgpu_walk_destroy(f->walk);
    fgpu_send_destroy(f->send);
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        device_free(f->device, f->input.samples[pol]);
        free(f->input.present[pol]);
        free(f->input.sums[pol]);
    }
    sensors_destroy(f->sensors);
    inbox_destroy(f->worker);
    config_free(&fgpu_config_table, &f->values, f->config);
    device_close(f->device);
}

/* The next chunk. */
static void advance(struct fixture *f)
{
    int64_t timestamp = START_SAMPLES + f->n_chunks * CHUNK;

    f->input.timestamp_samples = timestamp - f->layout.history_samples;
    f->input.has_history = f->n_chunks++ > 0;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        f->input.first_samples[pol] = timestamp;
        f->input.end_samples[pol] = timestamp + CHUNK;
    }
    ck_assert_msg(fgpu_walk_advance(f->walk, &f->input, true), "no buffer for chunk %d", (int)f->n_chunks - 1);
}

/* Sum of the weights, from their definition. */
static double weights_sum(void)
{
    double sum = 0, squares = 0;
    int n = N_TAPS * 2 * N_CHAN;

    for (int i = 0; i < n; i++) {
        double x = M_PI * ((i + 0.5) / (2 * N_CHAN) - N_TAPS / 2.0), s = sin(M_PI * i / (n - 1));
        sum += s * s * sin(x) / x;
        squares += pow(s * s * sin(x) / x, 2);
    }
    return sum / sqrt(squares);
}

/* Takes the buffer that was finished next: it must begin at 'timestamp', and its spectra's first channel be 'expected'
 * in both polarisations. */
static void check_buffer(struct fixture *f, int64_t timestamp, double complex expected)
{
    struct inbox_item item;

    device_stream_wait(f->compute);
    device_stream_wait(f->download);
    ck_assert_int_eq(inbox_try_pop(f->worker, &item), 0);
    struct fgpu_buffer *buffer = item.object;
    ck_assert_int_eq(buffer->timestamp_samples, timestamp);
    ck_assert(buffer->job.groups[0].send);
    const int8_t *values = (const int8_t *)buffer->voltages; /* [chan][spectrum][pol][2] */
    for (size_t i = 0; i < 16 * N_POLS; i++) {
        ck_assert_double_eq_tol(values[2 * i], creal(expected), 0.501);
        ck_assert_double_eq_tol(values[2 * i + 1], cimag(expected), 0.501);
    }
    for (unsigned pol = 0; pol < N_POLS; pol++)
        ck_assert_uint_eq(buffer->power[pol], (uint64_t)SAMPLE * SAMPLE * BATCH);
    fgpu_stream_give(buffer);
}

static void check_no_buffer(struct fixture *f)
{
    struct inbox_item item;

    device_stream_wait(f->compute);
    device_stream_wait(f->download);
    ck_assert_int_eq(inbox_try_pop(f->worker, &item), -EAGAIN);
}

static int64_t set_gains(struct fixture *f, double complex gain)
{
    struct fgpu_gains *gains = fgpu_walk_take_gains(f->walk);

    ck_assert_ptr_nonnull(gains);
    ck_assert_uint_eq(gains->ant, 0);
    ck_assert_uint_eq(gains->output, 0);
    for (size_t i = 0; i < N_CHAN * N_POLS; i++) {
        gains->values[2 * i] = (float)creal(gain);
        gains->values[2 * i + 1] = (float)cimag(gain);
    }
    return fgpu_walk_set_gains(f->walk, gains);
}

/* Returns from when on it holds. */
static int64_t set_delay_of(struct fixture *f, unsigned n_pols, int64_t start, double delay, double phase)
{
    const struct delay_model model = {.start_samples = start, .delay_samples = delay, .phase_rad = phase};

    for (unsigned pol = 0; pol < n_pols; pol++)
        ck_assert_int_eq(delay_queue_add(&f->delays.pols[pol], &model), 0);
    return fgpu_walk_set_delays(f->walk, &f->delays);
}

static int64_t set_delay(struct fixture *f, int64_t start, double delay, double phase)
{
    return set_delay_of(f, N_POLS, start, delay, phase);
}

/* The model in effect, since when, as the sensors say. */
static void check_model(struct fixture *f, int64_t since, int64_t start, double delay)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        struct sensor_reading reading = sensor_read(fgpu_walk_delay_sensor(f->walk, pol));
        if (start < 0) {
            ck_assert_int_eq(reading.unix_ns, 0); /* nobody has set it yet */
            continue;
        }
        int64_t shown;
        memcpy(&shown, reading.value.numbers, sizeof(shown));
        ck_assert_int_eq(reading.unix_ns, since); /* a sample is a nanosecond */
        ck_assert_int_eq(shown, start);
        ck_assert_double_eq_tol(reading.value.numbers[1], delay * 1e-9, 1e-22);
    }
}

/* A chunk has four batches; the last one's windows end in the next chunk.  So when gains come after a chunk one buffer is
 * being filled, and keeps the old ones. */
START_TEST(gains_hold_from_the_next_buffer)
{
    struct fixture f;
    const double one = SAMPLE * weights_sum();
    const double complex g[] = {1.0 / one * 50, 1.0 / one * 90 * I, 1.0 / one * (-30 + 40 * I)};

    setup(&f);
    set_gains(&f, g[0]);
    int64_t t = START_SAMPLES;
    for (int round = 0; round < 12; round++) {
        advance(&f);
        device_stream_wait(f.compute); /* those of the round before are back */
        /* Posted twice before they hold: the second counts, and the first is back at once. */
        set_gains(&f, 1.0);
        int64_t holds = set_gains(&f, g[(round + 1) % 3]);
        ck_assert_int_eq(holds, START_SAMPLES + (round + 1) * CHUNK); /* behind the buffer that has been begun */
        for (int b = 0; b < (round ? 4 : 3); b++, t += BATCH) /* the first of a round was begun in the one before */
            check_buffer(&f, t, g[(b == 0 && round ? round + 2 : round) % 3] * one);
        check_no_buffer(&f);
    }
    teardown(&f);
}
END_TEST

START_TEST(gains_run_out)
{
    struct fixture f;

    setup(&f);
    struct fgpu_gains *first = fgpu_walk_take_gains(f.walk), *second = fgpu_walk_take_gains(f.walk);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(second);
    ck_assert_ptr_null(fgpu_walk_take_gains(f.walk));
    fgpu_walk_set_gains(f.walk, second);
    ck_assert_ptr_null(fgpu_walk_take_gains(f.walk)); /* not before a buffer has been begun */
    advance(&f);
    device_stream_wait(f.compute);
    ck_assert_ptr_eq(fgpu_walk_take_gains(f.walk), second);
    teardown(&f);
}
END_TEST

/* From the spectrum that begins at a model's start. */
START_TEST(delays_hold_from_their_start)
{
    struct fixture f;
    const double one = SAMPLE * weights_sum();

    setup(&f);
    check_model(&f, 0, -1, 0);
    ck_assert_int_eq(set_gains(&f, 100 / one), 0); /* nothing is without it */
    advance(&f);
    int64_t t = START_SAMPLES;
    for (int b = 0; b < 3; b++, t += BATCH)
        check_buffer(&f, t, 100);
    /* The next spectrum is the first whose window of 256 samples, at steps of 128, ends in the next chunk. */
    ck_assert_int_eq(fgpu_walk_done_samples(f.walk), START_SAMPLES + CHUNK - 128);
    ck_assert_int_eq(set_delay(&f, START_SAMPLES + CHUNK + BATCH, 3.25, 0.5), START_SAMPLES + CHUNK - 128);
    ck_assert_int_eq(set_delay(&f, START_SAMPLES + CHUNK + 2 * BATCH, -7, 0), START_SAMPLES + CHUNK - 128);
    check_model(&f, 0, -1, 0);
    advance(&f);
    check_model(&f, START_SAMPLES + CHUNK + 2 * BATCH, START_SAMPLES + CHUNK + 2 * BATCH, -7);
    const double complex expected[] = {100, 100, 100 * cexp(I * (M_PI / 2 * 3.25 + 0.5)),
                                       100 * cexp(-I * M_PI / 2 * 7)};
    for (int b = 0; b < 4; b++, t += BATCH)
        check_buffer(&f, t, expected[b]);
    /* In the middle of a buffer: in effect since its start; one that is late, since the first spectrum with it. */
    const int64_t middle = START_SAMPLES + 2 * CHUNK + BATCH + 300;
    set_delay(&f, middle, 2, 0);
    advance(&f);
    check_model(&f, middle, middle, 2);
    int64_t next = set_delay(&f, middle + 1, 5, 0);
    advance(&f);
    check_model(&f, next, middle + 1, 5);
    teardown(&f);
}
END_TEST

/* A delay of one polarisation that is far too large, and is then taken back, costs what came meanwhile and no more. */
START_TEST(wrong_delays_can_be_taken_back)
{
    static const double wrong[] = {1e12, -1e12};

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct fixture f;
        const double one = SAMPLE * weights_sum();
        setup(&f);
        set_gains(&f, 100 / one);
        advance(&f);
        for (int b = 0; b < 3; b++)
            check_buffer(&f, START_SAMPLES + b * BATCH, 100);
        set_delay_of(&f, 1, 0, wrong[i], 0);
        for (int n = 0; n < 5; n++)
            advance(&f);
        check_no_buffer(&f);
        set_delay(&f, 0, 0, 0);
        advance(&f);
        /* The sixth chunk after the first, and its history of 256 + 512 samples, which is less than a batch. */
        for (int b = 0; b < 3; b++)
            check_buffer(&f, START_SAMPLES + 6 * CHUNK + b * BATCH, 100);
        check_no_buffer(&f);
        if (wrong[i] < 0) /* one that grows skips at once what it must */
            ck_assert_uint_eq(counter_get(&f.stream->skipped_heaps), 6 * CHUNK / BATCH - 3);
        teardown(&f);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("walk");
    TCase *tests = tcase_create("walk");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_add_test(tests, gains_hold_from_the_next_buffer);
    tcase_add_test(tests, gains_run_out);
    tcase_add_test(tests, delays_hold_from_their_start);
    tcase_add_test(tests, wrong_delays_can_be_taken_back);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
