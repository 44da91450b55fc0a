/* names.c - finds this host's names, and compares names without regard to case, as DNS does. */
#include "common/http/names.h"

#include "common/base/file.h"
#include "common/config/table_file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MAX_NAME_BYTES 254 /* longest DNS name, with its NUL */

static const char separators[] = ", \t\r\n";
static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

static bool has_name(const char *list, const char *name)
{
    size_t name_bytes = strlen(name);

    for (const char *at = list ? list + strspn(list, separators) : ""; *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);
        size_t n_without_dot = n - (at[n - 1] == '.');
        if (n_without_dot == name_bytes && strncasecmp(at, name, n_without_dot) == 0)
            return true;
        at += n;
    }
    return false;
}

int http_names_check(const char *names, char *why, size_t why_bytes)
{
    for (const char *at = names ? names + strspn(names, separators) : ""; *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);
        if (strspn(at, letters) < n || n >= MAX_NAME_BYTES) {
            snprintf(why, why_bytes,
                     "\"%.*s\" is not a host name, which has only letters, digits, '-', '_' and '.', and no port",
                     (int)(n < 100 ? n : 100), at);
            return -EINVAL;
        }
        at += n;
    }
    return 0;
}

/* ---- This host's names ------------------------------------------------------------------------------------------- */

struct own {
    const char *name;
    FILE *out;
};

/* Adds the names in a row of /etc/hosts (an address and its names) if one of them is this host's name. */
static int add_names(const struct table_row *row, void *arg)
{
    const struct own *own = arg;
    bool mine = false;

    for (size_t i = 1; i < row->n; i++)
        mine = mine || strcasecmp(row->fields[i], own->name) == 0;
    for (size_t i = 1; i < row->n && mine; i++)
        fprintf(own->out, ",%s", row->fields[i]);
    return 0;
}

char *http_names_own(const char *hosts_path)
{
    char name[MAX_NAME_BYTES] = "", why[256], *text = NULL;
    size_t text_bytes;
    struct own own = {name, open_memstream(&text, &text_bytes)};

    if (!own.out)
        return NULL;
    fputs("localhost", own.out);
    if (gethostname(name, sizeof(name) - 1) == 0 && name[0]) {
        fprintf(own.out, ",%s,%.*s", name, (int)strcspn(name, "."), name);
        table_file_read(hosts_path, add_names, &own, why, sizeof(why)); /* the file may be absent */
    }
    file_close_text(own.out, &text);
    return text;
}

/* ---- Host: ------------------------------------------------------------------------------------------------------- */

/* Copies 'host' without its port to 'name'.  Returns false if 'host' is not a name or address with an optional port. */
static bool cut_port(const char *host, char name[MAX_NAME_BYTES])
{
    bool bracket = host[0] == '[';
    size_t n = bracket ? strcspn(host, "]") + 1 : strcspn(host, ":");

    if (n >= MAX_NAME_BYTES || strlen(host) < n)
        return false;
    memcpy(name, host, n);
    name[n] = '\0';
    host += n;
    return !*host || (*host == ':' && host[1 + strspn(host + 1, "0123456789")] == '\0');
}

/* Returns true for an IPv4 address, or an IPv6 address in brackets. */
static bool is_address(char *name)
{
    struct in6_addr address;
    size_t n = strlen(name);

    if (name[0] != '[')
        return inet_pton(AF_INET, name, &address) == 1;
    name[n - 1] = '\0';
    bool is = inet_pton(AF_INET6, name + 1, &address) == 1;
    name[n - 1] = ']';
    return is;
}

bool http_names_accept(const char *own, const char *configured, const char *host)
{
    char name[MAX_NAME_BYTES];

    if (!cut_port(host, name))
        return false;
    if (is_address(name))
        return true;
    size_t n = strlen(name);
    if (n > 1 && name[n - 1] == '.')
        name[n - 1] = '\0';
    return has_name(own, name) || has_name(configured, name);
}
