/* endpoint.h - endpoints (an IPv4 address and a port), lists of endpoints, and network interfaces. */
#ifndef COMMON_NET_ENDPOINT_H
#define COMMON_NET_ENDPOINT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct access;

#define SPEAD_DEFAULT_PORT 7148
#define KATCP_DEFAULT_PORT 7147
#define ENDPOINT_LIST_MAX  4096

/* How packets pass between the NIC and this process. */
enum transport {
    TRANSPORT_UDP,     /* sockets */
    TRANSPORT_IBVERBS, /* raw packet queues of the NIC: verbs.h */
};

struct endpoint {
    struct in_addr address;
    uint16_t port; /* host order */
    /* configuration key that names the endpoint in messages: "antennas[0].pol0" (config.h); NULL: none */
    const char *key;
    const struct access *from; /* networks whose packets are accepted at this endpoint; NULL or empty: all */
};

struct endpoint_list {
    size_t n;
    struct endpoint *items;
};

/* Parses items of the form "a.b.c.d[+n][:port]", separated by commas or spaces.  '+n' adds the n addresses that
 * follow a.b.c.d.  The default port is SPEAD_DEFAULT_PORT.  Allocates list->items.  Returns 0, -EINVAL (with one
 * sentence in 'why') or -ENOMEM. */
int endpoint_list_parse(const char *text, struct endpoint_list *list, char *why, size_t why_bytes);

/* Parses the value of a key that takes one address, "a.b.c.d[:port]".  'default_port' is used if no port is given.
 * '+n' is an error. */
int endpoint_list_parse_single(const char *text, uint16_t default_port, struct endpoint_list *list, char *why,
                               size_t why_bytes);

void endpoint_list_fini(struct endpoint_list *list);

/* Writes "a.b.c.d:port" into 'text' (>= 22 bytes).  Returns 'text'. */
char *endpoint_format(const struct endpoint *endpoint, char *text, size_t text_bytes);

/* Writes "key: a.b.c.d:port", the beginning of a message about an endpoint, into 'text'.  Returns 'text'. */
char *endpoint_describe(const struct endpoint *endpoint, char *text, size_t text_bytes);

/* Writes the message "key: a.b.c.d:port: cannot WHAT: error text; CURE" for the positive errno 'err'.  CURE may be
 * "".  Returns -err. */
int endpoint_fail(const struct endpoint *endpoint, int err, const char *what, const char *cure, char *why,
                  size_t why_bytes);

/* Returns advice about a bind() that failed with 'err' (negative errno).  The advice begins with "; " and is appended
 * to the message.  It may be "". */
const char *endpoint_bind_error_hint(int err);

/* Opens a non-blocking TCP socket that listens at the endpoint 'at'.  'backlog' is passed to listen(2).  Stores the
 * socket's port in '*port'.  The kernel chooses the port if the port of 'at' is 0.  Returns the socket or negative
 * errno. */
int endpoint_listen(const struct endpoint *at, int backlog, unsigned *port);

bool endpoint_is_multicast(const struct endpoint *endpoint);
bool endpoint_equal(const struct endpoint *a, const struct endpoint *b);

/* Returns true if a host cannot listen at both endpoints.  This is the case if the ports are equal and the addresses
 * conflict.  Two addresses conflict if they are equal, or if one of them is 0.0.0.0. */
bool endpoints_collide(const struct endpoint *a, const struct endpoint *b);

/* A network interface that can be used now. */
struct interface {
    struct in_addr address; /* IPv4 address from the configuration, or first IPv4 address of the interface */
    int index;
};

/* Finds an interface by name ("eth0", "lo") or by one of its addresses ("10.1.2.3").  Returns 0, or negative errno
 * with one sentence in 'why'. -ENODEV: there is no such interface, or the interface has no IPv4 address or cannot
 * multicast. -ENETDOWN: the interface is down. */
int endpoint_find_interface(const char *name, struct interface *interface, char *why, size_t why_bytes);

/* Returns the MTU of the interface 'name'; 0 if there is no such interface, or if 'name' is NULL. */
size_t endpoint_interface_mtu(const char *name);

#endif
