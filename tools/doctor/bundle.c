/* bundle.c - writes the support bundle: the facts that a remote expert needs, and nothing secret.
 *
 * Configurations contain no secrets.  The bundle contains no environment variables, and nothing about other programs or
 * users. */
#include "common/base/file.h"
#include "common/base/units.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/http.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FACT_BYTES_MAX (1 << 20)

/* Files of the Linux kernel (/proc and /sys) that are copied to the bundle.  A file's name in the bundle is its path,
 * with each / replaced by -. */
static const char *const facts[] = {
    "/proc/version",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/interrupts",
    "/proc/stat",
    "/proc/net/dev",
    "/proc/net/snmp",
    "/proc/net/softnet_stat",
    "/proc/net/igmp",
    "/proc/net/udp",
    "/proc/net/route",
    "/proc/swaps",
    "/proc/driver/nvidia/version",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/net/core/netdev_max_backlog",
    "/proc/sys/kernel/numa_balancing",
    "/etc/os-release",
};

static void write_text(const char *directory, const char *name, const char *text, size_t bytes)
{
    const struct file_part part = {text, bytes};

    if (file_replace(directory, name, &part, 1))
        fprintf(stderr, "cbf-doctor: %s cannot be put into the bundle\n", name);
}

/* Copies the first megabyte of a file. */
static void copy_file(const char *directory, const char *prefix, const char *path, const char *name)
{
    char full[PATH_MAX];
    char *text = malloc(FACT_BYTES_MAX);

    snprintf(full, sizeof(full), "%s%s", prefix, path);
    FILE *file = text ? fopen(full, "r") : NULL;
    if (file) {
        size_t n = fread(text, 1, FACT_BYTES_MAX, file);
        write_text(directory, name, text, n);
        fclose(file);
    }
    free(text);
}

static void write_report(const struct doctor *doctor, const char *directory, const char *name, bool json)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        abort();
    if (json)
        doctor_print_json(doctor, out);
    else
        report_print(&doctor->report, false, false, out);
    fclose(out);
    write_text(directory, name, text, bytes);
    free(text);
}

static void write_files(const struct doctor *doctor, const char *directory)
{
    char name[NAME_MAX];

    for (size_t i = 0; i < doctor->n_files; i++) {
        const struct doctor_file *file = &doctor->files[i];
        snprintf(name, sizeof(name), "%zu-%.200s", i, file->name);
        copy_file(directory, "", file->path, name);
        char *page = file->ok && file->http->listen.n ? doctor_metrics_get(&file->http->listen.items[0]) : NULL;
        snprintf(name, sizeof(name), "%zu-%.200s.metrics", i, file->name);
        if (page)
            write_text(directory, name, page, strlen(page));
        free(page);
    }
    for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
        snprintf(name, sizeof(name), "%.200s", facts[i] + 1);
        for (char *c = name; *c; c++)
            *c = *c == '/' ? '-' : *c;
        copy_file(directory, doctor->root, facts[i], name);
    }
}

/* Runs a program, and waits until it has ended.  Returns the program's exit code, or 127 if the program could not be
 * run. */
static int run(char *const argv[])
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

int doctor_bundle(const struct doctor *doctor, const char *path)
{
    char directory[] = "/tmp/cbf-doctor-XXXXXX", inside[PATH_MAX];

    if (!mkdtemp(directory)) {
        fprintf(stderr, "cbf-doctor: no directory can be made in /tmp: %s\n", strerror(errno));
        return 2;
    }
    snprintf(inside, sizeof(inside), "%s/cbf-doctor", directory);
    mkdir(inside, 0755);
    write_report(doctor, inside, "report.json", true);
    write_report(doctor, inside, "report.txt", false);
    write_files(doctor, inside);
    int code = run((char *[]){"tar", "-czf", (char *)path, "-C", directory, "cbf-doctor", NULL});
    run((char *[]){"rm", "-r", directory, NULL});
    if (code != 0) {
        fprintf(stderr, "cbf-doctor: tar could not write %s\n", path);
        return 2;
    }
    printf("wrote %s\n", path);
    return report_exit_code(&doctor->report);
}
