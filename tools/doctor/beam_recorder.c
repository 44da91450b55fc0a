/* beam_recorder.c - checks beamrec's files.  Compares them with the beams in the X-engines' files, and checks the
 * directories of the recordings and the counters of running recorders. */
#include "tools/doctor/doctor.h"

#include "common/base/units.h"
#include "tools/beamrec/config.h"
#include "tools/doctor/http.h"
#include "tools/doctor/recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct doctor_beam_recorder {
    struct beamrec_config config;
};

bool doctor_beam_recorder_load(struct doctor_file *file, const char *path)
{
    struct doctor_beam_recorder *recorder = calloc(1, sizeof(*recorder));

    if (!recorder)
        abort();
    file->beam_recorder = recorder;
    int err = config_load(&beamrec_config_table, path, &recorder->config, &file->config);
    if (!file->config)
        abort();
    if (!err)
        beamrec_config_check(&recorder->config, file->config);
    return !err && config_n_errors(file->config) == 0;
}

void doctor_beam_recorder_free(struct doctor_file *file)
{
    if (!file->beam_recorder)
        return;
    config_free(&beamrec_config_table, &file->beam_recorder->config, file->config);
    free(file->beam_recorder);
}

void doctor_beam_recorder_describe(const struct doctor_file *file, struct finding *finding)
{
    size_t n = beamrec_config_n_beams(&file->beam_recorder->config);

    SAY(finding->found, "beamrec, %zu beam%s", n, plural(n));
}

/* ---- Comparison with an X-engine's file -------------------------------------------------------------------------- */

struct beam_pair {
    struct doctor *doctor;
    const struct doctor_file *recorder, *x;
    size_t n_bad;
};

static void compare_texts(struct beam_pair *pair, const char *key, const char *mine, const char *wanted,
                          const char *why)
{
    if (strcmp(mine, wanted) == 0)
        return;
    struct finding *f = doctor_add(pair->doctor, FINDING_FAIL, "config.x-recorder", "");
    SAY(f->subject, "%s, %s", pair->x->name, pair->recorder->name);
    SAY(f->found, "%s is %s, but %s in the X-engine's file", key, mine, wanted);
    SAY(f->expected, "%s: %s", key, wanted);
    SAY(f->why, "%s", why);
    SAY(f->fix, "set %s in %s to %s", key, pair->recorder->path, wanted);
    pair->n_bad++;
}

static void compare(struct beam_pair *pair, const char *key, double mine, double wanted, const char *why)
{
    char texts[2][32];

    snprintf(texts[0], sizeof(texts[0]), "%.15g", mine);
    snprintf(texts[1], sizeof(texts[1]), "%.15g", wanted);
    compare_texts(pair, key, texts[0], texts[1], why);
}

static const char refused[] = "every heap is refused (rejected_packets, reason heap_size)";
static const char mistimed[] = "the recorded times are wrong";

static void compare_shapes(struct beam_pair *pair)
{
    const struct beamrec_config *mine = &pair->recorder->beam_recorder->config;
    const struct beamrec_config_stream *stream = &mine->stream;
    const struct xbgpu_config_recv *recv = &pair->x->xbgpu.recv;

    compare(pair, "stream.channels", (double)stream->n_chan, (double)recv->n_chan, "channels get wrong frequencies");
    compare(pair, "stream.channels_per_substream", (double)stream->n_chan_substream, (double)recv->n_chan_substream,
            refused);
    if (mine->beams.n > 0)
        compare(pair, "stream.spectra_per_heap", (double)stream->spectra_per_heap, (double)recv->spectra_per_heap,
                refused);
    compare(pair, "stream.samples_between_spectra", (double)stream->samples_between_spectra,
            (double)recv->samples_between_spectra, mistimed);
    compare(pair, "time.sync_time", timebase_decimal_to_double(mine->time.sync_time_s),
            timebase_decimal_to_double(pair->x->time->sync_time_s), mistimed);
    compare(pair, "time.adc_sample_rate", timebase_decimal_to_double(mine->time.adc_sample_rate_hz), pair->x->rate_hz,
            mistimed);
}

