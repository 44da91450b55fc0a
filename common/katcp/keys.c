/* keys.c - keys of the section 'katcp', and their check. */
#include "common/katcp/keys.h"

#include "common/net/access.h"

#define KEYS_OF struct config_katcp
const struct config_key config_katcp_keys[] = {
    KEY_ENDPOINTS(
        "listen", listen, "", 0, 1,
        "Address and port of the KATCP server; 127.0.0.1:7147 serves only clients on this host. The default port is "
        "7147. []: no server.",
        .port = KATCP_DEFAULT_PORT),
    KEY_ENDPOINTS("read_only_listen", read_only_listen, "", 0, 1,
                  "Address and port of the read-only KATCP server. The default port is 7147. []: no server.",
                  .port = KATCP_DEFAULT_PORT),
    KEY_STRING(
        "allow", allow, "", 0, 4096,
        "Networks of the clients that are served, separated by commas: 10.0.0.0/8, 192.168.1.7. any: all networks. "
        "Required if listen is outside 127.0.0.0/8. Without this key read_only_listen serves all clients."),
    KEY_INT("max_clients", max_clients, "100", UNIT_NONE, 1, 1000,
            "Largest number of simultaneous clients, for each of listen and read_only_listen."),
    KEY_BOOL("halt_stays", halt_stays, false,
             "true: after a ?halt from another host the program exits with status 0, and systemd does not restart the "
             "program. false: such a ?halt acts as ?restart."),
};
#undef KEYS_OF

/* Adds an error at 'second' if two listeners of a program have the same port. */
static void check_listeners(const struct endpoint_list *first, const struct endpoint_list *second,
                            struct config *errors)
{
    if (first->n && second->n && endpoints_collide(&first->items[0], &second->items[0]))
        config_error(errors, second, "%s and %s both have port %u: choose different ports", first->items[0].key,
                     second->items[0].key, (unsigned)second->items[0].port);
}

void katcp_keys_check(const struct config_katcp *katcp, const struct endpoint_list *http_listen, struct config *errors)
{
    struct access access;
    char why[200];

    check_listeners(&katcp->listen, &katcp->read_only_listen, errors);
    check_listeners(http_listen, &katcp->listen, errors);
    check_listeners(http_listen, &katcp->read_only_listen, errors);
    if (access_parse(katcp->allow, &access, why, sizeof(why)))
        config_error(errors, &katcp->allow, "allow: %s", why);
    else if (katcp->listen.n && access.n == 0 && !access_is_local(katcp->listen.items[0].address))
        config_error(errors, &katcp->listen,
                     "listen accepts other hosts, so allow must name the networks that may control this program "
                     "(any: all networks)");
}
