/* trust.h - checks that other users cannot have changed a file, for example a compiled GPU kernel or a saved setting.
 *
 * A file or directory is trusted if it belongs to this process's user or to root, and if neither its group nor others
 * may write to it.  The mode's group bits also cover the permissions of an access control list.  The functions check
 * the open file, so that no user can replace the file between the check and the use.
 *
 * Threads: any.   Blocking: as long as opening a file takes. */
#ifndef COMMON_BASE_TRUST_H
#define COMMON_BASE_TRUST_H

/* Text that ends the message after -EPERM: the conditions for trust, and the remedy. */
#define TRUST_CURE                                                                                                     \
    "it must belong to this user or to root, and neither its group nor others may have write permission (chmod go-w)"

/* Checks an open file or directory.  Returns 0, -EPERM if it is not trusted, or other negative errno. */
int trust_fd(int fd);

/* Checks a directory in the same way as trust_fd().  The path may be a symbolic link. */
int trust_directory(const char *path);

/* Opens the regular file 'name' in a directory for reading, if the file and the directory are trusted.  Returns the
 * descriptor, -EPERM if the file or the directory is not trusted, -ELOOP if 'name' is a symbolic link, -EISDIR if
 * 'name' is a directory, -EINVAL if 'name' is another kind of file, or other negative errno. */
int trust_open(const char *directory, const char *name);

#endif
