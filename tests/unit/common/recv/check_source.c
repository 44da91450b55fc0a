/* check_source.c - packets out of a sink and into a source's landing slots, over loopback and in captures. */
#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/send/sink.h"
#include "common/recv/source.h"
#include "common/base/units.h"
#include "common/net/verbs.h"
#include "tests/unit/test_file.h"
#include "tests/unit/test_packets.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <inttypes.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POISON      0xa5
#define PACKET_MAX  2048
#define PATIENCE_NS (5 * NS_PER_S)

static char why[256];

/* Other runs of the tests share this host, so each has groups of its own. */

static int random_octet(void)
{
    return 1 + (int)random_below(250);
}

static struct recv_source *open_source(const struct endpoint_list *endpoints, size_t buffer_bytes,
                                       const char *pcap_file)
{
    const struct recv_source_config config = {
        .endpoints = endpoints, .interface = "lo", .buffer_bytes = buffer_bytes, .pcap_file = pcap_file};
    struct recv_source *source;

    ck_assert_msg(recv_source_open(&config, &source, why, sizeof(why)) == 0, "%s", why);
    return source;
}

static struct send_sink *open_sink(const struct endpoint_list *destinations, const char *pcap_file)
{
    const struct send_sink_config config = {
        .destinations = destinations, .interface = "lo", .ttl = 1, .buffer_bytes = 1 << 20, .pcap_file = pcap_file};
    struct send_sink *sink;

    ck_assert_msg(send_sink_open(&config, &sink, why, sizeof(why)) == 0, "%s", why);
    return sink;
}

/* Sends packet number 'packet' of 'n_bytes', split between header and payload at random. */
static size_t send_one(struct send_sink *sink, unsigned destination, unsigned packet, size_t n_bytes,
                       struct buffer_ref *ref)
{
    static uint8_t payload[PACKET_MAX];
    struct packet_out *out = send_sink_alloc(sink, 1);
    size_t most = n_bytes < PACKET_SINK_HEADER_MAX ? n_bytes : PACKET_SINK_HEADER_MAX;

    out->header_bytes = random_below(most + 1);
    out->payload_bytes = n_bytes - out->header_bytes;
    out->payload = payload;
    out->destination = destination;
    out->ref = ref;
    for (size_t i = 0; i < n_bytes; i++) {
        if (i < out->header_bytes)
            out->header[i] = pattern(packet, i);
        else
            payload[i - out->header_bytes] = pattern(packet, i);
    }
    return send_sink_send(sink, out, 1);
}

/* Slots with poisoned memory of their own, and a guard after each part. */
struct placement {
    struct packet_slot slots[PACKET_BATCH_MAX];
    uint8_t memory[PACKET_BATCH_MAX][3][PACKET_MAX];
};

static void make_landing(struct placement *placement, size_t header_bytes, size_t payload_bytes, size_t spill_bytes)
{
    memset(placement->memory, POISON, sizeof(placement->memory));
    for (size_t i = 0; i < PACKET_BATCH_MAX; i++)
        placement->slots[i] = (struct packet_slot){
            .header = placement->memory[i][0],
            .header_bytes = header_bytes,
            .payload = payload_bytes ? placement->memory[i][1] : NULL,
            .payload_bytes = payload_bytes,
            .spill = spill_bytes ? placement->memory[i][2] : NULL,
            .spill_bytes = spill_bytes,
            .packet_bytes = 77777,
            .endpoint = 77777,
        };
}

/* Of the case that runs. */
static struct {
    struct endpoint_list list;
    struct recv_source *source;
    struct send_sink *sink;
    struct placement placement;
} rig;

static void open_both(size_t buffer_bytes)
{
    rig.source = open_source(&rig.list, buffer_bytes, NULL);
    rig.sink = open_sink(&rig.list, NULL);
}

static void close_source(void)
{
    recv_source_close(rig.source);
    rig.source = NULL;
}

static void close_sink(void)
{
    send_sink_close(rig.sink);
    rig.sink = NULL;
}

static void close_all(void)
{
    close_sink();
    close_source();
    endpoint_list_fini(&rig.list);
    remove_file();
}

/* Receives into slots 'first' and on until 'n' packets have come. */
static void receive_n(struct recv_source *source, struct packet_slot *slots, size_t n)
{
    int64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;

    for (size_t i = 0; i < n;) {
        int got = recv_source_recv(source, slots + i, n - i, 10 * NS_PER_MS);

        ck_assert_int_ge(got, 0);
        i += (size_t)got;
        ck_assert_msg(clock_monotonic_ns() < deadline_ns, "%zu of %zu packets came", i, n);
    }
}

static void assert_slot(const struct packet_slot *slot, unsigned packet, size_t n_bytes, unsigned endpoint)
{
    const uint8_t *parts[] = {slot->header, slot->payload, slot->spill};
    const size_t sizes[] = {slot->header_bytes, slot->payload_bytes, slot->spill_bytes};
    size_t at = 0;

    ck_assert_uint_eq(slot->packet_bytes, n_bytes);
    ck_assert_uint_eq(slot->endpoint, endpoint);
    for (size_t part = 0; part < 3; part++) {
        for (size_t i = 0; parts[part] && i < sizes[part] + 16; i++) {
            bool inside = i < sizes[part] && at < n_bytes;

            ck_assert_uint_eq(parts[part][i], inside ? pattern(packet, at) : POISON);
            at += inside;
        }
    }
    ck_assert_int_eq(slot->truncated, at < n_bytes);
}

/* ---- Landing slots ----------------------------------------------------------------------------------------------- */

static const size_t landing_sizes[] = {0, 1, 71, 72, 73, 199, 200, 201, 263, 264, 265, 1400};

/* Receives what send_landing_sizes() sent and looks where the bytes fell. */
static void check_landing(struct recv_source *source)
{
    static struct placement placement;

    make_landing(&placement, 72, 128, 64);
    receive_n(source, placement.slots, ARRAY_LEN(landing_sizes));
    for (size_t i = 0; i < ARRAY_LEN(landing_sizes); i++)
        assert_slot(&placement.slots[i], (unsigned)i, landing_sizes[i], 0);
}

static void send_landing_sizes(struct send_sink *sink)
{
    for (size_t i = 0; i < ARRAY_LEN(landing_sizes); i++)
        ck_assert_uint_eq(send_one(sink, 0, (unsigned)i, landing_sizes[i], NULL), 1);
}

