/* send.c - the last step of dsim: the threads that send each heap, of a period or of dsim_play, as one packet, in
 * real time.
 *
 * A lane is a thread with a sink and its share of the inputs.  All lanes have the same origin of time, and nothing else
 * to tell each other. */
#include "tools/dsim/send.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/send/sink.h"
#include "common/daemon/service.h"
#include "common/net/spead.h"
#include "common/telemetry/stats.h"
#include "common/base/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAKE_INTERVAL_NS       NS_PER_MS
#define STOP_POLL_NS           (100 * NS_PER_MS) /* the longest sleep, so that a stop is noticed */
#define LATE_WARNING_NS        NS_PER_S
#define DESCRIPTOR_INTERVAL_NS (5 * NS_PER_S)
#define LIVE_LEAD_NS           (NS_PER_S / 4)  /* from the start to the first heap, to compute it */
#define SWITCH_LEAD_NS         (NS_PER_S / 10) /* before other heaps are sent, so that every thread hears of it */

#define LOSS_OF_ALL            (UINT64_C(1) << 32)

#define N_ITEMS               4
#define DESCRIPTORS_MAX_BYTES 1024
#define STATUS_SATURATED      (UINT64_C(1) << 1)
#define STATUS_COUNT_SHIFT    32
#define STATUS_COUNT_MAX      0xFFFF

/* Where a polarisation of an antenna goes: a run of its lane's destinations. */
struct input {
    size_t index; /* in the heaps */
    uint64_t digitiser_id;
    unsigned first_destination;
    unsigned n_destinations;
};

/* [const], or of the lane's thread. */
struct lane {
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

    struct send_sink *sink;
    struct packet_out *batch; /* of PACKET_SINK_BATCH_MAX, being filled; NULL: none */
    size_t n_batch;
    int64_t timestamp;        /* of the next heaps */
    int64_t next_descriptors; /* timestamp at which they are due again */
    uint64_t n_descriptors;   /* sent to each input */
    uint64_t random;          /* of losses, never 0 */
    int64_t n_heaps;          /* sent to each input */
    int64_t latest_ns;

    int cpu; /* [const] < 0: not pinned */
    struct thread thread;
    bool is_running; /* [caller of start and stop] */
};

/* Other heaps of a period. */
struct change {
    const struct dsim_heaps *heaps;
    int64_t timestamp; /* from which on they are sent */
};

struct dsim_send {
    struct dsim_play *play;     /* [const] NULL: the heaps are those of a period */
    struct service *service;    /* [const] */
    int64_t align_samples;      /* [const] the first timestamp from the clock is a multiple */
    struct timebase timebase;   /* [const] */
    int64_t packet_samples;     /* [const] */
    bool paced;                 /* [const] */
    bool starts_when_read;      /* [const] of recordings: once the first heaps are there, the origin is set */
    bool follows_clock;         /* [const] timestamps are those of the clock, not counted from a given one */
    int64_t n_heaps_wanted;     /* [const] of each input; INT64_MAX: until stopped */
    int64_t descriptor_samples; /* [const] between descriptors */
    int64_t first_timestamp;    /* set before the lanes begin; of recordings, by the only lane */
    int64_t origin_ns;          /* the same; monotonic time of 'first_timestamp' */

    uint8_t descriptors[DESCRIPTORS_MAX_BYTES];  /* [const] the payload of a descriptor heap */
    size_t descriptors_bytes;                    /* [const] */
    struct spead_item descriptor_items[N_ITEMS]; /* [const] */

    /* The one that is published is not changed until all lanes have taken the one after it. */
    struct change changes[2];
    struct change *_Atomic change; /* NULL: none yet */
    atomic_size_t n_changed;       /* lanes that have taken it */

    _Atomic uint64_t *losses; /* [n_inputs] of 2^32 heaps as many are left out */

    struct counter n_heaps_sent, n_bytes_sent, n_heaps_lost;
    struct counter n_packets_sent;
    struct counter n_packets_failed;
    struct counter n_waits;
    struct gauge late_ns;
    struct log_limit late_limit;
    struct log_limit waits_limit;
    struct log_limit failed_limit;

    atomic_bool stop;
    atomic_size_t n_lanes_left; /* that have not come to their end */
    size_t n_lanes;             /* [const] */
    struct lane lanes[];        /* [n_lanes] */
};

/* ---- Packets ---------------------------------------------------------------------------------------------------- */

