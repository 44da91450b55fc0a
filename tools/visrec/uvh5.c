/* uvh5.c - the last stage of the flow, after the writer thread: appends dumps as rows to HDF5 datasets.
 *
 * This source file handles the UVH5 file as a whole: its path, its space on the disk, its consistency.  After each dump
 * the counts in the header are rewritten and everything is flushed, so that a reader finds only complete dumps.  Space
 * on the disk is reserved before each dump.  If the disk became full during a write, HDF5 could not recover, and the
 * file would be damaged. */
#include "tools/visrec/uvh5.h"

#include "common/base/file.h"
#include "tools/visrec/uvh5_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Upper bound of HDF5's memory for its chunk caches and tables. */
#define HDF5_BYTES (32 << 20)

/* Upper bound of the bytes that a dump adds to the file in addition to its values: unfilled parts of new chunks, and
 * HDF5's own tables. */
#define RESERVE_BYTES (4 << 20)

struct visrec_uvh5 {
    const struct visrec_array *array;
    char *path;     /* current path of the file */
    char *replaces; /* path of an older file that the first dump replaces; else NULL */
    hid_t file;
    int fd;                /* another descriptor of the file, used to reserve space */
    hid_t n_times, n_blts; /* datasets in the header that hold the counts of times and of rows */
    struct visrec_uvh5_rows rows;
    hsize_t n_dumps;
    int os_errno; /* errno of the first call of HDF5 that failed; 0: no call has failed */
    bool failed;  /* true: a write has failed; the file is then never written again, not even at close */
};

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

/* Finds the operating system's errno in the text of HDF5's innermost error, because HDF5 does not report the errno in
 * any other way. */
static herr_t find_errno(unsigned depth, const H5E_error2_t *error, void *found)
{
    const char *text = error->desc ? strstr(error->desc, "errno = ") : NULL;

    if (text && *(int *)found == 0)
        *(int *)found = (int)strtol(text + strlen("errno = "), NULL, 10);
    return 0;
}

/* Stores the errno of the first failed call in the file.  HDF5 calls this function after each failed call, because the
 * next call would erase the reason. */
static herr_t note_errno(hid_t stack, void *file)
{
    return H5Ewalk2(stack, H5E_WALK_UPWARD, find_errno, &((struct visrec_uvh5 *)file)->os_errno);
}

/* Registers note_errno() for the calling thread only, because HDF5 has an error stack for each thread. */
static void watch_errors(struct visrec_uvh5 *file)
{
    H5Eset_auto2(H5E_DEFAULT, note_errno, file);
}

static int failure(const struct visrec_uvh5 *file, const char *doing, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "output.file: \"%s\": cannot %s: %s", file->path, doing,
             file->os_errno ? strerror(file->os_errno) : "HDF5 failed");
    return file->os_errno ? -file->os_errno : -EIO;
}

/* ---- Room on the disk -------------------------------------------------------------------------------------------- */

/* Allocates space for the file.  If the file system cannot allocate in advance, only checks the free space; then a
 * later write may still find the disk full.  Returns 0 or the errno. */
static int allocate(int fd, off_t offset, off_t bytes)
{
    struct statvfs stat;
    int err;

    do
        err = fallocate(fd, 0, offset, bytes) < 0 ? errno : 0;
    while (err == EINTR);
    if (err != EOPNOTSUPP)
        return err;
    if (fstatvfs(fd, &stat) == 0 && (double)stat.f_bavail * (double)stat.f_frsize < (double)bytes)
        return ENOSPC;
    return 0;
}

/* Returns false if the disk is full.  Call before HDF5 creates a file, because HDF5 leaks memory if it finds no room
 * for a new file. */
static bool has_room(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    struct statvfs stat;
    bool is_full = directory && statvfs(directory, &stat) == 0 &&
                   (double)stat.f_bavail * (double)stat.f_frsize < (double)RESERVE_BYTES;

    free(directory);
    return !is_full;
}

static size_t dump_bytes(const struct visrec_uvh5 *file, const struct visrec_dump *dump)
{
    return visrec_uvh5_rows_bytes(&file->rows, dump) + RESERVE_BYTES;
}

uint64_t visrec_uvh5_bytes_with(const struct visrec_uvh5 *file, const struct visrec_dump *dump)
{
    hsize_t size;

    return H5Fget_filesize(file->file, &size) < 0 ? 0 : size + dump_bytes(file, dump);
}

