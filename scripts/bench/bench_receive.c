/* bench_receive.c - receives packets from bench_feed and assembles chunks, with one receive thread.
 *
 * Usage: bench_receive ours|plain|plain-single SHAPE ENDPOINTS N_SOURCES BUFFER_BYTES CPU
 *   ours:         the daemons' receiver: source, parser, identification, window, presence.
 *   plain:        the ceiling: the shortest loop that makes the same copies without checking packets.  recvmmsg()
 *                 reads joined packets (UDP_GRO) into a buffer that stays in the cache.  Non-temporal stores copy the
 *                 payloads to the chunks.
 *   plain-single: the same loop as in 'plain', for messages of one packet.
 * Prints READY, receives until a stop heap arrives, and prints one line of JSON: packets, payload bytes in chunks,
 * missing heaps, and the CPU time of the receive thread. */
#include "common/recv/assemble.h"
#include "common/recv/chunk.h"
#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/recv/receiver.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "fgpu/recv.h"
#include "scripts/bench/bench_shapes.h"
#include "scripts/bench/bench_thread.h"
#include "xbgpu/recv.h"

#include <errno.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define N_CHUNKS      6
#define WINDOW_CHUNKS 2
#define THREAD_NAME   "receive"
#define MESSAGE_MAX   65536
#define N_JOINED      4  /* number of messages in a system call if messages have many packets; the best value */
#define N_SINGLE      64 /* number of messages in a system call if messages have one packet */
#define ENDPOINTS_MAX 16

static void die(const char *what)
{
    fprintf(stderr, "bench_receive: %s\n", what);
    exit(1);
}

struct task {
    struct bench_shape shape;
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

/* Takes full chunks and returns them to their pool at once. */
static void *recycle(void *arg)
{
    struct inbox_item item;

    while (inbox_pop(arg, &item) == 0)
        if (item.object)
            buffer_ref_put(&((struct chunk *)item.object)->ref);
    return NULL;
}

/* The daemons' receiver, and the queues and pool of its chunks. */
struct ours {
    struct inbox *worker, *free_chunks;
    struct device *device;
    struct chunk_pool *pool;
    struct receiver *receiver;
    struct assembler_stats stats;
    size_t first_ant[2];
    struct fgpu_recv_context fgpu_context;
    struct xbgpu_recv_context xbgpu_context;
};

static void open_ours(const struct task *task, struct ours *ours)
{
    const struct bench_shape *shape = &task->shape;
    bool is_dig = shape->is_dig;
    char why[256];
    const struct chunk_shape chunks = {
        .n_chunks = N_CHUNKS, .n_heaps = task->heaps_per_source * task->n_sources, .heap_bytes = shape->heap_bytes};

    if (inbox_create(2 * N_CHUNKS, &ours->worker) || inbox_create(N_CHUNKS, &ours->free_chunks) ||
        device_open(&(struct device_config){DEVICE_CPU, 1}, &ours->device, why, sizeof(why)) ||
        chunk_pool_create(ours->device, &chunks, 0, ours->free_chunks, 0, &ours->pool, why, sizeof(why)))
        die("no memory");
    static const unsigned zero[ENDPOINTS_MAX];
    ours->first_ant[1] = task->n_sources;
    ours->fgpu_context = (struct fgpu_recv_context){zero, zero};
    ours->xbgpu_context = (struct xbgpu_recv_context){task->n_sources, 0, 1, ours->first_ant};
    const struct assembler_config assembler = {
        .layout = {shape->heap_samples, shape->heap_bytes, task->heaps_per_source, (unsigned)task->n_sources},
        .name = "bench",
        .window_chunks = WINDOW_CHUNKS,
        .jump_heaps = ASSEMBLE_JUMP_HEAPS,
        .jump_sources = 1,
        .timebase = {.adc_sample_rate_hz = {1712000000, 0}, .from_packets = true},
        .free_chunks = ours->free_chunks,
        .worker = ours->worker,
        .stats = &ours->stats,
    };
    const struct receiver_config config = {
        .thread_name = THREAD_NAME,
        .cpu = task->cpu,
        .source = {.endpoints = &task->endpoints, .buffer_bytes = task->buffer_bytes},
        .wanted_ids = is_dig ? fgpu_recv_wanted : xbgpu_recv_wanted,
        .n_wanted = is_dig ? FGPU_RECV_N_WANTED : XBGPU_RECV_N_WANTED,
        .identify = is_dig ? fgpu_recv_identify : xbgpu_recv_identify,
        .context = is_dig ? (const void *)&ours->fgpu_context : (const void *)&ours->xbgpu_context,
        .assemblers = &assembler,
        .n_assemblers = 1,
        .worker = ours->worker,
    };
    if (receiver_create(&config, &ours->receiver, why, sizeof(why)))
        die(why);
}

static void close_ours(struct ours *ours)
{
    receiver_destroy(ours->receiver);
    chunk_pool_destroy(ours->pool);
    device_close(ours->device);
    inbox_destroy(ours->worker);
    inbox_destroy(ours->free_chunks);
}

static struct outcome receive_ours(const struct task *task)
{
    static struct ours ours;
    struct thread recycler;

