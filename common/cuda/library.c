/* library.c - dlopen() by several names. */
#include "common/cuda/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static void *open_first(const char *const *names, char *why, size_t why_bytes)
{
    char path[PATH_MAX];
    void *library = NULL;

    for (; *names && !library; names++) {
        library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        if (library)
            break;
        snprintf(why, why_bytes, "%s", dlerror());
        snprintf(path, sizeof(path), "%s/%s", CBF_CUDA_LIBRARIES, *names);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
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
