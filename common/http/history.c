/* history.c - records the troubles that metrics show, for an operator who looks at the status page later. */
#include "common/http/history.h"

#include "common/base/lock.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SECONDS     60
#define N_MINUTES     61 /* number of counted minutes: the current minute and the 60 minutes before */
#define MINUTE_S      60
#define QUIET_NS      (2 * NS_PER_S)
#define GAP_FACTOR    2
#define N_LISTED      3 /* largest number of antennas listed by name; a larger group is shown as "m000 to m003" */
#define GAPS_TO_LEARN 3 /* number of gaps that must be measured before a longer gap counts as a trouble */

enum kind { LOSSES, FLOW, RANGE };

/* Advice for an operator, shown with each trouble of the status page. */
#define AT_FEED "look at the digitiser, its cable and its switch port; cbf-doctor streams shows what arrives"
#define AT_SOCKET                                                                                                      \
    "the receive thread is too slow for its socket buffer: raise recv.threads, recv.buffer or net.core.rmem_max"
#define AT_SENDER "the log names both senders: stop the wrong one, or name the right sender in recv.from"
#define AT_CONFIG                                                                                                      \
    "the configurations of the sender and of this program do not agree, or another program sends to this address"
#define AT_LATE    "a sender paused for a moment, or recv.window is too short"
#define AT_SKIP    "the input was missing, or the delay has jumped"
#define AT_DEVICE  "the device or the send threads are slower than the data"
#define AT_NETWORK "the interface is down, has no route to the group, or send.packet_payload is above the MTU"
#define AT_FENGINE "look at this antenna's F-engine and its host, then at the switch; cbf-doctor loss finds the stage"
#define AT_GPU     "take this device out of service: its sums are wrong"
#define AT_XENGINE "look at the status pages of the X-engines, then at the switch"
#define AT_DISK    "make room on the disk of output.file; output.max_file_size and max_file_time split recordings"
#define AT_CLOCK   "start chrony or ptp4l on this host; chronyc tracking shows the state"
#define AT_POWER   "set the attenuator or the digitiser's gain for an input power of -30 to -10 dBFS"
#define AT_SHAPE                                                                                                       \
    "look at the reasons for which packets were refused: jump and clock mean a wrong delay or time, other reasons "    \
    "mean a wrong configuration"
#define AT_SPEAD "another program sends to this address: name the right sender in recv.from"
#define AT_WHOLE "no antenna is complete: look at the missing heaps; cbf-doctor loss finds the stage"
#define AT_AHEAD "correct the delay model first; then ?resume starts the output again immediately"
#define AT_DELAY                                                                                                       \
    "light crosses the Earth in 0.043 s, so this delay is wrong: correct the delay model (?delays), then send ?resume"

