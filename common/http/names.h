/* names.h - the names that a request's Host: may have.
 *
 * Another site can make its own name point to this host (DNS rebinding).  A browser on the site's page could then read
 * what this program serves.  The browser sends the site's name as Host:.  So only this host's names are served, and
 * addresses, because no foreign name is an address.
 *
 * Threads: pure functions, except http_names_own(), which reads the host's name and a file. */
#ifndef COMMON_HTTP_NAMES_H
#define COMMON_HTTP_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the names of this host, separated by commas: localhost, and the host name with and without its domain.  The
 * names on the same line of 'hosts_path' (/etc/hosts) follow.  No name server is asked, because an answer may take
 * long.  The caller frees the text.  Returns NULL if memory runs out. */
char *http_names_own(const char *hosts_path);

/* Checks that 'names' (NULL: none) are host names separated by commas or blanks.  Returns 0, or -EINVAL with one
 * sentence in 'why'. */
int http_names_check(const char *names, char *why, size_t why_bytes);

/* Returns true if the value of a Host: header is an address or is in one of the lists of names (NULL: none).  The value
 * may have a port. */
bool http_names_accept(const char *own, const char *configured, const char *host);

#endif
