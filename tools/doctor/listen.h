/* listen.h - packets of many endpoints with what only the kernel knows of them: who sent them, when they came.
 *
 * Only the beginning of each packet is taken, so that streams of many Gb/s can be looked at for a while.  Groups are
 * joined beside whoever else receives them and cost those nothing; a unicast endpoint is never listened to, because
 * its packets go to one program only.
 * Threads: one. */
#ifndef TOOLS_DOCTOR_LISTEN_H
#define TOOLS_DOCTOR_LISTEN_H

#include "common/net/endpoint.h"

#include <stddef.h>
#include <stdint.h>

#define LISTEN_HEADER_BYTES 256

struct listen_want {
    struct endpoint endpoint;   /* multicast */
    struct interface interface; /* zeroed: the kernel's choice */
    void *owner;                /* the caller's */
    int err;                    /* set by listener_open(): 0, or negative errno of this one */
};

struct listen_packet {
    const struct listen_want *want;
    struct sockaddr_in from;
    int64_t arrival_unix_ns;
    size_t packet_bytes;
    const uint8_t *header; /* the first bytes */
    size_t header_bytes;
};

struct listener;

/* 'wants' live as long.  Returns 0 or -ENOMEM, -EMFILE; what fails for one endpoint is its 'err'. */
int listener_open(struct listen_want *wants, size_t n_wants, struct listener **listener);

/* Calls 'take' for each packet that comes within 'duration_ns'. */
void listener_run(struct listener *listener, int64_t duration_ns,
                  void (*take)(void *arg, const struct listen_packet *packet), void *arg);

/* Packets that came but found no room since the listener was opened, of all endpoints: this program was too slow. */
uint64_t listener_drops(const struct listener *listener);

void listener_close(struct listener *listener);

#endif
