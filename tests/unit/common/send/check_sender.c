/* check_sender.c - the packets of a sender on the wire, their order and their times, against a separate model. */
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/send/pace.h"
#include "common/recv/source.h"
#include "common/send/stream.h"
#include "common/send/sender.h"
#include "tests/unit/test_file.h"
#include "tests/unit/test_packets.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_JOBS         16
#define MAX_PACKETS      4096
#define DESTINATIONS_MAX 5
#define PATIENCE_NS      (10 * NS_PER_S)

static char why[256];

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

/* Groups of heaps whose bytes are random, and the inbox in which the job's loan is expected back. */
struct test_job {
    struct send_job job;
    struct buffer_ref ref;
};

static struct inbox *return_to;
static struct test_job jobs[MAX_JOBS], copies[MAX_JOBS];

static void make_job(struct test_job *t, size_t n_groups)
{
    buffer_ref_init(&t->ref, return_to, (struct inbox_item){.object = t});
    buffer_ref_set(&t->ref, 1);
    t->job.ref = &t->ref;
    t->job.n_groups = n_groups;
    t->job.groups = calloc(n_groups ? n_groups : 1, sizeof(*t->job.groups));
}

static void make_group(struct send_group *group, size_t n_heaps, size_t n_destinations, size_t heap_bytes_max,
                       bool equal)
{
    size_t n_bytes = 1 + random_below(heap_bytes_max);

    group->send = true;
    group->n_heaps = n_heaps;
    group->heaps = calloc(n_heaps ? n_heaps : 1, sizeof(*group->heaps));
    for (size_t i = 0; i < n_heaps; i++) {
        struct send_heap *heap = &group->heaps[i];
        uint8_t *payload;

        if (!equal)
            n_bytes = 1 + random_below(heap_bytes_max);
        payload = malloc(n_bytes);
        for (size_t k = 0; k < n_bytes; k++)
            payload[k] = (uint8_t)random_u64();
        heap->destination = (unsigned)random_below(n_destinations);
        heap->payload = payload;
        heap->payload_bytes = n_bytes;
        heap->n_items = 2;
        heap->items[0] = (struct spead_item){SPEAD_TIMESTAMP, true, random_u64() & SPEAD_VALUE_MASK};
        heap->items[1] = (struct spead_item){SPEAD_FENG_RAW, false, 0};
    }
}

static void free_job(struct test_job *t)
{
    for (size_t g = 0; g < t->job.n_groups; g++) {
        for (size_t i = 0; i < t->job.groups[g].n_heaps; i++)
            free((void *)t->job.groups[g].heaps[i].payload);
        free(t->job.groups[g].heaps);
    }
    free(t->job.groups);
    *t = (struct test_job){0};
}

/* Gives the heap a payload of zeros. */
static void set_payload(struct send_heap *heap, size_t n_bytes)
{
    free((void *)heap->payload);
    heap->payload_bytes = n_bytes;
    heap->payload = calloc(1, n_bytes);
}

/* The next job that comes home, within PATIENCE_NS. */
static struct test_job *await_home(void)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_pop_until(return_to, clock_monotonic_ns() + PATIENCE_NS, &item), 0);
    return item.object;
}

/* Each of 'n' loans has come home, once. */
static void assert_home(size_t n)
{
    struct inbox_item item;

    for (size_t i = 0; i < n; i++)
        ck_assert_msg(inbox_try_pop(return_to, &item) == 0, "%zu of %zu loans came home", i, n);
    ck_assert_int_eq(inbox_try_pop(return_to, &item), -EAGAIN);
}

/* ---- What is on the wire ----------------------------------------------------------------------------------------- */

struct wire_packet {
    unsigned port;
    int64_t unix_ns;
    size_t n_bytes;
    uint8_t bytes[2048];
    struct spead_packet spead;
};

static struct wire_packet wire[MAX_PACKETS];

/* Reads the capture into wire[].  Returns the number of packets. */
static size_t read_wire(void)
{
    static const uint16_t wanted[] = {SPEAD_TIMESTAMP};
    pcap_t *capture = pcap_open_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, why);
    struct pcap_pkthdr *header;
    const uint8_t *frame;
    size_t n = 0;

    ck_assert_msg(capture != NULL, "%s", why);
    for (; pcap_next_ex(capture, &header, &frame) == 1; n++) {
        struct wire_packet *packet = &wire[n];

        ck_assert_uint_lt(n, MAX_PACKETS);
        packet->port = (unsigned)frame[36] << 8 | frame[37];
        packet->unix_ns = header->ts.tv_sec * NS_PER_S + header->ts.tv_usec;
        packet->n_bytes = header->caplen - 42;
        ck_assert_uint_le(packet->n_bytes, sizeof(packet->bytes));
        memcpy(packet->bytes, frame + 42, packet->n_bytes);
        ck_assert_int_eq(spead_parse(packet->bytes, packet->n_bytes, packet->n_bytes, wanted, 1, &packet->spead),
                         SPEAD_OK);
    }
    pcap_close(capture);
    return n;
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* Walks along wire[] and asserts that each packet is the next one expected. */
struct model {
    size_t at;
    size_t n;
    size_t packet_payload_bytes;
    size_t run_packets;
    uint64_t heap_cnt;
    uint64_t heap_cnt_step;
    bool joined;                   /* packets of a batch leave joined by destination: only there they are in order */
    size_t next[DESTINATIONS_MAX]; /* in wire[], where they are joined: no earlier one is to this destination */
};

#define FIRST_PORT 5000 /* destination d is port FIRST_PORT + d */

static uint64_t model_heap_cnt(struct model *model)
{
    uint64_t heap_cnt = model->heap_cnt % (UINT64_C(1) << 48);

    model->heap_cnt += model->heap_cnt_step;
    return heap_cnt;
}

/* On the network heap counts begin where the clock says, on the same steps. */
static void begin_with_first_heap(struct model *model)
{
    uint64_t first = UINT64_MAX;

    for (size_t i = 0; i < model->n; i++)
        first = wire[i].spead.heap_cnt < first ? wire[i].spead.heap_cnt : first;
    ck_assert_uint_eq(((first - model->heap_cnt) & SPEAD_VALUE_MASK) % model->heap_cnt_step, 0);
    model->heap_cnt = first;
}

/* Takes the next packet to a destination. */
static const struct wire_packet *take_packet(struct model *model, unsigned destination)
{
    size_t *next = model->joined ? &model->next[destination] : &model->at;

    while (model->joined && *next < model->n && wire[*next].port != FIRST_PORT + destination)
        ++*next;
    ck_assert_uint_lt(*next, model->n);
    model->at += model->joined;
    ck_assert_uint_eq(wire[*next].port, FIRST_PORT + destination);
    return &wire[(*next)++];
}

