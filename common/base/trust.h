/* trust.h - whether other users may change files that this process is about to use: compiled kernels, saved settings.
 *
 * A file or directory is trusted if it belongs to this process's user or to root, and if neither its group nor others
 * may write to it.  If an access list lets a group write, the mode shows this, too.  The check looks at the
 * open file.  So no user can replace the file between the check and the use.
 *
 * Threads: any.   Blocking: as opening a file is. */
#ifndef COMMON_BASE_TRUST_H
#define COMMON_BASE_TRUST_H

/* The advice about -EPERM, for a sentence. */
#define TRUST_CURE                                                                                                     \
    "it must belong to this user or to root, and neither its group nor others may write there (chmod go-w)"

/* Looks at an open file or directory.  Returns 0, -EPERM where it is not trusted, or other negative errno. */
int trust_fd(int fd);

/* The same of a path to a directory, which may be a symbolic link. */
int trust_directory(const char *path);

/* Opens the regular file 'name' of a directory for reading, if both are trusted.  Returns the descriptor, -EPERM where
 * one is not, -ELOOP where 'name' is a symbolic link, -EISDIR or -EINVAL where it is a directory or another thing, or
 * other negative errno. */
int trust_open(const char *directory, const char *name);

#endif
