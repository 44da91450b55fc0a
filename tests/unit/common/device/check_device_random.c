/* check_device_random.c - random programs over several streams and events.  The result equals the result of running
 * each operation at the moment when it was enqueued.
 *
 * A model of the finished operations that each stream knows (a vector clock) adds an event only if the existing events
 * do not already order two operations on a buffer.  So old and re-recorded events matter, too.  A device that ends a
 * wait too early gives wrong numbers, and a race under the thread sanitizer. */
#include "common/device/device.h"
#include "tests/unit/device_under_test.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_STREAMS    3
#define N_PROGRAMS   4
#define N_BUFFERS    6
#define N_WORDS      40
#define N_EVENTS     5
#define N_OPERATIONS 3000

struct mix_args {
    uint32_t *dst;
    const uint32_t *src;
    uint32_t term;
    uint32_t n_spins; /* slow and of uneven length, so that a missing edge shows */
};

static void mix_run(const void *args, int n_threads)
{
    const struct mix_args *a = args;

    for (volatile uint32_t k = 0; k < a->n_spins; k++)
        ;
    for (size_t i = 0; i < N_WORDS; i++)
        a->dst[i] = a->dst[i] * 5 + a->src[i] + a->term;
}

/* In one thread, so that a missing edge shows as well. */
static const struct kernel mix_kernel = {
    .name = "mix",
    .args_bytes = sizeof(struct mix_args),
    .cpu = mix_run,
    .cuda_text = "#include <stdint.h>\n"
                 "struct mix_args { uint32_t *dst; const uint32_t *src; uint32_t term, n_spins; };\n"
                 "extern \"C\" __global__ void mix(const struct mix_args a)\n"
                 "{\n"
                 "    for (volatile uint32_t k = 0; k < a.n_spins; k++)\n"
                 "        ;\n"
                 "    for (int i = 0; i < N_WORDS; i++)\n"
                 "        a.dst[i] = a.dst[i] * 5 + a.src[i] + a.term;\n"
                 "}\n",
};

struct program {
    struct device_kernel *mix;
    struct device *device;
    struct device_stream *streams[N_STREAMS];
    uint32_t *buffers[N_BUFFERS];          /* on the device */
    uint32_t expected[N_BUFFERS][N_WORDS]; /* what they would hold if all were done */
    struct device_event *events[N_EVENTS];
    int n_operations[N_STREAMS];
    /* known[s][t]: so many operations of stream t are done before the next of stream s. */
    int known[N_STREAMS][N_STREAMS];
    int event_known[N_EVENTS][N_STREAMS]; /* the same, by who waits for the event as last recorded */
    /* Each stream's last write and last read of each buffer: its count of operations up to and with it. */
    int written[N_BUFFERS][N_STREAMS];
    int read[N_BUFFERS][N_STREAMS];
};

static unsigned pick(unsigned n)
{
    return (unsigned)random_below(n);
}

static void record(struct program *p, unsigned event, unsigned s)
{
    device_event_record(p->events[event], p->streams[s]);
    memcpy(p->event_known[event], p->known[s], sizeof(p->known[s]));
    p->event_known[event][s] = p->n_operations[s];
}

static void wait_for(struct program *p, unsigned event, unsigned s)
{
    device_stream_wait_event(p->streams[s], p->events[event]);
    for (unsigned t = 0; t < N_STREAMS; t++)
        if (p->known[s][t] < p->event_known[event][t])
            p->known[s][t] = p->event_known[event][t];
}

/* Adds the edges without which stream 's' must not touch 'buffer'; often earlier events have done that already. */
static void make_safe(struct program *p, unsigned s, unsigned buffer, bool writes)
{
    for (unsigned t = 0; t < N_STREAMS; t++) {
        int needed = p->written[buffer][t];

        if (writes && needed < p->read[buffer][t])
            needed = p->read[buffer][t];
        if (t != s && p->known[s][t] < needed) {
            unsigned event = pick(N_EVENTS);

            record(p, event, t);
            wait_for(p, event, s);
        }
    }
}

