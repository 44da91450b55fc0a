/* engine.c - reports what /status.json of running engines shows: silent sources, the troubles of the last minute, an
 * unsynchronised clock, and wrong delays.
 *
 * Flow: /status.json of each file's engine --> sorted troubles --> findings: failures first, F-engines before
 *       X-engines. */
#include "common/base/clock.h"
#include "common/base/units.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/http.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F_TO_X          "F-engine to X-engine" /* stage of history.h */
#define HOST_CLOCK      "host clock"           /* stage of history.h */
#define MINUTE_S        60
#define START_S         3  /* time after the start of an engine during which silent sources are normal */
#define TROUBLES_MAX    30 /* greatest number of troubles that are reported one by one */
#define MAX_NAMED_BEAMS 8
#define DELAY_MAX_S     1e-3 /* greatest normal difference between delays of an array; light travels 300 km in 1 ms */
#define DELAY_FAIL_S    0.1  /* light crosses the Earth in 0.043 s, so a larger difference is a failure */

struct trouble {
    enum finding_status status;
    const struct doctor_file *file;
    const char *stage, *what; /* static texts, or texts that belong to the engine's status */
    bool silent;
    size_t n_alike; /* number of other X-engines that report the same trouble of this antenna */
    char where[128], found[300], why[200], fix[512];
    double since_unix_s; /* 0: not known */
};

struct engines {
    struct doctor *doctor;
    double now_unix_s;
    size_t n, n_answers;
    struct trouble *troubles;
};

struct delay {
    const struct doctor_file *file;
    const char *stream, *antenna;
    size_t pol;
    double delay_s, since_unix_s;
};

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

char *doctor_ago(double s, char text[DOCTOR_AGO_BYTES])
{
    if (s < 120)
        snprintf(text, DOCTOR_AGO_BYTES, "%.0f s ago", s < 0 ? 0 : s);
    else if (s < 7200)
        snprintf(text, DOCTOR_AGO_BYTES, "%.0f min ago", s / 60);
    else
        snprintf(text, DOCTOR_AGO_BYTES, "%.0f h ago", s / 3600);
    return text;
}

/* ---- Troubles ---------------------------------------------------------------------------------------------------- */

/* Returns true if the list already contains the cause of 'new', or the same trouble from another X-engine.  The silence
 * of a source is the cause of the source's losses.  Several X-engines report the same trouble of the same F-engine. */
static bool is_known(struct engines *engines, const struct trouble *new)
{
    for (size_t i = 0; i < engines->n; i++) {
        struct trouble *t = &engines->troubles[i];
        if (strcmp(t->where, new->where) != 0 || !new->where[0] || strcmp(t->stage, new->stage) != 0)
            continue;
        bool both_x = t->file->kind == DOCTOR_XBGPU && new->file->kind == DOCTOR_XBGPU;
        if ((both_x || t->file == new->file) && t->silent && !new->silent)
            return true;
        if (t->file == new->file || !both_x || strcmp(t->what, new->what) != 0)
            continue;
        t->n_alike++;
        return true;
    }
    return false;
}

static void add(struct engines *engines, const struct trouble *new)
{
    if (is_known(engines, new))
        return;
    struct trouble *troubles = realloc(engines->troubles, (engines->n + 1) * sizeof(*troubles));

    if (!troubles)
        abort();
    engines->troubles = troubles;
    troubles[engines->n++] = *new;
}

/* Returns the name of an antenna.  An xbgpu without recv.antenna_names uses the names a0, a1 and so on.  The real name
 * may be in the file of the antenna's fgpu. */
static const char *real_name(const struct doctor *doctor, const struct doctor_file *file, const json_t *status,
                             const char *where, char text[DOCTOR_NAME_BYTES])
{
    const json_t *fengs = json_object_get(status, "fengs");
    const struct doctor_file *fgpu;

    for (size_t i = 0; file->kind == DOCTOR_XBGPU && i < json_array_size(fengs); i++)
        if (strcmp(text_of(json_array_get(fengs, i), "antenna"), where) == 0) {
            doctor_antenna(doctor, file, i, &fgpu, text);
            return fgpu || file->xbgpu.recv.antenna_names ? text : where;
        }
    return where;
}

/* Appends the engine's advice to the fix.  The advice consists of clauses, separated by semicolons.  Adds the file's
 * path to each cbf-doctor command.  Omits a clause whose command this run includes. */
