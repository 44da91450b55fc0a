/* file.c - paths that lead to the same place. */
#include "common/file.h"

#include <string.h>
#include <sys/stat.h>

bool files_are_same(const char *a, const char *b)
{
    struct stat x, y;

    if (!a || !b)
        return false;
    if (strcmp(a, b) == 0)
        return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
