/* recording_vdif.c - opens one channel of one thread of a VDIF file, and finds its frames.
 *
 * Opening reads the beginning and the end of the file.  It finds the length of all frames, the thread's first frame and
 * the length of the recording.  All other frames must match the first frame.  dsim/recording_vdif_read.c reads the
 * samples. */
#include "tools/dsim/recording_vdif.h"

#include "common/base/units.h"
#include "common/base/why.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SEARCH_MAX 65536 /* the thread's first frame must be among the first SEARCH_MAX frames of the file */
/* Number of the thread's frames at the end of the file.  These frames determine the recording's length. */
#define N_LAST      (2 * DISORDER)
#define MAX_SLACK_S 1         /* greatest time between the first frames of two threads, in seconds */
#define MAX_FRAMES  (1 << 24) /* greatest number of frames in a second: a frame's number has 24 bits */

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

int dsim_recording_vdif_header(const struct dsim_recording_vdif *vdif, int64_t k, struct vdif_header *header, char *why,
                               size_t why_bytes)
{
    uint8_t bytes[VDIF_HEADER_BYTES];
    int err = dsim_recording_pread(&vdif->base, k * (int64_t)vdif->frame_bytes, bytes, sizeof(bytes), why, why_bytes);

    if (!err)
        *header = vdif_parse(bytes);
    return err;
}

int64_t dsim_recording_vdif_index(const struct dsim_recording_vdif *vdif, const struct vdif_header *header)
{
    return ((int64_t)header->seconds - vdif->origin_seconds) * vdif->frames_per_second + header->frame -
           vdif->origin_frame;
}

const char *dsim_recording_vdif_contradiction(const struct dsim_recording_vdif *vdif, const struct vdif_header *header)
{
    const struct vdif_header *first = &vdif->first;

    if (header->frame_bytes != vdif->frame_bytes)
        return "its length differs from the first frame's length";
    if (header->bits != first->bits || header->n_channels != first->n_channels ||
        header->is_complex != first->is_complex || header->is_legacy != first->is_legacy || header->edv != first->edv)
        return "its sample format differs from the first frame's format";
    if (header->epoch != first->epoch)
        return "its reference epoch differs from the first frame's epoch";
    if (header->frame >= vdif->frames_per_second)
        return "its number is too high for one second";
    return NULL;
}

