/* keys.h - the section http of a configuration file. */
#ifndef COMMON_HTTP_KEYS_H
#define COMMON_HTTP_KEYS_H

#include "common/config/config.h"
#include "common/net/endpoint.h"

struct config_http {
    struct endpoint_list listen; /* none, or one */
    char *allow;                 /* networks (net/access.h); NULL: all */
    char *names;                 /* besides this host's own (http/names.h); NULL: none */
};

#define CONFIG_N_HTTP_KEYS 3

extern const struct config_key config_http_keys[CONFIG_N_HTTP_KEYS];

/* The row of a table of sections; 'type' is the struct of the whole file, which has this one by the section's name. */
#define CONFIG_HTTP_SECTION(type) CONFIG_SECTION(type, http, config_http_keys, "Monitoring.", .optional = true)

/* Every program's check of the http section. */
void http_keys_check(const struct config_http *http, struct config *errors);

#endif
