/* check_detected_audit - the audit of detected beams agrees with the cpu device, in windows that several launches make.
 * The audit finds a bit that flips in the audited part. */
#include "xbgpu/beam/detected.c"

#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_xbgpu.h"

#include <stdio.h>

#define N_ANTS    3
#define N_CHAN    4
#define N_SPECTRA 16
#define N_BATCHES 3
#define N_HISTORY 1
#define N_WINDOWS 3
#define N_ROUNDS  150                               /* inputs */
#define MAX_BYTES (N_CHAN * N_SPECTRA * N_POLS * 2) /* of a heap */
#define N_ROWS    (N_HISTORY + N_BATCHES)
#define MAX_DELAY 7 /* spectra */
#define FIRST     1000

static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1e6}\n"
                           "recv: {sources: 239.1.1.1, antennas: 3, channels: 64, channels_per_substream: 4,\n"
                           "       channel_offset: 8, spectra_per_heap: 16, samples_between_spectra: 128,\n"
                           "       batches_per_chunk: 3, %s}\n"
                           "outputs: [{name: x, integration_batches: 3, destination: 239.1.1.2}]\n"
                           "detected: [{name: d, windows: 3, destination: 239.1.1.3, %s}]\n"
                           "steering: {grid_batches: 1}\n"
                           "send: {pcap_file: /dev/null}\n";

static const struct {
    const char *recv, *stream;
} cases[] = {
    {"sample_bits: 8", "beams: 2, spectra: 7, products: IQUV, channels: 2"},
    {"sample_bits: 8", "beams: 2, spectra: 70, products: IQUV, channels: 2, format: uint8"}, /* of several inputs */
    {"sample_bits: 4", "beams: 2, spectra: 33, products: power_1, channels: 4"},
    {"sample_bits: 4, sample_encoding: offset", "beams: 2, spectra: 16, products: I, format: uint8"},
    {"sample_bits: 8", "kind: incoherent, spectra: 7, products: IQUV, channels: 2"},
    {"sample_bits: 4", "kind: incoherent, spectra: 70, products: power_0, format: uint8"},
};

static struct rig {
    struct test_xbgpu x;
    struct xbgpu_detected *detected;
    struct detected_stream *stream;
    uint8_t heaps[N_ROWS * N_ANTS][MAX_BYTES]; /* as received */
    uint8_t present[N_BATCHES * N_ANTS];
    uint32_t delays[N_ANTS * N_POLS];
    _Alignas(16) uint8_t voltages[N_BATCHES * N_ANTS * MAX_BYTES]; /* the cpu device's memory is the host's */
    int64_t batch;
    size_t n_made;
} rig;

/* Beams with rates, so that each batch has coefficients of its own.  An incoherent beam has weights only. */
static void steer(size_t beam)
{
    struct beam_steering steering[N_POLS * N_ANTS];

    for (size_t i = 0; i < N_POLS * N_ANTS; i++)
        steering[i] = (struct beam_steering){
            .amplitude = (float)random_between(0.1, 1), .phase = random_u64(), .phase_rate = random_u64() >> 24};
    xbgpu_detected_steer(rig.detected, beam, XBGPU_BEAM_ALWAYS, steering);
}

static void rig_open(size_t i)
{
    char text[1024], why[256] = "";

    snprintf(text, sizeof(text), yaml, cases[i].recv, cases[i].stream);
    test_xbgpu_open(&rig.x, text);
    ck_assert_msg(xbgpu_detected_create(&rig.x.config, &rig.x.layout, &rig.x.engine, &rig.detected, why, sizeof(why)) ==
                      0,
                  "%s", why);
    rig.stream = rig.detected->streams;
    rig.stream->audit.step_heaps = 1; /* not in real time */
    rig.batch = FIRST + (int64_t)random_below(1000);
    for (size_t beam = 0; beam < rig.stream->sizes.n_beams; beam++)
        steer(beam);
}

static void rig_close(void)
{
    test_xbgpu_stop(&rig.x);
    xbgpu_detected_destroy(rig.detected);
    test_xbgpu_close(&rig.x);
}

/* One sample of a batch as the device has it: shifted; zero where the antenna is absent. */
static void place_sample(size_t batch, size_t ant, size_t chan, size_t spectrum, size_t pol)
{
    size_t bytes = voltage_bytes(rig.x.layout.format);
    size_t from = (N_HISTORY + batch) * N_SPECTRA + spectrum - rig.delays[ant * N_POLS + pol];
    const uint8_t *heap = rig.heaps[from / N_SPECTRA * N_ANTS + ant];
    uint8_t *to =
        rig.voltages + ((((batch * N_ANTS + ant) * N_CHAN + chan) * N_SPECTRA + spectrum) * N_POLS + pol) * bytes;

    if (rig.present[batch * N_ANTS + ant])
        memcpy(to, heap + ((chan * N_SPECTRA + from % N_SPECTRA) * N_POLS + pol) * bytes, bytes);
    else
        memset(to, voltage_zero(rig.x.layout.format), bytes);
}

static void random_input(void)
{
    random_bytes(rig.heaps, sizeof(rig.heaps));
    for (size_t i = 0; i < N_BATCHES * N_ANTS; i++)
        rig.present[i] = random_below(8) > 0;
    for (size_t i = 0; i < N_ANTS * N_POLS; i++) /* those of two polarisations are the same in antenna 0 */
        rig.delays[i] = i == 1 ? rig.delays[0] : (uint32_t)random_below(MAX_DELAY + 1);
    for (size_t i = 0; i < N_BATCHES * N_ANTS * N_CHAN * N_SPECTRA * N_POLS; i++)
        place_sample(i / (N_ANTS * N_CHAN * N_SPECTRA * N_POLS), i / (N_CHAN * N_SPECTRA * N_POLS) % N_ANTS,
                     i / (N_SPECTRA * N_POLS) % N_CHAN, i / N_POLS % N_SPECTRA, i % N_POLS);
}

