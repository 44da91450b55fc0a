/* send.c - the last step of fsim: threads that send the heaps of a period, in real time or as fast as they can.
 *
 * Each sender sends the heaps of some antennas.  Senders share only the number of batches that they have sent. */
#include "tools/fsim/send.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/why.h"
#include "common/send/sender.h"
#include "common/telemetry/stats.h"
#include "tools/fsim/antenna.h"
#include "tools/shared/sim_sender.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define OTHERS_POLL_NS (50 * NS_PER_US)

/* Only the sender's thread uses the members that are not [const], except 'n_batches'. */
struct fsim_sender {
    struct sim_sender base;
    struct fsim_send *send;    /* [const] */
    struct fsim_antenna *ants; /* [n_ants] */
    int64_t *next_descriptors; /* [n_ants] timestamp at which the next descriptors are due */
    size_t n_ants;             /* [const] */
    int64_t now_ns;            /* time of the most recent reading of the monotonic clock */
    size_t i_batch;            /* index of the next batch in the period */
    _Atomic int64_t n_batches; /* number of batches sent; all senders read this number */
};

struct fsim_send {
    struct fsim_wire wire;
    const struct fsim_heaps *heaps; /* [const] */
    int64_t batch_samples;          /* [const] */
    double batch_share; /* [const] packets of a batch leave in this fraction of the time between batches; 0: unpaced */
    int64_t n_batches_wanted;    /* [const] number of batches to send; INT64_MAX: no limit */
    struct fsim_sender sender[]; /* [wire.senders.n] */
};

/* ---- Time ------------------------------------------------------------------------------------------------------- */

static bool must_stop(const struct fsim_send *send)
{
    return sim_senders_must_stop(&send->wire.senders);
}

/* Waits until packets of an antenna are due.  Sleeps in short intervals, so that the thread notices a stop.  Does not
 * wait if the packets are due within SENDER_QUANTUM_NS. */
static void wait_until_due(struct fsim_sender *sender, struct fsim_antenna *ant, int64_t due_ns)
{
    if (due_ns <= sender->now_ns + SENDER_QUANTUM_NS)
        return;
    sim_sender_out_flush(&ant->out);
    sender->now_ns = clock_monotonic_ns();
    while (sender->now_ns < due_ns && !must_stop(sender->send)) {
        int64_t wake_ns = sender->now_ns + SIM_SENDER_STOP_POLL_NS;
        clock_sleep_until(due_ns < wake_ns ? due_ns : wake_ns);
        sender->now_ns = clock_monotonic_ns();
    }
}

/* Waits for senders that are more than one batch behind this sender. */
static void wait_for_others(struct fsim_sender *sender)
{
    struct fsim_send *send = sender->send;
    int64_t n_wanted = atomic_load_explicit(&sender->n_batches, memory_order_relaxed) - 1;

    for (size_t l = 0; l < send->wire.senders.n; l++)
        while (atomic_load_explicit(&send->sender[l].n_batches, memory_order_relaxed) < n_wanted && !must_stop(send))
            clock_sleep_until(clock_monotonic_ns() + OTHERS_POLL_NS);
}

/* ---- Batches ---------------------------------------------------------------------------------------------------- */

/* Returns the time from which batch number 'n_batches', counted from 0, may leave.  Returns 0 if it may leave
 * immediately. */
static int64_t batch_due_ns(const struct fsim_send *send, int64_t n_batches)
{
    return send->batch_share == 0 ? 0 : sim_senders_due_ns(&send->wire.senders, n_batches * send->batch_samples);
}

