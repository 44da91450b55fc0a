/* check_copy.c - copies that bypass the cache, from and to every alignment. */
#include "common/base/copy.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64
#define BYTES_MAX  300
#define GUARD      128 /* before and behind: two lines, which is more than a store too many could reach */
#define POISON     0xa5

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 37 + i / 256 + 1);
}

TEST(every_alignment_and_size)
{
    static _Alignas(LINE_BYTES) uint8_t in[LINE_BYTES + BYTES_MAX];
    static _Alignas(LINE_BYTES) uint8_t out[GUARD + LINE_BYTES + BYTES_MAX + GUARD], expected[sizeof(out)];

    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = pattern(i);
    memset(out, POISON, sizeof(out));
    memset(expected, POISON, sizeof(expected));
    for (size_t from = 0; from < LINE_BYTES; from++) {
        for (size_t to = 0; to < LINE_BYTES; to++) {
            for (size_t n_bytes = 0; n_bytes <= BYTES_MAX; n_bytes++) {
                copy_past_cache(out + GUARD + to, in + from, n_bytes);
                copy_finish();
                memcpy(expected + GUARD + to, in + from, n_bytes);
                if (memcmp(out, expected, sizeof(out)) != 0) /* an assertion each would take seconds */
                    ck_abort_msg("%zu bytes from %zu to %zu", n_bytes, from, to);
                memset(out + GUARD + to, POISON, n_bytes);
                memset(expected + GUARD + to, POISON, n_bytes);
            }
        }
    }
}

/* So that a sanitizer sees what is read or written beyond. */
TEST(within_its_bounds)
{
    for (size_t n_bytes = 1; n_bytes <= BYTES_MAX; n_bytes++) {
        uint8_t *in = malloc(n_bytes), *out = malloc(n_bytes);

        for (size_t i = 0; i < n_bytes; i++)
            in[i] = pattern(i);
        for (size_t at = 0; at < n_bytes; at += 7)
            copy_past_cache(out + at, in + at, n_bytes - at);
        copy_finish();
        ck_assert_mem_eq(out, in, n_bytes);
        free(in);
        free(out);
    }
}

SUITE(.timeout_s = 60);
