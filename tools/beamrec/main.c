/* main.c - records voltage, detected and incoherent beams to filterbank and PSRDADA files.  The parts start in order,
 * and shut down in reverse order.
 *
 *   X-engines --packets--> receive thread --batches--> writer thread --rows--> files
 *                                ^---- free chunks ----'
 * The main thread listens for signals.  Once a second it checks that batches arrive and are written. */
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/thread.h"
#include "common/base/version.h"
#include "common/daemon/daemon.h"
#include "common/daemon/service.h"
#include "common/device/device.h"
#include "common/http/http.h"
#include "common/http/status.h"
#include "common/recv/chunk.h"
#include "common/recv/receiver_metrics.h"
#include "common/telemetry/data_time.h"
#include "tools/beamrec/config.h"
#include "tools/beamrec/recv.h"
#include "tools/beamrec/writer.h"
#include "tools/shared/program.h"
#include "tools/shared/record_health.h"
#include "tools/shared/record_recv.h"

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WHY_BYTES   512
#define LABEL_BYTES 160

/* Number of chunks in addition to the chunks of open batches.  These chunks store complete batches until the writer has
 * written them. */
#define SPARE_CHUNKS 24
#define JUMP_HEAPS   8

#define LOOK_S    1.0
#define SILENCE_S 10.0

/* The chunks and the receive counters of one stream. */
struct input {
    struct inbox *free_chunks;
    struct chunk_pool *pool;
    struct assembler_stats stats;
};

struct beamrec {
    const struct beamrec_config *config;
    struct timebase timebase;
    struct service *service;
    struct device *device; /* used only to allocate the chunks' memory */
    struct inbox *inbox;   /* inbox of the writer */
    struct input *inputs;  /* [stream] */
    struct endpoint_list endpoints;
    unsigned *stream_of_endpoint;
    struct beamrec_heap *heaps; /* [stream] */
    struct beamrec_recv_context context;
    struct receiver *receiver;
    struct beamrec_writer_stats writer_stats;
    struct beamrec_writer *writer;
    struct status *status;
    struct http *http;
    ev_timer look;
    struct record_health health;
    struct gauge healthy; /* gauge behind /healthz */
};

static size_t n_substreams(const struct beamrec *b)
{
    return (size_t)(b->config->stream.n_chan / b->config->stream.n_chan_substream);
}

/* Lists the endpoints of all streams, and the stream of each endpoint. */
static int list_endpoints(struct beamrec *b)
{
    const struct beamrec_config *config = b->config;
    size_t n = 0;

    for (size_t i = 0; i < beamrec_config_n_streams(config); i++)
        n += beamrec_config_sources(config, i)->n;
    b->endpoints.items = calloc(n, sizeof(*b->endpoints.items));
    b->stream_of_endpoint = calloc(n, sizeof(*b->stream_of_endpoint));
    if (!b->endpoints.items || !b->stream_of_endpoint)
        return -ENOMEM;
    for (size_t i = 0; i < beamrec_config_n_streams(config); i++) {
        const struct endpoint_list *sources = beamrec_config_sources(config, i);
        for (size_t e = 0; e < sources->n; e++) {
            b->stream_of_endpoint[b->endpoints.n] = (unsigned)i;
            b->endpoints.items[b->endpoints.n++] = sources->items[e];
        }
    }
    return 0;
}

static int list_heaps(struct beamrec *b)
{
    const struct beamrec_config *config = b->config;

    b->heaps = calloc(beamrec_config_n_streams(config), sizeof(*b->heaps));
    if (!b->heaps)
        return -ENOMEM;
    for (size_t i = 0; i < config->beams.n; i++)
        b->heaps[i] =
            beamrec_heap_of_voltages((size_t)(config->stream.n_chan_substream * config->stream.spectra_per_heap * 2));
    for (size_t i = 0; i < config->detected.n; i++) {
        const struct beamrec_powers powers = beamrec_config_powers(config, i);
        b->heaps[config->beams.n + i] = beamrec_heap_of_powers(&powers);
    }
    b->context = (struct beamrec_recv_context){
        .n_chan = (size_t)config->stream.n_chan,
        .n_chan_substream = (size_t)config->stream.n_chan_substream,
        .heaps = b->heaps,
        .member_of_endpoint = b->stream_of_endpoint,
    };
    return 0;
}

