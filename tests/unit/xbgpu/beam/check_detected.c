/* check_detected - an input that waits for a buffer keeps the steering of its start; the next input has the new one.
 * The same holds for the weights of an incoherent beam, which are integers from 0 to their limit.  Heaps with dropped
 * parts, or after a jump of time, say so in their fractions. */
#include "xbgpu/beam/detected.c"

#include "tests/unit/test_main.h"
#include "tests/unit/test_xbgpu.h"

#define N_ANTS    2
#define N_SPECTRA 16 /* of a batch; a heap has 2 windows of 12 */
#define N_BUFFERS 3
#define POWER     (4.0f * (256 * 6) * (256 * 6)) /* of two antennas of 3 + 3j in both polarisations, with weights of 1 */

#define ALONE 0.5f /* POWER of these antennas in an incoherent beam, with weights of 1 */

#define YAML(kind)                                                                                                     \
    "time: {sync_time: 0, adc_sample_rate: 1000}\n"                                                                    \
    "recv: {sources: 239.1.1.1, antennas: 2, channels: 1, channels_per_substream: 1,\n"                                \
    "       spectra_per_heap: 16, samples_between_spectra: 2, batches_per_chunk: 1}\n"                                 \
    "outputs: [{name: x, integration_batches: 1, destination: 239.1.1.2}]\n"                                           \
    "detected: [{name: d, kind: " kind ", spectra: 12, windows: 2, buffers: 3, destination: 239.1.1.3}]\n"             \
    "send: {pcap_file: /dev/null}\n"

static struct rig {
    struct test_xbgpu x;
    struct xbgpu_detected *detected;
    int8_t voltages[N_ANTS][N_SPECTRA][2][2]; /* the cpu device's memory is the host's */
} rig;

static void rig_open_yaml(const char *yaml)
{
    char why[256] = "";

    test_xbgpu_open(&rig.x, yaml);
    ck_assert_msg(xbgpu_detected_create(&rig.x.config, &rig.x.layout, &rig.x.engine, &rig.detected, why, sizeof(why)) ==
                      0,
                  "%s", why);
    memset(rig.voltages, 3, sizeof(rig.voltages));
}

static void rig_open(void)
{
    rig_open_yaml(YAML("coherent"));
}

static void rig_close(void)
{
    test_xbgpu_stop(&rig.x);
    xbgpu_detected_destroy(rig.detected);
    test_xbgpu_close(&rig.x);
}

static struct xbgpu_output_input input_of(int64_t batch)
{
    static const uint8_t present[N_ANTS] = {1, 1};

    return (struct xbgpu_output_input){
        .first_batch = batch, .n_batches = 1, .voltages = rig.voltages, .present = present};
}

static bool process(int64_t batch, bool may_wait)
{
    const struct xbgpu_output_input input = input_of(batch);

    return xbgpu_detected_process(rig.detected, rig.x.compute, &input, may_wait);
}

static void begin(int64_t batch)
{
    const struct xbgpu_output_input input = input_of(batch);

    xbgpu_detected_begin(rig.detected, &input);
}

static void set_weights(float weight)
{
    const struct beam_steering steering[2 * N_ANTS] = {
        {.amplitude = weight}, {.amplitude = weight}, {.amplitude = weight}, {.amplitude = weight}};

    xbgpu_detected_steer(rig.detected, 0, XBGPU_BEAM_ALWAYS, steering);
}

/* The oldest buffer has this heap, spectra in both windows, and powers in units of POWER; it is free again. */
static void check_made(int64_t number, float first_spectra, float last_spectra, float first_powers, float last_powers)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_pop(rig.x.inbox, &item), 0);
    ck_assert_int_eq(item.kind, ENGINE_DOWNLOADED);
    ck_assert(xbgpu_detected_own(rig.detected, item.object));
    const struct powers *made = item.object;
    const float *found = (const float *)made->payload;
    ck_assert_int_eq(made->number, number);
    ck_assert(found[0] == first_spectra / 12 && found[1] == last_spectra / 12);
    ck_assert(found[2] == first_powers * POWER && found[3] == last_powers * POWER);
    outbuf_give(item.object);
}

