/* visrec.c - records the visibilities of one correlation stream to UVH5.  Boot order, and shutdown as its mirror.
 *
 *   X-engines --packets--> receive thread --dumps--> writer thread --rows--> file
 *                                ^---- free chunks ----'
 * The main thread listens for signals and tells the operator when nothing comes. */
#include "common/chunk.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/device.h"
#include "common/http.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/receiver_metrics.h"
#include "common/service.h"
#include "common/thread.h"
#include "common/units.h"
#include "common/version.h"
#include "tools/visrec_config.h"
#include "tools/visrec_recv.h"
#include "tools/visrec_uvh5.h"
#include "tools/visrec_writer.h"

#include <errno.h>
#include <ev.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHY_BYTES 512

/* Beside the dumps that are open: one that the writer reads, one that waits for it. */
#define SPARE_CHUNKS 2

/* A stream may pause (capture-stop) for longer than the window, and a heap here is a substream's whole dump: two, not
 * the eight of a stream of packets, are asked for before a jump of the timestamp is believed. */
#define JUMP_HEAPS 2

#define SILENCE_S 10.0

struct visrec {
    const struct visrec_config *config;
    char path[4096]; /* of the file */
    struct visrec_array array;
    struct visrec_dump_shape shape;
    struct timebase timebase;
    struct service *service;
    struct device *device; /* only to hold the chunks' memory */
    struct inbox *free_chunks;
    struct inbox *inbox; /* the writer's */
    struct chunk_pool *pool;
    struct visrec_uvh5 *file;
    struct assembler_stats assembler_stats;
    struct receiver *receiver;
    struct visrec_writer_stats writer_stats;
    struct visrec_writer *writer;
    struct http *http;
    ev_timer silence;
    uint64_t silence_dumps; /* that had come as of the last look */
};

static int describe(struct visrec *v)
{
    const struct visrec_config *config = v->config;

    v->shape = (struct visrec_dump_shape){
        .n_chan = (size_t)config->stream.n_chan,
        .n_chan_substream = (size_t)config->stream.n_chan_substream,
        .n_baselines = config->antennas.n * (config->antennas.n + 1) / 2,
        .weights = config->stream.weights,
        .full_weight = (uint32_t)(visrec_config_integration_batches(config) * config->stream.spectra_per_heap),
    };
    v->timebase = (struct timebase){
        .sync_time_s = config->time.sync_time_s,
        .adc_sample_rate_hz = config->time.adc_sample_rate_hz,
        .from_packets = config->time.timebase == CONFIG_TIMEBASE_PACKETS,
    };
    return visrec_array_init(&v->array, config);
}

/* A time in the name lets a recorder that was killed start again beside the file that it left. */
static int name_file(struct visrec *v, char *why, size_t why_bytes)
{
    time_t now_s = (time_t)(clock_unix_ns() / NS_PER_S);
    struct stat old;
    struct tm utc;

    gmtime_r(&now_s, &utc);
    if (strftime(v->path, sizeof(v->path), v->config->output.file, &utc) == 0) {
        snprintf(why, why_bytes, "output.file: with the time in it the name is longer than %zu bytes; shorten it",
                 sizeof(v->path) - 1);
        return -EINVAL;
    }
    /* A recording without dumps is removed, which /dev/null must not be.  (A directory is refused when it is opened.) */
    if (stat(v->path, &old) == 0 && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode)) {
        snprintf(why, why_bytes, "output.file: \"%s\" is not a regular file", v->config->output.file);
        return -EINVAL;
    }
    return 0;
}

/* The history is what made the file, so that it can be made again. */
static int create_file(struct visrec *v, char *why, size_t why_bytes)
{
    char *history = NULL;
    size_t history_bytes;
    FILE *text = open_memstream(&history, &history_bytes);
    int err;

    if (!text)
        return -ENOMEM;
    fprintf(text, "Recorded by visrec %s with this configuration:\n", cbf_build_id);
    config_print(&visrec_config_table, v->config, text);
    if (fclose(text) != 0) {
        free(history);
        return -ENOMEM;
    }
    err = visrec_uvh5_create(v->path, v->config->output.overwrite, &v->array, history, &v->file, why, why_bytes);
    free(history);
    return err;
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
        err = inbox_create(n_chunks + 1, &v->inbox); /* and the end of a capture */
    if (!err)
        err = chunk_pool_create(v->device, &chunks, 0, v->free_chunks, VISREC_ITEM_CHUNK, &v->pool, why, why_bytes);
    if (err)
        snprintf(why, why_bytes, "recv.window: there is no memory for %zu dumps of %llu MiB", n_chunks,
                 (unsigned long long)(chunk_bytes >> 20));
    return err;
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
        .may_wait = recv->pcap_file != NULL,
        .timebase = v->timebase,
        .free_chunks = v->free_chunks,
        .worker = v->inbox,
        .full_kind = VISREC_ITEM_CHUNK,
        .stats = &v->assembler_stats,
    };
    struct receiver_config config = {
        .thread_name = "visrec-recv",
        .cpu = -1,
        .source = {.endpoints = &recv->sources,
                   .interface = recv->interface,
                   .buffer_bytes = (size_t)recv->buffer_bytes,
                   .transport = recv->transport,
                   .comp_vector = (int)recv->comp_vector,
                   .pcap_file = recv->pcap_file},
        .wanted_ids = visrec_recv_wanted,
        .n_wanted = VISREC_N_WANTED,
        .identify = visrec_recv_identify,
        .context = &v->shape,
        .assemblers = &assembler,
        .n_assemblers = 1,
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
        .file = v->file,
        .service = v->service,
        .outlasts_full_disk = v->config->recv.pcap_file == NULL,
        .on_terminal = isatty(STDERR_FILENO),
    };

    return visrec_writer_create(&config, &v->writer_stats, &v->writer);
}

