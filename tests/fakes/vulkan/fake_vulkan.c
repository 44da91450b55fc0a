/* fake_vulkan.c - a libvulkan.so.1 with the calls of Vulkan that common/device/cuda/vulkan.c makes, for hosts without a
 * GPU's driver.  Memory is a file in memory, mapped for writing only.
 *
 * A program error that would be undefined behaviour in a driver ends the process: wrong handles, missing structures,
 * sizes and flags that do not fit, objects that are not destroyed.  The second of its two GPUs has the UUID of
 * fake_cuda's first GPU.
 *
 * $CBF_FAKE_VULKAN is a list "name=number,...":
 *   minor (1)        version 1.minor of the library
 *   gpus (2), gpu_minor (1)
 *   heap_mib (256)   size of the memory that the host can write to; 0: there is none
 *   extension (1)    VK_KHR_external_memory_fd
 *   exports (1)      0: the driver says that no memory can be exported
 *   vkNAME=CODE      that call returns this result */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fake_vulkan: %s: not so: %s\n", __func__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define PAGE_BYTES 65536
/* The first two are: not the host's to see, and not the device's own; the last has a smaller heap. */
#define MEMORY_TYPE 2
#define HEAP        1

struct thing {
    char kind; /* 'i', 'g', 'd', 'm' */
    int index; /* of a GPU */
    size_t bytes;
    bool exported;
    int fd;
    void *mapped;
};

static struct thing gpus[2] = {{.kind = 'g', .index = 0}, {.kind = 'g', .index = 1}};
static int n_instances, n_devices, n_memories;

static long setting(const char *name, long otherwise)
{
    const char *at = getenv("CBF_FAKE_VULKAN");
    size_t n = strlen(name);

    for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return atol(at + n + 1);
    return otherwise;
}

#define FAIL_IF_TOLD()                                                                                                 \
    if (setting(__func__, 0))                                                                                          \
        return (VkResult)setting(__func__, 0);

static void *make(char kind, int *count)
{
    struct thing *thing = calloc(1, sizeof(*thing));

    CHECK(thing);
    thing->kind = kind;
    ++*count;
    return thing;
}

static void unmake(struct thing *thing, char kind, int *count)
{
    CHECK(thing->kind == kind);
    thing->kind = '\0';
    --*count;
    free(thing);
}

static struct thing *as(void *handle, char kind)
{
    struct thing *thing = handle;

    CHECK(thing && thing->kind == kind);
    return thing;
}

/* ---- The instance and its GPUs ----------------------------------------------------------------------------------- */

static VkResult vkEnumerateInstanceVersion(uint32_t *version)
{
    *version = VK_MAKE_API_VERSION(0, 1, (uint32_t)setting("minor", 1), 0);
    return VK_SUCCESS;
}

static VkResult vkCreateInstance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *none, VkInstance *out)
{
    FAIL_IF_TOLD()
    CHECK(info->sType == VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO && !none && !info->enabledExtensionCount);
    CHECK(info->pApplicationInfo->apiVersion == VK_API_VERSION_1_1);
    *out = make('i', &n_instances);
    return VK_SUCCESS;
}

static void vkDestroyInstance(VkInstance instance, const VkAllocationCallbacks *none)
{
    unmake(as(instance, 'i'), 'i', &n_instances);
    CHECK(n_devices == 0);
}

static VkResult vkEnumeratePhysicalDevices(VkInstance instance, uint32_t *n, VkPhysicalDevice *out)
{
    FAIL_IF_TOLD()
    as(instance, 'i');
    CHECK(out && *n >= 2);
    *n = (uint32_t)setting("gpus", 2);
    for (uint32_t i = 0; i < *n; i++)
        out[i] = (VkPhysicalDevice)(void *)&gpus[i];
    return VK_SUCCESS;
}

static void vkGetPhysicalDeviceProperties(VkPhysicalDevice gpu, VkPhysicalDeviceProperties *properties)
{
    snprintf(properties->deviceName, sizeof(properties->deviceName), "Fake Vulkan %d", as(gpu, 'g')->index);
    properties->apiVersion = VK_MAKE_API_VERSION(0, 1, (uint32_t)setting("gpu_minor", 1), 0);
}

static void vkGetPhysicalDeviceProperties2(VkPhysicalDevice gpu, VkPhysicalDeviceProperties2 *properties)
{
    VkPhysicalDeviceIDProperties *id = properties->pNext;

    CHECK(id->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES && !id->pNext);
    CHECK(setting("gpu_minor", 1) >= 1);
    vkGetPhysicalDeviceProperties(gpu, &properties->properties);
    for (int i = 0; i < (int)VK_UUID_SIZE; i++)
        id->deviceUUID[i] = (uint8_t)(as(gpu, 'g')->index == 1 ? i : 0xee);
}

