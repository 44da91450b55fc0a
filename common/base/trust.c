/* trust.c - checks the owner and mode of a file before the program reads compiled GPU kernels, tuned shapes or saved
 * settings from it. */
#include "common/base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static int check(const struct stat *st)
{
    bool ours = st->st_uid == geteuid() || st->st_uid == 0;

    return ours && !(st->st_mode & (S_IWGRP | S_IWOTH)) ? 0 : -EPERM;
}

int trust_fd(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? check(&st) : -errno;
}

/* Opens a directory and checks it.  Returns the descriptor of a trusted directory, or negative errno. */
static int open_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 ? -errno : trust_fd(fd);

    if (!err)
        return fd;
    if (fd >= 0)
        close(fd);
    return err;
}

int trust_directory(const char *path)
{
    int fd = open_directory(path);

    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

int trust_open(const char *directory, const char *name)
{
    struct stat st;
    int directory_fd = open_directory(directory);

    if (directory_fd < 0)
        return directory_fd;
    /* With O_NONBLOCK, open() does not wait for a writer if the file is a FIFO. */
    int fd = openat(directory_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int err = fd < 0 || fstat(fd, &st) != 0 ? -errno : 0;
    if (!err && !S_ISREG(st.st_mode))
        err = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    if (!err)
        err = check(&st);
    close(directory_fd);
    if (!err)
        return fd;
    if (fd >= 0)
        close(fd);
    return err;
}
