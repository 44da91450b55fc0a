/* packet_filter.h - lets the kernel select the packets that a socket delivers whole: packets of certain senders, and a
 * thread's share of the packets of a group.
 *
 * Other packets come as empty messages: their bytes are neither copied nor kept.  The socket does not count them as
 * drops, unlike packets that a filter refuses.  So the receiver can count them. */
#ifndef COMMON_NET_PACKET_FILTER_H
#define COMMON_NET_PACKET_FILTER_H

#include "common/net/access.h"

#include <stdint.h>

/* A share: SPEAD packets whose immediate 'item_id' is in [first, end), and all packets without this item in their first
 * 16. */
struct packet_fanout {
    uint16_t item_id;
    uint64_t first, end;
};

/* Attaches a filter for senders ('from') and a share to a socket; NULL: no filter.  Packets that the kernel joined are
 * one message of one sender.  Returns 0 or negative errno, for example from a kernel without filters: all packets then
 * come whole. */
int packet_filter_attach(int fd, const struct access *from, const struct packet_fanout *share);

#endif
