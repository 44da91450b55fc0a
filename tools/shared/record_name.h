/* record_name.h - makes the names of a recorder's files.  'config_key' is the key that sets the name; messages to
 * operators contain this key.  All functions return 0, or negative errno with one sentence in 'why', which begins
 * with the key. */
#ifndef TOOLS_SHARED_RECORD_NAME_H
#define TOOLS_SHARED_RECORD_NAME_H

#include <limits.h>
#include <stddef.h>

/* Writes 'format' to 'stem', with strftime's codes replaced by the current time (UTC).  If the name contains a time, a
 * recorder that was killed can start again, because its new file gets a new name. */
int record_name_stem(const char *config_key, const char *format, char stem[PATH_MAX], char *why, size_t why_bytes);

/* Refuses a file that is neither regular nor a directory.  Otherwise a recorder without data could remove /dev/null
 * at the end.  A directory needs no refusal here, because opening it as a file fails. */
int record_name_check(const char *config_key, const char *path, char *why, size_t why_bytes);

/* Writes 'stem' to 'path', and inserts '-number' before the extension of the file's name, or at the name's end if
 * there is no extension.  If 'number' is 1, nothing is inserted. */
int record_name_numbered(const char *config_key, const char *stem, unsigned number, char path[PATH_MAX], char *why,
                         size_t why_bytes);

#endif
