/* cache.h - blobs kept in files of a directory, by several processes and users of it at once.
 *
 * An entry is written to a file of another name and then renamed, so it is there wholly or not at all; what a crash or
 * a full disk damages all the same is noticed by its checksum and counts as absent.  The key is all that decides what
 * is in an entry, so two who write the same key write the same, and it does not matter who wins.  Nothing is ever
 * deleted: an entry is some tens of kilobytes, and the directory may be emptied at any time.
 *
 * The checksum finds damage, not malice, and an entry runs on the GPU: a directory or an entry that other users may
 * change (trust.h) is not used. */
#ifndef COMMON_DEVICE_CUDA_CACHE_H
#define COMMON_DEVICE_CUDA_CACHE_H

#include "common/base/hash.h"

/* Returns 0 with memory to free(), -ENOENT where there is none that is whole, -EPERM or -ELOOP where it is not trusted,
 * or other negative errno. */
int cache_read(const char *directory, struct hash key, void **data, size_t *bytes);

/* The same of an entry that is open, whoever may change it. */
int cache_read_entry(int fd, struct hash key, void **data, size_t *bytes);

/* Makes the directory, too, below a parent that must be there.  Returns 0, -EPERM where the directory is not trusted, or
 * other negative errno. */
int cache_write(const char *directory, struct hash key, const void *data, size_t bytes);

#endif
