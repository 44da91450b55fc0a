/* bench_direct.c - measures how fast the host writes packets into device memory and into its own memory, and how fast
 * the device copies the packets to memory that kernels read.
 *
 * Usage: bench_direct [--device auto|cpu|cuda] [--threads N] [--packet BYTES]
 *   --threads: largest number of threads that write at the same time (default: 4).  The program measures 1, 2, 4, ...
 *              threads up to this number.
 *   --packet:  payload of a packet; default: 5120 bytes.
 *
 * The threads work like receive threads: they copy packets from a buffer in the cache to consecutive places of
 * chunks, with non-temporal stores.  The device copies whole chunks.  The program also measures how fast the host
 * reads pinned memory and direct memory, which is device memory that the host can write.  No daemon reads direct
 * memory. */
#include "common/base/clock.h"
#include "common/base/copy.h"
#include "common/device/device.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "scripts/bench/bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS  16
#define CHUNK_BYTES  ((size_t)16 << 20) /* of each thread */
#define N_ROUNDS     16                 /* chunks in a repetition */
#define CACHED_BYTES ((size_t)256 << 10)
#define READ_BYTES   ((size_t)1 << 20)

struct writer {
    pthread_t thread;
    pthread_barrier_t *start;
    const uint8_t *from;
    uint8_t *to;
    size_t packet_bytes;
};

static volatile uint64_t sum; /* sum of all data read; without this sum the compiler would remove the reads */

static void *write_chunks(void *arg)
{
    struct writer *w = arg;
    size_t n_cached = CACHED_BYTES / w->packet_bytes;

    pthread_barrier_wait(w->start);
    for (size_t round = 0; round < N_ROUNDS; round++) {
        size_t packet = 0;
        for (size_t at = 0; at + w->packet_bytes <= CHUNK_BYTES; at += w->packet_bytes, packet++)
            copy_past_cache(w->to + at, w->from + packet % n_cached * w->packet_bytes, w->packet_bytes);
        copy_finish();
    }
    return NULL;
}

/* Returns the rate of all threads together, in 10^9 bytes per second. */
static double write_once(struct writer *writers, unsigned n)
{
    pthread_barrier_t start;

    pthread_barrier_init(&start, NULL, n + 1);
    for (unsigned i = 0; i < n; i++) {
        writers[i].start = &start;
        if (pthread_create(&writers[i].thread, NULL, write_chunks, &writers[i]))
            bench_fail("a thread cannot be started");
    }
    pthread_barrier_wait(&start);
    int64_t began_ns = clock_monotonic_ns();
    for (unsigned i = 0; i < n; i++)
        pthread_join(writers[i].thread, NULL);
    int64_t took_ns = clock_monotonic_ns() - began_ns;
    pthread_barrier_destroy(&start);
    size_t packets = CHUNK_BYTES / writers[0].packet_bytes;
    return (double)(n * N_ROUNDS * packets * writers[0].packet_bytes) / (double)took_ns;
}

static void bench_write(const char *label, struct writer *writers, unsigned n_threads)
{
    double values[BENCH_REPETITIONS];
    char row[64];

    for (unsigned n = 1; n <= n_threads; n *= 2) {
        write_once(writers, n);
        for (int k = 0; k < BENCH_REPETITIONS; k++)
            values[k] = write_once(writers, n);
        snprintf(row, sizeof(row), "%s, %u thread%s", label, n, n > 1 ? "s" : "");
        bench_print_row(row, bench_stat_of(values, BENCH_REPETITIONS), 0, "");
    }
}

static void bench_copy(const char *label, struct device_stream *stream, void *to, const void *from)
{
    double values[BENCH_REPETITIONS];

    for (int k = -1; k < BENCH_REPETITIONS; k++) {
        int64_t began_ns = clock_monotonic_ns();
        for (size_t round = 0; round < N_ROUNDS; round++)
            device_copy(stream, to, from, CHUNK_BYTES);
        device_stream_wait(stream);
        if (k >= 0)
            values[k] = (double)(N_ROUNDS * CHUNK_BYTES) / (double)(clock_monotonic_ns() - began_ns);
    }
    bench_print_row(label, bench_stat_of(values, BENCH_REPETITIONS), 0, "");
}

