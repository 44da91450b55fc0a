/* hash.h - 128-bit FNV-1a (Fowler, Noll and Vo), for names of cache entries and for detecting accidental damage.  The
 * hash does not protect against an attacker.  Two texts have the same hash with a probability of 2^-128. */
#ifndef COMMON_BASE_HASH_H
#define COMMON_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hash {
    uint64_t high, low;
};

#define HASH_START                                                                                                     \
    (struct hash)                                                                                                      \
    {                                                                                                                  \
        UINT64_C(0x6c62272e07bb0142), UINT64_C(0x62b821756295c58d)                                                     \
    }

static inline void hash_bytes(struct hash *hash, const void *data, size_t bytes)
{
    unsigned __int128 h = (unsigned __int128)hash->high << 64 | hash->low;
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const uint8_t *)data)[i]) * prime;
    hash->high = (uint64_t)(h >> 64);
    hash->low = (uint64_t)h;
}

/* Adds a text with its final NUL to the hash, so that the hash depends on the boundary between two texts. */
static inline void hash_text(struct hash *hash, const char *text)
{
    hash_bytes(hash, text, strlen(text) + 1);
}

#endif
