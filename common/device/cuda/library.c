/* library.c - loads a library, which may have several file names, with dlopen(). */
#include "common/device/cuda/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Loads a library.  On failure, writes the error to 'why' in two cases.  In the first case, 'why' is empty.  In the
 * second case, 'why' says that a file is missing, and the new error is a different error. */
static void *try(const char *name, char *why, size_t why_bytes)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

    if (library)
        return library;
    const char *reason = dlerror();
    bool is_absent = strncmp(reason, name, strlen(name)) == 0 && strstr(reason, strerror(ENOENT));
    if (!why[0] || (!is_absent && strstr(why, strerror(ENOENT))))
        snprintf(why, why_bytes, "%s", reason);
    return NULL;
}

static void *open_first(const char *const *names, char *why, size_t why_bytes)
{
    char path[PATH_MAX];
    void *library = NULL;

    why[0] = '\0';
    for (; *names && !library; names++) {
        snprintf(path, sizeof(path), "%s/%s", CBF_CUDA_LIBRARIES, *names);
        library = try(*names, why, why_bytes);
        if (!library)
            library = try(path, why, why_bytes);
    }
    return library;
}

int library_open(const char *const *names, const struct library_symbol *symbols, const char **path, char *why,
                 size_t why_bytes)
{
    void *library = open_first(names, why, why_bytes);
    struct link_map *map;

    if (!library)
        return -ENODEV;
    for (; symbols->name; symbols++) {
        void *found = dlsym(library, symbols->name);

        if (!found) {
            snprintf(why, why_bytes, "%s", dlerror());
            dlclose(library);
            return -ENODEV;
        }
        memcpy(symbols->function, &found, sizeof(found));
    }
    if (path)
        *path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
    return 0;
}
