/* recording_vdif.h - what the two files of a VDIF recording share: its frames, and the time axis.
 *
 * Flow:      dsim/recording_vdif.c opens it and finds the axis; dsim/recording_vdif_read.c reads
 * Frames:    all of a file have the same length, so file frame k is at byte k * frame_bytes.  Where its samples belong
 *            is in its header: (seconds, number in the second) relative to those of the file's first frame, which gives
 *            all threads the same axis; this is its index.  Frames may be out of order by DISORDER frames of their
 *            thread, and may be missing.
 * Threads:   as dsim/recording.h. */
#ifndef TOOLS_DSIM_RECORDING_VDIF_H
#define TOOLS_DSIM_RECORDING_VDIF_H

#include "tools/dsim/recording.h"
#include "tools/shared/vdif.h"

#include <stddef.h>
#include <stdint.h>

#define DISORDER   16                 /* frames of its thread by which one may be displaced */
#define N_LOOKBACK (4 * DISORDER + 2) /* frames of the thread from where a read stops to where the next begins */

struct dsim_recording_vdif {
    struct dsim_recording base;

    /* Found when it is opened, [const] then. */
    struct vdif_header first; /* of the thread's first frame, which all others must match */
    size_t frame_bytes;
    int64_t n_file_frames; /* of all threads */
    uint32_t frame_samples;
    uint32_t channel;
    int64_t frames_per_second;
    int64_t origin_seconds, origin_frame; /* of the file's first frame: index 0 */
    int64_t n_frames;                     /* 0 <= index < n_frames */
    int64_t start_samples;

    /* Reading's own; opening makes the room. */
    int64_t next_sample;      /* where the last read ended; else a read has to seek */
    int64_t seek_frame;       /* the first frame wanted after seeking */
    int64_t next_file_frame;  /* where the next read begins */
    int64_t n_seen;           /* file frames before this one have been judged and counted */
    int64_t ring[N_LOOKBACK]; /* file frames of the thread that were read last */
    size_t n_ring;
    uint8_t *is_present; /* [frames of the read] */
    uint8_t *payload;
};

/* Reads the header of file frame k.  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_recording_vdif_header(const struct dsim_recording_vdif *vdif, int64_t k, struct vdif_header *header, char *why,
                               size_t why_bytes);

/* The frame's place on the time axis; also negative. */
int64_t dsim_recording_vdif_index(const struct dsim_recording_vdif *vdif, const struct vdif_header *header);

/* NULL, or what contradicts the thread's first frame. */
const char *dsim_recording_vdif_contradiction(const struct dsim_recording_vdif *vdif, const struct vdif_header *header);

/* The indices of up to 'n_max' frames of our thread, smallest first: of the first ones from file frame k on (step 1),
 * or of the last ones until k (step -1).  Returns 0 or negative errno with one sentence in 'why'. */
int dsim_recording_vdif_indices(const struct dsim_recording_vdif *vdif, int64_t k, int step, size_t n_max,
                                int64_t *indices, size_t *n, char *why, size_t why_bytes);

/* The ops' read. */
int dsim_recording_vdif_read(struct dsim_recording *base, int64_t first, size_t n_samples, double *values, char *why,
                             size_t why_bytes);

#endif
