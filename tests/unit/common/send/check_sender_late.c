/* check_sender_late.c - a sender whose packets leave after the sink's call has returned, as with a NIC that reads
 * packets in place.  Each buffer reference returns once, soon after the packets have left. */
#include "common/base/clock.h"
#include "common/device/device.h"
#include "common/base/inbox.h"
#include "common/send/stream.h"
#include "common/send/sender.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_JOBS    16
#define PATIENCE_NS (10 * NS_PER_S)

static char why[256];

/* ---- A card that takes its time; it is in the place of send/sink_verbs.c --------------------------------------- */

#define RING 4096

struct slow_packet {
    int64_t leaves_ns;
    struct packet_out out;
    uint64_t sum; /* of the payload when it was handed over */
};

struct slow_card {
    struct send_sink base;
    int64_t latency_ns, send_ns;
    unsigned fail_one_in; /* 0: none */
    struct slow_packet ring[RING];
    uint64_t n_sent, n_gone;
    atomic_size_t n_reaps, n_reaps_in_flight, n_failed, n_lifted, n_memories;
    uint64_t n_changed;
    bool closed_in_flight;
    atomic_size_t n_refusals; /* so many times it says that it has no room, from now on */
    struct send_sink_config config;
};

static struct slow_card cards[2];
static size_t n_cards;
static struct slow_card *senders[RING]; /* by whom packets left, batch by batch */
static size_t n_senders;

static uint64_t sum_of(const struct packet_out *packet)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < packet->payload_bytes; i++)
        sum = sum * 31 + packet->payload[i];
    return sum;
}

static size_t slow_reap(struct send_sink *base)
{
    struct slow_card *card = CONTAINER_OF(base, struct slow_card, base);
    int64_t now_ns = clock_monotonic_ns();

    atomic_fetch_add(&card->n_reaps, 1);
    atomic_fetch_add(&card->n_reaps_in_flight, card->n_sent > card->n_gone);
    for (; card->n_gone < card->n_sent && card->ring[card->n_gone % RING].leaves_ns <= now_ns; card->n_gone++) {
        struct slow_packet *packet = &card->ring[card->n_gone % RING];
        card->n_changed += sum_of(&packet->out) != packet->sum;
        if (card->fail_one_in && card->n_gone % card->fail_one_in == 0) {
            atomic_fetch_add(&card->n_failed, 1);
            send_sink_note_failed(base, EIO);
        }
        send_sink_put_ref(&packet->out);
    }
    return card->n_sent - card->n_gone;
}

static size_t slow_send(struct send_sink *base, struct packet_out *packets, size_t n)
{
    struct slow_card *card = CONTAINER_OF(base, struct slow_card, base);
    int64_t now_ns = clock_monotonic_ns();

    ck_assert_uint_eq(atomic_load(&card->n_refusals), 0);
    senders[n_senders++ % RING] = card;
    if (card->send_ns)
        clock_sleep_until(now_ns + card->send_ns);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_lt(card->n_sent - card->n_gone, RING);
        card->ring[card->n_sent++ % RING] =
            (struct slow_packet){now_ns + card->latency_ns, packets[i], sum_of(&packets[i])};
    }
    return n;
}

static bool slow_has_room(struct send_sink *base)
{
    struct slow_card *card = CONTAINER_OF(base, struct slow_card, base);

    if (atomic_load(&card->n_refusals) == 0)
        return true;
    atomic_fetch_sub(&card->n_refusals, 1);
    return false;
}

static int slow_add_memory(struct send_sink *base, const void *memory, size_t n_bytes, int fd, char *reason,
                           size_t reason_bytes)
{
    struct slow_card *card = CONTAINER_OF(base, struct slow_card, base);

    if (n_bytes == 0) {
        snprintf(reason, reason_bytes, "no memory");
        return -EINVAL;
    }
    card->n_memories++;
    return 0;
}

static void slow_lift_rate(struct send_sink *base)
{
    atomic_fetch_add(&CONTAINER_OF(base, struct slow_card, base)->n_lifted, 1);
}

static void slow_close(struct send_sink *base)
{
    struct slow_card *card = CONTAINER_OF(base, struct slow_card, base);

    card->closed_in_flight = card->n_gone < card->n_sent;
}

static const struct send_sink_ops slow_ops = {.send = slow_send,
                                              .close = slow_close,
                                              .reap = slow_reap,
                                              .has_room = slow_has_room,
                                              .add_memory = slow_add_memory,
                                              .disable_pacing = slow_lift_rate};

int send_sink_verbs_open(const struct send_sink_config *config, struct send_sink **sink, char *reason,
                         size_t reason_bytes)
{
    ck_assert_int_eq(config->transport, TRANSPORT_IBVERBS);
    cards[n_cards].base.ops = &slow_ops;
    cards[n_cards].config = *config;
    *sink = &cards[n_cards++].base;
    return 0;
}

