/* access.c - parses lists of networks, and checks the address of each client before the server reads from its
 * connection. */
#include "common/net/access.h"

#include "common/base/why.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses "a.b.c.d", "a.b.c.d/bits" or "any".  Returns false for any other text. */
static bool parse_network(const char *text, uint32_t *address, uint32_t *mask)
{
    struct in_addr parsed;
    char number[INET_ADDRSTRLEN];
    size_t n = strcspn(text, "/");
    unsigned long bits = 32;

    if (strcmp(text, "any") == 0) {
        *address = *mask = 0;
        return true;
    }
    if (n >= sizeof(number))
        return false;
    memcpy(number, text, n);
    number[n] = '\0';
    if (inet_pton(AF_INET, number, &parsed) != 1)
        return false;
    if (text[n]) {
        const char *digits = text + n + 1;
        size_t n_digits = strspn(digits, "0123456789");
        if (n_digits == 0 || n_digits > 2 || digits[n_digits])
            return false;
        bits = strtoul(digits, NULL, 10);
    }
    if (bits > 32)
        return false;
    *mask = bits ? UINT32_MAX << (32 - bits) : 0;
    *address = ntohl(parsed.s_addr);
    return true;
}

int access_parse(const char *text, struct access *access, char *why, size_t why_bytes)
{
    static const char separators[] = ", \t\r\n";
    struct access parsed = {0};
    char item[32];
    uint32_t address, mask;

    for (const char *at = text ? text + strspn(text, separators) : ""; *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);
        snprintf(item, sizeof(item), "%.*s", (int)(n < sizeof(item) ? n : sizeof(item) - 1), at);
        if (n >= sizeof(item) || !parse_network(item, &address, &mask))
            return why_fail(-EINVAL, why, why_bytes,
                            "\"%s\" is neither a network (a.b.c.d/bits), nor an address, nor \"any\"", item);
        if (address & ~mask)
            return why_fail(-EINVAL, why, why_bytes, "\"%s\" is not a network: its address has bits outside the mask",
                            item);
        if (parsed.n == KATCP_MAX_NETWORKS)
            return why_fail(-EINVAL, why, why_bytes, "the list has more than %d networks", KATCP_MAX_NETWORKS);
        parsed.networks[parsed.n].address = address;
        parsed.networks[parsed.n++].mask = mask;
        at += n;
    }
    *access = parsed;
    return 0;
}

bool access_allows(const struct access *access, struct in_addr address)
{
    uint32_t number = ntohl(address.s_addr);

    for (size_t i = 0; i < access->n; i++)
        if ((number & access->networks[i].mask) == access->networks[i].address)
            return true;
    return access->n == 0;
}

bool access_is_local(struct in_addr address)
{
    return ntohl(address.s_addr) >> 24 == 127;
}
