/* send.c - the last step of fsim: the threads that send the heaps of a period, in real time or as fast as it goes.
 *
 * A lane has its share of the antennas.  All that lanes tell each other is how many batches they have sent. */
#include "tools/fsim/send.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/send/sender.h"
#include "common/telemetry/stats.h"
#include "tools/fsim/antenna.h"
#include "tools/shared/lane.h"

#include <stdatomic.h>
#include <stdlib.h>

#define OTHERS_POLL_NS (50 * NS_PER_US)

/* [const], or of the lane's thread, but 'n_batches'. */
struct fsim_lane {
    struct lane base;
    struct fsim_send *send;    /* [const] */
    struct fsim_antenna *ants; /* [n_ants] */
    int64_t *next_descriptors; /* [n_ants] timestamps at which they are due again */
    size_t n_ants;             /* [const] */
    int64_t now_ns;            /* when it was last asked */
    size_t i_batch;            /* of the period, the next one */
    _Atomic int64_t n_batches; /* sent; read by all lanes */
};

struct fsim_send {
    struct fsim_wire wire;
    const struct fsim_heaps *heaps; /* [const] */
    int64_t batch_samples;          /* [const] */
    double batch_share;             /* [const] of the time from batch to batch in which one leaves; 0: unpaced */
    int64_t n_batches_wanted;       /* [const] INT64_MAX: until stopped */
    struct fsim_lane lane[];        /* [wire.lanes.n] */
};

/* ---- Time ------------------------------------------------------------------------------------------------------- */

static bool must_stop(const struct fsim_send *send)
{
    return lanes_must_stop(&send->wire.lanes);
}

/* Waits until packets of an antenna are due, in parts, so that a stop is noticed; what is due soon leaves with them. */
static void wait_until_due(struct fsim_lane *lane, struct fsim_antenna *ant, int64_t due_ns)
{
    if (due_ns <= lane->now_ns + SENDER_QUANTUM_NS)
        return;
    lane_out_flush(&ant->out);
    lane->now_ns = clock_monotonic_ns();
    while (lane->now_ns < due_ns && !must_stop(lane->send)) {
        int64_t wake_ns = lane->now_ns + LANE_STOP_POLL_NS;
        clock_sleep_until(due_ns < wake_ns ? due_ns : wake_ns);
        lane->now_ns = clock_monotonic_ns();
    }
}

/* Waits for lanes that are more than a batch behind. */
static void wait_for_others(struct fsim_lane *lane)
{
    struct fsim_send *send = lane->send;
    int64_t n_wanted = atomic_load_explicit(&lane->n_batches, memory_order_relaxed) - 1;

    for (size_t l = 0; l < send->wire.lanes.n; l++)
        while (atomic_load_explicit(&send->lane[l].n_batches, memory_order_relaxed) < n_wanted && !must_stop(send))
            clock_sleep_until(clock_monotonic_ns() + OTHERS_POLL_NS);
}

/* ---- Batches ---------------------------------------------------------------------------------------------------- */

/* When the batch after the first 'n_batches' may leave; 0: at once. */
static int64_t batch_due_ns(const struct fsim_send *send, int64_t n_batches)
{
    return send->batch_share == 0 ? 0 : lanes_due_ns(&send->wire.lanes, n_batches * send->batch_samples);
}

/* All packets of a batch: each heap's first run, then each heap's second and so on. */
static void send_batch(struct fsim_lane *lane)
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
                    lane_note_lateness(&lane->base, lane->now_ns - begin_ns);
                if (fsim_antenna_sends(ant, lane->base.timestamp, lane->i_batch))
                    fsim_antenna_add_run(ant, lane->base.timestamp, lane->i_batch, s, offset);
            }
            if (lane_out_flush(&ant->out))
                lane->now_ns = clock_monotonic_ns();
        }
}

/* Goes on to the next batch. */
static void end_batch(struct fsim_lane *lane)
{
    struct fsim_send *send = lane->send;

    for (size_t i = 0; i < lane->n_ants; i++)
        if (fsim_antenna_sends(&lane->ants[i], lane->base.timestamp, lane->i_batch))
            fsim_antenna_end_heaps(&lane->ants[i]);
    lane->base.timestamp += send->batch_samples;
    lane->i_batch = (lane->i_batch + 1) % send->heaps->n_batches;
    atomic_fetch_add_explicit(&lane->n_batches, 1, memory_order_relaxed);
}

/* At the start; then after (feng_id + 1) * 5 s, so that not all send them at once; then every antennas * 5 s. */
static void send_due_descriptors(struct fsim_lane *lane)
{
    const struct fsim_send *send = lane->send;

    for (size_t i = 0; i < lane->n_ants; i++) {
        int64_t *next = &lane->next_descriptors[i], period_ns = LANE_DESCRIPTOR_PERIOD_NS;
        if (lane->base.timestamp < *next)
            continue;
        period_ns *= *next == send->wire.lanes.first_timestamp ? (int64_t)lane->ants[i].feng_id + 1
                                                               : (int64_t)send->heaps->n_ants;
        *next += timebase_duration_samples(&send->wire.lanes.timebase, period_ns);
        fsim_antenna_send_descriptors(&lane->ants[i]);
    }
}

