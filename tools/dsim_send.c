/* dsim_send.c - the last step of dsim: the thread that sends each heap, of a period or of recordings, as one packet, in
 * real time. */
#include "tools/dsim_send.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/packet_sink.h"
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

#define WAKE_INTERVAL_NS       NS_PER_MS
#define STOP_POLL_NS           (100 * NS_PER_MS) /* the longest sleep, so that a stop is noticed */
#define LATE_WARNING_NS        NS_PER_S
#define DESCRIPTOR_INTERVAL_NS (5 * NS_PER_S)

#define N_ITEMS               4
#define DESCRIPTORS_MAX_BYTES 1024
#define STATUS_SATURATED      (UINT64_C(1) << 1)
#define STATUS_COUNT_SHIFT    32
#define STATUS_COUNT_MAX      0xFFFF

/* Where a polarisation of an antenna goes: a run of the sink's destinations. */
struct input {
    uint64_t digitiser_id;
    unsigned first_destination;
    unsigned n_destinations;
};

struct dsim_send {
    struct dsim_play *play;            /* [const] NULL: the heaps are those of a period */
    struct service *service;           /* [const] */
    size_t n_inputs;                   /* [const] */
    int64_t align_samples;             /* [const] the first timestamp from the clock is a multiple */
    struct timebase timebase;          /* [const] */
    int64_t packet_samples;            /* [const] */
    bool paced;                        /* [const] */
    bool follows_clock;                /* [const] timestamps are those of the clock, not counted from a given one */
    int64_t n_heaps_wanted;            /* [const] of each input; INT64_MAX: until stopped */
    int64_t descriptor_samples;        /* [const] between descriptors */
    struct endpoint_list destinations; /* [const] of all inputs, one after the other */

    uint8_t descriptors[DESCRIPTORS_MAX_BYTES];  /* [const] the payload of a descriptor heap */
    size_t descriptors_bytes;                    /* [const] */
    struct spead_item descriptor_items[N_ITEMS]; /* [const] */

    const struct dsim_heaps
        *heaps;               /* [sender thread] being sent, NULL: the next block is to be taken; a period: [const] */
    struct dsim_block *block; /* [sender thread] whose heaps they are; NULL: those of a period */
    size_t i_heap;            /* [sender thread] of 'heaps', the next one */
    bool has_ended;           /* [sender thread] no more recordings */

    struct packet_sink *sink; /* [sender thread] */
    struct packet_out *batch; /* [sender thread] of PACKET_SINK_BATCH_MAX, being filled; NULL: none */
    size_t n_batch;           /* [sender thread] */
    int64_t first_timestamp;  /* [sender thread] */
    int64_t origin_ns;        /* [sender thread] monotonic time of 'first_timestamp' */
    int64_t timestamp;        /* [sender thread] of the next heaps */
    int64_t next_descriptors; /* [sender thread] timestamp at which they are due again */
    uint64_t n_descriptors;   /* [sender thread] sent to each input */
    int64_t n_heaps;          /* [sender thread] sent to each input */
    int64_t latest_ns;        /* [sender thread] */

    struct counter n_packets_sent;
    struct counter n_packets_failed;
    struct counter n_waits;
    struct gauge late_ns;
    struct log_limit late_limit;
    struct log_limit waits_limit;
    struct log_limit failed_limit;

    struct thread thread;
    bool is_running;
    atomic_bool stop;
    struct input inputs[]; /* [n_inputs] [const] */
};

/* ---- Packets ---------------------------------------------------------------------------------------------------- */

static void flush(struct dsim_send *send)
{
    size_t n = send->n_batch;

    if (n == 0)
        return;
    size_t n_left = packet_sink_send(send->sink, send->batch, n);
    send->batch = NULL;
    send->n_batch = 0;
    counter_add(&send->n_packets_sent, n_left);
    if (n_left == n)
        return;
    int last_errno = 0;
    packet_sink_n_failed(send->sink, &last_errno);
    counter_add(&send->n_packets_failed, n - n_left);
    log_limited(&send->failed_limit, LOG_LEVEL_WARNING, "Packets could not be sent: %s.", strerror(last_errno));
}

