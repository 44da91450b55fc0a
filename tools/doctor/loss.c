/* loss.c - finds the stage at which packets on their way into running daemons are lost.  Reads the counters of every
 * stage twice.
 *
 * The stages begin with the cable.  The verdict is the first stage whose loss counters grew.  If no loss counter grew
 * but heaps are missing, the heaps were lost before they reached this host. */
#include "common/base/clock.h"
#include "common/base/units.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/drops.h"
#include "tools/doctor/http.h"
#include "tools/doctor/nic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* fraction of the expected heaps that may be absent, because chunks are in flight and the observation is short */
#define SHORT_MAX 0.1

enum place { /* the stages of a packet: first the stages of drops.h, then these stages */
             PLACE_WORKER = N_DROPS_STAGES,
             PLACE_REFUSED,
             PLACE_HEAPS, /* heaps lost before this host: heaps are missing, but no counter of an earlier stage
                           * grew */
             PLACE_MATCH,
             PLACE_OUTPUT,
             PLACE_SEND,
             N_PLACES
};

static const struct {
    const char *name, *what, *why, *fix;
    /* used instead of 'fix' if this run includes all topics; NULL: 'fix' is always used, because 'fix' names no other
     * topic */
    const char *fix_of_all;
} places[N_PLACES] = {
    /* In a fix, {interface} and {file} stand for the daemon's interface and file. */
    [STAGE_CABLE] = {"cable", "on the cable", "frames arrive damaged",
                     "clean or change the fibre and the transceiver; sudo ethtool -m {interface}"},
    [STAGE_NIC] =
        {"NIC", "in the NIC", "the NIC cannot write to memory as fast as packets arrive, or packets are too long",
         "sudo lspci -vv | grep LnkSta:; ip link show {interface}   # PCIe width and MTU; see cbf-doctor host "
         "{file}",
         "sudo lspci -vv | grep LnkSta:; ip link show {interface}   # PCIe width and MTU"},
    [STAGE_QUEUE] = {"NIC queue", "in the NIC's ring", "the kernel does not empty the ring in time",
                     "sudo ethtool -G {interface} rx 8192; sudo systemctl stop irqbalance   # see cbf-doctor host "
                     "{file}",
                     "sudo ethtool -G {interface} rx 8192; sudo systemctl stop irqbalance"},
    [STAGE_SOFTNET] = {"softnet", "in the kernel's backlog", "one CPU gets more packets than it can pass on",
                       "sudo sysctl -w net.core.netdev_max_backlog=100000   # interface {interface}"},
    [STAGE_IP] = {"IP", "in the kernel's IP layer", "packets are damaged, or some of their fragments are missing",
                  "ip link show {interface}   # a whole packet must fit in the MTU, at both ends"},
    [STAGE_SOCKET] =
        {"socket", "in the socket",
         "the receive thread does not empty the socket in time, or the socket buffer is too small for a burst",
         "raise recv.buffer (and net.core.rmem_max) or recv.threads in {file}, and pin the threads with "
         "recv.affinity; interface {interface}"},
    [PLACE_WORKER] = {"worker", "because no chunk was free", "the worker (the GPU or CPU that computes) is too slow",
                      "nvidia-smi dmon   # or top; then give this daemon fewer antennas or outputs, or raise "
                      "recv.chunks in {file}"},
    [PLACE_REFUSED] = {"refused", "as refused packets", "the packets do not match the configuration file",
                       "cbf-doctor config {file}; cbf-doctor streams {file}   # shows these packets and their sender",
                       "compare {file} with the settings of its senders"},
    [PLACE_HEAPS] = {"heaps", "before this host",
                     "no counter of this host grew: the sender did not send the heaps, or the "
                     "switch lost them",
                     "cbf-doctor streams {file}   # shows which sources; then look at the switch's counters of the "
                     "port to {interface}",
                     "look at the senders, then at the switch's counters of the port to {interface}"},
    [PLACE_MATCH] = {"match", "between the inputs",
                     "the chunk of the other polarisation did not come, or came too late",
                     "cbf-doctor streams {file}   # shows which input is late; or raise recv.chunks of fgpu, "
                     "recv.window of xbgpu",
                     "look at the input that is late; or raise recv.chunks of fgpu, recv.window of xbgpu"},
    [PLACE_OUTPUT] = {"output", "because no output buffer was free",
                      "the sender is too slow: its rate is too low, or it gets too little CPU time",
                      "raise send.rate_factor, buffers of the output, or send.threads in {file}"},
    [PLACE_SEND] = {"send", "because the kernel refused packets, or a NIC did not send packets",
                    "no route, a full queue, or packets too large", "ip route get 239.0.0.1; ip link show {interface}"},
};