TEST(packets_fill_slots_in_order)
{
    parse(&rig.list, "239.77.%d.%d:%d", random_octet(), random_octet(), free_port());
    open_both(1 << 20);
    ck_assert(!recv_source_can_wait(rig.source));
    send_landing_sizes(rig.sink);
    check_landing(rig.source);
    ck_assert_uint_eq(recv_source_kernel_drops(rig.source), 0);
}

TEST(slots_may_lack_parts)
{
    parse(&rig.list, "127.0.0.1:%d", free_port());
    open_both(0);
    make_landing(&rig.placement, 72, 0, 0);
    ck_assert_uint_eq(send_one(rig.sink, 0, 3, 100, NULL), 1);
    receive_n(rig.source, rig.placement.slots, 1);
    assert_slot(&rig.placement.slots[0], 3, 100, 0);
    make_landing(&rig.placement, 72, 0, 200);
    ck_assert_uint_eq(send_one(rig.sink, 0, 4, 100, NULL), 1);
    receive_n(rig.source, rig.placement.slots, 1);
    assert_slot(&rig.placement.slots[0], 4, 100, 0);
}

TEST(copy_gathers_any_range)
{
    uint8_t bytes[12];
    uint8_t out[14];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(100 + i);
    for (size_t a = 0; a <= 12; a++) {
        for (size_t b = a; b <= 12; b++) {
            const struct packet_slot slot = {
                .header = bytes,
                .header_bytes = a,
                .payload = b > a ? bytes + a : NULL,
                .payload_bytes = b - a,
                .spill = 12 > b ? bytes + b : NULL,
                .spill_bytes = 12 - b,
                .packet_bytes = 12,
            };

            for (size_t offset = 0; offset <= 12; offset++) {
                for (size_t n = 0; offset + n <= 12; n++) {
                    memset(out, POISON, sizeof(out));
                    recv_packet_copy(&slot, offset, n, out + 1);
                    ck_assert_uint_eq(out[0], POISON);
                    ck_assert_mem_eq(out + 1, bytes + offset, n);
                    ck_assert_uint_eq(out[1 + n], POISON);
                }
            }
        }
    }
}

/* ---- Sockets ----------------------------------------------------------------------------------------------------- */

TEST(more_groups_than_a_socket_may_join)
{
    const int a = random_octet(), b = random_octet(), port = free_port();
    struct endpoint_list joined, sent;
    bool seen[25] = {false};

    parse(&joined, "239.%d.%d.1+24:%d", a, b, port);
    /* Also a group that nobody joined, and a joined one at another port. */
    parse(&sent, "239.%d.%d.1+25:%d 239.%d.%d.1:%d", a, b, port, a, b, port - 1);
    rig.source = open_source(&joined, 1 << 22, NULL);
    rig.sink = open_sink(&sent, NULL);
    make_landing(&rig.placement, 16, 0, 0);
    for (unsigned i = (unsigned)sent.n; i-- > 0;)
        ck_assert_uint_eq(send_one(rig.sink, i, i, 10, NULL), 1);
    receive_n(rig.source, rig.placement.slots, 25);
    for (size_t i = 0; i < 25; i++) {
        unsigned endpoint = rig.placement.slots[i].endpoint;

        ck_assert_uint_lt(endpoint, 25);
        ck_assert(!seen[endpoint]);
        seen[endpoint] = true;
        assert_slot(&rig.placement.slots[i], endpoint, 10, endpoint);
    }
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 10, 20 * NS_PER_MS), 0);
    close_sink();
    close_source();
    endpoint_list_fini(&joined);
    endpoint_list_fini(&sent);
}

/* Three groups, of which the first two have 200 packets each. */
static void open_busy_groups(void)
{
    parse(&rig.list, "239.78.%d.%d+2:%d", random_octet(), random_octet(), free_port());
    open_both(3 << 20);
    for (unsigned i = 0; i < 200; i++) {
        send_one(rig.sink, 0, i, 8, NULL);
        send_one(rig.sink, 1, i, 8, NULL);
    }
}

TEST(a_busy_group_starves_nobody)
{
    size_t n_before = 0;
    bool found = false;

    open_busy_groups();
    send_one(rig.sink, 2, 0, 8, NULL);
    while (!found) {
        int n;

        make_landing(&rig.placement, 16, 0, 0);
        n = recv_source_recv(rig.source, rig.placement.slots, 16, NS_PER_S);
        ck_assert_int_gt(n, 0);
        for (int i = 0; i < n; i++)
            found |= rig.placement.slots[i].endpoint == 2;
        n_before += (size_t)n;
    }
    ck_assert_uint_le(n_before, 3 * 16); /* one turn of each at most */
}

/* After the thread was held up all have a lot, but for one that was dry when it was asked which were ready. */
TEST(who_has_packets_later_waits_for_a_turn_of_the_others)
{
    size_t n_before = 0;
    int n = 0;

    open_busy_groups();
    make_landing(&rig.placement, 16, 0, 0);
    receive_n(rig.source, rig.placement.slots, 16);
    send_one(rig.sink, 2, 0, 8, NULL);
    while (n == 0 || rig.placement.slots[0].endpoint != 2) {
        make_landing(&rig.placement, 16, 0, 0);
        n = recv_source_recv(rig.source, rig.placement.slots, 16, NS_PER_S);
        ck_assert_int_gt(n, 0);
        n_before += (size_t)n;
    }
    ck_assert_uint_le(n_before, 3 * 16 + 1); /* the other's turn, and one of each */
}

TEST(every_receiver_of_a_group_gets_a_copy)
{
    struct recv_source *sources[2];

    parse(&rig.list, "239.79.%d.%d:%d", random_octet(), random_octet(), free_port());
    sources[0] = open_source(&rig.list, 0, NULL);
    sources[1] = open_source(&rig.list, 0, NULL);
    rig.sink = open_sink(&rig.list, NULL);
    send_one(rig.sink, 0, 5, 99, NULL);
    for (size_t i = 0; i < 2; i++) {
        make_landing(&rig.placement, 50, 50, 50);
        receive_n(sources[i], rig.placement.slots, 1);
        assert_slot(&rig.placement.slots[0], 5, 99, 0);
        recv_source_close(sources[i]);
    }
}

