/* fft.c - FFT plans of cuFFT, which is loaded with the first plan.  Each plan has its own work area if cuFFT needs one.
 * For most sizes cuFFT needs no work area.  The kernels that replace cuFFT never need a work area. */
#include "common/device/cuda/cuda.h"
#include "common/device/cuda/library.h"
#include "common/base/log.h"

#include <cufft.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct cuda_fft {
    struct device_fft base;
    size_t n, batch;  /* [const] */
    cufftHandle plan; /* plan of cuFFT; not used for n == 1 */
    void *work;
    const struct cuda_stream *bound; /* the last stream that was set for the plan */
};

static struct {
    __typeof__(cufftCreate) *create;
    __typeof__(cufftSetAutoAllocation) *set_auto_allocation;
    __typeof__(cufftMakePlanMany64) *make_plan_many;
    __typeof__(cufftSetWorkArea) *set_work_area;
    __typeof__(cufftSetStream) *set_stream;
    __typeof__(cufftExecC2C) *exec_c2c;
    __typeof__(cufftDestroy) *destroy;
} cufft;

static int load_cufft(void)
{
    static const char *const names[] = {"libcufft.so.12", "libcufft.so.11", NULL};
    static const struct library_symbol symbols[] = {
        {"cufftCreate", &cufft.create},
        {"cufftSetAutoAllocation", &cufft.set_auto_allocation},
        {"cufftMakePlanMany64", &cufft.make_plan_many},
        {"cufftSetWorkArea", &cufft.set_work_area},
        {"cufftSetStream", &cufft.set_stream},
        {"cufftExecC2C", &cufft.exec_c2c},
        {"cufftDestroy", &cufft.destroy},
        {NULL, NULL},
    };
    static bool loaded;
    char why[512];

    if (loaded)
        return 0;
    int err = library_open(names, symbols, NULL, why, sizeof(why));
    if (err)
        log_error("cuda: cuFFT cannot be loaded: %s", why);
    loaded = !err;
    return err;
}

static int plan_failed(const struct cuda_fft *fft, cufftResult result, const char *call)
{
    char sentence[200];

    if (result == CUFFT_ALLOC_FAILED)
        return -ENOMEM;
    snprintf(sentence, sizeof(sentence), "cuda: %s failed for %zu transforms of %zu points: error %d of cuFFT", call,
             fft->batch, fft->n, (int)result);
    cuda_device_of(fft->base.device)->host->fail(fft->base.device, sentence);
    return -EIO;
}

static int make_plan(struct cuda_fft *fft)
{
    long long n = (long long)fft->n, batch = (long long)fft->batch;
    size_t work_bytes = 0;
    cufftResult result = cufft.create(&fft->plan);

    if (result != CUFFT_SUCCESS)
        return plan_failed(fft, result, "cufftCreate");
    result = cufft.set_auto_allocation(fft->plan, 0);
    if (result == CUFFT_SUCCESS)
        result = cufft.make_plan_many(fft->plan, 1, &n, NULL, 1, n, NULL, 1, n, CUFFT_C2C, batch, &work_bytes);
    if (result != CUFFT_SUCCESS) {
        cufft.destroy(fft->plan);
        return plan_failed(fft, result, "cufftMakePlanMany64");
    }
    fft->work = cuda_alloc(fft->base.device, work_bytes);
    if (!fft->work) {
        cufft.destroy(fft->plan);
        return -ENOMEM;
    }
    result = cufft.set_work_area(fft->plan, fft->work);
    if (result != CUFFT_SUCCESS) {
        cufft.destroy(fft->plan);
        cuda_free(fft->base.device, fft->work);
        return plan_failed(fft, result, "cufftSetWorkArea");
    }
    return 0;
}

int cuda_fft_create(struct device *device, size_t n, size_t batch, struct device_fft **fft)
{
    struct cuda_fft *new = calloc(1, sizeof(*new));
    int err = 0;

    if (!new)
        return -ENOMEM;
    *new = (struct cuda_fft){.base.device = device, .n = n, .batch = batch};
    cuda_enter(cuda_device_of(device));
    if (n > 1) {
        err = load_cufft();
        if (!err)
            err = make_plan(new);
    }
    if (err)
        free(new);
    else
        *fft = &new->base;
    return err;
}

void cuda_fft_destroy(struct device_fft *fft)
{
    struct cuda_fft *self = (struct cuda_fft *)fft;

    cuda_enter(cuda_device_of(fft->device));
    if (self->n > 1) {
        cufft.destroy(self->plan);
        cuda_free(fft->device, self->work);
    }
    free(self);
}

void cuda_fft_run(struct device_stream *stream, struct device_fft *fft, const void *in, void *out)
{
    struct cuda_stream *to = (struct cuda_stream *)stream;
    struct cuda_fft *self = (struct cuda_fft *)fft;
    cufftResult result = CUFFT_SUCCESS;

    if (self->n == 1) {
        cuda_copy_2d(stream, out, 0, in, 0, self->batch * sizeof(cufftComplex), 1);
        return;
    }
    if (!cuda_begin(to, "cuFFT"))
        return;
    if (self->bound != to)
        result = cufft.set_stream(self->plan, to->handle);
    self->bound = to;
    if (result == CUFFT_SUCCESS)
        result = cufft.exec_c2c(self->plan, (cufftComplex *)(uintptr_t)in, out, CUFFT_FORWARD);
    if (result != CUFFT_SUCCESS) {
        cudaError_t error = cudaPeekAtLastError();
        cuda_check(to, error != cudaSuccess ? error : cudaErrorUnknown, "cufftExecC2C");
    }
}
