/* bench_thread.h - the CPU time of a thread of this process. */
#ifndef SCRIPTS_BENCH_BENCH_THREAD_H
#define SCRIPTS_BENCH_BENCH_THREAD_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Returns the CPU time (user and system) of the thread with this name, in ns.  Ends the program if there is no such
 * thread. */
static inline int64_t bench_named_thread_cpu_ns(const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;

    while (tasks && (entry = readdir(tasks))) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        if (fscanf(file, "%31s", comm) != 1)
            comm[0] = '\0';
        fclose(file);
        if (strcmp(comm, name))
            continue;
        /* Linux forms the number of a thread's CPU clock from ~tid << 3 and two flags: 4 for a thread, and 2 for
         * scheduled time. */
        clockid_t clock = (clockid_t)((~(unsigned)atoi(entry->d_name) << 3) | 6);
        struct timespec t;
        closedir(tasks);
        clock_gettime(clock, &t);
        return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
    }
    fprintf(stderr, "there is no thread %s\n", name);
    exit(1);
}

#endif