/* ---- Jobs and a sender ------------------------------------------------------------------------------------------- */

struct test_job {
    struct send_job job;
    struct send_group group;
    struct send_heap heap;
    struct buffer_ref ref;
};

static struct inbox *return_to;

/* A job of one heap. */
static struct test_job *make_job(size_t n_bytes)
{
    struct test_job *t = calloc(1, sizeof(*t));
    uint8_t *payload = malloc(n_bytes);

    for (size_t i = 0; i < n_bytes; i++)
        payload[i] = (uint8_t)random_u64();
    t->heap = (struct send_heap){.payload = payload, .payload_bytes = n_bytes};
    t->group = (struct send_group){.heaps = &t->heap, .n_heaps = 1, .send = true};
    t->job = (struct send_job){.ref = &t->ref, .groups = &t->group, .n_groups = 1};
    buffer_ref_init(&t->ref, return_to, (struct inbox_item){.object = t});
    buffer_ref_set(&t->ref, 1);
    return t;
}

static void free_job(struct test_job *t)
{
    memset((void *)t->heap.payload, 0xa5, t->heap.payload_bytes); /* a card that still reads it notices */
    free((void *)t->heap.payload);
    free(t);
}

/* The next job that comes home. */
static struct test_job *await_home(void)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_pop_until(return_to, clock_monotonic_ns() + PATIENCE_NS, &item), 0);
    return item.object;
}

static struct endpoint_list destinations;
static struct send_stream_stats stats[2];
static struct sender *sender;
static struct send_stream *streams[2];

static void open_streams(size_t n, double rate_bytes_per_s)
{
    ck_assert_int_eq(endpoint_list_parse("239.1.2.3:5000", &destinations, why, sizeof(why)), 0);
    ck_assert_int_eq(inbox_create(MAX_JOBS * 2, &return_to), 0);
    ck_assert_int_eq(sender_create("test-send", -1, n, n * MAX_JOBS, &sender), 0);
    for (size_t s = 0; s < n; s++) {
        const struct send_stream_config config = {
            .name = "late",
            .sink = {.destinations = &destinations, .transport = TRANSPORT_IBVERBS, .interface = "lo", .ttl = 1},
            .packet_payload_bytes = 64,
            .rate_bytes_per_s = rate_bytes_per_s,
            .heap_cnt_step = 1,
            .max_jobs = MAX_JOBS,
            .stats = &stats[s],
        };
        ck_assert_int_eq(sender_add_stream(sender, &config, &streams[s], why, sizeof(why)), 0);
    }
}

static void close_streams(void)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_try_pop(return_to, &item), -EAGAIN); /* no loan twice */
    sender_destroy(sender);
    for (size_t i = 0; i < n_cards; i++) {
        ck_assert(!cards[i].closed_in_flight);
        ck_assert_uint_eq(cards[i].n_changed, 0);
    }
    inbox_destroy(return_to);
    endpoint_list_fini(&destinations);
}

TEST(references_return_when_packets_have_left, .end = 2)
{
    int64_t begin_ns = clock_monotonic_ns(), before_ns = begin_ns;

    cards[0].latency_ns = 30 * NS_PER_MS;
    open_streams(1, _i ? 1e9 : 0);
    ck_assert_int_eq(sender_start(sender), 0);
    for (int round = 0; round < 3; round++) { /* nothing follows that would send the sender looking */
        before_ns = clock_monotonic_ns();
        sender_push(streams[0], &make_job(1 + random_below(5000))->job);
        free_job(await_home());
        ck_assert_int_ge(clock_monotonic_ns() - before_ns, cards[0].latency_ns);
    }
    size_t n_reaps = atomic_load(&cards[0].n_reaps_in_flight);
    int64_t elapsed_ns = clock_monotonic_ns() - begin_ns;
    ck_assert_uint_ge(n_reaps, 3); /* woken for it, each time */
    ck_assert_uint_le(n_reaps, (size_t)(elapsed_ns / PACKET_SINK_REAP_NS) + 3 * (5000 / 64 + 2)); /* but not busily */
    sender_stop(sender);
}

TEST(a_stop_waits_for_what_is_in_flight)
{
    cards[0].latency_ns = 50 * NS_PER_MS;
    open_streams(1, 0);
    ck_assert_int_eq(sender_start(sender), 0);
    for (size_t j = 0; j < MAX_JOBS; j++)
        sender_push(streams[0], &make_job(1 + random_below(5000))->job);
    sender_stop(sender);
    ck_assert_uint_eq(cards[0].n_gone, cards[0].n_sent); /* the stop heap, too */
    for (size_t j = 0; j < MAX_JOBS; j++) {
        struct inbox_item item;
        ck_assert_int_eq(inbox_try_pop(return_to, &item), 0);
        free_job(item.object);
    }
}