/* Texts for PLACE_HEAPS if the daemon receives on the loopback interface. */
static const char loopback_why[] = "no counter of this host grew: the sender did not send the heaps";
static const char loopback_fix[] = "cbf-doctor streams {file}   # shows which sources; then look at their logs";
static const char loopback_fix_of_all[] = "look at the senders' logs";

/* The counters of a running daemon, before and after the observation. */
struct loss_watch {
    const struct doctor_file *file;
    char interface[IF_NAMESIZE];
    char *before, *after; /* text of /metrics */
    int64_t before_ns, after_ns;
    struct drops drops_before, drops_after;
    uint64_t losses[N_PLACES];
    char examples[N_PLACES][128]; /* [stage] name of the counter that grew most */
    uint64_t largest[N_PLACES];
    struct report *report;
};

/* ---- Expected heaps ---------------------------------------------------------------------------------------------- */

/* Returns the number of heaps that all sources should have sent during the observation, according to the host's clock.
 * Sets *chunks_heaps to the number of heaps in one chunk of every input.  The returned number may be wrong by
 * *chunks_heaps. */
static double expected_heaps(const struct loss_watch *w, double *chunks_heaps)
{
    double s = (double)(w->after_ns - w->before_ns) / (double)NS_PER_S;

    if (w->file->kind == DOCTOR_FGPU) {
        const struct fgpu_config *c = &w->file->fgpu;
        double inputs = (double)(c->antennas.n * N_POLS);
        *chunks_heaps = inputs * (double)(c->recv.chunk_samples / c->recv.packet_samples);
        return inputs * s * w->file->rate_hz / (double)c->recv.packet_samples;
    }
    const struct xbgpu_config_recv *recv = &w->file->xbgpu.recv;
    *chunks_heaps = (double)(recv->n_ants * recv->batches_per_chunk);
    return (double)recv->n_ants * s * w->file->rate_hz /
           (double)(recv->spectra_per_heap * recv->samples_between_spectra);
}

/* ---- Counters ---------------------------------------------------------------------------------------------------- */

static void put_row(struct loss_watch *w, const char *stage, const char *counter, uint64_t grew, bool loss)
{
    struct loss_row row = {.stage = stage, .grew = grew, .loss = loss};

    snprintf(row.file, sizeof(row.file), "%s", w->file->name);
    snprintf(row.counter, sizeof(row.counter), "%s", counter);
    report_add_row(w->report, &row);
}

static void add_row(struct loss_watch *w, enum place place, const char *counter, uint64_t grew, bool loss)
{
    put_row(w, places[place].name, counter, grew, loss);
    if (!loss || grew == 0)
        return;
    w->losses[place] += grew;
    if (grew > w->largest[place]) {
        w->largest[place] = grew;
        snprintf(w->examples[place], sizeof(w->examples[place]), "%s", counter);
    }
}

static uint64_t grew(const struct loss_watch *w, const char *name, const char *labels)
{
    double by = doctor_metrics_sum(w->after, name, labels) - doctor_metrics_sum(w->before, name, labels);

    return by > 0 ? (uint64_t)(by + 0.5) : 0;
}

static void add_host_rows(struct loss_watch *w)
{
    for (size_t stage = 0; stage < N_DROPS_STAGES; stage++)
        for (size_t i = 0; i < w->drops_after.n; i++) {
            const struct drops_counter *c = &w->drops_after.items[i];
            if (c->stage == stage)
                add_row(w, (enum place)stage, c->name, drops_grew(&w->drops_before, c), c->loss);
        }
}

/* Arguments of add_labelled(), which adds a row for each label set of a metric. */
struct labelled {
    struct loss_watch *w;
    const char *name;
};

static void add_labelled(void *arg, const char *name, const char *labels, double value)
{
    struct labelled *l = arg;
    char text[128], quoted[1100];

    if (strcmp(name, l->name) != 0)
        return;
    uint64_t by = grew(l->w, name, labels);
    if (by == 0)
        return; /* adds no row if the counter did not grow, because most of these counters never grow */
    snprintf(quoted, sizeof(quoted), "%s{%s}", name, labels);
    snprintf(text, sizeof(text), "%.127s", quoted);
    add_row(l->w, strstr(labels, "reason=\"no_chunk\"") ? PLACE_WORKER : PLACE_REFUSED, text, by, true);
    (void)value;
}

