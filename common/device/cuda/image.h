/* image.h - a kernel's code for one GPU, from the cache or from the compiler.
 *
 * The key of an entry is a hash of everything that decides what the compiler makes: all embedded texts, the kernel's
 * own, its constants, the options, the target, and which build of NVRTC.  Knowing that last one means loading NVRTC at
 * every start: 7 ms where its file is in memory (measured; what is slow is compiling).  In return an upgrade of it takes
 * effect at once, and a cache shared between hosts is never wrong. */
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
    bool compiled; /* not from the cache */
};

/* The directory that 'configured' names, or where that is NULL or empty the service's ($CACHE_DIRECTORY), or else the
 * user's ($XDG_CACHE_HOME/cbf, ~/.cache/cbf).  NULL: there is none.  To free(). */
char *image_cache_directory(const char *configured);

/* Whether kernels can be compiled for a GPU of this compute capability.  Returns 0, or -ENOTSUP with one sentence in 'why':
 * there is a GPU, so nobody computes on the CPU instead. */
int image_check(int major, int minor, char *why, size_t why_bytes);

/* 'cache' may be NULL.  A cache that cannot be written, or that other users may change, is a warning, once.  Returns 0, or negative errno after a
 * sentence in the log. */
int image_get(const struct image_request *request, const char *cache, struct image *image);
void image_free(struct image *image);

#endif
