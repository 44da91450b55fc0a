/* count_heaps.c - receives the heaps of a stream and only counts them.  scripts/bench/realtime f runs it behind an
 * engine.
 *
 * Usage: count_heaps --endpoints LIST --step SAMPLES --sync-time S --rate HZ [--interface NAME] [--threads N]
 *                    [--buffer BYTES] [--affinity CPU[,CPU...]] [--interval S]
 *   LIST:     multicast groups or addresses, as in a configuration.
 *   --step:   samples from one heap to the next heap of an endpoint.
 *   --buffer: bytes of the socket buffers of each thread.
 * Each endpoint carries the heaps of one source, one after the other.  The threads get the endpoints in turn.  The
 * program does not read payloads.
 *
 * Prints READY, and then a line of JSON for each interval, until a signal ends the program.  A line has the counts
 * since the start:
 *         heaps:     complete heaps: heaps with the right number of bytes (bytes that came twice are not noticed).
 *         broken:    heaps that were incomplete when the next heap began.
 *         missing:   heaps between two received heaps of an endpoint.
 *         late:      packets of heaps older than the newest heap of their endpoint.
 *         other:     packets that are not SPEAD data (descriptors, stops).
 *         drops:     messages that the kernel dropped because the socket buffer was full.
 *         newest:    newest timestamp of the endpoint that is furthest behind.
 *         latency_s: the longest latency in the last interval: from the time of a heap's last sample to the receipt
 *                    of the heap's first packets. */
#include "common/base/clock.h"
#include "common/base/counter.h"
#include "common/base/log.h"
#include "common/recv/source.h"
#include "common/net/spead_shape.h"
#include "common/base/thread.h"
#include "common/time/timebase.h"
#include "common/base/units.h"
#include "scripts/bench/bench.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS   64
#define HEADER_BYTES  256
#define PAYLOAD_BYTES 65536
#define TIMEOUT_NS    (100 * NS_PER_MS)

struct options {
    struct endpoint_list endpoints;
    int64_t step_samples;
    struct timebase timebase;
    const char *interface;
    size_t n_threads, buffer_bytes;
    int cpus[MAX_THREADS];
    size_t n_cpus;
    double interval_s;
};

/* The progress of an endpoint's stream. */
struct flow {
    bool started;
    uint64_t timestamp;    /* timestamp of the newest heap, 48 bits */
    uint64_t n_bytes_left; /* missing bytes of the newest heap */
    _Atomic uint64_t newest;
};

struct counts {
    struct counter packets, bytes, heaps, broken, missing, late, other;
    _Atomic uint64_t drops;
    _Atomic int64_t latency_ns; /* the longest latency since the last read of this field */
};

struct counting_thread {
    const struct options *options;
    struct endpoint_list endpoints;
    struct flow *flows;
    struct recv_source *source;
    struct spead_shape shape;
    struct packet_slot slots[PACKET_BATCH_MAX];
    uint8_t *room; /* memory for packets: [PACKET_BATCH_MAX][HEADER_BYTES + PAYLOAD_BYTES] */
    struct counts counts;
    struct thread thread;
};

static atomic_bool stop;
static const uint16_t wanted_ids[] = {SPEAD_TIMESTAMP};

static void ask_to_stop(int signal_number)
{
    atomic_store(&stop, true);
}

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

static void note_latency(struct counting_thread *t, uint64_t timestamp)
{
    int64_t end_ns = timebase_unix_ns(&t->options->timebase, (int64_t)timestamp + t->options->step_samples);
    int64_t latency_ns = clock_unix_ns() - end_ns;

    if (latency_ns > atomic_load_explicit(&t->counts.latency_ns, memory_order_relaxed))
        atomic_store_explicit(&t->counts.latency_ns, latency_ns, memory_order_relaxed);
}

static void begin_heap(struct counting_thread *t, struct flow *flow, const struct spead_packet *packet)
{
    uint64_t timestamp = packet->wanted[0];

    if (flow->started) {
        if (flow->n_bytes_left > 0)
            counter_add_alone(&t->counts.broken, 1);
        counter_add_alone(&t->counts.missing, (timestamp - flow->timestamp) / (uint64_t)t->options->step_samples - 1);
    }
    flow->started = true;
    flow->timestamp = timestamp;
    flow->n_bytes_left = packet->heap_length;
    atomic_store_explicit(&flow->newest, timestamp, memory_order_relaxed);
    note_latency(t, timestamp);
}

