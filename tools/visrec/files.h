/* files.h - manages the files of one recording: their names, and the start of the next file.
 *
 * UVH5 requires increasing times.  If a dump is not later than the previous dump, the dump begins the next file.
 * output.max_file_size and output.max_file_time limit a file.  A file ends before the dump that would exceed a limit.
 * Each file has at least one dump.
 * Names:     a file's name is output.file with the UTC at which the file begins.  If a file of this name exists, the
 *            new name has a number before the extension: -2, -3 and so on, the first free number.  Only the first file
 *            may overwrite another file, and only with output.overwrite.  The first file gets a number only if
 *            output.file contains a time.
 *
 * Threads:   one at a time, as in visrec/uvh5.h. */
#ifndef TOOLS_VISREC_FILES_H
#define TOOLS_VISREC_FILES_H

#include "tools/visrec/array.h"
#include "tools/visrec/config.h"
#include "tools/visrec/dump.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct visrec_files;

/* Makes the first file.  'config' and 'array' must outlive the object.  Returns 0 or negative errno with one sentence
 * in 'why'. */
int visrec_files_open(const struct visrec_config *config, const struct visrec_array *array, struct visrec_files **files,
                      char *why, size_t why_bytes);

/* Returns the path of the current file. */
const char *visrec_files_path(const struct visrec_files *files);

/* Returns the path of the first file.  Any thread may call this function. */
const char *visrec_files_first_path(const struct visrec_files *files);

/* Returns true if 'dump' must begin the next file, because it would make the current file too large or too long. */
bool visrec_files_is_full(const struct visrec_files *files, const struct visrec_dump *dump);

/* Returns the number of dumps in the current file. */
uint64_t visrec_files_n_dumps(const struct visrec_files *files);

/* Appends a dump to the current file.  Returns the same values as visrec_uvh5_append() does. */
int visrec_files_append(struct visrec_files *files, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                        size_t why_bytes);

/* Creates the next file and closes the current file.  Returns 0, or negative errno with one sentence in 'why'.  After
 * -ENOSPC or -EDQUOT nothing has changed, and the caller may call again.  After any other error, only a close is
 * allowed. */
int visrec_files_next(struct visrec_files *files, char *why, size_t why_bytes);

/* Closes the current file with visrec_uvh5_close(), and frees the object.  NULL is accepted. */
int visrec_files_close(struct visrec_files *files, char *why, size_t why_bytes);

#endif
