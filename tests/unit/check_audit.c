/* check_audit - the audit finds a bit that flips in the device's accumulators, and never cries wolf.
 *
 * The real correlation stage runs on the cpu device, whose launches pass through a device of our own that can flip one
 * bit of the sums between two kernels. */
#include "common/device.h"
#include "common/inbox.h"
#include "common/log.h"
#include "common/units.h"
#include "kernels/correlate.h"
#include "kernels/reduce.h"
#include "tests/unit/test_random.h"
#include "xbgpu/correlation.h"

#include <check.h>
#include <string.h>

#define N_ANTS      3
#define N_CHAN      4
#define N_SPECTRA   16
#define N_BATCHES   5 /* of a chunk: 3 batches per dump, so dumps straddle chunks */
#define N_LENGTH    3
#define N_BASELINES (N_ANTS * (N_ANTS + 1) / 2)
#define MAX_BYTES   (N_CHAN * N_SPECTRA * N_POLS * 4) /* of a heap */

enum { ITEM_DOWNLOADED, ITEM_SENT };

static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1e6}\n"
                           "device: {kind: cpu, threads: 1}\n"
                           "recv: {sources: 127.0.0.1, antennas: 3, channels: 4, channels_per_substream: 4,\n"
                           "       spectra_per_heap: 16, samples_between_spectra: 8, batches_per_chunk: 5, %s}\n"
                           "outputs: [{name: vis, integration_batches: %d, destination: 127.0.0.1, audit_samples: 2,\n"
                           "           missing: flag}]\n"
                           "send: {pcap_file: /dev/null}\n";

static const char *const formats[] = {"sample_bits: 4", "sample_bits: 4, sample_encoding: offset", "sample_bits: 8",
                                      "sample_bits: 16"};

/* The bit that flips before each reduction; < 0: none. */
static long flipped_bit = -1;
static struct device_ops flipping_ops;
static const struct device_ops *cpu_ops;

struct flip_args {
    uint8_t *at;
    uint8_t mask;
};

static void flip_cpu(const void *args, int n_threads)
{
    const struct flip_args *f = args;

    (void)n_threads;
    *f->at ^= f->mask;
}

static const struct kernel flip_kernel = {"flip", sizeof(struct flip_args), flip_cpu};

static void launch_flipping(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                            const void *args)
{
    if (kernel->kernel == &reduce_kernel && flipped_bit >= 0) {
        const struct reduce_args *reduce = args;
        struct flip_args flip = {(uint8_t *)reduce->sums.integer + flipped_bit / 8, (uint8_t)(1u << (flipped_bit % 8))};
        struct device_kernel flipper = {stream->device, &flip_kernel};
        cpu_ops->launch(stream, &flipper, NULL, &flip);
    }
    cpu_ops->launch(stream, kernel, grid, args);
}

struct rig {
    struct xbgpu_config config;
    struct config *errors;
    struct xbgpu_layout layout;
    struct device *device;
    struct device_stream *compute, *download;
    struct inbox *inbox;
    struct xsend *send;
    struct correlation correlation;
    int8_t voltages[N_BATCHES * N_ANTS * MAX_BYTES]; /* [batch][ant][chan][spectrum][pol] */
    int8_t *device_voltages;
    uint8_t present[N_BATCHES][N_ANTS];
    const uint8_t *heaps[N_BATCHES][N_ANTS];
    int64_t next_batch;
    uint64_t n_checked, n_wrong;
};