static void say_advice(const struct doctor *doctor, struct trouble *t, const char *advice)
{
    static const struct {
        const char *text;
        enum doctor_topic topic;
    } commands[] = {{"cbf-doctor streams", TOPIC_STREAMS}, {"cbf-doctor loss", TOPIC_LOSS}};

    while (*advice) {
        const char *at = NULL;
        size_t n = strcspn(advice, ";"), c;
        for (c = 0; c < ARRAY_LEN(commands) && !at; c += !at)
            at = memmem(advice, n, commands[c].text, strlen(commands[c].text));
        const char *rest = at ? at + strlen(commands[c].text) : advice;
        const char *separator = t->fix[0] ? "; " : "";
        size_t used = strlen(t->fix);
        if (at && !doctor_runs(doctor, commands[c].topic))
            snprintf(t->fix + used, sizeof(t->fix) - used, "%s%.*s %s%.*s", separator, (int)(rest - advice), advice,
                     t->file->path, (int)(advice + n - rest), rest);
        else if (!at)
            snprintf(t->fix + used, sizeof(t->fix) - used, "%s%.*s", separator, (int)n, advice);
        advice += n;
        advice += strspn(advice, "; ");
    }
    if (!t->fix[0])
        SAY(t->fix, "look at the status page and the log of the engine of %s", t->file->path);
}

/* Adds the troubles of the engine's history (history.h) that are ongoing or occurred in the last minute. */
static void take_history(struct engines *engines, const struct doctor_file *file, const json_t *status)
{
    const json_t *rows = json_object_get(status, "troubles");
    char first[DOCTOR_AGO_BYTES], last[DOCTOR_AGO_BYTES], name[DOCTOR_NAME_BYTES];

    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double last_s = number_of(row, "last"), since_s = number_of(row, "since");
        bool ongoing = json_is_true(json_object_get(row, "ongoing")), bad = strcmp(text_of(row, "level"), "bad") == 0;
        bool in_seconds = text_of(row, "unit")[0] == 's';
        if (!ongoing && engines->now_unix_s - last_s > MINUTE_S)
            continue;
        if (ongoing && strcmp(text_of(row, "stage"), F_TO_X) == 0)
            continue; /* take_silent() reports silent F-engines, with more detail */
        if (strcmp(text_of(row, "stage"), HOST_CLOCK) == 0)
            continue; /* take_clock() reports an unsynchronised clock */
        struct trouble t = {.status = ongoing || bad ? FINDING_FAIL : FINDING_WARN,
                            .file = file,
                            .stage = text_of(row, "stage"),
                            .what = text_of(row, "what"),
                            .silent = ongoing,
                            .since_unix_s = since_s};
        SAY(t.where, "%s", real_name(engines->doctor, file, status, text_of(row, "where"), name));
        doctor_ago(engines->now_unix_s - since_s, first);
        doctor_ago(engines->now_unix_s - last_s, last);
        if (ongoing)
            SAY(t.found, "%s: %s since %s", text_of(row, "stage"), text_of(row, "what"), first);
        else if (in_seconds)
            SAY(t.found, "%s: %s for %.0f s of the last minute, until %s", text_of(row, "stage"), text_of(row, "what"),
                number_of(row, "n_minute"), last);
        else
            SAY(t.found, "%s: %s, %.0f in the last minute, first %s, last %s", text_of(row, "stage"),
                text_of(row, "what"), number_of(row, "n_minute"), first, last);
        if (ongoing || in_seconds)
            SAY(t.why, "the later stages lack these data");
        else
            SAY(t.why, "data are lost or wrong: %.0f in the last hour", number_of(row, "n_hour"));
        say_advice(engines->doctor, &t, text_of(row, "advice"));
        add(engines, &t);
    }
}

/* Writes a fix that names the likely place of the fault, for example the fgpu of antenna 'feng_id'.  'feng_id' is
 * SIZE_MAX if the source is a digitiser. */
static void say_where_to_look(const struct doctor *doctor, const struct doctor_file *file, size_t feng_id,
                              struct trouble *t)
{
    const char *place = file->kind == DOCTOR_FGPU ? "the digitiser, its cable and its switch port"
                                                  : "the F-engine and its host, then at the switch";
    const struct doctor_file *fgpu = NULL;
    char name[DOCTOR_NAME_BYTES] = "", instance[NAME_MAX];