TEST(who_is_busy_looks_all_the_same)
{
    /* The first stream keeps the thread busy for half a second and more; the other's loan does not wait for that. */
    cards[0].send_ns = 2 * NS_PER_MS;
    cards[1].latency_ns = 5 * NS_PER_MS;
    open_streams(2, 0);
    struct test_job *busy = make_job(RING / 8 * 32 * 64), *other = make_job(64);
    sender_push(streams[0], &busy->job);
    sender_push(streams[1], &other->job);
    ck_assert_int_eq(sender_start(sender), 0);
    ck_assert_ptr_eq(await_home(), other);
    ck_assert_ptr_eq(await_home(), busy);
    sender_stop(sender);
    free_job(busy);
    free_job(other);
}

TEST(what_fails_late_is_counted)
{
    cards[0].latency_ns = 5 * NS_PER_MS;
    cards[0].fail_one_in = 3;
    open_streams(1, 0);
    ck_assert_int_eq(sender_start(sender), 0);
    for (size_t j = 0; j < MAX_JOBS; j++)
        sender_push(streams[0], &make_job(1 + random_below(500))->job);
    for (size_t j = 0; j < MAX_JOBS; j++)
        free_job(await_home());
    sender_stop(sender);
    ck_assert_uint_eq(counter_get(&stats[0].failed), atomic_load(&cards[0].n_failed));
    ck_assert_uint_eq(sender_n_failed(sender), atomic_load(&cards[0].n_failed));
    ck_assert_uint_ge(atomic_load(&cards[0].n_failed), cards[0].n_sent / 3);
}

TEST(a_drain_that_is_hurried_lifts_the_rate, .end = 2)
{
    /* At its rate the heap would take a minute: it is hurried to ten seconds at most, which the card must not slow. */
    open_streams(1, _i ? 1e3 : 1e9);
    struct test_job *job = make_job(64 * 1000);
    ck_assert_int_eq(sender_start(sender), 0);
    sender_push(streams[0], &job->job);
    sender_set_deadline(sender, INT64_MAX);
    int64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;
    while (_i && atomic_load(&cards[0].n_lifted) == 0 && clock_monotonic_ns() < deadline_ns)
        clock_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    sender_stop(sender);
    ck_assert_uint_eq(atomic_load(&cards[0].n_lifted) > 0, (size_t)_i);
    free_job(await_home());
}

TEST(what_is_given_up_comes_home_when_packets_have_left)
{
    /* Hours at its rate; a card has some of it, and reads that where it lies. */
    cards[0].latency_ns = 50 * NS_PER_MS;
    open_streams(1, 1e3);
    struct test_job *job = make_job(64 * 100000);
    ck_assert_int_eq(sender_start(sender), 0);
    sender_push(streams[0], &job->job);
    while (counter_get(&stats[0].packets) == 0)
        clock_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    sender_set_deadline(sender, clock_monotonic_ns());
    ck_assert_ptr_eq(await_home(), job);
    ck_assert_uint_eq(cards[0].n_gone, cards[0].n_sent);
    free_job(job);
    sender_stop(sender);
    ck_assert_uint_eq(sender_n_given_up(sender), 1);
}

TEST(what_a_failed_device_has_is_not_sent)
{
    /* One stream's heaps lie in a device's memory, another's do not.  What is left of a heap when the device fails
     * stays there, as do those that come later. */
    struct device device = {.name = "failing"};
    struct test_job *jobs[3];

    open_streams(2, 1e3); /* a heap of 100000 bytes takes minutes */
    streams[0]->device = &device;
    for (size_t j = 0; j < 3; j++)
        jobs[j] = make_job(j < 2 ? 100000 : 64);
    ck_assert_int_eq(sender_start(sender), 0);
    sender_push(streams[0], &jobs[0]->job);
    sender_push(streams[0], &jobs[1]->job);
    while (counter_get(&stats[0].packets) == 0)
        clock_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    __atomic_store_n(&device.failed, true, __ATOMIC_RELEASE);
    ck_assert_ptr_eq(await_home(), jobs[0]);
    ck_assert_ptr_eq(await_home(), jobs[1]);
    uint64_t n_before = counter_get(&stats[0].packets);
    sender_push(streams[0], &jobs[2]->job);
    ck_assert_ptr_eq(await_home(), jobs[2]);
    buffer_ref_set(&jobs[2]->ref, 1);
    sender_push(streams[1], &jobs[2]->job);
    ck_assert_ptr_eq(await_home(), jobs[2]);
    sender_stop(sender);
    ck_assert_uint_lt(n_before, 100000 / 64);
    ck_assert_uint_eq(counter_get(&stats[0].packets), n_before);
    ck_assert_uint_eq(cards[0].n_sent, n_before + 1); /* a stop */
    ck_assert_uint_eq(counter_get(&stats[1].packets), 1);
    for (size_t j = 0; j < 3; j++)
        free_job(jobs[j]);
}

