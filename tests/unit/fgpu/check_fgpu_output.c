/* check_fgpu_output - commands between one input and the next.  The input is constant.  So the channel at 0 Hz is the
 * sum of the filter's weights times gain, turned by pi / 2 for each sample of delay (that is -2 pi (f - fs / 4) d),
 * plus the phase. */
#include "common/config/config.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/base/inbox.h"
#include "fgpu/input/presence.h"
#include "common/base/units.h"
#include "tests/unit/device_under_test.h"
#include "tests/unit/test_config.h"
#include "fgpu/input/device_input.h"
#include "fgpu/output.h"
#include "tests/unit/test_main.h"

#include <complex.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_CHAN        64
#define N_TAPS        2
#define BATCH         INT64_C(2048) /* 16 spectra of 128 samples */
#define CHUNK         INT64_C(8192)
#define PACKET        256
#define SAMPLE        20 /* the constant */
#define N_BUFFERS     16
#define START_SAMPLES (CHUNK * 1000)

static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: %s}\n"
                           "device: {kind: cpu}\n"
                           "recv: {packet_samples: 256, chunk_samples: 8192, max_delay_diff: 512, sample_bits: 8}\n"
                           "antennas: [{name: a, feng_id: 0, pol0: 239.1.0.0, pol1: 239.1.0.1}]\n"
                           "outputs: [{name: w, channels: 64, spectra_per_heap: 16, taps: 2, buffers: 16,\n"
                           "           dither: none, gain: 1, destinations: 239.2.0.0}]\n"
                           "send: {pcap_file: /dev/null}\n";

static struct fixture {
    struct fgpu_config values;
    struct config *config;
    struct fgpu_layout layout;
    struct device *device;
    struct device_stream *compute, *download;
    struct inbox *worker;
    struct engine engine;
    struct fgpu_send *send;
    struct fgpu_stream *stream;
    struct fgpu_output *walk;
    struct fgpu_device_input input;
    int64_t n_chunks; /* that the walk has seen */
    struct fgpu_delays delays;
    struct sensors *sensors;
} f;

static void load(const char *rate_hz)
{
    char text[1000];

    snprintf(text, sizeof(text), yaml, rate_hz);
    load_config(&fgpu_config_table, text, &f.values, &f.config);
}

/* Both polarisations, history and chunk: constant and all there. */
static void make_input(void)
{
    size_t n_heaps = f.layout.history_heaps + f.layout.heaps_per_chunk, bytes = fgpu_device_input_bytes(&f.layout);
    uint8_t *samples = malloc(bytes);

    memset(samples, SAMPLE, bytes);
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        f.input.samples[pol] = device_alloc(f.device, bytes);
        test_write(f.compute, f.input.samples[pol], samples, bytes);
        f.input.present[pol] = malloc(n_heaps);
        memset(f.input.present[pol], 1, n_heaps);
        f.input.sums[pol] = calloc(n_heaps + 1, sizeof(uint32_t));
        fgpu_presence_sums(f.input.present[pol], n_heaps, f.input.sums[pol]);
    }
    free(samples);
}

static void setup_at(const char *rate_hz)
{
    static const struct fgpu_choice no_choice;
    char why[600] = "";

    memset(&f, 0, sizeof(f));
    load(rate_hz);
    f.device = test_open_device(1);
    fgpu_layout_init(&f.layout, &f.values);
    ck_assert_int_eq(device_stream_create(f.device, "compute", &f.compute), 0);
    ck_assert_int_eq(device_stream_create(f.device, "download", &f.download), 0);
    ck_assert_int_eq(inbox_create(2 * N_BUFFERS, &f.worker), 0);
    ck_assert_int_eq(sensors_create(&f.sensors), 0);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        fgpu_delay_queue_init(&f.delays.pols[pol]);
    f.engine =
        (struct engine){.c = {.device = f.device, .sensors = f.sensors}, .inbox = f.worker, .download = f.download};
    ck_assert_msg(fgpu_send_create(&f.values, &f.layout, &f.engine, &f.send, why, sizeof(why)) == 0, "%s", why);
    f.stream = fgpu_send_stream(f.send, 0, 0);
    const struct fgpu_output_config walk = {.config = &f.values,
                                            .layout = &f.layout,
                                            .device = f.device,
                                            .compute = f.compute,
                                            .download = f.download,
                                            .stream = f.stream,
                                            .choice = &no_choice};
    ck_assert_int_eq(fgpu_output_create(&walk, &f.walk), 0);
    make_input();
}

static void setup(void)
{
    setup_at("1e9"); /* a sample is a nanosecond */
}

