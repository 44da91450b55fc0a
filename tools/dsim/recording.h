/* recording.h - a recording in a file, as real numbers: one column of a raw file, or one channel of a VDIF thread.
 *
 * Flow:      file --pread--> dsim_recording_read() --> dsim_play (scale, quantise, pack)
 * Values:    integers and floats as in the file; VDIF samples as decoded by vdif_decode().  dsim/recording_complex.c
 *            converts each complex integer to two samples.  Samples that a recording lacks are read as 0, so that all
 *            later samples keep their time.  These samples are counted.
 * Files:     files are read, never mapped.  If a file is truncated while it plays, the read then returns an error,
 *            whereas a mapped file would cause a SIGBUS.  A file may be larger than memory.  At the start only the
 *            beginning and the end of a VDIF file are read.
 * Threads:   one thread at a time for each recording.   Blocking: reads wait for the disk.  Nothing allocates after
 *            open. */
#ifndef TOOLS_DSIM_RECORDING_H
#define TOOLS_DSIM_RECORDING_H

#include "common/base/counter.h"
#include "common/base/log.h"
#include "common/time/timebase.h"

#include <stddef.h>
#include <stdint.h>

/* The kinds of recordings, in the order of the choices of the key 'kind'. */
enum dsim_recording_kind {
    DSIM_RECORDING_INT8,
    DSIM_RECORDING_INT16,
    DSIM_RECORDING_INT16BE,
    DSIM_RECORDING_FLOAT32,
    DSIM_RECORDING_VDIF,
    DSIM_RECORDING_CI16,
};

/* An item of the list 'recordings' in dsim's configuration. */
struct dsim_recording_config {
    int kind; /* enum dsim_recording_kind */
    char *path;
    double scale;          /* factor by which dsim_play multiplies the samples; dsim_recording_read() does not apply
                            * it */
    int64_t start_samples; /* number of samples to skip at the beginning of the file, >= 0 */
    /* Raw files: 'header_bytes', then rows of 'n_columns' samples. */
    int64_t header_bytes;
    int64_t n_columns, column;
    /* VDIF. */
    int64_t thread, channel;
    /* sample rate of the recording, which gives the frames per second; 0 in YAML means adc_sample_rate */
    struct decimal sample_rate_hz;
};

/* Counts of errors in all recordings that share these counters. */
struct dsim_recording_counters {
    struct counter n_missing_samples; /* samples whose frame is not in the file */
    struct counter n_invalid_samples; /* samples that are NaN or whose frame is marked invalid */
    struct counter n_bad_frames;      /* frames whose header contradicts the other frames */
    struct counter n_late_frames;     /* frames that are too far out of order to be played */
    struct counter n_double_frames;   /* frames with the same time as an earlier frame */
    struct log_limit limit;
};

struct dsim_recording;

/* Opens a recording.  A read may request at most 'max_samples'.  config's path and 'counters' must outlive the
 * recording.  Returns 0, or negative errno with one sentence in 'why' that names the file.  If the error is at a byte
 * of the file, the sentence also names this byte. */
int dsim_recording_open(const struct dsim_recording_config *config, size_t max_samples,
                        struct dsim_recording_counters *counters, struct dsim_recording **recording, char *why,
                        size_t why_bytes);

/* The first function returns the number of samples after the skipped samples ('start_samples'); this number is at
 * least 1.  The second function returns the number of bytes at the end of the file that do not fill a sample or
 * frame. */
int64_t dsim_recording_n_samples(const struct dsim_recording *recording);
int64_t dsim_recording_n_rest_bytes(const struct dsim_recording *recording);

/* Reads n_samples samples, beginning with sample 'first', into 'values'.  The samples must exist.  No value is a NaN.
 * A read that begins at the end of the previous read is fast.  If the file has become shorter or the disk fails,
 * returns negative errno with one sentence in 'why'.  Otherwise returns 0. */
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

/* Members that all kinds of recordings have.  'path' and 'file_bytes' are set before the open function of the kind is
 * called. */
struct dsim_recording {
    const struct dsim_recording_ops *ops;
    struct dsim_recording_counters *counters;
    const char *path;
    int fd;
    int64_t file_bytes; /* size at opening */
    int64_t n_samples;
    int64_t n_rest_bytes;
};

/* Reads all bytes of the file in [offset, offset + n_bytes).  Returns 0 or negative errno with one sentence in
 * 'why'. */
int dsim_recording_pread(const struct dsim_recording *recording, int64_t offset, void *bytes, size_t n_bytes, char *why,
                         size_t why_bytes);

/* Allocate *recording, copy 'base' to it and set its other members. */
int dsim_recording_raw_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                            struct dsim_recording **recording, char *why, size_t why_bytes);
int dsim_recording_complex_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                                struct dsim_recording **recording, char *why, size_t why_bytes);
int dsim_recording_vdif_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                             size_t max_samples, struct dsim_recording **recording, char *why, size_t why_bytes);

#endif
