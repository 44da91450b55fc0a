/* process.c - reads the metrics of the process itself from /proc on request.  stats.c registers all other metrics. */
#include "common/base/process.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/units.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void put(FILE *out, const char *name, const char *type, const char *help, double value)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, value);
}

/* Fields of /proc/self/stat after the process's name (see proc(5)).  The name is in parentheses and may contain
 * parentheses. */
struct stat_fields {
    int64_t n_threads, start_ticks, virtual_bytes, resident_pages;
};

static bool read_stat(struct stat_fields *fields)
{
    char text[2048];
    FILE *file = fopen("/proc/self/stat", "re");

    if (!file)
        return false;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *behind = strrchr(text, ')');
    return behind &&
           sscanf(behind + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %" SCNd64 " %*d %" SCNd64
                  " %" SCNd64 " %" SCNd64,
                  &fields->n_threads, &fields->start_ticks, &fields->virtual_bytes, &fields->resident_pages) == 4;
}

static int count_open_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = -3; /* the loop also counts ".", ".." and the descriptor of the directory */

    while (directory && readdir(directory))
        n++;
    if (directory)
        closedir(directory);
    return n;
}

void process_write_metrics(FILE *out)
{
    struct stat_fields fields;
    struct rlimit limit;
    unsigned long long boot_s; /* UNIX time when the host booted; /proc gives a process's start time relative to it */
    bool boot_known = file_find_number("/proc/stat", "btime %llu", &boot_s);
    int n_files = count_open_files();

    put(out, "process_cpu_seconds_total", "counter", "User and system CPU time, in seconds.",
        (double)clock_process_cpu_ns() / NS_PER_S);
    put(out, "process_dropped_log_lines_total", "counter",
        "Log lines dropped because stderr or the journal was not read fast enough.", (double)log_n_dropped());
    if (read_stat(&fields)) {
        put(out, "process_resident_memory_bytes", "gauge", "Resident memory, in bytes.",
            (double)(fields.resident_pages * sysconf(_SC_PAGESIZE)));
        put(out, "process_virtual_memory_bytes", "gauge", "Virtual memory, in bytes.", (double)fields.virtual_bytes);
        put(out, "process_threads", "gauge", "Threads.", (double)fields.n_threads);
        if (boot_known)
            put(out, "process_start_time_seconds", "gauge", "UNIX time at which the process started, in seconds.",
                (double)boot_s + (double)fields.start_ticks / (double)sysconf(_SC_CLK_TCK));
    }
    if (n_files >= 0)
        put(out, "process_open_fds", "gauge", "Open file descriptors.", n_files);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        put(out, "process_max_fds", "gauge", "Limit on the number of open file descriptors.", (double)limit.rlim_cur);
}
