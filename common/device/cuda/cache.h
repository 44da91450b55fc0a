/* cache.h - blobs in files of a directory, which several processes and users share.
 *
 * An entry is written to a file with another name, which is then renamed.  So an entry exists wholly or not at all.  If
 * a crash or a full disk damages an entry all the same, its checksum fails, and the entry counts as absent.  The key
 * covers everything that decides an entry's content.  So two processes that write the same key write the same content,
 * in any order.  Nothing is ever deleted: an entry is some tens of kilobytes, and the directory may be emptied at any
 * time.
 *
 * The checksum detects damage, not malice, and an entry runs on the GPU.  So a directory or an entry that other users
 * may change (trust.h) is not used. */
#ifndef COMMON_DEVICE_CUDA_CACHE_H
#define COMMON_DEVICE_CUDA_CACHE_H

#include "common/base/hash.h"

/* Reads an entry.  Returns 0 with memory to free(), -ENOENT if there is no intact entry, -EPERM or -ELOOP if the entry
 * is not trusted, or other negative errno. */
int cache_read(const char *directory, struct hash key, void **data, size_t *bytes);

/* Reads an open entry in the same way, without a check of trust. */
int cache_read_entry(int fd, struct hash key, void **data, size_t *bytes);

/* Writes an entry, and makes the directory if it is missing, below an existing parent.  Returns 0, -EPERM if the
 * directory is not trusted, or other negative errno. */
int cache_write(const char *directory, struct hash key, const void *data, size_t bytes);

#endif
