/* check_device.c - the promises of every device: order within a stream, order between streams only by events,
 * callbacks, copies, transforms.  CBF_TEST_DEVICE says which device. check_device_random.c mixes the operations.
 *
 * A gate is a kernel that does not end before the test says so.  Before it opens the gate, the test gives a forbidden
 * operation time to happen.  The test waits for an operation that must happen.  Results of kernels for the test lie in
 * pinned memory. */
#include "common/base/clock.h"
#include "common/base/copy.h"
#include "common/device/device.h"
#include "common/base/buffer_ref.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tests/unit/device_under_test.h"
#include "tests/unit/test_random.h"
#include "tests/fakes/direct_guard/direct_guard.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRACE_NS  (20 * NS_PER_MS) /* given to what must not happen */
#define N_STREAMS 4

struct gate;
struct list;

static struct device *device;
static struct device_stream *streams[N_STREAMS];
static struct inbox *inbox;
static struct device_kernel *gate_ready, *append_ready;
static struct gate *gates; /* pinned, for all gates of a test */
static struct list *list;  /* pinned */

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

#define N_GATES 4

struct gate {
    uint32_t n_seen, n_needed; /* passes when n_seen >= n_needed; 0, 0: not in use */
};

struct gate_args {
    struct gate *gate;
};

static void xbgpu_gate_run(const void *args, int n_threads)
{
    struct gate *gate = ((const struct gate_args *)args)->gate;

    while (__atomic_load_n(&gate->n_seen, __ATOMIC_ACQUIRE) < gate->n_needed)
        sched_yield();
}

static const struct kernel gate_kernel = {
    .name = "gate",
    .args_bytes = sizeof(struct gate_args),
    .cpu = xbgpu_gate_run,
    .cuda_text = "#include <stdint.h>\n"
                 "struct gate { uint32_t n_seen, n_needed; };\n"
                 "struct gate_args { struct gate *gate; };\n"
                 "extern \"C\" __global__ void gate(const struct gate_args args)\n"
                 "{\n"
                 "    while (*(volatile uint32_t *)&args.gate->n_seen < args.gate->n_needed)\n"
                 "        ;\n"
                 "}\n",
};

/* All kernels of the tests run in one thread. */
static void launch(struct device_stream *stream, struct device_kernel *kernel, const void *args)
{
    static const struct kernel_grid one = {{1, 1, 1}, 1, 0};

    device_launch(stream, kernel, &one, args);
}

/* What follows in the stream waits until the gate has been opened 'n_needed' times. */
static struct gate *close_gate(struct device_stream *stream, uint32_t n_needed)
{
    struct gate *gate = gates;

    while (gate->n_needed > 0)
        gate++;
    ck_assert(gate < gates + N_GATES);
    gate->n_needed = n_needed;
    launch(stream, gate_ready, &(struct gate_args){gate});
    return gate;
}

static void open_gate(struct gate *gate)
{
    __atomic_add_fetch(&gate->n_seen, 1, __ATOMIC_RELEASE);
}

/* Notes 'value' in a list, under no lock. */
struct list {
    int n;
    int values[3 * DEVICE_STREAM_DEPTH];
};

#define PADDING_BYTES (KERNEL_ARGS_MAX - sizeof(struct list *) - sizeof(int))

struct append_args {
    struct list *list;
    int value;
    char padding[PADDING_BYTES];
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
    .name = "append",
    .args_bytes = sizeof(struct append_args),
    .cpu = append_run,
    .cuda_text = "struct list { int n; int values[1]; };\n"
                 "struct append_args { struct list *list; int value; char padding[PADDING_BYTES]; };\n"
                 "extern \"C\" __global__ void append(const struct append_args a)\n"
                 "{\n"
                 "    for (int k = 0; k < PADDING_BYTES; k++)\n"
                 "        if (a.padding[k] != (char)a.value)\n"
                 "            return;\n"
                 "    volatile int *n = &a.list->n;\n"
                 "    ((volatile int *)a.list->values)[*n] = a.value;\n"
                 "    *n = *n + 1;\n"
                 "}\n",
};

