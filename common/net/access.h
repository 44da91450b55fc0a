/* access.h - lists of IPv4 networks whose hosts may connect to a program's KATCP or HTTP server, or send packets to the
 * program. */
#ifndef COMMON_NET_ACCESS_H
#define COMMON_NET_ACCESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KATCP_MAX_NETWORKS 64

struct access {
    size_t n; /* number of networks; 0: all addresses are allowed */
    struct {
        uint32_t address, mask; /* host order */
    } networks[KATCP_MAX_NETWORKS];
};

/* Parses "10.0.0.0/8, 192.168.1.7": networks and addresses, separated by commas or blanks.  "any" means 0.0.0.0/0.
 * If the text is NULL, the list is empty.  Returns 0, or -EINVAL with one sentence in 'why'. */
int access_parse(const char *text, struct access *access, char *why, size_t why_bytes);

bool access_allows(const struct access *access, struct in_addr address);

/* Returns true if an address is a loopback address (127.0.0.0/8). */
bool access_is_local(struct in_addr address);

#endif