static void add_operation(struct program *p)
{
    unsigned s = pick(N_STREAMS), dst = pick(N_BUFFERS);
    unsigned src = (dst + 1 + pick(N_BUFFERS - 1)) % N_BUFFERS;
    size_t n = pick(N_WORDS + 1), at = pick((unsigned)(N_WORDS - n + 1));
    uint8_t value = (uint8_t)pick(256);
    struct mix_args mix = {p->buffers[dst], p->buffers[src], pick(1000), pick(5000)};

    make_safe(p, s, dst, true);
    make_safe(p, s, src, false);
    switch (pick(4)) {
    case 0:
        device_fill(p->streams[s], p->buffers[dst] + at, value, n * 4);
        memset(p->expected[dst] + at, value, n * 4);
        p->n_operations[s] += n > 0;
        break;
    case 1:
        device_copy(p->streams[s], p->buffers[dst] + at, p->buffers[src] + at, n * 4);
        memcpy(p->expected[dst] + at, p->expected[src] + at, n * 4);
        p->n_operations[s] += n > 0;
        break;
    default:
        device_launch(p->streams[s], p->mix, &(struct kernel_grid){{1, 1, 1}, 1, 0}, &mix);
        for (size_t i = 0; i < N_WORDS; i++)
            p->expected[dst][i] = p->expected[dst][i] * 5 + p->expected[src][i] + mix.term;
        p->n_operations[s]++;
        break;
    }
    p->written[dst][s] = p->n_operations[s];
    p->read[src][s] = p->n_operations[s];
}

static void create_program(struct program *p)
{
    struct kernel_constant n_words = {"N_WORDS", N_WORDS};
    struct device_stream *fill;

    p->device = test_open_device(1);
    ck_assert_int_eq(device_kernel_create(p->device, &mix_kernel, &n_words, 1, &p->mix), 0);
    ck_assert_int_eq(device_stream_create(p->device, "fill", &fill), 0);
    for (int s = 0; s < N_STREAMS; s++)
        ck_assert_int_eq(device_stream_create(p->device, "stream", &p->streams[s]), 0);
    for (int e = 0; e < N_EVENTS; e++)
        ck_assert_int_eq(device_event_create(p->device, &p->events[e]), 0);
    for (int b = 0; b < N_BUFFERS; b++) {
        p->buffers[b] = device_alloc(p->device, sizeof(p->expected[b]));
        device_fill(fill, p->buffers[b], (uint8_t)b, sizeof(p->expected[b]));
        memset(p->expected[b], b, sizeof(p->expected[b]));
    }
    device_stream_destroy(fill);
}

/* Destroys the streams in any order, with whatever they still have to do. */
static void finish_and_compare(struct program *p)
{
    unsigned first = pick(N_STREAMS);
    struct device_stream *read;
    uint32_t got[N_WORDS];

    for (int e = 0; e < N_EVENTS; e++)
        device_event_destroy(p->events[e]);
    for (unsigned s = 0; s < N_STREAMS; s++)
        device_stream_destroy(p->streams[(first + s) % N_STREAMS]);
    ck_assert_int_eq(device_stream_create(p->device, "read", &read), 0);
    for (int b = 0; b < N_BUFFERS; b++) {
        test_read(read, got, p->buffers[b], sizeof(got));
        ck_assert_mem_eq(got, p->expected[b], sizeof(got));
        device_free(p->device, p->buffers[b]);
    }
    device_stream_destroy(read);
    device_kernel_destroy(p->mix);
    device_close(p->device);
}

static void run_program(int number)
{
    struct program p = {.mix = NULL};

    random_state += (uint64_t)number;
    create_program(&p);
    for (int k = 0; k < N_OPERATIONS; k++) {
        switch (pick(4)) {
        case 0: record(&p, pick(N_EVENTS), pick(N_STREAMS)); break;
        case 1: wait_for(&p, pick(N_EVENTS), pick(N_STREAMS)); break;
        default: add_operation(&p); break;
        }
    }
    finish_and_compare(&p);
}

TEST(random_programs_run_as_if_in_sequence, .end = N_PROGRAMS)
{
    run_program(_i);
}

TEST(random_programs_run_so_on_fake_cuda, .end = N_PROGRAMS, .unless = getenv("CBF_TEST_DEVICE") || !test_fake_cuda())
{
    test_use_fake_cuda();
    run_program(_i);
}

SUITE(.timeout_s = 60, .start = random_start);
