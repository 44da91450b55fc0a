/* process.h - the kernel's measurements of this process, as metrics with the names that Prometheus recommends. */
#ifndef COMMON_BASE_PROCESS_H
#define COMMON_BASE_PROCESS_H

#include <stdio.h>

/* Writes process_cpu_seconds_total, process_resident_memory_bytes, process_start_time_seconds and similar metrics as
 * Prometheus text.  Omits a metric whose value cannot be read. */
void process_write_metrics(FILE *out);

#endif
