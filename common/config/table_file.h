/* table_file.h - small tables in text files: a row a line, fields between blanks; what follows a '#' is a comment.
 *
 * Read before the start, by main. */
#ifndef COMMON_CONFIG_TABLE_FILE_H
#define COMMON_CONFIG_TABLE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define TABLE_MAX_FIELDS 16

struct table_row {
    const char *path;
    unsigned line;
    char *fields[TABLE_MAX_FIELDS];
    size_t n; /* >= 1; TABLE_MAX_FIELDS stands for more, too */
    char *why;
    size_t why_bytes;
};

/* Calls row_fn for each row that is not empty, until it returns other than 0, and returns that; or negative errno with a
 * sentence in 'why' where the file cannot be read. */
int table_file_read(const char *path, int (*row_fn)(const struct table_row *row, void *context), void *context,
                    char *why, size_t why_bytes);

/* For row_fn: writes "PATH:line: what[, not field]" ('field' may be NULL) and returns -EINVAL. */
int table_file_refuse(const struct table_row *row, const char *what, const char *field);

/* A finite number and nothing else. */
bool table_file_number(const char *field, double *number);

#endif
