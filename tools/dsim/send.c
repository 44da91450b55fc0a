/* send.c - the last step of dsim: lanes that send each heap, of a period or of dsim_play, as one packet, in real time.
 *
 * A lane has a sink and its share of the inputs.  Lanes have nothing to tell each other. */
#include "tools/dsim/send.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/spead.h"
#include "common/telemetry/stats.h"
#include "tools/shared/lane.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WAKE_INTERVAL_NS NS_PER_MS
#define LIVE_LEAD_NS     (NS_PER_S / 4)  /* from the start to the first heap, to compute it */
#define SWITCH_LEAD_NS   (NS_PER_S / 10) /* before other heaps are sent, so that every thread hears of it */

#define LOSS_OF_ALL (UINT64_C(1) << 32)

#define STATUS_SATURATED   (UINT64_C(1) << 1)
#define STATUS_COUNT_SHIFT 32
#define STATUS_COUNT_MAX   0xFFFF

/* Where a polarisation of an antenna goes: a run of its lane's destinations. */
struct input {
    size_t index; /* in the heaps */
    uint64_t digitiser_id;
    unsigned first_destination;
    unsigned n_destinations;
};

/* [const], or of the lane's thread. */
struct dsim_lane {
    struct lane base;
    struct lane_out out;
    struct dsim_send *send;            /* [const] */
    struct input *inputs;              /* [const] [n_inputs] */
    size_t n_inputs;                   /* [const] */
    struct endpoint_list destinations; /* [const] of its inputs, one after the other */

    const struct dsim_heaps *heaps; /* being sent, NULL: the next block is to be taken */
    struct dsim_block *block;       /* whose heaps they are; NULL: those of a period */
    bool returns_block;             /* as the packet that would take the block back is left out */
    size_t i_heap;                  /* of 'heaps', the next one */
    const struct change *taken;     /* the last change; NULL: none */
    bool has_ended;                 /* no more recordings */

    int64_t next_descriptors; /* timestamp at which they are due again */
    uint64_t n_descriptors;   /* sent to each input */
    uint64_t random;          /* of losses, never 0 */
    int64_t n_heaps;          /* sent to each input */
};

/* Other heaps of a period. */
struct change {
    const struct dsim_heaps *heaps;
    int64_t timestamp; /* from which on they are sent */
};

struct dsim_send {
    struct lanes lanes;
    struct dsim_play *play;     /* [const] NULL: the heaps are those of a period */
    int64_t align_samples;      /* [const] the first timestamp from the clock is a multiple */
    int64_t packet_samples;     /* [const] */
    bool paced;                 /* [const] */
    bool starts_when_read;      /* [const] of recordings: once the first heaps are there, the origin is set */
    int64_t n_heaps_wanted;     /* [const] of each input; INT64_MAX: until stopped */
    int64_t descriptor_samples; /* [const] between descriptors */

    /* The one that is published is not changed until all lanes have taken the one after it. */
    struct change changes[2];
    struct change *_Atomic change; /* NULL: none yet */
    atomic_size_t n_changed;       /* lanes that have taken it */

    _Atomic uint64_t *losses; /* [n_inputs] of 2^32 heaps as many are left out */

    struct counter n_heaps_sent, n_bytes_sent, n_heaps_lost;
    struct counter n_waits;
    struct log_limit waits_limit;

    struct dsim_lane lane[]; /* [lanes.n] */
};

/* ---- Packets ---------------------------------------------------------------------------------------------------- */

/* Until when to sleep, if 'wake_ns' is not before: packets in flight may refer to a block that is waited for. */
static int64_t reap(struct dsim_lane *lane, int64_t now_ns, int64_t wake_ns)
{
    int64_t reap_ns = now_ns + PACKET_SINK_REAP_NS;

    return send_sink_reap(lane->out.sink) > 0 && reap_ns < wake_ns ? reap_ns : wake_ns;
}

/* Descriptors have the odd heap counts, so that they do not disturb the sequence of the data. */
static void add_descriptors(struct dsim_lane *lane, const struct input *input)
{
    const struct lanes *lanes = &lane->send->lanes;

    lane_out_add_heap(&lane->out, input->first_destination, 2 * lane->n_descriptors + 1, lanes->descriptors,
                      lanes->descriptors_bytes, 0, SIZE_MAX, lanes->descriptor_items);
}

/* The last packet of a block takes it back to the reader. */
static bool ends_block(const struct dsim_lane *lane, size_t i_input)
{
    return lane->block && lane->i_heap + 1 == lane->heaps->n_heaps && i_input + 1 == lane->n_inputs;
}

