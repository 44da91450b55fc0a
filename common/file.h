/* file.h - what the configuration checks ask of files. */
#ifndef COMMON_FILE_H
#define COMMON_FILE_H

#include <stdbool.h>

/* Whether two paths (NULL: none) name the same file, existing or not. */
bool files_are_same(const char *a, const char *b);

#endif