static void append(struct device_stream *stream, int value)
{
    struct append_args args = {.list = list, .value = value};

    memset(args.padding, value, sizeof(args.padding));
    launch(stream, append_ready, &args);
    memset(&args, 0xEE, sizeof(args)); /* the stream has its own copy */
}

static void assert_list(int n)
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

/* ---- Around each test -------------------------------------------------------------------------------------------- */

static void setup(void)
{
    struct kernel_constant padding = {"PADDING_BYTES", PADDING_BYTES};

    device = test_open_device(2);
    for (int k = 0; k < N_STREAMS; k++)
        ck_assert_int_eq(device_stream_create(device, "stream", &streams[k]), 0);
    ck_assert_int_eq(device_kernel_create(device, &gate_kernel, NULL, 0, &gate_ready), 0);
    ck_assert_int_eq(device_kernel_create(device, &append_kernel, &padding, 1, &append_ready), 0);
    gates = device_alloc_pinned(device, (N_GATES + 1) * sizeof(*gates));
    memset(gates, 0, (N_GATES + 1) * sizeof(*gates));
    list = device_alloc_pinned(device, sizeof(*list));
    memset(list, 0, sizeof(*list));
    ck_assert_int_eq(inbox_create(8, &inbox), 0);
}

static void teardown(void)
{
    for (int k = 0; k < N_STREAMS; k++)
        device_stream_destroy(streams[k]);
    device_kernel_destroy(gate_ready);
    device_kernel_destroy(append_ready);
    device_free_pinned(device, gates);
    device_free_pinned(device, list);
    inbox_destroy(inbox);
    device_close(device);
}

/* ---- Opening, memory --------------------------------------------------------------------------------------------- */

TEST(cpu_opens_cpu)
{
    struct device_config config = {.kind = DEVICE_CPU};
    struct device *opened = NULL;
    char why[100] = "";

    ck_assert_str_eq(device_name(device), test_on_cuda() ? "cuda" : "cpu");
    ck_assert_int_eq(device_open(&config, &opened, why, sizeof(why)), 0);
    ck_assert_str_eq(device_name(opened), "cpu");
    ck_assert(device_ok(opened));
    device_close(opened);
}

/* A file that is no plugin, and none at all. */
TEST(without_the_cuda_device_auto_opens_cpu_and_cuda_says_why_not)
{
    static const struct {
        const char *plugin, *words;
    } table[] = {{"/nonexistent/cbf-cuda.so", "device.kind: there is no cuda device here"},
                 {"/dev/null", "device.kind: the cuda device cannot be loaded: "}};

    for (size_t k = 0; k < ARRAY_LEN(table); k++) {
        struct device_config config = {.kind = DEVICE_CUDA};
        struct device *opened = NULL;
        char why[200] = "";

        setenv("CBF_CUDA_DEVICE", table[k].plugin, 1);
        int err = device_open(&config, &opened, why, sizeof(why));
        ck_assert_int_eq(err, k == 0 ? -ENODEV : -ELIBBAD);
        ck_assert_ptr_null(opened);
        ck_assert_msg(strncmp(why, table[k].words, strlen(table[k].words)) == 0, "%s", why);
        /* Who names a GPU wants that GPU. */
        config.kind = DEVICE_AUTO;
        config.gpu = "0";
        ck_assert_int_eq(device_open(&config, &opened, why, sizeof(why)), err);
        ck_assert_msg(strncmp(why, "device.gpu: the", 15) == 0, "%s", why);
        config.gpu = "auto";
        ck_assert_int_eq(device_open(&config, &opened, why, sizeof(why)), k == 0 ? 0 : err);
        if (opened)
            ck_assert_str_eq(device_name(opened), "cpu");
        device_close(opened);
    }
}

TEST(destroy_accepts_null)
{
    device_close(NULL);
    device_free(device, NULL);
    device_free_pinned(device, NULL);
    device_stream_destroy(NULL);
    device_event_destroy(NULL);
    device_fft_destroy(NULL);
    device_kernel_destroy(NULL);
}

