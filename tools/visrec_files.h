/* visrec_files.h - the files of one recording: their names, and the next one when time has gone back.
 *
 * UVH5 wants its times in order.  So a dump that is not later than the dump before begins the next file: the name of the
 * first with -2, -3 and so on before its extension, the first of these that is free.  Nothing that exists is
 * overwritten by it, whatever output.overwrite says.
 *
 * Threads:   one at a time, as visrec_uvh5.h. */
#ifndef TOOLS_VISREC_FILES_H
#define TOOLS_VISREC_FILES_H

#include "tools/visrec_array.h"
#include "tools/visrec_config.h"
#include "tools/visrec_dump.h"

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

/* As visrec_uvh5_append(), to the file that is written. */
int visrec_files_append(struct visrec_files *files, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                        size_t why_bytes);

/* Makes the next file and closes the one before.  Returns 0, or negative errno with one sentence in 'why': -ENOSPC and
 * -EDQUOT leave all as it was, and may be tried again; after another nothing but a close is allowed. */
int visrec_files_next(struct visrec_files *files, char *why, size_t why_bytes);

/* As visrec_uvh5_close(); NULL is accepted. */
int visrec_files_close(struct visrec_files *files, char *why, size_t why_bytes);

#endif
