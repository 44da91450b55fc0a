/* disk.h - the simulated disk under a recorder: real files, and writes that are slow or find the disk full.
 *
 * disk.c defines pwrite(), fallocate(), fsync() and statvfs() of the process.  The dynamic linker takes these functions
 * in place of the C library's functions, also for a shared libhdf5.  Outside disk_begin() and disk_end() pwrite() only
 * writes.
 * Kills:     a kill leaves the file as it is at the time of a write, with the first pages of this write.  The disk
 *            copies the file at this time, and the daemon goes on.
 * Threads:   threads of the world. */
#ifndef TESTS_WORLD_DISK_H
#define TESTS_WORLD_DISK_H

#include <stdbool.h>
#include <stdint.h>

struct disk_faults {
    bool reserves;                    /* the file system supports fallocate() */
    int64_t full_from_ns, full_to_ns; /* time in which no space can be reserved */
    uint64_t n_bytes;                 /* without 'reserves': number of bytes by which files can grow in the run */
    int64_t delay_ns;                 /* largest random duration of a write */
    double kill;                      /* probability of a kill, per write */
    unsigned n_kills;                 /* largest number of kills */
};

enum disk_event {
    DISK_KILL, /* 'copy' is the file that a kill before the write, or within it, would leave */
    DISK_FULL, /* a write found the disk full.  'copy' is NULL */
};

/* Begins a run.  The faults must stay valid until disk_end().  Calls happened(event, path, copy) during the write. */
void disk_begin(const struct disk_faults *faults,
                void (*happened)(enum disk_event event, const char *path, const char *copy));
void disk_end(void);

/* Copies a file, which keeps its holes. */
void disk_copy(const char *path, const char *copy);

#endif
