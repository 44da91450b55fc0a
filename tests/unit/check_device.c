/* check_device.c - what every device promises, on the cpu device: order within a stream, events and nothing else
 * between streams, callbacks, copies, transforms.  check_device_random.c mixes them.
 *
 * A gate is a kernel that does not end before the test says so.  What must not happen before that is given time to
 * happen; what must happen is waited for. */
#include "common/clock.h"
#include "common/device.h"
#include "common/loan.h"
#include "common/units.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRACE_NS  (20 * NS_PER_MS) /* given to what must not happen */
#define N_STREAMS 4

static struct device *device;
static struct device_stream *streams[N_STREAMS];
static struct inbox *inbox;

static struct device *open_device(int n_threads)
{
    struct device_config config = {.kind = DEVICE_AUTO, .n_threads = n_threads};
    struct device *opened;
    char why[200] = "";

    ck_assert_msg(device_open(&config, &opened, why, sizeof(why)) == 0, "%s", why);
    return opened;
}

static void setup(void)
{
    device = open_device(2);
    for (int k = 0; k < N_STREAMS; k++)
        ck_assert_int_eq(device_stream_create(device, "stream", &streams[k]), 0);
    ck_assert_int_eq(inbox_create(8, &inbox), 0);
}

static void teardown(void)
{
    for (int k = 0; k < N_STREAMS; k++)
        device_stream_destroy(streams[k]);
    inbox_destroy(inbox);
    device_close(device);
}

static struct device_event *create_event(void)
{
    struct device_event *event;

    ck_assert_int_eq(device_event_create(device, &event), 0);
    return event;
}

static void wait_for_all(void)
{
    for (int k = 0; k < N_STREAMS; k++)
        device_stream_wait(streams[k]);
}

/* ---- Kernels of the tests ---------------------------------------------------------------------------------------- */

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_seen, n_needed;
};

static void gate_run(const void *args, int n_threads)
{
    struct gate *gate = *(struct gate *const *)args;

    pthread_mutex_lock(&gate->mutex);
    while (gate->n_seen < gate->n_needed)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

/* The cpu device keeps nothing of a kernel made ready but what it is. */
static void launch(struct device_stream *stream, const struct kernel *kernel, const void *args)
{
    struct device_kernel ready = {stream->device, kernel};

    device_launch(stream, &ready, NULL, args);
}

static const struct kernel gate_kernel = {.name = "gate", .args_bytes = sizeof(struct gate *), .cpu = gate_run};

#define GATE(n)                                                                                                        \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .n_needed = (n)                       \
    }

static void close_gate(struct device_stream *stream, struct gate *gate)
{
    launch(stream, &gate_kernel, &gate);
}

static void open_gate(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->n_seen++;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

/* Notes 'value' in a list, under no lock. */
struct list {
    int n;
    int values[3 * DEVICE_STREAM_DEPTH];
};

struct append_args {
    struct list *list;
    int value;
    char padding[KERNEL_ARGS_MAX - sizeof(struct list *) - sizeof(int)];
};

static void append_run(const void *args, int n_threads)
{
    const struct append_args *a = args;

    for (size_t k = 0; k < sizeof(a->padding); k++)
        if (a->padding[k] != (char)a->value)
            return;
    a->list->values[a->list->n++] = a->value;
}

static const struct kernel append_kernel = {
    .name = "append", .args_bytes = sizeof(struct append_args), .cpu = append_run};

static void append(struct device_stream *stream, struct list *list, int value)
{
    struct append_args args = {.list = list, .value = value};

    memset(args.padding, value, sizeof(args.padding));
    launch(stream, &append_kernel, &args);
    memset(&args, 0xEE, sizeof(args)); /* the stream has its own copy */
}

static void assert_list(const struct list *list, int n)
{
    ck_assert_int_eq(list->n, n);
    for (int k = 0; k < n; k++)
        ck_assert_int_eq(list->values[k], k);
}

/* ---- Callbacks of the tests -------------------------------------------------------------------------------------- */

static void push_arg(void *arg)
{
    inbox_push(inbox, &(struct inbox_item){.object = arg});
}

static void assert_next(void *arg)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_pop(inbox, &item), 0);
    ck_assert_ptr_eq(item.object, arg);
}