static void add_metric(struct loss_watch *w, enum place place, const char *prefix, const char *name, bool loss)
{
    char full[96];

    snprintf(full, sizeof(full), "%s_%s", prefix, name);
    add_row(w, place, full, grew(w, full, NULL), loss);
}

static void add_daemon_rows(struct loss_watch *w)
{
    bool f = w->file->kind == DOCTOR_FGPU;
    const char *in = f ? "fgpu_input" : "xbgpu_input", *daemon = f ? "fgpu" : "xbgpu";
    static const char *const refused[] = {"rejected_packets_total", "malformed_packets_total", "too_old_heaps_total",
                                          "bad_timestamp_heaps_total"};

    add_metric(w, (enum place)STAGE_SOCKET, in, "kernel_drops", true);
    add_metric(w, (enum place)STAGE_SOCKET, in, "packets_total", false);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        char name[96];
        snprintf(name, sizeof(name), "%s_%s", in, refused[i]);
        struct labelled l = {w, name};
        doctor_metrics_each(w->after, add_labelled, &l);
    }
    add_metric(w, PLACE_HEAPS, in, "heaps_total", false);
    add_metric(w, PLACE_HEAPS, in, "missing_heaps_total", true);
    add_metric(w, PLACE_HEAPS, in, "incomplete_heaps_total", false);
    add_metric(w, PLACE_HEAPS, in, "contested_heaps_total", false);
    if (f)
        add_metric(w, PLACE_MATCH, daemon, "unmatched_chunks_total", true);
    add_metric(w, PLACE_MATCH, daemon, "late_chunks_total", true);
    if (f) {
        add_metric(w, PLACE_OUTPUT, daemon, "output_heaps_total", false);
        add_metric(w, PLACE_OUTPUT, daemon, "output_skipped_heaps_total", false);
        add_metric(w, PLACE_OUTPUT, daemon, "output_dropped_heaps_total", true);
        add_metric(w, PLACE_SEND, daemon, "output_failed_packets_total", true);
    } else {
        add_metric(w, PLACE_OUTPUT, daemon, "output_x_heaps_total", false);
        add_metric(w, PLACE_OUTPUT, daemon, "output_x_incomplete_accs_total", false);
        add_metric(w, PLACE_OUTPUT, daemon, "output_x_dropped_accs_total", true);
        add_metric(w, PLACE_SEND, daemon, "output_x_failed_packets_total", true);
    }
}

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

/* The received and missing heaps of all sources during the observation.  The sources are inputs for fgpu, and F-engines
 * for xbgpu. */
struct sources {
    struct loss_watch *w;
    size_t n, n_silent, n_losing;
    uint64_t n_missing;                  /* number of missing heaps from sources that are not silent */
    char silent[200], losing[200];       /* names of silent sources, and of sources with losses, with the time of
                                          * silence or the fraction of lost heaps */
    char files[400];                     /* paths of the fgpu files of silent F-engines, if these files were given */
    const struct doctor_file *last_fgpu; /* file that was last added to 'files' */
    const json_t *status;                /* NULL: not known */
    const struct doctor *doctor;
};

static void read_label(const char *labels, const char *name, char *value, size_t value_bytes)
{
    char key[32];

    snprintf(key, sizeof(key), "%s=\"", name);
    const char *at = strstr(labels, key);
    snprintf(value, value_bytes, "%.*s", at ? (int)strcspn(at + strlen(key), "\"") : 0, at ? at + strlen(key) : "");
}

/* Appends a name to a list such as "a, b".  Cuts a name that does not fit. */
static void append(char *list, size_t list_bytes, const char *name)
{
    size_t used = strlen(list);

    snprintf(list + used, list_bytes - used, "%s%s", used ? ", " : "", name);
}

/* Writes the state of F-engine 'feng': "dead: nothing since the start", or "silent since 12 s ago"; "" if not known. */
static void say_state(const struct sources *s, size_t feng, double total, char *text, size_t text_bytes)
{
    const json_t *row = json_array_get(json_object_get(s->status, "fengs"), feng);
    double since_s = json_number_value(json_object_get(row, "since"));
    char ago[DOCTOR_AGO_BYTES];

    if (total == 0)
        snprintf(text, text_bytes, " (dead: nothing since the engine's start)");
    else if (since_s > 0)
        snprintf(text, text_bytes, " (silent since %s)",
                 doctor_ago((double)clock_unix_ns() / (double)NS_PER_S - since_s, ago));
    else
        text[0] = '\0';
}

