/* disk.c - writes of HDF5 and reservations of the recorder, with the faults of disk.h. */
#include "tests/world/disk.h"

#include "tests/world/sched.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK_BYTES 4096
#define PAGE_BYTES  4096
#define FREE_BLOCKS (1ull << 30)

static struct {
    const struct disk_faults *faults; /* NULL: no run */
    void (*happened)(enum disk_event event, const char *path, const char *copy);
    uint64_t n_bytes;
    unsigned n_kills;
    bool is_broken; /* a write found the disk full */
} disk;

void disk_begin(const struct disk_faults *faults,
                void (*happened)(enum disk_event event, const char *path, const char *copy))
{
    disk.faults = faults;
    disk.happened = happened;
    disk.n_bytes = 0;
    disk.n_kills = 0;
    disk.is_broken = false;
}

void disk_end(void)
{
    disk.faults = NULL;
}

static bool is_full(void)
{
    return world_now_ns() >= disk.faults->full_from_ns && world_now_ns() < disk.faults->full_to_ns;
}

static off_t file_bytes(int fd)
{
    struct stat stat;

    return fstat(fd, &stat) == 0 ? stat.st_size : 0;
}

static ssize_t write_really(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
    return syscall(SYS_pwrite64, fd, bytes, n_bytes, offset);
}

/* ---- Kills ------------------------------------------------------------------------------------------------------ */

static void copy_data(int from, int to)
{
    static char buffer[1 << 16];
    off_t size = file_bytes(from), end;

    for (off_t at = 0; (at = lseek(from, at, SEEK_DATA)) >= 0; at = end) {
        end = lseek(from, at, SEEK_HOLE);
        for (off_t done = at; done < end;) {
            size_t left = (size_t)(end - done);
            ssize_t n = pread(from, buffer, left < sizeof(buffer) ? left : sizeof(buffer), done);
            if (n <= 0 || write_really(to, buffer, (size_t)n, done) != n)
                world_fail("cannot copy a file: %s", strerror(errno));
            done += n;
        }
    }
    if (ftruncate(to, size) != 0)
        world_fail("cannot copy a file: %s", strerror(errno));
}

void disk_copy(const char *path, const char *copy)
{
    int from = open(path, O_RDONLY | O_CLOEXEC), to = open(copy, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (from < 0 || to < 0)
        world_fail("cannot copy %s: %s", path, strerror(errno));
    copy_data(from, to);
    close(from);
    close(to);
}

/* Writes the first pages of a write to the copy.  Returns false if it leaves the copy unchanged. */
static bool tear(const char *copy, const void *bytes, size_t n_bytes, off_t offset)
{
    size_t n_pages = ((size_t)offset + n_bytes) / PAGE_BYTES - (size_t)offset / PAGE_BYTES;
    size_t n_kept = world_random(2) ? 0 : world_random(n_pages + 1);

    if (n_kept == 0)
        return false;
    size_t n_torn = n_kept * PAGE_BYTES - (size_t)offset % PAGE_BYTES;
    int fd = open(copy, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write_really(fd, bytes, n_torn, offset) < 0)
        world_fail("cannot write %s: %s", copy, strerror(errno));
    close(fd);
    return n_torn < n_bytes;
}

/* Copies the file as a kill at this write leaves it. */
static void copy_killed(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
    char link[64], path[PATH_MAX] = "", copy[PATH_MAX + 32];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) < 0)
        world_fail("a descriptor without a file");
    snprintf(copy, sizeof(copy), "%s.killed%u", path, disk.n_kills++);
    disk_copy(path, copy);
    bool is_torn = tear(copy, bytes, n_bytes, offset);
    world_note(is_torn ? "disk: killed within a write" : "disk: killed between writes");
    disk.happened(DISK_KILL, path, copy);
}

/* ---- In place of the C library ---------------------------------------------------------------------------------- */

/* Returns the number of bytes of a write for which the disk has room.  Only the growth of a file needs room. */
static size_t find_room(int fd, size_t n_bytes, off_t offset)
{
    const struct disk_faults *f = disk.faults;

    if (f->reserves) {
        /* HDF5 cannot recover from a failed write, so the recorder must have reserved the space. */
        if (!is_full() || offset + (off_t)n_bytes <= file_bytes(fd))
            return n_bytes;
        if (file_bytes(fd) > 0)
            world_fail("the disk is full, and a write exceeds the reserved space");
        return 0; /* HDF5 creates the file, and the recorder has not reserved space yet */
    }
    off_t grows = offset + (off_t)n_bytes - file_bytes(fd);
    uint64_t n_new = grows > 0 ? (uint64_t)grows : 0, n_left = f->n_bytes - disk.n_bytes;
    uint64_t n_lacking = n_new > n_left ? n_new - n_left : 0;
    disk.n_bytes += n_new - n_lacking;
    return n_lacking < n_bytes ? n_bytes - (size_t)n_lacking : 0;
}

static ssize_t write_to_disk(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
    const struct disk_faults *f = disk.faults;

    if (f->delay_ns > 0) {
        int64_t end_ns = world_now_ns() + (int64_t)world_random((uint64_t)f->delay_ns);
        while (world_now_ns() < end_ns)
            world_wait(NULL, end_ns);
        world_note("disk: slow write");
    }
    world_note("disk: write");
    if (disk.n_kills < f->n_kills && world_chance(f->kill))
        copy_killed(fd, bytes, n_bytes, offset);
    size_t n_room = find_room(fd, n_bytes, offset);
    if (n_room > 0)
        return write_really(fd, bytes, n_room, offset);
    world_note("disk: no space left at a write");
    if (!f->reserves && !disk.is_broken)
        disk.happened(DISK_FULL, NULL, NULL);
    disk.is_broken = true;
    errno = ENOSPC;
    return -1;
}

ssize_t pwrite(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
    if (!disk.faults || n_bytes == 0)
        return write_really(fd, bytes, n_bytes, offset);
    return write_to_disk(fd, bytes, n_bytes, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n_bytes, off64_t offset)
{
    return pwrite(fd, bytes, n_bytes, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t n_bytes)
{
    if (!disk.faults || !disk.faults->reserves) {
        errno = EOPNOTSUPP;
        return -1;
    }
    world_seam();
    if (offset + n_bytes <= file_bytes(fd))
        return 0;
    if (is_full()) {
        world_note("disk: no space left for a reservation");
        errno = ENOSPC;
        return -1;
    }
    return ftruncate(fd, offset + n_bytes);
}

int statvfs(const char *path, struct statvfs *stat)
{
    *stat = (struct statvfs){.f_frsize = BLOCK_BYTES, .f_bavail = disk.faults && is_full() ? 0 : FREE_BLOCKS};
    return 0;
}

int fstatvfs(int fd, struct statvfs *stat)
{
    return statvfs("/", stat);
}

int fsync(int fd)
{
    world_note("disk: fsync");
    return 0;
}