    open_ours(task, &ours);
    thread_start(&recycler, "recycle", -1, recycle, ours.worker);
    receiver_start(ours.receiver);
    puts("READY");
    fflush(stdout);
    const struct receiver_stats *counts = receiver_get_stats(ours.receiver);
    while (counter_get(&counts->rejects[REJECT_STOP]) == 0)
        clock_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    struct outcome outcome = {.cpu_ns = bench_named_thread_cpu_ns(THREAD_NAME)};
    receiver_stop(ours.receiver);
    inbox_stop(ours.worker);
    thread_join(&recycler);
    outcome.n_packets = counter_get(&counts->packets) - counter_get(&counts->rejects[REJECT_STOP]);
    outcome.n_bytes = counter_get(&ours.stats.bytes);
    outcome.n_missing = counter_get(&ours.stats.missing_heaps);
    fprintf(stderr, "copied %llu of %llu packets\n", (unsigned long long)counter_get(&ours.stats.copied_packets),
            (unsigned long long)outcome.n_packets);
    close_ours(&ours);
    return outcome;
}

/* ---- The plain loop ------------------------------------------------------------------------------------------------ */

static void copy_past_cache(uint8_t *out, const uint8_t *in, size_t n_bytes)
{
#if defined(__AVX__) || defined(__x86_64__)
    /* Here all addresses in chunks are multiples of 16 bytes. */
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

/* Copies a packet to its place in the chunks.  All packets have the items of bench_items(), in the same order. */
static void place_plainly(const struct task *task, const uint8_t *packet, uint8_t *chunks)
{
    const struct bench_shape *shape = &task->shape;
    uint64_t offset = word_at(packet + 24) & SPEAD_VALUE_MASK;
    uint64_t heap = (word_at(packet + 40) & SPEAD_VALUE_MASK) / (uint64_t)shape->heap_samples;
    uint64_t source = word_at(packet + 48) & SPEAD_VALUE_MASK;
    uint64_t n_heaps = task->heaps_per_source * N_CHUNKS;

    copy_past_cache(chunks + ((heap % n_heaps) * task->n_sources + source) * shape->heap_bytes + offset, packet + 72,
                    shape->payload_bytes);
}

static int open_plainly(const struct task *task, const struct endpoint *endpoint)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(endpoint->port), .sin_addr = endpoint->address};
    int buffer_bytes = (int)(task->buffer_bytes / task->endpoints.n);
    const int on = 1;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)))
        die("cannot receive there");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes));
    setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on));
    return fd;
}

