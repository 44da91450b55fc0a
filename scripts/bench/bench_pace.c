/* bench_pace.c - runs the daemons' sender at a pace, with jobs as the daemons have them, for scripts/bench/pacing.
 *
 * Usage: bench_pace ENDPOINTS GBIT SECONDS CPU STREAMS [HEAP_BYTES]
 *   ENDPOINTS   endpoints as in a configuration, divided evenly among the streams
 *   GBIT        payload rate of all streams together, in Gb/s
 * The pace of a stream is 1.1 times its share of GBIT.  A group of a stream has one heap for each of the stream's
 * endpoints.  Each stream gets a buffer of one group at regular times.  Prints one line of JSON: packets and bytes
 * sent, and the CPU time of the send thread. */
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/send/sender.h"
#include "scripts/bench/bench_thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_BUFFERS     8 /* of each stream */
#define STREAMS_MAX   64
#define PAYLOAD_BYTES 8192
#define RATE_FACTOR   1.1
#define STEP_SAMPLES  4096
#define THREAD_NAME   "send"

struct buffer {
    struct buffer_ref ref;
    struct send_job job;
    struct send_group group;
};

struct stream {
    struct endpoint_list destinations;
    struct inbox *home;
    struct send_stream *stream;
    struct send_stream_stats stats;
    struct buffer buffers[N_BUFFERS];
};

static void die(const char *why)
{
    fprintf(stderr, "bench_pace: %s\n", why);
    exit(1);
}

static void make_buffer(struct stream *s, struct buffer *buffer, size_t heap_bytes)
{
    size_t n_heaps = s->destinations.n;
    struct send_heap *heaps = calloc(n_heaps, sizeof(*heaps));
    uint8_t *payload = malloc(n_heaps * heap_bytes);

    if (!heaps || !payload)
        die("no memory");
    memset(payload, 1, n_heaps * heap_bytes);
    for (size_t h = 0; h < n_heaps; h++)
        heaps[h] = (struct send_heap){.destination = (unsigned)h,
                                      .payload = payload + h * heap_bytes,
                                      .payload_bytes = heap_bytes,
                                      .items = {{SPEAD_TIMESTAMP, true, 0}, {SPEAD_FENG_RAW, false, 0}},
                                      .n_items = 2};
    buffer->group = (struct send_group){.heaps = heaps, .n_heaps = n_heaps, .send = true};
    buffer->job = (struct send_job){&buffer->ref, &buffer->group, 1};
    buffer_ref_init(&buffer->ref, s->home, (struct inbox_item){.object = buffer});
    buffer_ref_set(&buffer->ref, 1);
    buffer_ref_put(&buffer->ref);
}

static void make_stream(struct stream *s, struct sender *sender, double bytes_per_s, size_t heap_bytes)
{
    char why[256];
    const struct send_stream_config config = {
        .name = "bench",
        .sink = {.destinations = &s->destinations, .interface = "lo", .ttl = 1, .buffer_bytes = 4 << 20},
        .packet_payload_bytes = PAYLOAD_BYTES,
        .rate_bytes_per_s = RATE_FACTOR * bytes_per_s,
        .heap_cnt_step = 1,
        .max_jobs = N_BUFFERS,
        .stats = &s->stats,
    };

    if (inbox_create(N_BUFFERS, &s->home))
        die("no memory");
    for (size_t i = 0; i < N_BUFFERS; i++)
        make_buffer(s, &s->buffers[i], heap_bytes);
    if (sender_add_stream(sender, &config, &s->stream, why, sizeof(why)))
        die(why);
}

/* Queues the next group, if a buffer is free. */
static void push(struct stream *s, int64_t n)
{
    struct inbox_item item;

    if (inbox_try_pop(s->home, &item))
        return;
    struct buffer *buffer = item.object;
    for (size_t h = 0; h < buffer->group.n_heaps; h++)
        buffer->group.heaps[h].items[0].value = (uint64_t)(n * STEP_SAMPLES) & SPEAD_VALUE_MASK;
    buffer_ref_set(&buffer->ref, 1);
    sender_push(s->stream, &buffer->job);
}

int main(int argc, char **argv)
{
    static struct stream streams[STREAMS_MAX];
    struct endpoint_list all;
    struct sender *sender;
    char why[256];

    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: bench_pace ENDPOINTS GBIT SECONDS CPU STREAMS [HEAP_BYTES]\n");
        return 2;
    }
    if (endpoint_list_parse(argv[1], &all, why, sizeof(why)))
        die(why);
    size_t n_streams = strtoull(argv[5], NULL, 0), heap_bytes = argc == 7 ? strtoull(argv[6], NULL, 0) : 256 << 10;
    if (n_streams == 0 || n_streams > STREAMS_MAX || all.n % n_streams || heap_bytes == 0)
        die("STREAMS must divide the endpoints");
    double bytes_per_s = atof(argv[2]) * 1e9 / 8 / (double)n_streams;
    if (sender_create(THREAD_NAME, atoi(argv[4]), n_streams, n_streams * N_BUFFERS, &sender))
        die("no memory");
    for (size_t i = 0; i < n_streams; i++) {
        streams[i].destinations = all;
        streams[i].destinations.n = all.n / n_streams;
        streams[i].destinations.items += i * streams[i].destinations.n;
        make_stream(&streams[i], sender, bytes_per_s, heap_bytes);
    }
    if (sender_start(sender))
        die("the thread does not start");
    double group_ns = 1e9 * (double)(heap_bytes * streams[0].destinations.n) / bytes_per_s;
    int64_t start_ns = clock_monotonic_ns();
    int64_t n_groups = (int64_t)(atof(argv[3]) * 1e9 / group_ns);
    for (int64_t n = 1; n <= n_groups; n++) {
        clock_sleep_until(start_ns + (int64_t)(group_ns * (double)n));
        for (size_t i = 0; i < n_streams; i++)
            push(&streams[i], n);
    }
    uint64_t n_packets = 0, n_bytes = 0;
    int64_t cpu_ns = bench_named_thread_cpu_ns(THREAD_NAME), wall_ns = clock_monotonic_ns() - start_ns;
    for (size_t i = 0; i < n_streams; i++) {
        n_packets += counter_get(&streams[i].stats.packets);
        n_bytes += counter_get(&streams[i].stats.bytes);
        if (counter_get(&streams[i].stats.failed))
            die("packets failed");
    }
    printf("{\"packets\": %llu, \"bytes\": %llu, \"cpu_ns\": %lld, \"wall_ns\": %lld}\n", (unsigned long long)n_packets,
           (unsigned long long)n_bytes, (long long)cpu_ns, (long long)wall_ns);
    sender_stop(sender);
    sender_destroy(sender);
    return 0;
}