/* The file comes last: a start that fails for another reason leaves no empty file behind. */
static int create(struct visrec *v, char *why, size_t why_bytes)
{
    int err = describe(v);

    if (!err)
        err = create_buffers(v, why, why_bytes);
    if (!err && v->config->http.listen.n > 0)
        err = http_open(&v->config->http, NULL, NULL, &v->http, why, why_bytes);
    if (!err)
        err = create_receiver(v, why, why_bytes);
    if (!err)
        err = name_file(v, why, why_bytes);
    if (!err)
        err = create_file(v, why, why_bytes);
    if (!err)
        err = create_writer(v);
    if (err)
        return err;
    receiver_stats_register("visrec", "visrec-recv", receiver_get_stats(v->receiver));
    receiver_drops_register("visrec", "visrec-recv", v->receiver);
    assembler_stats_register("visrec", "", &v->assembler_stats);
    visrec_writer_register(&v->writer_stats);
    return 0;
}

static void destroy(struct visrec *v)
{
    http_close(v->http); /* first: /metrics reads what lies in the memory of the others */
    visrec_writer_destroy(v->writer);
    receiver_destroy(v->receiver);
    chunk_pool_destroy(v->pool);
    inbox_destroy(v->inbox);
    inbox_destroy(v->free_chunks);
    device_close(v->device);
    visrec_array_fini(&v->array);
}

static void on_silence(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct visrec *v = timer->data;
    uint64_t n_dumps = counter_get(&v->writer_stats.dumps) + counter_get(&v->writer_stats.unwritten_dumps);
    double wait_s = SILENCE_S + (double)v->config->recv.window_dumps * v->array.integration_s;
    char text[WHY_BYTES];

    if (n_dumps == v->silence_dumps)
        log_warning("no dump in the last %.0f s: %s", wait_s,
                    visrec_recv_explain(receiver_get_stats(v->receiver), &v->assembler_stats, text, sizeof(text)));
    v->silence_dumps = n_dumps;
}

/* Waits for the end, whoever calls it.  Returns the exit code. */
static int record(struct visrec *v)
{
    /* A dump is written when the window has moved on, so silence is what lasts longer than that. */
    double wait_s = SILENCE_S + (double)v->config->recv.window_dumps * v->array.integration_s;
    char why[WHY_BYTES];
    int exit_code, err;

    v->silence.data = v;
    ev_timer_init(&v->silence, on_silence, wait_s, wait_s);
    ev_timer_start(service_loop(v->service), &v->silence);
    exit_code = service_run(v->service);
    ev_timer_stop(service_loop(v->service), &v->silence);
    service_stopping(v->service);

    receiver_stop(v->receiver); /* hands on what is open */
    inbox_stop(v->inbox);
    if (visrec_writer_join(v->writer) != 0)
        exit_code = EXIT_FAILURE;
    err = visrec_uvh5_close(v->file, why, sizeof(why));
    if (err) {
        log_error("%s", why);
        exit_code = EXIT_FAILURE;
    }
    v->file = NULL;
    uint64_t n_unwritten = counter_get(&v->writer_stats.unwritten_dumps);
    if (n_unwritten > 0) {
        log_error("%" PRIu64 " dumps were lost because the disk was full", n_unwritten);
        exit_code = EXIT_FAILURE;
    }
    printf("%" PRIu64 " dumps, %" PRIu64 " of %" PRIu64 " heaps missing\n", counter_get(&v->writer_stats.dumps),
           counter_get(&v->writer_stats.missing_heaps), counter_get(&v->writer_stats.expected_heaps));
    return exit_code;
}

/* All threads, or none. */
static int start(struct visrec *v, char *why, size_t why_bytes)
{
    threads_hold();
    int writer_err = visrec_writer_start(v->writer);
    int err = writer_err ? writer_err : receiver_start(v->receiver);
    if (!err)
        err = receiver_begin(v->receiver, why, why_bytes);
    threads_release(!err);
    if (err && !writer_err)
        visrec_writer_join(v->writer);
    return err;
}

static int run(const struct visrec_config *config, const struct config *book, struct service *service)
{
    struct visrec *v = calloc(1, sizeof(*v));
    char why[WHY_BYTES] = "", close_why[WHY_BYTES];
    int exit_code, err;

    if (!v)
        return EXIT_FAILURE;
    v->config = config;
    v->service = service;
    err = create(v, why, sizeof(why));
    if (!err) {
        why[0] = '\0';
        err = start(v, why, sizeof(why));
    }
    if (err) {
        exit_code = daemon_start_failed(book, err, why);
        visrec_uvh5_close(v->file, close_why, sizeof(close_why)); /* which is empty, and so removed */
    } else {
        log_info("recording %zu antennas and %zu channels to %s", v->array.n_ants, v->array.n_chan, v->path);
        exit_code = record(v);
    }
    destroy(v);
    free(v);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct visrec_config values = {0};
    struct config *config = NULL;
    struct service *service = NULL;
    int exit_code;

    log_init("visrec", LOG_LEVEL_INFO);
    signal(SIGXFSZ, SIG_IGN); /* a limit of the file's size is an error of its write */
    exit_code = config_main(&visrec_config_table, argc, argv, visrec_config_check, &values, &config);
    if (exit_code < 0) {
        int err = service_open(&service);
        exit_code = err ? daemon_start_failed(config, err, "") : run(&values, config, service);
    }
    service_close(service);
    config_free(&visrec_config_table, &values, config);
    return exit_code;
}
