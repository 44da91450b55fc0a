/* access.h - networks of IPv4 addresses that may speak KATCP or HTTP with a program, or send it packets. */
#ifndef COMMON_NET_ACCESS_H
#define COMMON_NET_ACCESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KATCP_MAX_NETWORKS 64

struct access {
    size_t n; /* 0: any address may */
    struct {
        uint32_t address, mask; /* host order */
    } networks[KATCP_MAX_NETWORKS];
};

/* Parses "10.0.0.0/8, 192.168.1.7": networks and addresses, separated by commas or blanks, or "any" for 0.0.0.0/0.
 * NULL stands for an empty list.  Returns 0, or -EINVAL with one sentence in 'why'. */
int access_parse(const char *text, struct access *access, char *why, size_t why_bytes);

bool access_allows(const struct access *access, struct in_addr address);

/* Returns true if an address is in 127.0.0.0/8, which only this host has. */
bool access_is_local(struct in_addr address);

#endif
