/* endpoint.h - where packets come from and go to: IPv4 addresses, ports, interfaces. */
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

/* How packets get between the network and this process. */
enum transport {
    TRANSPORT_UDP,     /* sockets */
    TRANSPORT_IBVERBS, /* raw packet queues of the card: verbs.h */
};

struct endpoint {
    struct in_addr address;
    uint16_t port;   /* host order */
    const char *key; /* that gives it in a configuration, "antennas[0].pol0", for messages; NULL: none.  See config.h */
    const struct access *from; /* who may send there; NULL, or none in it: anybody */
};

struct endpoint_list {
    size_t n;
    struct endpoint *items;
};

/* Parses "a.b.c.d[+n][:port]" items separated by commas or spaces: '+n' adds the n following addresses; the default
 * port is SPEAD_DEFAULT_PORT.  Allocates list->items.  Returns 0, -EINVAL (with one sentence in 'why') or -ENOMEM. */
int endpoint_list_parse(const char *text, struct endpoint_list *list, char *why, size_t why_bytes);

/* The same for keys that take one address, "a.b.c.d[:port]", with the port where none is given.  '+n' is an error. */
int endpoint_list_parse_single(const char *text, uint16_t default_port, struct endpoint_list *list, char *why,
                               size_t why_bytes);

void endpoint_list_fini(struct endpoint_list *list);

/* "a.b.c.d:port" into 'text' (>= 22 bytes); returns 'text'. */
char *endpoint_format(const struct endpoint *endpoint, char *text, size_t text_bytes);

/* "key: a.b.c.d:port", as a message about an endpoint begins; returns 'text'. */
char *endpoint_describe(const struct endpoint *endpoint, char *text, size_t text_bytes);

/* Writes "key: a.b.c.d:port: cannot WHAT: the error's text; CURE" for 'err' (positive; CURE may be "").  Returns -err. */
int endpoint_fail(const struct endpoint *endpoint, int err, const char *what, const char *cure, char *why,
                  size_t why_bytes);

/* Advice for an operator after bind() failed with 'err' (negative errno): "; ..." to follow the error, or "". */
const char *endpoint_bind_error_hint(int err);

/* A TCP socket that listens at 'at' and does not block; 'backlog' as for listen(2).  Stores its port, which the kernel chose
 * if 'at' has none.  Returns the socket or negative errno. */
int endpoint_listen(const struct endpoint *at, int backlog, unsigned *port);

bool endpoint_is_multicast(const struct endpoint *endpoint);
bool endpoint_equal(const struct endpoint *a, const struct endpoint *b);

/* True if one host cannot listen at both: one port, and one address, or 0.0.0.0. */
bool endpoints_collide(const struct endpoint *a, const struct endpoint *b);

/* A network interface that can be used now. */
struct interface {
    struct in_addr address; /* the one it was named by, or its first */
    int index;
};

/* Finds an interface by name ("eth0", "lo") or by one of its addresses ("10.1.2.3").  Returns 0, -ENODEV (no such
 * interface, or it has no IPv4 address, or cannot multicast) or -ENETDOWN (it is down) with one sentence in 'why'. */
int endpoint_find_interface(const char *name, struct interface *interface, char *why, size_t why_bytes);

/* The MTU of such an interface; 0 where there is none, or 'name' is NULL. */
size_t endpoint_interface_mtu(const char *name);

#endif
