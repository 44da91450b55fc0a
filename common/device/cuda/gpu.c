/* gpu.c - chooses the GPU, or explains why no GPU can be used. */
#include "common/base/why.h"
#include "common/device/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MIN_MAJOR 8 /* lowest compute capability with asynchronous copies and 160 KiB of shared memory */

#define UUID_TEXT_BYTES 41 /* GPU-8-4-4-4-12 */

struct gpu {
    int index;
    struct cudaDeviceProp prop;
    char uuid[UUID_TEXT_BYTES];
    char pci[32];
};

static int version_of(int version, char *text, size_t bytes)
{
    return snprintf(text, bytes, "%d.%d", version / 1000, version % 1000 / 10);
}

/* Explains in 'why' why the CUDA runtime finds no GPUs.  Returns negative errno. */
static int explain_none(cudaError_t error, char *why, size_t why_bytes)
{
    char need[16], have[16];
    int driver = 0;

    cudaDriverGetVersion(&driver);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return why_fail(-ENODEV, why, why_bytes,
                        "there is no NVIDIA driver here; install it, or set device.kind to cpu");
    if (error == cudaErrorNoDevice || error == cudaSuccess)
        return why_fail(-ENODEV, why, why_bytes, "the NVIDIA driver offers no GPU to this process");
    if (error != cudaErrorInsufficientDriver)
        return cuda_explain(error, "cudaGetDeviceCount", why, why_bytes);
    version_of(driver, have, sizeof(have));
    version_of(CUDART_VERSION, need, sizeof(need));
    return why_fail(-ENODEV, why, why_bytes, "the NVIDIA driver is too old: it supports CUDA %s, but CUDA %s is needed",
                    have, need);
}

static int describe(int index, struct gpu *gpu, char *why, size_t why_bytes)
{
    cudaError_t error = cudaGetDeviceProperties(&gpu->prop, index);
    const unsigned char *u = (const unsigned char *)gpu->prop.uuid.bytes;

    if (error != cudaSuccess)
        return cuda_explain(error, "cudaGetDeviceProperties", why, why_bytes);
    gpu->index = index;
    snprintf(gpu->uuid, sizeof(gpu->uuid), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    snprintf(gpu->pci, sizeof(gpu->pci), "%04x:%02x:%02x.0", (unsigned)gpu->prop.pciDomainID,
             (unsigned)gpu->prop.pciBusID, (unsigned)gpu->prop.pciDeviceID);
    return 0;
}

static bool is_pci(const char *wanted, const struct gpu *gpu)
{
    unsigned domain = 0, bus, slot;

    if (sscanf(wanted, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(wanted, "%x:%x", &bus, &slot) != 2)
            return false;
    }
    return domain == (unsigned)gpu->prop.pciDomainID && bus == (unsigned)gpu->prop.pciBusID &&
           slot == (unsigned)gpu->prop.pciDeviceID;
}

static bool is_wanted(const char *wanted, const struct gpu *gpu)
{
    if (strspn(wanted, "0123456789") == strlen(wanted))
        return atol(wanted) == gpu->index;
    if (strncasecmp(wanted, "GPU-", 4) == 0)
        return strcasecmp(wanted, gpu->uuid) == 0;
    return is_pci(wanted, gpu);
}

static bool is_supported(const struct gpu *gpu)
{
    return gpu->prop.major >= MIN_MAJOR;
}

/* Appends a GPU to the list in 'text': "0 = NVIDIA H200 (0000:3b:00.0, GPU-...), 1 = ...". */
static void list_gpu(const struct gpu *gpu, char *text, size_t bytes)
{
    size_t n = strlen(text);

    snprintf(text + n, bytes - n, "%s%d = %s (%s, %s)", n ? ", " : "", gpu->index, gpu->prop.name, gpu->pci, gpu->uuid);
}

/* Examines the GPUs one by one until a GPU fits 'wanted', and sets '*found'.  Lists the examined GPUs in 'seen'. */
static int find(const char *wanted, int n_gpus, struct gpu *gpu, bool *found, char *seen, size_t seen_bytes, char *why,
                size_t why_bytes)
{
    *found = false;
    seen[0] = '\0';
    for (int i = 0; i < n_gpus && !*found; i++) {
        int err = describe(i, gpu, why, why_bytes);
        if (err)
            return err;
        *found = wanted ? is_wanted(wanted, gpu) : is_supported(gpu);
        list_gpu(gpu, seen, seen_bytes);
    }
    return 0;
}

int cuda_choose_gpu(const char *wanted, int *index, char *text, size_t text_bytes, char *why, size_t why_bytes)
{
    char seen[400];
    struct gpu gpu;
    int n_gpus = 0;
    bool found;
    cudaError_t error = cudaGetDeviceCount(&n_gpus);

    if (error != cudaSuccess || n_gpus == 0)
        return explain_none(error, why, why_bytes);
    if (wanted && (!wanted[0] || strcmp(wanted, "auto") == 0))
        wanted = NULL;
    int err = find(wanted, n_gpus, &gpu, &found, seen, sizeof(seen), why, why_bytes);
    if (err)
        return err;
    if (found && is_supported(&gpu)) {
        *index = gpu.index;
        snprintf(text, text_bytes, "GPU %d of %d: %s (PCI %s, UUID %s, %zu MiB, compute capability %d.%d)", gpu.index,
                 n_gpus, gpu.prop.name, gpu.pci, gpu.uuid, gpu.prop.totalGlobalMem >> 20, gpu.prop.major,
                 gpu.prop.minor);
        return 0;
    }
    if (found)
        return why_fail(-ENODEV, why, why_bytes,
                        "device.gpu: GPU %d, %s, has compute capability %d.%d, and %d.0 or more is needed", gpu.index,
                        gpu.prop.name, gpu.prop.major, gpu.prop.minor, MIN_MAJOR);
    if (wanted)
        return why_fail(-ENODEV, why, why_bytes, "device.gpu: there is no GPU \"%s\" here; there are: %s", wanted,
                        seen);
    return why_fail(-ENODEV, why, why_bytes, "no GPU here has compute capability %d.0 or more: %s", MIN_MAJOR, seen);
}
