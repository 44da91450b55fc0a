/* main.c - records the visibilities of one correlation stream to UVH5.  The parts start in order, and shut down in
 * reverse order.
 *
 *   X-engines --packets--> receive thread --dumps--> writer thread --rows--> files
 *                                ^---- free chunks ----'
 * The main thread listens for signals.  Once a second it checks that dumps arrive and are written. */
#include "common/recv/chunk.h"
#include "common/daemon/daemon.h"
#include "common/telemetry/data_time.h"
#include "common/device/device.h"
#include "common/http/http.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/recv/receiver_metrics.h"
#include "common/daemon/service.h"
#include "common/http/status.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "tools/shared/program.h"
#include "tools/shared/record_health.h"
#include "tools/shared/record_recv.h"
#include "tools/visrec/antennas.h"
#include "tools/visrec/config.h"
#include "tools/visrec/files.h"
#include "tools/visrec/recv.h"
#include "tools/visrec/writer.h"

#include <ev.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define WHY_BYTES 512

/* Number of chunks in addition to the chunks of open dumps.  The writer reads one of these chunks, while the other
 * waits for the writer. */
#define SPARE_CHUNKS 2

/* Number of consecutive heaps by which a substream claims that the time has jumped.  A substream sends one heap for
 * each dump, and a dump lasts half a second to a second.  Three heaps span two intervals of dumps.  So one or two stray
 * heaps, for example of a repeated dump, do not suffice for a claim.  After a true jump (capture-stop and start, a new
 * synchronisation), each heap after the first costs one dump.  With three heaps, a jump costs two dumps, or about a
 * second.  With eight heaps, as for beamrec, a jump would cost about four seconds. */
#define JUMP_HEAPS 3

#define LOOK_S    1.0
#define SILENCE_S 10.0

struct visrec {
    const struct visrec_config *config;
    struct visrec_array array;
    struct visrec_dump_shape shape;
    struct timebase timebase;
    struct service *service;
    struct device *device; /* used only to allocate the memory of chunks */
    struct inbox *free_chunks;
    struct inbox *inbox; /* inbox of the writer */
    struct chunk_pool *pool;
    struct visrec_files *files;
    struct visrec_antennas *antennas;
    struct assembler_stats assembler_stats;
    struct receiver *receiver;
    struct visrec_writer_stats writer_stats;
    struct visrec_writer *writer;
    struct status *status;
    struct http *http;
    ev_timer look;
    struct record_health health;
    struct gauge healthy; /* gauge behind /healthz */
};

static int describe(struct visrec *v)
{
    const struct visrec_config *config = v->config;

    v->shape = (struct visrec_dump_shape){
        .n_chan = (size_t)config->stream.n_chan,
        .n_chan_substream = (size_t)config->stream.n_chan_substream,
        .n_baselines = config->antennas.n * (config->antennas.n + 1) / 2,
        .weights = config->stream.weights,
        .gate = config->stream.gate != NULL,
        .gate_channels = config->stream.gate_channels,
        .real = config->stream.values == VISREC_FLOAT32,
        .full_weight = (uint32_t)(visrec_config_integration_batches(config) * config->stream.spectra_per_heap),
    };
    v->timebase = (struct timebase){
        .sync_time_s = config->time.sync_time_s,
        .adc_sample_rate_hz = config->time.adc_sample_rate_hz,
        .from_packets = config->time.timebase == CONFIG_TIMEBASE_PACKETS,
    };
    return visrec_array_init(&v->array, config);
}

static int create_buffers(struct visrec *v, char *why, size_t why_bytes)
{
    size_t n_chunks = (size_t)v->config->recv.window_dumps + SPARE_CHUNKS;
    struct device_config device = {.kind = DEVICE_CPU, .n_threads = 1};
    const struct chunk_shape chunks = {.n_chunks = n_chunks,
                                       .n_heaps = visrec_dump_n_substreams(&v->shape),
                                       .heap_bytes = visrec_dump_heap_bytes(&v->shape)};
    uint64_t chunk_bytes = chunks.n_heaps * chunks.heap_bytes;
    uint64_t needed = n_chunks * chunk_bytes + visrec_dump_n_values(&v->shape) * VISREC_DUMP_VALUE_BYTES;
    int err = memory_check(needed, "recv.window", "lower recv.window", why, why_bytes);

    if (err)
        return err;
    err = device_open(&device, &v->device, why, why_bytes);
    if (!err)
        err = inbox_create(n_chunks, &v->free_chunks);
    if (!err)
        err = inbox_create(n_chunks + 1, &v->inbox); /* one more item: the end of a capture */
    if (!err)
        err = chunk_pool_create(v->device, &chunks, 0, v->free_chunks, VISREC_ITEM_CHUNK, &v->pool, why, why_bytes);
    if (err)
        snprintf(why, why_bytes, "recv.window: there is no memory for %zu dumps of %llu MiB", n_chunks,
                 (unsigned long long)(chunk_bytes >> 20));
    return err;
}

