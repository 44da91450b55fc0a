/* recording_vdif_read.c - samples of a VDIF recording, from frames that may be out of order, missing or wrong.
 *
 * No frame is kept for a later read.  A read checks the headers of frames until it has seen N_AHEAD frames after the
 * wanted frames; then no wanted frame can follow.  The next read therefore begins at an earlier frame of the file,
 * whose number is in 'ring'.  Wrong frames before 'n_seen' are not counted, because earlier reads counted them. */
#include "tools/dsim/recording_vdif.h"

#include "common/base/units.h"

#include <string.h>

/* If this number of consecutive frames are later than the wanted frames, no wanted frame can follow. */
#define N_AHEAD  (2 * DISORDER)
#define N_PROBES 3

/* ---- One read ---------------------------------------------------------------------------------------------------- */

/* The samples of one read, and the frames [first_frame, end_frame) with these samples. */
struct want {
    int64_t first, end; /* range [first, end) of the wanted samples on the file's time axis */
    int64_t first_frame, end_frame;
    double *values; /* [end - first] */
};

/* Computes the range of wanted samples that are in frame 'index'. */
static void overlap(const struct dsim_recording_vdif *vdif, const struct want *want, int64_t index, int64_t *first,
                    int64_t *end)
{
    *first = index * vdif->frame_samples;
    *end = *first + vdif->frame_samples;
    if (*first < want->first)
        *first = want->first;
    if (*end > want->end)
        *end = want->end;
}

static void warn(struct dsim_recording_vdif *vdif, int64_t k, const char *what, const char *detail)
{
    log_limited(&vdif->base.counters->limit, LOG_LEVEL_WARNING, "%s: the frame at byte %lld %s%s.", vdif->base.path,
                (long long)(k * (int64_t)vdif->frame_bytes), what, detail);
}

/* Returns true if file frame k is a valid frame of the thread, and sets *index.  Counts a wrong frame only when a read
 * sees it for the first time. */
static bool judge(struct dsim_recording_vdif *vdif, int64_t k, const struct vdif_header *header, int64_t *index)
{
    bool is_new = k >= vdif->n_seen;
    const char *wrong = dsim_recording_vdif_contradiction(vdif, header);

    if (header->thread != vdif->first.thread && header->frame_bytes == vdif->frame_bytes)
        return false;
    *index = dsim_recording_vdif_index(vdif, header);
    if (!wrong && *index >= vdif->n_frames)
        wrong = "its time is after the end of the recording";
    if (wrong && is_new) {
        counter_add(&vdif->base.counters->n_bad_frames, 1);
        warn(vdif, k, "is left out: ", wrong);
    }
    return !wrong;
}

/* Copies the wanted samples of file frame k, which has index 'index'. */
static int take_frame(struct dsim_recording_vdif *vdif, int64_t k, const struct vdif_header *header, int64_t index,
                      const struct want *want, char *why, size_t why_bytes)
{
    int64_t first, end;

    overlap(vdif, want, index, &first, &end);
    if (header->is_invalid) {
        counter_add(&vdif->base.counters->n_invalid_samples, (uint64_t)(end - first));
        warn(vdif, k, "is marked invalid: zeros take its place", "");
        return 0;
    }
    int err = dsim_recording_pread(&vdif->base, k * (int64_t)vdif->frame_bytes + (int64_t)header->header_bytes,
                                   vdif->payload, vdif->frame_bytes - header->header_bytes, why, why_bytes);
    if (!err)
        vdif_decode(header, vdif->payload, vdif->channel, (uint32_t)(first - index * vdif->frame_samples),
                    (size_t)(end - first), want->values + (first - want->first));
    return err;
}

/* Handles a valid frame that is not later than the wanted frames.  Reads the frame if it is wanted.  Counts the frame
 * if it is too late, or if an earlier frame has the same time. */
static int place_frame(struct dsim_recording_vdif *vdif, int64_t k, const struct vdif_header *header, int64_t index,
                       const struct want *want, char *why, size_t why_bytes)
{
    if (index < want->first_frame) {
        if (k >= vdif->n_seen && index >= vdif->seek_frame) {
            counter_add(&vdif->base.counters->n_late_frames, 1);
            warn(vdif, k, "comes too late to be played", "");
        }
        return 0;
    }
    uint8_t *is_present = &vdif->is_present[index - want->first_frame];
    if (*is_present) {
        /* Two reads may want parts of the same frame.  Only one of the two reads counts the frame: the read that wants
         * the frame's last sample. */
        if ((index + 1) * vdif->frame_samples <= want->end)
            counter_add(&vdif->base.counters->n_double_frames, 1);
        return 0;
    }
    *is_present = 1;
    return take_frame(vdif, k, header, index, want, why, why_bytes);
}

