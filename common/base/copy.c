/* copy.c - copies data from a receive buffer to the chunk, without using the cache. */
#include "common/base/copy.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

#define LINE_BYTES 64

void copy_past_cache(uint8_t *out, const uint8_t *in, size_t n_bytes)
{
    size_t n_before = -(uintptr_t)out % LINE_BYTES;

    if (n_before > n_bytes)
        n_before = n_bytes;
    if (n_before > 0)
        memcpy(out, in, n_before);
    out += n_before;
    in += n_before;
    n_bytes -= n_before;
    /* Copies whole cache lines, so that the CPU writes each line to memory in one transaction. */
    for (; n_bytes >= LINE_BYTES; n_bytes -= LINE_BYTES, in += LINE_BYTES, out += LINE_BYTES) {
        const __m128i *from = (const __m128i *)in;
        __m128i *to = (__m128i *)out;
        __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
        __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    if (n_bytes > 0)
        memcpy(out, in, n_bytes);
}

void copy_finish(void)
{
    _mm_sfence();
}

#else

void copy_past_cache(uint8_t *out, const uint8_t *in, size_t n_bytes)
{
    memcpy(out, in, n_bytes);
}

void copy_finish(void)
{
}

#endif
