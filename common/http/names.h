/* names.h - which Host: a request may name.
 *
 * A page of another site can have its name lead to this host (DNS rebinding), and so have a browser read what this
 * program serves.  The browser then sends that name as Host:.  So only names that are this host's are served, and
 * addresses, which no name can stand for.
 *
 * Threads: pure functions, but for http_names_own(), which reads the host's name and a file. */
#ifndef COMMON_HTTP_NAMES_H
#define COMMON_HTTP_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* The names of this host, with commas between: localhost, its host name, also without its domain, and the names that
 * 'hosts_path' (/etc/hosts) has on a line with it.  No name server is asked: that may take long.  To free(); NULL where
 * there is no memory. */
char *http_names_own(const char *hosts_path);

/* Whether 'names' (NULL: none) are host names with commas or blanks between.  Returns 0, or -EINVAL with one sentence
 * in 'why'. */
int http_names_check(const char *names, char *why, size_t why_bytes);

/* Whether the value of a Host: header is an address, or in one of the lists of names (NULL: none); with or without a
 * port. */
bool http_names_accept(const char *own, const char *configured, const char *host);

#endif
