/* check_frame.c - headers of datagrams, byte for byte as in the standards, and which bytes pass as a header. */
#include "common/net/frame.h"
#include "common/recv/source.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Five bytes from 10.1.2.3:4660, 02:11:22:33:44:55, to 239.129.7.9:7148 with TTL 4; the checksum from another
 * implementation. */
static const uint8_t headers[FRAME_HEADER_BYTES] = {
    0x01, 0x00, 0x5e, 0x01, 0x07, 0x09, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x08, 0x00, /* Ethernet */
    0x45, 0x00, 0x00, 0x21, 0x00, 0x00, 0x40, 0x00, 0x04, 0x11,                         /* IPv4 */
    0x74, 0x3e, 10,   1,    2,    3,    239,  129,  7,    9,                            /* its checksum and addresses */
    0x12, 0x34, 0x1b, 0xec, 0x00, 0x0d, 0x00, 0x00,                                     /* UDP */
};
static const uint8_t text[5] = "SPEAD";

#define IP  FRAME_ETHERNET_BYTES
#define UDP (IP + FRAME_IP_BYTES)

/* A frame in memory of exactly its size, so that a sanitizer sees what is read behind. */
struct frame {
    size_t n_bytes;
    uint8_t *bytes;
};

static struct frame make_frame(size_t n_more)
{
    struct frame frame = {sizeof(headers) + sizeof(text) + n_more, NULL};

    frame.bytes = malloc(frame.n_bytes);
    memcpy(frame.bytes, headers, sizeof(headers));
    memcpy(frame.bytes + sizeof(headers), text, sizeof(text));
    random_bytes(frame.bytes + sizeof(headers) + sizeof(text), n_more);
    return frame;
}

/* Puts 'n' bytes in at 'at'. */
static void insert(struct frame *frame, size_t at, const uint8_t *bytes, size_t n)
{
    uint8_t *longer = malloc(frame->n_bytes + n);

    memcpy(longer, frame->bytes, at);
    memcpy(longer + at, bytes, n);
    memcpy(longer + at + n, frame->bytes + at, frame->n_bytes - at);
    free(frame->bytes);
    *frame = (struct frame){frame->n_bytes + n, longer};
}

static int peel(const struct frame *frame, struct frame_datagram *datagram)
{
    return frame_parse_udp(frame->bytes, frame->n_bytes, true, datagram);
}

static void assert_datagram(struct frame *frame)
{
    struct frame_datagram datagram;

    ck_assert_int_eq(peel(frame, &datagram), 0);
    ck_assert_uint_eq(datagram.n_bytes, sizeof(text));
    ck_assert_uint_eq(datagram.n_captured, sizeof(text));
    ck_assert_mem_eq(datagram.bytes, text, sizeof(text));
    ck_assert_uint_eq(ntohl(datagram.address), 0xef810709);
    ck_assert_uint_eq(datagram.port, 7148);
    ck_assert_uint_eq(ntohl(datagram.sender), 0x0a010203);
    free(frame->bytes);
}

TEST(written)
{
    const struct frame_addresses from = {
        .mac = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55},
        .address = inet_addr("10.1.2.3"),
        .port = 4660,
        .ttl = 4,
    };
    const struct endpoint to = {.address.s_addr = inet_addr("239.129.7.9"), .port = 7148};
    const uint8_t host[6] = {0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
    uint8_t out[FRAME_HEADER_BYTES];

    memset(out, 0xa5, sizeof(out));
    frame_put(out, &from, &to, NULL, sizeof(text));
    ck_assert_mem_eq(out, headers, sizeof(headers));
    frame_put(out, &from, &to, host, sizeof(text));
    ck_assert_mem_eq(out, host, sizeof(host));
    ck_assert_mem_eq(out + 6, headers + 6, sizeof(headers) - 6);
    frame_put(out, &from, &to, NULL, FRAME_PAYLOAD_MAX);
    ck_assert_uint_eq(out[IP + 2] << 8 | out[IP + 3], 65535);
    ck_assert_uint_eq(out[UDP + 4] << 8 | out[UDP + 5], 65515);
}

/* A header that is changed from size to size is the one that is written for that size. */
TEST(resized)
{
    uint8_t frame[FRAME_HEADER_BYTES], expected[FRAME_HEADER_BYTES];

    for (int k = 0; k < 1000; k++) {
        struct frame_addresses from = {.address = (uint32_t)random_u64(), .port = (uint16_t)random_u64(), .ttl = 1};
        struct endpoint to = {.address.s_addr = (uint32_t)random_u64(), .port = 7148};
        frame_put(frame, &from, &to, NULL, random_below(FRAME_PAYLOAD_MAX + 1));
        for (int i = 0; i < 100; i++) {
            size_t n_bytes = random_below(FRAME_PAYLOAD_MAX + 1);
            frame_set_bytes(frame, n_bytes);
            frame_put(expected, &from, &to, NULL, n_bytes);
            ck_assert_mem_eq(frame, expected, sizeof(frame));
        }
    }
}

TEST(read_back)
{
    struct frame frame = make_frame(0);

    assert_datagram(&frame);
    frame = make_frame(13); /* padding */
    assert_datagram(&frame);
}

