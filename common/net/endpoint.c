/* endpoint.c - parses the endpoints and interfaces of a configuration, and opens listening sockets. */
#include "common/net/endpoint.h"

#include "common/base/why.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ITEM_TEXT_MAX: size of the buffer for an item and its final NUL.  The longest valid item is
 * "255.255.255.255+4095:65535". */
#define LETTERS       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define ITEM_TEXT_MAX 64

/* The form that an item must have. */
struct form {
    const char *text;
    bool ranges;   /* '+n' */
    uint16_t port; /* default port */
};

/* A parsed item: 'n' consecutive addresses, of which 'first' is the lowest (host order). */
struct range {
    uint32_t first;
    size_t n;
    uint16_t port;
};

/* Parses 'text', which must be a decimal number of at most 'max' and nothing else.  Returns false for any other
 * text. */
static bool parse_number(const char *text, unsigned long max, unsigned long *number)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    *number = strtoul(text, &end, 10);
    return !errno && *end == '\0' && *number <= max;
}

/* Writes into 'why' that the item 'whole' is not an endpoint, with a remedy if the item contains a host name.
 * 'address' is the part of 'whole' before the port. */
static void explain_address(const struct form *form, const char *whole, const char *address, char *why,
                            size_t why_bytes)
{
    int n = snprintf(why, why_bytes, "\"%s\" is not an endpoint of the form %s", whole, form->text);

    if (n < 0 || (size_t)n >= why_bytes || !strpbrk(address, LETTERS))
        return;
    if (strcmp(address, "localhost") == 0)
        snprintf(why + n, why_bytes - (size_t)n, "; write the address as a number: 127.0.0.1%s",
                 whole + strlen(address));
    else
        snprintf(why + n, why_bytes - (size_t)n, "; write the address as a number, not as a name");
}

/* Parses one item.  Overwrites the separators in 'text' with NUL. */
static int parse_item(const struct form *form, char *text, struct range *range, char *why, size_t why_bytes)
{
    char whole[ITEM_TEXT_MAX];
    snprintf(whole, sizeof(whole), "%s", text);
    unsigned long port = form->port;
    unsigned long n_more = 0;
    char *colon = strchr(text, ':');
    if (colon) {
        *colon = '\0';
        if (!parse_number(colon + 1, UINT16_MAX, &port) || port == 0)
            return why_fail(-EINVAL, why, why_bytes, "\"%s\": the port must be a number from 1 to 65535", whole);
    }
    char *plus = form->ranges ? strchr(text, '+') : NULL;
    if (plus) {
        *plus = '\0';
        if (!parse_number(plus + 1, ENDPOINT_LIST_MAX - 1, &n_more))
            return why_fail(-EINVAL, why, why_bytes,
                            "\"%s\": \"+\" must be followed by a number of further addresses, at most %d", whole,
                            ENDPOINT_LIST_MAX - 1);
    }
    struct in_addr address;
    if (inet_pton(AF_INET, text, &address) != 1) {
        explain_address(form, whole, text, why, why_bytes);
        return -EINVAL;
    }
    range->first = ntohl(address.s_addr);
    range->n = n_more + 1;
    range->port = (uint16_t)port;
    if (range->first > UINT32_MAX - n_more)
        return why_fail(-EINVAL, why, why_bytes, "the last address of \"%s\" exceeds 255.255.255.255", whole);
    return 0;
}

static int append(struct endpoint_list *list, const struct range *range)
{
    struct endpoint *items = realloc(list->items, (list->n + range->n) * sizeof(*items));
    if (!items)
        return -ENOMEM;
    list->items = items;
    for (size_t i = 0; i < range->n; i++)
        items[list->n + i] = (struct endpoint){{htonl(range->first + (uint32_t)i)}, range->port, NULL, NULL};
    list->n += range->n;
    return 0;
}

