/* check_beam_audit - the audit of beams agrees with the cpu device, and finds a bit that flips in the audited part. */
#include "xbgpu/beam/beams.c"

#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_xbgpu.h"

#include <stdio.h>

#define N_ANTS    3
#define N_CHAN    4
#define N_SPECTRA 80 /* more than are drawn */
#define N_BATCHES 3
#define N_HISTORY 1
#define N_BEAMS   2
#define N_ROUNDS  200
#define MAX_BYTES (N_CHAN * N_SPECTRA * N_POLS * 2) /* of a heap */
#define N_HEAPS   ((N_HISTORY + N_BATCHES) * N_ANTS)
#define MAX_DELAY 7 /* spectra */
#define FIRST     1000

static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1e6}\n"
                           "recv: {sources: 239.1.1.1, antennas: 3, channels: 64, channels_per_substream: 4,\n"
                           "       channel_offset: 8, spectra_per_heap: 80, samples_between_spectra: 128,\n"
                           "       batches_per_chunk: 3, %s}\n"
                           "outputs: [{name: x, integration_batches: 3, destination: 239.1.1.2}]\n"
                           "beams: [{name: b, pol: 0, destination: 239.1.1.3, dither: none},\n"
                           "        {name: c, pol: 1, destination: 239.1.1.4, dither_seed: 5, renormalise: true}]\n"
                           "steering: {antenna_mask: true}\n"
                           "send: {pcap_file: /dev/null}\n";

static const char *const formats[] = {"sample_bits: 8", "sample_bits: 4", "sample_bits: 4, sample_encoding: offset"};

static struct rig {
    struct test_xbgpu x;
    struct xbgpu_beams *beams;
    uint8_t heaps[N_HEAPS][MAX_BYTES]; /* as received */
    uint8_t present[N_BATCHES * N_ANTS];
    uint32_t delays[N_ANTS * N_POLS];
    _Alignas(16) uint8_t voltages[N_BATCHES * N_ANTS * MAX_BYTES]; /* the cpu device's memory is the host's */
} rig;

static void rig_open(const char *format)
{
    char text[1024], why[256] = "";

    snprintf(text, sizeof(text), yaml, format);
    test_xbgpu_open(&rig.x, text);
    ck_assert_msg(xbgpu_beams_create(&rig.x.config, &rig.x.layout, &rig.x.engine, &rig.beams, why, sizeof(why)) == 0,
                  "%s", why);
}

