/* listen.h - receives packets at many endpoints.  The kernel provides each packet's sender and arrival time.
 *
 * Only the beginning of each packet is copied, so that streams of many Gb/s can be watched for a while.  The listener
 * joins multicast groups.  Other receivers of the same groups lose nothing.  The listener never opens a unicast
 * endpoint, because the packets of such an endpoint go to one program only.
 * Threads: one. */
#ifndef TOOLS_DOCTOR_LISTEN_H
#define TOOLS_DOCTOR_LISTEN_H

#include "common/net/endpoint.h"

#include <stddef.h>
#include <stdint.h>

#define LISTEN_HEADER_BYTES 256

struct listen_want {
    struct endpoint endpoint;   /* multicast address */
    struct interface interface; /* name of the interface; zeroed: the Linux kernel chooses the interface */
    void *owner;                /* pointer that the caller may use for any purpose */
    int err;                    /* set by listener_open() for this endpoint: 0, or negative errno */
};

struct listen_packet {
    const struct listen_want *want;
    struct sockaddr_in from;
    int64_t arrival_unix_ns;
    size_t packet_bytes;
    const uint8_t *header; /* first bytes of the packet */
    size_t header_bytes;
};

struct listener;

/* Opens a socket for each endpoint.  'wants' must outlive the listener.  Returns 0, -ENOMEM or -EMFILE.  If an endpoint
 * has an error, sets the 'err' of the endpoint and continues. */
int listener_open(struct listen_want *wants, size_t n_wants, struct listener **listener);

/* Calls 'take' for each packet that arrives within 'duration_ns'. */
void listener_run(struct listener *listener, int64_t duration_ns,
                  void (*take)(void *arg, const struct listen_packet *packet), void *arg);

/* Returns the number of packets that the listener's sockets have dropped since they were opened.  A full socket buffer
 * drops packets if this program is too slow. */
uint64_t listener_drops(const struct listener *listener);

void listener_close(struct listener *listener);

#endif
