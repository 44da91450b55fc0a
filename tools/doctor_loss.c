/* doctor_loss.c - where packets are lost on their way into running daemons: counters of every stage, read twice.
 *
 * The verdict is the first stage, from the cable on, whose counters of losses grew; where none did but heaps are
 * missing, they were lost before this host. */
#include "common/clock.h"
#include "common/units.h"
#include "tools/doctor.h"
#include "tools/doctor_drops.h"
#include "tools/doctor_http.h"
#include "tools/doctor_nic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHORT_MAX 0.1 /* of the heaps expected by the clock: what chunks in flight and a short look can hide */

enum place { /* the stages of drops, and then */
             PLACE_WORKER = N_DROPS_STAGES,
             PLACE_REFUSED,
             PLACE_HEAPS, /* where none of the above lost them, they were lost before this host */
             PLACE_MATCH,
             PLACE_OUTPUT,
             PLACE_SEND,
             N_PLACES
};

static const struct {
    const char *name, *what, *why, *fix;
} places[N_PLACES] = {
    [STAGE_CABLE] = {"cable", "on the cable", "frames arrive damaged",
                     "clean or change the fibre and the transceiver; sudo ethtool -m %s"},
    [STAGE_NIC] = {"NIC", "in the network card",
                   "it cannot write to memory as fast as packets come, or they are too long",
                   "sudo lspci -vv | grep LnkSta:; ip link show %s   # PCIe width and MTU; see cbf-doctor host"},
    [STAGE_QUEUE] = {"NIC queue", "in the network card's ring", "the kernel does not empty it in time",
                     "sudo ethtool -G %s rx 8192; sudo systemctl stop irqbalance   # see cbf-doctor host"},
    [STAGE_SOFTNET] = {"softnet", "in the kernel's backlog", "one CPU gets more packets than it can hand on",
                       "sudo sysctl -w net.core.netdev_max_backlog=100000   # interface %s"},
    [STAGE_IP] = {"IP", "in the kernel's IP layer", "packets are damaged, or fragments of them are missing",
                  "ip link show %s   # the MTU must hold whole packets, at both ends"},
    [STAGE_SOCKET] = {"socket", "in the socket",
                      "the receive thread does not empty it in time, or it is too small for a "
                      "burst",
                      "raise recv.buffer (and net.core.rmem_max) or recv.threads, and pin them with recv.affinity; "
                      "interface %s"},
    [PLACE_WORKER] = {"worker", "no free chunk",
                      "the worker, that is the GPU or the CPU that computes, is "
                      "behind",
                      "nvidia-smi dmon   # or top; fewer antennas or outputs for this daemon, or more recv.chunks; "
                      "interface %s"},
    [PLACE_REFUSED] =
        {"refused", "as refused packets", "they are not what the file expects",
         "cbf-doctor config; cbf-doctor streams   # with this file: which packets, and whose; interface %s"},
    [PLACE_HEAPS] = {"heaps", "before this host",
                     "no counter of this host grew: the sender did not send them, or the "
                     "switch lost them",
                     "cbf-doctor streams   # which sources; then the switch's counters of the port to %s"},
    [PLACE_MATCH] = {"match", "between the inputs", "the other polarisation's chunk did not come, or came too late",
                     "raise recv.chunks of fgpu, recv.window of xbgpu, or look at why one input is behind: cbf-doctor "
                     "streams; interface %s"},
    [PLACE_OUTPUT] = {"output", "no free output buffer", "the sender is behind: too little pace, or no CPU",
                      "raise send.rate_factor, buffers of the output, or send.threads; interface %s"},
    [PLACE_SEND] = {"send", "as packets that the kernel refused or a card did not send",
                    "no route, a full queue, or packets too large", "ip route get 239.0.0.1; ip link show %s"},
};

/* A file whose daemon runs. */
struct loss_watch {
    const struct doctor_file *file;
    char interface[IF_NAMESIZE];
    char *before, *after; /* /metrics */
    int64_t before_ns, after_ns;
    struct drops drops_before, drops_after;
    uint64_t losses[N_PLACES];
    char examples[N_PLACES][128]; /* the counter that grew most */
    uint64_t largest[N_PLACES];
    struct report *report;
};

/* ---- What should come -------------------------------------------------------------------------------------------- */

/* Heaps that the inputs should have had in the time, by the clock; and by how many chunks they may be off. */
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

static void add_row(struct loss_watch *w, enum place place, const char *counter, uint64_t grew, bool loss)
{
    struct loss_row row = {.stage = places[place].name, .grew = grew, .loss = loss};

    snprintf(row.file, sizeof(row.file), "%s", w->file->name);
    snprintf(row.counter, sizeof(row.counter), "%s", counter);
    report_add_row(w->report, &row);
    if (!loss || grew == 0)
        return;
    w->losses[place] += grew;
    if (grew > w->largest[place]) {
        w->largest[place] = grew;
        snprintf(w->examples[place], sizeof(w->examples[place]), "%s", counter);
    }
}

static void add_source_row(struct loss_watch *w)
{
    double chunks_heaps;
    struct loss_row row = {.stage = "source", .counter = "heaps, by the clock"};

    snprintf(row.file, sizeof(row.file), "%s", w->file->name);
    row.grew = (uint64_t)expected_heaps(w, &chunks_heaps);
    report_add_row(w->report, &row);
}

