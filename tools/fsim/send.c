/* send.c - the last step of fsim: the threads that send the heaps of a period, in real time or as fast as it goes.
 *
 * A lane is a thread with its share of the antennas.  All lanes have the same origin of time; what they tell each other
 * is only how many batches they have sent. */
#include "tools/fsim/send.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/send/sender.h"
#include "common/daemon/service.h"
#include "common/telemetry/stats.h"
#include "common/base/thread.h"
#include "tools/fsim/antenna.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define STOP_POLL_NS         (100 * NS_PER_MS) /* the longest sleep, so that a stop is noticed */
#define OTHERS_POLL_NS       (50 * NS_PER_US)
#define LATE_WARNING_NS      NS_PER_S
#define DESCRIPTOR_PERIOD_NS (5 * NS_PER_S)

/* [const], or of the lane's thread, but 'n_batches'. */
struct lane {
    struct fsim_send *send;    /* [const] */
    struct fsim_antenna *ants; /* [n_ants] */
    int64_t *next_descriptors; /* [n_ants] timestamps at which they are due again */
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
    struct fsim_wire wire;
    const struct fsim_heaps *heaps; /* [const] */
    struct service *service;        /* [const] */
    struct timebase timebase;       /* [const] */
    int64_t batch_samples;          /* [const] */
    double batch_share;             /* [const] of the time from batch to batch in which one leaves; 0: unpaced */
    int64_t n_batches_wanted;       /* [const] INT64_MAX: until stopped */
    int64_t first_timestamp;        /* -1, or as set before the lanes begin, as the next */
    int64_t origin_ns;              /* monotonic time at which the first batch leaves */

    struct gauge late_ns;
    struct log_limit late_limit;

    atomic_bool stop;
    atomic_size_t n_lanes_left; /* that have not come to their end */
    size_t n_lanes;             /* [const] */
    struct lane lanes[];        /* [n_lanes] */
};

/* ---- Time ------------------------------------------------------------------------------------------------------- */

static bool must_stop(const struct fsim_send *send)
{
    return atomic_load_explicit(&send->stop, memory_order_relaxed);
}

/* Waits until packets of an antenna are due, in parts, so that a stop is noticed; what is due soon leaves with them. */
static void wait_until_due(struct lane *lane, struct fsim_antenna *ant, int64_t due_ns)
{
    if (due_ns <= lane->now_ns + SENDER_QUANTUM_NS)
        return;
    fsim_antenna_flush(ant);
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

    send->origin_ns = clock_monotonic_ns();
    if (send->first_timestamp < 0) {
        int64_t next = round_up(timebase_samples_at(&send->timebase, unix_ns) + 1, send->batch_samples);
        send->first_timestamp = next > 0 ? next : 0;
        send->origin_ns += timebase_unix_ns(&send->timebase, send->first_timestamp + send->batch_samples) - unix_ns;
    }
}

/* ---- Batches ---------------------------------------------------------------------------------------------------- */

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
    size_t n_runs = ((heaps->heap_bytes - 1) / send->wire.run_bytes + 1) * lane->n_ants * heaps->n_substreams,
           i_run = 0;
    double run_ns = (double)(batch_due_ns(send, n_batches + 1) - begin_ns) * send->batch_share / (double)n_runs;

    for (size_t offset = 0; offset < heaps->heap_bytes; offset += send->wire.run_bytes)
        for (size_t i = 0; i < lane->n_ants; i++) {
            struct fsim_antenna *ant = &lane->ants[i];
            for (size_t s = 0; s < heaps->n_substreams; s++, i_run++) {
                wait_until_due(lane, ant, begin_ns + (int64_t)(run_ns * (double)i_run));
                if (i_run == 0 && send->batch_share > 0)
                    note_lateness(lane, lane->now_ns - begin_ns);
                if (fsim_antenna_sends(ant, lane->timestamp, lane->i_batch))
                    fsim_antenna_add_run(ant, lane->timestamp, lane->i_batch, s, offset);
            }
            if (fsim_antenna_flush(ant))
                lane->now_ns = clock_monotonic_ns();
        }
}

