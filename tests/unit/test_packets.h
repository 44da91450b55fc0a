/* test_packets.h - endpoints of this host, and packets with distinct bytes. */
#ifndef TESTS_UNIT_TEST_PACKETS_H
#define TESTS_UNIT_TEST_PACKETS_H

#include "common/net/endpoint.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* Opens a UDP socket at a free port of the loopback interface. */
static inline int bound_socket(struct sockaddr_in *address)
{
    socklen_t length = sizeof(*address);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(bind(fd, (struct sockaddr *)address, sizeof(*address)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)address, &length), 0);
    return fd;
}

static inline uint16_t free_port(void)
{
    struct sockaddr_in address;

    close(bound_socket(&address));
    return ntohs(address.sin_port);
}

static inline void parse(struct endpoint_list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline void parse(struct endpoint_list *list, const char *format, ...)
{
    char text[256], said[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    ck_assert_msg(endpoint_list_parse(text, list, said, sizeof(said)) == 0, "%s", said);
}

/* Returns byte 'i' of packet 'packet'.  Different packets have different bytes, so tests detect packets that are
 * mixed up. */
static inline uint8_t pattern(unsigned packet, size_t i)
{
    return (uint8_t)(packet * 37 + i * 11 + i / 256);
}

#endif
