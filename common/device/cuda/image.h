/* image.h - a kernel's code for one GPU, from the cache or from the compiler.  The key of an entry is a hash of
 * everything that determines the compiler's result.  These are all embedded texts, the kernel's own text and constants,
 * the options, the target, and the build of NVRTC.  To find the build, every start loads NVRTC, which takes 7 ms if the
 * file is in memory (measured).  So a start after an upgrade of NVRTC compiles all kernels again, and hosts with
 * different builds of NVRTC can share a cache. */
#ifndef COMMON_DEVICE_CUDA_IMAGE_H
#define COMMON_DEVICE_CUDA_IMAGE_H

#include "common/device/device.h"

struct image_request {
    const struct kernel *kernel;
    const struct kernel_constant *constants;
    size_t n_constants;
    int major, minor; /* compute capability of the GPU */
};

struct image {
    void *data;
    size_t bytes;
    bool compiled; /* true: compiled now; false: from the cache */
};

/* Returns the directory 'configured'.  If 'configured' is NULL or empty, returns the service's directory
 * ($CACHE_DIRECTORY), or else the user's cache directory ($XDG_CACHE_HOME/cbf, ~/.cache/cbf).  Returns NULL if there is
 * no such directory.  The caller must free() the text. */
char *image_cache_directory(const char *configured);

/* Checks that kernels can be compiled for a GPU of this compute capability.  Returns 0, or -ENOTSUP with one sentence
 * in 'why'.  The error is not -ENODEV, because after -ENODEV the cpu device would replace a GPU that exists. */
int image_check(int major, int minor, char *why, size_t why_bytes);

/* Reads a kernel's code from the directory 'cache', or compiles the code and caches it there.  If 'cache' is NULL, only
 * compiles the code.  Warns once if the cache cannot be written, or if an entry is not trusted.  Returns 0, or logs a
 * sentence and returns negative errno. */
int image_get(const struct image_request *request, const char *cache, struct image *image);
void image_free(struct image *image);

#endif
