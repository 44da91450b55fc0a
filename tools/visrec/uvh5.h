/* uvh5.h - the file: UVH5, which is HDF5 as pyuvdata reads it.  Only visrec_uvh5*.c know HDF5.
 *
 * Flow:      main opens it; the writer thread appends dump after dump; main closes it
 * Threads:   one at a time: the HDF5 library is not made for more.
 * Crashes:   after each append the file is complete and readable, while we run, too; a kill costs the dump that is
 *            being written.  One that strikes between the last few writes of a flush, which bring the metadata up to date
 *            (tens of microseconds per dump), leaves a file that scripts/repair_uvh5.py makes whole.
 * Damage:    the data, flags and samples have HDF5's checksums (Fletcher), which every reader of HDF5 checks.
 * Source:    pyuvdata's "Memo: UVH5 file format", version 1.2; docs/visibilities.md has what it leaves open. */
#ifndef TOOLS_VISREC_UVH5_H
#define TOOLS_VISREC_UVH5_H

#include "tools/visrec/array.h"
#include "tools/visrec/dump.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct visrec_uvh5;

/* Makes the file with its header and no dumps; 'array' must outlive it, 'history' is copied into it.  One that is to be
 * overwritten stays as it is until the first dump: until then the new one is beside it, as PATH.new.
 * Where PATH is a symbolic link, it is the file that it leads to that is overwritten; a link that leads nowhere is refused.
 * Its name is on the disk before a dump is.
 * Returns 0 or negative errno (-EEXIST where it exists and may not be overwritten) with one sentence in 'why'. */
int visrec_uvh5_create(const char *path, bool overwrite, const struct visrec_array *array, const char *history,
                       struct visrec_uvh5 **file, char *why, size_t why_bytes);

/* Appends a dump whose accumulation has its middle at 'unix_ns', which must be later than that of the dump before, and
 * hands everything to the kernel.  Returns 0, or negative errno with one sentence in 'why'.  -ENOSPC and -EDQUOT: there
 * is no room, the file is as before, and the next dump may find some; after -EIO nothing but a close is allowed. */
int visrec_uvh5_append(struct visrec_uvh5 *file, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                       size_t why_bytes);

/* Most bytes that the file would have with 'dump' in it, too; 0: its size is not to be had. */
uint64_t visrec_uvh5_bytes_with(const struct visrec_uvh5 *file, const struct visrec_dump *dump);

/* Closes, and removes a file without dumps; NULL is accepted.  Returns 0, or negative errno with one sentence in 'why'
 * if something was not written. */
int visrec_uvh5_close(struct visrec_uvh5 *file, char *why, size_t why_bytes);

#endif
