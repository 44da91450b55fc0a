/* keys.c - the keys of the section device, and their checks. */
#include "common/device/keys.h"

#include "common/device/device.h"
#include "common/net/endpoint.h"
#include "common/base/units.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const device_choices[] = {"auto", "cpu", "cuda", NULL};

#define AT(member) offsetof(struct config_device, member)
const struct config_key config_device_keys[] = {
    {"kind", CFG_ENUM, UNIT_NONE, 0, 0, "auto", false, AT(kind), device_choices,
     "Where the kernels run; auto takes CUDA where there is a GPU that will do."},
    {"gpu", CFG_STRING, UNIT_NONE, 1, 64, "auto", false, AT(gpu), NULL,
     "Which GPU, by index, UUID (GPU-...) or PCI address (0000:3b:00.0); auto is the first that will do."},
    {"threads", CFG_INT, UNIT_NONE, 0, 1024, "0", false, AT(n_threads), NULL,
     "Threads per kernel on the CPU device; 0 is one per core."},
    {"kernel_cache", CFG_STRING, UNIT_NONE, 0, 4000, "", false, AT(kernel_cache), NULL,
     "Directory that keeps compiled CUDA kernels; empty is the service's (CacheDirectory=) or else the user's."},
};
#undef AT

/* Checks the form alone; the start finds whether there is such a GPU. */
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

void config_check_device(const struct config_device *device, struct config *errors)
{
    if (!is_gpu_name(device->gpu))
        config_error(errors, &device->gpu,
                     "gpu must be auto, an index, a UUID (GPU-...) or a PCI address (0000:3b:00.0), not \"%s\"",
                     device->gpu);
}

void config_check_gpudirect(const bool *gpudirect, int transport, const char *pcap_file,
                            const struct config_device *device, struct config *errors)
{
    if (!*gpudirect)
        return;
    if (transport != TRANSPORT_IBVERBS || pcap_file)
        config_error(errors, gpudirect, "gpudirect needs transport: ibverbs%s", pcap_file ? ", and no pcap_file" : "");
    else if (device->kind == DEVICE_CPU)
        config_error(errors, gpudirect, "gpudirect needs a GPU, and device.kind is cpu");
}
