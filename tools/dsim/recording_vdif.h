/* recording_vdif.h - declarations that the two files for VDIF recordings share: the frames, and the time axis.
 *
 * Flow:      dsim/recording_vdif.c opens the file and finds the axis; dsim/recording_vdif_read.c reads the samples
 * Frames:    all frames of a file have the same length, so file frame k is at byte k * frame_bytes.  A frame's header
 *            contains the frame's time: its second, and its number in this second.  A frame's index is its time
 *            relative to the file's first frame, so all threads have the same axis.  A frame may be out of order by
 *            up to DISORDER frames of its thread.  Frames may be missing.
 * Threads:   as in dsim/recording.h. */
#ifndef TOOLS_DSIM_RECORDING_VDIF_H
#define TOOLS_DSIM_RECORDING_VDIF_H

#include "tools/dsim/recording.h"
#include "tools/shared/vdif.h"

#include <stddef.h>
#include <stdint.h>

#define DISORDER 16 /* greatest displacement of a frame that is out of order, in frames of its thread */
/* A read begins with frames from the end of the previous read.  N_LOOKBACK is the number of the thread's frames that
 * both reads read. */
#define N_LOOKBACK (4 * DISORDER + 2)

struct dsim_recording_vdif {
    struct dsim_recording base;

    /* These members are set when the file is opened; [const] afterwards. */
    struct vdif_header first; /* header of the thread's first frame; all frames of the thread must match it */
    size_t frame_bytes;
    int64_t n_file_frames; /* number of all threads' frames in the file */
    uint32_t frame_samples;
    uint32_t channel;
    int64_t frames_per_second;
    int64_t origin_seconds, origin_frame; /* time of the file's first frame, which has index 0 */
    int64_t n_frames;                     /* number of frames on the time axis, missing frames included */
    int64_t start_samples;

    /* State of the reader.  The buffers are allocated when the file is opened. */
    int64_t next_sample;      /* sample after the end of the previous read; if the next read begins at another sample,
                               * the reader seeks first */
    int64_t seek_frame;       /* index of the first wanted frame after the last seek */
    int64_t next_file_frame;  /* file frame at which the next read begins */
    int64_t n_seen;           /* first file frame that was not yet examined; errors of earlier frames are not
                               * counted again */
    int64_t ring[N_LOOKBACK]; /* file frames of the wanted VDIF thread: the N_LOOKBACK most recently read frames */
    size_t n_ring;
    uint8_t *is_present; /* [frames of one read] true: this read has found the frame */
    uint8_t *payload;
};

/* Reads the header of file frame k.  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_recording_vdif_header(const struct dsim_recording_vdif *vdif, int64_t k, struct vdif_header *header, char *why,
                               size_t why_bytes);

/* Returns the frame's index on the time axis.  The index may be negative. */
int64_t dsim_recording_vdif_index(const struct dsim_recording_vdif *vdif, const struct vdif_header *header);

/* Returns a text that says how the header contradicts the header of the thread's first frame.  Returns NULL if the
 * headers agree. */
const char *dsim_recording_vdif_contradiction(const struct dsim_recording_vdif *vdif, const struct vdif_header *header);

/* Writes the indices of up to 'n_max' frames of the recording's thread, smallest first.  With step 1, the
 * search begins at file frame k and goes forward.  With step -1, the search begins at file frame k and goes back.
 * Returns 0 or negative errno with one sentence in 'why'. */
int dsim_recording_vdif_indices(const struct dsim_recording_vdif *vdif, int64_t k, int step, size_t n_max,
                                int64_t *indices, size_t *n, char *why, size_t why_bytes);

/* Implements 'read' of struct dsim_recording_ops. */
int dsim_recording_vdif_read(struct dsim_recording *base, int64_t first, size_t n_samples, double *values, char *why,
                             size_t why_bytes);

#endif
