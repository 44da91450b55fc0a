/* check_audit - audit and checksums find a bit that flips between two kernels, and raise no false alarm.  With integers
 * checksums find every flipped bit, wherever it is.
 *
 * The real correlation stage runs on the cpu device.  Its launches pass through a device of the test, which can flip
 * one bit before or after a kernel. */
#include "common/device/device.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "kernels/correlate/checksum_dump.h"
#include "kernels/correlate/correlate.h"
#include "kernels/correlate/reduce.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_xbgpu.h"
#include "xbgpu/output.h"
#include "tests/unit/test_main.h"

#include <string.h>

#define N_ANTS      3
#define N_CHAN      4
#define N_SPECTRA   16
#define N_BATCHES   5 /* of a chunk: 3 batches per dump, so dumps straddle chunks */
#define N_LENGTH    3
#define N_BASELINES (N_ANTS * (N_ANTS + 1) / 2)
#define MAX_BYTES   (N_CHAN * N_SPECTRA * N_POLS * 4) /* of a heap */

static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1e6}\n"
                           "device: {kind: cpu, threads: 1}\n"
                           "recv: {sources: 127.0.0.1, antennas: 3, channels: 4, channels_per_substream: 4,\n"
                           "       spectra_per_heap: 16, samples_between_spectra: 8, batches_per_chunk: 5, %s}\n"
                           "outputs: [{name: vis, integration_batches: %d, destination: 127.0.0.1, %s,\n"
                           "           missing: flag}]\n"
                           "send: {pcap_file: /dev/null}\n";

static const char *const formats[] = {"sample_bits: 4", "sample_bits: 4, sample_encoding: offset", "sample_bits: 8",
                                      "sample_bits: 16"};

#define AUDIT     "audit_samples: 2, audit_checksum: false"
#define CHECKSUMS "audit_samples: 0, audit_checksum: true"
#define BOTH      "audit_samples: 2, audit_checksum: true"

/* The bit of the sums that flips before each reduction; < 0: none. */
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

/* Where a bit flips once, in memory of the device but for the last. */
enum place {
    NOWHERE,
    IN_SUMS,         /* before they are compared with the rows */
    IN_SUMS_LATER,   /* before they are reduced */
    IN_TOTALS,       /* as IN_SUMS */
    IN_TOTALS_LATER, /* as IN_SUMS_LATER */
    IN_ROWS,
    IN_OPERANDS, /* what correlate reads, and it alone */
    IN_DUMP,
    IN_COUNT, /* of clipped visibilities */
    IN_HOST_MEMORY,
    N_PLACES
};

static enum place next_place;
static size_t next_bit; /* modulo the bits of the memory */
static size_t vis_bytes, rows_bytes, voltages_bytes;

static void flip(struct device_stream *stream, const void *memory, size_t bytes, size_t bit)
{
    struct flip_args flip = {(uint8_t *)memory + bit / 8 % bytes, (uint8_t)(1u << (bit % 8))};
    struct device_kernel flipper = {stream->device, &flip_kernel};

    cpu_ops->launch(stream, &flipper, NULL, &flip);
}

/* The next flip, if it is one of the launch of 'kernel', or is to come behind it. */
static void flip_once(struct device_stream *stream, const struct kernel *kernel, const void *args, bool behind)
{
    const struct checksum_dump_args *dump = args;
    const struct reduce_args *reduce = args;
    const struct correlate_args *correlate = args;
    const struct {
        const struct kernel *kernel;
        bool behind;
        const void *memory;
        size_t bytes;
    } places[N_PLACES] = {
        [IN_SUMS] = {&checksum_dump_kernel, false, dump->sums.integer, vis_bytes},
        [IN_SUMS_LATER] = {&reduce_kernel, false, reduce->sums.integer, vis_bytes},
        [IN_TOTALS] = {&checksum_dump_kernel, false, dump->totals.integer, 2 * vis_bytes},
        [IN_TOTALS_LATER] = {&reduce_kernel, false, reduce->totals.integer, 2 * vis_bytes},
        [IN_ROWS] = {&checksum_dump_kernel, false, dump->rows.integer, rows_bytes},
        [IN_OPERANDS] = {&correlate_kernel, false, correlate->voltages, voltages_bytes},
        [IN_DUMP] = {&reduce_kernel, true, reduce->out.integer, vis_bytes},
        [IN_COUNT] = {&reduce_kernel, true, reduce->n_saturated, sizeof(*reduce->n_saturated)},
    };

    if (next_place == NOWHERE || places[next_place].kernel != kernel || places[next_place].behind != behind)
        return;
    flip(stream, places[next_place].memory, places[next_place].bytes, next_bit);
    if (next_place != IN_OPERANDS)
        next_place = NOWHERE;
}

