/* visrec_uvh5.c - the end of the flow: dumps become rows of HDF5 datasets that only ever grow.
 *
 * Rows are (time, baseline) pairs, time-major.  Data sets have one row per pair and no upper limit; the counts in the
 * header are rewritten after each dump and then all is flushed, so a reader finds whole dumps only.  Before that the
 * room for the dump is reserved: HDF5 does not survive a disk that is full halfway through, and nor does the file. */
#include "tools/visrec_uvh5.h"

#include "common/units.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* An HDF5 chunk is at least one row; rows are taken together up to this size, so that small arrays do not pay a chunk's
 * overhead for every kilobyte, while reading one baseline over time stays cheap. */
#define CHUNK_BYTES (1 << 20)

/* Rows in a chunk of the per-row columns of the header. */
#define COLUMN_CHUNK_ROWS 4096

/* What HDF5 takes for its caches of chunks and its tables, and more. */
#define HDF5_BYTES (32 << 20)

/* What a dump may add to the file beside its values and rows of columns: chunks begun, HDF5's own tables. */
#define RESERVE_BYTES (4 << 20)

/* AIPS's numbers of xx, yy, xy, yx: the order of the last axis. */
static const int64_t pol_numbers[N_POL_PRODUCTS] = {-5, -6, -7, -8};

/* A header array with one entry per row. */
struct column {
    const char *name;
    bool is_int;
    hsize_t width; /* values per row */
    union {
        int64_t *ints;
        double *doubles;
    } dump; /* [n_baselines][width], the rows of one dump */
    hid_t dataset;
};

enum column_index { ANT_1, ANT_2, TIME, INTEGRATION, UVW, APP_RA, APP_DEC, FRAME_PA, PHASE_CENTER, N_COLUMNS };

static const struct column column_kinds[N_COLUMNS] = {
    [ANT_1] = {"ant_1_array", true, 1},
    [ANT_2] = {"ant_2_array", true, 1},
    [TIME] = {"time_array", false, 1},
    [INTEGRATION] = {"integration_time", false, 1},
    [UVW] = {"uvw_array", false, 3},
    [APP_RA] = {"phase_center_app_ra", false, 1},
    [APP_DEC] = {"phase_center_app_dec", false, 1},
    [FRAME_PA] = {"phase_center_frame_pa", false, 1},
    [PHASE_CENTER] = {"phase_center_id_array", true, 1},
};

enum cube_index { VISDATA, FLAGS, NSAMPLES, N_CUBES };

struct visrec_uvh5 {
    const struct visrec_array *array;
    char *path;     /* of the file as it is now */
    char *replaces; /* the path of an older file, whose place this one takes with the first dump; else NULL */
    hid_t file;
    int fd; /* of the same file, to reserve room in it */
    hid_t vis_type, bool_type;
    hid_t n_times, n_blts;
    struct column columns[N_COLUMNS];
    hid_t cubes[N_CUBES]; /* [row][chan][pol] */
    hsize_t n_dumps;
    int os_errno; /* of the first call of HDF5 that failed; 0 while none has */
    bool failed;  /* a write went wrong: nothing more is tried, least of all at close */
};

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

/* HDF5 tells the operating system's reason only in the text of its innermost error. */
static herr_t find_errno(unsigned depth, const H5E_error2_t *error, void *found)
{
    const char *text = error->desc ? strstr(error->desc, "errno = ") : NULL;

    if (text && *(int *)found == 0)
        *(int *)found = (int)strtol(text + strlen("errno = "), NULL, 10);
    return 0;
}

/* Called by HDF5 for each call that fails, while it still knows why: the next call makes it forget. */
static herr_t note_errno(hid_t stack, void *file)
{
    return H5Ewalk2(stack, H5E_WALK_UPWARD, find_errno, &((struct visrec_uvh5 *)file)->os_errno);
}

/* Of the calling thread only, as HDF5 keeps a stack of errors for each. */
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

/* Allocates room in the file.  Where the file system cannot, free space has to do: the write may still find none.
 * Returns 0 or the errno. */
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

