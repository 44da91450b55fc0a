/* uvh5_rows.c - growing datasets: a row for every (time, baseline) pair, time-major.
 *
 * Columns are the header's arrays with one entry per row.  Cubes are the arrays visdata, flags and nsamples.  The
 * number of rows has no upper limit. */
#include "tools/visrec/uvh5_internal.h"

#include <stdlib.h>
#include <string.h>

/* Greatest size of an HDF5 chunk with several rows.  A chunk has at least one row.  If rows are small, several rows
 * share a chunk, because each chunk has an overhead.  With this limit, reading one baseline over time stays fast. */
#define CHUNK_BYTES (1 << 20)

/* Number of rows in each HDF5 chunk of a column of the header. */
#define COLUMN_CHUNK_ROWS 4096

enum column_index {
    ANT_1,
    ANT_2,
    TIME,
    SIDEREAL,
    INTEGRATION,
    UVW,
    APP_RA,
    APP_DEC,
    FRAME_PA,
    PHASE_CENTER,
    N_COLUMNS
};

static const struct visrec_uvh5_column column_kinds[VISREC_UVH5_N_COLUMNS] = {
    [ANT_1] = {"ant_1_array", true, 1},
    [ANT_2] = {"ant_2_array", true, 1},
    [TIME] = {"time_array", false, 1},
    [SIDEREAL] = {"lst_array", false, 1},
    [INTEGRATION] = {"integration_time", false, 1},
    [UVW] = {"uvw_array", false, 3},
    [APP_RA] = {"phase_center_app_ra", false, 1},
    [APP_DEC] = {"phase_center_app_dec", false, 1},
    [FRAME_PA] = {"phase_center_frame_pa", false, 1},
    [PHASE_CENTER] = {"phase_center_id_array", true, 1},
};

enum cube_index { VISDATA, FLAGS, NSAMPLES, N_CUBES };

_Static_assert(N_COLUMNS == VISREC_UVH5_N_COLUMNS && N_CUBES == VISREC_UVH5_N_CUBES,
               "struct visrec_uvh5_rows must have the same numbers of columns and cubes as the enums");

/* ---- Making ------------------------------------------------------------------------------------------------------ */

/* Filters that HDF5 applies to a dataset's chunks, as bits. */
enum { PLAIN = 0, CHECKED = 1, COMPRESSED = 2 };

/* Creates a growing dataset.  'fill' is the value of entries that were not written; NULL: zero. */
static hid_t create_growing(hid_t group, const char *name, hid_t type, int n_dims, const hsize_t *row_dims,
                            hsize_t chunk_rows, int filters, const void *fill)
{
    hsize_t dims[3] = {0}, max_dims[3] = {H5S_UNLIMITED}, chunk_dims[3] = {chunk_rows};
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space, dataset;

    for (int i = 1; i < n_dims; i++)
        dims[i] = max_dims[i] = chunk_dims[i] = row_dims[i];
    space = H5Screate_simple(n_dims, dims, max_dims);
    H5Pset_chunk(properties, n_dims, chunk_dims);
    if (filters & COMPRESSED)
        H5Pset_deflate(properties, 1);
    if (filters & CHECKED)
        H5Pset_fletcher32(properties);
    if (fill)
        H5Pset_fill_value(properties, type, fill);
    dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(properties);
    return dataset;
}

/* Creates the columns.  Columns have no checksum, because dumps share their chunks.  If a kill interrupts the write of
 * a chunk, the rows of earlier dumps stay valid, because the write contains the same rows again.  With a checksum, all
 * these rows would become unreadable. */
static bool create_columns(struct visrec_uvh5_rows *rows, hid_t header)
{
    const struct visrec_array *array = rows->array;

    memcpy(rows->columns, column_kinds, sizeof(column_kinds));
    for (size_t i = 0; i < VISREC_UVH5_N_COLUMNS; i++) {
        struct visrec_uvh5_column *column = &rows->columns[i];
        hsize_t row_dims[2] = {0, column->width};

        column->dump.doubles = calloc(array->n_baselines * column->width, sizeof(double));
        column->dataset = create_growing(header, column->name, column->is_int ? H5T_STD_I64LE : H5T_IEEE_F64LE,
                                         column->width > 1 ? 2 : 1, row_dims, COLUMN_CHUNK_ROWS, PLAIN, NULL);
        if (!column->dump.doubles || column->dataset < 0)
            return false;
    }
    for (size_t b = 0; b < array->n_baselines; b++) {
        struct visrec_baseline baseline = array->baselines[b];

        rows->columns[ANT_1].dump.ints[b] = baseline.ant_1;
        rows->columns[ANT_2].dump.ints[b] = baseline.ant_2;
        rows->columns[INTEGRATION].dump.doubles[b] = array->integration_s;
        rows->columns[APP_DEC].dump.doubles[b] = array->latitude_rad; /* declination of the zenith */
        visrec_array_uvw(array, baseline, &rows->columns[UVW].dump.doubles[3 * b]);
    }
    return true;
}

static hid_t create_vis_type(bool real)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct visrec_vis)), part = real ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT32;

    H5Tinsert(type, "r", offsetof(struct visrec_vis, r), part);
    H5Tinsert(type, "i", offsetof(struct visrec_vis, i), part);
    return type;
}

/* Returns the number of rows in a chunk.  Two dumps never share a chunk, so a written chunk is never changed.
 * If a compressed chunk grew, HDF5 would move it, and other data could overwrite its old position.  After a kill
 * before the flush, a reader would find these other data. */
