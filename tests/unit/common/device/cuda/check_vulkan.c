/* check_vulkan.c - memory that the host writes to, on a fake Vulkan (tests/fakes/vulkan) that fails on demand.  If a
 * real Vulkan with a driver for CPUs is installed, the test uses that one, too. */
#include "common/base/copy.h"
#include "common/device/cuda/vulkan.h"
#include "common/base/units.h"
#include "tests/unit/fakes.h"
#include "tests/fakes/direct_guard/direct_guard.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHER_UUID "eeeeeeee-eeee-eeee-eeee-eeeeeeeeeeee"
#define N_BYTES    100001

static const uint8_t uuid[VULKAN_UUID_BYTES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static uint8_t byte_of(size_t i)
{
    return (uint8_t)(i * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

/* Past the cache, from places and in sizes that packets may have. */
static void write_all(uint8_t *to, size_t n_bytes)
{
    uint8_t from[777];

    for (size_t done = 0, n; done < n_bytes; done += n) {
        n = n_bytes - done < sizeof(from) ? n_bytes - done : sizeof(from);
        for (size_t i = 0; i < n; i++)
            from[i] = byte_of(done + i);
        copy_past_cache(to + done, from, n);
    }
    copy_finish();
}

/* Where in a file the bytes begin; < 0: nowhere. */
static ptrdiff_t find_in_file(int fd, size_t n_bytes)
{
    struct stat file;
    uint8_t wanted[64];

    ck_assert_int_eq(fstat(fd, &file), 0);
    ck_assert_int_ge(file.st_size, (off_t)n_bytes);
    const uint8_t *bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(bytes, MAP_FAILED);
    for (size_t i = 0; i < sizeof(wanted); i++)
        wanted[i] = byte_of(i);
    const uint8_t *found = memmem(bytes, (size_t)file.st_size, wanted, sizeof(wanted));
    for (size_t i = 0; found && i < n_bytes; i++)
        if (found[i] != byte_of(i))
            ck_abort_msg("byte %zu is wrong", i);
    return found ? found - bytes : -1;
}

static struct vulkan *open_well(const uint8_t *of)
{
    struct vulkan *vulkan = NULL;
    char why[600] = "";

    ck_assert_msg(vulkan_open(of, &vulkan, why, sizeof(why)) == 0, "%s", why);
    return vulkan;
}

/* ---- Our own ----------------------------------------------------------------------------------------------------- */

TEST(what_is_written_is_in_the_file)
{
    struct vulkan_memory memory[3];
    char why[600] = "";

    setenv("CBF_FAKE_VULKAN", "", 1);
    struct vulkan *vulkan = open_well(uuid);
    ck_assert_uint_eq(vulkan_heap_bytes(vulkan), (uint64_t)256 << 20);
    for (size_t k = 0; k < ARRAY_LEN(memory); k++) {
        ck_assert_int_eq(vulkan_alloc(vulkan, N_BYTES - k, &memory[k], why, sizeof(why)), 0);
        ck_assert_uint_eq(memory[k].bytes, 131072);
        direct_guard(memory[k].host, memory[k].bytes);
        write_all(memory[k].host, N_BYTES - k);
        ck_assert_int_eq(find_in_file(memory[k].fd, N_BYTES - k), 0);
        close(memory[k].fd);
    }
    for (size_t k = 0; k < ARRAY_LEN(memory); k++) {
        direct_unguard(memory[k].host);
        vulkan_free(vulkan, &memory[k]);
    }
    vulkan_close(vulkan); /* which says what was left behind */
}

static const struct {
    const char *fake;
    int err;
    const char *words;
} failures[] = {
    {"minor=0", -ENODEV, "this Vulkan is older than 1.1"},
    {"vkCreateInstance=-9", -ENODEV,
     "vkCreateInstance failed: VK_ERROR_INCOMPATIBLE_DRIVER (-9): Vulkan finds no driver; install the GPU's driver, or "
     "name its nvidia_icd.json in VK_DRIVER_FILES"},
    {"vkCreateInstance=-1", -ENOMEM, "vkCreateInstance failed: VK_ERROR_OUT_OF_HOST_MEMORY (-1)"},
    {"vkEnumeratePhysicalDevices=-3", -EIO, "vkEnumeratePhysicalDevices failed: VK_ERROR_INITIALIZATION_FAILED (-3)"},
    {"gpus=0", -ENODEV, "Vulkan does not see the GPU with UUID 00010203-0405-0607-0809-0a0b0c0d0e0f; it sees none"},
    {"gpus=1", -ENODEV,
     "Vulkan does not see the GPU with UUID 00010203-0405-0607-0809-0a0b0c0d0e0f; it sees Fake Vulkan 0 (" OTHER_UUID
     ")"},
    {"gpu_minor=0", -ENODEV,
     "Vulkan does not see the GPU with UUID 00010203-0405-0607-0809-0a0b0c0d0e0f; it sees none"},
    {"extension=0", -ENODEV, "vkCreateDevice failed: VK_ERROR_EXTENSION_NOT_PRESENT (-7)"},
    {"vkCreateDevice=-4", -EIO, "vkCreateDevice failed: VK_ERROR_DEVICE_LOST (-4)"},
    {"vkCreateDevice=-1000", -EIO, "vkCreateDevice failed: an error (-1000)"},
    {"heap_mib=0", -ENODEV, "this GPU has no memory that the host can write to"},
    {"exports=0", -ENODEV,
     "the GPU's Vulkan driver exports no memory that the host can write to: vkAllocateMemory failed: "
     "VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)"},
    {"vkGetMemoryFdKHR=-3", -ENODEV,
     "the GPU's Vulkan driver exports no memory that the host can write to: vkGetMemoryFdKHR failed: "
     "VK_ERROR_INITIALIZATION_FAILED (-3)"},
    {"vkGetMemoryFdKHR=-10", -ENOMEM, "vkGetMemoryFdKHR failed: VK_ERROR_TOO_MANY_OBJECTS (-10)"},
    {"vkAllocateMemory=-2", -ENOMEM, "vkAllocateMemory failed: VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)"},
};

/* Nothing is left behind either, or the fake says so. */
TEST(failure_to_open_is_said, .end = ARRAY_LEN(failures))
{
    struct vulkan *vulkan = NULL;
    char why[600] = "";

    setenv("CBF_FAKE_VULKAN", failures[_i].fake, 1);
    ck_assert_int_eq(vulkan_open(uuid, &vulkan, why, sizeof(why)), failures[_i].err);
    ck_assert_str_eq(why, failures[_i].words);
    ck_assert_ptr_null(vulkan);
    vulkan_close(NULL);
}

TEST(failure_to_allocate_is_said)
{
    static const char *const calls[] = {"vkAllocateMemory", "vkMapMemory", "vkGetMemoryFdKHR"};
    struct vulkan_memory memory;
    char why[600], fake[100], words[100];

    setenv("CBF_FAKE_VULKAN", "", 1);
    struct vulkan *vulkan = open_well(uuid);
    for (size_t k = 0; k < ARRAY_LEN(calls); k++) {
        snprintf(fake, sizeof(fake), "%s=-2", calls[k]);
        snprintf(words, sizeof(words), "%s failed: VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)", calls[k]);
        setenv("CBF_FAKE_VULKAN", fake, 1);
        ck_assert_int_eq(vulkan_alloc(vulkan, N_BYTES, &memory, why, sizeof(why)), -ENOMEM);
        ck_assert_str_eq(why, words);
    }
    setenv("CBF_FAKE_VULKAN", "", 1);
    ck_assert_int_eq(vulkan_alloc(vulkan, (size_t)257 << 20, &memory, why, sizeof(why)), -ENOMEM);
    vulkan_close(vulkan);
}

/* ---- A real one -------------------------------------------------------------------------------------------------- */

/* Names the driver for CPUs, and no other; false where there is none. */
static bool use_cpu_driver(void)
{
    glob_t found;
    bool any = glob("/usr/share/vulkan/icd.d/lvp_icd*.json", 0, NULL, &found) == 0;

    if (any)
        setenv("VK_DRIVER_FILES", found.gl_pathv[0], 1);
    globfree(&found);
    return any;
}

static const char *no_driver(void)
{
#ifdef CBF_SANITIZE
    return "what a driver leaves behind is its own business";
#else
    return use_cpu_driver() ? NULL : "there is no Vulkan driver for CPUs";
#endif
}

static void parse_uuid(const char *text, uint8_t out[VULKAN_UUID_BYTES])
{
    for (size_t i = 0; i < VULKAN_UUID_BYTES; i++, text += 2) {
        unsigned byte;

        text += *text == '-';
        ck_assert_int_eq(sscanf(text, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
}

/* What the calls mean to somebody else.  Where in the file the driver has the memory is its own business. */
TEST(real_vulkan_shares_its_memory, .setup = test_no_setup, .skip = no_driver())
{
    const uint8_t nobody[VULKAN_UUID_BYTES] = "nobody's own";
    struct vulkan *vulkan = NULL;
    struct vulkan_memory memory;
    uint8_t own[VULKAN_UUID_BYTES];
    char why[600] = "";

    ck_assert(use_cpu_driver());
    ck_assert_int_eq(vulkan_open(nobody, &vulkan, why, sizeof(why)), -ENODEV);
    const char *seen = strstr(why, "it sees llvmpipe");
    ck_assert_msg(seen && strrchr(seen, '('), "%s", why);
    parse_uuid(strrchr(seen, '(') + 1, own);
    vulkan = open_well(own);
    ck_assert_uint_gt(vulkan_heap_bytes(vulkan), 0);
    ck_assert_msg(vulkan_alloc(vulkan, N_BYTES, &memory, why, sizeof(why)) == 0, "%s", why);
    ck_assert_uint_ge(memory.bytes, N_BYTES);
    write_all(memory.host, N_BYTES);
    ck_assert_int_ge(find_in_file(memory.fd, N_BYTES), 0);
    close(memory.fd);
    vulkan_free(vulkan, &memory);
    vulkan_close(vulkan);
}

SUITE(.skip = test_fake_vulkan() ? NULL : "there is no Vulkan of our own: built without its headers", .timeout_s = 60,
      .setup = test_use_fake_vulkan);
