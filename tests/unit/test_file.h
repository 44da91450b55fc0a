/* test_file.h - a fixture: an empty file of the test's own. */
#ifndef TESTS_UNIT_TEST_FILE_H
#define TESTS_UNIT_TEST_FILE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char file[64];

static inline void make_file(void)
{
    strcpy(file, "/tmp/cbf-test-XXXXXX");
    int fd = mkstemp(file);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static inline void remove_file(void)
{
    unlink(file);
}

#endif
