/* uvh5.h - a UVH5 file, which is HDF5 as pyuvdata reads it.  Only visrec/uvh5*.c use HDF5.
 *
 * Flow:      main opens the file; the writer thread appends dump after dump; main closes the file
 * Threads:   one at a time, because the HDF5 library does not support more.
 * Crashes:   after each append the file is complete and readable, also while the recorder runs.  A kill costs the dump
 *            that is being written.  The last few writes of a flush update the metadata (tens of microseconds per
 *            dump).  A kill between these writes leaves a file that scripts/repair_uvh5.py repairs.
 * Damage:    the data, flags and samples have HDF5's checksums (Fletcher), which every reader of HDF5 checks.
 * Source:    pyuvdata's "Memo: UVH5 file format", version 1.2.  docs/visibilities.md has the choices that the memo
 *            leaves open. */
#ifndef TOOLS_VISREC_UVH5_H
#define TOOLS_VISREC_UVH5_H

#include "tools/visrec/array.h"
#include "tools/visrec/dump.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct visrec_uvh5;

/* Makes the file with its header and no dumps.  'array' must outlive the object; 'history' is copied into the file.  A
 * file to be overwritten stays unchanged until the first dump.  Until then the new file is beside it, as PATH.new.  If
 * PATH is a symbolic link, the link's target is overwritten; a link without a target is refused.  The file's name is on
 * the disk before the first dump.  Returns 0 or negative errno with one sentence in 'why'.  -EEXIST: the file exists
 * and may not be overwritten. */
int visrec_uvh5_create(const char *path, bool overwrite, const struct visrec_array *array, const char *history,
                       struct visrec_uvh5 **file, char *why, size_t why_bytes);

/* Appends a dump and hands everything to the kernel.  'unix_ns' is the middle of the dump's accumulation, and must be
 * later than the middle of the dump before.  Returns 0, or negative errno with one sentence in 'why'.  After -ENOSPC
 * and -EDQUOT the file is as before, and the next dump may find room.  After -EIO only a close is allowed. */
int visrec_uvh5_append(struct visrec_uvh5 *file, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                       size_t why_bytes);

/* Returns the greatest size in bytes that the file would have with 'dump' appended; 0 if the file's size is not
 * available. */
uint64_t visrec_uvh5_bytes_with(const struct visrec_uvh5 *file, const struct visrec_dump *dump);

/* Closes the file.  Removes a file without dumps.  NULL is accepted.  Returns 0, or negative errno with one sentence in
 * 'why' if some data were not written. */
int visrec_uvh5_close(struct visrec_uvh5 *file, char *why, size_t why_bytes);

#endif
