/* uvh5.h - writes a UVH5 file, pyuvdata's format of visibilities in HDF5.  Only visrec/uvh5*.c use HDF5.
 *
 * Flow:      main opens the file; the writer thread appends dump after dump; main closes the file
 * Threads:   one at a time, because the HDF5 library is not thread-safe.
 * Crashes:   after each append the file is complete and readable, also while the recorder runs.  A kill loses only the
 *            dump that is being written.  The last few writes of an append change the tables of HDF5, and take tens of
 *            microseconds.  A kill between these writes leaves a file that does not open until
 *            scripts/repair_uvh5.py repairs it.
 * Damage:    the datasets visdata, flags and nsamples have HDF5's checksums (Fletcher), which every reader of HDF5
 *            checks.
 * Source:    pyuvdata's "Memo: UVH5 file format", version 1.2.  docs/visibilities.md describes the choices that the
 *            memo leaves open. */
#ifndef TOOLS_VISREC_UVH5_H
#define TOOLS_VISREC_UVH5_H

#include "tools/visrec/array.h"
#include "tools/visrec/dump.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct visrec_uvh5;

/* Creates the file with its header and no dumps.  'array' must outlive the object; 'history' is copied into the file.
 * A file to be overwritten stays unchanged until the first dump.  Until then, the new file is PATH.new in the same
 * directory.  If PATH is a symbolic link, the link's target is overwritten; a link without a target is refused.  The
 * file's directory entry is on the disk before the first dump.  Returns 0 or negative errno with one sentence in 'why'.
 * -EEXIST: the file exists and may not be overwritten. */
int visrec_uvh5_create(const char *path, bool overwrite, const struct visrec_array *array, const char *history,
                       struct visrec_uvh5 **file, char *why, size_t why_bytes);

/* Appends a dump, and passes all data to the kernel.  'unix_ns' is the middle of the dump's accumulation.  'unix_ns'
 * must be later than 'unix_ns' of the previous call.  Returns 0, or negative errno with one sentence in 'why'.  After
 * -ENOSPC or -EDQUOT the file is unchanged, and the next dump may find space.  After -EIO only a close is allowed. */
int visrec_uvh5_append(struct visrec_uvh5 *file, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                       size_t why_bytes);

/* Returns an upper bound of the file's size with 'dump' appended, in bytes.  Returns 0 if the file's size is not
 * available. */
uint64_t visrec_uvh5_bytes_with(const struct visrec_uvh5 *file, const struct visrec_dump *dump);

/* Closes the file.  Removes a file without dumps.  NULL is accepted.  Returns 0, or negative errno with one sentence in
 * 'why' if some data were not written. */
int visrec_uvh5_close(struct visrec_uvh5 *file, char *why, size_t why_bytes);

#endif
