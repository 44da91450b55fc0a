/* fuzz_count.h - counts the packets, lines or files that a fuzz target has fed to the code, and prints the total when
 * the target ends: "fuzz: 123456 packets". */
#ifndef TESTS_FUZZ_FUZZ_COUNT_H
#define TESTS_FUZZ_FUZZ_COUNT_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    const char *what;
    uint64_t n;
} fuzz_counted;

static inline void fuzz_print_count(void)
{
    fprintf(stderr, "fuzz: %" PRIu64 " %s\n", fuzz_counted.n, fuzz_counted.what);
}

/* Adds to the total.  A target counts only one kind of thing. */
static inline void fuzz_count(const char *what, uint64_t n)
{
    if (!fuzz_counted.what)
        atexit(fuzz_print_count);
    fuzz_counted.what = what;
    fuzz_counted.n += n;
}

#endif