static const struct rule {
    const char *metric; /* registered name of the metric; ends with _total if it is a counter */
    enum kind kind;
    const char *level, *stage, *what, *advice;
    /* RANGE: permitted range of the gauge.  If low <= 0, the value 0 is always permitted, because a gauge that was
     * never set is 0. */
    double low, high;
} rules[] = {
    {"fgpu_input_heaps_total", FLOW, "warn", "digitiser to F-engine", "no packets", AT_FEED},
    {"fgpu_input_missing_heaps_total", LOSSES, "warn", "digitiser to F-engine", "packets missing", AT_FEED},
    {"fgpu_input_contested_heaps_total", LOSSES, "bad", "digitiser to F-engine", "packets contested", AT_SENDER},
    {"fgpu_input_kernel_drops", LOSSES, "warn", "socket of the F-engine", "packets dropped", AT_SOCKET},
    {"fgpu_input_too_old_heaps_total", LOSSES, "warn", "digitiser to F-engine", "packets too late", AT_LATE},
    {"fgpu_input_bad_timestamp_heaps_total", LOSSES, "warn", "digitiser to F-engine",
     "packets with misaligned timestamps", AT_CONFIG},
    {"fgpu_input_rejected_packets_total", LOSSES, "warn", "digitiser to F-engine", "packets refused", AT_CONFIG},
    {"fgpu_input_malformed_packets_total", LOSSES, "warn", "digitiser to F-engine", "packets malformed", AT_SPEAD},
    {"fgpu_unmatched_chunks_total", LOSSES, "warn", "F-engine", "chunks without the other polarisation", AT_FEED},
    {"fgpu_late_chunks_total", LOSSES, "warn", "F-engine", "chunks too late", AT_LATE},
    {"fgpu_input_power_dbfs", RANGE, "warn", "digitiser", "input power out of range", AT_POWER, -33, -7},
    {"fgpu_output_heaps_total", FLOW, "warn", "F-engine", "no output", "look at the inputs and the delays"},
    {"fgpu_output_ahead_seconds", RANGE, "warn", "F-engine", "silent after a wrong delay", AT_AHEAD, 0, 0},
    {"fgpu_output_delay_seconds", RANGE, "warn", "F-engine", "delay above 0.1 s", AT_DELAY, 0, 0.1},
    {"fgpu_output_skipped_heaps_total", LOSSES, "warn", "F-engine", "heaps skipped", AT_SKIP},
    {"fgpu_output_dropped_heaps_total", LOSSES, "warn", "F-engine", "heaps dropped", AT_DEVICE},
    {"fgpu_output_failed_packets_total", LOSSES, "warn", "F-engine", "packets not sent", AT_NETWORK},
    {"fgpu_gnss_heaps_total", FLOW, "warn", "F-engine", "no output", "look at the inputs"},
    {"fgpu_gnss_dropped_heaps_total", LOSSES, "warn", "F-engine", "heaps dropped", AT_DEVICE},
    {"fgpu_gnss_failed_packets_total", LOSSES, "warn", "F-engine", "packets not sent", AT_NETWORK},
    {"xbgpu_feng_heaps_total", FLOW, "warn", "F-engine to X-engine", "no heaps", AT_FENGINE},
    {"xbgpu_feng_missing_heaps_total", LOSSES, "warn", "F-engine to X-engine", "heaps missing", AT_FENGINE},
    {"xbgpu_feng_late_heaps_total", LOSSES, "warn", "F-engine to X-engine", "heaps too late", AT_LATE},
    {"xbgpu_feng_refused_heaps_total", LOSSES, "warn", "F-engine to X-engine", "heaps refused", AT_SHAPE},
    {"xbgpu_input_contested_heaps_total", LOSSES, "bad", "F-engine to X-engine", "heaps contested", AT_SENDER},
    {"xbgpu_input_kernel_drops", LOSSES, "warn", "socket of the X-engine", "packets dropped", AT_SOCKET},
    {"xbgpu_input_rejected_packets_total", LOSSES, "warn", "F-engine to X-engine", "packets refused", AT_CONFIG},
    {"xbgpu_input_malformed_packets_total", LOSSES, "warn", "F-engine to X-engine", "packets malformed", AT_SPEAD},
    {"xbgpu_late_chunks_total", LOSSES, "warn", "X-engine", "chunks too late", AT_LATE},
    {"xbgpu_output_x_absent_accs_total", LOSSES, "warn", "X-engine", "dumps absent", "look at the inputs"},
    {"xbgpu_output_x_skipped_accs_total", LOSSES, "warn", "X-engine", "dumps skipped", AT_WHOLE},
    {"xbgpu_output_x_dropped_accs_total", LOSSES, "warn", "X-engine", "dumps dropped", AT_DEVICE},
    {"xbgpu_output_x_failed_packets_total", LOSSES, "warn", "X-engine", "packets not sent", AT_NETWORK},
    {"xbgpu_output_x_wrong_accs_total", LOSSES, "bad", "X-engine", "dumps wrong", AT_GPU},
    {"xbgpu_beam_dropped_heaps_total", LOSSES, "warn", "X-engine", "heaps of beams dropped", AT_DEVICE},
    {"xbgpu_detected_dropped_heaps_total", LOSSES, "warn", "X-engine", "heaps of detected beams dropped", AT_DEVICE},
    {"xbgpu_audit_failures_total", LOSSES, "bad", "X-engine", "products wrong", AT_GPU},
    {"visrec_heaps_total", FLOW, "warn", "X-engine to recorder", "no heaps", AT_XENGINE},
    {"visrec_missing_heaps_total", LOSSES, "warn", "X-engine to recorder", "heaps missing", AT_XENGINE},
    {"visrec_contested_heaps_total", LOSSES, "bad", "X-engine to recorder", "heaps contested", AT_SENDER},
    {"visrec_rejected_packets_total", LOSSES, "warn", "X-engine to recorder", "packets refused", AT_CONFIG},
    {"visrec_malformed_packets_total", LOSSES, "warn", "X-engine to recorder", "packets malformed", AT_SPEAD},
    {"visrec_kernel_drops", LOSSES, "warn", "socket of the recorder", "packets dropped", AT_SOCKET},
    {"visrec_unwritten_dumps_total", LOSSES, "bad", "recorder", "dumps not written, disk full", AT_DISK},
    {"visrec_clock_synchronised", RANGE, "warn", "host clock", "clock not synchronised", AT_CLOCK, 1, 1},
    {"fgpu_clock_synchronised", RANGE, "warn", "host clock", "clock not synchronised", AT_CLOCK, 1, 1},
    {"xbgpu_clock_synchronised", RANGE, "warn", "host clock", "clock not synchronised", AT_CLOCK, 1, 1},
};