static void setup_slow(void)
{
    setup_at("1e3");
}

static void teardown(void)
{
    device_stream_destroy(f.compute);
    device_stream_destroy(f.download);
    fgpu_output_destroy(f.walk);
    fgpu_send_destroy(f.send);
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        device_free(f.device, f.input.samples[pol]);
        free(f.input.present[pol]);
        free(f.input.sums[pol]);
    }
    sensors_destroy(f.sensors);
    inbox_destroy(f.worker);
    config_free(&fgpu_config_table, &f.values, f.config);
    device_close(f.device);
}

/* A chunk, which may come behind another one. */
static void advance_to(int64_t timestamp, bool has_history)
{
    f.input.timestamp_samples = timestamp - f.layout.history_samples;
    f.input.has_history = has_history;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        f.input.first_samples[pol] = timestamp;
        f.input.end_samples[pol] = timestamp + CHUNK;
    }
    ck_assert_msg(fgpu_output_advance(f.walk, &f.input, true), "no buffer for the chunk at %lld", (long long)timestamp);
}

/* The next chunk. */
static void advance(void)
{
    advance_to(START_SAMPLES + f.n_chunks * CHUNK, f.n_chunks > 0);
    f.n_chunks++;
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
static void check_buffer(int64_t timestamp, double complex expected)
{
    struct inbox_item item;

    device_stream_wait(f.compute);
    device_stream_wait(f.download);
    ck_assert_int_eq(inbox_try_pop(f.worker, &item), 0);
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
    outbuf_give(&buffer->base);
}

static void check_no_buffer(void)
{
    struct inbox_item item;

    device_stream_wait(f.compute);
    device_stream_wait(f.download);
    ck_assert_int_eq(inbox_try_pop(f.worker, &item), -EAGAIN);
}

static int64_t set_gains(double complex gain)
{
    struct fgpu_gains *gains = fgpu_output_take_gains(f.walk);

    ck_assert_ptr_nonnull(gains);
    ck_assert_uint_eq(gains->ant, 0);
    ck_assert_uint_eq(gains->output, 0);
    for (size_t i = 0; i < N_CHAN * N_POLS; i++) {
        gains->values[2 * i] = (float)creal(gain);
        gains->values[2 * i + 1] = (float)cimag(gain);
    }
    return fgpu_output_set_gains(f.walk, gains);
}

/* Returns from when on it holds. */
static int64_t set_delay_of(unsigned n_pols, int64_t start, double delay, double phase)
{
    const struct fgpu_delay_model model = {.start_samples = start, .delay_samples = delay, .phase_rad = phase};

    for (unsigned pol = 0; pol < n_pols; pol++)
        ck_assert_int_eq(fgpu_delay_queue_add(&f.delays.pols[pol], &model), 0);
    return fgpu_output_set_delays(f.walk, &f.delays);
}

static int64_t set_delay(int64_t start, double delay, double phase)
{
    return set_delay_of(N_POLS, start, delay, phase);
}

/* The model in effect, since when, as the sensors say. */
static void check_model(int64_t since, int64_t start, double delay)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        struct sensor_reading reading = sensor_read(fgpu_output_delay_sensor(f.walk, pol));
        if (start < 0) {
            ck_assert_int_eq(reading.unix_ns, 0); /* nobody has set it yet */
            continue;
        }
        int64_t shown;
        memcpy(&shown, reading.value.numbers, sizeof(shown));
        ck_assert_int_eq(reading.unix_ns, since); /* a sample is a nanosecond */
        ck_assert_int_eq(shown, start);
        ck_assert_double_eq_tol(reading.value.numbers[1], delay * 1e-9, 1e-21);
    }
}

static void check_buffers(int n, int64_t timestamp, double complex expected)
{
    for (int b = 0; b < n; b++)
        check_buffer(timestamp + b * BATCH, expected);
}

/* The first chunk, with a gain that makes 100 of the constant. */
static void start_walk(void)
{
    set_gains(100 / (SAMPLE * weights_sum()));
    advance();
    check_buffers(3, START_SAMPLES, 100);
}

/* A chunk has four batches; the last one's windows end in the next chunk.  So when gains come after a chunk one buffer is
 * being filled, and keeps the old ones. */
