/* process.h - what the kernel knows of this process, under the names that Prometheus gives it. */
#ifndef COMMON_BASE_PROCESS_H
#define COMMON_BASE_PROCESS_H

#include <stdio.h>

/* Writes process_cpu_seconds_total, process_resident_memory_bytes, process_start_time_seconds and the like as
 * Prometheus text; what cannot be read is left out. */
void process_write_metrics(FILE *out);

#endif