static void add_fgpu(struct sources *s, const struct doctor_file *fgpu)
{
    if (!fgpu || fgpu == s->last_fgpu)
        return;
    size_t used = strlen(s->files);
    snprintf(s->files + used, sizeof(s->files) - used, "%s ", fgpu->path);
    s->last_fgpu = fgpu;
}

static void add_source(void *arg, const char *name, const char *labels, double value)
{
    struct sources *s = arg;
    bool f = s->w->file->kind == DOCTOR_FGPU;
    const struct doctor_file *fgpu = NULL;
    char antenna[DOCTOR_NAME_BYTES], part[16], text[200], state[80] = "";

    if (strcmp(name, f ? "fgpu_input_heaps_total" : "xbgpu_feng_heaps_total") != 0)
        return;
    read_label(labels, "antenna", antenna, sizeof(antenna));
    read_label(labels, f ? "pol" : "feng", part, sizeof(part));
    uint64_t got = grew(s->w, name, labels);
    uint64_t missing = grew(s->w, f ? "fgpu_input_missing_heaps_total" : "xbgpu_feng_missing_heaps_total", labels);
    s->n++;
    if (!f)
        doctor_antenna(s->doctor, s->w->file, strtoul(part, NULL, 10), &fgpu, antenna);
    snprintf(text, sizeof(text), "%s%s%s", antenna, f ? " pol " : "", f ? part : "");
    if (got == 0) {
        say_state(s, f ? SIZE_MAX : strtoul(part, NULL, 10), value, state, sizeof(state));
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s", state);
        append(s->silent, sizeof(s->silent), text);
        add_fgpu(s, fgpu);
        s->n_silent++;
    } else if (missing > 0) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, " (%.2g %%)", 100 * (double)missing / (double)(got + missing));
        append(s->losing, sizeof(s->losing), text);
        s->n_missing += missing;
        s->n_losing++;
    }
}

/* ---- Verdict ----------------------------------------------------------------------------------------------------- */

static bool is_loopback(const struct loss_watch *w)
{
    return strcmp(w->interface, "lo") == 0;
}

/* Replaces each occurrence of 'word' in 'text'. */
static void replace(char *text, size_t text_bytes, const char *word, const char *with)
{
    char rest[512];

    for (char *at = text; (at = strstr(at, word)); at += strlen(with)) {
        size_t room_bytes = text_bytes - (size_t)(at - text), n = strlen(with);
        if (n >= room_bytes)
            return;
        snprintf(rest, sizeof(rest), "%s", at + strlen(word));
        memcpy(at, with, n);
        snprintf(at + n, room_bytes - n, "%s", rest);
    }
}

static void say_fix(struct finding *f, const struct loss_watch *w, const char *format)
{
    char text[400];

    snprintf(text, sizeof(text), "%s", format);
    replace(text, sizeof(text), "{interface}", w->interface[0] ? w->interface : "INTERFACE");
    replace(text, sizeof(text), "{file}", w->file->path);
    SAY(f->fix, "%s", text);
}

/* Reports silent sources.  Called only if no counter of a stage before PLACE_HEAPS shows a loss.  So this host's
 * counters do not explain the silence. */
static void report_silent(struct doctor *doctor, const struct loss_watch *w, const struct sources *s, double seconds)
{
    bool all = doctor_runs(doctor, TOPIC_STREAMS);
    bool fgpu = w->file->kind == DOCTOR_FGPU;
    struct finding *f = doctor_add(doctor, FINDING_FAIL, "loss.verdict", w->file->name);

    SAY(f->found, "in %.1f s nothing came from %zu of %zu %s: %s%s%s", seconds, s->n_silent, s->n,
        fgpu ? "inputs" : "F-engines", s->silent, s->n_losing ? "; heaps were lost from " : "", s->losing);
    SAY(f->expected, "heaps from all %zu", s->n);
    if (fgpu) {
        SAY(f->why, "the digitiser is off or sends elsewhere%s", is_loopback(w) ? "" : ", or the network loses heaps");
        if (all)
            SAY(f->fix, "look at the digitiser and its cable");
        else
            SAY(f->fix, "cbf-doctor streams %s   # shows what arrives; then look at the digitiser and its cable",
                w->file->path);
        return;
    }
    SAY(f->why, "the heaps were lost before this host: the antenna's fgpu does not run, or receives nothing itself%s",
        is_loopback(w) ? "" : ", or the switch does not forward the group");
    if (all)
        SAY(f->fix, "systemctl status 'fgpu@*'   # on the host of the fgpu%s%.*s", s->files[0] ? " of " : "",
            s->files[0] ? (int)strlen(s->files) - 1 : 0, s->files);
    else
        SAY(f->fix, "cbf-doctor streams %s%s   # shows the stage; on the host of the fgpu: systemctl status 'fgpu@*'",
            s->files, w->file->path);
}

