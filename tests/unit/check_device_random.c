/* check_device_random.c - random programs over several streams and events come out as if every operation had run at the
 * moment when it was enqueued.
 *
 * A model of what each stream knows to be done (a vector clock) adds an event only where those that are there do not
 * already order two operations on a buffer, so that old and re-recorded events carry their share.  A device that lets a
 * wait pass too early gives wrong numbers, and under the thread sanitizer a race. */
#include "common/clock.h"
#include "common/device.h"

#include <check.h>
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

static const struct kernel mix_kernel = {.name = "mix", .args_bytes = sizeof(struct mix_args), .cpu = mix_run};

struct program {
    unsigned seed;
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

static unsigned pick(struct program *p, unsigned n)
{
    return (unsigned)rand_r(&p->seed) % n;
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
            unsigned event = pick(p, N_EVENTS);

            record(p, event, t);
            wait_for(p, event, s);
        }
    }
}

static void add_operation(struct program *p)
{
    unsigned s = pick(p, N_STREAMS), dst = pick(p, N_BUFFERS);
    unsigned src = (dst + 1 + pick(p, N_BUFFERS - 1)) % N_BUFFERS;
    size_t n = pick(p, N_WORDS + 1), at = pick(p, (unsigned)(N_WORDS - n + 1));
    uint8_t value = (uint8_t)pick(p, 256);
    struct mix_args mix = {p->buffers[dst], p->buffers[src], pick(p, 1000), pick(p, 5000)};

    make_safe(p, s, dst, true);
    make_safe(p, s, src, false);
    switch (pick(p, 4)) {
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
        device_launch(p->streams[s], &(struct device_kernel){p->streams[s]->device, &mix_kernel}, NULL, &mix);
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
    struct device_config config = {.kind = DEVICE_CPU, .n_threads = 1};
    const char *given = getenv("CHECK_SEED");
    char why[200] = "";

    p->seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)clock_unix_ns();
    printf("random program: CHECK_SEED=%u\n", p->seed);
    fflush(stdout);
    ck_assert_msg(device_open(&config, &p->device, why, sizeof(why)) == 0, "%s", why);
    for (int s = 0; s < N_STREAMS; s++)
        ck_assert_int_eq(device_stream_create(p->device, "stream", &p->streams[s]), 0);
    for (int e = 0; e < N_EVENTS; e++)
        ck_assert_int_eq(device_event_create(p->device, &p->events[e]), 0);
    for (int b = 0; b < N_BUFFERS; b++) {
        p->buffers[b] = device_alloc(p->device, sizeof(p->expected[b]));
        memset(p->buffers[b], b, sizeof(p->expected[b]));
        memset(p->expected[b], b, sizeof(p->expected[b]));
    }
}

/* Destroys the streams in any order, with whatever they still have to do. */
static void finish_and_compare(struct program *p)
{
    unsigned first = pick(p, N_STREAMS);

    for (int e = 0; e < N_EVENTS; e++)
        device_event_destroy(p->events[e]);
    for (unsigned s = 0; s < N_STREAMS; s++)
        device_stream_destroy(p->streams[(first + s) % N_STREAMS]);
    for (int b = 0; b < N_BUFFERS; b++) {
        ck_assert_mem_eq(p->buffers[b], p->expected[b], sizeof(p->expected[b]));
        device_free(p->device, p->buffers[b]);
    }
    device_close(p->device);
}

START_TEST(random_programs_run_as_if_in_sequence)
{
    struct program p = {.seed = 0};

    create_program(&p);
    for (int k = 0; k < N_OPERATIONS; k++) {
        switch (pick(&p, 4)) {
        case 0: record(&p, pick(&p, N_EVENTS), pick(&p, N_STREAMS)); break;
        case 1: wait_for(&p, pick(&p, N_EVENTS), pick(&p, N_STREAMS)); break;
        default: add_operation(&p); break;
        }
    }
    finish_and_compare(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_random");
    TCase *tests = tcase_create("device_random");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, random_programs_run_as_if_in_sequence, 0, N_PROGRAMS);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