static uint64_t loss_of(const struct dsim_lane *lane, size_t i_input)
{
    return atomic_load_explicit(&lane->send->losses[lane->inputs[i_input].index], memory_order_relaxed);
}

/* Draws whether the next heap of an input is left out: xorshift64 (Marsaglia, "Xorshift RNGs", 2003). */
static bool is_lost(struct dsim_lane *lane, size_t i_input)
{
    uint64_t loss = loss_of(lane, i_input);

    if (loss == 0)
        return false;
    lane->random ^= lane->random << 13;
    lane->random ^= lane->random >> 7;
    lane->random ^= lane->random << 17;
    return lane->random >> 32 < loss;
}

static void lose_heap(struct dsim_lane *lane, size_t i_input)
{
    counter_add(&lane->send->n_heaps_lost, 1);
    lane->returns_block = ends_block(lane, i_input);
}

static void add_heap(struct dsim_lane *lane, size_t i_input)
{
    const struct dsim_heaps *heaps = lane->heaps;
    const struct input *input = &lane->inputs[i_input];
    uint64_t heap = (uint64_t)(lane->base.timestamp / lane->send->packet_samples); /* since timestamp 0 */
    uint64_t n_saturated = dsim_heaps_n_saturated(heaps, input->index, lane->i_heap);
    uint64_t count = n_saturated < STATUS_COUNT_MAX ? n_saturated : STATUS_COUNT_MAX;

    const struct spead_item items[LANE_N_ITEMS] = {
        {SPEAD_TIMESTAMP, true, (uint64_t)lane->base.timestamp & SPEAD_VALUE_MASK},
        {SPEAD_DIGITISER_ID, true, input->digitiser_id},
        {SPEAD_DIGITISER_STATUS, true, count << STATUS_COUNT_SHIFT | (count > 0 ? STATUS_SATURATED : 0)},
        {SPEAD_ADC_SAMPLES, false, 0},
    };
    uint64_t heap_cnt = (2 * (uint64_t)lane->n_heaps + 2) & SPEAD_VALUE_MASK;
    struct packet_out *packet =
        lane_out_add_heap(&lane->out, input->first_destination + heap % input->n_destinations, heap_cnt,
                          dsim_heaps_payload(heaps, input->index, lane->i_heap), heaps->heap_bytes, 0, SIZE_MAX, items);
    if (ends_block(lane, i_input))
        packet->ref = &lane->block->ref;
}

/* Takes the next block of recordings if there is none.  Returns false if none will come. */
static bool have_heaps(struct dsim_lane *lane)
{
    struct dsim_send *send = lane->send;

    if (lane->heaps)
        return true;
    lane_out_flush(&lane->out); /* so that no block waits for more packets before it goes back to the reader */
    int err = dsim_play_take(send->play, clock_monotonic_ns(), &lane->block);
    if (err == -ETIMEDOUT && send->paced && lane->n_heaps > 0) {
        counter_add(&send->n_waits, 1);
        log_limited(&send->waits_limit, LOG_LEVEL_WARNING,
                    "Heaps are due and not read or computed yet: disk or processor do not keep up.");
    }
    while (err == -ETIMEDOUT && !lanes_must_stop(&send->lanes)) {
        int64_t now_ns = clock_monotonic_ns();
        err = dsim_play_take(send->play, reap(lane, now_ns, now_ns + LANE_STOP_POLL_NS), &lane->block);
    }
    lane->has_ended = err == -EPIPE;
    if (err)
        return false;
    lane->heaps = &lane->block->heaps;
    lane->i_heap = 0;
    return true;
}

/* A period begins again; a block has been sent.  A block without its last packet goes back once the others have left. */
static void next_heap(struct dsim_lane *lane)
{
    if (++lane->i_heap < lane->heaps->n_heaps)
        return;
    lane->i_heap = 0;
    if (!lane->send->play)
        return;
    lane->heaps = NULL;
    if (!lane->returns_block)
        return;
    lane->returns_block = false;
    lane_out_flush(&lane->out);
    send_sink_flush(lane->out.sink);
    buffer_ref_put(&lane->block->ref);
}