static void add(int64_t batch)
{
    begin(batch);
    ck_assert(process(batch, false));
}

/* Fills all buffers: heaps 0 and 1, and heap 2 as soon as batch 4 comes. */
static void fill_buffers(void)
{
    ck_assert_uint_eq(rig.detected->streams[0].sizes.n_buffers, N_BUFFERS);
    for (int64_t b = 0; b < 4; b++)
        add(b);
    begin(4);
}

TEST(steering_holds_from_an_input_on)
{
    fill_buffers();
    ck_assert(!process(4, true)); /* heap 3 has no buffer */
    set_weights(5);
    for (int64_t heap = 0; heap < N_BUFFERS; heap++)
        check_made(heap, 12, 12, 12, 12);
    ck_assert(process(4, true));
    add(5);
    check_made(3, 12, 12, 8 + 4 * 25, 12 * 25);
}

TEST(weights_of_an_incoherent_beam_hold_from_an_input_on)
{
    rig_close();
    rig_open_yaml(YAML("incoherent"));
    fill_buffers();
    ck_assert(!process(4, true)); /* heap 3 has no buffer */
    set_weights(5);
    for (int64_t heap = 0; heap < N_BUFFERS; heap++)
        check_made(heap, 12, 12, 12 * ALONE, 12 * ALONE);
    ck_assert(process(4, true));
    add(5);
    check_made(3, 12, 12, (8 + 4 * 5) * ALONE, 12 * 5 * ALONE);
}

TEST(weights_of_an_incoherent_beam_have_limits)
{
    static const float amplitudes[] = {-1, 0, 1e-9f, 1, 3.25f, 32767.9f, 1e30f};
    static const int32_t integers[] = {0, 0, 0, 65536, 212992, 2147477120, 2147483647};
    struct xbgpu_incoherent w;

    rig_close();
    rig_open_yaml(YAML("incoherent"));
    ck_assert_int_eq(xbgpu_incoherent_init(&w, &rig.x.config, xbgpu_config_detected(&rig.x.config, 0), rig.x.device),
                     0);
    for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
        const struct beam_steering steering[2 * N_ANTS] = {
            {.amplitude = amplitudes[i]}, {.amplitude = 1}, {.amplitude = amplitudes[i]}, {.amplitude = 0.25f}};
        xbgpu_incoherent_set(&w, steering);
        ck_assert_int_eq(w.wanted[0].x, integers[i]);
        ck_assert_int_eq(w.wanted[0].y, integers[i]);
        ck_assert_int_eq(w.wanted[0].xy, integers[i]);
        ck_assert(w.wanted[1].x == 65536 && w.wanted[1].y == 16384 && w.wanted[1].xy == 32768);
    }
    xbgpu_incoherent_fini(&w);
}

TEST(parts_without_a_buffer_are_dropped)
{
    fill_buffers();
    ck_assert(process(4, false));
    ck_assert_uint_eq(counter_get(&rig.detected->streams[0].dropped_heaps), 1);
    for (int64_t heap = 0; heap < N_BUFFERS; heap++)
        check_made(heap, 12, 12, 12, 12);
    add(5);
    check_made(3, 4, 12, 4, 12);
}

TEST(time_that_goes_back_ends_a_heap)
{
    add(0);
    add(0); /* within a heap */
    check_made(0, 12, 4, 12, 4);
    add(1);
    check_made(0, 12, 12, 12, 12);
    add(1); /* to the heap before */
    check_made(1, 8, 0, 8, 0);
    check_made(0, 0, 8, 0, 8);
    add(4); /* over a gap */
    check_made(1, 8, 0, 8, 0);
    check_made(2, 0, 8, 0, 8);
}

SUITE(.timeout_s = 20, .setup = rig_open, .teardown = rig_close);
