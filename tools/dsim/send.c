/* send.c - the last step of dsim: sends each heap as one packet, in real time.  The heaps come from a computed period
 * (dsim/signal.h) or from dsim_play.
 *
 * Each sender has its own sink and sends some of the inputs.  Senders do not communicate. */
#include "tools/dsim/send.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/why.h"
#include "common/net/spead.h"
#include "common/telemetry/stats.h"
#include "tools/shared/sim_sender.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAKE_INTERVAL_NS NS_PER_MS
#define LIVE_LEAD_NS     (NS_PER_S / 4) /* time from the start to the first heap, for the computation of this heap */
/* time from the request of a switch to the first new heap; every thread notices the switch within this time */
#define SWITCH_LEAD_NS (NS_PER_S / 10)

#define LOSS_OF_ALL (UINT64_C(1) << 32)

#define STATUS_SATURATED   (UINT64_C(1) << 1)
#define STATUS_COUNT_SHIFT 32
#define STATUS_COUNT_MAX   0xFFFF

/* A polarisation of an antenna, and its range in the sender's list of destinations. */
struct input {
    size_t index; /* index of the input in the arrays of struct dsim_heaps */
    uint64_t digitiser_id;
    unsigned first_destination;
    unsigned n_destinations;
};

/* Only the sender's thread uses the fields that are not [const]. */
struct dsim_sender {
    struct sim_sender base;
    struct sim_sender_out out;
    struct dsim_send *send;            /* [const] */
    struct input *inputs;              /* [const] [n_inputs] */
    size_t n_inputs;                   /* [const] */
    struct endpoint_list destinations; /* [const] destinations of input 0, then of input 1, and so on */

    const struct dsim_heaps *heaps; /* heaps that this sender sends now; NULL: the sender must take the next block */
    struct dsim_block *block;       /* block that contains 'heaps'; NULL: 'heaps' belong to a period */
    bool returns_block;             /* true: the block's last packet was dropped, so this thread returns the block */
    size_t i_heap;                  /* index of the next heap in 'heaps' */
    const struct change *taken;     /* the latest change that this sender has adopted; NULL: none */
    bool has_ended;                 /* true: no more blocks will come */

    int64_t next_descriptors; /* timestamp of the next descriptors */
    uint64_t n_descriptors;   /* number of descriptors that were sent for each input */
    uint64_t random;          /* state of the random generator for losses, never 0 */
    int64_t n_heaps;          /* number of heaps that were sent for each input */
};

/* A change of the period.  The senders send the new period's heaps from 'timestamp' on. */
struct change {
    const struct dsim_heaps *heaps;
    int64_t timestamp; /* timestamp of the first new heap */
};

struct dsim_send {
    struct sim_senders senders;
    struct dsim_play *play;     /* [const] source of the heaps; NULL: the heaps of a period are sent */
    int64_t align_samples;      /* [const] if the clock determines the first timestamp, the timestamp is a multiple of
                                 * this number */
    int64_t packet_samples;     /* [const] */
    bool paced;                 /* [const] */
    bool starts_when_read;      /* [const] true for recordings: the origin is set after the first heaps have been
                                 * read */
    int64_t n_heaps_wanted;     /* [const] number of heaps of each input; INT64_MAX: until stopped */
    int64_t descriptor_samples; /* [const] samples between descriptors */

    /* The array has two elements because the current change must stay unmodified until all senders have taken the
     * next change. */
    struct change changes[2];
    struct change *_Atomic change; /* NULL: none yet */
    atomic_size_t n_changed;       /* number of senders that have taken 'change' */

    _Atomic uint64_t *losses; /* [n_inputs] number of dropped heaps per 2^32 heaps */

    struct counter n_heaps_sent, n_bytes_sent, n_heaps_lost;
    struct counter n_waits;
    struct log_limit waits_limit;

    struct dsim_sender sender[]; /* [senders.n] */
};

/* ---- Packets ---------------------------------------------------------------------------------------------------- */

/* Releases the packets that the sink has sent, because these packets may refer to a block for which this thread waits.
 * Returns the time until which the thread may sleep, at most 'wake_ns'. */