static hsize_t chunk_rows(const struct visrec_array *array)
{
    size_t row_bytes = array->n_chan * N_POL_PRODUCTS * sizeof(struct visrec_vis);
    hsize_t n_rows = array->n_baselines;

    while (n_rows > 1 && (array->n_baselines % n_rows != 0 || n_rows * row_bytes > CHUNK_BYTES))
        n_rows--;
    return n_rows;
}

static bool create_cubes(struct visrec_uvh5_rows *rows, hid_t data)
{
    hsize_t row_dims[3] = {0, rows->array->n_chan, N_POL_PRODUCTS};
    hsize_t n_rows = chunk_rows(rows->array);
    const int8_t flagged = 1;

    rows->cubes[VISDATA] = create_growing(data, "visdata", rows->vis_type, 3, row_dims, n_rows, CHECKED, NULL);
    rows->cubes[FLAGS] =
        create_growing(data, "flags", rows->bool_type, 3, row_dims, n_rows, CHECKED | COMPRESSED, &flagged);
    rows->cubes[NSAMPLES] =
        create_growing(data, "nsamples", H5T_IEEE_F32LE, 3, row_dims, n_rows, CHECKED | COMPRESSED, NULL);
    return rows->cubes[VISDATA] >= 0 && rows->cubes[FLAGS] >= 0 && rows->cubes[NSAMPLES] >= 0;
}

bool visrec_uvh5_rows_init(struct visrec_uvh5_rows *rows, const struct visrec_array *array, hid_t header, hid_t data)
{
    rows->array = array;
    rows->vis_type = create_vis_type(array->real);
    rows->bool_type = visrec_uvh5_bool_type();
    return create_columns(rows, header) && create_cubes(rows, data);
}

void visrec_uvh5_rows_fini(struct visrec_uvh5_rows *rows)
{
    for (size_t i = 0; i < VISREC_UVH5_N_COLUMNS; i++)
        free(rows->columns[i].dump.doubles);
    if (rows->vis_type > 0)
        H5Tclose(rows->vis_type);
    if (rows->bool_type > 0)
        H5Tclose(rows->bool_type);
}

/* ---- Appending --------------------------------------------------------------------------------------------------- */

/* Appends 'n_rows' rows to a dataset with 'first_row' rows. */
static bool append_rows(hid_t dataset, hid_t type, int n_dims, const hsize_t *row_dims, hsize_t first_row,
                        hsize_t n_rows, const void *values)
{
    hsize_t start[3] = {first_row}, count[3] = {n_rows}, dims[3] = {first_row + n_rows};
    hid_t memory_space, file_space;

    for (int i = 1; i < n_dims; i++)
        dims[i] = count[i] = row_dims[i];
    if (H5Dset_extent(dataset, dims) < 0)
        return false;
    memory_space = H5Screate_simple(n_dims, count, NULL);
    file_space = H5Dget_space(dataset);
    bool ok = H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
              H5Dwrite(dataset, type, memory_space, file_space, H5P_DEFAULT, values) >= 0;
    H5Sclose(file_space);
    H5Sclose(memory_space);
    return ok;
}

static bool append_columns(const struct visrec_uvh5_rows *rows, hsize_t first_row)
{
    for (size_t i = 0; i < VISREC_UVH5_N_COLUMNS; i++) {
        const struct visrec_uvh5_column *column = &rows->columns[i];
        hsize_t row_dims[2] = {0, column->width};

        if (!append_rows(column->dataset, column->is_int ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE,
                         column->width > 1 ? 2 : 1, row_dims, first_row, rows->array->n_baselines,
                         column->dump.doubles))
            return false;
    }
    return true;
}

size_t visrec_uvh5_rows_bytes(const struct visrec_uvh5_rows *rows, const struct visrec_dump *dump)
{
    size_t value_bytes = sizeof(*dump->vis) + sizeof(*dump->flags) + sizeof(*dump->nsamples);
    size_t bytes = visrec_dump_n_values(&dump->shape) * value_bytes;

    for (size_t i = 0; i < VISREC_UVH5_N_COLUMNS; i++)
        bytes += rows->array->n_baselines * rows->columns[i].width * sizeof(double);
    return bytes;
}

bool visrec_uvh5_rows_append(struct visrec_uvh5_rows *rows, hsize_t n_dumps, const struct visrec_dump *dump,
                             int64_t unix_ns)
{
    const struct visrec_array *array = rows->array;
    double date = visrec_julian_date(unix_ns);
    double sidereal_rad = visrec_sidereal_time_rad(unix_ns, array->longitude_rad, array->ut1_utc_s);
    hsize_t n_rows = array->n_baselines;
    hsize_t first_row = n_dumps * n_rows;
    hsize_t row_dims[3] = {0, array->n_chan, N_POL_PRODUCTS};

    for (size_t b = 0; b < array->n_baselines; b++) {
        rows->columns[TIME].dump.doubles[b] = date;
        rows->columns[SIDEREAL].dump.doubles[b] = sidereal_rad;
        rows->columns[APP_RA].dump.doubles[b] = sidereal_rad; /* right ascension of the zenith */
    }
    return append_rows(rows->cubes[VISDATA], rows->vis_type, 3, row_dims, first_row, n_rows, dump->vis) &&
           append_rows(rows->cubes[FLAGS], rows->bool_type, 3, row_dims, first_row, n_rows, dump->flags) &&
           append_rows(rows->cubes[NSAMPLES], H5T_NATIVE_FLOAT, 3, row_dims, first_row, n_rows, dump->nsamples) &&
           append_columns(rows, first_row);
}