static void assert_none_yet(void)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_pop_until(inbox, clock_monotonic_ns() + GRACE_NS, &item), -ETIMEDOUT);
}

/* ---- Opening, memory --------------------------------------------------------------------------------------------- */

START_TEST(auto_and_cpu_open_cpu_and_cuda_says_why_not)
{
    struct device_config config = {.kind = DEVICE_CPU};
    struct device *opened = NULL;
    char why[100] = "";

    ck_assert_str_eq(device_name(device), "cpu");
    ck_assert_int_eq(device_open(&config, &opened, why, sizeof(why)), 0);
    ck_assert_str_eq(device_name(opened), "cpu");
    device_close(opened);
    opened = NULL;
    config.kind = DEVICE_CUDA;
    ck_assert_int_eq(device_open(&config, &opened, why, sizeof(why)), -ENODEV);
    ck_assert_ptr_null(opened);
    ck_assert_ptr_nonnull(strstr(why, "cuda"));
}
END_TEST

START_TEST(destroy_accepts_null)
{
    device_close(NULL);
    device_free(device, NULL);
    device_free_pinned(device, NULL);
    device_stream_destroy(NULL);
    device_event_destroy(NULL);
    device_fft_destroy(NULL);
}
END_TEST

START_TEST(memory_is_aligned_and_poisoned)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4095, 4097, 100001};

    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        uint8_t *memory = device_alloc(device, sizes[k]);
        uint8_t *pinned = device_alloc_pinned(device, sizes[k]);

        ck_assert_ptr_nonnull(memory);
        ck_assert_ptr_nonnull(pinned);
        ck_assert_uint_eq((uintptr_t)memory % 64, 0);
        ck_assert_uint_eq((uintptr_t)pinned % 64, 0);
#ifdef CBF_SANITIZE
        for (size_t i = 0; i < sizes[k]; i++)
            ck_assert(memory[i] == 0xA5 && pinned[i] == 0xA5);
#endif
        device_free(device, memory);
        device_free_pinned(device, pinned);
    }
    ck_assert_ptr_null(device_alloc(device, SIZE_MAX));
    ck_assert_ptr_null(device_alloc_pinned(device, SIZE_MAX - 100));
}
END_TEST

static void note_threads(const void *args, int n_threads)
{
    **(int *const *)args = n_threads;
}

START_TEST(kernels_get_the_configured_threads)
{
    static const struct kernel kernel = {.name = "note", .args_bytes = sizeof(int *), .cpu = note_threads};

    for (int n_threads = 0; n_threads <= 3; n_threads++) {
        struct device *opened = open_device(n_threads);
        struct device_stream *stream;
        int seen = -1, *args = &seen;

        ck_assert_int_eq(device_stream_create(opened, "threads", &stream), 0);
        launch(stream, &kernel, &args);
        device_stream_destroy(stream);
        ck_assert_int_eq(seen, n_threads ? n_threads : (int)sysconf(_SC_NPROCESSORS_ONLN));
        device_close(opened);
    }
}
END_TEST

/* ---- One stream -------------------------------------------------------------------------------------------------- */

START_TEST(order_is_kept_as_the_ring_wraps)
{
    static struct list list;
    const int n = (int)ARRAY_LEN(list.values);
    /* The ring holds the gate and DEPTH - 1 others; the gate opens when one more is about to be enqueued. */
    struct gate gate = GATE(DEVICE_STREAM_DEPTH);

    close_gate(streams[0], &gate);
    for (int k = 0; k < n; k++) {
        open_gate(&gate);
        append(streams[0], &list, k);
    }
    device_stream_wait(streams[0]);
    assert_list(&list, n);
}
END_TEST

START_TEST(destroy_runs_what_is_queued)
{
    static struct list list;
    struct device_stream *stream;

    ck_assert_int_eq(device_stream_create(device, "doomed", &stream), 0);
    for (int k = 0; k < 500; k++)
        append(stream, &list, k);
    device_stream_destroy(stream);
    assert_list(&list, 500);
}
END_TEST