/* More than a huge page, too. */
TEST(memory_is_aligned)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4095, 4097, 100001, (2 << 20) - 1, 2 << 20, (5 << 20) + 1};

    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        uint8_t *memory = device_alloc(device, sizes[k]);
        uint8_t *pinned = device_alloc_pinned(device, sizes[k]);

        ck_assert_ptr_nonnull(memory);
        ck_assert_ptr_nonnull(pinned);
        ck_assert_uint_eq((uintptr_t)memory % 64, 0);
        ck_assert_uint_eq((uintptr_t)pinned % 64, 0);
#ifdef CBF_SANITIZE
        for (size_t i = 0; !test_on_cuda() && sizes[k] < 1 << 20 && i < sizes[k]; i++)
            ck_assert(memory[i] == 0xA5 && pinned[i] == 0xA5);
#endif
        memset(pinned, 0x5A, sizes[k]);
        device_copy(streams[0], memory, pinned, sizes[k]);
        device_stream_wait(streams[0]);
        device_free(device, memory);
        device_free_pinned(device, pinned);
    }
    ck_assert_ptr_null(device_alloc(device, SIZE_MAX));
    ck_assert_ptr_null(device_alloc_pinned(device, SIZE_MAX - 100));
    ck_assert(device_ok(device));
}

/* What the host writes past the cache, in packets that begin anywhere, the device reads; where there is such memory, which
 * CBF_TEST_DIRECT=1 wants. */
TEST(direct_memory_is_written_by_the_host_and_read_by_the_device)
{
    enum { BYTES = (3 << 20) + 123, PACKET_BYTES = 1003 };
    const char *wanted = getenv("CBF_TEST_DIRECT");
    uint8_t *sent = malloc(BYTES), *found = malloc(BYTES), *memory = device_alloc(device, BYTES);
    struct device_direct direct[2];
    char why[500] = "";

    int err = device_check_direct(device, 2 * BYTES, "a.b", "lower it", why, sizeof(why));
    ck_assert_msg(!err || (err == -ENODEV && !(wanted && wanted[0] == '1')), "%s", why);
    if (err)
        fprintf(stderr, "no direct memory: %s\n", why);
    for (size_t k = 0; !err && k < ARRAY_LEN(direct); k++) {
        ck_assert_msg(!device_alloc_direct(device, BYTES, &direct[k], why, sizeof(why)), "%s", why);
        ck_assert_ptr_ne(direct[k].host, direct[k].device);
        ck_assert_uint_eq((uintptr_t)direct[k].host % 4096, 0);
        ck_assert_uint_eq((uintptr_t)direct[k].device % 256, 0);
        random_bytes(sent, BYTES);
        for (size_t at = 0, n; at < BYTES; at += n) {
            n = BYTES - at < PACKET_BYTES ? BYTES - at : PACKET_BYTES;
            copy_past_cache(direct[k].host + at, sent + at, n);
        }
        copy_finish();
        device_copy(streams[k], memory, direct[k].device, BYTES);
        test_read(streams[k], found, memory, BYTES);
        ck_assert_mem_eq(found, sent, BYTES);
    }
    for (size_t k = 0; !err && k < ARRAY_LEN(direct); k++)
        device_free_direct(device, &direct[k]);
    device_free(device, memory);
    free(found);
    free(sent);
}

/* Whether the host may read there; asked of the kernel, which does not mind. */
static bool is_readable(const void *memory)
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ssize_t n = write(ends[1], memory, 1);
    ck_assert(n == 1 || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return n == 1;
}

