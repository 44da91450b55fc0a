/* fsim_send.c - the last step of fsim: the threads that send the heaps of a period, in real time or as fast as it goes.
 *
 * A lane is a thread with its share of the antennas.  All lanes have the same origin of time; what they tell
 * each other is only how many batches they have sent. */
#include "tools/fsim_send.h"

#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"
#include "common/packet_sink.h"
#include "common/sender.h"
#include "common/service.h"
#include "common/spead.h"
#include "common/stats.h"
#include "common/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STOP_POLL_NS         (100 * NS_PER_MS) /* the longest sleep, so that a stop is noticed */
#define OTHERS_POLL_NS       (50 * NS_PER_US)
#define LATE_WARNING_NS      NS_PER_S
#define DESCRIPTOR_PERIOD_NS (5 * NS_PER_S)
#define DATAGRAM_BYTES_MAX   65507 /* the largest UDP payload over IPv4, of joined packets, too */

#define N_ITEMS               4
#define DESCRIPTORS_MAX_BYTES 2048

/* An F-engine, which has a socket of its own: on a network it is a flow of its own. */
struct antenna {
    uint64_t feng_id;         /* [const] */
    uint64_t heap_cnt;        /* of the next heap */
    int64_t next_descriptors; /* timestamp at which they are due again */
    struct packet_sink *sink;
    struct packet_out *batch; /* of batch_packets, being filled; NULL: none */
    size_t n_batch;
};

/* [const], or of the lane's thread, but 'n_batches'. */
struct lane {
    struct fsim_send *send;    /* [const] */
    struct antenna *ants;      /* [n_ants] */
    size_t n_ants;             /* [const] */
    int64_t now_ns;            /* when it was last asked */
    int64_t timestamp;         /* of the next heaps */
    size_t i_batch;            /* of the period, the same */
    _Atomic int64_t n_batches; /* sent; read by all lanes */
    int64_t latest_ns;

    int cpu; /* [const] < 0: not pinned */
    struct thread thread;
    bool is_running; /* [caller of start and stop] */
};

struct fsim_send {
    const struct fsim_heaps *heaps;          /* [const] */
    const struct fsim_config_stream *stream; /* [const] */
    struct service *service;                 /* [const] */
    struct timebase timebase;                /* [const] */
    int64_t batch_samples;                   /* [const] */
    size_t payload_bytes;                    /* [const] of a packet */
    size_t run_bytes;                        /* [const] of a heap's packets in a row */
    size_t batch_packets;                    /* [const] handed to a sink at once, at most: a run to each substream */
    double batch_share;       /* [const] of the time from batch to batch in which one leaves; 0: unpaced */
    int64_t n_batches_wanted; /* [const] INT64_MAX: until stopped */
    int64_t first_timestamp;  /* set before the lanes begin, as the next */
    int64_t origin_ns;        /* monotonic time at which the first batch leaves */

    uint8_t descriptors[DESCRIPTORS_MAX_BYTES];  /* [const] the payload of a descriptor heap */
    size_t descriptors_bytes;                    /* [const] */
    struct spead_item descriptor_items[N_ITEMS]; /* [const] */

    struct counter n_heaps_sent;
    struct counter n_packets_sent;
    struct counter n_packets_failed;
    struct gauge late_ns;
    struct log_limit late_limit;
    struct log_limit failed_limit;

    atomic_bool stop;
    atomic_size_t n_lanes_left; /* that have not come to their end */
    size_t n_lanes;             /* [const] */
    struct lane lanes[];        /* [n_lanes] */
};

/* ---- Packets ---------------------------------------------------------------------------------------------------- */

static void flush(struct lane *lane, struct antenna *ant)
{
    struct fsim_send *send = lane->send;
    size_t n = ant->n_batch;

    if (n == 0)
        return;
    size_t n_left = packet_sink_send(ant->sink, ant->batch, n);
    ant->batch = NULL;
    ant->n_batch = 0;
    lane->now_ns = clock_monotonic_ns();
    counter_add(&send->n_packets_sent, n_left);
    if (n_left == n)
        return;
    int last_errno = 0;
    packet_sink_n_failed(ant->sink, &last_errno);
    counter_add(&send->n_packets_failed, n - n_left);
    log_limited(&send->failed_limit, LOG_LEVEL_WARNING, "Packets could not be sent: %s.", strerror(last_errno));
}