/* ---- The header's constants ------------------------------------------------------------------------------------- */

/* Each of these makes one dataset and returns true if that worked. */

static bool write_dataset(hid_t group, const char *name, hid_t file_type, hid_t memory_type, int n_dims,
                          const hsize_t *dims, const void *values)
{
    hid_t space = n_dims == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(n_dims, dims, NULL);
    hid_t dataset = H5Dcreate2(group, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = dataset >= 0 && H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;

    H5Dclose(dataset);
    H5Sclose(space);
    return ok;
}

static bool write_ints(hid_t group, const char *name, int n_dims, hsize_t n, const int64_t *values)
{
    return write_dataset(group, name, H5T_STD_I64LE, H5T_NATIVE_INT64, n_dims, &n, values);
}

static bool write_int(hid_t group, const char *name, int64_t value)
{
    return write_ints(group, name, 0, 1, &value);
}

static bool write_doubles(hid_t group, const char *name, int n_dims, const hsize_t *dims, const double *values)
{
    return write_dataset(group, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, n_dims, dims, values);
}

static bool write_double(hid_t group, const char *name, double value)
{
    return write_doubles(group, name, 0, NULL, &value);
}

/* 'n' strings of 'bytes' each, padded with zeros. */
static bool write_strings(hid_t group, const char *name, int n_dims, hsize_t n, size_t bytes, const char *strings)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    bool ok = H5Tset_size(type, bytes) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
              write_dataset(group, name, type, type, n_dims, &n, strings);

    H5Tclose(type);
    return ok;
}

static bool write_string(hid_t group, const char *name, const char *text)
{
    size_t bytes = strlen(text);

    return write_strings(group, name, 0, 1, bytes > 0 ? bytes : 1, text);
}

static bool write_bool(const struct visrec_uvh5 *file, hid_t group, const char *name, bool value)
{
    int8_t byte = value;

    return write_dataset(group, name, file->bool_type, file->bool_type, 0, NULL, &byte);
}

static bool write_antennas(const struct visrec_array *array, hid_t header)
{
    hsize_t dims[2] = {array->n_ants, 3};
    size_t name_bytes = 1;
    char *names;
    int64_t *numbers = calloc(array->n_ants, sizeof(*numbers));
    double *positions_m = calloc(array->n_ants * 3, sizeof(*positions_m));
    bool ok = false;

    for (size_t i = 0; i < array->n_ants; i++) {
        size_t bytes = strlen(array->ants[i].name);
        name_bytes = bytes > name_bytes ? bytes : name_bytes;
    }
    names = calloc(array->n_ants, name_bytes);
    if (names && numbers && positions_m) {
        for (size_t i = 0; i < array->n_ants; i++) {
            memcpy(names + i * name_bytes, array->ants[i].name, strlen(array->ants[i].name));
            numbers[i] = (int64_t)i;
            memcpy(positions_m + 3 * i, array->ants[i].ecef_m, sizeof(array->ants[i].ecef_m));
        }
        ok = write_strings(header, "antenna_names", 1, array->n_ants, name_bytes, names) &&
             write_ints(header, "antenna_numbers", 1, array->n_ants, numbers) &&
             write_doubles(header, "antenna_positions", 2, dims, positions_m);
    }
    free(positions_m);
    free(numbers);
    free(names);
    return ok;
}

static bool write_frequencies(const struct visrec_array *array, hid_t header)
{
    hsize_t n_chan = array->n_chan;
    double *freqs_hz = calloc(n_chan, sizeof(*freqs_hz));
    double *widths_hz = calloc(n_chan, sizeof(*widths_hz));
    int64_t *spws = calloc(n_chan, sizeof(*spws));
    bool ok = false;

    if (freqs_hz && widths_hz && spws) {
        for (size_t i = 0; i < n_chan; i++) {
            freqs_hz[i] = array->first_freq_hz + (double)i * array->chan_width_hz;
            widths_hz[i] = array->chan_width_hz;
        }
        ok = write_doubles(header, "freq_array", 1, &n_chan, freqs_hz) &&
             write_doubles(header, "channel_width", 1, &n_chan, widths_hz) &&
             write_ints(header, "spw_array", 1, 1, spws) && write_ints(header, "flex_spw_id_array", 1, n_chan, spws);
    }
    free(spws);
    free(widths_hz);
    free(freqs_hz);
    return ok;
}

