/* recording.c - replaces fsim/signal.c: reads voltages from a file, for fsim/heaps.c.  See fsim/recording.h. */
#include "tools/fsim/recording.h"

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/why.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct survey {
    int64_t frames_per_second; /* number of frames in a second; 0: not a whole number */
    /* Index of the earliest frame, and index of the latest frame plus one.  Index 0 is the beginning of the second in
     * which the file's first frame lies. */
    int64_t origin, end;
    int64_t n_invalid, n_double;
};

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static int map_file(struct fsim_recording *recording, const char *path, char *why, size_t why_bytes)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* with a FIFO, open() would otherwise wait for a writer */
    int err = fd < 0 || fstat(fd, &status) ? -errno : 0;
    bool is_long = !err && S_ISREG(status.st_mode) && status.st_size >= VDIF_HEADER_BYTES;
    void *file = is_long ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;

    if (file == MAP_FAILED)
        err = -errno;
    if (fd >= 0)
        close(fd);
    if (err)
        return why_fail(err, why, why_bytes, "signal.file: %s cannot be opened: %s", path, strerror(-err));
    if (!is_long)
        return why_fail(-EINVAL, why, why_bytes, "signal.file: %s is no VDIF file", path);
    recording->file = file;
    recording->file_bytes = (size_t)status.st_size;
    return 0;
}

static size_t n_file_frames(const struct fsim_recording *recording)
{
    return recording->file_bytes / recording->first.frame_bytes;
}

static struct vdif_header parse_frame(const struct fsim_recording *recording, size_t k)
{
    return vdif_parse(recording->file + k * recording->first.frame_bytes);
}

/* Compares a frame's header with the first frame's header.  Returns NULL if the headers agree.  Otherwise returns the
 * words that follow the frame's name in a sentence. */
static const char *contradiction(const struct vdif_header *header, const struct vdif_header *first,
                                 const struct survey *survey)
{
    if (header->frame_bytes != first->frame_bytes)
        return "has a length other than the first frame's length";
    if (header->bits != first->bits || header->n_channels != first->n_channels ||
        header->is_complex != first->is_complex || header->is_legacy != first->is_legacy)
        return "has a sample format other than the first frame's format";
    if (header->epoch != first->epoch)
        return "has a reference epoch other than the first frame's epoch";
    if (survey->frames_per_second > 0 && header->frame >= survey->frames_per_second)
        return "has a number that is too high for one second: see signal.spectrum_rate";
    if (survey->frames_per_second == 0 && header->seconds != first->seconds)
        return "is in another second, but with signal.spectrum_rate a second has no whole number of frames";
    return NULL;
}

static int64_t index_of(const struct fsim_recording *recording, const struct survey *survey,
                        const struct vdif_header *header)
{
    return ((int64_t)header->seconds - (int64_t)recording->first.seconds) * survey->frames_per_second + header->frame;
}

/* ---- The survey -------------------------------------------------------------------------------------------------- */

static int64_t frames_per_second(const struct fsim_config *config, const struct vdif_header *header)
{
    double rate = timebase_decimal_to_double(config->signal.spectrum_rate_hz);

    if (rate == 0)
        rate = timebase_decimal_to_double(config->time.adc_sample_rate_hz) /
               (double)config->stream.samples_between_spectra;
    rate /= vdif_n_spectra(header);
    return fabs(rate - rint(rate)) < 1e-6 * rate ? (int64_t)rint(rate) : 0;
}

/* Checks the first frame, and assigns a slot to each wanted thread. */
static int begin_survey(struct fsim_recording *recording, const struct fsim_config *config, struct survey *survey,
                        char *why, size_t why_bytes)
{
    recording->first = vdif_parse(recording->file);
    const char *unplayable = vdif_no_voltages(&recording->first);
    if (unplayable)
        return why_fail(-EINVAL, why, why_bytes, "signal.file: the frame at byte 0 of %s %s", config->signal.file,
                        unplayable);
    if (recording->first.n_channels != config->stream.n_chan)
        return why_fail(-EINVAL, why, why_bytes, "stream.channels: %s has %" PRIu32 " channels, not %" PRId64,
                        config->signal.file, recording->first.n_channels, config->stream.n_chan);
    *survey = (struct survey){
        .frames_per_second = frames_per_second(config, &recording->first), .origin = INT64_MAX, .end = INT64_MIN};
    for (size_t i = 0; i < VDIF_N_THREADS; i++)
        recording->slot_of_thread[i] = -1;
    for (size_t i = 0; i < fsim_config_n_inputs(config); i++) {
        int *slot = &recording->slot_of_thread[fsim_config_item(&config->signal.threads, i)];
        if (*slot < 0)
            *slot = (int)recording->n_slots++;
    }
    return 0;
}

/* Finds the first and last frame of the recording. */
static int find_bounds(const struct fsim_recording *recording, const char *path, struct survey *survey, char *why,
                       size_t why_bytes)
{
    for (size_t k = 0; k < n_file_frames(recording); k++) {
        struct vdif_header header = parse_frame(recording, k);
        const char *wrong = contradiction(&header, &recording->first, survey);
        if (wrong)
            return why_fail(-EINVAL, why, why_bytes, "signal.file: the frame at byte %zu of %s %s",
                            k * recording->first.frame_bytes, path, wrong);
        int64_t index = index_of(recording, survey, &header);
        survey->origin = index < survey->origin ? index : survey->origin;
        survey->end = index >= survey->end ? index + 1 : survey->end;
    }
    if (survey->end > survey->origin)
        return 0;
    return why_fail(-EINVAL, why, why_bytes, "signal.file: %s ends within its first frame", path);
}