/* A SPEAD header of 'n_items' with this one at 'place', and 24 bytes of payload. */
static size_t make_item(uint8_t *bytes, uint16_t n_items, size_t place, uint16_t id, uint64_t value)
{
    memset(bytes, 0, 8 + 8 * (size_t)n_items + 24);
    memcpy(bytes, (const uint8_t[]){0x53, 4, 2, 6, 0, 0, (uint8_t)(n_items >> 8), (uint8_t)n_items}, 8);
    for (size_t i = 0; i < n_items; i++) {
        uint8_t *item = bytes + 8 + 8 * i;
        uint16_t this_id = i == place ? id : 0x8002;
        uint64_t this_value = i == place ? value : random_below(8);
        item[0] = (uint8_t)(this_id >> 8);
        item[1] = (uint8_t)this_id;
        for (int byte = 0; byte < 6; byte++)
            item[2 + byte] = (uint8_t)(this_value >> (40 - 8 * byte));
    }
    return 8 + 8 * (size_t)n_items + 24;
}

/* Two sockets that share a group: of each other's packets they get nothing but that there was one; of what is nobody's,
 * or no such packet at all, both get all.  None of that is a drop. */
TEST(sockets_share_a_group)
{
    static const struct packet_fanout shares[2] = {{0x4101, 2, 5}, {0x4101, 5, UINT64_MAX}};
    static const struct {
        uint16_t n_items;
        size_t place;
        uint16_t id;
        uint64_t value;
        bool whole[2];
    } packets[] = {
        {7, 5, 0xC101, 1, {false, false}},
        {7, 5, 0xC101, 2, {true, false}},
        {7, 5, 0xC101, 4, {true, false}},
        {7, 5, 0xC101, 5, {false, true}},
        {7, 5, 0xC101, 0xFFFFFFFF, {false, true}},
        {7, 5, 0xC101, (uint64_t)3 << 32, {true, true}}, /* beyond 32 bits: for the receivers to refuse */
        {1, 0, 0xC101, 3, {true, false}},
        {16, 15, 0xC101, 3, {true, false}},
        {17, 16, 0xC101, 3, {true, true}},
        {7, 5, 0x4101, 3, {true, true}}, /* an address */
        {7, 5, 0xC102, 3, {true, true}},
        {0, 0, 0, 0, {true, true}},
    };
    struct recv_source *sources[2];
    const size_t n_sent = ARRAY_LEN(packets) + 3;

    parse(&rig.list, "239.79.%d.%d:%d", random_octet(), random_octet(), free_port());
    for (size_t i = 0; i < 2; i++) {
        const struct recv_source_config config = {.endpoints = &rig.list, .interface = "lo", .share = &shares[i]};
        ck_assert_msg(recv_source_open(&config, &sources[i], why, sizeof(why)) == 0, "%s", why);
    }
    rig.sink = open_sink(&rig.list, NULL);
    for (size_t p = 0; p < n_sent; p++) {
        static uint8_t bytes[PACKET_MAX];
        struct packet_out *out = send_sink_alloc(rig.sink, 1);
        size_t n_bytes = p < ARRAY_LEN(packets)
                             ? make_item(bytes, packets[p].n_items, packets[p].place, packets[p].id, packets[p].value)
                             : 7 * (p - ARRAY_LEN(packets)); /* 0, 7 and 14 bytes of one */
        *out = (struct packet_out){.payload = bytes, .payload_bytes = n_bytes};
        ck_assert_uint_eq(send_sink_send(rig.sink, out, 1), 1);
    }
    for (size_t i = 0; i < 2; i++) {
        make_landing(&rig.placement, 8, 500, 0);
        receive_n(sources[i], rig.placement.slots, n_sent);
        for (size_t p = 0; p < n_sent; p++) {
            size_t n_bytes = 7 * (p - ARRAY_LEN(packets));
            if (p < ARRAY_LEN(packets))
                n_bytes = packets[p].whole[i] ? 8 + 8 * (size_t)packets[p].n_items + 24 : 0;
            ck_assert_msg(rig.placement.slots[p].packet_bytes == n_bytes,
                          "packet %zu: socket %zu has %zu bytes, not %zu", p, i, rig.placement.slots[p].packet_bytes,
                          n_bytes);
        }
        ck_assert_uint_eq(recv_source_kernel_drops(sources[i]), 0);
        recv_source_close(sources[i]);
    }
}

/* ---- Senders ----------------------------------------------------------------------------------------------------- */

/* The source gets each packet of a sender whole, as a message without its bytes, or not at all. */
enum gets { WHOLE, CUT, NOTHING };

static const char *const senders[] = {"127.0.0.1", "127.0.0.2", "127.3.0.4"}; /* the first may send in every case */

#define N_MESSAGE_PACKETS 3 /* of a message that the kernel need not take apart */
#define JOINED_BYTES      ((size_t)104)
#define ELEVEN_ADDRESSES                                                                                               \
    "127.0.0.1 127.8.0.1 127.8.0.2 127.8.0.3 127.8.0.4 127.8.0.5 127.8.0.6 127.8.0.7 127.8.0.8 "                       \
    "127.8.0.9 127.8.0.10"
#define FIFTEEN_NETWORKS(n)                                                                                            \
    "12" n ".1.0.0/16 12" n ".2.0.0/17 12" n ".3.0.0/18 12" n ".4.0.0/19 12" n ".5.0.0/20 12" n ".6.0.0/21 12" n       \
    ".7.0.0/22 12" n ".8.0.0/23 12" n ".9.0.0/24 12" n ".10.0.0/25 12" n ".11.0.0/26 12" n ".12.0.0/27 12" n           \
    ".13.0.0/28 12" n ".14.0.0/29 12" n ".15.0.0/30 "

static const struct packet_fanout even_share = {0x4101, 0, 2};
static const struct {
    const char *from;
    bool unicast;
    const struct packet_fanout *share;
    enum gets gets[ARRAY_LEN(senders)];
} sender_cases[] = {
    {NULL, false, NULL, {WHOLE, WHOLE, WHOLE}},
    {NULL, true, NULL, {WHOLE, WHOLE, WHOLE}},
    {"127.0.0.1", false, NULL, {WHOLE, NOTHING, NOTHING}}, /* the group is joined for this source */
    {"127.0.0.1", true, NULL, {WHOLE, CUT, CUT}},
    {"127.3.0.4, 127.0.0.1", false, NULL, {WHOLE, NOTHING, WHOLE}},
    {"127.0.0.0/31, 127.3.0.0/16", false, NULL, {WHOLE, CUT, WHOLE}},
    {"127.0.0.0/31, 127.3.0.0/16", true, NULL, {WHOLE, CUT, WHOLE}},
    {ELEVEN_ADDRESSES, false, NULL, {WHOLE, CUT, CUT}}, /* more than a group may have sources */
    {FIFTEEN_NETWORKS("4") FIFTEEN_NETWORKS("5") FIFTEEN_NETWORKS("6") FIFTEEN_NETWORKS("8") "127.3.0.4 127.0.0.1",
     false,
     NULL,
     {WHOLE, CUT, WHOLE}},
    {"127.0.0.0/31, 127.3.0.0/16", false, &even_share, {WHOLE, CUT, WHOLE}},
    {"127.0.0.0/31, 127.3.0.0/16", true, &even_share, {WHOLE, CUT, WHOLE}},
};

