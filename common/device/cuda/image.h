/* image.h - a kernel's code for one GPU, from the cache or from the compiler.
 *
 * The key of an entry is a hash of everything that decides the compiler's result: all embedded texts, the kernel's own
 * text, its constants, the options, the target, and the build of NVRTC.  To know the build, every start loads NVRTC: 7
 * ms if its file is in memory (measured; compiling is the slow part).  In return an upgrade of NVRTC takes effect at
 * once, and a cache shared between hosts is never wrong. */
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
    bool compiled; /* true: not from the cache */
};

/* Returns the directory that 'configured' names.  If that is NULL or empty, returns the service's directory
 * ($CACHE_DIRECTORY), or else the user's ($XDG_CACHE_HOME/cbf, ~/.cache/cbf).  Returns NULL if there is none.  The
 * caller frees the text. */
char *image_cache_directory(const char *configured);

/* Checks whether kernels can be compiled for a GPU of this compute capability.  Returns 0, or -ENOTSUP with one
 * sentence in 'why'.  The error is not -ENODEV: there is a GPU, so the CPU must not compute instead. */
int image_check(int major, int minor, char *why, size_t why_bytes);

/* Gets a kernel's code.  'cache' may be NULL.  Warns once if the cache cannot be written, or if other users may change
 * it.  Returns 0, or negative errno after a sentence in the log. */
int image_get(const struct image_request *request, const char *cache, struct image *image);
void image_free(struct image *image);

#endif