/* The history of one metric. */
struct row {
    const struct rule *rule;
    char where[256], reason[48];
    /* for a group of F-engines, fengs is a range like "0-3", and antenna is empty; for one F-engine, fengs is the
     * F-engine's number, and antenna is the antenna's name */
    char fengs[32], antenna[72];
    uint64_t value; /* value of the metric at the last sample */
    uint64_t total; /* number of losses, or number of seconds with a trouble, since the start */
    /* number of losses, or number of seconds with a trouble, in each second and in each minute; at most UINT32_MAX */
    uint32_t seconds[N_SECONDS], minutes[N_MINUTES];
    /* UNIX times at which the trouble began, and at which the trouble was last seen; 0: no trouble yet */
    int64_t since_unix_ns, last_unix_ns;
    bool ongoing; /* for flows and ranges: true while the trouble lasts */
    /* For flows only. */
    /* moved_ns: monotonic time of the counter's last increase; gap_ns: longest time between two increases; the time of
     * a trouble does not count */
    int64_t moved_ns, gap_ns;
    int64_t moved_unix_ns;
    unsigned n_gaps;
};

struct history {
    struct lock lock;
    struct row *rows; /* [n_rows] in the order of the metrics in the registry */
    size_t n_rows, n_allocated;
    size_t *row_of; /* [n_metrics] index of each metric's row; SIZE_MAX: the metric has no rule and no row */
    size_t n_metrics;
    bool known;               /* true once the rows exist */
    int64_t start_ns, second; /* monotonic time of the first sample; seconds from the first to the last sample */
    int64_t n_passed;         /* seconds between the last two samples */
    int64_t unix_ns;
};

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static const struct rule *find_rule(const char *metric)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (strcmp(rules[i].metric, metric) == 0)
            return &rules[i];
    return NULL;
}

/* Copies the value of the label 'name' to 'value', or "" if there is no such label.  Cuts a value at its first
 * backslash. */
static void read_label(const char *labels, const char *name, char *value, size_t value_bytes)
{
    size_t n = strlen(name);

    value[0] = '\0';
    for (const char *at = labels; (at = strstr(at, name)); at += n)
        if ((at == labels || at[-1] == ',') && at[n] == '=' && at[n + 1] == '"') {
            snprintf(value, value_bytes, "%.*s", (int)strcspn(at + n + 2, "\"\\"), at + n + 2);
            return;
        }
}

/* Writes the object to which a metric belongs: "m001 pol 0", "m001 wide", "vis", "F-engines 0-3" or "recv0". */
static void name_place(const char *labels, char *where, size_t where_bytes)
{
    char antenna[72], pol[8], stream[72], fengs[32], thread[32];

    read_label(labels, "antenna", antenna, sizeof(antenna));
    read_label(labels, "pol", pol, sizeof(pol));
    read_label(labels, "stream", stream, sizeof(stream));
    read_label(labels, "fengs", fengs, sizeof(fengs));
    read_label(labels, "thread", thread, sizeof(thread));
    snprintf(where, where_bytes, "%s%s%s%s%s%s%s%s", antenna, antenna[0] && (pol[0] || stream[0]) ? " " : "", stream,
             pol[0] ? "pol " : "", pol, fengs[0] ? "F-engines " : "", fengs, thread);
}