TEST(gains_hold_from_the_next_buffer)
{
    const double one = SAMPLE * weights_sum();
    const double complex g[] = {1.0 / one * 50, 1.0 / one * 90 * I, 1.0 / one * (-30 + 40 * I)};

    set_gains(g[0]);
    int64_t t = START_SAMPLES;
    for (int round = 0; round < 12; round++) {
        advance();
        device_stream_wait(f.compute); /* those of the round before are back */
        /* Posted twice before they hold: the second counts, and the first is back at once. */
        set_gains(1.0);
        int64_t holds = set_gains(g[(round + 1) % 3]);
        ck_assert_int_eq(holds, START_SAMPLES + (round + 1) * CHUNK); /* behind the buffer that has been begun */
        for (int b = 0; b < (round ? 4 : 3); b++, t += BATCH) /* the first of a round was begun in the one before */
            check_buffer(t, g[(b == 0 && round ? round + 2 : round) % 3] * one);
        check_no_buffer();
    }
}

TEST(gains_run_out)
{
    struct fgpu_gains *first = fgpu_output_take_gains(f.walk), *second = fgpu_output_take_gains(f.walk);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(second);
    ck_assert_ptr_null(fgpu_output_take_gains(f.walk));
    fgpu_output_set_gains(f.walk, second);
    ck_assert_ptr_null(fgpu_output_take_gains(f.walk)); /* not before a buffer has been begun */
    advance();
    device_stream_wait(f.compute);
    ck_assert_ptr_eq(fgpu_output_take_gains(f.walk), second);
}

/* From the spectrum that begins at a model's start. */
TEST(delays_hold_from_their_start)
{
    const double one = SAMPLE * weights_sum();

    check_model(0, -1, 0);
    ck_assert_int_eq(set_gains(100 / one), 0); /* nothing is without it */
    advance();
    int64_t t = START_SAMPLES;
    for (int b = 0; b < 3; b++, t += BATCH)
        check_buffer(t, 100);
    /* The next spectrum is the first whose window of 256 samples, at steps of 128, ends in the next chunk. */
    ck_assert_int_eq(set_delay(START_SAMPLES + CHUNK + BATCH, 3.25, 0.5), START_SAMPLES + CHUNK - 128);
    ck_assert_int_eq(set_delay(START_SAMPLES + CHUNK + 2 * BATCH, -7, 0), START_SAMPLES + CHUNK - 128);
    check_model(0, -1, 0);
    advance();
    check_model(START_SAMPLES + CHUNK + 2 * BATCH, START_SAMPLES + CHUNK + 2 * BATCH, -7);
    const double complex expected[] = {100, 100, 100 * cexp(I * (M_PI / 2 * 3.25 + 0.5)),
                                       100 * cexp(-I * M_PI / 2 * 7)};
    for (int b = 0; b < 4; b++, t += BATCH)
        check_buffer(t, expected[b]);
    /* In the middle of a buffer: in effect since its start; one that is late, since the first spectrum with it. */
    const int64_t middle = START_SAMPLES + 2 * CHUNK + BATCH + 300;
    set_delay(middle, 2, 0);
    advance();
    check_model(middle, middle, 2);
    int64_t next = set_delay(middle + 1, 5, 0);
    advance();
    check_model(next, middle + 1, 5);
}

/* A delay of one polarisation that is far too large, and is then taken back, costs what came meanwhile and no more. */
static const double wrong[] = {1e12, -1e12};

TEST(wrong_delays_can_be_taken_back, .end = ARRAY_LEN(wrong))
{
    start_walk();
    set_delay_of(1, 0, wrong[_i], 0);
    for (int n = 0; n < 5; n++)
        advance();
    check_no_buffer();
    set_delay(0, 0, 0);
    advance();
    /* The sixth chunk after the first, and its history of 256 + 512 samples, which is less than a batch. */
    check_buffers(3, START_SAMPLES + 6 * CHUNK, 100);
    check_no_buffer();
    if (wrong[_i] < 0) /* one that grows skips at once what it must */
        ck_assert_uint_eq(counter_get(&f.stream->skipped_heaps), 6 * CHUNK / BATCH - 3);
}

static enum sensor_status delay_status(unsigned pol)
{
    return sensor_read(fgpu_output_delay_sensor(f.walk, pol)).status;
}

/* Behind a wrong delay of both polarisations timestamps are ahead; the output says by how much, and resumes at once when
 * told to.  Telling it again changes nothing. */
