/* recorder.c - checks visrec's files.  Compares them with the X-engines' files, and checks this host's disk and the
 * counters of running recorders. */
#include "tools/doctor/doctor.h"

#include "common/base/units.h"
#include "tools/doctor/http.h"
#include "tools/doctor/recording.h"
#include "tools/visrec/config.h"
#include "common/engine/labels.h"
#include "xbgpu/config/layout.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct doctor_recorder {
    struct visrec_config config;
    char directory[PATH_MAX]; /* directory of the recordings */
    double dump_s;
    double bytes_per_s; /* greatest rate at which visrec writes to the disk, in bytes per second */
};

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

bool doctor_recorder_load(struct doctor_file *file, const char *path)
{
    struct doctor_recorder *recorder = calloc(1, sizeof(*recorder));

    if (!recorder)
        abort();
    file->recorder = recorder;
    int err = config_load(&visrec_config_table, path, &recorder->config, &file->config);
    if (!file->config)
        abort();
    if (!err)
        visrec_config_check(&recorder->config, file->config);
    if (err || config_n_errors(file->config) > 0)
        return false;
    const struct visrec_config *config = &recorder->config;
    doctor_recording_directory(config->output.file, recorder->directory);
    recorder->dump_s =
        (double)visrec_config_integration_samples(config) / timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    recorder->bytes_per_s = (double)visrec_config_dump_bytes(config) / recorder->dump_s;
    return true;
}

void doctor_recorder_free(struct doctor_file *file)
{
    if (!file->recorder)
        return;
    config_free(&visrec_config_table, &file->recorder->config, file->config);
    free(file->recorder);
}

void doctor_recorder_describe(const struct doctor_file *file, struct finding *finding)
{
    char rate[DOCTOR_RATE_BYTES];

    SAY(finding->found, "visrec, %zu antennas, a dump every %.4g s, writes %s at most to %s",
        file->recorder->config.antennas.n, file->recorder->dump_s, doctor_rate(8 * file->recorder->bytes_per_s, rate),
        file->recorder->directory);
}

/* ---- Comparison with an X-engine's file -------------------------------------------------------------------------- */

struct recorder_pair {
    struct doctor *doctor;
    const struct doctor_file *recorder, *x;
    size_t n_bad;
};

static struct finding *disagree(struct recorder_pair *pair, const char *id, const char *why)
{
    struct finding *f = report_add(&pair->doctor->report, FINDING_FAIL, id, "");

    SAY(f->subject, "%s, %s", pair->x->name, pair->recorder->name);
    SAY(f->why, "%s", why);
    pair->n_bad++;
    return f;
}

static void compare(struct recorder_pair *pair, const char *key, int64_t mine, const char *x_key, int64_t wanted,
                    const char *why)
{
    if (mine == wanted)
        return;
    struct finding *f = disagree(pair, "config.x-recorder", why);
    SAY(f->found, "%s is %" PRId64 ", but %s of the X-engine is %" PRId64, key, mine, x_key, wanted);
    SAY(f->expected, "%s: %" PRId64, key, wanted);
    SAY(f->fix, "set %s in %s to %" PRId64, key, pair->recorder->path, wanted);
}

static void compare_weights(struct recorder_pair *pair, bool wanted, const char *why)
{
    bool mine = pair->recorder->recorder->config.stream.weights;

    if (mine == wanted)
        return;
    struct finding *f = disagree(pair, "config.x-recorder", why);
    SAY(f->found, "stream.weights is %s, but the X-engine's output %s `missing: weights`", mine ? "true" : "false",
        wanted ? "has" : "lacks");
    SAY(f->expected, "stream.weights: %s", wanted ? "true" : "false");
    SAY(f->fix, "set stream.weights in %s to %s", pair->recorder->path, wanted ? "true" : "false");
}