/* A packet of the batch, to be filled before the next call. */
static struct packet_out *add_packet(struct lane *lane, struct antenna *ant)
{
    if (ant->n_batch == lane->send->batch_packets)
        flush(lane, ant);
    if (!ant->batch)
        ant->batch = packet_sink_alloc(ant->sink, lane->send->batch_packets);
    return &ant->batch[ant->n_batch++];
}

/* Adds the packets of a heap to 'substream' that carry its bytes from 'offset' to 'end'. */
static void add_packets(struct lane *lane, struct antenna *ant, size_t substream, uint64_t heap_cnt,
                        const uint8_t *heap, size_t heap_bytes, size_t offset, size_t end,
                        const struct spead_item *items)
{
    size_t payload_bytes = lane->send->payload_bytes;

    for (; offset < end; offset += payload_bytes) {
        struct packet_out *packet = add_packet(lane, ant);
        packet->payload_bytes = heap_bytes - offset < payload_bytes ? heap_bytes - offset : payload_bytes;
        packet->header_bytes =
            spead_build_header(packet->header, heap_cnt, heap_bytes, offset, packet->payload_bytes, items, N_ITEMS);
        packet->payload = heap + offset;
        packet->destination = (unsigned)substream;
    }
}

static uint64_t take_heap_cnt(const struct lane *lane, struct antenna *ant)
{
    uint64_t heap_cnt = ant->heap_cnt;

    ant->heap_cnt += lane->send->heaps->n_ants; /* of which the wire has 48 bits */
    return heap_cnt;
}

static void send_due_descriptors(struct lane *lane)
{
    struct fsim_send *send = lane->send;

    for (size_t i = 0; i < lane->n_ants; i++) {
        struct antenna *ant = &lane->ants[i];
        if (lane->timestamp < ant->next_descriptors)
            continue;
        int64_t period_ns = DESCRIPTOR_PERIOD_NS;
        period_ns *=
            ant->next_descriptors == send->first_timestamp ? (int64_t)ant->feng_id + 1 : (int64_t)send->heaps->n_ants;
        ant->next_descriptors += timebase_duration_samples(&send->timebase, period_ns);
        for (size_t s = 0; s < send->heaps->n_substreams; s++)
            add_packets(lane, ant, s, take_heap_cnt(lane, ant), send->descriptors, send->descriptors_bytes, 0,
                        send->descriptors_bytes, send->descriptor_items);
        flush(lane, ant);
    }
}

static void send_stops(struct lane *lane)
{
    for (size_t i = 0; i < lane->n_ants; i++) {
        struct antenna *ant = &lane->ants[i];
        for (size_t s = 0; s < lane->send->heaps->n_substreams; s++) {
            struct packet_out *packet = add_packet(lane, ant);
            packet->header_bytes = spead_build_stop(packet->header, take_heap_cnt(lane, ant));
            packet->destination = (unsigned)s;
        }
        flush(lane, ant);
    }
}

