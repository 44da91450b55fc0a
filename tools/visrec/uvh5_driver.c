/* uvh5_driver.c - a file driver of HDF5, below visrec/uvh5.c: each flush changes the file in one step.
 *
 * HDF5 changes its tables (superblock, object headers, indexes of chunks) in place, with many writes.  After a kill between
 * these writes, or within one of them, an index may have lost the chunks of older dumps.  Therefore this driver
 * distinguishes two kinds of writes:
 *   new      New data and new tables lie after the end of the file as the last flush left it, or are large pieces of
 *            raw data.  They are written at once, because the tables of the last flush do not refer to them.  (A column
 *            of the header repeats the rows of earlier dumps in each write.)
 *   changes  All other writes change what the last flush left.  The journal in memory collects the changes.
 * When HDF5 flushes, commit() writes the journal after the file's end, replaces the file's signature by the journal's
 * address, makes the changes, and restores the signature.
 *
 * A kill before the replacement leaves the file of the last flush.  After the replacement the file does not open, and
 * scripts/repair_uvh5.py makes the changes and restores the signature.  Signature and address are 8 bytes of one page.
 * Linux interrupts a write only between two pages, so a file has either the signature or the address. */
#include "tools/visrec/uvh5_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#define DRIVER_VALUE 500 /* files do not contain it; HDF5 reserves 256 to 511 for drivers that are not registered */
#define LARGE_BYTES  4096

static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

/* The journal: this header, then 'n_bytes' of changes.  A change is its address, its length and its bytes. */
struct journal_header {
    char magic[8];
    uint64_t n_bytes;
};

struct change_header {
    uint64_t address, n_bytes;
};

struct driver_file {
    H5FD_t base; /* HDF5's part */
    int fd;
    haddr_t eoa;                /* end of the space that HDF5 has allocated */
    haddr_t eof;                /* end of the space that was written */
    haddr_t flushed_end;        /* 'eoa' at the last flush; 0: no flush */
    uint8_t *journal;           /* [capacity] struct journal_header and changes */
    size_t n_bytes, n_capacity; /* bytes of the journal, with its header */
    int broken_errno; /* errno of a failed write, after which nothing is written, so that HDF5 can close the file; or 0 */
};

/* Passes errno to HDF5, in the words of HDF5's own drivers. */
static herr_t fail(const char *function)
{
    H5Epush2(H5E_DEFAULT, __FILE__, function, __LINE__, H5E_ERR_CLS, H5E_IO, H5E_WRITEERROR, "errno = %d", errno);
    return -1;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static H5FD_t *open_file(const char *name, unsigned flags, hid_t access, haddr_t max_address)
{
    int how = O_CLOEXEC | (flags & H5F_ACC_RDWR ? O_RDWR : O_RDONLY) | (flags & H5F_ACC_TRUNC ? O_TRUNC : 0) |
              (flags & H5F_ACC_CREAT ? O_CREAT : 0) | (flags & H5F_ACC_EXCL ? O_EXCL : 0);
    struct driver_file *file = calloc(1, sizeof(*file));
    struct stat stat;

    (void)access;
    (void)max_address;
    if (!file) {
        fail(__func__);
        return NULL;
    }
    file->fd = open(name, how, 0666);
    if (file->fd < 0 || fstat(file->fd, &stat) != 0) {
        fail(__func__);
        if (file->fd >= 0)
            close(file->fd);
        free(file);
        return NULL;
    }
    file->eof = (haddr_t)stat.st_size;
    return &file->base;
}

static int compare(const H5FD_t *a, const H5FD_t *b)
{
    struct stat stat_a, stat_b;

    if (fstat(((const struct driver_file *)a)->fd, &stat_a) != 0 ||
        fstat(((const struct driver_file *)b)->fd, &stat_b) != 0)
        return -1;
    if (stat_a.st_dev != stat_b.st_dev)
        return stat_a.st_dev < stat_b.st_dev ? -1 : 1;
    return stat_a.st_ino < stat_b.st_ino ? -1 : stat_a.st_ino > stat_b.st_ino;
}

static herr_t query(const H5FD_t *base, unsigned long *features)
{
    (void)base;
    *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
                H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)base)->eoa;
}

static herr_t set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t address)
{
    (void)type;
    ((struct driver_file *)base)->eoa = address;
    return 0;
}

static haddr_t get_eof(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)base)->eof;
}

static herr_t get_handle(H5FD_t *base, hid_t access, void **handle)
{
    (void)access;
    *handle = &((struct driver_file *)base)->fd;
    return 0;
}

/* ---- Writes ------------------------------------------------------------------------------------------------------ */

static bool write_all(int fd, const void *bytes, size_t n_bytes, uint64_t address)
{
    for (const uint8_t *next = bytes; n_bytes > 0;) {
        ssize_t n = pwrite(fd, next, n_bytes, (off_t)address);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        next += n;
        n_bytes -= (size_t)n;
        address += (uint64_t)n;
    }
    return true;
}

/* Adds a change to the journal. */
static bool note_change(struct driver_file *file, const void *bytes, size_t n_bytes, uint64_t address)
{
    size_t n_used = file->n_bytes ? file->n_bytes : sizeof(struct journal_header);
    size_t n_needed = n_used + sizeof(struct change_header) + n_bytes;

    if (n_needed > file->n_capacity) {
        uint8_t *journal = realloc(file->journal, 2 * n_needed);
        if (!journal)
            return false;
        file->journal = journal;
        file->n_capacity = 2 * n_needed;
    }
    memcpy(file->journal + n_used, &(struct change_header){address, n_bytes}, sizeof(struct change_header));
    memcpy(file->journal + n_used + sizeof(struct change_header), bytes, n_bytes);
    file->n_bytes = n_needed;
    return true;
}

