/* test_fragments.h - a model of the fragments of beam_fragments.h.  The model follows the order in which PTX ISA
 * assigns the first operand of mma.m16n8k32 to lanes.  Bytes that kernels must not use are TEST_FRAGMENTS_POISON. */
#ifndef TESTS_UNIT_TEST_FRAGMENTS_H
#define TESTS_UNIT_TEST_FRAGMENTS_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TEST_FRAGMENTS_POISON 0x5b

static inline size_t test_fragments_bytes(size_t n_chan, size_t n_slots, size_t n_ants)
{
    return n_chan * (n_slots / 8) * ((n_ants + 15) / 16) * 2 * 16 * 32;
}

/* Returns an element of an operand, a matrix of 16 rows and 32 columns. */
static inline int test_fragments_element(const int16_t *coefficients, size_t n_ants, size_t row, size_t column,
                                         size_t step)
{
    size_t ant = step * 16 + column / 2;

    if (ant >= n_ants)
        return 0;
    int re = coefficients[2 * ant], im = coefficients[2 * ant + 1];
    return row < 8 ? (column % 2 ? -im : re) : (column % 2 ? re : im);
}

/* Returns the fragments of coefficients [chan][beam][ant][re, im]; the caller frees the fragments. */
static inline int8_t *test_fragments(const int16_t *coefficients, size_t n_chan, size_t n_beams, size_t n_ants,
                                     const uint32_t *slots, size_t n_slots)
{
    size_t n_steps = (n_ants + 15) / 16, n_groups = n_slots / 8, bytes = test_fragments_bytes(n_chan, n_slots, n_ants);
    int8_t *fragments = malloc(bytes);

    ck_assert_ptr_nonnull(fragments);
    for (size_t i = 0; i < bytes; i++) {
        size_t byte = i % 4, word = i / 4 % 4, lane = i / 16 % 32, slice = i / 512 % 2, tile = i / 1024;
        size_t step = tile % n_steps, group = tile / n_steps % n_groups, chan = tile / n_steps / n_groups;
        size_t row = lane / 4 + word % 2 * 8, column = lane % 4 * 4 + word / 2 * 16 + byte;
        uint32_t beam = slots[group * 8 + row % 8];
        if (beam >= n_beams) {
            fragments[i] = TEST_FRAGMENTS_POISON;
            continue;
        }
        int value =
            test_fragments_element(coefficients + (chan * n_beams + beam) * n_ants * 2, n_ants, row, column, step);
        int low = (value + 32768) % 256; /* 0 to 255, then -128 to 127 */
        low = low < 128 ? low : low - 256;
        fragments[i] = (int8_t)(slice ? low : (value - low) / 256);
    }
    return fragments;
}

#endif