/* Returns the tolerance for the age of a timestamp.  An X-engine sends a dump after the dump's end, so the timestamp is
 * already one integration old.  The tolerance includes one more integration for the transport. */
static int64_t clock_tolerance_ns(const struct visrec_config *config)
{
    const struct timebase timebase = {config->time.sync_time_s, config->time.adc_sample_rate_hz, false};

    if (config->time.clock_tolerance_s <= 0)
        return 0;
    return (int64_t)(config->time.clock_tolerance_s * (double)NS_PER_S) +
           2 * timebase_duration_ns(&timebase, visrec_config_integration_samples(config));
}

static int create_receiver(struct visrec *v, char *why, size_t why_bytes)
{
    const struct visrec_config_recv *recv = &v->config->recv;
    size_t n_substreams = visrec_dump_n_substreams(&v->shape);
    struct assembler_config assembler = {
        .layout = {.heap_samples = visrec_config_integration_samples(v->config),
                   .heap_bytes = visrec_dump_heap_bytes(&v->shape),
                   .n_heaps_per_source = 1,
                   .n_sources = (unsigned)n_substreams},
        .name = "visibilities",
        .window_chunks = (unsigned)recv->window_dumps,
        .jump_heaps = JUMP_HEAPS,
        .jump_sources = n_substreams > 1 ? 2 : 1,
        .may_wait = recv->base.pcap_file != NULL,
        .timebase = v->timebase,
        .clock_tolerance_ns = clock_tolerance_ns(v->config),
        .free_chunks = v->free_chunks,
        .worker = v->inbox,
        .full_kind = VISREC_ITEM_CHUNK,
        .stats = &v->assembler_stats,
    };
    struct receiver_config config = {
        .thread_name = "visrec-recv",
        .cpu = -1,
        .source = recv_keys_source(&recv->base, &recv->sources, 0, NULL),
        .wanted_ids = visrec_recv_wanted,
        .n_wanted = VISREC_N_WANTED,
        .identify = visrec_recv_identify,
        .context = &v->shape,
        .assemblers = &assembler,
        .n_assemblers = 1,
        .needs_crc = recv->base.crc,
        .worker = v->inbox,
        .end_kind = VISREC_ITEM_END,
    };

    return receiver_create(&config, &v->receiver, why, why_bytes);
}

static int create_writer(struct visrec *v)
{
    struct visrec_writer_config config = {
        .inbox = v->inbox,
        .array = &v->array,
        .shape = v->shape,
        .timebase = v->timebase,
        .integration_samples = visrec_config_integration_samples(v->config),
        .max_dumps = v->config->output.max_dumps,
        .files = v->files,
        .antennas = v->antennas,
        .service = v->service,
        .outlasts_full_disk = v->config->recv.base.pcap_file == NULL,
        .on_terminal = isatty(STDERR_FILENO),
    };

    return visrec_writer_create(&config, &v->writer_stats, &v->writer);
}

/* Creates all parts.  Creates the file last.  If another part cannot be created, the failed start then leaves no
 * empty file. */
static int create(struct visrec *v, const struct config *book, char *why, size_t why_bytes)
{
    int err = describe(v);

    gauge_set(&v->healthy, 1);
    if (!err)
        err = create_buffers(v, why, why_bytes);
    if (!err)
        err = status_create("visrec", config_path(book), &v->healthy, &v->status);
    if (!err && v->config->http.listen.n > 0)
        err = http_open(&v->config->http, &v->healthy, v->status, &v->http, why, why_bytes);
    if (!err)
        err = create_receiver(v, why, why_bytes);
    if (!err)
        err = visrec_files_open(v->config, &v->array, &v->files, why, why_bytes);
    if (!err)
        err = visrec_antennas_create(&v->array, &v->antennas);
    if (!err)
        err = create_writer(v);
    if (err)
        return err;
    receiver_metrics_add("visrec", "visrec-recv", receiver_get_stats(v->receiver));
    receiver_metrics_add_drops("visrec", "visrec-recv", v->receiver);
    receiver_metrics_add_assembler("visrec", "", &v->assembler_stats);
    visrec_writer_register(&v->writer_stats);
    data_time_metrics("visrec", v->timebase.from_packets);
    return 0;
}

static void destroy(struct visrec *v)
{
    http_close(v->http); /* the HTTP server is closed first, because /metrics reads memory of the other parts */
    status_destroy(v->status);
    visrec_writer_destroy(v->writer);
    visrec_antennas_destroy(v->antennas);
    receiver_destroy(v->receiver);
    chunk_pool_destroy(v->pool);
    inbox_destroy(v->inbox);
    inbox_destroy(v->free_chunks);
    device_close(v->device);
    visrec_array_fini(&v->array);
}

static double silence_s(const struct visrec *v)
{
    /* The recording counts as silent after this time without a dump.  A dump is written only when the dump has left the
     * window.  So this time must be longer than the window. */
    return SILENCE_S + (double)v->config->recv.window_dumps * v->array.integration_s;
}

