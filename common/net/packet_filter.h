/* packet_filter.h - which packets of a socket come whole, chosen by the kernel: those of certain senders, and a share of
 * the packets of a group that several threads have joined.
 *
 * The others come as empty messages: their bytes are neither copied nor kept, and unlike packets that a filter refuses
 * they are no drops of the socket.  So the receiver can count them. */
#ifndef COMMON_NET_PACKET_FILTER_H
#define COMMON_NET_PACKET_FILTER_H

#include "common/net/access.h"

#include <stdint.h>

/* SPEAD packets whose immediate 'item_id' is in [first, end), and whatever has no such item among its first 16. */
struct packet_fanout {
    uint16_t item_id;
    uint64_t first, end;
};

/* Each NULL: all.  Packets that the kernel joined are one message of one sender.  Returns 0 or negative errno, as of a
 * kernel that has no filters: then all packets come whole. */
int packet_filter_attach(int fd, const struct access *from, const struct packet_fanout *share);

#endif
