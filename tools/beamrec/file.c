/* file.c - the last stage of the flow: writes rows to the disk.  The writer thread calls these functions. */
#include "tools/beamrec/file.h"

#include "common/base/why.h"
#include "tools/shared/record_name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file, and the number of bytes up to the end of the last complete batch. */
struct part {
    char path[PATH_MAX];
    int fd;
    off_t bytes;
};

struct beamrec_file {
    const char *config_key, *format;
    char stem[PATH_MAX];
    unsigned number;
    struct part data, gaps;
    uint64_t n_rows;
    char *gap_text; /* lines about gaps in the next batch, for the list of gaps */
    size_t gap_bytes;
    FILE *gap_stream;
};

static int write_all(struct part *part, const void *data, size_t bytes, off_t *at)
{
    while (bytes > 0) {
        ssize_t n = pwrite(part->fd, data, bytes, *at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data = (const char *)data + n;
        bytes -= (size_t)n;
        *at += n;
    }
    return 0;
}

static void close_part(struct part *part)
{
    if (part->fd < 0)
        return;
    close(part->fd);
    if (part->bytes == 0)
        unlink(part->path);
    part->fd = -1;
}

static int open_part(struct part *part, int flags)
{
    part->bytes = 0;
    part->fd = open(part->path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    return part->fd < 0 ? -errno : 0;
}

/* Creates a data file and its list of gaps.  Tries the name with 'number' first.  While a file of this name exists and
 * 'numbers' is true, tries the next number. */
static int make(struct beamrec_file *file, unsigned number, bool numbers, bool overwrite, char *why, size_t why_bytes)
{
    int flags = overwrite ? O_TRUNC : O_EXCL, err;
    struct part data, gaps;

    do {
        err = record_name_numbered(file->config_key, file->stem, number++, data.path, why, why_bytes);
        if (err)
            return err;
        if (snprintf(gaps.path, PATH_MAX, "%s.gaps", data.path) >= PATH_MAX)
            return why_fail(-ENAMETOOLONG, why, why_bytes, "%s: the name \"%.200s...\" is too long", file->config_key,
                            data.path);
        err = open_part(&data, flags);
        if (err)
            continue;
        err = open_part(&gaps, O_TRUNC);
        if (err)
            close_part(&data);
    } while (err == -EEXIST && numbers);
    if (err)
        return why_fail(err, why, why_bytes, "%s: \"%s\" cannot be created: %s", file->config_key, data.path,
                        strerror(-err));
    close_part(&file->data);
    close_part(&file->gaps);
    file->data = data;
    file->gaps = gaps;
    file->number = number - 1;
    file->n_rows = 0;
    return 0;
}

int beamrec_file_open(const char *config_key, const char *format, bool overwrite, struct beamrec_file **out, char *why,
                      size_t why_bytes)
{
    struct beamrec_file *file = calloc(1, sizeof(*file));

    if (!file)
        return -ENOMEM;
    file->config_key = config_key;
    file->format = format;
    file->data.fd = file->gaps.fd = -1;
    file->gap_stream = open_memstream(&file->gap_text, &file->gap_bytes);
    int err = file->gap_stream ? record_name_stem(file->config_key, format, file->stem, why, why_bytes) : -ENOMEM;
    if (!err)
        err = record_name_check(file->config_key, file->stem, why, why_bytes);
    if (!err)
        err = make(file, 1, !overwrite && strcmp(format, file->stem) != 0, overwrite, why, why_bytes);
    if (err)
        beamrec_file_close(file);
    else
        *out = file;
    return err;
}

int beamrec_file_next(struct beamrec_file *file, char *why, size_t why_bytes)
{
    char stem[PATH_MAX];
    int err = record_name_stem(file->config_key, file->format, stem, why, why_bytes);

    if (err)
        return err;
    unsigned number = strcmp(stem, file->stem) == 0 ? file->number + 1 : 1;
    strcpy(file->stem, stem);
    return make(file, number, true, false, why, why_bytes);
}

const char *beamrec_file_path(const struct beamrec_file *file)
{
    return file->data.path;
}

uint64_t beamrec_file_n_rows(const struct beamrec_file *file)
{
    return file->n_rows;
}

void beamrec_file_add_gap(struct beamrec_file *file, uint64_t first_row, size_t n_rows, size_t first_chan,
                          size_t n_chan)
{
    fprintf(file->gap_stream, "%" PRIu64 " %zu %zu %zu\n", first_row, n_rows, first_chan, n_chan);
}

/* Writes a batch.  A PSRDADA header states the number of data bytes.  This number is written after the data, so it is
 * never too large. */
static int write_batch(struct beamrec_file *file, const struct beamrec_header *header,
                       const struct beamrec_product *product, off_t *data_end, off_t *gaps_end)
{
    char text[BEAMREC_DADA_BYTES];
    bool is_dada = product->shape.is_dada;
    int err = 0;

    if (*data_end == 0)
        err = write_all(&file->data, text,
                        is_dada ? beamrec_header_dada(header, &product->shape, text)
                                : beamrec_header_sigproc(header, &product->shape, text),
                        data_end);
    if (!err)
        err = write_all(&file->data, product->rows, product->bytes, data_end);
    if (!err)
        err = write_all(&file->gaps, file->gap_text, file->gap_bytes, gaps_end);
    if (!err && is_dada) {
        off_t at = BEAMREC_DADA_SIZE_OFFSET;
        int n = snprintf(text, sizeof(text), "%-*" PRId64, BEAMREC_DADA_SIZE_WIDTH,
                         (int64_t)(*data_end - BEAMREC_DADA_BYTES));
        err = write_all(&file->data, text, (size_t)n, &at);
    }
    return err;
}

int beamrec_file_append(struct beamrec_file *file, const struct beamrec_header *header,
                        const struct beamrec_product *product, char *why, size_t why_bytes)
{
    off_t data_end = file->data.bytes, gaps_end = file->gaps.bytes;

    fflush(file->gap_stream);
    int err = write_batch(file, header, product, &data_end, &gaps_end);
    rewind(file->gap_stream);
    fflush(file->gap_stream);
    if (err) {
        /* If ftruncate() fails, the next batch overwrites the incomplete batch. */
        if (ftruncate(file->data.fd, file->data.bytes) != 0 || ftruncate(file->gaps.fd, file->gaps.bytes) != 0)
            err = err == -ENOSPC ? err : -errno;
        return why_fail(err, why, why_bytes, "\"%s\" cannot be written: %s", file->data.path, strerror(-err));
    }
    file->data.bytes = data_end;
    file->gaps.bytes = gaps_end;
    file->n_rows += product->n_rows;
    return 0;
}

void beamrec_file_close(struct beamrec_file *file)
{
    if (!file)
        return;
    close_part(&file->data);
    close_part(&file->gaps);
    if (file->gap_stream)
        fclose(file->gap_stream);
    free(file->gap_text);
    free(file);
}