/* Reserves space for the next dump, before HDF5 writes it.  A failure here does not damage the file. */
static bool reserve(struct visrec_uvh5 *file, const struct visrec_dump *dump)
{
    hsize_t size;

    if (H5Fget_filesize(file->file, &size) < 0)
        return false;
    file->os_errno = allocate(file->fd, (off_t)size, (off_t)dump_bytes(file, dump));
    return file->os_errno == 0;
}

/* ---- Replacement of an older file -------------------------------------------------------------------------------- */

/* Chooses the path of the new file.  If an earlier recording exists, the path is PATH.new.  The earlier recording
 * stays until the first dump replaces it. */
static int choose_paths(struct visrec_uvh5 *file, const char *path, bool overwrite)
{
    struct stat old;

    if (overwrite && stat(path, &old) == 0) {
        if (S_ISDIR(old.st_mode))
            return -EISDIR;
        file->replaces = realpath(path, NULL);
        if (!file->replaces)
            return -errno;
    }
    if (asprintf(&file->path, file->replaces ? "%s.new" : "%s", file->replaces ? file->replaces : path) < 0) {
        file->path = NULL;
        return -ENOMEM;
    }
    if (file->replaces)
        unlink(file->path); /* a recorder that was killed before its first dump may have left this file */
    return 0;
}

static bool sync_name(struct visrec_uvh5 *file)
{
    file->os_errno = -file_sync_name(file->path);
    return file->os_errno == 0;
}

/* Replaces an older file by the new file.  The new file contains its first dump, and this dump is on the disk before
 * the older file is removed. */
static bool replace_old(struct visrec_uvh5 *file)
{
    if (!file->replaces)
        return true;
    if (fsync(file->fd) != 0 || rename(file->path, file->replaces) != 0) {
        file->os_errno = errno;
        return false;
    }
    free(file->path);
    file->path = file->replaces;
    file->replaces = NULL;
    return sync_name(file);
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

/* Creates a file, which must not exist.  Does not follow a symbolic link (O_EXCL). */
static hid_t open_file(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t file;

    /* Closing the file also closes all its objects.  HDF5 sets no lock, so that other programs can read the file during
     * the recording. */
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    H5Pset_file_locking(access, false, true);
    file = visrec_uvh5_use_driver(access) ? H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, access) : -1;
    H5Pclose(access);
    return file;
}

/* Duplicates HDF5's own descriptor.  The copy refers to the same file, even if the file's name has changed.  Returns a
 * negative number after a failure. */
static int duplicate_descriptor(hid_t file)
{
    void *fd;

    if (H5Fget_vfd_handle(file, H5P_DEFAULT, &fd) < 0)
        return -1;
    return fcntl(*(int *)fd, F_DUPFD_CLOEXEC, 0);
}

