/* check_beams - an input that waits for a buffer keeps the steering and calibration of its start; the next input has
 * the new ones.  The test also checks models of delays by time.  Coefficients are computed only if they change. */
#include "xbgpu/beam/beams.c"

#include "tests/unit/test_main.h"
#include "tests/unit/test_xbgpu.h"

#define N_ANTS    2
#define N_SPECTRA 16
#define N_BUFFERS 4

static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1000}\n"
                           "recv: {sources: 239.1.1.1, antennas: 2, channels: 1, channels_per_substream: 1,\n"
                           "       spectra_per_heap: 16, samples_between_spectra: 2, batches_per_chunk: 1}\n"
                           "outputs: [{name: x, integration_batches: 1, destination: 239.1.1.2}]\n"
                           "beams: [{name: b, pol: 0, destination: 239.1.1.3, dither: none}]\n"
                           "steering: {buffers: 4}\n"
                           "send: {pcap_file: /dev/null}\n";

static struct rig {
    struct test_xbgpu x;
    struct xbgpu_beams *beams;
    int8_t voltages[N_ANTS][N_SPECTRA][2][2]; /* the cpu device's memory is the host's */
} rig;

static void rig_open(void)
{
    char why[256] = "";

    test_xbgpu_open(&rig.x, yaml);
    ck_assert_msg(xbgpu_beams_create(&rig.x.config, &rig.x.layout, &rig.x.engine, &rig.beams, why, sizeof(why)) == 0,
                  "%s", why);
    memset(rig.voltages, 3, sizeof(rig.voltages));
}

static void rig_close(void)
{
    test_xbgpu_stop(&rig.x);
    xbgpu_beams_destroy(rig.beams);
    test_xbgpu_close(&rig.x);
}

static bool process(int64_t batch, bool may_wait)
{
    static const uint8_t present[N_ANTS] = {1, 1};
    const struct xbgpu_output_input input = {
        .first_batch = batch, .n_batches = 1, .voltages = rig.voltages, .present = present};

    return xbgpu_beams_process(rig.beams, rig.x.compute, &input, may_wait);
}

static void set_weights(float weight)
{
    const struct beam_steering steering[N_ANTS] = {{.amplitude = weight}, {.amplitude = weight}};

    xbgpu_beams_steer(rig.beams, 0, XBGPU_BEAM_ALWAYS, steering);
}

/* The real part that the oldest buffer has, and the batch; the buffer is free again. */
static int take_made(int64_t *batch)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_pop(rig.x.inbox, &item), 0);
    ck_assert_int_eq(item.kind, ENGINE_DOWNLOADED);
    ck_assert(xbgpu_beams_own(rig.beams, item.object));
    struct beam_buffer *buffer = item.object;
    *batch = buffer->first_batch;
    int value = (int8_t)buffer->payloads[0];
    outbuf_give(item.object);
    return value;
}

TEST(steering_holds_from_an_input_on)
{
    int64_t batch;

    for (int64_t b = 0; b < N_BUFFERS; b++) {
        xbgpu_beams_begin(rig.beams);
        ck_assert(process(b, true));
    }
    xbgpu_beams_begin(rig.beams);
    ck_assert(!process(N_BUFFERS, true)); /* no buffer is free */
    set_weights(5);
    for (int64_t b = 0; b < N_BUFFERS; b++)
        ck_assert(take_made(&batch) == 2 * 3 && batch == b);
    ck_assert(process(N_BUFFERS, true));
    ck_assert(take_made(&batch) == 2 * 3 && batch == N_BUFFERS);
    xbgpu_beams_begin(rig.beams);
    ck_assert(process(N_BUFFERS + 1, true));
    ck_assert(take_made(&batch) == 5 * 2 * 3 && batch == N_BUFFERS + 1);
}

/* Antenna 0, polarisation 'pol'. */
static void set_calibration(size_t pol, float real, float imaginary)
{
    xbgpu_beams_calibrate(rig.beams, pol, (const float[]){real, imaginary});
}

/* The beam has polarisation 0; each voltage is 3 + 3j. */
TEST(calibration_holds_from_an_input_on)
{
    int64_t batch;

    set_calibration(0, 4, 1);
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        xbgpu_beams_begin(rig.beams);
        ck_assert(process(b, true));
    }
    xbgpu_beams_begin(rig.beams);
    ck_assert(!process(N_BUFFERS, true)); /* no buffer is free */
    set_calibration(0, 0, -2);
    set_calibration(1, 7, 7);
    for (int64_t b = 0; b < N_BUFFERS; b++)
        ck_assert(take_made(&batch) == 3 * 4 - 3 + 3 && batch == b);
    ck_assert(process(N_BUFFERS, true));
    ck_assert(take_made(&batch) == 3 * 4 - 3 + 3 && batch == N_BUFFERS);
    xbgpu_beams_begin(rig.beams);
    ck_assert(process(N_BUFFERS + 1, true));
    ck_assert(take_made(&batch) == 3 * 2 + 3 && batch == N_BUFFERS + 1);
}