static void compare_n_antennas(struct recorder_pair *pair, const char *why)
{
    int64_t n = pair->x->xbgpu.recv.n_ants;
    size_t n_mine = pair->recorder->recorder->config.antennas.n;

    if ((int64_t)n_mine == n)
        return;
    struct finding *f = disagree(pair, "config.x-recorder", why);
    SAY(f->found, "the file has %zu antenna%s, but recv.antennas of the X-engine is %" PRId64, n_mine, plural(n_mine),
        n);
    SAY(f->expected, "%" PRId64 " antenna%s", n, plural((uint64_t)n));
    if (n == 1)
        SAY(f->fix, "list the array's only antenna under antennas in %s", pair->recorder->path);
    else
        SAY(f->fix, "list the %" PRId64 " antennas of the array under antennas in %s", n, pair->recorder->path);
}

/* Compares the length of a dump in both files.  The fix names the key that sets the length in the recorder's file. */
static void compare_integration(struct recorder_pair *pair, const struct xbgpu_config_output *output, const char *why)
{
    const struct visrec_config *mine = &pair->recorder->recorder->config;
    const struct xbgpu_config_recv *recv = &pair->x->xbgpu.recv;
    int64_t n_batches = visrec_config_integration_batches(mine);
    int64_t wanted = xbgpu_integration_batches(&pair->x->xbgpu, output);
    bool in_batches = mine->stream.integration_batches > 0;
    char value[48];

    if (n_batches == wanted)
        return;
    if (in_batches)
        snprintf(value, sizeof(value), "%" PRId64, wanted);
    else
        snprintf(value, sizeof(value), "%.12g",
                 (double)(wanted * recv->spectra_per_heap * recv->samples_between_spectra) / pair->x->rate_hz);
    struct finding *f = disagree(pair, "config.x-recorder", why);
    SAY(f->found, "a dump has %" PRId64 " batch%s, but a dump of the X-engine has %" PRId64, n_batches,
        n_batches == 1 ? "" : "es", wanted);
    SAY(f->expected, "stream.%s: %s", in_batches ? "integration_batches" : "integration_time", value);
    SAY(f->fix, "set stream.%s in %s to %s", in_batches ? "integration_batches" : "integration_time",
        pair->recorder->path, value);
}

static void compare_antennas(struct recorder_pair *pair)
{
    const struct visrec_config *mine = &pair->recorder->recorder->config;
    const struct xbgpu_config *x = &pair->x->xbgpu;
    struct labels labels = {0};

    if ((int64_t)mine->antennas.n != x->recv.n_ants || !x->recv.antenna_names ||
        labels_init(&labels, (size_t)x->recv.n_ants, x->recv.antenna_names, x->recv.input_labels))
        return;
    for (size_t a = 0; a < mine->antennas.n; a++) {
        const char *name = visrec_config_antenna(mine, a)->name;

        if (strcmp(name, labels.antennas[a]) == 0)
            continue;
        struct finding *f =
            disagree(pair, "config.antennas", "the recorded baselines have the positions of other antennas");
        SAY(f->found, "antenna %zu is %s, but recv.antenna_names of the X-engine has %s", a, name, labels.antennas[a]);
        SAY(f->expected, "the same antennas in the same order");
        SAY(f->fix, "put the antennas in %s into the order of their feng_id", pair->recorder->path);
        break;
    }
    labels_fini(&labels);
}

static void compare_times(struct recorder_pair *pair)
{
    const struct config_time *mine = &pair->recorder->recorder->config.time, *time = pair->x->time;
    double sync_s = timebase_decimal_to_double(mine->sync_time_s),
           x_sync_s = timebase_decimal_to_double(time->sync_time_s);
    double rate_hz = timebase_decimal_to_double(mine->adc_sample_rate_hz), x_rate_hz = pair->x->rate_hz;

    if (sync_s == x_sync_s && rate_hz == x_rate_hz)
        return;
    struct finding *f = disagree(pair, "config.time", "the recorded times or frequencies are wrong");
    SAY(f->found, "sync_time is %.9f and adc_sample_rate %.12g Hz; the X-engine has %.9f and %.12g Hz", sync_s, rate_hz,
        x_sync_s, x_rate_hz);
    SAY(f->expected, "the same time section in all files");
    SAY(f->fix, "grep -n -A2 ^time: %s %s   # and make them equal", pair->recorder->path, pair->x->path);
}