/* A packet of the batch, to be filled before the next call. */
static struct packet_out *add_packet(struct dsim_send *send)
{
    if (send->n_batch == PACKET_SINK_BATCH_MAX)
        flush(send);
    if (!send->batch)
        send->batch = packet_sink_alloc(send->sink, PACKET_SINK_BATCH_MAX);
    struct packet_out *packet = &send->batch[send->n_batch++];
    packet->loan = NULL;
    return packet;
}

/* Descriptors have the odd heap counts, so that they do not disturb the sequence of the data. */
static void add_descriptors(struct dsim_send *send, const struct input *input)
{
    struct packet_out *packet = add_packet(send);

    packet->header_bytes = spead_build_header(packet->header, 2 * send->n_descriptors + 1, send->descriptors_bytes, 0,
                                              send->descriptors_bytes, send->descriptor_items, N_ITEMS);
    packet->payload = send->descriptors;
    packet->payload_bytes = send->descriptors_bytes;
    packet->destination = input->first_destination;
}

static void add_heap(struct dsim_send *send, size_t i_input)
{
    const struct dsim_heaps *heaps = send->heaps;
    const struct input *input = &send->inputs[i_input];
    uint64_t heap = (uint64_t)(send->timestamp / send->packet_samples); /* since timestamp 0 */
    uint64_t n_saturated = dsim_heaps_n_saturated(heaps, i_input, send->i_heap);
    uint64_t count = n_saturated < STATUS_COUNT_MAX ? n_saturated : STATUS_COUNT_MAX;
    struct packet_out *packet = add_packet(send);

    const struct spead_item items[N_ITEMS] = {
        {SPEAD_TIMESTAMP, true, (uint64_t)send->timestamp & SPEAD_VALUE_MASK},
        {SPEAD_DIGITISER_ID, true, input->digitiser_id},
        {SPEAD_DIGITISER_STATUS, true, count << STATUS_COUNT_SHIFT | (count > 0 ? STATUS_SATURATED : 0)},
        {SPEAD_ADC_SAMPLES, false, 0},
    };
    uint64_t heap_cnt = (2 * (uint64_t)send->n_heaps + 2) & SPEAD_VALUE_MASK;
    packet->header_bytes =
        spead_build_header(packet->header, heap_cnt, heaps->heap_bytes, 0, heaps->heap_bytes, items, N_ITEMS);
    packet->payload = dsim_heaps_payload(heaps, i_input, send->i_heap);
    packet->payload_bytes = heaps->heap_bytes;
    packet->destination = input->first_destination + (unsigned)(heap % input->n_destinations);
    if (send->block && send->i_heap + 1 == heaps->n_heaps && i_input + 1 == send->n_inputs)
        packet->loan = &send->block->loan;
}

static bool must_stop(const struct dsim_send *send)
{
    return atomic_load_explicit(&send->stop, memory_order_relaxed);
}

/* Takes the next block of recordings if there is none.  Returns false if none will come. */
static bool have_heaps(struct dsim_send *send)
{
    if (send->heaps)
        return true;
    flush(send); /* so that no block waits for more packets before it goes back to the reader */
    int err = dsim_play_take(send->play, clock_monotonic_ns(), &send->block);
    if (err == -ETIMEDOUT && send->paced && send->n_heaps > 0) {
        counter_add(&send->n_waits, 1);
        log_limited(&send->waits_limit, LOG_LEVEL_WARNING,
                    "Heaps are due and the recordings not read yet: disk or processor do not keep up.");
    }
    while (err == -ETIMEDOUT && !must_stop(send))
        err = dsim_play_take(send->play, clock_monotonic_ns() + STOP_POLL_NS, &send->block);
    send->has_ended = err == -EPIPE;
    if (err)
        return false;
    send->heaps = &send->block->heaps;
    send->i_heap = 0;
    return true;
}

