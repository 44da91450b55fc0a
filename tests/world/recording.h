/* recording.h - reads the recorder's UVH5 files with HDF5, and repairs files that a kill left, as repair_uvh5.py does.
 *
 * Threads: a thread of the world, while no recorder runs. */
#ifndef TESTS_WORLD_RECORDING_H
#define TESTS_WORLD_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file's dumps. */
struct recording {
    size_t n_dumps, n_rows; /* a dump has n_rows / n_dumps baselines */
    double *times;          /* [row] Julian date */
    int64_t *ant_1, *ant_2; /* [row] */
    uint32_t (*vis)[2];     /* [row][chan][pol] real and imaginary part: int32, or the bits of a float32 */
    uint8_t *flags;         /* [row][chan][pol] */
    float *nsamples;        /* [row][chan][pol] */
};

/* Reads a file with 'n_baselines' rows to a dump, and 'n_values' visibilities to a row.  Returns false if the file
 * cannot be read, or if its arrays do not agree.  Call recording_free() after a success. */
bool recording_read(const char *path, size_t n_baselines, size_t n_values, struct recording *recording);
void recording_free(struct recording *recording);

/* Completes the flush that a kill interrupted.  Returns false if the file has no journal. */
bool recording_repair(const char *path);

/* Closes the files that a recorder left open in HDF5 after a failed write. */
void recording_close_left(void);

#endif