static uint64_t whole(const struct stats_value *value)
{
    return value->is_counter ? value->total : (uint64_t)value->gauge;
}

static const char *antenna_of(const struct history *h, long feng)
{
    for (size_t i = 0; i < h->n_rows; i++)
        if (h->rows[i].antenna[0] && strtol(h->rows[i].fengs, NULL, 10) == feng)
            return h->rows[i].antenna;
    return NULL;
}

/* Replaces the name of a group of F-engines by its antennas: "m000, m001" or "m000 to m003".  The antennas' names come
 * from the rows of single F-engines. */
static void name_group(const struct history *h, struct row *row)
{
    char *end;
    long first = strtol(row->fengs, &end, 10), last = *end == '-' ? strtol(end + 1, NULL, 10) : first;
    bool all = last - first >= N_LISTED;

    if (!antenna_of(h, first) || !antenna_of(h, last))
        return;
    row->where[0] = '\0';
    for (long feng = first; feng <= last; feng += all ? last - first : 1) {
        const char *antenna = antenna_of(h, feng);
        size_t used = strlen(row->where);
        if (antenna)
            snprintf(row->where + used, sizeof(row->where) - used, "%s%s", !used ? "" : all ? " to " : ", ", antenna);
    }
}

static void name_groups(struct history *h)
{
    for (size_t i = 0; i < h->n_rows; i++)
        if (h->rows[i].fengs[0] && !h->rows[i].antenna[0])
            name_group(h, &h->rows[i]);
}

/* Appends an entry to row_of[], and a row if the metric has a rule.  stats_each() calls this function for each metric
 * at the first sample. */
static void add_row(void *arg, const struct stats_value *value)
{
    struct history *h = arg;
    const struct rule *rule = find_rule(value->name);

    if (h->n_metrics == h->n_allocated) {
        size_t n = h->n_allocated ? 2 * h->n_allocated : 256;
        size_t *row_of = realloc(h->row_of, n * sizeof(*row_of));
        if (!row_of)
            return;
        h->row_of = row_of;
        h->n_allocated = n;
    }
    h->row_of[h->n_metrics++] = SIZE_MAX;
    struct row *rows = rule ? realloc(h->rows, (h->n_rows + 1) * sizeof(*rows)) : NULL;
    if (!rows)
        return;
    h->rows = rows;
    struct row *row = &rows[h->n_rows];
    *row = (struct row){.rule = rule, .value = whole(value)};
    row->total = rule->kind == LOSSES ? row->value : 0;
    name_place(value->labels, row->where, sizeof(row->where));
    if (!row->where[0])
        snprintf(row->where, sizeof(row->where), "%s", rule->stage);
    read_label(value->labels, "reason", row->reason, sizeof(row->reason));
    if (!row->reason[0])
        read_label(value->labels, "error", row->reason, sizeof(row->reason));
    read_label(value->labels, "fengs", row->fengs, sizeof(row->fengs));
    if (!row->fengs[0])
        read_label(value->labels, "feng", row->fengs, sizeof(row->fengs));
    if (row->fengs[0])
        read_label(value->labels, "antenna", row->antenna, sizeof(row->antenna));
    h->row_of[h->n_metrics - 1] = h->n_rows++;
}

/* ---- Sampling ---------------------------------------------------------------------------------------------------- */

static void add_to(uint32_t *slot, uint64_t n)
{
    *slot = n > UINT32_MAX - *slot ? UINT32_MAX : *slot + (uint32_t)n;
}

/* Adds 'n' losses, or 'n' seconds of trouble, to the current second and minute of a row. */
static void note(const struct history *h, struct row *row, uint64_t n, int64_t since_unix_ns, int64_t unix_ns)
{
    if (row->last_unix_ns == 0 || unix_ns - row->last_unix_ns > MINUTE_S * NS_PER_S)
        row->since_unix_ns = since_unix_ns;
    row->last_unix_ns = unix_ns;
    row->total += n;
    add_to(&row->seconds[h->second % N_SECONDS], n);
    add_to(&row->minutes[h->second / MINUTE_S % N_MINUTES], n);
}

