/* check_start - fgpu and xbgpu build their pipelines while random allocations fail.  A failed start must free all memory and
 * must end with exit code 1, because a restart may help. */
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "common/daemon/daemon.h"
#include "common/daemon/service.h"
#include "common/device/device.h"
#include "common/http/status.h"
#include "common/katcp/sensors.h"
#include "common/telemetry/sensor.h"
#include "common/telemetry/stats.h"
#include "fgpu/config/config.h"
#include "fgpu/config_check.h"
#include "fgpu/pipeline.h"
#include "tests/unit/test_config.h"
#include "tests/unit/test_no_memory.h"
#include "tests/unit/test_random.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config_check.h"
#include "xbgpu/pipeline.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define N_STARTS 50 /* of each case */

#define TIME "time: {sync_time: 1700000000, adc_sample_rate: 1712e6}\ndevice: {kind: cpu, threads: 1}\n"

/* '%s' is an address of this host that no other process uses. */
static const char fgpu_yaml[] = TIME
    "recv: {packet_samples: 256, chunk_samples: 8192, max_delay_diff: 512, sample_bits: 8, buffer: 0}\n"
    "antennas: [{name: m000, feng_id: 0, pol0: '%s:7001', pol1: '%s:7002'},\n"
    "           {name: m001, feng_id: 1, pol0: '%s:7003', pol1: '%s:7004'}]\n"
    "outputs: [{name: wide, channels: 64, spectra_per_heap: 16, taps: 2, destinations: 239.2.0.0+1},\n"
    "          {name: narrow, channels: 64, spectra_per_heap: 16, taps: 2, destinations: 239.2.0.2, kind: narrowband,\n"
    "           decimation: 8, centre_frequency: 214e6, ddc_taps: 64}]\n"
    "gnss: [{name: l1, destination: 239.10.2.0, centre_frequency: 719420000, decimation: 16, pass_bandwidth: "
    "20000000,\n"
    "        sky_frequency: 1575420000}]\n"
    "satellites: [{signal: L1CA, prns: [5, 7]}]\n"
    "send: {pcap_file: /dev/null}\n";
static const char xbgpu_yaml[] =
    TIME "recv: {sources: '%s:7005', antennas: 2, channels: 64, channels_per_substream: 8, max_shift: 7, chunks: 10,\n"
         "       buffer: 0, spectra_per_heap: 16, samples_between_spectra: 128, batches_per_chunk: 5}\n"
         "gates: [{kind: phase, name: pulse, frequency: 30, bins: 4, take: [1]},\n"
         "        {kind: phase, name: far, frequency: 30, bins: 4, take: [1], dispersion_measure: 3, centre_frequency: "
         "1e9},\n"
         "        {kind: switch, name: diode, period: 1000, on_until: 500, epoch: 3}]\n"
         "outputs: [{name: all, integration_batches: 3, destination: 239.3.0.3, audit_samples: 16},\n"
         "          {name: on, integration_batches: 3, destination: 239.3.0.6, gate: pulse},\n"
         "          {name: far, integration_batches: 3, destination: 239.3.0.4, gate: far},\n"
         "          {name: lit, integration_batches: 3, destination: 239.3.0.5, gate: diode}]\n"
         "beams: [{name: tied, pol: 0, destination: 239.4.0.0}]\n"
         "detected: [{name: powers, beams: 2, destination: 239.4.0.1}]\n";

union values {
    struct fgpu_config fgpu;
    struct xbgpu_config xbgpu;
};

static const struct {
    const struct config_table *table;
    const char *yaml;
    void (*check)(void *values, struct config *config);
    int (*create)(const void *values, const struct daemon_context *context, void **pipeline, char *why,
                  size_t why_bytes);
    void (*destroy)(void *pipeline);
} programs[] = {
    {&fgpu_config_table, fgpu_yaml, fgpu_config_check, fgpu_pipeline_create, fgpu_pipeline_destroy},
    {&xbgpu_config_table, xbgpu_yaml, xbgpu_config_check, xbgpu_pipeline_create, xbgpu_pipeline_destroy},
};