static void expect(struct model *model, const struct send_heap *heap, uint64_t heap_cnt, size_t offset)
{
    size_t n_bytes = heap->payload_bytes - offset;
    uint8_t bytes[2048];
    size_t header_bytes;

    if (n_bytes > model->packet_payload_bytes)
        n_bytes = model->packet_payload_bytes;
    header_bytes =
        spead_build_header(bytes, heap_cnt, heap->payload_bytes, offset, n_bytes, heap->items, heap->n_items);
    memcpy(bytes + header_bytes, heap->payload + offset, n_bytes);
    const struct wire_packet *packet = take_packet(model, heap->destination);
    ck_assert_uint_eq(packet->spead.heap_cnt, heap_cnt);
    ck_assert_uint_eq(packet->n_bytes, header_bytes + n_bytes);
    ck_assert_mem_eq(packet->bytes, bytes, header_bytes + n_bytes);
}

static void expect_group(struct model *model, const struct send_group *group)
{
    uint64_t heap_cnts[64];
    size_t packet_bytes = model->packet_payload_bytes, longest_bytes = 0;

    for (size_t i = 0; i < group->n_heaps; i++) {
        heap_cnts[i] = model_heap_cnt(model);
        if (group->heaps[i].payload_bytes > longest_bytes)
            longest_bytes = group->heaps[i].payload_bytes;
    }
    /* The longest heap goes in the fewest runs that do, as even as whole packets allow. */
    size_t n_packets = (longest_bytes + packet_bytes - 1) / packet_bytes, run = 1;
    while (run < n_packets && (n_packets + run - 1) / run > (n_packets + model->run_packets - 1) / model->run_packets)
        run++;
    for (size_t first = 0; first < n_packets; first += run)
        for (size_t i = 0; i < group->n_heaps; i++)
            for (size_t k = first; k < first + run && k * packet_bytes < group->heaps[i].payload_bytes; k++)
                expect(model, &group->heaps[i], heap_cnts[i], k * packet_bytes);
}

static void expect_descriptors(struct model *model, const struct spead_descriptor *descriptors, size_t n_descriptors,
                               size_t n_destinations)
{
    uint8_t payload[2048];
    struct send_heap heap = {.payload = payload, .n_items = n_descriptors};

    heap.payload_bytes = spead_build_descriptors(descriptors, n_descriptors, payload, sizeof(payload), heap.items);
    for (; heap.destination < n_destinations; heap.destination++) {
        uint64_t heap_cnt = model_heap_cnt(model);

        for (size_t offset = 0; offset < heap.payload_bytes; offset += model->packet_payload_bytes)
            expect(model, &heap, heap_cnt, offset);
    }
}

static void expect_stops(struct model *model, size_t n_destinations)
{
    for (size_t i = 0; i < n_destinations; i++) {
        uint8_t bytes[SPEAD_STOP_PACKET_BYTES];

        spead_build_stop(bytes, model_heap_cnt(model));
        const struct wire_packet *packet = take_packet(model, (unsigned)i);
        ck_assert_uint_eq(packet->n_bytes, sizeof(bytes));
        ck_assert_mem_eq(packet->bytes, bytes, sizeof(bytes));
    }
}

/* ---- A sender with one stream into the capture ------------------------------------------------------------------- */

static const struct spead_descriptor descriptors[] = {
    {SPEAD_TIMESTAMP, "timestamp", "When.", .format_type = 'u', .format_bits = 48},
    {SPEAD_FENG_RAW, "feng_raw", "What.", .dtype = "|i1", .n_dims = 2, .shape = {7, 3}},
};

static struct rig {
    struct endpoint_list destinations;
    struct send_stream_stats stats;
    struct send_stream_config config;
    struct sender *sender;
    struct send_stream *stream;
} rig;

static void rig_init(size_t n_destinations, size_t packet_payload_bytes)
{
    rig = (struct rig){.destinations = {n_destinations, calloc(n_destinations, sizeof(struct endpoint))}};
    for (size_t i = 0; i < n_destinations; i++)
        rig.destinations.items[i] = (struct endpoint){{htonl(0xef010203)}, (uint16_t)(FIRST_PORT + i)};
    rig.config = (struct send_stream_config){
        .name = "test",
        .sink = {.destinations = &rig.destinations, .pcap_file = file, .ttl = 1},
        .packet_payload_bytes = packet_payload_bytes,
        .run_packets = 1,
        .heap_cnt_start = SPEAD_VALUE_MASK - 20, /* wraps on the way */
        .heap_cnt_step = 3,
        .max_jobs = MAX_JOBS,
        .stats = &rig.stats,
    };
    ck_assert_int_eq(inbox_create(MAX_JOBS * 2, &return_to), 0);
}

static void rig_open(void)
{
    ck_assert_int_eq(sender_create("test-send", -1, 1, MAX_JOBS, &rig.sender), 0);
    ck_assert_msg(sender_add_stream(rig.sender, &rig.config, &rig.stream, why, sizeof(why)) == 0, "%s", why);
}

static void rig_start(void)
{
    rig_open();
    ck_assert_int_eq(sender_start(rig.sender), 0);
}

static void teardown(void)
{
    sender_destroy(rig.sender);
    inbox_destroy(return_to);
    endpoint_list_fini(&rig.destinations);
    for (size_t j = 0; j < MAX_JOBS; j++) {
        free_job(&jobs[j]);
        free_job(&copies[j]);
    }
    rig = (struct rig){0};
    return_to = NULL;
    remove_file();
}

static struct model make_model(size_t n_packets)
{
    return (struct model){.n = n_packets,
                          .packet_payload_bytes = rig.config.packet_payload_bytes,
                          .run_packets = rig.config.run_packets,
                          .heap_cnt = rig.config.heap_cnt_start,
                          .heap_cnt_step = rig.config.heap_cnt_step};
}

