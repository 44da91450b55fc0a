/* monitor.c - updates the counters and sensors of an input from received chunks and from power windows (level.h). */
#include "fgpu/input/monitor.h"

#include "common/base/clock.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "fgpu/input/level.h"

#include <float.h>
#include <stdio.h>

/* Shortest time without chunks after which an input's sensors change to status error. */
#define TIMEOUT_MIN_NS NS_PER_S
#define TIMEOUT_CHUNKS 10

/* Shortest interval between updates of sensors whose readings change with each chunk. */
#define AUTO_SHORTEST_S 1.0

void fgpu_monitor_init(struct fgpu_monitor *m, const struct fgpu_config *config, const char *labels)
{
    m->timebase = fgpu_timebase(config);
    m->chunk_samples = config->recv.chunk_samples;
    m->packet_samples = config->recv.packet_samples;
    stats_counter("fgpu_input_samples", "Samples received from the digitiser.", labels, &m->n_samples);
    stats_counter("fgpu_input_clipped_samples", "Samples that the digitiser reports as saturated.", labels,
                  &m->n_clipped);
}

int fgpu_monitor_add_sensors(struct fgpu_monitor *m, struct sensors *sensors, size_t i)
{
    int64_t timeout_ns = timebase_duration_ns(&m->timebase, TIMEOUT_CHUNKS * m->chunk_samples);
    char names[5][40];
    const char *const ends[] = {"dig-clip-cnt", "dig-rms-dbfs", "rx.timestamp", "rx.unixtime", "rx.missing-unixtime"};

    const int64_t now_ns = clock_unix_ns();
    timeout_ns = timeout_ns > TIMEOUT_MIN_NS ? timeout_ns : TIMEOUT_MIN_NS;
    for (size_t k = 0; k < ARRAY_LEN(ends); k++)
        snprintf(names[k], sizeof(names[k]), "input%zu.%s", i, ends[k]);
    const struct {
        struct sensor *sensor;
        struct sensor_desc about;
        struct sensor_reading first;
    } rows[] = {
        {&m->clip_cnt,
         {names[0], "Saturated samples that the digitiser reported since the start", "", SENSOR_INTEGER,
          .auto_shortest_s = AUTO_SHORTEST_S},
         {now_ns, SENSOR_NOMINAL, {.integer = 0}}},
        {&m->rms_dbfs,
         {names[1],
          "Mean power of the digitiser's samples over about a second; 0 is a full-scale sine. Status: nominal from -30 "
          "to -10 dBFS, otherwise warn from -33 to -7 dBFS, otherwise error; failure if samples are missing",
          "dBFS", SENSOR_FLOAT, .auto_shortest_s = AUTO_SHORTEST_S},
         {now_ns, SENSOR_UNKNOWN, {.real = 0}}},
        {&m->timestamp,
         {names[2], "ADC timestamp (in samples) of the start of the last chunk received; error after a silence", "",
          SENSOR_INTEGER, .auto_shortest_s = AUTO_SHORTEST_S, .timeout_ns = timeout_ns},
         {now_ns, SENSOR_ERROR, {.integer = -1}}},
        {&m->unixtime,
         {names[3], "UNIX time (in s) of the start of the last chunk received; error after a silence", "",
          SENSOR_TIMESTAMP, .auto_shortest_s = AUTO_SHORTEST_S, .timeout_ns = timeout_ns},
         {now_ns, SENSOR_ERROR, {.real = -1}}},
        {&m->missing_unixtime,
         {names[4],
          "UNIX time (in s) of the last chunk that lacks heaps or follows missing heaps; error after a loss, nominal "
          "after some time without loss",
          "", SENSOR_TIMESTAMP, .auto_shortest_s = AUTO_SHORTEST_S, .timeout_ns = timeout_ns, .recovers = true},
         {now_ns, SENSOR_NOMINAL, {.real = -1}}},
    };
    int err = 0;
    for (size_t k = 0; k < ARRAY_LEN(rows) && !err; k++)
        err = sensors_add(sensors, rows[k].sensor, &rows[k].about, rows[k].first);
    return err;
}

void fgpu_monitor_chunk(struct fgpu_monitor *m, const struct chunk *chunk)
{
    int64_t start_ns = timebase_unix_ns(&m->timebase, chunk->timestamp_samples);
    int64_t end_ns = timebase_unix_ns(&m->timebase, chunk->timestamp_samples + m->chunk_samples);
    uint64_t n_clipped = 0;

    for (size_t h = 0; h < chunk->n_heaps; h++)
        n_clipped += chunk->extra[h];
    counter_add(&m->n_clipped, n_clipped);
    counter_add(&m->n_samples, chunk->n_present * (uint64_t)m->packet_samples);
    sensor_set_integer(&m->clip_cnt, end_ns, SENSOR_NOMINAL, (int64_t)counter_get(&m->n_clipped));
    sensor_set_integer(&m->timestamp, start_ns, SENSOR_NOMINAL, chunk->timestamp_samples);
    sensor_set_real(&m->unixtime, start_ns, SENSOR_NOMINAL, (double)start_ns / 1e9);
    if (chunk->n_missing)
        sensor_set_real(&m->missing_unixtime, start_ns, SENSOR_ERROR, (double)start_ns / 1e9);
}

/* Returns the sensor status for a power.  At nominal power the signal is well above the digitiser's steps and does not
 * saturate. */
static enum sensor_status power_status(double dbfs)
{
    if (dbfs >= -30 && dbfs <= -10)
        return SENSOR_NOMINAL;
    return dbfs > -33 && dbfs < -7 ? SENSOR_WARN : SENSOR_ERROR;
}

void fgpu_monitor_power(struct fgpu_monitor *m, double dbfs, bool valid, int64_t end_samples)
{
    double value = dbfs == LEVEL_SILENCE_DBFS ? -DBL_MAX : dbfs; /* katgpucbf reports power 0 as this number */

    sensor_set_real(&m->rms_dbfs, timebase_unix_ns(&m->timebase, end_samples),
                    valid ? power_status(dbfs) : SENSOR_FAILURE, value);
}