TEST(a_card_without_room_keeps_nobody_else, .end = 2)
{
    const size_t n_refusals = 300;
    struct inbox_item item;

    open_streams(2, _i ? 1e9 : 0);
    struct test_job *stalled = make_job(5000), *other = make_job(64 * 500);
    atomic_store(&cards[0].n_refusals, n_refusals);
    sender_push(streams[0], &stalled->job);
    sender_push(streams[1], &other->job);
    ck_assert_int_eq(sender_start(sender), 0);
    ck_assert_ptr_eq(await_home(), other);
    ck_assert_ptr_eq(await_home(), stalled); /* nothing is given up */
    ck_assert_ptr_eq(senders[n_senders - 1], &cards[0]);
    atomic_store(&cards[0].n_refusals, n_refusals);
    sender_stop(sender);
    ck_assert_ptr_eq(senders[n_senders - 2], &cards[1]); /* its stop heap has not waited either */
    ck_assert_ptr_eq(senders[n_senders - 1], &cards[0]);
    ck_assert_uint_eq(cards[0].n_gone, (5000 + 63) / 64 + 1);
    ck_assert_uint_eq(cards[1].n_gone, 500 + 1);
    ck_assert_uint_eq(counter_get(&stats[0].failed), 0);
    ck_assert_int_eq(inbox_try_pop(return_to, &item), -EAGAIN);
    free_job(stalled);
    free_job(other);
}

/* Of two packets of a heap of 100 bytes, with headers of 5 and 2 words of 8 bytes. */
TEST(a_sink_is_told_of_its_packets, .end = 2)
{
    const struct spead_descriptor descriptor = {SPEAD_TIMESTAMP, "timestamp", "When.", .format_type = 'u',
                                                .format_bits = 48};
    struct send_stream_config config = {
        .name = "told",
        .sink = {.destinations = &destinations, .transport = TRANSPORT_IBVERBS, .interface = "lo", .ttl = 1},
        .packet_payload_bytes = 64,
        .rate_bytes_per_s = 1e6,
        .heap_cnt_step = 1,
        .max_jobs = 1,
        .stats = &stats[1],
    };

    open_streams(1, 1e6); /* of unknown heaps: full packets, of as many items as there may be */
    ck_assert_uint_eq(cards[0].config.packet_bytes, 64 + 8 * (5 + SEND_ITEMS_MAX));
    ck_assert_double_eq(cards[0].config.mean_packet_bytes, 64 + 8 * (5 + SEND_ITEMS_MAX));
    ck_assert_double_eq(cards[0].config.rate_bytes_per_s, 1e6);
    config.heap_bytes = 100;
    config.n_items = 2;
    config.descriptors = &descriptor;
    config.descriptor_interval_ns = NS_PER_S;
    config.n_descriptors = _i; /* their packets are as large as may be, at 6 words and 64 bytes */
    sender_destroy(sender);
    ck_assert_int_eq(sender_create("test-send", -1, 1, 1, &sender), 0);
    ck_assert_int_eq(sender_add_stream(sender, &config, &streams[1], why, sizeof(why)), 0);
    ck_assert_uint_eq(cards[1].config.packet_bytes, 64 + 8 * (5 + 2));
    ck_assert_double_eq(cards[1].config.mean_packet_bytes, (100 + 2 * 8 * (5 + 2)) / 2.0);
    /* Descriptors leave from where they lie, and what they take of the pace is not taken from the data. */
    double descriptor_bytes = 0;
    if (_i)
        descriptor_bytes = (double)(streams[1]->descriptors.heaps[0].payload_bytes +
                                    (streams[1]->descriptors.heaps[0].payload_bytes + 63) / 64 * 8 * (5 + 1));
    ck_assert_uint_eq(cards[1].n_memories, _i);
    ck_assert_double_eq_tol(1e9 / streams[1]->pace.ns_per_byte, 1e6 + descriptor_bytes, 1e-3);
}

TEST(memory_is_passed_on)
{
    open_streams(1, 0);
    ck_assert_int_eq(sender_add_memory(streams[0], why, sizeof(why), why, sizeof(why)), 0);
    ck_assert_int_eq(sender_add_memory(streams[0], why, 0, why, sizeof(why)), -EINVAL);
    ck_assert_str_eq(why, "no memory");
    ck_assert_uint_eq(cards[0].n_memories, 1);
}

SUITE(.timeout_s = 60, .teardown = close_streams, .start = random_start);