/* Updates a flow's longest gap.  The flow's counter has just increased, 'gap_ns' after its previous increase.  Ignores
 * a gap that was recorded as a trouble.  Also ignores the gap if the last two samples are more than one second apart. */
static void learn_gap(const struct history *h, struct row *row, int64_t gap_ns)
{
    row->n_gaps++;
    if (gap_ns > row->gap_ns && !row->ongoing && h->n_passed <= 1)
        row->gap_ns = gap_ns;
}

/* Updates a flow's row after a reading of the flow's counter.  The start of a trouble is detected late, so the
 * trouble's seconds are counted from the last increase of the counter. */
static void look_at_flow(const struct history *h, struct row *row, bool moved, int64_t now_ns, int64_t unix_ns)
{
    int64_t still_ns = now_ns - row->moved_ns;

    if (moved) {
        if (row->moved_ns > 0)
            learn_gap(h, row, still_ns);
        row->moved_ns = now_ns;
        row->moved_unix_ns = unix_ns;
        row->ongoing = false;
    } else if (row->ongoing) {
        note(h, row, (uint64_t)h->n_passed, row->moved_unix_ns, unix_ns);
    } else if (row->n_gaps >= GAPS_TO_LEARN && still_ns > QUIET_NS && still_ns > GAP_FACTOR * row->gap_ns) {
        row->ongoing = true;
        row->since_unix_ns = row->moved_unix_ns;
        note(h, row, (uint64_t)(still_ns / NS_PER_S), row->moved_unix_ns, unix_ns);
    }
}

static void look_at_range(const struct history *h, struct row *row, double value, int64_t unix_ns)
{
    bool known = value != 0 || row->rule->low > 0;

    row->ongoing = known && (value < row->rule->low || value > row->rule->high);
    if (row->ongoing)
        note(h, row, (uint64_t)h->n_passed, unix_ns, unix_ns);
}

struct looking {
    struct history *history;
    size_t i;
    int64_t now_ns, unix_ns;
};

static void look_at(void *arg, const struct stats_value *value)
{
    struct looking *looking = arg;
    struct history *h = looking->history;
    size_t i = looking->i++;

    if (i >= h->n_metrics || h->row_of[i] == SIZE_MAX)
        return;
    struct row *row = &h->rows[h->row_of[i]];
    uint64_t now = whole(value), n = now > row->value ? now - row->value : 0;
    row->value = now;
    if (row->rule->kind == FLOW)
        look_at_flow(h, row, n > 0, looking->now_ns, looking->unix_ns);
    else if (row->rule->kind == RANGE)
        look_at_range(h, row, value->gauge, looking->unix_ns);
    else if (n > 0)
        note(h, row, n, looking->unix_ns, looking->unix_ns);
}

/* Sets the counts of the seconds and minutes that have begun since the last sample to 0. */
static void clear_slots(struct history *h, int64_t second)
{
    int64_t n_seconds = second - h->second, n_minutes = second / MINUTE_S - h->second / MINUTE_S;

    for (size_t i = 0; i < h->n_rows; i++) {
        for (int64_t k = 1; k <= n_seconds && k <= N_SECONDS; k++)
            h->rows[i].seconds[(h->second + k) % N_SECONDS] = 0;
        for (int64_t k = 1; k <= n_minutes && k <= N_MINUTES; k++)
            h->rows[i].minutes[(h->second / MINUTE_S + k) % N_MINUTES] = 0;
    }
    h->n_passed = n_seconds;
    h->second = second;
}

void history_sample(struct history *h, int64_t now_ns, int64_t unix_ns)
{
    struct looking looking = {h, 0, now_ns, unix_ns};

    lock_take(&h->lock);
    if (!h->known) {
        stats_each(add_row, h);
        name_groups(h);
        h->start_ns = now_ns;
        h->known = true;
    }
    clear_slots(h, (now_ns - h->start_ns) / NS_PER_S);
    h->unix_ns = unix_ns;
    stats_each(look_at, &looking);
    lock_give(&h->lock);
}