/* Goes on to the next batch. */
static void end_batch(struct lane *lane)
{
    struct fsim_send *send = lane->send;

    for (size_t i = 0; i < lane->n_ants; i++)
        if (fsim_antenna_sends(&lane->ants[i], lane->timestamp, lane->i_batch))
            fsim_antenna_end_heaps(&lane->ants[i]);
    lane->timestamp += send->batch_samples;
    lane->i_batch = (lane->i_batch + 1) % send->heaps->n_batches;
    atomic_fetch_add_explicit(&lane->n_batches, 1, memory_order_relaxed);
}

/* At the start; then after (feng_id + 1) * 5 s, so that not all send them at once; then every antennas * 5 s. */
static void send_due_descriptors(struct lane *lane)
{
    const struct fsim_send *send = lane->send;

    for (size_t i = 0; i < lane->n_ants; i++) {
        int64_t *next = &lane->next_descriptors[i], period_ns = DESCRIPTOR_PERIOD_NS;
        if (lane->timestamp < *next)
            continue;
        period_ns *= *next == send->first_timestamp ? (int64_t)lane->ants[i].feng_id + 1 : (int64_t)send->heaps->n_ants;
        *next += timebase_duration_samples(&send->timebase, period_ns);
        fsim_antenna_send_descriptors(&lane->ants[i]);
    }
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
        lane->next_descriptors[i] = send->first_timestamp;
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
    for (size_t i = 0; i < lane->n_ants; i++)
        fsim_antenna_send_stops(&lane->ants[i]);
    if (atomic_fetch_sub(&send->n_lanes_left, 1) == 1)
        service_stop(send->service, 0);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

static int out_of_memory(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "out of memory");
    return -ENOMEM;
}

/* Makes the antennas of lane 'l', each n_lanes'th of all. */
static int open_lane(struct lane *lane, size_t l, char *why, size_t why_bytes)
{
    struct fsim_send *send = lane->send;
    size_t n_ants = (send->heaps->n_ants - l + send->n_lanes - 1) / send->n_lanes;
    int err = 0;

    lane->ants = calloc(n_ants, sizeof(*lane->ants));
    lane->next_descriptors = calloc(n_ants, sizeof(*lane->next_descriptors));
    if (!lane->ants || !lane->next_descriptors)
        return out_of_memory(why, why_bytes);
    for (; lane->n_ants < n_ants && !err; lane->n_ants++)
        err =
            fsim_antenna_open(&lane->ants[lane->n_ants], &send->wire, l + lane->n_ants * send->n_lanes, why, why_bytes);
    return err;
}

/* A recording that does not loop ends with its last batch. */
static int64_t count_batches(const struct fsim_config *config, const struct fsim_heaps *heaps)
{
    int64_t n = fsim_config_n_batches(config), n_recorded = (int64_t)heaps->n_batches;

    return config->signal.kind == FSIM_RECORDING && !config->signal.loop && n_recorded < n ? n_recorded : n;
}

static void set_up(struct fsim_send *send, const struct fsim_config *config)
{
    fsim_wire_init(&send->wire, config, send->heaps, send->service);
    send->timebase.sync_time_s = config->time.sync_time_s;
    send->timebase.adc_sample_rate_hz = config->time.adc_sample_rate_hz;
    send->batch_samples = fsim_config_batch_samples(config);
    send->first_timestamp = config->stream.first_timestamp;
    send->n_batches_wanted = count_batches(config, send->heaps);
    if (!config->send.pcap_file && config->send.rate_factor > 0)
        send->batch_share = 1 / config->send.rate_factor;
}

static void register_metrics(struct fsim_send *send)
{
    stats_counter("fsim_output_heaps", "Heaps of data sent.", NULL, &send->wire.n_heaps);
    stats_counter("fsim_output_packets", "Packets sent.", NULL, &send->wire.n_packets);
    stats_counter("fsim_output_failed_packets",
                  "Packets that the kernel or a capture refused, or that a card did not send.", NULL,
                  &send->wire.n_packets_failed);
    stats_gauge_scaled("fsim_late_seconds", "How late the last heaps left, in seconds.", NULL, &send->late_ns, 1e-9);
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
        err = open_lane(lane, l, why, why_bytes);
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
        .n_heaps = counter_get(&send->wire.n_heaps),
        .n_packets = counter_get(&send->wire.n_packets),
        .n_packets_failed = counter_get(&send->wire.n_packets_failed),
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
            fsim_antenna_close(&lane->ants[i]);
        free(lane->next_descriptors);
        free(lane->ants);
    }
    free(send);
}
