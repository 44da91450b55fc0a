/* fuzz_connect.h - a connection to a server that runs in the target itself. */
#ifndef TESTS_FUZZ_FUZZ_CONNECT_H
#define TESTS_FUZZ_FUZZ_CONNECT_H

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connects.  If the fuzzer's alarm interrupts connect(), calls connect() again.  close() resets the connection;
 * otherwise closed connections would occupy too many ports. */
static inline int fuzz_connect(const struct sockaddr_in *address)
{
    struct linger reset = {1, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    while (connect(fd, (const struct sockaddr *)address, sizeof(*address))) {
        assert(errno == EINTR);
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    return fd;
}

#endif
