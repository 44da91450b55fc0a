/* bench_send.c - sends full output buffers with one send thread: the daemons' sender, without pacing.
 *
 * Usage: bench_send SHAPE ENDPOINTS SECONDS CPU [JOB_MIB]
 *   SHAPE:     KIND:PAYLOAD, as in bench_shapes.h.
 *   ENDPOINTS: endpoints as in a configuration.  Each endpoint gets one heap of a timestamp.  The endpoints take turns.
 *   JOB_MIB:   smallest size of a job; default: 1, so that jobs stay in the cache.
 * All buffers are always in the sender's queue.  The program prints one line of JSON. */
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/send/sender.h"
#include "scripts/bench/bench_shapes.h"
#include "scripts/bench/bench_thread.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_JOBS      BENCH_N_BUFFERS
#define THREAD_NAME "send"

struct buffer {
    struct buffer_ref ref;
    struct send_job job;
    int64_t first_time; /* time of the buffer's first group of heaps; a heap lasts 1 unit */
};

static void die(const char *why)
{
    fprintf(stderr, "bench_send: %s\n", why);
    exit(1);
}

/* Makes a buffer of 'n_groups' timestamps, with a heap for each destination. */
static void make_buffer(struct buffer *buffer, const struct bench_shape *shape, size_t n_groups, size_t n_destinations,
                        struct inbox *home)
{
    struct send_heap *heaps = calloc(n_groups * n_destinations, sizeof(*heaps));
    uint8_t *payload = calloc(n_groups * n_destinations, shape->heap_bytes);

    buffer->job.groups = calloc(n_groups, sizeof(*buffer->job.groups));
    if (!heaps || !payload || !buffer->job.groups)
        die("no memory");
    memset(payload, 1, n_groups * n_destinations * shape->heap_bytes);
    buffer_ref_init(&buffer->ref, home, (struct inbox_item){.object = buffer});
    buffer->job.ref = &buffer->ref;
    buffer->job.n_groups = n_groups;
    for (size_t g = 0; g < n_groups; g++) {
        buffer->job.groups[g] = (struct send_group){&heaps[g * n_destinations], n_destinations, .send = true};
        for (size_t d = 0; d < n_destinations; d++) {
            struct send_heap *heap = &heaps[g * n_destinations + d];
            heap->destination = (unsigned)d;
            heap->payload = payload + (g * n_destinations + d) * shape->heap_bytes;
            heap->payload_bytes = shape->heap_bytes;
        }
    }
}

/* Queues the buffer with the next timestamps. */
static void push(struct send_stream *stream, const struct bench_shape *shape, struct buffer *buffer, int64_t *time)
{
    for (size_t g = 0; g < buffer->job.n_groups; g++, (*time)++)
        for (size_t h = 0; h < buffer->job.groups[g].n_heaps; h++) {
            struct send_heap *heap = &buffer->job.groups[g].heaps[h];
            heap->n_items = bench_items(shape, 0, *time * shape->heap_samples, heap->items);
        }
    buffer_ref_set(&buffer->ref, 1);
    sender_push(stream, &buffer->job);
}

/* Moves this thread to CPUs other than the send thread's CPU.  All packet benchmarks do this. */
static void keep_off(int cpu)
{
    cpu_set_t cpus;

    if (cpu < 0 || sched_getaffinity(0, sizeof(cpus), &cpus))
        return;
    CPU_CLR(cpu, &cpus);
    if (CPU_COUNT(&cpus) > 0 && sched_setaffinity(0, sizeof(cpus), &cpus))
        die("cannot move to CPUs other than the send thread's CPU");
}

int main(int argc, char **argv)
{
    struct bench_shape the_shape;
    const struct bench_shape *shape = (argc == 5 || argc == 6) && bench_shape(argv[1], &the_shape) ? &the_shape : NULL;
    static struct buffer buffers[N_JOBS];
    static struct send_stream_stats stats;
    struct endpoint_list destinations;
    struct inbox *home = NULL;
    struct sender *sender = NULL;
    struct send_stream *stream = NULL;
    char why[256];
    int64_t time = 0;

    if (!shape) {
        fprintf(stderr, "usage: bench_send SHAPE ENDPOINTS SECONDS CPU [JOB_MIB]\n" BENCH_SHAPE_USAGE "\n");
        return 2;
    }
    if (endpoint_list_parse(argv[2], &destinations, why, sizeof(why)))
        die(why);
    if (inbox_create(N_JOBS, &home) || sender_create(THREAD_NAME, atoi(argv[4]), 1, N_JOBS, &sender))
        die("no memory");
    const struct send_stream_config config = {
        .name = "bench",
        .sink = {.destinations = &destinations, .ttl = 1, .buffer_bytes = 1 << 20},
        .packet_payload_bytes = shape->payload_bytes,
        .heap_cnt_step = 1,
        .max_jobs = N_JOBS,
        .stats = &stats,
    };
    if (sender_add_stream(sender, &config, &stream, why, sizeof(why)))
        die(why);
    sender_start(sender);
    keep_off(atoi(argv[4]));
    size_t job_bytes = argc == 6 ? (size_t)atol(argv[5]) << 20 : BENCH_BUFFER_BYTES;
    size_t n_groups = bench_buffer_times(shape, destinations.n, job_bytes);
    for (size_t i = 0; i < N_JOBS; i++) {
        make_buffer(&buffers[i], shape, n_groups, destinations.n, home);
        push(stream, shape, &buffers[i], &time);
    }
    int64_t start_ns = clock_monotonic_ns(), end_ns = start_ns + (int64_t)(atof(argv[3]) * 1e9);
    struct inbox_item item;
    while (clock_monotonic_ns() < end_ns && inbox_pop(home, &item) == 0)
        push(stream, shape, item.object, &time);
    uint64_t n_packets = counter_get(&stats.packets), n_bytes = counter_get(&stats.bytes);
    int64_t cpu_ns = bench_named_thread_cpu_ns(THREAD_NAME), wall_ns = clock_monotonic_ns() - start_ns;
    if (counter_get(&stats.failed))
        die("packets failed");
    printf("{\"packets\": %llu, \"bytes\": %llu, \"cpu_ns\": %lld, \"wall_ns\": %lld}\n", (unsigned long long)n_packets,
           (unsigned long long)n_bytes, (long long)cpu_ns, (long long)wall_ns);
    sender_stop(sender);
    sender_destroy(sender);
    return 0;
}