/* Copies the packets of all messages of a system call to their places.  Returns true if a message was a stop heap. */
static bool place_messages(const struct task *task, const struct mmsghdr *messages, int n, uint8_t *chunks,
                           uint64_t *n_packets)
{
    size_t packet_bytes = 72 + task->shape.payload_bytes;
    bool stopped = false;

    for (int i = 0; i < n; i++) {
        stopped |= messages[i].msg_len == SPEAD_STOP_PACKET_BYTES;
        for (size_t at = 0; at + packet_bytes <= messages[i].msg_len; at += packet_bytes, (*n_packets)++)
            place_plainly(task, (const uint8_t *)messages[i].msg_hdr.msg_iov->iov_base + at, chunks);
    }
    return stopped;
}

/* Receives until a stop heap arrives.  With one socket, the thread waits in recvmmsg().  With several sockets, the
 * thread waits in epoll, which reports the sockets that are ready. */
static struct outcome receive_plainly(const struct task *task, unsigned n_messages)
{
    const struct bench_shape *shape = &task->shape;
    struct outcome outcome = {0};
    size_t chunks_bytes = N_CHUNKS * task->heaps_per_source * task->n_sources * shape->heap_bytes;
    uint8_t *chunks = aligned_alloc(4096, chunks_bytes);
    static uint8_t buffers[N_SINGLE][MESSAGE_MAX];
    struct iovec iovecs[N_SINGLE];
    struct mmsghdr messages[N_SINGLE];
    struct epoll_event ready[ENDPOINTS_MAX] = {{.data.fd = -1}};
    cpu_set_t cpus;
    int n_ready = 1, flags = task->endpoints.n > 1 ? MSG_DONTWAIT : MSG_WAITFORONE;

    CPU_ZERO(&cpus);
    CPU_SET((unsigned)task->cpu, &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
    int epoll_fd = epoll_create1(0);
    if (!chunks || epoll_fd < 0)
        die("no memory");
    memset(chunks, 1, chunks_bytes);
    for (size_t i = 0; i < task->endpoints.n; i++) {
        ready[0] = (struct epoll_event){.events = EPOLLIN, .data.fd = open_plainly(task, &task->endpoints.items[i])};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, ready[0].data.fd, &ready[0]);
    }
    for (size_t i = 0; i < n_messages; i++) {
        iovecs[i] = (struct iovec){buffers[i], MESSAGE_MAX};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &iovecs[i], .msg_iovlen = 1};
    }
    puts("READY");
    fflush(stdout);
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (bool stopped = false; !stopped;) {
        if (task->endpoints.n > 1)
            n_ready = epoll_wait(epoll_fd, ready, ENDPOINTS_MAX, -1);
        for (int r = 0; r < n_ready; r++)
            stopped |= place_messages(task, messages, recvmmsg(ready[r].data.fd, messages, n_messages, flags, NULL),
                                      chunks, &outcome.n_packets);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    outcome.cpu_ns = (end.tv_sec - start.tv_sec) * NS_PER_S + end.tv_nsec - start.tv_nsec;
    outcome.n_bytes = outcome.n_packets * shape->payload_bytes;
    free(chunks);
    return outcome;
}

int main(int argc, char **argv)
{
    struct task task;
    char why[256];

    if (argc != 7 || !bench_shape(argv[2], &task.shape) || (task.shape.is_dig && atoi(argv[4]) != 1)) {
        fprintf(stderr, "usage: bench_receive ours|plain|plain-single SHAPE ENDPOINTS N_SOURCES BUFFER_BYTES "
                        "CPU\n" BENCH_SHAPE_USAGE "; dig has one source\n");
        return 2;
    }
    if (endpoint_list_parse(argv[3], &task.endpoints, why, sizeof(why)))
        die(why);
    if (task.endpoints.n > ENDPOINTS_MAX)
        die("too many endpoints");
    task.n_sources = (size_t)atoll(argv[4]);
    task.buffer_bytes = (size_t)atoll(argv[5]);
    task.cpu = atoi(argv[6]);
    task.heaps_per_source = task.shape.heaps_per_chunk / task.n_sources;
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