/* Returns the first stage at which heaps were lost; N_PLACES: no stage. */
static int find_place(struct loss_watch *w, const struct sources *s, uint64_t missing)
{
    /* Counters of the whole host also count packets of other protocols and other programs.  So these counters alone do
     * not show a loss of heaps.  If no heap is missing, the search skips these counters and begins at the daemon's
     * socket. */
    uint64_t flowing = s->n > 0 ? s->n_missing : missing;
    int place = flowing > 0 ? 0 : STAGE_SOCKET;

    w->losses[PLACE_HEAPS] = flowing;
    snprintf(w->examples[PLACE_HEAPS], sizeof(w->examples[PLACE_HEAPS]), "%" PRIu64 " heap%s missing", flowing,
             plural(flowing));
    while (place < N_PLACES && w->losses[place] == 0)
        place++;
    return place;
}

static bool is_of_time(const char *example)
{
    return strstr(example, "reason=\"jump\"") || strstr(example, "reason=\"clock\"");
}

static void judge(struct doctor *doctor, struct loss_watch *w)
{
    const char *in = w->file->kind == DOCTOR_FGPU ? "fgpu_input" : "xbgpu_input";
    char heaps_name[64], missing_name[64];
    double chunks_heaps, expected = expected_heaps(w, &chunks_heaps);
    json_t *status = doctor_status_get(&w->file->http->listen.items[0]);
    struct sources sources = {.w = w, .status = status, .doctor = doctor};

    snprintf(heaps_name, sizeof(heaps_name), "%s_heaps_total", in);
    snprintf(missing_name, sizeof(missing_name), "%s_missing_heaps_total", in);
    uint64_t got = grew(w, heaps_name, NULL), missing = grew(w, missing_name, NULL);
    doctor_metrics_each(w->after, add_source, &sources);
    json_decref(status);
    double s = (double)(w->after_ns - w->before_ns) / (double)NS_PER_S;
    int place = find_place(w, &sources, missing);
    bool enough = expected > 2 * chunks_heaps; /* open chunks may still contain 2 * chunks_heaps heaps */
    if (sources.n_silent > 0 && enough && (place == N_PLACES || place >= PLACE_HEAPS)) {
        report_silent(doctor, w, &sources, s);
        return;
    }
    double lacking = expected - (double)got - (double)missing;
    if (place == N_PLACES && lacking >= SHORT_MAX * expected + 2 * chunks_heaps) {
        place = PLACE_HEAPS;
        w->losses[place] = (uint64_t)lacking;
        snprintf(w->examples[place], sizeof(w->examples[place]), "by the clock");
    }
    struct finding *f =
        doctor_add(doctor, place == N_PLACES ? FINDING_OK : FINDING_FAIL, "loss.verdict", w->file->name);
    if (place == N_PLACES) {
        SAY(f->found, "nothing was lost in %.1f s: %" PRIu64 " heaps came, %.0f were expected", s, got, expected);
        return;
    }
    SAY(f->found, "in %.1f s %" PRIu64 " were lost %s (%s)%s%s%s%s; %" PRIu64 " heaps came, %" PRIu64 " are missing", s,
        w->losses[place], places[place].what, w->examples[place], sources.n_losing ? ", of " : "", sources.losing,
        sources.n_silent ? "; nothing came from " : "", sources.silent, got, missing);
    SAY(f->expected, "no loss");
    if (place == PLACE_REFUSED && is_of_time(w->examples[place])) {
        SAY(f->why, "their timestamps are far from the other heaps' timestamps, or from this host's clock");
        SAY(f->fix, "look at the sender's delays, its sync_time and its clock");
        return;
    }
    bool here = place == PLACE_HEAPS && is_loopback(w);
    const char *fix_of_all = here ? loopback_fix_of_all : places[place].fix_of_all;
    SAY(f->why, "%s", here ? loopback_why : places[place].why);
    if (fix_of_all && doctor_runs(doctor, TOPIC_STREAMS))
        say_fix(f, w, fix_of_all);
    else
        say_fix(f, w, here ? loopback_fix : places[place].fix);
}