static bool is_over(const struct fsim_lane *lane)
{
    return must_stop(lane->send) ||
           atomic_load_explicit(&lane->n_batches, memory_order_relaxed) == lane->send->n_batches_wanted;
}

static void begin(struct fsim_lane *lane)
{
    const struct fsim_send *send = lane->send;

    lane->now_ns = clock_monotonic_ns();
    lane->base.timestamp = send->wire.lanes.first_timestamp;
    if (!send->heaps->from_start)
        lane->i_batch = (size_t)(lane->base.timestamp / send->batch_samples) % send->heaps->n_batches;
    for (size_t i = 0; i < lane->n_ants; i++)
        lane->next_descriptors[i] = send->wire.lanes.first_timestamp;
}

static int run(struct lane *base)
{
    struct fsim_lane *lane = CONTAINER_OF(base, struct fsim_lane, base);

    begin(lane);
    while (!is_over(lane)) {
        wait_for_others(lane);
        send_due_descriptors(lane);
        send_batch(lane);
        end_batch(lane);
    }
    for (size_t i = 0; i < lane->n_ants; i++)
        fsim_antenna_send_stops(&lane->ants[i]);
    return 0;
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* Makes the antennas of lane 'l', each n_lanes'th of all. */
static int open_lane(struct fsim_lane *lane, size_t l, size_t n_lanes, char *why, size_t why_bytes)
{
    struct fsim_send *send = lane->send;
    size_t n_ants = (send->heaps->n_ants - l + n_lanes - 1) / n_lanes;
    int err = 0;

    lane->ants = calloc(n_ants, sizeof(*lane->ants));
    lane->next_descriptors = calloc(n_ants, sizeof(*lane->next_descriptors));
    if (!lane->ants || !lane->next_descriptors)
        return lanes_out_of_memory(why, why_bytes);
    for (; lane->n_ants < n_ants && !err; lane->n_ants++)
        err = fsim_antenna_open(&lane->ants[lane->n_ants], &send->wire, l + lane->n_ants * n_lanes, why, why_bytes);
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
    send->batch_samples = fsim_config_batch_samples(config);
    send->n_batches_wanted = count_batches(config, send->heaps);
    if (!config->send.pcap_file && config->send.rate_factor > 0)
        send->batch_share = 1 / config->send.rate_factor;
}

static void register_metrics(struct fsim_send *send)
{
    stats_counter("fsim_output_heaps", "Heaps of data sent.", NULL, &send->wire.n_heaps);
    stats_counter("fsim_output_packets", "Packets sent.", NULL, &send->wire.lanes.n_packets);
    stats_counter("fsim_output_failed_packets",
                  "Packets that the kernel or a capture refused, or that a card did not send.", NULL,
                  &send->wire.lanes.n_packets_failed);
    stats_gauge_scaled("fsim_late_seconds", "How late the last heaps left, in seconds.", NULL,
                       &send->wire.lanes.late_ns, 1e-9);
}

int fsim_send_create(const struct fsim_config *config, const struct fsim_heaps *heaps, struct service *service,
                     struct fsim_send **send, char *why, size_t why_bytes)
{
    size_t n_lanes = lanes_count(&config->send, heaps->n_ants);
    struct fsim_send *made = calloc(1, sizeof(*made) + n_lanes * sizeof(made->lane[0]));

    if (!made)
        return lanes_out_of_memory(why, why_bytes);
    int err = lanes_init(&made->wire.lanes, &config->send, &config->time, service, config->stream.first_timestamp, run,
                         why, why_bytes);
    made->heaps = heaps;
    fsim_wire_init(&made->wire, config, heaps);
    set_up(made, config);
    files_raise_limit(); /* a socket for each antenna */
    for (size_t l = 0; l < n_lanes && !err; l++) {
        struct fsim_lane *lane = &made->lane[l];
        lanes_add(&made->wire.lanes, &lane->base);
        lane->send = made;
        err = open_lane(lane, l, n_lanes, why, why_bytes);
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
    lanes_set_origin(&send->wire.lanes, send->batch_samples, send->batch_samples, 0);
    return lanes_start(&send->wire.lanes);
}

void fsim_send_stop(struct fsim_send *send)
{
    lanes_stop(&send->wire.lanes);
}

struct fsim_send_summary fsim_send_summary(const struct fsim_send *send)
{
    return (struct fsim_send_summary){
        .n_heaps = counter_get(&send->wire.n_heaps),
        .n_packets = counter_get(&send->wire.lanes.n_packets),
        .n_packets_failed = counter_get(&send->wire.lanes.n_packets_failed),
        .latest_ns = lanes_latest_ns(&send->wire.lanes),
    };
}

void fsim_send_destroy(struct fsim_send *send)
{
    if (!send)
        return;
    fsim_send_stop(send);
    for (size_t l = 0; l < send->wire.lanes.n; l++) {
        struct fsim_lane *lane = &send->lane[l];
        for (size_t i = 0; i < lane->n_ants; i++)
            fsim_antenna_close(&lane->ants[i]);
        free(lane->next_descriptors);
        free(lane->ants);
    }
    free(send);
}
