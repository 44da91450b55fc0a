/* fuzz_input.h - for all fuzz targets: reads the input byte by byte, and allocates memory that reveals overruns.
 *
 * After the input's end, all reads return zeros, so every input has a meaning. fuzz_ended() says when to stop. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The functions between these lines are a model, or make an input.  The fuzzer does not trace them.  So edges are edges
 * of the code under test, and comparisons in a loop cost nothing. */
#define FUZZ_MODEL_BEGIN                                                                                               \
    _Pragma("clang attribute push(__attribute__((no_sanitize(\"coverage\"))), apply_to = function)")
#define FUZZ_MODEL_END _Pragma("clang attribute pop")

/* What libFuzzer calls. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

struct fuzz_input {
    const uint8_t *at;
    size_t n_left;
};

static inline bool fuzz_ended(const struct fuzz_input *input)
{
    return input->n_left == 0;
}

static inline unsigned fuzz_u8(struct fuzz_input *input)
{
    if (input->n_left == 0)
        return 0;
    input->n_left--;
    return *input->at++;
}

static inline unsigned fuzz_u16(struct fuzz_input *input)
{
    unsigned high = fuzz_u8(input);

    return high << 8 | fuzz_u8(input);
}

static inline int fuzz_i8(struct fuzz_input *input)
{
    return (int8_t)fuzz_u8(input);
}

/* Reads up to 'n_bytes' of the input; returns the number of bytes read. */
static inline size_t fuzz_bytes(struct fuzz_input *input, size_t n_bytes, uint8_t *out)
{
    size_t n = n_bytes < input->n_left ? n_bytes : input->n_left;

    if (n > 0)
        memcpy(out, input->at, n);
    input->at += n;
    input->n_left -= n;
    return n;
}

/* Allocates exactly 'n_bytes' (0 is permitted), so the address sanitizer finds any access beyond the memory. */
static inline uint8_t *fuzz_exact(size_t n_bytes)
{
    uint8_t *memory = malloc(n_bytes);

    assert(memory || n_bytes == 0);
    return memory;
}

#endif