static void note_failures(struct lane *lane)
{
    int last_errno;
    uint64_t n_failed = send_sink_take_failed(lane->sink, &last_errno);

    if (n_failed == 0)
        return;
    counter_add(&lane->send->n_packets_failed, n_failed);
    log_limited(&lane->send->failed_limit, LOG_LEVEL_WARNING, "Packets could not be sent: %s.", strerror(last_errno));
}

static void flush(struct lane *lane)
{
    if (lane->n_batch == 0)
        return;
    counter_add(&lane->send->n_packets_sent, send_sink_send(lane->sink, lane->batch, lane->n_batch));
    lane->batch = NULL;
    lane->n_batch = 0;
    note_failures(lane);
}

/* Until when to sleep, if 'wake_ns' is not before: packets in flight may refer to a block that is waited for. */
static int64_t reap(struct lane *lane, int64_t now_ns, int64_t wake_ns)
{
    int64_t reap_ns = now_ns + PACKET_SINK_REAP_NS;

    return send_sink_reap(lane->sink) > 0 && reap_ns < wake_ns ? reap_ns : wake_ns;
}

/* A packet of the batch, to be filled before the next call. */
static struct packet_out *add_packet(struct lane *lane)
{
    if (lane->n_batch == PACKET_SINK_BATCH_MAX)
        flush(lane);
    if (!lane->batch)
        lane->batch = send_sink_alloc(lane->sink, PACKET_SINK_BATCH_MAX);
    struct packet_out *packet = &lane->batch[lane->n_batch++];
    packet->ref = NULL;
    return packet;
}

/* Descriptors have the odd heap counts, so that they do not disturb the sequence of the data. */
static void add_descriptors(struct lane *lane, const struct input *input)
{
    const struct dsim_send *send = lane->send;
    struct packet_out *packet = add_packet(lane);

    packet->header_bytes = spead_build_header(packet->header, 2 * lane->n_descriptors + 1, send->descriptors_bytes, 0,
                                              send->descriptors_bytes, send->descriptor_items, N_ITEMS);
    packet->payload = send->descriptors;
    packet->payload_bytes = send->descriptors_bytes;
    packet->destination = input->first_destination;
}

/* The last packet of a block takes it back to the reader. */
static bool ends_block(const struct lane *lane, size_t i_input)
{
    return lane->block && lane->i_heap + 1 == lane->heaps->n_heaps && i_input + 1 == lane->n_inputs;
}

static uint64_t loss_of(const struct lane *lane, size_t i_input)
{
    return atomic_load_explicit(&lane->send->losses[lane->inputs[i_input].index], memory_order_relaxed);
}

/* Draws whether the next heap of an input is left out: xorshift64 (Marsaglia, "Xorshift RNGs", 2003). */
static bool is_lost(struct lane *lane, size_t i_input)
{
    uint64_t loss = loss_of(lane, i_input);

    if (loss == 0)
        return false;
    lane->random ^= lane->random << 13;
    lane->random ^= lane->random >> 7;
    lane->random ^= lane->random << 17;
    return lane->random >> 32 < loss;
}

static void lose_heap(struct lane *lane, size_t i_input)
{
    counter_add(&lane->send->n_heaps_lost, 1);
    lane->returns_block = ends_block(lane, i_input);
}

static void add_heap(struct lane *lane, size_t i_input)
{
    const struct dsim_heaps *heaps = lane->heaps;
    const struct input *input = &lane->inputs[i_input];
    uint64_t heap = (uint64_t)(lane->timestamp / lane->send->packet_samples); /* since timestamp 0 */
    uint64_t n_saturated = dsim_heaps_n_saturated(heaps, input->index, lane->i_heap);
    uint64_t count = n_saturated < STATUS_COUNT_MAX ? n_saturated : STATUS_COUNT_MAX;
    struct packet_out *packet = add_packet(lane);

    const struct spead_item items[N_ITEMS] = {
        {SPEAD_TIMESTAMP, true, (uint64_t)lane->timestamp & SPEAD_VALUE_MASK},
        {SPEAD_DIGITISER_ID, true, input->digitiser_id},
        {SPEAD_DIGITISER_STATUS, true, count << STATUS_COUNT_SHIFT | (count > 0 ? STATUS_SATURATED : 0)},
        {SPEAD_ADC_SAMPLES, false, 0},
    };
    uint64_t heap_cnt = (2 * (uint64_t)lane->n_heaps + 2) & SPEAD_VALUE_MASK;
    packet->header_bytes =
        spead_build_header(packet->header, heap_cnt, heaps->heap_bytes, 0, heaps->heap_bytes, items, N_ITEMS);
    packet->payload = dsim_heaps_payload(heaps, input->index, lane->i_heap);
    packet->payload_bytes = heaps->heap_bytes;
    packet->destination = input->first_destination + (unsigned)(heap % input->n_destinations);
    if (ends_block(lane, i_input))
        packet->ref = &lane->block->ref;
}