static int open_sender(const char *address)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    const struct in_addr lo = {.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    ck_assert_int_eq(inet_pton(AF_INET, address, &from.sin_addr), 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    ck_assert_int_eq(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof(lo)), 0);
    return fd;
}

static void send_message(int fd, const struct endpoint *to, const uint8_t *bytes, size_t n_bytes, int segment_bytes)
{
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(to->port), .sin_addr = to->address};

    ck_assert_int_eq(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes)), 0);
    ck_assert_int_eq(sendto(fd, bytes, n_bytes, 0, (const struct sockaddr *)&address, sizeof(address)), n_bytes);
}

/* The next packet that comes: who sent it, and its size. */
static size_t next_packet(struct recv_source *source, uint32_t *sender)
{
    static struct placement placement;

    make_landing(&placement, 8, PACKET_MAX, 0);
    receive_n(source, placement.slots, 1);
    *sender = placement.slots[0].sender;
    return placement.slots[0].packet_bytes;
}

/* Single packets and joined ones of each sender; a last one of the first sender shows that nothing else is to come. */
TEST(packets_of_others_are_cut_or_do_not_come, .end = ARRAY_LEN(sender_cases))
{
    static uint8_t bytes[N_MESSAGE_PACKETS * JOINED_BYTES];
    struct access from;
    int fds[ARRAY_LEN(senders)];
    uint32_t sender;

    if (sender_cases[_i].unicast)
        parse(&rig.list, "127.0.0.1:%d", free_port());
    else
        parse(&rig.list, "239.79.%d.%d:%d", random_octet(), random_octet(), free_port());
    ck_assert_int_eq(access_parse(sender_cases[_i].from, &from, why, sizeof(why)), 0);
    rig.list.items[0].from = &from;
    const struct recv_source_config config = {
        .endpoints = &rig.list, .interface = "lo", .share = sender_cases[_i].share};
    ck_assert_msg(recv_source_open(&config, &rig.source, why, sizeof(why)) == 0, "%s", why);
    for (size_t i = 0; i < N_MESSAGE_PACKETS; i++)
        make_item(bytes + i * JOINED_BYTES, 8, 3, 0xC101, 1);
    for (size_t i = 0; i < ARRAY_LEN(senders); i++) {
        fds[i] = open_sender(senders[i]);
        send_message(fds[i], &rig.list.items[0], bytes, JOINED_BYTES - i, 0);
        send_message(fds[i], &rig.list.items[0], bytes, sizeof(bytes), (int)JOINED_BYTES);
    }
    send_message(fds[0], &rig.list.items[0], bytes, 50, 0);
    for (size_t i = 0; i < ARRAY_LEN(senders); i++) {
        enum gets gets = sender_cases[_i].gets[i];
        for (size_t k = 0; k < (gets == WHOLE ? 1 + N_MESSAGE_PACKETS : gets == CUT ? 2 : 0); k++) {
            size_t n_bytes = next_packet(rig.source, &sender);
            ck_assert_uint_eq(sender, inet_addr(senders[i]));
            ck_assert_uint_eq(n_bytes, gets == CUT ? 0 : k == 0 ? JOINED_BYTES - i : JOINED_BYTES);
        }
        close(fds[i]);
    }
    ck_assert_uint_eq(next_packet(rig.source, &sender), 50);
    ck_assert_uint_eq(sender, inet_addr(senders[0]));
    ck_assert_uint_eq(recv_source_kernel_drops(rig.source), 0);
}

/* Single messages in a row end the lending of joined ones; those of a stranger, which are cut, do not. */
TEST(strangers_do_not_end_joined_packets)
{
    static uint8_t bytes[N_MESSAGE_PACKETS * JOINED_BYTES];
    struct access from;
    uint32_t sender;
    int ours = open_sender(senders[0]), stranger = open_sender(senders[1]);

    parse(&rig.list, "127.0.0.1:%d", free_port());
    ck_assert_int_eq(access_parse(senders[0], &from, why, sizeof(why)), 0);
    rig.list.items[0].from = &from;
    rig.source = open_source(&rig.list, 1 << 20, NULL);
    send_message(ours, &rig.list.items[0], bytes, sizeof(bytes), (int)JOINED_BYTES);
    for (size_t i = 0; i < N_MESSAGE_PACKETS; i++)
        ck_assert_uint_eq(next_packet(rig.source, &sender), JOINED_BYTES);
    for (int i = 0; i < 200; i++) {
        send_message(stranger, &rig.list.items[0], bytes, JOINED_BYTES, 0);
        ck_assert_uint_eq(next_packet(rig.source, &sender), 0);
        ck_assert(recv_source_is_zero_copy(rig.source));
    }
    for (int i = 0; i < 200; i++) {
        send_message(ours, &rig.list.items[0], bytes, JOINED_BYTES, 0);
        ck_assert_uint_eq(next_packet(rig.source, &sender), JOINED_BYTES);
    }
    ck_assert(!recv_source_is_zero_copy(rig.source));
    close(stranger);
    close(ours);
}

TEST(kernel_drops_are_counted)
{
    const unsigned n_sent = 300;
    uint64_t n_received = 0;
    int n;

    parse(&rig.list, "127.0.0.1:%d", free_port());
    open_both(8192);
    make_landing(&rig.placement, 72, 1000, 0);
    for (unsigned i = 0; i < n_sent; i++)
        send_one(rig.sink, 0, i, 1000, NULL);
    while ((n = recv_source_recv(rig.source, rig.placement.slots, PACKET_BATCH_MAX, 50 * NS_PER_MS)) > 0)
        n_received += (uint64_t)n;
    ck_assert_uint_lt(n_received, n_sent); /* or this tests nothing */
    ck_assert_uint_eq(n_received + recv_source_kernel_drops(rig.source), n_sent);
}