static int64_t reap(struct dsim_sender *sender, int64_t now_ns, int64_t wake_ns)
{
    int64_t reap_ns = now_ns + PACKET_SINK_REAP_NS;

    return send_sink_reap(sender->out.sink) > 0 && reap_ns < wake_ns ? reap_ns : wake_ns;
}

/* Adds an input's descriptors.  Descriptors have odd heap counts, so that the heap counts of data stay consecutive even
 * numbers. */
static void add_descriptors(struct dsim_sender *sender, const struct input *input)
{
    const struct sim_senders *senders = &sender->send->senders;

    sim_sender_out_add_heap(&sender->out, input->first_destination, 2 * sender->n_descriptors + 1, senders->descriptors,
                            senders->descriptors_bytes, 0, SIZE_MAX, senders->descriptor_items);
}

/* Returns true if the packet is the last of a block.  The last packet returns the block to the reader. */
static bool ends_block(const struct dsim_sender *sender, size_t i_input)
{
    return sender->block && sender->i_heap + 1 == sender->heaps->n_heaps && i_input + 1 == sender->n_inputs;
}

static uint64_t loss_of(const struct dsim_sender *sender, size_t i_input)
{
    return atomic_load_explicit(&sender->send->losses[sender->inputs[i_input].index], memory_order_relaxed);
}

/* Returns true if the next heap of an input must be dropped.  Draws a random number with xorshift64 (Marsaglia,
 * "Xorshift RNGs", 2003). */
static bool is_lost(struct dsim_sender *sender, size_t i_input)
{
    uint64_t loss = loss_of(sender, i_input);

    if (loss == 0)
        return false;
    sender->random ^= sender->random << 13;
    sender->random ^= sender->random >> 7;
    sender->random ^= sender->random << 17;
    return sender->random >> 32 < loss;
}

static void lose_heap(struct dsim_sender *sender, size_t i_input)
{
    counter_add(&sender->send->n_heaps_lost, 1);
    sender->returns_block = ends_block(sender, i_input);
}

static void add_heap(struct dsim_sender *sender, size_t i_input)
{
    const struct dsim_heaps *heaps = sender->heaps;
    const struct input *input = &sender->inputs[i_input];
    uint64_t heap = (uint64_t)(sender->base.timestamp / sender->send->packet_samples); /* since timestamp 0 */
    uint64_t n_saturated = dsim_heaps_n_saturated(heaps, input->index, sender->i_heap);
    uint64_t count = n_saturated < STATUS_COUNT_MAX ? n_saturated : STATUS_COUNT_MAX;

    const struct spead_item items[SIM_SENDER_N_ITEMS] = {
        {SPEAD_TIMESTAMP, true, (uint64_t)sender->base.timestamp & SPEAD_VALUE_MASK},
        {SPEAD_DIGITISER_ID, true, input->digitiser_id},
        {SPEAD_DIGITISER_STATUS, true, count << STATUS_COUNT_SHIFT | (count > 0 ? STATUS_SATURATED : 0)},
        {SPEAD_ADC_SAMPLES, false, 0},
    };
    uint64_t heap_cnt = (2 * (uint64_t)sender->n_heaps + 2) & SPEAD_VALUE_MASK;
    struct packet_out *packet = sim_sender_out_add_heap(
        &sender->out, input->first_destination + heap % input->n_destinations, heap_cnt,
        dsim_heaps_payload(heaps, input->index, sender->i_heap), heaps->heap_bytes, 0, SIZE_MAX, items);
    if (ends_block(sender, i_input))
        packet->ref = &sender->block->ref;
}

/* Takes the next block of heaps if 'heaps' is NULL.  Returns false if no more blocks will come, or if the threads must
 * stop. */
