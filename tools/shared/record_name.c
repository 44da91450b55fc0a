/* record_name.c - called by the writers of recordings: makes the names of their files. */
#include "tools/shared/record_name.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "common/base/why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int record_name_stem(const char *config_key, const char *format, char stem[PATH_MAX], char *why, size_t why_bytes)
{
    time_t now_s = (time_t)(clock_unix_ns() / NS_PER_S);
    struct tm utc;

    gmtime_r(&now_s, &utc);
    if (strftime(stem, PATH_MAX, format, &utc) > 0)
        return 0;
    return why_fail(-EINVAL, why, why_bytes, "%s: with the time inserted, the name is longer than %d bytes; shorten it",
                    config_key, PATH_MAX - 1);
}

int record_name_check(const char *config_key, const char *path, char *why, size_t why_bytes)
{
    struct stat old;

    if (stat(path, &old) != 0 || S_ISREG(old.st_mode) || S_ISDIR(old.st_mode))
        return 0;
    return why_fail(-EINVAL, why, why_bytes, "%s: \"%s\" is not a regular file", config_key, path);
}

int record_name_numbered(const char *config_key, const char *stem, unsigned number, char path[PATH_MAX], char *why,
                         size_t why_bytes)
{
    const char *slash = strrchr(stem, '/');
    const char *name = slash ? slash + 1 : stem;
    const char *dot = strrchr(name, '.');
    size_t n_stem = dot && dot != name ? (size_t)(dot - stem) : strlen(stem);
    int n = number == 1 ? snprintf(path, PATH_MAX, "%s", stem)
                        : snprintf(path, PATH_MAX, "%.*s-%u%s", (int)n_stem, stem, number, stem + n_stem);

    if (n < PATH_MAX)
        return 0;
    return why_fail(-ENAMETOOLONG, why, why_bytes, "%s: there is no room for a number in the name \"%.200s...\"",
                    config_key, stem);
}