/* One phase centre that is none: baselines along east, north, up, and no phases turned. */
static bool write_phase_centers(hid_t header)
{
    hid_t catalog = H5Gcreate2(header, "phase_center_catalog", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t entry = H5Gcreate2(catalog, "0", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = write_string(entry, "cat_name", "unprojected") && write_string(entry, "cat_type", "unprojected") &&
              write_double(entry, "cat_lon", 0) && write_double(entry, "cat_lat", M_PI / 2) &&
              write_string(entry, "cat_frame", "altaz") && write_string(entry, "info_source", "visrec");

    H5Gclose(entry);
    H5Gclose(catalog);
    return ok;
}

static bool write_header(const struct visrec_uvh5 *file, hid_t header, const char *history)
{
    const struct visrec_array *array = file->array;

    return write_string(header, "version", "1.2") && write_string(header, "history", history) &&
           write_string(header, "telescope_name", array->telescope) &&
           write_string(header, "instrument", array->telescope) && write_string(header, "vis_units", "uncalib") &&
           write_double(header, "latitude", array->latitude_rad * 180 / M_PI) &&
           write_double(header, "longitude", array->longitude_rad * 180 / M_PI) &&
           write_double(header, "altitude", array->altitude_m) &&
           write_int(header, "Nants_data", (int64_t)array->n_ants) &&
           write_int(header, "Nants_telescope", (int64_t)array->n_ants) &&
           write_int(header, "Nbls", (int64_t)array->n_baselines) &&
           write_int(header, "Nfreqs", (int64_t)array->n_chan) && write_int(header, "Npols", N_POL_PRODUCTS) &&
           write_int(header, "Nphase", 1) && write_int(header, "Nspws", 1) && write_int(header, "Ntimes", 0) &&
           write_int(header, "Nblts", 0) && write_ints(header, "polarization_array", 1, N_POL_PRODUCTS, pol_numbers) &&
           write_bool(file, header, "blts_are_rectangular", true) &&
           write_bool(file, header, "time_axis_faster_than_bls", false) &&
           write_string(header, "blt_order", "time, baseline") && write_antennas(array, header) &&
           write_frequencies(array, header) && write_phase_centers(header);
}

/* ---- What grows ------------------------------------------------------------------------------------------------- */

/* 'fill' is what a reader finds where nothing was written, or NULL for zero. */
static hid_t create_growing(hid_t group, const char *name, hid_t type, int n_dims, const hsize_t *row_dims,
                            hsize_t chunk_rows, bool compress, const void *fill)
{
    hsize_t dims[3] = {0}, max_dims[3] = {H5S_UNLIMITED}, chunk_dims[3] = {chunk_rows};
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space, dataset;

    for (int i = 1; i < n_dims; i++)
        dims[i] = max_dims[i] = chunk_dims[i] = row_dims[i];
    space = H5Screate_simple(n_dims, dims, max_dims);
    H5Pset_chunk(properties, n_dims, chunk_dims);
    if (compress)
        H5Pset_deflate(properties, 1);
    if (fill)
        H5Pset_fill_value(properties, type, fill);
    dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(properties);
    return dataset;
}

/* Writes 'n_rows' rows behind the first 'first_row'. */
static bool append_rows(hid_t dataset, hid_t type, int n_dims, const hsize_t *row_dims, hsize_t first_row,
                        hsize_t n_rows, const void *values)
{
    hsize_t start[3] = {first_row}, count[3] = {n_rows}, dims[3] = {first_row + n_rows};
    hid_t memory_space, file_space;
    bool ok;

    for (int i = 1; i < n_dims; i++)
        dims[i] = count[i] = row_dims[i];
    if (H5Dset_extent(dataset, dims) < 0)
        return false;
    memory_space = H5Screate_simple(n_dims, count, NULL);
    file_space = H5Dget_space(dataset);
    ok = H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
         H5Dwrite(dataset, type, memory_space, file_space, H5P_DEFAULT, values) >= 0;
    H5Sclose(file_space);
    H5Sclose(memory_space);
    return ok;
}

static bool create_columns(struct visrec_uvh5 *file, hid_t header)
{
    const struct visrec_array *array = file->array;

    for (size_t i = 0; i < N_COLUMNS; i++) {
        struct column *column = &file->columns[i];
        hsize_t row_dims[2] = {0, column->width};

        column->dump.doubles = calloc(array->n_baselines * column->width, sizeof(double));
        column->dataset = create_growing(header, column->name, column->is_int ? H5T_STD_I64LE : H5T_IEEE_F64LE,
                                         column->width > 1 ? 2 : 1, row_dims, COLUMN_CHUNK_ROWS, false, NULL);
        if (!column->dump.doubles || column->dataset < 0)
            return false;
    }
    for (size_t b = 0; b < array->n_baselines; b++) {
        struct visrec_baseline baseline = array->baselines[b];

        file->columns[ANT_1].dump.ints[b] = baseline.ant_1;
        file->columns[ANT_2].dump.ints[b] = baseline.ant_2;
        file->columns[INTEGRATION].dump.doubles[b] = array->integration_s;
        file->columns[APP_DEC].dump.doubles[b] = array->latitude_rad; /* the zenith's */
        visrec_array_uvw(array, baseline, &file->columns[UVW].dump.doubles[3 * b]);
    }
    return true;
}

static void create_types(struct visrec_uvh5 *file)
{
    int8_t value;

    file->vis_type = H5Tcreate(H5T_COMPOUND, sizeof(struct visrec_vis));
    H5Tinsert(file->vis_type, "r", offsetof(struct visrec_vis, r), H5T_NATIVE_INT32);
    H5Tinsert(file->vis_type, "i", offsetof(struct visrec_vis, i), H5T_NATIVE_INT32);
    /* As h5py writes numpy's bool. */
    file->bool_type = H5Tcreate(H5T_ENUM, sizeof(value));
    value = 0;
    H5Tenum_insert(file->bool_type, "FALSE", &value);
    value = 1;
    H5Tenum_insert(file->bool_type, "TRUE", &value);
}

/* Dumps share no chunk: one that is written is never touched again.  A compressed chunk that grows moves to another
 * place, and what then takes its old one would be found there if we were killed before the flush. */
static hsize_t chunk_rows(const struct visrec_array *array)
{
    size_t row_bytes = array->n_chan * N_POL_PRODUCTS * sizeof(struct visrec_vis);
    hsize_t rows = array->n_baselines;

    while (rows > 1 && (array->n_baselines % rows != 0 || rows * row_bytes > CHUNK_BYTES))
        rows--;
    return rows;
}

static bool create_cubes(struct visrec_uvh5 *file, hid_t data)
{
    hsize_t row_dims[3] = {0, file->array->n_chan, N_POL_PRODUCTS};
    hsize_t rows = chunk_rows(file->array);
    const int8_t flagged = 1;

    file->cubes[VISDATA] = create_growing(data, "visdata", file->vis_type, 3, row_dims, rows, false, NULL);
    file->cubes[FLAGS] = create_growing(data, "flags", file->bool_type, 3, row_dims, rows, true, &flagged);
    file->cubes[NSAMPLES] = create_growing(data, "nsamples", H5T_IEEE_F32LE, 3, row_dims, rows, true, NULL);
    return file->cubes[VISDATA] >= 0 && file->cubes[FLAGS] >= 0 && file->cubes[NSAMPLES] >= 0;
}

/* ---- The interface ---------------------------------------------------------------------------------------------- */

static void free_memory(struct visrec_uvh5 *file)
{
    for (size_t i = 0; i < N_COLUMNS; i++)
        free(file->columns[i].dump.doubles);
    free(file->path);
    free(file->replaces);
    free(file);
}

static hid_t open_file(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t file;

    /* Closing the file closes whatever of it is open; and no lock keeps others from looking at it meanwhile. */
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    H5Pset_file_locking(access, false, true);
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    return file;
}

/* HDF5 crashes where it gets no memory, so it is asked for before. */
static bool has_memory_for_hdf5(void)
{
    void *memory = mmap(NULL, HDF5_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory != MAP_FAILED && munmap(memory, HDF5_BYTES) == 0;
}

/* What was recorded before stays until there is something to put in its place. */
static int choose_paths(struct visrec_uvh5 *file, const char *path)
{
    struct stat old;

    if (stat(path, &old) == 0 && S_ISREG(old.st_mode)) {
        file->replaces = realpath(path, NULL);
        if (!file->replaces)
            return -errno;
    }
    if (asprintf(&file->path, file->replaces ? "%s.new" : "%s", file->replaces ? file->replaces : path) < 0) {
        file->path = NULL;
        return -ENOMEM;
    }
    return 0;
}

/* With the first dump. */
static bool replace_old(struct visrec_uvh5 *file)
{
    if (!file->replaces)
        return true;
    if (rename(file->path, file->replaces) != 0) {
        file->os_errno = errno;
        return false;
    }
    free(file->path);
    file->path = file->replaces;
    file->replaces = NULL;
    return true;
}

static bool fill_new_file(struct visrec_uvh5 *file, const char *history)
{
    hid_t header = H5Gcreate2(file->file, "Header", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t data = H5Gcreate2(file->file, "Data", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    create_types(file);
    if (!write_header(file, header, history) || !create_columns(file, header) || !create_cubes(file, data))
        return false;
    file->n_times = H5Dopen2(header, "Ntimes", H5P_DEFAULT);
    file->n_blts = H5Dopen2(header, "Nblts", H5P_DEFAULT);
    return file->n_times >= 0 && file->n_blts >= 0 && H5Fflush(file->file, H5F_SCOPE_GLOBAL) >= 0;
}

int visrec_uvh5_create(const char *path, bool overwrite, const struct visrec_array *array, const char *history,
                       struct visrec_uvh5 **out, char *why, size_t why_bytes)
{
    struct visrec_uvh5 *file;
    int err;

    if (!overwrite && access(path, F_OK) == 0) {
        snprintf(why, why_bytes, "output.file: \"%s\" exists already; move it away, or say output.overwrite: true",
                 path);
        return -EEXIST;
    }
    file = calloc(1, sizeof(*file));
    if (!file || !has_memory_for_hdf5()) {
        snprintf(why, why_bytes, "output.file: there are no %d MiB of memory for HDF5", HDF5_BYTES >> 20);
        free(file);
        return -ENOMEM;
    }
    file->array = array;
    err = choose_paths(file, path);
    if (err)
        goto undo_memory;
    memcpy(file->columns, column_kinds, sizeof(column_kinds));
    H5dont_atexit(); /* HDF5's own cleaning up crashes after a write that failed */
    watch_errors(file);
    file->file = open_file(file->path);
    if (file->file < 0) {
        err = failure(file, "create the file", why, why_bytes);
        goto undo_memory;
    }
    file->fd = open(file->path, O_RDWR | O_CLOEXEC);
    if (file->fd < 0) {
        file->os_errno = errno;
        err = failure(file, "open the file", why, why_bytes);
        goto undo_file;
    }
    file->os_errno = allocate(file->fd, 0, RESERVE_BYTES);
    if (file->os_errno || !fill_new_file(file, history)) {
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

/* Makes sure that the next dump will fit on the disk, while a failure has no consequences yet. */
static bool reserve(struct visrec_uvh5 *file, const struct visrec_dump *dump)
{
    size_t value_bytes = sizeof(*dump->vis) + sizeof(*dump->flags) + sizeof(*dump->nsamples);
    size_t bytes = visrec_dump_n_values(&dump->shape) * value_bytes + RESERVE_BYTES;
    hsize_t size;

    for (size_t i = 0; i < N_COLUMNS; i++)
        bytes += file->array->n_baselines * file->columns[i].width * sizeof(double);
    if (H5Fget_filesize(file->file, &size) < 0)
        return false;
    file->os_errno = allocate(file->fd, (off_t)size, (off_t)bytes);
    return file->os_errno == 0;
}

static bool append_columns(struct visrec_uvh5 *file, hsize_t first_row)
{
    for (size_t i = 0; i < N_COLUMNS; i++) {
        const struct column *column = &file->columns[i];
        hsize_t row_dims[2] = {0, column->width};

        if (!append_rows(column->dataset, column->is_int ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE,
                         column->width > 1 ? 2 : 1, row_dims, first_row, file->array->n_baselines,
                         column->dump.doubles))
            return false;
    }
    return true;
}

static bool append_rows_of_dump(struct visrec_uvh5 *file, const struct visrec_dump *dump)
{
    hsize_t n_rows = file->array->n_baselines;
    hsize_t first_row = file->n_dumps * n_rows;
    hsize_t row_dims[3] = {0, file->array->n_chan, N_POL_PRODUCTS};

    return append_rows(file->cubes[VISDATA], file->vis_type, 3, row_dims, first_row, n_rows, dump->vis) &&
           append_rows(file->cubes[FLAGS], file->bool_type, 3, row_dims, first_row, n_rows, dump->flags) &&
           append_rows(file->cubes[NSAMPLES], H5T_NATIVE_FLOAT, 3, row_dims, first_row, n_rows, dump->nsamples) &&
           append_columns(file, first_row) && H5Fflush(file->file, H5F_SCOPE_GLOBAL) >= 0;
}

/* The counts come last, when all that they count is in the file: what they say is true whenever we are killed. */
static bool append_all(struct visrec_uvh5 *file, const struct visrec_dump *dump)
{
    int64_t n_times = (int64_t)file->n_dumps + 1;
    int64_t n_blts = n_times * (int64_t)file->array->n_baselines;

    return append_rows_of_dump(file, dump) &&
           H5Dwrite(file->n_times, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &n_times) >= 0 &&
           H5Dwrite(file->n_blts, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &n_blts) >= 0 &&
           H5Fflush(file->file, H5F_SCOPE_GLOBAL) >= 0;
}

int visrec_uvh5_append(struct visrec_uvh5 *file, const struct visrec_dump *dump, int64_t unix_ns, char *why,
                       size_t why_bytes)
{
    double date = visrec_julian_date(unix_ns);
    double sidereal_rad = visrec_sidereal_time_rad(unix_ns, file->array->longitude_rad);

    assert(!file->failed);
    watch_errors(file);
    file->os_errno = 0;
    for (size_t b = 0; b < file->array->n_baselines; b++) {
        file->columns[TIME].dump.doubles[b] = date;
        file->columns[APP_RA].dump.doubles[b] = sidereal_rad;
    }
    if (!reserve(file, dump))
        return failure(file, "write a dump", why, why_bytes);
    if (!append_all(file, dump) || !replace_old(file)) {
        file->failed = true;
        failure(file, "write a dump", why, why_bytes);
        return -EIO;
    }
    file->n_dumps++;
    return 0;
}

/* Closes, and cuts off what was reserved but not used. */
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
    /* After a write that failed a close would only fail at the same place; what was flushed before is on the disk. */
    if (!file->failed) {
        watch_errors(file);
        file->os_errno = 0;
        if (!finish(file))
            err = failure(file, "finish the file", why, why_bytes);
        H5Tclose(file->vis_type);
        H5Tclose(file->bool_type);
    }
    close(file->fd);
    if (file->n_dumps == 0)
        unlink(file->path);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    free_memory(file);
    return err;
}