/* Checks for memory in advance, because HDF5 crashes if an allocation fails. */
static bool has_memory_for_hdf5(void)
{
    void *memory = mmap(NULL, HDF5_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory != MAP_FAILED && munmap(memory, HDF5_BYTES) == 0;
}

static bool fill_new_file(struct visrec_uvh5 *file, const char *history)
{
    hid_t header = H5Gcreate2(file->file, "Header", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t data = H5Gcreate2(file->file, "Data", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    if (!visrec_uvh5_write_header(header, file->array, history) ||
        !visrec_uvh5_rows_init(&file->rows, file->array, header, data))
        return false;
    file->n_times = H5Dopen2(header, "Ntimes", H5P_DEFAULT);
    file->n_blts = H5Dopen2(header, "Nblts", H5P_DEFAULT);
    return file->n_times >= 0 && file->n_blts >= 0 && H5Fflush(file->file, H5F_SCOPE_GLOBAL) >= 0;
}

static void free_memory(struct visrec_uvh5 *file)
{
    visrec_uvh5_rows_fini(&file->rows);
    free(file->path);
    free(file->replaces);
    free(file);
}

/* Explains a failed creation.  HDF5 does not report EEXIST for every existing file. */
static int creation_failure(const struct visrec_uvh5 *file, bool overwrite, char *why, size_t why_bytes)
{
    struct stat old, target;

    if ((file->os_errno && file->os_errno != EEXIST) || lstat(file->path, &old) != 0)
        return failure(file, "create the file", why, why_bytes);
    if (S_ISLNK(old.st_mode) && stat(file->path, &target) != 0)
        snprintf(why, why_bytes, "output.file: \"%s\" is a symbolic link without a target; remove it", file->path);
    else
        snprintf(why, why_bytes, "output.file: \"%s\" exists already; move it away%s", file->path,
                 overwrite ? "" : ", or set output.overwrite: true");
    return -EEXIST;
}

int visrec_uvh5_create(const char *path, bool overwrite, const struct visrec_array *array, const char *history,
                       struct visrec_uvh5 **out, char *why, size_t why_bytes)
{
    struct visrec_uvh5 *file = calloc(1, sizeof(*file));

    if (!file || !has_memory_for_hdf5()) {
        snprintf(why, why_bytes, "output.file: there are no %d MiB of memory for HDF5", HDF5_BYTES >> 20);
        free(file);
        return -ENOMEM;
    }
    file->array = array;
    H5dont_atexit(); /* HDF5's own cleanup crashes after a failed write */
    watch_errors(file);
    int err = choose_paths(file, path, overwrite);
    if (err) {
        snprintf(why, why_bytes, "output.file: \"%s\" cannot be overwritten: %s", path, strerror(-err));
        goto undo_memory;
    }
    if (access(file->path, F_OK) != 0 && !has_room(file->path)) {
        file->os_errno = ENOSPC;
        err = failure(file, "create the file", why, why_bytes);
        goto undo_memory;
    }
    file->file = open_file(file->path);
    if (file->file < 0) {
        /* The file exists and is empty.  This process created it, because an existing file would have caused EEXIST. */
        if (file->os_errno == ENOSPC || file->os_errno == EDQUOT)
            unlink(file->path);
        err = creation_failure(file, overwrite, why, why_bytes);
        goto undo_memory;
    }
    file->fd = duplicate_descriptor(file->file);
    if (file->fd < 0) {
        file->os_errno = errno;
        err = failure(file, "open the file", why, why_bytes);
        goto undo_file;
    }
    file->os_errno = allocate(file->fd, 0, RESERVE_BYTES);
    if (file->os_errno || !fill_new_file(file, history) || !sync_name(file)) {
        err = failure(file, "write the header", why, why_bytes);
        goto undo_fd;
    }
    *out = file;
    return 0;
undo_fd:
    close(file->fd);
undo_file:
    H5Fclose(file->file);
    unlink(file->path);
undo_memory:
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    free_memory(file);
    return err;
}

/* ---- Appending --------------------------------------------------------------------------------------------------- */

/* Appends a dump.  One flush writes the rows and the counts.  After a kill at any time, the file therefore has the whole
 * dump or no part of it (visrec/uvh5_driver.c). */
static bool append_all(struct visrec_uvh5 *file, const struct visrec_dump *dump, int64_t unix_ns)
{
    int64_t n_times = (int64_t)file->n_dumps + 1;
    int64_t n_blts = n_times * (int64_t)file->array->n_baselines;

    return visrec_uvh5_rows_append(&file->rows, file->n_dumps, dump, unix_ns) &&
           H5Dwrite(file->n_times, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &n_times) >= 0 &&
           H5Dwrite(file->n_blts, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &n_blts) >= 0 &&
           H5Fflush(file->file, H5F_SCOPE_GLOBAL) >= 0;
}

int visrec_uvh5_append(struct visrec_uvh5 *file, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                       size_t why_bytes)
{
    assert(!file->failed);
    watch_errors(file);
    file->os_errno = 0;
    if (!reserve(file, dump))
        return failure(file, "write a dump", why, why_bytes);
    if (!append_all(file, dump, unix_ns) || !replace_old(file)) {
        file->failed = true;
        failure(file, "write a dump", why, why_bytes);
        return -EIO;
    }
    file->n_dumps++;
    return 0;
}

/* ---- Closing ----------------------------------------------------------------------------------------------------- */

/* Closes the file, and frees the space that was reserved but not used. */
static bool finish(struct visrec_uvh5 *file)
{
    hsize_t size;

    if (H5Fflush(file->file, H5F_SCOPE_GLOBAL) < 0 || H5Fget_filesize(file->file, &size) < 0 ||
        H5Fclose(file->file) < 0)
        return false;
    if (ftruncate(file->fd, (off_t)size) == 0)
        return true;
    file->os_errno = errno;
    return false;
}

int visrec_uvh5_close(struct visrec_uvh5 *file, char *why, size_t why_bytes)
{
    int err = 0;

    if (!file)
        return 0;
    /* After a failed write, closing the file in HDF5 would fail for the same reason.  Data that were flushed earlier
     * are on the disk. */
    if (!file->failed) {
        watch_errors(file);
        file->os_errno = 0;
        if (!finish(file))
            err = failure(file, "finish the file", why, why_bytes);
    }
    close(file->fd);
    if (file->n_dumps == 0)
        unlink(file->path);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    free_memory(file);
    return err;
}
