/* names.h - checks the name in a request's Host: header.
 *
 * A hostile web site can make its own name resolve to this host (DNS rebinding).  A page of the site could then read
 * this program's data through a visitor's browser.  The browser sends the name of the site as Host:.  The server
 * therefore accepts only names of this host, and addresses.  A web site cannot make an address lead to this host.
 *
 * Threads: pure functions, except http_names_own(), which reads the host's name and a file. */
#ifndef COMMON_HTTP_NAMES_H
#define COMMON_HTTP_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the names of this host, separated by commas: localhost, and the host name with and without its domain.  The
 * other names on the host's line in 'hosts_path' (/etc/hosts) follow.  The function does not query a name server,
 * because an answer may take long.  The caller frees the text.  Returns NULL if memory runs out. */
char *http_names_own(const char *hosts_path);

/* Checks that 'names' (NULL: none) are host names separated by commas or blanks.  Returns 0, or -EINVAL with one
 * sentence in 'why'. */
int http_names_check(const char *names, char *why, size_t why_bytes);

/* Returns true if 'host', the value of a Host: header, is an address or a name in the list 'own' or 'configured' (NULL:
 * an empty list).  'host' may end with a port. */
bool http_names_accept(const char *own, const char *configured, const char *host);

#endif
