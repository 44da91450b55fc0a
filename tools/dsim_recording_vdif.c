/* dsim_recording_vdif.c - one channel of one thread of a VDIF file, as numbers on an even time axis.
 *
 * All frames of a file have the same length, so frame k is at byte k * frame_bytes.  Where its samples belong is in its
 * header: (seconds, number in the second) relative to those of the file's first frame, which gives all threads the same
 * axis.  Frames may be out of order by DISORDER frames of their thread, and may be missing.
 *
 * No frame is kept for later.  A read goes through the headers until it has seen so many frames behind the wanted ones
 * that none of these can follow; the next read begins that much further back again (the ring), and knows by 'n_seen'
 * what has been judged before. */
#include "common/units.h"
#include "tools/dsim_recording.h"
#include "tools/vdif.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DISORDER    16                 /* frames of its thread by which one may be displaced */
#define N_AHEAD     (2 * DISORDER)     /* this many in a row that come later: nothing of before can follow */
#define N_LOOKBACK  (4 * DISORDER + 2) /* frames of the thread from where a read stops to where the next begins */
#define SEARCH_MAX  65536              /* frames at the beginning among which the thread must be */
#define N_PROBES    3
#define N_LAST      (2 * DISORDER) /* frames of the thread at the end that say how long it is */
#define MAX_SLACK_S 1              /* between the beginnings of two threads */
#define MAX_FRAMES  (1 << 24)      /* in a second: their number has 24 bits */

struct vdif_recording {
    struct dsim_recording base;
    struct vdif_header first; /* of the thread's first frame, which all others must match */
    size_t frame_bytes;
    int64_t n_file_frames; /* of all threads */
    uint32_t frame_samples;
    uint32_t channel;
    int64_t frames_per_second;
    int64_t origin_seconds, origin_frame; /* of the file's first frame: index 0 */
    int64_t n_frames;                     /* 0 <= index < n_frames */
    int64_t start_samples;

    int64_t next_sample;      /* where the last read ended; else a read has to seek */
    int64_t seek_frame;       /* the first frame wanted after seeking */
    int64_t next_file_frame;  /* where the next read begins */
    int64_t n_seen;           /* file frames before this one have been judged and counted */
    int64_t ring[N_LOOKBACK]; /* file frames of the thread that were read last */
    size_t n_ring;
    uint8_t *is_present; /* [max_frames] of the read */
    uint8_t *payload;
};

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static int read_header(const struct vdif_recording *vdif, int64_t k, struct vdif_header *header, char *why,
                       size_t why_bytes)
{
    uint8_t bytes[VDIF_HEADER_BYTES];
    int err = dsim_recording_pread(&vdif->base, k * (int64_t)vdif->frame_bytes, bytes, sizeof(bytes), why, why_bytes);

    if (!err)
        *header = vdif_parse(bytes);
    return err;
}

/* The frame's place on the time axis; also negative. */
static int64_t frame_index(const struct vdif_recording *vdif, const struct vdif_header *header)
{
    return ((int64_t)header->seconds - vdif->origin_seconds) * vdif->frames_per_second + header->frame -
           vdif->origin_frame;
}

/* NULL, or what contradicts the thread's first frame. */
static const char *contradiction(const struct vdif_recording *vdif, const struct vdif_header *header)
{
    const struct vdif_header *first = &vdif->first;

    if (header->frame_bytes != vdif->frame_bytes)
        return "its length is another";
    if (header->bits != first->bits || header->n_channels != first->n_channels ||
        header->is_complex != first->is_complex || header->is_legacy != first->is_legacy || header->edv != first->edv)
        return "its samples are of another format";
    if (header->epoch != first->epoch)
        return "its reference epoch is another";
    if (header->frame >= vdif->frames_per_second)
        return "its number is too high for one second";
    return NULL;
}