/* Sends all packets of a batch: the first run of every heap, then the second run of every heap, and so on. */
static void send_batch(struct fsim_sender *sender)
{
    const struct fsim_send *send = sender->send;
    const struct fsim_heaps *heaps = send->heaps;
    int64_t n_batches = atomic_load_explicit(&sender->n_batches, memory_order_relaxed);
    int64_t begin_ns = batch_due_ns(send, n_batches);
    size_t n_runs = ((heaps->heap_bytes - 1) / send->wire.run_bytes + 1) * sender->n_ants * heaps->n_substreams,
           i_run = 0;
    double run_ns = (double)(batch_due_ns(send, n_batches + 1) - begin_ns) * send->batch_share / (double)n_runs;

    for (size_t offset = 0; offset < heaps->heap_bytes; offset += send->wire.run_bytes)
        for (size_t i = 0; i < sender->n_ants; i++) {
            struct fsim_antenna *ant = &sender->ants[i];
            for (size_t s = 0; s < heaps->n_substreams; s++, i_run++) {
                wait_until_due(sender, ant, begin_ns + (int64_t)(run_ns * (double)i_run));
                if (i_run == 0 && send->batch_share > 0)
                    sim_sender_note_lateness(&sender->base, sender->now_ns - begin_ns);
                if (fsim_antenna_sends(ant, sender->base.timestamp, sender->i_batch))
                    fsim_antenna_add_run(ant, sender->base.timestamp, sender->i_batch, s, offset);
            }
            if (sim_sender_out_flush(&ant->out))
                sender->now_ns = clock_monotonic_ns();
        }
}

/* Advances to the next batch. */
static void end_batch(struct fsim_sender *sender)
{
    struct fsim_send *send = sender->send;

    for (size_t i = 0; i < sender->n_ants; i++)
        if (fsim_antenna_sends(&sender->ants[i], sender->base.timestamp, sender->i_batch))
            fsim_antenna_end_heaps(&sender->ants[i]);
    sender->base.timestamp += send->batch_samples;
    sender->i_batch = (sender->i_batch + 1) % send->heaps->n_batches;
    atomic_fetch_add_explicit(&sender->n_batches, 1, memory_order_relaxed);
}

/* Sends an antenna's descriptors at the start, after (feng_id + 1) * 5 s, and then at intervals of n_ants * 5 s.  The
 * first interval depends on feng_id, so that antennas do not send their descriptors at the same time. */
static void send_due_descriptors(struct fsim_sender *sender)
{
    const struct fsim_send *send = sender->send;

    for (size_t i = 0; i < sender->n_ants; i++) {
        int64_t *next = &sender->next_descriptors[i], period_ns = SIM_SENDER_DESCRIPTOR_PERIOD_NS;
        if (sender->base.timestamp < *next)
            continue;
        period_ns *= *next == send->wire.senders.first_timestamp ? (int64_t)sender->ants[i].feng_id + 1
                                                                 : (int64_t)send->heaps->n_ants;
        *next += timebase_duration_samples(&send->wire.senders.timebase, period_ns);
        fsim_antenna_send_descriptors(&sender->ants[i]);
    }
}

static bool is_over(const struct fsim_sender *sender)
{
    return must_stop(sender->send) ||
           atomic_load_explicit(&sender->n_batches, memory_order_relaxed) == sender->send->n_batches_wanted;
}

static void begin(struct fsim_sender *sender)
{
    const struct fsim_send *send = sender->send;

    sender->now_ns = clock_monotonic_ns();
    sender->base.timestamp = send->wire.senders.first_timestamp;
    if (!send->heaps->from_start)
        sender->i_batch = (size_t)(sender->base.timestamp / send->batch_samples) % send->heaps->n_batches;
    for (size_t i = 0; i < sender->n_ants; i++)
        sender->next_descriptors[i] = send->wire.senders.first_timestamp;
}

