/* report.h - findings and their output: text for people, JSON for programs.
 *
 * Threads: one.
 * Ownership: the report owns its findings; report_fini() frees them. */
#ifndef TOOLS_DOCTOR_REPORT_H
#define TOOLS_DOCTOR_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum finding_status { FINDING_OK, FINDING_SKIPPED, FINDING_WARN, FINDING_FAIL };

/* Each text of a finding is one line.  'fix' is a command to paste, or an instruction if no command helps. */
struct finding {
    enum finding_status status;
    const char *id;    /* identifier of the check, for example "host.rmem_max"; static */
    char subject[128]; /* subject of the finding: an interface, a file or a source; "": this host */
    char found[512];
    char expected[256];
    char why[512];
    char fix[512];
};

/* A row of the table of losses: the growth of one counter during the observation. */
struct loss_row {
    char file[96]; /* name of the daemon's configuration file */
    /* name of the counter's stage, for example "NIC"; static.  Rows are in the order in which data pass the stages. */
    const char *stage;
    char counter[128];
    uint64_t grew;
    bool loss; /* true: the counter counts lost data */
};

struct report {
    size_t n_findings;
    struct finding **findings;
    size_t n_rows;
    struct loss_row *rows;
};

/* Adds a finding with empty texts.  The finding's address stays valid until report_fini().  If memory runs out, the
 * process ends. */
struct finding *report_add(struct report *report, enum finding_status status, const char *id, const char *subject);

/* Writes a text of a finding.  'text' is an array; a text that is too long is cut. */
#define SAY(text, ...) report_say(text, sizeof(text), __VA_ARGS__)
void report_say(char *text, size_t text_bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

void report_add_row(struct report *report, const struct loss_row *row);

/* Returns the exit code: 0 if all is well, 1 if there are warnings, 2 if there are failures. */
int report_exit_code(const struct report *report);

/* Prints the report.  'quiet': prints only warnings, failures and the verdict. */
void report_print(const struct report *report, bool quiet, bool colour, FILE *out);

/* Prints the report as JSON.  'names' are the names of the files. */
void report_print_json(const struct report *report, const char *const *names, size_t n_names, FILE *out);

void report_fini(struct report *report);

#endif
