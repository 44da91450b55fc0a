/* files.c - called by the writer thread: chooses the file of each dump. */
#include "tools/visrec/files.h"

#include "common/base/version.h"
#include "tools/shared/record_name.h"
#include "tools/visrec/uvh5.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "output.file"

struct visrec_files {
    const struct visrec_config_output *config;
    const struct visrec_array *array;
    int64_t integration_samples;
    double max_file_samples; /* 0: no limit */
    char *history;           /* text of the header item 'history', the same in all files */
    char stem[PATH_MAX];     /* name of the current file, without the number -2, -3 and so on */
    unsigned number;         /* number of the current file, counted from 1 */
    char first_path[PATH_MAX];
    char path[PATH_MAX];
    struct visrec_uvh5 *file;
    uint64_t n_dumps;      /* number of dumps in the current file */
    int64_t first_samples; /* timestamp of the first dump in the current file */
};

/* Creates a file.  Tries the name with 'number' first.  While a file of this name exists and 'numbers' is true, tries
 * the next number. */
static int make_file(struct visrec_files *files, const char *stem, unsigned number, bool numbers, bool overwrite,
                     char *why, size_t why_bytes)
{
    struct visrec_uvh5 *file = NULL;
    char path[PATH_MAX];
    int err;

    do {
        err = record_name_numbered(KEY, stem, number++, path, why, why_bytes);
        if (!err)
            err = visrec_uvh5_create(path, overwrite, files->array, files->history, &file, why, why_bytes);
    } while (err == -EEXIST && numbers);
    if (err)
        return err;
    err = visrec_uvh5_close(files->file, why, why_bytes);
    files->file = file;
    files->number = number - 1;
    files->n_dumps = 0;
    memmove(files->stem, stem, strlen(stem) + 1);
    strcpy(files->path, path);
    return err ? -EIO : 0;
}

/* Returns the text of the header item 'history': the program's version and its configuration.  A user can repeat the
 * recording with this configuration. */
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

static int open_first(struct visrec_files *files, char *why, size_t why_bytes)
{
    const struct visrec_config_output *config = files->config;
    int err = record_name_stem(KEY, config->file, files->stem, why, why_bytes);

    if (!err)
        err = record_name_check(KEY, files->stem, why, why_bytes);
    if (!err)
        err = make_file(files, files->stem, 1, !config->overwrite && strcmp(config->file, files->stem) != 0,
                        config->overwrite, why, why_bytes);
    strcpy(files->first_path, files->path);
    return err;
}

int visrec_files_open(const struct visrec_config *config, const struct visrec_array *array, struct visrec_files **out,
                      char *why, size_t why_bytes)
{
    struct visrec_files *files = calloc(1, sizeof(*files));
    int err = -ENOMEM;

    if (!files)
        return err;
    files->config = &config->output;
    files->array = array;
    files->integration_samples = visrec_config_integration_samples(config);
    files->max_file_samples =
        config->output.max_file_time_s * timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    files->history = write_history(config);
    if (files->history)
        err = open_first(files, why, why_bytes);
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

uint64_t visrec_files_n_dumps(const struct visrec_files *files)
{
    return files->n_dumps;
}

/* Returns true if 'dump' would exceed max_file_time.  Tolerates half a sample, because the sample rate is rounded to a
 * double. */
static bool is_too_long(const struct visrec_files *files, const struct visrec_dump *dump)
{
    int64_t end_samples = dump->timestamp_samples + files->integration_samples;

    return files->max_file_samples > 0 && (double)(end_samples - files->first_samples) > files->max_file_samples + 0.5;
}

bool visrec_files_is_full(const struct visrec_files *files, const struct visrec_dump *dump)
{
    uint64_t max_bytes = (uint64_t)files->config->max_file_bytes;

    return files->n_dumps > 0 &&
           (is_too_long(files, dump) || (max_bytes > 0 && visrec_uvh5_bytes_with(files->file, dump) > max_bytes));
}

int visrec_files_append(struct visrec_files *files, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                        size_t why_bytes)
{
    int err = visrec_uvh5_append(files->file, dump, unix_ns, why, why_bytes);

    if (err)
        return err;
    if (files->n_dumps++ == 0)
        files->first_samples = dump->timestamp_samples;
    return 0;
}

int visrec_files_next(struct visrec_files *files, char *why, size_t why_bytes)
{
    char stem[PATH_MAX];
    int err = record_name_stem(KEY, files->config->file, stem, why, why_bytes);

    if (err)
        return err;
    return make_file(files, stem, strcmp(stem, files->stem) == 0 ? files->number + 1 : 1, true, false, why, why_bytes);
}

int visrec_files_close(struct visrec_files *files, char *why, size_t why_bytes)
{
    if (!files)
        return 0;
    int err = visrec_uvh5_close(files->file, why, why_bytes);
    free(files->history);
    free(files);
    return err;
}