    if (feng_id != SIZE_MAX)
        doctor_antenna(doctor, file, feng_id, &fgpu, name);
    bool gone = fgpu && !doctor_file_runs(fgpu);
    if (gone && doctor_file_instance(doctor, fgpu, instance))
        SAY(t->fix, "systemctl status fgpu@%s; journalctl -n 50 -u fgpu@%s   # the fgpu of %s (%s) does not run here",
            instance, instance, name, fgpu->path);
    else if (gone)
        SAY(t->fix, "fgpu %s   # starts the fgpu of %s, which does not run here; its log says why it ended", fgpu->path,
            name);
    else if (doctor_runs(doctor, TOPIC_STREAMS))
        SAY(t->fix, "look at %s", place);
    else
        SAY(t->fix, "cbf-doctor streams %s%s%s   # shows what arrives; then look at %s", fgpu ? fgpu->path : "",
            fgpu ? " " : "", file->path, place);
}

/* Returns the UNIX time since which a source has been silent.  Returns 0 if the source is not silent, or if
 * take_history() reports the silence. */
static double silent_since(const json_t *source, double start_unix_s)
{
    if (number_of(json_object_get(source, "heaps"), "total") == 0)
        return start_unix_s;
    return strcmp(text_of(source, "state"), "silent") == 0 ? number_of(source, "since") : 0;
}

/* Adds sources that are silent, or from which no data have arrived since the start. */
static void take_silent(struct engines *engines, const struct doctor_file *file, const json_t *status)
{
    bool f = file->kind == DOCTOR_FGPU;
    const json_t *sources = json_object_get(status, f ? "inputs" : "fengs");
    const char *stage = f ? "digitiser to F-engine" : F_TO_X, *any = f ? "any input" : "any F-engine";
    double start_s = number_of(status, "start_time"), since_s;
    size_t n = json_array_size(sources), n_dead = 0;
    char ago[DOCTOR_AGO_BYTES], where[128], name[DOCTOR_NAME_BYTES];

    for (size_t i = 0; i < n; i++)
        n_dead += silent_since(json_array_get(sources, i), start_s) == start_s;
    for (size_t i = 0; i < n && engines->now_unix_s - start_s > START_S; i++) {
        const json_t *source = json_array_get(sources, i);
        if ((since_s = silent_since(source, start_s)) == 0)
            continue;
        snprintf(where, sizeof(where), "%s%s%s",
                 real_name(engines->doctor, file, status, text_of(source, "antenna"), name), f ? " pol " : "",
                 text_of(source, "pol"));
        struct trouble t = {.status = FINDING_FAIL,
                            .file = file,
                            .stage = stage,
                            .what = since_s == start_s ? "dead" : "silent",
                            .silent = true,
                            .since_unix_s = since_s};
        SAY(t.where, "%s", n_dead == n ? "" : where);
        doctor_ago(engines->now_unix_s - since_s, ago);
        if (since_s == start_s)
            SAY(t.found, "%s: nothing from %s since the engine's start %s", stage, n_dead == n ? any : where, ago);
        else
            SAY(t.found, "%s: no heaps since %s", stage, ago);
        SAY(t.why, "%s",
            f ? "the F-engine cannot make the antenna's heaps" : "the baselines of these antennas are flagged");
        say_where_to_look(engines->doctor, file, f || n_dead == n ? SIZE_MAX : i, &t);
        add(engines, &t);
        if (n_dead == n)
            return;
    }
}

/* Returns the UNIX time at which the host's clock lost its synchronisation, from the engine's history.  Returns 0 if
 * the time is not known. */
static double unsynchronised_since(const json_t *status)
{
    const json_t *rows = json_object_get(status, "troubles");

    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(text_of(row, "stage"), HOST_CLOCK) == 0 && json_is_true(json_object_get(row, "ongoing")))
            return number_of(row, "since");
    }
    return 0;
}

/* Reports an unsynchronised clock, once for each host.  If time.timebase is packets, the engine does not use the
 * clock, and has no metric of the clock's state. */
static void take_clock(struct engines *engines, const json_t *status)
{
    const json_t *synchronised = json_object_get(json_object_get(status, "other"), "clock_synchronised");
    const char *host = text_of(status, "host");
    struct report *report = &engines->doctor->report;
    double since_s = unsynchronised_since(status);
    char ago[DOCTOR_AGO_BYTES];

    if (!synchronised || json_number_value(synchronised) != 0)
        return;
    for (size_t i = 0; i < report->n_findings; i++)
        if (strcmp(report->findings[i]->id, "engine.clock") == 0 && strcmp(report->findings[i]->subject, host) == 0)
            return;
    struct finding *f = report_add(report, FINDING_WARN, "engine.clock", host);
    SAY(f->found, "the engines of this host run with an unsynchronised clock%s%s", since_s > 0 ? ", since " : "",
        since_s > 0 ? doctor_ago(engines->now_unix_s - since_s, ago) : "");
    SAY(f->expected, "a clock that the kernel reports as synchronised");
    SAY(f->why, "timestamps and the start times of delay models depend on this clock, so an error of the clock "
                "shifts them");
    SAY(f->fix, "chronyc tracking; sudo systemctl restart chrony   # on %s", host[0] ? host : "the engine's host");
}

