/* packet_filter.h - makes the Linux kernel deliver only some of a socket's packets with their payload.  These packets
 * come from certain senders, and belong to one thread's share of a multicast group.
 *
 * The socket delivers every other packet as an empty datagram.  The kernel neither copies nor stores the payload of
 * such a packet.  If the filter refused such packets, the socket would count these packets as drops.  The receiver
 * counts the empty datagrams instead. */
#ifndef COMMON_NET_PACKET_FILTER_H
#define COMMON_NET_PACKET_FILTER_H

#include "common/net/access.h"

#include <stdint.h>

/* A share: the SPEAD packets whose immediate item 'item_id' has a value in [first, end), and all packets without this
 * item among their first 16 items. */
struct packet_fanout {
    uint16_t item_id;
    uint64_t first, end;
};

/* Attaches a filter to a socket.  The filter accepts only packets from senders in 'from' (NULL: all senders) that
 * belong to 'share' (NULL: all packets).  Packets that the kernel joins (GRO) have the same sender, so the filter
 * accepts either all or none of them.  Returns 0, or negative errno, for example if the kernel does not support
 * socket filters.  After an error the socket delivers all packets, without a filter. */
int packet_filter_attach(int fd, const struct access *from, const struct packet_fanout *share);

#endif
