/* keys.h - the section katcp of configuration files. */
#ifndef COMMON_KATCP_KEYS_H
#define COMMON_KATCP_KEYS_H

#include "common/config/config.h"
#include "common/net/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

struct config_katcp {
    struct endpoint_list listen, read_only_listen; /* no endpoint, or one */
    char *allow;                                   /* networks (net/access.h); NULL: all */
    int64_t max_clients;                           /* limit of each listener */
    bool halt_stays;                               /* ?halt from another host ends the program for good */
};

#define CONFIG_N_KATCP_KEYS 5

extern const struct config_key config_katcp_keys[CONFIG_N_KATCP_KEYS];

/* The row for a table of sections.  'type' is the struct of the whole file, with a member 'katcp'. */
#define CONFIG_KATCP_SECTION(type) CONFIG_SECTION(type, katcp, config_katcp_keys, "Control.", .optional = true)

/* Checks a program's section katcp, and compares its ports with the program's HTTP port. */
void katcp_keys_check(const struct config_katcp *katcp, const struct endpoint_list *http_listen, struct config *errors);

#endif
