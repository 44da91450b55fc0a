/* frame.h - Ethernet frames around UDP datagrams over IPv4, for captures and raw packet queues.
 *
 * The functions are pure.  They write frames without IP options, VLAN tags and fragmentation.  When they read frames,
 * they skip IP options and VLAN tags, and refuse fragments. */
#ifndef COMMON_NET_FRAME_H
#define COMMON_NET_FRAME_H

#include "common/net/endpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_ETHERNET_BYTES 14
#define FRAME_IP_BYTES       20
#define FRAME_UDP_BYTES      8
#define FRAME_HEADER_BYTES   42 /* total size of the three headers */
#define FRAME_TAGS_BYTES     8  /* room for two VLAN tags in a received frame */
#define FRAME_PAYLOAD_MAX    (UINT16_MAX - FRAME_IP_BYTES - FRAME_UDP_BYTES)

struct frame_addresses {
    uint8_t mac[6];   /* of the sender */
    uint32_t address; /* IPv4 address of the sender, network order */
    uint16_t port;    /* of the sender */
    uint8_t ttl;
};

/* Computes the Ethernet address of a multicast group (RFC 1112, 6.4). */
void frame_group_mac(struct in_addr group, uint8_t mac[6]);

/* Writes the headers of a datagram of 'n_bytes' (<= FRAME_PAYLOAD_MAX), with the IPv4 checksum and without a UDP
 * checksum.  'to_mac' is the destination's Ethernet address; NULL: the address of the multicast group 'to'. */
void frame_put(uint8_t out[FRAME_HEADER_BYTES], const struct frame_addresses *from, const struct endpoint *to,
               const uint8_t *to_mac, size_t n_bytes);

/* Changes the size of the datagram in a frame whose header frame_put() wrote. */
void frame_set_bytes(uint8_t frame[FRAME_HEADER_BYTES], size_t n_bytes);

struct frame_datagram {
    const uint8_t *bytes;
    size_t n_bytes;    /* size of the payload, from the UDP header */
    size_t n_captured; /* number of payload bytes in the frame; < n_bytes only if a capture cut the frame short */
    uint32_t sender;   /* the sender's address, network order */
    uint32_t address;  /* destination, network order */
    uint16_t port;     /* destination, host order */
};

/* Finds the datagram in a complete Ethernet frame.  Returns 0, or -EINVAL if the frame has no complete UDP datagram
 * over IPv4.  If 'check_ip' is true, also returns -EINVAL if the checksum of the IPv4 header is wrong. */
int frame_parse_udp(const uint8_t *frame, size_t n_bytes, bool check_ip, struct frame_datagram *datagram);

/* The rest of a frame after the headers that have been parsed.  A capture may have cut the frame short. */
struct frame_rest {
    const uint8_t *at;
    size_t n_captured;
    size_t n_bytes; /* length on the wire: >= n_captured */
};

/* Removes the link header of 'n_bytes', and VLAN tags after it, from the beginning of 'frame'.  The header's EtherType
 * is at byte 'type_at'.  Returns 0, or -EINVAL if the next header is not IPv4. */
int frame_parse_link(struct frame_rest *frame, size_t n_bytes, size_t type_at);

/* Finds the datagram in a frame that begins with an IPv4 header.  Returns 0 or -EINVAL.  Does not check checksums. */
int frame_parse_ip(const struct frame_rest *frame, struct frame_datagram *datagram);

#endif