TEST(recv_waits_as_long_as_it_was_told)
{
    int64_t before_ns;

    parse(&rig.list, "127.0.0.1:%d", free_port());
    rig.source = open_source(&rig.list, 0, NULL);
    make_landing(&rig.placement, 72, 0, 0);
    before_ns = clock_monotonic_ns();
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 1, 0), 0);
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 1, 1500 * NS_PER_US), 0);
    ck_assert_int_ge(clock_monotonic_ns() - before_ns, 1500 * NS_PER_US);
}

/* How often this thread has slept. */
static long n_sleeps(void)
{
    struct rusage usage;

    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

TEST(who_polls_does_not_sleep, .end = 2)
{
    const int64_t timeout_ns = 5 * NS_PER_MS;
    long before;

    parse(&rig.list, _i == 0 ? "127.0.0.1:%d" : "127.0.0.1:%d 127.0.0.2:7148", free_port());
    struct recv_source_config config = {
        .endpoints = &rig.list, .buffer_bytes = 8 << 20, .busy_poll_ns = timeout_ns + NS_PER_US};
    ck_assert_msg(recv_source_open(&config, &rig.source, why, sizeof(why)) == 0, "%s", why);
    make_landing(&rig.placement, 72, 0, 0);
    before = n_sleeps();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 1, timeout_ns), 0);
    ck_assert_int_eq(n_sleeps(), before);
    close_source();

    /* For as long as it is told, and then it sleeps. */
    config.busy_poll_ns = timeout_ns / 5;
    ck_assert_msg(recv_source_open(&config, &rig.source, why, sizeof(why)) == 0, "%s", why);
    int64_t before_ns = clock_monotonic_ns();
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 1, timeout_ns), 0);
    ck_assert_int_ge(clock_monotonic_ns() - before_ns, timeout_ns);
    ck_assert_int_gt(n_sleeps(), before);
}

static void assert_no_source(const struct recv_source_config *config, int expected, const char *named)
{
    struct recv_source *source = NULL;

    why[0] = '\0';
    ck_assert_int_eq(recv_source_open(config, &source, why, sizeof(why)), expected);
    ck_assert_msg(strstr(why, named) != NULL, "\"%s\" does not name %s", why, named);
    ck_assert_ptr_null(source);
}

TEST(sources_that_cannot_be)
{
    struct endpoint_list own, foreign, group;
    char name[32];

    parse(&own, "127.0.0.1:%d", free_port());
    parse(&foreign, "192.0.2.1:7148");
    parse(&group, "239.80.1.1");
    rig.source = open_source(&own, 0, NULL);
    assert_no_source(&(struct recv_source_config){.endpoints = &own}, -EADDRINUSE,
                     endpoint_format(&own.items[0], name, sizeof(name)));
    assert_no_source(&(struct recv_source_config){.endpoints = &foreign}, -EADDRNOTAVAIL, "192.0.2.1:7148");
    assert_no_source(&(struct recv_source_config){.endpoints = &group, .interface = "no-such-if"}, -ENODEV,
                     "no-such-if");
    if (!verbs_built_in)
        assert_no_source(
            &(struct recv_source_config){.endpoints = &group, .interface = "lo", .transport = TRANSPORT_IBVERBS},
            -ENOTSUP, "built without ibverbs");
    close_source();
    recv_source_close(NULL);
    endpoint_list_fini(&own);
    endpoint_list_fini(&foreign);
    endpoint_list_fini(&group);
}

/* ---- Sinks ------------------------------------------------------------------------------------------------------- */

TEST(a_refused_packet_costs_only_itself)
{
    static uint8_t byte[PACKET_SINK_BATCH_MAX];
    struct endpoint_list good;
    struct packet_out *out;
    struct inbox *return_to;
    struct buffer_ref refs[PACKET_SINK_BATCH_MAX];
    struct inbox_item item;
    size_t n_good = 0;
    int last_errno;

    /* There is a way to port 0, but nothing can be sent there. */
    parse(&good, "127.0.0.1:%d", free_port());
    parse(&rig.list, "127.0.0.1:%u 127.0.0.1:7148", (unsigned)good.items[0].port);
    rig.list.items[1].port = 0;
    rig.source = open_source(&good, 1 << 20, NULL);
    rig.sink = open_sink(&rig.list, NULL);
    ck_assert_int_eq(inbox_create(PACKET_SINK_BATCH_MAX, &return_to), 0);
    out = send_sink_alloc(rig.sink, PACKET_SINK_BATCH_MAX);
    for (unsigned i = 0; i < PACKET_SINK_BATCH_MAX; i++) {
        byte[i] = (uint8_t)i;
        buffer_ref_init(&refs[i], return_to, (struct inbox_item){.value = i});
        buffer_ref_set(&refs[i], 1);
        out[i].header_bytes = 0;
        out[i].payload = &byte[i];
        out[i].payload_bytes = 1;
        out[i].ref = i % 7 == 0 ? NULL : &refs[i];
        out[i].destination = random_below(3) == 0;
        n_good += out[i].destination == 0;
    }
    ck_assert_uint_eq(send_sink_send(rig.sink, out, PACKET_SINK_BATCH_MAX), n_good);
    ck_assert_uint_eq(send_sink_n_failed(rig.sink, &last_errno), PACKET_SINK_BATCH_MAX - n_good);
    ck_assert_int_eq(last_errno, EINVAL);
    make_landing(&rig.placement, 1, 0, 0);
    receive_n(rig.source, rig.placement.slots, n_good);
    for (unsigned i = 0, k = 0; i < PACKET_SINK_BATCH_MAX; i++) {
        if (out[i].destination == 0)
            ck_assert_uint_eq(rig.placement.slots[k++].header[0], i);
        if (i % 7 != 0) {
            ck_assert_int_eq(inbox_try_pop(return_to, &item), 0);
            ck_assert_int_eq(item.value, i);
        }
    }
    ck_assert_int_eq(inbox_try_pop(return_to, &item), -EAGAIN);
    close_sink();
    close_source();
    inbox_destroy(return_to);
    endpoint_list_fini(&good);
}

TEST(a_deaf_host_costs_nothing)
{
    int last_errno;

    /* Nobody listens, so ICMP answers come back; they are about packets that left. */
    parse(&rig.list, "127.0.0.1:%d", free_port());
    rig.sink = open_sink(&rig.list, NULL);
    for (unsigned i = 0; i < 20; i++)
        ck_assert_uint_eq(send_one(rig.sink, 0, i, 100, NULL), 1);
    ck_assert_uint_eq(send_sink_n_failed(rig.sink, &last_errno), 0);
    send_sink_close(NULL);
}

