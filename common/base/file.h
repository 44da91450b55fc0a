/* file.h - what several modules ask of files. */
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Whether two paths (NULL: none) name the same file, existing or not. */
bool files_are_same(const char *a, const char *b);

/* Raises the limit of open files as far as this process may: the usual one is low for select(2)'s sake, which is not
 * used here. */
void files_raise_limit(void);

/* Brings the name of a file that was made or renamed to the disk: fsync of its directory.  Nothing is done where the
 * directory may not be read, or its file system does not know this.  Returns 0 or negative errno. */
int file_sync_name(const char *path);
/* Opens a file for reading.  Never waits, not even for the writer of a FIFO.  Opens a FIFO only if 'is_fifo' is not
 * NULL. Returns 0, negative errno, -EISDIR, or -EINVAL if the file is a device or similar. */
int file_open_read(const char *path, bool *is_fifo, FILE **file);

/* Finds the number of the first line that 'format', of sscanf with one unsigned long long, fits; false: there is none. */
bool file_find_number(const char *path, const char *format, unsigned long long *number);

struct file_part {
    const void *data;
    size_t bytes;
};

/* Makes 'directory'/'name' of the parts, one behind the other, readable by all; it is the old file or the new one at any
 * time, whoever else replaces it, and whatever crashes; on return its name is on the disk, too.  Returns 0 or negative
 * errno. */
int file_replace(const char *directory, const char *name, const struct file_part *parts, size_t n_parts);

/* Removes what file_replace() left in a directory (which need not be there) where its process was killed: for whoever is
 * to keep files there, at the start.  It goes when it is an hour old: nobody writes for so long. */
void file_remove_stale(const char *directory);

#endif
