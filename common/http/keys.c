/* keys.c - the keys of the section http, and their check. */
#include "common/http/keys.h"

#include "common/http/names.h"
#include "common/net/access.h"

#define AT(member) offsetof(struct config_http, member)
const struct config_key config_http_keys[] = {
    {"listen", CFG_ENDPOINTS, UNIT_NONE, 0, 1, "", false, AT(listen), NULL,
     "Address and port of /metrics and /healthz, and of fgpu, xbgpu and visrec the status page; none: not served."},
    {"allow", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(allow), NULL,
     "Networks whose clients are served, 10.0.0.0/8, 192.168.1.7: comma separated; empty: all."},
    {"names", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(names), NULL,
     "Names that requests may have in Host:, besides addresses, localhost, the host's name and what /etc/hosts has "
     "beside that: comma separated."},
};
#undef AT

void config_check_http(const struct config_http *http, struct config *errors)
{
    struct katcp_access access;
    char why[200];

    if (katcp_access_parse(http->allow, &access, why, sizeof(why)))
        config_error(errors, &http->allow, "allow: %s", why);
    if (http_names_check(http->names, why, sizeof(why)))
        config_error(errors, &http->names, "names: %s", why);
}