static void launch_flipping(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                            const void *args)
{
    union {
        struct checksum_dump_args dump;
        struct reduce_args reduce;
        struct correlate_args correlate;
    } any = {0}; /* so that none is shorter than what is looked at */

    memcpy(&any, args, kernel->kernel->args_bytes < sizeof(any) ? kernel->kernel->args_bytes : sizeof(any));
    if (kernel->kernel == &reduce_kernel && flipped_bit >= 0)
        flip(stream, any.reduce.sums.integer, vis_bytes, (size_t)flipped_bit);
    flip_once(stream, kernel->kernel, &any, false);
    cpu_ops->launch(stream, kernel, grid, args);
    flip_once(stream, kernel->kernel, &any, true);
    if (next_place == IN_OPERANDS && kernel->kernel == &correlate_kernel) {
        flip(stream, any.correlate.voltages, voltages_bytes, next_bit); /* back */
        next_place = NOWHERE;
    }
}

static struct rig {
    struct test_xbgpu x;
    struct xbgpu_output correlation;
    int8_t voltages[N_BATCHES * N_ANTS * MAX_BYTES]; /* [batch][ant][chan][spectrum][pol] */
    int8_t *device_voltages;
    uint8_t present[N_BATCHES][N_ANTS];
    const uint8_t *heaps[N_BATCHES][N_ANTS];
    int64_t next_batch;
    uint64_t n_checked, n_wrong;
} rig;

static void rig_open(const char *format, int n_length, const char *checks)
{
    char text[1024];

    snprintf(text, sizeof(text), yaml, format, n_length, checks);
    test_xbgpu_open(&rig.x, text);
    vis_bytes = rig.x.layout.vis_bytes;
    rows_bytes = rig.x.layout.rows_bytes;
    voltages_bytes = N_BATCHES * N_ANTS * rig.x.layout.heap_bytes;
    cpu_ops = rig.x.device->ops;
    flipping_ops = *cpu_ops;
    flipping_ops.launch = launch_flipping;
    rig.x.device->ops = &flipping_ops;
    ck_assert_int_eq(xbgpu_output_init(&rig.correlation, &rig.x.config, &rig.x.layout, &rig.x.engine, rig.x.compute,
                                       NULL, xbgpu_send_stream(rig.x.send, 0)),
                     0);
    rig.device_voltages = device_alloc(rig.x.device, sizeof(rig.voltages));
}

static void rig_close(void)
{
    test_xbgpu_stop(&rig.x);
    xbgpu_output_fini(&rig.correlation);
    device_free(rig.x.device, rig.device_voltages);
    test_xbgpu_close(&rig.x);
    memset(&rig, 0, sizeof(rig));
}

/* A wrong dump becomes one of which no antenna was complete. */
static void check_flagging(struct xbgpu_dump *dump)
{
    const struct xbgpu_layout *l = dump->stream->layout;
    const int32_t *v = dump->visibilities;

    xbgpu_stream_flag(dump);
    for (size_t i = 0; i < l->vis_bytes / sizeof(*v); i++)
        if (v[i] != (l->format == VOLTAGES_16_BITS ? 0x7FC00000 : i % 2 ? 1 : INT32_MIN))
            ck_abort_msg("part %zu of a wrong dump is %d", i, v[i]);
    for (size_t baseline = 0; baseline < l->n_baselines; baseline++)
        ck_assert_uint_eq(dump->weights[baseline], 0);
    ck_assert(dump->group.send);
}