static bool have_heaps(struct dsim_sender *sender)
{
    struct dsim_send *send = sender->send;

    if (sender->heaps)
        return true;
    /* without a flush, unsent packets would keep their block, and the reader could not reuse the block */
    sim_sender_out_flush(&sender->out);
    int err = dsim_play_take(send->play, clock_monotonic_ns(), &sender->block);
    if (err == -ETIMEDOUT && send->paced && sender->n_heaps > 0) {
        counter_add(&send->n_waits, 1);
        log_limited(&send->waits_limit, LOG_LEVEL_WARNING,
                    "Heaps are due but not read or computed yet: the disk or processor is too slow.");
    }
    while (err == -ETIMEDOUT && !sim_senders_must_stop(&send->senders)) {
        int64_t now_ns = clock_monotonic_ns();
        err = dsim_play_take(send->play, reap(sender, now_ns, now_ns + SIM_SENDER_STOP_POLL_NS), &sender->block);
    }
    sender->has_ended = err == -EPIPE;
    if (err)
        return false;
    sender->heaps = &sender->block->heaps;
    sender->i_heap = 0;
    return true;
}

/* Advances to the next heap.  After the last heap of a period, the period begins again.  After the last heap of a
 * block, the block returns to the reader.  If the block's last packet was dropped, waits until the other packets have
 * left, and then returns the block. */
static void next_heap(struct dsim_sender *sender)
{
    if (++sender->i_heap < sender->heaps->n_heaps)
        return;
    sender->i_heap = 0;
    if (!sender->send->play)
        return;
    sender->heaps = NULL;
    if (!sender->returns_block)
        return;
    sender->returns_block = false;
    sim_sender_out_flush(&sender->out);
    send_sink_flush(sender->out.sink);
    buffer_ref_put(&sender->block->ref);
}

/* Registers the memory of payloads with the sink. */
static int add_memory(struct dsim_sender *sender, const struct dsim_heaps *heaps, char *why, size_t why_bytes)
{
    return send_sink_add_memory(sender->out.sink, heaps->payloads, dsim_heaps_bytes(heaps), why, why_bytes);
}

/* Switches to other heaps when the timestamp of the first new heap is reached. */
static void take_change(struct dsim_sender *sender)
{
    struct dsim_send *send = sender->send;
    const struct change *change =
        atomic_load_explicit(&send->change, memory_order_acquire); /* pairs with the store in dsim_send_switch() */
    char why[512];

    if (change == sender->taken || sender->base.timestamp < change->timestamp)
        return;
    sim_sender_out_flush(&sender->out);
    send_sink_flush(sender->out.sink);
    send_sink_remove_memory(sender->out.sink);
    if (add_memory(sender, change->heaps, why, sizeof(why)))
        log_warning("The new heaps must be copied before they are sent: %s.", why);
    sender->taken = change;
    sender->heaps = change->heaps;
    sender->i_heap = (size_t)(sender->base.timestamp / send->packet_samples) % sender->heaps->n_heaps;
    atomic_fetch_add_explicit(&send->n_changed, 1, memory_order_release); /* pairs with the load in
                                                                           * dsim_send_has_switched() */
}