/* Stores the address of each frame's payload in 'payloads'. */
static void place_frames(struct fsim_recording *recording, struct survey *survey)
{
    for (size_t k = 0; k < n_file_frames(recording); k++) {
        struct vdif_header header = parse_frame(recording, k);
        int slot = recording->slot_of_thread[header.thread];
        if (slot < 0)
            continue;
        int64_t index = index_of(recording, survey, &header) - survey->origin;
        const uint8_t **payload = &recording->payloads[slot * recording->n_frames + index];
        survey->n_double += *payload != NULL;
        survey->n_invalid += header.is_invalid;
        if (!*payload && !header.is_invalid)
            *payload = recording->file + k * recording->first.frame_bytes + recording->first.header_bytes;
    }
}

/* Checks that each wanted thread has at least one frame.  Logs the number of missing frames. */
static int count_frames(const struct fsim_recording *recording, const struct survey *survey, const char *path,
                        char *why, size_t why_bytes)
{
    int64_t n_absent = 0;

    for (int thread = 0; thread < VDIF_N_THREADS; thread++) {
        int slot = recording->slot_of_thread[thread];
        int64_t n = 0;
        if (slot < 0)
            continue;
        for (int64_t i = 0; i < recording->n_frames; i++)
            n += recording->payloads[slot * recording->n_frames + i] != NULL;
        if (n == 0)
            return why_fail(-EINVAL, why, why_bytes, "signal.threads: %s has no frame of thread %d", path, thread);
        n_absent += recording->n_frames - n;
    }
    log_info("%s: %" PRId64 " frames of %zu threads, of which %" PRId64 " are missing or invalid (%" PRId64
             " marked invalid); %" PRId64 " duplicate",
             path, recording->n_frames, recording->n_slots, n_absent, survey->n_invalid, survey->n_double);
    return 0;
}

static int survey_file(struct fsim_recording *recording, const struct fsim_config *config, char *why, size_t why_bytes)
{
    const char *path = config->signal.file;
    struct survey survey;
    int err = begin_survey(recording, config, &survey, why, why_bytes);

    if (!err)
        err = find_bounds(recording, path, &survey, why, why_bytes);
    if (err)
        return err;
    recording->n_frames = survey.end - survey.origin;
    uint64_t n = bytes_times((uint64_t)recording->n_frames, recording->n_slots);
    err = memory_check(bytes_times(n, sizeof(*recording->payloads)), "signal.file", "cut the file", why, why_bytes);
    if (err)
        return err;
    recording->payloads = calloc(n, sizeof(*recording->payloads));
    if (!recording->payloads)
        return why_out_of_memory(why, why_bytes);
    place_frames(recording, &survey);
    return count_frames(recording, &survey, path, why, why_bytes);
}

int fsim_recording_open(const struct fsim_config *config, struct fsim_recording **recording, char *why,
                        size_t why_bytes)
{
    struct fsim_recording *made = calloc(1, sizeof(*made));

    if (!made)
        return why_out_of_memory(why, why_bytes);
    made->real_is_high = config->signal.real_part == FSIM_REAL_HIGH;
    int err = map_file(made, config->signal.file, why, why_bytes);
    if (!err)
        err = survey_file(made, config, why, why_bytes);
    if (err)
        fsim_recording_close(made);
    else
        *recording = made;
    return err;
}

void fsim_recording_close(struct fsim_recording *recording)
{
    if (!recording)
        return;
    if (recording->file)
        munmap((void *)recording->file, recording->file_bytes);
    free(recording->payloads);
    free(recording);
}

/* ---- Voltages ---------------------------------------------------------------------------------------------------- */

int64_t fsim_recording_n_spectra(const struct fsim_recording *recording)
{
    return recording->n_frames * vdif_n_spectra(&recording->first);
}

/* Returns the payload of the frame that contains this spectrum.  Returns NULL if the frame is missing. */
static const uint8_t *find_payload(const struct fsim_recording *recording, int64_t thread, int64_t spectrum)
{
    int64_t frame = spectrum / vdif_n_spectra(&recording->first);

    assert(frame < recording->n_frames);
    return recording->payloads[recording->slot_of_thread[thread] * recording->n_frames + frame];
}

bool fsim_recording_has(const struct fsim_recording *recording, int64_t thread, int64_t spectrum)
{
    return find_payload(recording, thread, spectrum) != NULL;
}

void fsim_recording_value(const struct fsim_recording *recording, int64_t thread, uint32_t chan, int64_t spectrum,
                          double value[2])
{
    const uint8_t *payload = find_payload(recording, thread, spectrum);

    vdif_voltage(&recording->first, payload, chan, (uint32_t)(spectrum % vdif_n_spectra(&recording->first)), value);
    if (recording->real_is_high) {
        double low = value[0];
        value[0] = value[1];
        value[1] = low;
    }
}
