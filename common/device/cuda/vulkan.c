/* vulkan.c - opens the GPU with Vulkan, and allocates memory that the host writes to and CUDA reads. */
#include "common/device/cuda/vulkan.h"

#include "common/base/why.h"
#include "common/device/cuda/library.h"
#include "common/device/device.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef CBF_VULKAN

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define UUID_TEXT_BYTES 37
#define N_GPUS_MAX      64

/* The functions of Vulkan that this file calls, grouped by the object that is needed to look them up. */
#define GLOBAL_CALLS(call) call(CreateInstance) call(EnumerateInstanceVersion)
#define INSTANCE_CALLS(call)                                                                                           \
    call(DestroyInstance) call(EnumeratePhysicalDevices) call(GetPhysicalDeviceProperties)                             \
        call(GetPhysicalDeviceProperties2) call(GetPhysicalDeviceMemoryProperties) call(CreateDevice)                  \
            call(GetDeviceProcAddr)
#define DEVICE_CALLS(call)                                                                                             \
    call(DestroyDevice) call(AllocateMemory) call(FreeMemory) call(MapMemory) call(GetMemoryFdKHR)
#define MEMBER(name) PFN_vk##name name;

struct vulkan {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
    GLOBAL_CALLS(MEMBER)
    INSTANCE_CALLS(MEMBER)
    DEVICE_CALLS(MEMBER)
    VkInstance instance;
    VkPhysicalDevice gpu;
    VkDevice device;
    uint32_t memory_type;
    uint64_t heap_bytes;
};

/* ---- Sentences --------------------------------------------------------------------------------------------------- */

static const char *result_name(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY: return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED: return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST: return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_MEMORY_MAP_FAILED: return "VK_ERROR_MEMORY_MAP_FAILED";
    case VK_ERROR_EXTENSION_NOT_PRESENT: return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_INCOMPATIBLE_DRIVER: return "VK_ERROR_INCOMPATIBLE_DRIVER";
    case VK_ERROR_TOO_MANY_OBJECTS: return "VK_ERROR_TOO_MANY_OBJECTS";
    default: return "an error";
    }
}

static int explain(VkResult result, const char *call, char *why, size_t why_bytes)
{
    bool no_driver = result == VK_ERROR_INCOMPATIBLE_DRIVER;

    snprintf(why, why_bytes, "%s failed: %s (%d)%s", call, result_name(result), (int)result,
             no_driver
                 ? ": Vulkan finds no driver; install the GPU's driver, or name its nvidia_icd.json in VK_DRIVER_FILES"
                 : "");
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_MEMORY_MAP_FAILED: return -ENOMEM;
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_INCOMPATIBLE_DRIVER: return -ENODEV;
    default: return -EIO;
    }
}

