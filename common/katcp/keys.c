/* keys.c - keys of the section katcp, and their check. */
#include "common/katcp/keys.h"

#include "common/net/access.h"

#define KEYS_OF struct config_katcp
const struct config_key config_katcp_keys[] = {
    KEY_ENDPOINTS("listen", listen, "", 0, 1,
                  "Address and port of KATCP, 127.0.0.1:7147 for this host's programs alone; without a port 7147; "
                  "none: not served.",
                  .port = KATCP_DEFAULT_PORT),
    KEY_ENDPOINTS(
        "read_only_listen", read_only_listen, "", 0, 1,
        "Address and port where KATCP only answers, and changes nothing; without a port 7147; none: not served.",
        .port = KATCP_DEFAULT_PORT),
    KEY_STRING("allow", allow, "", 0, 4096,
               "Networks whose clients are served, 10.0.0.0/8, 192.168.1.7: comma separated; any: all. Needed where "
               "listen is no address of 127.0.0.0/8; read_only_listen serves all without it."),
    KEY_INT("max_clients", max_clients, "100", UNIT_NONE, 1, 1000,
            "Clients that are served at once by listen, and as many by read_only_listen."),
    KEY_BOOL("halt_stays", halt_stays, false,
             "A ?halt from another host ends the program with 0, after which systemd does not start it again; without "
             "this it acts as ?restart."),
};
#undef KEYS_OF

/* Reports an error at the second of two listeners of a program that share a port. */
static void check_listeners(const struct endpoint_list *first, const struct endpoint_list *second,
                            struct config *errors)
{
    if (first->n && second->n && endpoints_collide(&first->items[0], &second->items[0]))
        config_error(errors, second, "%s and %s both have port %u: give one of them another port", first->items[0].key,
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
                     "listen can be reached from other hosts, so allow must name the networks that may control this "
                     "program, or say any");
}
