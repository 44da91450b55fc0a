/* fake_image.c - replaces image.c and fft.c.  A kernel's code is a pointer to the cpu device's kernel.  Transforms are
 * the cpu device's.  See fake_cuda.h. */
#include "common/base/hash.h"
#include "common/device/cuda/image.h"
#include "common/device/cuda/cuda.h"
#include "fake_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *image_cache_directory(const char *configured)
{
    return configured && configured[0] ? strdup(configured) : NULL;
}

int image_check(int major, int minor, char *why, size_t why_bytes)
{
    if (fake_setting("compiler", 1))
        return 0;
    snprintf(why, why_bytes, "there is no compiler for compute capability %d.%d", major, minor);
    return -ENOTSUP;
}

/* A kernel that does nothing.  Its time follows from the values of its constants. */
static int idle_create(struct device *cpu, const struct image_request *request, struct device_kernel **made)
{
    struct fake_idle_kernel *idle = calloc(1, sizeof(*idle));
    struct hash hash = HASH_START;

    if (!idle)
        return -ENOMEM;
    for (size_t i = 0; i < request->n_constants; i++)
        hash_bytes(&hash, &request->constants[i].value, sizeof(request->constants[i].value));
    *idle = (struct fake_idle_kernel){{cpu, request->kernel}, (int64_t)(20 + hash.low % 64) * 1000};
    *made = &idle->base;
    return 0;
}

int image_get(const struct image_request *request, const char *cache, struct image *image)
{
    struct device *cpu = fake_cuda_device();
    struct device_kernel *ready;
    int err = fake_setting("idle", 0)
                  ? idle_create(cpu, request, &ready)
                  : cpu->ops->kernel_create(cpu, request->kernel, request->constants, request->n_constants, &ready);

    if (err)
        return err;
    *image = (struct image){.data = malloc(sizeof(ready)), .bytes = sizeof(ready)};
    if (!image->data)
        return -ENOMEM;
    memcpy(image->data, &ready, sizeof(ready));
    return 0;
}

void image_free(struct image *image)
{
    free(image->data);
}

struct fake_fft {
    struct device_fft base;
    struct device_fft *cpu;
};

int cuda_fft_create(struct device *device, size_t n, size_t batch, struct device_fft **fft)
{
    struct device *cpu = fake_cuda_device();
    struct fake_fft *new = calloc(1, sizeof(*new));

    new->base.device = device;
    int err = cpu->ops->fft_create(cpu, n, batch, &new->cpu);
    if (err)
        free(new);
    else
        *fft = &new->base;
    return err;
}

void cuda_fft_destroy(struct device_fft *fft)
{
    struct fake_fft *self = (struct fake_fft *)fft;

    fake_cuda_device()->ops->fft_destroy(self->cpu);
    free(self);
}

void cuda_fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out)
{
    struct cuda_stream *to = (struct cuda_stream *)stream;
    struct device_stream *cpu_stream = (struct device_stream *)(void *)to->handle;

    if (cuda_begin(to, "FFT") && cuda_check(to, fake_cuda_operation(cpu_stream), "FFT"))
        fake_cuda_device()->ops->fft_run(cpu_stream, ((struct fake_fft *)fft)->cpu, in, out);
}
