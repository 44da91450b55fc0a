/* cpu_direct.c - direct and exported memory of the cpu device.  Each is a mapped memory file
 * (memfd_create()). */
#include "common/device/cpu_direct.h"

#include "common/base/memory.h"
#include "common/base/why.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Reports an unlimited size, because device_check_memory() checks all host memory. */
int device_cpu_direct_memory(struct device *device, struct memory *memory, char *why, size_t why_bytes)
{
    *memory = (struct memory){UINT64_MAX, UINT64_MAX};
    return 0;
}

/* Creates a memory file of 'bytes' bytes.  Returns its descriptor, or negative errno. */
static int make_file(const char *name, size_t bytes)
{
    int fd = bytes > PTRDIFF_MAX ? -1 : memfd_create(name, MFD_CLOEXEC);

    if (fd < 0)
        return bytes > PTRDIFF_MAX ? -ENOMEM : -errno;
    if (ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    int err = -errno;
    close(fd);
    return err;
}

/* Maps the file and populates all pages, as the allocation of pinned memory does. */
static void *map_file(int fd, size_t bytes, int protection)
{
    void *memory = mmap(NULL, bytes, protection, MAP_SHARED | MAP_POPULATE, fd, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static int explain(int err, size_t bytes, const char *what, char *why, size_t why_bytes)
{
    return why_fail(err, why, why_bytes, "%zu bytes of memory cannot be %s: %s", bytes, what, strerror(-err));
}

/* In a build with a sanitizer, fills new memory with bytes other than zero (see device/cpu.c).  Code that reads the
 * memory before the first write then does not find zeros by chance. */
static void poison(void *memory, size_t bytes)
{
#ifdef CBF_SANITIZE
    memset(memory, 0xA5, bytes);
#endif
}

int device_cpu_alloc_direct(struct device *device, size_t bytes, struct device_direct *direct, char *why,
                            size_t why_bytes)
{
    struct device_direct new = {.bytes = bytes ? bytes : 1};
    int fd = make_file("direct", new.bytes), err = 0;

    if (fd < 0)
        return explain(fd, bytes, "mapped twice", why, why_bytes);
    new.device = map_file(fd, new.bytes, PROT_READ | PROT_WRITE);
    new.host = new.device ? map_file(fd, new.bytes, PROT_WRITE) : NULL;
    if (!new.host)
        err = -errno;
    close(fd);
    if (err) {
        if (new.device)
            munmap(new.device, new.bytes);
        return explain(err, bytes, "mapped twice", why, why_bytes);
    }
    poison(new.device, new.bytes);
    *direct = new;
    return 0;
}

void device_cpu_free_direct(struct device *device, const struct device_direct *direct)
{
    munmap(direct->host, direct->bytes);
    munmap(direct->device, direct->bytes);
}

/* The exported memory of the cpu device is a memory file, which only the simulated NICs of tests accept. */
int device_cpu_check_exported(struct device *device, char *why, size_t why_bytes)
{
    return why_fail(-ENODEV, why, why_bytes, "the network card cannot write to GPU memory: this is the cpu device");
}

/* Allocates exported memory, aligned to DEVICE_PAGE_BYTES. The function reserves more address space than needed,
 * without access, and maps the file inside it, because mmap() aligns only to a page of the host.  The 'nic' addresses
 * are in the reserved space behind the mapping, so an access by the CPU causes a fault. */
int device_cpu_alloc_exported(struct device *device, size_t bytes, struct device_exported *exported, char *why,
                              size_t why_bytes)
{
    if (bytes > PTRDIFF_MAX / 2 - 2 * DEVICE_PAGE_BYTES)
        return explain(-ENOMEM, bytes, "shared with a network card", why, why_bytes);
    size_t whole_bytes = (bytes / DEVICE_PAGE_BYTES + 1) * DEVICE_PAGE_BYTES;
    int fd = make_file("exported", whole_bytes);
    if (fd < 0)
        return explain(fd, bytes, "shared with a network card", why, why_bytes);
    size_t space_bytes = 2 * whole_bytes + DEVICE_PAGE_BYTES;
    uint8_t *space = mmap(NULL, space_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) {
        close(fd);
        return explain(-ENOMEM, bytes, "shared with a network card", why, why_bytes);
    }
    uint8_t *aligned = space + -(uintptr_t)space % DEVICE_PAGE_BYTES;
    if (mmap(aligned, whole_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        int err = -errno;
        munmap(space, space_bytes);
        close(fd);
        return explain(err, bytes, "shared with a network card", why, why_bytes);
    }
    poison(aligned, whole_bytes);
    *exported = (struct device_exported){
        .device = aligned, .nic = aligned + whole_bytes, .bytes = whole_bytes, .fd = fd, .owned = space};
    return 0;
}

void device_cpu_free_exported(struct device *device, const struct device_exported *exported)
{
    munmap(exported->owned, 2 * exported->bytes + DEVICE_PAGE_BYTES);
    close(exported->fd);
}