static bool must_stop(const struct dsim_send *send)
{
    return atomic_load_explicit(&send->stop, memory_order_relaxed);
}

/* Takes the next block of recordings if there is none.  Returns false if none will come. */
static bool have_heaps(struct lane *lane)
{
    struct dsim_send *send = lane->send;

    if (lane->heaps)
        return true;
    flush(lane); /* so that no block waits for more packets before it goes back to the reader */
    int err = dsim_play_take(send->play, clock_monotonic_ns(), &lane->block);
    if (err == -ETIMEDOUT && send->paced && lane->n_heaps > 0) {
        counter_add(&send->n_waits, 1);
        log_limited(&send->waits_limit, LOG_LEVEL_WARNING,
                    "Heaps are due and not read or computed yet: disk or processor do not keep up.");
    }
    while (err == -ETIMEDOUT && !must_stop(send)) {
        int64_t now_ns = clock_monotonic_ns();
        err = dsim_play_take(send->play, reap(lane, now_ns, now_ns + STOP_POLL_NS), &lane->block);
    }
    lane->has_ended = err == -EPIPE;
    if (err)
        return false;
    lane->heaps = &lane->block->heaps;
    lane->i_heap = 0;
    return true;
}

/* A period begins again; a block has been sent.  A block without its last packet goes back once the others have left. */
static void next_heap(struct lane *lane)
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
    flush(lane);
    send_sink_flush(lane->sink);
    buffer_ref_put(&lane->block->ref);
}

/* Takes up other heaps, once their time has come. */
static void take_change(struct lane *lane)
{
    struct dsim_send *send = lane->send;
    const struct change *change =
        atomic_load_explicit(&send->change, memory_order_acquire); /* with dsim_send_switch() */
    char why[512];

    if (change == lane->taken || lane->timestamp < change->timestamp)
        return;
    flush(lane);
    send_sink_flush(lane->sink);
    send_sink_remove_memory(lane->sink);
    if (send_sink_add_memory(lane->sink, change->heaps->payloads, dsim_heaps_bytes(change->heaps), why, sizeof(why)))
        log_warning("The new heaps are copied before they are sent: %s.", why);
    lane->taken = change;
    lane->heaps = change->heaps;
    lane->i_heap = (size_t)(lane->timestamp / send->packet_samples) % lane->heaps->n_heaps;
    atomic_fetch_add_explicit(&send->n_changed, 1, memory_order_release); /* with dsim_send_has_switched() */
}