START_TEST(then_comes_after_all_before_it)
{
    struct gate gate = GATE(1);
    uint8_t *memory = device_alloc(device, 100);
    int first, second;

    device_then(streams[0], push_arg, &first);
    assert_next(&first);
    close_gate(streams[0], &gate);
    device_fill(streams[0], memory, 17, 100);
    device_then(streams[0], push_arg, &second);
    assert_none_yet();
    open_gate(&gate);
    assert_next(&second);
    for (int k = 0; k < 100; k++)
        ck_assert_uint_eq(memory[k], 17);
    device_free(device, memory);
}
END_TEST

START_TEST(loans_come_home_from_several_streams)
{
    struct loan loan;
    struct gate gate = GATE(1);

    loan_init(&loan, inbox, (struct inbox_item){.object = &loan});
    loan_out(&loan, N_STREAMS);
    close_gate(streams[1], &gate);
    for (int k = 0; k < N_STREAMS; k++)
        device_then(streams[k], loan_put, &loan);
    assert_none_yet();
    open_gate(&gate);
    assert_next(&loan);
}
END_TEST

static void call_device(void *arg)
{
    device_fill(streams[1], arg, 0, 1);
}

START_TEST(aborts_when_a_callback_calls_the_device)
{
    uint8_t byte;

    device_then(streams[0], call_device, &byte);
    device_stream_wait(streams[0]);
}
END_TEST

/* ---- Events ------------------------------------------------------------------------------------------------------ */

START_TEST(event_before_its_first_record_has_passed)
{
    struct device_event *event = create_event();
    int arg;

    device_stream_wait_event(streams[0], event);
    device_then(streams[0], push_arg, &arg);
    assert_next(&arg);
    device_event_destroy(event);
}
END_TEST

START_TEST(several_streams_wait_for_one_event)
{
    struct device_event *event = create_event();
    struct gate gate = GATE(1);
    int arg;

    close_gate(streams[0], &gate);
    device_event_record(event, streams[0]);
    for (int k = 1; k < N_STREAMS; k++) {
        device_stream_wait_event(streams[k], event);
        device_then(streams[k], push_arg, &arg);
    }
    device_event_destroy(event); /* those who wait, wait on */
    assert_none_yet();
    open_gate(&gate);
    for (int k = 1; k < N_STREAMS; k++)
        assert_next(&arg);
    wait_for_all();
}
END_TEST

START_TEST(wait_is_for_the_last_record_before_it)
{
    struct device_event *event = create_event();
    struct gate gate = GATE(1);
    int first, second;

    close_gate(streams[0], &gate);
    device_event_record(event, streams[0]);
    device_stream_wait_event(streams[1], event);
    device_then(streams[1], push_arg, &first);
    /* Recorded again where nothing is pending: frees later waits, not the earlier one. */
    device_event_record(event, streams[2]);
    device_stream_wait_event(streams[3], event);
    device_then(streams[3], push_arg, &second);
    assert_next(&second);
    assert_none_yet();
    open_gate(&gate);
    assert_next(&first);
    device_event_destroy(event);
}
END_TEST

START_TEST(record_covers_only_what_came_before)
{
    struct device_event *event = create_event();
    struct gate gate = GATE(1);
    int arg;

    device_event_record(event, streams[0]);
    close_gate(streams[0], &gate);
    device_stream_wait_event(streams[1], event);
    device_then(streams[1], push_arg, &arg);
    assert_next(&arg);
    open_gate(&gate);
    wait_for_all();
    device_event_destroy(event);
}
END_TEST

START_TEST(event_outlives_its_stream)
{
    struct device_event *event = create_event();
    struct device_stream *stream;
    struct gate gate = GATE(1);
    int early, late;

    ck_assert_int_eq(device_stream_create(device, "mayfly", &stream), 0);
    device_event_record(event, stream);
    close_gate(streams[0], &gate);
    device_stream_wait_event(streams[0], event);
    device_then(streams[0], push_arg, &early);
    device_stream_destroy(stream);
    device_stream_wait_event(streams[1], event);
    device_then(streams[1], push_arg, &late);
    assert_next(&late);
    open_gate(&gate);
    assert_next(&early);
    device_event_destroy(event);
}
END_TEST

