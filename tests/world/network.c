/* network.c - carries datagrams between sinks and sources with the faults of the link.  It replaces source_udp.c and
 * sink_udp.c.  See network.h. */
#include "tests/world/network.h"

#include "common/base/why.h"
#include "common/net/endpoint.h"
#include "common/recv/source.h"
#include "common/send/sink.h"
#include "tests/world/sched.h"
#include "tests/world/sent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PORTS      64
#define MAX_SOCKETS    8   /* of a port */
#define DATAGRAM_BYTES 700 /* what Linux counts for a small datagram beside its bytes */

struct datagram {
    struct datagram *next;
    struct network_port *port;
    struct socket *socket;
    struct network_delivery fate;
    network_seen seen;
    void *arg;
    uint32_t sender;
    bool is_refused; /* the sender's socket refused the datagram */
    size_t n_bytes;
    uint8_t bytes[];
};

struct socket {
    struct socket_source *source;
    unsigned endpoint; /* index of the port in the source's list */
    size_t n_queued_bytes;
    struct datagram *first, **end;
};

struct network_port {
    struct endpoint endpoint;
    struct network_faults faults;
    unsigned burst_left;
    uint64_t n_read, n_refused;
    struct socket sockets[MAX_SOCKETS];
    size_t n_sockets;
    void (*take)(void *arg, const uint8_t *bytes, size_t n_bytes);
    void *take_arg;
};

struct socket_source {
    struct recv_source base;
    struct network_port **ports; /* [n] */
    size_t n, next;
    size_t socket_bytes;
    _Atomic uint64_t n_drops;
};

struct socket_sink {
    struct send_sink base;
    struct sent_stream *stream;
    struct network_port **ports; /* [n] */
    size_t n;
};

static struct network_port *ports[MAX_PORTS];
static size_t n_ports;
static bool refuses;     /* datagrams that are sent now are refused */
static bool was_refused; /* the datagram that arrives now was refused */

void network_begin(void)
{
    static const char *const faults[] = {"network: lost",
                                         "network: lost in a burst",
                                         "network: partition",
                                         "network: duplicated",
                                         "network: truncated",
                                         "network: flipped bit",
                                         "network: delayed",
                                         "network: socket buffer full",
                                         "network: no socket any more",
                                         "network: in the socket at the end",
                                         "network: refused by the sender's socket",
                                         "network: no room in the sender's socket"};

    n_ports = 0;
    sent_begin();
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        world_note_times(faults[i], 0);
}

void network_end(void)
{
    for (size_t i = 0; i < n_ports; i++)
        free(ports[i]);
    n_ports = 0;
}

static struct network_port *find_port(const struct endpoint *endpoint)
{
    for (size_t i = 0; i < n_ports; i++)
        if (endpoint_equal(&ports[i]->endpoint, endpoint))
            return ports[i];
    if (n_ports == MAX_PORTS)
        world_fail("more than %d endpoints", MAX_PORTS);
    struct network_port *port = ports[n_ports++] = calloc(1, sizeof(*port));
    port->endpoint = (struct endpoint){.address = endpoint->address, .port = endpoint->port};
    port->faults.latency_ns = 20000;
    return port;
}

struct network_port *network_port(const char *endpoint)
{
    struct endpoint_list list;
    char why[256];

    if (endpoint_list_parse(endpoint, &list, why, sizeof(why)))
        world_fail("%s", why);
    struct network_port *port = find_port(&list.items[0]);
    endpoint_list_fini(&list);
    return port;
}

struct network_faults *network_faults(struct network_port *port)
{
    return &port->faults;
}

uint64_t network_n_read(const struct network_port *port)
{
    return port->n_read;
}

uint64_t network_n_refused(const struct network_port *port)
{
    return port->n_refused;
}

bool network_was_refused(void)
{
    return was_refused;
}

void network_listen(struct network_port *port, void (*take)(void *arg, const uint8_t *bytes, size_t n_bytes), void *arg)
{
    port->take = take;
    port->take_arg = arg;
}

/* ---- Datagrams on their way ------------------------------------------------------------------------------------------ */

static void finish(struct datagram *datagram)
{
    datagram->fate.bytes = datagram->bytes;
    datagram->fate.n_bytes = datagram->n_bytes;
    if (datagram->seen)
        datagram->seen(datagram->arg, &datagram->fate);
    free(datagram);
}

/* Puts a datagram into the socket's queue, unless the queue is full. */
static void arrive(void *arg)
{
    struct datagram *datagram = arg;
    struct network_port *port = datagram->port;
    struct socket *socket = datagram->socket;

    if (!socket) {
        was_refused = datagram->is_refused;
        port->take(port->take_arg, datagram->bytes, datagram->n_bytes);
        datagram->fate.was_read = true;
        finish(datagram);
        return;
    }
    if (!socket->source || socket->n_queued_bytes + datagram->n_bytes + DATAGRAM_BYTES > socket->source->socket_bytes) {
        if (socket->source)
            socket->source->n_drops++;
        world_note(socket->source ? "network: socket buffer full" : "network: no socket any more");
        finish(datagram);
        return;
    }
    socket->n_queued_bytes += datagram->n_bytes + DATAGRAM_BYTES;
    datagram->next = NULL;
    *socket->end = datagram;
    socket->end = &datagram->next;
    world_wake(socket->source, true);
}

