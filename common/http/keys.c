/* keys.c - keys of the section 'http', and their check. */
#include "common/http/keys.h"

#include "common/http/names.h"
#include "common/net/access.h"

#define KEYS_OF struct config_http
const struct config_key config_http_keys[] = {
    KEY_ENDPOINTS(
        "listen", listen, "", 0, 1,
        "Address and port of the HTTP server: /metrics, /healthz and, in fgpu, xbgpu and visrec, the status page. "
        "[]: no server."),
    KEY_STRING("allow", allow, "", 0, 4096,
               "Networks of the clients that are served, separated by commas: 10.0.0.0/8, 192.168.1.7. Empty: all."),
    KEY_STRING(
        "names", names, "", 0, 4096,
        "Further names that are accepted in the Host: header of a request, separated by commas. Addresses, localhost, "
        "the host's name and its other names in /etc/hosts are always accepted."),
};
#undef KEYS_OF

void http_keys_check(const struct config_http *http, struct config *errors)
{
    struct access access;
    char why[200];

    if (access_parse(http->allow, &access, why, sizeof(why)))
        config_error(errors, &http->allow, "allow: %s", why);
    if (http_names_check(http->names, why, sizeof(why)))
        config_error(errors, &http->names, "names: %s", why);
}
