/* file.h - operations on files that several modules need. */
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Returns whether two paths name the same file, which need not exist.  A path that is NULL names no file. */
bool files_are_same(const char *a, const char *b);

/* Raises the soft limit on open files to the hard limit.  The soft limit is usually low for the sake of select(2),
 * which no program here uses. */
void files_raise_limit(void);

/* Writes the name of a new or renamed file to the disk, by fsync() on the file's directory.  Does nothing if the
 * process may not read the directory, or if the file system does not support this fsync.  Returns 0 or negative
 * errno. */
int file_sync_name(const char *path);
/* Opens a file for reading.  Never waits, not even for the writer of a FIFO.  Opens a FIFO only if 'is_fifo' is not
 * NULL.  Returns 0 or negative errno: -EISDIR for a directory, -EINVAL for a device or another special file. */
int file_open_read(const char *path, bool *is_fifo, FILE **file);

/* Reads a number from the file 'path'.  The number is in the first line that matches 'format', which is a format of
 * sscanf() for one unsigned long long.  Returns false if no line matches. */
bool file_find_number(const char *path, const char *format, unsigned long long *number);

/* Closes 'out', a stream that open_memstream() has opened for '*text'.  Returns 0, or -ENOMEM if an allocation failed.
 * '*text' is then NULL.  glibc's fclose() may return 0 although the text is NULL.  'out' may be NULL. */
int file_close_text(FILE *out, char **text);

struct file_part {
    const void *data;
    size_t bytes;
};

/* Writes the parts, one after the other, to the file 'directory'/'name', which all users may read.  At any time the
 * name refers to the complete old file or to the complete new file, even if other processes replace the file or the
 * host crashes.  The file and its name are on the disk when the function returns 0.  Returns 0 or negative errno. */
int file_replace(const char *directory, const char *name, const struct file_part *parts, size_t n_parts);

/* Removes old temporary files of file_replace() from 'directory'.  A process leaves such a file if it is killed.
 * 'directory' need not exist.  Removes only files older than an hour, because no write takes that long.  A program
 * that keeps files in a directory calls this function at its start. */
void file_remove_stale(const char *directory);

#endif
