/* file.h - operations on files that several modules need. */
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Returns whether two paths (NULL: none) name the same file.  The file need not exist. */
bool files_are_same(const char *a, const char *b);

/* Raises the limit on open files as far as this process may.  The usual limit is low for select(2), which no program
 * here uses. */
void files_raise_limit(void);

/* Writes the name of a new or renamed file to the disk: fsync of its directory.  Does nothing if the process may not
 * read the directory, or if the file system does not support this fsync.  Returns 0 or negative errno. */
int file_sync_name(const char *path);
/* Opens a file for reading.  Never waits, not even for the writer of a FIFO.  Opens a FIFO only if 'is_fifo' is not
 * NULL.  Returns 0, -EISDIR, -EINVAL if the file is a device or similar, or other negative errno. */
int file_open_read(const char *path, bool *is_fifo, FILE **file);

/* Reads a number from the first line that matches 'format' (sscanf, one unsigned long long).  Returns false if none. */
bool file_find_number(const char *path, const char *format, unsigned long long *number);

struct file_part {
    const void *data;
    size_t bytes;
};

/* Writes the parts, one after the other, to 'directory'/'name', readable by all.  At any time the name belongs to the
 * whole old file or the whole new file, even if other processes replace the file or the host crashes.  When the
 * function returns, the name is on the disk, too.  Returns 0 or negative errno. */
int file_replace(const char *directory, const char *name, const struct file_part *parts, size_t n_parts);

/* Removes temporary files that killed processes left in file_replace().  'directory' need not exist.  Removes only
 * files older than an hour, because no write takes that long.  Programs that keep files there call this function at
 * their start. */
void file_remove_stale(const char *directory);

#endif