static void compare_detected(struct beam_pair *pair, size_t i, const struct xbgpu_config_detected *x)
{
    const struct beamrec_config_detected *mine = beamrec_config_detected(&pair->recorder->beam_recorder->config, i);
    static const char mixed[] =
        "heaps are refused (rejected_packets), or powers are written as data of wrong beams, times or channels";
    const struct {
        const char *key;
        int64_t mine, wanted;
        const char *const *names; /* names of the key's choices; NULL: the key's value is a number */
    } rows[] = {
        {"beams", mine->n_beams, x->n_beams, NULL},
        {"products", mine->products, x->products, beamrec_products_choices},
        {"spectra", mine->window_spectra, x->window_spectra, NULL},
        {"channels", mine->group_channels, x->group_channels, NULL},
        {"windows", mine->heap_windows, x->heap_windows, NULL},
        {"format", mine->format, x->format, beamrec_format_choices},
    };
    char key[64];

    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        snprintf(key, sizeof(key), "detected[%zu].%s", i, rows[r].key);
        if (rows[r].names)
            compare_texts(pair, key, rows[r].names[rows[r].mine], rows[r].names[rows[r].wanted], mixed);
        else
            compare(pair, key, (double)rows[r].mine, (double)rows[r].wanted, mixed);
    }
}

static bool takes(const struct endpoint_list *sources, const struct endpoint_list *destination)
{
    for (size_t s = 0; s < sources->n; s++)
        if (endpoint_equal(&sources->items[s], &destination->items[0]))
            return true;
    return false;
}

/* Compares the recorder's keys with the streams that an X-engine sends to the recorder's addresses.  Returns the number
 * of beams in these streams. */
static size_t compare_streams(struct beam_pair *pair)
{
    const struct beamrec_config *config = &pair->recorder->beam_recorder->config;
    const struct xbgpu_config *x = &pair->x->xbgpu;
    size_t n = 0;

    for (size_t i = 0; i < x->beams.n; i++)
        for (size_t b = 0; b < config->beams.n; b++)
            n += takes(&beamrec_config_beam(config, b)->sources, &xbgpu_config_beam(x, i)->destination);
    for (size_t i = 0; i < x->detected.n; i++)
        for (size_t d = 0; d < config->detected.n; d++)
            if (takes(&beamrec_config_detected(config, d)->sources, &xbgpu_config_detected(x, i)->destination)) {
                compare_detected(pair, d, xbgpu_config_detected(x, i));
                n += (size_t)xbgpu_config_detected(x, i)->n_beams;
            }
    if (n > 0)
        compare_shapes(pair);
    return n;
}

static void check_x_engines(struct doctor *doctor, const struct doctor_file *recorder)
{
    size_t n_x = 0, n_beams = 0, n_bad = 0;

    for (const struct doctor_file *x = NULL; (x = doctor_next(doctor, DOCTOR_XBGPU, x)); n_x++) {
        struct beam_pair pair = {doctor, recorder, x, 0};
        n_beams += compare_streams(&pair);
        n_bad += pair.n_bad;
    }
    if (n_beams > 0 && n_bad == 0)
        doctor_note(doctor, FINDING_OK, "config.x-recorder", recorder->name, "%zu beams of X-engines match this file",
                    n_beams);
    if (n_x == 0 || n_beams > 0)
        return;
    struct finding *f = doctor_add(doctor, FINDING_FAIL, "config.x-recorder", recorder->name);
    SAY(f->found, "no beam of these X-engines goes to the addresses in beams[].sources or detected[].sources");
    SAY(f->expected, "sources lists the destinations of one stream, as given in the files of all X-engines");
    SAY(f->why, "the recorder receives nothing");
    SAY(f->fix, "grep -n destination /etc/cbf/x*.yaml; then change sources in %s", recorder->path);
}

/* ---- This host --------------------------------------------------------------------------------------------------- */

/* A directory to which the recorder writes, and the data rate of the files in it. */
struct place {
    char *directory;
    const char *key; /* key that names one of the files */
    double bytes_per_s;
    bool counted; /* true: another entry for the same disk already includes this rate */
    dev_t disk;
    double free_bytes; /* < 0: not known */
};

struct places {
    struct place *items; /* [n] */
    size_t n;
};

static void add_file(struct places *places, const char *key, const char *path, double bytes_per_s)
{
    char directory[PATH_MAX];
    size_t i = 0;

    if (!path)
        return;
    doctor_recording_directory(path, directory);
    while (i < places->n && strcmp(places->items[i].directory, directory) != 0)
        i++;
    if (i == places->n) {
        places->items[i] = (struct place){.directory = strdup(directory), .key = key};
        if (!places->items[i].directory)
            abort();
        places->n++;
    }
    places->items[i].bytes_per_s += bytes_per_s;
}

