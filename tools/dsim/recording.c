/* recording.c - the common part of all kinds of recordings: opens the file and reads from it.  The kinds are
 * implemented in dsim/recording_raw.c, dsim/recording_complex.c and dsim/recording_vdif.c. */
#include "tools/dsim/recording.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens the file and sets base->fd and base->file_bytes. */
static int open_file(struct dsim_recording *base, char *why, size_t why_bytes)
{
    struct stat status;

    base->fd = open(base->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO must not block */
    if (base->fd < 0 || fstat(base->fd, &status)) {
        int err = -errno;
        snprintf(why, why_bytes, "%s cannot be opened: %s", base->path, strerror(-err));
        return err;
    }
    if (!S_ISREG(status.st_mode)) {
        snprintf(why, why_bytes, "%s is not a regular file", base->path);
        return S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;
    }
    base->file_bytes = (int64_t)status.st_size;
    /* Asks the kernel to read further ahead.  The kernel may ignore this advice. */
    (void)posix_fadvise(base->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

int dsim_recording_open(const struct dsim_recording_config *config, size_t max_samples,
                        struct dsim_recording_counters *counters, struct dsim_recording **recording, char *why,
                        size_t why_bytes)
{
    struct dsim_recording base = {.counters = counters, .path = config->path, .fd = -1};

    assert(max_samples > 0 && config->start_samples >= 0);
    int err = open_file(&base, why, why_bytes);
    if (!err && config->kind == DSIM_RECORDING_VDIF)
        err = dsim_recording_vdif_open(config, &base, max_samples, recording, why, why_bytes);
    else if (!err && config->kind == DSIM_RECORDING_CI16)
        err = dsim_recording_complex_open(config, &base, recording, why, why_bytes);
    else if (!err)
        err = dsim_recording_raw_open(config, &base, recording, why, why_bytes);
    if (err && base.fd >= 0)
        close(base.fd);
    return err;
}

int64_t dsim_recording_n_samples(const struct dsim_recording *recording)
{
    return recording->n_samples;
}

int64_t dsim_recording_n_rest_bytes(const struct dsim_recording *recording)
{
    return recording->n_rest_bytes;
}

int dsim_recording_pread(const struct dsim_recording *recording, int64_t offset, void *bytes, size_t n_bytes, char *why,
                         size_t why_bytes)
{
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = pread(recording->fd, (char *)bytes + done, n_bytes - done, (off_t)(offset + (int64_t)done));
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        int err = n < 0 ? -errno : -ENODATA;
        struct stat status = {0};
        if (n == 0 && fstat(recording->fd, &status) == 0)
            snprintf(why, why_bytes, "%s has only %lld bytes now, but had %lld when it was opened", recording->path,
                     (long long)status.st_size, (long long)recording->file_bytes);
        else
            snprintf(why, why_bytes, "%s cannot be read at byte %lld: %s", recording->path,
                     (long long)(offset + (int64_t)done), strerror(-err));
        return err;
    }
    return 0;
}

int dsim_recording_read(struct dsim_recording *recording, int64_t first, size_t n_samples, double *values, char *why,
                        size_t why_bytes)
{
    assert(first >= 0 && first + (int64_t)n_samples <= recording->n_samples);
    return recording->ops->read(recording, first, n_samples, values, why, why_bytes);
}

void dsim_recording_close(struct dsim_recording *recording)
{
    if (!recording)
        return;
    close(recording->fd);
    recording->ops->close(recording);
}