/* An input that finds no buffer leaves its calibration to the next one. */
TEST(calibration_outlives_a_dropped_input)
{
    int64_t batch;

    for (int64_t b = 0; b < N_BUFFERS; b++) {
        xbgpu_beams_begin(rig.beams);
        ck_assert(process(b, false));
    }
    set_calibration(0, 5, 0);
    xbgpu_beams_begin(rig.beams);
    ck_assert(process(N_BUFFERS, false));
    ck_assert_uint_eq(counter_get(&rig.beams->dropped_heaps), 1);
    for (int64_t b = 0; b < N_BUFFERS; b++)
        ck_assert(take_made(&batch) == 2 * 3 && batch == b);
    xbgpu_beams_begin(rig.beams);
    ck_assert(process(N_BUFFERS + 1, false));
    ck_assert(take_made(&batch) == 5 * 3 + 3 && batch == N_BUFFERS + 1);
}

static void set_model(int64_t start_samples, float weight, uint64_t phase_rate)
{
    const struct beam_steering steering[N_ANTS] = {{.amplitude = weight, .phase_rate = phase_rate},
                                                   {.amplitude = weight}};

    xbgpu_beams_steer(rig.beams, 0, start_samples, steering);
}

/* Makes the beam of a batch.  Returns whether the device made new coefficients. */
static bool makes_anew(int64_t batch)
{
    int16_t *coefficients = rig.beams->steering.coefficients; /* the cpu device's memory is the host's */
    int64_t found;

    coefficients[2] = 77;
    xbgpu_beams_begin(rig.beams);
    ck_assert(process(batch, true));
    take_made(&found);
    return coefficients[2] != 77;
}

/* A grid of 3 batches of 32 samples: a change makes coefficients once, and rates make them once for each interval. */
TEST(coefficients_are_made_where_they_change)
{
    rig.beams->steering.grid_batches = 3;
    ck_assert(makes_anew(10));
    for (int64_t batch = 11; batch < 20; batch++)
        ck_assert(!makes_anew(batch));
    set_weights(2);
    set_model(22 * 32 - 31, 3, 0);
    set_model(25 * 32 - 31, 3, UINT64_C(1) << 50);
    for (int64_t batch = 20; batch < 40; batch++)
        ck_assert_msg(makes_anew(batch) ==
                          (batch == 20 || batch == 22 || batch == 25 || (batch >= 27 && batch % 3 == 0)),
                      "batch %lld", (long long)batch);
    /* Time that goes back, and ahead. */
    ck_assert(makes_anew(21) && !makes_anew(20) && makes_anew(31) && !makes_anew(32));
}

TEST(starts_of_models)
{
    struct xbgpu_beam_starts starts = {1, {XBGPU_BEAM_ALWAYS}};
    bool forgets;

    ck_assert_uint_eq(xbgpu_beam_starts_find(&starts, 0), 0);
    for (int64_t i = 1; i < XBGPU_BEAM_MODELS; i++)
        ck_assert(xbgpu_beam_starts_add(&starts, 10 * i, &forgets) == (size_t)i && !forgets);
    ck_assert_uint_eq(xbgpu_beam_starts_find(&starts, 9), 0);
    ck_assert_uint_eq(xbgpu_beam_starts_find(&starts, 10), 1);
    ck_assert_uint_eq(xbgpu_beam_starts_find(&starts, INT64_C(1) << 60), XBGPU_BEAM_MODELS - 1);
    ck_assert(!xbgpu_beam_starts_has_room(&starts, 100, 19)); /* the one from 10 on may still hold */
    ck_assert(xbgpu_beam_starts_has_room(&starts, 100, 20));
    ck_assert(xbgpu_beam_starts_has_room(&starts, 70, 0)); /* in place of the last one */
    ck_assert(xbgpu_beam_starts_add(&starts, 100, &forgets) == XBGPU_BEAM_MODELS - 1 && forgets);
    ck_assert(starts.samples[0] == XBGPU_BEAM_ALWAYS && starts.samples[1] == 20 && starts.samples[6] == 70);
    ck_assert(xbgpu_beam_starts_add(&starts, 45, &forgets) == 4 && !forgets && starts.n == 5);
    ck_assert(xbgpu_beam_starts_add(&starts, 45, &forgets) == 4 && !forgets && starts.n == 5);
    ck_assert(xbgpu_beam_starts_add(&starts, XBGPU_BEAM_ALWAYS, &forgets) == 0 && !forgets && starts.n == 1);
}

/* A full queue forgets the oldest load time, with its rows. */
TEST(full_queue_of_models)
{
    for (int64_t i = 1; i <= XBGPU_BEAM_MODELS; i++)
        set_model(32 * i, (float)i, (uint64_t)i);
    xbgpu_beams_begin(rig.beams);
    const struct xbgpu_beam_starts *starts = &rig.beams->steering.starts[0];
    const struct beam_steering *rows = rig.beams->steering.wanted;
    ck_assert_uint_eq(starts->n, XBGPU_BEAM_MODELS);
    for (size_t m = 1; m < XBGPU_BEAM_MODELS; m++) {
        ck_assert_int_eq(starts->samples[m], 32 * ((int64_t)m + 1));
        ck_assert_uint_eq(rows[m * N_ANTS].phase_rate, m + 1);
        ck_assert(rows[m * N_ANTS].amplitude == (float)XBGPU_BEAM_MODELS);
    }
    ck_assert_uint_eq(rows[0].phase_rate, 0);
}

TEST(batches_without_a_buffer_are_dropped)
{
    for (int64_t b = 0; b <= N_BUFFERS; b++) {
        xbgpu_beams_begin(rig.beams);
        ck_assert(process(b, false));
    }
    ck_assert_uint_eq(counter_get(&rig.beams->dropped_heaps), 1);
}

SUITE(.timeout_s = 20, .setup = rig_open, .teardown = rig_close);