TEST(packets_are_those_of_the_model, .end = 12)
{
    size_t n_destinations, n_jobs;
    uint64_t n_heaps = 0, n_bytes = 0, n_clipped[N_POLS] = {0};
    struct model model;
    size_t n_data_packets;

    random_state += (uint64_t)_i * 1000003; /* each is forked with the same state */
    n_destinations = 1 + random_below(5);
    n_jobs = 1 + random_below(MAX_JOBS);
    rig_init(n_destinations, 8 * (1 + random_below(20)));
    if (_i % 2)
        rig.config.rate_bytes_per_s = 50e6;
    rig.config.descriptors = descriptors;
    rig.config.n_descriptors = _i % 3 ? ARRAY_LEN(descriptors) : 0;
    rig.config.run_packets = 1 + random_below(5);
    rig_start();
    for (size_t j = 0; j < n_jobs; j++) {
        make_job(&jobs[j], random_below(5));
        for (size_t g = 0; g < jobs[j].job.n_groups; g++) {
            struct send_group *group = &jobs[j].job.groups[g];

            make_group(group, random_below(8), n_destinations, 400, random_below(2));
            group->send = random_below(4) > 0;
            for (size_t pol = 0; pol < N_POLS; pol++) {
                group->n_clipped[pol] = random_below(100);
                n_clipped[pol] += group->send && group->n_heaps ? group->n_clipped[pol] : 0;
            }
            for (size_t i = 0; i < group->n_heaps && group->send; i++) {
                n_heaps++;
                n_bytes += group->heaps[i].payload_bytes;
            }
        }
        sender_push(rig.stream, &jobs[j].job);
    }
    sender_stop(rig.sender);
    sender_stop(rig.sender);
    assert_home(n_jobs);

    model = make_model(read_wire());
    expect_descriptors(&model, descriptors, rig.config.n_descriptors, rig.config.n_descriptors ? n_destinations : 0);
    n_data_packets = model.at;
    for (size_t j = 0; j < n_jobs; j++)
        for (size_t g = 0; g < jobs[j].job.n_groups; g++)
            if (jobs[j].job.groups[g].send)
                expect_group(&model, &jobs[j].job.groups[g]);
    n_data_packets = model.at - n_data_packets;
    expect_stops(&model, n_destinations);
    ck_assert_uint_eq(model.at, model.n);

    ck_assert_uint_eq(counter_get(&rig.stats.heaps), n_heaps);
    ck_assert_uint_eq(counter_get(&rig.stats.bytes), n_bytes);
    ck_assert_uint_eq(counter_get(&rig.stats.packets), n_data_packets);
    ck_assert_uint_eq(counter_get(&rig.stats.failed), 0);
    for (size_t pol = 0; pol < N_POLS; pol++)
        ck_assert_uint_eq(counter_get(&rig.stats.clipped[pol]), n_clipped[pol]);
}

/* ---- The same over UDP, where packets are joined ----------------------------------------------------------------- */

static struct recv_source *open_source(const struct endpoint_list *list, size_t buffer_bytes)
{
    const struct recv_source_config config = {.endpoints = list, .buffer_bytes = buffer_bytes};
    struct recv_source *source;

    ck_assert_msg(recv_source_open(&config, &source, why, sizeof(why)) == 0, "%s", why);
    return source;
}

/* Points the rig's destinations at loopback and opens a source there. */
static struct recv_source *rig_listen(void)
{
    int fds[DESTINATIONS_MAX];

    for (size_t i = 0; i < rig.destinations.n; i++) {
        struct sockaddr_in address;

        fds[i] = bound_socket(&address);
        rig.destinations.items[i] = (struct endpoint){address.sin_addr, ntohs(address.sin_port)};
    }
    for (size_t i = 0; i < rig.destinations.n; i++)
        close(fds[i]);
    rig.config.sink.pcap_file = NULL;
    return open_source(&rig.destinations, 16 << 20);
}

/* Receives 'n' packets into wire[].  Returns how many of them were joined on the way. */
static size_t receive_wire(struct recv_source *source, size_t n)
{
    static uint8_t memory[PACKET_BATCH_MAX][2048];
    int64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;
    size_t n_lent = 0;

    ck_assert_uint_le(n, MAX_PACKETS);
    for (size_t at = 0; at < n;) {
        struct packet_slot slots[PACKET_BATCH_MAX] = {0};

        for (size_t i = 0; i < PACKET_BATCH_MAX; i++)
            slots[i] = (struct packet_slot){.header = memory[i], .header_bytes = sizeof(memory[i])};
        int got = recv_source_recv(source, slots, PACKET_BATCH_MAX, 10 * NS_PER_MS);
        ck_assert_int_ge(got, 0);
        for (int i = 0; i < got; i++, at++) {
            ck_assert_uint_lt(at, n);
            ck_assert_uint_le(slots[i].packet_bytes, sizeof(wire[at].bytes));
            wire[at].port = FIRST_PORT + slots[i].endpoint;
            wire[at].n_bytes = slots[i].packet_bytes;
            recv_packet_copy(&slots[i], 0, slots[i].packet_bytes, wire[at].bytes);
            ck_assert_int_eq(spead_parse(wire[at].bytes, wire[at].n_bytes, wire[at].n_bytes, NULL, 0, &wire[at].spead),
                             SPEAD_OK);
            n_lent += slots[i].zero_copy;
        }
        ck_assert_msg(clock_monotonic_ns() < deadline_ns, "%zu of %zu packets came", at, n);
    }
    return n_lent;
}

/* A copy of a job's heaps, to compare with: the worker changes them once the job is home. */
static void keep_copies(const struct test_job *from, struct test_job *copy)
{
    make_job(copy, from->job.n_groups);
    for (size_t g = 0; g < from->job.n_groups; g++) {
        const struct send_group *group = &from->job.groups[g];
        struct send_heap *heaps = calloc(group->n_heaps, sizeof(*heaps));

        for (size_t i = 0; i < group->n_heaps; i++) {
            heaps[i] = group->heaps[i];
            heaps[i].payload = malloc(heaps[i].payload_bytes);
            memcpy((void *)heaps[i].payload, group->heaps[i].payload, heaps[i].payload_bytes);
        }
        copy->job.groups[g] = (struct send_group){.send = true, .n_heaps = group->n_heaps, .heaps = heaps};
    }
}

static void overwrite(struct test_job *t)
{
    for (size_t g = 0; g < t->job.n_groups; g++)
        for (size_t i = 0; i < t->job.groups[g].n_heaps; i++)
            memset((void *)t->job.groups[g].heaps[i].payload, 0, t->job.groups[g].heaps[i].payload_bytes);
}

