/* datagram.c - a UNIX domain socket without a connection, for notify.c and log.c. */
#include "common/base/datagram.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int datagram_open(struct datagram *datagram, const char *address)
{
    struct datagram d = {.address.sun_family = AF_UNIX};
    size_t n = strlen(address);

    if ((address[0] != '/' && address[0] != '@') || n < 2 || n >= sizeof(d.address.sun_path))
        return -EINVAL;
    memcpy(d.address.sun_path, address, n);
    if (address[0] == '@')
        d.address.sun_path[0] = '\0';
    /* The length of a path's address includes a final NUL, which the zeroed structure already contains.  The address
     * of an abstract name has no final NUL. */
    d.address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (address[0] == '/'));
    d.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (d.fd < 0)
        return -errno;
    *datagram = d;
    return 0;
}

/* Passes the address with each datagram.  If the receiver was replaced ("systemctl daemon-reexec"), the new receiver
 * therefore gets the next datagram. */
int datagram_send(const struct datagram *datagram, const char *bytes, size_t n_bytes)
{
    ssize_t n = sendto(datagram->fd, bytes, n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL,
                       (const struct sockaddr *)&datagram->address, datagram->address_bytes);

    return n < 0 ? -errno : 0;
}

void datagram_close(struct datagram *datagram)
{
    if (datagram->fd >= 0)
        close(datagram->fd);
    datagram->fd = -1;
}
