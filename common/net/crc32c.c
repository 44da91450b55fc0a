/* crc32c.c - computes the CRCs of packets, in the send and receive threads.  spead.c writes and reads the CRC item. */
#include "common/net/crc32c.h"

#include <endian.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <nmmintrin.h>
#endif
#ifdef __aarch64__
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#define POLYNOMIAL  UINT32_C(0x82f63b78) /* the polynomial 0x1edc6f41 with its bits in reverse order */
#define BLOCK_BYTES 512                  /* block size of each of the three interleaved computations */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t tables[8][256]; /* tables[k][b]: state after byte b and k zero bytes, if the initial state is 0 */
/* skips[k][b]: state after BLOCK_BYTES zero bytes, if the initial state is b << (8 * k) */
static uint32_t skips[4][256];
static bool has_instruction;

static uint32_t step_tables(uint32_t state, const uint8_t *bytes, size_t n)
{
    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof(word));
        word = le64toh(word) ^ state;
        state = 0;
        for (unsigned k = 0; k < 8; k++)
            state ^= tables[7 - k][word >> 8 * k & 0xff];
    }
    for (; n > 0; n--, bytes++)
        state = state >> 8 ^ tables[0][(state ^ *bytes) & 0xff];
    return state;
}

static void make_tables(void)
{
    static const uint8_t zeros[BLOCK_BYTES];

    for (uint32_t b = 0; b < 256; b++) {
        uint32_t state = b;
        for (unsigned bit = 0; bit < 8; bit++)
            state = state >> 1 ^ (state & 1 ? POLYNOMIAL : 0);
        tables[0][b] = state;
    }
    for (unsigned k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 0xff];
    for (unsigned k = 0; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++)
            skips[k][b] = step_tables(b << 8 * k, zeros, sizeof(zeros));
#if defined(__x86_64__)
    has_instruction = __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__)
    has_instruction = getauxval(AT_HWCAP) & HWCAP_CRC32;
#endif
}

#if defined(__x86_64__) || defined(__aarch64__)

#ifdef __x86_64__
#define TARGET __attribute__((target("sse4.2")))
TARGET static inline uint32_t step_word(uint32_t state, uint64_t word)
{
    return (uint32_t)_mm_crc32_u64(state, word);
}
TARGET static inline uint32_t step_byte(uint32_t state, uint8_t byte)
{
    return _mm_crc32_u8(state, byte);
}
#else
#define TARGET __attribute__((target("+crc")))
TARGET static inline uint32_t step_word(uint32_t state, uint64_t word)
{
    return __crc32cd(state, word);
}
TARGET static inline uint32_t step_byte(uint32_t state, uint8_t byte)
{
    return __crc32cb(state, byte);
}
#endif

static uint32_t skip_block(uint32_t state)
{
    return skips[0][state & 0xff] ^ skips[1][state >> 8 & 0xff] ^ skips[2][state >> 16 & 0xff] ^ skips[3][state >> 24];
}

static uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* Computes the CRC with the processor's instruction, for three blocks at a time.  A CRC is linear, so the state after
 * two blocks is the xor of two states: the state after the first block and a block of zeros, and the state after the
 * second block alone, computed from 0. */
TARGET static uint32_t step_instruction(uint32_t state, const uint8_t *bytes, size_t n)
{
    for (; n >= 3 * BLOCK_BYTES; n -= 3 * BLOCK_BYTES, bytes += 3 * BLOCK_BYTES) {
        uint32_t second = 0, third = 0;
        for (size_t i = 0; i < BLOCK_BYTES; i += 8) {
            state = step_word(state, word_at(bytes + i));
            second = step_word(second, word_at(bytes + BLOCK_BYTES + i));
            third = step_word(third, word_at(bytes + 2 * BLOCK_BYTES + i));
        }
        state = skip_block(skip_block(state) ^ second) ^ third;
    }
    for (; n >= 8; n -= 8, bytes += 8)
        state = step_word(state, word_at(bytes));
    for (; n > 0; n--, bytes++)
        state = step_byte(state, *bytes);
    return state;
}

#else

static uint32_t step_instruction(uint32_t state, const uint8_t *bytes, size_t n)
{
    return step_tables(state, bytes, n);
}

#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t n)
{
    pthread_once(&once, make_tables);
    return has_instruction ? ~step_instruction(~crc, bytes, n) : ~step_tables(~crc, bytes, n);
}

uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n)
{
    pthread_once(&once, make_tables);
    return ~step_tables(~crc, bytes, n);
}