/* Adds the packets of one timestamp. */
static void add_heaps(struct dsim_sender *sender)
{
    take_change(sender);
    if (!have_heaps(sender))
        return;
    if (sender->base.timestamp >= sender->next_descriptors) {
        for (size_t i = 0; i < sender->n_inputs; i++)
            if (loss_of(sender, i) < LOSS_OF_ALL)
                add_descriptors(sender, &sender->inputs[i]);
        sender->n_descriptors++;
        sender->next_descriptors += sender->send->descriptor_samples;
    }
    size_t n_sent = 0;
    for (size_t i = 0; i < sender->n_inputs; i++)
        if (is_lost(sender, i)) {
            lose_heap(sender, i);
        } else {
            add_heap(sender, i);
            n_sent++;
        }
    counter_add(&sender->send->n_heaps_sent, n_sent);
    counter_add(&sender->send->n_bytes_sent, n_sent * sender->heaps->heap_bytes);
    next_heap(sender);
    sender->n_heaps++;
    sender->base.timestamp += sender->send->packet_samples;
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

/* Returns the time at which the next heaps must leave: the time of their last sample. */
static int64_t deadline_ns(const struct dsim_sender *sender)
{
    const struct dsim_send *send = sender->send;

    return sim_senders_due_ns(&send->senders,
                              sender->base.timestamp + send->packet_samples - send->senders.first_timestamp);
}

static bool is_over(const struct dsim_sender *sender)
{
    return sim_senders_must_stop(&sender->send->senders) || sender->has_ended ||
           sender->n_heaps == sender->send->n_heaps_wanted;
}

/* Sets the first timestamp and its time.  If the clock determines the first timestamp, it is a multiple of
 * align_samples. */
static void set_origin(struct dsim_send *send)
{
    sim_senders_set_origin(&send->senders, send->align_samples, 0,
                           send->play && !send->starts_when_read ? LIVE_LEAD_NS : 0);
}

/* Prepares the first heap.  For recordings, sets the origin here, after the first block has been read. */
static void begin(struct dsim_sender *sender)
{
    struct dsim_send *send = sender->send;

    if (send->play)
        have_heaps(sender);
    if (send->starts_when_read)
        set_origin(send);
    sender->base.timestamp = send->senders.first_timestamp;
    sender->next_descriptors = send->senders.first_timestamp;
    if (!send->play)
        sender->i_heap = (size_t)(sender->base.timestamp / send->packet_samples) % sender->heaps->n_heaps;
}

static void send_due(struct dsim_sender *sender, int64_t now_ns)
{
    int64_t due_ns = deadline_ns(sender);

    if (due_ns <= now_ns)
        sim_sender_note_lateness(&sender->base, now_ns - due_ns);
    for (; due_ns <= now_ns && !is_over(sender); due_ns = deadline_ns(sender))
        add_heaps(sender);
    sim_sender_out_flush(&sender->out);
}

static void send_paced(struct dsim_sender *sender)
{
    while (!is_over(sender)) {
        int64_t now_ns = clock_monotonic_ns();
        send_due(sender, now_ns);

        int64_t wake_ns = deadline_ns(sender);
        if (wake_ns < now_ns + WAKE_INTERVAL_NS)
            wake_ns = now_ns + WAKE_INTERVAL_NS;
        if (wake_ns > now_ns + SIM_SENDER_STOP_POLL_NS)
            wake_ns = now_ns + SIM_SENDER_STOP_POLL_NS;
        if (!is_over(sender))
            clock_sleep_until(reap(sender, now_ns, wake_ns));
    }
}

static void send_unpaced(struct dsim_sender *sender)
{
    while (!is_over(sender))
        add_heaps(sender);
    sim_sender_out_flush(&sender->out);
}

static int run(struct sim_sender *base)
{
    struct dsim_sender *sender = CONTAINER_OF(base, struct dsim_sender, base);
    struct dsim_send *send = sender->send;

    begin(sender);
    if (send->paced)
        send_paced(sender);
    else
        send_unpaced(sender);
    sim_sender_out_drain(&sender->out);
    return sender->has_ended && dsim_play_failed(send->play) ? 1 : 0;
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* Builds the descriptors of the items, for receivers that do not know the items.  The descriptors describe the packed
 * samples of the packets. */
static void build_descriptors(struct dsim_send *send, const struct dsim_config_digitiser *digitiser)
{
    const struct spead_descriptor descriptors[SIM_SENDER_N_ITEMS] = {
        SPEAD_VALUE_DESCRIPTOR(SPEAD_TIMESTAMP, "timestamp", "ADC samples since the sync time"),
        SPEAD_VALUE_DESCRIPTOR(SPEAD_DIGITISER_ID, "digitiser_id", "Digitiser; bit 0 is the polarisation"),
        SPEAD_VALUE_DESCRIPTOR(SPEAD_DIGITISER_STATUS, "digitiser_status",
                               "Bit 1: some samples are saturated; bits 32 to 47: how many"),
        {.id = SPEAD_ADC_SAMPLES,
         .name = "adc_samples",
         .description = "Samples, packed most significant bit first",
         .format_type = 'i',
         .format_bits = (int)digitiser->sample_bits,
         .n_dims = 1,
         .shape = {digitiser->packet_samples}},
    };

    sim_senders_build_descriptors(&send->senders, descriptors);
}

/* Creates the inputs of sender number 'l': every n_senders-th input, beginning with input number 'l'. */
static int deal_inputs(struct dsim_sender *sender, const struct dsim_config *config, size_t l, size_t n_senders,
                       char *why, size_t why_bytes)
{
    size_t n_inputs = dsim_config_n_inputs(config), n_destinations = 0;

    for (size_t i = l; i < n_inputs; i += n_senders)
        n_destinations += dsim_config_input_endpoints(config, i)->n;
    sender->inputs = calloc(n_inputs / n_senders + 1, sizeof(*sender->inputs));
    sender->destinations.items = calloc(n_destinations, sizeof(*sender->destinations.items));
    if (!sender->inputs || !sender->destinations.items)
        return why_out_of_memory(why, why_bytes);
    for (size_t i = l; i < n_inputs; i += n_senders) {
        const struct endpoint_list *endpoints = dsim_config_input_endpoints(config, i);
        sender->inputs[sender->n_inputs++] = (struct input){
            .index = i,
            .digitiser_id = (uint64_t)dsim_config_antenna(config, i / N_POLS)->digitiser_id + i % N_POLS,
            .first_destination = (unsigned)sender->destinations.n,
            .n_destinations = (unsigned)endpoints->n,
        };
        memcpy(sender->destinations.items + sender->destinations.n, endpoints->items,
               endpoints->n * sizeof(*endpoints->items));
        sender->destinations.n += endpoints->n;
    }
    return 0;
}

static int open_sender(struct dsim_sender *sender, const struct dsim_config *config, size_t l, size_t n_senders,
                       char *why, size_t why_bytes)
{
    struct dsim_send *send = sender->send;
    size_t n_blocks = 0;
    const struct dsim_block *blocks = send->play ? dsim_play_blocks(send->play, &n_blocks) : NULL;
    size_t heap_bytes = (size_t)(config->digitiser.packet_samples * config->digitiser.sample_bits) / 8;

    int err = deal_inputs(sender, config, l, n_senders, why, why_bytes);
    if (!err)
        err = sim_sender_out_open(&sender->out, &send->senders, &sender->destinations, heap_bytes, SIZE_MAX, why,
                                  why_bytes);
    if (!err && sender->heaps)
        err = add_memory(sender, sender->heaps, why, why_bytes);
    for (size_t i = 0; i < n_blocks && !err; i++)
        err = add_memory(sender, &blocks[i].heaps, why, why_bytes);
    return err;
}

static void set_times(struct dsim_send *send, const struct dsim_config *config)
{
    const struct dsim_config_digitiser *digitiser = &config->digitiser;

    send->packet_samples = digitiser->packet_samples;
    send->paced = !config->send.pcap_file;
    send->descriptor_samples = timebase_duration_samples(&send->senders.timebase, SIM_SENDER_DESCRIPTOR_PERIOD_NS);
    send->n_heaps_wanted = dsim_config_n_heaps(config);
    send->starts_when_read = config->recordings.n > 0;
    send->align_samples = send->starts_when_read ? send->packet_samples : digitiser->period_samples;
}

static void register_metrics(struct dsim_send *send)
{
    stats_counter("dsim_output_heaps", "Heaps sent, descriptors not counted.", NULL, &send->n_heaps_sent);
    stats_counter("dsim_lost_heaps", "Heaps dropped by ?loss.", NULL, &send->n_heaps_lost);
    stats_counter("dsim_output_bytes", "Payload bytes of heaps sent.", NULL, &send->n_bytes_sent);
    stats_counter("dsim_packets_sent", "Packets sent.", NULL, &send->senders.n_packets);
    stats_counter("dsim_packets_failed",
                  "Packets not sent: refused by the kernel or the capture file, or failed in the NIC.", NULL,
                  &send->senders.n_packets_failed);
    if (send->play)
        stats_counter("dsim_reader_late", "Number of times that heaps were due but not yet read or computed.", NULL,
                      &send->n_waits);
    stats_gauge_scaled("dsim_time_error_s", "Lateness of the most recent heaps, in seconds.", NULL,
                       &send->senders.late_ns, 1e-9);
}

/* Returns the number of senders.  The heaps of a dsim_play have a single sender.  A capture also has a single sender
 * (sim_senders_count()). */
static size_t count_senders(const struct dsim_config *config, const struct dsim_play *play)
{
    return play ? 1 : sim_senders_count(&config->send, dsim_config_n_inputs(config));
}

int dsim_send_create(const struct dsim_config *config, const struct dsim_heaps *heaps, struct dsim_play *play,
                     struct service *service, struct dsim_send **send, char *why, size_t why_bytes)
{
    size_t n_senders = count_senders(config, play);
    struct dsim_send *made = calloc(1, sizeof(*made) + n_senders * sizeof(made->sender[0]));

    assert(!heaps != !play && (play || heaps->n_inputs == dsim_config_n_inputs(config)));
    if (!made || !(made->losses = calloc(dsim_config_n_inputs(config), sizeof(*made->losses)))) {
        free(made);
        return why_out_of_memory(why, why_bytes);
    }
    int err = sim_senders_init(&made->senders, &config->send, &config->time, service, config->digitiser.first_timestamp,
                               run, why, why_bytes);
    made->play = play;
    set_times(made, config);
    build_descriptors(made, &config->digitiser);
    for (size_t l = 0; l < n_senders && !err; l++) {
        struct dsim_sender *sender = &made->sender[l];
        sim_senders_add(&made->senders, &sender->base);
        sender->send = made;
        sender->heaps = heaps;
        sender->random = l + 1;
        err = open_sender(sender, config, l, n_senders, why, why_bytes);
    }
    if (err) {
        dsim_send_destroy(made);
        return err;
    }
    register_metrics(made);
    *send = made;
    return 0;
}

int dsim_send_start(struct dsim_send *send)
{
    if (!send->starts_when_read)
        set_origin(send);
    return sim_senders_start(&send->senders);
}

int64_t dsim_send_first_timestamp(const struct dsim_send *send)
{
    return send->starts_when_read ? -1 : send->senders.first_timestamp;
}

bool dsim_send_can_switch(const struct dsim_send *send)
{
    return !send->play && send->paced;
}

int64_t dsim_send_switch(struct dsim_send *send, const struct dsim_heaps *heaps)
{
    int64_t lead_ns = clock_monotonic_ns() + SWITCH_LEAD_NS - send->senders.origin_ns;
    int64_t ahead =
        lead_ns > 0 ? round_up(timebase_duration_samples(&send->senders.timebase, lead_ns), send->packet_samples) : 0;

    assert(dsim_send_can_switch(send) && dsim_send_has_switched(send));
    const struct change *before = atomic_load_explicit(&send->change, memory_order_relaxed);
    struct change *change = &send->changes[before == &send->changes[0]];
    *change = (struct change){heaps, send->senders.first_timestamp + ahead};
    atomic_store_explicit(&send->n_changed, 0, memory_order_relaxed);
    atomic_store_explicit(&send->change, change, memory_order_release); /* pairs with take_change() */
    return change->timestamp;
}

bool dsim_send_has_switched(const struct dsim_send *send)
{
    return !atomic_load_explicit(&send->change, memory_order_relaxed) ||
           atomic_load_explicit(&send->n_changed, memory_order_acquire) == send->senders.n; /* with take_change() */
}

void dsim_send_set_loss(struct dsim_send *send, size_t input, double fraction)
{
    uint64_t loss = (uint64_t)(fraction * (double)LOSS_OF_ALL);

    atomic_store_explicit(&send->losses[input], loss, memory_order_relaxed);
}

void dsim_send_stop(struct dsim_send *send)
{
    sim_senders_stop(&send->senders);
}

void dsim_send_print_summary(const struct dsim_send *send)
{
    int64_t n_heaps = INT64_MAX;

    for (size_t l = 0; l < send->senders.n; l++)
        if (send->sender[l].n_heaps < n_heaps)
            n_heaps = send->sender[l].n_heaps;
    printf("dsim: %" PRId64 " heaps per polarisation sent, %" PRIu64 " packets failed, at most %.3f s late\n", n_heaps,
           counter_get(&send->senders.n_packets_failed), (double)sim_senders_latest_ns(&send->senders) / 1e9);
}

void dsim_send_destroy(struct dsim_send *send)
{
    if (!send)
        return;
    dsim_send_stop(send);
    for (size_t l = 0; l < send->senders.n; l++) {
        struct dsim_sender *sender = &send->sender[l];
        sim_sender_out_close(&sender->out);
        free(sender->destinations.items);
        free(sender->inputs);
    }
    free(send->losses);
    free(send);
}
