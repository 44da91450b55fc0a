/* copy.h - copies that go past the cache. */
#ifndef COMMON_BASE_COPY_H
#define COMMON_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>

/* memcpy() with stores that do not read the lines of 'out' into the cache first nor push out what is there: for what is
 * not read again soon.  copy_finish() must come before another thread is told of what was copied. */
void copy_past_cache(uint8_t *out, const uint8_t *in, size_t n_bytes);
void copy_finish(void);

#endif