/* Takes home the dumps that have been downloaded, checked. */
static void check_dumps(void)
{
    struct inbox_item item;

    device_stream_wait(rig.x.compute);
    device_stream_wait(rig.x.download);
    while (inbox_try_pop(rig.x.inbox, &item) == 0) {
        struct xbgpu_dump *dump = item.object;
        ck_assert_int_eq(item.kind, ENGINE_DOWNLOADED);
        if (next_place == IN_HOST_MEMORY) {
            ((uint8_t *)dump->visibilities)[next_bit / 8 % vis_bytes] ^= (uint8_t)(1u << (next_bit % 8));
            next_place = NOWHERE;
        }
        if (!xbgpu_output_check(dump)) {
            rig.n_wrong++;
            check_flagging(dump);
        }
        rig.n_checked++;
        outbuf_give(item.object);
    }
}

/* Any bits are a voltage, but for half floats that are infinite or not a number; these are of any size within 2^8. */
static void random_voltages(void)
{
    uint16_t *halves = (uint16_t *)(void *)rig.voltages;

    random_bytes(rig.voltages, sizeof(rig.voltages));
    for (size_t i = 0; rig.x.layout.format == VOLTAGES_16_BITS && i < sizeof(rig.voltages) / 2; i++)
        halves[i] = (halves[i] & 0x9FFF) | 0x2000;
}

/* Correlates one more chunk of the voltages that there are, with a lost heap now and then if 'lossy'. */
static void feed_voltages(bool lossy)
{
    size_t bytes = rig.x.layout.heap_bytes;

    for (size_t b = 0; b < N_BATCHES; b++)
        for (size_t a = 0; a < N_ANTS; a++) {
            int8_t *heap = rig.voltages + (b * N_ANTS + a) * bytes;
            rig.present[b][a] = !(lossy && random_below(8) == 0);
            rig.heaps[b][a] = rig.present[b][a] ? (const uint8_t *)heap : NULL;
            if (!rig.present[b][a])
                memset(heap, voltage_zero(rig.x.layout.format), bytes);
        }
    memcpy(rig.device_voltages, rig.voltages, sizeof(rig.voltages));
    struct xbgpu_output_input input = {.first_batch = rig.next_batch,
                                       .n_batches = N_BATCHES,
                                       .voltages = rig.device_voltages,
                                       .present = &rig.present[0][0],
                                       .heaps = &rig.heaps[0][0]};
    xbgpu_output_begin(&rig.correlation, &input);
    while (!xbgpu_output_correlate(&rig.correlation, &input, true))
        check_dumps();
    check_dumps();
    rig.next_batch += N_BATCHES;
}

static void feed_chunk(bool lossy)
{
    random_voltages();
    feed_voltages(lossy);
}

TEST(never_cries_wolf, .end = ARRAY_LEN(formats))
{
    rig_open(formats[_i], N_LENGTH, BOTH);
    for (int chunk = 0; chunk < 300; chunk++)
        feed_chunk(true);
    ck_assert_uint_ge(rig.n_checked, 300 * N_BATCHES / N_LENGTH - 1);
    ck_assert_uint_eq(rig.n_wrong, 0);
}

/* 2 of the 24 (baseline, channel) pairs are drawn per dump, so a wrong one stays unseen for a dump with probability
 * (23/24)^2, and for 300 dumps with 8e-12. */
TEST(finds_a_flipped_bit, .end = 8)
{
    for (int i = 0; i < _i; i++)
        random_u64(); /* each round is forked off the same state */
    size_t sum = random_below(N_CHAN * N_BASELINES * N_POL_PRODUCTS * 2);
    rig_open(formats[_i % ARRAY_LEN(formats)], N_LENGTH, AUDIT);
    if (rig.x.layout.format == VOLTAGES_16_BITS)
        sum -= sum % 2; /* an autocorrelation's imaginary part is 0, which such a flip leaves as good as 0 */
    /* One of the low bits of an integer, as a flip above them may vanish in the clipping; of a float one of those of
     * the exponent that change it by a factor of 4 to 256, in a real part, as imaginary ones of autocorrelations are 0. */
    sum &= rig.x.layout.format == VOLTAGES_16_BITS ? ~(size_t)1 : SIZE_MAX;
    flipped_bit =
        (long)(sum * 32 + (rig.x.layout.format == VOLTAGES_16_BITS ? 24 + random_below(3) : random_below(20)));
    printf("bit %ld flips\n", flipped_bit);
    while (rig.n_wrong == 0 && rig.n_checked < 300)
        feed_chunk(false);
    printf("found in dump %llu\n", (unsigned long long)rig.n_checked);
    ck_assert_uint_gt(rig.n_wrong, 0);
    ck_assert_uint_eq(counter_get(&xbgpu_send_stream(rig.x.send, 0)->wrong_accs), rig.n_wrong);
    ck_assert_uint_ge(counter_get(&xbgpu_send_stream(rig.x.send, 0)->audit_failures), 1);
}

