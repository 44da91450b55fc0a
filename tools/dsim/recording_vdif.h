/* recording_vdif.h - shared by the two files of VDIF recordings: the frames, and the time axis.
 *
 * Flow:      dsim/recording_vdif.c opens the file and finds the axis; dsim/recording_vdif_read.c reads the samples
 * Frames:    all frames of a file have the same length, so file frame k is at byte k * frame_bytes.  A frame's
 *            header has its time: (seconds, number in the second).  A frame's index is its time relative to the
 *            file's first frame, so all threads have the same axis.  A frame may be displaced by DISORDER frames of
 *            its thread.  Frames may be missing.
 * Threads:   as in dsim/recording.h. */
#ifndef TOOLS_DSIM_RECORDING_VDIF_H
#define TOOLS_DSIM_RECORDING_VDIF_H

#include "tools/dsim/recording.h"
#include "tools/shared/vdif.h"

#include <stddef.h>
#include <stdint.h>

#define DISORDER   16                 /* most frames of its thread by which a frame may be displaced */
#define N_LOOKBACK (4 * DISORDER + 2) /* frames of the thread between the end of a read and the begin of the next */

struct dsim_recording_vdif {
    struct dsim_recording base;

    /* Set at opening; [const] afterwards. */
    struct vdif_header first; /* header of the thread's first frame; all others must match it */
    size_t frame_bytes;
    int64_t n_file_frames; /* frames of all threads */
    uint32_t frame_samples;
    uint32_t channel;
    int64_t frames_per_second;
    int64_t origin_seconds, origin_frame; /* time of the file's first frame, which has index 0 */
    int64_t n_frames;                     /* 0 <= index < n_frames */
    int64_t start_samples;

    /* State of reading; opening allocates the buffers. */
    int64_t next_sample;      /* end of the last read; a read that begins elsewhere seeks */
    int64_t seek_frame;       /* first wanted frame after seeking */
    int64_t next_file_frame;  /* file frame at which the next read begins */
    int64_t n_seen;           /* file frames before this one have been checked and counted */
    int64_t ring[N_LOOKBACK]; /* file frames of the thread read last */
    size_t n_ring;
    uint8_t *is_present; /* [frames of the read] the frame has been read */
    uint8_t *payload;
};

/* Reads the header of file frame k.  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_recording_vdif_header(const struct dsim_recording_vdif *vdif, int64_t k, struct vdif_header *header, char *why,
                               size_t why_bytes);

/* Returns the frame's index on the time axis, which may be negative. */
int64_t dsim_recording_vdif_index(const struct dsim_recording_vdif *vdif, const struct vdif_header *header);

/* Returns the header's contradiction to the thread's first frame, or NULL. */
const char *dsim_recording_vdif_contradiction(const struct dsim_recording_vdif *vdif, const struct vdif_header *header);

/* Writes the indices of up to 'n_max' frames of the recording's thread, smallest first.  With step 1 they are the
 * first frames from file frame k on; with step -1, the last frames up to file frame k.  Returns 0 or negative errno
 * with one sentence in 'why'. */
int dsim_recording_vdif_indices(const struct dsim_recording_vdif *vdif, int64_t k, int step, size_t n_max,
                                int64_t *indices, size_t *n, char *why, size_t why_bytes);

/* The 'read' of the recording's operations. */
int dsim_recording_vdif_read(struct dsim_recording *base, int64_t first, size_t n_samples, double *values, char *why,
                             size_t why_bytes);

#endif
