/* delay_text.h - delay models as text.  The text is in seconds, the models of delay.h are in samples.
 *
 * A request (delay_request.h) has the form
 *
 *     delay,rate[,acceleration]:phase,phase rate[,phase acceleration]
 *
 * A sensor has the form
 *
 *     (start, delay, rate, phase, phase rate[, acceleration, phase acceleration])
 *
 * The start is in ADC samples; -1 if no start was set.
 *
 * Threads: pure functions. */
#ifndef FGPU_DELAY_TEXT_H
#define FGPU_DELAY_TEXT_H

#include "common/telemetry/sensor.h"
#include "common/time/timebase.h"
#include "common/base/units.h"
#include "common/engine/delay_request.h"
#include "fgpu/delay.h"

#include <stdio.h>

/* Sets all fields of the model except its start, and wraps the phase.  Returns NULL on success.  If a number is not
 * finite or exceeds a limit of delay.h, returns an error message and leaves the model unchanged. */
const char *fgpu_delay_from_seconds(const double numbers[DELAY_N_NUMBERS], double adc_sample_rate_hz,
                                    struct fgpu_delay_model *model);

/* Writes numbers from which fgpu_delay_from_seconds() reproduces the model, bit for bit if such numbers exist. */
void fgpu_delay_to_seconds(const struct fgpu_delay_model *model, double adc_sample_rate_hz,
                           double numbers[DELAY_N_NUMBERS]);

/* Reads the text of a model in a request.  Returns the same as fgpu_delay_from_seconds(). */
const char *fgpu_delay_text_parse(const char *text, double adc_sample_rate_hz, struct fgpu_delay_model *model);

/* The first function returns the sensor reading for 'model', which has been in effect since 'since_samples'.  The
 * second function formats a reading of this kind as text. */
struct sensor_reading fgpu_delay_text_reading(const struct fgpu_delay_model *model, const struct timebase *timebase,
                                              int64_t since_samples);
void fgpu_delay_text_format(const union sensor_value *value, char *text, size_t text_bytes);

/* The format of a file with an antenna's delay models.  Such a file has the models known before the start, or the
 * models kept across restarts.
 *
 *     # start      pol  delay     rate     phase  phase rate  [acceleration [phase acceleration]]
 *     # UNIX s          s         s/s      rad    rad/s        s/s^2         rad/s^2
 *     1760000000   0    1.25e-6   2.1e-9   0      0
 *     1760000060.5 1    1.37e-6   2.1e-9   0.1    -3e-4       4e-14
 *
 * Each line has one model.  The models of a polarisation are in order of start.  A '#' begins a comment.  The start has
 * at most nine decimals and is rounded to the nearest sample, half to even.  The phase is wrapped. */

/* Reads the queues of both polarisations.  The first model of each queue is zero, as in a new queue.  Refuses a
 * delay beyond +-recv.max_delay.  Returns 0, or negative errno with one sentence in 'why' that begins with
 * "PATH:line: ". */
int fgpu_delay_text_read_file(const char *path, const struct timebase *timebase, double max_delay_s,
                              struct fgpu_delay_queue pols[N_POLS], char *why, size_t why_bytes);

/* Writes a file that fgpu_delay_text_read_file() reads as the same models.  Only the models' starts may differ,
 * because the file stores starts in whole nanoseconds. */
void fgpu_delay_text_write_file(FILE *out, const struct timebase *timebase, const struct fgpu_delay_queue pols[N_POLS]);

#endif