TEST(an_output_resumes)
{
    start_walk();
    ck_assert_int_eq(gauge_get(&f.stream->ahead_ns), 0);
    set_delay(0, 20 * CHUNK, 0);
    advance();
    check_buffers(3, START_SAMPLES + 21 * CHUNK, 100);
    ck_assert_double_eq_tol(gauge_get(&f.stream->delay_ps) * 1e-3, 20 * CHUNK, 1e-2);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        ck_assert_int_eq(delay_status(pol), SENSOR_NOMINAL);
    set_delay(0, 0, 0);
    advance();
    check_no_buffer();
    /* The last window of two spectra ended with chunk 22; input has come up to chunk 3. */
    ck_assert_int_eq(gauge_get(&f.stream->ahead_ns), 19 * CHUNK - 2 * N_CHAN);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        ck_assert_int_eq(delay_status(pol), SENSOR_ERROR);
    f.delays.resumes = true;
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(fgpu_output_set_delays(f.walk, &f.delays), START_SAMPLES + 3 * CHUNK);
    ck_assert_int_eq(fgpu_output_steady_samples(f.walk), START_SAMPLES + 3 * CHUNK);
    advance();
    check_buffers(3, START_SAMPLES + 3 * CHUNK, 100);
    ck_assert_int_eq(gauge_get(&f.stream->ahead_ns), 0);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        ck_assert_int_eq(delay_status(pol), SENSOR_NOMINAL);
    /* It waits for nothing now, so that the next batch is the one that follows. */
    fgpu_output_set_delays(f.walk, &f.delays);
    advance();
    check_buffer(START_SAMPLES + 3 * CHUNK + 3 * BATCH, 100);
}

/* A wrong delay of one polarisation skips batches, and gaps behind its correction lie among those: none counts twice. */
TEST(skipped_batches_count_once)
{
    advance();
    set_delay_of(1, 0, 20 * CHUNK, 0);
    advance();
    uint64_t n_skipped = counter_get(&f.stream->skipped_heaps);
    ck_assert_uint_ge(n_skipped, 19 * CHUNK / BATCH);
    set_delay(0, 0, 0);
    advance_to(START_SAMPLES + 5 * CHUNK, false);
    advance_to(START_SAMPLES + 9 * CHUNK, false);
    advance_to(START_SAMPLES + 14 * CHUNK, false);
    ck_assert_uint_eq(counter_get(&f.stream->skipped_heaps), n_skipped);
}

/* ---- Time that jumps ahead and back ------------------------------------------------------------------------------ */

#define FAR_SAMPLES (CHUNK * 250000000) /* 2000 s at a nanosecond a sample */
#define N_CHUNKS    20

/* The batches that a walk made. */
struct made {
    bool there[N_CHUNKS * CHUNK / BATCH];
    int8_t voltages[N_CHUNKS * CHUNK / BATCH][N_CHAN * 16 * N_POLS * 2];
};

/* Takes all that has been finished, and keeps what is not far unless 'made' is NULL. */
static void collect(struct made *made)
{
    struct inbox_item item;

    device_stream_wait(f.compute);
    device_stream_wait(f.download);
    while (inbox_try_pop(f.worker, &item) == 0) {
        struct fgpu_buffer *buffer = item.object;
        int64_t t = buffer->timestamp_samples - START_SAMPLES;
        if (made && t < FAR_SAMPLES) {
            size_t b = (size_t)(t / BATCH);
            ck_assert(t % BATCH == 0 && t >= 0 && b < ARRAY_LEN(made->there) && !made->there[b]);
            made->there[b] = buffer->job.groups[0].send;
            memcpy(made->voltages[b], buffer->voltages, sizeof(made->voltages[b]));
        }
        outbuf_give(&buffer->base);
    }
}

/* Two chunks far ahead, as few packets can make them, and back. */
static void go_far(int64_t far_samples)
{
    advance_to(START_SAMPLES + far_samples, false);
    advance_to(START_SAMPLES + far_samples + CHUNK, true);
}

/* Every second excursion, gains and delays are set while the time is far. */
static void walk_on(bool jumps, struct made *made)
{
    const double one = SAMPLE * weights_sum();
    bool back = false;

    set_gains(100 / one);
    set_delay(0, 1.25, 0.25);
    set_delay(START_SAMPLES + 6 * CHUNK + 700, 2.5, -1);
    set_delay(START_SAMPLES + 13 * CHUNK, -3.75, 2);
    set_delay(START_SAMPLES + FAR_SAMPLES / 2, 500, 0); /* holds while the time is far, and never before */
    for (f.n_chunks = 0; f.n_chunks < N_CHUNKS; f.n_chunks++) {
        bool excursion = f.n_chunks % 4 == 3;
        advance_to(START_SAMPLES + f.n_chunks * CHUNK, f.n_chunks > 0 && !back);
        back = jumps && excursion;
        if (back)
            go_far(FAR_SAMPLES);
        if (excursion && f.n_chunks % 8 == 7) {
            set_gains(cexp(I * (double)f.n_chunks) * 90 / one);
            set_delay(START_SAMPLES + (f.n_chunks + 3) * CHUNK + 5, (double)f.n_chunks, 0.5);
            set_delay(START_SAMPLES + FAR_SAMPLES / 2, 500, 0);
        }
        if (back)
            fgpu_output_restart(f.walk);
        collect(made);
    }
}