/* What is written to the file is in the memory; as often as is asked for.  Addresses for cards are nobody else's. */
TEST(exported_memory_is_the_files)
{
    enum { N = 3 };
    static const size_t sizes[N] = {1, 65536, 200000};
    struct device_exported exported[N];
    uint8_t sent[1000], found[1000];
    char why[500] = "";

    for (size_t k = 0; k < N; k++) {
        int err = device_alloc_exported(device, sizes[k], &exported[k], why, sizeof(why));
        if (err == -ENODEV && test_on_cuda()) { /* not every driver can */
            fprintf(stderr, "no exported memory: %s\n", why);
            return;
        }
        ck_assert_msg(!err, "%s", why);
        ck_assert_uint_ge(exported[k].bytes, sizes[k]);
        ck_assert_uint_eq((uintptr_t)exported[k].device % 65536, 0);
        ck_assert_uint_eq((uintptr_t)exported[k].nic % 65536, 0);
        ck_assert(test_on_cuda() || (is_readable(exported[k].device) && !is_readable(exported[k].nic) &&
                                     !is_readable(exported[k].nic + exported[k].bytes - 1)));
    }
    for (size_t k = 0; k < N; k++) {
        size_t at = random_below(exported[k].bytes - sizeof(sent));
        uint8_t *card = mmap(NULL, exported[k].bytes, PROT_READ | PROT_WRITE, MAP_SHARED, exported[k].fd, 0);
        if (card == MAP_FAILED) /* which only a file in memory can be for sure */
            continue;
        random_bytes(sent, sizeof(sent));
        memcpy(card + at, sent, sizeof(sent));
        device_flush_exported(device);
        test_read(streams[0], found, exported[k].device + at, sizeof(found));
        ck_assert_mem_eq(found, sent, sizeof(found));
        munmap(card, exported[k].bytes);
    }
    for (size_t k = 0; k < N; k++)
        device_free_exported(device, &exported[(k + 1) % N]);
    device_free_exported(device, &(struct device_exported){0});
    ck_assert_int_eq(device_alloc_exported(device, SIZE_MAX - 100, &exported[0], why, sizeof(why)), -ENOMEM);
    ck_assert(device_ok(device));
}

TEST(who_reads_direct_memory_is_noticed, .exit_status = DIRECT_GUARD_EXIT_CODE, .unless = test_on_cuda(), .once = true)
{
    struct device_direct direct;
    char why[300] = "";

    ck_assert_int_eq(device_alloc_direct(device, 10000, &direct, why, sizeof(why)), 0);
    direct_guard(direct.host, direct.bytes);
    memset(direct.host, 0x5a, direct.bytes);
    ck_assert_uint_eq(direct.device[9999], 0x5a);
    if (direct_guard_writes() > 0)
        exit(direct.host[9999]);
}

TEST(memory_is_checked_before_it_is_taken)
{
    char why[300] = "";

    ck_assert_int_eq(device_check_memory(device, 1000, 1000, "recv.chunks", "lower it", why, sizeof(why)), 0);
    ck_assert_int_eq(device_check_memory(device, 1000, UINT64_MAX >> 1, "recv.chunks", "lower it", why, sizeof(why)),
                     -E2BIG);
    ck_assert_msg(strncmp(why, "recv.chunks: this configuration needs ", 38) == 0, "%s", why);
    ck_assert_msg(strstr(why, test_on_cuda() ? " MiB of GPU memory; the total is " : " MiB of memory; the total is "),
                  "%s", why);
}

static void note_threads(const void *args, int n_threads)
{
    **(int *const *)args = n_threads;
}

TEST(kernels_get_the_configured_threads, .unless = test_on_cuda(), .once = true)
{
    static const struct kernel kernel = {.name = "note", .args_bytes = sizeof(int *), .cpu = note_threads};

    for (int n_threads = 0; n_threads <= 3; n_threads++) {
        struct device *opened = test_open_device(n_threads);
        struct device_kernel *ready;
        struct device_stream *stream;
        int seen = -1, *args = &seen;

        ck_assert_int_eq(device_stream_create(opened, "threads", &stream), 0);
        ck_assert_int_eq(device_kernel_create(opened, &kernel, NULL, 0, &ready), 0);
        launch(stream, ready, &args);
        device_stream_destroy(stream);
        device_kernel_destroy(ready);
        ck_assert_int_eq(seen, n_threads ? n_threads : (int)sysconf(_SC_NPROCESSORS_ONLN));
        device_close(opened);
    }
}

/* Says that it has begun, and ends when it is told to. */
struct slow {
    atomic_bool begun, end;
};

