/* delay_request.h - parses the delay models and start times of KATCP requests.  A delay model has the form
 *
 *     delay,rate[,acceleration]:phase,phase rate[,phase acceleration]      s, s/s, s/s^2; rad, rad/s, rad/s^2
 *
 * Threads: pure functions. */
#ifndef COMMON_ENGINE_DELAY_REQUEST_H
#define COMMON_ENGINE_DELAY_REQUEST_H

#include "common/time/timebase.h"

#include <stdbool.h>
#include <stdint.h>

struct katcp_call;

/* Indices of the numbers of a delay model.  Units: s, s/s, rad, rad/s, s/s^2, rad/s^2. */
enum delay_number { DELAY_S, DELAY_RATE, DELAY_PHASE, DELAY_PHASE_RATE, DELAY_ACCELERATION, DELAY_PHASE_ACCELERATION };
#define DELAY_N_NUMBERS 6

/* Largest delay rate that a request may set, in s/s.  The rotation of the sky causes delay rates of 3e-9 s/s at most,
 * so a rate above this limit is a typing error. */
#define DELAY_MAX_REQUEST_RATE 1e-3

/* Parses the delay model of a request.  If the text has no accelerations, the function sets the accelerations to 0.
 * Returns NULL, or an error message. */
const char *delay_request_parse(const char *text, double numbers[DELAY_N_NUMBERS]);

/* Converts argument 'i', a UNIX time in seconds, to the nearest timestamp.  The conversion is exact if the text has at
 * most nine decimals.  If the argument is wrong, fails the call and returns false. */
bool delay_request_start(struct katcp_call *call, int i, const struct timebase *timebase, int64_t *start_samples);

#endif
