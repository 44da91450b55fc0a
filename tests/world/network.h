/* network.h - the simulated network: datagrams from the senders of daemons and scenarios to the receivers' sockets.
 *
 * A datagram to a multicast group reaches each socket of the group.  The network loses, delays, duplicates, truncates and
 * corrupts datagrams, as the faults of its link say.  Each copy of a datagram is a delivery of its own.  A socket has a buffer of
 * a limited size, as in Linux.
 * Threads:   threads of the world. */
#ifndef TESTS_WORLD_NETWORK_H
#define TESTS_WORLD_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Faults of the datagrams to some endpoints.  Probabilities are per delivery. */
struct network_faults {
    double lose, duplicate, truncate;
    double flip;           /* probability that a bit flips: half of these bits are among the first 96 bytes */
    double burst;          /* probability that a burst of losses begins with this datagram */
    unsigned burst_length; /* largest number of datagrams in a burst */
    int64_t jitter_ns;     /* largest random delay of a delivery, which changes the order */
    int64_t latency_ns;
    int64_t partition_from_ns, partition_to_ns; /* time in which nothing is delivered */
    double refuse;                              /* probability that a daemon's socket refuses to send a datagram */
    double stall;                               /* probability that a daemon's socket has no room before a datagram */
    int64_t stall_ns;                           /* longest time without room */
};

/* The fate of a delivery. */
struct network_delivery {
    bool is_whole;        /* the bytes are as they were sent */
    bool is_flipped;      /* a bit of the bytes has flipped */
    bool was_read;        /* the receiver has read the datagram */
    int64_t read_ns;      /* virtual time when the receiver read it */
    unsigned socket;      /* index of the socket among the port's sockets, in the order in which they were opened */
    const uint8_t *bytes; /* [n_bytes] as they arrived, valid during the call of network_seen */
    size_t n_bytes;
};

struct network_port; /* faults and counts of an endpoint */

/* Begins a network without endpoints.  network_end() frees everything. */
void network_begin(void);
void network_end(void);

/* Returns the port of an endpoint ("239.1.0.1:7148").  A new port has no faults. */
struct network_port *network_port(const char *endpoint);
struct network_faults *network_faults(struct network_port *port);

/* Sends a datagram.  'seen', which may be NULL, is called with 'arg' for each copy when its fate is known: when the copy
 * is lost, or when the receiver reads it. */
typedef void (*network_seen)(void *arg, const struct network_delivery *delivery);
void network_send(struct network_port *port, const uint8_t *bytes, size_t n_bytes, network_seen seen, void *arg);

/* Does the same for a sender's address, in network byte order.  network_send() sends from 10.0.0.1. */
void network_send_from(struct network_port *port, uint32_t sender, const uint8_t *bytes, size_t n_bytes,
                       network_seen seen, void *arg);

/* Calls take(arg, bytes, n_bytes) for each datagram that arrives at the port, in place of a socket. */
void network_listen(struct network_port *port, void (*take)(void *arg, const uint8_t *bytes, size_t n_bytes),
                    void *arg);

/* Returns the number of datagrams that the port's sockets have read. */
uint64_t network_n_read(const struct network_port *port);

/* Returns the number of datagrams to the port that daemons' sockets have refused.  network_listen()'s function gets these
 * datagrams, too, because their contents must also be right.  network_was_refused() then returns true. */
uint64_t network_n_refused(const struct network_port *port);
bool network_was_refused(void);

#endif