static bool is_lost(struct network_port *port)
{
    const struct network_faults *f = &port->faults;

    if (world_now_ns() >= f->partition_from_ns && world_now_ns() < f->partition_to_ns) {
        world_note("network: partition");
        return true;
    }
    if (port->burst_left == 0 && world_chance(f->burst))
        port->burst_left = 1 + (unsigned)world_random(f->burst_length);
    if (port->burst_left > 0) {
        port->burst_left--;
        world_note("network: lost in a burst");
        return true;
    }
    if (!world_chance(f->lose))
        return false;
    world_note("network: lost");
    return true;
}

/* Changes the bytes of a datagram as the link's faults say. */
static void damage(struct datagram *datagram, const struct network_faults *faults)
{
    if (world_chance(faults->truncate)) {
        datagram->n_bytes = world_random(datagram->n_bytes);
        datagram->fate.is_whole = false;
        world_note("network: truncated");
    }
    if (datagram->n_bytes > 0 && world_chance(faults->flip)) {
        size_t n_bits = 8 * (world_random(2) ? datagram->n_bytes : (datagram->n_bytes < 96 ? datagram->n_bytes : 96));
        size_t bit = world_random(n_bits);
        datagram->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        datagram->fate.is_whole = false;
        datagram->fate.is_flipped = true;
        world_note("network: flipped bit");
    }
}

static void deliver(struct network_port *port, struct socket *socket, uint32_t sender, const uint8_t *bytes,
                    size_t n_bytes, network_seen seen, void *arg)
{
    const struct network_faults *f = &port->faults;
    struct datagram *datagram = malloc(sizeof(*datagram) + n_bytes);

    if (!datagram)
        world_fail("out of memory");
    *datagram = (struct datagram){.port = port,
                                  .socket = socket,
                                  .fate = {.is_whole = true, .socket = socket ? (unsigned)(socket - port->sockets) : 0},
                                  .seen = seen,
                                  .arg = arg,
                                  .sender = sender,
                                  .is_refused = refuses,
                                  .n_bytes = n_bytes};
    memcpy(datagram->bytes, bytes, n_bytes);
    if (is_lost(port)) {
        finish(datagram);
        return;
    }
    damage(datagram, f);
    int64_t delay_ns = f->latency_ns;
    if (f->jitter_ns > 0) {
        delay_ns += (int64_t)world_random((uint64_t)f->jitter_ns);
        world_note("network: delayed");
    }
    world_at(world_now_ns() + delay_ns, arrive, datagram);
}

void network_send(struct network_port *port, const uint8_t *bytes, size_t n_bytes, network_seen seen, void *arg)
{
    network_send_from(port, inet_addr("10.0.0.1"), bytes, n_bytes, seen, arg);
}

void network_send_from(struct network_port *port, uint32_t sender, const uint8_t *bytes, size_t n_bytes,
                       network_seen seen, void *arg)
{
    unsigned n_copies = 1;

    world_digest_bytes(bytes, n_bytes);
    if (world_chance(port->faults.duplicate)) {
        n_copies = 2;
        world_note("network: duplicated");
    }
    for (unsigned copy = 0; copy < n_copies; copy++) {
        if (port->take)
            deliver(port, NULL, sender, bytes, n_bytes, seen, arg);
        for (size_t i = 0; i < port->n_sockets; i++)
            if (port->sockets[i].source)
                deliver(port, &port->sockets[i], sender, bytes, n_bytes, seen, arg);
    }
}

/* ---- Sources --------------------------------------------------------------------------------------------------------- */

static struct socket *find_socket(const struct socket_source *source, size_t i)
{
    struct network_port *port = source->ports[i];

    for (size_t s = 0; s < port->n_sockets; s++)
        if (port->sockets[s].source == source)
            return &port->sockets[s];
    world_fail("a source without a socket");
}

/* Moves the oldest datagram of a socket to a slot. */
static void read_one(struct socket *socket, struct packet_slot *slot)
{
    struct datagram *datagram = socket->first;

    socket->first = datagram->next;
    if (!socket->first)
        socket->end = &socket->first;
    socket->n_queued_bytes -= datagram->n_bytes + DATAGRAM_BYTES;
    size_t n_copied = recv_packet_fill(slot, datagram->bytes, datagram->n_bytes);
    slot->packet_bytes = datagram->n_bytes;
    slot->truncated = n_copied < datagram->n_bytes;
    slot->zero_copy = false;
    slot->endpoint = socket->endpoint;
    slot->sender = datagram->sender;
    datagram->port->n_read++;
    datagram->fate.was_read = true;
    datagram->fate.read_ns = world_now_ns();
    finish(datagram);
}

