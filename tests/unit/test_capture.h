/* test_capture.h - captures the text that a test writes to stderr. */
#ifndef TESTS_UNIT_TEST_CAPTURE_H
#define TESTS_UNIT_TEST_CAPTURE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *captured;

/* Replaces stderr by a file, and makes the log ignore the journal. */
static inline void capture_stderr(void)
{
    captured = tmpfile();
    ck_assert_ptr_nonnull(captured);
    ck_assert_int_ge(dup2(fileno(captured), STDERR_FILENO), 0);
    unsetenv("JOURNAL_STREAM");
}

/* Returns all text written to stderr so far. */
static inline const char *written(void)
{
    static char text[1 << 16];
    ssize_t n = pread(fileno(captured), text, sizeof(text) - 1, 0);

    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    return text;
}

#endif
