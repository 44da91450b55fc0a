/* delay.h - delay models of one input: the input sample for each output time, and the remaining correction.
 *
 * A model defines the delay and the phase at time t, with r = t - start:
 *
 *     delay(t) = delay + rate r + acceleration r^2 / 2               samples
 *     phase(t) = phase + phase_rate r + phase_acceleration r^2 / 2   radians, the correction at the band's centre
 *
 * t is the time of the *output*: a positive delay makes input sample t appear at t + delay.  The coarse delay is
 * delay(t), rounded half to even.  All samples of a window have the same coarse delay.  If a window starts at output
 * time t, the window's first input sample is t - coarse.  A phase slope over the channels corrects the fine delay,
 * delay(t) - coarse.  All arithmetic is in double precision and all times are 64-bit integers, so precision does not
 * fall as time passes.
 *
 * Grid:      the samples of a narrow band are at multiples of the subsampling A (ddc.h), so windows start at such
 *            multiples.  A window starts at the multiple nearest to the exact delay.  The fine delay includes the
 *            difference, so its magnitude is at most A / 2.  A is 1 for a wide band.
 *
 * Queue:     models in order of start.  At every output time the last model that has started is in effect, regardless
 *            of earlier output times.  So if time jumps ahead or back, the model in effect still depends only on the
 *            output time.  No model is in effect before its start.  The delay is zero before the first start.  Adding a
 *            model removes all models that start at or after its start.  A model that starts in the past takes effect
 *            with the next spectrum, with r counted from its start.
 * Forgotten: no model is forgotten because of the data's time alone.  The oldest model is forgotten to make room in a
 *            full queue, if the next model has started by a time that the caller states.  From then on, the delay is
 *            zero at the output times at which the forgotten model was in effect.
 * Threads:   pure functions on the caller's structs.   Blocking and allocation: none. */
#ifndef FGPU_DELAY_H
#define FGPU_DELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DELAY_MAX_MODELS 256 /* maximum number of models in a queue: enough for a model every two minutes in a night */

struct fgpu_delay_model {
    int64_t start_samples; /* >= 0 */
    double delay_samples;  /* |delay| <= 2^53 */
    double rate;           /* change of the delay, in samples per sample; |rate| < 1 */
    /* samples per sample squared; the caller must choose a value small enough that |rate| stays below 1 */
    double acceleration;
    double phase_rad;
    double phase_rate_rad;         /* rad per sample */
    double phase_acceleration_rad; /* rad per sample squared */
};

struct fgpu_delay_queue {
    size_t n; /* number of models; models[0] is zero, starts at time -1, and is never removed */
    struct fgpu_delay_model models[DELAY_MAX_MODELS]; /* models in order of start */
};

/* A delay model evaluated at one output time. */
struct fgpu_delay_values {
    int64_t coarse_samples; /* the window for output time t starts at input sample t - coarse_samples */
    double fine_samples;    /* delay minus coarse delay, in [-A/2, A/2] for a grid of A samples */
    double phase_rad;       /* phase correction at the band's centre, in [-pi, pi) */
};

/* Returns an angle wrapped to [-pi, pi). */
double fgpu_delay_wrap(double angle_rad);

struct fgpu_delay_values fgpu_delay_evaluate(const struct fgpu_delay_model *model, int64_t t_samples);

/* Initialises a queue with one model, which is zero and starts at time -1. */
void fgpu_delay_queue_init(struct fgpu_delay_queue *queue);

/* Adds a model.  If the models that start before 'model' already fill the queue, returns -ENOSPC and leaves the queue
 * unchanged; otherwise returns 0. */
int fgpu_delay_queue_add(struct fgpu_delay_queue *queue, const struct fgpu_delay_model *model);

/* Moves the start of the window at output time 't_samples' to the grid. */
void fgpu_delay_align(struct fgpu_delay_values *values, int64_t t_samples, int64_t grid_samples);

/* Evaluates the model in effect at output time 't_samples'.  The window of the result starts on the grid. */
struct fgpu_delay_values fgpu_delay_queue_at(const struct fgpu_delay_queue *queue, int64_t t_samples,
                                             int64_t grid_samples);

/* Returns the model in effect at an output time >= 0. */
const struct fgpu_delay_model *fgpu_delay_queue_model(const struct fgpu_delay_queue *queue, int64_t t_samples);

/* Forgets the oldest model after the zero model, if this oldest model is no longer in effect at 't_samples'.  Returns
 * true if a model was forgotten. */
bool fgpu_delay_queue_forget_oldest(struct fgpu_delay_queue *queue, int64_t t_samples);

/* Returns an output time at which an output can begin again.  This time is a multiple of 'align_samples' at or after
 * 'start_samples' (>= 0).  At this time the windows of all 'n' queues start at or after first_samples[i] of their
 * inputs.  If all delay rates are within +-1, this time is the smallest such time.  If a delay grows as fast as time,
 * there may be no such time below 2^61.  In this case the function returns INT64_MAX. */
int64_t fgpu_delay_skip(const struct fgpu_delay_queue *const *queues, const int64_t *first_samples, size_t n,
                        int64_t grid_samples, int64_t start_samples, int64_t align_samples);

/* Returns the phase by which a wideband spectrum is rotated: the model's phase, plus a quarter turn for each sample of
 * coarse delay.  The coarse delay shifts the input, and so changes the phase at the band's centre.  The band's centre
 * lies at a quarter of the sample rate.  The quarter turns undo the change.  The result is in radians, [-pi, pi). */
double fgpu_delay_wideband_phase(const struct fgpu_delay_values *values);

#endif