static void vkGetPhysicalDeviceMemoryProperties(VkPhysicalDevice gpu, VkPhysicalDeviceMemoryProperties *memory)
{
    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkDeviceSize heap_bytes = (VkDeviceSize)setting("heap_mib", 256) << 20;

    as(gpu, 'g');
    memset(memory, 0, sizeof(*memory));
    memory->memoryHeapCount = 3;
    memory->memoryHeaps[0] = (VkMemoryHeap){(VkDeviceSize)1 << 40, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    memory->memoryHeaps[HEAP] = (VkMemoryHeap){heap_bytes, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    memory->memoryTypeCount = heap_bytes ? 4 : 2;
    memory->memoryTypes[0] = (VkMemoryType){local, 0};
    memory->memoryTypes[1] = (VkMemoryType){host, 0};
    memory->memoryTypes[MEMORY_TYPE] = (VkMemoryType){local | host, HEAP};
    memory->memoryHeaps[2] = (VkMemoryHeap){heap_bytes / 2, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    memory->memoryTypes[3] = (VkMemoryType){local | host, 2};
}

/* ---- The device and its memory ----------------------------------------------------------------------------------- */

static VkResult vkCreateDevice(VkPhysicalDevice gpu, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *none,
                               VkDevice *out)
{
    FAIL_IF_TOLD()
    CHECK(as(gpu, 'g')->index == 1 && info->sType == VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
    CHECK(info->queueCreateInfoCount == 1 && info->pQueueCreateInfos[0].queueCount == 1);
    CHECK(info->enabledExtensionCount == 1);
    CHECK(strcmp(info->ppEnabledExtensionNames[0], VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) == 0);
    if (!setting("extension", 1))
        return VK_ERROR_EXTENSION_NOT_PRESENT;
    *out = make('d', &n_devices);
    return VK_SUCCESS;
}

static void vkDestroyDevice(VkDevice device, const VkAllocationCallbacks *none)
{
    unmake(as(device, 'd'), 'd', &n_devices);
    CHECK(n_memories == 0);
}

static VkResult vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *none,
                                 VkDeviceMemory *out)
{
    FAIL_IF_TOLD()
    as(device, 'd');
    CHECK(info->sType == VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO && info->memoryTypeIndex == MEMORY_TYPE);
    const VkExportMemoryAllocateInfo *export = info->pNext;
    if (export) {
        CHECK(export->sType == VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO && !export->pNext);
        CHECK(export->handleTypes == VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT);
        if (!setting("exports", 1))
            return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    CHECK(info->allocationSize % PAGE_BYTES == 0);
    if (info->allocationSize > (VkDeviceSize)setting("heap_mib", 256) << 20)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    struct thing *memory = make('m', &n_memories);
    memory->bytes = info->allocationSize;
    memory->exported = export != NULL;
    memory->fd = memfd_create("fake_vulkan", MFD_CLOEXEC);
    CHECK(memory->fd >= 0 && ftruncate(memory->fd, (off_t)memory->bytes) == 0);
    *out = (VkDeviceMemory)(void *)memory;
    return VK_SUCCESS;
}

static void vkFreeMemory(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks *none)
{
    struct thing *thing = as(memory, 'm');

    as(device, 'd');
    if (thing->mapped)
        munmap(thing->mapped, thing->bytes);
    close(thing->fd);
    unmake(thing, 'm', &n_memories);
}

static VkResult vkMapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize bytes,
                            VkMemoryMapFlags flags, void **out)
{
    FAIL_IF_TOLD()
    struct thing *thing = as(memory, 'm');
    CHECK(!thing->mapped && offset == 0 && bytes == VK_WHOLE_SIZE && !flags);
    thing->mapped = mmap(NULL, thing->bytes, PROT_WRITE, MAP_SHARED, thing->fd, 0);
    CHECK(thing->mapped != MAP_FAILED);
    *out = thing->mapped;
    return VK_SUCCESS;
}

static VkResult vkGetMemoryFdKHR(VkDevice device, const VkMemoryGetFdInfoKHR *info, int *fd)
{
    FAIL_IF_TOLD()
    CHECK(info->sType == VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR);
    CHECK(info->handleType == VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT);
    CHECK(as(info->memory, 'm')->exported);
    *fd = dup(as(info->memory, 'm')->fd);
    return VK_SUCCESS;
}

/* ---- Finding them ------------------------------------------------------------------------------------------------ */

#define ENTRY(name)                                                                                                    \
    {                                                                                                                  \
#name, (PFN_vkVoidFunction)(name)                                                                              \
    }

static PFN_vkVoidFunction find(const char *name, bool of_instance, bool of_device)
{
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } global[] = {ENTRY(vkEnumerateInstanceVersion), ENTRY(vkCreateInstance)},
      of_instances[] = {ENTRY(vkDestroyInstance),
                        ENTRY(vkEnumeratePhysicalDevices),
                        ENTRY(vkGetPhysicalDeviceProperties),
                        ENTRY(vkGetPhysicalDeviceProperties2),
                        ENTRY(vkGetPhysicalDeviceMemoryProperties),
                        ENTRY(vkCreateDevice)},
      of_devices[] = {ENTRY(vkDestroyDevice), ENTRY(vkAllocateMemory), ENTRY(vkFreeMemory), ENTRY(vkMapMemory),
                      ENTRY(vkGetMemoryFdKHR)};

    for (size_t i = 0; !of_instance && !of_device && i < sizeof(global) / sizeof(global[0]); i++)
        if (strcmp(global[i].name, name) == 0)
            return global[i].function;
    for (size_t i = 0; of_instance && i < sizeof(of_instances) / sizeof(of_instances[0]); i++)
        if (strcmp(of_instances[i].name, name) == 0)
            return of_instances[i].function;
    for (size_t i = 0; of_device && i < sizeof(of_devices) / sizeof(of_devices[0]); i++)
        if (strcmp(of_devices[i].name, name) == 0)
            return of_devices[i].function;
    return NULL;
}

static PFN_vkVoidFunction vkGetDeviceProcAddr(VkDevice device, const char *name)
{
    as(device, 'd');
    return find(name, false, true);
}

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name);

__attribute__((visibility("default"))) PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name)
{
    if (instance && strcmp(name, "vkGetDeviceProcAddr") == 0)
        return (PFN_vkVoidFunction)vkGetDeviceProcAddr;
    return find(name, instance != NULL, false);
}