/* Adds the files of all beams of a stream.  The directory is the directory of beam 0's file. */
static void add_detected(struct places *places, const char *key, const char *file, double bytes_per_s)
{
    char *path = file ? beamrec_config_file(file, 0) : NULL;

    add_file(places, key, path, bytes_per_s);
    free(path);
}

static struct places find_places(const struct beamrec_config *config)
{
    const struct beamrec_config_stream *stream = &config->stream;
    double spectra_per_s =
        timebase_decimal_to_double(config->time.adc_sample_rate_hz) / (double)stream->samples_between_spectra;
    double values_per_s = spectra_per_s * (double)stream->n_chan;
    struct places places = {calloc(2 * (config->beams.n + config->detected.n), sizeof(*places.items)), 0};

    if (!places.items)
        abort();
    for (size_t b = 0; b < config->beams.n; b++) {
        const struct beamrec_config_beam *beam = beamrec_config_beam(config, b);
        add_file(&places, "beams[].filterbank", beam->filterbank,
                 values_per_s / (double)(beam->sum_spectra * beam->sum_channels) * (double)beam->bits / 8);
        add_file(&places, "beams[].voltages", beam->voltages, 2 * values_per_s);
    }
    for (size_t d = 0; d < config->detected.n; d++) {
        const struct beamrec_config_detected *detected = beamrec_config_detected(config, d);
        size_t n_products = beamrec_config_powers(config, d).n_products;
        double bytes_per_s = values_per_s / (double)(detected->window_spectra * detected->group_channels) *
                             (double)n_products * (double)(detected->n_beams * detected->bits) / 8;
        add_detected(&places, "detected[].filterbank", detected->filterbank, bytes_per_s);
        add_detected(&places, "detected[].dada", detected->dada, bytes_per_s);
    }
    return places;
}

static struct doctor_recording recording_of(const struct doctor_file *file, const struct place *place)
{
    const struct beamrec_config *config = &file->beam_recorder->config;
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz), batches_per_s = 0;

    for (size_t s = 0; s < beamrec_config_n_streams(config); s++)
        batches_per_s += rate_hz / (double)beamrec_config_batch_samples(config, s);
    return (struct doctor_recording){.file = file,
                                     .program = "beamrec",
                                     .key = place->key,
                                     .what = "batches",
                                     .limit_key = config->output.max_batches > 0 ? "output.max_batches" : NULL,
                                     .directory = place->directory,
                                     .bytes_per_s = place->bytes_per_s,
                                     .length_s = (double)config->output.max_batches / batches_per_s};
}

/* Checks how long the free space of each disk lasts.  Adds the data rates of all recordings on the disk. */
static void check_rooms(struct doctor *doctor, const struct doctor_file *file, struct places *places)
{
    for (size_t i = 0; i < places->n; i++) {
        struct place *place = &places->items[i];
        if (place->counted || place->free_bytes < 0)
            continue;
        for (size_t j = i + 1; j < places->n; j++)
            if (places->items[j].free_bytes >= 0 && places->items[j].disk == place->disk) {
                place->bytes_per_s += places->items[j].bytes_per_s;
                places->items[j].counted = true;
            }
        struct doctor_recording recording = recording_of(file, place);
        doctor_recording_check_room(doctor, &recording, place->free_bytes);
    }
}

/* Checks a file's name.  Returns true if the name contains no time. */
static bool check_name(struct doctor *doctor, const struct doctor_file *file, const char *key, const char *path)
{
    const struct place place = {.key = key};

    if (!path || strchr(path, '%'))
        return false;
    struct doctor_recording recording = recording_of(file, &place);
    doctor_recording_check_name(doctor, &recording, path);
    return true;
}

