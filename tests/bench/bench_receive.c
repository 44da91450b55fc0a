/* bench_receive.c - packets to assembled chunks with one receive thread, for bench_feed to feed.
 *
 * Usage: bench_receive ours|plain|plain-single KIND ENDPOINT N_SOURCES BUFFER_BYTES CPU
 *   ours   the daemons' receiver: source, parser, identification, window, presence
 *   plain  the ceiling: the shortest loop that does the same copying, which believes every packet.  recvmmsg of joined
 *          packets (UDP_GRO) into a buffer that stays in the cache, and non-temporal copies from there to the chunks
 * Says READY, receives until a stop heap comes, prints one line of JSON: packets, payload bytes in chunks, what was
 * missing, CPU time of the receive thread. */
#include "common/assemble.h"
#include "common/chunk.h"
#include "common/clock.h"
#include "common/device.h"
#include "common/receiver.h"
#include "common/thread.h"
#include "common/units.h"
#include "fgpu/recv.h"
#include "tests/bench/bench_shapes.h"
#include "tests/bench/bench_thread.h"
#include "xbgpu/recv.h"

#include <errno.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define N_CHUNKS      6
#define WINDOW_CHUNKS 2
#define THREAD_NAME   "receive"
#define MESSAGE_MAX   65536
#define N_JOINED      4  /* messages of a call, each of many packets: what was fastest */
#define N_SINGLE      64 /* or each of one */

static void die(const char *what)
{
    fprintf(stderr, "bench_receive: %s\n", what);
    exit(1);
}

struct task {
    const struct bench_shape *shape;
    struct endpoint_list endpoints;
    size_t n_sources;
    size_t heaps_per_source; /* of a chunk */
    size_t buffer_bytes;
    int cpu;
};

struct outcome {
    uint64_t n_packets, n_bytes, n_missing;
    int64_t cpu_ns;
};

/* ---- The daemons' receiver ---------------------------------------------------------------------------------------- */

/* Takes full chunks and gives them back at once. */
static void *recycle(void *arg)
{
    struct inbox_item item;

    while (inbox_pop(arg, &item) == 0)
        if (item.object)
            loan_put(&((struct chunk *)item.object)->loan);
    return NULL;
}

static struct outcome receive_ours(const struct task *task)
{
    const struct bench_shape *shape = task->shape;
    bool is_dig = strcmp(shape->name, "dig") == 0;
    static struct assembler_stats stats;
    struct inbox *worker, *free_chunks;
    struct device *device;
    struct chunk_pool *pool;
    struct receiver *receiver;
    struct thread recycler;
    char why[256];
    size_t n_heaps = task->heaps_per_source * task->n_sources;

    if (inbox_create(2 * N_CHUNKS, &worker) || inbox_create(N_CHUNKS, &free_chunks) ||
        device_open(&(struct device_config){DEVICE_CPU, 1}, &device, why, sizeof(why)) ||
        chunk_pool_create(device, N_CHUNKS, n_heaps, shape->heap_bytes, 0, free_chunks, 0, &pool))
        die("no memory");
    const unsigned zero[1] = {0};
    const size_t first_ant[2] = {0, task->n_sources};
    const struct fgpu_recv_context fgpu_context = {zero, zero};
    const struct xbgpu_recv_context xbgpu_context = {task->n_sources, 0, 1, first_ant};
    const struct assembler_config assembler = {
        .layout = {shape->heap_samples, shape->heap_bytes, task->heaps_per_source, (unsigned)task->n_sources},
        .name = "bench",
        .window_chunks = WINDOW_CHUNKS,
        .jump_heaps = ASSEMBLE_JUMP_HEAPS,
        .jump_sources = 1,
        .timebase = {.from_packets = true},
        .free_chunks = free_chunks,
        .worker = worker,
        .stats = &stats,
    };
    const struct receiver_config config = {
        .thread_name = THREAD_NAME,
        .cpu = task->cpu,
        .source = {.endpoints = &task->endpoints, .buffer_bytes = task->buffer_bytes},
        .wanted_ids = is_dig ? fgpu_recv_wanted : xbgpu_recv_wanted,
        .n_wanted = is_dig ? FGPU_RECV_N_WANTED : XBGPU_RECV_N_WANTED,
        .identify = is_dig ? fgpu_recv_identify : xbgpu_recv_identify,
        .context = is_dig ? (const void *)&fgpu_context : (const void *)&xbgpu_context,
        .assemblers = &assembler,
        .n_assemblers = 1,
        .worker = worker,
    };
    if (receiver_create(&config, &receiver, why, sizeof(why)))
        die(why);
    thread_start(&recycler, "recycle", -1, recycle, worker);
    receiver_start(receiver);
    puts("READY");
    fflush(stdout);
    const struct receiver_stats *counts = receiver_get_stats(receiver);
    while (counter_get(&counts->rejects[REJECT_STOP]) == 0)
        clock_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    struct outcome outcome = {.cpu_ns = bench_named_thread_cpu_ns(THREAD_NAME)};
    receiver_stop(receiver);
    inbox_stop(worker);
    thread_join(&recycler);
    outcome.n_packets = counter_get(&counts->packets) - counter_get(&counts->rejects[REJECT_STOP]);
    outcome.n_bytes = counter_get(&stats.bytes);
    outcome.n_missing = counter_get(&stats.missing_heaps);
    fprintf(stderr, "copied %llu of %llu packets\n", (unsigned long long)counter_get(&stats.copied_packets),
            (unsigned long long)outcome.n_packets);
    receiver_destroy(receiver);
    chunk_pool_destroy(pool);
    device_close(device);
    inbox_destroy(worker);
    inbox_destroy(free_chunks);
    return outcome;
}