/* Whether the next heaps of an antenna are sent, or were lost in a recording, or are dropped on purpose. */
static bool is_sent(const struct lane *lane, const struct antenna *ant)
{
    const struct fsim_heaps *heaps = lane->send->heaps;
    uint64_t drop = (uint64_t)lane->send->stream->drop;
    uint64_t number = (uint64_t)(lane->timestamp / lane->send->batch_samples);

    if (heaps->is_absent && heaps->is_absent[lane->i_batch * heaps->n_ants + ant->feng_id])
        return false;
    return drop == 0 || (number * heaps->n_ants + ant->feng_id + 1) % drop != 0;
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

static bool must_stop(const struct fsim_send *send)
{
    return atomic_load_explicit(&send->stop, memory_order_relaxed);
}

/* Waits until packets of an antenna are due, in parts, so that a stop is noticed; what is due soon leaves with them. */
static void wait_until_due(struct lane *lane, struct antenna *ant, int64_t due_ns)
{
    if (due_ns <= lane->now_ns + SENDER_QUANTUM_NS)
        return;
    flush(lane, ant);
    lane->now_ns = clock_monotonic_ns();
    while (lane->now_ns < due_ns && !must_stop(lane->send)) {
        int64_t wake_ns = lane->now_ns + STOP_POLL_NS;
        clock_sleep_until(due_ns < wake_ns ? due_ns : wake_ns);
        lane->now_ns = clock_monotonic_ns();
    }
}

/* Waits for lanes that are more than a batch behind. */
static void wait_for_others(struct lane *lane)
{
    struct fsim_send *send = lane->send;
    int64_t n_wanted = atomic_load_explicit(&lane->n_batches, memory_order_relaxed) - 1;

    for (size_t l = 0; l < send->n_lanes; l++)
        while (atomic_load_explicit(&send->lanes[l].n_batches, memory_order_relaxed) < n_wanted && !must_stop(send))
            clock_sleep_until(clock_monotonic_ns() + OTHERS_POLL_NS);
}

static void note_lateness(struct lane *lane, int64_t late_ns)
{
    struct fsim_send *send = lane->send;

    gauge_set(&send->late_ns, late_ns);
    if (late_ns > lane->latest_ns)
        lane->latest_ns = late_ns;
    if (late_ns > LATE_WARNING_NS)
        log_limited(&send->late_limit, LOG_LEVEL_WARNING, "Sending is %.1f s late: this host does not keep up.",
                    (double)late_ns / 1e9);
}

/* Sets the first timestamp and when its heaps leave. */
static void set_origin(struct fsim_send *send)
{
    int64_t unix_ns = clock_unix_ns();

    send->first_timestamp = send->stream->first_timestamp;
    send->origin_ns = clock_monotonic_ns();
    if (send->first_timestamp < 0) {
        int64_t next = round_up(timebase_samples_at(&send->timebase, unix_ns) + 1, send->batch_samples);
        send->first_timestamp = next > 0 ? next : 0;
        send->origin_ns += timebase_unix_ns(&send->timebase, send->first_timestamp + send->batch_samples) - unix_ns;
    }
}

/* ---- Batches ---------------------------------------------------------------------------------------------------- */

/* The run of packets that begins at 'offset' of an antenna's heap. */
static void add_run(struct lane *lane, struct antenna *ant, size_t substream, size_t offset)
{
    const struct fsim_send *send = lane->send;
    const struct fsim_heaps *heaps = send->heaps;
    size_t end = offset + send->run_bytes < heaps->heap_bytes ? offset + send->run_bytes : heaps->heap_bytes;
    uint64_t chan = (uint64_t)(send->stream->chan_offset + (int64_t)substream * send->stream->n_chan_substream);
    const struct spead_item items[N_ITEMS] = {
        {SPEAD_TIMESTAMP, true, (uint64_t)lane->timestamp},
        {SPEAD_FENG_ID, true, ant->feng_id},
        {SPEAD_FREQUENCY, true, chan},
        {SPEAD_FENG_RAW, false, 0},
    };

    add_packets(lane, ant, substream, ant->heap_cnt + substream * heaps->n_ants,
                fsim_heaps_payload(heaps, lane->i_batch, ant->feng_id, substream), heaps->heap_bytes, offset, end,
                items);
}

/* When the batch after the first 'n_batches' may leave; 0: at once. */
static int64_t batch_due_ns(const struct fsim_send *send, int64_t n_batches)
{
    if (send->batch_share == 0)
        return 0;
    return send->origin_ns + timebase_duration_ns(&send->timebase, n_batches * send->batch_samples);
}

/* All packets of a batch: each heap's first run, then each heap's second and so on. */
static void send_batch(struct lane *lane)
{
    const struct fsim_send *send = lane->send;
    const struct fsim_heaps *heaps = send->heaps;
    int64_t n_batches = atomic_load_explicit(&lane->n_batches, memory_order_relaxed);
    int64_t begin_ns = batch_due_ns(send, n_batches);
    size_t n_runs = ((heaps->heap_bytes - 1) / send->run_bytes + 1) * lane->n_ants * heaps->n_substreams, i_run = 0;
    double run_ns = (double)(batch_due_ns(send, n_batches + 1) - begin_ns) * send->batch_share / (double)n_runs;

    for (size_t offset = 0; offset < heaps->heap_bytes; offset += send->run_bytes)
        for (size_t i = 0; i < lane->n_ants; i++) {
            struct antenna *ant = &lane->ants[i];
            for (size_t s = 0; s < heaps->n_substreams; s++, i_run++) {
                wait_until_due(lane, ant, begin_ns + (int64_t)(run_ns * (double)i_run));
                if (i_run == 0 && send->batch_share > 0)
                    note_lateness(lane, lane->now_ns - begin_ns);
                if (is_sent(lane, ant))
                    add_run(lane, ant, s, offset);
            }
            flush(lane, ant);
        }
}

/* Goes on to the next batch. */
static void end_batch(struct lane *lane)
{
    struct fsim_send *send = lane->send;
    const struct fsim_heaps *heaps = send->heaps;

    for (size_t i = 0; i < lane->n_ants; i++)
        if (is_sent(lane, &lane->ants[i])) {
            lane->ants[i].heap_cnt += heaps->n_substreams * heaps->n_ants;
            counter_add(&send->n_heaps_sent, heaps->n_substreams);
        }
    lane->timestamp += send->batch_samples;
    lane->i_batch = (lane->i_batch + 1) % heaps->n_batches;
    atomic_fetch_add_explicit(&lane->n_batches, 1, memory_order_relaxed);
}

static bool is_over(const struct lane *lane)
{
    return must_stop(lane->send) ||
           atomic_load_explicit(&lane->n_batches, memory_order_relaxed) == lane->send->n_batches_wanted;
}

static void begin(struct lane *lane)
{
    const struct fsim_send *send = lane->send;

    lane->now_ns = clock_monotonic_ns();
    lane->timestamp = send->first_timestamp;
    if (!send->heaps->from_start)
        lane->i_batch = (size_t)(lane->timestamp / send->batch_samples) % send->heaps->n_batches;
    for (size_t i = 0; i < lane->n_ants; i++)
        lane->ants[i].next_descriptors = send->first_timestamp;
}

static void *run(void *arg)
{
    struct lane *lane = arg;
    struct fsim_send *send = lane->send;

    begin(lane);
    while (!is_over(lane)) {
        wait_for_others(lane);
        send_due_descriptors(lane);
        send_batch(lane);
        end_batch(lane);
    }
    send_stops(lane);
    if (atomic_fetch_sub(&send->n_lanes_left, 1) == 1)
        service_stop(send->service, 0);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* What the items are, in the words that fgpu and the reference have for them. */
static void build_descriptors(struct fsim_send *send)
{
    const struct fsim_config_stream *stream = send->stream;
    const struct spead_descriptor descriptors[N_ITEMS] = {
        {.id = SPEAD_TIMESTAMP,
         .name = "timestamp",
         .description = "Timestamp provided by the MeerKAT digitisers and scaled to the digitiser sampling rate.",
         .format_type = 'u',
         .format_bits = 48},
        {.id = SPEAD_FENG_ID,
         .name = "feng_id",
         .description = "Uniquely identifies the F-Engine source for the data.",
         .format_type = 'u',
         .format_bits = 48},
        {.id = SPEAD_FREQUENCY,
         .name = "frequency",
         .description = "Identifies the first channel in the band of frequencies in the SPEAD heap.",
         .format_type = 'u',
         .format_bits = 48},
        {.id = SPEAD_FENG_RAW,
         .name = "feng_raw",
         .description = "Channelised complex data from both polarisations of digitiser associated with F-Engine.",
         .dtype = stream->sample_bits == 8    ? "|i1"
                  : stream->sample_bits == 16 ? "<f2"
                                              : NULL,
         .format_type = stream->sample_encoding == FSIM_OFFSET ? 'u' : 'i', /* offset: the value + 8 */
         .format_bits = (int)stream->sample_bits,
         .n_dims = 4,
         .shape = {stream->n_chan_substream, stream->spectra_per_heap, N_POLS, 2}},
    };

    send->descriptors_bytes = spead_build_descriptors(descriptors, N_ITEMS, send->descriptors,
                                                      sizeof(send->descriptors), send->descriptor_items);
    assert(send->descriptors_bytes > 0);
}

static int out_of_memory(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "out of memory");
    return -ENOMEM;
}

/* Makes the antennas of lane 'l', each n_lanes'th of all, and opens their sinks. */
static int open_lane(struct lane *lane, const struct fsim_config *config, size_t l, char *why, size_t why_bytes)
{
    const struct packet_sink_config sink_config = {
        .destinations = &config->stream.destinations,
        .interface = config->send.interface,
        .ttl = (int)config->send.ttl,
        .buffer_bytes = (size_t)config->send.buffer_bytes,
        .pcap_file = config->send.pcap_file,
    };
    size_t n_ants = lane->send->heaps->n_ants, n_lanes = lane->send->n_lanes;
    int err = 0;

    lane->n_ants = (n_ants - l + n_lanes - 1) / n_lanes;
    lane->ants = calloc(lane->n_ants, sizeof(*lane->ants));
    if (!lane->ants) {
        lane->n_ants = 0;
        return out_of_memory(why, why_bytes);
    }
    for (size_t i = 0; i < lane->n_ants && !err; i++) {
        struct antenna *ant = &lane->ants[i];
        ant->feng_id = l + i * n_lanes;
        ant->heap_cnt = sender_first_heap_cnt(ant->feng_id, n_ants, config->send.pcap_file != NULL);
        err = packet_sink_open(&sink_config, &ant->sink, why, why_bytes);
    }
    return err;
}

/* As few runs of a heap's packets as possible, of about the same length; a capture has each packet by itself. */
static size_t choose_run_bytes(const struct fsim_config *config, size_t heap_bytes)
{
    size_t payload_bytes = (size_t)config->send.packet_payload_bytes;
    size_t n_joined = DATAGRAM_BYTES_MAX / (spead_built_header_bytes(N_ITEMS) + payload_bytes);
    size_t n_packets = (heap_bytes - 1) / payload_bytes + 1;

    if (config->send.pcap_file || n_joined < 2)
        return payload_bytes;
    size_t n_runs = (n_packets - 1) / n_joined + 1;
    return ((n_packets - 1) / n_runs + 1) * payload_bytes;
}

/* A recording that does not loop ends with its last batch. */
static int64_t count_batches(const struct fsim_config *config, const struct fsim_heaps *heaps)
{
    int64_t n = fsim_config_n_batches(config), n_recorded = (int64_t)heaps->n_batches;

    return config->signal.kind == FSIM_RECORDING && !config->signal.loop && n_recorded < n ? n_recorded : n;
}

static void set_up(struct fsim_send *send, const struct fsim_config *config)
{
    send->stream = &config->stream;
    send->timebase.sync_time_s = config->time.sync_time_s;
    send->timebase.adc_sample_rate_hz = config->time.adc_sample_rate_hz;
    send->batch_samples = fsim_config_batch_samples(config);
    send->payload_bytes = (size_t)config->send.packet_payload_bytes;
    send->run_bytes = choose_run_bytes(config, send->heaps->heap_bytes);
    size_t n_packets = send->run_bytes / send->payload_bytes * send->heaps->n_substreams;
    send->batch_packets = n_packets < PACKET_SINK_BATCH_MAX ? n_packets : PACKET_SINK_BATCH_MAX;
    send->n_batches_wanted = count_batches(config, send->heaps);
    if (!config->send.pcap_file && config->send.rate_factor > 0)
        send->batch_share = 1 / config->send.rate_factor;
    build_descriptors(send);
}

static void register_metrics(struct fsim_send *send)
{
    stats_counter("fsim_output_heaps", "Heaps of data sent.", NULL, &send->n_heaps_sent);
    stats_counter("fsim_output_packets", "Packets sent.", NULL, &send->n_packets_sent);
    stats_counter("fsim_output_failed_packets", "Packets that the kernel refused.", NULL, &send->n_packets_failed);
    stats_gauge_scaled("fsim_late_seconds", "How late the last heaps left.", NULL, &send->late_ns, 1e-9);
}

int fsim_send_create(const struct fsim_config *config, const struct fsim_heaps *heaps, struct service *service,
                     struct fsim_send **send, char *why, size_t why_bytes)
{
    const struct config_int_list *affinity = &config->send.affinity;
    size_t n_lanes = config->send.pcap_file ? 1 : (size_t)config->send.n_threads;

    if (n_lanes > heaps->n_ants)
        n_lanes = heaps->n_ants;
    int err = threads_check_cpus(affinity->items, affinity->n, "send.affinity", why, why_bytes);
    if (err)
        return err;
    struct fsim_send *made = calloc(1, sizeof(*made) + n_lanes * sizeof(made->lanes[0]));
    if (!made)
        return out_of_memory(why, why_bytes);
    made->n_lanes = n_lanes;
    made->heaps = heaps;
    made->service = service;
    set_up(made, config);
    files_raise_limit(); /* a socket for each antenna */
    for (size_t l = 0; l < n_lanes && !err; l++) {
        struct lane *lane = &made->lanes[l];
        lane->send = made;
        lane->cpu = affinity->n ? (int)affinity->items[l % affinity->n] : -1;
        err = open_lane(lane, config, l, why, why_bytes);
    }
    if (err) {
        fsim_send_destroy(made);
        return err;
    }
    register_metrics(made);
    *send = made;
    return 0;
}

int fsim_send_start(struct fsim_send *send)
{
    int err = 0;

    atomic_init(&send->n_lanes_left, send->n_lanes);
    set_origin(send);
    for (size_t l = 0; l < send->n_lanes && !err; l++) {
        struct lane *lane = &send->lanes[l];
        char name[32];
        snprintf(name, sizeof(name), "send%zu", l);
        err = thread_start(&lane->thread, name, lane->cpu, run, lane);
        lane->is_running = !err;
    }
    return err;
}

void fsim_send_stop(struct fsim_send *send)
{
    atomic_store_explicit(&send->stop, true, memory_order_relaxed);
    for (size_t l = 0; l < send->n_lanes; l++) {
        if (send->lanes[l].is_running)
            thread_join(&send->lanes[l].thread);
        send->lanes[l].is_running = false;
    }
}

struct fsim_send_summary fsim_send_summary(const struct fsim_send *send)
{
    struct fsim_send_summary summary = {
        .n_heaps = counter_get(&send->n_heaps_sent),
        .n_packets = counter_get(&send->n_packets_sent),
        .n_packets_failed = counter_get(&send->n_packets_failed),
    };

    for (size_t l = 0; l < send->n_lanes; l++) {
        assert(!send->lanes[l].is_running);
        if (send->lanes[l].latest_ns > summary.latest_ns)
            summary.latest_ns = send->lanes[l].latest_ns;
    }
    return summary;
}

void fsim_send_destroy(struct fsim_send *send)
{
    if (!send)
        return;
    fsim_send_stop(send);
    for (size_t l = 0; l < send->n_lanes; l++) {
        struct lane *lane = &send->lanes[l];
        for (size_t i = 0; i < lane->n_ants; i++)
            packet_sink_close(lane->ants[i].sink);
        free(lane->ants);
    }
    free(send);
}