static void be_slow(const void *args, int n_threads)
{
    struct slow *slow = *(struct slow *const *)args;

    atomic_store(&slow->begun, true);
    while (!atomic_load(&slow->end))
        sched_yield();
}

TEST(computing_is_no_standing_still, .unless = test_on_cuda(), .once = true)
{
    static const struct kernel kernel = {.name = "slow", .args_bytes = sizeof(struct slow *), .cpu = be_slow};
    struct slow slow = {false, false}, *args = &slow;
    struct device *opened = test_open_device(1);
    struct device_kernel *ready;
    struct device_stream *stream;

    ck_assert_int_eq(device_stream_create(opened, "slow", &stream), 0);
    ck_assert_int_eq(device_kernel_create(opened, &kernel, NULL, 0, &ready), 0);
    launch(stream, ready, &args);
    while (!atomic_load(&slow.begun))
        sched_yield();
    threads_find_stalled();
    for (int n = 0; n < 2; n++) {
        clock_sleep_until(clock_monotonic_ns() + 2 * THREAD_BEAT_NS); /* whoever waits has beaten */
        ck_assert_uint_eq(threads_find_stalled().n_looks, 0);
    }
    atomic_store(&slow.end, true);
    device_stream_destroy(stream);
    device_kernel_destroy(ready);
    device_close(opened);
}

/* ---- One stream -------------------------------------------------------------------------------------------------- */

TEST(order_is_kept_as_the_ring_wraps)
{
    const int n = (int)ARRAY_LEN(list->values);
    /* The ring holds the gate and DEPTH - 1 others; the gate opens when one more is about to be enqueued.  How long
     * CUDA's own queue is depends on what is in it. */
    struct gate *gate = close_gate(streams[0], test_on_cuda() ? DEVICE_STREAM_DEPTH / 4 : DEVICE_STREAM_DEPTH);

    for (int k = 0; k < n; k++) {
        open_gate(gate);
        append(streams[0], k);
    }
    device_stream_wait(streams[0]);
    assert_list(n);
}

TEST(destroy_runs_what_is_queued)
{
    struct device_stream *stream;

    ck_assert_int_eq(device_stream_create(device, "doomed", &stream), 0);
    for (int k = 0; k < 500; k++)
        append(stream, k);
    device_stream_destroy(stream);
    assert_list(500);
}

TEST(then_comes_after_all_before_it)
{
    uint8_t *memory = device_alloc(device, 100), *pinned = device_alloc_pinned(device, 100);
    int first, second;

    memset(pinned, 0xCC, 100);
    device_then(streams[0], push_arg, &first);
    assert_next(&first);
    struct gate *gate = close_gate(streams[0], 1);
    device_fill(streams[0], memory, 17, 100);
    device_copy(streams[0], pinned, memory, 100);
    device_then(streams[0], push_arg, &second);
    assert_none_yet();
    open_gate(gate);
    assert_next(&second);
    for (int k = 0; k < 100; k++)
        ck_assert_uint_eq(pinned[k], 17);
    device_free(device, memory);
    device_free_pinned(device, pinned);
}

TEST(references_return_from_several_streams)
{
    struct buffer_ref ref;

    buffer_ref_init(&ref, inbox, (struct inbox_item){.object = &ref});
    buffer_ref_set(&ref, N_STREAMS);
    struct gate *gate = close_gate(streams[1], 1);
    for (int k = 0; k < N_STREAMS; k++)
        device_then(streams[k], buffer_ref_put, &ref);
    assert_none_yet();
    open_gate(gate);
    assert_next(&ref);
}

/* More callbacks than a stream keeps, in order. */
static void note_next(void *arg)
{
    list->values[list->n++] = *(int *)arg;
}

TEST(callbacks_keep_their_order_as_the_ring_wraps)
{
    static int numbers[3 * DEVICE_STREAM_DEPTH];

    for (int k = 0; k < (int)ARRAY_LEN(numbers); k++) {
        numbers[k] = k;
        device_then(streams[2], note_next, &numbers[k]);
    }
    device_stream_wait(streams[2]);
    assert_list((int)ARRAY_LEN(numbers));
}

