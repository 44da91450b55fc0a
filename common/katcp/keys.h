/* keys.h - the section 'katcp' of configuration files. */
#ifndef COMMON_KATCP_KEYS_H
#define COMMON_KATCP_KEYS_H

#include "common/config/config.h"
#include "common/net/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

struct config_katcp {
    struct endpoint_list listen, read_only_listen; /* at most one endpoint each */
    char *allow;                                   /* networks of permitted clients (net/access.h); NULL: all */
    int64_t max_clients;                           /* largest number of clients of each listener */
    /* true: after ?halt from another host the program is not restarted */
    bool halt_stays;
};

#define CONFIG_N_KATCP_KEYS 5

extern const struct config_key config_katcp_keys[CONFIG_N_KATCP_KEYS];

/* The row of the section 'katcp' in a table of sections.  'type' is the struct of the whole file, whose member
 * 'katcp' is a struct config_katcp. */
#define CONFIG_KATCP_SECTION(type) CONFIG_SECTION(type, katcp, config_katcp_keys, "Control.", .optional = true)

/* Checks the section 'katcp', and that its ports differ from the port of 'http_listen'.  Adds errors. */
void katcp_keys_check(const struct config_katcp *katcp, const struct endpoint_list *http_listen, struct config *errors);

#endif
