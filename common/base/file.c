/* file.c - compares paths, reads files, and replaces files as a whole. */
#include "common/base/file.h"

#include "common/base/clock.h"
#include "common/base/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Prefix of the names of temporary files.  file_replace() renames each file when it is complete. */
#define NEW_PREFIX "cbf-new-"
#define NEW_RANDOM "XXXXXX"
#define STALE_NS   (3600 * NS_PER_S)

bool files_are_same(const char *a, const char *b)
{
    struct stat x, y;

    if (!a || !b)
        return false;
    if (strcmp(a, b) == 0)
        return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Checks that a file is a regular file, or a FIFO if 'is_fifo' is not NULL.  Returns 0, -EISDIR or -EINVAL. */
static int check_kind(mode_t mode, bool *is_fifo)
{
    if (is_fifo)
        *is_fifo = S_ISFIFO(mode);
    if (S_ISDIR(mode))
        return -EISDIR;
    return S_ISREG(mode) || (is_fifo && *is_fifo) ? 0 : -EINVAL;
}

int file_open_read(const char *path, bool *is_fifo, FILE **file)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;

    if (fd < 0)
        return -errno;
    int err = fstat(fd, &status) ? -errno : check_kind(status.st_mode, is_fifo);
    if (!err && (fcntl(fd, F_SETFL, 0) || !(*file = fdopen(fd, "rb"))))
        err = -errno;
    if (err)
        close(fd);
    return err;
}

bool file_find_number(const char *path, const char *format, unsigned long long *number)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "re");

    while (file && !found && fgets(line, sizeof(line), file))
        found = sscanf(line, format, number) == 1;
    if (file)
        fclose(file);
    return found;
}

int file_close_text(FILE *out, char **text)
{
    bool failed = !out || ferror(out);

    if (out && fclose(out) == 0 && !failed && *text)
        return 0;
    free(*text);
    *text = NULL;
    return -ENOMEM;
}

static int write_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);

        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int file_sync_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX] = ".";
    int err, fd;

    if (slash &&
        snprintf(directory, sizeof(directory), "%.*s", slash == path ? 1 : (int)(slash - path), path) >= PATH_MAX)
        return -ENAMETOOLONG;
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? 0 : -errno;
    err = fsync(fd) != 0 && errno != EINVAL ? -errno : 0;
    close(fd);
    return err;
}

int file_replace(const char *directory, const char *name, const struct file_part *parts, size_t n_parts)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    int err = 0;

    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= PATH_MAX ||
        snprintf(temporary, sizeof(temporary), "%s/" NEW_PREFIX NEW_RANDOM, directory) >= PATH_MAX)
        return -ENAMETOOLONG;
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (size_t i = 0; i < n_parts && !err; i++)
        err = write_all(fd, parts[i].data, parts[i].bytes);
    /* Writes the file's bytes to the disk before the rename.  Otherwise a crash could leave an empty file with the
     * new name. */
    if (!err && (fchmod(fd, 0644) != 0 || fsync(fd) != 0))
        err = -errno;
    if (close(fd) != 0 && !err)
        err = -errno;
    if (!err && rename(temporary, path) != 0)
        err = -errno;
    if (err) {
        unlink(temporary);
        return err;
    }
    return file_sync_name(path);
}

static bool is_stale(int directory, const char *name)
{
    struct stat file;

    return strncmp(name, NEW_PREFIX, strlen(NEW_PREFIX)) == 0 && strlen(name) == strlen(NEW_PREFIX NEW_RANDOM) &&
           fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(file.st_mode) &&
           file.st_mtim.tv_sec * NS_PER_S + file.st_mtim.tv_nsec < clock_unix_ns() - STALE_NS;
}

void file_remove_stale(const char *directory)
{
    DIR *entries = opendir(directory);

    if (!entries)
        return;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
        if (is_stale(dirfd(entries), entry->d_name))
            unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
}

void files_raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}
