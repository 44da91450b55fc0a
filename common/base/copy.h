/* copy.h - copies data to memory without using the cache. */
#ifndef COMMON_BASE_COPY_H
#define COMMON_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Copies bytes as memcpy() does, but the stores bypass the cache: they neither read cache lines of 'out' nor evict
 * other lines.  Use this function for data that are not read again soon.  Call copy_finish() before another thread may
 * read the copied data. */
void copy_past_cache(uint8_t *out, const uint8_t *in, size_t n_bytes);
void copy_finish(void);

#endif