static void compare_output(struct recorder_pair *pair, const struct xbgpu_config_output *output)
{
    const struct visrec_config *mine = &pair->recorder->recorder->config;
    const struct xbgpu_config_recv *recv = &pair->x->xbgpu.recv;
    static const char refused[] = "every heap is refused (rejected_packets, reason heap_size)";
    static const char mistimed[] = "dumps have wrong times, or are refused (reason bad_timestamp)";

    compare_n_antennas(pair, refused);
    compare(pair, "stream.channels_per_substream", mine->stream.n_chan_substream, "recv.channels_per_substream",
            recv->n_chan_substream, refused);
    compare_weights(pair, output->missing == XBGPU_MISSING_WEIGHTS, refused);
    compare(pair, "stream.channels", mine->stream.n_chan, "recv.channels", recv->n_chan,
            "channels get wrong frequencies, or are refused (reason bad_frequency)");
    compare(pair, "stream.spectra_per_heap", mine->stream.spectra_per_heap, "recv.spectra_per_heap",
            recv->spectra_per_heap, mistimed);
    compare(pair, "stream.samples_between_spectra", mine->stream.samples_between_spectra,
            "recv.samples_between_spectra", recv->samples_between_spectra, mistimed);
    compare_integration(pair, output, mistimed);
    compare_antennas(pair);
    compare_times(pair);
}

static bool takes(const struct doctor_file *recorder, const struct endpoint *destination)
{
    const struct endpoint_list *sources = &recorder->recorder->config.recv.sources;

    for (size_t s = 0; s < sources->n; s++)
        if (endpoint_equal(&sources->items[s], destination))
            return true;
    return false;
}

static void check_x_engines(struct doctor *doctor, const struct doctor_file *recorder)
{
    size_t n_x = 0, n_outputs = 0, n_bad = 0;

    for (const struct doctor_file *x = NULL; (x = doctor_next(doctor, DOCTOR_XBGPU, x));) {
        struct recorder_pair pair = {doctor, recorder, x, 0};

        n_x++;
        for (size_t o = 0; o < x->xbgpu.outputs.n; o++) {
            const struct xbgpu_config_output *output = xbgpu_config_output(&x->xbgpu, o);

            if (output->destination.n == 0 || !takes(recorder, &output->destination.items[0]))
                continue;
            n_outputs++;
            compare_output(&pair, output);
        }
        n_bad += pair.n_bad;
    }
    if (n_outputs > 0 && n_bad == 0)
        doctor_note(doctor, FINDING_OK, "config.x-recorder", recorder->name, "%zu outputs of X-engines match this file",
                    n_outputs);
    if (n_x == 0 || n_outputs > 0)
        return;
    struct finding *f = doctor_add(doctor, FINDING_FAIL, "config.x-recorder", recorder->name);
    SAY(f->found, "no output of these X-engines goes to recv.sources");
    SAY(f->expected, "recv.sources lists the destinations of one output, as given in the files of all X-engines");
    SAY(f->why, "the recorder receives nothing");
    SAY(f->fix, "grep -n destination /etc/cbf/x*.yaml; then change recv.sources in %s", recorder->path);
}

/* ---- A running recorder ------------------------------------------------------------------------------------------ */