static void count_missing(struct dsim_recording_vdif *vdif, const struct want *want)
{
    uint64_t n_missing = 0;
    /* index of the last missing frame, counted from the beginning of the second in which the file's first frame
     * lies */
    int64_t missing = 0;

    for (int64_t index = want->first_frame; index < want->end_frame; index++) {
        int64_t first, end;
        if (vdif->is_present[index - want->first_frame])
            continue;
        overlap(vdif, want, index, &first, &end);
        n_missing += (uint64_t)(end - first);
        missing = index + vdif->origin_frame;
    }
    if (n_missing == 0)
        return;
    counter_add(&vdif->base.counters->n_missing_samples, n_missing);
    log_limited(&vdif->base.counters->limit, LOG_LEVEL_WARNING,
                "%s: frame %lld of second %lld of thread %u is missing; zeros take its place.", vdif->base.path,
                (long long)(missing % vdif->frames_per_second),
                (long long)(vdif->origin_seconds + missing / vdif->frames_per_second), vdif->first.thread);
}

static void remember(struct dsim_recording_vdif *vdif, int64_t k)
{
    vdif->ring[vdif->n_ring++ % N_LOOKBACK] = k;
}

static int64_t lookback(const struct dsim_recording_vdif *vdif)
{
    return vdif->n_ring < N_LOOKBACK ? 0 : vdif->ring[vdif->n_ring % N_LOOKBACK];
}

/* Reads the file, beginning at 'next_file_frame', until no wanted frame can follow.  Late frames affect neither this
 * decision nor the beginning of the next read. */
static int scan(struct dsim_recording_vdif *vdif, const struct want *want, char *why, size_t why_bytes)
{
    int64_t k = vdif->next_file_frame;

    vdif->n_ring = 0;
    for (int n_ahead = 0; k < vdif->n_file_frames && n_ahead < N_AHEAD; k++) {
        struct vdif_header header;
        int64_t index;
        int err = dsim_recording_vdif_header(vdif, k, &header, why, why_bytes);
        if (err)
            return err;
        if (!judge(vdif, k, &header, &index))
            continue;
        if (index >= want->first_frame - N_LOOKBACK)
            remember(vdif, k);
        if (index >= want->end_frame) {
            n_ahead++;
            continue;
        }
        if (index >= want->first_frame)
            n_ahead = 0;
        err = place_frame(vdif, k, &header, index, want, why, why_bytes);
        if (err)
            return err;
    }
    count_missing(vdif, want);
    if (k > vdif->n_seen)
        vdif->n_seen = k;
    if (vdif->n_ring >= N_LOOKBACK)
        vdif->next_file_frame = lookback(vdif);
    return 0;
}

/* ---- Seeking ----------------------------------------------------------------------------------------------------- */

/* Finds the median index of the thread's first N_PROBES frames at or after file frame k.  The median tolerates one
 * wrong header.  The result is INT64_MAX if the file has no further frames of the thread. */
static int index_from(const struct dsim_recording_vdif *vdif, int64_t k, int64_t *index, char *why, size_t why_bytes)
{
    int64_t found[N_PROBES];
    size_t n;
    int err = dsim_recording_vdif_indices(vdif, k, 1, N_PROBES, found, &n, why, why_bytes);

    if (!err)
        *index = n > 0 ? found[n / 2] : INT64_MAX;
    return err;
}

/* Sets 'next_file_frame' so that all frames with an index of at least 'frame' follow it.  Bisects the file, because
 * frames are in order apart from displacements of up to DISORDER frames. */
static int seek(struct dsim_recording_vdif *vdif, int64_t frame, char *why, size_t why_bytes)
{
    int64_t low = 0, high = vdif->n_file_frames;

    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2, index;
        int err = index_from(vdif, middle, &index, why, why_bytes);
        if (err)
            return err;
        if (index < frame - N_LOOKBACK)
            low = middle;
        else
            high = middle;
    }
    vdif->next_file_frame = low;
    vdif->n_seen = low;
    vdif->seek_frame = frame;
    return 0;
}

/* ---- The interface ----------------------------------------------------------------------------------------------- */

int dsim_recording_vdif_read(struct dsim_recording *base, int64_t first, size_t n_samples, double *values, char *why,
                             size_t why_bytes)
{
    struct dsim_recording_vdif *vdif = CONTAINER_OF(base, struct dsim_recording_vdif, base);
    struct want want = {.first = vdif->start_samples + first, .values = values};

    want.end = want.first + (int64_t)n_samples;
    want.first_frame = want.first / vdif->frame_samples;
    want.end_frame = (want.end - 1) / vdif->frame_samples + 1;
    memset(values, 0, n_samples * sizeof(*values));
    memset(vdif->is_present, 0, (size_t)(want.end_frame - want.first_frame));
    int err = want.first == vdif->next_sample ? 0 : seek(vdif, want.first_frame, why, why_bytes);
    if (!err)
        err = scan(vdif, &want, why, why_bytes);
    vdif->next_sample = err ? -1 : want.end;
    return err;
}
