/* report.h - findings, and how they are told: text for people, JSON for programs.
 *
 * Threads: one.   Ownership: the report owns its findings; report_fini() frees them. */
#ifndef TOOLS_DOCTOR_REPORT_H
#define TOOLS_DOCTOR_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum finding_status { FINDING_OK, FINDING_SKIPPED, FINDING_WARN, FINDING_FAIL };

/* Texts are one line each.  'fix' is a command to paste, or what to do where no command can. */
struct finding {
    enum finding_status status;
    const char *id;    /* "host.rmem_max"; static */
    char subject[128]; /* an interface, a file, a source; "" where the host is meant */
    char found[512];
    char expected[256];
    char why[512];
    char fix[512];
};

/* A line of the table of losses: what a counter grew by while it was watched. */
struct loss_row {
    char file[96];     /* whose way this is */
    const char *stage; /* "NIC", in the order in which data meet them; static */
    char counter[128];
    uint64_t grew;
    bool loss; /* growth means loss */
};

struct report {
    size_t n_findings;
    struct finding **findings;
    size_t n_rows;
    struct loss_row *rows;
};

/* Adds a finding whose other texts are empty.  It stays where it is; out of memory ends the process. */
struct finding *report_add(struct report *report, enum finding_status status, const char *id, const char *subject);

/* Writes one of a finding's texts, which is an array; what is too long is cut. */
#define SAY(text, ...) report_say(text, sizeof(text), __VA_ARGS__)
void report_say(char *text, size_t text_bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

void report_add_row(struct report *report, const struct loss_row *row);

/* 0 where all is well, 1 with warnings, 2 with failures. */
int report_exit_code(const struct report *report);

/* 'quiet': only warnings, failures and the verdict. */
void report_print(const struct report *report, bool quiet, bool colour, FILE *out);

/* 'names' are those of the files. */
void report_print_json(const struct report *report, const char *const *names, size_t n_names, FILE *out);

void report_fini(struct report *report);

#endif