/* The packets of one timestamp. */
static void add_heaps(struct lane *lane)
{
    take_change(lane);
    if (!have_heaps(lane))
        return;
    if (lane->timestamp >= lane->next_descriptors) {
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
    lane->timestamp += lane->send->packet_samples;
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

/* When the next heaps are to leave: once their last sample would have been taken. */
static int64_t deadline_ns(const struct lane *lane)
{
    const struct dsim_send *send = lane->send;
    int64_t end = lane->timestamp + send->packet_samples;

    return send->origin_ns + timebase_duration_ns(&send->timebase, end - send->first_timestamp);
}

static bool is_over(const struct lane *lane)
{
    return must_stop(lane->send) || lane->has_ended || lane->n_heaps == lane->send->n_heaps_wanted;
}

/* Sets the first timestamp and when it is.  From the clock, the period starts at a multiple of itself. */
static void set_origin(struct dsim_send *send)
{
    int64_t lead_ns = send->play && !send->starts_when_read ? LIVE_LEAD_NS : 0;
    int64_t unix_ns = clock_unix_ns() + lead_ns;

    send->origin_ns = clock_monotonic_ns() + lead_ns;
    if (send->follows_clock) {
        int64_t next = round_up(timebase_samples_at(&send->timebase, unix_ns) + 1, send->align_samples);
        send->first_timestamp = next > 0 ? next : 0;
        send->origin_ns += timebase_unix_ns(&send->timebase, send->first_timestamp) - unix_ns;
    }
}

/* Takes up the origin; of recordings, it is now that the first has been read. */
static void begin(struct lane *lane)
{
    struct dsim_send *send = lane->send;

    if (send->play)
        have_heaps(lane);
    if (send->starts_when_read)
        set_origin(send);
    lane->timestamp = send->first_timestamp;
    lane->next_descriptors = send->first_timestamp;
    if (!send->play)
        lane->i_heap = (size_t)(lane->timestamp / send->packet_samples) % lane->heaps->n_heaps;
}

static void note_lateness(struct lane *lane, int64_t late_ns)
{
    gauge_set(&lane->send->late_ns, late_ns);
    if (late_ns > lane->latest_ns)
        lane->latest_ns = late_ns;
    if (late_ns > LATE_WARNING_NS)
        log_limited(&lane->send->late_limit, LOG_LEVEL_WARNING, "Sending is %.1f s late: this host does not keep up.",
                    (double)late_ns / 1e9);
}

static void send_due(struct lane *lane, int64_t now_ns)
{
    int64_t due_ns = deadline_ns(lane);

    if (due_ns <= now_ns)
        note_lateness(lane, now_ns - due_ns);
    for (; due_ns <= now_ns && !is_over(lane); due_ns = deadline_ns(lane))
        add_heaps(lane);
    flush(lane);
}

static void send_paced(struct lane *lane)
{
    while (!is_over(lane)) {
        int64_t now_ns = clock_monotonic_ns();
        send_due(lane, now_ns);

        int64_t wake_ns = deadline_ns(lane);
        if (wake_ns < now_ns + WAKE_INTERVAL_NS)
            wake_ns = now_ns + WAKE_INTERVAL_NS;
        if (wake_ns > now_ns + STOP_POLL_NS)
            wake_ns = now_ns + STOP_POLL_NS;
        if (!is_over(lane))
            clock_sleep_until(reap(lane, now_ns, wake_ns));
    }
}

static void send_unpaced(struct lane *lane)
{
    while (!is_over(lane))
        add_heaps(lane);
    flush(lane);
}

static void *run(void *arg)
{
    struct lane *lane = arg;
    struct dsim_send *send = lane->send;

    begin(lane);
    if (send->paced)
        send_paced(lane);
    else
        send_unpaced(lane);
    send_sink_flush(lane->sink);
    note_failures(lane);
    if (atomic_fetch_sub(&send->n_lanes_left, 1) == 1)
        service_stop(send->service, lane->has_ended && dsim_play_failed(send->play) ? 1 : 0);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* What the items are, for receivers that do not know; true to how the samples are sent. */
static void build_descriptors(struct dsim_send *send, const struct dsim_config_digitiser *digitiser)
{
    const struct spead_descriptor descriptors[N_ITEMS] = {
        {.id = SPEAD_TIMESTAMP,
         .name = "timestamp",
         .description = "ADC samples since the sync time",
         .format_type = 'u',
         .format_bits = 48},
        {.id = SPEAD_DIGITISER_ID,
         .name = "digitiser_id",
         .description = "Digitiser; bit 0 is the polarisation",
         .format_type = 'u',
         .format_bits = 48},
        {.id = SPEAD_DIGITISER_STATUS,
         .name = "digitiser_status",
         .description = "Bit 1: some samples are saturated; bits 32 to 47: how many",
         .format_type = 'u',
         .format_bits = 48},
        {.id = SPEAD_ADC_SAMPLES,
         .name = "adc_samples",
         .description = "Samples, packed most significant bit first",
         .format_type = 'i',
         .format_bits = (int)digitiser->sample_bits,
         .n_dims = 1,
         .shape = {digitiser->packet_samples}},
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

/* Makes the inputs of lane 'l': each n_lanes'th of all. */
static int deal_inputs(struct lane *lane, const struct dsim_config *config, size_t l, char *why, size_t why_bytes)
{
    size_t n_inputs = dsim_config_n_inputs(config), n_lanes = lane->send->n_lanes, n_destinations = 0;

    for (size_t i = l; i < n_inputs; i += n_lanes)
        n_destinations += dsim_config_input_endpoints(config, i)->n;
    lane->inputs = calloc(n_inputs / n_lanes + 1, sizeof(*lane->inputs));
    lane->destinations.items = calloc(n_destinations, sizeof(*lane->destinations.items));
    if (!lane->inputs || !lane->destinations.items)
        return out_of_memory(why, why_bytes);
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

static int open_lane(struct lane *lane, const struct dsim_config *config, size_t l, char *why, size_t why_bytes)
{
    const struct dsim_send *send = lane->send;
    size_t heap_bytes = (size_t)(config->digitiser.packet_samples * config->digitiser.sample_bits) / 8;
    size_t payload_bytes = heap_bytes > send->descriptors_bytes ? heap_bytes : send->descriptors_bytes;
    const struct send_sink_config sink_config = {
        .destinations = &lane->destinations,
        .transport = (enum transport)config->send.transport,
        .interface = config->send.interface,
        .ttl = (int)config->send.ttl,
        .buffer_bytes = (size_t)config->send.buffer_bytes,
        .pcap_file = config->send.pcap_file,
        .packet_bytes = spead_built_header_bytes(N_ITEMS) + payload_bytes,
        .on_lost = service_fail,
        .on_lost_arg = send->service,
    };
    int err = deal_inputs(lane, config, l, why, why_bytes);
    if (!err)
        err = send_sink_open(&sink_config, &lane->sink, why, why_bytes);
    if (!err && lane->heaps)
        err = send_sink_add_memory(lane->sink, lane->heaps->payloads, dsim_heaps_bytes(lane->heaps), why, why_bytes);
    for (size_t i = 0; send->play && i < dsim_play_n_blocks(send->play) && !err; i++) {
        const struct dsim_heaps *heaps = &dsim_play_block(send->play, i)->heaps;
        err = send_sink_add_memory(lane->sink, heaps->payloads, dsim_heaps_bytes(heaps), why, why_bytes);
    }
    return err;
}

static void set_times(struct dsim_send *send, const struct dsim_config *config)
{
    const struct dsim_config_digitiser *digitiser = &config->digitiser;

    send->timebase.sync_time_s = config->time.sync_time_s;
    send->timebase.adc_sample_rate_hz = config->time.adc_sample_rate_hz;
    send->packet_samples = digitiser->packet_samples;
    send->paced = !config->send.pcap_file;
    send->follows_clock = digitiser->first_timestamp < 0;
    send->first_timestamp = digitiser->first_timestamp;
    send->descriptor_samples = timebase_duration_samples(&send->timebase, DESCRIPTOR_INTERVAL_NS);
    send->n_heaps_wanted = dsim_config_n_heaps(config);
    send->starts_when_read = config->recordings.n > 0;
    send->align_samples = send->starts_when_read ? send->packet_samples : digitiser->period_samples;
}

static void register_metrics(struct dsim_send *send)
{
    stats_counter("dsim_output_heaps", "Heaps sent, descriptors not counted.", NULL, &send->n_heaps_sent);
    stats_counter("dsim_lost_heaps", "Heaps left out, as ?loss says.", NULL, &send->n_heaps_lost);
    stats_counter("dsim_output_bytes", "Payload bytes of heaps sent.", NULL, &send->n_bytes_sent);
    stats_counter("dsim_packets_sent", "Packets sent.", NULL, &send->n_packets_sent);
    stats_counter("dsim_packets_failed", "Packets that the kernel or a capture refused, or that a card did not send.",
                  NULL, &send->n_packets_failed);
    if (send->play)
        stats_counter("dsim_reader_late", "Times that heaps were due and not read or computed yet.", NULL,
                      &send->n_waits);
    stats_gauge_scaled("dsim_time_error_s", "How late the last heaps left, in seconds.", NULL, &send->late_ns, 1e-9);
}

/* What is read once, or written once, is not shared. */
static size_t count_lanes(const struct dsim_config *config, const struct dsim_play *play)
{
    size_t n_inputs = dsim_config_n_inputs(config), n_threads = (size_t)config->send.n_threads;

    if (play || config->send.pcap_file)
        return 1;
    return n_threads < n_inputs ? n_threads : n_inputs;
}

int dsim_send_create(const struct dsim_config *config, const struct dsim_heaps *heaps, struct dsim_play *play,
                     struct service *service, struct dsim_send **send, char *why, size_t why_bytes)
{
    const struct config_int_list *affinity = &config->send.affinity;
    size_t n_lanes = count_lanes(config, play);

    assert(!heaps != !play && (play || heaps->n_inputs == dsim_config_n_inputs(config)));
    int err = threads_check_cpus(affinity->items, affinity->n, "send.affinity", why, why_bytes);
    if (err)
        return err;
    struct dsim_send *made = calloc(1, sizeof(*made) + n_lanes * sizeof(made->lanes[0]));
    if (!made || !(made->losses = calloc(dsim_config_n_inputs(config), sizeof(*made->losses)))) {
        free(made);
        return out_of_memory(why, why_bytes);
    }
    made->n_lanes = n_lanes;
    made->play = play;
    made->service = service;
    set_times(made, config);
    build_descriptors(made, &config->digitiser);
    for (size_t l = 0; l < n_lanes && !err; l++) {
        struct lane *lane = &made->lanes[l];
        lane->send = made;
        lane->heaps = heaps;
        lane->random = l + 1;
        lane->cpu = affinity->n ? (int)affinity->items[l % affinity->n] : -1;
        err = open_lane(lane, config, l, why, why_bytes);
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
    int err = 0;

    atomic_init(&send->n_lanes_left, send->n_lanes);
    if (!send->starts_when_read)
        set_origin(send);
    for (size_t l = 0; l < send->n_lanes && !err; l++) {
        struct lane *lane = &send->lanes[l];
        char name[32] = "send";
        if (send->n_lanes > 1)
            snprintf(name, sizeof(name), "send%zu", l);
        err = thread_start(&lane->thread, name, lane->cpu, run, lane);
        lane->is_running = !err;
    }
    return err;
}

int64_t dsim_send_first_timestamp(const struct dsim_send *send)
{
    return send->starts_when_read ? -1 : send->first_timestamp;
}

bool dsim_send_can_switch(const struct dsim_send *send)
{
    return !send->play && send->paced;
}

int64_t dsim_send_switch(struct dsim_send *send, const struct dsim_heaps *heaps)
{
    int64_t lead_ns = clock_monotonic_ns() + SWITCH_LEAD_NS - send->origin_ns;
    int64_t ahead =
        lead_ns > 0 ? round_up(timebase_duration_samples(&send->timebase, lead_ns), send->packet_samples) : 0;

    assert(dsim_send_can_switch(send) && dsim_send_has_switched(send));
    const struct change *before = atomic_load_explicit(&send->change, memory_order_relaxed);
    struct change *change = &send->changes[before == &send->changes[0]];
    *change = (struct change){heaps, send->first_timestamp + ahead};
    atomic_store_explicit(&send->n_changed, 0, memory_order_relaxed);
    atomic_store_explicit(&send->change, change, memory_order_release); /* with take_change() */
    return change->timestamp;
}

bool dsim_send_has_switched(const struct dsim_send *send)
{
    return !atomic_load_explicit(&send->change, memory_order_relaxed) ||
           atomic_load_explicit(&send->n_changed, memory_order_acquire) == send->n_lanes; /* with take_change() */
}

void dsim_send_set_loss(struct dsim_send *send, size_t input, double fraction)
{
    uint64_t loss = (uint64_t)(fraction * (double)LOSS_OF_ALL);

    atomic_store_explicit(&send->losses[input], loss, memory_order_relaxed);
}

void dsim_send_stop(struct dsim_send *send)
{
    atomic_store_explicit(&send->stop, true, memory_order_relaxed);
    for (size_t l = 0; l < send->n_lanes; l++) {
        if (send->lanes[l].is_running)
            thread_join(&send->lanes[l].thread);
        send->lanes[l].is_running = false;
    }
}

struct dsim_send_summary dsim_send_summary(const struct dsim_send *send)
{
    struct dsim_send_summary summary = {.n_heaps = UINT64_MAX,
                                        .n_packets_failed = counter_get(&send->n_packets_failed)};

    for (size_t l = 0; l < send->n_lanes; l++) {
        const struct lane *lane = &send->lanes[l];
        assert(!lane->is_running);
        if ((uint64_t)lane->n_heaps < summary.n_heaps)
            summary.n_heaps = (uint64_t)lane->n_heaps;
        if (lane->latest_ns > summary.latest_ns)
            summary.latest_ns = lane->latest_ns;
    }
    return summary;
}

void dsim_send_destroy(struct dsim_send *send)
{
    if (!send)
        return;
    dsim_send_stop(send);
    for (size_t l = 0; l < send->n_lanes; l++) {
        struct lane *lane = &send->lanes[l];
        send_sink_close(lane->sink);
        free(lane->destinations.items);
        free(lane->inputs);
    }
    free(send->losses);
    free(send);
}
