/* keys.h - the section 'http' of configuration files. */
#ifndef COMMON_HTTP_KEYS_H
#define COMMON_HTTP_KEYS_H

#include "common/config/config.h"
#include "common/net/endpoint.h"

struct config_http {
    struct endpoint_list listen; /* at most one endpoint */
    char *allow;                 /* networks of permitted clients (net/access.h); NULL: all */
    char *names;                 /* permitted names in addition to this host's names (http/names.h); NULL: none */
};

#define CONFIG_N_HTTP_KEYS 3

extern const struct config_key config_http_keys[CONFIG_N_HTTP_KEYS];

/* The row of the section 'http' in a table of sections.  'type' is the struct of the whole file, whose member 'http'
 * is a struct config_http. */
#define CONFIG_HTTP_SECTION(type) CONFIG_SECTION(type, http, config_http_keys, "Monitoring.", .optional = true)

/* Checks the section 'http', and adds errors. */
void http_keys_check(const struct config_http *http, struct config *errors);

#endif
