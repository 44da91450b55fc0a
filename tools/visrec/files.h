/* files.h - the files of one recording: their names, and when the next one begins.
 *
 * UVH5 wants its times in order.  So a dump that is not later than the dump before begins the next file.  A file that is
 * full (output.max_file_size, output.max_file_time) ends before the dump that would make it larger or longer; each file
 * has a dump at least.
 * Names:     output.file with the UTC at which the file begins.  Where a file of this name exists, -2, -3 and so on come
 *            before the extension, the first that is free.  Only the first file may overwrite another, and only with
 *            output.overwrite.  The first file gets a number only where output.file has a time in it.
 *
 * Threads:   one at a time, as visrec/uvh5.h. */
#ifndef TOOLS_VISREC_FILES_H
#define TOOLS_VISREC_FILES_H

#include "tools/visrec/array.h"
#include "tools/visrec/config.h"
#include "tools/visrec/dump.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct visrec_files;

/* Makes the first file; 'config' and 'array' must outlive it.  Returns 0 or negative errno with one sentence in
 * 'why'. */
int visrec_files_open(const struct visrec_config *config, const struct visrec_array *array, struct visrec_files **files,
                      char *why, size_t why_bytes);

/* The file that is written. */
const char *visrec_files_path(const struct visrec_files *files);

/* The path of the first file.  Any thread. */
const char *visrec_files_first_path(const struct visrec_files *files);

/* Whether this dump belongs into the next file, as the file that is written would be too large or too long with it. */
bool visrec_files_is_full(const struct visrec_files *files, const struct visrec_dump *dump);

/* Dumps in the file that is written. */
uint64_t visrec_files_n_dumps(const struct visrec_files *files);

/* As visrec_uvh5_append(), to the file that is written. */
int visrec_files_append(struct visrec_files *files, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                        size_t why_bytes);

/* Makes the next file and closes the one before.  Returns 0, or negative errno with one sentence in 'why': -ENOSPC and
 * -EDQUOT leave all as it was, and may be tried again; after another nothing but a close is allowed. */
int visrec_files_next(struct visrec_files *files, char *why, size_t why_bytes);

/* As visrec_uvh5_close(); NULL is accepted. */
int visrec_files_close(struct visrec_files *files, char *why, size_t why_bytes);

#endif