/* ---- All files --------------------------------------------------------------------------------------------------- */

/* Reports a file if the file's daemon does not answer.  If daemons of other files answer, the array runs.  The file's
 * daemon should then run, too. */
static void report_no_answer(struct doctor *doctor, const struct doctor_file *file, bool others_answer)
{
    bool can_answer = file->http->listen.n > 0;
    enum finding_status bad = doctor->topics == TOPIC_LOSS ? FINDING_FAIL : FINDING_WARN;
    struct finding *f =
        doctor_add(doctor, can_answer && others_answer ? bad : FINDING_SKIPPED, "loss.verdict", file->name);

    if (!can_answer)
        SAY(f->found, "the file has no http.listen: the daemon's counters cannot be read");
    else if (doctor_file_runs(file))
        SAY(f->found, "its daemon runs, but does not answer this host at http.listen");
    else
        SAY(f->found, "its daemon does not run here: no program answers at http.listen");
    if (f->status == FINDING_SKIPPED)
        return;
    SAY(f->expected, "an answer, because daemons of other files answer");
    SAY(f->why, "the daemon or its host is down, or http.allow does not name this host");
    SAY(f->fix, "systemctl status '%s@*'   # on the daemon's host", file->kind == DOCTOR_FGPU ? "fgpu" : "xbgpu");
}

/* Reads the daemon's counters for the first time.  Returns false if the daemon does not answer. */
static bool start_watch(struct doctor *doctor, const struct doctor_file *file, struct loss_watch *w)
{
    memset(w, 0, sizeof(*w));
    w->file = file;
    w->report = &doctor->report;
    if (file->http->listen.n == 0 || !(w->before = doctor_metrics_get(&file->http->listen.items[0])))
        return false;
    w->before_ns = clock_monotonic_ns();
    if (!nic_name(file->recv->interface, w->interface))
        w->interface[0] = '\0';
    drops_read(doctor->root, w->interface, &w->drops_before);
    return true;
}

void doctor_check_loss(struct doctor *doctor)
{
    struct loss_watch *watches = calloc(doctor->n_files + 1, sizeof(*watches));
    const struct doctor_file **silent = calloc(doctor->n_files + 1, sizeof(const struct doctor_file *));
    size_t n = 0, n_silent = 0;

    if (!watches || !silent)
        abort();
    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        if (start_watch(doctor, file, &watches[n]))
            n++;
        else
            silent[n_silent++] = file;
    }
    for (size_t i = 0; i < n_silent; i++)
        report_no_answer(doctor, silent[i], n > 0);
    free(silent);
    if (doctor->n_files == 0)
        doctor_note(doctor, FINDING_SKIPPED, "loss.verdict", "", "no file was given");
    if (n > 0)
        clock_sleep_until(clock_monotonic_ns() + (int64_t)(doctor->seconds * (double)NS_PER_S));
    for (size_t i = 0; i < n; i++) {
        struct loss_watch *w = &watches[i];
        w->after = doctor_metrics_get(&w->file->http->listen.items[0]);
        w->after_ns = clock_monotonic_ns();
        drops_read(doctor->root, w->interface, &w->drops_after);
        if (!w->after) {
            struct finding *f = doctor_add(doctor, FINDING_FAIL, "loss.verdict", w->file->name);
            SAY(f->found, "the daemon has stopped answering");
            SAY(f->expected, "an answer within 2 s");
            SAY(f->why, "the daemon has ended, or hangs");
            SAY(f->fix, "journalctl -n 50 -u '%s@*'", w->file->kind == DOCTOR_FGPU ? "fgpu" : "xbgpu");
        } else {
            double chunks_heaps;
            put_row(w, "source", "heaps expected by the clock", (uint64_t)expected_heaps(w, &chunks_heaps), false);
            add_host_rows(w);
            add_daemon_rows(w);
            judge(doctor, w);
        }
        free(w->before);
        free(w->after);
    }
    free(watches);
}
