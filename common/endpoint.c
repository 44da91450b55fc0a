/* endpoint.c - the addresses in a configuration file, before any socket is opened. */
#include "common/endpoint.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest item, "255.255.255.255+4095:65535", with room to show what is wrong with a longer one. */
#define ITEM_TEXT_MAX 64

/* One item of a list: 'n' addresses from 'first' on. */
struct range {
    uint32_t first;
    size_t n;
    uint16_t port;
};

/* Reads a decimal number of at most 'max' that fills the whole of 'text'.  Returns false if it is none. */
static bool parse_number(const char *text, unsigned long max, unsigned long *number)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    *number = strtoul(text, &end, 10);
    return !errno && *end == '\0' && *number <= max;
}

/* Parses "a.b.c.d[+n][:port]"; 'text' is cut into its parts. */
static int parse_item(char *text, struct range *range, char *why, size_t why_bytes)
{
    char whole[ITEM_TEXT_MAX];
    snprintf(whole, sizeof(whole), "%s", text);
    unsigned long port = SPEAD_DEFAULT_PORT;
    unsigned long n_more = 0;
    char *colon = strchr(text, ':');
    if (colon) {
        *colon = '\0';
        if (!parse_number(colon + 1, UINT16_MAX, &port) || port == 0) {
            snprintf(why, why_bytes, "\"%s\": the port must be a number from 1 to 65535", whole);
            return -EINVAL;
        }
    }
    char *plus = strchr(text, '+');
    if (plus) {
        *plus = '\0';
        if (!parse_number(plus + 1, ENDPOINT_LIST_MAX - 1, &n_more)) {
            snprintf(why, why_bytes, "\"%s\": after \"+\" comes how many addresses follow, %d at most", whole,
                     ENDPOINT_LIST_MAX - 1);
            return -EINVAL;
        }
    }
    struct in_addr address;
    if (inet_pton(AF_INET, text, &address) != 1) {
        snprintf(why, why_bytes, "\"%s\" is not an endpoint of the form a.b.c.d[+n][:port]", whole);
        return -EINVAL;
    }
    range->first = ntohl(address.s_addr);
    range->n = n_more + 1;
    range->port = (uint16_t)port;
    if (range->first > UINT32_MAX - n_more) {
        snprintf(why, why_bytes, "\"%s\" goes beyond 255.255.255.255", whole);
        return -EINVAL;
    }
    return 0;
}

static int append(struct endpoint_list *list, const struct range *range)
{
    struct endpoint *items = realloc(list->items, (list->n + range->n) * sizeof(*items));
    if (!items)
        return -ENOMEM;
    list->items = items;
    for (size_t i = 0; i < range->n; i++)
        items[list->n + i] = (struct endpoint){{htonl(range->first + (uint32_t)i)}, range->port};
    list->n += range->n;
    return 0;
}

/* Parses and appends the item in text[0, n_chars). */
static int add_item(const char *text, size_t n_chars, struct endpoint_list *list, char *why, size_t why_bytes)
{
    char item[ITEM_TEXT_MAX];
    if (n_chars >= sizeof(item)) {
        snprintf(why, why_bytes, "\"%.*s...\" is not an endpoint of the form a.b.c.d[+n][:port]", 32, text);
        return -EINVAL;
    }
    memcpy(item, text, n_chars);
    item[n_chars] = '\0';
    struct range range;
    int err = parse_item(item, &range, why, why_bytes);
    if (err)
        return err;
    if (list->n + range.n > ENDPOINT_LIST_MAX) {
        snprintf(why, why_bytes, "the list has more than %d endpoints", ENDPOINT_LIST_MAX);
        return -EINVAL;
    }
    err = append(list, &range);
    if (err)
        snprintf(why, why_bytes, "out of memory");
    return err;
}

int endpoint_list_parse(const char *text, struct endpoint_list *list, char *why, size_t why_bytes)
{
    static const char separators[] = ", \t\r\n";
    struct endpoint_list parsed = {0, NULL};
    int err = 0;
    const char *at = text + strspn(text, separators);
    while (*at && !err) {
        size_t n_chars = strcspn(at, separators);
        err = add_item(at, n_chars, &parsed, why, why_bytes);
        at += n_chars;
        at += strspn(at, separators);
    }
    if (!err && parsed.n == 0) {
        snprintf(why, why_bytes, "the list has no endpoint; write a.b.c.d[+n][:port]");
        err = -EINVAL;
    }
    if (err) {
        endpoint_list_fini(&parsed);
        return err;
    }
    *list = parsed;
    return 0;
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

bool endpoint_is_multicast(const struct endpoint *endpoint)
{
    return IN_MULTICAST(ntohl(endpoint->address.s_addr));
}

bool endpoint_equal(const struct endpoint *a, const struct endpoint *b)
{
    return a->address.s_addr == b->address.s_addr && a->port == b->port;
}

int interface_address(const char *interface, struct in_addr *address, char *why, size_t why_bytes)
{
    struct in_addr wanted;
    bool by_address = inet_pton(AF_INET, interface, &wanted) == 1;
    struct ifaddrs *all;
    if (getifaddrs(&all)) {
        snprintf(why, why_bytes, "cannot list the network interfaces: %s", strerror(errno));
        return -ENODEV;
    }
    bool exists = false;
    bool found = false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        if (!by_address && strcmp(i->ifa_name, interface) != 0)
            continue;
        exists = true;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        struct in_addr own = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        if (by_address && own.s_addr != wanted.s_addr)
            continue;
        *address = own;
        found = true;
    }
    freeifaddrs(all);
    if (found)
        return 0;
    if (by_address)
        snprintf(why, why_bytes, "no network interface has the address %s", interface);
    else if (exists)
        snprintf(why, why_bytes, "the network interface \"%s\" has no IPv4 address", interface);
    else
        snprintf(why, why_bytes, "there is no network interface \"%s\"", interface);
    return -ENODEV;
}
