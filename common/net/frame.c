/* frame.c - see frame.h.  Standards: IEEE 802.3 (Ethernet), 802.1Q (VLAN), RFC 791 (IPv4), RFC 768 (UDP). */
#include "common/net/frame.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <string.h>

#define ETHERTYPE_IPV4           0x0800
#define ETHERTYPE_VLAN           0x8100
#define ETHERTYPE_VLAN_OUTER     0x88a8
#define ETHERTYPE_VLAN_OUTER_OLD 0x9100
#define VLAN_TAG_BYTES           4
#define IP_DONT_FRAGMENT         0x4000
#define IP_FRAGMENT_MASK         0x3fff /* bits of the flag "more fragments" and of the fragment offset */

static unsigned get_u16(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static void put_u16(uint8_t *out, unsigned value)
{
    out[0] = (uint8_t)(value >> 8);
    out[1] = (uint8_t)value;
}

/* Returns the complement of the ones' complement sum of 16-bit words (RFC 1071).  Returns 0 for a header whose checksum
 * is right. */
static unsigned ip_checksum(const uint8_t *header, size_t n_bytes)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < n_bytes; i += 2)
        sum += get_u16(header + i);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return ~sum & 0xffff;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

void frame_group_mac(struct in_addr group, uint8_t mac[6])
{
    uint32_t address = ntohl(group.s_addr);
    const uint8_t bytes[6] = {0x01, 0x00, 0x5e, address >> 16 & 0x7f, address >> 8 & 0xff, address & 0xff};

    memcpy(mac, bytes, sizeof(bytes));
}

static void put_ip(uint8_t *out, const struct frame_addresses *from, const struct endpoint *to, size_t udp_bytes)
{
    memset(out, 0, FRAME_IP_BYTES);
    out[0] = 0x45; /* IP version 4; the header has five 32-bit words */
    put_u16(out + 2, (unsigned)(FRAME_IP_BYTES + udp_bytes));
    put_u16(out + 6, IP_DONT_FRAGMENT);
    out[8] = from->ttl;
    out[9] = IPPROTO_UDP;
    memcpy(out + 12, &from->address, 4);
    memcpy(out + 16, &to->address, 4);
    put_u16(out + 10, ip_checksum(out, FRAME_IP_BYTES));
}

static void put_udp(uint8_t *out, const struct frame_addresses *from, const struct endpoint *to, size_t udp_bytes)
{
    put_u16(out, from->port);
    put_u16(out + 2, to->port);
    put_u16(out + 4, (unsigned)udp_bytes);
    put_u16(out + 6, 0); /* no checksum */
}

void frame_put(uint8_t out[FRAME_HEADER_BYTES], const struct frame_addresses *from, const struct endpoint *to,
               const uint8_t *to_mac, size_t n_bytes)
{
    size_t udp_bytes = FRAME_UDP_BYTES + n_bytes;

    assert(n_bytes <= FRAME_PAYLOAD_MAX);
    if (to_mac)
        memcpy(out, to_mac, 6);
    else
        frame_group_mac(to->address, out);
    memcpy(out + 6, from->mac, 6);
    put_u16(out + 12, ETHERTYPE_IPV4);
    put_ip(out + FRAME_ETHERNET_BYTES, from, to, udp_bytes);
    put_udp(out + FRAME_ETHERNET_BYTES + FRAME_IP_BYTES, from, to, udp_bytes);
}

/* Updates the checksum as in RFC 1624: adds the new length and the complement of the old length to the complement of
 * the checksum. */
void frame_set_bytes(uint8_t frame[FRAME_HEADER_BYTES], size_t n_bytes)
{
    uint8_t *ip = frame + FRAME_ETHERNET_BYTES, *udp = ip + FRAME_IP_BYTES;
    unsigned udp_bytes = (unsigned)(FRAME_UDP_BYTES + n_bytes), ip_bytes = FRAME_IP_BYTES + udp_bytes;
    uint32_t sum = (~get_u16(ip + 10) & 0xffff) + (~get_u16(ip + 2) & 0xffff) + ip_bytes;

    assert(n_bytes <= FRAME_PAYLOAD_MAX);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put_u16(ip + 2, ip_bytes);
    put_u16(ip + 10, ~sum & 0xffff);
    put_u16(udp + 4, udp_bytes);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static void skip(struct frame_rest *frame, size_t n_bytes)
{
    assert(n_bytes <= frame->n_captured);
    frame->at += n_bytes;
    frame->n_captured -= n_bytes;
    frame->n_bytes -= n_bytes;
}

int frame_parse_link(struct frame_rest *frame, size_t n_bytes, size_t type_at)
{
    if (frame->n_captured < n_bytes)
        return -EINVAL;
    unsigned type = get_u16(frame->at + type_at);
    skip(frame, n_bytes);
    while (type == ETHERTYPE_VLAN || type == ETHERTYPE_VLAN_OUTER || type == ETHERTYPE_VLAN_OUTER_OLD) {
        if (frame->n_captured < VLAN_TAG_BYTES)
            return -EINVAL;
        type = get_u16(frame->at + 2);
        skip(frame, VLAN_TAG_BYTES);
    }
    return type == ETHERTYPE_IPV4 ? 0 : -EINVAL;
}

int frame_parse_ip(const struct frame_rest *frame, struct frame_datagram *datagram)
{
    const uint8_t *ip = frame->at;

    if (frame->n_captured < FRAME_IP_BYTES || ip[0] >> 4 != 4)
        return -EINVAL;
    size_t header_bytes = 4 * (size_t)(ip[0] & 0xf);
    size_t ip_bytes = get_u16(ip + 2);
    bool is_fragment = get_u16(ip + 6) & IP_FRAGMENT_MASK;
    if (ip[9] != IPPROTO_UDP || is_fragment || header_bytes < FRAME_IP_BYTES ||
        ip_bytes < header_bytes + FRAME_UDP_BYTES || ip_bytes > frame->n_bytes ||
        frame->n_captured < header_bytes + FRAME_UDP_BYTES)
        return -EINVAL;
    const uint8_t *udp = ip + header_bytes;
    size_t udp_bytes = get_u16(udp + 4);
    if (udp_bytes < FRAME_UDP_BYTES || udp_bytes > ip_bytes - header_bytes)
        return -EINVAL;
    /* The bytes after the datagram are the padding of a short frame, or the frame's checksum. */
    size_t n_captured = frame->n_captured - header_bytes - FRAME_UDP_BYTES;
    datagram->bytes = udp + FRAME_UDP_BYTES;
    datagram->n_bytes = udp_bytes - FRAME_UDP_BYTES;
    datagram->n_captured = n_captured < datagram->n_bytes ? n_captured : datagram->n_bytes;
    memcpy(&datagram->sender, ip + 12, 4);
    memcpy(&datagram->address, ip + 16, 4);
    datagram->port = (uint16_t)get_u16(udp + 2);
    return 0;
}

int frame_parse_udp(const uint8_t *frame, size_t n_bytes, bool check_ip, struct frame_datagram *datagram)
{
    struct frame_rest rest = {frame, n_bytes, n_bytes};

    if (frame_parse_link(&rest, FRAME_ETHERNET_BYTES, 12) || frame_parse_ip(&rest, datagram))
        return -EINVAL;
    return check_ip && ip_checksum(rest.at, 4 * (size_t)(rest.at[0] & 0xf)) ? -EINVAL : 0;
}