static bool is_of_thread(const struct vdif_recording *vdif, const struct vdif_header *header)
{
    return header->thread == vdif->first.thread && !contradiction(vdif, header);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* What a read wants: samples, and the frames [first_frame, end_frame) that they are in. */
struct want {
    int64_t first, end; /* samples of the file's axis */
    int64_t first_frame, end_frame;
    double *values; /* [end - first] */
};

/* The run of wanted samples that frame 'index' holds. */
static void overlap(const struct vdif_recording *vdif, const struct want *want, int64_t index, int64_t *first,
                    int64_t *end)
{
    *first = index * vdif->frame_samples;
    *end = *first + vdif->frame_samples;
    if (*first < want->first)
        *first = want->first;
    if (*end > want->end)
        *end = want->end;
}

static void warn(struct vdif_recording *vdif, int64_t k, const char *what, const char *detail)
{
    log_limited(&vdif->base.counters->limit, LOG_LEVEL_WARNING, "%s: the frame at byte %lld %s%s.", vdif->base.path,
                (long long)(k * (int64_t)vdif->frame_bytes), what, detail);
}

/* Whether file frame k has a place on our axis; what is wrong is counted when it is seen for the first time. */
static bool judge(struct vdif_recording *vdif, int64_t k, const struct vdif_header *header, int64_t *index)
{
    bool is_new = k >= vdif->n_seen;
    const char *wrong = contradiction(vdif, header);

    if (header->thread != vdif->first.thread && header->frame_bytes == vdif->frame_bytes)
        return false;
    *index = frame_index(vdif, header);
    if (!wrong && *index >= vdif->n_frames)
        wrong = "its time is that of no frame at the end of the file";
    if (wrong && is_new) {
        counter_add(&vdif->base.counters->n_bad_frames, 1);
        warn(vdif, k, "is left out: ", wrong);
    }
    return !wrong;
}

/* Puts the samples of file frame k, which is frame 'index', where they are wanted. */
static int take_frame(struct vdif_recording *vdif, int64_t k, const struct vdif_header *header, int64_t index,
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

/* A frame that has a place, and does not come later: takes it if it is wanted and counts it if it will never be. */
static int place_frame(struct vdif_recording *vdif, int64_t k, const struct vdif_header *header, int64_t index,
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
        /* A frame may be wanted by two reads, but its end only once. */
        if ((index + 1) * vdif->frame_samples <= want->end)
            counter_add(&vdif->base.counters->n_double_frames, 1);
        return 0;
    }
    *is_present = 1;
    return take_frame(vdif, k, header, index, want, why, why_bytes);
}

static void count_missing(struct vdif_recording *vdif, const struct want *want)
{
    uint64_t n_missing = 0;
    int64_t missing = 0; /* the last such frame, since that of the file's first frame's second */

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

static void remember(struct vdif_recording *vdif, int64_t k)
{
    vdif->ring[vdif->n_ring++ % N_LOOKBACK] = k;
}

static int64_t lookback(const struct vdif_recording *vdif)
{
    return vdif->n_ring < N_LOOKBACK ? 0 : vdif->ring[vdif->n_ring % N_LOOKBACK];
}

/* Goes through the file from 'next_file_frame' on until everything wanted that can come has come.  Frames that are late
 * tell nothing about that, nor about where the next read is to begin. */
static int scan(struct vdif_recording *vdif, const struct want *want, char *why, size_t why_bytes)
{
    int64_t k = vdif->next_file_frame;

    vdif->n_ring = 0;
    for (int n_ahead = 0; k < vdif->n_file_frames && n_ahead < N_AHEAD; k++) {
        struct vdif_header header;
        int64_t index;
        int err = read_header(vdif, k, &header, why, why_bytes);
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

static int compare_indices(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The median index of the next few frames of our thread from file frame k on, so that one wrong header does not
 * mislead; INT64_MAX where there is none. */
static int index_from(const struct vdif_recording *vdif, int64_t k, int64_t *index, char *why, size_t why_bytes)
{
    int64_t found[N_PROBES];
    size_t n = 0;

    for (; k < vdif->n_file_frames && n < N_PROBES; k++) {
        struct vdif_header header;
        int err = read_header(vdif, k, &header, why, why_bytes);
        if (err)
            return err;
        if (is_of_thread(vdif, &header))
            found[n++] = frame_index(vdif, &header);
    }
    qsort(found, n, sizeof(found[0]), compare_indices);
    *index = n > 0 ? found[n / 2] : INT64_MAX;
    return 0;
}

/* Sets 'next_file_frame' to one before which nothing from 'frame' on is.  Bisects, for frames are in order but for
 * DISORDER. */
static int seek(struct vdif_recording *vdif, int64_t frame, char *why, size_t why_bytes)
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

static int vdif_read(struct dsim_recording *base, int64_t first, size_t n_samples, double *values, char *why,
                     size_t why_bytes)
{
    struct vdif_recording *vdif = CONTAINER_OF(base, struct vdif_recording, base);
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

static void vdif_close(struct dsim_recording *base)
{
    struct vdif_recording *vdif = CONTAINER_OF(base, struct vdif_recording, base);

    free(vdif->is_present);
    free(vdif->payload);
    free(vdif);
}

static const struct dsim_recording_ops vdif_ops = {.read = vdif_read, .close = vdif_close};

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* Reads the file's first frame: the length of all, and the origin of the time axis. */
static int read_first_frame(struct vdif_recording *vdif, char *why, size_t why_bytes)
{
    struct vdif_header header;

    vdif->frame_bytes = VDIF_HEADER_BYTES;
    if (vdif->base.file_bytes < VDIF_HEADER_BYTES) {
        snprintf(why, why_bytes, "%s has only %lld bytes, so it is no VDIF file", vdif->base.path,
                 (long long)vdif->base.file_bytes);
        return -EINVAL;
    }
    int err = read_header(vdif, 0, &header, why, why_bytes);
    if (err)
        return err;
    const char *unplayable = vdif_unplayable(&header);
    if (unplayable) {
        snprintf(why, why_bytes, "%s: the frame at byte 0 %s", vdif->base.path, unplayable);
        return -EINVAL;
    }
    vdif->frame_bytes = header.frame_bytes;
    vdif->n_file_frames = vdif->base.file_bytes / (int64_t)header.frame_bytes;
    vdif->base.n_rest_bytes = vdif->base.file_bytes % (int64_t)header.frame_bytes;
    vdif->origin_seconds = header.seconds;
    vdif->origin_frame = header.frame;
    if (vdif->n_file_frames > 0)
        return 0;
    snprintf(why, why_bytes, "%s has %lld bytes, but the frame at byte 0 says that it has %zu", vdif->base.path,
             (long long)vdif->base.file_bytes, header.frame_bytes);
    return -EINVAL;
}

/* The threads among those marked, as "0, 2 to 5"; cut where there is no room. */
static const char *list_threads(const uint8_t is_there[VDIF_N_THREADS], char *text, size_t text_bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < VDIF_N_THREADS && used < text_bytes; i++) {
        int last = i;
        if (!is_there[i])
            continue;
        while (last + 1 < VDIF_N_THREADS && is_there[last + 1])
            last++;
        int n = snprintf(text + used, text_bytes - used, last > i ? "%s%d to %d" : "%s%d", used ? ", " : "", i, last);
        used += n > 0 ? (size_t)n : 0;
        i = last;
    }
    return text;
}

/* Finds the thread's first frame; *k is where. */
static int find_thread(struct vdif_recording *vdif, unsigned thread, int64_t *k, char *why, size_t why_bytes)
{
    int64_t end = vdif->n_file_frames < SEARCH_MAX ? vdif->n_file_frames : SEARCH_MAX;
    uint8_t is_there[VDIF_N_THREADS] = {0};
    char threads[128];

    for (*k = 0; *k < end; ++*k) {
        int err = read_header(vdif, *k, &vdif->first, why, why_bytes);
        if (err)
            return err;
        if (vdif->first.frame_bytes != vdif->frame_bytes)
            continue;
        is_there[vdif->first.thread] = 1;
        if (vdif->first.thread == thread)
            return 0;
    }
    snprintf(why, why_bytes, "%s has no thread %u among its first %lld frames, but %s; thread must be one of these",
             vdif->base.path, thread, (long long)end, list_threads(is_there, threads, sizeof(threads)));
    return -EINVAL;
}

/* Sets the time axis by the sample rate, a decimal > 0. */
static int set_rate(struct vdif_recording *vdif, struct decimal rate_hz, char *why, size_t why_bytes)
{
    int64_t mantissa = rate_hz.mantissa;
    int n_decimals = rate_hz.n_decimals;

    for (; n_decimals > 0 && mantissa % 10 == 0; n_decimals--)
        mantissa /= 10;
    vdif->frame_samples = vdif_n_samples(&vdif->first);
    vdif->frames_per_second = mantissa / vdif->frame_samples;
    if (n_decimals == 0 && mantissa % vdif->frame_samples == 0 && vdif->frames_per_second <= MAX_FRAMES)
        return 0;
    snprintf(why, why_bytes,
             "%s has frames of %u samples, of which %.6f fill a second of %.6g samples; sample_rate must be that at "
             "which it was recorded",
             vdif->base.path, vdif->frame_samples, decimal_to_double(rate_hz) / vdif->frame_samples,
             decimal_to_double(rate_hz));
    return -EINVAL;
}

/* Judges the thread's first frame, file frame k. */
static int check_first(struct vdif_recording *vdif, int64_t k, const struct dsim_recording_config *config, char *why,
                       size_t why_bytes)
{
    const char *unplayable = vdif_unplayable(&vdif->first);
    char name[64];

    snprintf(name, sizeof(name), "the frame at byte %lld", (long long)(k * (int64_t)vdif->frame_bytes));
    if (unplayable) {
        snprintf(why, why_bytes, "%s: %s %s", vdif->base.path, name, unplayable);
        return -EINVAL;
    }
    if (config->channel >= vdif->first.n_channels) {
        snprintf(why, why_bytes, "%s: %s has %u channels; channel must be less than that, not %lld", vdif->base.path,
                 name, vdif->first.n_channels, (long long)config->channel);
        return -EINVAL;
    }
    int err = set_rate(vdif, config->sample_rate_hz, why, why_bytes);
    if (err)
        return err;
    if (vdif->first.frame >= vdif->frames_per_second || vdif->origin_frame >= vdif->frames_per_second) {
        snprintf(why, why_bytes,
                 "%s: %s is number %u of its second, but by sample_rate a second has %lld; sample_rate must be that at "
                 "which it was recorded",
                 vdif->base.path, name, vdif->first.frame, (long long)vdif->frames_per_second);
        return -EINVAL;
    }
    int64_t slack = frame_index(vdif, &vdif->first);
    if (slack > MAX_SLACK_S * vdif->frames_per_second || slack < -MAX_SLACK_S * vdif->frames_per_second) {
        snprintf(why, why_bytes,
                 "%s: %s, the first of thread %u, is %.3f s %s the file's first; threads with clocks that disagree "
                 "cannot be played",
                 vdif->base.path, name, vdif->first.thread,
                 (double)(slack < 0 ? -slack : slack) / (double)vdif->frames_per_second,
                 slack < 0 ? "before" : "after");
        return -EINVAL;
    }
    return 0;
}

/* How long the recording is, by the last frames of the thread in the file.  Of a frame that is far from the others only
 * the header can be wrong. */
static int find_end(struct vdif_recording *vdif, char *why, size_t why_bytes)
{
    int64_t indices[N_LAST];
    size_t n = 0;

    for (int64_t k = vdif->n_file_frames - 1; k >= 0 && n < N_LAST; k--) {
        struct vdif_header header;
        int err = read_header(vdif, k, &header, why, why_bytes);
        if (err)
            return err;
        if (is_of_thread(vdif, &header))
            indices[n++] = frame_index(vdif, &header);
    }
    assert(n > 0); /* the first frame is of the thread */
    qsort(indices, n, sizeof(indices[0]), compare_indices);
    int64_t last = indices[n / 2];
    for (size_t i = n / 2; i < n; i++)
        if (indices[i] - indices[n / 2] <= N_LAST + DISORDER)
            last = indices[i];
    vdif->n_frames = last + 1;
    if (vdif->n_frames > 2 * vdif->n_file_frames + vdif->frames_per_second) {
        snprintf(
            why, why_bytes,
            "%s ends %.3f s after it begins, by the header of its last frame of thread %u, but is not half as long",
            vdif->base.path, (double)vdif->n_frames / (double)vdif->frames_per_second, vdif->first.thread);
        return -EINVAL;
    }
    vdif->base.n_samples = vdif->n_frames * vdif->frame_samples - vdif->start_samples;
    if (last >= 0 && vdif->base.n_samples > 0)
        return 0;
    snprintf(why, why_bytes, "%s has %lld samples of thread %u; start must be less than that, not %lld",
             vdif->base.path, (long long)(last >= 0 ? vdif->n_frames * vdif->frame_samples : 0), vdif->first.thread,
             (long long)vdif->start_samples);
    return -EINVAL;
}

static int open_vdif(struct vdif_recording *vdif, const struct dsim_recording_config *config, size_t max_samples,
                     char *why, size_t why_bytes)
{
    int64_t k;
    int err = read_first_frame(vdif, why, why_bytes);

    if (!err)
        err = find_thread(vdif, (unsigned)config->thread, &k, why, why_bytes);
    if (!err)
        err = check_first(vdif, k, config, why, why_bytes);
    if (!err)
        err = find_end(vdif, why, why_bytes);
    if (err)
        return err;
    vdif->is_present = malloc(max_samples / vdif->frame_samples + 2);
    vdif->payload = malloc(vdif->frame_bytes);
    if (vdif->is_present && vdif->payload)
        return 0;
    snprintf(why, why_bytes, "out of memory");
    return -ENOMEM;
}

int dsim_recording_vdif_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                             size_t max_samples, struct dsim_recording **recording, char *why, size_t why_bytes)
{
    struct vdif_recording *vdif = calloc(1, sizeof(*vdif));

    if (!vdif) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    vdif->base = *base;
    vdif->base.ops = &vdif_ops;
    vdif->channel = (uint32_t)config->channel;
    vdif->start_samples = config->start_samples;
    vdif->next_sample = -1;
    int err = open_vdif(vdif, config, max_samples, why, why_bytes);
    if (err) {
        vdif_close(&vdif->base);
        return err;
    }
    *recording = &vdif->base;
    return 0;
}
