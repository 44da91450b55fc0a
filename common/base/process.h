/* process.h - the kernel's figures about this process, under the names that Prometheus gives them. */
#ifndef COMMON_BASE_PROCESS_H
#define COMMON_BASE_PROCESS_H

#include <stdio.h>

/* Writes process_cpu_seconds_total, process_resident_memory_bytes, process_start_time_seconds and similar metrics as
 * Prometheus text.  Leaves out a value that cannot be read. */
void process_write_metrics(FILE *out);

#endif