/* Reports the first file without a time in its name. */
static void check_names(struct doctor *doctor, const struct doctor_file *file)
{
    const struct beamrec_config *config = &file->beam_recorder->config;
    bool found = config->output.overwrite;

    for (size_t b = 0; !found && b < config->beams.n; b++) {
        const struct beamrec_config_beam *beam = beamrec_config_beam(config, b);
        found = check_name(doctor, file, "beams[].filterbank", beam->filterbank) ||
                check_name(doctor, file, "beams[].voltages", beam->voltages);
    }
    for (size_t d = 0; !found && d < config->detected.n; d++) {
        const struct beamrec_config_detected *detected = beamrec_config_detected(config, d);
        found = check_name(doctor, file, "detected[].filterbank", detected->filterbank) ||
                check_name(doctor, file, "detected[].dada", detected->dada);
    }
}

static void check_recordings(struct doctor *doctor, const struct doctor_file *file)
{
    struct places places = find_places(&file->beam_recorder->config);

    for (size_t i = 0; i < places.n; i++) {
        struct place *place = &places.items[i];
        struct doctor_recording recording = recording_of(file, place);
        place->free_bytes = doctor_recording_free_bytes(doctor, &recording, &place->disk);
        doctor_recording_check_unit(doctor, &recording);
    }
    check_rooms(doctor, file, &places);
    check_names(doctor, file);
    for (size_t i = 0; i < places.n; i++)
        free(places.items[i].directory);
    free(places.items);
}

/* ---- A running recorder ------------------------------------------------------------------------------------------ */

/* Reports lost batches.  The counter does not tell which disk was full, so all directories are named. */
static void check_unwritten(struct doctor *doctor, const struct doctor_file *file, const char *page)
{
    struct places places = find_places(&file->beam_recorder->config);
    char directories[PATH_MAX] = "";

    for (size_t i = 0; i < places.n; i++) {
        size_t used = strlen(directories);
        snprintf(directories + used, sizeof(directories) - used, "%s%s", used ? " " : "", places.items[i].directory);
        free(places.items[i].directory);
    }
    free(places.items);
    doctor_recording_check_unwritten(doctor, file, "batches",
                                     doctor_metrics_sum(page, "beamrec_unwritten_batches_total", NULL), directories);
}

static void check_counters(struct doctor *doctor, const struct doctor_file *file, const char *page)
{
    static const struct {
        const char *id, *metric, *labels, *what, *why, *fix;
    } rows[] = {
        {"recorder.slow", "beamrec_rejected_packets_total", "reason=\"no_chunk\"",
         "packets lost because no buffer was free", "the disk is slower than the data",
         "iostat -x 1   # then use a faster disk"},
        {"recorder.socket", "beamrec_kernel_drops", NULL, "messages lost in the socket",
         "the receive thread was too slow, or recv.buffer is too small",
         "sysctl net.core.rmem_max   # then raise recv.buffer"},
        {"recorder.missing", "beamrec_missing_heaps_total", NULL, "heaps missing",
         "missing heaps are filled with the running mean",
         "cbf-doctor loss /etc/cbf/x*.yaml   # on the hosts of the X-engines"},
    };
    size_t n_first = doctor->report.n_findings;

    check_unwritten(doctor, file, page);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double n = doctor_metrics_sum(page, rows[i].metric, rows[i].labels);
        if (!(n > 0))
            continue;
        struct finding *f = doctor_add(doctor, FINDING_WARN, rows[i].id, file->name);
        SAY(f->found, "%.0f %s since the recorder started", n, rows[i].what);
        SAY(f->expected, "none");
        SAY(f->why, "%s", rows[i].why);
        SAY(f->fix, "%s", rows[i].fix);
    }
    if (doctor->report.n_findings == n_first)
        doctor_note(doctor, FINDING_OK, "recorder.batches", file->name, "%.0f batches written, nothing lost",
                    doctor_metrics_sum(page, "beamrec_batches_total", NULL));
}

void doctor_check_beam_recorders(struct doctor *doctor, bool host, bool config, bool loss)
{
    for (size_t i = 0; i < doctor->n_files; i++) {
        const struct doctor_file *file = &doctor->files[i];

        if (!file->beam_recorder || config_n_errors(file->config) > 0)
            continue;
        if (config)
            check_x_engines(doctor, file);
        if (host)
            check_recordings(doctor, file);
        const struct endpoint_list *listen = &file->beam_recorder->config.http.listen;
        char *page = loss && listen->n > 0 ? doctor_metrics_get(&listen->items[0]) : NULL;
        if (page && strstr(page, "\nbeamrec_"))
            check_counters(doctor, file, page);
        free(page);
    }
}