/* Reports beams in which most antennas have the weight 0.  Names only the first MAX_NAMED_BEAMS beams. */
static void take_beams(struct engines *engines, const struct doctor_file *file, const json_t *status)
{
    const json_t *streams = json_object_get(status, "streams");
    size_t n = 0;

    for (size_t i = 0; file->kind == DOCTOR_XBGPU && i < json_array_size(streams); i++) {
        const json_t *stream = json_array_get(streams, i);
        double zeros = number_of(stream, "zero_weights_ratio");
        if (zeros <= 0.5 || ++n > MAX_NAMED_BEAMS)
            continue;
        struct finding *f = report_add(&engines->doctor->report, FINDING_WARN, "engine.beam", "");
        SAY(f->subject, "%s %s", file->name, text_of(stream, "stream"));
        SAY(f->found, "%.0f %% of the weights of this beam are 0", 100 * zeros);
        SAY(f->expected, "weights above 0 for most antennas");
        SAY(f->why, "the beam has less sensitivity than the array%s", zeros == 1 ? ": all its samples are 0" : "");
        SAY(f->fix, "?beam-weights %s WEIGHT...   # over KATCP", text_of(stream, "stream"));
    }
    if (n <= MAX_NAMED_BEAMS)
        return;
    struct finding *f = report_add(&engines->doctor->report, FINDING_WARN, "engine.beam", "");
    SAY(f->subject, "%s", file->name);
    SAY(f->found, "more than half of the weights of %zu more beams are 0", n - MAX_NAMED_BEAMS);
    SAY(f->expected, "weights above 0 for most antennas");
    SAY(f->why, "the beams have less sensitivity than the array");
    SAY(f->fix, "the engine's status page lists its beams");
}

/* ---- Delays ------------------------------------------------------------------------------------------------------ */

static int compare_delays(const void *a, const void *b)
{
    double x = fabs(((const struct delay *)a)->delay_s), y = fabs(((const struct delay *)b)->delay_s);

    return (x > y) - (x < y);
}

/* Appends one delay to 'delays': the current delay of an input in one output.  Reads the delay from the sensor's value,
 * "(start, delay, rate, ...)". */
static void take_delay(const struct doctor_file *file, const json_t *status, size_t output, size_t input,
                       struct delay **delays, size_t *n)
{
    const char *stream = fgpu_config_output(&file->fgpu, output)->name;
    char name[128];
    double delay_s;

    snprintf(name, sizeof(name), "%s.input%zu.delay", stream, input);
    const json_t *sensor = json_object_get(json_object_get(status, "sensors"), name);
    if (sscanf(text_of(sensor, "value"), "(%*d, %lf", &delay_s) != 1)
        return;
    struct delay *more = realloc(*delays, (*n + 1) * sizeof(*more));
    if (!more)
        abort();
    *delays = more;
    more[(*n)++] = (struct delay){.file = file,
                                  .stream = stream,
                                  .antenna = fgpu_config_antenna(&file->fgpu, input / N_POLS)->name,
                                  .pol = input % N_POLS,
                                  .delay_s = delay_s,
                                  .since_unix_s = number_of(sensor, "time")};
}

static void take_delays(const struct doctor_file *file, const json_t *status, struct delay **delays, size_t *n)
{
    for (size_t o = 0; file->kind == DOCTOR_FGPU && o < file->fgpu.outputs.n; o++)
        for (size_t i = 0; i < file->fgpu.antennas.n * N_POLS; i++)
            take_delay(file, status, o, i, delays, n);
}

/* Reports delays that are far from the median.  If half of the delays are large and half are small, the median is
 * small, so the large delays are reported. */
