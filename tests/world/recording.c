/* recording.c - see recording.h. */
#include "tests/world/recording.h"

#include "common/base/units.h"

#include <fcntl.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIGNATURE "\x89HDF\r\n\x1a\n"
#define MAGIC     "visrec J"

/* The arrays that grow with each dump. */
static const char *const growing[] = {
    "Header/ant_1_array",
    "Header/ant_2_array",
    "Header/time_array",
    "Header/lst_array",
    "Header/integration_time",
    "Header/uvw_array",
    "Header/phase_center_app_ra",
    "Header/phase_center_app_dec",
    "Header/phase_center_frame_pa",
    "Header/phase_center_id_array",
    "Data/visdata",
    "Data/flags",
    "Data/nsamples",
};

static hid_t open_file(const char *path, unsigned flags)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);

    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    hid_t file = H5Fopen(path, flags, access);
    H5Pclose(access);
    return file;
}

/* Returns the number of an array's rows, or -1. */
static int64_t count_rows(hid_t file, const char *name)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT), space = set < 0 ? -1 : H5Dget_space(set);
    hsize_t dims[4] = {0};
    int64_t n_rows = space >= 0 && H5Sget_simple_extent_dims(space, dims, NULL) > 0 ? (int64_t)dims[0] : -1;

    if (space >= 0)
        H5Sclose(space);
    if (set >= 0)
        H5Dclose(set);
    return n_rows;
}

/* Reads 'n' values of 'value_bytes'.  A type below 0 means the file's own type. */
static bool read_values(hid_t file, const char *name, hid_t type, size_t n, size_t value_bytes, void *values)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);

    if (set < 0)
        return false;
    hid_t space = H5Dget_space(set), own = H5Dget_type(set);
    bool ok = H5Sget_simple_extent_npoints(space) == (hssize_t)n && (type >= 0 || H5Tget_size(own) == value_bytes) &&
              (n == 0 || H5Dread(set, type >= 0 ? type : own, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Tclose(own);
    H5Sclose(space);
    H5Dclose(set);
    return ok;
}

static bool read_counts(hid_t file, int64_t *n_times, int64_t *n_blts)
{
    return read_values(file, "Header/Ntimes", H5T_NATIVE_INT64, 1, 8, n_times) &&
           read_values(file, "Header/Nblts", H5T_NATIVE_INT64, 1, 8, n_blts);
}

static bool read_file(hid_t file, size_t n_baselines, size_t n_values, struct recording *r)
{
    int64_t n_times, n_blts;

    if (!read_counts(file, &n_times, &n_blts) || n_times < 0 || n_blts != n_times * (int64_t)n_baselines)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(growing); i++)
        if (count_rows(file, growing[i]) != n_blts)
            return false;
    size_t n_rows = (size_t)n_blts, n = n_rows * n_values;
    *r = (struct recording){.n_dumps = (size_t)n_times, .n_rows = n_rows};
    r->times = calloc(n_rows + 1, sizeof(*r->times));
    r->ant_1 = calloc(n_rows + 1, sizeof(*r->ant_1));
    r->ant_2 = calloc(n_rows + 1, sizeof(*r->ant_2));
    r->vis = calloc(n + 1, sizeof(*r->vis));
    r->flags = calloc(n + 1, sizeof(*r->flags));
    r->nsamples = calloc(n + 1, sizeof(*r->nsamples));
    if (read_values(file, "Header/time_array", H5T_NATIVE_DOUBLE, n_rows, 8, r->times) &&
        read_values(file, "Header/ant_1_array", H5T_NATIVE_INT64, n_rows, 8, r->ant_1) &&
        read_values(file, "Header/ant_2_array", H5T_NATIVE_INT64, n_rows, 8, r->ant_2) &&
        read_values(file, "Data/visdata", -1, n, sizeof(r->vis[0]), r->vis) &&
        read_values(file, "Data/flags", -1, n, 1, r->flags) &&
        read_values(file, "Data/nsamples", H5T_NATIVE_FLOAT, n, sizeof(float), r->nsamples))
        return true;
    recording_free(r);
    return false;
}

bool recording_read(const char *path, size_t n_baselines, size_t n_values, struct recording *recording)
{
    hid_t file = open_file(path, H5F_ACC_RDONLY);

    if (file < 0)
        return false;
    bool ok = read_file(file, n_baselines, n_values, recording);
    H5Fclose(file);
    return ok;
}

void recording_free(struct recording *recording)
{
    free(recording->times);
    free(recording->ant_1);
    free(recording->ant_2);
    free(recording->vis);
    free(recording->flags);
    free(recording->nsamples);
}

/* Makes the changes of a journal of 'n_bytes': each has an address, a length and its bytes. */
static bool make_changes(int fd, const uint8_t *journal, uint64_t n_bytes)
{
    uint64_t change[2];

    for (uint64_t at = 0; at < n_bytes; at += sizeof(change) + change[1]) {
        if (n_bytes - at < sizeof(change))
            return false;
        memcpy(change, journal + at, sizeof(change));
        if (change[1] > n_bytes - at - sizeof(change) ||
            pwrite(fd, journal + at + sizeof(change), change[1], (off_t)change[0]) != (ssize_t)change[1])
            return false;
    }
    return true;
}

static bool repair_descriptor(int fd)
{
    struct {
        char magic[8];
        uint64_t n_bytes;
    } header;
    uint64_t start;
    struct stat stat;

    if (fstat(fd, &stat) != 0 || pread(fd, &start, 8, 0) != 8 ||
        pread(fd, &header, sizeof(header), (off_t)start) != sizeof(header) || memcmp(header.magic, MAGIC, 8) != 0 ||
        header.n_bytes > (uint64_t)stat.st_size)
        return false;
    uint8_t *journal = malloc(header.n_bytes + 1);
    bool ok = journal &&
              pread(fd, journal, header.n_bytes, (off_t)(start + sizeof(header))) == (ssize_t)header.n_bytes &&
              make_changes(fd, journal, header.n_bytes) && pwrite(fd, SIGNATURE, 8, 0) == 8;
    free(journal);
    return ok;
}

bool recording_repair(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool ok = fd >= 0 && repair_descriptor(fd);

    if (fd >= 0)
        close(fd);
    return ok;
}

void recording_close_left(void)
{
    hid_t files[8];

    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    ssize_t n = H5Fget_obj_ids(H5F_OBJ_ALL, H5F_OBJ_FILE, ARRAY_LEN(files), files);
    for (ssize_t i = 0; i < n; i++)
        H5Fclose(files[i]);
}

#ifdef CBF_SANITIZE
/* HDF5 keeps the texts of a thread's last errors after the thread has ended. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:H5MM_xstrdup\n";
}
#endif