static int compare_indices(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int dsim_recording_vdif_indices(const struct dsim_recording_vdif *vdif, int64_t k, int step, size_t n_max,
                                int64_t *indices, size_t *n, char *why, size_t why_bytes)
{
    *n = 0;
    for (; 0 <= k && k < vdif->n_file_frames && *n < n_max; k += step) {
        struct vdif_header header;
        int err = dsim_recording_vdif_header(vdif, k, &header, why, why_bytes);
        if (err)
            return err;
        if (header.thread == vdif->first.thread && !dsim_recording_vdif_contradiction(vdif, &header))
            indices[(*n)++] = dsim_recording_vdif_index(vdif, &header);
    }
    qsort(indices, *n, sizeof(indices[0]), compare_indices);
    return 0;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* Reads the header of the file's first frame.  This header sets the length of all frames and the origin of the time
 * axis. */
static int read_first_frame(struct dsim_recording_vdif *vdif, char *why, size_t why_bytes)
{
    struct vdif_header header;

    vdif->frame_bytes = VDIF_HEADER_BYTES;
    if (vdif->base.file_bytes < VDIF_HEADER_BYTES)
        return why_fail(-EINVAL, why, why_bytes, "%s has only %lld bytes, so it is no VDIF file", vdif->base.path,
                        (long long)vdif->base.file_bytes);
    int err = dsim_recording_vdif_header(vdif, 0, &header, why, why_bytes);
    if (err)
        return err;
    const char *unplayable = vdif_unplayable(&header);
    if (unplayable)
        return why_fail(-EINVAL, why, why_bytes, "%s: the frame at byte 0 %s", vdif->base.path, unplayable);
    vdif->frame_bytes = header.frame_bytes;
    vdif->n_file_frames = vdif->base.file_bytes / (int64_t)header.frame_bytes;
    vdif->base.n_rest_bytes = vdif->base.file_bytes % (int64_t)header.frame_bytes;
    vdif->origin_seconds = header.seconds;
    vdif->origin_frame = header.frame;
    if (vdif->n_file_frames > 0)
        return 0;
    return why_fail(-EINVAL, why, why_bytes, "%s has %lld bytes, but the frame at byte 0 says that it has %zu",
                    vdif->base.path, (long long)vdif->base.file_bytes, header.frame_bytes);
}

/* Writes the list of the threads in 'is_there' to 'text', for example "0, 2 to 5".  Cuts the list if 'text' is too
 * small.  Returns 'text'. */
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

/* Finds the thread's first frame, and sets *k to its number in the file. */
static int find_thread(struct dsim_recording_vdif *vdif, unsigned thread, int64_t *k, char *why, size_t why_bytes)
{
    int64_t end = vdif->n_file_frames < SEARCH_MAX ? vdif->n_file_frames : SEARCH_MAX;
    uint8_t is_there[VDIF_N_THREADS] = {0};
    char threads[128];

    for (*k = 0; *k < end; ++*k) {
        int err = dsim_recording_vdif_header(vdif, *k, &vdif->first, why, why_bytes);
        if (err)
            return err;
        if (vdif->first.frame_bytes != vdif->frame_bytes)
            continue;
        is_there[vdif->first.thread] = 1;
        if (vdif->first.thread == thread)
            return 0;
    }
    return why_fail(-EINVAL, why, why_bytes,
                    "%s has no thread %u among its first %lld frames, but only %s; thread must be one of these",
                    vdif->base.path, thread, (long long)end, list_threads(is_there, threads, sizeof(threads)));
}

/* Sets the time axis from the sample rate, a decimal > 0. */
static int set_rate(struct dsim_recording_vdif *vdif, struct decimal rate_hz, char *why, size_t why_bytes)
{
    int64_t mantissa = rate_hz.mantissa;
    int n_decimals = rate_hz.n_decimals;

    for (; n_decimals > 0 && mantissa % 10 == 0; n_decimals--)
        mantissa /= 10;
    vdif->frame_samples = vdif_n_samples(&vdif->first);
    vdif->frames_per_second = mantissa / vdif->frame_samples;
    if (n_decimals == 0 && mantissa % vdif->frame_samples == 0 && vdif->frames_per_second <= MAX_FRAMES)
        return 0;
    return why_fail(-EINVAL, why, why_bytes,
                    "%s has frames of %u samples, so %.6f frames would fill a second of %.6g samples; sample_rate must "
                    "be the rate of the recording",
                    vdif->base.path, vdif->frame_samples, timebase_decimal_to_double(rate_hz) / vdif->frame_samples,
                    timebase_decimal_to_double(rate_hz));
}

/* Checks the thread's first frame, which is frame k of the file. */
static int check_first(struct dsim_recording_vdif *vdif, int64_t k, const struct dsim_recording_config *config,
                       char *why, size_t why_bytes)
{
    const char *unplayable = vdif_unplayable(&vdif->first);
    char name[64];

    snprintf(name, sizeof(name), "the frame at byte %lld", (long long)(k * (int64_t)vdif->frame_bytes));
    if (unplayable)
        return why_fail(-EINVAL, why, why_bytes, "%s: %s %s", vdif->base.path, name, unplayable);
    if (config->channel >= vdif->first.n_channels)
        return why_fail(-EINVAL, why, why_bytes,
                        "%s: %s has %u channels; channel must be less than this number, not %lld", vdif->base.path,
                        name, vdif->first.n_channels, (long long)config->channel);
    int err = set_rate(vdif, config->sample_rate_hz, why, why_bytes);
    if (err)
        return err;
    if (vdif->first.frame >= vdif->frames_per_second || vdif->origin_frame >= vdif->frames_per_second)
        return why_fail(
            -EINVAL, why, why_bytes,
            "%s: %s is number %u of its second, but according to sample_rate a second has %lld frames; sample_rate "
            "must be the rate of the recording",
            vdif->base.path, name, vdif->first.frame, (long long)vdif->frames_per_second);
    int64_t slack = dsim_recording_vdif_index(vdif, &vdif->first);
    if (slack > MAX_SLACK_S * vdif->frames_per_second || slack < -MAX_SLACK_S * vdif->frames_per_second)
        return why_fail(-EINVAL, why, why_bytes,
                        "%s: %s, the first of thread %u, is %.3f s %s the file's first frame; threads with clocks that "
                        "disagree cannot be played",
                        vdif->base.path, name, vdif->first.thread,
                        (double)(slack < 0 ? -slack : slack) / (double)vdif->frames_per_second,
                        slack < 0 ? "before" : "after");
    return 0;
}

/* Finds the length of the recording from the thread's last frames in the file.  Ignores a frame whose time is far
 * from the times of the other frames, because its header must be wrong. */
static int find_end(struct dsim_recording_vdif *vdif, char *why, size_t why_bytes)
{
    int64_t indices[N_LAST];
    size_t n;
    int err = dsim_recording_vdif_indices(vdif, vdif->n_file_frames - 1, -1, N_LAST, indices, &n, why, why_bytes);

    if (err)
        return err;
    assert(n > 0); /* at least the thread's first frame exists */
    int64_t last = indices[n / 2];
    for (size_t i = n / 2; i < n; i++)
        if (indices[i] - indices[n / 2] <= N_LAST + DISORDER)
            last = indices[i];
    vdif->n_frames = last + 1;
    if (vdif->n_frames > 2 * vdif->n_file_frames + vdif->frames_per_second)
        return why_fail(-EINVAL, why, why_bytes,
                        "%s should last %.3f s according to the last frame of thread %u, but is less than half as long",
                        vdif->base.path, (double)vdif->n_frames / (double)vdif->frames_per_second, vdif->first.thread);
    vdif->base.n_samples = vdif->n_frames * vdif->frame_samples - vdif->start_samples;
    if (last >= 0 && vdif->base.n_samples > 0)
        return 0;
    return why_fail(-EINVAL, why, why_bytes,
                    "%s has %lld samples of thread %u; start must be less than this number, not %lld", vdif->base.path,
                    (long long)(last >= 0 ? vdif->n_frames * vdif->frame_samples : 0), vdif->first.thread,
                    (long long)vdif->start_samples);
}

static void vdif_close(struct dsim_recording *base)
{
    struct dsim_recording_vdif *vdif = CONTAINER_OF(base, struct dsim_recording_vdif, base);

    free(vdif->is_present);
    free(vdif->payload);
    free(vdif);
}

static const struct dsim_recording_ops vdif_ops = {.read = dsim_recording_vdif_read, .close = vdif_close};

static int open_vdif(struct dsim_recording_vdif *vdif, const struct dsim_recording_config *config, size_t max_samples,
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
    return why_out_of_memory(why, why_bytes);
}

int dsim_recording_vdif_open(const struct dsim_recording_config *config, const struct dsim_recording *base,
                             size_t max_samples, struct dsim_recording **recording, char *why, size_t why_bytes)
{
    struct dsim_recording_vdif *vdif = calloc(1, sizeof(*vdif));

    if (!vdif)
        return why_out_of_memory(why, why_bytes);
    vdif->base = *base;
    vdif->base.ops = &vdif_ops;
    vdif->channel = (uint32_t)config->channel;
    vdif->start_samples = config->start_samples;
    vdif->next_sample = -1;
    int err = open_vdif(vdif, config, max_samples, why, why_bytes);
    if (err)
        vdif_close(&vdif->base);
    else
        *recording = &vdif->base;
    return err;
}