static uint64_t grew(const struct loss_watch *w, const char *name, const char *labels)
{
    double by = metrics_sum(w->after, name, labels) - metrics_sum(w->before, name, labels);

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

/* Samples of some metrics are rows of their own, with their labels. */
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
        return; /* most never do */
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
        metrics_each(w->after, add_labelled, &l);
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

/* ---- Verdict ----------------------------------------------------------------------------------------------------- */

static void judge(struct doctor *doctor, struct loss_watch *w)
{
    const char *in = w->file->kind == DOCTOR_FGPU ? "fgpu_input" : "xbgpu_input";
    char heaps_name[64], missing_name[64];
    double chunks_heaps, expected = expected_heaps(w, &chunks_heaps);
    int place;

    snprintf(heaps_name, sizeof(heaps_name), "%s_heaps_total", in);
    snprintf(missing_name, sizeof(missing_name), "%s_missing_heaps_total", in);
    uint64_t got = grew(w, heaps_name, NULL), missing = grew(w, missing_name, NULL);
    double lacking = expected - (double)got - (double)missing;
    if (lacking < SHORT_MAX * expected + 2 * chunks_heaps)
        lacking = 0; /* of inputs that are silent nothing is missing, in the daemon's words */
    if (missing > 0 || lacking > 0) {
        w->losses[PLACE_HEAPS] = missing + (uint64_t)lacking;
        snprintf(w->examples[PLACE_HEAPS], sizeof(w->examples[PLACE_HEAPS]),
                 "%" PRIu64 " heaps missing, %.0f of silent sources", missing, lacking);
    }
    /* Counters of the whole host also count what nobody here wants: other protocols, other programs' packets. */
    place = w->losses[PLACE_HEAPS] > 0 ? 0 : STAGE_SOCKET;
    while (place < N_PLACES && w->losses[place] == 0)
        place++;
    double s = (double)(w->after_ns - w->before_ns) / (double)NS_PER_S;
    struct finding *f =
        report_add(&doctor->report, place == N_PLACES ? FINDING_OK : FINDING_FAIL, "loss.verdict", w->file->name);
    if (place == N_PLACES) {
        SAY(f->found, "nothing was lost in %.1f s: %" PRIu64 " heaps came, %.0f were expected", s, got, expected);
        return;
    }
    SAY(f->found, "in %.1f s %" PRIu64 " were lost %s (%s); %" PRIu64 " heaps came, %" PRIu64 " are missing", s,
        w->losses[place], places[place].what, w->examples[place], got, missing);
    SAY(f->expected, "no loss");
    SAY(f->why, "%s", places[place].why);
    char fix[400]; /* the text of the table has the interface's place */
    const char *at = strstr(places[place].fix, "%s");
    snprintf(fix, sizeof(fix), "%.*s%s%s", (int)(at - places[place].fix), places[place].fix,
             w->interface[0] ? w->interface : "the route's", at + 2);
    SAY(f->fix, "%s", fix);
}

/* ---- All files --------------------------------------------------------------------------------------------------- */

static bool start_watch(struct doctor *doctor, const struct doctor_file *file, struct loss_watch *w)
{
    memset(w, 0, sizeof(*w));
    w->file = file;
    w->report = &doctor->report;
    if (file->http->listen.n == 0 || !(w->before = metrics_get(&file->http->listen.items[0], NULL))) {
        struct finding *f = report_add(&doctor->report, FINDING_SKIPPED, "loss.verdict", file->name);
        if (file->http->listen.n == 0)
            SAY(f->found, "the file has no http.listen, where the daemon's counters would be");
        else if (doctor_file_runs(file))
            SAY(f->found, "its daemon runs, but does not answer this host at http.listen");
        else
            SAY(f->found, "its daemon does not run here: nobody answers at http.listen");
        return false;
    }
    w->before_ns = clock_monotonic_ns();
    if (!nic_name(file->recv_interface, w->interface))
        w->interface[0] = '\0';
    drops_read(doctor->root, w->interface, &w->drops_before);
    return true;
}

void doctor_check_loss(struct doctor *doctor)
{
    struct loss_watch *watches = calloc(doctor->n_files + 1, sizeof(*watches));
    size_t n = 0;

    if (!watches)
        abort();
    for (size_t i = 0; i < doctor->n_files; i++)
        if (doctor->files[i].ok)
            n += start_watch(doctor, &doctor->files[i], &watches[n]);
    if (doctor->n_files == 0)
        SAY(report_add(&doctor->report, FINDING_SKIPPED, "loss.verdict", "")->found, "no file was given");
    if (n > 0)
        clock_sleep_until(clock_monotonic_ns() + (int64_t)(doctor->seconds * (double)NS_PER_S));
    for (size_t i = 0; i < n; i++) {
        struct loss_watch *w = &watches[i];
        w->after = metrics_get(&w->file->http->listen.items[0], NULL);
        w->after_ns = clock_monotonic_ns();
        drops_read(doctor->root, w->interface, &w->drops_after);
        if (!w->after) {
            struct finding *f = report_add(&doctor->report, FINDING_FAIL, "loss.verdict", w->file->name);
            SAY(f->found, "the daemon answered, but does not any more");
            SAY(f->expected, "an answer within 2 s");
            SAY(f->why, "it has ended, or hangs");
            SAY(f->fix, "journalctl -n 50 -u '%s@*'", w->file->kind == DOCTOR_FGPU ? "fgpu" : "xbgpu");
        } else {
            add_source_row(w);
            add_host_rows(w);
            add_daemon_rows(w);
            judge(doctor, w);
        }
        free(w->before);
        free(w->after);
    }
    free(watches);
}