static int run(struct sim_sender *base)
{
    struct fsim_sender *sender = CONTAINER_OF(base, struct fsim_sender, base);

    begin(sender);
    while (!is_over(sender)) {
        wait_for_others(sender);
        send_due_descriptors(sender);
        send_batch(sender);
        end_batch(sender);
    }
    for (size_t i = 0; i < sender->n_ants; i++)
        fsim_antenna_send_stops(&sender->ants[i]);
    return 0;
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* Creates the antennas of sender number 'l': every n_senders-th antenna, beginning with antenna number 'l'. */
static int open_sender(struct fsim_sender *sender, size_t l, size_t n_senders, char *why, size_t why_bytes)
{
    struct fsim_send *send = sender->send;
    size_t n_ants = (send->heaps->n_ants - l + n_senders - 1) / n_senders;
    int err = 0;

    sender->ants = calloc(n_ants, sizeof(*sender->ants));
    sender->next_descriptors = calloc(n_ants, sizeof(*sender->next_descriptors));
    if (!sender->ants || !sender->next_descriptors)
        return why_out_of_memory(why, why_bytes);
    for (; sender->n_ants < n_ants && !err; sender->n_ants++)
        err = fsim_antenna_open(&sender->ants[sender->n_ants], &send->wire, l + sender->n_ants * n_senders, why,
                                why_bytes);
    return err;
}

/* Returns the number of batches to send.  A recording that does not loop ends with its last batch. */
static int64_t count_batches(const struct fsim_config *config, const struct fsim_heaps *heaps)
{
    int64_t n_recorded = (int64_t)heaps->n_batches;
    int64_t n = sim_senders_count_heaps(&config->time, config->stream.duration_s, fsim_config_batch_samples(config));

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
    stats_counter("fsim_output_packets", "Packets sent.", NULL, &send->wire.senders.n_packets);
    stats_counter("fsim_output_failed_packets",
                  "Packets not sent: refused by the kernel or the capture file, or failed in the NIC.", NULL,
                  &send->wire.senders.n_packets_failed);
    stats_gauge_scaled("fsim_late_seconds", "Lateness of the most recent heaps, in seconds.", NULL,
                       &send->wire.senders.late_ns, 1e-9);
}

int fsim_send_create(const struct fsim_config *config, const struct fsim_heaps *heaps, struct service *service,
                     struct fsim_send **send, char *why, size_t why_bytes)
{
    size_t n_senders = sim_senders_count(&config->send, heaps->n_ants);
    struct fsim_send *made = calloc(1, sizeof(*made) + n_senders * sizeof(made->sender[0]));

    if (!made)
        return why_out_of_memory(why, why_bytes);
    int err = sim_senders_init(&made->wire.senders, &config->send, &config->time, service,
                               config->stream.first_timestamp, run, why, why_bytes);
    made->heaps = heaps;
    fsim_wire_init(&made->wire, config, heaps);
    set_up(made, config);
    files_raise_limit(); /* each antenna needs a socket */
    for (size_t l = 0; l < n_senders && !err; l++) {
        struct fsim_sender *sender = &made->sender[l];
        sim_senders_add(&made->wire.senders, &sender->base);
        sender->send = made;
        err = open_sender(sender, l, n_senders, why, why_bytes);
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
    sim_senders_set_origin(&send->wire.senders, send->batch_samples, send->batch_samples, 0);
    return sim_senders_start(&send->wire.senders);
}

void fsim_send_stop(struct fsim_send *send)
{
    sim_senders_stop(&send->wire.senders);
}

uint64_t fsim_send_print_summary(const struct fsim_send *send)
{
    const struct sim_senders *senders = &send->wire.senders;
    uint64_t n_failed = counter_get(&senders->n_packets_failed);

    printf("fsim: %" PRIu64 " heaps sent, %" PRIu64 " packets, %" PRIu64 " packets failed, at most %.3f s late\n",
           counter_get(&send->wire.n_heaps), counter_get(&senders->n_packets), n_failed,
           (double)sim_senders_latest_ns(senders) / 1e9);
    return n_failed;
}

void fsim_send_destroy(struct fsim_send *send)
{
    if (!send)
        return;
    fsim_send_stop(send);
    for (size_t l = 0; l < send->wire.senders.n; l++) {
        struct fsim_sender *sender = &send->sender[l];
        for (size_t i = 0; i < sender->n_ants; i++)
            sim_sender_out_close(&sender->ants[i].out);
        free(sender->next_descriptors);
        free(sender->ants);
    }
    free(send);
}
