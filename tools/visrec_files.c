/* visrec_files.c - between the writer thread and a file: which file. */
#include "tools/visrec_files.h"

#include "common/clock.h"
#include "common/units.h"
#include "common/version.h"
#include "tools/visrec_uvh5.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct visrec_files {
    const struct visrec_array *array;
    char *history;             /* the same in all files */
    char first_path[PATH_MAX]; /* of the first file */
    char path[PATH_MAX];       /* of the file that is written */
    unsigned number;           /* of the file that is written, from 1 */
    struct visrec_uvh5 *file;
};

/* A time in the name lets a recorder that was killed start again beside the file that it left. */
static int name_first(struct visrec_files *files, const char *format, char *why, size_t why_bytes)
{
    time_t now_s = (time_t)(clock_unix_ns() / NS_PER_S);
    struct stat old;
    struct tm utc;

    gmtime_r(&now_s, &utc);
    if (strftime(files->first_path, sizeof(files->first_path), format, &utc) == 0) {
        snprintf(why, why_bytes, "output.file: with the time in it the name is longer than %zu bytes; shorten it",
                 sizeof(files->first_path) - 1);
        return -EINVAL;
    }
    /* A recording without dumps is removed, which /dev/null must not be.  (A directory is refused when it is opened.) */
    if (stat(files->first_path, &old) == 0 && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode)) {
        snprintf(why, why_bytes, "output.file: \"%s\" is not a regular file", format);
        return -EINVAL;
    }
    strcpy(files->path, files->first_path);
    return 0;
}

/* The number goes before the extension of the file's own name, if there is one. */
static int name_numbered(const struct visrec_files *files, unsigned number, char path[PATH_MAX], char *why,
                         size_t why_bytes)
{
    const char *slash = strrchr(files->first_path, '/');
    const char *name = slash ? slash + 1 : files->first_path;
    const char *dot = strrchr(name, '.');
    size_t n_stem = dot && dot != name ? (size_t)(dot - files->first_path) : strlen(files->first_path);

    if (snprintf(path, PATH_MAX, "%.*s-%u%s", (int)n_stem, files->first_path, number, files->first_path + n_stem) <
        PATH_MAX)
        return 0;
    snprintf(why, why_bytes, "output.file: there is no room for a number in the name \"%.200s...\"", files->first_path);
    return -ENAMETOOLONG;
}

/* The history is what made the file, so that it can be made again. */
static char *write_history(const struct visrec_config *config)
{
    char *history = NULL;
    size_t history_bytes;
    FILE *text = open_memstream(&history, &history_bytes);

    if (!text)
        return NULL;
    fprintf(text, "Recorded by visrec %s with this configuration:\n", cbf_build_id);
    config_print(&visrec_config_table, config, text);
    if (fclose(text) == 0)
        return history;
    free(history);
    return NULL;
}

int visrec_files_open(const struct visrec_config *config, const struct visrec_array *array, struct visrec_files **out,
                      char *why, size_t why_bytes)
{
    struct visrec_files *files = calloc(1, sizeof(*files));
    int err = -ENOMEM;

    if (!files)
        return err;
    files->array = array;
    files->number = 1;
    files->history = write_history(config);
    if (files->history)
        err = name_first(files, config->output.file, why, why_bytes);
    if (!err)
        err = visrec_uvh5_create(files->path, config->output.overwrite, array, files->history, &files->file, why,
                                 why_bytes);
    if (err) {
        free(files->history);
        free(files);
        return err;
    }
    *out = files;
    return 0;
}

const char *visrec_files_first_path(const struct visrec_files *files)
{
    return files->first_path;
}

const char *visrec_files_path(const struct visrec_files *files)
{
    return files->path;
}

int visrec_files_append(struct visrec_files *files, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                        size_t why_bytes)
{
    return visrec_uvh5_append(files->file, dump, unix_ns, why, why_bytes);
}

int visrec_files_next(struct visrec_files *files, char *why, size_t why_bytes)
{
    struct visrec_uvh5 *next = NULL;
    unsigned number = files->number;
    char path[PATH_MAX];
    int err;

    do {
        err = name_numbered(files, ++number, path, why, why_bytes);
        if (!err)
            err = visrec_uvh5_create(path, false, files->array, files->history, &next, why, why_bytes);
    } while (err == -EEXIST);
    if (err)
        return err;
    err = visrec_uvh5_close(files->file, why, why_bytes);
    files->file = next;
    files->number = number;
    strcpy(files->path, path);
    return err ? -EIO : 0;
}

int visrec_files_close(struct visrec_files *files, char *why, size_t why_bytes)
{
    int err;

    if (!files)
        return 0;
    err = visrec_uvh5_close(files->file, why, why_bytes);
    free(files->history);
    free(files);
    return err;
}