static void call_device(void *arg)
{
    device_fill(streams[1], arg, 0, 1);
}

TEST(aborts_when_a_callback_calls_the_device, .signal = SIGABRT)
{
    uint8_t byte;

    device_then(streams[0], call_device, &byte);
    device_stream_wait(streams[0]);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

TEST(event_before_its_first_record_has_passed)
{
    struct device_event *event = create_event();
    int arg;

    device_stream_wait_event(streams[0], event);
    device_then(streams[0], push_arg, &arg);
    assert_next(&arg);
    device_event_destroy(event);
}

TEST(several_streams_wait_for_one_event)
{
    struct device_event *event = create_event();
    int arg;

    struct gate *gate = close_gate(streams[0], 1);
    device_event_record(event, streams[0]);
    for (int k = 1; k < N_STREAMS; k++) {
        device_stream_wait_event(streams[k], event);
        device_then(streams[k], push_arg, &arg);
    }
    device_event_destroy(event); /* those who wait, wait on */
    assert_none_yet();
    open_gate(gate);
    for (int k = 1; k < N_STREAMS; k++)
        assert_next(&arg);
    wait_for_all();
}

TEST(wait_is_for_the_last_record_before_it)
{
    struct device_event *event = create_event();
    int first, second;

    struct gate *gate = close_gate(streams[0], 1);
    device_event_record(event, streams[0]);
    device_stream_wait_event(streams[1], event);
    device_then(streams[1], push_arg, &first);
    /* Recorded again where nothing is pending: frees later waits, not the earlier one. */
    device_event_record(event, streams[2]);
    device_stream_wait_event(streams[3], event);
    device_then(streams[3], push_arg, &second);
    assert_next(&second);
    assert_none_yet();
    open_gate(gate);
    assert_next(&first);
    device_event_destroy(event);
}

TEST(record_covers_only_what_came_before)
{
    struct device_event *event = create_event();
    int arg;

    device_event_record(event, streams[0]);
    struct gate *gate = close_gate(streams[0], 1);
    device_stream_wait_event(streams[1], event);
    device_then(streams[1], push_arg, &arg);
    assert_next(&arg);
    open_gate(gate);
    wait_for_all();
    device_event_destroy(event);
}

TEST(event_outlives_its_stream)
{
    struct device_event *event = create_event();
    struct device_stream *stream;
    int early, late;

    ck_assert_int_eq(device_stream_create(device, "mayfly", &stream), 0);
    device_event_record(event, stream);
    struct gate *gate = close_gate(streams[0], 1);
    device_stream_wait_event(streams[0], event);
    device_then(streams[0], push_arg, &early);
    device_stream_destroy(stream);
    device_stream_wait_event(streams[1], event);
    device_then(streams[1], push_arg, &late);
    assert_next(&late);
    open_gate(gate);
    assert_next(&early);
    device_event_destroy(event);
}

TEST(two_streams_take_turns)
{
    struct device_event *turn[2] = {create_event(), create_event()};
    int n = 0;

    /* More turns than a ring holds; each stream waits for the other's record of the turn before. */
    for (int k = 0; k < DEVICE_STREAM_DEPTH; k++) {
        for (int s = 0; s < 2; s++) {
            device_stream_wait_event(streams[s], turn[1 - s]);
            append(streams[s], n++);
            device_event_record(turn[s], streams[s]);
        }
    }
    wait_for_all();
    assert_list(n);
    device_event_destroy(turn[0]);
    device_event_destroy(turn[1]);
}

/* ---- Several threads --------------------------------------------------------------------------------------------- */

#define ROUND_BYTES 1000

struct user {
    struct thread thread;
    struct device_stream *stream;
    uint8_t *memory, *pinned; /* [2][ROUND_BYTES] */
    struct device_event *event;
    struct device_kernel *gate;
    int n_wrong;
};

/* What it can do without anybody's help, in a thread that the device has not seen before. */
static void *use_device(void *arg)
{
    struct user *user = arg;
    uint8_t *in = user->pinned, *out = user->pinned + ROUND_BYTES;

    for (int round = 0; round < 100; round++) {
        memset(in, round, ROUND_BYTES);
        device_copy(user->stream, user->memory, in, ROUND_BYTES);
        device_fill(user->stream, user->memory, 0xEE, 10);
        device_event_record(user->event, user->stream);
        device_stream_wait_event(user->stream, user->event);
        launch(user->stream, user->gate, &(struct gate_args){&gates[N_GATES]}); /* one that is open */
        device_copy(user->stream, out, user->memory, ROUND_BYTES);
        device_stream_wait(user->stream);
        user->n_wrong += out[9] != 0xEE || memcmp(in + 10, out + 10, ROUND_BYTES - 10) != 0;
    }
    return NULL;
}

TEST(each_stream_may_have_a_thread)
{
    struct user users[N_STREAMS];

    for (int k = 0; k < N_STREAMS; k++) {
        users[k] = (struct user){.stream = streams[k], .event = create_event()};
        users[k].memory = device_alloc(device, ROUND_BYTES);
        users[k].pinned = device_alloc_pinned(device, 2 * ROUND_BYTES);
        ck_assert_int_eq(device_kernel_create(device, &gate_kernel, NULL, 0, &users[k].gate), 0);
    }
    for (int k = 0; k < N_STREAMS; k++)
        ck_assert_int_eq(thread_start(&users[k].thread, "user", -1, use_device, &users[k]), 0);
    for (int k = 0; k < N_STREAMS; k++) {
        thread_join(&users[k].thread);
        ck_assert_int_eq(users[k].n_wrong, 0);
        device_free(device, users[k].memory);
        device_free_pinned(device, users[k].pinned);
        device_event_destroy(users[k].event);
        device_kernel_destroy(users[k].gate);
    }
}

/* ---- Copies and fills -------------------------------------------------------------------------------------------- */

#define ROWS_BYTES 2000

struct rows {
    size_t dst_pitch, src_pitch, row_bytes, n_rows;
};

/* Copies to 'dst', which is filled before if it is device memory. */
static void check_rows(const struct rows *rows, uint8_t *dst, const uint8_t *src, uint8_t *device_dst,
                       const uint8_t *expected)
{
    uint8_t got[ROWS_BYTES];

    if (device_dst)
        device_fill(streams[0], device_dst, 0xCC, ROWS_BYTES);
    device_copy_2d(streams[0], dst, rows->dst_pitch, src, rows->src_pitch, rows->row_bytes, rows->n_rows);
    device_stream_wait(streams[0]);
    if (device_dst)
        test_read(streams[0], got, dst, ROWS_BYTES);
    else
        memcpy(got, dst, ROWS_BYTES);
    ck_assert_mem_eq(got, expected, ROWS_BYTES);
}

TEST(rows_are_copied_and_nothing_else)
{
    static const struct rows table[] = {
        {37, 53, 37, 5}, {53, 37, 37, 5}, {64, 64, 64, 7}, {64, 61, 1, 8},    {3, 3, 0, 4},
        {9, 9, 9, 0},    {0, 0, 100, 1},  {128, 1, 1, 9},  {100, 99, 98, 12},
    };

    for (size_t k = 0; k < ARRAY_LEN(table); k++) {
        size_t bytes = ROWS_BYTES;
        uint8_t *src = device_alloc(device, bytes), *dst = device_alloc(device, bytes);
        uint8_t *pinned = device_alloc_pinned(device, bytes);
        uint8_t expected[ROWS_BYTES], input[ROWS_BYTES];

        for (size_t i = 0; i < bytes; i++)
            input[i] = (uint8_t)(i * 7 + i / 256);
        memset(expected, 0xCC, bytes);
        for (size_t row = 0; row < table[k].n_rows; row++)
            for (size_t i = 0; i < table[k].row_bytes; i++)
                expected[row * table[k].dst_pitch + i] = input[row * table[k].src_pitch + i];
        /* To the device, within it, and from it. */
        memcpy(pinned, input, bytes);
        check_rows(&table[k], dst, pinned, dst, expected);
        test_write(streams[0], src, input, bytes);
        check_rows(&table[k], dst, src, dst, expected);
        memset(pinned, 0xCC, bytes);
        check_rows(&table[k], pinned, src, NULL, expected);
        device_free_pinned(device, pinned);
        device_free(device, src);
        device_free(device, dst);
    }
}

TEST(fill_stays_within_its_bytes)
{
    uint8_t *memory = device_alloc(device, 300), expected[300], got[300];

    memset(got, 0xCC, 300);
    memset(expected, 0xCC, 300);
    memset(expected + 3, 0xFE, 101);
    test_write(streams[0], memory, got, 300);
    device_fill(streams[0], memory + 3, 0xFE, 101);
    device_fill(streams[0], memory + 200, 0, 0);
    device_copy(streams[0], memory + 200, memory, 0);
    test_read(streams[0], got, memory, 300);
    ck_assert_mem_eq(got, expected, 300);
    device_free(device, memory);
}

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

static void check_fft(size_t n, size_t batch, size_t n_bins)
{
    size_t n_values = 2 * n * batch;
    size_t in_bytes = n_values * sizeof(float), out_bytes = in_bytes + 16 * sizeof(float);
    float *in = malloc(in_bytes), *out = malloc(out_bytes);
    float *device_in = device_alloc(device, in_bytes), *device_out = device_alloc(device, out_bytes);
    double *turns = malloc(2 * n * sizeof(*turns));
    /* Both parts of the input are uniform in [-1, 1), so a bin's power is 2n/3 on average. */
    double tolerance = 2e-6 * sqrt(2.0 * (double)n / 3.0);
    struct device_fft *fft;

    for (size_t k = 0; k < n; k++) {
        turns[2 * k] = cos(2 * M_PI * (double)k / (double)n);
        turns[2 * k + 1] = -sin(2 * M_PI * (double)k / (double)n);
    }
    for (size_t k = 0; k < n_values; k++)
        in[k] = (float)random_between(-1, 1);
    test_write(streams[0], device_in, in, in_bytes);
    device_fill(streams[0], device_out, 0xFF, out_bytes); /* NaN */

    ck_assert_int_eq(device_fft_create(device, n, batch, &fft), 0);
    for (int run = 0; run < 2; run++)
        device_fft_run(streams[0], fft, device_in, device_out);
    test_read(streams[0], out, device_out, out_bytes);
    device_fft_destroy(fft);

    for (size_t b = 0; b < batch; b++) {
        for (size_t k = 0; k < n_bins; k++) {
            size_t bin = n_bins == n ? k : k < 2 ? k * (n / 2) : random_below(n);
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
    free(in);
    free(out);
    device_free(device, device_in);
    device_free(device, device_out);
}

TEST(fft_is_the_dft)
{
    check_fft(1, 1, 1);
    check_fft(1, 5, 1);
    check_fft(2, 7, 2);
    check_fft(4, 3, 4);
    check_fft(8, 3, 8);
    check_fft(64, 9, 64);
    check_fft(1024, 3, 1024);
    check_fft(65536, 3, 20);
}

TEST(aborts_when_fft_in_and_out_overlap, .signal = SIGABRT, .unless = test_on_cuda(), .once = true)
{
    float *memory = device_alloc(device, 4096);
    struct device_fft *fft;

    ck_assert_int_eq(device_fft_create(device, 64, 2, &fft), 0);
    device_fft_run(streams[0], fft, memory, memory + 2 * 64);
}

/* On the fake device, which is none to CBF_TEST_DEVICE yet. */
static void setup_fake(void)
{
    test_use_fake_cuda();
    if (test_fake_vulkan())
        test_use_fake_vulkan();
    setup();
}

SUITE(.timeout_s = 60, .setup = setup, .teardown = teardown, .start = random_start,
      .again = getenv("CBF_TEST_DEVICE") || !test_fake_cuda() ? NULL : setup_fake);
