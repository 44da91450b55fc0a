/* monitor.h - counters and sensors of an input (one polarisation of one antenna): the state of the input's digitiser
 * and of the network path from the digitiser.
 *
 * Flow:      chunks, in order of arrival; windows of power (level.h) --> counters, sensors
 * Times:     the time of a reading is a time of the data: the start of the chunk for rx.* sensors, the end of the chunk
 *            for clip counts, and the end of the window for power.
 * Threads:   the worker, except create and destroy (main). */
#ifndef FGPU_INPUT_MONITOR_H
#define FGPU_INPUT_MONITOR_H

#include "common/recv/chunk.h"
#include "common/base/counter.h"
#include "common/telemetry/sensor.h"
#include "fgpu/config/layout.h"

struct fgpu_monitor {
    struct timebase timebase;
    int64_t chunk_samples, packet_samples;
    struct counter n_samples, n_clipped;
    struct sensor clip_cnt, rms_dbfs, timestamp, unixtime, missing_unixtime;
};

/* Initialises a monitor.  'labels' are the input's labels in /metrics. */
void fgpu_monitor_init(struct fgpu_monitor *monitor, const struct fgpu_config *config, const char *labels);

/* Adds the sensors of input 'i'.  Returns 0 or -ENOMEM. */
int fgpu_monitor_add_sensors(struct fgpu_monitor *monitor, struct sensors *sensors, size_t i);

void fgpu_monitor_chunk(struct fgpu_monitor *monitor, const struct chunk *chunk);

/* Sets the power of a window that ends at 'end_samples'; 'valid' is false if samples of the window are missing. */
void fgpu_monitor_power(struct fgpu_monitor *monitor, double dbfs, bool valid, int64_t end_samples);

#endif