/* Parses the item in the first 'n_chars' characters of 'text', and appends its endpoints to 'list'. */
static int add_item(const struct form *form, const char *text, size_t n_chars, struct endpoint_list *list, char *why,
                    size_t why_bytes)
{
    char item[ITEM_TEXT_MAX];
    if (n_chars >= sizeof(item))
        return why_fail(-EINVAL, why, why_bytes, "\"%.*s...\" is not an endpoint of the form %s", 32, text, form->text);
    memcpy(item, text, n_chars);
    item[n_chars] = '\0';
    struct range range;
    int err = parse_item(form, item, &range, why, why_bytes);
    if (err)
        return err;
    if (list->n + range.n > ENDPOINT_LIST_MAX)
        return why_fail(-EINVAL, why, why_bytes, "the list has more than %d endpoints", ENDPOINT_LIST_MAX);
    err = append(list, &range);
    if (err)
        snprintf(why, why_bytes, "out of memory");
    return err;
}

static int parse_list(const struct form *form, const char *text, struct endpoint_list *list, char *why,
                      size_t why_bytes)
{
    static const char separators[] = ", \t\r\n";
    struct endpoint_list parsed = {0, NULL};
    int err = 0;
    const char *at = text + strspn(text, separators);
    while (*at && !err) {
        size_t n_chars = strcspn(at, separators);
        err = add_item(form, at, n_chars, &parsed, why, why_bytes);
        at += n_chars;
        at += strspn(at, separators);
    }
    if (!err && parsed.n == 0) {
        snprintf(why, why_bytes, "the list has no endpoint; write %s", form->text);
        err = -EINVAL;
    }
    if (err)
        endpoint_list_fini(&parsed);
    else
        *list = parsed;
    return err;
}

int endpoint_list_parse(const char *text, struct endpoint_list *list, char *why, size_t why_bytes)
{
    static const struct form form = {"a.b.c.d[+n][:port]", true, SPEAD_DEFAULT_PORT};

    return parse_list(&form, text, list, why, why_bytes);
}

int endpoint_list_parse_single(const char *text, uint16_t default_port, struct endpoint_list *list, char *why,
                               size_t why_bytes)
{
    const struct form form = {"a.b.c.d[:port]", false, default_port};

    return parse_list(&form, text, list, why, why_bytes);
}

void endpoint_list_fini(struct endpoint_list *list)
{
    free(list->items);
    *list = (struct endpoint_list){0, NULL};
}

char *endpoint_format(const struct endpoint *endpoint, char *text, size_t text_bytes)
{
    char address[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &endpoint->address, address, sizeof(address));
    snprintf(text, text_bytes, "%s:%u", address, (unsigned)endpoint->port);
    return text;
}

char *endpoint_describe(const struct endpoint *endpoint, char *text, size_t text_bytes)
{
    char name[32];

    snprintf(text, text_bytes, "%s%s%s", endpoint->key ? endpoint->key : "", endpoint->key ? ": " : "",
             endpoint_format(endpoint, name, sizeof(name)));
    return text;
}

int endpoint_fail(const struct endpoint *endpoint, int err, const char *what, const char *cure, char *why,
                  size_t why_bytes)
{
    char name[128];

    return why_fail(-err, why, why_bytes, "%s: cannot %s: %s%s%s", endpoint_describe(endpoint, name, sizeof(name)),
                    what, strerror(err), cure[0] ? "; " : "", cure);
}

const char *endpoint_bind_error_hint(int err)
{
    switch (err) {
    case -EADDRINUSE: return "; another program listens there: stop it, or choose another port";
    case -EADDRNOTAVAIL: return "; this host has no such address";
    case -EACCES: return "; ports below 1024 are reserved for root";
    default: return "";
    }
}

int endpoint_listen(const struct endpoint *at, int backlog, unsigned *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = at->address, .sin_port = htons(at->port)};
    socklen_t address_bytes = sizeof(address);
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, backlog) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &address_bytes) != 0) {
        int err = -errno;
        close(fd);
        return err;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

bool endpoint_is_multicast(const struct endpoint *endpoint)
{
    return IN_MULTICAST(ntohl(endpoint->address.s_addr));
}

bool endpoint_equal(const struct endpoint *a, const struct endpoint *b)
{
    return a->address.s_addr == b->address.s_addr && a->port == b->port;
}

bool endpoints_collide(const struct endpoint *a, const struct endpoint *b)
{
    return a->port == b->port && (a->address.s_addr == b->address.s_addr || a->address.s_addr == htonl(INADDR_ANY) ||
                                  b->address.s_addr == htonl(INADDR_ANY));
}

/* Returns the IPv4 address of an entry.  The entry must have an IPv4 address. */
static struct in_addr address_of(const struct ifaddrs *entry)
{
    return ((const struct sockaddr_in *)(const void *)entry->ifa_addr)->sin_addr;
}

/* Returns the entry for the interface with this name or IPv4 address, or NULL if there is none.  Prefers an entry with
 * an IPv4 address. */
static const struct ifaddrs *pick_interface(const struct ifaddrs *all, const char *name)
{
    struct in_addr wanted;
    bool by_address = inet_pton(AF_INET, name, &wanted) == 1;
    const struct ifaddrs *without_address = NULL;

    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        bool is_ipv4 = i->ifa_addr && i->ifa_addr->sa_family == AF_INET;
        if (by_address ? is_ipv4 && address_of(i).s_addr == wanted.s_addr : strcmp(i->ifa_name, name) == 0) {
            if (is_ipv4)
                return i;
            without_address = i;
        }
    }
    return without_address;
}

