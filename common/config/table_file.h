/* table_file.h - small tables in text files: one row per line, fields separated by blanks, comments after a '#'.
 *
 * The main thread reads tables while the program starts. */
#ifndef COMMON_CONFIG_TABLE_FILE_H
#define COMMON_CONFIG_TABLE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define TABLE_MAX_FIELDS 16

struct table_row {
    const char *path;
    unsigned line;
    char *fields[TABLE_MAX_FIELDS];
    size_t n; /* number of fields, at least 1; further fields after TABLE_MAX_FIELDS are ignored */
    char *why;
    size_t why_bytes;
};

/* Calls row_fn for each row that is not empty, until row_fn returns a value other than 0.  Returns this value, or 0
 * after the last row, or negative errno with a sentence in 'why' if the file cannot be read. */
int table_file_read(const char *path, int (*row_fn)(const struct table_row *row, void *context), void *context,
                    char *why, size_t why_bytes);

/* Writes "PATH:line: WHAT, not FIELD" into 'why', with the texts of 'what' and 'field'.  If 'field' is NULL, writes
 * only "PATH:line: WHAT".  Returns -EINVAL, which row_fn then returns. */
int table_file_refuse(const struct table_row *row, const char *what, const char *field);

/* Parses a field as a finite number.  Returns false if the field has any other text. */
bool table_file_number(const char *field, double *number);

#endif
