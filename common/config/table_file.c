/* table_file.c - reads tables from text files, and parses their fields. */
#include "common/config/table_file.h"

#include "common/base/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int table_file_refuse(const struct table_row *row, const char *what, const char *field)
{
    snprintf(row->why, row->why_bytes, "%s:%u: %s%s%s", row->path, row->line, what, field ? ", not " : "",
             field ? field : "");
    return -EINVAL;
}

bool table_file_number(const char *field, double *number)
{
    char *end;

    *number = strtod(field, &end);
    return end != field && *end == '\0' && isfinite(*number);
}

static void split(char *text, struct table_row *row)
{
    static const char blank[] = " \t\r\n";
    char *rest = NULL;

    row->n = 0;
    text[strcspn(text, "#")] = '\0';
    for (char *field = strtok_r(text, blank, &rest); field && row->n < TABLE_MAX_FIELDS;
         field = strtok_r(NULL, blank, &rest))
        row->fields[row->n++] = field;
}

int table_file_read(const char *path, int (*row_fn)(const struct table_row *row, void *context), void *context,
                    char *why, size_t why_bytes)
{
    struct table_row row = {.path = path, .why = why, .why_bytes = why_bytes};
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *file = NULL;
    int err = file_open_read(path, NULL, &file);
    bool refused = false;

    while (!err && getline(&text, &text_bytes, file) >= 0) {
        row.line++;
        split(text, &row);
        err = row.n ? row_fn(&row, context) : 0;
        refused = err != 0;
    }
    if (!err && ferror(file))
        err = -EIO;
    if (err && !refused)
        snprintf(why, why_bytes, "%s: %s", path, err == -EINVAL ? "not a regular file" : strerror(-err));
    if (file)
        fclose(file);
    free(text);
    return err;
}
