/* record_name.h - names of the files of a recording.
 *
 * 'config_key' is the key that the name comes from, for people.  All return 0, or negative errno with one sentence in
 * 'why', which begins with the key. */
#ifndef TOOLS_SHARED_RECORD_NAME_H
#define TOOLS_SHARED_RECORD_NAME_H

#include <limits.h>
#include <stddef.h>

/* stem = 'format' with the time of now.  A time in the name lets a recorder that was killed start again beside the file
 * that it left. */
int record_name_stem(const char *config_key, const char *format, char stem[PATH_MAX], char *why, size_t why_bytes);

/* A recording without data is removed, which /dev/null must not be.  (A directory is refused when it is opened.) */
int record_name_check(const char *config_key, const char *path, char *why, size_t why_bytes);

/* path = stem with the number before the extension of the file's own name, if there is one; number 1 is not written. */
int record_name_numbered(const char *config_key, const char *stem, unsigned number, char path[PATH_MAX], char *why,
                         size_t why_bytes);

#endif