START_TEST(two_streams_take_turns)
{
    static struct list list;
    struct device_event *turn[2] = {create_event(), create_event()};
    int n = 0;

    /* More turns than a ring holds; each stream waits for the other's record of the turn before. */
    for (int k = 0; k < DEVICE_STREAM_DEPTH; k++) {
        for (int s = 0; s < 2; s++) {
            device_stream_wait_event(streams[s], turn[1 - s]);
            append(streams[s], &list, n++);
            device_event_record(turn[s], streams[s]);
        }
    }
    wait_for_all();
    assert_list(&list, n);
    device_event_destroy(turn[0]);
    device_event_destroy(turn[1]);
}
END_TEST

/* ---- Copies and fills -------------------------------------------------------------------------------------------- */

START_TEST(rows_are_copied_and_nothing_else)
{
    static const struct {
        size_t dst_pitch, src_pitch, row_bytes, n_rows;
    } table[] = {
        {37, 53, 37, 5}, {53, 37, 37, 5}, {64, 64, 64, 7}, {64, 61, 1, 8},    {3, 3, 0, 4},
        {9, 9, 9, 0},    {0, 0, 100, 1},  {128, 1, 1, 9},  {100, 99, 98, 12},
    };

    for (size_t k = 0; k < ARRAY_LEN(table); k++) {
        size_t bytes = 2000;
        uint8_t *src = device_alloc_pinned(device, bytes), *dst = device_alloc(device, bytes);
        uint8_t expected[2000];

        for (size_t i = 0; i < bytes; i++)
            src[i] = (uint8_t)(i * 7 + i / 256);
        memset(dst, 0xCC, bytes);
        memset(expected, 0xCC, bytes);
        for (size_t row = 0; row < table[k].n_rows; row++)
            for (size_t i = 0; i < table[k].row_bytes; i++)
                expected[row * table[k].dst_pitch + i] = src[row * table[k].src_pitch + i];
        device_copy_2d(streams[0], dst, table[k].dst_pitch, src, table[k].src_pitch, table[k].row_bytes,
                       table[k].n_rows);
        device_stream_wait(streams[0]);
        ck_assert_mem_eq(dst, expected, bytes);
        device_free_pinned(device, src);
        device_free(device, dst);
    }
}
END_TEST

START_TEST(fill_stays_within_its_bytes)
{
    uint8_t *memory = device_alloc(device, 300), expected[300];

    memset(memory, 0xCC, 300);
    memset(expected, 0xCC, 300);
    memset(expected + 3, 0xFE, 101);
    device_fill(streams[0], memory + 3, 0xFE, 101);
    device_fill(streams[0], memory + 200, 0, 0);
    device_copy(streams[0], memory + 200, memory, 0);
    device_stream_wait(streams[0]);
    ck_assert_mem_eq(memory, expected, 300);
    device_free(device, memory);
}
END_TEST

/* ---- Transforms -------------------------------------------------------------------------------------------------- */

/* One bin of the transform in float64; 'turns' is [n] of e^{-2 pi i k/n}. */
static void dft_bin(size_t n, const float *in, const double *turns, size_t bin, double *re, double *im)
{
    *re = *im = 0;
    for (size_t j = 0; j < n; j++) {
        const double *turn = turns + 2 * ((j * bin) % n);

        *re += in[2 * j] * turn[0] - in[2 * j + 1] * turn[1];
        *im += in[2 * j] * turn[1] + in[2 * j + 1] * turn[0];
    }
}

