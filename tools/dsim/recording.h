/* recording.h - a recording in a file, as real numbers: one column of a raw file, or one channel of a VDIF thread.
 *
 * Flow:      file --pread--> dsim_recording_read() --> dsim_play (scale, quantise, pack)
 * Values:    integers and floats as in the file; VDIF as decoded by vdif_decode(); complex integers as converted by
 *            dsim/recording_complex.c, two samples for each.  Samples that a recording lacks are 0 and counted, so
 *            that all later samples keep their time.
 * Files:     are read, never mapped: if a file is truncated while it plays, an error is returned instead of a signal
 *            (SIGBUS).  A file may be larger than memory.  At the start only the beginning and the end of a VDIF
 *            file are read.
 * Threads:   one thread at a time for each recording.   Blocking: reads wait for the disk.  Nothing allocates after
 *            open. */
#ifndef TOOLS_DSIM_RECORDING_H
#define TOOLS_DSIM_RECORDING_H

#include "common/base/counter.h"
#include "common/base/log.h"
#include "common/time/timebase.h"

#include <stddef.h>
#include <stdint.h>

/* The order is the order of the choices of 'kind'. */
enum dsim_recording_kind {
    DSIM_RECORDING_INT8,
    DSIM_RECORDING_INT16,
    DSIM_RECORDING_INT16BE,
    DSIM_RECORDING_FLOAT32,
    DSIM_RECORDING_VDIF,
    DSIM_RECORDING_CI16,
};

/* An item of dsim's 'recordings'. */
struct dsim_recording_config {
    int kind; /* enum dsim_recording_kind */
    char *path;
    double scale;          /* scale applied by dsim_play; samples are read unscaled */
    int64_t start_samples; /* samples left out at the beginning of the file, >= 0 */
    /* Raw files: 'header_bytes', then rows of 'n_columns' samples. */
    int64_t header_bytes;
    int64_t n_columns, column;
    /* VDIF. */
    int64_t thread, channel;
    struct decimal sample_rate_hz; /* rate of the recording, for the frames per second; YAML: 0 is the rate of play */
};

/* Counts of errors in all recordings that share these counters. */
struct dsim_recording_counters {
    struct counter n_missing_samples; /* samples whose frame is not in the file */
    struct counter n_invalid_samples; /* samples that are NaN or whose frame is marked invalid */
    struct counter n_bad_frames;      /* frames whose header contradicts the rest of the file */
    struct counter n_late_frames;     /* frames too far out of order */
    struct counter n_double_frames;   /* frames whose place was taken */
    struct log_limit limit;
};

struct dsim_recording;

/* Opens a recording.  A read will ask for at most 'max_samples'.  config's path and 'counters' must outlive the
 * recording.  Returns 0, or negative errno with one sentence in 'why' that names the file, and the byte if there is
 * one. */
int dsim_recording_open(const struct dsim_recording_config *config, size_t max_samples,
                        struct dsim_recording_counters *counters, struct dsim_recording **recording, char *why,
                        size_t why_bytes);

/* Return the number of samples after the start, > 0, and the number of bytes at the end of the file that make no
 * whole sample or frame. */
int64_t dsim_recording_n_samples(const struct dsim_recording *recording);
int64_t dsim_recording_n_rest_bytes(const struct dsim_recording *recording);

/* Reads the samples from 'first' on, which must exist, to values[0..n_samples); never a NaN.  A read from the end of
 * the last read is fast.  Returns 0, or negative errno with one sentence in 'why', if the file has become shorter or
 * the disk fails. */
int dsim_recording_read(struct dsim_recording *recording, int64_t first, size_t n_samples, double *values, char *why,
                        size_t why_bytes);

/* Accepts NULL. */
void dsim_recording_close(struct dsim_recording *recording);

/* ---- For dsim_recording_*.c only --------------------------------------------------------------------------------- */

struct dsim_recording_ops {
    int (*read)(struct dsim_recording *recording, int64_t first, size_t n_samples, double *values, char *why,
                size_t why_bytes);
    void (*close)(struct dsim_recording *recording);
};

/* Members of all kinds.  'path' and 'file_bytes' are set before the open function of the kind is called. */
struct dsim_recording {
    const struct dsim_recording_ops *ops;
    struct dsim_recording_counters *counters;
    const char *path;
    int fd;
    int64_t file_bytes; /* size at opening */
    int64_t n_samples;
    int64_t n_rest_bytes;
};

/* Reads all of [offset, offset + n_bytes).  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_recording_pread(const struct dsim_recording *recording, int64_t offset, void *bytes, size_t n_bytes, char *why,
                         size_t why_bytes);

/* Allocate *recording, copy 'base' to it and fill it in. */
int dsim_recording_raw_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                            struct dsim_recording **recording, char *why, size_t why_bytes);
int dsim_recording_complex_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                                struct dsim_recording **recording, char *why, size_t why_bytes);
int dsim_recording_vdif_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                             size_t max_samples, struct dsim_recording **recording, char *why, size_t why_bytes);

#endif