static herr_t write_bytes(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t n_bytes,
                          const void *bytes)
{
    struct driver_file *file = (struct driver_file *)base;
    bool is_new = address >= file->flushed_end || (type == H5FD_MEM_DRAW && n_bytes > LARGE_BYTES);
    size_t n_skipped = !is_new && address == 0 ? sizeof(signature) : 0; /* the signature never changes */

    (void)transfer;
    if (file->broken_errno)
        return 0; /* the next flush fails */
    if (address + n_bytes > file->eof)
        file->eof = address + n_bytes;
    bool ok = is_new ? write_all(file->fd, bytes, n_bytes, address)
                     : note_change(file, (const uint8_t *)bytes + n_skipped, n_bytes - n_skipped, address + n_skipped);
    if (ok)
        return 0;
    file->broken_errno = errno;
    return fail(__func__);
}

/* Calls visit(arg, change) for each change of the journal, in order, until it returns false. */
static bool each_change(const struct driver_file *file,
                        bool (*visit)(void *arg, const struct change_header *change, const uint8_t *bytes), void *arg)
{
    struct change_header change;

    for (size_t at = sizeof(struct journal_header); at < file->n_bytes; at += sizeof(change) + change.n_bytes) {
        memcpy(&change, file->journal + at, sizeof(change));
        if (!visit(arg, &change, file->journal + at + sizeof(change)))
            return false;
    }
    return true;
}

static bool make_change(void *fd, const struct change_header *change, const uint8_t *bytes)
{
    return write_all(*(int *)fd, bytes, change->n_bytes, change->address);
}

/* Makes all changes of the journal.  A kill at any time leaves the file with all changes or without a change. */
static bool make_changes(struct driver_file *file)
{
    haddr_t end = file->eoa > file->eof ? file->eoa : file->eof;
    uint64_t journal_at = (end / LARGE_BYTES + 1) * LARGE_BYTES;
    struct journal_header header = {"visrec J", file->n_bytes - sizeof(header)};

    memcpy(file->journal, &header, sizeof(header));
    return write_all(file->fd, file->journal, file->n_bytes, journal_at) &&
           write_all(file->fd, &journal_at, sizeof(signature), 0) && each_change(file, make_change, &file->fd) &&
           write_all(file->fd, signature, sizeof(signature), 0);
}

static herr_t commit(struct driver_file *file)
{
    if (file->n_bytes > 0 && !make_changes(file)) {
        file->broken_errno = errno;
        return fail(__func__);
    }
    file->n_bytes = 0;
    file->flushed_end = file->eoa;
    return 0;
}

static herr_t flush(H5FD_t *base, hid_t transfer, hbool_t closing)
{
    struct driver_file *file = (struct driver_file *)base;

    (void)transfer;
    if (!file->broken_errno)
        return commit(file);
    errno = file->broken_errno;
    return closing ? 0 : fail(__func__);
}

static herr_t close_file(H5FD_t *base)
{
    struct driver_file *file = (struct driver_file *)base;
    herr_t err = file->broken_errno ? 0 : commit(file);

    close(file->fd);
    free(file->journal);
    free(file);
    return err;
}

/* ---- Reads ------------------------------------------------------------------------------------------------------- */

struct piece {
    uint64_t address, n_bytes;
    uint8_t *bytes;
};

/* Copies the part of a change that lies in the piece. */
static bool apply_change(void *arg, const struct change_header *change, const uint8_t *bytes)
{
    struct piece *piece = arg;
    uint64_t from = change->address > piece->address ? change->address : piece->address;
    uint64_t to = change->address + change->n_bytes, end = piece->address + piece->n_bytes;

    to = to < end ? to : end;
    if (from < to)
        memcpy(piece->bytes + (from - piece->address), bytes + (from - change->address), to - from);
    return true;
}

/* Reads the file as it will be after the next commit.  Bytes after the file's end are 0. */
static herr_t read_bytes(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t n_bytes, void *bytes)
{
    struct driver_file *file = (struct driver_file *)base;
    struct piece piece = {address, n_bytes, bytes};

    (void)type;
    (void)transfer;
    memset(bytes, 0, n_bytes);
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = pread(file->fd, piece.bytes + done, n_bytes - done, (off_t)(address + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(__func__);
        if (n == 0)
            break;
        done += (size_t)n;
    }
    each_change(file, apply_change, &piece);
    return 0;
}

/* ---- Registration ------------------------------------------------------------------------------------------------ */

bool visrec_uvh5_use_driver(hid_t access)
{
    static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
        .version = H5FD_CLASS_VERSION,
        .value = DRIVER_VALUE,
#endif
        .name = "visrec",
        .maxaddr = INT64_MAX,
        .fc_degree = H5F_CLOSE_WEAK,
        .open = open_file,
        .close = close_file,
        .cmp = compare,
        .query = query,
        .get_eoa = get_eoa,
        .set_eoa = set_eoa,
        .get_eof = get_eof,
        .get_handle = get_handle,
        .read = read_bytes,
        .write = write_bytes,
        .flush = flush,
        .fl_map = H5FD_FLMAP_DICHOTOMY,
    };
    static hid_t id;

    if (id <= 0)
        id = H5FDregister(&driver);
    return id > 0 && H5Pset_driver(access, id, NULL) >= 0;
}
