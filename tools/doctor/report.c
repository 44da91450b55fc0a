/* report.c - the last stage: turns findings into text or JSON, and into the exit code. */
#include "tools/doctor/report.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "common/base/version.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMNS 112
#define INDENT  15 /* indent of the lines below a finding's first line */

static const char *const status_names[] = {"ok", "skipped", "warn", "fail"};
static const char *const status_colours[] = {"\033[32m", "\033[2m", "\033[33m", "\033[1;31m"};

/* ---- Findings ---------------------------------------------------------------------------------------------------- */

static void *grow(void *array, size_t n, size_t item_bytes)
{
    void *grown = realloc(array, n * item_bytes);

    if (!grown)
        abort();
    return grown;
}

/* Replaces line breaks and other control characters by blanks, because a text may quote strings from any source. */
static void make_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = ' ';
}

void report_say(char *text, size_t text_bytes, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(text, text_bytes, format, args);
    va_end(args);
    make_line(text);
}

struct finding *report_add(struct report *report, enum finding_status status, const char *id, const char *subject)
{
    struct finding *finding = grow(NULL, 1, sizeof(*finding));

    memset(finding, 0, sizeof(*finding));
    finding->status = status;
    finding->id = id;
    SAY(finding->subject, "%s", subject);
    report->findings = grow(report->findings, report->n_findings + 1, sizeof(*report->findings));
    report->findings[report->n_findings++] = finding;
    return finding;
}

void report_add_row(struct report *report, const struct loss_row *row)
{
    report->rows = grow(report->rows, report->n_rows + 1, sizeof(*report->rows));
    report->rows[report->n_rows++] = *row;
}

static size_t count(const struct report *report, enum finding_status status)
{
    size_t n = 0;

    for (size_t i = 0; i < report->n_findings; i++)
        n += report->findings[i]->status == status;
    return n;
}

int report_exit_code(const struct report *report)
{
    return count(report, FINDING_FAIL) ? 2 : count(report, FINDING_WARN) ? 1 : 0;
}

