/* datagram.h - sends messages to systemd and the journal without blocking.
 *
 * Threads: any.  Each message is one datagram.
 * Blocking: never.  If the receiver's queue is full, a send fails with -EAGAIN, and the caller sends again later. */
#ifndef COMMON_BASE_DATAGRAM_H
#define COMMON_BASE_DATAGRAM_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

struct datagram {
    int fd; /* negative: closed */
    struct sockaddr_un address;
    socklen_t address_bytes;
};

/* Opens a socket that sends to 'address': a path that begins with '/', or an abstract name that begins with '@'.  The
 * receiver need not exist yet.  Returns 0 or negative errno; -EINVAL if 'address' begins with another character. */
int datagram_open(struct datagram *datagram, const char *address);

/* Sends 'n_bytes' bytes.  Returns 0 or negative errno: -EAGAIN while the receiver's queue is full. */
int datagram_send(const struct datagram *datagram, const char *bytes, size_t n_bytes);

void datagram_close(struct datagram *datagram);

#endif