static void count_packet(struct counting_thread *t, const struct packet_slot *slot)
{
    struct flow *flow = &t->flows[slot->endpoint];
    struct spead_packet packet;
    size_t header_bytes = slot->packet_bytes < slot->header_bytes ? slot->packet_bytes : slot->header_bytes;

    if (!spead_shape_parse(&t->shape, slot->header, header_bytes, slot->packet_bytes, &packet)) {
        if (spead_parse(slot->header, header_bytes, slot->packet_bytes, wanted_ids, 1, &packet) ||
            !(packet.immediate & 1)) {
            counter_add_alone(&t->counts.other, 1);
            return;
        }
        spead_shape_learn(&t->shape, slot->header, wanted_ids, 1, &packet);
    }
    counter_add_alone(&t->counts.packets, 1);
    counter_add_alone(&t->counts.bytes, packet.payload_length);
    if (!flow->started || packet.wanted[0] > flow->timestamp)
        begin_heap(t, flow, &packet);
    else if (packet.wanted[0] < flow->timestamp) {
        counter_add_alone(&t->counts.late, 1);
        return;
    }
    if (packet.payload_length > flow->n_bytes_left) /* something came twice */
        return;
    flow->n_bytes_left -= packet.payload_length;
    if (flow->n_bytes_left == 0)
        counter_add_alone(&t->counts.heaps, 1);
}

static void offer_slots(struct counting_thread *t)
{
    for (size_t i = 0; i < PACKET_BATCH_MAX; i++) {
        uint8_t *room = t->room + i * (HEADER_BYTES + PAYLOAD_BYTES);
        t->slots[i] = (struct packet_slot){.header = room,
                                           .header_bytes = HEADER_BYTES,
                                           .payload = room + HEADER_BYTES,
                                           .payload_bytes = PAYLOAD_BYTES};
    }
}

static void *run(void *arg)
{
    struct counting_thread *t = arg;

    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (!recv_source_is_zero_copy(t->source))
            offer_slots(t);
        int n = recv_source_recv(t->source, t->slots, PACKET_BATCH_MAX, TIMEOUT_NS);
        if (n < 0)
            bench_fail("receiving failed");
        for (int i = 0; i < n; i++)
            count_packet(t, &t->slots[i]);
    }
    return NULL;
}

/* ---- Telling ----------------------------------------------------------------------------------------------------- */