/* ---- The plain loop ------------------------------------------------------------------------------------------------ */

static void copy_past_cache(uint8_t *out, const uint8_t *in, size_t n_bytes)
{
#if defined(__AVX__) || defined(__x86_64__)
    /* Chunks are aligned, and all places in them are multiples of 16 bytes here. */
    for (size_t i = 0; i < n_bytes; i += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(in + i)), b = _mm_loadu_si128((const __m128i *)(in + i + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(in + i + 32)),
                d = _mm_loadu_si128((const __m128i *)(in + i + 48));
        _mm_stream_si128((__m128i *)(out + i), a);
        _mm_stream_si128((__m128i *)(out + i + 16), b);
        _mm_stream_si128((__m128i *)(out + i + 32), c);
        _mm_stream_si128((__m128i *)(out + i + 48), d);
    }
#else
    memcpy(out, in, n_bytes);
#endif
}

static uint64_t word_at(const uint8_t *in)
{
    uint64_t word;

    memcpy(&word, in, sizeof(word));
    return __builtin_bswap64(word);
}

/* Puts a packet of the only form that there is to its place: the items are where bench_items() puts them. */
static void place_plainly(const struct task *task, const uint8_t *packet, uint8_t *chunks)
{
    const struct bench_shape *shape = task->shape;
    uint64_t offset = word_at(packet + 24) & SPEAD_VALUE_MASK;
    uint64_t heap = (word_at(packet + 40) & SPEAD_VALUE_MASK) / (uint64_t)shape->heap_samples;
    uint64_t source = word_at(packet + 48) & SPEAD_VALUE_MASK;
    uint64_t n_heaps = task->heaps_per_source * N_CHUNKS;

    copy_past_cache(chunks + ((heap % n_heaps) * task->n_sources + source) * shape->heap_bytes + offset, packet + 72,
                    shape->payload_bytes);
}

static struct outcome receive_plainly(const struct task *task, unsigned n_messages)
{
    const struct bench_shape *shape = task->shape;
    struct outcome outcome = {0};
    size_t packet_bytes = 72 + shape->payload_bytes;
    size_t chunks_bytes = N_CHUNKS * task->heaps_per_source * task->n_sources * shape->heap_bytes;
    uint8_t *chunks = aligned_alloc(4096, chunks_bytes);
    static uint8_t buffers[N_SINGLE][MESSAGE_MAX];
    struct iovec iovecs[N_SINGLE];
    struct mmsghdr messages[N_SINGLE];
    const struct endpoint *endpoint = &task->endpoints.items[0];
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(endpoint->port), .sin_addr = endpoint->address};
    int buffer_bytes = (int)task->buffer_bytes;
    const int on = 1;
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET((unsigned)task->cpu, &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (!chunks || fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)))
        die("cannot receive there");
    memset(chunks, 1, chunks_bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes));
    setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on));
    for (size_t i = 0; i < n_messages; i++) {
        iovecs[i] = (struct iovec){buffers[i], MESSAGE_MAX};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &iovecs[i], .msg_iovlen = 1};
    }
    puts("READY");
    fflush(stdout);
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (bool stopped = false; !stopped;) {
        int n = recvmmsg(fd, messages, n_messages, MSG_WAITFORONE, NULL);
        for (int i = 0; i < n; i++) {
            stopped |= messages[i].msg_len == SPEAD_STOP_PACKET_BYTES;
            for (size_t at = 0; at + packet_bytes <= messages[i].msg_len; at += packet_bytes) {
                place_plainly(task, buffers[i] + at, chunks);
                outcome.n_packets++;
            }
        }
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    outcome.cpu_ns = (end.tv_sec - start.tv_sec) * NS_PER_S + end.tv_nsec - start.tv_nsec;
    outcome.n_bytes = outcome.n_packets * shape->payload_bytes;
    free(chunks);
    close(fd);
    return outcome;
}

int main(int argc, char **argv)
{
    struct task task;
    char why[256];

    if (argc != 7 || !(task.shape = bench_shape(argv[2]))) {
        fprintf(stderr, "usage: bench_receive ours|plain|plain-single dig|feng ENDPOINT N_SOURCES BUFFER_BYTES CPU\n");
        return 2;
    }
    if (endpoint_list_parse(argv[3], &task.endpoints, why, sizeof(why)))
        die(why);
    task.n_sources = (size_t)atoll(argv[4]);
    task.buffer_bytes = (size_t)atoll(argv[5]);
    task.cpu = atoi(argv[6]);
    task.heaps_per_source = task.shape->heaps_per_chunk / task.n_sources;
    struct outcome outcome;
    if (strcmp(argv[1], "ours") == 0)
        outcome = receive_ours(&task);
    else
        outcome = receive_plainly(&task, strcmp(argv[1], "plain") ? N_SINGLE : N_JOINED);
    printf("{\"packets\": %llu, \"bytes\": %llu, \"missing\": %llu, \"cpu_ns\": %lld}\n",
           (unsigned long long)outcome.n_packets, (unsigned long long)outcome.n_bytes,
           (unsigned long long)outcome.n_missing, (long long)outcome.cpu_ns);
    endpoint_list_fini(&task.endpoints);
    return 0;
}