static void judge_delays(struct engines *engines, struct delay *delays, size_t n)
{
    char ago[DOCTOR_AGO_BYTES];

    if (n < 2)
        return;
    qsort(delays, n, sizeof(*delays), compare_delays);
    double middle_s = delays[(n - 1) / 2].delay_s;
    for (size_t i = 0; i < n; i++) {
        const struct delay *d = &delays[i];
        if (fabs(d->delay_s - middle_s) < DELAY_MAX_S)
            continue;
        enum finding_status status = fabs(d->delay_s - middle_s) < DELAY_FAIL_S ? FINDING_WARN : FINDING_FAIL;
        struct finding *f = report_add(&engines->doctor->report, status, "engine.delay", "");
        SAY(f->subject, "%s %s pol %zu", d->file->name, d->antenna, d->pol);
        SAY(f->found, "its delay in output %s is %.6g s since %s; the median of all inputs is %.6g s", d->stream,
            d->delay_s, doctor_ago(engines->now_unix_s - d->since_unix_s, ago), middle_s);
        SAY(f->expected, "delays that differ by at most %g ms", DELAY_MAX_S * 1e3);
        SAY(f->why, "the antenna's signal is correlated at a wrong time: no fringes, and no output for a while after a "
                    "correction");
        SAY(f->fix, "?delays %s NOW INPUT=DELAY,RATE:PHASE,RATE   # over KATCP, or correct antennas[].delays in %s",
            d->stream, d->file->path);
    }
}

/* ---- All files --------------------------------------------------------------------------------------------------- */

/* Orders troubles: failures before warnings, then F-engines before X-engines, then by time, earliest first.
 * F-engines come first because they are upstream. */
static int compare_troubles(const void *a, const void *b)
{
    const struct trouble *x = a, *y = b;

    if (x->status != y->status)
        return x->status > y->status ? -1 : 1;
    if (x->file->kind != y->file->kind)
        return x->file->kind == DOCTOR_FGPU ? -1 : 1;
    return (x->since_unix_s > y->since_unix_s) - (x->since_unix_s < y->since_unix_s);
}

static void report_troubles(struct engines *engines)
{
    struct report *report = &engines->doctor->report;

    if (engines->n > 0)
        qsort(engines->troubles, engines->n, sizeof(*engines->troubles), compare_troubles);
    for (size_t i = 0; i < engines->n && i < TROUBLES_MAX; i++) {
        const struct trouble *t = &engines->troubles[i];
        struct finding *f = report_add(report, t->status, "engine.troubles", "");
        SAY(f->subject, "%s%s%s", t->file->name, t->where[0] ? " " : "", t->where);
        char alike[64] = "";
        if (t->n_alike > 0)
            snprintf(alike, sizeof(alike), "; also at %zu other X-engine%s", t->n_alike, plural(t->n_alike));
        SAY(f->found, "%s%s", t->found, alike);
        SAY(f->expected, "none in the last minute");
        SAY(f->why, "%s", t->why);
        SAY(f->fix, "%s", t->fix);
    }
    if (engines->n > TROUBLES_MAX)
        SAY(report_add(report, FINDING_SKIPPED, "engine.troubles", "")->found, "%zu more are on the status pages",
            engines->n - TROUBLES_MAX);
    if (engines->n_answers == 0)
        SAY(report_add(report, FINDING_SKIPPED, "engine.troubles", "")->found,
            "no engine of these files answers on this host");
    else if (engines->n == 0)
        SAY(report_add(report, FINDING_OK, "engine.troubles", "")->found,
            "%zu engine%s had no trouble in the last minute", engines->n_answers, plural(engines->n_answers));
}

void doctor_check_engines(struct doctor *doctor)
{
    struct engines engines = {.doctor = doctor, .now_unix_s = (double)clock_unix_ns() / (double)NS_PER_S};
    json_t **pages = calloc(doctor->n_files + 1, sizeof(json_t *));
    struct delay *delays = NULL;
    size_t n_delays = 0;

    if (!pages)
        abort();
    for (size_t i = 0; i < doctor->n_files; i++) {
        const struct doctor_file *file = &doctor->files[i];
        if (!file->ok || file->http->listen.n == 0 || !(pages[i] = doctor_status_get(&file->http->listen.items[0])))
            continue;
        engines.n_answers++;
        take_silent(&engines, file, pages[i]);
        take_history(&engines, file, pages[i]);
        take_clock(&engines, pages[i]);
        take_beams(&engines, file, pages[i]);
        take_delays(file, pages[i], &delays, &n_delays);
    }
    /* delays are reported first, because a wrong delay causes silences and refused heaps */
    judge_delays(&engines, delays, n_delays);
    report_troubles(&engines);
    for (size_t i = 0; i < doctor->n_files; i++)
        json_decref(pages[i]);
    free(pages);
    free(delays);
    free(engines.troubles);
}
