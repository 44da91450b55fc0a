/* gnss_lock.c - computes the indicators from which gnss_track.c decides whether code and carrier are locked. */
#include "fgpu/gnss/gnss_lock.h"

#include <math.h>

#define MOMENTS_SECONDS 0.5
#define CARRIER_SECONDS 0.3

/* A new sum covers 'data_s' seconds of data.  Adds 'data_s' to '*seconds', up to 'limit_s'.  Returns the weight of the
 * new sum in a mean over '*seconds' seconds. */
static double weight_of(double *seconds, double data_s, double limit_s)
{
    *seconds = fmin(*seconds + data_s, limit_s);
    return fmin(data_s / *seconds, 1);
}

void fgpu_gnss_lock_init(struct fgpu_gnss_lock *lock)
{
    *lock = (struct fgpu_gnss_lock){0};
}

void fgpu_gnss_lock_add_power(struct fgpu_gnss_lock *lock, double re, double im, double data_s)
{
    const double power = re * re + im * im, weight = weight_of(&lock->seconds, data_s, MOMENTS_SECONDS);

    lock->m2 += weight * (power - lock->m2);
    lock->m4 += weight * (power * power - lock->m4);
    lock->data_s += weight * (data_s - lock->data_s);
}

void fgpu_gnss_lock_add_phase(struct fgpu_gnss_lock *lock, double re, double im, double data_s)
{
    const double weight = weight_of(&lock->carrier_seconds, data_s, CARRIER_SECONDS), power = re * re + im * im;

    lock->difference += weight * (re * re - im * im - lock->difference);
    if (power > 0)
        lock->sum += weight * (power - lock->sum);
}

double fgpu_gnss_lock_cn0_db_hz(const struct fgpu_gnss_lock *lock)
{
    const double square = 2 * lock->m2 * lock->m2 - lock->m4;

    if (square <= 0)
        return -INFINITY;
    const double signal = sqrt(square), noise = lock->m2 - signal;
    return noise > 0 ? 10 * log10(signal / noise / lock->data_s) : INFINITY;
}

double fgpu_gnss_lock_carrier(const struct fgpu_gnss_lock *lock)
{
    return lock->sum > 0 ? lock->difference / lock->sum : 0;
}