/* Writes the interfaces that have an IPv4 address into 'text': "lo (127.0.0.1), eth0 (10.1.2.3)".  Returns 'text'. */
static char *list_interfaces(const struct ifaddrs *all, char *text, size_t text_bytes)
{
    size_t used = 0;

    snprintf(text, text_bytes, "none");
    for (const struct ifaddrs *i = all; i && used < text_bytes; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET) {
            char address[INET_ADDRSTRLEN];
            struct in_addr own = address_of(i);
            inet_ntop(AF_INET, &own, address, sizeof(address));
            used +=
                (size_t)snprintf(text + used, text_bytes - used, "%s%s (%s)", used ? ", " : "", i->ifa_name, address);
        }
    return text;
}

/* Checks that the interface 'found' (NULL: not found) can be used.  If not, writes the reason into 'why'.  Returns 0,
 * -ENODEV or -ENETDOWN. */
static int check_interface(const struct ifaddrs *found, const struct ifaddrs *all, const char *name, char *why,
                           size_t why_bytes)
{
    struct in_addr address;
    char others[200];

    if (!found && inet_pton(AF_INET, name, &address) == 1)
        snprintf(why, why_bytes, "no network interface has the address %s; this host has %s", name,
                 list_interfaces(all, others, sizeof(others)));
    else if (!found)
        snprintf(why, why_bytes, "there is no network interface \"%s\"; this host has %s", name,
                 list_interfaces(all, others, sizeof(others)));
    else if (!(found->ifa_flags & IFF_UP)) {
        return why_fail(-ENETDOWN, why, why_bytes,
                        "the network interface \"%s\" is down; bring it up (ip link set %s up)", name, found->ifa_name);
    } else if (!found->ifa_addr || found->ifa_addr->sa_family != AF_INET)
        snprintf(why, why_bytes,
                 "the network interface \"%s\" has no IPv4 address; assign one, or name another interface", name);
    /* the loopback interface supports multicast without IFF_MULTICAST */
    else if (!(found->ifa_flags & (IFF_MULTICAST | IFF_LOOPBACK)))
        snprintf(why, why_bytes,
                 "the network interface \"%s\" cannot multicast; enable multicast (ip link set %s multicast on), or "
                 "name another interface",
                 name, found->ifa_name);
    else
        return 0;
    return -ENODEV;
}

int endpoint_find_interface(const char *name, struct interface *interface, char *why, size_t why_bytes)
{
    struct ifaddrs *all;

    if (getifaddrs(&all)) {
        int err = -errno;
        return why_fail(err, why, why_bytes, "the network interfaces cannot be listed: %s", strerror(-err));
    }
    const struct ifaddrs *found = pick_interface(all, name);
    int err = check_interface(found, all, name, why, why_bytes);
    if (!err)
        *interface = (struct interface){address_of(found), (int)if_nametoindex(found->ifa_name)};
    freeifaddrs(all);
    return err;
}

size_t endpoint_interface_mtu(const char *name)
{
    struct interface found;
    struct ifreq request = {.ifr_mtu = 0};
    char why[400];

    if (!name || endpoint_find_interface(name, &found, why, sizeof(why)))
        return 0;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && if_indextoname((unsigned)found.index, request.ifr_name) && !ioctl(fd, SIOCGIFMTU, &request);
    if (fd >= 0)
        close(fd);
    return ok ? (size_t)request.ifr_mtu : 0;
}