/* ---- Reporting --------------------------------------------------------------------------------------------------- */

static uint64_t sum_of(const uint32_t *slots, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += slots[i];
    return sum;
}

static json_t *time_of(int64_t unix_ns)
{
    return unix_ns ? json_real((double)(unix_ns / NS_PER_US) / 1e6) : json_null();
}

/* Returns the advice for a row.  Packets with the reason jump or clock have separate advice: their sender's time is
 * wrong, even if the configuration files agree. */
static const char *advice_of(const struct row *row)
{
    bool is_time = !strcmp(row->reason, "jump") || !strcmp(row->reason, "clock");
    if (is_time)
        return "a sender is late, or its time is wrong: look at the sender's input, delays, sync_time and clock";
    return row->rule->advice;
}

static json_t *describe_row(const struct row *row)
{
    char what[120];

    snprintf(what, sizeof(what), "%s%s%s%s", row->rule->what, row->reason[0] ? " (" : "", row->reason,
             row->reason[0] ? ")" : "");
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:s, s:o, s:o}", "where", row->where, "stage",
                     row->rule->stage, "what", what, "level", row->rule->level, "advice", advice_of(row), "ongoing",
                     row->ongoing, "n_minute", (json_int_t)sum_of(row->seconds, N_SECONDS), "n_hour",
                     (json_int_t)sum_of(row->minutes, N_MINUTES), "total", (json_int_t)row->total, "unit",
                     row->rule->kind == LOSSES ? "" : "s", "since", time_of(row->since_unix_ns), "last",
                     time_of(row->last_unix_ns));
}

static bool is_active(const struct row *row)
{
    return row->ongoing || sum_of(row->seconds, N_SECONDS) > 0;
}

/* Compares two rows for qsort().  The criteria, in this order: bad rows precede warn rows; rows with trouble in the
 * last minute precede older rows; losses and flows precede ranges; ongoing rows precede the others; later troubles
 * precede earlier ones; losses precede flows.  Rows that are equal by all criteria keep the registry's order. */
static int compare_rows(const void *a, const void *b)
{
    const struct row *x = *(const struct row *const *)a, *y = *(const struct row *const *)b;
    int level = strcmp(x->rule->level, y->rule->level);

    if (level != 0)
        return level; /* "bad" precedes "warn" */
    if (is_active(x) != is_active(y))
        return is_active(x) ? -1 : 1;
    if ((x->rule->kind == RANGE) != (y->rule->kind == RANGE))
        return x->rule->kind == RANGE ? 1 : -1;
    if (x->ongoing != y->ongoing)
        return x->ongoing ? -1 : 1;
    if (x->last_unix_ns != y->last_unix_ns)
        return x->last_unix_ns > y->last_unix_ns ? -1 : 1;
    if ((x->rule->kind == LOSSES) != (y->rule->kind == LOSSES))
        return x->rule->kind == LOSSES ? -1 : 1;
    return (x > y) - (x < y);
}

json_t *history_describe(struct history *h)
{
    json_t *all = json_array();

    lock_take(&h->lock);
    const struct row **shown = malloc((h->n_rows + 1) * sizeof(*shown));
    size_t n = 0;
    for (size_t i = 0; shown && i < h->n_rows; i++)
        if (h->rows[i].ongoing || sum_of(h->rows[i].minutes, N_MINUTES) > 0)
            shown[n++] = &h->rows[i];
    if (shown)
        qsort(shown, n, sizeof(*shown), compare_rows);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, describe_row(shown[i]));
    lock_give(&h->lock);
    free(shown);
    return all;
}

/* ---- Creation and end -------------------------------------------------------------------------------------------- */

int history_create(struct history **history)
{
    struct history *h = calloc(1, sizeof(*h));

    if (!h)
        return -ENOMEM;
    lock_init(&h->lock);
    *history = h;
    return 0;
}

void history_destroy(struct history *history)
{
    if (!history)
        return;
    lock_fini(&history->lock);
    free(history->rows);
    free(history->row_of);
    free(history);
}