static int create_buffers(struct beamrec *b, char *why, size_t why_bytes)
{
    size_t n_streams = beamrec_config_n_streams(b->config), all_bytes = 0;
    size_t n_chunks = (size_t)b->config->recv.window_batches + SPARE_CHUNKS;
    struct device_config device = {.kind = DEVICE_CPU, .n_threads = 1};

    for (size_t i = 0; i < n_streams; i++)
        all_bytes += n_chunks * n_substreams(b) * b->heaps[i].bytes;
    int err = memory_check(all_bytes, "recv.window", "lower recv.window", why, why_bytes);
    if (err)
        return err;
    b->inputs = calloc(n_streams, sizeof(*b->inputs));
    err = b->inputs ? device_open(&device, &b->device, why, why_bytes) : -ENOMEM;
    if (!err)
        err = inbox_create(n_streams * n_chunks + 1, &b->inbox); /* the additional item is the end of a capture */
    for (size_t i = 0; i < n_streams && !err; i++) {
        const struct chunk_shape chunks = {
            .n_chunks = n_chunks, .n_heaps = n_substreams(b), .heap_bytes = b->heaps[i].bytes};
        err = inbox_create(n_chunks, &b->inputs[i].free_chunks);
        if (!err)
            err = chunk_pool_create(b->device, &chunks, (unsigned)i, b->inputs[i].free_chunks, BEAMREC_ITEM_CHUNK,
                                    &b->inputs[i].pool, why, why_bytes);
    }
    return err;
}

static int create_receiver(struct beamrec *b, char *why, size_t why_bytes)
{
    const struct beamrec_config *config = b->config;
    size_t n_streams = beamrec_config_n_streams(config);
    struct assembler_config *assemblers = calloc(n_streams, sizeof(*assemblers));
    struct receiver_config receiver = {
        .thread_name = "beamrec-recv",
        .cpu = -1,
        .source = recv_keys_source(&config->recv.base, &b->endpoints, 0, NULL),
        .wanted_ids = beamrec_recv_wanted,
        .n_wanted = BEAMREC_N_WANTED,
        .identify = beamrec_recv_identify,
        .context = &b->context,
        .assemblers = assemblers,
        .n_assemblers = n_streams,
        .needs_crc = config->recv.base.crc,
        .worker = b->inbox,
        .end_kind = BEAMREC_ITEM_END,
    };

    for (size_t i = 0; i < n_streams && assemblers; i++)
        assemblers[i] = (struct assembler_config){
            .layout = {.heap_samples = beamrec_config_batch_samples(config, i),
                       .heap_bytes = b->heaps[i].bytes,
                       .n_heaps_per_source = 1,
                       .n_sources = (unsigned)n_substreams(b)},
            .name = beamrec_config_name(config, i),
            .window_chunks = (unsigned)config->recv.window_batches,
            .jump_heaps = JUMP_HEAPS,
            .jump_sources = n_substreams(b) > 1 ? 2 : 1,
            .may_wait = config->recv.base.pcap_file != NULL,
            .timebase = b->timebase,
            .clock_tolerance_ns = (int64_t)(config->time.clock_tolerance_s * (double)NS_PER_S),
            .free_chunks = b->inputs[i].free_chunks,
            .worker = b->inbox,
            .full_kind = BEAMREC_ITEM_CHUNK,
            .stats = &b->inputs[i].stats,
        };
    int err = assemblers ? receiver_create(&receiver, &b->receiver, why, why_bytes) : -ENOMEM;
    free(assemblers);
    return err;
}

static void add_metrics(struct beamrec *b)
{
    char labels[LABEL_BYTES];

    receiver_metrics_add("beamrec", "beamrec-recv", receiver_get_stats(b->receiver));
    receiver_metrics_add_drops("beamrec", "beamrec-recv", b->receiver);
    for (size_t i = 0; i < beamrec_config_n_streams(b->config); i++) {
        snprintf(labels, sizeof(labels), "beam=\"%s\"", beamrec_config_name(b->config, i));
        receiver_metrics_add_assembler("beamrec", labels, &b->inputs[i].stats);
    }
    beamrec_writer_register(&b->writer_stats);
    data_time_metrics("beamrec", b->timebase.from_packets);
}

/* Creates all parts, and the files last.  If another part cannot be created, no file exists yet.  So a failed start
 * leaves no empty files. */
static int create(struct beamrec *b, const struct config *book, char *why, size_t why_bytes)
{
    const struct beamrec_config *config = b->config;

    b->timebase = (struct timebase){
        .sync_time_s = config->time.sync_time_s,
        .adc_sample_rate_hz = config->time.adc_sample_rate_hz,
        .from_packets = config->time.timebase == CONFIG_TIMEBASE_PACKETS,
    };
    gauge_set(&b->healthy, 1);
    int err = list_endpoints(b);
    if (!err)
        err = list_heaps(b);
    if (!err)
        err = create_buffers(b, why, why_bytes);
    if (!err)
        err = status_create("beamrec", config_path(book), &b->healthy, &b->status);
    if (!err && config->http.listen.n > 0)
        err = http_open(&config->http, &b->healthy, b->status, &b->http, why, why_bytes);
    if (!err)
        err = create_receiver(b, why, why_bytes);
    const struct beamrec_writer_config writer = {.inbox = b->inbox,
                                                 .config = config,
                                                 .timebase = b->timebase,
                                                 .service = b->service,
                                                 .on_terminal = isatty(STDERR_FILENO)};
    if (!err)
        err = beamrec_writer_create(&writer, &b->writer_stats, &b->writer, why, why_bytes);
    if (!err)
        add_metrics(b);
    return err;
}