static void bench_read(const char *label, const uint8_t *from)
{
    double values[BENCH_REPETITIONS];

    for (int k = 0; k < BENCH_REPETITIONS; k++) {
        uint64_t word, total = 0;
        int64_t began_ns = clock_monotonic_ns();
        for (size_t at = 0; at < READ_BYTES; at += sizeof(word)) {
            memcpy(&word, from + at, sizeof(word));
            total += word;
        }
        sum = total;
        values[k] = (double)READ_BYTES / (double)(clock_monotonic_ns() - began_ns);
    }
    bench_print_row(label, bench_stat_of(values, BENCH_REPETITIONS), 0, "");
}

struct options {
    struct device_config device;
    unsigned n_threads;
    size_t packet_bytes;
};

static void parse(struct options *options, int argc, char **argv)
{
    const struct bench_option rows[] = {
        {"--device", bench_read_device, &options->device.kind},
        {"--threads", bench_read_unsigned, &options->n_threads},
        {"--packet", bench_read_size, &options->packet_bytes},
    };

    bench_options(argc, argv, rows, ARRAY_LEN(rows));
    if (options->n_threads < 1 || options->n_threads > MAX_THREADS || options->packet_bytes < 1 ||
        options->packet_bytes > CACHED_BYTES)
        bench_fail("--threads must be 1 to 16, --packet at most 256 KiB");
}

static void measure(const struct options *options, struct device *device, struct device_stream *stream,
                    struct writer *pinned, struct writer *written, const uint8_t *source)
{
    void *memory = bench_alloc(device, CHUNK_BYTES);

    bench_print_machine();
    printf("device: %s, %s; packets of %zu bytes\n", device_name(device), device_model(device), options->packet_bytes);
    bench_print_head("Packets written past the cache", "10^9 bytes/s");
    bench_write("to pinned memory", pinned, options->n_threads);
    bench_write("to direct memory", written, options->n_threads);
    bench_print_head("Copies of chunks to memory that kernels read", "10^9 bytes/s");
    bench_copy("device copies from pinned memory", stream, memory, pinned[0].to);
    bench_copy("device copies from direct memory", stream, memory, source);
    bench_print_head("Reads by the host", "10^9 bytes/s");
    bench_read("host reads pinned memory", pinned[0].to);
    bench_read("host reads direct device memory", written[0].to);
    device_free(device, memory);
}

int main(int argc, char **argv)
{
    struct options options = {.device.kind = DEVICE_AUTO, .n_threads = 4, .packet_bytes = 5120};
    struct device_direct direct[MAX_THREADS] = {{0}};
    struct writer pinned[MAX_THREADS], written[MAX_THREADS];
    struct device *device;
    struct device_stream *stream;
    uint8_t *cached = aligned_alloc(4096, CACHED_BYTES);
    char why[600] = "there is not enough memory";

    log_init("bench_direct", LOG_LEVEL_WARNING);
    parse(&options, argc, argv);
    if (!cached || device_open(&options.device, &device, why, sizeof(why)))
        bench_fail(why);
    if (device_stream_create(device, "bench", &stream))
        bench_fail("cannot create a stream on the device");
    memset(cached, 0x5a, CACHED_BYTES);
    for (unsigned i = 0; i < options.n_threads; i++) {
        uint8_t *memory = device_alloc_pinned(device, CHUNK_BYTES);
        if (!memory || device_alloc_direct(device, CHUNK_BYTES, &direct[i], why, sizeof(why)))
            bench_fail(why);
        pinned[i] = (struct writer){.from = cached, .to = memory, .packet_bytes = options.packet_bytes};
        written[i] = (struct writer){.from = cached, .to = direct[i].host, .packet_bytes = options.packet_bytes};
    }
    measure(&options, device, stream, pinned, written, direct[0].device);
    for (unsigned i = 0; i < options.n_threads; i++) {
        device_free_pinned(device, pinned[i].to);
        device_free_direct(device, &direct[i]);
    }
    device_stream_destroy(stream);
    device_close(device);
    free(cached);
    return 0;
}
