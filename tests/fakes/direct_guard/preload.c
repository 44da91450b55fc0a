/* preload.c - direct-guard.so: replaces the C library's mmap() and munmap(), and guards memory that is mapped for
 * writing only. */
#include "direct_guard.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    void *memory = (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);

    if (memory != MAP_FAILED && protection == PROT_WRITE)
        direct_guard(memory, bytes);
    return memory;
}

int munmap(void *memory, size_t bytes)
{
    direct_unguard(memory);
    return (int)syscall(SYS_munmap, memory, bytes);
}
