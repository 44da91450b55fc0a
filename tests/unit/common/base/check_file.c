/* check_file.c - the files that file_replace() leaves if its process is killed, and their removal. */
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[64];
static bool killed;    /* at the next fsync() */
static char synced[8]; /* what was, in order: 'f' a file, 'd' the directory, 'D' when the file has its name */

static bool is_there(const char *path);
static void place(char *path, size_t path_bytes, const char *name);

/* In the C library's place. */
int fsync(int fd)
{
    struct stat stat;
    char path[128];
    size_t n = strlen(synced);

    if (killed)
        _exit(0);
    place(path, sizeof(path), "kept");
    if (n + 1 < sizeof(synced) && fstat(fd, &stat) == 0)
        synced[n] = !S_ISDIR(stat.st_mode) ? 'f' : is_there(path) ? 'D' : 'd';
    return 0;
}

static void setup(void)
{
    strcpy(directory, "/tmp/check_file-XXXXXX");
    ck_assert(mkdtemp(directory));
}

static void teardown(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", directory);
    ck_assert_int_eq(system(command), 0);
}

static void place(char *path, size_t path_bytes, const char *name)
{
    ck_assert_int_lt(snprintf(path, path_bytes, "%s/%s", directory, name), (int)path_bytes);
}

static void set_age(const char *path, int64_t age_s)
{
    const time_t then_s = (time_t)(clock_unix_ns() / NS_PER_S - age_s);
    const struct timespec times[] = {{.tv_sec = then_s}, {.tv_sec = then_s}};

    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static bool is_there(const char *path)
{
    struct stat file;

    return lstat(path, &file) == 0;
}

TEST(what_a_killed_process_leaves_goes_when_it_is_old)
{
    const struct file_part part = {"text", 4};
    char pattern[128], kept[128];
    glob_t left;

    ck_assert_int_eq(file_replace(directory, "kept", &part, 1), 0);
    pid_t child = fork();
    if (child == 0) {
        killed = true;
        file_replace(directory, "kept", &part, 1);
        _exit(1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    place(pattern, sizeof(pattern), "*new-*");
    place(kept, sizeof(kept), "kept");
    ck_assert_int_eq(glob(pattern, 0, NULL, &left), 0);
    ck_assert_uint_eq(left.gl_pathc, 1);
    file_remove_stale(directory); /* another process may just be writing it */
    ck_assert(is_there(left.gl_pathv[0]));
    set_age(left.gl_pathv[0], 3500);
    file_remove_stale(directory);
    ck_assert(is_there(left.gl_pathv[0]));
    set_age(left.gl_pathv[0], 3700);
    set_age(kept, 3700);
    file_remove_stale(directory);
    ck_assert(!is_there(left.gl_pathv[0]));
    ck_assert(is_there(kept));
    globfree(&left);
}

TEST(what_is_replaced_is_on_the_disk_and_then_its_name)
{
    const struct file_part part = {"text", 4};

    ck_assert_int_eq(file_replace(directory, "kept", &part, 1), 0);
    ck_assert_str_eq(synced, "fD");
}

/* A user may have named a directory with files of his own. */
TEST(what_is_not_ours_stays)
{
    static const char *const names[] = {"new-abcdef", "cbf-new-abcde", "cbf-new-abcdefg", "a-cbf-new-abcdef"};
    char path[128];

    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        place(path, sizeof(path), names[k]);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        ck_assert_int_ge(fd, 0);
        close(fd);
        set_age(path, 7200);
    }
    place(path, sizeof(path), "cbf-new-123456");
    ck_assert_int_eq(mkdir(path, 0700), 0);
    set_age(path, 7200);
    place(path, sizeof(path), "cbf-new-654321");
    ck_assert_int_eq(symlink("new-abcdef", path), 0);
    set_age(path, 7200);
    file_remove_stale(directory);
    ck_assert(is_there(path));
    place(path, sizeof(path), "cbf-new-123456");
    ck_assert(is_there(path));
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        place(path, sizeof(path), names[k]);
        ck_assert(is_there(path));
    }
    place(path, sizeof(path), "missing");
    file_remove_stale(path);
}

SUITE(.setup = setup, .teardown = teardown);
