/* fakes.h - finds and loads shared objects that lie beside the unit tests' programs. */
#ifndef TESTS_UNIT_FAKES_H
#define TESTS_UNIT_FAKES_H

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Writes the path of a file beside this program to 'path'.  Returns 'path', or NULL if there is no such file. */
static inline const char *test_beside(const char *name, char *path, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", path, bytes - 64);

    if (n <= 0)
        return NULL;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    snprintf(slash, bytes - (size_t)(slash - path), "/%s", name);
    return access(path, F_OK) == 0 ? path : NULL;
}

/* Returns the path of the fake libvulkan.so.1, or NULL if there is none. */
static inline const char *test_fake_vulkan(void)
{
    static char path[4096];

    return test_beside("fake_vulkan/libvulkan.so.1", path, sizeof(path));
}

/* Lets dlopen("libvulkan.so.1") open the fake from now on.  Call in the test itself. */
static inline void test_use_fake_vulkan(void)
{
    ck_assert_ptr_nonnull(dlopen(test_fake_vulkan(), RTLD_NOW | RTLD_LOCAL));
}

#endif