/* All but the batches beside the jumps, bit for bit. */
TEST(jumps_leave_all_as_it_was)
{
    static struct made with, without;
    size_t n_lost = 0;

    walk_on(false, &without);
    teardown();
    setup();
    walk_on(true, &with);
    for (size_t b = 0; b < ARRAY_LEN(with.there); b++) {
        if (with.there[b])
            ck_assert_mem_eq(with.voltages[b], without.voltages[b], sizeof(with.voltages[b]));
        else if (without.there[b])
            n_lost++;
    }
    ck_assert_uint_le(n_lost, 5 * 2); /* of each jump the one that it cut, and the one that the delay begins in */
}

/* The sensors of the models, and from which timestamp on all that was set shows. */
TEST(jumps_are_told)
{
    set_delay(START_SAMPLES - 5, 1, 0);
    set_delay(START_SAMPLES + FAR_SAMPLES / 2, 500, 0);
    advance();
    check_model(START_SAMPLES + BATCH, START_SAMPLES - 5, 1); /* the first batch for which there is input */
    ck_assert_int_eq(fgpu_output_steady_samples(f.walk), 0);
    int64_t now = set_gains(1);
    ck_assert_int_eq(fgpu_output_steady_samples(f.walk), now);

    go_far(FAR_SAMPLES);
    check_model(START_SAMPLES + FAR_SAMPLES + BATCH, START_SAMPLES + FAR_SAMPLES / 2, 500);
    ck_assert_int_eq(fgpu_output_steady_samples(f.walk), now); /* as nothing was set since */
    collect(NULL);
    ck_assert_int_gt(set_gains(1), START_SAMPLES + FAR_SAMPLES);
    set_delay(START_SAMPLES + CHUNK, 7, 0);
    check_model(START_SAMPLES + FAR_SAMPLES + BATCH, START_SAMPLES + FAR_SAMPLES / 2, 500);
    go_far(FAR_SAMPLES + 2 * CHUNK);
    /* With a delay of 500 samples the spectra up to 256 samples behind the end had their input. */
    check_model(START_SAMPLES + FAR_SAMPLES + 2 * CHUNK + 256, START_SAMPLES + CHUNK, 7);
    ck_assert_int_gt(fgpu_output_steady_samples(f.walk), START_SAMPLES + FAR_SAMPLES);

    collect(NULL);
    /* The same model holds here, and what was set there shows from here on. */
    fgpu_output_restart(f.walk);
    advance_to(START_SAMPLES + 4 * CHUNK, false);
    check_model(START_SAMPLES + 4 * CHUNK + BATCH, START_SAMPLES + CHUNK, 7);
    ck_assert_int_eq(fgpu_output_steady_samples(f.walk), START_SAMPLES + 4 * CHUNK + BATCH);
}

/* Ten seconds of output confirm a time; at a kilohertz that are five batches.  Two chunks far ahead are less. */
TEST(few_data_confirm_no_time, .setup = setup_slow)
{
    for (int i = 0; i < 6; i++) {
        advance();
        collect(NULL);
        int64_t end = START_SAMPLES + f.n_chunks * CHUNK - 128; /* of the spectra that there is input for */
        ck_assert_int_eq(fgpu_output_confirmed_samples(f.walk), i == 0 ? 0 : end);
    }
    int64_t confirmed = fgpu_output_confirmed_samples(f.walk);
    advance_to(START_SAMPLES + FAR_SAMPLES, false); /* 8 s */
    ck_assert_int_eq(fgpu_output_confirmed_samples(f.walk), confirmed);
    advance_to(START_SAMPLES + 3 * FAR_SAMPLES, false);
    ck_assert_int_eq(fgpu_output_confirmed_samples(f.walk), confirmed);
    fgpu_output_restart(f.walk);
    collect(NULL);
    advance();
    ck_assert_int_eq(fgpu_output_confirmed_samples(f.walk), confirmed);
    advance();
    collect(NULL);
    ck_assert_int_gt(fgpu_output_confirmed_samples(f.walk), confirmed);
    /* A time that is earlier than all before is safe at once. */
    fgpu_output_restart(f.walk);
    advance_to(START_SAMPLES - CHUNK, false);
    ck_assert_int_eq(fgpu_output_confirmed_samples(f.walk), START_SAMPLES - CHUNK + BATCH);
}

SUITE(.setup = setup, .teardown = teardown);