TEST(sinks_that_cannot_be)
{
    parse(&rig.list, "239.80.1.1");
    ck_assert_int_eq(send_sink_open(&(struct send_sink_config){.destinations = &rig.list, .interface = "no-such-if"},
                                    &rig.sink, why, sizeof(why)),
                     -ENODEV);
    ck_assert_ptr_nonnull(strstr(why, "no-such-if"));
    ck_assert_int_eq(
        send_sink_open(&(struct send_sink_config){.destinations = &rig.list, .pcap_file = "/no/such/directory/file"},
                       &rig.sink, why, sizeof(why)),
        -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, "/no/such/directory/file"));
    ck_assert_int_eq(send_sink_open(&(struct send_sink_config){.destinations = &rig.list, .pcap_file = "/tmp"},
                                    &rig.sink, why, sizeof(why)),
                     -EISDIR);
}

/* And says nothing about it, for what fails next to be blamed on. */
TEST(a_capture_needs_no_interface)
{
    parse(&rig.list, "239.80.1.1");
    snprintf(why, sizeof(why), "untouched");
    ck_assert_int_eq(
        send_sink_open(
            &(struct send_sink_config){.destinations = &rig.list, .interface = "no-such-if", .pcap_file = "/dev/null"},
            &rig.sink, why, sizeof(why)),
        0);
    ck_assert_str_eq(why, "untouched");
}

TEST(a_full_disk_fails_from_the_first_packet_on)
{
    struct inbox_item item;
    struct inbox *return_to;
    struct buffer_ref ref;
    int last_errno;

    parse(&rig.list, "239.80.1.1");
    ck_assert_int_eq(inbox_create(1, &return_to), 0);
    buffer_ref_init(&ref, return_to, (struct inbox_item){.object = &ref});
    buffer_ref_set(&ref, 1);
    rig.sink = open_sink(&rig.list, "/dev/full");
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(send_one(rig.sink, 0, i, 100, i == 0 ? &ref : NULL), 0);
        ck_assert_uint_eq(send_sink_n_failed(rig.sink, &last_errno), i + 1);
        ck_assert_int_eq(last_errno, ENOSPC);
    }
    ck_assert_int_eq(inbox_try_pop(return_to, &item), 0);
    close_sink();
    inbox_destroy(return_to);
}

/* ---- Captures ---------------------------------------------------------------------------------------------------- */

TEST(capture_of_landing_sizes, .timeout_s = 60)
{
    parse(&rig.list, "239.1.2.3:7148");
    rig.sink = open_sink(&rig.list, file);
    send_landing_sizes(rig.sink);
    close_sink();
    rig.source = open_source(&rig.list, 0, file);
    ck_assert(recv_source_can_wait(rig.source));
    check_landing(rig.source);
}

TEST(capture_round_trip, .timeout_s = 60)
{
    struct endpoint_list sent, wanted;
    unsigned numbers[600];
    size_t sizes[600];
    unsigned endpoints[600];
    size_t n_wanted = 0, i = 0;
    int n;

    parse(&sent, "239.1.2.3+3:7148 239.1.2.3:7149 10.0.0.1:7148");
    parse(&wanted, "10.0.0.1:7148 239.1.2.5:7148 239.1.2.3:7149 239.200.0.1+100:7148");
    rig.sink = open_sink(&sent, file);
    for (unsigned k = 0; k < 600; k++) {
        unsigned destination = (unsigned)random_below(sent.n);
        size_t size = random_below(200);

        ck_assert_uint_eq(send_one(rig.sink, destination, k, size, NULL), 1);
        if (destination == 2 || destination >= 4) {
            numbers[n_wanted] = k;
            sizes[n_wanted] = size;
            endpoints[n_wanted++] = destination == 2 ? 1 : destination == 4 ? 2 : 0;
        }
    }
    close_sink();

    rig.source = open_source(&wanted, 0, file);
    for (;;) {
        size_t batch = 1 + random_below(PACKET_BATCH_MAX);

        make_landing(&rig.placement, 20, 100, 100);
        n = recv_source_recv(rig.source, rig.placement.slots, batch, 0);
        if (n < 0)
            break;
        ck_assert_int_gt(n, 0);
        for (size_t k = 0; k < (size_t)n; k++, i++) {
            ck_assert_uint_lt(i, n_wanted);
            assert_slot(&rig.placement.slots[k], numbers[i], sizes[i], endpoints[i]);
        }
    }
    ck_assert_int_eq(n, -ENODATA);
    ck_assert_uint_eq(i, n_wanted);
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 1, 0), -ENODATA);
    close_source();
    endpoint_list_fini(&sent);
    endpoint_list_fini(&wanted);
}

TEST(frames_are_as_on_the_wire, .timeout_s = 60)
{
    int64_t before_ns, after_ns;
    struct pcap_pkthdr *header;
    const uint8_t *frame;
    pcap_t *capture;
    uint32_t sum = 0;

    parse(&rig.list, "239.129.2.3:7150");
    rig.sink = open_sink(&rig.list, file);
    before_ns = clock_unix_ns();
    send_one(rig.sink, 0, 9, 101, NULL);
    after_ns = clock_unix_ns();
    close_sink();
    capture = pcap_open_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, why);
    ck_assert_ptr_nonnull(capture);
    ck_assert_int_eq(pcap_next_ex(capture, &header, &frame), 1);
    ck_assert_uint_eq(header->caplen, 14 + 20 + 8 + 101);
    ck_assert_int_ge(header->ts.tv_sec * NS_PER_S + header->ts.tv_usec, before_ns);
    ck_assert_int_le(header->ts.tv_sec * NS_PER_S + header->ts.tv_usec, after_ns);
    ck_assert_mem_eq(frame, "\x01\x00\x5e\x01\x02\x03", 6); /* the group's low 23 bits */
    ck_assert_mem_eq(frame + 12, "\x08\x00\x45", 3);
    for (size_t i = 14; i < 34; i += 2)
        sum += (uint32_t)frame[i] << 8 | frame[i + 1];
    ck_assert_uint_eq((sum & 0xffff) + (sum >> 16), 0xffff);
    ck_assert_uint_eq(frame[16] << 8 | frame[17], 20 + 8 + 101);
    ck_assert_mem_eq(frame + 26, "\x7f\x00\x00\x01\xef\x81\x02\x03", 8);
    ck_assert_uint_eq(frame[36] << 8 | frame[37], 7150);
    ck_assert_uint_eq(frame[38] << 8 | frame[39], 8 + 101);
    for (size_t i = 0; i < 101; i++)
        ck_assert_uint_eq(frame[42 + i], pattern(9, i));
    pcap_close(capture);
}