static void check_groups(struct doctor *doctor, const struct doctor_file *file)
{
    const struct visrec_config_recv *recv = &file->recorder->config.recv;
    char igmp[PATH_MAX];

    snprintf(igmp, sizeof(igmp), "%s/proc/net/igmp", doctor->root);
    if (recv->base.pcap_file || recv->base.transport == TRANSPORT_IBVERBS || access(igmp, R_OK) != 0)
        return;
    for (size_t s = 0; s < recv->sources.n; s++) {
        struct in_addr group = recv->sources.items[s].address;
        char word[16], text[32];

        snprintf(word, sizeof(word), "%08X", group.s_addr); /* format of /proc/net/igmp */
        if (!IN_MULTICAST(ntohl(group.s_addr)) || doctor_file_has(igmp, word))
            continue;
        struct finding *f = doctor_add(doctor, FINDING_FAIL, "recorder.groups", file->name);
        SAY(f->found, "this host has not joined %s", endpoint_format(&recv->sources.items[s], text, sizeof(text)));
        SAY(f->expected, "membership in all groups of recv.sources while the recorder runs");
        SAY(f->why, "the switch sends the group's packets only to hosts that have joined the group");
        SAY(f->fix, "sudo systemctl restart 'visrec@*'   # so that it reads the current file");
        return;
    }
}

static void add_loss(struct doctor *doctor, const struct doctor_file *file, const char *id, double n, const char *what,
                     const char *why, const char *fix)
{
    if (!(n > 0))
        return;
    struct finding *f = doctor_add(doctor, FINDING_WARN, id, file->name);
    SAY(f->found, "%.0f %s since the recorder started", n, what);
    SAY(f->expected, "none");
    SAY(f->why, "%s", why);
    SAY(f->fix, "%s", fix);
}

struct antenna_look {
    struct doctor *doctor;
    const struct doctor_file *file;
    double n_values; /* number of values of one antenna's autocorrelations that were written since the start */
};

static void look_at_antenna(void *arg, const char *name, const char *labels, double value)
{
    const struct antenna_look *look = arg;
    const char *antenna = strstr(labels, "antenna=\"");

    if (strcmp(name, "visrec_antenna_flagged_values_total") != 0 || !antenna || !(value > 0))
        return;
    antenna += strlen("antenna=\"");
    struct finding *f = report_add(&look->doctor->report, FINDING_WARN, "recorder.antennas", look->file->name);
    SAY(f->found, "%.3g %% of the recording of %.*s is flagged", 100 * value / look->n_values,
        (int)strcspn(antenna, "\""), antenna);
    SAY(f->expected, "data of all antennas");
    SAY(f->why, "the X-engines did not get all heaps of this antenna, or heaps of the X-engines did not arrive");
    SAY(f->fix, "cbf-doctor loss %sx*.yaml   # on the hosts of the X-engines", CONFIG_DIRECTORY);
}

static void check_counters(struct doctor *doctor, const struct doctor_file *file, const char *page)
{
    const struct visrec_config *config = &file->recorder->config;
    double n_dumps = doctor_metrics_sum(page, "visrec_dumps_total", NULL);
    size_t n_first = doctor->report.n_findings;

    doctor_recording_check_unwritten(doctor, file, "dumps",
                                     doctor_metrics_sum(page, "visrec_unwritten_dumps_total", NULL),
                                     file->recorder->directory);
    add_loss(doctor, file, "recorder.slow",
             doctor_metrics_sum(page, "visrec_rejected_packets_total", "reason=\"no_chunk\""),
             "packets lost because no buffer was free", "the disk is slower than the data",
             "iostat -x 1   # then use a faster disk or a longer integration");
    add_loss(doctor, file, "recorder.socket", doctor_metrics_sum(page, "visrec_kernel_drops", NULL),
             "messages lost in the socket", "the receive thread was too slow, or recv.buffer is too small",
             "sysctl net.core.rmem_max   # then raise recv.buffer");
    add_loss(doctor, file, "recorder.missing", doctor_metrics_sum(page, "visrec_missing_heaps_total", NULL),
             "heaps missing", "the channels of missing heaps are flagged",
             "cbf-doctor loss /etc/cbf/x*.yaml   # on the hosts of the X-engines");
    if (n_dumps == 0) {
        struct finding *f = doctor_add(doctor, FINDING_WARN, "recorder.dumps", file->name);
        SAY(f->found, "the recorder runs and has no dump yet; %.0f packets came, of which %.0f were refused",
            doctor_metrics_sum(page, "visrec_packets_total", NULL),
            doctor_metrics_sum(page, "visrec_rejected_packets_total", NULL));
        SAY(f->expected, "a dump every %.4g s", file->recorder->dump_s);
        SAY(f->why, "no packets arrive, or all packets are refused");
        SAY(f->fix, "cbf-doctor config %s /etc/cbf/x*.yaml", file->path);
        return;
    }
    struct antenna_look look = {doctor, file, n_dumps * (double)config->stream.n_chan * N_POL_PRODUCTS};
    doctor_metrics_each(page, look_at_antenna, &look);
    if (doctor->report.n_findings == n_first)
        doctor_note(doctor, FINDING_OK, "recorder.dumps", file->name, "%.0f dumps written, nothing lost", n_dumps);
}

