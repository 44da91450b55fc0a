/* table_file.h - small tables in text files: one row per line, fields between blanks, comments after a '#'.
 *
 * Tables are read before the start, on the main thread. */
#ifndef COMMON_CONFIG_TABLE_FILE_H
#define COMMON_CONFIG_TABLE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define TABLE_MAX_FIELDS 16

struct table_row {
    const char *path;
    unsigned line;
    char *fields[TABLE_MAX_FIELDS];
    size_t n; /* number of fields >= 1; TABLE_MAX_FIELDS stands for more, too */
    char *why;
    size_t why_bytes;
};

/* Calls row_fn for each row that is not empty, until row_fn returns a value other than 0.  Returns that value, else 0,
 * or negative errno with a sentence in 'why' if the file cannot be read. */
int table_file_read(const char *path, int (*row_fn)(const struct table_row *row, void *context), void *context,
                    char *why, size_t why_bytes);

/* For row_fn: writes "PATH:line: what[, not field]" ('field' may be NULL) and returns -EINVAL. */
int table_file_refuse(const struct table_row *row, const char *what, const char *field);

/* Parses a field.  Returns false if the field is not a finite number and nothing else. */
bool table_file_number(const char *field, double *number);

#endif