static void format_uuid(const uint8_t *u, char text[UUID_TEXT_BYTES])
{
    snprintf(text, UUID_TEXT_BYTES, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* ---- The instance and the GPU ------------------------------------------------------------------------------------ */

#define FIND(name)                                                                                                     \
    if (!(v->name = (PFN_vk##name)v->GetInstanceProcAddr(v->instance, "vk" #name)))                                    \
        missing = "vk" #name;

static int find_failed(const char *missing, char *why, size_t why_bytes)
{
    if (!missing)
        return 0;
    return why_fail(-ENODEV, why, why_bytes, "this Vulkan has no %s", missing);
}

static int open_instance(struct vulkan *v, char *why, size_t why_bytes)
{
    static const char *const names[] = {"libvulkan.so.1", NULL};
    const struct library_symbol symbols[] = {{"vkGetInstanceProcAddr", &v->GetInstanceProcAddr}, {NULL, NULL}};
    const VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "cbf", .apiVersion = VK_API_VERSION_1_1};
    const VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                         .pApplicationInfo = &application};
    const char *missing = NULL;
    uint32_t version = VK_API_VERSION_1_0;
    int err = library_open(names, symbols, NULL, why, why_bytes);

    if (err) {
        size_t n = strlen(why);
        snprintf(why + n, why_bytes - n, "; the host needs Vulkan to write to GPU memory: install libvulkan1");
        return err;
    }
    GLOBAL_CALLS(FIND)
    if (v->EnumerateInstanceVersion)
        v->EnumerateInstanceVersion(&version);
    if (missing || version < VK_API_VERSION_1_1)
        return why_fail(-ENODEV, why, why_bytes, "this Vulkan is older than 1.1");
    VkResult result = v->CreateInstance(&create, NULL, &v->instance);
    if (result)
        return explain(result, "vkCreateInstance", why, why_bytes);
    INSTANCE_CALLS(FIND)
    return find_failed(missing, why, why_bytes);
}

/* Appends the GPU's name to 'seen'.  Returns true if the GPU has this UUID.  Ignores a GPU without Vulkan 1.1. */
static bool is_gpu(const struct vulkan *v, VkPhysicalDevice gpu, const uint8_t *uuid, char *seen, size_t seen_bytes)
{
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &id};
    size_t n = strlen(seen);
    char text[UUID_TEXT_BYTES];

    v->GetPhysicalDeviceProperties(gpu, &properties.properties);
    if (properties.properties.apiVersion < VK_API_VERSION_1_1)
        return false;
    v->GetPhysicalDeviceProperties2(gpu, &properties);
    format_uuid(id.deviceUUID, text);
    snprintf(seen + n, seen_bytes - n, "%s%.60s (%s)", n ? ", " : "", properties.properties.deviceName, text);
    return memcmp(id.deviceUUID, uuid, VULKAN_UUID_BYTES) == 0;
}

static int find_gpu(struct vulkan *v, const uint8_t *uuid, char *why, size_t why_bytes)
{
    VkPhysicalDevice gpus[N_GPUS_MAX];
    uint32_t n = N_GPUS_MAX;
    char seen[500] = "", wanted[UUID_TEXT_BYTES];
    VkResult result = v->EnumeratePhysicalDevices(v->instance, &n, gpus);

    if (result < 0)
        return explain(result, "vkEnumeratePhysicalDevices", why, why_bytes);
    for (uint32_t i = 0; i < n && !v->gpu; i++)
        if (is_gpu(v, gpus[i], uuid, seen, sizeof(seen)))
            v->gpu = gpus[i];
    if (v->gpu)
        return 0;
    format_uuid(uuid, wanted);
    return why_fail(-ENODEV, why, why_bytes, "Vulkan does not see the GPU with UUID %s; it sees %s", wanted,
                    seen[0] ? seen : "none");
}

static int open_device(struct vulkan *v, char *why, size_t why_bytes)
{
    static const char *const extensions[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME};
    const float priority = 1;
    /* Vulkan requires a queue, although this program uses no queue. */
    const VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    const VkDeviceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                       .queueCreateInfoCount = 1,
                                       .pQueueCreateInfos = &queue,
                                       .enabledExtensionCount = 1,
                                       .ppEnabledExtensionNames = extensions};
    const char *missing = NULL;
    VkResult result = v->CreateDevice(v->gpu, &create, NULL, &v->device);

    if (result)
        return explain(result, "vkCreateDevice", why, why_bytes);
#define FIND_OF_DEVICE(name)                                                                                           \
    if (!(v->name = (PFN_vk##name)v->GetDeviceProcAddr(v->device, "vk" #name)))                                        \
        missing = "vk" #name;
    DEVICE_CALLS(FIND_OF_DEVICE)
    return find_failed(missing, why, why_bytes);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Chooses the suitable memory type with the largest heap.  The function does not ask for the memory types of an exported
 * buffer, because NVIDIA's driver then reports no host-visible type.  Nevertheless the driver can export host-visible
 * memory. */
static int choose_type(struct vulkan *v, char *why, size_t why_bytes)
{
    const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                         VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkPhysicalDeviceMemoryProperties memory;

    v->GetPhysicalDeviceMemoryProperties(v->gpu, &memory);
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        uint64_t heap_bytes = memory.memoryHeaps[memory.memoryTypes[i].heapIndex].size;

        if ((memory.memoryTypes[i].propertyFlags & wanted) == wanted && heap_bytes > v->heap_bytes) {
            v->memory_type = i;
            v->heap_bytes = heap_bytes;
        }
    }
    if (v->heap_bytes)
        return 0;
    return why_fail(-ENODEV, why, why_bytes, "this GPU has no memory that the host can write to");
}

/* Allocates 'bytes' bytes, a multiple of the page size.  'export' is NULL for memory that is not exported. */
static VkResult allocate(const struct vulkan *v, size_t bytes, const VkExportMemoryAllocateInfo *export,
                         VkDeviceMemory *memory)
{
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = export,
                                       .allocationSize = bytes,
                                       .memoryTypeIndex = v->memory_type};

    return v->AllocateMemory(v->device, &info, NULL, memory);
}

static const VkExportMemoryAllocateInfo as_file = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                                   .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};

static VkResult get_file(const struct vulkan *v, VkDeviceMemory memory, int *fd)
{
    const VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                       .memory = memory,
                                       .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};

    return v->GetMemoryFdKHR(v->device, &info, fd);
}

/* Tests with one page whether memory can be exported, because drivers describe only the export of buffers.  A driver
 * that cannot export may return any error, even a lack of memory.  So the test first checks that a page can be
 * allocated without export. */
static int check_export(const struct vulkan *v, char *why, size_t why_bytes)
{
    const char *call = "vkAllocateMemory";
    VkDeviceMemory memory;
    int fd;
    VkResult result = allocate(v, DEVICE_PAGE_BYTES, NULL, &memory);

    if (result)
        return explain(result, call, why, why_bytes);
    v->FreeMemory(v->device, memory, NULL);
    result = allocate(v, DEVICE_PAGE_BYTES, &as_file, &memory);
    if (!result) {
        call = "vkGetMemoryFdKHR";
        result = get_file(v, memory, &fd);
        v->FreeMemory(v->device, memory, NULL);
    }
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_TOO_MANY_OBJECTS || result == VK_ERROR_DEVICE_LOST)
        return explain(result, call, why, why_bytes);
    if (result)
        return why_fail(-ENODEV, why, why_bytes,
                        "the GPU's Vulkan driver exports no memory that the host can write to: %s failed: %s (%d)",
                        call, result_name(result), (int)result);
    close(fd);
    return 0;
}

