/* cache.h - a cache of blobs in the files of a directory, which several processes and users may share.  An entry is
 * written to a temporary file, which is then renamed.  So an entry exists wholly or not at all.  If a crash or a full
 * disk damages an entry nevertheless, its checksum does not match, and the entry counts as absent.  The key is a hash
 * of everything that determines an entry's content.  So processes that write the same key at the same time write the
 * same content.  Entries are never deleted.  An entry has some tens of kilobytes.  The directory may be emptied at any
 * time.  The checksum does not detect malicious changes, and entries are executed on the GPU.  So a directory or an
 * entry that other users may change (trust.h) is not used. */
#ifndef COMMON_DEVICE_CUDA_CACHE_H
#define COMMON_DEVICE_CUDA_CACHE_H

#include "common/base/hash.h"

/* Reads an entry into memory that the caller must free().  Returns 0, -ENOENT if there is no intact entry, -EPERM or
 * -ELOOP if the entry is not trusted, or other negative errno. */
int cache_read(const char *directory, struct hash key, void **data, size_t *bytes);

/* Reads the entry in the open file 'fd'.  Does the same as cache_read(), but does not check whether the file is
 * trusted. */
int cache_read_entry(int fd, struct hash key, void **data, size_t *bytes);

/* Writes an entry.  Creates the directory if it is missing; its parent must exist.  Returns 0, -EPERM if the directory
 * is not trusted, or other negative errno. */
int cache_write(const char *directory, struct hash key, const void *data, size_t bytes);

#endif