/* A frame written by hand: link header, then IPv4 to 239.1.2.3:7148 with 'payload' bytes 0, 1, 2, ... */
struct hand_made {
    const char *name;
    int link_type;
    const char *link;
    size_t link_bytes;
    int change_at; /* byte of the IP packet to change; -1: none */
    uint8_t change_to;
    size_t padding; /* after the datagram */
    size_t n_cut;   /* not captured */
    bool accepted;
};

#define LINK(text)        text, sizeof(text) - 1
#define MACS              "\x01\x00\x5e\x01\x02\x03\x02\x00\x00\x00\x00\x01"
#define HAND_MADE_PAYLOAD 24

static const struct hand_made hand_made[] = {
    {"Ethernet", DLT_EN10MB, LINK(MACS "\x08\x00"), -1, 0, 0, 0, true},
    {"VLAN", DLT_EN10MB, LINK(MACS "\x81\x00\x00\x07\x08\x00"), -1, 0, 0, 0, true},
    {"two VLAN tags", DLT_EN10MB, LINK(MACS "\x88\xa8\x00\x07\x81\x00\x00\x08\x08\x00"), -1, 0, 0, 0, true},
    {"padded", DLT_EN10MB, LINK(MACS "\x08\x00"), -1, 0, 6, 0, true},
    {"padded, padding cut", DLT_EN10MB, LINK(MACS "\x08\x00"), -1, 0, 6, 6, true},
    {"cut", DLT_EN10MB, LINK(MACS "\x08\x00"), -1, 0, 0, 1, false},
    {"cut in the UDP header", DLT_EN10MB, LINK(MACS "\x08\x00"), -1, 0, 0, HAND_MADE_PAYLOAD + 1, false},
    {"cut in the link header", DLT_EN10MB, LINK(MACS "\x08\x00"), -1, 0, 0, HAND_MADE_PAYLOAD + 28 + 1, false},
    {"cut in the VLAN tag", DLT_EN10MB, LINK(MACS "\x81\x00\x00\x07\x08\x00"), -1, 0, 0, HAND_MADE_PAYLOAD + 28 + 1,
     false},
    {"IPv6", DLT_EN10MB, LINK(MACS "\x86\xdd"), -1, 0, 0, 0, false},
    {"ARP", DLT_EN10MB, LINK(MACS "\x08\x06"), -1, 0, 0, 0, false},
    {"Linux cooked", DLT_LINUX_SLL, LINK("\0\0\0\1\0\6\0\0\0\0\0\0\0\0\x08\x00"), -1, 0, 0, 0, true},
    {"Linux cooked 2", DLT_LINUX_SLL2, LINK("\x08\x00\0\0\0\0\0\2\0\1\0\6\0\0\0\0\0\0\0\0"), -1, 0, 0, 0, true},
    {"raw IP", DLT_RAW, LINK(""), -1, 0, 0, 0, true},
    {"loopback, little-endian", DLT_NULL, LINK("\2\0\0\0"), -1, 0, 0, 0, true},
    {"loopback, big-endian", DLT_NULL, LINK("\0\0\0\2"), -1, 0, 0, 0, true},
    {"loopback, network order", DLT_LOOP, LINK("\0\0\0\2"), -1, 0, 0, 0, true},
    {"loopback, IPv6", DLT_NULL, LINK("\x1e\0\0\0"), -1, 0, 0, 0, false},
    {"IP version 6", DLT_RAW, LINK(""), 0, 0x65, 0, 0, false},
    {"IP header too short", DLT_RAW, LINK(""), 0, 0x44, 0, 0, false},
    {"IP header longer than the packet", DLT_RAW, LINK(""), 0, 0x4f, 0, 0, false},
    {"IP length beyond the frame", DLT_RAW, LINK(""), 3, 20 + 8 + HAND_MADE_PAYLOAD + 1, 0, 0, false},
    {"IP length within the header", DLT_RAW, LINK(""), 3, 27, 0, 0, false},
    {"first fragment", DLT_RAW, LINK(""), 6, 0x20, 0, 0, false},
    {"later fragment", DLT_RAW, LINK(""), 7, 0x01, 0, 0, false},
    {"don't fragment", DLT_RAW, LINK(""), 6, 0x40, 0, 0, true},
    {"TCP", DLT_RAW, LINK(""), 9, 6, 0, 0, false},
    {"another group", DLT_RAW, LINK(""), 19, 4, 0, 0, false},
    {"another port", DLT_RAW, LINK(""), 23, 0xed, 0, 0, false},
    {"UDP length beyond the packet", DLT_RAW, LINK(""), 25, 8 + HAND_MADE_PAYLOAD + 1, 0, 0, false},
    {"UDP length within the header", DLT_RAW, LINK(""), 25, 7, 0, 0, false},
};

static void write_hand_made(const struct hand_made *made)
{
    uint8_t frame[256] = {0};
    const uint8_t ip[28] = {
        0x45, 0,    0, 20 + 8 + HAND_MADE_PAYLOAD, 0, 0, 0, 0, 4, 17, 0, 0, 10, 0, 0, 1, 239, 1, 2, 3, 0x1b, 0xec,
        0x1b, 0xec, 0, 8 + HAND_MADE_PAYLOAD,      0, 0};
    struct pcap_pkthdr header = {0};
    pcap_t *format = pcap_open_dead(made->link_type, 65535);
    pcap_dumper_t *dumper = pcap_dump_open(format, file);
    uint8_t *at = frame + made->link_bytes;

    memcpy(frame, made->link, made->link_bytes);
    memcpy(at, ip, sizeof(ip));
    if (made->change_at >= 0)
        at[made->change_at] = made->change_to;
    for (size_t i = 0; i < HAND_MADE_PAYLOAD; i++)
        at[sizeof(ip) + i] = (uint8_t)i;
    header.len = (bpf_u_int32)(made->link_bytes + sizeof(ip) + HAND_MADE_PAYLOAD + made->padding);
    header.caplen = (bpf_u_int32)(header.len - made->n_cut);
    pcap_dump((u_char *)dumper, &header, frame);
    pcap_dump_close(dumper);
    pcap_close(format);
}