uint64_t vulkan_heap_bytes(const struct vulkan *vulkan)
{
    return vulkan->heap_bytes;
}

int vulkan_alloc(struct vulkan *v, size_t bytes, struct vulkan_memory *out, char *why, size_t why_bytes)
{
    size_t whole_bytes = ((bytes ? bytes : 1) + DEVICE_PAGE_BYTES - 1) / DEVICE_PAGE_BYTES * DEVICE_PAGE_BYTES;
    VkDeviceMemory memory;
    const char *call = "vkAllocateMemory";
    void *host;
    int fd;
    VkResult result = allocate(v, whole_bytes, &as_file, &memory);

    if (result)
        return explain(result, call, why, why_bytes);
    call = "vkMapMemory";
    result = v->MapMemory(v->device, memory, 0, VK_WHOLE_SIZE, 0, &host); /* mapped until the memory is freed */
    if (result)
        goto undo;
    call = "vkGetMemoryFdKHR";
    result = get_file(v, memory, &fd);
    if (result)
        goto undo;
    *out = (struct vulkan_memory){.host = host, .bytes = whole_bytes, .fd = fd};
    memcpy(&out->owned, &memory, sizeof(memory));
    return 0;
undo:
    v->FreeMemory(v->device, memory, NULL);
    return explain(result, call, why, why_bytes);
}

void vulkan_free(struct vulkan *v, const struct vulkan_memory *memory)
{
    VkDeviceMemory device_memory;

    memcpy(&device_memory, &memory->owned, sizeof(device_memory));
    v->FreeMemory(v->device, device_memory, NULL);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

int vulkan_open(const uint8_t uuid[VULKAN_UUID_BYTES], struct vulkan **vulkan, char *why, size_t why_bytes)
{
    struct vulkan *v = calloc(1, sizeof(*v));

    snprintf(why, why_bytes, "there is no memory for Vulkan");
    int err = v ? open_instance(v, why, why_bytes) : -ENOMEM;
    if (!err)
        err = find_gpu(v, uuid, why, why_bytes);
    if (!err)
        err = open_device(v, why, why_bytes);
    if (!err)
        err = choose_type(v, why, why_bytes);
    if (!err)
        err = check_export(v, why, why_bytes);
    if (err)
        vulkan_close(v);
    else
        *vulkan = v;
    return err;
}

void vulkan_close(struct vulkan *vulkan)
{
    if (!vulkan)
        return;
    if (vulkan->device && vulkan->DestroyDevice)
        vulkan->DestroyDevice(vulkan->device, NULL);
    if (vulkan->instance && vulkan->DestroyInstance)
        vulkan->DestroyInstance(vulkan->instance, NULL);
    free(vulkan);
}

#else

int vulkan_open(const uint8_t uuid[VULKAN_UUID_BYTES], struct vulkan **vulkan, char *why, size_t why_bytes)
{
    return why_fail(-ENODEV, why, why_bytes,
                    "this program was built without Vulkan, which the host needs to write to GPU memory");
}

void vulkan_close(struct vulkan *vulkan)
{
}

uint64_t vulkan_heap_bytes(const struct vulkan *vulkan)
{
    return 0;
}

int vulkan_alloc(struct vulkan *vulkan, size_t bytes, struct vulkan_memory *memory, char *why, size_t why_bytes)
{
    return -ENODEV;
}

void vulkan_free(struct vulkan *vulkan, const struct vulkan_memory *memory)
{
}

#endif