/* A period begins again; a block has been sent. */
static void next_heap(struct dsim_send *send)
{
    if (++send->i_heap < send->heaps->n_heaps)
        return;
    send->i_heap = 0;
    if (send->play)
        send->heaps = NULL;
}

/* The packets of one timestamp. */
static void add_heaps(struct dsim_send *send)
{
    if (!have_heaps(send))
        return;
    if (send->timestamp >= send->next_descriptors) {
        for (size_t i = 0; i < send->n_inputs; i++)
            add_descriptors(send, &send->inputs[i]);
        send->n_descriptors++;
        send->next_descriptors += send->descriptor_samples;
    }
    for (size_t i = 0; i < send->n_inputs; i++)
        add_heap(send, i);
    next_heap(send);
    send->n_heaps++;
    send->timestamp += send->packet_samples;
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

/* When the next heaps are to leave: once their last sample would have been taken. */
static int64_t deadline_ns(const struct dsim_send *send)
{
    int64_t end = send->timestamp + send->packet_samples;

    return send->origin_ns + timebase_duration_ns(&send->timebase, end - send->first_timestamp);
}

static bool is_over(const struct dsim_send *send)
{
    return must_stop(send) || send->has_ended || send->n_heaps == send->n_heaps_wanted;
}

/* Sets the first timestamp and when it is.  From the clock, the period starts at a multiple of itself; recordings, once
 * the first of them has been read. */
static void set_origin(struct dsim_send *send)
{
    have_heaps(send);
    int64_t unix_ns = clock_unix_ns();
    send->origin_ns = clock_monotonic_ns();
    if (send->follows_clock) {
        int64_t next = round_up(timebase_samples_at(&send->timebase, unix_ns) + 1, send->align_samples);
        send->first_timestamp = next > 0 ? next : 0;
        send->origin_ns += timebase_unix_ns(&send->timebase, send->first_timestamp) - unix_ns;
    }
    send->timestamp = send->first_timestamp;
    send->next_descriptors = send->first_timestamp;
    if (!send->play)
        send->i_heap = (size_t)(send->timestamp / send->packet_samples) % send->heaps->n_heaps;
}

static void note_lateness(struct dsim_send *send, int64_t late_ns)
{
    gauge_set(&send->late_ns, late_ns);
    if (late_ns > send->latest_ns)
        send->latest_ns = late_ns;
    if (late_ns > LATE_WARNING_NS)
        log_limited(&send->late_limit, LOG_LEVEL_WARNING, "Sending is %.1f s late: this host does not keep up.",
                    (double)late_ns / 1e9);
}

static void send_due(struct dsim_send *send, int64_t now_ns)
{
    int64_t due_ns = deadline_ns(send);

    if (due_ns <= now_ns)
        note_lateness(send, now_ns - due_ns);
    for (; due_ns <= now_ns && !is_over(send); due_ns = deadline_ns(send))
        add_heaps(send);
    flush(send);
}

static void send_paced(struct dsim_send *send)
{
    set_origin(send);
    while (!is_over(send)) {
        int64_t now_ns = clock_monotonic_ns();
        send_due(send, now_ns);

        int64_t wake_ns = deadline_ns(send);
        if (wake_ns < now_ns + WAKE_INTERVAL_NS)
            wake_ns = now_ns + WAKE_INTERVAL_NS;
        if (wake_ns > now_ns + STOP_POLL_NS)
            wake_ns = now_ns + STOP_POLL_NS;
        if (!is_over(send))
            clock_sleep_until(wake_ns);
    }
}

static void send_unpaced(struct dsim_send *send)
{
    set_origin(send);
    while (!is_over(send))
        add_heaps(send);
    flush(send);
}

static void *run(void *arg)
{
    struct dsim_send *send = arg;

    if (send->paced)
        send_paced(send);
    else
        send_unpaced(send);
    service_stop(send->service, send->has_ended && dsim_play_failed(send->play) ? 1 : 0);
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

static int deal_destinations(struct dsim_send *send, const struct dsim_config *config, char *why, size_t why_bytes)
{
    struct endpoint_list *all = &send->destinations;
    size_t n = 0;

    for (size_t i = 0; i < send->n_inputs; i++)
        n += dsim_config_input_endpoints(config, i)->n;
    all->items = calloc(n, sizeof(*all->items));
    if (!all->items) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    for (size_t i = 0; i < send->n_inputs; i++) {
        const struct endpoint_list *endpoints = dsim_config_input_endpoints(config, i);
        send->inputs[i] = (struct input){
            .digitiser_id = (uint64_t)dsim_config_antenna(config, i / N_POLS)->digitiser_id + i % N_POLS,
            .first_destination = (unsigned)all->n,
            .n_destinations = (unsigned)endpoints->n,
        };
        memcpy(all->items + all->n, endpoints->items, endpoints->n * sizeof(*all->items));
        all->n += endpoints->n;
    }
    return 0;
}

static int open_sink(struct dsim_send *send, const struct dsim_config *config, char *why, size_t why_bytes)
{
    const struct packet_sink_config sink_config = {
        .destinations = &send->destinations,
        .interface = config->send.interface,
        .ttl = (int)config->send.ttl,
        .buffer_bytes = (size_t)config->send.buffer_bytes,
        .pcap_file = config->send.pcap_file,
    };

    return packet_sink_open(&sink_config, &send->sink, why, why_bytes);
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
    send->align_samples = send->play ? send->packet_samples : digitiser->period_samples;
}

static void register_metrics(struct dsim_send *send)
{
    stats_counter("dsim_packets_sent", "Packets sent.", NULL, &send->n_packets_sent);
    stats_counter("dsim_packets_failed", "Packets that the kernel refused.", NULL, &send->n_packets_failed);
    if (send->play)
        stats_counter("dsim_reader_late", "Times that heaps were due and the recordings not read yet.", NULL,
                      &send->n_waits);
    stats_gauge_scaled("dsim_late_seconds", "How late the last heaps left.", NULL, &send->late_ns, 1e-9);
}

int dsim_send_create(const struct dsim_config *config, const struct dsim_heaps *heaps, struct dsim_play *play,
                     struct service *service, struct dsim_send **send, char *why, size_t why_bytes)
{
    size_t n_inputs = dsim_config_n_inputs(config);
    struct dsim_send *made = calloc(1, sizeof(*made) + n_inputs * sizeof(made->inputs[0]));

    if (!made) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    assert(!heaps != !play && (play || heaps->n_inputs == n_inputs));
    made->n_inputs = n_inputs;
    made->heaps = heaps;
    made->play = play;
    made->service = service;
    set_times(made, config);
    build_descriptors(made, &config->digitiser);
    int err = deal_destinations(made, config, why, why_bytes);
    if (err)
        goto undo_made;
    err = open_sink(made, config, why, why_bytes);
    if (err)
        goto undo_destinations;
    register_metrics(made);
    *send = made;
    return 0;
undo_destinations:
    free(made->destinations.items);
undo_made:
    free(made);
    return err;
}

int dsim_send_start(struct dsim_send *send)
{
    int err = thread_start(&send->thread, "send", -1, run, send);

    send->is_running = !err;
    return err;
}

void dsim_send_stop(struct dsim_send *send)
{
    atomic_store_explicit(&send->stop, true, memory_order_relaxed);
    if (send->is_running)
        thread_join(&send->thread);
    send->is_running = false;
}

struct dsim_send_summary dsim_send_summary(const struct dsim_send *send)
{
    assert(!send->is_running);
    return (struct dsim_send_summary){
        .n_heaps = (uint64_t)send->n_heaps,
        .n_packets_failed = counter_get(&send->n_packets_failed),
        .latest_ns = send->latest_ns,
    };
}

void dsim_send_destroy(struct dsim_send *send)
{
    if (!send)
        return;
    dsim_send_stop(send);
    packet_sink_close(send->sink);
    free(send->destinations.items);
    free(send);
}