void report_fini(struct report *report)
{
    for (size_t i = 0; i < report->n_findings; i++)
        free(report->findings[i]);
    free(report->findings);
    free(report->rows);
    *report = (struct report){0};
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

/* Prints a labelled text below a finding, wrapped between words.  A command stays on one line, so that it can be
 * pasted. */
static void print_wrapped(const char *label, const char *text, bool whole, FILE *out)
{
    size_t at = INDENT;

    if (!text[0])
        return;
    fprintf(out, "     %-*s", INDENT - 5, label);
    for (const char *word = text; *word;) {
        size_t n = strcspn(word, " ");
        if (!whole && at > INDENT && at + 1 + n > COLUMNS) {
            fprintf(out, "\n%*s", INDENT, "");
            at = INDENT;
        } else if (word > text) {
            fputc(' ', out);
            at++;
        }
        fwrite(word, 1, n, out);
        at += n;
        word += n;
        word += *word == ' ';
    }
    fputc('\n', out);
}

static void print_finding(const struct finding *f, int subject_width, bool colour, FILE *out)
{
    bool bad = f->status >= FINDING_WARN;
    bool beside = !bad || 7 + 2 + 22 + 2 + (size_t)subject_width + 2 + strlen(f->found) <= COLUMNS;

    fprintf(out, "%s%-7s%s  %-22s  %-*s  %s\n", colour ? status_colours[f->status] : "",
            f->status == FINDING_FAIL ? "FAIL" : status_names[f->status], colour ? "\033[0m" : "", f->id, subject_width,
            f->subject, beside ? f->found : "");
    if (!bad)
        return;
    print_wrapped("found", beside ? "" : f->found, false, out);
    print_wrapped("expected", f->expected, false, out);
    print_wrapped("why", f->why, false, out);
    print_wrapped("fix", f->fix, true, out);
}

static bool same_stage(const struct loss_row *a, const struct loss_row *b)
{
    return strcmp(a->file, b->file) == 0 && strcmp(a->stage, b->stage) == 0;
}

/* Prints the rows of one stage as one line: the sum of the losses, then each counter that grew.  Returns the number of
 * rows. */
static size_t print_stage(const struct loss_row *rows, size_t n_left, FILE *out)
{
    unsigned long long lost = 0;
    size_t n = 0;

    while (n < n_left && same_stage(&rows[0], &rows[n])) {
        lost += rows[n].loss ? rows[n].grew : 0;
        n++;
    }
    fprintf(out, "  %-10s %10llu lost %s", rows[0].stage, lost, lost ? "<--" : "   ");
    for (size_t i = 0; i < n; i++)
        if (rows[i].grew > 0)
            fprintf(out, "  %s +%llu", rows[i].counter, (unsigned long long)rows[i].grew);
    fputc('\n', out);
    return n;
}

static void print_rows(const struct report *report, FILE *out)
{
    const struct loss_row *rows = report->rows;

    for (size_t i = 0; i < report->n_rows;) {
        if (i == 0 || strcmp(rows[i].file, rows[i - 1].file) != 0)
            fprintf(out, "\nOn the way through %s\n", rows[i].file);
        i += print_stage(&rows[i], report->n_rows - i, out);
    }
    if (report->n_rows > 0)
        fputc('\n', out);
}

void report_print(const struct report *report, bool quiet, bool colour, FILE *out)
{
    static const enum finding_status order[] = {FINDING_FAIL, FINDING_WARN, FINDING_OK, FINDING_SKIPPED};
    size_t n_bad = count(report, FINDING_FAIL) + count(report, FINDING_WARN);
    int width = 0;

    for (size_t i = 0; i < report->n_findings; i++) {
        int n = (int)strlen(report->findings[i]->subject);
        width = n > width ? n : width;
    }
    width = width > 28 ? 28 : width;
    if (!quiet)
        print_rows(report, out);
    for (size_t o = 0; o < (quiet ? 2 : ARRAY_LEN(order)); o++)
        for (size_t i = 0; i < report->n_findings; i++)
            if (report->findings[i]->status == order[o])
                print_finding(report->findings[i], width, colour, out);
    size_t n_warnings = count(report, FINDING_WARN);
    fprintf(out, "%s%zu failed, %zu warning%s, %zu ok, %zu skipped\n", quiet && n_bad == 0 ? "" : "\n",
            count(report, FINDING_FAIL), n_warnings, plural(n_warnings), count(report, FINDING_OK),
            count(report, FINDING_SKIPPED));
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* Returns a text as JSON.  A text that is not UTF-8 (for example a file's name, cut in the middle) is replaced, so that
 * the finding is kept. */
static json_t *text_json(const char *text)
{
    json_t *value = json_string(text);

    return value ? value : json_string("(not UTF-8)");
}

static json_t *findings_json(const struct report *report)
{
    json_t *array = json_array();

    for (size_t i = 0; i < report->n_findings; i++) {
        const struct finding *f = report->findings[i];
        json_array_append_new(array, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "id", f->id, "status",
                                               status_names[f->status], "subject", text_json(f->subject), "found",
                                               text_json(f->found), "expected", text_json(f->expected), "why",
                                               text_json(f->why), "fix", text_json(f->fix)));
    }
    return array;
}

static json_t *rows_json(const struct report *report)
{
    json_t *array = json_array();

    for (size_t i = 0; i < report->n_rows; i++) {
        const struct loss_row *row = &report->rows[i];
        json_array_append_new(array, json_pack("{s:o, s:s, s:o, s:I, s:b}", "file", text_json(row->file), "stage",
                                               row->stage, "counter", text_json(row->counter), "grew",
                                               (json_int_t)row->grew, "loss", row->loss));
    }
    return array;
}

void report_print_json(const struct report *report, const char *const *names, size_t n_names, FILE *out)
{
    static const char *const worst[] = {"ok", "warn", "fail"};
    json_t *files = json_array();
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    for (size_t i = 0; i < n_names; i++)
        json_array_append_new(files, json_string(names[i]));
    json_t *root =
        json_pack("{s:s, s:s, s:o, s:f, s:o, s:s, s:o, s:o}", "program", "cbf-doctor", "version", cbf_build_id, "host",
                  text_json(host), "time", (double)clock_unix_ns() / (double)NS_PER_S, "files", files, "status",
                  worst[report_exit_code(report)], "findings", findings_json(report), "losses", rows_json(report));
    json_dumpf(root, out, JSON_INDENT(1));
    fputc('\n', out);
    json_decref(root);
}
