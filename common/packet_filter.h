/* packet_filter.h - a socket's share of the packets of a group that several threads have joined, chosen by the kernel.
 *
 * Each socket of a multicast group gets every packet.  With a share, those of the others come as empty messages: their
 * bytes are neither copied nor kept, and unlike packets that a filter refuses they are no drops of the socket. */
#ifndef COMMON_PACKET_FILTER_H
#define COMMON_PACKET_FILTER_H

#include <stdint.h>

/* SPEAD packets whose immediate 'item_id' is in [first, end), and whatever has no such item among its first 16. */
struct packet_share {
    uint16_t item_id;
    uint64_t first, end;
};

/* Returns 0 or negative errno, as of a kernel that has no filters: then all packets come whole. */
int packet_filter_attach(int fd, const struct packet_share *share);

#endif