/* Sums that go to totals are added to by nothing here, so totals of any value and their rows agree. */
static void use_totals(void)
{
    rig.correlation.totals = device_alloc(rig.x.device, rig.x.layout.totals_bytes);
    ck_assert_ptr_nonnull(rig.correlation.totals);
    device_fill(rig.x.compute, rig.correlation.totals, 0, rig.x.layout.totals_bytes);
}

/* One of 10^4 bits flips in a dump: it is found in that dump, and nothing is found in the next.  Where sums are floats,
 * that is so of what comes behind them. */
TEST(finds_every_flip, .end = ARRAY_LEN(formats))
{
    const enum place places[2][N_PLACES] = {
        {IN_SUMS, IN_SUMS_LATER, IN_TOTALS, IN_TOTALS_LATER, IN_ROWS, IN_OPERANDS, IN_DUMP, IN_COUNT, IN_HOST_MEMORY},
        {IN_DUMP, IN_COUNT, IN_HOST_MEMORY}};

    log_init("check_audit", LOG_LEVEL_ERROR + 1);
    rig_open(formats[_i], N_BATCHES, CHECKSUMS);
    bool real = rig.x.layout.format == VOLTAGES_16_BITS;
    size_t n_places = real ? 3 : 9;
    use_totals();
    feed_chunk(false);
    for (size_t n = 0; n < 2500; n++) {
        enum place place = places[real][n % n_places];
        uint64_t n_wrong = rig.n_wrong;
        next_bit = random_below(SIZE_MAX);
        next_place = place;
        feed_chunk(false);
        /* This chunk's dump has operands that were wrong, the last one's all else. */
        if (place == IN_OPERANDS)
            feed_chunk(false);
        ck_assert_int_eq(next_place, NOWHERE);
        ck_assert_msg(rig.n_wrong == n_wrong + 1, "%s: bit %zu at place %d: %llu dumps were wrong", formats[_i],
                      next_bit, place, (unsigned long long)(rig.n_wrong - n_wrong));
        /* Flagged cells may hold anything, but not before they are compared with the rows. */
        enum place next = places[real][(n + 1) % n_places];
        feed_chunk(next == IN_SUMS || next == IN_TOTALS || next == IN_ROWS);
        ck_assert_uint_eq(rig.n_wrong, n_wrong + 1);
    }
}

/* Where time jumps back again and again in an accumulation that sums of 32 bits are just enough for, each jump ends a
 * dump, so that no more comes of it than they hold. */
TEST(time_stands_still, .end = ARRAY_LEN(formats))
{
    static const int lengths[] = {4000, 4000, 4000, 500}; /* batches: a few less than sums hold */
    const unsigned n_jumps = 40;

    rig_open(formats[_i], lengths[_i], BOTH);
    ck_assert_ptr_null(rig.correlation.totals);
    if (rig.x.layout.format == VOLTAGES_16_BITS)
        random_voltages();
    else
        memset(rig.voltages, rig.x.layout.format == VOLTAGES_4_BITS ? 0x88 : 0x80, sizeof(rig.voltages));
    for (unsigned chunk = 0; chunk <= n_jumps; chunk++) {
        rig.next_batch = 0;
        feed_voltages(false);
        ck_assert_uint_eq(rig.n_checked, chunk);
    }
    rig.next_batch = lengths[_i];
    feed_voltages(false);
    ck_assert_uint_eq(rig.n_checked, n_jumps + 1);
    ck_assert_uint_eq(rig.n_wrong, 0);
}

static void start(void)
{
    random_start();
    log_init("check_audit", LOG_LEVEL_ERROR);
}

SUITE(.timeout_s = 60, .teardown = rig_close, .start = start);