static void rig_close(void)
{
    test_xbgpu_stop(&rig.x);
    xbgpu_beams_destroy(rig.beams);
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

static void random_input(bool absent)
{
    random_bytes(rig.heaps, sizeof(rig.heaps));
    for (size_t i = 0; i < N_BATCHES * N_ANTS; i++)
        rig.present[i] = !absent || random_below(4) > 0;
    for (size_t i = 0; i < N_ANTS * N_POLS; i++)
        rig.delays[i] = (uint32_t)random_below(MAX_DELAY + 1);
    for (size_t i = 0; i < N_BATCHES * N_ANTS * N_CHAN * N_SPECTRA * N_POLS; i++)
        place_sample(i / (N_ANTS * N_CHAN * N_SPECTRA * N_POLS), i / (N_CHAN * N_SPECTRA * N_POLS) % N_ANTS,
                     i / (N_SPECTRA * N_POLS) % N_CHAN, i / N_POLS % N_SPECTRA, i % N_POLS);
}

/* The beams of the input, in host memory. */
static struct beam_buffer *make_beams(bool readable)
{
    const uint8_t *heaps[N_HEAPS];
    struct inbox_item item;

    for (size_t i = 0; i < N_HEAPS; i++)
        heaps[i] = rig.heaps[i];
    const struct xbgpu_output_input input = {.first_batch = FIRST,
                                             .begin = random_below(2),
                                             .n_batches = N_BATCHES,
                                             .voltages = rig.voltages,
                                             .present = rig.present,
                                             .heaps = readable ? heaps : NULL,
                                             .n_history = N_HISTORY,
                                             .delays = rig.delays};
    xbgpu_beams_begin(rig.beams);
    ck_assert(xbgpu_beams_process(rig.beams, rig.x.compute, &input, true));
    ck_assert_int_eq(inbox_pop(rig.x.inbox, &item), 0);
    return item.object;
}

static uint64_t n_of(size_t offset)
{
    uint64_t n = 0;

    for (size_t beam = 0; beam < N_BEAMS; beam++)
        n += counter_get((const struct counter *)((const char *)&rig.beams->outputs[beam] + offset));
    return n;
}

#define N_AUDITS   n_of(offsetof(struct beam_output, sent.audits))
#define N_FAILURES n_of(offsetof(struct beam_output, sent.audit_failures))

TEST(agrees_with_the_device, .end = ARRAY_LEN(formats))
{
    rig_open(formats[_i]);
    for (size_t n = 0; n < N_ROUNDS; n++) {
        random_input(true);
        struct beam_buffer *buffer = make_beams(true);
        ck_assert(xbgpu_beams_check(&buffer->base));
        outbuf_give(&buffer->base);
    }
    ck_assert_uint_eq(N_AUDITS, N_ROUNDS);
    ck_assert_uint_eq(N_FAILURES, 0);
}

/* Where it looks; a bit elsewhere it does not see. */
TEST(finds_a_bit_of_a_beam, .end = ARRAY_LEN(formats))
{
    rig_open(formats[_i]);
    for (size_t n = 0; n < N_ROUNDS; n++) {
        random_input(true);
        struct beam_buffer *buffer = make_beams(true);
        const struct xbgpu_beam_audit *a = &buffer->audit;
        size_t heap = a->batch * N_BEAMS + a->beam, chan = n % 2 ? a->chan : (a->chan + 1) % N_CHAN;
        size_t at =
            heap * rig.beams->payload_bytes + (chan * N_SPECTRA + a->first + random_below(a->n)) * 2 + random_below(2);
        buffer->payloads[at] ^= (uint8_t)(1 << random_below(8));
        ck_assert(xbgpu_beams_check(&buffer->base) == (n % 2 == 0));
        outbuf_give(&buffer->base);
    }
    ck_assert_uint_eq(N_AUDITS, N_ROUNDS);
    ck_assert_uint_eq(N_FAILURES, N_ROUNDS / 2);
}

/* Bits that flip between the chunk and the kernel, in each channel and batch of an antenna. */
TEST(finds_bits_of_voltages, .end = ARRAY_LEN(formats))
{
    size_t n_found = 0;

    rig_open(formats[_i]);
    size_t heap_bytes = rig.x.layout.heap_bytes;
    for (size_t n = 0; n < N_ROUNDS; n++) {
        random_input(false);
        size_t ant = random_below(N_ANTS);
        for (size_t batch = 0; batch < N_BATCHES; batch++)
            for (size_t i = 0; i < heap_bytes; i++)
                rig.voltages[(batch * N_ANTS + ant) * heap_bytes + i] ^= 0x88;
        struct beam_buffer *buffer = make_beams(true);
        n_found += !xbgpu_beams_check(&buffer->base);
        outbuf_give(&buffer->base);
    }
    ck_assert_uint_eq(n_found, N_ROUNDS);
}

TEST(is_left_out_where_the_host_cannot_read)
{
    rig_open(formats[0]);
    random_input(true);
    struct beam_buffer *buffer = make_beams(false);
    buffer->payloads[0] ^= 1;
    ck_assert(xbgpu_beams_check(&buffer->base));
    ck_assert_uint_eq(N_AUDITS, 0);
}

static void start(void)
{
    random_start();
    log_init("check_beam_audit", LOG_LEVEL_ERROR + 1);
}

SUITE(.timeout_s = 60, .teardown = rig_close, .start = start);
