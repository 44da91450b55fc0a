/* plugin.c - finds and loads the shared object with the cuda device. */
#include "common/device/plugin.h"

#include "common/base/version.h"
#include "common/base/why.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void beat(void)
{
    thread_beat();
}

static const struct device_host host = {
    .build_id = cbf_build_id,
    .log = log_message,
    .thread_start = thread_start,
    .thread_beat = beat,
    .fail = device_fail,
};

/* Finds the directory of the executable.  If this fails, the directory is ".". */
static void find_own_directory(char *directory, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", directory, bytes - 1);

    directory[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(directory, '/');
    if (slash)
        *slash = '\0';
    else
        snprintf(directory, bytes, ".");
}

/* Finds the plugin's file.  Returns false if there is no such file. */
static bool find_plugin(char *path, size_t bytes)
{
    const char *given = getenv("CBF_CUDA_DEVICE");
    char directory[PATH_MAX];

    if (given && given[0]) {
        snprintf(path, bytes, "%s", given);
        return access(path, F_OK) == 0;
    }
    find_own_directory(directory, sizeof(directory));
    snprintf(path, bytes, "%s/%s", directory, DEVICE_PLUGIN_FILE);
    if (access(path, F_OK) == 0)
        return true;
    snprintf(path, bytes, "%s/../lib/cbf/%s", directory, DEVICE_PLUGIN_FILE);
    if (access(path, F_OK) == 0)
        return true;
    snprintf(path, bytes, "%s/%s", CBF_LIBDIR, DEVICE_PLUGIN_FILE);
    return access(path, F_OK) == 0;
}

int device_plugin_open(const struct device_config *config, struct device **device, char *why, size_t why_bytes)
{
    char path[PATH_MAX + 64];

    if (!find_plugin(path, sizeof(path)))
        return why_fail(-ENODEV, why, why_bytes, "there is no cuda device here: %s was not built or not installed",
                        DEVICE_PLUGIN_FILE);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin)
        return why_fail(-ELIBBAD, why, why_bytes, "the cuda device cannot be loaded: %s", dlerror());
    void *symbol = dlsym(plugin, DEVICE_PLUGIN_OPEN);
    if (!symbol)
        return why_fail(-ENODEV, why, why_bytes, "%s is not a device library: it has no %s", path, DEVICE_PLUGIN_OPEN);
    device_plugin_open_fn *open;
    memcpy(&open, &symbol, sizeof(open)); /* ISO C cannot cast an object pointer to a function pointer */
    return open(config, &host, device, why, why_bytes);
}
