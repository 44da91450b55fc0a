/* uvh5_internal.h - declarations that visrec/uvh5*.c share.
 *
 * Flow:      visrec/uvh5.c makes the file; visrec/uvh5_header.c writes the constants; visrec/uvh5_rows.c writes the
 *            growing datasets; visrec/uvh5_driver.c passes HDF5's writes to the disk.
 * Errors:    functions return false if a call of HDF5 fails or if memory runs out.  visrec/uvh5.c stores the errno of
 *            failed calls.
 * Threads:   as in visrec/uvh5.h. */
#ifndef TOOLS_VISREC_UVH5_INTERNAL_H
#define TOOLS_VISREC_UVH5_INTERNAL_H

#include "tools/visrec/array.h"
#include "tools/visrec/dump.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- visrec/uvh5_header.c: constants of the whole recording ------------------------------------------------------ */

/* Writes the constants into the group 'header'.  Also writes the counts of times and rows, which are 0 at first. */
bool visrec_uvh5_write_header(hid_t header, const struct visrec_array *array, const char *history);

/* Creates an HDF5 type for booleans. */
hid_t visrec_uvh5_bool_type(void);

/* ---- visrec/uvh5_rows.c: the growing datasets -------------------------------------------------------------------- */

#define VISREC_UVH5_N_COLUMNS 10
#define VISREC_UVH5_N_CUBES   3

/* A header array with one entry per row. */
struct visrec_uvh5_column {
    const char *name;
    bool is_int;
    hsize_t width; /* values per row */
    union {
        int64_t *ints;
        double *doubles;
    } dump; /* [n_baselines][width] rows of one dump */
    hid_t dataset;
};

struct visrec_uvh5_rows {
    const struct visrec_array *array;
    hid_t vis_type, bool_type;
    struct visrec_uvh5_column columns[VISREC_UVH5_N_COLUMNS];
    hid_t cubes[VISREC_UVH5_N_CUBES]; /* [row][chan][pol] */
};

/* Creates the datasets, without rows, in the groups 'header' and 'data'.  '*rows' must be zeroed.  Call
 * visrec_uvh5_rows_fini() at the end, also after a failure. */
bool visrec_uvh5_rows_init(struct visrec_uvh5_rows *rows, const struct visrec_array *array, hid_t header, hid_t data);

/* Returns the number of bytes that the values of a dump add to the file. */
size_t visrec_uvh5_rows_bytes(const struct visrec_uvh5_rows *rows, const struct visrec_dump *dump);

/* Writes the rows of a dump after the rows of the first 'n_dumps' dumps. */
bool visrec_uvh5_rows_append(struct visrec_uvh5_rows *rows, hsize_t n_dumps, const struct visrec_dump *dump,
                             int64_t unix_ns);

/* Frees the memory of 'rows', which may be zero.  The datasets close with the file. */
void visrec_uvh5_rows_fini(struct visrec_uvh5_rows *rows);

/* ---- visrec/uvh5_driver.c: the file below HDF5 ------------------------------------------------------------------- */

/* Makes HDF5 write files through a driver of this program.  With this driver a kill leaves the file as a flush has left
 * it.  If the kill interrupted a flush, the file does not open until scripts/repair_uvh5.py has completed the flush.
 * Files that are opened with 'access' (H5P_FILE_ACCESS) use the driver. */
bool visrec_uvh5_use_driver(hid_t access);

#endif