static int source_recv(struct recv_source *base, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    struct socket_source *source = (struct socket_source *)base;
    int64_t deadline_ns = world_now_ns() + timeout_ns;
    size_t n = 0;

    world_seam();
    for (;;) {
        size_t most = 1 + world_random(n_slots);
        for (size_t k = 0; k < source->n && n < most; k++) {
            struct socket *socket = find_socket(source, source->next++ % source->n);
            while (socket->first && n < most)
                read_one(socket, &slots[n++]);
        }
        if (n > 0 || !world_wait(source, deadline_ns))
            return (int)n;
    }
}

static uint64_t source_kernel_drops(const struct recv_source *base)
{
    return ((const struct socket_source *)base)->n_drops;
}

static void source_close(struct recv_source *base)
{
    struct socket_source *source = (struct socket_source *)base;

    for (size_t i = 0; i < source->n; i++) {
        struct socket *socket = find_socket(source, i);
        for (struct datagram *datagram = socket->first, *next; datagram; datagram = next) {
            next = datagram->next;
            world_note("network: in the socket at the end");
            finish(datagram);
        }
        socket->first = NULL;
        socket->source = NULL;
    }
    free(source->ports);
    free(source);
}

static const struct recv_source_ops source_ops = {
    .recv = source_recv, .kernel_drops = source_kernel_drops, .close = source_close};

int recv_source_udp_open(const struct recv_source_config *config, struct recv_source **out, char *why, size_t why_bytes)
{
    struct socket_source *source = calloc(1, sizeof(*source));

    source->base.ops = &source_ops;
    source->n = config->endpoints->n;
    source->socket_bytes = config->buffer_bytes / source->n;
    source->ports = calloc(source->n, sizeof(*source->ports));
    for (size_t i = 0; i < source->n; i++) {
        struct network_port *port = source->ports[i] = find_port(&config->endpoints->items[i]);
        if (port->n_sockets == MAX_SOCKETS)
            world_fail("more than %d sockets of a port", MAX_SOCKETS);
        struct socket *socket = &port->sockets[port->n_sockets++];
        *socket = (struct socket){.source = source, .endpoint = (unsigned)i, .end = &socket->first};
    }
    *out = &source->base;
    return 0;
}

/* ---- Sinks ----------------------------------------------------------------------------------------------------------- */

/* Waits as long as a socket has no room. */
static void await_room(const struct network_port *port)
{
    int64_t end_ns = world_now_ns();

    if (!world_chance(port->faults.stall))
        return;
    end_ns += (int64_t)world_random((uint64_t)port->faults.stall_ns);
    world_note("network: no room in the sender's socket");
    while (world_now_ns() < end_ns)
        world_wait(NULL, end_ns);
}

/* Returns false if the socket refuses a datagram. */
static bool accepts(struct socket_sink *sink, struct network_port *port)
{
    static const int errors[] = {EPERM, ENETUNREACH, EMSGSIZE, ENOBUFS};

    if (!world_chance(port->faults.refuse))
        return true;
    port->n_refused++;
    world_note("network: refused by the sender's socket");
    send_sink_note_failed(&sink->base, errors[world_random(4)]);
    return false;
}

/* The sender counts the datagrams before another thread runs: waits only before the first datagram. */
static size_t sink_send(struct send_sink *base, struct packet_out *packets, size_t n)
{
    struct socket_sink *sink = (struct socket_sink *)base;
    uint8_t bytes[PACKET_BYTES_MAX];
    size_t n_sent = 0;

    world_seam();
    for (size_t i = 0; i < n; i++)
        await_room(sink->ports[packets[i].destination]);
    for (size_t i = 0; i < n; i++) {
        struct network_port *port = sink->ports[packets[i].destination];
        bool is_sent = accepts(sink, port);
        memcpy(bytes, packets[i].header, packets[i].header_bytes);
        if (packets[i].payload_bytes > 0)
            memcpy(bytes + packets[i].header_bytes, packets[i].payload, packets[i].payload_bytes);
        size_t n_bytes = packets[i].header_bytes + packets[i].payload_bytes;
        refuses = !is_sent;
        sent_packet(sink->stream, packets[i].destination, bytes, n_bytes, is_sent);
        if (is_sent || port->take)
            network_send(port, bytes, n_bytes, NULL, NULL);
        send_sink_put_ref(&packets[i]);
        n_sent += is_sent;
    }
    refuses = false;
    return n_sent;
}

static void sink_close(struct send_sink *base)
{
    sent_close(((struct socket_sink *)base)->stream);
    free(((struct socket_sink *)base)->ports);
    free(base);
}

static const struct send_sink_ops sink_ops = {.send = sink_send, .close = sink_close};

int send_sink_udp_open(const struct send_sink_config *config, struct send_sink **out, char *why, size_t why_bytes)
{
    struct socket_sink *sink = calloc(1, sizeof(*sink));

    sink->base.ops = &sink_ops;
    sink->n = config->destinations->n;
    sink->stream = sent_open(config->rate_bytes_per_s, sink->n);
    sink->ports = calloc(sink->n, sizeof(*sink->ports));
    for (size_t i = 0; i < sink->n; i++)
        sink->ports[i] = find_port(&config->destinations->items[i]);
    *out = &sink->base;
    return 0;
}