/* All substreams arrive complete and in order, although each buffer is overwritten as soon as it comes home. */
TEST(substreams_arrive_complete, .end = DESTINATIONS_MAX)
{
    const size_t n_destinations = 1 + (size_t)_i, n_jobs = MAX_JOBS, packet_payload_bytes = 400;
    size_t n_packets = n_destinations; /* stop heaps */
    struct recv_source *source;
    struct model model;

    random_state += (uint64_t)_i * 1000003; /* each is forked with the same state */
    rig_init(n_destinations, packet_payload_bytes);
    source = rig_listen();
    rig_start();
    for (size_t j = 0; j < n_jobs; j++) {
        make_job(&jobs[j], 1 + random_below(3));
        for (size_t g = 0; g < jobs[j].job.n_groups; g++) {
            struct send_group *group = &jobs[j].job.groups[g];

            make_group(group, 1 + random_below(8), n_destinations, 2000, random_below(4));
            for (size_t i = 0; i < group->n_heaps; i++)
                n_packets += (group->heaps[i].payload_bytes - 1) / packet_payload_bytes + 1;
        }
        keep_copies(&jobs[j], &copies[j]);
    }
    for (size_t j = 0; j < n_jobs; j++)
        sender_push(rig.stream, &jobs[j].job);
    for (size_t j = 0; j < n_jobs; j++)
        overwrite(await_home());
    sender_stop(rig.sender);
    assert_home(0);

    size_t n_joined = receive_wire(source, n_packets);
    ck_assert_uint_gt(n_joined, n_packets / 4); /* or this tests nothing */
    model = make_model(n_packets);
    model.joined = true;
    begin_with_first_heap(&model);
    for (size_t j = 0; j < n_jobs; j++)
        for (size_t g = 0; g < copies[j].job.n_groups; g++)
            expect_group(&model, &copies[j].job.groups[g]);
    expect_stops(&model, n_destinations);
    ck_assert_uint_eq(model.at, model.n);
    ck_assert_uint_eq(recv_source_kernel_drops(source), 0);
    ck_assert_uint_eq(counter_get(&rig.stats.failed), 0);
    recv_source_close(source);
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

TEST(pace_does_not_drift)
{
    /* 8264 bytes at 3 GB/s take 2754 + 2/3 ns. */
    struct pace pace = pace_make(3e9);

    pace_limit_backlog(&pace, 1000, 0);
    ck_assert_int_eq(pace_departure_ns(&pace), 1000);
    for (size_t i = 0; i < 3000000; i++)
        pace_depart(&pace, 8264);
    ck_assert_int_eq(pace_departure_ns(&pace), 1000 + INT64_C(8264000000));
    for (size_t i = 0; i < 2; i++)
        pace_depart(&pace, 8264);
    ck_assert_int_eq(pace_departure_ns(&pace), 1000 + INT64_C(8264000000) + 5509);
}

TEST(pace_forgets)
{
    struct pace pace = pace_make(1e9); /* a nanosecond a byte */

    pace_limit_backlog(&pace, 5000, 0);
    pace_depart(&pace, 1000);
    pace_limit_backlog(&pace, 5500, 0); /* ahead of its line: stays there */
    ck_assert_int_eq(pace_departure_ns(&pace), 6000);
    pace_limit_backlog(&pace, 6300, 300); /* as late as may be made up for */
    ck_assert_int_eq(pace_departure_ns(&pace), 6000);
    pace_limit_backlog(&pace, 6301, 300);
    ck_assert_int_eq(pace_departure_ns(&pace), 6001);
    pace_limit_backlog(&pace, 9000, 0); /* was idle */
    ck_assert_int_eq(pace_departure_ns(&pace), 9000);
    pace_depart(&pace, 10);
    ck_assert_int_eq(pace_departure_ns(&pace), 9010);
}

TEST(unpaced_departs_now)
{
    struct pace pace = pace_make(0);

    pace_depart(&pace, 1 << 20);
    ck_assert_int_eq(pace_departure_ns(&pace), 0);
}

/* Departures of the packets of 'sizes', and when the last has taken its time. */
static int64_t depart_all(struct pace *pace, const size_t *sizes, size_t n, int64_t *departures)
{
    for (size_t i = 0; i < n; i++) {
        departures[i] = pace_departure_ns(pace);
        pace_depart(pace, sizes[i]);
    }
    return pace_departure_ns(pace);
}

TEST(a_squeezed_pace_ends_in_time, .end = 20)
{
    random_state += (uint64_t)_i * 1000003; /* each is forked with the same state */
    for (int trial = 0; trial < 50; trial++) {
        const double rate_bytes_per_s = 1e3 * (double)(1 + random_below(1000000));
        const int64_t now_ns = (int64_t)random_below(1000000000) * 1000000;
        int64_t before[100], after[100];
        size_t sizes[100], n = 1 + random_below(100);
        uint64_t n_bytes = 0;
        struct pace pace = pace_make(rate_bytes_per_s), squeezed;

        /* The next departure is some time ahead, or the thread a little late. */
        pace_limit_backlog(&pace, now_ns - (int64_t)random_below(SENDER_LATE_MAX_NS), 0);
        pace_depart(&pace, random_below(3) * random_below(9000));
        for (size_t i = 0; i < n; i++)
            n_bytes += sizes[i] = 1 + random_below(9000);
        squeezed = pace;
        int64_t left_ns = depart_all(&pace, sizes, n, before) - now_ns;
        int64_t max_ns = NS_PER_S;
        if (left_ns > SENDER_LATE_MAX_NS) /* much less than that is lost in the rounding of the lateness */
            max_ns = left_ns / 2 + (int64_t)random_below((size_t)left_ns);
        ck_assert_int_eq(pace_finish_within(&squeezed, now_ns, n_bytes, max_ns), left_ns > max_ns);
        int64_t end_ns = depart_all(&squeezed, sizes, n, after);

        double factor = left_ns > max_ns ? (double)max_ns / (double)left_ns : 1;
        for (size_t i = 0; i < n; i++)
            ck_assert_double_eq_tol((double)(after[i] - now_ns), factor * (double)(before[i] - now_ns), 4);
        ck_assert_int_le(end_ns - now_ns, max_ns + 4);
        if (factor == 1)
            ck_assert_mem_eq(after, before, n * sizeof(*after));
    }
}

TEST(a_squeeze_leaves_the_unpaced_alone)
{
    struct pace pace = pace_make(0);

    pace_limit_backlog(&pace, 1000, 0);
    pace_finish_within(&pace, 1000, UINT64_C(1) << 50, 0);
    pace_depart(&pace, 1 << 20);
    ck_assert_int_eq(pace_departure_ns(&pace), 1000);
}

TEST(no_packet_leaves_early)
{
    const double rate_bytes_per_s = 2e6;
    int64_t start_ns;
    size_t n, n_bytes = 0;

    rig_init(1, 1000);
    rig.config.rate_bytes_per_s = rate_bytes_per_s;
    rig_start();
    start_ns = clock_unix_ns();
    for (size_t j = 0; j < 2; j++) {
        make_job(&jobs[j], 2);
        for (size_t g = 0; g < 2; g++) {
            make_group(&jobs[j].job.groups[g], 5, 1, 1, true);
            for (size_t i = 0; i < 5; i++)
                set_payload(&jobs[j].job.groups[g].heaps[i], 4500);
        }
        sender_push(rig.stream, &jobs[j].job);
    }
    sender_stop(rig.sender);
    n = read_wire();
    ck_assert_uint_eq(n, 2 * 2 * 5 * 5 + 1);
    for (size_t i = 0; i < n - 1; i++) {
        /* Its place on the line, which starts no earlier than the push.  1 ms: the two clocks may be slewed apart. */
        int64_t departure_ns = start_ns + (int64_t)((double)n_bytes / rate_bytes_per_s * 1e9);

        ck_assert_int_ge(wire[i].unix_ns, departure_ns - SENDER_QUANTUM_NS - NS_PER_MS);
        n_bytes += wire[i].n_bytes;
    }
    assert_home(2);
}

/* What came to a sink, call by call, instead of being sent. */
#define MAX_PIECES 65536
#define HELD_UP_NS (NS_PER_MS / 2)
static struct piece {
    int64_t ns;
    int64_t not_before_ns; /* as the stream had it */
    double quick_ns_per_byte;
    size_t n_bytes, first_bytes; /* of the packets for the first one's destination, at the beginning */
} pieces[MAX_PIECES];
static size_t n_pieces, held_up_piece;
static const struct send_stream *noted_stream;

static size_t note_piece(struct send_sink *sink, struct packet_out *packets, size_t n)
{
    struct piece *piece = &pieces[n_pieces++];

    ck_assert_uint_lt(n_pieces, MAX_PIECES);
    if (n_pieces - 1 == held_up_piece)
        clock_spin_until(clock_monotonic_ns() + HELD_UP_NS);
    *piece = (struct piece){.ns = clock_monotonic_ns(),
                            .not_before_ns = noted_stream->apart_ns,
                            .quick_ns_per_byte = noted_stream->pace.quick_ns_per_byte};
    for (size_t i = 0; i < n; i++) {
        size_t packet_bytes = packets[i].header_bytes + packets[i].payload_bytes;
        if (packets[i].destination == packets[0].destination && piece->first_bytes == piece->n_bytes)
            piece->first_bytes += packet_bytes;
        piece->n_bytes += packet_bytes;
        send_sink_put_ref(&packets[i]);
    }
    return n;
}

/* A job of a group with a heap for each destination. */
static void make_large_job(struct test_job *job, size_t n_heaps, size_t heap_bytes)
{
    make_job(job, 1);
    make_group(&job->job.groups[0], n_heaps, n_heaps, 1, true);
    for (size_t i = 0; i < n_heaps; i++)
        set_payload(&job->job.groups[0].heaps[i], heap_bytes);
}

/* A stream so fast that a quantum has many pieces: each is no larger than it may be, and they leave apart, also behind
 * one in which the thread is held up before the first packet. */
TEST(pieces_leave_apart, .end = 3)
{
    const double rate_bytes_per_s = 2e9;
    size_t n_heaps = 1 + random_below(5), n_bytes = 0;
    static struct send_sink_ops noting;

    rig_init(n_heaps, 8 * (1 + random_below(500)));
    rig.config.rate_bytes_per_s = rate_bytes_per_s;
    rig.config.run_packets = 1 + random_below(10);
    rig_open();
    noting = *rig.stream->sink->ops;
    noting.send = note_piece;
    rig.stream->sink->ops = &noting;
    n_pieces = 0;
    held_up_piece = 3 + random_below(7);
    noted_stream = rig.stream;
    for (size_t j = 0; j < MAX_JOBS; j++) {
        make_large_job(&jobs[j], n_heaps, 1 + random_below(500000));
        sender_push(rig.stream, &jobs[j].job);
        n_bytes += n_heaps * jobs[j].job.groups[0].heaps[0].payload_bytes;
    }
    ck_assert_int_eq(sender_start(rig.sender), 0);
    sender_stop(rig.sender);
    for (size_t i = 0; i + 1 < n_pieces; i++) { /* but for the stops */
        double piece_ns = (double)pieces[i].n_bytes / rate_bytes_per_s * 1e9;
        ck_assert_uint_le(pieces[i].n_bytes, SENDER_PIECE_BYTES);
        n_bytes -= pieces[i].n_bytes < n_bytes ? pieces[i].n_bytes : n_bytes;
        ck_assert_int_ge(pieces[i].ns, pieces[i].not_before_ns);
        if (i + 2 < n_pieces) {
            size_t first_bytes = pieces[i + 1].first_bytes;
            size_t least_bytes = first_bytes < pieces[i].n_bytes ? first_bytes : pieces[i].n_bytes;
            double quick_ns = pieces[i + 1].quick_ns_per_byte * (double)least_bytes;
            ck_assert_double_ge((double)(pieces[i + 1].not_before_ns - pieces[i].ns), 0.4 * piece_ns - quick_ns - 2);
            ck_assert_double_le((double)(pieces[i + 1].not_before_ns - pieces[i + 1].ns), 0.4 * piece_ns + 1);
        }
    }
    ck_assert_uint_eq(n_bytes, 0); /* all of it, with headers */
    assert_home(MAX_JOBS);
}

TEST(pieces_are_apart_by_their_time)
{
    struct pace pace = pace_make(1e9);

    for (int i = 0; i < 2; i++) {
        pace_hand_over(&pace, 1000, 1000, 60000, 60000); /* in no time */
        ck_assert_int_eq(pace_next_ns(&pace, 60000), 1000 + 24000);
        ck_assert_int_eq(pace_next_ns(&pace, 1), 1000 + 24000);
    }
    pace = pace_make(0);
    pace_hand_over(&pace, 1000, 1000, 60000, 60000);
    ck_assert_int_eq(pace_next_ns(&pace, 60000), 1000);
}

TEST(a_piece_that_was_held_up_began_late)
{
    struct pace pace = pace_make(1e9);

    pace_hand_over(&pace, 1000, 31000, 60000, 0); /* 0.5 ns a byte, but there is nothing to compare with */
    ck_assert_int_eq(pace_next_ns(&pace, 60000), 31000);
    pace_hand_over(&pace, 100000, 112000, 60000, 0);
    ck_assert_int_eq(pace_next_ns(&pace, 60000), 100000);
    pace_hand_over(&pace, 200000, 200000 + 90000, 60000, 0); /* of which it may have taken 12006 */
    ck_assert_int_le(llabs(pace_next_ns(&pace, 60000) - (200000 + 90000 - 12006)), 1);
    pace_hand_over(&pace, 300000, 300000 + 1000, 10000, 0);
    ck_assert_int_eq(pace_next_ns(&pace, 10000), 300000);
    for (int i = 0; i < 1000; i++) /* takes longer for good: that is what it takes, soon */
        pace_hand_over(&pace, 0, 1600, 10000, 0);
    ck_assert_int_eq(pace_next_ns(&pace, 10000), 0);
}

/* What is handed over sooner leaves sooner, so it is begun later; what is longer than the last piece is not begun
 * earlier. */
TEST(a_short_message_is_begun_later)
{
    struct pace pace = pace_make(1e9);

    pace_hand_over(&pace, 0, 20000, 40000, 40000);
    pace_hand_over(&pace, 0, 20000, 40000, 40000); /* 0.5 ns a byte, and out of the way at 36000 */
    ck_assert_int_eq(pace_next_ns(&pace, 40000), 16000);
    ck_assert_int_eq(pace_next_ns(&pace, 10000), 31000);
    ck_assert_int_eq(pace_next_ns(&pace, 60000), 16000);
}

/* The file grows by whole packets, so its size says how many there are. */
static void wait_for_file_bytes(long n_bytes)
{
    int64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;
    long size = 0;

    while (size < n_bytes) {
        FILE *in = fopen(file, "rb");

        ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
        size = ftell(in);
        fclose(in);
        ck_assert_int_lt(clock_monotonic_ns(), deadline_ns);
        clock_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    }
}

/* A job of two groups, the first with heaps of about 'heap_bytes', the second with smaller ones. */
static void make_slow_job(struct test_job *job, size_t heap_bytes)
{
    make_job(job, 2);
    for (size_t g = 0; g < 2; g++) {
        make_group(&job->job.groups[g], 3, 1, 1, true);
        for (size_t i = 0; i < 3; i++)
            set_payload(&job->job.groups[g].heaps[i], (g == 0 ? heap_bytes : 1000) + i * 123);
    }
}

/* Of the 'n' packets in wire[], those that left after 'stop_ns' lie on the line that has its end SENDER_DRAIN_MAX_NS
 * later: none is early, and all together did not take as long as at the stream's own pace, by far. */
static void assert_drained_evenly(size_t n, int64_t stop_ns)
{
    const int64_t slack_ns = SENDER_QUANTUM_NS + SENDER_LATE_MAX_NS + NS_PER_MS;
    size_t first = 0, n_bytes = 0, n_gone = 0;

    while (wire[first].unix_ns < stop_ns)
        first++;
    ck_assert_uint_gt(first, 0); /* or the stop came before the first packet, and the middle of a group is not tested */
    for (size_t i = first; i < n - 1; i++) /* but for the stop heap */
        n_bytes += wire[i].n_bytes;
    for (size_t i = first; i < n - 1; i++) {
        double departure_ns = (double)n_gone / (double)n_bytes * (double)SENDER_DRAIN_MAX_NS;

        ck_assert_int_ge(wire[i].unix_ns - stop_ns, (int64_t)departure_ns - slack_ns);
        n_gone += wire[i].n_bytes;
    }
    ck_assert_int_lt(wire[n - 1].unix_ns - stop_ns, SENDER_DRAIN_MAX_NS + PATIENCE_NS);
}

TEST(empty_jobs_come_home_at_once_and_a_stop_bounds_the_drain, .end = 2)
{
    int64_t stop_ns;
    struct test_job *slow = jobs, *empty = &jobs[2], *skipped = &jobs[3];
    struct inbox_item item;

    rig_init(1, 1000);
    /* A minute and a half at its pace, nearly all of it in the group that is being sent at the stop. */
    rig.config.rate_bytes_per_s = 4000;
    make_slow_job(&slow[0], 100000);
    make_slow_job(&slow[1], 3000);
    make_job(empty, 0);
    make_job(skipped, 2);
    make_group(&skipped->job.groups[0], 3, 1, 100, true);
    skipped->job.groups[0].send = false;
    make_group(&skipped->job.groups[1], 0, 1, 100, true);
    rig_start();
    sender_push(rig.stream, &slow[0].job);
    sender_push(rig.stream, &slow[1].job);
    sender_push(rig.stream, &empty->job);
    sender_push(rig.stream, &skipped->job);
    ck_assert_int_eq(inbox_pop_until(return_to, clock_monotonic_ns() + 5 * NS_PER_S, &item), 0);
    ck_assert_ptr_eq(item.object, empty);
    ck_assert_int_eq(inbox_pop_until(return_to, clock_monotonic_ns() + 5 * NS_PER_S, &item), 0);
    ck_assert_ptr_eq(item.object, skipped);
    wait_for_file_bytes(24 + 4 * (16 + 42 + 1000)); /* into the second round of the first group */
    stop_ns = clock_unix_ns();
    if (_i == 1) {
        /* The same without the end; the job of nearly all bytes comes home first. */
        sender_set_deadline(rig.sender, INT64_MAX);
        int64_t deadline_ns = clock_monotonic_ns() + SENDER_DRAIN_MAX_NS + PATIENCE_NS;
        ck_assert_int_eq(inbox_pop_until(return_to, deadline_ns, &item), 0);
        ck_assert_ptr_eq(item.object, &slow[0]);
    }
    sender_stop(rig.sender);
    assert_home(_i == 1 ? 1 : 2);
    assert_drained_evenly(read_wire(), stop_ns);
}

/* A stream that would take hours: jobs before and after go home unsent, with their heaps counted, the one in progress
 * too; then it stops as ever. */
TEST(what_a_drain_gives_up_comes_home_and_is_counted)
{
    rig_init(1, 1000);
    rig.config.rate_bytes_per_s = 100;
    for (size_t i = 0; i < 3; i++)
        make_slow_job(&jobs[i], 100000);
    rig_start();
    sender_push(rig.stream, &jobs[0].job);
    sender_push(rig.stream, &jobs[1].job);
    wait_for_file_bytes(24 + 16 + 42 + 1000);
    sender_set_deadline(rig.sender, clock_monotonic_ns());
    sender_push(rig.stream, &jobs[2].job);
    for (size_t i = 0; i < 3; i++)
        ck_assert_ptr_eq(await_home(), &jobs[i]);
    sender_stop(rig.sender);
    assert_home(0);
    ck_assert_uint_eq(sender_n_given_up(rig.sender), 3 * 6);
    ck_assert_uint_eq(counter_get(&rig.stats.heaps), 0);
    size_t n = read_wire();
    ck_assert_uint_lt(n, 10);
    ck_assert_uint_eq(wire[n - 1].n_bytes, SPEAD_STOP_PACKET_BYTES);
}

static _Atomic bool is_stuck;

/* Of a network that takes nothing. */
static size_t wait_until_given_up(struct send_sink *sink, struct packet_out *packets, size_t n)
{
    is_stuck = true;
    while (!send_sink_deadline_passed(sink))
        clock_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    for (size_t i = 0; i < n; i++) {
        send_sink_note_failed(sink, EAGAIN);
        send_sink_put_ref(&packets[i]);
    }
    return 0;
}

/* It waits for room before anybody says that there is an end to it: both of its jobs, one of a single piece, are counted. */
TEST(who_is_stuck_already_learns_when_to_give_up)
{
    static struct send_sink_ops stuck;

    rig_init(1, 1000);
    make_large_job(&jobs[0], 1, 500);
    make_slow_job(&jobs[1], 100000);
    rig_open();
    stuck = *rig.stream->sink->ops;
    stuck.send = wait_until_given_up;
    rig.stream->sink->ops = &stuck;
    is_stuck = false;
    ck_assert_int_eq(sender_start(rig.sender), 0);
    sender_push(rig.stream, &jobs[0].job);
    sender_push(rig.stream, &jobs[1].job);
    while (!is_stuck)
        clock_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    sender_set_deadline(rig.sender, clock_monotonic_ns());
    for (size_t i = 0; i < 2; i++)
        ck_assert_ptr_eq(await_home(), &jobs[i]);
    sender_stop(rig.sender);
    assert_home(0);
    ck_assert_uint_eq(sender_n_given_up(rig.sender), 1 + 6);
}

TEST(latency_is_since_the_data_came)
{
    rig_init(1, 8);
    rig_open();
    make_job(&jobs[0], 3);
    for (size_t g = 0; g < 3; g++)
        make_group(&jobs[0].job.groups[g], 1, 1, 8, true);
    jobs[0].job.groups[0].ready_ns = 1;
    jobs[0].job.groups[1].ready_ns = clock_monotonic_ns() - NS_PER_S;
    jobs[0].job.groups[2].ready_ns = 0; /* unknown: leaves the gauge alone */
    ck_assert_int_eq(sender_start(rig.sender), 0);
    sender_push(rig.stream, &jobs[0].job);
    sender_stop(rig.sender);
    ck_assert_int_ge(gauge_get(&rig.stats.latency_ns), NS_PER_S);
    ck_assert_int_lt(gauge_get(&rig.stats.latency_ns), NS_PER_S + PATIENCE_NS);
    assert_home(1);
}

/* ---- Descriptors ------------------------------------------------------------------------------------------------- */

TEST(descriptors_come_on_schedule)
{
    const int64_t first_ns = 20 * NS_PER_MS, interval_ns = 5 * NS_PER_MS;
    const size_t n_wanted = 5;
    uint8_t payload[2048];
    struct spead_item items[ARRAY_LEN(descriptors)];
    size_t packet_bytes = spead_built_header_bytes(ARRAY_LEN(descriptors)) +
                          spead_build_descriptors(descriptors, ARRAY_LEN(descriptors), payload, sizeof(payload), items);
    struct model model;
    int64_t start_ns;

    rig_init(1, 1000);
    rig.config.descriptors = descriptors;
    rig.config.n_descriptors = ARRAY_LEN(descriptors);
    rig.config.descriptor_first_ns = first_ns;
    rig.config.descriptor_interval_ns = interval_ns;
    rig_open();
    start_ns = clock_unix_ns();
    ck_assert_int_eq(sender_start(rig.sender), 0);
    wait_for_file_bytes(24 + (long)(n_wanted * (16 + 42 + packet_bytes)));
    sender_stop(rig.sender);

    model = make_model(read_wire());
    ck_assert_uint_gt(model.n, n_wanted); /* and the stop heap */
    for (size_t i = 0; i < model.n - 1; i++) {
        /* None before its time; some may be left out if the thread does not get to run. */
        if (i > 0)
            ck_assert_int_ge(wire[i].unix_ns, start_ns + first_ns + (int64_t)(i - 1) * interval_ns - NS_PER_MS);
        expect_descriptors(&model, descriptors, ARRAY_LEN(descriptors), 1);
    }
    expect_stops(&model, 1);
}

TEST(descriptors_wait_for_the_end_of_a_group)
{
    struct model model;

    /* Two groups of some 20 ms each, and descriptors due all the time. */
    rig_init(1, 200);
    rig.config.descriptors = descriptors;
    rig.config.n_descriptors = ARRAY_LEN(descriptors);
    rig.config.descriptor_interval_ns = NS_PER_MS;
    rig.config.descriptor_first_ns = NS_PER_MS;
    rig.config.rate_bytes_per_s = 200e3;
    rig_open();
    make_job(&jobs[0], 2);
    make_group(&jobs[0].job.groups[0], 10, 1, 400, false);
    make_group(&jobs[0].job.groups[1], 10, 1, 400, false);
    ck_assert_int_eq(sender_start(rig.sender), 0);
    sender_push(rig.stream, &jobs[0].job);
    sender_stop(rig.sender);

    model = make_model(read_wire());
    for (size_t g = 0; g < 2; g++) {
        size_t n_heaps = 0;

        for (; wire[model.at].spead.is_descriptor; n_heaps++)
            expect_descriptors(&model, descriptors, ARRAY_LEN(descriptors), 1);
        ck_assert_uint_ge(n_heaps, 1);
        if (g > 0)
            ck_assert_uint_eq(n_heaps, 1); /* and then data, however often they are due */
        expect_group(&model, &jobs[0].job.groups[g]);
    }
    assert_home(1);
}

/* In many packets they are a piece after the other: at the stream's pace, or in the time that it may be late. */
TEST(descriptors_are_paced, .end = 2)
{
    const double rate_bytes_per_s = _i ? 1e5 : 8e6;
    const size_t n_destinations = 220;
    size_t n_bytes = 0, n_gone = 0;
    struct model model;

    rig_init(n_destinations, 1000);
    rig.config.descriptors = descriptors;
    rig.config.n_descriptors = ARRAY_LEN(descriptors);
    rig.config.rate_bytes_per_s = rate_bytes_per_s;
    rig_open();
    int64_t start_ns = clock_unix_ns();
    ck_assert_int_eq(sender_start(rig.sender), 0);
    sender_stop(rig.sender);
    model = make_model(read_wire());
    expect_descriptors(&model, descriptors, ARRAY_LEN(descriptors), n_destinations);
    expect_stops(&model, n_destinations);
    for (size_t i = 0; i < n_destinations; i++)
        n_bytes += wire[i].n_bytes;
    ck_assert_double_gt((double)n_bytes / 8e6, 5e-3); /* or the pace would not show */
    ck_assert_double_lt((double)n_bytes / 8e6, 10e-3);
    for (size_t i = 0; i < n_destinations; i++) {
        double all_s = _i ? (double)SENDER_LATE_MAX_NS / 1e9 : (double)n_bytes / rate_bytes_per_s;
        double departure_ns = (double)n_gone / (double)n_bytes * all_s * 1e9;
        ck_assert_int_ge(wire[i].unix_ns - start_ns, (int64_t)departure_ns - SENDER_QUANTUM_NS - NS_PER_MS);
        n_gone += wire[i].n_bytes;
    }
    /* What they take of the data's time is no more than that. */
    ck_assert_double_le(rig.stream->pace.n_bytes / rate_bytes_per_s * 1e9, (double)SENDER_LATE_MAX_NS + 1);
}

/* ---- Several streams, and sinks that fail ------------------------------------------------------------------------ */

/* Receives all packets that have come.  Returns how many; owners[] has their heap counts modulo 2. */
static size_t receive_owners(struct recv_source *source, unsigned *owners, size_t max_packets)
{
    static uint8_t memory[PACKET_BATCH_MAX][256];
    struct packet_slot slots[PACKET_BATCH_MAX];
    size_t n = 0;

    for (;;) {
        for (size_t i = 0; i < PACKET_BATCH_MAX; i++)
            slots[i] = (struct packet_slot){.header = memory[i], .header_bytes = sizeof(memory[i])};
        int got = recv_source_recv(source, slots, PACKET_BATCH_MAX, 20 * NS_PER_MS);
        if (got <= 0)
            return n;
        for (int i = 0; i < got; i++) {
            struct spead_packet packet;

            ck_assert_int_eq(
                spead_parse(slots[i].header, slots[i].header_bytes, slots[i].packet_bytes, NULL, 0, &packet), SPEAD_OK);
            ck_assert_uint_lt(n, max_packets);
            owners[n++] = packet.heap_cnt % 2;
        }
    }
}

TEST(streams_take_turns)
{
    struct send_stream *streams[2];
    static struct send_stream_stats stats[2];
    unsigned owners[512];

    parse(&rig.destinations, "127.0.0.1:%d", free_port());
    struct recv_source *source = open_source(&rig.destinations, 3 << 20);
    ck_assert_int_eq(inbox_create(2, &return_to), 0);
    ck_assert_int_eq(sender_create("test-send", -1, 2, 2, &rig.sender), 0);
    for (size_t s = 0; s < 2; s++) {
        const struct send_stream_config config = {
            .name = "turns",
            .sink = {.destinations = &rig.destinations, .ttl = 1},
            .packet_payload_bytes = 8,
            .heap_cnt_start = s,
            .heap_cnt_step = 2,
            .max_jobs = 1,
            .stats = &stats[s],
        };

        ck_assert_int_eq(sender_add_stream(rig.sender, &config, &streams[s], why, sizeof(why)), 0);
        make_job(&jobs[s], 1);
        make_group(&jobs[s].job.groups[0], 250, 1, 8, false);
        sender_push(streams[s], &jobs[s].job);
    }
    ck_assert_int_eq(sender_start(rig.sender), 0);
    sender_stop(rig.sender);
    ck_assert_uint_eq(receive_owners(source, owners, ARRAY_LEN(owners)), 502);
    for (size_t i = 0, run = 0; i < 500; i++) { /* while both have packets, no more than a batch of one at a time */
        run = i > 0 && owners[i] == owners[i - 1] ? run + 1 : 1;
        ck_assert_uint_le(run, PACKET_SINK_BATCH_MAX);
    }
    assert_home(2);
    recv_source_close(source);
}

TEST(what_cannot_be_sent_is_counted_and_gone)
{
    uint64_t n_refused = 0, n_packets = 0;

    rig_init(2, 16);
    rig.config.sink.pcap_file = NULL;
    rig.config.sink.interface = "lo";
    inet_pton(AF_INET, "127.0.0.1", &rig.destinations.items[0].address);
    inet_pton(AF_INET, "127.0.0.1", &rig.destinations.items[1].address);
    rig.destinations.items[1].port = 0; /* to which nothing can be sent */
    rig_start();
    for (size_t j = 0; j < 4; j++) {
        make_job(&jobs[j], 1);
        make_group(&jobs[j].job.groups[0], 5, 2, 100, false);
        for (size_t i = 0; i < 5; i++) {
            const struct send_heap *heap = &jobs[j].job.groups[0].heaps[i];

            *(heap->destination ? &n_refused : &n_packets) += (heap->payload_bytes + 15) / 16;
        }
        sender_push(rig.stream, &jobs[j].job);
    }
    sender_stop(rig.sender);
    assert_home(4);
    ck_assert_uint_eq(counter_get(&rig.stats.packets), n_packets);
    ck_assert_uint_eq(counter_get(&rig.stats.failed), n_refused + 1); /* and a stop heap */
    ck_assert_uint_eq(counter_get(&rig.stats.heaps), 20);
}

TEST(a_full_disk_is_remembered)
{
    size_t n_packets = 0;

    rig_init(2, 16);
    rig.config.sink.pcap_file = "/dev/full";
    rig_open();
    ck_assert_uint_eq(sender_n_failed(rig.sender), 0);
    ck_assert_int_eq(sender_start(rig.sender), 0);
    make_job(&jobs[0], 1);
    make_group(&jobs[0].job.groups[0], 5, 2, 100, false);
    for (size_t i = 0; i < 5; i++)
        n_packets += (jobs[0].job.groups[0].heaps[i].payload_bytes + 15) / 16;
    sender_push(rig.stream, &jobs[0].job);
    sender_stop(rig.sender);
    assert_home(1);
    ck_assert_uint_eq(counter_get(&rig.stats.packets), 0);
    ck_assert_uint_eq(counter_get(&rig.stats.failed), n_packets + 2); /* and the stop heaps */
    ck_assert_uint_eq(sender_n_failed(rig.sender), n_packets + 2);
}

TEST(a_sender_that_never_started_gives_back)
{
    rig_init(1, 8);
    rig_open();
    make_job(&jobs[0], 1);
    make_group(&jobs[0].job.groups[0], 1, 1, 8, true);
    sender_push(rig.stream, &jobs[0].job);
    sender_stop(rig.sender);
    sender_destroy(rig.sender);
    rig.sender = NULL;
    assert_home(1);
}

TEST(a_sink_that_cannot_be_opened)
{
    struct send_stream *stream;

    rig_init(1, 8);
    rig.config.sink.pcap_file = NULL;
    rig.config.sink.interface = "no-such-if";
    rig.config.descriptors = descriptors;
    rig.config.n_descriptors = 1;
    ck_assert_int_eq(sender_create("test-send", -1, 1, MAX_JOBS, &rig.sender), 0);
    ck_assert_int_eq(sender_add_stream(rig.sender, &rig.config, &stream, why, sizeof(why)), -ENODEV);
    ck_assert_ptr_nonnull(strstr(why, "no-such-if"));
}

SUITE(.timeout_s = 60, .setup = make_file, .teardown = teardown, .start = random_start);