static void destroy(struct beamrec *b)
{
    http_close(b->http); /* the HTTP server is closed first, because /metrics reads memory of the other parts */
    status_destroy(b->status);
    beamrec_writer_destroy(b->writer);
    receiver_destroy(b->receiver);
    for (size_t i = 0; b->inputs && i < beamrec_config_n_streams(b->config); i++) {
        chunk_pool_destroy(b->inputs[i].pool);
        inbox_destroy(b->inputs[i].free_chunks);
    }
    free(b->inputs);
    inbox_destroy(b->inbox);
    device_close(b->device);
    endpoint_list_fini(&b->endpoints);
    free(b->stream_of_endpoint);
    free(b->heaps);
}

static void look(struct beamrec *b)
{
    const struct beamrec_writer_stats *writer = &b->writer_stats;
    struct record_health_counts counts = {
        .n_dumps = counter_get(&writer->batches) + counter_get(&writer->unwritten_batches),
        .n_lost = counter_get(&writer->unwritten_batches),
        .n_refused = record_recv_count_refused(receiver_get_stats(b->receiver)->rejects),
    };
    static const struct assembler_stats none;
    char text[WHY_BYTES];

    for (size_t i = 0; i < beamrec_config_n_streams(b->config); i++)
        counts.n_refused += record_recv_count_refused(b->inputs[i].stats.rejects);
    record_health_poll(&b->health, &counts);
    gauge_set(&b->healthy, record_health_is_good(&b->health));
    if (record_health_is_silent(&b->health))
        log_warning("no batch was recorded in the last %.0f s: %s", SILENCE_S,
                    record_recv_explain(receiver_get_stats(b->receiver), &none, text, sizeof(text)));
}

static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    look(timer->data);
}

/* Waits for the end of the recording.  Returns the exit code. */
static int record(struct beamrec *b)
{
    char text[WHY_BYTES];

    record_health_init(&b->health, (unsigned)(SILENCE_S / LOOK_S));
    b->look.data = b;
    ev_timer_init(&b->look, on_look, LOOK_S, LOOK_S);
    ev_timer_start(service_loop(b->service), &b->look);
    status_set_state(b->status, STATUS_RUNNING);
    status_watch(b->status, service_loop(b->service));
    int exit_code = service_run(b->service);
    status_unwatch(b->status);
    status_set_state(b->status, STATUS_DRAINING);
    ev_timer_stop(service_loop(b->service), &b->look);
    service_stopping(b->service);

    receiver_stop(b->receiver); /* passes the open batches to the writer */
    inbox_stop(b->inbox);
    if (beamrec_writer_join(b->writer) != 0)
        exit_code = EXIT_FAILURE;
    look(b);
    uint64_t n_unwritten = counter_get(&b->writer_stats.unwritten_batches);
    if (n_unwritten > 0) {
        log_error("%llu batches were lost because the disk was full", (unsigned long long)n_unwritten);
        exit_code = EXIT_FAILURE;
    }
    if (record_health_was_refusing(&b->health)) {
        log_error("the last batches were refused");
        exit_code = EXIT_FAILURE;
    }
    beamrec_writer_account(&b->writer_stats, text, sizeof(text));
    log_info("%s", text);
    return exit_code;
}

/* Starts all threads, or none. */
static int start(struct beamrec *b, char *why, size_t why_bytes)
{
    threads_hold();
    int writer_err = beamrec_writer_start(b->writer);
    int err = writer_err ? writer_err : receiver_start(b->receiver);
    if (!err)
        err = receiver_enable(b->receiver, why, why_bytes);
    threads_release(!err);
    if (err && !writer_err)
        beamrec_writer_join(b->writer);
    return err;
}

static int run(const void *values, const struct config *book, struct service *service)
{
    struct beamrec *b = calloc(1, sizeof(*b));
    char why[WHY_BYTES] = "";
    int exit_code;

    if (!b)
        return EXIT_FAILURE;
    log_info("beamrec %s", cbf_build_id);
    b->config = values;
    b->service = service;
    int err = create(b, book, why, sizeof(why));
    if (!err) {
        why[0] = '\0';
        err = start(b, why, sizeof(why));
    }
    if (err) {
        exit_code = daemon_start_failed(book, err, why);
    } else {
        size_t n_beams = beamrec_config_n_beams(b->config);
        log_info("recording %zu beam%s of %lld channels", n_beams, plural(n_beams),
                 (long long)b->config->stream.n_chan);
        exit_code = record(b);
    }
    destroy(b);
    free(b);
    return exit_code;
}

int main(int argc, char **argv)
{
    static const struct program program = {&beamrec_config_table, beamrec_config_check, run};
    struct beamrec_config values = {0};

    signal(SIGXFSZ, SIG_IGN); /* without SIGXFSZ, a write beyond the file size limit fails and does not end the
                               * process */
    return program_main(&program, argc, argv, &values);
}
