/* bench_search.c - measures how long the search for a satellite takes on a device.
 *
 * Usage: bench_search [--device auto|cpu|cuda] [--repetitions N]
 *
 * A search has random samples of 26.75 MS/s in both polarisations.  The blocks of a search follow each other without a
 * pause.  "host" is the CPU time of the thread that enqueues a search, at the median.  The cpu device computes with one
 * thread. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "kernels/gnss/gnss_acquire.h"
#include "scripts/bench/bench.h"
#include "tests/unit/test_random.h"

#include <stdio.h>
#include <stdlib.h>

#define SAMPLE_RATE_HZ 26.75e6

static const struct size {
    enum gnss_signal signal;
    double range_hz; /* half width of the range of Dopplers */
    uint32_t n_periods, n_blocks;
} sizes[] = {{GNSS_L1CA, 10e3, 1, 10},
             {GNSS_L1CA, 500, 20, 50},
             {GNSS_L1CA, 10e3, 20, 50},
             {GNSS_E1B, 10e3, 1, 10},
             {GNSS_L5Q, 10e3, 1, 10}};

struct options {
    struct device_config device;
    size_t n_repetitions;
};

struct search {
    struct device *device;
    struct device_stream *stream;
    struct gnss_acquirer *acquirer;
    struct gnss_acquire *acquire;
    struct gnss_acquire_config config;
    int8_t *samples; /* in device memory: [pol][n_samples][re, im] */
    uint32_t n_samples;
};

static int8_t *upload_noise(struct device *device, size_t bytes)
{
    int8_t *noise = device_alloc_pinned(device, bytes), *samples = bench_alloc(device, bytes);

    if (!noise)
        bench_fail("there is not enough memory on the host");
    random_bytes(noise, bytes);
    if (device_upload(device, samples, noise, bytes))
        bench_fail("an upload failed");
    device_free_pinned(device, noise);
    return samples;
}

static void search_init(struct search *s, struct device *device, const struct size *size)
{
    static int8_t chips[GNSS_MAX_CHIPS], table[GNSS_MAX_SUBCHIPS];
    const struct gnss_signal_facts *facts = gnss_signal_facts(size->signal);
    struct gnss_acquire_limits limits = {0};

    for (size_t i = 0; i < facts->n_chips; i++)
        chips[i] = random_below(2) ? 1 : -1;
    gnss_code_table(chips, facts->n_chips, facts->subcarrier, table);
    *s = (struct search){.device = device,
                         .config = {.facts = facts,
                                    .table = table,
                                    .n_subchips = facts->n_chips * (uint32_t)gnss_subchips(facts->subcarrier),
                                    .n_periods = size->n_periods,
                                    .sample_rate_hz = SAMPLE_RATE_HZ,
                                    .min_doppler_hz = -size->range_hz,
                                    .max_doppler_hz = size->range_hz,
                                    .false_alarm = 1e-3}};
    gnss_acquire_limits_add(&limits, facts, size->n_periods, 2 * size->range_hz);
    if (device_stream_create(device, "search", &s->stream) || gnss_acquirer_create(s->stream, &limits, &s->acquirer) ||
        gnss_acquire_create(s->acquirer, &limits, &s->acquire))
        bench_fail("the search was not created");
    gnss_acquire_begin(s->acquire, &s->config);
    s->n_samples = gnss_acquire_block_samples(s->acquire);
    s->samples = upload_noise(device, N_POLS * (size_t)s->n_samples * 2);
    device_stream_wait(s->stream);
}

static void search_fini(struct search *s)
{
    gnss_acquire_destroy(s->acquire);
    gnss_acquirer_destroy(s->acquirer);
    device_stream_destroy(s->stream);
    device_free(s->device, s->samples);
}

static void run(struct search *s, uint32_t n_blocks, double *wall_ms, double *host_ms)
{
    const int64_t wall_ns = clock_monotonic_ns(), host_ns = clock_thread_cpu_ns();

    gnss_acquire_begin(s->acquire, &s->config);
    for (uint32_t block = 0; block < n_blocks; block++)
        gnss_acquire_add(s->acquire, s->samples, s->n_samples, (int64_t)block * s->n_samples);
    gnss_acquire_finish(s->acquire);
    *host_ms = (double)(clock_thread_cpu_ns() - host_ns) / (double)NS_PER_MS;
    device_stream_wait(s->stream);
    *wall_ms = (double)(clock_monotonic_ns() - wall_ns) / (double)NS_PER_MS;
}

static void bench_size(const struct options *options, struct device *device, const struct size *size)
{
    double wall_ms[BENCH_MAX_REPETITIONS], host_ms[BENCH_MAX_REPETITIONS];
    const size_t n = least(options->n_repetitions, BENCH_MAX_REPETITIONS);
    char label[80], remark[40];
    struct search s;

    search_init(&s, device, size);
    const double block_ms = 1e3 * s.n_samples / SAMPLE_RATE_HZ;
    snprintf(label, sizeof(label), "%-4s +-%5g Hz %3u blocks of %4.1f ms", s.config.facts->name, size->range_hz,
             size->n_blocks, block_ms);
    run(&s, size->n_blocks, wall_ms, host_ms);
    for (size_t i = 0; i < n; i++)
        run(&s, size->n_blocks, &wall_ms[i], &host_ms[i]);
    snprintf(remark, sizeof(remark), "host %.2f ms", bench_stat_of(host_ms, n).median);
    bench_print_row(label, bench_stat_of(wall_ms, n), 0, remark);
    search_fini(&s);
}

int main(int argc, char **argv)
{
    struct options options = {.device = {.kind = DEVICE_AUTO, .n_threads = 1}, .n_repetitions = BENCH_REPETITIONS};
    const struct bench_option table[] = {{"--device", bench_read_device, &options.device.kind},
                                         {"--repetitions", bench_read_size, &options.n_repetitions}};
    struct device *device;
    char why[400] = "";

    log_init("bench_search", LOG_LEVEL_WARNING);
    bench_options(argc, argv, table, ARRAY_LEN(table));
    bench_print_machine();
    if (device_open(&options.device, &device, why, sizeof(why)))
        bench_fail(why);
    bench_print_head("Search for a satellite", "ms");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        bench_size(&options, device, &sizes[i]);
    device_close(device);
    return EXIT_SUCCESS;
}