TEST(frames_of_every_kind, .end = ARRAY_LEN(hand_made), .timeout_s = 60)
{
    const struct hand_made *made = &hand_made[_i];
    int n;

    write_hand_made(made);
    parse(&rig.list, "239.1.2.2+1:7148");
    rig.source = open_source(&rig.list, 0, file);
    make_landing(&rig.placement, 100, 0, 0);
    n = recv_source_recv(rig.source, rig.placement.slots, 8, 0);
    ck_assert_msg(n == (made->accepted ? 1 : -ENODATA), "%s: %d", made->name, n);
    if (made->accepted) {
        ck_assert_uint_eq(rig.placement.slots[0].packet_bytes, HAND_MADE_PAYLOAD);
        ck_assert_uint_eq(rig.placement.slots[0].endpoint, 1);
        for (size_t i = 0; i < HAND_MADE_PAYLOAD; i++)
            ck_assert_uint_eq(rig.placement.slots[0].header[i], i);
        ck_assert_uint_eq(rig.placement.slots[0].header[HAND_MADE_PAYLOAD], POISON);
    }
}

TEST(captures_that_cannot_be_read, .timeout_s = 60)
{
    parse(&rig.list, "239.1.2.3");
    assert_no_source(&(struct recv_source_config){.endpoints = &rig.list, .pcap_file = "/no/such/file"}, -ENOENT,
                     "/no/such/file");
    assert_no_source(&(struct recv_source_config){.endpoints = &rig.list, .pcap_file = "/tmp"}, -EISDIR, "/tmp");
    assert_no_source(&(struct recv_source_config){.endpoints = &rig.list, .pcap_file = "/dev/zero"}, -EINVAL, "FIFO");
    ck_assert_int_eq(truncate(file, 0), 0);
    assert_no_source(&(struct recv_source_config){.endpoints = &rig.list, .pcap_file = file}, -EINVAL, file);
    write_hand_made(&(struct hand_made){.link_type = DLT_IEEE802_11, .link = "", .change_at = -1});
    assert_no_source(&(struct recv_source_config){.endpoints = &rig.list, .pcap_file = file}, -EINVAL, file);
}

/* Neither end of a FIFO waits for the other when it is opened, and recv() for no longer than it may. */
TEST(captures_through_a_fifo, .timeout_s = 60)
{
    char path[80];

    snprintf(path, sizeof(path), "%s.fifo", file);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    parse(&rig.list, "239.1.2.3");
    ck_assert_int_eq(send_sink_open(&(struct send_sink_config){.destinations = &rig.list, .pcap_file = path}, &rig.sink,
                                    why, sizeof(why)),
                     -ENXIO);
    ck_assert_ptr_nonnull(strstr(why, "nobody reads this FIFO"));
    rig.source = open_source(&rig.list, 0, path);
    make_landing(&rig.placement, 72, 128, 64);
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 10, 0), 0);
    rig.sink = open_sink(&rig.list, path);
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 10, 0), 0);
    send_landing_sizes(rig.sink);
    close_sink();
    check_landing(rig.source);
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 10, 0), -ENODATA);
    ck_assert_int_eq(recv_source_recv(rig.source, rig.placement.slots, 10, 0), -ENODATA);
    ck_assert_int_eq(unlink(path), 0);
}

/* A capture of a few packets, in memory. */
static size_t read_capture(uint8_t *bytes, size_t room)
{
    struct endpoint_list list;
    struct send_sink *sink;
    FILE *in;
    size_t n;

    parse(&list, "239.1.2.3");
    sink = open_sink(&list, file);
    for (unsigned i = 0; i < 6; i++)
        send_one(sink, 0, i, 80, NULL);
    send_sink_close(sink);
    endpoint_list_fini(&list);
    in = fopen(file, "rb");
    n = fread(bytes, 1, room, in);
    fclose(in);
    return n;
}

/* Reads what can be read.  Returns the number of packets, or -1 if the file is refused; stores how it ended. */
static int count_packets(const uint8_t *bytes, size_t n_bytes, int *end)
{
    static struct placement placement;
    struct endpoint_list list;
    struct recv_source *source;
    size_t batch = 1 + random_below(PACKET_BATCH_MAX);
    int n, total = 0;
    FILE *out = fopen(file, "wb");

    ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, out), n_bytes);
    fclose(out);
    parse(&list, "239.1.2.3");
    make_landing(&placement, 40, 20, 20);
    if (recv_source_open(&(struct recv_source_config){.endpoints = &list, .pcap_file = file}, &source, why,
                         sizeof(why))) {
        total = -1;
    } else {
        while ((n = recv_source_recv(source, placement.slots, batch, 0)) > 0)
            total += n;
        *end = n;
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(recv_source_recv(source, placement.slots, batch, 0), *end);
        recv_source_close(source);
    }
    endpoint_list_fini(&list);
    return total;
}

/* What the source has to say about such captures would fill the screen. */
static void silence(void)
{
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
}

TEST(a_capture_cut_short_is_read_up_to_there, .timeout_s = 60)
{
    uint8_t bytes[2048];
    size_t n_bytes = read_capture(bytes, sizeof(bytes));
    const size_t file_header_bytes = 24;
    const size_t record_bytes = 16 + 14 + 20 + 8 + 80;

    silence();
    ck_assert_uint_eq(n_bytes, file_header_bytes + 6 * record_bytes);
    for (size_t n = file_header_bytes; n <= n_bytes; n++) {
        /* Between two packets nothing shows that there were more. */
        bool whole = (n - file_header_bytes) % record_bytes == 0;
        int end = 0;

        ck_assert_int_eq(count_packets(bytes, n, &end), (int)((n - file_header_bytes) / record_bytes));
        ck_assert_int_eq(end, whole ? -ENODATA : -EIO);
    }
    ck_assert_int_eq(count_packets(bytes, file_header_bytes - 1, NULL), -1);
}

TEST(a_damaged_capture_does_no_harm, .timeout_s = 60)
{
    uint8_t good[2048], bad[2048];
    size_t n_bytes = read_capture(good, sizeof(good));

    silence();
    for (size_t trial = 0; trial < 500; trial++) {
        memcpy(bad, good, n_bytes);
        for (size_t n_blows = 1 + random_below(4); n_blows > 0; n_blows--)
            bad[random_below(n_bytes)] = (uint8_t)random_u64();
        int end = -ENODATA;

        ck_assert_int_le(count_packets(bad, n_bytes, &end), 6);
        ck_assert(end == -ENODATA || end == -EIO);
    }
}

SUITE(.setup = make_file, .teardown = close_all, .start = random_start);
