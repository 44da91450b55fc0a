/* test_samples.h - packed samples of digitisers, and memory that reveals reads beyond its end. */
#ifndef TESTS_UNIT_TEST_SAMPLES_H
#define TESTS_UNIT_TEST_SAMPLES_H

#include <check.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns sample 'index' of packed big-endian samples of 'bits' bits each. */
static inline int sample_at(const uint8_t *in, size_t index, uint32_t bits)
{
    int value = 0;

    for (size_t bit = index * bits; bit < (index + 1) * bits; bit++)
        value = value * 2 + (in[bit / 8] >> (7 - bit % 8) & 1);
    return value >= 1 << (bits - 1) ? value - (1 << bits) : value;
}

/* Allocates memory that ends at an unreadable page.  No function frees the memory, because each test has its own
 * process. */
static inline void *alloc_to_the_edge(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (bytes + page - 1) / page * page;
    uint8_t *base = mmap(NULL, inside + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert(base != MAP_FAILED);
    ck_assert_int_eq(mprotect(base + inside, page, PROT_NONE), 0);
    return base + inside - bytes;
}

#endif
