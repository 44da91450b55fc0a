/* delay.h - delay models of one input: which input sample belongs to which output time, and what remains to correct.
 *
 * A model says: with r = t - start,
 *
 *     delay(t) = delay + rate r + acceleration r^2 / 2               samples
 *     phase(t) = phase + phase_rate r + phase_acceleration r^2 / 2   radians, the correction at the band's centre
 *
 * where t is the time of the *output*: a positive delay makes input sample t appear at t + delay.  A spectrum whose
 * window starts at output time t looks at the input from t - coarse on, coarse = delay(t) rounded half to even, all of
 * its window alike; fine = delay(t) - coarse is left to a phase slope over the channels.  All in double precision, times
 * in 64-bit integers, so nothing gets less exact as time goes by.
 *
 * Grid:      of an output that takes only every A-th sample (a narrow band, whose samples after ddc.h are at multiples
 *            of A) windows start at such multiples: at the one nearest to where the exact delay would have it, and
 *            'fine' has what that adds, so it goes to A / 2 either way.  A is 1 of a wide band.
 *
 * Queue:     a set of models in order of start.  Every output time chooses the last one that has started by then,
 *            whatever was chosen before: so time may jump ahead and back, and the same models hold as before.  No model
 *            holds before its start.  Before the first that was set the delay is zero.  Adding a model removes those
 *            that start at or after it.  A model that starts in the past holds from the next spectrum on, with r
 *            counted from its start.
 * Forgotten: nothing because of the data's time.  The oldest model makes room in a full queue, if the one behind it
 *            has started by a time that the caller is sure of.  The delay is zero, then, where the oldest held.
 * Threads:   pure functions on the caller's structs.   Blocking and allocation: none. */
#ifndef FGPU_DELAY_H
#define FGPU_DELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DELAY_MAX_MODELS 256 /* in a queue: a night of one a minute or two */

struct fgpu_delay_model {
    int64_t start_samples; /* >= 0 */
    double delay_samples;  /* |delay| <= 2^53 */
    double rate;           /* samples per sample; |rate| < 1 */
    double acceleration;   /* samples per sample squared; slow enough that the rate stays within +-1 */
    double phase_rad;
    double phase_rate_rad;         /* per sample */
    double phase_acceleration_rad; /* per sample squared */
};

struct fgpu_delay_queue {
    size_t n; /* >= 1; in order of start; the first is zero, from time -1 on, and stays */
    struct fgpu_delay_model models[DELAY_MAX_MODELS];
};

/* A delay model evaluated at one output time. */
struct fgpu_delay_values {
    int64_t coarse_samples; /* the window starts at t - coarse_samples of the input */
    double fine_samples;    /* [-1/2, 1/2], or half of the grid's step */
    double phase_rad;       /* at the band's centre, [-pi, pi) */
};

/* The same angle in [-pi, pi). */
double fgpu_delay_wrap(double angle_rad);

struct fgpu_delay_values fgpu_delay_evaluate(const struct fgpu_delay_model *model, int64_t t_samples);

/* One model that is zero, from time -1 on. */
void fgpu_delay_queue_init(struct fgpu_delay_queue *queue);

/* Returns 0, or -ENOSPC, with the queue as it was, when there is no room behind those that start before 'model'. */
int fgpu_delay_queue_add(struct fgpu_delay_queue *queue, const struct fgpu_delay_model *model);

/* Moves the start of the window at output time 't_samples' to the grid. */
void fgpu_delay_align(struct fgpu_delay_values *values, int64_t t_samples, int64_t grid_samples);

/* Evaluates the model that holds at output time 't_samples'.  The window then starts on the grid. */
struct fgpu_delay_values fgpu_delay_queue_at(const struct fgpu_delay_queue *queue, int64_t t_samples,
                                             int64_t grid_samples);

/* The model that holds at an output time >= 0. */
const struct fgpu_delay_model *fgpu_delay_queue_model(const struct fgpu_delay_queue *queue, int64_t t_samples);

/* Forgets the oldest model that was set, if it holds at no time from 't_samples' on.  Returns whether it did. */
bool fgpu_delay_queue_forget_oldest(struct fgpu_delay_queue *queue, int64_t t_samples);

/* Where to begin again: the smallest multiple of 'align_samples' at or after 'start_samples' (>= 0) at which the windows
 * of all 'n' queues start at or after first_samples[i] of their inputs; INT64_MAX where there is none
 * below 2^61, so a delay grows as fast as time.  Minimal as long as rates stay within +-1. */
int64_t fgpu_delay_skip(const struct fgpu_delay_queue *const *queues, const int64_t *first_samples, size_t n,
                        int64_t grid_samples, int64_t start_samples, int64_t align_samples);

/* The phase by which a wideband spectrum is rotated: the model's phase, plus a quarter turn for each sample of coarse
 * delay.  The coarse delay is an offset of the input, and the band's centre lies at a quarter of the sample rate.
 * Radians, [-pi, pi). */
double fgpu_delay_wideband_phase(const struct fgpu_delay_values *values);

#endif