/* Adds the input. */
static void process(bool readable)
{
    const uint8_t *heaps[N_ROWS * N_ANTS];

    for (size_t i = 0; i < N_ROWS * N_ANTS; i++)
        heaps[i] = rig.heaps[i];
    const struct xbgpu_output_input input = {.first_batch = rig.batch,
                                             .n_batches = N_BATCHES,
                                             .voltages = rig.voltages,
                                             .present = rig.present,
                                             .heaps = readable ? heaps : NULL,
                                             .n_history = N_HISTORY,
                                             .delays = rig.delays};
    int64_t length = rig.stream->sizes.heap_spectra, first = rig.batch * N_SPECTRA;
    xbgpu_detected_begin(rig.detected, &input);
    ck_assert(xbgpu_detected_process(rig.detected, rig.x.compute, &input, false));
    device_stream_wait(rig.x.compute); /* the next input takes the place of this one */
    rig.n_made = (size_t)((first + N_BATCHES * N_SPECTRA) / length - first / length);
    rig.batch += N_BATCHES;
}

static struct powers *next_made(void)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_pop(rig.x.inbox, &item), 0);
    return item.object;
}

#define N_AUDITS   counter_get(&rig.stream->sent.audits)
#define N_FAILURES counter_get(&rig.stream->sent.audit_failures)

TEST(agrees_with_the_device, .end = ARRAY_LEN(cases))
{
    size_t n_heaps = 0;

    rig_open((size_t)_i);
    for (size_t n = 0; n < N_ROUNDS; n++) {
        random_input();
        process(true);
        for (; rig.n_made > 0; rig.n_made--, n_heaps++) {
            struct powers *made = next_made();
            ck_assert(xbgpu_detected_check(&made->base));
            outbuf_give(&made->base);
        }
    }
    ck_assert_uint_eq(N_FAILURES, 0);
    ck_assert(N_AUDITS >= n_heaps / 4 &&
              N_AUDITS <= n_heaps); /* those of an input that has several are one behind another */
    ck_assert_uint_eq(counter_get(&rig.stream->dropped_heaps), 0);
}

/* A bit of the drawn beam and group, in any window and product; one of the other beam it does not see. */
TEST(finds_a_bit_of_a_power, .end = ARRAY_LEN(cases))
{
    size_t n_other = 0;

    rig_open((size_t)_i);
    const struct xbgpu_detected_sizes *z = &rig.stream->sizes;
    const struct xbgpu_detected_audit *a = &rig.stream->audit;
    size_t power_bytes = z->scales_bytes ? 1 : sizeof(float);
    for (size_t n = 0; n < N_ROUNDS; n++) {
        random_input();
        process(true);
        for (; rig.n_made > 0; rig.n_made--) {
            struct powers *made = next_made();
            bool is_drawn_one = random_below(z->n_beams) == 0;
            size_t beam = is_drawn_one ? a->beam : 1 - a->beam,
                   cell = random_below(z->n_products) * z->n_groups + a->group;
            size_t row = beam * N_WINDOWS + random_below(N_WINDOWS);
            size_t at = z->fractions_bytes + 2 * z->scales_bytes + (row * z->n_cells + cell) * power_bytes;
            bool drawn = xbgpu_detected_audit_has(a, made);
            made->payload[at + random_below(power_bytes)] ^= (uint8_t)(1 << random_below(8));
            ck_assert(xbgpu_detected_check(&made->base) == (!drawn || !is_drawn_one));
            n_other += drawn && !is_drawn_one;
            outbuf_give(&made->base);
        }
    }
    ck_assert(N_FAILURES > 0);
    ck_assert_uint_eq(N_AUDITS, N_FAILURES + n_other);
}

/* Bits that flip between the chunk and the kernel, in each channel and batch of an antenna that is there. */
TEST(finds_bits_of_voltages, .end = ARRAY_LEN(cases))
{
    rig_open((size_t)_i);
    for (size_t n = 0; n < N_ROUNDS; n++) {
        random_input();
        for (size_t i = 0; i < rig.x.layout.heap_bytes * N_ANTS * N_BATCHES; i++)
            rig.voltages[i] ^= 0x44;
        process(true);
        for (; rig.n_made > 0; rig.n_made--) {
            struct powers *made = next_made();
            bool drawn = xbgpu_detected_audit_has(&rig.stream->audit, made);
            ck_assert(xbgpu_detected_check(&made->base) == !drawn);
            outbuf_give(&made->base);
        }
    }
    ck_assert(N_AUDITS > 0);
    ck_assert_uint_eq(N_AUDITS, N_FAILURES);
}

TEST(is_left_out_where_the_host_cannot_read)
{
    rig_open(0);
    random_input();
    process(false);
    for (; rig.n_made > 0; rig.n_made--) {
        struct powers *made = next_made();
        made->payload[made->stream->sizes.fractions_bytes] ^= 1;
        ck_assert(xbgpu_detected_check(&made->base));
        outbuf_give(&made->base);
    }
    ck_assert_uint_eq(N_AUDITS, 0);
}

static void start(void)
{
    random_start();
    log_init("check_detected_audit", LOG_LEVEL_ERROR + 1);
}

SUITE(.timeout_s = 60, .teardown = rig_close, .start = start);