static void look(struct visrec *v)
{
    const struct visrec_writer_stats *writer = &v->writer_stats;
    char text[WHY_BYTES];
    const struct record_health_counts counts = {
        .n_dumps = counter_get(&writer->dumps) + counter_get(&writer->unwritten_dumps),
        .n_lost = counter_get(&writer->unwritten_dumps),
        .n_refused = record_recv_count_refused(receiver_get_stats(v->receiver)->rejects) +
                     record_recv_count_refused(v->assembler_stats.rejects),
    };

    record_health_poll(&v->health, &counts);
    gauge_set(&v->healthy, record_health_is_good(&v->health));
    if (record_health_is_silent(&v->health))
        log_warning("no dump was recorded in the last %.0f s: %s", silence_s(v),
                    record_recv_explain(receiver_get_stats(v->receiver), &v->assembler_stats, text, sizeof(text)));
}

static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    look(timer->data);
}

/* Logs losses caused by a full disk or by refused packets.  Returns EXIT_FAILURE if there were such losses, or else
 * 'exit_code'. */
static int account(struct visrec *v, int exit_code)
{
    uint64_t n_unwritten = counter_get(&v->writer_stats.unwritten_dumps);
    char text[WHY_BYTES];

    if (n_unwritten > 0)
        log_error("%" PRIu64 " dump%s lost because the disk was full", n_unwritten,
                  n_unwritten == 1 ? " was" : "s were");
    bool refused = record_health_was_refusing(&v->health);
    if (refused)
        log_error("the last dumps were refused: %s",
                  record_recv_explain(receiver_get_stats(v->receiver), &v->assembler_stats, text, sizeof(text)));
    return n_unwritten > 0 || refused ? EXIT_FAILURE : exit_code;
}

/* Waits for the end of the recording.  Returns the exit code. */
static int record(struct visrec *v)
{
    char why[WHY_BYTES];
    int exit_code, err;

    record_health_init(&v->health, (unsigned)(silence_s(v) / LOOK_S));
    v->look.data = v;
    ev_timer_init(&v->look, on_look, LOOK_S, LOOK_S);
    ev_timer_start(service_loop(v->service), &v->look);
    status_set_state(v->status, STATUS_RUNNING);
    status_watch(v->status, service_loop(v->service));
    exit_code = service_run(v->service);
    status_unwatch(v->status);
    status_set_state(v->status, STATUS_DRAINING);
    ev_timer_stop(service_loop(v->service), &v->look);
    service_stopping(v->service);

    receiver_stop(v->receiver); /* passes the open dumps to the writer */
    inbox_stop(v->inbox);
    if (visrec_writer_join(v->writer) != 0)
        exit_code = EXIT_FAILURE;
    err = visrec_files_close(v->files, why, sizeof(why));
    if (err) {
        log_error("%s", why);
        exit_code = EXIT_FAILURE;
    }
    v->files = NULL;
    look(v);
    exit_code = account(v, exit_code);
    visrec_writer_account(&v->writer_stats, why, sizeof(why));
    log_info("%s", why);
    return exit_code;
}

/* Starts all threads, or none. */
static int start(struct visrec *v, char *why, size_t why_bytes)
{
    threads_hold();
    int writer_err = visrec_writer_start(v->writer);
    int err = writer_err ? writer_err : receiver_start(v->receiver);
    if (!err)
        err = receiver_enable(v->receiver, why, why_bytes);
    threads_release(!err);
    if (err && !writer_err)
        visrec_writer_join(v->writer);
    return err;
}

static int run(const void *values, const struct config *book, struct service *service)
{
    struct visrec *v = calloc(1, sizeof(*v));
    char why[WHY_BYTES] = "", close_why[WHY_BYTES];
    int exit_code, err;

    if (!v)
        return EXIT_FAILURE;
    log_info("visrec %s", cbf_build_id);
    v->config = values;
    v->service = service;
    err = create(v, book, why, sizeof(why));
    if (!err) {
        why[0] = '\0';
        err = start(v, why, sizeof(why));
    }
    if (err) {
        exit_code = daemon_start_failed(book, err, why);
        visrec_files_close(v->files, close_why, sizeof(close_why)); /* closing also removes a file without dumps */
    } else {
        log_info("recording %zu antenna%s and %zu channel%s to %s", v->array.n_ants, plural(v->array.n_ants),
                 v->array.n_chan, plural(v->array.n_chan), visrec_files_first_path(v->files));
        exit_code = record(v);
    }
    destroy(v);
    free(v);
    return exit_code;
}

int main(int argc, char **argv)
{
    static const struct program program = {&visrec_config_table, visrec_config_check, run};
    struct visrec_config values = {0};

    signal(SIGXFSZ, SIG_IGN); /* without SIGXFSZ, a write beyond the file size limit fails and does not end the
                               * process */
    return program_main(&program, argc, argv, &values);
}