/* Takes up other heaps, once their time has come. */
static void take_change(struct dsim_lane *lane)
{
    struct dsim_send *send = lane->send;
    const struct change *change =
        atomic_load_explicit(&send->change, memory_order_acquire); /* with dsim_send_switch() */
    char why[512];

    if (change == lane->taken || lane->base.timestamp < change->timestamp)
        return;
    lane_out_flush(&lane->out);
    send_sink_flush(lane->out.sink);
    send_sink_remove_memory(lane->out.sink);
    if (send_sink_add_memory(lane->out.sink, change->heaps->payloads, dsim_heaps_bytes(change->heaps), why,
                             sizeof(why)))
        log_warning("The new heaps are copied before they are sent: %s.", why);
    lane->taken = change;
    lane->heaps = change->heaps;
    lane->i_heap = (size_t)(lane->base.timestamp / send->packet_samples) % lane->heaps->n_heaps;
    atomic_fetch_add_explicit(&send->n_changed, 1, memory_order_release); /* with dsim_send_has_switched() */
}

/* The packets of one timestamp. */
static void add_heaps(struct dsim_lane *lane)
{
    take_change(lane);
    if (!have_heaps(lane))
        return;
    if (lane->base.timestamp >= lane->next_descriptors) {
        for (size_t i = 0; i < lane->n_inputs; i++)
            if (loss_of(lane, i) < LOSS_OF_ALL)
                add_descriptors(lane, &lane->inputs[i]);
        lane->n_descriptors++;
        lane->next_descriptors += lane->send->descriptor_samples;
    }
    size_t n_sent = 0;
    for (size_t i = 0; i < lane->n_inputs; i++)
        if (is_lost(lane, i)) {
            lose_heap(lane, i);
        } else {
            add_heap(lane, i);
            n_sent++;
        }
    counter_add(&lane->send->n_heaps_sent, n_sent);
    counter_add(&lane->send->n_bytes_sent, n_sent * lane->heaps->heap_bytes);
    next_heap(lane);
    lane->n_heaps++;
    lane->base.timestamp += lane->send->packet_samples;
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

/* When the next heaps are to leave: once their last sample would have been taken. */
static int64_t deadline_ns(const struct dsim_lane *lane)
{
    const struct dsim_send *send = lane->send;

    return lanes_due_ns(&send->lanes, lane->base.timestamp + send->packet_samples - send->lanes.first_timestamp);
}

static bool is_over(const struct dsim_lane *lane)
{
    return lanes_must_stop(&lane->send->lanes) || lane->has_ended || lane->n_heaps == lane->send->n_heaps_wanted;
}

/* Sets the first timestamp and when it is.  From the clock, the period starts at a multiple of itself. */
static void set_origin(struct dsim_send *send)
{
    lanes_set_origin(&send->lanes, send->align_samples, 0, send->play && !send->starts_when_read ? LIVE_LEAD_NS : 0);
}

/* Takes up the origin; of recordings, it is now that the first has been read. */
static void begin(struct dsim_lane *lane)
{
    struct dsim_send *send = lane->send;

    if (send->play)
        have_heaps(lane);
    if (send->starts_when_read)
        set_origin(send);
    lane->base.timestamp = send->lanes.first_timestamp;
    lane->next_descriptors = send->lanes.first_timestamp;
    if (!send->play)
        lane->i_heap = (size_t)(lane->base.timestamp / send->packet_samples) % lane->heaps->n_heaps;
}

static void send_due(struct dsim_lane *lane, int64_t now_ns)
{
    int64_t due_ns = deadline_ns(lane);

    if (due_ns <= now_ns)
        lane_note_lateness(&lane->base, now_ns - due_ns);
    for (; due_ns <= now_ns && !is_over(lane); due_ns = deadline_ns(lane))
        add_heaps(lane);
    lane_out_flush(&lane->out);
}

static void send_paced(struct dsim_lane *lane)
{
    while (!is_over(lane)) {
        int64_t now_ns = clock_monotonic_ns();
        send_due(lane, now_ns);

        int64_t wake_ns = deadline_ns(lane);
        if (wake_ns < now_ns + WAKE_INTERVAL_NS)
            wake_ns = now_ns + WAKE_INTERVAL_NS;
        if (wake_ns > now_ns + LANE_STOP_POLL_NS)
            wake_ns = now_ns + LANE_STOP_POLL_NS;
        if (!is_over(lane))
            clock_sleep_until(reap(lane, now_ns, wake_ns));
    }
}

static void send_unpaced(struct dsim_lane *lane)
{
    while (!is_over(lane))
        add_heaps(lane);
    lane_out_flush(&lane->out);
}

static int run(struct lane *base)
{
    struct dsim_lane *lane = CONTAINER_OF(base, struct dsim_lane, base);
    struct dsim_send *send = lane->send;

    begin(lane);
    if (send->paced)
        send_paced(lane);
    else
        send_unpaced(lane);
    lane_out_drain(&lane->out);
    return lane->has_ended && dsim_play_failed(send->play) ? 1 : 0;
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* What the items are, for receivers that do not know; true to how the samples are sent. */
static void build_descriptors(struct dsim_send *send, const struct dsim_config_digitiser *digitiser)
{
    const struct spead_descriptor descriptors[LANE_N_ITEMS] = {
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

    lanes_build_descriptors(&send->lanes, descriptors);
}

/* Makes the inputs of lane 'l': each n_lanes'th of all. */
static int deal_inputs(struct dsim_lane *lane, const struct dsim_config *config, size_t l, size_t n_lanes, char *why,
                       size_t why_bytes)
{
    size_t n_inputs = dsim_config_n_inputs(config), n_destinations = 0;

    for (size_t i = l; i < n_inputs; i += n_lanes)
        n_destinations += dsim_config_input_endpoints(config, i)->n;
    lane->inputs = calloc(n_inputs / n_lanes + 1, sizeof(*lane->inputs));
    lane->destinations.items = calloc(n_destinations, sizeof(*lane->destinations.items));
    if (!lane->inputs || !lane->destinations.items)
        return lanes_out_of_memory(why, why_bytes);
    for (size_t i = l; i < n_inputs; i += n_lanes) {
        const struct endpoint_list *endpoints = dsim_config_input_endpoints(config, i);
        lane->inputs[lane->n_inputs++] = (struct input){
            .index = i,
            .digitiser_id = (uint64_t)dsim_config_antenna(config, i / N_POLS)->digitiser_id + i % N_POLS,
            .first_destination = (unsigned)lane->destinations.n,
            .n_destinations = (unsigned)endpoints->n,
        };
        memcpy(lane->destinations.items + lane->destinations.n, endpoints->items,
               endpoints->n * sizeof(*endpoints->items));
        lane->destinations.n += endpoints->n;
    }
    return 0;
}

static int open_lane(struct dsim_lane *lane, const struct dsim_config *config, size_t l, size_t n_lanes, char *why,
                     size_t why_bytes)
{
    struct dsim_send *send = lane->send;
    size_t heap_bytes = (size_t)(config->digitiser.packet_samples * config->digitiser.sample_bits) / 8;

    int err = deal_inputs(lane, config, l, n_lanes, why, why_bytes);
    if (!err)
        err = lane_out_open(&lane->out, &send->lanes, &lane->destinations, heap_bytes, SIZE_MAX, why, why_bytes);
    if (!err && lane->heaps)
        err =
            send_sink_add_memory(lane->out.sink, lane->heaps->payloads, dsim_heaps_bytes(lane->heaps), why, why_bytes);
    for (size_t i = 0; send->play && i < dsim_play_n_blocks(send->play) && !err; i++) {
        const struct dsim_heaps *heaps = &dsim_play_block(send->play, i)->heaps;
        err = send_sink_add_memory(lane->out.sink, heaps->payloads, dsim_heaps_bytes(heaps), why, why_bytes);
    }
    return err;
}

static void set_times(struct dsim_send *send, const struct dsim_config *config)
{
    const struct dsim_config_digitiser *digitiser = &config->digitiser;

    send->packet_samples = digitiser->packet_samples;
    send->paced = !config->send.pcap_file;
    send->descriptor_samples = timebase_duration_samples(&send->lanes.timebase, LANE_DESCRIPTOR_PERIOD_NS);
    send->n_heaps_wanted = dsim_config_n_heaps(config);
    send->starts_when_read = config->recordings.n > 0;
    send->align_samples = send->starts_when_read ? send->packet_samples : digitiser->period_samples;
}

static void register_metrics(struct dsim_send *send)
{
    stats_counter("dsim_output_heaps", "Heaps sent, descriptors not counted.", NULL, &send->n_heaps_sent);
    stats_counter("dsim_lost_heaps", "Heaps left out, as ?loss says.", NULL, &send->n_heaps_lost);
    stats_counter("dsim_output_bytes", "Payload bytes of heaps sent.", NULL, &send->n_bytes_sent);
    stats_counter("dsim_packets_sent", "Packets sent.", NULL, &send->lanes.n_packets);
    stats_counter("dsim_packets_failed", "Packets that the kernel or a capture refused, or that a card did not send.",
                  NULL, &send->lanes.n_packets_failed);
    if (send->play)
        stats_counter("dsim_reader_late", "Times that heaps were due and not read or computed yet.", NULL,
                      &send->n_waits);
    stats_gauge_scaled("dsim_time_error_s", "How late the last heaps left, in seconds.", NULL, &send->lanes.late_ns,
                       1e-9);
}

/* What is read once, or written once, is not shared. */
static size_t count_lanes(const struct dsim_config *config, const struct dsim_play *play)
{
    return play ? 1 : lanes_count(&config->send, dsim_config_n_inputs(config));
}

int dsim_send_create(const struct dsim_config *config, const struct dsim_heaps *heaps, struct dsim_play *play,
                     struct service *service, struct dsim_send **send, char *why, size_t why_bytes)
{
    size_t n_lanes = count_lanes(config, play);
    struct dsim_send *made = calloc(1, sizeof(*made) + n_lanes * sizeof(made->lane[0]));

    assert(!heaps != !play && (play || heaps->n_inputs == dsim_config_n_inputs(config)));
    if (!made || !(made->losses = calloc(dsim_config_n_inputs(config), sizeof(*made->losses)))) {
        free(made);
        return lanes_out_of_memory(why, why_bytes);
    }
    int err = lanes_init(&made->lanes, &config->send, &config->time, service, config->digitiser.first_timestamp, run,
                         why, why_bytes);
    made->play = play;
    set_times(made, config);
    build_descriptors(made, &config->digitiser);
    for (size_t l = 0; l < n_lanes && !err; l++) {
        struct dsim_lane *lane = &made->lane[l];
        lanes_add(&made->lanes, &lane->base);
        lane->send = made;
        lane->heaps = heaps;
        lane->random = l + 1;
        err = open_lane(lane, config, l, n_lanes, why, why_bytes);
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
    return lanes_start(&send->lanes);
}

int64_t dsim_send_first_timestamp(const struct dsim_send *send)
{
    return send->starts_when_read ? -1 : send->lanes.first_timestamp;
}

bool dsim_send_can_switch(const struct dsim_send *send)
{
    return !send->play && send->paced;
}

int64_t dsim_send_switch(struct dsim_send *send, const struct dsim_heaps *heaps)
{
    int64_t lead_ns = clock_monotonic_ns() + SWITCH_LEAD_NS - send->lanes.origin_ns;
    int64_t ahead =
        lead_ns > 0 ? round_up(timebase_duration_samples(&send->lanes.timebase, lead_ns), send->packet_samples) : 0;

    assert(dsim_send_can_switch(send) && dsim_send_has_switched(send));
    const struct change *before = atomic_load_explicit(&send->change, memory_order_relaxed);
    struct change *change = &send->changes[before == &send->changes[0]];
    *change = (struct change){heaps, send->lanes.first_timestamp + ahead};
    atomic_store_explicit(&send->n_changed, 0, memory_order_relaxed);
    atomic_store_explicit(&send->change, change, memory_order_release); /* with take_change() */
    return change->timestamp;
}

bool dsim_send_has_switched(const struct dsim_send *send)
{
    return !atomic_load_explicit(&send->change, memory_order_relaxed) ||
           atomic_load_explicit(&send->n_changed, memory_order_acquire) == send->lanes.n; /* with take_change() */
}

void dsim_send_set_loss(struct dsim_send *send, size_t input, double fraction)
{
    uint64_t loss = (uint64_t)(fraction * (double)LOSS_OF_ALL);

    atomic_store_explicit(&send->losses[input], loss, memory_order_relaxed);
}

void dsim_send_stop(struct dsim_send *send)
{
    lanes_stop(&send->lanes);
}

struct dsim_send_summary dsim_send_summary(const struct dsim_send *send)
{
    struct dsim_send_summary summary = {.n_heaps = UINT64_MAX,
                                        .n_packets_failed = counter_get(&send->lanes.n_packets_failed),
                                        .latest_ns = lanes_latest_ns(&send->lanes)};

    for (size_t l = 0; l < send->lanes.n; l++)
        if ((uint64_t)send->lane[l].n_heaps < summary.n_heaps)
            summary.n_heaps = (uint64_t)send->lane[l].n_heaps;
    return summary;
}

void dsim_send_destroy(struct dsim_send *send)
{
    if (!send)
        return;
    dsim_send_stop(send);
    for (size_t l = 0; l < send->lanes.n; l++) {
        struct dsim_lane *lane = &send->lane[l];
        lane_out_close(&lane->out);
        free(lane->destinations.items);
        free(lane->inputs);
    }
    free(send->losses);
    free(send);
}