TEST(tags_and_options_are_skipped)
{
    const uint8_t tags[] = {0x88, 0xa8, 0x00, 0x07, 0x91, 0x00, 0x00, 0x08, 0x81, 0x00, 0x60, 0x09};
    const uint8_t options[] = {1, 1, 1, 1, 1, 1, 1, 0}; /* no operation, end of list */
    struct frame_datagram datagram;

    for (size_t n = 4; n <= sizeof(tags); n += 4) {
        struct frame frame = make_frame(3);
        insert(&frame, 12, tags + sizeof(tags) - n, n);
        assert_datagram(&frame);
    }
    struct frame frame = make_frame(0);
    insert(&frame, UDP, options, sizeof(options));
    frame.bytes[IP] += sizeof(options) / 4;
    frame.bytes[IP + 3] += sizeof(options);
    ck_assert_int_eq(peel(&frame, &datagram), -EINVAL); /* the checksum was another's */
    /* Less two words of header in its first word, eight bytes of length in the second, and the options. */
    uint32_t less = 0x0200 + 8 + 3 * 0x0101 + 0x0100;
    frame.bytes[IP + 10] = (uint8_t)((0x743e - less) >> 8);
    frame.bytes[IP + 11] = (uint8_t)(0x743e - less);
    assert_datagram(&frame);
}

/* What is wrong with a frame when the byte at 'at' is 'value'; its checksum is not looked at. */
TEST(not_datagrams)
{
    static const struct {
        size_t at;
        uint8_t value;
        const char *what;
    } cases[] = {
        {12, 0x86, "not IPv4"},
        {13, 0x06, "ARP"},
        {IP, 0x65, "version 6"},
        {IP, 0x44, "a header of four words"},
        {IP, 0x48, "a header beyond the datagram"},
        {IP + 2, 0x01, "longer than the frame"},
        {IP + 3, 0x1b, "too short for UDP's header"},
        {IP + 6, 0x20, "more fragments"},
        {IP + 6, 0x01, "a fragment"},
        {IP + 7, 0x01, "a fragment"},
        {IP + 9, 6, "TCP"},
        {UDP + 4, 0x01, "a datagram beyond the packet"},
        {UDP + 5, 0x0e, "a datagram beyond the packet"},
        {UDP + 5, 0x07, "a datagram shorter than its header"},
    };
    struct frame_datagram datagram;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct frame frame = make_frame(0);
        frame.bytes[cases[i].at] = cases[i].value;
        ck_assert_msg(frame_parse_udp(frame.bytes, frame.n_bytes, false, &datagram) == -EINVAL, "%s", cases[i].what);
        free(frame.bytes);
    }
}

/* One bit of the header that no other check looks at. */
TEST(the_checksum)
{
    struct frame_datagram datagram;
    struct frame frame = make_frame(0);

    frame.bytes[IP + 13] ^= (uint8_t)(1 << random_below(8));
    ck_assert_int_eq(frame_parse_udp(frame.bytes, frame.n_bytes, true, &datagram), -EINVAL);
    ck_assert_int_eq(frame_parse_udp(frame.bytes, frame.n_bytes, false, &datagram), 0);
    free(frame.bytes);
}

TEST(cut_short)
{
    struct frame_datagram datagram;

    for (size_t n = 0; n < sizeof(headers) + sizeof(text); n++) {
        uint8_t *bytes = malloc(n ? n : 1);
        memcpy(bytes, headers, n < sizeof(headers) ? n : sizeof(headers));
        ck_assert_int_eq(frame_parse_udp(bytes, n, true, &datagram), -EINVAL);
        if (n >= sizeof(headers)) { /* a capture's */
            struct frame_rest rest = {bytes, n, sizeof(headers) + sizeof(text)};
            ck_assert_int_eq(frame_parse_link(&rest, FRAME_ETHERNET_BYTES, 12), 0);
            ck_assert_int_eq(frame_parse_ip(&rest, &datagram), 0);
            ck_assert_uint_eq(datagram.n_bytes, sizeof(text));
            ck_assert_uint_eq(datagram.n_captured, n - sizeof(headers));
        }
        free(bytes);
    }
}

/* Anything: nothing outside of the frame is read, and what is found lies in it. */
TEST(any_bytes)
{
    for (int i = 0; i < 200000; i++) {
        struct frame frame = make_frame(random_below(20));
        struct frame_datagram datagram;

        for (size_t n = 1 + random_below(3); n > 0; n--)
            frame.bytes[random_below(frame.n_bytes)] = (uint8_t)random_u64();
        if (frame_parse_udp(frame.bytes, frame.n_bytes, random_below(2), &datagram) == 0) {
            ck_assert(datagram.bytes >= frame.bytes + FRAME_HEADER_BYTES);
            ck_assert(datagram.bytes + datagram.n_bytes <= frame.bytes + frame.n_bytes);
            ck_assert_uint_eq(datagram.n_captured, datagram.n_bytes);
        }
        free(frame.bytes);
    }
}

/* ---- Whose it is ------------------------------------------------------------------------------------------------- */

TEST(endpoints_are_found)
{
    struct endpoint items[7];
    struct endpoint_list list = {sizeof(items) / sizeof(items[0]), items};
    struct recv_endpoints endpoints;

    for (size_t i = 0; i < list.n; i++)
        items[i] = (struct endpoint){.address.s_addr = htonl(0xef000000 + (uint32_t)(i * 37 % 5)),
                                     .port = (uint16_t)(7000 + i * 3 % 4)};
    ck_assert_int_eq(recv_endpoints_init(&list, &endpoints), 0);
    for (int i = 0; i < 10000; i++) {
        uint32_t address = htonl(0xef000000 + (uint32_t)random_below(6));
        uint16_t port = (uint16_t)(6999 + random_below(6));
        int expected = -1;

        for (size_t k = list.n; k-- > 0;)
            if (items[k].address.s_addr == address && items[k].port == port)
                expected = (int)k;
        ck_assert_int_eq(recv_endpoints_find(&endpoints, address, port), expected);
    }
    recv_endpoints_fini(&endpoints);
}

SUITE(.timeout_s = 60, .start = random_start);