static void check_fft(size_t n, size_t batch, size_t n_bins, unsigned *seed)
{
    size_t n_values = 2 * n * batch;
    float *in = device_alloc(device, n_values * sizeof(*in));
    float *out = device_alloc(device, (n_values + 16) * sizeof(*out));
    double *turns = malloc(2 * n * sizeof(*turns));
    /* Both parts of the input are uniform in [-1, 1), so a bin's power is 2n/3 on average. */
    double tolerance = 2e-6 * sqrt(2.0 * (double)n / 3.0);
    struct device_fft *fft;

    for (size_t k = 0; k < n; k++) {
        turns[2 * k] = cos(2 * M_PI * (double)k / (double)n);
        turns[2 * k + 1] = -sin(2 * M_PI * (double)k / (double)n);
    }
    for (size_t k = 0; k < n_values; k++)
        in[k] = (float)rand_r(seed) / ((float)RAND_MAX / 2) - 1;
    memset(out, 0xFF, (n_values + 16) * sizeof(*out)); /* NaN */

    ck_assert_int_eq(device_fft_create(device, n, batch, &fft), 0);
    for (int run = 0; run < 2; run++)
        device_fft_run(streams[0], fft, in, out);
    device_stream_wait(streams[0]);
    device_fft_destroy(fft);

    for (size_t b = 0; b < batch; b++) {
        for (size_t k = 0; k < n_bins; k++) {
            size_t bin = n_bins == n ? k : k < 2 ? k * (n / 2) : (size_t)rand_r(seed) % n;
            const float *got = out + 2 * (b * n + bin);
            double re, im;

            dft_bin(n, in + 2 * b * n, turns, bin, &re, &im);
            ck_assert_msg(hypot(got[0] - re, got[1] - im) <= tolerance,
                          "n %zu batch %zu bin %zu: got %g %g, expected %g %g", n, b, bin, got[0], got[1], re, im);
        }
    }
    for (size_t k = n_values; k < n_values + 16; k++)
        ck_assert(isnan(out[k]));
    free(turns);
    device_free(device, in);
    device_free(device, out);
}

START_TEST(fft_is_the_dft)
{
    const char *given = getenv("CHECK_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)clock_unix_ns();

    printf("fft_is_the_dft: CHECK_SEED=%u\n", seed);
    check_fft(1, 1, 1, &seed);
    check_fft(1, 5, 1, &seed);
    check_fft(2, 7, 2, &seed);
    check_fft(4, 3, 4, &seed);
    check_fft(8, 3, 8, &seed);
    check_fft(64, 9, 64, &seed);
    check_fft(1024, 3, 1024, &seed);
    check_fft(65536, 3, 20, &seed);
}
END_TEST

START_TEST(aborts_when_fft_in_and_out_overlap)
{
    float *memory = device_alloc(device, 4096);
    struct device_fft *fft;

    ck_assert_int_eq(device_fft_create(device, 64, 2, &fft), 0);
    device_fft_run(streams[0], fft, memory, memory + 2 * 64);
}
END_TEST

static void add_tests(TCase *tests)
{
    tcase_add_test(tests, auto_and_cpu_open_cpu_and_cuda_says_why_not);
    tcase_add_test(tests, destroy_accepts_null);
    tcase_add_test(tests, memory_is_aligned_and_poisoned);
    tcase_add_test(tests, kernels_get_the_configured_threads);
    tcase_add_test(tests, order_is_kept_as_the_ring_wraps);
    tcase_add_test(tests, destroy_runs_what_is_queued);
    tcase_add_test(tests, then_comes_after_all_before_it);
    tcase_add_test(tests, loans_come_home_from_several_streams);
    tcase_add_test_raise_signal(tests, aborts_when_a_callback_calls_the_device, SIGABRT);
    tcase_add_test(tests, event_before_its_first_record_has_passed);
    tcase_add_test(tests, several_streams_wait_for_one_event);
    tcase_add_test(tests, wait_is_for_the_last_record_before_it);
    tcase_add_test(tests, record_covers_only_what_came_before);
    tcase_add_test(tests, event_outlives_its_stream);
    tcase_add_test(tests, two_streams_take_turns);
    tcase_add_test(tests, rows_are_copied_and_nothing_else);
    tcase_add_test(tests, fill_stays_within_its_bytes);
    tcase_add_test(tests, fft_is_the_dft);
    tcase_add_test_raise_signal(tests, aborts_when_fft_in_and_out_overlap, SIGABRT);
}

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *tests = tcase_create("device");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    add_tests(tests);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
