/* test_file.h - temporary files for a test: an empty file, which the fixture makes, and files with a given text. */
#ifndef TESTS_UNIT_TEST_FILE_H
#define TESTS_UNIT_TEST_FILE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Makes a file that contains 'text'.  mkstemp() writes the file's name to 'path'. */
static inline void write_file(char *path, const char *text)
{
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static char file[64];

static inline void make_file(void)
{
    strcpy(file, "/tmp/cbf-test-XXXXXX");
    write_file(file, "");
}

static inline void remove_file(void)
{
    unlink(file);
}

#endif