/* Returns the recorder's /metrics; the caller calls free().  Returns NULL if the recorder does not answer. */
static char *get_metrics(struct doctor *doctor, const struct doctor_file *file)
{
    const struct endpoint_list *listen = &file->recorder->config.http.listen;
    char text[32];

    if (listen->n == 0)
        return NULL;
    char *page = doctor_metrics_get(&listen->items[0]);
    if (page && strstr(page, "\nvisrec_"))
        return page;
    if (page) {
        struct finding *f = doctor_add(doctor, FINDING_FAIL, "host.ports", file->name);
        SAY(f->found, "http.listen %s is taken by another program",
            endpoint_format(&listen->items[0], text, sizeof(text)));
        SAY(f->expected, "a port that no other program uses");
        SAY(f->why, "the recorder does not start");
        SAY(f->fix, "sudo ss -lntp 'sport = :%u'   # which program uses the port; then change http.listen",
            listen->items[0].port);
    }
    free(page);
    return NULL;
}

/* ---- Directory and disk ------------------------------------------------------------------------------------------ */

static void check_recording(struct doctor *doctor, const struct doctor_file *file)
{
    const struct doctor_recorder *recorder = file->recorder;
    const struct visrec_config_output *output = &recorder->config.output;
    const struct doctor_recording recording = {.file = file,
                                               .program = "visrec",
                                               .key = "output.file",
                                               .what = "dumps",
                                               .limit_key = output->max_dumps > 0 ? "output.max_dumps" : NULL,
                                               .directory = recorder->directory,
                                               .bytes_per_s = recorder->bytes_per_s,
                                               .length_s = (double)output->max_dumps * recorder->dump_s};
    dev_t disk;
    double free_bytes = doctor_recording_free_bytes(doctor, &recording, &disk);

    if (free_bytes >= 0)
        doctor_recording_check_room(doctor, &recording, free_bytes);
    doctor_recording_check_unit(doctor, &recording);
    if (!output->overwrite)
        doctor_recording_check_name(doctor, &recording, output->file);
}

/* ---- All recorders ----------------------------------------------------------------------------------------------- */

void doctor_check_recorders(struct doctor *doctor, bool host, bool config, bool loss)
{
    for (size_t i = 0; i < doctor->n_files; i++) {
        const struct doctor_file *file = &doctor->files[i];

        if (!file->recorder || config_n_errors(file->config) > 0)
            continue;
        if (config)
            check_x_engines(doctor, file);
        char *page = host || loss ? get_metrics(doctor, file) : NULL;
        if (host)
            check_recording(doctor, file);
        if (page && host)
            check_groups(doctor, file);
        if (page && loss)
            check_counters(doctor, file, page);
        free(page);
    }
}
