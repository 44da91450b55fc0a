/* keys.c - defines the keys of the section 'device', and checks them. */
#include "common/device/keys.h"

#include "common/device/device.h"
#include "common/net/endpoint.h"
#include "common/base/units.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const device_choices[] = {"auto", "cpu", "cuda", NULL};

#define KEYS_OF struct config_device
const struct config_key config_device_keys[] = {
    KEY_ENUM("kind", kind, "auto", device_choices,
             "Device on which the kernels run; auto: cuda if there is a suitable GPU, else cpu."),
    KEY_STRING("gpu", gpu, "auto", 1, 64,
               "GPU, by index, UUID (GPU-...) or PCI address (0000:3b:00.0); auto: the first suitable one."),
    KEY_INT("threads", n_threads, "0", UNIT_NONE, 0, 1024, "Threads per kernel on the CPU device; 0: one per core."),
    KEY_STRING("kernel_cache", kernel_cache, "", 0, 4000,
               "Directory for compiled CUDA kernels. Empty: the service's directory (CacheDirectory=); without a "
               "service, the user's."),
};
#undef KEYS_OF

/* Checks only the form of the name.  The start checks that the GPU exists. */
static bool is_gpu_name(const char *gpu)
{
    static const char *const formats[] = {"%*x:%*x:%*x.%*x%n", "%*x:%*x:%*x%n", "%*x:%*x.%*x%n", "%*x:%*x%n"};
    const char *dashed = gpu + 4;
    int n;

    if (strcmp(gpu, "auto") == 0 || strspn(gpu, "0123456789") == strlen(gpu))
        return true;
    if (strncasecmp(gpu, "GPU-", 4) == 0)
        return strlen(dashed) == 36 && strspn(dashed, "0123456789abcdefABCDEF-") == 36;
    for (size_t k = 0; k < ARRAY_LEN(formats); k++) {
        n = 0;
        sscanf(gpu, formats[k], &n);
        if (n > 0 && !gpu[n])
            return true;
    }
    return false;
}

void device_keys_check(const struct config_device *device, struct config *errors)
{
    if (!is_gpu_name(device->gpu))
        config_error(errors, &device->gpu,
                     "gpu must be auto, an index, a UUID (GPU-...) or a PCI address (0000:3b:00.0), not \"%s\"",
                     device->gpu);
}

void device_keys_check_gpudirect(const bool *gpudirect, int transport, const char *pcap_file,
                                 const struct config_device *device, struct config *errors)
{
    if (!*gpudirect)
        return;
    if (transport != TRANSPORT_IBVERBS || pcap_file)
        config_error(errors, gpudirect, "gpudirect needs transport: ibverbs%s", pcap_file ? ", and no pcap_file" : "");
    else if (device->kind == DEVICE_CPU)
        config_error(errors, gpudirect, "gpudirect needs a GPU, and device.kind is cpu");
}