static struct service *service;
static struct gauge healthy = {1};

/* Builds and destroys a pipeline as common/daemon/daemon.c does, while 'n' allocations fail, the first after 'first'
 * calls.  Returns the error of the start. */
static int start(int program, const void *values, size_t first, size_t n, char *why, size_t why_bytes)
{
    struct daemon_context context = {.service = service, .healthy = &healthy};
    struct device_config device = {.kind = DEVICE_CPU, .n_threads = 1};
    struct katcp_sensors own = {0};
    void *pipeline = NULL;

    context.katcp_sensors = &own;
    why[0] = '\0';
    memory_fails(first, n);
    int err = status_create(programs[program].table->program, NULL, &healthy, &context.status);
    if (!err)
        err = device_open(&device, &context.device, why, why_bytes);
    if (!err)
        err = sensors_create(&context.sensors);
    if (!err)
        err = katcp_sensors_add(&own, context.sensors);
    if (!err)
        err = programs[program].create(values, &context, &pipeline, why, why_bytes);
    memory_suffices();
    sensors_destroy(context.sensors);
    if (pipeline)
        programs[program].destroy(pipeline);
    device_close(context.device);
    status_destroy(context.status);
    stats_reset();
    return err;
}

NO_MEMORY_SUITE(.timeout_s = 60, .start = random_start);

TEST(starts_without_memory, .end = 2 * ARRAY_LEN(programs))
{
    union values values = {0};
    int program = _i / 2;
    struct config *config;
    char why[600], address[32], yaml[3000];
    int pid = getpid();

    snprintf(address, sizeof(address), "127.%d.%d.%d", 1 + (pid >> 16) % 250, pid >> 8 & 255, pid & 255);
    snprintf(yaml, sizeof(yaml), programs[program].yaml, address, address, address, address);
    log_init("check_start", LOG_LEVEL_ERROR);
    ck_assert_int_eq(service_open(&service), 0);
    load_config(programs[program].table, yaml, &values, &config);
    programs[program].check(&values, config);
    config_print_errors(config, stdout);
    ck_assert_int_eq(config_result(config), 0);
    for (int i = 0; i < 2; i++) { /* the first start also allocates the buffers that libraries keep */
        int err = start(program, &values, SIZE_MAX, 0, why, sizeof(why));
        ck_assert_msg(!err, "%d: %s", err, why);
    }
    size_t n = n_allocations, n_failed = 0;
    for (int i = 0; i < N_STARTS; i++) {
        size_t n_before = n_blocks, first = random_below(n);
        int err = start(program, &values, first, _i % 2 ? SIZE_MAX : 1, why, sizeof(why));
        ck_assert_msg(n_blocks == n_before, "allocation %zu: %zd blocks too many", first,
                      (ssize_t)(n_blocks - n_before));
        ck_assert_msg(!err || service_exit_code(err) == 1, "allocation %zu: error %d: %s", first, err, why);
        n_failed += err != 0;
    }
    /* A start goes on without a metric, so not every failed allocation ends the start. */
    ck_assert_uint_gt(n_failed, N_STARTS / 3);
    config_free(programs[program].table, &values, config);
    service_close(service);
}

/* glibc allocates the final text in fclose(), which returns 0 even if this allocation fails. */
TEST(text_without_memory, .end = 2)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);

    fputs("saved settings", out);
    memory_fails(0, _i ? SIZE_MAX : 0);
    int err = file_close_text(out, &text);
    memory_suffices();
    ck_assert_int_eq(err, _i ? -ENOMEM : 0);
    if (_i)
        ck_assert_ptr_null(text);
    else
        ck_assert_str_eq(text, "saved settings");
    free(text);
}