static void rig_open(struct rig *r, const char *format, int n_length)
{
    char path[] = "/tmp/check_audit.XXXXXX", text[1024], why[256];
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    snprintf(text, sizeof(text), yaml, format, n_length);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int err = config_load(&xbgpu_config_table, path, &r->config, &r->errors);
    config_print_errors(r->errors, stderr);
    unlink(path);
    ck_assert_int_eq(err, 0);
    xbgpu_layout_init(&r->layout, &r->config, false, 0);
    struct device_config device_config = {DEVICE_CPU, 1};
    ck_assert_int_eq(device_open(&device_config, &r->device, why, sizeof(why)), 0);
    cpu_ops = r->device->ops;
    flipping_ops = *cpu_ops;
    flipping_ops.launch = launch_flipping;
    r->device->ops = &flipping_ops;
    ck_assert_int_eq(device_stream_create(r->device, "compute", &r->compute), 0);
    ck_assert_int_eq(device_stream_create(r->device, "download", &r->download), 0);
    ck_assert_int_eq(inbox_create(16, &r->inbox), 0);
    struct xsend_config send = {&r->config, &r->layout, r->device, r->inbox, ITEM_DOWNLOADED, ITEM_SENT};
    ck_assert_msg(xsend_create(&send, &r->send, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(correlation_init(&r->correlation, &r->config, &r->layout, r->device, r->compute, r->download, NULL,
                                      xsend_stream(r->send, 0)),
                     0);
    r->device_voltages = device_alloc(r->device, sizeof(r->voltages));
}

static void rig_close(struct rig *r)
{
    device_stream_destroy(r->compute);
    device_stream_destroy(r->download);
    correlation_fini(&r->correlation);
    xsend_destroy(r->send);
    device_free(r->device, r->device_voltages);
    inbox_destroy(r->inbox);
    device_close(r->device);
    config_free(&xbgpu_config_table, &r->config, r->errors);
}

/* Takes home the dumps that have been downloaded, checked. */
static void check_dumps(struct rig *r)
{
    struct inbox_item item;

    device_stream_wait(r->compute);
    device_stream_wait(r->download);
    while (inbox_try_pop(r->inbox, &item) == 0) {
        ck_assert_int_eq(item.kind, ITEM_DOWNLOADED);
        r->n_wrong += !correlation_check(item.object);
        r->n_checked++;
        xstream_give(item.object);
    }
}

/* Any bits are a voltage, but for half floats that are infinite or not a number; these are of any size within 2^8. */
static void random_voltages(struct rig *r)
{
    uint16_t *halves = (uint16_t *)(void *)r->voltages;

    random_bytes(r->voltages, sizeof(r->voltages));
    for (size_t i = 0; r->layout.format == VOLTAGES_16_BITS && i < sizeof(r->voltages) / 2; i++)
        halves[i] = (halves[i] & 0x9FFF) | 0x2000;
}

/* Correlates one more chunk of the voltages that there are, with a lost heap now and then if 'lossy'. */
static void feed_voltages(struct rig *r, bool lossy)
{
    size_t bytes = r->layout.heap_bytes;

    for (size_t b = 0; b < N_BATCHES; b++)
        for (size_t a = 0; a < N_ANTS; a++) {
            int8_t *heap = r->voltages + (b * N_ANTS + a) * bytes;
            r->present[b][a] = !(lossy && random_below(8) == 0);
            r->heaps[b][a] = r->present[b][a] ? (const uint8_t *)heap : NULL;
            if (!r->present[b][a])
                memset(heap, voltage_zero(r->layout.format), bytes);
        }
    memcpy(r->device_voltages, r->voltages, sizeof(r->voltages));
    struct correlation_input input = {.first_batch = r->next_batch,
                                      .n_batches = N_BATCHES,
                                      .voltages = r->device_voltages,
                                      .present = &r->present[0][0],
                                      .heaps = &r->heaps[0][0]};
    correlation_begin(&r->correlation, &input);
    while (!correlation_walk(&r->correlation, &input, true))
        check_dumps(r);
    check_dumps(r);
    r->next_batch += N_BATCHES;
}

static void feed_chunk(struct rig *r, bool lossy)
{
    random_voltages(r);
    feed_voltages(r, lossy);
}

START_TEST(never_cries_wolf)
{
    static struct rig rig;

    rig_open(&rig, formats[_i], N_LENGTH);
    for (int chunk = 0; chunk < 300; chunk++)
        feed_chunk(&rig, true);
    ck_assert_uint_ge(rig.n_checked, 300 * N_BATCHES / N_LENGTH - 1);
    ck_assert_uint_eq(rig.n_wrong, 0);
    rig_close(&rig);
}
END_TEST

/* 2 of the 24 (baseline, channel) pairs are drawn per dump, so a wrong one stays unseen for a dump with probability
 * (23/24)^2, and for 300 dumps with 8e-12. */
START_TEST(finds_a_flipped_bit)
{
    static struct rig rig;

    for (int i = 0; i < _i; i++)
        random_u64(); /* each round is forked off the same state */
    size_t sum = random_below(N_CHAN * N_BASELINES * N_POL_PRODUCTS * 2);
    rig_open(&rig, formats[_i % ARRAY_LEN(formats)], N_LENGTH);
    if (rig.layout.format == VOLTAGES_16_BITS)
        sum -= sum % 2; /* an autocorrelation's imaginary part is 0, which such a flip leaves as good as 0 */
    /* One of the low bits of an integer, as a flip above them may vanish in the clipping; of a float one of those of
     * the exponent that change it by a factor of 4 to 256, in a real part, as imaginary ones of autocorrelations are 0. */
    sum &= rig.layout.format == VOLTAGES_16_BITS ? ~(size_t)1 : SIZE_MAX;
    flipped_bit = (long)(sum * 32 + (rig.layout.format == VOLTAGES_16_BITS ? 24 + random_below(3) : random_below(20)));
    printf("bit %ld flips\n", flipped_bit);
    while (rig.n_wrong == 0 && rig.n_checked < 300)
        feed_chunk(&rig, false);
    printf("found in dump %llu\n", (unsigned long long)rig.n_checked);
    ck_assert_uint_gt(rig.n_wrong, 0);
    ck_assert_uint_ge(counter_get(&xsend_stream(rig.send, 0)->audit_failures), 1);
    rig_close(&rig);
}
END_TEST

/* Where time jumps back again and again in an accumulation that sums of 32 bits are just enough for, each jump ends a
 * dump, so that no more comes of it than they hold. */
START_TEST(time_stands_still)
{
    static const int lengths[] = {4000, 4000, 4000, 500}; /* batches: a few less than sums hold */
    const unsigned n_jumps = 40;
    static struct rig rig;

    rig_open(&rig, formats[_i], lengths[_i]);
    ck_assert_ptr_null(rig.correlation.totals);
    if (rig.layout.format == VOLTAGES_16_BITS)
        random_voltages(&rig);
    else
        memset(rig.voltages, rig.layout.format == VOLTAGES_4_BITS ? 0x88 : 0x80, sizeof(rig.voltages));
    for (unsigned chunk = 0; chunk <= n_jumps; chunk++) {
        rig.next_batch = 0;
        feed_voltages(&rig, false);
        ck_assert_uint_eq(rig.n_checked, chunk);
    }
    rig.next_batch = lengths[_i];
    feed_voltages(&rig, false);
    ck_assert_uint_eq(rig.n_checked, n_jumps + 1);
    ck_assert_uint_eq(rig.n_wrong, 0);
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("audit");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    random_start();
    log_init("check_audit", LOG_LEVEL_ERROR);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, never_cries_wolf, 0, ARRAY_LEN(formats));
    tcase_add_loop_test(tcase, finds_a_flipped_bit, 0, 8);
    tcase_add_loop_test(tcase, time_stands_still, 0, ARRAY_LEN(formats));
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