static void print_counts(const struct options *options, struct counting_thread *threads)
{
    uint64_t packets = 0, bytes = 0, heaps = 0, broken = 0, missing = 0, late = 0, other = 0, drops = 0;
    uint64_t newest = UINT64_MAX;
    int64_t latency_ns = INT64_MIN;

    for (size_t i = 0; i < options->n_threads; i++) {
        struct counting_thread *t = &threads[i];
        packets += counter_get(&t->counts.packets);
        bytes += counter_get(&t->counts.bytes);
        heaps += counter_get(&t->counts.heaps);
        broken += counter_get(&t->counts.broken);
        missing += counter_get(&t->counts.missing);
        late += counter_get(&t->counts.late);
        other += counter_get(&t->counts.other);
        drops += recv_source_kernel_drops(t->source);
        int64_t latest_ns = atomic_exchange(&t->counts.latency_ns, INT64_MIN);
        latency_ns = latest_ns > latency_ns ? latest_ns : latency_ns;
        for (size_t e = 0; e < t->endpoints.n; e++) {
            uint64_t at = atomic_load_explicit(&t->flows[e].newest, memory_order_relaxed);
            newest = at < newest ? at : newest;
        }
    }
    printf("{\"time\": %.6f, \"packets\": %llu, \"bytes\": %llu, \"heaps\": %llu, \"broken\": %llu, \"missing\": %llu, "
           "\"late\": %llu, \"other\": %llu, \"drops\": %llu, \"newest\": %llu, \"latency_s\": %.6f}\n",
           (double)clock_unix_ns() / 1e9, (unsigned long long)packets, (unsigned long long)bytes,
           (unsigned long long)heaps, (unsigned long long)broken, (unsigned long long)missing, (unsigned long long)late,
           (unsigned long long)other, (unsigned long long)drops, (unsigned long long)newest,
           latency_ns == INT64_MIN ? 0 : (double)latency_ns / 1e9);
    fflush(stdout);
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static void create_thread(const struct options *options, struct counting_thread *t, size_t index)
{
    char why[400];

    t->options = options;
    t->counts.latency_ns = INT64_MIN;
    t->endpoints.items = calloc(options->endpoints.n, sizeof(*t->endpoints.items));
    t->room = malloc(PACKET_BATCH_MAX * (HEADER_BYTES + (size_t)PAYLOAD_BYTES));
    if (!t->endpoints.items || !t->room)
        bench_fail("out of memory");
    for (size_t i = index; i < options->endpoints.n; i += options->n_threads)
        t->endpoints.items[t->endpoints.n++] = options->endpoints.items[i];
    t->flows = calloc(t->endpoints.n, sizeof(*t->flows));
    const struct recv_source_config config = {
        .endpoints = &t->endpoints, .interface = options->interface, .buffer_bytes = options->buffer_bytes};
    if (!t->flows || recv_source_open(&config, &t->source, why, sizeof(why)))
        bench_fail(t->flows ? why : "out of memory");
}

static void parse_cpus(struct options *options, const char *list)
{
    while (*list && options->n_cpus < MAX_THREADS) {
        char *end;
        options->cpus[options->n_cpus++] = (int)strtol(list, &end, 10);
        list = *end ? end + 1 : end;
    }
}

static void parse(struct options *options, int argc, char **argv)
{
    char why[256];

    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--endpoints") == 0) {
            if (endpoint_list_parse(value, &options->endpoints, why, sizeof(why)))
                bench_fail(why);
        } else if (strcmp(name, "--step") == 0)
            options->step_samples = strtoll(value, NULL, 0);
        else if (strcmp(name, "--sync-time") == 0)
            timebase_parse_decimal(value, 9, &options->timebase.sync_time_s);
        else if (strcmp(name, "--rate") == 0)
            timebase_parse_decimal(value, 6, &options->timebase.adc_sample_rate_hz);
        else if (strcmp(name, "--interface") == 0)
            options->interface = value;
        else if (strcmp(name, "--threads") == 0)
            options->n_threads = strtoull(value, NULL, 0);
        else if (strcmp(name, "--buffer") == 0)
            options->buffer_bytes = strtoull(value, NULL, 0);
        else if (strcmp(name, "--affinity") == 0)
            parse_cpus(options, value);
        else if (strcmp(name, "--interval") == 0)
            options->interval_s = strtod(value, NULL);
        else
            bench_fail("scripts/bench/count_heaps.c explains the options at its start");
    }
    if (options->endpoints.n == 0 || options->step_samples <= 0 || options->timebase.adc_sample_rate_hz.mantissa <= 0)
        bench_fail("--endpoints, --step, --sync-time and --rate must be given");
    if (options->n_threads > options->endpoints.n)
        options->n_threads = options->endpoints.n;
    if (options->n_threads < 1 || options->n_threads > MAX_THREADS)
        bench_fail("--threads is 1 to 64");
}

int main(int argc, char **argv)
{
    struct options options = {.n_threads = 1, .buffer_bytes = 64 << 20, .interval_s = 0.5};
    static struct counting_thread threads[MAX_THREADS];
    struct sigaction action = {.sa_handler = ask_to_stop};

    log_init("count_heaps", LOG_LEVEL_WARNING);
    parse(&options, argc, argv);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    for (size_t i = 0; i < options.n_threads; i++)
        create_thread(&options, &threads[i], i);
    for (size_t i = 0; i < options.n_threads; i++) {
        char name[32];
        snprintf(name, sizeof(name), "count%zu", i);
        int cpu = options.n_cpus > 0 ? options.cpus[i % options.n_cpus] : -1;
        if (thread_start(&threads[i].thread, name, cpu, run, &threads[i]))
            bench_fail("a thread does not start");
    }
    puts("READY");
    fflush(stdout);
    int64_t next_ns = clock_monotonic_ns();
    while (!atomic_load(&stop)) {
        next_ns += (int64_t)(options.interval_s * 1e9);
        clock_sleep_until(next_ns);
        print_counts(&options, threads);
    }
    for (size_t i = 0; i < options.n_threads; i++)
        thread_join(&threads[i].thread);
    print_counts(&options, threads);
    return 0;
}
