/* image.c - reads a kernel's code from the cache, or compiles the code and caches it. */
#include "common/device/cuda/image.h"

#include "common/device/cuda/cache.h"
#include "common/device/cuda/nvrtc.h"
#include "common/device/texts.h"
#include "common/base/log.h"
#include "common/base/trust.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *join(const char *directory, const char *rest)
{
    char *path;

    return asprintf(&path, "%s%s", directory, rest) < 0 ? NULL : path;
}

char *image_cache_directory(const char *configured)
{
    const char *service = getenv("CACHE_DIRECTORY"), *user = getenv("XDG_CACHE_HOME"), *return_to = getenv("HOME");

    if (configured && configured[0])
        return strdup(configured);
    if (service && service[0])
        return strndup(service, strcspn(service, ":")); /* systemd separates the directories by colons */
    if (user && user[0] == '/')
        return join(user, "/cbf");
    if (return_to && return_to[0] == '/')
        return join(return_to, "/.cache/cbf");
    return NULL;
}

static struct hash make_key(const struct image_request *request, const struct nvrtc_target *target)
{
    char text[256];
    struct hash hash = HASH_START;

    nvrtc_identity(text, sizeof(text));
    hash_text(&hash, text);
    hash_text(&hash, target->option);
    for (size_t k = 0; k < n_nvrtc_options; k++)
        hash_text(&hash, nvrtc_options[k]);
    for (size_t k = 0; k < n_kernel_texts; k++) {
        hash_text(&hash, kernel_texts[k].name);
        hash_text(&hash, kernel_texts[k].text);
    }
    hash_text(&hash, request->kernel->name);
    hash_text(&hash, request->kernel->cuda_text ? request->kernel->cuda_text : "");
    for (size_t k = 0; k < request->n_constants; k++) {
        snprintf(text, sizeof(text), "%s=%ld", request->constants[k].name, request->constants[k].value);
        hash_text(&hash, text);
    }
    return hash;
}

/* Creates missing parents of the cache directory.  A failure is detected later, when the cache is written. */
static void make_parents(const char *directory)
{
    char *path = strdup(directory);

    for (char *slash = path ? strchr(path + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    free(path);
}

static void keep(const char *cache, struct hash key, const struct image *image)
{
    static _Atomic bool warned;

    make_parents(cache);
    int err = cache_write(cache, key, image->data, image->bytes);
    if (err && !atomic_exchange(&warned, true))
        log_warning("device.kernel_cache: compiled kernels cannot be kept in %s, so each start compiles them again: %s",
                    cache, strerror(-err));
}

/* Warns once that an entry is not used because it is not trusted (trust.h). */
static void warn_of_entry(const char *cache)
{
    static _Atomic bool warned;

    if (!atomic_exchange(&warned, true))
        log_warning("device.kernel_cache: a compiled kernel in %s is not used: " TRUST_CURE, cache);
}

int image_check(int major, int minor, char *why, size_t why_bytes)
{
    struct nvrtc_target target;

    return nvrtc_choose_target(major, minor, &target, why, why_bytes) ? -ENOTSUP : 0;
}

int image_get(const struct image_request *request, const char *cache, struct image *image)
{
    struct image made = {.compiled = true};
    struct nvrtc_target target;
    char why[512];
    int err = nvrtc_choose_target(request->major, request->minor, &target, why, sizeof(why));

    if (err) {
        log_error("device: %s", why);
        return err;
    }
    const struct hash key = make_key(request, &target);
    err = cache ? cache_read(cache, key, &made.data, &made.bytes) : -ENOENT;
    if (!err) {
        made.compiled = false;
        *image = made;
        return 0;
    }
    if (err == -EPERM || err == -ELOOP)
        warn_of_entry(cache);
    err = nvrtc_compile(request->kernel, request->constants, request->n_constants, &target, &made.data, &made.bytes);
    if (err)
        return err;
    log_info("device: compiled the kernel %s, %zu bytes", request->kernel->name, made.bytes);
    if (cache)
        keep(cache, key, &made);
    *image = made;
    return 0;
}

void image_free(struct image *image)
{
    free(image->data);
}
